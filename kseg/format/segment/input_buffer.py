"""The memory of readers: a growable buffer over a source, its reuse, and windows of large payloads.

Without reuse, the allocation took 8 ms per segment: ten times as long as the validation of a segment of 2 MB.

The payload of a large batch is read in windows: a small file can decompress to more than fits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kseg.errors import UnreadableError
from kseg.findings import Report, read_error, unreadable
from kseg.format.compress.codecs import Buffer, DecompressionLimit
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.storage.source import Source


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
    """Lend buffers until the end of the block. Do not use bytes in them afterwards."""
    buffers = _spare.pop() if _spare else Buffers()
    yield buffers
    # After an exception, a traceback could still refer to them.
    _spare.append(buffers)


#: How often the tail of a file is read again because the file was written to meanwhile.
WRITES_FOLLOWED = 3

#: A run of this many bytes contains a whole disk block at any alignment: a shorter run can't be a hole.
MIN_ZERO_RUN = 8192
#: Reading of a stream (such as /dev/zero) stops after this many bytes that are not batches.
MAX_UNKNOWN_STREAM = 256 * 1024 * 1024


class InputBuffer:
    """A window of bytes of a source. ``data[start:end]`` are read and not yet used; ``data[0]`` is byte ``shift`` of
    the file.

    Bytes are read with ``readinto``, not mmap: the truncation of a mapped file kills the process. The buffer grows only
    when bytes arrive, so a wrong size field costs no memory. It shrinks again when the bytes are used. ``failed`` is
    set when a read failed; nothing after it is read.
    """

    def __init__(self, source: Source, capacity: int, report: Report, data: bytearray | None = None) -> None:
        """Create a buffer of ``capacity`` bytes, or of the size of ``data``, which is used instead of a new one."""
        self.data = bytearray(capacity) if data is None else data
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self.shift = source.start
        self.failed = False
        self._capacity = len(self.data)
        self._source = source
        self._report = report
        self._writes = 0

    @property
    def available(self) -> int:
        """The number of buffered bytes that are not used yet."""
        return self.end - self.start

    @property
    def position(self) -> int:
        """The file position of the first unused byte."""
        return self.shift + self.start

    def fill(self, wanted: int) -> bool:
        """Read until ``wanted`` unused bytes are buffered. Returns False if the file ends before. The buffer grows if
        needed.
        """
        if self.end - self.start >= wanted:
            return True
        self._slide(wanted)
        while not self.failed:
            if self.end == len(self.data):
                if self.end >= wanted:
                    break
                larger = max(len(self.data) * 3 // 2, min(wanted, len(self.data) * 2))
                self._replace(bytearray(larger), self.view[: self.end])
            count = self._read()
            if not count:
                break
            self.end += count
            # A pipe returns few bytes per call: stop when there are enough. A file fills the buffer in one call.
            if self.end >= wanted and self._source.size is None:
                break
        return self.end >= wanted

    def ends_before(self, wanted: int) -> bool:
        """Return whether the file is known to end less than ``wanted`` bytes after the first unused byte."""
        return self._source.size is not None and self.position + wanted > self._source.size

    def skip_to(self, position: int) -> None:
        """Mark all bytes before that file position as used. The position must be in the buffer, or at its end."""
        self.start = min(position - self.shift, self.end)

    def skip_zeros(self, unit: int) -> int:
        """Skip zeros after zeros that were read, in multiples of ``unit`` bytes, and return their number.

        See Source.skip_zeros. The unused bytes are read again.
        """
        begin = self.position
        if (end := self._source.skip_zeros(begin, unit)) is None:
            return 0
        self.shift = end
        self.start = self.end = 0
        return self.shift - begin

    def skip_hole(self, until: int | None) -> int:
        """Skip a hole of the file after the buffered bytes, up to ``until`` at most, and return its number of bytes.

        The unused bytes must be zeros: they take the place of the last bytes of the hole.
        """
        skipped = self._source.skip_hole(self.shift + self.end, until)
        self.shift += skipped
        return skipped

    def discard_rest(self) -> int:
        """Read to the end and return the number of bytes. Raises UnreadableError for a stream that doesn't end."""
        began = self.position
        while self.fill(1):
            self.start = self.end
            if self._source.size is None and self.position - began > MAX_UNKNOWN_STREAM:
                raise UnreadableError(
                    f"{self._source.name}: no batch in the first {MAX_UNKNOWN_STREAM:,} bytes: expected a Kafka log segment"
                )
        return self.position - began

    def reread_if_modified(self, *, torn: bool) -> bool:
        """Read the unused bytes again, and return whether the file has changed: its content or, if ``torn``, its size.

        A broker can preallocate segments, and a reader sees an append page by page. The result is False after
        WRITES_FOLLOWED calls.
        """
        self._writes += 1
        if self._writes > WRITES_FOLLOWED:
            return False
        grown = torn and self._source.refresh()
        return self._source.reread(self.position, self.view[self.start : self.end]) or grown

    def describe_zeros(self, begin: int, end: int) -> str:
        """Return a message's phrase about zeros in positions ``begin`` to ``end``: whether the disk stores them or has
        a hole.

        Empty for short runs, and if the source is not a file.
        """
        holes = self._source.holes(begin, end) if end - begin >= MIN_ZERO_RUN else None
        if holes is None:
            return ""
        if not holes:
            return " (stored on disk)"
        return f" ({f'{holes:,}' if holes < end - begin else 'all'} of them never written: a hole in the file)"

    def is_outgrown(self) -> bool:
        """Return whether the file grows faster than its tail can be read."""
        return self._writes > WRITES_FOLLOWED and self._source.refresh()

    def _slide(self, wanted: int) -> None:
        """Move the unused bytes to the start of the buffer."""
        kept = self.end - self.start
        self.shift += self.start
        if len(self.data) > self._capacity and max(kept, wanted) <= self._capacity // 2:
            begin, old = self.start, self.view
            self.start, self.end = 0, kept
            self._replace(bytearray(self._capacity), old[begin : begin + kept])
        elif self.start:
            self.view[:kept] = self.view[self.start : self.end]
            self.start, self.end = 0, kept

    def _replace(self, data: bytearray, kept: memoryview) -> None:
        # A new object: windows that were returned before still use the old one.
        data[: len(kept)] = kept
        self.data, self.view = data, memoryview(data)

    def _read(self) -> int:
        try:
            return self._source.readinto(self.view[self.end :])
        except OSError as error:
            self.failed = True
            found = read_error(self._source.name, error, self.shift + self.end)
            if not self.end and not self.shift:
                raise unreadable(self._source.name, found) from error
            self._report(found)
            return 0


#: The smallest size of a window in bytes, except for the last one.
WINDOW = 2 * 1024 * 1024


class LargePayload:
    """A decompressed payload that is read from start to end, once or several times.

    ``data`` is the current window, ``final`` whether the payload ends with it, ``size`` the number of bytes read so
    far. ``record_limit`` is the largest size of one record in bytes.
    """

    def __init__(self, pieces: Callable[[], Iterator[Buffer]], record_limit: int) -> None:
        self._open = pieces
        self._record_limit = record_limit
        self._pieces: Iterator[Buffer] = iter(())
        self._next: Buffer | None = None
        self.data: Any = b""
        self.final = True
        self.size = 0

    def begin(self) -> None:
        """Read the first window. Raises CodecError, like the other methods."""
        self._pieces = self._open()
        self.data = b""
        self.size = 0
        self._advance()
        self.refill(0)

    def refill(self, at: int) -> None:
        """Replace the window by one that begins at its byte ``at`` and continues after its end.

        Raises DecompressionLimit if a record is larger than ``record_limit``.
        """
        rest = memoryview(self.data)[at:]
        if len(rest) > self._record_limit:
            raise DecompressionLimit(self._record_limit, of_record=True)
        kept: list[Buffer] = [rest] if len(rest) else []
        size, wanted = len(rest), min(max(WINDOW, 2 * len(rest)), self._record_limit + 1)
        while size < wanted and self._next is not None:
            kept.append(self._next)
            size += len(self._next)
            self._advance()
        self.data = kept[0] if len(kept) == 1 else b"".join(kept)
        self.final = self._next is None

    def discard_rest(self) -> None:
        """Read to the end, which proves that the compressed stream is complete."""
        self.data = b""
        while self._next is not None:
            self._advance()

    def _advance(self) -> None:
        self._next = next(self._pieces, None)
        self.size += len(self._next or b"")
