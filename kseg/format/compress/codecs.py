"""The codecs of Kafka's record batches: bounded decompression, and compression as Kafka's own writers do it.

Kafka's readers are the specification (`Compression.wrapForInput` of kafka-clients 4.3.0; FORMATS "Codecs"): what they
refuse is a `CodecError` here, what they pass over in silence is read, and named in `quirks`. No length in a payload is
believed before it is checked, no output passes the caller's limit, and a stream without its end is an error, never a
short result.

This is the hottest path. So each codec has a short road for the batch that Kafka writes, few calls of the library that
also prove the stream whole; what is large, odd or broken starts again on the long road, which finds out what it is.
Snappy and LZ4 go the short road into a buffer of the caller's, used again for batch after batch: new ones cost more than
the inflating does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kseg.format.compress import lz4_frames, snappy_blocks, zstd_frames
from kseg.format.compress.libraries import Buffer, CodecError, DecompressionLimit, libraries


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec of attributes bits 0-2 (Kafka's `CompressionType`).

    `decompress(data, limit, magic, quirks, room)` and `compress(data, magic, level)` are this module's functions without
    the look-up, for loops over many small batches. `first_magic` is the first record version that may carry the codec.
    """

    id: int
    name: str
    decompress: Callable[[Buffer, int, int, list[str] | None, memoryview | None], Buffer]
    compress: Callable[[Buffer, int, int | None], bytes]
    first_magic: int = 0


def _copy(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(limit)
    return bytes(data)


def _store(data: Buffer, magic: int, level: int | None) -> bytes:
    return bytes(data)


# --- gzip ---

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_PLAIN = _GZIP_MAGIC + b"\x00"  # no flag: no optional field in the header, as all writers leave it
_GZIP_WBITS = 31
_GZIP_SHORT = 1 << 20  # output of the short road; beyond, zlib's blocks and their join would hold everything twice
_GZIP_WINDOW = 16 * 1024  # input of one step on the long road: 17 MB at deflate's best, 1032:1
_GZIP_STEP = 1 << 25  # more than one step can make
# java.util.zip.GZIPInputStream looks for another member only where more bytes than these remain.
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
        # zlib copies all that it leaves unused: small first windows keep a chain of tiny members from going quadratic.
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


def gzip_pieces(view: memoryview, size: int) -> Iterator[bytes]:
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
        Codec(0, "none", _copy, _store),
        Codec(1, "gzip", _gunzip, _gzip),
        Codec(2, "snappy", snappy_blocks.decompress, snappy_blocks.compress),
        Codec(3, "lz4", lz4_frames.decompress, lz4_frames.compress),
        Codec(4, "zstd", zstd_frames.decompress, zstd_frames.compress, first_magic=2),  # KIP-110
    )
}


def codec_name(codec_id: int) -> str:
    """Kafka's name of a codec (`CompressionType.name`), "codec-5" for a number that has none."""
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
    """The inflated bytes of a batch's or wrapper's payload, at most `limit` of them.

    They are in the front of `room` where that serves (more of it may have been written to), else in a buffer of their
    own. `data` is contiguous bytes. `magic` is the batch's: it decides whether a wrong LZ4 header checksum is read (magic 0,
    KAFKA-3160) and whether zstd is legal (magic 2, KIP-110). To `quirks` are appended the names of oddities that Kafka
    reads without a word: "lz4-header-checksum", "lz4-content-size", "lz4-content-checksum", "trailing-bytes",
    "snappy-unframed", "snappy-little-endian".

    Raises DecompressionLimit if there is more than `limit`, CodecError for anything else that can't be decoded: an
    unknown codec, an empty, cut or damaged stream. Snappy framing has no end of its own: cut between two blocks it is
    whole, cut inside a block's length it is what Java takes for the end ("trailing-bytes").
    """
    codec = CODECS.get(codec_id)
    if codec is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec.decompress(data, limit, magic, quirks, room)


#: What a compressed value begins with, by codec; snappy's raw blocks have nothing of the kind.
SIGNATURES = {1: b"\x1f\x8b", 2: b"\x82SNAPPY\x00", 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}


def compress(codec_id: int, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """`data` in the framing of Kafka's own writer (`Compression.wrapForOutput`); LZ4 in magic 0 as old brokers want it.

    `level` is the library's own scale (gzip 0..9, lz4 1..16, zstd up to 22; snappy has none), None what Kafka takes by
    default. Raises CodecError for an unknown codec, or for zstd before magic 2.
    """
    codec = CODECS.get(codec_id)
    if codec is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec.compress(data, magic, level)
