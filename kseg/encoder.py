"""The hot loops of writing: rows of record columns become v2 records, v2 batches, or v0 and v1 messages.

The mirror of ``kernel``: ordinary Python over buffers and integers that runs as it is and can be compiled. All write
into a ``bytearray`` that the caller has made large enough (``ROOM_PER_RECORD`` each, besides keys, values and
headers), and return the byte behind what they wrote. ``view`` is always a memoryview of that same ``out``.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from crc32c import crc32c as library_crc32c

from kseg import log_format
from kseg.kernel import CRC_BAD, BatchColumns, RecordColumns, clamped, skip_headers

COMPILED = not __file__.endswith(".py")

MAGIC_AT = log_format.MAGIC_AT
LEGACY_CRC_AT = log_format.LEGACY_CRC_AT
LOG_OVERHEAD = log_format.LOG_OVERHEAD
CRC_AT = log_format.CRC_AT
ATTRIBUTES_AT = log_format.ATTRIBUTES_AT
RECORD_BATCH_OVERHEAD = log_format.RECORD_BATCH_OVERHEAD
CODEC_MASK = log_format.CODEC_MASK
LOG_APPEND_TIME = log_format.LOG_APPEND_TIME
CONTROL = log_format.CONTROL
INT32_MAX = log_format.INT32_MAX
V0_KEY_AT = log_format.V0_KEY_AT
V1_KEY_AT = log_format.V1_KEY_AT

# A record in a batch of its own: the header, then five varints of an int32, one of an int64, and the attributes.
ROOM_PER_RECORD = RECORD_BATCH_OVERHEAD + 5 * 5 + 10 + 1

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_pack_int32 = _INT32.pack_into
_pack_uint32 = _UINT32.pack_into
_pack_batch = log_format.BATCH_HEADER.pack_into
_pack_v0 = log_format.MESSAGE_V0.pack_into
_pack_v1 = log_format.MESSAGE_V1.pack_into

# What is done with an entry on its way to another version.
SKIP = 0  # damaged
COPY = 1  # already of the target's version
DROP = 2  # a control batch, which v0 and v1 do not know
PLAIN = 3
PACKED = 4  # compressed: its records lie in a payload of their own


def varint_size(value: int) -> int:
    """The bytes of a zig-zag varint, of an int32 or an int64."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw >= 128:
        raw >>= 7
        size += 1
    return size


def write_varint(out: Any, at: int, value: int) -> int:
    """Write a zig-zag varint, of an int32 or an int64."""
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
    if size > 0:
        out[at : at + size] = data[first : first + size]
        return at + size
    return at


def write_int32_bytes(out: Any, at: int, data: Any, first: int, size: int) -> int:
    """Write an int32 length and the bytes ``data[first:first + size]``; size -1 is null."""
    _pack_int32(out, at, size)
    at += 4
    if size > 0:
        out[at : at + size] = data[first : first + size]
        return at + size
    return at


def encode_record(
    data: Any, records: RecordColumns, i: int, base_offset: int, base_timestamp: int, out: Any, at: int
) -> int:
    """Write row ``i``, whose bytes lie in ``data``, as a v2 record."""
    key_size = records.key_size[i]
    value_size = records.value_size[i]
    headers_at = records.headers_at[i]
    header_count = records.header_count[i]
    headers_size = skip_headers(data, headers_at, len(data), header_count) - headers_at if header_count else 0
    timestamp_delta = records.timestamp[i] - base_timestamp
    offset_delta = records.offset[i] - base_offset
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(header_count) + headers_size
    size += varint_size(key_size) + (key_size if key_size > 0 else 0)
    size += varint_size(value_size) + (value_size if value_size > 0 else 0)
    at = write_varint(out, at, size)
    out[at] = 0  # attributes: none are in use
    at = write_varint(out, at + 1, timestamp_delta)
    at = write_varint(out, at, offset_delta)
    at = write_bytes(out, at, data, records.key_at[i], key_size)
    at = write_bytes(out, at, data, records.value_at[i], value_size)
    at = write_varint(out, at, header_count)
    if headers_size:
        out[at : at + headers_size] = data[headers_at : headers_at + headers_size]
        at += headers_size
    return at


def encode_records(
    data: Any, records: RecordColumns, first: int, stop: int, base_offset: int, base_timestamp: int, out: Any, at: int
) -> int:
    """Write rows ``first`` to ``stop`` (exclusive), whose bytes lie in ``data``, as a v2 payload."""
    for i in range(first, stop):
        at = encode_record(data, records, i, base_offset, base_timestamp, out, at)
    return at


def pack_messages(
    data: Any, records: RecordColumns, first: int, stop: int, batches: BatchColumns,
    base_offset: int, base_timestamp: int, append_time: int, out: Any, at: int, limit: int,
) -> tuple[int, int]:  # fmt: skip
    """Write uncompressed v0 or v1 messages as records of one batch, as long as they fit in ``limit`` bytes of ``out``.

    Stops too at another timestamp type (``append_time`` is LOG_APPEND_TIME or 0), at another append time, and where
    the offset's delta would pass an int32. Returns the row it stopped at and the byte behind.
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
    out: Any, view: memoryview, at: int, end: int, base_offset: int, last_offset: int, count: int, attributes: int,
    base_timestamp: int, max_timestamp: int, producer_id: int, producer_epoch: int, base_sequence: int,
    partition_leader_epoch: int,
) -> None:  # fmt: skip
    """Write the header of the v2 batch ``out[at:end]``, whose payload stands there already, and its CRC-32C."""
    _pack_batch(
        out, at, base_offset, end - at - LOG_OVERHEAD, partition_leader_epoch, 2, 0, attributes,
        last_offset - base_offset, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _pack_uint32(out, at + CRC_AT, library_crc32c(view[at + ATTRIBUTES_AT : end]))


def encode_single_batches(
    data: Any, records: RecordColumns, first: int, stop: int, batches: BatchColumns, out: Any, view: memoryview, at: int
) -> int:
    """Write uncompressed v0 or v1 messages as v2 batches of one record each, as Kafka's cleaner does."""
    for i in range(first, stop):
        row = records.batch[i]
        offset = records.offset[i]
        timestamp = records.timestamp[i]
        attributes = batches.attributes[row] & LOG_APPEND_TIME if batches.magic[row] else 0
        end = encode_record(data, records, i, offset, timestamp, out, at + RECORD_BATCH_OVERHEAD)
        finish_batch(out, view, at, end, offset, offset, 1, attributes, timestamp, timestamp, -1, -1, -1, -1)
        at = end
    return at


def encode_message(
    data: Any, key_at: int, key_size: int, value_at: int, value_size: int, magic: int, offset: int, attributes: int,
    timestamp: int, out: Any, view: memoryview, at: int,
) -> int:  # fmt: skip
    """Write one v0 or v1 message, with its CRC-32. ``timestamp`` is not used in v0."""
    end = write_int32_bytes(out, at + (V1_KEY_AT if magic else V0_KEY_AT), data, key_at, key_size)
    end = write_int32_bytes(out, end, data, value_at, value_size)
    if magic:
        _pack_v1(out, at, offset, end - at - LOG_OVERHEAD, 0, magic, attributes, timestamp)
    else:
        _pack_v0(out, at, offset, end - at - LOG_OVERHEAD, 0, magic, attributes)
    _pack_uint32(out, at + LEGACY_CRC_AT, zlib.crc32(view[at + MAGIC_AT : end]))
    return end


def encode_messages(
    data: Any, records: RecordColumns, first: int, stop: int, magic: int, shift: int, attributes: int,
    out: Any, view: memoryview, at: int,
) -> int:  # fmt: skip
    """Write rows ``first`` to ``stop`` as v0 or v1 messages, ``shift`` taken from their offsets (KIP-31)."""
    for i in range(first, stop):
        at = encode_message(
            data, records.key_at[i], records.key_size[i], records.value_at[i], records.value_size[i],
            magic, records.offset[i] - shift, attributes, records.timestamp[i], out, view, at,
        )  # fmt: skip
    return at


def kind_of(batches: BatchColumns, row: int, target: int, copies: bool) -> int:
    """What to do with an entry: SKIP, COPY (only with ``copies``), DROP, PLAIN or PACKED."""
    magic = batches.magic[row]
    attributes = batches.attributes[row]
    if batches.crc_state[row] == CRC_BAD or not batches.intact[row]:
        return SKIP
    if copies and magic == target:
        return COPY
    if magic >= 2 and target < 2 and attributes & CONTROL:
        return DROP
    return PACKED if attributes & CODEC_MASK else PLAIN


def run_from(batches: BatchColumns, row: int, stop: int, target: int, copies: bool) -> tuple[int, int]:
    """The kind of entry ``row`` and the end of the run of its kind and version; a compressed entry is a run alone."""
    kind = kind_of(batches, row, target, copies)
    magic = batches.magic[row]
    row += 1
    if kind != PACKED:
        while row < stop and batches.magic[row] == magic and kind_of(batches, row, target, copies) == kind:
            row += 1
    return kind, row


def judge_offsets(
    batches: BatchColumns, records: RecordColumns, first: int, stop: int, last_offset: int, faults: list[Any]
) -> int:
    """Mark entries ``first`` to ``stop`` that no log can hold as not intact, and say why on ``faults``.

    Offsets increase from entry to entry and from record to record, and an entry spans no more than an int32. An entry
    that is ahead of the next, where the next goes on from the one before, is the wrong one: base offsets are outside
    the CRC. Returns the last offset of what is sound, ``last_offset`` being the one before.
    """
    i = 0
    held = -1  # the entry before, which is judged once the next one's offset is known
    held_i = 0
    held_end = 0
    for row in range(first, stop):
        begin = i
        while i < records.count and records.batch[i] == row:
            i += 1
        if batches.crc_state[row] == CRC_BAD or not batches.intact[row]:
            continue
        if held >= 0:
            following = first_offset(batches, records, row, begin)
            last_offset = judge_entry(batches, records, held, held_i, held_end, last_offset, following, faults)
        held, held_i, held_end = row, begin, i
    if held >= 0:
        last_offset = judge_entry(batches, records, held, held_i, held_end, last_offset, -1, faults)
    return last_offset


def first_offset(batches: BatchColumns, records: RecordColumns, row: int, i: int) -> int:
    """The first offset of an opened entry, ``i`` being its first record: a wrapper's header does not say it."""
    return clamped(batches.base_offset[row]) if batches.magic[row] >= 2 else records.offset[i]


def judge_entry(
    batches: BatchColumns, records: RecordColumns, row: int, begin: int, end: int, last_offset: int, following: int,
    faults: list[Any],
) -> int:  # fmt: skip
    """``judge_offsets`` for one entry, its records ``begin`` to ``end``; the next begins at ``following``, or -1."""
    low = first_offset(batches, records, row, begin)
    high = batches.last_offset[row] if batches.magic[row] >= 2 else records.offset[end - 1]
    previous = low - 1
    if low <= last_offset or last_offset < following <= low:
        faults.append(("non-monotonic-offset", row, low, last_offset))
    elif high < low or high - low > INT32_MAX:
        faults.append(("invalid-offset-range", row, low, high - low))
    else:
        for k in range(begin, end):
            if records.offset[k] <= previous or records.offset[k] > high:
                faults.append(("record-offset-mismatch", row, records.offset[k], k - begin))
                batches.intact[row] = 0
                return last_offset
            previous = records.offset[k]
        return high
    batches.intact[row] = 0
    return last_offset


def count_same(
    left: Any, left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right: Any, right_records: RecordColumns, right_batches: BatchColumns, j: int, count: int, magic: int,
) -> int:  # fmt: skip
    """How many of ``count`` records from rows ``i`` and ``j`` on are the same, as far as version ``magic`` can tell.

    v0 has no timestamps, v0 and v1 have no headers.
    """
    for n in range(count):
        key_size = left_records.key_size[i]
        value_size = left_records.value_size[i]
        if (
            left_records.offset[i] != right_records.offset[j]
            or key_size != right_records.key_size[j]
            or value_size != right_records.value_size[j]
        ):
            return n
        a = left_records.key_at[i]
        b = right_records.key_at[j]
        if key_size > 0 and left[a : a + key_size] != right[b : b + key_size]:
            return n
        a = left_records.value_at[i]
        b = right_records.value_at[j]
        if value_size > 0 and left[a : a + value_size] != right[b : b + value_size]:
            return n
        if magic and not same_timestamp(left_records, left_batches, i, right_records, right_batches, j):
            return n
        if magic >= 2 and not same_headers(left, left_records, i, right, right_records, j):
            return n
        i += 1
        j += 1
    return count


def same_timestamp(
    left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right_records: RecordColumns, right_batches: BatchColumns, j: int,
) -> bool:  # fmt: skip
    """Whether timestamp and timestamp type are the same; those of v0 are -1 and CreateTime."""
    row = left_records.batch[i]
    left_type = left_batches.attributes[row] & LOG_APPEND_TIME if left_batches.magic[row] else 0
    row = right_records.batch[j]
    right_type = right_batches.attributes[row] & LOG_APPEND_TIME if right_batches.magic[row] else 0
    return left_type == right_type and clamped(left_records.timestamp[i]) == clamped(right_records.timestamp[j])


def same_headers(
    left: Any, left_records: RecordColumns, i: int, right: Any, right_records: RecordColumns, j: int
) -> bool:
    """Whether the headers are the same, byte for byte."""
    count = left_records.header_count[i]
    if count != right_records.header_count[j]:
        return False
    if not count:
        return True
    a = left_records.headers_at[i]
    b = right_records.headers_at[j]
    size = skip_headers(left, a, len(left), count) - a
    if skip_headers(right, b, len(right), count) - b != size:
        return False
    same: bool = left[a : a + size] == right[b : b + size]
    return same
