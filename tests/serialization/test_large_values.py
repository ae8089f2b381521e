"""A small batch can hold a value of many megabytes: decoding has a bound of memory, and ordinary large values decode."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cbor2", reason="cbor2 is not installed")
pytest.importorskip("fastavro", reason="fastavro is not installed")
pytest.importorskip("msgpack", reason="msgpack is not installed")
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from kseg.extras.serialization.decoding import FieldDecoder
from kseg.extras.serialization.schema_set import AVRO, PROTOBUF, Schema, SchemaSet
from kseg.format.messages.message_writer import uvarint
from tests.support.damage import varint

pytestmark = pytest.mark.slow

#: The prefix of a value with the schema of id 5.
PREFIX = b"\0\0\0\0\5"
#: The address space of a decoder above that of the libraries, in bytes: the promise is 300 MB for the whole process.
ROOM = 200 << 20
ARRAYS = {"type": "array", "items": {"type": "array", "items": "int"}}
EMPTY = {"type": "record", "name": "E", "fields": [{"name": f"f{i}", "type": "null"} for i in range(30)]}
HALF = {"type": "record", "name": "H", "fields": [*EMPTY["fields"], {"name": "b", "type": "boolean"}]}
MAPS = {"type": "map", "values": "null"}
BYTES = 'syntax = "proto3"; message M { bytes b = 1; }'
PROTO = 'syntax = "proto3"; message M { repeated M m = 1; repeated int32 n = 2; ' + "".join(
    f"int32 f{i} = {i};" for i in range(3, 60)
) + "}"  # fmt: skip


def length(data: bytes) -> bytes:
    """Return bytes with their length before them, as a field of Protobuf has them."""
    return uvarint(len(data)) + data


def bombs() -> Iterator[tuple[str, str, str, bytes]]:
    """Yield names, types of schema, schemas and values, each of which compresses to a few hundred bytes."""
    count = 15 << 20
    yield "json lists", "", "", b"[" + b"[]," * (count // 3) + b"[]]"
    yield "json objects", "", "", b"[" + b'{"a":{}},' * (count // 9) + b"1]"
    yield "json numbers", "", "", b"[" + b"1," * (count // 2) + b"1]"
    yield "msgpack lists", "", "msgpack", b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    yield (
        "msgpack nested lists",
        "",
        "msgpack",
        b"\xdd" + (count // 3).to_bytes(4, "big") + b"\x92\x80\1" * (count // 3),
    )
    yield "msgpack many lists", "", "msgpack", b"\xdc\xff\xff" + (b"\xdc\0\xff" + b"\xc0" * 255) * 0xFFFF
    yield "cbor lists", "", "cbor", b"\x9a" + count.to_bytes(4, "big") + b"\x80" * count
    yield "cbor objects", "", "cbor", b"\x9f" + b"\xa1\x61a\xa0" * (count // 4) + b"\xff"
    yield "cbor tags", "", "cbor", b"\x9f" + b"\xc1\1" * (count // 2) + b"\xff"
    yield "avro arrays", AVRO, json.dumps(ARRAYS), varint(count) + bytes(count) + b"\0"
    wide = {"type": "array", "items": HALF}
    yield "avro wide records", AVRO, json.dumps(wide), varint(count) + bytes(count) + b"\0"
    yield (
        "avro unions",
        AVRO,
        json.dumps({"type": "array", "items": [EMPTY, "int"]}),
        varint(count) + bytes(count) + b"\0",
    )
    yield "avro maps", AVRO, json.dumps({"type": "array", "items": MAPS}), varint(count) + bytes(count) + b"\0"
    yield "protobuf messages", PROTOBUF, PROTO, b"\0" + b"\x0a\0" * (count // 2)
    yield "protobuf nested", PROTOBUF, PROTO, b"\0" + b"\x0a" + length(b"\x0a\0" * (count // 2))
    yield "protobuf packed", PROTOBUF, PROTO, b"\0" + b"\x12" + length(bytes(count))
    yield "protobuf unpacked", PROTOBUF, PROTO, b"\0" + b"\x10\0" * (count // 2)


BOMBS = {name: (kind, schema, value) for name, kind, schema, value in bombs()}


def decode(kind: str, schema: str, value: bytes) -> tuple[object, str | None]:
    """Return the decoded value, and the reason if there is none."""
    if not kind:
        found = FieldDecoder("value", schema or "json", SchemaSet([])).decode("t", value)
    else:
        known = Schema(kind, schema, 5, subject="t-value", version=1)
        found = FieldDecoder("value", "auto", SchemaSet([known])).decode("t", PREFIX + value)
    return found.value, found.error


def main(name: str) -> None:
    """Decode a bomb with a limit of the address space."""
    import resource

    kind, schema, value = BOMBS[name]
    decode(kind, schema, value[:100])  # imports the libraries
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    print(decode(kind, schema, value)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the size of the process is read from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_batch_cannot_fill_the_memory(name: str) -> None:
    """The value is not decoded, with the reason, and within the memory and the time."""
    command = [sys.executable, "-c", f"from tests.serialization.test_large_values import main; main({name!r})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "the value has more than 500,000 items\n"), done.stderr


@pytest.mark.parametrize(
    ("kind", "schema", "value", "wanted"),
    [
        ("", "", b"[" + b"1," * 400_000 + b"1]", [1] * 400_001),
        ("", "msgpack", b"\xc6" + (6_000_000).to_bytes(4, "big") + bytes(6_000_000), "A" * 8_000_000),
        ("", "cbor", b"\x9a" + (400_000).to_bytes(4, "big") + b"\1" * 400_000, [1] * 400_000),
        (AVRO, '"bytes"', bytes(6_000_000), "A" * 8_000_000),
        (AVRO, '["bytes"]', b"\0" + varint(6_000_000) + bytes(6_000_000), "A" * 8_000_000),
        (
            AVRO,
            json.dumps({"type": "array", "items": "long"}),
            varint(400_000) + varint(1 << 60) * 400_000 + b"\0",
            [1 << 60] * 400_000,
        ),
        (PROTOBUF, BYTES, b"\0\x0a" + length(bytes(6_000_000)), {"b": "A" * 8_000_000}),
        (
            PROTOBUF,
            'syntax = "proto3"; message M { repeated int64 n = 1; }',
            b"\0\x0a" + length((b"\xff" * 8 + b"\x7f") * 200_000),
            {"n": ["9223372036854775807"] * 200_000},
        ),
    ],
    ids=["json", "msgpack bytes", "cbor", "avro bytes", "avro union", "avro longs", "protobuf bytes", "protobuf longs"],
)  # fmt: skip
def test_ordinary_large_values_are_decoded(kind: str, schema: str, value: bytes, wanted: object) -> None:
    """The bound is of items, not of bytes: long texts and numbers of many bytes are whole."""
    found, error = decode(kind, schema, value)
    assert error is None
    assert found == wanted
