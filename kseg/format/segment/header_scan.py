"""Where in plain bytes an entry may begin: headers by their fixed bits, runs of zeros, sizes that entries imply.

Damage is rare, so this is not part of the compiled kernel: regular expressions find the few places worth a look, at
the speed of memory in text and at some 20 ns a byte in binary data.
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

# From the magic byte on: of v2 crc, attributes, last offset delta; of v0 and v1 attributes, key length. Only of v0
# and v1 is the size looked at, which stands before it: a v2 head with a wrong size still ends the entry before it.
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
_HEAD_REACH = 16  # bytes from the magic on that the expression looks at, and then some
_ZEROS = bytes(64 * 1024)
_NOT_ZERO = re.compile(rb"[^\0]")

#: A run of zeros this long is no part of a header.
ZERO_RUN = 64
_RUN = bytes(ZERO_RUN)
#: How much of an entry's beginning may be zeros: an offset and a size begin with some, and so may all up to the magic.
ZEROS_IN_HEAD = HEADER_SIZE_UP_TO_MAGIC + SIZE_AT + 4


def find_header(data: bytearray, at: int, end: int, limit: int, max_size: int) -> int:
    """The first byte of ``data[at:end]`` where an entry may begin, ``end`` when nowhere.

    Headers are looked at up to ``limit``. A v2 head may have any size: a wrong one, too, ends the entry before it.
    """
    for found in _HEAD.finditer(data, at + MAGIC_AT, min(end + MAGIC_AT + _HEAD_REACH, limit)):
        place = found.start() - MAGIC_AT
        if place >= end:
            break
        if data[place + MAGIC_AT] == 2:
            if is_likely_header(data, place, limit):
                return place
        elif framing.plausible(data, place, limit, max_size):
            return place
    return end


def find_zeros(data: bytearray, at: int, end: int) -> int:
    """Where in ``data[at:end]`` a run of at least ZERO_RUN zeros begins, ``end`` when nowhere."""
    found = data.find(_RUN, at, end)
    return end if found < 0 else found


def zero_run_end(data: bytearray, at: int, end: int) -> int:
    """How many zero bytes ``data[at:end]`` begins with."""
    begin = at
    while at < end and data.startswith(_ZEROS, at):
        at += len(_ZEROS)
    if at >= end:
        return end - begin
    found = _NOT_ZERO.search(data, at, end)
    return (found.start() if found else end) - begin


def is_likely_header(data: bytearray, at: int, end: int) -> bool:
    """Whether a v2 header stands at ``data[at]``, whatever its size and magic say."""
    if end - at < RECORD_BATCH_OVERHEAD or data[at] >= 128:
        return False
    attributes = framing.read_int16(data, at + ATTRIBUTES_AT) & 0xFFFF
    delta = framing.read_int32(data, at + LAST_OFFSET_DELTA_AT)
    if attributes & V2_RESERVED or attributes & CODEC_MASK > _HIGHEST_CODEC or delta < 0:
        return False
    return 0 <= framing.read_int32(data, at + RECORD_COUNT_AT) <= delta + 1


def implied_size(data: bytearray, at: int, end: int, magic: int) -> int:
    """The whole size of the v0 or v1 entry at ``data[at]`` by its key and value lengths, 0 where they are none."""
    key_at = at + (V1_KEY_AT if magic == 1 else V0_KEY_AT)
    if end - key_at < 4 or data[at] >= 128 or data[at + LEGACY_ATTRIBUTES_AT] & (V1_RESERVED if magic == 1 else 0xF8):
        return 0
    key_size = framing.read_int32(data, key_at)
    value_at = key_at + 4 + max(key_size, 0)
    # Zeros would pass for a message with an empty key and value; its CRC is not 0.
    if key_size < -1 or end - value_at < 4 or not framing.read_uint32(data, at + LEGACY_CRC_AT):
        return 0
    value_size = framing.read_int32(data, value_at)
    size = value_at + 4 + max(value_size, 0) - at
    return size if value_size >= -1 and size <= INT32_MAX else 0
