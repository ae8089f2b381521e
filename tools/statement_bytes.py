"""Pack Kafka's formats from their published layouts, without kseg: the bytes of ``tools.make_statements``.

Compressed data are stored, not compressed, so that no library decides about the bytes: a stored block of DEFLATE, a literal
of snappy, an uncompressed block of LZ4, raw and repeated blocks of zstd.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence

#: 2023-11-14T22:13:20Z, the time of all records.
TIME = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
APPEND_TIME = 8


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """Return the xxHash32 of less than 16 bytes, as LZ4 frame headers need it."""
    mask, at = 0xFFFFFFFF, 0
    value = 374761393 + len(data)
    while at + 4 <= len(data):
        value = value + int.from_bytes(data[at : at + 4], "little") * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def gzip(data: bytes) -> bytes:
    """Return a gzip member with one stored block."""
    stored = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + stored + struct.pack("<II", zlib.crc32(data), len(data))


def snappy_block(data: bytes) -> bytes:
    """Return a raw snappy block: its size as a varint, then one literal of 61 to 256 bytes or of up to 60 bytes."""
    tag = bytes([(len(data) - 1) << 2]) if len(data) <= 60 else bytes([60 << 2, len(data) - 1])
    return uvarint(len(data)) + tag + data


def snappy(data: bytes) -> bytes:
    """Return the framing of snappy-java with one block."""
    block = snappy_block(data)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def lz4(data: bytes, *, of_magic: bool = False) -> bytes:
    """Return an LZ4 frame with one uncompressed block. ``of_magic``: the header checksum of KAFKA-3160."""
    magic, descriptor = struct.pack("<I", 0x184D2204), b"\x60\x40"
    check = xxh32(magic + descriptor if of_magic else descriptor) >> 8 & 0xFF
    return magic + descriptor + bytes([check]) + struct.pack("<I", len(data) | 1 << 31) + data + bytes(4)


def zstd(*parts: bytes | int) -> bytes:
    """Return a zstd frame: a raw block for bytes, a repeated zero byte for a number."""
    frame = struct.pack("<I", 0xFD2FB528) + b"\0\x58"  # no content size, a window of 2 MiB
    for number, part in enumerate(parts, 1):
        size, kind, data = (part, 1, b"\0") if isinstance(part, int) else (len(part), 0, part)
        frame += (size << 3 | kind << 1 | (number == len(parts))).to_bytes(3, "little") + data
    return frame


PACK: Sequence[Callable[[bytes], bytes]] = (bytes, gzip, snappy, lz4, zstd)


def sized(data: bytes | None, code: str = ">i") -> bytes:
    """Return the size of the data and the data; -1 for null."""
    return struct.pack(code, -1) if data is None else struct.pack(code, len(data)) + data


def body(
    key: bytes | None, value: bytes | None, magic: int = 0, bits: int = 0, time: int = TIME, crc: int | None = None
) -> bytes:
    """Return a v0 or v1 message: crc4 magic1 attributes1 [timestamp8] key value."""
    covered = bytes([magic, bits]) + (struct.pack(">q", time) if magic else b"") + sized(key) + sized(value)
    return struct.pack(">I", zlib.crc32(covered) if crc is None else crc) + covered


def entry(offset: int, message: bytes, size: int | None = None) -> bytes:
    """Return a message with its offset and its size: 12 bytes more."""
    return struct.pack(">qi", offset, len(message) if size is None else size) + message


def message(offset: int, key: bytes | None = b"key", value: bytes | None = b"value", **fields: int) -> bytes:
    """Return an entry of a v0 or v1 log."""
    return entry(offset, body(key, value, **fields))


def messages(offsets: Iterable[int], magic: int = 0, **fields: int) -> bytes:
    """Return a message set."""
    return b"".join(message(at, b"k%d" % at, b"v%d" % at, magic=magic, **fields) for at in offsets)


def wrapper(
    offset: int, inner: bytes, codec: int = GZIP, *, magic: int = 0, bits: int = 0, key: bytes | None = None
) -> bytes:
    """Return a message whose value is a compressed message set."""
    return message(offset, key, PACK[codec](inner), magic=magic, bits=codec | bits)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def varint(value: int) -> bytes:
    """Return a zig-zag varint."""
    return uvarint(2 * value if value >= 0 else -2 * value - 1)


def field(data: bytes | None) -> bytes:
    """Return the length of the data as a varint, and the data."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    *,
    time: int = 0,
    bits: int = 0,
    length: int | None = None,
) -> bytes:
    """Return a record of a v2 batch."""
    inner = bytes([bits]) + varint(time) + varint(delta) + field(key) + field(value) + varint(len(headers))
    inner += b"".join(field(name) + field(text) for name, text in headers)
    return varint(len(inner) if length is None else length) + inner


def batch(
    base: int,
    records: Sequence[bytes] | bytes,
    *,
    codec: int = 0,
    bits: int = 0,
    last: int | None = None,
    count: int | None = None,
    time: int = TIME,
    largest: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    epoch: int = 0,
    magic: int = 2,
    polynomial: Callable[[bytes], int] = crc32c,
) -> bytes:
    """Return a v2 batch. ``records`` as bytes are the payload as it is stored."""
    number = 1 if isinstance(records, bytes) else len(records)
    payload = records if isinstance(records, bytes) else PACK[codec](b"".join(records))
    delta = number - 1 if last is None else last
    covered = struct.pack(
        ">Hiqqqhii", codec | bits, delta, time, time if largest is None else largest, *producer,
        number if count is None else count,
    ) + payload  # fmt: skip
    rest = struct.pack(">ibI", epoch, magic, polynomial(covered)) + covered
    return struct.pack(">qi", base, len(rest)) + rest


def control(
    base: int, kind: int, *, version: int = 0, value: bytes | None = None, producer: int = 7, epoch: int = 0
) -> bytes:
    """Return a control batch with one record: key version int16, type int16; value version int16, epoch int32."""
    key = struct.pack(">hh", version, kind)
    stored = struct.pack(">hi", 0, 3) if value is None else value
    bits = 0x20 if kind > 1 and producer < 0 else 0x30
    ids = (producer, 0 if producer >= 0 else -1, -1)
    return batch(base, [record(0, key, stored)], bits=bits, producer=ids, epoch=epoch)


def text(value: str | None) -> bytes:
    """Return a string of the protocol: int16 length, -1 for null."""
    return sized(None if value is None else value.encode(), ">h")


def compact(value: str | None) -> bytes:
    """Return a compact string: length plus one as an unsigned varint, 0 for null."""
    return b"\0" if value is None else uvarint(len(value) + 1) + value.encode()


def request(api: int, version: int, correlation: int, content: bytes, client: str | None = "client-1") -> bytes:
    """Return a frame with a request: size, ApiKey, ApiVersion, CorrelationId, ClientId, body."""
    return sized(struct.pack(">hhi", api, version, correlation) + text(client) + content)


def produce(record_set: bytes, version: int = 0, correlation: int = 1, topic: str = "orders") -> bytes:
    """Return a Produce request for partition 0 of one topic, acks 1."""
    content = struct.pack(">hii", 1, 30_000, 1) + text(topic) + struct.pack(">ii", 1, 0) + sized(record_set)
    return request(0, version, correlation, content)


def metadata_request(correlation: int = 2) -> bytes:
    """Return a Metadata request, version 0, for topic orders."""
    return request(3, 0, correlation, struct.pack(">i", 1) + text("orders"))


def metadata_response(correlation: int = 2) -> bytes:
    """Return its response: one broker, no topic."""
    broker = struct.pack(">ii", 1, 1) + text("localhost") + struct.pack(">i", 9092)
    return sized(struct.pack(">i", correlation) + broker + struct.pack(">i", 0))


def wide(key: bytes, value: bytes, bits: int = 0, crc: int | None = None) -> bytes:
    """Return the message of a tutorial: crc int64 of the value only, magic, attributes, key, value."""
    checksum = zlib.crc32(value) if crc is None else crc
    return struct.pack(">qbb", checksum, 0, bits) + sized(key) + sized(value)


def altered(data: bytes, at: int, new: bytes) -> bytes:
    """Return the data with ``new`` at index ``at``."""
    return data[:at] + new + data[at + len(new) :]
