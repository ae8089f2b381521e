"""What the codec modules share: their errors, and the libraries, one set a thread."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

Buffer = bytes | bytearray | memoryview


class CodecError(Exception):
    """The payload can't be decoded; `str(e)` says why in one line."""


class DecompressionLimit(CodecError):
    """Inflating would pass `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"inflates past the limit of {limit} bytes")
        self.limit = limit

    def __reduce__(self) -> tuple[type[DecompressionLimit], tuple[int]]:
        return type(self), (
            self.limit,
        )  # by default the message would be passed as the limit: worker processes pickle this


class _Libraries(threading.local):
    """What the short roads need of the libraries, imported on first use (all of them cost 34 ms).

    One set a thread: the libraries work in their contexts with the GIL released.
    """

    @cached_property
    def gzip(self) -> tuple[Any, Any]:
        # Intel's ISA-L inflates a batch of 15 kB in 0.12 ms where zlib takes 0.24. It has no wheels for every platform.
        try:
            from isal import isal_zlib
        except ImportError:
            import zlib

            return zlib.decompressobj, zlib.error
        return isal_zlib.decompressobj, isal_zlib.error

    @cached_property
    def snappy(self) -> tuple[Any, type[Exception]] | None:
        # python-snappy 0.7 is a thin layer over cramjam. Reading calls cramjam, which decompresses into a given buffer;
        # everything else calls python-snappy, and so does reading where there is no cramjam.
        try:
            import cramjam
        except ImportError:
            return None
        return cramjam.snappy.decompress_raw_into, cramjam.DecompressionError

    @cached_property
    def lz4(self) -> tuple[Any, type[Exception]] | None:
        # For a batch of 15 kB that inflates to 41: block by block into a given buffer 14 us; its decompress_into, frame
        # and all, 19; lz4.frame.decompress_chunk in a kept context 29; lz4.block 32. Without cramjam, lz4.frame reads.
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
        )  # made for every call: 32 us a batch instead of 15

    @cached_property
    def zstd_compress(self) -> Any:
        return zstd_compressor(3)


libraries = _Libraries()


def zstd_compressor(level: int) -> Any:
    import zstandard

    # As zstd-jni's stream: neither content size nor checksum.
    return zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compress


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
