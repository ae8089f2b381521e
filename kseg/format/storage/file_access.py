"""How files are read: the rate limit, for runs next to a broker that needs the disks, and the functions that get warnings.

Each thread and each asyncio task has its own. Without ``file_access`` there are no limits, and warnings are dropped.
The callback for progress is passed as an argument.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from kseg.errors import UsageError

#: Called with the bytes read since the last call.
Progress = Callable[[int], None]

# Pauses per second: between reads of 0.1 s the disk serves others.
_PAUSES = 10
_LEAST_READ = 4096
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_rate(text: str) -> float:
    """Parse a rate such as ``50M``, ``1.5 GiB/s`` or ``800000``; K, M, G and T are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    rate = float(match[1]) * 1024 ** _UNITS[match[2].upper()] if match else 0.0
    if not 1 <= rate < math.inf:
        raise ValueError(f"{text!r}: expected bytes per second, such as 50M")
    return rate


class RateLimit:
    """The limit of all files together that are opened with it, in bytes per second. None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._free_at = 0.0  # the time of the next read (time.monotonic)

    @contextmanager
    def shared(self, readers: int) -> Iterator[None]:
        """Reduce the limit to the share of this process while ``readers`` processes read concurrently."""
        whole = self.rate
        self.rate = whole and whole / readers
        try:
            yield
        finally:
            self.rate = whole

    def read_size(self, wanted: int) -> int:
        """Return how many of ``wanted`` bytes to read at once."""
        return wanted if self.rate is None else min(wanted, max(_LEAST_READ, int(self.rate / _PAUSES)))

    def wait_for(self, count: int) -> None:
        """Wait until the next read is allowed after ``count`` bytes were read."""
        if self.rate is not None:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.rate
            time.sleep(self._free_at - now)


class FileAccess(NamedTuple):
    """How files are read; a file keeps the limit with which it was opened."""

    limit: RateLimit
    warn: Callable[[str], object]
    deleted: Callable[[str], object]
    keys: tuple[str, ...] = ()


# findings.do_nothing would load the rules for --version.
_UNLIMITED = FileAccess(RateLimit(None), lambda line: None, lambda path: None)
_access: ContextVar[FileAccess] = ContextVar("file_access", default=_UNLIMITED)
#: Return how files are read now.
current = _access.get


@contextmanager
def file_access(
    *,
    max_rate: float | None = None,
    warn: Callable[[str], object] | None = None,
    deleted: Callable[[str], object] | None = None,
    keys: tuple[str, ...] = (),
) -> Iterator[None]:
    """Set how files are read in this block, by this thread or asyncio task and by the processes that it starts.

    ``max_rate`` is the maximum number of bytes per second, over all files that are opened in the block. ``warn`` is called
    with a line about files that are skipped because they are FIFOs, sockets or devices, and about parts of objects that
    cannot be decoded. ``deleted`` is called in this process, at least once, with the path of each file that is left out
    because a broker deleted it after it was listed. ``keys`` are paths of private keys (PEM) for encrypted objects in tiered
    storage. None and () keep the current value.

    Raises UsageError for a rate that is not a number of at least 1.
    """
    if max_rate is not None and not (isinstance(max_rate, (int, float)) and 1 <= max_rate < math.inf):
        raise UsageError(f"max_rate {max_rate!r}: expected bytes per second, 1 or more")
    before = current()
    here = FileAccess(
        before.limit if max_rate is None else RateLimit(max_rate),
        warn or before.warn,
        deleted or before.deleted,
        keys or before.keys,
    )
    _access.set(here)
    try:
        yield
    finally:
        if current() is here:
            _access.set(before)
