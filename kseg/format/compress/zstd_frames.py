"""Zstandard frames (KIP-110): without a content size, several in sequence, within a limit."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import zstandard

from kseg.format.compress.codecs import Buffer, CodecError, DecompressionLimit, one_line

# --- zstd ---
# The slow path reads the block headers of a frame before it decompresses the frame. They show whether the frame is complete
# and where it ends: the library ignores the bytes after the first frame, even with allow_extra_data=False. They also limit
# the decompressed size. That is the size of the buffer, and it disproves a wrong content size.

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte 50 to 5f
_ZSTD_CHECKSUM = 0x04  # the only bit of the descriptor that does not extend the header
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED, _ZSTD_RESERVED = range(4)
_ZSTD_BLOCK = 128 * 1024
_ZSTD_PIECE = 1 << 20
_ZSTD_START = struct.Struct("<IBBHB")  # magic, descriptor, window, and the header of the first block
# The fast path accepts the streams of zstd-jni for up to 128 kB: without content size and checksum, with one block, raw or
# compressed (bit 1 of its header is 0), which is the last block (bit 0) or is followed by an empty one.
_ZSTD_PLAIN = 0xFD2FB528, 0
_ZSTD_EMPTY_LAST = b"\x01\x00\x00"


class _Contexts(threading.local):
    """The functions of reused contexts: a new decompressor for each call would take 32 us per batch instead of 15 us.

    Each thread has one instance, because the library uses its contexts with the GIL released.
    """

    @cached_property
    def decompress(self) -> Any:
        return zstandard.ZstdDecompressor().decompress

    @cached_property
    def compress(self) -> Any:
        return _compressor(3)


contexts = _Contexts()


def _compressor(level: int) -> Any:
    # Like the streams of zstd-jni: without content size and checksum.
    return zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compress


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> Buffer:
    if magic < 2:
        raise CodecError(f"zstd: not allowed in v{magic}")
    size = len(data)
    if size > 9:
        head, descriptor, _, low, high = _ZSTD_START.unpack_from(data)
        block = low | high << 16
        rest = size - _ZSTD_START.size - (block >> 3)
        if (
            (head, descriptor) == _ZSTD_PLAIN
            and limit >= _ZSTD_BLOCK
            and ((rest == 0 and block & 3 == 1) or (rest == 3 and block & 3 == 0 and data[-3:] == _ZSTD_EMPTY_LAST))
        ):
            # Each call maps buffers of 256 kB and more again: 37 us instead of 15 us for a batch of 17 kB.
            try:
                out: bytes = contexts.decompress(data, min(16 * size + 4096, _ZSTD_BLOCK))
                return out
            except zstandard.ZstdError:
                pass
    return _unzstd_frames(memoryview(data), limit)


def _unzstd_frames(view: memoryview, limit: int) -> Buffer:
    try:
        position, bound, size = _walk_zstd_frame(view, 0)
        first = _inflate_zstd(view[:position], bound, size, limit)
        if position == len(view):
            return first
        out = bytearray(first)
        while position < len(view):
            end, bound, size = _walk_zstd_frame(view, position)
            out += _inflate_zstd(view[position:end], bound, size, limit - len(out))
            position = end
    except DecompressionLimit:
        raise DecompressionLimit(limit) from None  # the limit of all frames
    except zstandard.ZstdError as e:
        raise CodecError(f"zstd: {one_line(e)}") from None
    except IndexError:
        raise CodecError("zstd: the compressed data is incomplete") from None
    return out


def decompress_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of all frames in pieces, those of an incomplete frame too. Raises CodecError."""
    position = 0
    try:
        while position < len(view):
            try:
                end, bound, size = _walk_zstd_frame(view, position)
            except IndexError:
                reader = zstandard.ZstdDecompressor().stream_reader(bytes(view[position:]))
                while piece := reader.read(_ZSTD_PIECE):
                    yield piece
                raise
            if size > bound >= 0 or size == 0 < bound:
                raise CodecError(f"zstd: a frame of {end - position} bytes has the content size {size}")
            if bound >= 0:
                reader = zstandard.ZstdDecompressor().stream_reader(bytes(view[position:end]))
                while piece := reader.read(_ZSTD_PIECE):
                    yield piece
            position = end
    except zstandard.ZstdError as e:
        raise CodecError(f"zstd: {one_line(e)}") from None
    except IndexError:
        raise CodecError("zstd: the compressed data is incomplete") from None


def _walk_zstd_frame(view: memoryview, start: int) -> tuple[int, int, int]:
    """Return where the frame ends, the most bytes it can contain (-1: skippable), and its stated size (-1: none).

    Raises IndexError for an incomplete frame, and the library's error for a damaged header.
    """
    descriptor = view[start + 4]
    if view[start : start + 4] != _ZSTD_MAGIC:
        if view[start] & 0xF0 != 0x50 or view[start + 1 : start + 4] != _ZSTD_SKIPPABLE:
            raise CodecError("zstd: no frame starts here")
        position, bound, size = start + 8 + int.from_bytes(view[start + 4 : start + 8], "little"), -1, -1
    else:
        position, size = _read_zstd_header(view, start)
        position, bound = _walk_zstd_blocks(view, position)
        position += 4 if descriptor & _ZSTD_CHECKSUM else 0
    if position > len(view):
        raise IndexError
    return position, bound, size


def _read_zstd_header(view: memoryview, start: int) -> tuple[int, int]:
    size = zstandard.get_frame_parameters(view[start : start + 18]).content_size
    position = start + zstandard.frame_header_size(view[start : start + 18])
    return position, -1 if size == zstandard.CONTENTSIZE_UNKNOWN else size


def _walk_zstd_blocks(view: memoryview, position: int) -> tuple[int, int]:
    bound = last = 0
    while not last:
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last, kind, length = block & 1, block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED or length > _ZSTD_BLOCK:
            raise CodecError(f"zstd: a block of kind {kind} and {length} bytes")
        position += 3 + (1 if kind == _ZSTD_RLE else length)
        bound += _ZSTD_BLOCK if kind == _ZSTD_COMPRESSED else length
    return position, bound


def _inflate_zstd(frame: memoryview, bound: int, size: int, limit: int) -> bytes:
    """Decompress one complete frame.

    A stated `size` is checked first, because the library allocates it at once.
    """
    if bound < 0:
        return b""
    if size > bound or size == 0 < bound:
        raise CodecError(f"zstd: a frame of {len(frame)} bytes has the content size {size}")
    if size > limit:
        raise DecompressionLimit(limit)
    if size == 0:
        return _inflate_empty_zstd(frame)
    try:
        out: bytes = contexts.decompress(frame, max(1, min(bound, limit + 1)))
    except zstandard.ZstdError as e:
        # The frame is complete: if the library finds no end, the buffer was too small.
        if bound > limit and "did not decompress full frame" in str(e):
            raise DecompressionLimit(limit) from None
        raise
    if len(out) > limit:
        raise DecompressionLimit(limit)
    return out


def _inflate_empty_zstd(frame: memoryview) -> bytes:
    # ZstdDecompressor.decompress ignores the blocks and the checksum if the stated size is 0. This function reads them.
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(frame)
    if not inflater.eof:
        raise CodecError("zstd: the compressed data is incomplete")
    return b""


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    if magic < 2:
        raise CodecError(f"zstd: not allowed in v{magic}")
    compress_frame = contexts.compress if level is None else _compressor(level)
    stream: bytes = compress_frame(data)
    return stream
