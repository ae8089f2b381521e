"""The errors of the codec modules, and the compression libraries, imported on first use."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

Buffer = bytes | bytearray | memoryview


class CodecError(Exception):
    """The payload cannot be decoded; `str(error)` is the reason in one line."""


class DecompressionLimit(CodecError):
    """The decompressed bytes would exceed `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"inflates past the limit of {limit} bytes")
        self.limit = limit

    def __reduce__(self) -> tuple[type[DecompressionLimit], tuple[int]]:
        return type(self), (self.limit,)  # worker processes pickle this; by default, the message would be the argument


class _Libraries(threading.local):
    """The functions of the libraries that the fast paths call, imported on first use (all of them take 34 ms).

    Each thread has one instance, because the libraries use their contexts with the GIL released.
    """

    @cached_property
    def gzip(self) -> tuple[Any, Any]:
        # Intel's ISA-L decompresses a batch of 15 kB in 0.12 ms, zlib in 0.24 ms. Some platforms lack wheels of it.
        try:
            from isal import isal_zlib
        except ImportError:
            import zlib

            return zlib.decompressobj, zlib.error
        return isal_zlib.decompressobj, isal_zlib.error

    @cached_property
    def snappy(self) -> tuple[Any, type[Exception]] | None:
        # python-snappy 0.7 is a thin layer over cramjam. The fast path calls cramjam, which decompresses into a given
        # buffer. Everything else calls python-snappy, also if cramjam is not installed.
        try:
            import cramjam
        except ImportError:
            return None
        return cramjam.snappy.decompress_raw_into, cramjam.DecompressionError

    @cached_property
    def lz4(self) -> tuple[Any, type[Exception]] | None:
        # Measured for a batch of 15 kB, 41 kB decompressed: cramjam's blocks into a given buffer 14 us, its decompress_into
        # of the frame 19 us, lz4.frame.decompress_chunk in a reused context 29 us, lz4.block 32 us. Without cramjam,
        # lz4.frame is used.
        try:
            import cramjam
        except ImportError:
            return None
        return cramjam.lz4.decompress_block_into, cramjam.DecompressionError

    @cached_property
    def zstd(self) -> tuple[Any, type[Exception]]:
        import zstandard

        return (
            zstandard.ZstdDecompressor().decompress,
            zstandard.ZstdError,
        )  # a new decompressor for each call would take 32 us per batch instead of 15 us

    @cached_property
    def zstd_compress(self) -> Any:
        return zstd_compressor(3)


libraries = _Libraries()


def zstd_compressor(level: int) -> Any:
    import zstandard

    # Like the streams of zstd-jni: without content size and checksum.
    return zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compress


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
