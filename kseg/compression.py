"""The codecs of Kafka's record batches: bounded decompression, and compression as Kafka's own writers do it.

Kafka's readers are the specification (`Compression.wrapForInput` of kafka-clients 4.3.0; FORMATS "Codecs"): what they
refuse is a `CodecError` here, what they pass over in silence is read, and named in `quirks`. No length in a payload is
believed before it is checked, no output passes the caller's limit, and a stream without its end is an error, never a
short result.

This is the hottest path. So each codec has a short road for the batch that Kafka writes, one call of the library that
also proves the stream whole; what is large, odd or broken starts again on the long road, which finds out what it is.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

    def __reduce__(self) -> tuple[type["DecompressionLimit"], tuple[int]]:
        return type(self), (
            self.limit,
        )  # by default the message would be passed as the limit: worker processes pickle this


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec of attributes bits 0-2 (Kafka's `CompressionType`).

    `decompress(data, limit, magic, quirks)` and `compress(data, magic, level)` are this module's functions without the
    look-up, for loops over many small batches. `first_magic` is the first record version that may carry the codec.
    """

    id: int
    name: str
    decompress: Callable[[Buffer, int, int, list[str] | None], Buffer]
    compress: Callable[[Buffer, int, int | None], bytes]
    first_magic: int = 0


class _Libraries(threading.local):
    """What the short roads need of the libraries, imported on first use (all of them cost 34 ms).

    One set a thread: the libraries work in their contexts with the GIL released.
    """

    @cached_property
    def snappy(self) -> tuple[Any, type[Exception]]:
        # cramjam is python-snappy 0.7's one dependency and does its work. It is called directly for what python-snappy
        # hides: the length check before allocation, and decompression into a given buffer.
        import cramjam

        return cramjam.snappy.decompress_raw, cramjam.DecompressionError

    @cached_property
    def lz4(self) -> tuple[Any, Any]:
        # For a batch of 17 kB: a kept context with bounded output 5.1 us; lz4.frame.decompress, without a limit, 5.6;
        # lz4.block with the frame parsed here 5.9; LZ4FrameDecompressor 7.4.
        from lz4 import frame

        return frame.decompress_chunk, frame.create_decompression_context()

    @cached_property
    def zstd(self) -> tuple[Any, type[Exception]]:
        import zstandard

        return (
            zstandard.ZstdDecompressor().decompress,
            zstandard.ZstdError,
        )  # made for every call: 32 us a batch instead of 15

    @cached_property
    def zstd_compress(self) -> Any:
        return _zstd_compressor(3)


_libraries = _Libraries()


def _copy(data: Buffer, limit: int, magic: int, quirks: list[str] | None) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(limit)
    return bytes(data)


def _store(data: Buffer, magic: int, level: int | None) -> bytes:
    return bytes(data)


# --- gzip ---

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_WBITS = 31
_GZIP_SHORT = 1 << 20  # output of the short road; beyond, zlib's blocks and their join would hold everything twice
_GZIP_WINDOW = 16 * 1024  # input of one step on the long road: 17 MB at deflate's best, 1032:1
_GZIP_STEP = 1 << 25  # more than one step can make
# java.util.zip.GZIPInputStream looks for another member only where more bytes than these remain.
_GZIP_SMALLEST_MEMBER = 18


def _gunzip(data: Buffer, limit: int, magic: int, quirks: list[str] | None) -> Buffer:
    inflater = zlib.decompressobj(_GZIP_WBITS)
    try:
        out = inflater.decompress(data, _GZIP_SHORT if limit > _GZIP_SHORT else limit + 1)
        if inflater.eof and not inflater.unused_data and len(out) <= limit:
            return out
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


def _gzip(data: Buffer, magic: int, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)


# --- snappy: 82 'SNAPPY' 00 · version int32 · compat int32 · {length int32 · raw block}*, all big-endian ---

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_LITTLE_ENDIAN = struct.pack("<ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024  # SnappyOutputStream.DEFAULT_BLOCK_SIZE
_XERIAL_START = struct.Struct(">QQi")  # the header and the length of the first block
_XERIAL_HEAD, _XERIAL_VERSIONS = struct.unpack(">QQ", _XERIAL_HEADER)
_CHUNK_LENGTH = struct.Struct(">i")
_SNAPPY_SHORT = 1 << 21  # the most that three bytes can claim
_SNAPPY_RATIO = 22  # the densest element is a copy of 64 bytes in three


def _unsnappy(data: Buffer, limit: int, magic: int, quirks: list[str] | None) -> Buffer:
    size = len(data)
    if size > 22 and limit >= _SNAPPY_SHORT:
        head, versions, length = _XERIAL_START.unpack_from(data)
        framed = head == _XERIAL_HEAD
        start = 20 if framed else 0  # librdkafka writes no frame
        # A block begins with its inflated length as a varint: one of three bytes at most claims less than 2 MiB.
        if data[start] & data[start + 1] & data[start + 2] < 0x80 and (
            not framed or (length == size - 20 and versions == _XERIAL_VERSIONS)
        ):
            decompress_raw, error = _libraries.snappy
            try:
                out = bytes(decompress_raw(memoryview(data)[20:] if framed else data))
                if not framed and quirks is not None:
                    quirks.append("snappy-unframed")
                return out
            except error:
                pass
    return _unsnappy_blocks(memoryview(data), limit, quirks)


def _unsnappy_blocks(view: memoryview, limit: int, quirks: list[str] | None) -> bytearray:
    import cramjam

    total = 0
    try:
        for block in _snappy_blocks(view, quirks):
            length = cramjam.snappy.decompress_raw_len(block)
            if length > _SNAPPY_RATIO * len(block):
                raise CodecError(f"snappy: a block of {len(block)} bytes claims to hold {length}")
            total += length
            if total > limit:
                raise DecompressionLimit(limit)
        out = bytearray(total)
        target = memoryview(out)
        position = 0
        for block in _snappy_blocks(view, None):
            position += cramjam.snappy.decompress_raw_into(block, target[position:])
    except cramjam.DecompressionError as e:
        raise CodecError(_one_line(e)) from None
    return out


def _snappy_blocks(view: memoryview, quirks: list[str] | None) -> Iterator[memoryview]:
    """The raw blocks, as org.xerial.snappy.SnappyInputStream finds them; none behind a header that stands alone."""
    position, end = 16, len(view)
    if end < 16 or view[:8] != _XERIAL_MAGIC:
        if quirks is not None:
            quirks.append("snappy-unframed")
        yield view
        return
    if quirks is not None and view[8:16] == _XERIAL_LITTLE_ENDIAN:
        quirks.append("snappy-little-endian")
    while end - position >= 4:
        length: int = _CHUNK_LENGTH.unpack_from(view, position)[0]
        if length < 0 and end - position >= 16 and view[position : position + 8] == _XERIAL_MAGIC:
            position += 16  # streams set one behind the other
            continue
        position += 4
        if not 0 < length <= end - position:
            raise CodecError(f"snappy: a chunk of {length} bytes where {end - position} remain")
        yield view[position : position + length]
        position += length
    if position != end and quirks is not None:
        quirks.append("trailing-bytes")  # less than a length: for Java the end of the stream


def _snappy(data: Buffer, magic: int, level: int | None) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[Any] = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        parts += _CHUNK_LENGTH.pack(len(block)), block
    return b"".join(parts)


# --- lz4, little-endian: magic · FLG · BD · [content size] · HC · {length 4 · block · [checksum]}* · 0 4 · [checksum]

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Independent blocks of 64 kB, no option: all that Lz4BlockOutputStream writes.
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
# Its header in magic 0, HC computed over the frame's magic too: brokers before 0.10 refuse any other (KAFKA-3160).
_LZ4_HEADER_V0 = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_SHORT = 32 * 1024  # input of the short road
_LZ4_BLOCK = 64 * 1024
_LZ4_PIECE = 1 << 20

# What liblz4 refuses and Lz4BlockInputStream reads: it looks neither at the content's size nor at its checksum.
_LZ4_IGNORED = {"frameSize_wrong": "lz4-content-size", "contentChecksum_invalid": "lz4-content-checksum"}


def _unlz4(data: Buffer, limit: int, magic: int, quirks: list[str] | None) -> Buffer:
    if data[:7] != _LZ4_HEADER:
        view = memoryview(data)
        _check_lz4_descriptor(view)
        if magic == 0 and view[:7] == _LZ4_HEADER_V0:
            inflated = _unlz4(b"".join((_LZ4_HEADER, view[7:])), limit, magic, quirks)
            if quirks is not None:
                quirks.append("lz4-header-checksum")
            return inflated
    size = len(data)
    room = _LZ4_BLOCK + 8 * size  # with room for a whole block liblz4 decodes into place
    if size <= _LZ4_SHORT and room <= limit:
        decompress_chunk, context = _libraries.lz4
        out: bytes
        try:
            out, read, ended = decompress_chunk(context, data, room)
            if ended and read == size:
                return out
        except RuntimeError:
            pass
        del _libraries.lz4  # the context may stand in the middle of a frame
    return _unlz4_long(memoryview(data), limit, magic, quirks)


def _unlz4_frame(view: memoryview, limit: int, quirks: list[str] | None, checksum: int = 0) -> bytearray:
    """The first frame, and no other: Kafka passes over what follows it and the `checksum` bytes that belong to it."""
    from lz4 import frame

    context = frame.create_decompression_context()
    out = bytearray()
    position, ended = 0, False
    try:
        while not ended:
            room = min(limit + 1 - len(out), max(2 * _LZ4_BLOCK, len(out)), _LZ4_PIECE)
            piece, read, ended = frame.decompress_chunk(context, view[position:], room)
            if not (ended or read or piece):
                raise CodecError("lz4: the stream is cut short")
            position += read
            out += piece
            if len(out) > limit:
                raise DecompressionLimit(limit)
    except RuntimeError as e:
        raise CodecError("lz4: " + _one_line(e).rpartition("ERROR_")[2]) from None
    rest = len(view) - position
    if rest < checksum:
        raise CodecError("lz4: the stream is cut short")
    if rest > checksum and quirks is not None:
        quirks.append("trailing-bytes")
    return out


def _unlz4_long(view: memoryview, limit: int, magic: int, quirks: list[str] | None) -> bytearray:
    try:
        return _unlz4_frame(view, limit, quirks)
    except CodecError as e:
        code = str(e).removeprefix("lz4: ")
        if magic == 0 and code == "headerChecksum_invalid":
            quirk = "lz4-header-checksum"
        elif code in _LZ4_IGNORED:
            quirk = _LZ4_IGNORED[code]
        else:
            raise
    flags, header_size = _check_lz4_descriptor(view)
    mended = _lz4_header(view[5] >> 4, bool(flags & _LZ4_BLOCK_CHECKSUM))
    checksum = 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
    out = _unlz4_frame(memoryview(mended + view[header_size:]), limit, quirks, checksum)
    if quirks is not None:
        quirks.append(quirk)
    return out


def _check_lz4_descriptor(view: memoryview) -> tuple[int, int]:
    """FLG and the header's size. Refuses what Lz4BlockInputStream refuses, some of which liblz4 would read."""
    if len(view) < 7:
        raise CodecError("lz4: the stream is cut short")
    if view[:4] != _LZ4_MAGIC:
        raise CodecError("lz4: no frame begins here")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise CodecError(f"lz4: Kafka reads no frame with descriptor {flags:02x} {block_descriptor:02x}")
    if not flags & 0x20:
        raise CodecError("lz4: Kafka reads no blocks that depend on each other")
    return flags, 15 if flags & _LZ4_CONTENT_SIZE else 7


def _lz4_header(block_size: int, block_checksum: bool) -> bytes:
    """A header without what Kafka ignores, its checksum right because the library makes it."""
    from lz4 import frame

    options = {"block_size": block_size, "block_linked": False, "block_checksum": block_checksum}
    header: bytes = frame.compress_begin(frame.create_compression_context(), **options)
    return header


def _lz4(data: Buffer, magic: int, level: int | None) -> bytes:
    from lz4 import frame

    options = {"block_size": frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    stream: bytes = frame.compress(data, level or 0, **options)
    return _LZ4_HEADER_V0 + stream[7:] if magic == 0 else stream


# --- zstd ---
# On the long road a frame is walked by its block headers before it is inflated. That tells whether it is whole, where
# it ends (the library passes over what follows the first frame, even with allow_extra_data=False), and the most it can
# hold: the size of the buffer, and the proof against a content size that lies.

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 50..5f
_ZSTD_CHECKSUM = 0x04  # the one bit of the descriptor that doesn't lengthen the header
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED, _ZSTD_RESERVED = range(4)
_ZSTD_BLOCK = 128 * 1024
_ZSTD_START = struct.Struct("<IBBHB")  # magic, descriptor, window, and the header of the first block
# The short road takes what zstd-jni's stream writes for up to 128 kB: no content size, no checksum, one block, raw or
# compressed (bit 1 of its header clear), which is the last (bit 0) or has an empty one behind it.
_ZSTD_PLAIN = 0xFD2FB528, 0
_ZSTD_EMPTY_LAST = b"\x01\x00\x00"


def _unzstd(data: Buffer, limit: int, magic: int, quirks: list[str] | None) -> Buffer:
    if magic < 2:
        raise CodecError(f"zstd: not legal in magic {magic}")
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
            decompress, error = _libraries.zstd
            # Buffers from 256 kB on are mapped anew at every call: 37 us for a batch of 17 kB, not 15.
            try:
                out: bytes = decompress(data, min(16 * size + 4096, _ZSTD_BLOCK))
                return out
            except error:
                pass
    return _unzstd_frames(memoryview(data), limit)


def _unzstd_frames(view: memoryview, limit: int) -> Buffer:
    import zstandard

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
        raise DecompressionLimit(limit) from None  # not what was left of it
    except zstandard.ZstdError as e:
        raise CodecError(f"zstd: {_one_line(e)}") from None
    except IndexError:
        raise CodecError("zstd: the stream is cut short") from None
    return out


def _walk_zstd_frame(view: memoryview, start: int) -> tuple[int, int, int]:
    """Where the frame ends, the most bytes it can hold (-1: skippable), and how many it says it holds (-1: it doesn't).

    Raises IndexError where the frame is cut short, and the library's error for a damaged header.
    """
    descriptor = view[start + 4]
    if view[start : start + 4] != _ZSTD_MAGIC:
        if view[start] & 0xF0 != 0x50 or view[start + 1 : start + 4] != _ZSTD_SKIPPABLE:
            raise CodecError("zstd: no frame begins here")
        position, bound, size = start + 8 + int.from_bytes(view[start + 4 : start + 8], "little"), -1, -1
    else:
        position, size = _read_zstd_header(view, start)
        position, bound = _walk_zstd_blocks(view, position)
        position += 4 if descriptor & _ZSTD_CHECKSUM else 0
    if position > len(view):
        raise IndexError
    return position, bound, size


def _read_zstd_header(view: memoryview, start: int) -> tuple[int, int]:
    import zstandard

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
    """One whole frame. The library allocates a stated `size` at once, so that is judged before."""
    if bound < 0:
        return b""
    if size > bound or size == 0 < bound:
        raise CodecError(f"zstd: a frame of {len(frame)} bytes claims to hold {size}")
    if size > limit:
        raise DecompressionLimit(limit)
    if size == 0:
        return _inflate_empty_zstd(frame)
    decompress, error = _libraries.zstd
    try:
        out: bytes = decompress(frame, max(1, min(bound, limit + 1)))
    except error as e:
        # The frame is whole: if the library finds no end of it, the buffer was too small.
        if bound > limit and "did not decompress full frame" in str(e):
            raise DecompressionLimit(limit) from None
        raise
    if len(out) > limit:
        raise DecompressionLimit(limit)
    return out


def _inflate_empty_zstd(frame: memoryview) -> bytes:
    import zstandard

    # ZstdDecompressor.decompress looks no further than a stated size of 0; this reads the blocks and the checksum.
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(frame)
    if not inflater.eof:
        raise CodecError("zstd: the stream is cut short")
    return b""


def _zstd_compressor(level: int) -> Any:
    import zstandard

    # As zstd-jni's stream: neither content size nor checksum.
    return zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compress


def _zstd(data: Buffer, magic: int, level: int | None) -> bytes:
    if magic < 2:
        raise CodecError(f"zstd: not legal in magic {magic}")
    compress_frame = _libraries.zstd_compress if level is None else _zstd_compressor(level)
    stream: bytes = compress_frame(data)
    return stream


CODECS: dict[int, Codec] = {
    codec.id: codec
    for codec in (
        Codec(0, "none", _copy, _store),
        Codec(1, "gzip", _gunzip, _gzip),
        Codec(2, "snappy", _unsnappy, _snappy),
        Codec(3, "lz4", _unlz4, _lz4),
        Codec(4, "zstd", _unzstd, _zstd, first_magic=2),  # KIP-110
    )
}


def codec_name(codec_id: int) -> str:
    """Kafka's name of a codec (`CompressionType.name`), "codec-5" for a number that has none."""
    codec = CODECS.get(codec_id)
    return codec.name if codec else f"codec-{codec_id}"


def decompress(codec_id: int, data: Buffer, *, limit: int, magic: int = 2, quirks: list[str] | None = None) -> Buffer:
    """The inflated bytes of a batch's or wrapper's payload, at most `limit` of them, in a buffer of their own.

    `data` is contiguous bytes. `magic` is the batch's: it decides whether a wrong LZ4 header checksum is read (magic 0,
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
    return codec.decompress(data, limit, magic, quirks)


def compress(codec_id: int, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """`data` in the framing of Kafka's own writer (`Compression.wrapForOutput`); LZ4 in magic 0 as old brokers want it.

    `level` is the library's own scale (gzip 0..9, lz4 1..16, zstd up to 22; snappy has none), None what Kafka takes by
    default. Raises CodecError for an unknown codec, or for zstd before magic 2.
    """
    codec = CODECS.get(codec_id)
    if codec is None:
        raise CodecError(f"unknown codec {codec_id}")
    return codec.compress(data, magic, level)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
