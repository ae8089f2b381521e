"""Build batches of all three versions from plain values, like Kafka's ``MemoryRecordsBuilder``.

For tests, tools and single batches: one batch per call. ``record.encoder`` has the loops that write bytes. A conversion
feeds them from the reader's columns without objects.

Pack records into v2 batches: one per old batch, or batches of a chosen size. Some of the records of a batch are written as
a batch of the same version, codec, producer and offsets, as a cleaner does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kseg.errors import UsageError
from kseg.format.compress.codecs import CODECS, codec_name, compress
from kseg.format.record import encoder, layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.segment.records_chunk import Header, Record
from kseg.text import unknown_name


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record to write. ``offset`` is absolute, ``timestamp`` is in epoch milliseconds, -1 for none.

    The timestamp must be -1 in v0, and the headers empty in v0 and v1.
    """

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = layout.NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


_CODEC_IDS = {codec.name: codec.id for codec in CODECS.values()}


def codec_id(name: str) -> int:
    """Return the number of a codec in attributes bits 0-2. Raises UsageError for an unknown name."""
    if name not in _CODEC_IDS:
        raise UsageError(unknown_name("codec", name, _CODEC_IDS))
    return _CODEC_IDS[name]


def build_batch(
    records: Sequence[PlainRecord],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: str = "none",
    timestamp_type: str = "CreateTime",
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = layout.NO_SEQUENCE,
    partition_leader_epoch: int = layout.FIRST_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
) -> bytes:
    """Return a v2 record batch (KIP-98) with header and CRC-32C.

    Offsets default to those of the first and last record; without records ``base_offset`` is required. Timestamps are in
    epoch milliseconds and default to the first and the largest of the records. With ``LogAppendTime``, ``max_timestamp`` is
    the timestamp of every record. ``delete_horizon`` (KIP-534) replaces the base timestamp. Raises UsageError for values
    that a batch can't have.
    """
    if base_offset is None:
        if not records:
            raise UsageError("a batch without records needs a base offset")
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    _check_offsets(records, base_offset, last_offset)
    append_time = _is_append_time(timestamp_type)
    if max_timestamp is None:
        max_timestamp = max([layout.NO_TIMESTAMP, *(record.timestamp for record in records)])
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    elif base_timestamp is None:
        base_timestamp = max_timestamp if append_time or not records else records[0].timestamp
    attributes = codec_id(compression) | (layout.LOG_APPEND_TIME if append_time else 0)
    attributes |= layout.TRANSACTIONAL if transactional else 0
    attributes |= layout.CONTROL if control else 0
    attributes |= layout.DELETE_HORIZON if delete_horizon is not None else 0

    data, columns = _columns(records, max_timestamp if append_time else None)
    payload = bytearray(len(data) + len(records) * encoder.ROOM_PER_RECORD)
    end = encoder.encode_records(data, columns, 0, len(records), base_offset, base_timestamp, payload, 0)
    # An empty batch, which compaction keeps, has only its header of 61 bytes, with any codec.
    stored = compress(attributes & layout.CODEC_MASK, memoryview(payload)[:end]) if records else b""
    out = bytearray(layout.RECORD_BATCH_OVERHEAD) + stored
    encoder.finish_batch(
        out, 0, len(out), base_offset, last_offset, len(records), attributes, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, partition_leader_epoch,
    )  # fmt: skip
    return bytes(out)


def build_message(record: PlainRecord, *, magic: int, timestamp_type: str = "CreateTime") -> bytes:
    """Return an uncompressed v0 or v1 message with offset and size. Raises UsageError for values it can't have."""
    _check_legacy([record], magic, timestamp_type)
    data, columns = _columns([record], None)
    attributes = layout.LOG_APPEND_TIME if _is_append_time(timestamp_type) else 0
    out = bytearray(len(data) + encoder.ROOM_PER_RECORD)
    end = encoder.encode_messages(data, columns, 0, 1, magic, 0, attributes, out, 0)
    return bytes(memoryview(out)[:end])


def build_wrapper(
    records: Sequence[PlainRecord],
    *,
    magic: int,
    compression: str,
    timestamp_type: str = "CreateTime",
    append_time: int | None = None,
) -> bytes:
    """Return a compressed v0 or v1 message set in its wrapper, whose offset is that of the last inner message.

    Inner offsets are absolute in v0 and relative to the first in v1 (KIP-31). The wrapper's timestamp is the largest
    inner one, or with ``LogAppendTime`` the ``append_time`` (KIP-32); the inner messages keep theirs. Raises UsageError
    for values that the version can't have, CodecError for zstd.
    """
    if not records:
        raise UsageError("a compressed message set cannot be empty")
    codec = codec_id(compression)
    if not codec:
        raise UsageError("a compressed message set needs a codec")
    _check_legacy(records, magic, timestamp_type)
    _check_offsets(records, records[0].offset, records[-1].offset)
    data, columns = _columns(records, None)
    attributes = layout.LOG_APPEND_TIME if _is_append_time(timestamp_type) else 0
    out = bytearray(len(data) + len(records) * encoder.ROOM_PER_RECORD)
    shift = records[0].offset if magic else 0
    end = encoder.encode_messages(data, columns, 0, len(records), magic, shift, attributes, out, 0)
    timestamp = max([layout.NO_TIMESTAMP, *(one.timestamp for one in records)]) if append_time is None else append_time
    return wrap(memoryview(out)[:end], magic, codec, attributes, records[-1].offset, timestamp)


def wrap(messages: memoryview, magic: int, codec: int, attributes: int, offset: int, timestamp: int) -> bytes:
    """Return the wrapper of a v0 or v1 message set; ``attributes`` without the codec. Raises CodecError for zstd."""
    value = compress(codec, messages, magic=magic)
    out = bytearray(len(value) + encoder.ROOM_PER_RECORD)
    end = encoder.encode_message(value, 0, -1, 0, len(value), magic, offset, attributes | codec, timestamp, out, 0)
    return bytes(memoryview(out)[:end])


def _is_append_time(timestamp_type: str) -> bool:
    if timestamp_type not in layout.TIMESTAMP_TYPES:
        raise UsageError(unknown_name("timestamp type", timestamp_type, layout.TIMESTAMP_TYPES))
    return timestamp_type == layout.TIMESTAMP_TYPES[1]


def _check_offsets(records: Sequence[PlainRecord], base_offset: int, last_offset: int) -> None:
    previous = base_offset - 1
    for record in records:
        if not previous < record.offset <= last_offset:
            raise UsageError(f"offset {record.offset} is not between {previous} and {last_offset}")
        previous = record.offset
    if not 0 <= last_offset - base_offset <= layout.INT32_MAX:
        raise UsageError(f"offsets {base_offset} to {last_offset} do not fit in one batch")


def _check_legacy(records: Sequence[PlainRecord], magic: int, timestamp_type: str) -> None:
    if magic not in (0, 1):
        raise UsageError(f"messages are of version 0 or 1, not {magic}")
    if any(record.headers for record in records):
        raise UsageError(f"v{magic} has no headers")
    if not magic and (any(record.timestamp != -1 for record in records) or _is_append_time(timestamp_type)):
        raise UsageError("v0 has no timestamps")


def _columns(records: Sequence[PlainRecord], timestamp: int | None) -> tuple[bytes, RecordColumns]:
    """Return the records like the reader does: the bytes in one buffer, and a row of columns per record."""
    data = bytearray()
    columns = RecordColumns(max(len(records), 1))
    for i, record in enumerate(records):
        columns.offset[i] = record.offset
        columns.timestamp[i] = record.timestamp if timestamp is None else timestamp
        columns.key_at[i], columns.key_size[i] = _append(data, record.key)
        columns.value_at[i], columns.value_size[i] = _append(data, record.value)
        columns.headers_at[i], columns.header_count[i] = len(data), len(record.headers)
        for header in record.headers:
            data += with_length(header.key.encode("utf-8", "surrogateescape"))
            data += with_length(header.value)
    columns.count = len(records)
    return bytes(data), columns


def _append(data: bytearray, value: bytes | None) -> tuple[int, int]:
    at = len(data)
    data += value or b""
    return at, -1 if value is None else len(value)


def with_length(value: bytes | None) -> bytes:
    """Return bytes after their length, as in a v2 record; a header has two of these."""
    size = -1 if value is None else len(value)
    out = bytearray(5 + max(size, 0))
    return bytes(out[: encoder.write_bytes(out, 0, value, 0, size)])


class OutputBuffer:
    """A reused output buffer, and a view of it."""

    def __init__(self) -> None:
        self.data = bytearray(64 * 1024)
        self.view = memoryview(self.data)

    def reserve(self, size: int, keep: int = 0) -> bytearray:
        """Return the buffer with at least ``size`` bytes; its first ``keep`` bytes are unchanged."""
        if size > len(self.data):
            larger = bytearray(max(size, 2 * len(self.data)))
            larger[:keep] = self.view[:keep]
            self.data, self.view = larger, memoryview(larger)
        return self.data


class BatchPacker:
    """Packs one v2 batch at a time.

    ``limit`` is its size in bytes before compression with the header; a larger old batch becomes a single batch. Without a
    limit each old batch becomes one. ``wrote`` is called with each finished batch and its codec. ``leader_epoch`` is the
    epoch of the next batches.
    """

    def __init__(self, limit: int | None, wrote: Callable[[memoryview, int], None]) -> None:
        self.leader_epoch = layout.FIRST_LEADER_EPOCH
        self._limit = limit
        self._wrote = wrote
        self._buffer = OutputBuffer()
        self._end = layout.RECORD_BATCH_OVERHEAD
        self._count = 0
        self._codec = 0
        self._append_time = 0
        self._base_offset = 0
        self._last_offset = 0
        self._base_timestamp = layout.NO_TIMESTAMP
        self._max_timestamp = layout.NO_TIMESTAMP

    def add_entry(self, data: Any, records: RecordColumns, first: int, stop: int, codec: int, append_time: int) -> None:
        """Add the records of one wrapper, which stay together; ``append_time`` is layout.LOG_APPEND_TIME or 0."""
        if self._joins(records, first, stop, codec, append_time):
            end = self._encode(data, records, first, stop)
            if self._limit is not None and end <= self._limit:
                self._accept(records, first, stop, end)
                return
        self._begin(records, first, codec, append_time)
        self._accept(records, first, stop, self._encode(data, records, first, stop))
        if self._limit is None:
            self.flush()

    def add_messages(
        self, data: Any, records: RecordColumns, first: int, stop: int, batches: BatchColumns, codec: int
    ) -> None:
        """Add uncompressed messages, with one or several timestamp types."""
        while first < stop:
            append_time = batches.attributes[records.batch[first]] & layout.LOG_APPEND_TIME
            append_time = append_time if batches.magic[records.batch[first]] else 0
            if not self._count or self._codec != codec:
                self._begin(records, first, codec, append_time)
            else:
                append_time = self._append_time
            end = self._end
            out = self._buffer.reserve(self._end + self._room(records, first, stop), self._end)
            fit, end = encoder.pack_messages(
                data, records, first, stop, batches, self._base_offset, self._base_timestamp, append_time,
                out, self._end, self._limit or 0,
            )  # fmt: skip
            if fit > first:
                self._accept(records, first, fit, end)
            elif self._count:
                self.flush()
            else:
                fit = first + 1
                self._accept(records, first, fit, self._encode(data, records, first, fit))
                self.flush()
            first = fit

    def flush(self) -> None:
        """Finish the batch that is being packed, if there is one."""
        if not self._count:
            return
        view, end = self._buffer.view[: self._end], self._end
        if self._codec:
            overhead = layout.RECORD_BATCH_OVERHEAD
            view = memoryview(bytearray(overhead) + compress(self._codec, view[overhead:]))
            end = len(view)
        encoder.finish_batch(
            view, 0, end, self._base_offset, self._last_offset, self._count, self._codec | self._append_time,
            self._base_timestamp, self._max_timestamp, -1, -1, -1, self.leader_epoch,
        )  # fmt: skip
        self._wrote(view, self._codec)
        self._end, self._count = layout.RECORD_BATCH_OVERHEAD, 0

    def _joins(self, records: RecordColumns, first: int, stop: int, codec: int, append_time: int) -> bool:
        """Return whether records fit into the current batch: the same codec, timestamp type and append time."""
        return (
            self._count > 0
            and self._codec == codec
            and self._append_time == append_time
            and not (append_time and records.timestamp[first] != self._base_timestamp)
            and records.offset[stop - 1] - self._base_offset <= layout.INT32_MAX
        )

    def _begin(self, records: RecordColumns, first: int, codec: int, append_time: int) -> None:
        self.flush()
        self._codec = codec
        self._append_time = append_time
        self._base_offset = records.offset[first]
        # Kafka's builder uses the first record's timestamp, not the smallest.
        self._base_timestamp = self._max_timestamp = records.timestamp[first]

    def _encode(self, data: Any, records: RecordColumns, first: int, stop: int) -> int:
        out = self._buffer.reserve(self._end + self._room(records, first, stop), self._end)
        return encoder.encode_records(
            data, records, first, stop, self._base_offset, self._base_timestamp, out, self._end
        )

    def _room(self, records: RecordColumns, first: int, stop: int) -> int:
        # Keys and values of a run are consecutive in its payload.
        end = records.value_at[stop - 1] + max(records.value_size[stop - 1], 0)
        return end - records.key_at[first] + (stop - first) * encoder.ROOM_PER_RECORD

    def _accept(self, records: RecordColumns, first: int, stop: int, end: int) -> None:
        self._end = end
        self._count += stop - first
        self._last_offset = records.offset[stop - 1]
        if not self._append_time:
            self._max_timestamp = max(self._max_timestamp, encoder.largest_timestamp(records, first, stop))


@dataclass(frozen=True, slots=True)
class RepackedBatch:
    """A batch that replaces another, with the number of its records and their first and last offset.

    ``left_out`` are the offsets of the readable records that it lacks.
    """

    data: bytes
    records: int
    offset: int
    last_offset: int
    left_out: tuple[int, ...] = ()

    def lost_ranges(self, last: int) -> list[tuple[int, int]]:
        """Return the ranges of lost offsets, ends inclusive, of a batch with the last offset ``last``."""
        after = max((self.last_offset, *self.left_out)) + 1
        ranges: list[tuple[int, int]] = []
        for low, high in [*((one, one) for one in self.left_out), *([(after, last)] if after <= last else ())]:
            begin = ranges.pop()[0] if ranges and ranges[-1][1] + 1 == low else low
            ranges.append((begin, high))
        return ranges


def repack(batches: BatchColumns, row: int, kept: Iterable[Record], left_out: tuple[int, ...] = ()) -> RepackedBatch:
    """Return some records of a batch, at least one, whose offsets are in order, as a batch of its version and codec."""
    records = [
        PlainRecord(
            one.offset, one.key, one.value, layout.NO_TIMESTAMP if one.timestamp is None else one.timestamp, one.headers
        )
        for one in kept
    ]
    build = _batch if batches.magic[row] >= 2 else _wrapper
    return RepackedBatch(build(batches, row, records), len(records), records[0].offset, records[-1].offset, left_out)


def _wrapper(batches: BatchColumns, row: int, records: list[PlainRecord]) -> bytes:
    attributes = batches.attributes[row]
    return build_wrapper(
        records,
        magic=batches.magic[row],
        compression=codec_name(attributes & layout.CODEC_MASK),
        timestamp_type=layout.TIMESTAMP_TYPES[bool(batches.magic[row] and attributes & layout.LOG_APPEND_TIME)],
    )


def _batch(batches: BatchColumns, row: int, records: list[PlainRecord]) -> bytes:
    attributes = batches.attributes[row]
    append_time = attributes & layout.LOG_APPEND_TIME
    return build_batch(
        records,
        base_offset=batches.base_offset[row],
        last_offset=batches.last_offset[row],
        compression=codec_name(attributes & layout.CODEC_MASK),
        timestamp_type=layout.TIMESTAMP_TYPES[bool(append_time)],
        base_timestamp=batches.base_timestamp[row],
        max_timestamp=batches.max_timestamp[row] if append_time else None,
        producer_id=batches.producer_id[row],
        producer_epoch=batches.producer_epoch[row],
        base_sequence=batches.base_sequence[row],
        partition_leader_epoch=batches.partition_leader_epoch[row],
        transactional=bool(attributes & layout.TRANSACTIONAL),
        control=bool(attributes & layout.CONTROL),
        delete_horizon=batches.base_timestamp[row] if attributes & layout.DELETE_HORIZON else None,
    )
