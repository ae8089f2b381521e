"""gzip: the payloads of batches as Java reads them, and whole files, also of zstd, as streams.

Java reads one member or several. Bytes after the last member are ignored.

Whole files, such as archives, are decompressed as streams in constant memory.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from kseg.engine import optional
from kseg.format.compress.codecs import Buffer, CodecError, DecompressionLimit

# Intel's ISA-L decompresses a batch of 15 kB in 0.12 ms, zlib in 0.24 ms. Some platforms lack wheels of it.
fast_zlib = optional("isal.isal_zlib") or zlib

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_PLAIN = _GZIP_MAGIC + b"\x00"  # no flags, so no optional header field: all known writers do this
_GZIP_WBITS = 31
_GZIP_SHORT = 1 << 20  # most output bytes of the fast path; zlib would hold more than that twice to join its blocks
_GZIP_WINDOW = 16 * 1024  # input bytes of one step on the slow path: at most 17 MB of output (deflate: 1032:1)
_GZIP_FIRST_WINDOW = 256
_GZIP_RESERVED = 0xE0
# java.util.zip.GZIPInputStream looks for another member only if more bytes than these remain.
_GZIP_SMALLEST_MEMBER = 18
_PIECE = 1 << 20
_UNLIMITED = 1 << 62


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
    for piece in _member_pieces(view, limit, quirks):
        out += piece
        if len(out) > limit:
            raise DecompressionLimit(limit)
    return out


def _with_known_flags(head: memoryview) -> Buffer:
    """Return the start of a member without the reserved flags of its header, which Java ignores and zlib rejects."""
    if len(head) < 4 or not head[3] & _GZIP_RESERVED:
        return head
    return b"".join((head[:3], bytes([head[3] & ~_GZIP_RESERVED]), head[4:]))


def decompress_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    try:
        yield from _member_pieces(view, _UNLIMITED, None)
    except zlib.error as error:
        raise CodecError(f"gzip: {error}") from None


def _member_pieces(view: memoryview, limit: int, quirks: list[str] | None) -> Iterator[bytes]:
    """Yield the bytes of all members, at most one more than ``limit``. Raises zlib.error and CodecError."""
    position, end, made = 0, len(view), 0
    while True:
        # zlib copies its unused input, so a chain of tiny members would take quadratic time with a large first window.
        inflater, start, window = zlib.decompressobj(_GZIP_WBITS), position, _GZIP_FIRST_WINDOW
        while not inflater.eof:
            data: Buffer = inflater.unconsumed_tail
            if not data:
                piece = view[position : position + window]
                data = _with_known_flags(piece) if position == start else piece
                if data is not piece and quirks is not None:
                    quirks.append("gzip-reserved-flags")
                position, window = position + len(piece), min(2 * window, _GZIP_WINDOW)
            inflated = inflater.decompress(data, min(limit + 1 - made, _PIECE))
            made += len(inflated)
            if inflated:
                yield inflated
            elif not data:
                raise CodecError("gzip: the compressed data is incomplete")
        position -= len(inflater.unused_data)
        if end - position <= _GZIP_SMALLEST_MEMBER or view[position : position + 3] != _GZIP_MAGIC:
            break
    if position != end and quirks is not None:
        quirks.append("trailing-bytes")


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)


#: Signature -> the name of the compression.
SIGNATURES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
#: The bytes that show the compression.
SIGNATURE_SIZE = 4
# The memory of a zstd window (--long=27); larger ones need an option of zstd, too.
_MAX_WINDOW = 1 << 27
# The bytes decompressed at once: a block of 4 bytes can make 128 KiB.
_ZSTD_PIECE = 2048


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression of a file by its first bytes, None for other files."""
    return next((name for signature, name in SIGNATURES.items() if head.startswith(signature)), None)


def decompressed(raw: Any, name: str) -> io.RawIOBase:
    """Return a stream of the decompressed bytes of a binary stream. Damage raises OSError."""
    if name == "gzip":
        return _Checked(gzip.GzipFile(fileobj=raw))
    return _Checked(_ZstdReader(raw))


class _ZstdReader:
    """A reader of zstd frames. Unlike the library's reader it detects that the last frame is incomplete."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._frame = self._next_frame()
        self._pending = memoryview(b"")

    def read1(self, size: int) -> bytes:
        while not self._pending:
            data = self._frame.unused_data if self._frame.eof else b""
            data = data or self._raw.read(_ZSTD_PIECE)
            if not data:
                if self._frame.eof:
                    return b""
                raise EOFError("the last frame is incomplete")
            if self._frame.eof:
                self._frame = self._next_frame()
            self._pending = memoryview(self._frame.decompress(data))
        piece, self._pending = bytes(self._pending[:size]), self._pending[size:]
        return piece

    def close(self) -> None:
        self._raw.close()

    @staticmethod
    def _next_frame() -> Any:
        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()


class _Checked(io.RawIOBase):
    """A stream that raises OSError for compressed data that are damaged or incomplete."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        try:
            # One read at a time: the bytes before damage are returned.
            data = self._stream.read1(len(view))
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            raise OSError(f"the compressed data are damaged: {' '.join(str(error).split())}") from error
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


class Prefixed(io.RawIOBase):
    """A stream whose first bytes can be looked at. ``count`` is the number of bytes read from it."""

    def __init__(self, stream: Any) -> None:
        self.count = 0
        self._stream = stream
        self._head = b""

    def head(self, size: int) -> bytes:
        """Return the first ``size`` bytes, fewer if the stream ends before. They are read again."""
        while len(self._head) < size and (piece := self._stream.read(size - len(self._head))):
            self._head += piece
        return self._head[:size]

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        if self._head:
            count = min(len(view), len(self._head))
            view[:count], self._head = self._head[:count], self._head[count:]
        else:
            count = self._stream.readinto(view) or 0
        self.count += count
        return count
