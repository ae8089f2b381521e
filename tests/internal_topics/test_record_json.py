"""Records written as JSON directly from their bytes, compared with the decoder that makes objects."""

from __future__ import annotations

import struct
from random import Random

import pytest

from kseg.format.internal_topics.decode import KEYED, RecordJson, decode, record_types
from kseg.format.messages.definitions import (
    RECORDS,
    Definition,
    MessageField,
    definition,
)
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import Window
from kseg.text import to_json
from tests.support.fuzzing import cases

_NUMBERS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
_TEXTS = (b"", b"group-1", b"topic.orders", b'a"b', b"tab\t", "größe".encode(), b"\xff", b"x" * 300)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def encoded(random: Random, definition: Definition, version: int) -> bytes:
    """Return a random message, seldom with tagged fields."""
    return structure(random, definition.fields, version, version in definition.flexible)


def structure(random: Random, fields: tuple[MessageField, ...], version: int, flexible: bool) -> bytes:
    """Return the bytes of a structure."""
    present = [field for field in fields if version in field.versions and version not in field.tagged]
    data = b"".join(value(random, field, version, flexible) for field in present)
    tag = b"\1\x63\2ab" if random.random() < 0.03 else b"\0"
    return data + (tag if flexible else b"")


def value(random: Random, field: MessageField, version: int, message_flexible: bool) -> bytes:
    """Return the bytes of a field."""
    flexible = message_flexible if field.flexible is None else version in field.flexible
    nullable = version in field.nullable and random.random() < 0.3
    item = field.type.removeprefix("[]")

    def length(size: int, code: str) -> bytes:
        return uvarint(size + 1) if flexible else struct.pack(">" + code, size)

    def one() -> bytes:
        if item in _NUMBERS:
            code = _NUMBERS[item]
            size = struct.calcsize(">" + code)
            return random.choice((bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1), random.randbytes(size)))
        if item == "uuid":
            return random.choice((bytes(16), random.randbytes(16)))
        if item in ("string", "bytes"):
            data = random.choice(_TEXTS) if random.random() < 0.3 else b"plain-%d" % random.randrange(1000)
            return length(len(data), "h" if item == "string" else "i") + data
        return structure(random, field.fields, version, flexible)

    if item != field.type:
        count = -1 if nullable else random.choice((0, 1, 3))
        return length(count, "i") + b"".join(one() for _ in range(count))
    if nullable:
        return length(-1, "h" if item == "string" else "i") if item in ("string", "bytes") else b"\xff"
    is_structure = item not in _NUMBERS and item not in ("uuid", "string", "bytes")
    return (b"\1" if version in field.nullable and is_structure else b"") + one()


def chunk_of(key: bytes | None, content: bytes | None) -> Chunk:
    """Return a chunk of one record."""
    data = bytearray(b"between" + (key or b"") + b"-" + (content or b"") + b"after")
    batches, records = BatchColumns(1), RecordColumns(1)
    batches.count, batches.record_total[0], records.count = 1, 1, 1
    records.key_at[0], records.key_size[0] = 7, -1 if key is None else len(key)
    records.value_at[0], records.value_size[0] = 8 + len(key or b""), -1 if content is None else len(content)
    return Chunk(Window(data, memoryview(data), batches), records)


@pytest.mark.fuzz
@pytest.mark.parametrize("topic", KEYED)
def test_json_from_bytes_is_that_of_the_decoder(topic: str) -> None:
    """Of every type and version, valid and damaged: a record is written equally, or it is left to the decoder."""
    random, writer = Random(topic), RecordJson(topic)
    total = written = 0
    for number, name in record_types(topic).items():
        known = definition(RECORDS, f"{name}Key", 0)
        assert known
        for version in range(8):
            of_value = definition(RECORDS, f"{name}Value", version)
            for _ in range(cases(40) if of_value else 1):
                key = struct.pack(">h", number) + encoded(random, known, 0)
                content = struct.pack(">h", version) + (encoded(random, of_value, version) if of_value else b"x")
                damaged = random.random() < 0.3
                if damaged:
                    at = random.randrange(len(content))
                    content = random.choice(
                        (content[:at], content + b"\0", content[:at] + random.randbytes(2) + content[at + 2 :])
                    )
                wanted = decode(topic, key, None if random.random() < 0.05 else content)
                # Without a value the record is a tombstone.
                found = writer.write(chunk_of(key, content if wanted.value else None), 0, 0)
                if found:
                    assert wanted.fault is None
                    assert writer.text.json() == to_json(wanted.as_dict()).encode()
                total += not damaged and of_value is not None and name != "GroupMetadata"
                written += found and not damaged
    assert written > total * 0.3


def test_records_that_are_not_of_the_topic_are_left_to_the_decoder() -> None:
    """Short keys, unknown types and versions, and a message that is too large."""
    writer = RecordJson("__consumer_offsets")
    key = b"\0\1\0\1g\0\1t\0\0\0\0"
    for pair in (
        (None, b"x"),
        (b"", None),
        (b"\0", None),
        (b"\x63\x63", None),
        (key, b""),
        (key, b"\0\x63"),
        (key[:-1], None),
    ):
        assert not writer.write(chunk_of(*pair), 0, 0)
    assert writer.write(chunk_of(key, None), 0, 0)
    assert (
        writer.text.json().decode()
        == '{"key":{"type":1,"name":"OffsetCommit","data":{"group":"g","topic":"t","partition":0}},"value":null}'
    )
    large = b"\0\3" + bytes(12) + struct.pack(">h", 30_000) + b"m" * 30_000 + bytes(8)
    assert writer.write(chunk_of(key, large), 0, 0)
    assert not writer.write(
        chunk_of(b"\0\1\x7f\xff" + b"g" * 32767 + b"\x7f\xff" + b"g" * 32767 + bytes(3), large), 0, 0
    )
