"""Snappy as Kafka uses it: with the framing of snappy-java ("xerial"), or as raw blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

# python-snappy is a thin layer over cramjam. The fast path calls cramjam, which decompresses into a given buffer.
import cramjam
import snappy

from kseg.format.compress.codecs import Buffer, CodecError, DecompressionLimit, one_line

# --- snappy: 82 'SNAPPY' 00 · version int32 · compat int32 · {length int32 · raw block}*, all big-endian ---

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_LITTLE_ENDIAN = struct.pack("<ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024  # SnappyOutputStream.DEFAULT_BLOCK_SIZE
_CHUNK_LENGTH = struct.Struct(">i")
_SNAPPY_RATIO = 22  # the densest element is a copy of 64 bytes in three


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> Buffer:
    if room is not None:
        size = _unsnappy(memoryview(data), room[:limit])
        if size >= 0:
            if quirks is not None and data[:8] != _XERIAL_MAGIC:
                quirks.append("snappy-unframed")
            return room[:size]
    return _unsnappy_blocks(memoryview(data), limit, quirks)


def _unsnappy(view: memoryview, room: memoryview) -> int:
    """Decompress into `room` and return the number of bytes.

    Returns -1 if `room` is too small, or for a stream that the writers of Kafka and librdkafka do not write.
    """
    inflate = cramjam.snappy.decompress_raw_into
    position, end, made = len(_XERIAL_HEADER), len(view), 0
    try:
        if view[:8] != _XERIAL_MAGIC:
            return int(inflate(view, room))  # librdkafka writes raw blocks
        if view[:position] != _XERIAL_HEADER:
            return -1
        while end - position >= 4:
            length: int = _CHUNK_LENGTH.unpack_from(view, position)[0]
            position += 4
            if not 0 < length <= end - position:
                return -1
            size = inflate(view[position : position + length], room[made:])
            if not size:
                return -1  # writers do not write this; a million empty blocks would take too long here
            made += size
            position += length
    except cramjam.DecompressionError:
        return -1
    return made if position == end else -1


def _unsnappy_blocks(view: memoryview, limit: int, quirks: list[str] | None) -> Buffer:
    """Decompress block by block with python-snappy, in either framing. Checks the claimed lengths first."""
    blocks = total = 0
    for block in _snappy_blocks(view, quirks):
        blocks += 1
        total += _claimed_length(block)
        if total > limit:
            raise DecompressionLimit(limit)
    try:
        if blocks == 1:
            whole: bytes = snappy.uncompress(next(_snappy_blocks(view, None)))
            return whole  # avoids a copy, because a raw block can be large
        out = bytearray()
        for block in _snappy_blocks(view, None):
            out += snappy.uncompress(block)
    except snappy.UncompressError as e:
        raise CodecError(one_line(e.__cause__ or e)) from None
    return out


def _claimed_length(block: memoryview) -> int:
    """Return the uncompressed length at the start of a raw block. python-snappy allocates it at once.

    Raises CodecError for a length that is incomplete, exceeds 32 bits, or is more than the block can contain.
    """
    length = 0
    for at, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            if length > min(_SNAPPY_RATIO * len(block), 0xFFFFFFFF):
                raise CodecError(f"snappy: a block of {len(block)} bytes has the content size {length}")
            return length
    raise CodecError(f"snappy: a block of {len(block)} bytes has no valid length")


def decompress_pieces(view: memoryview, magic: int) -> Iterator[Buffer]:
    """Yield the decompressed blocks. Raises CodecError."""
    try:
        for block in _snappy_blocks(view, None):
            _claimed_length(block)
            yield snappy.uncompress(block)
    except snappy.UncompressError as e:
        raise CodecError(one_line(e.__cause__ or e)) from None


def _snappy_blocks(view: memoryview, quirks: list[str] | None) -> Iterator[memoryview]:
    """Yield the raw blocks as org.xerial.snappy.SnappyInputStream finds them.

    A header without blocks yields nothing.
    """
    position, end = 16, len(view)
    if end < 16 or view[:8] != _XERIAL_MAGIC:
        if quirks is not None:
            quirks.append("snappy-unframed")
        yield view
        return
    if quirks is not None and view[8:16] == _XERIAL_LITTLE_ENDIAN:
        quirks.append("snappy-little-endian")
    while end - position >= 4:
        length: int = _CHUNK_LENGTH.unpack_from(view, position)[0]
        if length < 0 and end - position >= 16 and view[position : position + 8] == _XERIAL_MAGIC:
            position += 16  # concatenated streams
            continue
        position += 4
        if not 0 < length <= end - position:
            raise CodecError(f"snappy: a chunk of {length} bytes where {end - position} remain")
        yield view[position : position + length]
        position += length
    if position != end and quirks is not None:
        quirks.append("trailing-bytes")  # shorter than a length: Java reads it as the end of the stream


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    view = memoryview(data)
    parts: list[Any] = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(view[at : at + _XERIAL_BLOCK])
        parts += _CHUNK_LENGTH.pack(len(block)), block
    return b"".join(parts)
