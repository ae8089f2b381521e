"""Offset and time indexes: layouts, reading, and building as a broker does.

``.index`` is n x (relativeOffset:int32 position:int32), ``.timeindex`` n x (timestamp:int64 relativeOffset:int32), both
relative to the base offset in the segment's name (``OffsetIndex``, ``TimeIndex``). The indexes of an active segment are
preallocated and end in zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

from kseg.errors import KsegError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX, NO_TIMESTAMP
from kseg.format.sidefiles.max_timestamp import MaxTimestamp, next_index_entry

OFFSET_ENTRY = struct.Struct(
    ">"
    "i"  # relativeOffset
    "i"  # position
)
TIME_ENTRY = struct.Struct(
    ">"
    "q"  # timestamp
    "i"  # relativeOffset
)

#: The default of the broker setting ``index.interval.bytes``.
INDEX_INTERVAL_BYTES = 4096


class OffsetEntry(NamedTuple):
    """An entry of an offset index: ``offset`` is the (absolute) last one of the batch at byte ``log_position`` of the
    log.
    """

    offset: int
    log_position: int


class TimeEntry(NamedTuple):
    """An entry of a time index: the largest ``timestamp`` (epoch ms) so far, and the (absolute) ``offset`` of its
    batch.
    """

    timestamp: int
    offset: int


def read_offset_index(data: bytes, base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries as stored, including preallocated zeros. An incomplete entry at the end is left out."""
    complete = len(data) - len(data) % OFFSET_ENTRY.size
    for relative, position in OFFSET_ENTRY.iter_unpack(memoryview(data)[:complete]):
        yield OffsetEntry(base_offset + relative, position)


def read_time_index(data: bytes, base_offset: int) -> Iterator[TimeEntry]:
    """Yield the entries as stored, including preallocated zeros. An incomplete entry at the end is left out."""
    complete = len(data) - len(data) % TIME_ENTRY.size
    for timestamp, relative in TIME_ENTRY.iter_unpack(memoryview(data)[:complete]):
        yield TimeEntry(timestamp, base_offset + relative)


class IndexBuilder:
    """Writes both indexes of one segment, batch by batch, like ``LogSegment.recover``.

    Each index gets an entry before the first batch that begins more than ``interval`` bytes after the batch of the last
    entry. The time index gets the largest timestamp once more at the end.
    """

    def __init__(
        self, base_offset: int, offsets: IO[bytes], times: IO[bytes], interval: int = INDEX_INTERVAL_BYTES
    ) -> None:
        self._base_offset = base_offset
        self._offsets = offsets
        self._times = times
        self._interval = interval
        self._last_entry = 0
        self._peak = MaxTimestamp()
        self._last_timestamp = NO_TIMESTAMP

    def add(self, batches: BatchColumns, first: int, stop: int) -> None:
        """Add the next batches, rows ``first`` to ``stop`` (exclusive).

        Raises KsegError if an offset or a position does not fit an index entry.
        """
        row = first
        while (row := next_index_entry(batches, row, stop, self._last_entry + self._interval, self._peak)) < stop:
            position = batches.position[row]
            relative = self._relative(batches.last_offset[row])
            self._offsets.write(OFFSET_ENTRY.pack(relative, _checked(position, "position")))
            self._add_time()
            self._last_entry = position
            row += 1

    def finish(self) -> None:
        """Write the last entry of the time index."""
        self._add_time()

    def _add_time(self) -> None:
        if self._peak.timestamp > self._last_timestamp:
            self._times.write(TIME_ENTRY.pack(self._peak.timestamp, self._relative(self._peak.offset)))
            self._last_timestamp = self._peak.timestamp

    def _relative(self, offset: int) -> int:
        return _checked(offset - self._base_offset, "relative offset")


def _checked(value: int, what: str) -> int:
    if not 0 <= value <= INT32_MAX:
        raise KsegError(f"a {what} of {value} does not fit an index entry: the segment would have to be split")
    return value
