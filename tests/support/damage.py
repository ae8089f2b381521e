"""Verbs that damage the bytes of a segment, each a function from bytes to bytes.

Places are file positions of entries, as ``entries`` lists them. Fields are Kafka's, by the layouts of
``kseg.log_format``. Most interesting faults sit behind a valid CRC: ``fix_crc`` after the damage puts them there.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass

from crc32c import crc32c

from kseg.format.compress import codecs
from kseg.format.record import layout

# Fields by name: (byte in the entry, struct code).
_ALL = {
    "base_offset": (layout.OFFSET_AT, "q"),
    "size": (layout.SIZE_AT, "i"),
    "magic": (layout.MAGIC_AT, "B"),
}
_LEGACY = {
    **_ALL,
    "crc": (layout.LEGACY_CRC_AT, "I"),
    "attributes": (layout.LEGACY_ATTRIBUTES_AT, "B"),
}
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
    """An entry of a sound segment: its bytes are ``data[at:end]``."""

    at: int
    end: int
    magic: int

    @property
    def size(self) -> int:
        return self.end - self.at


def entries(data: bytes) -> list[Place]:
    """The entries of a segment whose lengths can be trusted, up to a tail that is none."""
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


def get(data: bytes, at: int, field: str) -> int:
    """A header field of the entry at ``at``."""
    where, code = FIELDS[min(data[at + layout.MAGIC_AT], 2)][field]
    value: int = struct.unpack_from(">" + code, data, at + where)[0]
    return value


def put(data: bytes, at: int, **fields: int) -> bytes:
    """Header fields of the entry at ``at`` overwritten; its CRC stays as it was."""
    out = bytearray(data)
    magic = min(data[at + layout.MAGIC_AT], 2)
    for field, value in fields.items():
        where, code = FIELDS[magic][field]
        struct.pack_into(">" + code, out, at + where, value)
    return bytes(out)


def fix_crc(data: bytes, at: int) -> bytes:
    """The CRC of the entry at ``at`` made right for the bytes that its size spans."""
    end = at + layout.LOG_OVERHEAD + get(data, at, "size")
    assert end <= len(data)
    if data[at + layout.MAGIC_AT] < 2:
        return put(data, at, crc=zlib.crc32(data[at + layout.MAGIC_AT : end]))
    return put(data, at, crc=crc32c(data[at + layout.ATTRIBUTES_AT : end]))


def alter(data: bytes, at: int, **fields: int) -> bytes:
    """Header fields overwritten behind a valid CRC."""
    return fix_crc(put(data, at, **fields), at)


def flip(data: bytes, position: int, bits: int = 0xFF) -> bytes:
    """One byte changed."""
    return splice(data, position, position + 1, bytes([data[position] ^ bits]))


def shrink(data: bytes, size: int) -> bytes:
    """Only the first ``size`` bytes: a torn write, an interrupted copy."""
    assert 0 <= size < len(data)
    return data[:size]


def splice(data: bytes, begin: int, end: int, piece: bytes) -> bytes:
    """``data[begin:end]`` replaced."""
    assert 0 <= begin <= end <= len(data)
    return data[:begin] + piece + data[end:]


def cut(data: bytes, begin: int, end: int) -> bytes:
    """``data[begin:end]`` gone."""
    return splice(data, begin, end, b"")


def insert(data: bytes, position: int, piece: bytes) -> bytes:
    """``piece`` put before the byte at ``position``."""
    return splice(data, position, position, piece)


def zero(data: bytes, begin: int, end: int) -> bytes:
    """``data[begin:end]`` overwritten with zeros: a page that was never written back."""
    return splice(data, begin, end, bytes(end - begin))


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that mean nothing, always the same for a seed."""
    return hashlib.shake_128(bytes([seed])).digest(size)


def move(data: bytes, at: int, by: int) -> bytes:
    """The base offsets of the entry at ``at`` and of all behind it moved: they are outside a v2 CRC."""
    for place in entries(data):
        if place.at >= at:
            assert place.magic == 2, "a wrapper's inner offsets would stay"
            data = put(data, place.at, base_offset=get(data, place.at, "base_offset") + by)
    return data


def resize(data: bytes, place: Place, piece: bytes) -> bytes:
    """The entry at ``place`` replaced by ``piece``, with the size field and the CRC made right."""
    data = splice(data, place.at, place.end, piece)
    return alter(data, place.at, size=len(piece) - layout.LOG_OVERHEAD)


def payload_begin(data: bytes, place: Place) -> int:
    """Where an entry's payload begins: a batch's records, a message's value. The value's length stands before it."""
    if place.magic == 2:
        return place.at + layout.RECORD_BATCH_OVERHEAD
    key_at = place.at + FIELDS[place.magic]["key_size"][0]
    return key_at + 4 + max(get(data, place.at, "key_size"), 0) + 4


def with_payload(data: bytes, place: Place, stored: bytes) -> bytes:
    """The entry's payload, as it is stored, replaced; lengths and CRC made right."""
    begin = payload_begin(data, place)
    head = data[place.at : begin]
    if place.magic < 2:
        head = head[:-4] + struct.pack(">i", len(stored))
    return resize(data, place, head + stored)


def stored(data: bytes, place: Place) -> bytes:
    """The entry's payload as it is stored."""
    return data[payload_begin(data, place) : place.end]


def inflated(data: bytes, place: Place) -> bytes:
    """The entry's payload, decompressed."""
    codec = get(data, place.at, "attributes") & layout.CODEC_MASK
    return bytes(codecs.decompress(codec, stored(data, place), limit=1 << 24, magic=place.magic))


def with_inflated(data: bytes, place: Place, payload: bytes) -> bytes:
    """The entry's payload replaced and compressed again with its codec; lengths and CRC made right."""
    codec = get(data, place.at, "attributes") & layout.CODEC_MASK
    return with_payload(data, place, bytes(codecs.compress(codec, payload, magic=place.magic)))


def varint(value: int) -> bytes:
    """A zig-zag varint, as v2 records use them."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 128:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes(out) + bytes([raw])


def record(
    key: bytes | None = b"key", value: bytes | None = b"value", *, offset_delta: int = 0, timestamp_delta: int = 0
) -> bytes:
    """A v2 record without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def batch(like: bytes, records: bytes, count: int, **fields: int) -> bytes:
    """An uncompressed v2 batch around ``records``, with the header of the batch that ``like`` begins with."""
    head = like[: layout.RECORD_BATCH_OVERHEAD]
    fields = {"attributes": 0, "record_count": count, "last_offset_delta": count - 1, **fields}
    return alter(head + records, 0, size=len(head) + len(records) - layout.LOG_OVERHEAD, **fields)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, next byte) of a varint that can be trusted."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at


def records(payload: bytes) -> list[bytes]:
    """The records of an inflated v2 payload that can be trusted, each with its length."""
    found = []
    at = 0
    while at < len(payload):
        length, begin = read_varint(payload, at)
        found.append(payload[at : begin + length])
        at = begin + length
    return found
