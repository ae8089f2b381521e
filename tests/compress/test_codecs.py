"""Streams of Kafka's writers are read, streams that its readers reject are rejected, and no payload causes harm."""

import contextlib
import pickle
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.format.compress import codecs, gzip_streams, lz4_frames, zstd_frames
from kseg.format.compress.codecs import CODECS, Buffer, CodecError, DecompressionLimit, codec_name, compress
from tests.support.fuzzing import cases

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
COMPRESSED = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT = 1 << 26
TEXT = b'{"id":1,"name":"kseg"}' * 8
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"

# The caller reuses its buffer: the result must not depend on its old content.
ROOMS = tuple(memoryview(bytearray(b"\xa5" * size)) for size in (1 << 22, 100))


def decompress(
    codec: int, data: Buffer, *, limit: int, magic: int = 2, quirks: list[str] | None = None
) -> bytes | bytearray:
    """Call `codecs.decompress` without a buffer and with each of ROOMS, and compare the results."""
    outcomes = [_outcome(codec, data, limit, magic, room) for room in (None, *ROOMS)]
    first, seen = outcomes[0]
    assert all(_same(first, other) and seen == others for other, others in outcomes[1:])
    if quirks is not None:
        quirks.extend(seen)
    if isinstance(first, CodecError):
        raise first
    return first


def _outcome(
    codec: int, data: Buffer, limit: int, magic: int, room: memoryview | None
) -> tuple[bytes | CodecError, list[str]]:
    quirks: list[str] = []
    try:
        return bytes(codecs.decompress(codec, data, limit=limit, magic=magic, quirks=quirks, room=room)), quirks
    except CodecError as error:
        return error, quirks


def _same(one: bytes | CodecError, other: bytes | CodecError) -> bool:
    if isinstance(one, CodecError):
        return type(one) is type(other) and str(one) == str(other)
    return one == other


# TEXT as kafka-clients 4.3.0 wrote it (Compression.wrapForOutput); lz4 in magic 0 with the checksum of KAFKA-3160.
KAFKA_WROTE = {
    (GZIP, 2): "1f8b08000000000000ffab56ca4c51b232d451ca4bcc4d55b252ca2e4e4d57aaad1eb4a20060067778b0000000",
    (
        SNAPPY,
        2,
    ): "82534e4150505900000000010000000100000022b001547b226964223a312c226e616d65223a226b736567227dfe1600fe1600661600",
    (LZ4, 0): "04224d1860401a21000000ff077b226964223a312c226e616d65223a226b736567227d16008250736567227d00000000",
    (LZ4, 2): "04224d1860408221000000ff077b226964223a312c226e616d65223a226b736567227d16008250736567227d00000000",
    (ZSTD, 2): "28b52ffd0058ec0000b07b226964223a312c226e616d65223a226b736567227d01002e49cd26010000",
}


def chunk(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes, **options: object) -> bytes:
    return bytes(lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options}))


def zstd_frame(data: bytes, write_content_size: bool = True, write_checksum: bool = False) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=write_content_size, write_checksum=write_checksum).compress(data)


def unusual_streams() -> Iterator[tuple[str, int, int, bytes, bytes, list[str]]]:
    """Return name, codec, magic, stream, content and quirks; kafka-clients 4.3.0 reads all of them."""
    gzip, raw, plain = compress(GZIP, TEXT), snappy_block(TEXT), compress(LZ4, TEXT)
    yield "gzip members", GZIP, 2, gzip + compress(GZIP, b"") + gzip, 2 * TEXT, []
    yield "gzip trailing zeros", GZIP, 2, gzip + bytes(40), TEXT, ["trailing-bytes"]
    yield "gzip start of a member", GZIP, 2, gzip + gzip[:18], TEXT, ["trailing-bytes"]
    yield (
        "gzip reserved flags",
        GZIP,
        2,
        flip(gzip, 3, 0xE0) + flip(gzip, 3, 0x40),
        2 * TEXT,
        2 * ["gzip-reserved-flags"],
    )
    yield "snappy raw", SNAPPY, 2, raw, TEXT, ["snappy-unframed"]
    yield "snappy raw, tiny", SNAPPY, 2, snappy_block(b"a"), b"a", ["snappy-unframed"]
    little = XERIAL[:8] + struct.pack("<ii", 1, 1)
    yield "snappy little-endian", SNAPPY, 2, little + chunk(raw), TEXT, ["snappy-little-endian"]
    yield "snappy any version", SNAPPY, 2, XERIAL[:8] + bytes(8) + chunk(raw), TEXT, []
    yield "snappy second header", SNAPPY, 2, (XERIAL + chunk(raw)) * 2 + chunk(raw), 3 * TEXT, []
    yield "snappy headers only", SNAPPY, 2, XERIAL * 3, b"", []
    yield "snappy empty block", SNAPPY, 2, XERIAL + chunk(b"\0") + chunk(raw), TEXT, []
    yield "snappy part of a length", SNAPPY, 2, XERIAL + chunk(raw) + b"\0\0\0", TEXT, ["trailing-bytes"]
    for magic in (0, 1, 2):
        yield f"lz4 second frame, v{magic}", LZ4, magic, plain * 2, TEXT, ["trailing-bytes"]
        yield f"lz4 trailing, v{magic}", LZ4, magic, plain + b"\0", TEXT, ["trailing-bytes"]
        for block_size in (4, 5, 6, 7):
            for sums in (False, True):
                frame = lz4_frame(
                    9999 * TEXT, block_size=block_size, content_checksum=sums, block_checksum=sums, store_size=sums
                )
                yield f"lz4 options {block_size} {sums}, v{magic}", LZ4, magic, frame, 9999 * TEXT, []
        frame = lz4_frame(TEXT, content_checksum=True)
        yield f"lz4 content checksum, v{magic}", LZ4, magic, flip(frame, -1), TEXT, ["lz4-content-checksum"]
        frame = lz4_frame(TEXT, store_size=True)
        lie = lz4_header(frame[4:6], 77) + frame[15:]
        yield f"lz4 content size, v{magic}", LZ4, magic, lie, TEXT, ["lz4-content-size"]
    for at in range(1, 256):
        yield f"lz4 header checksum ^ {at:02x}", LZ4, 0, flip(plain, 6, at), TEXT, ["lz4-header-checksum"]
    frame = flip(lz4_frame(TEXT, store_size=True, block_checksum=True, content_checksum=True), 14)
    yield "lz4 header checksum, all options", LZ4, 0, frame, TEXT, ["lz4-header-checksum"]
    yield "lz4 both quirks", LZ4, 0, flip(plain, 6) + b"\0", TEXT, ["lz4-header-checksum", "trailing-bytes"]
    for size in (False, True):
        for checksum in (False, True):
            for data in (b"", b"a", TEXT, 9999 * TEXT):
                frame = zstd_frame(data, write_content_size=size, write_checksum=checksum)
                yield f"zstd options {size} {checksum} {len(data)}", ZSTD, 2, frame, data, []
                yield f"zstd frames {size} {checksum} {len(data)}", ZSTD, 2, 3 * frame, 3 * data, []
    yield "zstd frames of Kafka", ZSTD, 2, 3 * bytes.fromhex(KAFKA_WROTE[ZSTD, 2]), 3 * TEXT, []
    skippable = b"\x5f\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    yield "zstd skippable", ZSTD, 2, skippable + compress(ZSTD, TEXT) + skippable, TEXT, []
    yield "zstd flushed block by block", ZSTD, 2, zstd_flushed(TEXT, 300), 300 * TEXT, []


def flip(data: bytes, at: int, mask: int = 0xFF) -> bytes:
    out = bytearray(data)
    out[at] ^= mask
    return bytes(out)


def lz4_header(descriptor: bytes, content_size: int) -> bytes:
    """Return the header that liblz4 writes for this content size;

    of the descriptor (FLG, BD) only the block size is used.
    """
    options = {"source_size": content_size, "block_size": descriptor[1] >> 4, "block_linked": False}
    return bytes(lz4.frame.compress_begin(lz4.frame.create_compression_context(), **options))


def zstd_flushed(data: bytes, times: int) -> bytes:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    parts = [stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for _ in range(times)]
    return b"".join([*parts, stream.flush()])


ODD = list(unusual_streams())


def invalid_streams() -> Iterator[tuple[str, int, int, bytes]]:
    """Return name, codec, magic and stream; kafka-clients 4.3.0 rejects all of them."""
    raw = snappy_block(TEXT)
    yield "gzip crc", GZIP, 2, flip(compress(GZIP, TEXT), -8)
    yield "gzip length", GZIP, 2, flip(compress(GZIP, TEXT), -1)
    yield "gzip second member", GZIP, 2, compress(GZIP, TEXT) + flip(compress(GZIP, TEXT), -1)
    yield "gzip second member cut", GZIP, 2, compress(GZIP, TEXT) + compress(GZIP, TEXT)[:-1]
    yield "zlib, not gzip", GZIP, 2, zlib.compress(TEXT)
    yield "snappy negative length", SNAPPY, 2, XERIAL + struct.pack(">i", -1) + raw
    yield "snappy length past the end", SNAPPY, 2, XERIAL + struct.pack(">i", len(raw) + 1) + raw
    yield "snappy zero length", SNAPPY, 2, XERIAL + chunk(b"") + chunk(raw)
    yield "snappy second header cut", SNAPPY, 2, XERIAL + chunk(raw) + XERIAL[:15]
    yield "snappy raw with trailing", SNAPPY, 2, raw + b"\0"
    yield "snappy magic only", SNAPPY, 2, XERIAL[:8]
    yield "snappy preamble claims less", SNAPPY, 2, XERIAL + chunk(b"\x05" + raw[2:])
    yield "snappy framing format of Google", SNAPPY, 2, bytes(cramjam.snappy.compress(TEXT))
    for magic in (0, 1, 2):
        yield f"lz4 linked blocks, v{magic}", LZ4, magic, bytes(lz4.frame.compress(9999 * TEXT, block_linked=True))
        yield f"lz4 skippable frame, v{magic}", LZ4, magic, b"\x50\x2a\x4d\x18\1\0\0\0a" + compress(LZ4, TEXT)
        yield f"lz4 dictionary, v{magic}", LZ4, magic, flip(compress(LZ4, TEXT), 4, 0x01)
        yield f"lz4 block size 3, v{magic}", LZ4, magic, compress(LZ4, TEXT)[:5] + b"\x30" + compress(LZ4, TEXT)[6:]
        yield f"lz4 version 2, v{magic}", LZ4, magic, flip(compress(LZ4, TEXT), 4, 0xC0)
        yield f"lz4 no end mark, v{magic}", LZ4, magic, compress(LZ4, TEXT)[:-4]
        checked = lz4_frame(TEXT, content_checksum=True, store_size=True)
        yield f"lz4 no content checksum, v{magic}", LZ4, magic, checked[:-4]
        yield f"lz4 half a content checksum behind a mended header, v{magic}", LZ4, magic, flip(checked, 14)[:-2]
        yield f"lz4 block checksum, v{magic}", LZ4, magic, flip(lz4_frame(TEXT, block_checksum=True), -5)
    for magic in (1, 2):
        yield f"lz4 header checksum of old brokers, v{magic}", LZ4, magic, compress(LZ4, TEXT, magic=0)
        yield f"lz4 header checksum, v{magic}", LZ4, magic, flip(compress(LZ4, TEXT), 6)
    yield "zstd checksum", ZSTD, 2, flip(zstd_frame(TEXT, write_checksum=True), -1)
    yield "zstd checksum of nothing", ZSTD, 2, flip(zstd_frame(b"", write_checksum=True), -1)
    yield "zstd trailing", ZSTD, 2, compress(ZSTD, TEXT) + b"\0"
    yield "zstd trailing zeros", ZSTD, 2, compress(ZSTD, TEXT) + bytes(20)
    yield "zstd second frame cut", ZSTD, 2, compress(ZSTD, TEXT) + compress(ZSTD, TEXT)[:-1]
    yield "zstd skippable cut", ZSTD, 2, compress(ZSTD, TEXT) + b"\x50\x2a\x4d\x18\5\0\0\0abcd"
    yield "zstd reserved block", ZSTD, 2, b"\x28\xb5\x2f\xfd\x00\x58\x07\0\0"
    # A content size of 5 and one of 0 over a block of one byte.
    yield "zstd size too large", ZSTD, 2, b"\x28\xb5\x2f\xfd\x20\x05\x09\0\0a"
    yield "zstd size too small", ZSTD, 2, b"\x28\xb5\x2f\xfd\x20\x00\x09\0\0a"
    for magic in (0, 1):
        yield f"zstd in v{magic}", ZSTD, magic, compress(ZSTD, TEXT)  # KIP-110
    for codec in (5, 6, 7, -1):
        yield f"codec {codec}", codec, 2, TEXT


BROKEN = list(invalid_streams())


@pytest.mark.slow
@pytest.mark.parametrize("codec", [0, *COMPRESSED])
@pytest.mark.parametrize("size", [0, 1, 200, 32767, 32768, 65535, 65536, 65537, 131072, 131073, 1 << 20])
def test_round_trip(codec: int, size: int) -> None:
    """Each codec reads its own output."""
    data = (b"".join(b"%d," % i for i in range(0, 7 * size, 7)))[:size]
    for magic in range(CODECS[codec].first_magic, 3):
        quirks: list[str] = []
        stream = compress(codec, memoryview(data), magic=magic)
        assert stream == compress(codec, bytearray(data), magic=magic)
        assert decompress(codec, bytearray(stream), limit=size, magic=magic, quirks=quirks) == data
        assert decompress(codec, memoryview(stream), limit=sys.maxsize, magic=magic) == data
        assert quirks == (["lz4-header-checksum"] if (codec, magic) == (LZ4, 0) else [])


@settings(max_examples=cases(200))
@given(data=st.binary(max_size=300), times=st.integers(1, 400), codec=st.sampled_from(sorted(CODECS)))
def test_round_trip_of_anything(data: bytes, times: int, codec: int) -> None:
    """Each codec reads its own output, for any content."""
    data *= times
    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 12), (ZSTD, -5), (ZSTD, 19), (SNAPPY, 1)]
)
def test_levels(codec: int, level: int) -> None:
    """Each compression level of a codec gives a readable stream."""
    assert decompress(codec, compress(codec, 99 * TEXT, level=level), limit=LIMIT) == 99 * TEXT


@pytest.mark.parametrize(("codec", "magic"), KAFKA_WROTE)
def test_reads_what_kafka_writes(codec: int, magic: int) -> None:
    """Streams of Kafka's own writer are read."""
    assert decompress(codec, bytes.fromhex(KAFKA_WROTE[codec, magic]), limit=LIMIT, magic=magic) == TEXT


def test_writes_what_kafka_writes() -> None:
    """Framing, block sizes, options and the old LZ4 header are those that Kafka's writer chooses."""
    for magic in (0, 2):
        assert compress(LZ4, TEXT, magic=magic)[:7].hex() == KAFKA_WROTE[LZ4, magic][:14]
    assert compress(LZ4, b"").hex() == "04224d1860408200000000"
    assert compress(SNAPPY, TEXT).hex() == KAFKA_WROTE[SNAPPY, 2]
    assert compress(SNAPPY, b"") == XERIAL
    blocks = compress(SNAPPY, bytes(32769))
    assert blocks[16 + 4 + struct.unpack_from(">i", blocks, 16)[0] :] == chunk(snappy_block(b"\0"))
    parameters = zstandard.get_frame_parameters(compress(ZSTD, TEXT))
    assert (parameters.content_size, parameters.has_checksum) == (zstandard.CONTENTSIZE_UNKNOWN, False)


def test_unusual_streams_are_read_and_named() -> None:
    """Legal but unusual streams are read, and reported as quirks."""
    for name, codec, magic, stream, data, quirks in ODD:
        seen: list[str] = []
        assert decompress(codec, stream, limit=LIMIT, magic=magic, quirks=seen) == data, name
        assert sorted(seen) == sorted(quirks), name
        assert decompress(codec, memoryview(stream), limit=LIMIT, magic=magic) == data, name


@pytest.mark.parametrize(("codec", "magic", "stream"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_refuses_what_kafka_refuses(codec: int, magic: int, stream: bytes) -> None:
    """Streams that Kafka rejects must not be shown as data."""
    for limit in (0, 10, LIMIT):
        with pytest.raises(CodecError) as caught:
            decompress(codec, stream, limit=limit, magic=magic)
        assert str(caught.value)
        assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, DecompressionLimit)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"\1", b"\xff" * 40, bytes(40), b"garbage, no stream at all"])
def test_refuses_garbage(codec: int, data: bytes) -> None:
    """Random bytes raise CodecError."""
    with pytest.raises(CodecError):
        decompress(codec, data, limit=LIMIT)


def small_streams() -> Iterator[tuple[int, int, bytes, bytes]]:
    for (codec, magic), written in KAFKA_WROTE.items():
        yield codec, magic, bytes.fromhex(written), TEXT
    for name, codec, magic, stream, data, _ in ODD:
        if len(stream) < 400 and "header checksum ^" not in name:
            yield codec, magic, stream, data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_an_error(codec: int) -> None:
    """A stream that is cut anywhere is not taken for a complete one."""
    for magic in (0, 2):
        if magic < CODECS[codec].first_magic:
            continue
        for data in (TEXT, 40000 * b"a"):
            stream = compress(codec, data, magic=magic)
            for size in range(len(stream)):
                seen: list[str] = []
                try:
                    out = decompress(codec, stream[:size], limit=LIMIT, magic=magic, quirks=seen)
                except CodecError:
                    continue
                # The xerial framing does not mark its end: a cut between chunks is valid, inside a length Java stops.
                assert codec == SNAPPY
                assert data.startswith(bytes(out))
                assert size in xerial_ends(stream) or seen == ["trailing-bytes"]


def xerial_ends(stream: bytes) -> set[int]:
    ends, at = {16}, 16
    while at < len(stream):
        at += 4 + struct.unpack_from(">i", stream, at)[0]
        ends.add(at)
    return ends


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "magic", "stream", "data"), list(small_streams()))
def test_every_flip_and_cut_ends_in_bytes_or_an_error(codec: int, magic: int, stream: bytes, data: bytes) -> None:
    """Damage never raises another exception than CodecError."""
    damaged = [flip(stream, at, mask) for at in range(len(stream)) for mask in (0xFF, 0x01, 0x80)]
    damaged += [stream[:size] for size in range(len(stream))]
    for bad in damaged:
        for limit in (len(data) // 2, 1 << 22):
            try:
                out = decompress(codec, bad, limit=limit, magic=magic, quirks=[])
            except CodecError:
                continue
            assert len(out) <= limit
    assert decompress(codec, stream, limit=LIMIT, magic=magic) == data


@settings(max_examples=cases(500))
@given(
    codec=st.integers(0, 7),
    magic=st.integers(0, 2),
    head=st.sampled_from([b"", XERIAL, b"\x1f\x8b\x08", b"\x04\x22\x4d\x18\x60\x40\x82", b"\x28\xb5\x2f\xfd\x00\x58"]),
    tail=st.binary(max_size=200),
    limit=st.integers(0, 1 << 17),
)
def test_anything_ends_in_bytes_or_an_error(codec: int, magic: int, head: bytes, tail: bytes, limit: int) -> None:
    """Any bytes give a result or CodecError."""
    with contextlib.suppress(CodecError):
        assert len(decompress(codec, head + tail, limit=limit, magic=magic, quirks=[])) <= limit


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("size", [1, 176, 65536, 65537, 131073, 3 << 20])
def test_limit_is_exact(codec: int, size: int) -> None:
    """The limit is exact to the byte, with a given buffer and without one."""
    streams = [compress(codec, (b"ab%d" % size * size)[:size])]
    if codec == SNAPPY:
        streams += [snappy_block(bytes(size)), XERIAL + chunk(snappy_block(bytes(size)))]
    if codec == LZ4:
        streams.append(lz4_frame(bytes(size), content_checksum=True, store_size=True, block_size=7))
    if codec == ZSTD:
        streams += [zstd_frame(bytes(size)), zstd_frame(bytes(size - 1)) + zstd_frame(b"a")]
        streams += [zstd_flushed(bytes(size), 1)]
    for stream in streams:
        assert len(decompress(codec, stream, limit=size)) == size
        with pytest.raises(DecompressionLimit) as caught:
            decompress(codec, stream, limit=size - 1)
        assert caught.value.limit == size - 1


def test_result_does_not_share_memory_with_the_input() -> None:
    """The caller reads the next window of the file into the same buffer."""
    for codec in CODECS:
        window = bytearray(compress(codec, TEXT))
        out = decompress(codec, memoryview(window), limit=LIMIT)
        window[:] = bytes(len(window))
        assert out == TEXT
        window.clear()  # BufferError if anything still held it


# 1 GiB, or for snappy (at most 21:1) 64 MiB, from a small input, and sizes that lie. Expressions, since each runs in a
# process of its own, whose peak is its own.
LIMIT_HIT, REFUSED = "DecompressionLimit", "CodecError"
BOMBS = {
    "gzip, one member": (LIMIT_HIT, "1, zlib.compress(bytes(1 << 28), 1, 31)"),
    "gzip, 64 members": (LIMIT_HIT, "1, zlib.compress(bytes(1 << 24), 9, 31) * 64"),
    "gzip, 200,000 empty members": (
        LIMIT_HIT,
        "1, zlib.compress(b'', 9, 31) * 200_000 + zlib.compress(bytes(1 << 24), 9, 31)",
    ),
    "snappy, one block": (LIMIT_HIT, "2, b'\\x82\\x80\\x80\\x20\\x00a' + b'\\xfe\\x01\\x00' * (1 << 20)"),
    "snappy, framed": (LIMIT_HIT, "2, XERIAL + chunk(bytes(cramjam.snappy.compress_raw(bytes(1 << 16)))) * (1 << 10)"),
    "snappy, a million empty blocks": (REFUSED, "2, XERIAL + chunk(b'\\0') * 1_000_000 + chunk(b'\\xff')"),
    "snappy, 4 GiB claimed": (REFUSED, "2, b'\\xff\\xff\\xff\\xff\\x0f' + bytes(1000)"),
    "snappy, 4 GiB claimed in a frame": (REFUSED, "2, XERIAL + chunk(b'\\xff\\xff\\xff\\xff\\x0f' + bytes(1000))"),
    "lz4": (LIMIT_HIT, "3, HEADER + BLOCK * (1 << 14) + bytes(4)"),
    "lz4, 8 EiB claimed": (
        LIMIT_HIT,
        "3, b'\\x04\\x22\\x4d\\x18\\x68\\x40' + b'\\xff' * 7 + b'\\x7f\\x00' + BLOCK * (1 << 14)",
    ),
    "zstd": (LIMIT_HIT, "4, fromhex('28b52ffd0058') + RLE * (1 << 13) + fromhex('010000')"),
    "zstd, 128 MiB window": (LIMIT_HIT, "4, fromhex('28b52ffd0088') + RLE * (1 << 13) + fromhex('010000')"),
    "zstd, frames": (LIMIT_HIT, "4, (fromhex('28b52ffd0058') + RLE + fromhex('010000')) * (1 << 13)"),
    "zstd, 1 GiB claimed": (LIMIT_HIT, "4, fromhex('28b52ffda000000040') + RLE * (1 << 13) + fromhex('010000')"),
    "zstd, 8 EiB claimed": (REFUSED, "4, fromhex('28b52ffde0') + b'\\xff' * 7 + b'\\x7f' + fromhex('010000')"),
}
MEASURE = """
import re, resource, struct, time, zlib, cramjam, lz4.frame
from kseg.format.compress.codecs import CodecError, compress, decompress
def chunk(block): return struct.pack(">i", len(block)) + block
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
XERIAL, fromhex = b"\\x82SNAPPY\\0" + struct.pack(">ii", 1, 1), bytes.fromhex
RLE = fromhex("02001000")
HEADER, BLOCK = b"\\x04\\x22\\x4d\\x18\\x60\\x40\\x82", lz4.frame.compress(bytes(1 << 16), store_size=False)[7:-4]
codec, stream = {stream}
for each in range(1, 5):  # the libraries' own room is not what is measured
    decompress(each, compress(each, b"x" * 99999), limit=1 << 20)
room = memoryview(bytearray(2 << 20))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # what is only asked for counts too: Rust aborts without it
open("/proc/self/clear_refs", "w").write("5")
before, start, end = peak(), time.process_time(), "whole"
try:
    decompress(codec, stream, limit={limit}, magic=0 if codec == 3 else 2, room=room)
except CodecError as e:
    end = type(e).__name__
print(end, time.process_time() - start, peak() - before)
"""
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its peak of memory from /proc")


def measure(stream: str, limit: int) -> tuple[str, float, int]:
    """Run decompression in a process;

    return its outcome, its seconds, and the growth of its peak memory in kilobytes.
    """
    program = MEASURE.format(stream=stream, limit=limit)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    end, seconds, kilobytes = run.stdout.split()
    return end, float(seconds), int(kilobytes)


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("limit", [1 << 20, 3 << 20])  # less than the given buffer, and more
@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str, limit: int) -> None:
    """Small inputs that claim a large output stop at the limit, in bounded memory."""
    end, stream = BOMBS[name]
    ended, seconds, kilobytes = measure(stream, limit)
    assert ended == end
    assert seconds < 3
    assert kilobytes < 8 * 1024 + 2 * limit // 1024


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("codec", COMPRESSED)
def test_memory_peaks_near_the_output(codec: int) -> None:
    """Decompression does not hold several copies of its output."""
    ended, _, kilobytes = measure(
        f"{codec}, compress({codec}, bytes(range(256)) * (1 << 18), magic=0 if {codec} == 3 else 2)", 1 << 26
    )
    assert ended == "whole"
    assert kilobytes < 1.5 * (1 << 16)


def test_lz4_reads_the_same_without_cramjam(monkeypatch: pytest.MonkeyPatch) -> None:
    """cramjam makes reading of LZ4 faster, and kseg reads LZ4 without it."""
    monkeypatch.setattr(lz4_frames, "cramjam", None)
    for name, each, magic, stream, data, quirks in unusual_streams():
        if each == LZ4:
            seen: list[str] = []
            assert decompress(LZ4, stream, limit=LIMIT, magic=magic, quirks=seen) == data, name
            assert sorted(seen) == sorted(quirks), name
    assert decompress(LZ4, compress(LZ4, 9999 * TEXT), limit=LIMIT) == 9999 * TEXT


@pytest.mark.parametrize("block", [b"\xff", b"\x80\x80\x80\x80\x80\x01", b"\x80\x80\x80\x80\x10", b"\x40a"])
def test_snappy_lengths_that_cannot_be_true(block: bytes) -> None:
    """A length is checked before the allocation: too large for 32 bits, for the block, or for the input."""
    for stream in (block, XERIAL + chunk(block)):
        with pytest.raises(CodecError, match="snappy: a block of"):
            decompress(SNAPPY, stream, limit=LIMIT)


def test_threads_do_not_share_contexts() -> None:
    """libzstd works with the GIL released: a context seen by two threads would mix up their batches."""
    contexts: list[object] = []

    def work() -> None:
        for codec in COMPRESSED:
            assert decompress(codec, compress(codec, TEXT), limit=LIMIT) == TEXT
        contexts.append(zstd_frames.contexts.decompress.__self__)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(context) for context in contexts}) == 3


def test_names() -> None:
    """The names and numbers of the codecs are Kafka's."""
    assert [codec_name(n) for n in range(6)] == ["none", "gzip", "snappy", "lz4", "zstd", "codec-5"]
    assert {codec.id: codec.name for codec in CODECS.values()} == {n: codec_name(n) for n in CODECS}


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (ZSTD, 0), (ZSTD, 1)])
def test_compress_rejects_codecs_that_readers_reject(codec: int, magic: int) -> None:
    """kseg never writes a codec that the version's readers don't know."""
    with pytest.raises(CodecError):
        compress(codec, TEXT, magic=magic)


def test_errors_survive_a_worker_process() -> None:
    """An error of a worker process must not break the pool when it is pickled."""
    error = pickle.loads(pickle.dumps(DecompressionLimit(7)))
    assert (error.limit, str(error)) == (7, str(DecompressionLimit(7)))


def test_libraries_are_imported_on_first_use() -> None:
    """The libraries cost 34 ms, and `kseg --help` needs none."""
    found = "print(sorted({'lz4', 'cramjam', 'snappy', 'zstandard'} & sys.modules.keys()))"
    program = f"import sys, kseg.format.compress.codecs; {found}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert run.stdout.strip() == "[]"


def broker_payloads(log: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """Return codec, magic, record count (-1 in magic 0 and 1) and payload of each compressed batch of a valid segment."""
    data = log.read_bytes()
    position = 0
    while position + 17 <= len(data):
        size, magic = struct.unpack_from(">ixxxxB", data, position + 8)
        entry = data[position + 12 : position + 12 + size]
        if size < 14 or len(entry) < size or magic > 2:
            return
        position += 12 + size
        if magic == 2:
            codec, count, payload = entry[10] & 7, struct.unpack_from(">i", entry, 45)[0], entry[49:]
        else:
            at = 14 if magic else 6
            codec, count, payload = (
                entry[5] & 7,
                -1,
                entry[at + 4 + max(0, struct.unpack_from(">i", entry, at)[0]) + 4 :],
            )
        if codec and count:
            yield codec, magic, count, payload


def holds_records(data: bytes, count: int) -> bool:
    """Return whether the lengths inside (varints in v2, int32 after an offset before v2) lead exactly to the end."""
    position = found = 0
    while position < len(data):
        if count < 0:
            position += 12 + struct.unpack_from(">i", data, position + 8)[0]
        else:
            length = shift = 0
            while True:
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            position += length >> 1
        found += 1
    return position == len(data) and found > 0 and count in (-1, found)


BROKER_LOGS = sorted(SEGMENTS.glob("*/**/*.log"))


@pytest.mark.parametrize("log", BROKER_LOGS, ids=lambda log: str(log.relative_to(SEGMENTS)))
def test_every_payload_a_broker_wrote(log: Path) -> None:
    """Each compressed payload of the fixtures decompresses to valid records."""
    for codec, magic, count, payload in broker_payloads(log):
        quirks: list[str] = []
        data = bytes(decompress(codec, payload, limit=LIMIT, magic=magic, quirks=quirks))
        assert holds_records(data, count)
        assert decompress(codec, compress(codec, data, magic=magic), limit=len(data), magic=magic) == data
        # 0.8.2 wrote the wrong checksum by mistake, all later brokers write it into magic 0 on purpose (KAFKA-3160).
        expected = ["lz4-header-checksum"] if (codec, magic) == (LZ4, 0) else []
        assert quirks == (["snappy-unframed"] if codec == SNAPPY and "librdkafka" in str(log) else expected)


def test_gzip_is_read_alike_with_isal_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """isal only accelerates: streams that it does not read completely are decided by zlib."""
    pytest.importorskip("isal", reason="there is no isal for this platform")
    payload = compress(GZIP, TEXT + bytes(n * n >> 3 & 127 for n in range(400)))
    damaged = [payload[:n] for n in range(len(payload))]
    damaged += [
        payload[:at] + bytes([payload[at] ^ bits]) + payload[at + 1 :]
        for at in range(len(payload))
        for bits in (1, 0x90)
    ]

    def outcome(data: bytes) -> tuple[bytes | str, list[str]]:
        quirks: list[str] = []
        try:
            return bytes(decompress(GZIP, data, limit=1 << 20, quirks=quirks)), quirks
        except CodecError as error:
            return str(error), quirks

    with_isal = [outcome(data) for data in damaged]
    monkeypatch.setattr(gzip_streams, "fast_zlib", zlib)
    assert with_isal == [outcome(data) for data in damaged]
    assert sum(isinstance(found, str) for found, _ in with_isal) > len(payload)
