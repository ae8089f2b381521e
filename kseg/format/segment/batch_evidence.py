"""Where a batch may begin, whether one does, and whether batches continue a log.

Damage is rare, so these functions are not compiled. Regular expressions find the few candidates: in text at the speed
of memory, in binary data at about 20 ns per byte.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from dataclasses import dataclass

from kseg.format.compress.codecs import highest_codec
from kseg.format.record import framing
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    V0_KEY_AT,
    V1_KEY_AT,
    V1_RESERVED,
    V2_RESERVED,
)
from kseg.format.segment.input_buffer import InputBuffer

# The number of batches of a chain whose offsets are compared.
COMPARED = 16


@dataclass(frozen=True, slots=True)
class BatchChain:
    """Batches with a valid CRC, one directly after the other, up to byte ``end`` of the file.

    ``batches`` are (position, first offset, last offset); for a compressed v0 or v1 message both offsets are its last
    one. ``closed`` is whether a header, zeros or the end of the file follows, or the chain has the length up to which
    it is read. ``bare`` is the number of uncompressed v0 or v1 messages that it begins with.
    """

    batches: tuple[tuple[int, int, int], ...]
    end: int
    closed: bool
    bare: int = 0

    @property
    def position(self) -> int:
        return self.batches[0][0]

    @property
    def offset(self) -> int:
        return self.batches[0][1]

    def begins_batch(self, position: int) -> bool:
        """Return whether a batch of the chain begins at that byte, or the chain ends there."""
        return position == self.end or any(batch[0] == position for batch in self.batches)

    def continues(self, floor: int | None) -> bool:
        """Return whether most batches have offsets from ``floor`` on that one segment can hold."""
        if floor is None:
            return True
        within = sum(floor <= first <= floor + INT32_MAX for _, first, _ in self.batches)
        return 2 * within >= len(self.batches)

    def first_from(self, floor: int | None) -> int:
        """Return the first offset that the log can continue with: the base offset of the first batch may be damaged."""
        if floor is None:
            return self.offset
        return next((first for _, first, _ in self.batches[:2] if floor <= first <= floor + INT32_MAX), self.offset)

    def leads_to(self, later: BatchChain, floor: int | None) -> bool:
        """Return whether its last batch has offsets from ``floor`` on and below those of a later chain."""
        _, first, last = self.batches[-1]
        return (floor is None or floor <= first) and last < later.first_from(floor)

    def follows_soon(self, floor: int | None, began: int) -> bool:
        """Return whether no more offsets are missing before it than bytes were lost since byte ``began``."""
        return floor is not None and 0 <= self.first_from(floor) - floor <= self.position - began

    def precedes(self, later: BatchChain) -> bool:
        """Return whether most of its batches have smaller offsets than those of a later chain."""
        firsts = sorted(first for _, first, _ in later.batches[:COMPARED])
        pairs = sum(len(firsts) - bisect_right(firsts, last) for _, _, last in self.batches)
        return 2 * pairs >= len(self.batches) * len(firsts)


@dataclass(frozen=True, slots=True)
class LogBefore:
    """The log before lost bytes.

    ``base`` is the base offset in the segment's name, 0 if unknown. ``following`` is the offset that follows an uncompressed
    message, or that begins the segment (``is_start``), None after other batches. ``is_plain`` is set if no compressed v0 or
    v1 set is in the segment before. ``is_unknown`` is set if the log's bytes before the lost ones are not known: a set in
    them can have any offset. ``earlier`` are the offsets that could follow at the last two places with lost bytes before
    these, each with its place: a block from elsewhere can be between. ``expected`` is the offset that should come next,
    ``floor`` the lowest that may come, None if unknown.
    """

    base: int = 0
    following: int | None = None
    is_start: bool = False
    is_plain: bool = False
    is_unknown: bool = False
    earlier: tuple[tuple[int | None, int], ...] = ()
    expected: int | None = None
    floor: int | None = None


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
    headers, at = framing.read_varint(data, at, end)
    for _ in range(2 * max(headers, 0)):
        size, at = framing.read_varint(data, at, end)
        if at < 0:
            return False
        at += max(size, 0)
        if at >= end:
            break
    while 0 <= at < end:
        size, at = framing.read_varint(data, at, end)
        if size < 6:  # what the smallest record has after its size
            return False
        at += size
    return headers >= 0 and at == end


# Bytes to search after a doubtful batch: the default of max.message.bytes.
LOOK_AHEAD = 1024 * 1024


def is_valid_batch(buffer: InputBuffer, at: int, size: int, magic: int) -> bool:
    """Return whether the CRC of the ``size`` bytes at buffer index ``at`` is valid for that version."""
    if size - LOG_OVERHEAD < framing.smallest_size(magic):
        return False
    stored = framing.read_uint32(buffer.data, at + (CRC_AT if magic >= 2 else LEGACY_CRC_AT))
    return framing.batch_crc(buffer.view, at, at + size, magic) == stored


def is_valid_batch_of(buffer: InputBuffer, size: int, magic: int) -> bool:
    """Return whether the CRC of the batch at the buffer's start is valid for version ``magic``.

    The CRC of v2 does not cover the magic byte, the CRC of v0 and v1 does.
    """
    at = buffer.start
    if magic == 2:
        return is_valid_batch(buffer, at, size, magic)
    if size - LOG_OVERHEAD < framing.smallest_size(magic):
        return False
    crc = zlib.crc32(buffer.view[at + MAGIC_AT + 1 : at + size], zlib.crc32(bytes([magic])))
    return crc == framing.read_uint32(buffer.data, at + LEGACY_CRC_AT)


# The results of ``how_likely_batch_begins``.
NOTHING = 0
LIKELY = 1
SURELY = 2


def how_likely_batch_begins(buffer: InputBuffer, distance: int, max_size: int) -> int:
    """Return NOTHING, LIKELY or SURELY: whether a batch, the end of the file or zeros begin ``distance`` bytes after
    the start.

    ``distance`` counts from the buffer's start. LIKELY is a batch that is torn, or whose size or magic is wrong: two
    damaged batches can be neighbours.
    """
    buffer.fill(distance + RECORD_BATCH_OVERHEAD)
    at = buffer.start + distance
    rest = buffer.end - at
    if rest <= MAGIC_AT:
        return SURELY if rest >= 0 else NOTHING
    if not any(buffer.view[at : min(at + RECORD_BATCH_OVERHEAD, buffer.end)]):
        return SURELY
    magic = buffer.data[at + MAGIC_AT]
    size = framing.read_int32(buffer.data, at + SIZE_AT)
    if framing.plausible(buffer.data, at, buffer.end, max_size):
        return LIKELY if buffer.ends_before(distance + LOG_OVERHEAD + size) else SURELY
    framed = framing.smallest_size(2) <= size <= max_size
    if magic < 2:
        size = implied_size(buffer.data, at, buffer.end, magic)
        return LIKELY if 0 < size <= LOOK_AHEAD and legacy_crc_holds(buffer, distance, size) else NOTHING
    if rest < RECORD_BATCH_OVERHEAD:
        return LIKELY if framed and magic == 2 else NOTHING  # torn inside its header
    return LIKELY if (framed or magic == 2) and is_likely_header(buffer.data, at, buffer.end) else NOTHING


def last_offset_of(data: bytearray, at: int) -> int:
    offset = framing.read_int64(data, at)
    if data[at + MAGIC_AT] < 2:
        return offset
    return framing.clamped(offset) + framing.read_int32(data, at + LAST_OFFSET_DELTA_AT)


def is_wrapper(data: bytearray, at: int) -> bool:
    """Return whether a compressed v0 or v1 message begins at ``data[at]``: its offset is the last one in it."""
    return data[at + MAGIC_AT] < 2 and bool(data[at + LEGACY_ATTRIBUTES_AT] & CODEC_MASK)


def is_bare_message(data: bytearray, at: int) -> bool:
    """Return whether an uncompressed v0 or v1 message begins at ``data[at]``: a compressed message set can contain it."""
    return data[at + MAGIC_AT] < 2 and not data[at + LEGACY_ATTRIBUTES_AT] & CODEC_MASK


def legacy_crc_holds(buffer: InputBuffer, distance: int, size: int) -> bool:
    """Return whether a valid v0 or v1 message of ``size`` bytes begins ``distance`` bytes after the buffer's start."""
    return buffer.fill(distance + size) and is_valid_batch(buffer, buffer.start + distance, size, 0)
