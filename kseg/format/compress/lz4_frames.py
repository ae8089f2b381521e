"""LZ4 frames as Kafka reads and writes them, including the wrong header checksum of magic 0 (KAFKA-3160)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lz4 import frame

from kseg.engine import optional
from kseg.format.compress.codecs import Buffer, CodecError, DecompressionLimit, one_line

# Measured for a batch of 15 kB, 41 kB decompressed: cramjam's blocks into a given buffer 14 us, its decompress_into of
# the frame 19 us, lz4.frame.decompress_chunk in a reused context 29 us, lz4.block 32 us. Without cramjam, lz4.frame is used.
cramjam = optional("cramjam")

# --- lz4, little-endian: magic · FLG · BD · [content size] · HC · {length 4 · block · [checksum]}* · 0 4 · [checksum]

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Independent blocks of 64 kB and no options: Lz4BlockOutputStream writes only this.
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
# The header in magic 0: HC includes the magic of the frame. Brokers before 0.10 reject the correct one (KAFKA-3160).
_LZ4_HEADER_V0 = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_BLOCK = 64 * 1024
_LZ4_PIECE = 1 << 20
_UNLIMITED = 1 << 62
# C constants when compiled.
HEADER_SIZE = len(_LZ4_HEADER)
BLOCK = _LZ4_BLOCK
STORED = 1 << 31  # the bit of a block's length for uncompressed blocks

# Faults that liblz4 rejects and Lz4BlockInputStream ignores: wrong content sizes and content checksums.
_LZ4_IGNORED = {"frameSize_wrong": "lz4-content-size", "contentChecksum_invalid": "lz4-content-checksum"}


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> Buffer:
    if data[:7] != _LZ4_HEADER:
        view = memoryview(data)
        _check_lz4_descriptor(view)
        if magic == 0 and view[:7] == _LZ4_HEADER_V0:
            inflated = decompress(b"".join((_LZ4_HEADER, view[7:])), limit, magic, quirks, room)
            if quirks is not None:
                quirks.append("lz4-header-checksum")
            return inflated
    elif room is not None and cramjam:
        view = data if isinstance(data, memoryview) else memoryview(data)
        size = _unlz4_blocks(view, view, room if len(room) <= limit else room[:limit])
        if size >= 0:
            return room[:size]
    return _unlz4_long(memoryview(data), limit, magic, quirks)


def _unlz4_blocks(view: memoryview, data: Any, room: memoryview) -> int:
    """Decompress the blocks of a plain frame into `room`. ``data`` and ``view`` are the same bytes.

    Returns the number of decompressed bytes, or -1 if the frame is not plain or `room` is too small.
    """
    inflate = cramjam.lz4.decompress_block_into
    position, end, made, space = HEADER_SIZE, len(data), 0, len(room)
    try:
        while end - position >= 4:
            length = (data[position + 3] << 8 | data[position + 2]) << 8 | data[position + 1]
            length = length << 8 | data[position]
            position += 4
            if not length:
                return made if position == end else -1
            stored = length & STORED
            length ^= stored
            if length > end - position or length > BLOCK or length > space - made:
                return -1
            block = view[position : position + length]
            position += length
            if stored:
                room[made : made + length] = block
                made += length
            else:
                made += inflate(block, room[made : made + BLOCK], min(space - made, BLOCK))
    except cramjam.DecompressionError:
        pass
    return -1


def decompress_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of the first frame in pieces, those before a fault too. Raises CodecError."""
    _check_lz4_descriptor(view)
    try:
        # Only the end of the frame shows which of the two decoders can read it.
        for _ in _frame_pieces(view, 0, _UNLIMITED, None):
            pass
        plain, checksum = view, 0
    except CodecError as error:
        try:
            plain, checksum = _without_ignored(view, magic, str(error).removeprefix("lz4: "))[:2]
        except CodecError:
            # Kafka reads whole blocks, liblz4 also parts of uncompressed ones.
            plain, checksum = view[: _complete_blocks(view)], 0
    yield from _frame_pieces(plain, checksum, _UNLIMITED, None)


def _complete_blocks(view: memoryview) -> int:
    """Return the position after the last complete block before the end mark."""
    flags, position = _check_lz4_descriptor(view)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while len(view) - position >= 4:
        size = int.from_bytes(view[position : position + 4], "little") & ~STORED
        if not size or size + checksum > len(view) - position - 4:
            break
        position += 4 + size + checksum
    return position


def _frame_pieces(view: memoryview, checksum: int, limit: int, quirks: list[str] | None) -> Iterator[bytes]:
    """Yield the pieces of the first frame, at most one byte more than ``limit``. Kafka ignores the bytes after it.

    ``checksum`` is the size of the checksum after the frame in bytes.
    """
    context = frame.create_decompression_context()
    position, made, ended = 0, 0, False
    try:
        while not ended:
            room = min(limit + 1 - made, max(2 * _LZ4_BLOCK, made), _LZ4_PIECE)
            piece, read, ended = frame.decompress_chunk(context, view[position:], room)
            if not (ended or read or piece):
                raise CodecError("lz4: the compressed data is incomplete")
            position += read
            made += len(piece)
            if piece:
                yield piece
    except RuntimeError as e:
        raise CodecError("lz4: " + one_line(e).rpartition("ERROR_")[2]) from None
    rest = len(view) - position
    if rest < checksum:
        raise CodecError("lz4: the compressed data is incomplete")
    if rest > checksum and quirks is not None:
        quirks.append("trailing-bytes")


def _unlz4_frame(view: memoryview, limit: int, quirks: list[str] | None, checksum: int = 0) -> bytearray:
    out = bytearray()
    for piece in _frame_pieces(view, checksum, limit, quirks):
        out += piece
        if len(out) > limit:
            raise DecompressionLimit(limit)
    return out


def _unlz4_long(view: memoryview, limit: int, magic: int, quirks: list[str] | None) -> bytearray:
    try:
        return _unlz4_frame(view, limit, quirks)
    except DecompressionLimit:
        raise
    except CodecError as e:
        plain, checksum, quirk = _without_ignored(view, magic, str(e).removeprefix("lz4: "))
    out = _unlz4_frame(plain, limit, quirks, checksum)
    if quirks is not None:
        quirks.append(quirk)
    return out


def _without_ignored(view: memoryview, magic: int, code: str) -> tuple[memoryview, int, str]:
    """Return the frame without the parts that Kafka ignores and liblz4 rejects with ``code``.

    Returns also the size of its checksum and the name of the quirk. Raises CodecError with ``code`` if Kafka rejects the
    frame.
    """
    if magic == 0 and code == "headerChecksum_invalid":
        quirk = "lz4-header-checksum"
    elif code in _LZ4_IGNORED:
        quirk = _LZ4_IGNORED[code]
    else:
        raise CodecError(f"lz4: {code}") from None
    flags, header_size = _check_lz4_descriptor(view)
    header = _lz4_header(view[5] >> 4, bool(flags & _LZ4_BLOCK_CHECKSUM))
    return memoryview(header + view[header_size:]), 4 if flags & _LZ4_CONTENT_CHECKSUM else 0, quirk


def _check_lz4_descriptor(view: memoryview) -> tuple[int, int]:
    """Return FLG and the size of the header.

    Raises CodecError for headers that Lz4BlockInputStream rejects; liblz4 accepts some of them.
    """
    if len(view) < 7:
        raise CodecError("lz4: the compressed data is incomplete")
    if view[:4] != _LZ4_MAGIC:
        raise CodecError("lz4: no frame starts here")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise CodecError(f"lz4: Kafka does not read a frame with descriptor {flags:02x} {block_descriptor:02x}")
    if not flags & 0x20:
        raise CodecError("lz4: Kafka does not read blocks that depend on each other")
    return flags, 15 if flags & _LZ4_CONTENT_SIZE else 7


def _lz4_header(block_size: int, block_checksum: bool) -> bytes:
    """Return a header without the parts that Kafka ignores. The library computes its checksum."""
    options = {"block_size": block_size, "block_linked": False, "block_checksum": block_checksum}
    header: bytes = frame.compress_begin(frame.create_compression_context(), **options)
    return header


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    options = {"block_size": frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    stream: bytes = frame.compress(data, level or 0, **options)
    return _LZ4_HEADER_V0 + stream[7:] if magic == 0 else stream
