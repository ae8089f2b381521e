"""The offset and time index of a segment as a broker has them in memory (``AbstractIndex`` of Kafka 4.3)."""

from __future__ import annotations

from typing import ClassVar

from kseg.format.log_loader.partition_files import File, Files
from kseg.format.log_loader.plan import RefusedError
from kseg.format.record.layout import INT32_MAX, NO_TIMESTAMP
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY

# AbstractIndex.warmEntries: where a look-up begins decides what it finds in an index that is out of order.
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size


class InvalidOffsetError(Exception):
    """An index refuses an offset: Kafka's InvalidOffsetException, of which recovery empties the segment."""


def fits(offset: int, base_offset: int) -> bool:
    """Whether an offset can be stored relative to a base offset (``AbstractIndex.canAppendOffset``)."""
    return 0 <= wrapped(offset - base_offset) <= INT32_MAX


def wrapped(number: int) -> int:
    """Return a number as Java's long has it, which continues at the other end of its range."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class _Index:
    """Opened, or made with the largest size there may be: ``limit`` bytes, rounded down to whole entries.

    Zeros of a preallocated index count as entries once it is opened again, as they do for a broker.
    """

    entry_size: ClassVar[int]

    def __init__(self, files: Files, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit - limit % self.entry_size
        self.file = files.get(name) or File(size=self.limit, entries=[])
        self.entries = self.file.size // self.entry_size if name in files else 0
        files[name] = self.file

    def reset(self) -> None:
        """Forget all entries, to write them anew."""
        self.entries = 0
        self.file.truncated(0)
        self.file.entries = []
        self.file.truncated(self.limit)

    def trim(self) -> None:
        """Make the file as large as its entries."""
        self.file.truncated(self.entries * self.entry_size)

    def resize(self) -> None:
        """Make the file as large as it may be. Raises RefusedError where it is larger already."""
        if self.file.size != self.limit and self.entries * self.entry_size > self.limit:
            raise RefusedError(
                f"the index has {self.file.size} bytes, segment.index.bytes allows {self.limit}", self.name
            )
        self.file.truncated(self.limit)

    def _check_space(self, kind: str) -> None:
        raise RefusedError(
            f"{self.entries} entries fill the {kind}: segment.index.bytes allows {self.limit} bytes", self.name
        )


class OffsetIndex(_Index):
    """Offsets and where they are in the log."""

    entry_size = OFFSET_ENTRY.size

    def __init__(self, files: Files, name: str, base_offset: int, limit: int) -> None:
        super().__init__(files, name, limit)
        self._base_offset = base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, the base offset where there is none."""
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
        """Return where to begin to look for an offset, found as ``OffsetIndex.lookup`` finds it."""
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
    """Timestamps, of which only the latest decides anything while a log is loaded."""

    entry_size = TIME_ENTRY.size

    def __init__(self, files: Files, name: str, limit: int) -> None:
        super().__init__(files, name, limit)
        self._last: tuple[int, int] | None = None

    def reset(self) -> None:
        super().reset()
        self._last = None

    def empty(self) -> None:
        """Make the file empty: it was just created beside a log that is not new."""
        self.entries = 0
        self.file.truncated(0)

    def append(self, timestamp: int, offset: int, *, last: bool = False) -> None:
        """Add an entry if the timestamp is new; ``last`` of the segment. Raises InvalidOffsetError, RefusedError."""
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
