"""Find bytes where a batch may begin, runs of zeros, and the batch sizes that message fields imply.

Damage is rare, so these functions are not compiled. Regular expressions find the few candidates: in text at the speed
of memory, in binary data at about 20 ns per byte.
"""

from __future__ import annotations

import re

from kseg.format.compress.codecs import highest_codec
from kseg.format.record import framing
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    V0_KEY_AT,
    V1_KEY_AT,
    V1_RESERVED,
    V2_RESERVED,
)

# The fields from the magic byte on: CRC, attributes, last offset delta (v2); attributes, key length (v0, v1). The size field
# before the magic is checked for v0 and v1 only: a v2 header with a wrong size still ends the batch before it.
_HEAD = re.compile(
    rb"[\x00-\x02](?:"
    rb"(?<=\x02)(?=.{4}\x00[\x00-\x7f][\x00-\x7f])"
    rb"|(?<=\x01)(?=[\x00-\x0f].{8}[\x00-\x0f\xff])(?<!\x00{3}[\x00-\x15].{5})(?<=[\x00-\x0f].{8})"
    rb"|(?<=\x00)(?=[\x00-"
    + re.escape(bytes([highest_codec(0)]))
    + rb"][\x00-\x0f\xff])(?<!\x00{3}[\x00-\x0d].{5})(?<=[\x00-\x0f].{8})"
    rb")",
    re.DOTALL,
)
_HIGHEST_CODEC = highest_codec(2)
_HEAD_REACH = 16  # at least the bytes from the magic on that the expression reads
_ZEROS = bytes(64 * 1024)
_NOT_ZERO = re.compile(rb"[^\0]")

#: A run of zeros of this length is not part of a header.
ZERO_RUN = 64
_RUN = bytes(ZERO_RUN)
#: The most zeros that a batch can begin with: offset and size begin with zeros, and all bytes before the magic may be 0.
ZEROS_IN_HEAD = HEADER_SIZE_UP_TO_MAGIC + SIZE_AT + 4


def find_header(data: bytearray, at: int, end: int, limit: int, max_size: int) -> int:
    """Return the first index in ``data[at:end]`` where a batch may begin, ``end`` if there is none.

    Header bytes up to ``limit`` (exclusive) are used. The size field of a v2 header is not checked: a header with a
    wrong size still ends the batch before it.
    """
    for found in _HEAD.finditer(data, at + MAGIC_AT, min(end + MAGIC_AT + _HEAD_REACH, limit)):
        at_header = found.start() - MAGIC_AT
        if at_header >= end:
            break
        if data[at_header + MAGIC_AT] == 2:
            if is_likely_header(data, at_header, limit):
                return at_header
        elif framing.plausible(data, at_header, limit, max_size):
            return at_header
    return end


def find_zeros(data: bytearray, at: int, end: int) -> int:
    """Return the index in ``data[at:end]`` where a run of at least ZERO_RUN zeros begins, ``end`` if there is none."""
    found = data.find(_RUN, at, end)
    return end if found < 0 else found


def zero_run_end(data: bytearray, at: int, end: int) -> int:
    """Return the number of zero bytes at the start of ``data[at:end]``."""
    begin = at
    while at < end and data.startswith(_ZEROS, at):
        at += len(_ZEROS)
    if at >= end:
        return end - begin
    found = _NOT_ZERO.search(data, at, end)
    return (found.start() if found else end) - begin


def is_likely_header(data: bytearray, at: int, end: int) -> bool:
    """Return whether a v2 header begins at ``data[at]``, whatever its size and magic fields are."""
    if end - at < RECORD_BATCH_OVERHEAD or data[at] >= 128:
        return False
    attributes = framing.read_int16(data, at + ATTRIBUTES_AT) & 0xFFFF
    delta = framing.read_int32(data, at + LAST_OFFSET_DELTA_AT)
    if attributes & V2_RESERVED or attributes & CODEC_MASK > _HIGHEST_CODEC or delta < 0:
        return False
    return 0 <= framing.read_int32(data, at + RECORD_COUNT_AT) <= delta + 1


def implied_size(data: bytearray, at: int, end: int, magic: int) -> int:
    """Return the size in bytes of the v0 or v1 message at ``data[at]`` that its key and value lengths imply.

    0 if the lengths are not plausible.
    """
    key_at = at + (V1_KEY_AT if magic == 1 else V0_KEY_AT)
    if end - key_at < 4 or data[at] >= 128 or data[at + LEGACY_ATTRIBUTES_AT] & (V1_RESERVED if magic == 1 else 0xF8):
        return 0
    key_size = framing.read_int32(data, key_at)
    value_at = key_at + 4 + max(key_size, 0)
    # Zeros look like a message with an empty key and value. The CRC of that message is not 0.
    if key_size < -1 or end - value_at < 4 or not framing.read_uint32(data, at + LEGACY_CRC_AT):
        return 0
    value_size = framing.read_int32(data, value_at)
    size = value_at + 4 + max(value_size, 0) - at
    return size if value_size >= -1 and size <= INT32_MAX else 0


def is_rest_of_batch(data: bytearray, at: int, end: int) -> bool:
    """Return whether ``data[at:end]`` are the headers of a v2 record, and whole records after it.

    So ends an uncompressed batch after a value that holds batches of another log.
    """
    headers, at = _read_varint(data, at, end)
    for _ in range(2 * max(headers, 0)):
        size, at = _read_varint(data, at, end)
        at += max(size, 0)
        if at >= end:
            break
    while 0 <= at < end:
        size, at = _read_varint(data, at, end)
        if size < 6:  # what the smallest record has after its size
            return False
        at += size
    return headers >= 0 and at == end


def _read_varint(data: bytearray, at: int, end: int) -> tuple[int, int]:
    """Return a zig-zag int32 and the position after it, -1 and ``end + 1`` if there is none."""
    value = 0
    for n in range(min(5, end - at)):
        value |= (data[at + n] & 0x7F) << 7 * n
        if data[at + n] < 128:
            return (value >> 1) ^ -(value & 1), at + n + 1
    return -1, end + 1
