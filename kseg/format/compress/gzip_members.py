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
_GZIP_FIRST_WINDOW = 256
_GZIP_RESERVED = 0xE0
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
        inflater, window = zlib.decompressobj(_GZIP_WBITS), _GZIP_FIRST_WINDOW
        while not inflater.eof:
            piece = view[position : position + window]
            if not piece:
                raise CodecError("gzip: the compressed data is incomplete")
            known = _with_known_flags(piece) if window == _GZIP_FIRST_WINDOW else piece
            if known is not piece and quirks is not None:
                quirks.append("gzip-reserved-flags")
            out += inflater.decompress(known, min(limit + 1 - len(out), _GZIP_STEP))
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


def _with_known_flags(head: memoryview) -> Buffer:
    """Return the start of a member without the reserved flags of its header, which Java ignores and zlib rejects."""
    if len(head) < 4 or not head[3] & _GZIP_RESERVED:
        return head
    return b"".join((head[:3], bytes([head[3] & ~_GZIP_RESERVED]), head[4:]))


def decompress_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    try:
        yield from _gzip_member_pieces(view, _PIECE)
    except zlib.error as error:
        raise CodecError(f"gzip: {error}") from None


def _gzip_member_pieces(view: memoryview, size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of all members, at most ``size`` at a time. Raises zlib.error and CodecError."""
    position, end = 0, len(view)
    while True:
        inflater, start = zlib.decompressobj(_GZIP_WBITS), position
        while not inflater.eof:
            data = inflater.unconsumed_tail
            if not data:
                piece = view[position : position + _GZIP_WINDOW]
                data = bytes(_with_known_flags(piece) if position == start else piece)
                position += len(data)
            inflated = inflater.decompress(data, size)
            if inflated:
                yield inflated
            elif not data:
                raise CodecError("gzip: the compressed data is incomplete")
        position -= len(inflater.unused_data)
        if end - position <= _GZIP_SMALLEST_MEMBER or view[position : position + 3] != _GZIP_MAGIC:
            return


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
