"""Read a log as a broker does: up to the first invalid batch.

Sources: ``FileLogInputStream.nextBatch`` and ``FileRecords`` of Kafka 4.3. Unlike ``kseg.format.segment.segment_reader``, a
broker never continues after damage.

The first offset of a compressed v0 or v1 message, which a broker decompresses (``AbstractLegacyRecordBatch``, 4.3).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kseg.findings import fail_on_read_error
from kseg.format.compress import codecs
from kseg.format.compress.codecs import CodecError, DecompressionLimit
from kseg.format.log_loader import recovered_rows
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.partition_files import File
from kseg.format.record import framing, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.segment_reader import WINDOW_ROWS, WINDOW_SIZE
from kseg.format.storage.source import open_range

#: The largest wrapper, and the largest decompressed size, that is read. Brokers accept 1 MiB by default.
MAX_WRAPPER = 64 << 20
MAX_INFLATED = 128 << 20
#: Kafka allocates what an inner message's size field asks for; its start script gives the JVM 1 GiB, less other use.
HEAP = 960 << 20
_ZSTD = 4


def base_offset(entry: bytes) -> int:
    """Return the first offset in a complete message of magic 0 or 1 whose attributes name a codec.

    Raises RefusedError if Kafka throws: no caller of ``DeepRecordsIterator`` catches exceptions while a log is loaded.
    """
    magic = entry[layout.MAGIC_AT]
    codec = entry[layout.LEGACY_ATTRIBUTES_AT] & layout.CODEC_MASK
    if magic > 1:
        raise RefusedError(f"a compressed message set has magic {magic - 256}")
    if codec >= _ZSTD:
        raise RefusedError(f"a compressed message set names codec {codec}, which message format v{magic} does not have")
    try:
        data = codecs.decompress(codec, _value(entry, magic), limit=MAX_INFLATED, magic=magic)
    except DecompressionLimit as error:
        raise RefusedError(f"a compressed message set decompresses to more than {MAX_INFLATED:,} bytes") from error
    except CodecError as error:
        raise RefusedError(f"a compressed message set cannot be decompressed: {error}") from error
    first, last = _inner_offsets(data)
    wrapper = framing.read_int64(entry, 0)
    if magic == 0:
        return first
    if wrapper and wrapper < last:
        raise RefusedError(
            f"a compressed message set has offset {wrapper}, but its last inner message has offset {last}"
        )
    return framing.wrapped_sum(first, wrapper - last if wrapper else 0)


def _value(entry: bytes, magic: int) -> memoryview:
    key_at = layout.V1_KEY_AT if magic else layout.V0_KEY_AT
    try:
        at = key_at + 4 + max(0, framing.read_int32(entry, key_at))
        size = framing.read_int32(entry, at)
    except IndexError:
        raise RefusedError("the key of a compressed message set goes beyond its end") from None
    if size < 0:
        raise RefusedError("a compressed message set has no value")
    if size > len(entry) - at - 4:
        raise RefusedError("the value of a compressed message set goes beyond its end")
    return memoryview(entry)[at + 4 : at + 4 + size]


def _inner_offsets(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the stored offsets of the first and the last inner message. An incomplete message ends the set silently."""
    at, end = 0, len(data)
    first = last = None
    attributes = 0
    while end - at >= layout.LOG_OVERHEAD:
        size = framing.read_int32(data, at + layout.SIZE_AT)
        if size < layout.V0_MIN_SIZE:
            raise RefusedError(f"a compressed message set has an inner message of {size} bytes")
        if size > end - at - layout.LOG_OVERHEAD:
            if size > HEAP:
                raise RefusedError(f"an inner message has the size field {size}, which the broker would allocate")
            break
        last = framing.read_int64(data, at)
        if first is None:
            first, attributes = last, data[at + layout.HEADER_SIZE_UP_TO_MAGIC]
        at += layout.LOG_OVERHEAD + size
    if first is None or last is None:
        raise RefusedError("a compressed message set has no inner message")
    if attributes & layout.CODEC_MASK:
        raise RefusedError("a compressed message set has an inner message that is compressed")
    return first, last


# Larger batches are read in pieces, which bounds memory.
_MAX_FRAMED = WINDOW_SIZE - layout.LOG_OVERHEAD
#: The smallest buffer in bytes: it has 16 rows.
_LEAST_ROOM = 4096


class BrokerReader:
    """Reads the batches of a log from byte ``start`` to byte ``end``. ``why`` is why reading ended before ``end``.

    ``corrupt`` is set if a broker throws a CorruptRecordException there; otherwise the log ends there without an error.
    ``stop`` is the byte after the last batch. Positions in the columns are bytes of the log.
    """

    def __init__(self, log: File, start: int = 0, end: int | None = None, *, verify: bool) -> None:
        self.why: str | None = None
        self.corrupt = False
        self.stop = start
        self._log = log
        self._end = log.size if end is None else end
        self._verify = verify
        # A loader reads many small files several times, and large buffers would cost more than their bytes.
        self._room = min(WINDOW_SIZE, max(self._end - start, _LEAST_ROOM))
        self._batches = BatchColumns(self._room * WINDOW_ROWS // WINDOW_SIZE)

    def windows(self) -> Iterator[BatchColumns]:
        """Yield runs of batches that a broker accepts. Raises UnreadableError.

        ``intact`` is 0 for a v2 batch that is smaller than its header if no header can be read.
        """
        log = self._log
        if log.path is None or self.stop >= self._end:
            return
        with open_range(log.path, log.begin + self.stop, log.begin + self._end) as source:
            buffer = InputBuffer(source, self._room, fail_on_read_error(log.path))
            buffer.fill(1)
            batches = self._batches
            while not self.corrupt:
                buffer.start = framing.frame(
                    buffer.data, buffer.start, buffer.end, buffer.shift - log.begin, _MAX_FRAMED, batches
                )
                framed = batches.count
                batches.count = framing.check_crcs(buffer.view, batches) if self._verify else framed
                if batches.count:
                    yield self._read_past(batches)
                if batches.count < framed:
                    self._corruption("its CRC is wrong")
                elif not framed:
                    if not self._next(buffer):
                        break
                    if batches.count:
                        yield self._read_past(batches)

    def _read_past(self, batches: BatchColumns) -> BatchColumns:
        row = batches.count - 1
        self.stop = batches.position[row] + batches.size[row]
        if recovered_rows.has_far_offsets(batches):
            for row, offset in enumerate(memoryview(batches.base_offset)[: batches.count]):
                # The columns bound a sum that Kafka lets continue at the other end of its range.
                delta = batches.last_offset[row] - framing.clamped(offset)
                batches.last_offset[row] = framing.wrapped_sum(offset, delta) if batches.magic[row] >= 2 else offset
        return batches

    def _corruption(self, why: str) -> None:
        self.why, self.corrupt = why, True

    def _next(self, buffer: InputBuffer) -> bool:
        """Set why the batch at the buffer's start was not framed. Returns False if reading ends.

        A very large or irregular batch that a broker accepts is then the only row of the columns, which are empty otherwise.
        """
        self._batches.count = 0
        if not buffer.fill(layout.HEADER_SIZE_UP_TO_MAGIC + 1):
            self.why = "the header of a batch is incomplete" if buffer.available else None
            return False
        size = framing.read_int32(buffer.data, buffer.start + layout.SIZE_AT)
        magic = buffer.data[buffer.start + layout.MAGIC_AT]
        if size < layout.V0_MIN_SIZE:
            self._corruption(f"the size field of a batch is {size}, below the minimum")
            return False
        if buffer.ends_before(layout.LOG_OVERHEAD + size):
            self.why = f"a batch of {layout.LOG_OVERHEAD + size} bytes goes beyond the end of the file"
            return False
        if framing.smallest_size(magic) <= size <= _MAX_FRAMED:
            return buffer.fill(layout.LOG_OVERHEAD + size)
        return self._read_single(buffer, size, magic)

    def _read_single(self, buffer: InputBuffer, size: int, magic: int) -> bool:
        # Any positive magic from 2 on is parsed as v2, a negative one as legacy.
        modern = 2 <= magic < 128
        if modern and size < layout.V2_MIN_SIZE:
            if self._verify:
                self._corruption(f"the size field of a batch is {size}, less than its header")
                return False
            self._read_small(buffer, size)
            return True
        if not buffer.fill(min(layout.LOG_OVERHEAD + size, layout.RECORD_BATCH_OVERHEAD)):
            return False
        batches = self._batches
        framing.read_header(buffer.data, buffer.start, size, 2 if modern else int(magic > 0), batches, 0)
        batches.position[0] = buffer.position - self._log.begin
        crc_begins = layout.ATTRIBUTES_AT if modern else layout.MAGIC_AT
        buffer.start += crc_begins
        left = layout.LOG_OVERHEAD + size - crc_begins
        crc = 0
        while left and buffer.fill(1):
            count = min(left, buffer.available)
            view = buffer.view[buffer.start : buffer.start + count]
            if self._verify:
                crc = crc32c(view, crc) if modern else zlib.crc32(view, crc)
            buffer.start += count
            left -= count
        if left or (self._verify and crc != batches.crc[0]):
            self._corruption("its CRC is wrong")
            return False
        batches.count = 1
        return True

    def _read_small(self, buffer: InputBuffer, size: int) -> None:
        """Read a v2 batch smaller than its header: Kafka reads the header from the bytes that follow, if there are any."""
        batches = self._batches
        position = buffer.position - self._log.begin
        header = self._log.read(position, layout.RECORD_BATCH_OVERHEAD)
        whole = len(header) == layout.RECORD_BATCH_OVERHEAD
        framing.read_header(header.ljust(layout.RECORD_BATCH_OVERHEAD, b"\0"), 0, size, 2, batches, 0)
        batches.position[0] = position
        batches.intact[0] = whole
        batches.count = 1
        buffer.start += layout.LOG_OVERHEAD + size


def last_offset_of(batches: BatchColumns, row: int) -> int:
    """Return the last offset of a batch. Raises RefusedError if its header can't be read."""
    if not batches.intact[row]:
        raise RefusedError(f"the header of the batch at byte {batches.position[row]} is incomplete")
    return batches.last_offset[row]


def base_offset_of(log: File, batches: BatchColumns, row: int) -> int:
    """Return the base offset of a batch; a compressed v0 or v1 message is decompressed for it. Raises RefusedError."""
    if batches.magic[row] >= 2 or not batches.attributes[row] & layout.CODEC_MASK:
        return batches.base_offset[row]
    if batches.size[row] > MAX_WRAPPER:
        raise RefusedError(
            f"a compressed message set has {batches.size[row]} bytes, which the broker would load into memory"
        )
    return base_offset(log.read(batches.position[row], batches.size[row]))


def position_of(log: File, target: int, start: int) -> int | None:
    """Return the position of the batch at which a read of offset ``target`` begins, searched from byte ``start`` on.

    ``FileRecords.searchForOffsetFromPosition``; None if the log ends below the offset. Raises RefusedError.
    """
    reader = BrokerReader(log, start, verify=False)
    before: _Before | None = None
    for batches in reader.windows():
        row = 0
        while row < batches.count:
            after = recovered_rows.end_of_lower(batches, row, target)
            if after == row:
                base = base_offset_of(log, batches, row)
                if base > target and before and before.reaches(target):
                    return before.position
                if base >= target:
                    return batches.position[row]
                after += 1
            row = after
            before = _Before(batches.position[row - 1], batches.last_offset[row - 1], bool(batches.intact[row - 1]))
    if reader.corrupt:
        raise RefusedError(f"offset {target} cannot be found: {reader.why}")
    return before.position if before and before.reaches(target) else None


class _Before(NamedTuple):
    """The batch before the current one."""

    position: int
    last_offset: int
    intact: bool

    def reaches(self, offset: int) -> bool:
        if not self.intact:
            raise RefusedError(f"the header of the batch at byte {self.position} is incomplete")
        return self.last_offset >= offset


def last_offset(log: File, start: int) -> tuple[int | None, int]:
    """Return the last offset of the last batch from byte ``start`` on, and the byte after that batch.

    Raises RefusedError.
    """
    reader = BrokerReader(log, start, verify=False)
    found: int | None = None
    intact = True
    for batches in reader.windows():
        row = batches.count - 1
        found, intact = batches.last_offset[row], bool(batches.intact[row])
    if reader.corrupt:
        raise RefusedError(f"its end cannot be found: {reader.why}")
    if not intact:
        raise RefusedError("the header of its last batch is incomplete")
    return found, reader.stop
