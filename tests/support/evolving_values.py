"""Topics whose values follow three versions of a schema, with what other libraries read in them.

``write_topic`` makes a log and the topic of the registry. Its truth comes from fastavro, protobuf and json, not from kseg.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.schema_registry import Registry

_START = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A written topic: its log, the log of the registry's topic, and the truth by offset: None for a null value.

    ``undecodable`` has the reasons' first words by offset.
    """

    log: Path
    schemas: Path
    truth: dict[int, dict[str, Any] | None]
    undecodable: dict[int, str]
    texts: list[str]


def framed(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def write_log(folder: Path, values: list[bytes | None], first: int = 0) -> None:
    """Write a segment with one batch of ten records each."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b""
    for at in range(0, len(values), 10):
        records = [
            PlainRecord(first + at + i, key=f"k{first + at + i}".encode(), value=value, timestamp=_START + at + i)
            for i, value in enumerate(values[at : at + 10])
        ]
        data += build_batch(records, base_offset=first + at)
    (folder / f"{first:020}.log").write_bytes(data)


def write_schemas(folder: Path, kind: str, texts: list[str], subject: str) -> None:
    """Write the topic of a registry with versions 1, 2, … of a subject, whose ids are 1, 2, …"""
    registry = Registry()
    for text in texts:
        registry.register(subject, {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})})
    pairs = [[None if one is None else json.dumps(one).encode() for one in pair] for pair in registry.topic()]
    records = [PlainRecord(i, key=key, value=value, timestamp=_START) for i, (key, value) in enumerate(pairs)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(build_batch(records, base_offset=0))


def write_topic(home: Path, kind: str, *, versions: int = 3, count: int = 90, bad: bool = True) -> Topic:
    """Write ``orders-0`` and ``_schemas-0`` into a folder. ``kind`` is AVRO, PROTOBUF or JSON."""
    texts, make = _KINDS[kind](home)
    rng = random.Random(f"{kind}{versions}")
    values: list[bytes | None] = []
    truth: dict[int, dict[str, Any] | None] = {}
    undecodable: dict[int, str] = {}
    for offset in range(count):
        version = min(offset * 3 // count, versions - 1)
        content, expected = make(version, rng)
        value = framed(version + 1, content)
        is_bad = bad and offset % 15 == 7
        other, reason = _bad(value, offset // 15) if is_bad else (value, None)
        if reason is None:
            truth[offset] = expected if not is_bad else None
        else:
            undecodable[offset] = reason
        values.append(other)
    log, schemas = home / "source" / "orders-0", home / "registry" / "_schemas-0"
    write_log(log, values)
    write_schemas(schemas, kind, texts[:versions], "orders-value")
    return Topic(log, schemas, truth, undecodable, texts)


def _bad(value: bytes, number: int) -> tuple[bytes | None, str | None]:
    """Return what takes the place of a value, and a part of the reason; None for a null value."""
    cases: list[tuple[bytes | None, str | None]] = [
        (b"plain text", "no schema id"),
        (framed(99, value[5:]), "schema 99 is not known"),
        (None, None),
        (value[:5] + b"\xff" * 12, ""),
        (b"", "no schema id"),
    ]
    return cases[number % len(cases)]


def _avro(home: Path) -> tuple[list[str], Callable[[int, random.Random], tuple[bytes, dict[str, Any]]]]:
    import fastavro

    money = [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["CHF", "EUR"]}},
    ]
    tax = {
        "name": "tax",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}],
        "default": None,
    }
    first = [
        {"name": "id", "type": "int"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "gone", "type": "string", "default": ""},
    ]
    second = [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ]
    third = [
        {"name": "count", "type": "int", "default": 7},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "attributes", "type": {"type": "map", "values": "long"}, "default": {}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "choice", "type": ["null", "int", "string"], "default": None},
        {"name": "ratio", "type": "float", "default": 0.5},
        {"name": "parent", "type": ["null", "Order"], "default": None},
    ]

    def schema(*fields: Any, more: Any = ()) -> Any:
        total = {"name": "total", "type": {"type": "record", "name": "Money", "fields": [*money, *more]}}
        return {"type": "record", "name": "Order", "namespace": "shop", "fields": [*fields, total]}

    # Version 3 has a wider id and no field "gone".
    wide = {"name": "id", "type": "long"}
    raw = [schema(*first), schema(*first, *second), schema(wide, first[1], *second, *third, more=[tax])]
    parsed = [fastavro.parse_schema(json.loads(json.dumps(one)), _force=True) for one in raw]

    def make(version: int, rng: random.Random) -> tuple[bytes, dict[str, Any]]:
        total: dict[str, Any] = {
            "amount": Decimal(rng.randint(-(10**9), 10**9)) / 100,
            "currency": rng.choice(["CHF", "EUR"]),
        }
        order: dict[str, Any] = {
            "id": rng.randint(-(2**31), 2**31 - 1) << (20 if version == 2 else 0),
            "placed": datetime.fromtimestamp(rng.randint(-(10**9), 4 * 10**9), UTC)
            + timedelta(milliseconds=rng.randrange(1000)),
            "gone": rng.choice(["", "x", "grüezi"]),
            "note": rng.choice([None, "n1"]),
            "tags": rng.choice([[], ["a", "b"]]),
            "count": rng.randint(-5, 5),
            "raw": rng.randbytes(3),
            "attributes": {"a": 1} if rng.random() < 0.5 else {},
            "day": rng.choice([None, date(2024, 2, 29)]),
            "choice": rng.choice([None, 5, "five"]),
            "ratio": 0.25,
            "parent": None,
            "total": {**total, "tax": rng.choice([None, Decimal("1.2345")])},
        }
        known = {one["name"] for one in raw[version]["fields"]}
        order = {name: value for name, value in order.items() if name in known}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed[version], order)
        read = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed[version], parsed[2])
        own = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed[version], None)
        assert isinstance(read, dict)
        assert isinstance(own, dict)
        read["gone"] = own.get("gone", "")
        read["raw"] = own.get("raw", b"\xff")  # fastavro returns the default of bytes as text
        read["choice"] = None if read["choice"] is None else json.dumps(read["choice"])
        read["attributes"] = list(read["attributes"].items())
        return out.getvalue(), read

    return [json.dumps(one) for one in raw], make


_PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1; google.protobuf.Timestamp placed = 2; Money total = 3;
  %s
}
message Money { string amount = 1; Currency currency = 2; %s }
enum Currency { CHF = 0; EUR = 1; }
"""
_PROTO_SECOND = "optional string note = 4; repeated string tags = 5;"
_PROTO_THIRD = """uint64 large = 6; bytes raw = 7; map<string, int64> attributes = 8; google.protobuf.Int32Value seats = 9;
  oneof choice { int32 number = 10; string text = 11; } float ratio = 12; Order parent = 13; repeated Money parts = 14;"""


def _protobuf(home: Path) -> tuple[list[str], Callable[[int, random.Random], tuple[bytes, dict[str, Any]]]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    texts = [
        _PROTO % ("", ""),
        _PROTO % (_PROTO_SECOND, ""),
        _PROTO % (_PROTO_SECOND + _PROTO_THIRD, "double tax = 3;"),
    ]
    classes = []
    home.mkdir(parents=True, exist_ok=True)
    for text in texts:
        (home / "order.proto").write_text(text)
        command = [
            "-m",
            "grpc_tools.protoc",
            f"-I{home}",
            f"--descriptor_set_out={home}/order.desc",
            "--include_imports",
            "order.proto",
        ]
        subprocess.run([sys.executable, *command], check=True, cwd=home, capture_output=True)
        files = descriptor_pb2.FileDescriptorSet.FromString((home / "order.desc").read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        classes.append(message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order")))

    def make(version: int, rng: random.Random) -> tuple[bytes, dict[str, Any]]:
        message: Any = classes[version](id=rng.randint(-(2**63), 2**63 - 1))
        if rng.random() < 0.8:
            message.placed.FromMicroseconds(rng.randint(0, 4 * 10**15))
        message.total.amount, message.total.currency = str(rng.random()), rng.randrange(2)
        if version and rng.random() < 0.5:
            message.note = rng.choice(["", "n1"])
            message.tags.extend(["a", "b"])
        if version == 2:
            message.large, message.raw, message.ratio = rng.randrange(2**64), rng.randbytes(4), 0.25
            message.total.tax = rng.random()
            if rng.random() < 0.5:
                message.attributes["a"] = rng.randint(-(2**63), 2**63 - 1)
                message.seats.value = 3
                message.number = 7
                message.parts.add(amount="1")
        data = message.SerializeToString()
        read: Any = classes[2].FromString(data)

        def optional(name: str, get: Callable[[Any], Any] = lambda value: value) -> Any:
            return get(getattr(read, name)) if read.HasField(name) else None

        def money(one: Any) -> dict[str, Any]:
            return {"amount": one.amount, "currency": ["CHF", "EUR"][one.currency], "tax": one.tax}

        return b"\0" + data, {
            "id": read.id, "placed": optional("placed", lambda value: value.ToDatetime(UTC)), "total": money(read.total),
            "note": optional("note"), "tags": list(read.tags), "large": Decimal(read.large), "raw": read.raw,
            "attributes": list(read.attributes.items()), "seats": optional("seats", lambda value: value.value),
            "number": optional("number"), "text": optional("text"), "ratio": read.ratio, "parent": None,
            "parts": list(map(money, read.parts)),
        }  # fmt: skip

    return texts, make


def _json(home: Path) -> tuple[list[str], Callable[[int, random.Random], tuple[bytes, dict[str, Any]]]]:
    money = {"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}}
    properties: dict[str, Any] = {
        "id": {"type": "integer"},
        "placed": {"type": "string", "format": "date-time"},
        "total": {"$ref": "#/definitions/Money"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        "attributes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "choice": {"type": ["integer", "string"]},
        "open": {"type": "object"},
        "paid": {"type": "boolean"},
    }
    names = list(properties)
    texts = [
        json.dumps(
            {
                "type": "object",
                "properties": {name: properties[name] for name in names[:most]},
                "definitions": {"Money": money},
            }
        )
        for most in (3, 5, 9)
    ]

    def make(version: int, rng: random.Random) -> tuple[bytes, dict[str, Any]]:
        order: dict[str, Any] = {
            "id": rng.randint(-(2**63), 2**63 - 1),
            "placed": "2024-02-29T12:00:00Z",
            "total": {"amount": rng.choice([1, 0.5]), "currency": "CHF"},
            "note": rng.choice([None, "n1"]),
            "tags": rng.choice([None, ["a"], []]),
            "attributes": {"a": 1},
            "choice": rng.choice([5, "five"]),
            "open": {"b": [1, {"c": None}]},
            "paid": True,
        }
        order = {name: order[name] for name in names[: (3, 5, 9)[version]] if rng.random() < 0.8}
        read = json.loads(json.dumps(order))
        for name in ("choice", "open"):
            if name in read:
                read[name] = json.dumps(read[name], separators=(",", ":"))
        if "attributes" in read:
            read["attributes"] = list(read["attributes"].items())
        return json.dumps(order).encode(), {**dict.fromkeys(names), **read}

    return texts, make


_KINDS = {"AVRO": _avro, "PROTOBUF": _protobuf, "JSON": _json}
KINDS = tuple(_KINDS)
