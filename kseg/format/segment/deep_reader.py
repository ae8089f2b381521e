"""Read the records of a window's batches into columns (Kafka's deep iteration).

Compressed payloads are decompressed up to a limit. Each inconsistency is a finding with the position of its batch. The
records before a fault are kept, as in Kafka's iterators.

Compiled with the types of ``deep_reader.pxd``: a batch of 25 small records takes half the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from kseg.findings import Report, do_nothing
from kseg.format.compress import codecs
from kseg.format.compress.codecs import CodecError, DecompressionLimit
from kseg.format.record import columns, default_records, framing, layout, legacy_records
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.segment import input_buffer, record_faults
from kseg.format.segment.input_buffer import Buffers
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import Window
from kseg.text import count_of

#: The bytes that one batch may decompress to. A 1 MiB batch of zeros makes 1 GiB; real ratios seldom exceed 1:20.
DECOMPRESSION_LIMIT = 256 * 1024 * 1024
#: The records that a batch may have for each compressed byte. The offset deltas of records increase, so that codecs need at
#: least 0.6 bytes for each: measured for a million records without content, up to level 22 of zstd.
RECORDS_PER_BYTE = 4
#: The decompressed bytes of a batch in memory at once: HELD_BYTES, or HELD_RATIO times the stored bytes.
HELD_BYTES = 32 * 1024 * 1024
HELD_RATIO = 32
#: The largest record of a batch that is opened in parts, or HELD_RATIO times the stored bytes: it is in memory as a whole.
RECORD_BYTES = 64 * 1024 * 1024
# A chunk ends at this size, so that memory does not depend on the compression ratio of a window.
CHUNK_ROWS = 32 * 1024
CHUNK_BYTES = 2 * 1024 * 1024
# Room for a chunk and one more batch of the largest size that brokers accept by default.
ROOM = CHUNK_BYTES + 1024 * 1024
_LIKELY_RATIO = 16
# C constants when compiled.
CODEC = layout.CODEC_MASK
OVERHEAD = layout.RECORD_BATCH_OVERHEAD
HELD = HELD_BYTES
RATIO = HELD_RATIO
FULL_ROWS = CHUNK_ROWS
FULL_BYTES = CHUNK_BYTES
# The bytes of a wrapper's key that a finding has.
_SHOWN_KEY = 80
# Faults are reported when a chunk is full, or earlier when their number exceeds this.
_FAULTS_AT_ONCE = 1000

# The payload of a v0 or v1 message whose attributes name a codec although its value is not compressed.
_PLAIN = object()


class DeepIterator:
    """Reads the records of one segment window by window, and reuses the columns.

    ``report`` receives the findings. ``limit`` is the number of bytes that one batch may decompress to.
    ``buffers`` are used instead of new ones.
    """

    def __init__(
        self, report: Report = do_nothing, *, limit: int = DECOMPRESSION_LIMIT, buffers: Buffers | None = None
    ) -> None:
        self._report = report
        self._limit = limit
        self._buffers = buffers or Buffers()
        self._records = self._buffers.records
        self._wrapper = RecordColumns(1)
        self._faults: list[tuple[str, int, int, Any]] = []
        self._large: input_buffer.LargePayload | None = None

    def chunks(self, window: Window) -> Iterator[Chunk]:
        """Yield the records of the window's selected batches (``BatchColumns.selected``), in the order of the file.

        A batch with more than ``default_records.LARGE_BATCH`` records, or with a payload too large for memory, is
        yielded in several chunks: see Chunk.
        """
        batches = window.batches
        row = 0
        while row < batches.count:
            chunk = Chunk(window, self._records)
            chunk.first = row
            self._large = None
            row = self._fill_chunk(chunk, row)
            chunk.stop = row
            if self._faults:
                record_faults.report_faults(self._faults, batches, self._report)
            if chunk.stop > chunk.first:
                yield chunk
            if self._large is not None:
                payload, self._large = self._large, None
                yield from self._large_batch_chunks(window, row, payload)
                row += 1

    def _fill_chunk(self, chunk: Chunk, row: int) -> int:
        batches, records = chunk.batches, self._records
        records.count = 0
        inflated = 0
        # The window of a record set from the network has about 1 KiB, and there can be a million of them.
        likely = min(ROOM, _LIKELY_RATIO * len(chunk.window.data))
        room = self._buffers.room
        if room is None or len(room) < likely:
            room = self._buffers.room = memoryview(bytearray(likely))
        # Only decompressed bytes count: the window's own buffer is already allocated.
        while row < batches.count and records.count < FULL_ROWS and inflated < FULL_BYTES:
            if not batches.attributes[row] & CODEC:
                row = default_records.split_uncompressed(
                    chunk.window.data, batches, row, FULL_ROWS, records, self._faults
                )
                if row == batches.count or records.count >= FULL_ROWS:
                    break
            if batches.selected[row]:
                inflated += self._decompress_batch(chunk, row, room[inflated:])
                if self._large is not None:
                    break
                if len(self._faults) > _FAULTS_AT_ONCE:
                    record_faults.report_faults(self._faults, batches, self._report)
            row += 1
        return row

    def _decompress_batch(self, chunk: Chunk, row: int, room: memoryview) -> int:
        """Decompress one batch, into ``room`` if it fits, and split it. Returns the size of the payload in bytes.

        A large batch is only stored in ``_large``, for ``_large_batch_chunks``.
        """
        batches = chunk.batches
        if not batches.attributes[row] & CODEC:
            at, end = batches.at[row] + OVERHEAD, batches.at[row] + batches.size[row]
            self._large = _in_memory(chunk.window.view[at:end])
            return 0
        compressed = self._compressed_bytes(chunk, row)
        batches.record_total[row] = 0
        payload = self._decompress(batches, row, compressed, room) if compressed is not None else None
        if payload is _PLAIN:
            # The message is read as not compressed: its value is in the window.
            batches.begin_records(row, self._records.count)
            at, end = batches.at[row], batches.at[row] + batches.size[row]
            magic = batches.magic[row]
            legacy_records.split_message(
                chunk.window.data, at, end, magic, -1, batches, row, self._records, self._faults
            )
            batches.record_sum[row] = batches.record_total[row]
            offset = batches.last_offset[row]
            batches.first_record_offset[row] = batches.last_record_offset[row] = offset
            return 0
        if payload is None and self._large is None:
            _set_no_records(batches, row)
            return 0
        self._check_wrapper_key(chunk, row)
        if payload is None:
            return 0
        view = payload if isinstance(payload, memoryview) else memoryview(payload)
        large = batches.record_count[row] if batches.magic[row] >= 2 else len(view) // _SMALLEST_MESSAGE
        if large > default_records.LARGE_BATCH:
            self._large = _in_memory(view)
            return 0
        chunk.payloads[row] = view
        if not default_records.COMPILED:
            payload = bytes(view)  # plain Python takes bytes out of it twice as fast as out of a memoryview
        if batches.magic[row] >= 2:
            # ``room`` is 0, so the split ends with this batch: the next one is not in this payload.
            default_records.split_records(payload, 0, len(view), batches, row, 0, self._records, self._faults)
        elif not legacy_records.split_wrapper(payload, view, batches, row, self._records, self._faults) and not len(
            view
        ):
            self._faults.append(("undecodable-payload", row, 0, "it does not contain a message"))
        return len(view)

    def _check_wrapper_key(self, chunk: Chunk, row: int) -> None:
        """Report the key of a compressed message set; ``_compressed_bytes`` has read it."""
        if chunk.batches.magic[row] < 2 and self._wrapper.key_size[0] >= 0:
            at = self._wrapper.key_at[0]
            key = bytes(chunk.window.view[at : at + min(self._wrapper.key_size[0], _SHOWN_KEY)])
            self._faults.append(("wrapper-key", row, 0, key))

    def _large_batch_chunks(self, window: Window, row: int, payload: input_buffer.LargePayload) -> Iterator[Chunk]:
        """Yield the chunks of a large batch.

        The batch is split twice: the first chunk already has the facts of the whole batch.
        """
        batches = window.batches
        readable = self._count_records(batches, row, payload)
        if self._faults:
            record_faults.report_faults(self._faults, batches, self._report)
        chunk = Chunk(window, self._records)
        chunk.first, chunk.stop = row, row + 1
        if not readable or not batches.record_sum[row]:
            self._records.count = 0
            batches.record_total[row] = 0
            chunk.payload_size = payload.size if readable else None
            yield chunk
            return
        facts = {name: getattr(batches, name)[row] for name in _FACTS_OF_ALL}
        part = columns.PartialBatch(CHUNK_ROWS)
        if batches.magic[row] == 1:
            part.shift = legacy_records.wrapper_shift(batches, row, [])
            for name in ("first_record_offset", "last_record_offset"):
                facts[name] = framing.clamped(facts[name]) + part.shift
        size, previous = payload.size, None
        for begin in self._split_parts(batches, row, payload, part, []):
            for name, value in facts.items():
                getattr(batches, name)[row] = value
            if batches.record_total[row]:
                chunk = Chunk(window, self._records)
                chunk.first, chunk.stop = row, row + 1
                chunk.index, chunk.previous_offset, chunk.payload_size = begin, previous, size
                chunk.unfinished = part.index < facts["record_sum"]
                chunk.payloads[row] = memoryview(payload.data)
                previous = self._records.offset[self._records.count - 1]
                yield chunk

    def _count_records(self, batches: BatchColumns, row: int, payload: input_buffer.LargePayload) -> bool:
        """Set the facts of a large batch and collect its faults. Returns False if its payload can't be decompressed."""
        part = columns.PartialBatch(CHUNK_ROWS)
        found: list[tuple[str, int, int, Any]] = []
        try:
            for _ in self._split_parts(batches, row, payload, part, found):
                pass
            if not found or part.index < batches.record_count[row]:
                payload.discard_rest()  # not the 256 MiB that can follow the last record
        except DecompressionLimit as error:
            self._faults.append(("decompression-limit", row, 0, (error.limit, str(error))))
        except CodecError as error:
            name = codecs.codec_name(batches.attributes[row] & layout.CODEC_MASK)
            self._faults.append(("undecodable-payload", row, 0, str(error).removeprefix(f"{name}: ")))
        else:
            self._faults += found
            if batches.magic[row] < 2:
                legacy_records.wrapper_shift(batches, row, self._faults)
            return True
        _set_no_records(batches, row)
        return False

    def _split_parts(
        self,
        batches: BatchColumns,
        row: int,
        payload: input_buffer.LargePayload,
        part: columns.PartialBatch,
        faults: list[Any],
    ) -> Iterator[int]:
        """Split a large batch part by part into the columns. Yields the index of each part's first record."""
        payload.begin()
        while not part.done:
            self._records.count = 0
            begin, data, part.final = part.index, payload.data, payload.final
            if not default_records.COMPILED and isinstance(data, memoryview):
                data = bytes(data)
            if batches.magic[row] >= 2:
                default_records.split_records(data, part.at, len(data), batches, row, 0, self._records, faults, part)
            else:
                legacy_records.split_wrapper(data, memoryview(data), batches, row, self._records, faults, part)
            yield begin
            if part.hungry:
                payload.refill(part.at)
                part.at = 0

    def _compressed_bytes(self, chunk: Chunk, row: int) -> memoryview | None:
        batches = chunk.batches
        at, end = batches.at[row], batches.at[row] + batches.size[row]
        view = chunk.window.view
        if batches.magic[row] >= 2:
            return view[at + OVERHEAD : end]
        # The wrapper is a normal message: its value holds the compressed messages.
        wrapper = self._wrapper
        wrapper.count = 0
        if not legacy_records.split_message(
            chunk.window.data, at, end, batches.magic[row], -1, batches, row, wrapper, self._faults
        ):
            return None
        if wrapper.value_size[0] <= 0 and wrapper.key_size[0] >= 0:
            return view[:0]  # a message with a key is not a wrapper
        if wrapper.value_size[0] <= 0:
            what = "null" if wrapper.value_size[0] < 0 else "empty"
            self._faults.append(("undecodable-payload", row, 0, f"the value is {what}"))
            return None
        return view[wrapper.value_at[0] : wrapper.value_at[0] + wrapper.value_size[0]]

    def _decompress(self, batches: BatchColumns, row: int, compressed: memoryview, room: memoryview) -> Any:
        codec = batches.attributes[row] & CODEC
        magic = min(batches.magic[row], 2)
        codec_facts = codecs.CODECS.get(codec)
        if codec_facts and codec_facts.first_magic > magic and not _has_signature(compressed, codec):
            self._faults.append(("claimed-codec", row, 0, None))
            return _PLAIN
        if codec_facts is None or codec_facts.first_magic > magic:
            why = "the codecs are 0 to 4" if codec_facts is None else f"{codec_facts.name} does not exist in v{magic}"
            self._faults.append(("unknown-codec", row, 0, (codec, why)))
            return None
        if magic >= 2 and not batches.record_count[row] and not compressed:
            return b""
        quirks: list[str] = []
        memory_limit = min(self._limit, max(HELD, RATIO * len(compressed)))
        try:
            payload = codec_facts.decompress(compressed, memory_limit, magic, quirks, room)
        except DecompressionLimit:
            if self._is_bomb(batches, row, len(compressed), memory_limit):
                return None
            if memory_limit < self._limit:
                pieces = partial(codecs.decompress_pieces, codec, compressed, limit=self._limit, magic=magic)
                raised = self._limit > DECOMPRESSION_LIMIT
                self._large = input_buffer.LargePayload(
                    pieces, self._limit if raised else max(memory_limit, min(self._limit, RECORD_BYTES))
                )
                return None
            self._faults.append(("decompression-limit", row, 0, (self._limit, str(DecompressionLimit(self._limit)))))
            return None
        except CodecError as error:
            if magic < 2 and not _has_signature(compressed, codec):
                self._faults.append(("claimed-codec", row, 0, None))
                return _PLAIN
            if magic >= 2 and _are_plain_records(compressed, batches.record_count[row]):
                self._faults.append(("claimed-codec", row, 0, None))
                return bytes(compressed)
            self._faults.append(("undecodable-payload", row, 0, str(error).removeprefix(f"{codec_facts.name}: ")))
            return None
        if self._is_bomb(batches, row, len(compressed), len(payload)):
            return None
        for quirk in quirks:
            if quirk not in record_faults.EXPECTED_QUIRKS:
                self._faults.append(("codec-quirk", row, 0, quirk))
        return payload

    def _is_bomb(self, batches: BatchColumns, row: int, stored: int, inflated: int) -> bool:
        """Report a v2 batch with more records than kseg reads for its compressed size.

        A raised decompression limit raises this limit, too.
        """
        count, most = batches.record_count[row], RECORDS_PER_BYTE * stored
        if batches.magic[row] < 2 or min(count, inflated // layout.MIN_RECORD_SIZE) <= most:
            return False
        if self._limit > DECOMPRESSION_LIMIT:
            return False
        why = f"has {count:,} records in {count_of(stored, 'byte')}, and kseg reads at most {RECORDS_PER_BYTE} per byte"
        self._faults.append(("decompression-limit", row, 0, (most, why)))
        return True


def _has_signature(compressed: memoryview, codec: int) -> bool:
    """Return whether the bytes begin with the signature of that codec (of snappy: snappy-java's framing)."""
    return bytes(compressed[:8]).startswith(codecs.CODECS[codec].signature)


def _are_plain_records(payload: memoryview, count: int) -> bool:
    """Return whether the bytes are exactly ``count`` uncompressed v2 records, by their lengths."""
    at = 0
    while count > 0 and at < len(payload):
        length = shift = 0
        while at < len(payload) and payload[at] & 0x80 and shift < 28:
            length |= (payload[at] & 0x7F) << shift
            shift += 7
            at += 1
        if at == len(payload):
            return False
        length |= payload[at] << shift
        if length & 1 or length < 2 * (layout.MIN_RECORD_SIZE - 1):
            return False  # a negative size, or too few bytes
        at += 1 + length // 2
        count -= 1
    return not count and at == len(payload)


def _in_memory(view: memoryview) -> input_buffer.LargePayload:
    """Return a payload that is already in memory."""
    return input_buffer.LargePayload(lambda: iter((view,)), len(view))


def _set_no_records(batches: BatchColumns, row: int) -> None:
    """Record that no record of the batch can be read."""
    batches.record_total[row] = batches.record_sum[row] = 0


# A message without key and value, in v0.
_SMALLEST_MESSAGE = layout.LOG_OVERHEAD + layout.V0_MIN_SIZE
# Columns that describe the whole batch, in each part of a large batch.
_FACTS_OF_ALL = (
    "attribute_bits", "largest_timestamp", "disorder", "null_keys", "header_total", "invalid_keys", "record_sum",
    "first_record_offset", "last_record_offset",
)  # fmt: skip
