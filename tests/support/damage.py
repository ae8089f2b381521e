"""Damage to the bytes of a segment: functions from bytes to bytes.

Places are file positions of batches, as ``entries`` lists them. Fields have Kafka's names. Most interesting faults
have a valid CRC: call ``fix_crc`` after the damage.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from kseg.format.compress import codecs
from kseg.format.record import layout

# Fields by name: (byte in the entry, struct code).
_ALL = {"base_offset": (layout.OFFSET_AT, "q"), "size": (layout.SIZE_AT, "i"), "magic": (layout.MAGIC_AT, "B")}
_LEGACY = {**_ALL, "crc": (layout.LEGACY_CRC_AT, "I"), "attributes": (layout.LEGACY_ATTRIBUTES_AT, "B")}
FIELDS: dict[int, dict[str, tuple[int, str]]] = {
    0: {**_LEGACY, "key_size": (layout.V0_KEY_AT, "i")},
    1: {**_LEGACY, "timestamp": (layout.V1_TIMESTAMP_AT, "q"), "key_size": (layout.V1_KEY_AT, "i")},
    2: {
        **_ALL,
        "partition_leader_epoch": (layout.PARTITION_LEADER_EPOCH_AT, "i"),
        "crc": (layout.CRC_AT, "I"),
        "attributes": (layout.ATTRIBUTES_AT, "H"),
        "last_offset_delta": (layout.LAST_OFFSET_DELTA_AT, "i"),
        "base_timestamp": (layout.BASE_TIMESTAMP_AT, "q"),
        "max_timestamp": (layout.MAX_TIMESTAMP_AT, "q"),
        "producer_id": (layout.PRODUCER_ID_AT, "q"),
        "producer_epoch": (layout.PRODUCER_EPOCH_AT, "h"),
        "base_sequence": (layout.BASE_SEQUENCE_AT, "i"),
        "record_count": (layout.RECORD_COUNT_AT, "i"),
    },
}


@dataclass(frozen=True, slots=True)
class Place:
    """A batch of a valid segment: its bytes are ``data[at:end]``."""

    at: int
    end: int
    magic: int

    @property
    def size(self) -> int:
        return self.end - self.at


def entries(data: bytes) -> list[Place]:
    """Return the batches of a segment whose lengths are valid, up to a tail without a batch."""
    found = []
    at = 0
    while len(data) - at >= layout.HEADER_SIZE_UP_TO_MAGIC:
        end = at + layout.LOG_OVERHEAD + int(get(data, at, "size"))
        magic = data[at + layout.MAGIC_AT]
        if end > len(data) or end - at < layout.LOG_OVERHEAD + layout.V0_MIN_SIZE or magic > 2:
            break
        found.append(Place(at, end, magic))
        at = end
    return found


def batches_of(folder: Path) -> Iterator[bytes]:
    """Yield the batches of an undamaged log, which is nothing but batches."""
    for path in sorted(folder.glob("*.log")):
        data, end = path.read_bytes(), 0
        for place in entries(data):
            end = place.end
            yield data[place.at : end]
        assert end == len(data), path


def get(data: bytes, at: int, field: str) -> int:
    """Return a header field of the batch at ``at``."""
    where, code = FIELDS[min(data[at + layout.MAGIC_AT], 2)][field]
    value: int = struct.unpack_from(">" + code, data, at + where)[0]
    return value


def put(data: bytes, at: int, **fields: int) -> bytes:
    """Overwrite header fields of the batch at ``at``; its CRC is unchanged."""
    out = bytearray(data)
    magic = min(data[at + layout.MAGIC_AT], 2)
    for field, value in fields.items():
        where, code = FIELDS[magic][field]
        struct.pack_into(">" + code, out, at + where, value)
    return bytes(out)


def fix_crc(data: bytes, at: int) -> bytes:
    """Correct the CRC of the batch at ``at`` for the bytes that its size spans."""
    end = at + layout.LOG_OVERHEAD + get(data, at, "size")
    assert end <= len(data)
    if data[at + layout.MAGIC_AT] < 2:
        return put(data, at, crc=zlib.crc32(data[at + layout.MAGIC_AT : end]))
    return put(data, at, crc=crc32c(data[at + layout.ATTRIBUTES_AT : end]))


def alter(data: bytes, at: int, **fields: int) -> bytes:
    """Overwrite header fields and correct the CRC."""
    return fix_crc(put(data, at, **fields), at)


def flip(data: bytes, position: int, bits: int = 0xFF) -> bytes:
    """Change one byte."""
    return splice(data, position, position + 1, bytes([data[position] ^ bits]))


def shrink(data: bytes, size: int) -> bytes:
    """Keep the first ``size`` bytes: an interrupted write or copy."""
    assert 0 <= size < len(data)
    return data[:size]


def splice(data: bytes, begin: int, end: int, piece: bytes) -> bytes:
    """Replace ``data[begin:end]``."""
    assert 0 <= begin <= end <= len(data)
    return data[:begin] + piece + data[end:]


def cut(data: bytes, begin: int, end: int) -> bytes:
    """Remove ``data[begin:end]``."""
    return splice(data, begin, end, b"")


def insert(data: bytes, position: int, piece: bytes) -> bytes:
    """Insert ``piece`` before the byte at ``position``."""
    return splice(data, position, position, piece)


def zero(data: bytes, begin: int, end: int) -> bytes:
    """Overwrite ``data[begin:end]`` with zeros: a page that was never written."""
    return splice(data, begin, end, bytes(end - begin))


def noise(size: int, seed: int = 1) -> bytes:
    """Return random bytes, the same ones for each seed."""
    return hashlib.shake_128(bytes([seed])).digest(size)


def move(data: bytes, at: int, by: int) -> bytes:
    """Add to the base offsets of the batch at ``at`` and of all later ones: they are outside a v2 CRC."""
    for place in entries(data):
        if place.at >= at:
            assert place.magic == 2, "a wrapper's inner offsets would stay"
            data = put(data, place.at, base_offset=get(data, place.at, "base_offset") + by)
    return data


def resize(data: bytes, place: Place, piece: bytes) -> bytes:
    """Replace the batch at ``place`` by ``piece``, with the size field and the CRC corrected."""
    data = splice(data, place.at, place.end, piece)
    return alter(data, place.at, size=len(piece) - layout.LOG_OVERHEAD)


def payload_begin(data: bytes, place: Place) -> int:
    """Return where a batch's payload begins: its records, or a message's value. The value's length is before it."""
    if place.magic == 2:
        return place.at + layout.RECORD_BATCH_OVERHEAD
    key_at = place.at + FIELDS[place.magic]["key_size"][0]
    return key_at + 4 + max(get(data, place.at, "key_size"), 0) + 4


def with_payload(data: bytes, place: Place, stored: bytes) -> bytes:
    """Replace the batch's stored payload; correct lengths and CRC."""
    begin = payload_begin(data, place)
    head = data[place.at : begin]
    if place.magic < 2:
        head = head[:-4] + struct.pack(">i", len(stored))
    return resize(data, place, head + stored)


def stored(data: bytes, place: Place) -> bytes:
    """Return the batch's payload as it is stored."""
    return data[payload_begin(data, place) : place.end]


def inflated(data: bytes, place: Place) -> bytes:
    """Return the batch's payload, decompressed."""
    codec = get(data, place.at, "attributes") & layout.CODEC_MASK
    return bytes(codecs.decompress(codec, stored(data, place), limit=1 << 24, magic=place.magic))


def with_inflated(data: bytes, place: Place, payload: bytes) -> bytes:
    """Replace the batch's payload and compress it again with its codec; correct lengths and CRC."""
    codec = get(data, place.at, "attributes") & layout.CODEC_MASK
    return with_payload(data, place, bytes(codecs.compress(codec, payload, magic=place.magic)))


def varint(value: int) -> bytes:
    """Return a zig-zag varint, as in v2 records."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 128:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes(out) + bytes([raw])


def record(
    key: bytes | None = b"key", value: bytes | None = b"value", *, offset_delta: int = 0, timestamp_delta: int = 0
) -> bytes:
    """Return a v2 record without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def batch(like: bytes, records: bytes, count: int, **fields: int) -> bytes:
    """Return an uncompressed v2 batch of ``records``, with the header of the batch that ``like`` begins with."""
    head = like[: layout.RECORD_BATCH_OVERHEAD]
    fields = {"attributes": 0, "record_count": count, "last_offset_delta": count - 1, **fields}
    return alter(head + records, 0, size=len(head) + len(records) - layout.LOG_OVERHEAD, **fields)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, next position) of a valid varint."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at


def records(payload: bytes) -> list[bytes]:
    """Return the records of a valid decompressed v2 payload, each with its length."""
    found = []
    at = 0
    while at < len(payload):
        length, begin = read_varint(payload, at)
        found.append(payload[at : begin + length])
        at = begin + length
    return found
