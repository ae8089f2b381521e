"""The codecs of Kafka's record batches: bounded decompression, and compression as Kafka's own writers do it.

To add a codec, add a row to ``CODECS`` and a module with its functions. Framing, the header scan, the command line and the
wire formats read the table.

Kafka's readers are the specification (``Compression.wrapForInput`` of kafka-clients 4.3.0). A payload that they reject
raises ``CodecError``. An oddity that they accept is read and named in ``quirks``. Each length in a payload is checked
before it is used, the output never exceeds the caller's limit, and an incomplete stream is an error.

Each codec has a fast path for the payload that Kafka writes. It calls the library a few times and proves that the
stream is complete. A large, unusual or damaged payload starts again on the slow path, which finds the fault. On the fast
path, Snappy and LZ4 decompress into a buffer that the caller reuses: allocating one takes longer than decompressing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from kseg.engine import imported

Buffer = bytes | bytearray | memoryview


class CodecError(Exception):
    """The payload cannot be decoded; `str(error)` is the reason in one line."""


class DecompressionLimit(CodecError):
    """The decompressed bytes would exceed `limit` bytes, or those of one record if `of_record`."""

    def __init__(self, limit: int, *, of_record: bool = False) -> None:
        what = "has a record of" if of_record else "decompresses to"
        super().__init__(f"{what} more than {limit:,} bytes")
        self.limit = limit
        self._of_record = of_record

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes pickle this; by default, the message would be the argument.
        return partial(type(self), of_record=self._of_record), (self.limit,)


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


@dataclass(frozen=True)
class Codec:
    """One codec of attributes bits 0-2 (Kafka's ``CompressionType``): everything that kseg knows of it.

    ``module`` has its functions and is imported with the first payload. ``signature`` is the first bytes of a compressed
    payload. ``first_magic`` is the first record version that may use the codec.
    """

    id: int
    name: str
    module: str
    signature: bytes
    first_magic: int = 0

    @cached_property
    def decompress(self) -> Callable[[Buffer, int, int, list[str] | None, memoryview | None], Buffer]:
        """The function ``(data, limit, magic, quirks, room)``: ``decompress`` below without the look-up, for loops."""
        return self._function("decompress")

    @cached_property
    def compress(self) -> Callable[[Buffer, int, int | None], bytes]:
        """The function ``(data, magic, level)``: ``compress`` below without the look-up."""
        return self._function("compress")

    @cached_property
    def pieces(self) -> Callable[[memoryview, int], Iterator[Buffer]]:
        """The function ``(view, magic)`` that yields the decompressed bytes of a payload too large to hold in memory."""
        return self._function("decompress_pieces")

    def _function(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = imported(f"{self.module}:{name}")
        return found


CODECS: dict[int, Codec] = {
    codec.id: codec
    for codec in (
        Codec(0, "none", "kseg.format.compress.stored_bytes", b""),
        Codec(1, "gzip", "kseg.format.compress.gzip_streams", b"\x1f\x8b"),
        # Snappy's raw blocks lack a signature; this is the one of snappy-java's frames.
        Codec(2, "snappy", "kseg.format.compress.snappy_blocks", b"\x82SNAPPY\x00"),
        Codec(3, "lz4", "kseg.format.compress.lz4_frames", b"\x04\x22\x4d\x18"),
        Codec(4, "zstd", "kseg.format.compress.zstd_frames", b"\x28\xb5\x2f\xfd", first_magic=2),  # KIP-110
    )
}


#: The decompressed bytes after which a payload without a signature counts as compressed.
_TRIED = 1 << 20


def highest_codec(magic: int) -> int:
    """Return the highest number of a codec that batches of version ``magic`` may use."""
    return max(codec.id for codec in CODECS.values() if codec.first_magic <= magic)


def codec_name(codec_id: int) -> str:
    """Return Kafka's name of a codec (``CompressionType.name``), or "codec-5" for a number without a name."""
    codec = CODECS.get(codec_id)
    return codec.name if codec else f"codec-{codec_id}"


def _known(codec_id: int) -> Codec:
    if (codec := CODECS.get(codec_id)) is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec


def decompress(
    codec_id: int,
    data: Buffer,
    *,
    limit: int,
    magic: int = 2,
    quirks: list[str] | None = None,
    room: memoryview | None = None,
) -> Buffer:
    """Return the decompressed bytes of the payload of a batch or wrapper, at most ``limit`` bytes.

    The result is at the start of ``room`` if it fits (more of ``room`` may be overwritten), else in a new buffer.
    ``data`` is contiguous. ``magic`` is the version of the batch: version 0 accepts a wrong LZ4 header checksum
    (KAFKA-3160), and only version 2 may use zstd (KIP-110). ``quirks`` receives the names of oddities that Kafka accepts:
    "lz4-header-checksum", "lz4-content-size", "lz4-content-checksum", "trailing-bytes", "snappy-unframed",
    "snappy-little-endian", "gzip-reserved-flags".

    Raises DecompressionLimit if the output exceeds ``limit``, and CodecError if the payload cannot be decoded: its codec
    is unknown, or its stream is empty, incomplete or damaged. Snappy framing lacks an end mark. A stream that ends between
    two blocks is complete. One that ends within a block's length is what Java reads as the end ("trailing-bytes").
    """
    return _known(codec_id).decompress(data, limit, magic, quirks, room)


def is_plain(codec_id: int, data: Buffer, *, magic: int) -> bool:
    """Return whether a payload that names that codec is not compressed: it lacks the signature and cannot be decoded."""
    codec = CODECS.get(codec_id)
    if codec is None or bytes(data[:8]).startswith(codec.signature):
        return False
    try:
        for _ in decompress_pieces(codec_id, data, limit=_TRIED, magic=magic):
            pass
    except DecompressionLimit:
        return False
    except CodecError:
        return True
    return codec.first_magic > magic


def compress(codec_id: int, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Return ``data`` compressed as Kafka's writer does it (``Compression.wrapForOutput``).

    LZ4 in version 0 has the header checksum that old brokers expect. ``level`` is the library's own scale (gzip 0 to 9,
    lz4 1 to 16, zstd up to 22; snappy lacks levels); None is Kafka's default. Raises CodecError for an unknown codec, or
    for zstd before version 2.
    """
    return _known(codec_id).compress(data, magic, level)


def decompress_pieces(codec_id: int, data: Buffer, *, limit: int, magic: int = 2) -> Iterator[Buffer]:
    """Yield the decompressed bytes of a payload in pieces, for payloads that are too large to hold in memory.

    ``decompress`` is faster. Both accept the same streams and raise the same errors, this function also between pieces.
    """
    total = 0
    for piece in CODECS[codec_id].pieces(memoryview(data), magic):
        total += len(piece)
        if total > limit:
            raise DecompressionLimit(limit)
        yield piece
