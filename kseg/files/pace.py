"""How fast this process reads: at most so many bytes a second, for sweeps beside a broker that needs the disks itself."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

# So many pauses a second: a disk that is busy for 0.1 s at a time lets others through between.
_PAUSES = 10
_LEAST_READ = 4096
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class _Pace:
    """Bytes a second, None without a limit, and when the next may be read (``time.monotonic``)."""

    rate: float | None = None
    free_at = 0.0


def parse_rate(text: str) -> float:
    """Bytes a second from ``50M``, ``1.5 GiB/s``, ``800000``; K, M, G and T are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    rate = float(match[1]) * 1024 ** _UNITS[match[2].upper()] if match else 0.0
    if rate < 1:
        raise ValueError(f"{text!r}: give bytes a second, as 50M")
    return rate


def limit(rate: float | None) -> None:
    """From now on all files together are read with at most so many bytes a second; None is without a limit."""
    _Pace.rate = rate


def limited() -> float | None:
    """The limit that holds now."""
    return _Pace.rate


@contextmanager
def shared(readers: int) -> Iterator[None]:
    """Within it this process has one share of the limit among so many that read side by side."""
    whole = _Pace.rate
    limit(whole / readers if whole else None)
    try:
        yield
    finally:
        limit(whole)


def at_once(wanted: int) -> int:
    """How much of ``wanted`` bytes to read in one go."""
    return wanted if _Pace.rate is None else min(wanted, max(_LEAST_READ, int(_Pace.rate / _PAUSES)))


def pause_for(count: int) -> None:
    """So many bytes were read: wait until the next may be."""
    if _Pace.rate is None:
        return
    now = time.monotonic()
    _Pace.free_at = max(_Pace.free_at, now) + count / _Pace.rate
    time.sleep(_Pace.free_at - now)
