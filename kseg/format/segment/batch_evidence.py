"""Whether a batch begins at a position of the buffer, and whether its CRC is valid."""

from __future__ import annotations

import zlib

from kseg.format.record import framing
from kseg.format.record.layout import (
    CODEC_MASK,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import header_scan
from kseg.format.segment.input_buffer import InputBuffer

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
        size = header_scan.implied_size(buffer.data, at, buffer.end, magic)
        return LIKELY if 0 < size <= LOOK_AHEAD and legacy_crc_holds(buffer, distance, size) else NOTHING
    if rest < RECORD_BATCH_OVERHEAD:
        return LIKELY if framed and magic == 2 else NOTHING  # torn inside its header
    return LIKELY if (framed or magic == 2) and header_scan.is_likely_header(buffer.data, at, buffer.end) else NOTHING


def last_offset_of(data: bytearray, at: int) -> int:
    offset = framing.read_int64(data, at)
    if data[at + MAGIC_AT] < 2:
        return offset
    return framing.clamped(offset) + framing.read_int32(data, at + LAST_OFFSET_DELTA_AT)


def is_wrapper(data: bytearray, at: int) -> bool:
    """Return whether a compressed v0 or v1 message begins at ``data[at]``: its offset is the last one in it."""
    return data[at + MAGIC_AT] < 2 and bool(data[at + LEGACY_ATTRIBUTES_AT] & CODEC_MASK)


def legacy_crc_holds(buffer: InputBuffer, distance: int, size: int) -> bool:
    """Return whether a valid v0 or v1 message of ``size`` bytes begins ``distance`` bytes after the buffer's start."""
    if not buffer.fill(distance + size):
        return False
    at = buffer.start + distance
    return zlib.crc32(buffer.view[at + MAGIC_AT : at + size]) == framing.read_uint32(buffer.data, at + LEGACY_CRC_AT)
