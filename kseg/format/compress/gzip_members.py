"""gzip as Java reads it: one member or several. Bytes after the last member are ignored."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kseg.format.compress.codecs import Buffer, CodecError, DecompressionLimit
from kseg.lazy import optional

# Intel's ISA-L decompresses a batch of 15 kB in 0.12 ms, zlib in 0.24 ms. Some platforms lack wheels of it.
fast_zlib = optional("isal.isal_zlib") or zlib

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_PLAIN = _GZIP_MAGIC + b"\x00"  # no flags, so no optional header field: all known writers do this
_GZIP_WBITS = 31
_GZIP_SHORT = 1 << 20  # most output bytes of the fast path; zlib would hold more than that twice to join its blocks
_GZIP_WINDOW = 16 * 1024  # input bytes of one step on the slow path: at most 17 MB of output (deflate: 1032:1)
_GZIP_STEP = 1 << 25  # output bytes, more than one step can produce
# java.util.zip.GZIPInputStream looks for another member only if more bytes than these remain.
_GZIP_SMALLEST_MEMBER = 18
_PIECE = 1 << 20


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> Buffer:
    if data[:4] == _GZIP_PLAIN:
        try:
            inflater = fast_zlib.decompressobj(_GZIP_WBITS)
            out: bytes = inflater.decompress(data, _GZIP_SHORT if limit > _GZIP_SHORT else limit + 1)
            if inflater.eof and not inflater.unused_data and len(out) <= limit:
                return out
        except fast_zlib.error:
            pass
    try:
        return _gunzip_members(memoryview(data), limit, quirks)
    except zlib.error as e:
        raise CodecError(f"gzip: {e}") from None


def _gunzip_members(view: memoryview, limit: int, quirks: list[str] | None) -> bytearray:
    out = bytearray()
    position, end = 0, len(view)
    while True:
        # zlib copies its unused input, so a chain of tiny members would take quadratic time with a large first window.
        inflater, window = zlib.decompressobj(_GZIP_WBITS), 256
        while not inflater.eof:
            piece = view[position : position + window]
            if not piece:
                raise CodecError("gzip: the compressed data is incomplete")
            out += inflater.decompress(piece, min(limit + 1 - len(out), _GZIP_STEP))
            if len(out) > limit:
                raise DecompressionLimit(limit)
            position += len(piece)
            window = min(2 * window, _GZIP_WINDOW)
        position -= len(inflater.unused_data)
        if end - position <= _GZIP_SMALLEST_MEMBER or view[position : position + 3] != _GZIP_MAGIC:
            break
    if position != end and quirks is not None:
        quirks.append("trailing-bytes")
    return out


def decompress_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    try:
        yield from _gzip_member_pieces(view, _PIECE)
    except zlib.error as error:
        raise CodecError(f"gzip: {error}") from None


def _gzip_member_pieces(view: memoryview, size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of all members, at most ``size`` at a time. Raises zlib.error and CodecError."""
    position, end = 0, len(view)
    while True:
        inflater = zlib.decompressobj(_GZIP_WBITS)
        while not inflater.eof:
            data = inflater.unconsumed_tail
            if not data:
                data = bytes(view[position : position + _GZIP_WINDOW])
                position += len(data)
            piece = inflater.decompress(data, size)
            if piece:
                yield piece
            elif not data:
                raise CodecError("gzip: the compressed data is incomplete")
        position -= len(inflater.unused_data)
        if end - position <= _GZIP_SMALLEST_MEMBER or view[position : position + 3] != _GZIP_MAGIC:
            return


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
