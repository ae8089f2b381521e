"""Frame batches: find their boundaries, read their headers into columns, check their CRCs; and long varints.

Compiled with the types of ``framing.pxd``. This module checks bounds itself, once for each number and each row. The
compiler would check them for every byte, which took a tenth of the time of small batches. Each function works on many
batches of a window, because a call with its buffer views costs more than a small batch. Varints of more than one byte are
those of Kafka's ``ByteUtils.readVarint`` and ``readVarlong``; loops read one byte themselves.
"""

from __future__ import annotations

from typing import Any

from kseg.format.compress.codecs import highest_codec
from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD, CRC_GOOD, CRC_UNCHECKED, BatchColumns
from kseg.format.record.crc import crc32_of, crc32c_of
from kseg.format.record.memory import find_header_bytes

# C constants when compiled.
SIZE_AT = layout.SIZE_AT
LOG_OVERHEAD = layout.LOG_OVERHEAD
MAGIC_AT = layout.MAGIC_AT
HEADER_SIZE_UP_TO_MAGIC = layout.HEADER_SIZE_UP_TO_MAGIC
LEGACY_CRC_AT = layout.LEGACY_CRC_AT
LEGACY_ATTRIBUTES_AT = layout.LEGACY_ATTRIBUTES_AT
V1_TIMESTAMP_AT = layout.V1_TIMESTAMP_AT
V0_KEY_AT = layout.V0_KEY_AT
V1_KEY_AT = layout.V1_KEY_AT
V0_MIN_SIZE = layout.V0_MIN_SIZE
V1_MIN_SIZE = layout.V1_MIN_SIZE
V2_MIN_SIZE = layout.V2_MIN_SIZE
PARTITION_LEADER_EPOCH_AT = layout.PARTITION_LEADER_EPOCH_AT
CRC_AT = layout.CRC_AT
ATTRIBUTES_AT = layout.ATTRIBUTES_AT
LAST_OFFSET_DELTA_AT = layout.LAST_OFFSET_DELTA_AT
BASE_TIMESTAMP_AT = layout.BASE_TIMESTAMP_AT
MAX_TIMESTAMP_AT = layout.MAX_TIMESTAMP_AT
PRODUCER_ID_AT = layout.PRODUCER_ID_AT
PRODUCER_EPOCH_AT = layout.PRODUCER_EPOCH_AT
BASE_SEQUENCE_AT = layout.BASE_SEQUENCE_AT
RECORD_COUNT_AT = layout.RECORD_COUNT_AT
RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
CODEC_MASK = layout.CODEC_MASK
HIGHEST_CODEC = highest_codec(2)
HIGHEST_LEGACY_CODEC = highest_codec(1)
V0_RESERVED = layout.V0_RESERVED
V1_RESERVED = layout.V1_RESERVED
V2_RESERVED = layout.V2_RESERVED

SUM_LIMIT = layout.SUM_LIMIT
INT32_MAX = layout.INT32_MAX

# Sign bits of integers of these widths.
SIGN_16 = 1 << 15
SIGN_32 = 1 << 31
SIGN_64 = 1 << 63


def read_int16(data: Any, at: int) -> int:
    """Return a signed big-endian int16. Like the functions below, raises IndexError if it exceeds ``data``."""
    if at < 0 or at > len(data) - 2:
        raise IndexError(at)
    value: int = data[at]
    value = value << 8 | data[at + 1]
    return (value ^ SIGN_16) - SIGN_16


def read_int32(data: Any, at: int) -> int:
    """Return a signed big-endian int32."""
    return (read_uint32(data, at) ^ SIGN_32) - SIGN_32


def read_uint32(data: Any, at: int) -> int:
    """Return an unsigned big-endian int32."""
    if at < 0 or at > len(data) - 4:
        raise IndexError(at)
    value: int = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    value = value << 8 | data[at + 3]
    return value


def read_int64(data: Any, at: int) -> int:
    """Return a signed big-endian int64."""
    if at < 0 or at > len(data) - 8:
        raise IndexError(at)
    value: int = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    value = value << 8 | data[at + 3]
    value = value << 8 | data[at + 4]
    value = value << 8 | data[at + 5]
    value = value << 8 | data[at + 6]
    value = value << 8 | data[at + 7]
    return (value ^ SIGN_64) - SIGN_64


def clamped(value: int) -> int:
    """Return the value, limited so that adding a 32-bit delta does not exceed 64 bits."""
    if value > SUM_LIMIT:
        return SUM_LIMIT
    if value < -SUM_LIMIT:
        return -SUM_LIMIT
    return value


def wrapped_sum(one: int, other: int) -> int:
    """Return the sum with the overflow of Java's ``long`` (``DefaultRecord.readFrom``)."""
    low = (one & 0xFFFFFFFF) + (other & 0xFFFFFFFF)
    high = (one >> 32) + (other >> 32) + (low >> 32)
    high = ((high + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    return high * 0x100000000 + (low & 0xFFFFFFFF)


def increment_sequence(sequence: int, increment: int) -> int:
    """Return ``sequence + increment``; after Int.MAX it continues at 0 (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + increment) & INT32_MAX


def frame(data: Any, at: int, end: int, file_shift: int, max_size: int, batches: BatchColumns) -> int:
    """Frame the batches of ``data[at:end]`` into ``batches``, from row 0, until one is incomplete or not plausible.

    ``file_shift`` is the file position of ``data[0]``. Returns the first byte that was not framed. The caller
    distinguishes missing bytes from damage. A batch is framed if its magic is 0, 1 or 2 and its size is between the
    smallest of its version and ``max_size`` bytes. Raises IndexError if ``data`` is too short.
    """
    check_bounds(data, at, end)
    row = 0
    while row < batches.capacity and end - at >= HEADER_SIZE_UP_TO_MAGIC:
        size = read_int32(data, at + SIZE_AT)
        magic = data[at + MAGIC_AT]
        if size < smallest_size(magic) or size > max_size or size > end - at - LOG_OVERHEAD:
            break
        read_header(data, at, size, magic, batches, row)
        batches.position[row] = at + file_shift
        at += LOG_OVERHEAD + size
        row += 1
    batches.count = row
    return at


def check_bounds(data: Any, at: int, end: int) -> None:
    """Raise IndexError unless ``data`` contains ``data[at:end]``."""
    if at < 0 or end > len(data):
        raise IndexError(f"{at} to {end} is not within {len(data)}")


def smallest_size(magic: int) -> int:
    """Return the smallest valid ``size`` for a magic byte (unsigned), or a larger number than any size if it is unknown."""
    if magic == 2:
        return V2_MIN_SIZE
    if magic == 1:
        return V1_MIN_SIZE
    if magic == 0:
        return V0_MIN_SIZE
    return 1 << 40


def read_header(data: Any, at: int, size: int, magic: int, batches: BatchColumns, row: int) -> None:
    """Fill a row from the batch at ``data[at]``, read as version ``magic``.

    Raises IndexError if the row or the header does not exist.
    """
    if row < 0 or row >= batches.capacity:
        raise IndexError(row)
    check_bounds(data, at, at + LEGACY_ATTRIBUTES_AT + 1)
    offset = read_int64(data, at)
    batches.at[row] = at
    batches.size[row] = LOG_OVERHEAD + size
    batches.magic[row] = magic
    batches.base_offset[row] = offset
    batches.crc_state[row] = CRC_UNCHECKED
    batches.selected[row] = 1
    batches.intact[row] = 1
    batches.record_total[row] = 0
    if magic < 2:
        batches.attributes[row] = data[at + LEGACY_ATTRIBUTES_AT]
        batches.last_offset[row] = offset
        batches.record_count[row] = 0
        batches.base_timestamp[row] = read_int64(data, at + V1_TIMESTAMP_AT) if magic == 1 else -1
        batches.max_timestamp[row] = batches.base_timestamp[row]
        batches.crc[row] = read_uint32(data, at + LEGACY_CRC_AT)
        batches.producer_id[row] = -1
        batches.producer_epoch[row] = -1
        batches.base_sequence[row] = -1
        batches.partition_leader_epoch[row] = -1
    else:
        batches.attributes[row] = read_int16(data, at + ATTRIBUTES_AT) & 0xFFFF
        batches.last_offset[row] = clamped(offset) + read_int32(data, at + LAST_OFFSET_DELTA_AT)
        batches.record_count[row] = read_int32(data, at + RECORD_COUNT_AT)
        batches.base_timestamp[row] = read_int64(data, at + BASE_TIMESTAMP_AT)
        batches.max_timestamp[row] = read_int64(data, at + MAX_TIMESTAMP_AT)
        batches.crc[row] = read_uint32(data, at + CRC_AT)
        batches.producer_id[row] = read_int64(data, at + PRODUCER_ID_AT)
        batches.producer_epoch[row] = read_int16(data, at + PRODUCER_EPOCH_AT)
        batches.base_sequence[row] = read_int32(data, at + BASE_SEQUENCE_AT)
        batches.partition_leader_epoch[row] = read_int32(data, at + PARTITION_LEADER_EPOCH_AT)


def batch_crc(view: memoryview, at: int, end: int, magic: int) -> int:
    """Return the unsigned CRC of the batch at ``view[at:end]``, computed as in its version."""
    if magic < 2:
        return crc32_of(view, at + MAGIC_AT, end)
    return crc32c_of(view, at + ATTRIBUTES_AT, end)


def check_crcs(view: memoryview, batches: BatchColumns) -> int:
    """Check the CRCs in order until one is wrong, and fill ``crc_state``.

    Returns the row with the wrong CRC, or ``batches.count``.
    """
    if batches.count > batches.capacity:
        raise IndexError(batches.count)
    for row in range(batches.count):
        at = batches.at[row]
        if batch_crc(view, at, at + batches.size[row], batches.magic[row]) != batches.crc[row]:
            batches.crc_state[row] = CRC_BAD
            batches.selected[row] = 0
            return row
        batches.crc_state[row] = CRC_GOOD
    return batches.count


def plausible(data: Any, at: int, end: int, max_size: int) -> bool:
    """Return whether a batch may begin at ``data[at]``.

    This is stricter than framing, which follows a valid batch. It accepts only headers that a broker can write: the
    magic and codec are known, the reserved bits are 0, the counts fit, and in v0 and v1 the key and value lengths match
    the size.
    """
    check_bounds(data, at, end)
    if end - at < LOG_OVERHEAD + V0_MIN_SIZE:
        return False
    magic = data[at + MAGIC_AT]
    size = read_int32(data, at + SIZE_AT)
    if size < smallest_size(magic) or size > max_size or data[at] >= 128:
        return False
    if magic == 2:
        if end - at < RECORD_BATCH_OVERHEAD:
            return False
        attributes = read_int16(data, at + ATTRIBUTES_AT) & 0xFFFF
        delta = read_int32(data, at + LAST_OFFSET_DELTA_AT)
        count = read_int32(data, at + RECORD_COUNT_AT)
        if attributes & V2_RESERVED or attributes & CODEC_MASK > HIGHEST_CODEC:
            return False
        return delta >= 0 and 0 <= count <= delta + 1
    key_at = at + V1_KEY_AT if magic == 1 else at + V0_KEY_AT
    attributes = data[at + LEGACY_ATTRIBUTES_AT]
    if (
        attributes & (V1_RESERVED if magic == 1 else V0_RESERVED)
        or attributes & CODEC_MASK > HIGHEST_LEGACY_CODEC
        or end - key_at < 4
    ):
        return False
    key_size = read_int32(data, key_at)
    rest = size - smallest_size(magic)
    if key_size < -1 or key_size > rest:
        return False
    value_at = key_at + 4 + (key_size if key_size > 0 else 0)
    if end - value_at < 4:
        return True
    value_size = read_int32(data, value_at)
    return (value_size if value_size > 0 else 0) == rest - (key_size if key_size > 0 else 0)


def find_signature(data: Any, at: int, end: int, max_size: int) -> int:
    """Return the first index in ``data[at:end]`` where a batch with a base offset below 2**48 may begin, or ``end``."""
    check_bounds(data, at, end)
    at = find_header_bytes(data, at, end)
    while at < end and not plausible(data, at, end, max_size):
        at = find_header_bytes(data, at + 1, end)
    return at


def length_fault(what: str, size: int, at: int, least: int, room: int) -> str:
    """Return why a length is not valid: below ``least``, or more than ``room``.

    ``at`` is negative if the varint of the length is not valid.
    """
    if at < 0:
        return f"{what} is not a varint"
    if size < least:
        return f"{what} is {size}, but the minimum is {least}"
    return f"{what} is {size}, but only {room} bytes are left"


def delta_fault(what: str, at: int, most: int, length: int) -> str:
    """Return why the varint of a delta in a record of ``length`` bytes is not valid: it has at most ``most`` bytes.

    ``at`` is negative if it is not a varint; otherwise the record ends with it.
    """
    if at < 0:
        return f"{what} is not a varint of 1 to {most} bytes within the record's {length} bytes"
    return f"{what} is the end of the record, which has {length} bytes"


def finish_varint(data: Any, at: int, end: int, first: int, last_shift: int) -> tuple[int, int]:
    """Return (raw value, next byte) of a zig-zag varint whose first byte has its high bit set.

    The next byte is -1 if the varint is not valid. ``last_shift`` is 28 for an int32 (at most five bytes) and 63 for an
    int64.
    """
    raw = first - 128
    shift = 7
    while at < end and shift <= last_shift:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        if byte < 128:
            return raw | byte << shift, at
        raw |= (byte - 128) << shift
        shift += 7
    return 0, -1


def read_varint(data: Any, at: int, end: int, last_shift: int = 28) -> tuple[int, int]:
    """Return (value, next byte) of a zig-zag varint. The next byte is -1 if it is not valid, or not before ``end``."""
    if at >= end:
        return 0, -1
    raw, at = data[at], at + 1
    if raw >= 128:
        raw, at = finish_varint(data, at, end, raw, last_shift)
    return (raw >> 1) ^ -(raw & 1), at
