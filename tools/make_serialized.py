"""Write ``fixtures/serialized``: keys and values of confluent-kafka's serializers, and the topic of their registry.

    python -m tools.make_serialized

It needs ``confluent-kafka[avro,json,protobuf,schemaregistry]`` and grpcio-tools. Partitions ``orders-0``, ``users-0`` and
``events-0`` have schema ids in the prefix of values or GUIDs in headers; ``_schemas-0`` has the records of the registry.
Protobuf's schemas are text there, as Confluent's registry stores them. ``expect.jsonl`` has what was serialized.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import IntegerSerializer, MessageField, SerializationContext, StringSerializer

from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.schema_registry import Registry

FIXTURE = Path(__file__).parents[1] / "fixtures" / "serialized"
TIME = 1_700_000_000_000

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["CHF", "EUR"]}},
    ],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": "shop.Money"},
    ],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
EVENT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Event",
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
}
PROTOS = {
    "kseg_common.proto": 'syntax = "proto3";\npackage shop;\n\nmessage Address {\n  string city = 1;\n}\n',
    "kseg_users.proto": """syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";
import "kseg_common.proto";

message User {
  uint64 id = 1;
  string name = 2;
  google.protobuf.Timestamp created = 3;
  Address address = 4;
  map<string, double> scores = 5;
  oneof contact {
    string mail = 6;
    bytes token = 7;
  }
}
message Event {
  message Login {
    bool mobile = 1;
    Kind kind = 2;
  }
  enum Kind {
    UNKNOWN = 0;
    WEB = 1;
  }
}
""",
}


class Sent(NamedTuple):
    """A serialized record, and what was serialized."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    expected: dict[str, Any]


def context(topic: str, side: str, headers: Any) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY if side == "key" else MessageField.VALUE, headers)


def orders(client: SchemaRegistryClient) -> Iterator[Sent]:
    """Yield records with text keys and Avro values of two versions, which refer to another schema."""
    client.register_schema("shop-money", Schema(json.dumps(MONEY), "AVRO"))
    reference = [SchemaReference("shop.Money", "shop-money", 1)]
    for number, schema in enumerate((ORDER, ORDER_2)):
        serialize = AvroSerializer(client, Schema(json.dumps(schema), "AVRO", reference))
        for i in range(3):
            note = {"note": f"n{i}" if i else None} if number else {}
            placed = datetime.fromtimestamp(TIME / 1000 + i, UTC)
            order = {"id": i, "placed": placed, "total": {"amount": Decimal(i - 1) / 4, "currency": "CHF"}, **note}
            key = f"order-{i}"
            expected = {
                **order,
                "placed": placed.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "total": {"amount": f"{Decimal(i - 1) / 4:.2f}", "currency": "CHF"},
            }
            yield Sent(
                StringSerializer()(key), serialize(order, context("orders", "value", [])), [],
                {"key": key, "value": expected, "value_kind": "avro"},
            )  # fmt: skip
    yield Sent(b"deleted", None, [], {"key": "deleted", "value": None, "value_kind": None})


def users(client: SchemaRegistryClient, module: Any) -> Iterator[Sent]:
    """Yield records with int32 keys and Protobuf values: the first message of the file, and a nested one."""
    user = module.User(id=2**63, name="Ann", scores={"a": 0.5}, token=b"\0\xff")
    user.created.FromMilliseconds(TIME)
    user.address.city = "Bern"
    expected = {
        "id": str(2**63), "name": "Ann", "created": "2023-11-14T22:13:20Z", "address": {"city": "Bern"},
        "scores": {"a": 0.5}, "token": "AP8=",
    }  # fmt: skip
    login = module.Event.Login(kind=module.Event.WEB)
    for key, (message, value) in enumerate(((user, expected), (login, {"mobile": False, "kind": "WEB"}))):
        serialize = ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
        data = serialize(message, context("users", "value", []))
        yield Sent(IntegerSerializer()(key), data, [], {"key": key, "value": value, "value_kind": "protobuf"})


def events(client: SchemaRegistryClient) -> Iterator[Sent]:
    """Yield records with Avro keys and JSON values, with ids in the prefix and with GUIDs in headers."""
    for number in range(2):
        settings = {"schema.id.serializer": header_schema_id_serializer} if number else {}
        headers: list[tuple[str, bytes]] = []
        key = AvroSerializer(client, '"string"', conf=settings)("k", context("events", "key", headers))
        event = {"name": "start", "count": number}
        serialize = JSONSerializer(json.dumps(EVENT), client, conf=settings)
        value = serialize(event, context("events", "value", headers))
        yield Sent(key, value, headers, {"key": "k", "value": event, "value_kind": "json-schema"})


def compile_protos(folder: Path) -> Any:
    """Return the module that protoc makes from ``kseg_users.proto``."""
    for name, text in PROTOS.items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", *PROTOS],
        check=True,
        cwd=folder,
    )
    sys.path.insert(0, str(folder))
    return importlib.import_module("kseg_users_pb2")


def write(folder: Path, records: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]]) -> None:
    """Write a segment with one batch."""
    folder.mkdir(parents=True)
    plain = [
        PlainRecord(i, key=key, value=value, timestamp=TIME + i, headers=headers)
        for i, (key, value, headers) in enumerate(records)
    ]
    (folder / f"{0:020}.log").write_bytes(build_batch(plain, base_offset=0))


def main() -> None:
    shutil.rmtree(FIXTURE, ignore_errors=True)
    registry = Registry({"users-value": PROTOS["kseg_users.proto"], "kseg_common.proto": PROTOS["kseg_common.proto"]})
    with tempfile.TemporaryDirectory() as folder, registry.serve() as url:
        module = compile_protos(Path(folder))
        client = SchemaRegistryClient({"url": url})
        sent = {"orders": [*orders(client)], "users": [*users(client, module)], "events": [*events(client)]}
    lines = []
    for topic, records in sent.items():
        headers = [tuple(Header(name, value) for name, value in record.headers) for record in records]
        write(FIXTURE / f"{topic}-0", [(r.key, r.value, h) for r, h in zip(records, headers, strict=True)])
        for offset, record in enumerate(records):
            lines.append(json.dumps({"topic": topic, "offset": offset, **record.expected}))
    write(
        FIXTURE / "_schemas-0",
        [(json.dumps(k).encode(), None if v is None else json.dumps(v).encode(), ()) for k, v in registry.topic()],
    )
    (FIXTURE / "expect.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (FIXTURE / "registry.jsonl").write_text("\n".join([*map(json.dumps, registry.schemas), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
