"""The rate limit of reading in bytes per second, for runs next to a broker that needs the disks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Pauses per second: between reads of 0.1 s the disk serves others.
_PAUSES = 10
_LEAST_READ = 4096
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class _RateLimit:
    """The limit in bytes per second (None: no limit), and the time of the next read (``time.monotonic``)."""

    rate: float | None = None
    free_at = 0.0


def parse_rate(text: str) -> float:
    """Parse a rate such as ``50M``, ``1.5 GiB/s`` or ``800000``; K, M, G and T are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    rate = float(match[1]) * 1024 ** _UNITS[match[2].upper()] if match else 0.0
    if rate < 1:
        raise ValueError(f"{text!r}: expected bytes per second, such as 50M")
    return rate


def limit(rate: float | None) -> None:
    """Set the limit for all files together in bytes per second; None removes it."""
    _RateLimit.rate = rate


def limited() -> float | None:
    """Return the current limit."""
    return _RateLimit.rate


@contextmanager
def shared(readers: int) -> Iterator[None]:
    """Reduce the limit of this process to its share while ``readers`` processes read concurrently."""
    whole = _RateLimit.rate
    limit(whole / readers if whole else None)
    try:
        yield
    finally:
        limit(whole)


def read_size(wanted: int) -> int:
    """Return how many of ``wanted`` bytes to read at once."""
    return wanted if _RateLimit.rate is None else min(wanted, max(_LEAST_READ, int(_RateLimit.rate / _PAUSES)))


def wait_for(count: int) -> None:
    """Wait until the next read is allowed after ``count`` bytes were read."""
    if _RateLimit.rate is None:
        return
    now = time.monotonic()
    _RateLimit.free_at = max(_RateLimit.free_at, now) + count / _RateLimit.rate
    time.sleep(_RateLimit.free_at - now)
