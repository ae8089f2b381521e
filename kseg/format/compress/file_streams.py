"""Decompress whole files, such as archives: gzip and zstd, as streams in constant memory."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import zstandard

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
