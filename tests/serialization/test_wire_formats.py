"""Bytes of the serializers of Kafka Streams, Connect, Apicurio and AWS Glue, and of the libraries of MessagePack and CBOR.

``python -m tools.lab.wire_formats`` has made ``formats.txt`` with the real serializers; its programs have the values.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("fastavro", reason="fastavro is not installed")
pytest.importorskip("cbor2", reason="cbor2 is not installed")
pytest.importorskip("msgpack", reason="msgpack is not installed")

import cbor2
import msgpack

from kseg.errors import UsageError
from kseg.extras.serialization.decoding import AUTO, NOT_DECODED, FieldDecoder
from kseg.extras.serialization.envelopes import WRAPPERS, unwrapped
from kseg.extras.serialization.json_values import json_value
from kseg.extras.serialization.schema_set import AVRO, PROTOBUF, Schema, SchemaSet
from kseg.extras.serialization.schema_sources import schemas_of_file
from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg_here as kseg

ROOT = Path(__file__).parents[2]
LINES = [line.split(" ") for line in (ROOT / "fixtures/serialized/formats.txt").read_text("utf-8").splitlines()]
FORMATS = {name: (bytes.fromhex(data), headers) for name, data, *headers in LINES if name != "connect-json"}
CONNECT = [bytes.fromhex(data) for name, data in (line[:2] for line in LINES) if name == "connect-json"]
START = 1_700_000_000_000
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
VALUE = {"id": 4711, "note": "a" * 60}
GLUE_ID = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
SCHEMAS = SchemaSet([Schema(AVRO, json.dumps(ORDER), 42), Schema(AVRO, json.dumps(ORDER), guid=GLUE_ID)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time-windowed:string", {"key": "k1", "window_start": START}),
        ("session-windowed:string", {"key": "k2", "window_end": START + 5000, "window_start": START}),
        ("window-store:string", {"key": "k3", "window_start": START, "sequence": 7}),
        ("value-and-timestamp:string", {"value": "v", "timestamp": START + 1}),
    ],
)
def test_what_kafka_streams_writes(name: str, value: Any) -> None:
    """The key without its window is what a person looks for."""
    found = FieldDecoder("key", name).decode("t", FORMATS[name][0])
    assert (found.kind, found.value, found.error) == (name.partition(":")[0], value, None)
    assert FieldDecoder("key", name.partition(":")[0]).decode("t", FORMATS[name][0]).value == value
    assert "expected at least" in str(FieldDecoder("key", name).decode("t", b"short").error)


def test_wrappers_contain_any_type_but_wrappers() -> None:
    """Also one with a schema id; a reason of the inner bytes is that of the whole."""
    for name, wrapper in WRAPPERS.items():
        assert wrapper.content in wrapper.meaning
        with pytest.raises(UsageError, match="not in another one"):
            FieldDecoder("key", f"{name}:{name}")
    avro = FORMATS["apicurio"][0] + START.to_bytes(8, "big")
    found = FieldDecoder("key", "time-windowed:auto", SCHEMAS).decode("t", avro)
    assert (found.value, found.schema_id) == ({"key": VALUE, "window_start": START}, 42)
    found = FieldDecoder("key", "time-windowed:auto").decode("t", b"k" + bytes(8))
    assert found.error == "no schema id: name the type of the key, as time-windowed:string does"
    assert FieldDecoder("key", "time-windowed:int32").decode("t", bytes(11)).error == "expected 4 bytes, got 3"


def test_what_connect_writes() -> None:
    """Decimals are texts and times ISO 8601, as those of Avro."""
    decode = FieldDecoder("value", "connect-json").decode
    assert decode("t", CONNECT[0]).value == {
        "id": 5,
        "day": "2023-11-14",
        "time": "01:01:01.001",
        "placed": "2023-11-14T22:13:20.001Z",
        "lines": [{"price": "-12.50"}],
        "sizes": {"a": 1},
        "limits": [[3, "77"]],
        "raw": "AP8=",
        "note": None,
    }
    assert decode("t", CONNECT[1]).value == "text"
    assert "expected an object with schema and payload" in str(decode("t", b'{"payload":1}').error)
    deep = (
        b'{"schema":' + b'{"type":"array","items":' * 300 + b"1" + b"}" * 300 + b',"payload":' + b"[" * 300 + b"]" * 300
    )
    assert decode("t", deep + b"}").error is None


@pytest.mark.parametrize("name", ["apicurio", "apicurio-headers", "glue-none", "glue-zlib"])
def test_what_other_registries_write(name: str) -> None:
    """Apicurio's ids have 8 bytes, before the value or in a header. AWS Glue has UUIDs, and can compress."""
    data, given = FORMATS[name]
    headers = [(key.encode(), bytes.fromhex(value)) for key, value in (header.split("=") for header in given)]
    found = FieldDecoder("value", AUTO, SCHEMAS).decode("t", data, headers)
    assert (found.kind, found.value, found.error) == ("avro", VALUE, None)
    assert found.schema_id == (42 if "apicurio" in name else None)


def test_values_of_other_registries_that_cannot_be_decoded_have_a_reason() -> None:
    """Also a small value that would become a large one."""
    known = FieldDecoder("value", AUTO, SCHEMAS).decode
    prefix = FORMATS["glue-zlib"][0][:18]
    assert str(known("t", prefix + b"no zlib").error).startswith("not zlib")
    assert known("t", FORMATS["glue-zlib"][0][:-6]).error == "cut, or larger than 16,777,216 bytes without zlib"
    assert (
        known("t", prefix + zlib.compress(bytes(17 << 20))).error == "cut, or larger than 16,777,216 bytes without zlib"
    )
    assert known("t", FORMATS["glue-zlib"][0] + b"zz").error == "2 bytes after the end of zlib's stream"
    unknown = FieldDecoder("value", AUTO, SchemaSet()).decode
    assert unknown("t", FORMATS["glue-none"][0]).error == f"schema {GLUE_ID} is not known"
    assert unknown("t", FORMATS["apicurio"][0]).error == "schema 42 is not known"
    for other in (b"\3\0" + bytes(16), b"\3\0rest", b"\3" * 30, bytes(30)):  # not a random UUID, or no id
        assert unknown("t", other) == NOT_DECODED


#: The file of messages in RegistryFormats.java.
SHOP = """syntax = "proto3"; package shop; message Zebra { int64 id = 1; }
message Order { int64 id = 1; message Line { int64 id = 1; message Part { int64 id = 1; } }
  message Address { int64 id = 1; } }
message Apple { int64 id = 1; }"""
MESSAGES = ["Zebra", "Order", "Order.Line", "Order.Line.Part", "Order.Address", "Apple"]


def test_protobuf_of_other_registries_is_read_as_the_message_that_it_is() -> None:
    """Apicurio writes the message's name, AWS Glue its number; each message has another id, and only its fields."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    text = SHOP
    for name in MESSAGES:
        text = text.replace(
            f"message {name.rpartition('.')[2]} {{ int64 id",
            f"message {name.rpartition('.')[2]} {{ int64 {name.replace('.', '_')}",
        )
    known = SchemaSet([Schema(PROTOBUF, text, 42), Schema(PROTOBUF, text, guid=GLUE_ID)])
    decoder = FieldDecoder("value", AUTO, known)
    seen = []
    for format_name, (data, given) in FORMATS.items():
        kind, _, name = format_name.partition(":")
        if "-protobuf" not in kind:
            continue
        headers = [(key.encode(), bytes.fromhex(value)) for key, value in (header.split("=") for header in given)]
        found = decoder.decode("t", data, headers)
        number = str(MESSAGES.index(name))
        assert (found.kind, found.value, found.error) == ("protobuf", {name.replace(".", "_"): number}, None), (
            format_name
        )
        seen.append(kind)
    assert sorted(set(seen)) == ["apicurio-protobuf", "apicurio-protobuf-headers", "glue-protobuf"]
    with_four_bytes = b"\0" + FORMATS["apicurio-protobuf:Apple"][0][5:]  # Apicurio 3
    assert decoder.decode("t", with_four_bytes).value == {"Apple": "5"}
    other = FORMATS["apicurio-protobuf:Apple"][0].replace(b"Apple", b"Peach")
    assert "has no message 'Peach'" in str(decoder.decode("t", other).error)
    numbered = FORMATS["glue-protobuf:Apple"][0]
    assert "no message with the number 9: it has 6" in str(
        decoder.decode("t", numbered[:18] + b"\x09" + numbered[19:]).error
    )
    assert "cut or too long" in str(decoder.decode("t", numbered[:18]).error)


@pytest.mark.parametrize(
    ("prefix", "header", "data", "value"),
    [
        ("0000000007", "", b"\4ab", b"\4ab"),
        ("0000000007", "", b"", b""),
        ("", "__value_schema_id=0000000007", b"\4ab", b"\4ab"),
        ("", f"__value_schema_id=01{UUID(GLUE_ID).hex}", b"\4ab", b"\4ab"),
        ("000000000000000007", "", b"\4ab", b"ab"),
        ("", "apicurio.value.contentId=0000000000000007", b"\4ab", b"ab"),
        (f"0300{UUID(GLUE_ID).hex}", "", b"\4ab", b"ab"),
        ("c301651920c3da16c04f", "", b"\4ab", b"ab"),
        ("", "", b"\4ab", b"ab"),
    ],
    ids=["id", "empty", "id header", "guid header", "apicurio", "apicurio header", "glue", "single object", "no id"],
)
@pytest.mark.parametrize("schema", ['"bytes"', "bytes", '{"type":"bytes","doc":"x"}'])
def test_bytes_alone_have_no_length_after_the_id_of_confluent(
    schema: str, prefix: str, header: str, data: bytes, value: bytes
) -> None:
    """Confluent's serializers of Java and Python write them so. Others have the length of Avro's encoding."""
    schemas = SchemaSet([Schema(AVRO, schema, 7, subject="t-value"), Schema(AVRO, schema, guid=GLUE_ID)])
    name, _, content = header.partition("=")
    headers = [(name.encode(), bytes.fromhex(content))] if name else []
    found = FieldDecoder("value", "avro", schemas).decode("t", bytes.fromhex(prefix) + data, headers)
    assert (found.value, found.error) == (json_value(value), None)


def test_a_decimal_alone_is_its_digits_after_the_id_of_confluent() -> None:
    """So Connect's AvroConverter writes a decimal that is the whole value. Bytes in a union have their length."""
    schemas = [Schema(AVRO, '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}', 7)]
    decoder = FieldDecoder("value", AUTO, SchemaSet([*schemas, Schema(AVRO, '["null","bytes"]', 8)]))
    assert decoder.decode("t", b"\0\0\0\0\7\x04\xd2").value == "12.34"
    assert decoder.decode("t", b"\0\0\0\0\x08\2\4ab").value == "YWI="
    inner = Schema(AVRO, '{"type":{"type":"bytes"}}', 9)
    assert FieldDecoder("value", AUTO, SchemaSet([inner])).decode("t", b"\0\0\0\0\x09ab").value == "YWI="


def test_a_schema_file_can_have_the_uuid_of_glue(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    (schema,) = schemas_of_file(f"{GLUE_ID.upper()}={tmp_path / 'order.avsc'}")
    assert (schema.guid, schema.id, schema.subject) == (GLUE_ID, None, None)


def random_value(random: Random, depth: int = 0) -> Any:
    """Return a value of the types that both libraries write."""
    kind = random.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return [random_value(random, depth + 1) for _ in range(random.choice((0, 3, 20)))]
    if kind == 8:
        names = ("a", "b" * 40, "ü", str(depth))[: random.choice((0, 2, 4))]
        return {name: random_value(random, depth + 1) for name in names}
    return (
        None, random.random() < 0.5, random.randint(-(2**63), 2**64 - 1), random.randint(-200, 300), random.random(),
        "t" * random.choice((0, 5, 40, 300, 70_000)), bytes(random.choice((0, 5, 300))),
    )[kind]  # fmt: skip


@pytest.mark.parametrize(("name", "encode"), [("msgpack", msgpack.packb), ("cbor", cbor2.dumps)])
def test_what_the_libraries_write_is_decoded(name: str, encode: Callable[[Any], bytes]) -> None:
    """And no prefix of it: each ends within an item."""
    random = Random(5)
    decode = FieldDecoder("value", name).decode
    for _ in range(60):
        value = random_value(random)
        data = encode(value)
        found = decode("t", data)
        assert (found.error, found.value) == (None, json_value(value))
        for end in {0, 1, len(data) // 2, len(data) - 1} - {len(data)}:
            assert decode("t", data[:end]).error


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("msgpack", msgpack.packb(msgpack.Timestamp(1_700_000_000, 5)), "2023-11-14T22:13:20.000000005Z"),
        ("msgpack", msgpack.packb(msgpack.ExtType(5, b"ab")), {"type": 5, "data": "YWI="}),
        ("msgpack", msgpack.packb({1: "a", b"k": "b"}), {"1": "a", "aw==": "b"}),
        ("cbor", cbor2.dumps(datetime(2023, 11, 14, tzinfo=UTC)), "2023-11-14T00:00:00Z"),
        ("msgpack", b"\x81\x92\1\2\3", {"[1,2]": 3}),
        ("msgpack", b"\x82\xc3\1\1\x81\x81\1\2\3", {"true": 1, "1": {'{"1":2}': 3}}),
        ("cbor", b"\xa1\x82\1\2\xbf\xa1\1\2\3\xff", {"[1,2]": {'{"1":2}': 3}}),
        ("cbor", b"\x82\xa1\1\2\xa1\1\2", [{"1": 2}, {"1": 2}]),
        ("cbor", cbor2.dumps(Decimal("-1.25")), "-1.25"),
        ("cbor", cbor2.dumps(UUID(int=5)), str(UUID(int=5))),
        ("cbor", cbor2.dumps(2**70), 2**70),
        ("cbor", b"\xbf\x61a\x9f\x01\xff\xff", {"a": [1]}),  # lengths that are not stored
        ("cbor", b"\x84\xf7\xf6\xf5\xf4", [None, None, True, False]),  # the first is undefined
        ("cbor", b"\xd9\xd9\xf7\x01", 1),  # the mark of CBOR itself
    ],
)
def test_types_that_json_lacks(name: str, data: bytes, value: Any) -> None:
    """They are texts, as those of Avro."""
    found = FieldDecoder("value", name).decode("t", data)
    assert (found.value, found.error) == (value, None)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xc0\x78\x192013-03-21T22:04:00+02:00", "2013-03-21T20:04:00Z"),
        (b"\xc0\x742013-03-21t22:04:00z", "2013-03-21T22:04:00Z"),
        (b"\xc0\x78\x1e2013-03-21T22:04:00.123456789Z", "2013-03-21T22:04:00.123456789Z"),
        (b"\xd8\0\x78\x1b2013-03-21T01:04:00.5+02:30", "2013-03-20T22:34:00.5Z"),
        (b"\xc0\x742016-12-31T23:59:60Z", "2016-12-31T23:59:60Z"),
        (b"\xc0\x78\x199999-12-31T23:00:00-02:00", "9999-12-31T23:00:00-02:00"),
        (b"\xc1\x20", "1969-12-31T23:59:59Z"),
        (b"\xc1\x1b" + (253_402_300_799).to_bytes(8, "big"), "9999-12-31T23:59:59Z"),
        (b"\xc1\x1b" + (253_402_300_800).to_bytes(8, "big"), 253_402_300_800),
        (b"\xc1" + cbor2.dumps(1.5), "1970-01-01T00:00:01.500000Z"),
        (b"\xc1" + cbor2.dumps(1e300), 1e300),
        (b"\xc1" + cbor2.dumps(float("nan")), "NaN"),
        (b"\xd8\x64\x20", "1969-12-31"),
        (b"\xd8\x64\x1a\x7f\xff\xff\xff", 2**31 - 1),
        (b"\xd9\x03\xec\x6a2013-10-12", "2013-10-12"),
        (b"\xa1\xc1\1\xd9\xd9\xf7\xc1\2", {"1970-01-01T00:00:01Z": "1970-01-01T00:00:02Z"}),
    ],
)  # fmt: skip
def test_times_of_cbor_are_in_utc(data: bytes, text: object) -> None:
    """With all digits of their seconds. A time that Python's types cannot have is the stored one."""
    found = FieldDecoder("value", "cbor").decode("t", data)
    assert (found.value, found.error) == (text, None)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("msgpack", b"", "the value is cut after 0 bytes"),
        ("msgpack", b"\xc1", ""),
        ("msgpack", b"\1\1", "1 byte after the value"),
        ("msgpack", b"\x91" * 200 + b"\1", "nested deeper than 100 levels"),
        ("msgpack", b"\x82\1\1\xa11\2", "two entries of a map have the same name '1'"),
        ("msgpack", b"\x82\xa11\1\xa11\2", "two entries of a map have the same name '1'"),
        ("cbor", b"\xa2\1\1\x611\2", "two entries of a map have the same name '1'"),
        ("cbor", b"\xa2\1\1\xf5\2", "two entries of a map have the same name"),  # 1 and true are equal in Python
        ("cbor", b"\x81\xbf\x61a\1\x61a\1\xff", "two entries of a map have the same name"),
        ("cbor", b"\xa1\xa2\1\1\1\1\1", "two entries of a map have the same name"),
        ("cbor", b"\xff", "byte 0 is a break outside of a list or an object"),
        ("cbor", b"\x1f", "byte 0 is not CBOR"),
        ("cbor", b"\x81" * 200 + b"\1", "nested deeper than 100 levels"),
        ("cbor", b"\xc0\x61x", "a time is a text such as 2026-01-31T12:00:00Z, got 'x'"),
        ("cbor", b"\xc1\x61x", "a time is a number of seconds, got 'x'"),
        ("cbor", b"\xd8\x64\xf4", "a date is a number of days, got 'False'"),
        ("cbor", b"\xd9\x03\xec\x6a2013-13-12", "a date is a text such as 2026-01-31, got '2013-13-12'"),
        ("cbor", b"\xc6\1", "the tag 6 of CBOR is not decoded"),
        ("cbor", b"\xd8\x1d\0", "the tag 29 of CBOR is not decoded"),  # shares values
        *(
            ("cbor", data, f"the simple value {number} of CBOR is not decoded")
            for number, data in (
                (0, b"\xe0"),
                (16, b"\x82\xf0\x10"),
                (19, b"\xa1\xf3\1"),
                (32, b"\xf8\x20"),
                (255, b"\xf8\xff"),
            )
        ),
        ("cbor", b"\x81\xf8\x14", "byte 1 is not CBOR"),
        ("cbor", b"\xf8", "expected 2 bytes, got 1"),
        ("cbor", b"\xd8\x23\x61(", "the tag 35 of CBOR is not decoded"),  # a regular expression
        ("cbor", b"\xc2\x59\x10\0" + bytes(4096), "a number has more than 1,024 bytes"),
        ("cbor", b"\xc4\x82\x1b" + b"\x7f" * 8 + b"\1", ""),  # a decimal with a large exponent
    ],
)
def test_a_binary_value_that_does_not_decode_has_a_reason(name: str, data: bytes, reason: str) -> None:
    found = FieldDecoder("value", name).decode("t", data)
    assert found.error
    assert reason in found.error
    assert "\n" not in found.error


@pytest.mark.parametrize("name", ["msgpack", "cbor"])
def test_damaged_bytes_of_the_libraries_are_no_traceback(name: str) -> None:
    """Whatever the bytes are, there is a value or a reason."""
    random = Random(6)
    decode = FieldDecoder("value", name).decode
    for _ in range(2_000):
        found = decode("t", random.randbytes(random.randrange(40)))
        assert found.kind == name
        json.dumps(found.value)


@pytest.mark.parametrize(
    ("scale", "payload", "value"),
    [("-2", "/w==", "-100"), ("-3", "AA==", "0"), ("2", "/w==", "-0.01"), ("x", "/w==", "/w==")],
)
def test_decimals_of_connect_can_have_a_negative_scale(scale: str, payload: str, value: str) -> None:
    """A scale of java.math.BigDecimal that is negative is a number of zeros."""
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    data = json.dumps({"schema": schema, "payload": payload}).encode()
    assert FieldDecoder("value", "connect-json").decode("t", data).value == value


EVENT = {"before": None, "after": {"id": 1}, "source": {"db": "x"}, "op": "c", "ts_ms": 1}
CLOUD = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


@pytest.mark.parametrize(
    ("value", "inner"),
    [
        ({"schema": {"type": "struct"}, "payload": EVENT}, {"id": 1}),
        ({**EVENT, "op": "d", "before": {"id": 2}, "after": None}, {"id": 2}),
        ({**CLOUD, "data": {"id": 3}}, {"id": 3}),
        ({**CLOUD, "data_base64": "AA=="}, "AA=="),
        ({"schema": 1, "payload": 2, "more": 3}, {"schema": 1, "payload": 2, "more": 3}),
        ({"op": "c", "after": 1}, {"op": "c", "after": 1}),
        ([EVENT], [EVENT]),
        (None, None),
    ],
)
def test_envelopes_are_unwrapped(value: Any, inner: Any) -> None:
    """Other objects stay as they are."""
    assert unwrapped(value) == inner


@pytest.mark.slow
def test_unwrapped_values_are_shown_and_searched(tmp_path: Path) -> None:
    """In dump, grep, conditions and JSON paths; the stored bytes stay."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    home = tmp_path / "t-0"
    home.mkdir()
    values = [{**EVENT, "after": {"id": n}} for n in range(3)]
    records = [PlainRecord(n, None, json.dumps(value).encode(), START) for n, value in enumerate(values)]
    packed, headers = FORMATS["apicurio-headers"]
    names = [Header(key, bytes.fromhex(value)) for key, value in (one.split("=") for one in headers)]
    (home / f"{0:020d}.log").write_bytes(build_batch([*records, PlainRecord(3, None, packed, START, tuple(names))]))
    options = ("--value-as", "json", "--unwrap", "--format", "jsonl")
    shown = [json.loads(line) for line in kseg("dump", *options, home).stdout.splitlines()]
    assert [row["value_decoded"] for row in shown] == [{"id": 0}, {"id": 1}, {"id": 2}, None]
    assert json.loads(shown[1]["value"]) == values[1]
    for search in (("--where", "value.id = 2"), ("--json-path", "$.id=2")):
        (row,) = map(json.loads, kseg("grep", *options, *search, home).stdout.splitlines())
        assert row["offset"] == 2
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    schema = ("--schema-file", f"42={tmp_path / 'order.avsc'}", "--format", "jsonl")
    (row,) = map(json.loads, kseg("grep", *schema, "--where", "value.id = 4711", home).stdout.splitlines())
    assert (row["offset"], row["value_decoded"]) == (3, VALUE)
    done = kseg("dump", "--unwrap", home)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
