"""Encode rows of record columns as v2 records, v2 batches, or v0 and v1 messages.

Compiled with the types of ``encoder.pxd``. Each function writes into a ``bytearray`` of the caller, which must have
space for the keys, values and headers and for ``ROOM_PER_RECORD`` bytes per record. It returns the position after the
last written byte.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.crc import crc32_of, crc32c_of
from kseg.format.record.default_records import header_field
from kseg.format.record.framing import wrapped_sum
from kseg.format.record.memory import copy_bytes

COMPILED = not __file__.endswith(".py")

SIZE_AT = layout.SIZE_AT
LOG_OVERHEAD = layout.LOG_OVERHEAD
MAGIC_AT = layout.MAGIC_AT
LEGACY_CRC_AT = layout.LEGACY_CRC_AT
LEGACY_ATTRIBUTES_AT = layout.LEGACY_ATTRIBUTES_AT
V1_TIMESTAMP_AT = layout.V1_TIMESTAMP_AT
V0_KEY_AT = layout.V0_KEY_AT
V1_KEY_AT = layout.V1_KEY_AT
PARTITION_LEADER_EPOCH_AT = layout.PARTITION_LEADER_EPOCH_AT
CRC_AT = layout.CRC_AT
NO_TIMESTAMP = layout.NO_TIMESTAMP
ATTRIBUTES_AT = layout.ATTRIBUTES_AT
LAST_OFFSET_DELTA_AT = layout.LAST_OFFSET_DELTA_AT
BASE_TIMESTAMP_AT = layout.BASE_TIMESTAMP_AT
MAX_TIMESTAMP_AT = layout.MAX_TIMESTAMP_AT
PRODUCER_ID_AT = layout.PRODUCER_ID_AT
PRODUCER_EPOCH_AT = layout.PRODUCER_EPOCH_AT
BASE_SEQUENCE_AT = layout.BASE_SEQUENCE_AT
RECORD_COUNT_AT = layout.RECORD_COUNT_AT
RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
LOG_APPEND_TIME = layout.LOG_APPEND_TIME
INT32_MAX = layout.INT32_MAX
SUM_LIMIT = layout.SUM_LIMIT

# One record as a batch: the batch header, five int32 varints, one int64 varint, and the attributes.
ROOM_PER_RECORD = RECORD_BATCH_OVERHEAD + 5 * 5 + 10 + 1


def varint_size(value: int) -> int:
    """Return the size in bytes of a zig-zag varint (int32 or int64)."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw >= 128:
        raw >>= 7
        size += 1
    return size


def write_varint(out: Any, at: int, value: int) -> int:
    """Write a zig-zag varint (int32 or int64)."""
    raw = (value << 1) ^ (value >> 63)
    while raw >= 128:
        out[at] = raw & 127 | 128
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1


def write_bytes(out: Any, at: int, data: Any, first: int, size: int) -> int:
    """Write a varint length and the bytes ``data[first:first + size]``; size -1 is null."""
    at = write_varint(out, at, size)
    return copy_bytes(out, at, data, first, size) if size > 0 else at


def write_int(out: Any, at: int, size: int, value: int) -> int:
    """Write a big-endian integer of ``size`` bytes."""
    for n in range(size):
        out[at + size - 1 - n] = value >> 8 * n & 255
    return at + size


def write_int32_bytes(out: Any, at: int, data: Any, first: int, size: int) -> int:
    """Write an int32 length and the bytes ``data[first:first + size]``; size -1 is null."""
    at = write_int(out, at, 4, size)
    return copy_bytes(out, at, data, first, size) if size > 0 else at


def headers_end(data: Any, at: int, count: int) -> int:
    """Return the position after ``count`` headers. The caller guarantees that they are complete."""
    for _ in range(2 * count):
        size, at = header_field(data, at, len(data))
        if size > 0:
            at += size
    return at


def encode_record(
    data: Any, records: RecordColumns, i: int, base_offset: int, base_timestamp: int, out: Any, at: int
) -> int:
    """Write row ``i`` as a v2 record. Its key, value and headers are in ``data``."""
    key_size = records.key_size[i]
    value_size = records.value_size[i]
    headers_at = records.headers_at[i]
    header_count = records.header_count[i]
    headers_size = headers_end(data, headers_at, header_count) - headers_at if header_count else 0
    timestamp_delta = records.timestamp[i] - base_timestamp
    if timestamp_delta > SUM_LIMIT or timestamp_delta < -SUM_LIMIT:
        timestamp_delta = wrapped_sum(wrapped_sum(records.timestamp[i], ~base_timestamp), 1)
    offset_delta = records.offset[i] - base_offset
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(header_count) + headers_size
    size += varint_size(key_size) + (key_size if key_size > 0 else 0)
    size += varint_size(value_size) + (value_size if value_size > 0 else 0)
    at = write_varint(out, at, size)
    out[at] = 0  # attributes: none are defined
    at = write_varint(out, at + 1, timestamp_delta)
    at = write_varint(out, at, offset_delta)
    at = write_bytes(out, at, data, records.key_at[i], key_size)
    at = write_bytes(out, at, data, records.value_at[i], value_size)
    at = write_varint(out, at, header_count)
    return copy_bytes(out, at, data, headers_at, headers_size) if headers_size else at


def encode_records(
    data: Any, records: RecordColumns, first: int, stop: int, base_offset: int, base_timestamp: int, out: Any, at: int
) -> int:
    """Write rows ``first`` to ``stop`` (exclusive) as a v2 payload. Their keys, values and headers are in ``data``."""
    for i in range(first, stop):
        at = encode_record(data, records, i, base_offset, base_timestamp, out, at)
    return at


def pack_messages(
    data: Any, records: RecordColumns, first: int, stop: int, batches: BatchColumns,
    base_offset: int, base_timestamp: int, append_time: int, out: Any, at: int, limit: int,
) -> tuple[int, int]:  # fmt: skip
    """Write uncompressed v0 or v1 messages as records of one batch, while they fit in ``limit`` bytes of ``out``.

    Stops at another timestamp type (``append_time`` is LOG_APPEND_TIME or 0), at another append time, and at an offset
    whose delta exceeds an int32. Returns the row where it stopped and the position after the last written byte.
    """
    for i in range(first, stop):
        row = records.batch[i]
        kind = batches.attributes[row] & LOG_APPEND_TIME if batches.magic[row] else 0
        if kind != append_time or (append_time and records.timestamp[i] != base_timestamp):
            return i, at
        if records.offset[i] - base_offset > INT32_MAX:
            return i, at
        end = encode_record(data, records, i, base_offset, base_timestamp, out, at)
        if end > limit:
            return i, at
        at = end
    return stop, at


def finish_batch(
    out: Any, at: int, end: int, base_offset: int, last_offset: int, count: int, attributes: int,
    base_timestamp: int, max_timestamp: int, producer_id: int, producer_epoch: int, base_sequence: int,
    partition_leader_epoch: int,
) -> None:  # fmt: skip
    """Write the header and CRC-32C of the v2 batch ``out[at:end]``, whose payload is already written."""
    write_int(out, at, 8, base_offset)
    write_int(out, at + SIZE_AT, 4, end - at - LOG_OVERHEAD)
    write_int(out, at + PARTITION_LEADER_EPOCH_AT, 4, partition_leader_epoch)
    out[at + MAGIC_AT] = 2
    write_int(out, at + ATTRIBUTES_AT, 2, attributes)
    write_int(out, at + LAST_OFFSET_DELTA_AT, 4, last_offset - base_offset)
    write_int(out, at + BASE_TIMESTAMP_AT, 8, base_timestamp)
    write_int(out, at + MAX_TIMESTAMP_AT, 8, max_timestamp)
    write_int(out, at + PRODUCER_ID_AT, 8, producer_id)
    write_int(out, at + PRODUCER_EPOCH_AT, 2, producer_epoch)
    write_int(out, at + BASE_SEQUENCE_AT, 4, base_sequence)
    write_int(out, at + RECORD_COUNT_AT, 4, count)
    write_int(out, at + CRC_AT, 4, crc32c_of(out, at + ATTRIBUTES_AT, end))


def encode_single_batches(
    data: Any,
    records: RecordColumns,
    first: int,
    stop: int,
    batches: BatchColumns,
    leader_epoch: int,
    out: Any,
    at: int,
) -> tuple[int, int]:
    """Write uncompressed v0 or v1 messages as v2 batches of one record each, as Kafka's cleaner does.

    Returns the position after the last written byte and the size of the largest batch in bytes.
    """
    largest = 0
    for i in range(first, stop):
        row = records.batch[i]
        offset = records.offset[i]
        timestamp = records.timestamp[i]
        attributes = batches.attributes[row] & LOG_APPEND_TIME if batches.magic[row] else 0
        end = encode_record(data, records, i, offset, timestamp, out, at + RECORD_BATCH_OVERHEAD)
        finish_batch(out, at, end, offset, offset, 1, attributes, timestamp, timestamp, -1, -1, -1, leader_epoch)
        if end - at > largest:
            largest = end - at
        at = end
    return at, largest


def encode_message(
    data: Any, key_at: int, key_size: int, value_at: int, value_size: int, magic: int, offset: int, attributes: int,
    timestamp: int, out: Any, at: int,
) -> int:  # fmt: skip
    """Write one v0 or v1 message, with its CRC-32. ``timestamp`` is not used in v0."""
    end = write_int32_bytes(out, at + (V1_KEY_AT if magic else V0_KEY_AT), data, key_at, key_size)
    end = write_int32_bytes(out, end, data, value_at, value_size)
    write_int(out, at, 8, offset)
    write_int(out, at + SIZE_AT, 4, end - at - LOG_OVERHEAD)
    out[at + MAGIC_AT] = magic
    out[at + LEGACY_ATTRIBUTES_AT] = attributes
    if magic:
        write_int(out, at + V1_TIMESTAMP_AT, 8, timestamp)
    write_int(out, at + LEGACY_CRC_AT, 4, crc32_of(out, at + MAGIC_AT, end))
    return end


def encode_messages(
    data: Any, records: RecordColumns, first: int, stop: int, magic: int, shift: int, attributes: int,
    out: Any, at: int,
) -> int:  # fmt: skip
    """Write rows ``first`` to ``stop`` as v0 or v1 messages, with ``shift`` subtracted from their offsets (KIP-31)."""
    for i in range(first, stop):
        at = encode_message(
            data, records.key_at[i], records.key_size[i], records.value_at[i], records.value_size[i],
            magic, records.offset[i] - shift, attributes, records.timestamp[i], out, at,
        )  # fmt: skip
    return at


def largest_timestamp(records: RecordColumns, first: int, stop: int) -> int:
    """Return the largest timestamp of rows ``first`` to ``stop`` in epoch milliseconds; -1 if all are lower, as brokers."""
    largest = NO_TIMESTAMP
    for i in range(first, stop):
        if records.timestamp[i] > largest:
            largest = records.timestamp[i]
    return largest
