"""The codecs of Kafka's record batches: bounded decompression, and compression as Kafka's own writers do it.

To add a codec, add a row to ``CODECS``. Framing, the header scan, the command line and the wire formats read it.

Kafka's readers are the specification (``Compression.wrapForInput`` of kafka-clients 4.3.0). A payload that they reject
raises ``CodecError``. An oddity that they accept is read and named in ``quirks``. Each length in a payload is checked
before it is used, the output never exceeds the caller's limit, and an incomplete stream is an error.

Each codec has a fast path for the payload that Kafka writes. It calls the library a few times and proves that the
stream is complete. A large, unusual or damaged payload starts again on the slow path, which finds the fault. On the fast
path, Snappy and LZ4 decompress into a buffer that the caller reuses: allocating one takes longer than decompressing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kseg.format.compress import lz4_frames, snappy_blocks, zstd_frames
from kseg.format.compress.libraries import Buffer, CodecError, DecompressionLimit, libraries

#: The most bytes of one piece, if the codec lets the reader choose.
PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec of attributes bits 0-2 (Kafka's ``CompressionType``): everything that kseg knows of it.

    ``decompress(data, limit, magic, quirks, room)`` and ``compress(data, magic, level)`` are the functions of this module
    of the same names without the look-up, for loops over many small batches. ``pieces(view, magic)`` yields the
    decompressed bytes in pieces, for payloads that are too large to hold in memory. ``signature`` is the first bytes of a
    compressed payload. ``first_magic`` is the first record version that may use the codec.
    """

    id: int
    name: str
    decompress: Callable[[Buffer, int, int, list[str] | None, memoryview | None], Buffer]
    compress: Callable[[Buffer, int, int | None], bytes]
    pieces: Callable[[memoryview, int], Iterator[Buffer]]
    signature: bytes
    first_magic: int = 0


def _copy(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(limit)
    return bytes(data)


def _store(data: Buffer, magic: int, level: int | None) -> bytes:
    return bytes(data)


def _single_piece(view: memoryview, magic: int) -> Iterator[Buffer]:
    yield view


# --- gzip ---

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_PLAIN = _GZIP_MAGIC + b"\x00"  # no flags, so no optional header field: all known writers do this
_GZIP_WBITS = 31
_GZIP_SHORT = 1 << 20  # most output bytes of the fast path; zlib would hold more than that twice to join its blocks
_GZIP_WINDOW = 16 * 1024  # input bytes of one step on the slow path: at most 17 MB of output (deflate: 1032:1)
_GZIP_STEP = 1 << 25  # output bytes, more than one step can produce
# java.util.zip.GZIPInputStream looks for another member only if more bytes than these remain.
_GZIP_SMALLEST_MEMBER = 18


def _gunzip(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> Buffer:
    begin, error = libraries.gzip
    if data[:4] == _GZIP_PLAIN:
        try:
            inflater = begin(_GZIP_WBITS)
            out: bytes = inflater.decompress(data, _GZIP_SHORT if limit > _GZIP_SHORT else limit + 1)
            if inflater.eof and not inflater.unused_data and len(out) <= limit:
                return out
        except error:
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
                raise CodecError("gzip: the stream is cut short")
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


def _gzip_pieces(view: memoryview, magic: int) -> Iterator[bytes]:
    try:
        yield from _gzip_member_pieces(view, PIECE)
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
                raise CodecError("gzip: the stream is cut short")
        position -= len(inflater.unused_data)
        if end - position <= _GZIP_SMALLEST_MEMBER or view[position : position + 3] != _GZIP_MAGIC:
            return


def _gzip(data: Buffer, magic: int, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)


CODECS: dict[int, Codec] = {
    codec.id: codec
    for codec in (
        Codec(0, "none", _copy, _store, _single_piece, b""),
        Codec(1, "gzip", _gunzip, _gzip, _gzip_pieces, b"\x1f\x8b"),
        # Snappy's raw blocks lack a signature; this is the one of snappy-java's frames.
        Codec(2, "snappy", snappy_blocks.decompress, snappy_blocks.compress, snappy_blocks.decompress_pieces,
              b"\x82SNAPPY\x00"),
        Codec(3, "lz4", lz4_frames.decompress, lz4_frames.compress, lz4_frames.decompress_pieces, b"\x04\x22\x4d\x18"),
        Codec(4, "zstd", zstd_frames.decompress, zstd_frames.compress, zstd_frames.decompress_pieces,
              b"\x28\xb5\x2f\xfd", first_magic=2),  # KIP-110
    )
}  # fmt: skip


def highest_codec(magic: int) -> int:
    """Return the highest number of a codec that batches of version ``magic`` may use."""
    return max(codec.id for codec in CODECS.values() if codec.first_magic <= magic)


def codec_name(codec_id: int) -> str:
    """Return Kafka's name of a codec (``CompressionType.name``), or "codec-5" for a number without a name."""
    codec = CODECS.get(codec_id)
    return codec.name if codec else f"codec-{codec_id}"


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
    "snappy-little-endian".

    Raises DecompressionLimit if the output exceeds ``limit``, and CodecError if the payload cannot be decoded: its codec
    is unknown, or its stream is empty, incomplete or damaged. Snappy framing lacks an end mark. A stream that ends between
    two blocks is complete. One that ends within a block's length is what Java reads as the end ("trailing-bytes").
    """
    codec = CODECS.get(codec_id)
    if codec is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec.decompress(data, limit, magic, quirks, room)


def compress(codec_id: int, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Return ``data`` compressed as Kafka's writer does it (``Compression.wrapForOutput``).

    LZ4 in version 0 has the header checksum that old brokers expect. ``level`` is the library's own scale (gzip 0 to 9,
    lz4 1 to 16, zstd up to 22; snappy lacks levels); None is Kafka's default. Raises CodecError for an unknown codec, or
    for zstd before version 2.
    """
    codec = CODECS.get(codec_id)
    if codec is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec.compress(data, magic, level)
