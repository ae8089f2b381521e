"""Buffers that a reader leaves to the next reader of the process.

Without them, the allocation took 8 ms per segment: ten times as long as the validation of a segment of 2 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kseg.format.record.columns import BatchColumns, RecordColumns


class Buffers:
    """The buffers of one SegmentReader and one DeepIterator: its window, its columns, and room for decompressed bytes."""

    __slots__ = ("_batches", "_data", "_records", "room")

    def __init__(self) -> None:
        self._data = bytearray()
        self._batches: BatchColumns | None = None
        self._records: RecordColumns | None = None
        self.room: memoryview | None = None

    def data(self, size: int) -> bytearray:
        """Return a buffer of at least that size in bytes. Its content is undefined."""
        if len(self._data) < size:
            self._data = bytearray(size)
        return self._data

    def batches(self, rows: int) -> BatchColumns:
        """Return columns with room for at least ``rows`` batches."""
        if self._batches is None or self._batches.capacity < rows:
            self._batches = BatchColumns(rows)
        return self._batches

    @property
    def records(self) -> RecordColumns:
        """Return columns of records, which grow."""
        if self._records is None:
            self._records = RecordColumns(256)
        return self._records


_spare: list[Buffers] = []


@contextmanager
def borrowed() -> Iterator[Buffers]:
    """Lend buffers until the end of the block. Nothing that was read into them may be used afterwards."""
    buffers = _spare.pop() if _spare else Buffers()
    yield buffers
    # After an exception, a traceback could still refer to them.
    _spare.append(buffers)
