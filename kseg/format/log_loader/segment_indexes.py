"""The offset and time index of a segment in a broker's memory (``AbstractIndex`` of Kafka 4.3)."""

from __future__ import annotations

from typing import ClassVar

from kseg.format.log_loader.partition_files import File, Files
from kseg.format.log_loader.refusals import RefusedError
from kseg.format.record.layout import INT32_MAX, NO_TIMESTAMP
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY

# AbstractIndex.warmEntries: in an index that is out of order, the result of a look-up depends on its start.
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size


class InvalidOffsetError(Exception):
    """An index rejects an offset: Kafka's InvalidOffsetException, after which recovery empties the segment."""


def fits(offset: int, base_offset: int) -> bool:
    """Return whether an offset can be stored relative to a base offset (``AbstractIndex.canAppendOffset``)."""
    return 0 <= wrapped(offset - base_offset) <= INT32_MAX


def wrapped(number: int) -> int:
    """Return a number as a Java long, which wraps at the end of its range."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class _Index:
    """An index that is opened, or created with its largest size: ``limit`` bytes, rounded down to whole entries.

    Zeros of a preallocated index count as entries when it is opened again, as in a broker.
    """

    entry_size: ClassVar[int]

    def __init__(self, files: Files, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit - limit % self.entry_size
        self.file = files.get(name) or File(size=self.limit, entries=[])
        self.entries = self.file.size // self.entry_size if name in files else 0
        files[name] = self.file

    def reset(self) -> None:
        """Remove all entries before they are written again."""
        self.entries = 0
        self.file.truncated(0)
        self.file.entries = []
        self.file.truncated(self.limit)

    def trim(self) -> None:
        """Reduce the file to the size of its entries."""
        self.file.truncated(self.entries * self.entry_size)

    def resize(self) -> None:
        """Grow the file to its largest size. Raises RefusedError if it is larger already."""
        if self.file.size != self.limit and self.entries * self.entry_size > self.limit:
            raise RefusedError(
                f"the index has {self.file.size:,} bytes, more than segment.index.bytes {self.limit:,}", self.name
            )
        self.file.truncated(self.limit)

    def _check_space(self, kind: str) -> None:
        raise RefusedError(f"{self.entries} entries fill the {kind}: segment.index.bytes is {self.limit:,}", self.name)


class OffsetIndex(_Index):
    """Offsets and their positions in the log."""

    entry_size = OFFSET_ENTRY.size

    def __init__(self, files: Files, name: str, base_offset: int, limit: int) -> None:
        super().__init__(files, name, limit)
        self._base_offset = base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, the base offset if the index is empty."""
        return self._entry(self.entries - 1)[0] if self.entries else self._base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises InvalidOffsetError, RefusedError."""
        if self.entries >= self.file.size // self.entry_size:
            self._check_space("offset index")
        if self.entries and offset <= self.last_offset:
            raise InvalidOffsetError(offset)
        assert self.file.entries is not None, "only an index that was reset is appended to"
        self.file.entries.append((offset, position))
        self.entries += 1

    def position_of(self, target: int) -> int:
        """Return the position at which the search for an offset begins, like ``OffsetIndex.lookup``."""
        if not self.entries:
            return 0
        low, high = max(0, self.entries - 1 - _WARM_ENTRIES), self.entries - 1
        if self._entry(low)[0] >= target:
            if self._entry(0)[0] > target:
                return 0
            low, high = 0, low
        while low < high:
            middle = (low + high + 1) // 2
            offset = self._entry(middle)[0]
            if offset == target:
                low = middle
                break
            low, high = (low, middle - 1) if offset > target else (middle, high)
        return max(self._entry(low)[1], 0)

    def _entry(self, slot: int) -> tuple[int, int]:
        if self.file.entries is not None:
            return self.file.entries[slot] if slot < len(self.file.entries) else (self._base_offset, 0)
        relative, position = OFFSET_ENTRY.unpack(self.file.read(slot * self.entry_size, self.entry_size))
        return wrapped(self._base_offset + relative), position


class TimeIndex(_Index):
    """The timestamps of a segment. Only the latest one matters while a log is loaded."""

    entry_size = TIME_ENTRY.size

    def __init__(self, files: Files, name: str, limit: int) -> None:
        super().__init__(files, name, limit)
        self._last: tuple[int, int] | None = None

    def reset(self) -> None:
        super().reset()
        self._last = None

    def empty(self) -> None:
        """Empty the file: it was just created for a log that is not new."""
        self.entries = 0
        self.file.truncated(0)

    def append(self, timestamp: int, offset: int, *, last: bool = False) -> None:
        """Add an entry if the timestamp is new. ``last`` marks the last one of the segment. Raises InvalidOffsetError,
        RefusedError.
        """
        slots = self.file.size // self.entry_size
        if not last and self.entries >= slots - 1:
            self._check_space("time index")
        if self._last is not None and offset < self._last[1]:
            raise InvalidOffsetError(offset)
        if timestamp > (self._last[0] if self._last else NO_TIMESTAMP):
            if self.entries >= slots:
                self._check_space("time index")
            self._last = timestamp, offset
            self.entries += 1
