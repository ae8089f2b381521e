"""Keys and values decoded without a registry: plain deserializers, and Avro with a given schema."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from kseg.errors import UsageError
from kseg.extras.serialization.decoding import NAMES, NOT_DECODED, DecodedValue, FieldDecoder
from kseg.extras.serialization.schema_set import AVRO, JSON, MOST_BYTES, Reference, Schema, SchemaSet, guid_of

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string", "bytes"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}


def avro(schema: Any, value: Any) -> bytes:
    """Return the Avro bytes of a value, written by fastavro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def zigzag(number: int) -> bytes:
    """Return the bytes of an int or a long in Avro, without a limit of its bits."""
    left, out = (number << 1 if number >= 0 else (-number << 1) - 1), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def decode_avro(schema: Any, data: bytes) -> DecodedValue:
    """Return Avro bytes without a prefix, decoded with a schema."""
    return FieldDecoder("value", "avro", SchemaSet([Schema(AVRO, json.dumps(schema))])).decode("t", data)


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("string", "Zürich".encode(), "Zürich"),
        ("json", b'{"a":[1,2.5,null]}', {"a": [1, 2.5, None]}),
        ("int16", b"\xff\xfe", -2),
        ("int32", b"\0\0\1\0", 256),
        ("int64", b"\x80" + bytes(7), -(2**63)),
        ("float", b"\x3f\xc0\0\0", 1.5),
        ("double", b"\x7f\xf8" + bytes(6), "NaN"),
        ("double", b"\xff\xf0" + bytes(6), "-Infinity"),
        ("uuid", b"123E4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("hex", b"\0\xff", "00ff"),
        ("base64", b"\0\xff", "AP8="),
    ],
)
def test_plain_deserializers(name: str, data: bytes, value: Any) -> None:
    """The bytes are those of Kafka's serializers of the same types."""
    assert FieldDecoder("key", name).decode("t", data) == DecodedValue(name, value)
    assert FieldDecoder("key", name).decode("t", None) == NOT_DECODED


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("string", b"a\xff", "byte 1 is not UTF-8"),
        ("int32", b"\0\0\0", "expected 4 bytes, got 3"),
        ("uuid", b"abc", "expected a UUID as a text of 36 characters, got 3"),
        ("uuid", b"z" * 36, "badly formed hexadecimal UUID string"),
        ("json", b"{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        ("json", b'{"a":NaN}', "NaN is not JSON"),
        ("json", b"1e999", "the number 1e999 is too large"),
        ("json", b"[" * 100_000, "not JSON that can be read: it is nested too deeply"),
    ],
)
def test_a_value_that_does_not_decode_has_a_reason(name: str, data: bytes, reason: str) -> None:
    """Bytes of another type do not fail the program: the reason is one line."""
    assert FieldDecoder("value", name).decode("t", data) == DecodedValue(name, error=reason)


def test_unknown_names_are_rejected() -> None:
    """A wrong name has one clear line, with the near name."""
    with pytest.raises(UsageError, match="unknown deserializer 'int23': did you mean int32"):
        FieldDecoder("key", "int23")
    with pytest.raises(UsageError, match="unknown deserializer 'int32:x'"):
        FieldDecoder("key", "int32:x")
    assert all(FieldDecoder("key", name) for name in NAMES)


def test_avro_becomes_deterministic_json() -> None:
    """Decimals and times are exact texts, bytes are base64, NaN is a text: JSON lacks them."""
    value = {
        "id": 5,
        "at": 1_700_000_000_123_456,
        "note": b"\0\xff",
        "price": Decimal("-0.05"),
        "tags": {"x": float("nan"), "y": 2.0},
    }
    found = decode_avro(ORDER, avro(ORDER, value)).value
    assert found == {
        "id": 5,
        "at": "2023-11-14T22:13:20.123456Z",
        "note": "AP8=",
        "price": "-0.05",
        "tags": {"x": "NaN", "y": 2.0},
    }


@pytest.mark.parametrize(
    ("schema", "stored", "value"),
    [
        ({"type": "int", "logicalType": "date"}, 19_675, "2023-11-14"),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, 2**31 - 1),
        ({"type": "int", "logicalType": "time-millis"}, 3_661_001, "01:01:01.001"),
        ({"type": "long", "logicalType": "time-micros"}, 86_400_000_000, 86_400_000_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, "1969-12-31T23:59:59.999Z"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, 2**62),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1, "1970-01-01T00:00:00.000000001Z"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 0, "1970-01-01T00:00:00.000000"),
        ({"type": "long", "logicalType": "unknown"}, 7, 7),
        (
            {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
            bytes(16),
            f"{'0' * 8}-0000-0000-0000-{'0' * 12}",
        ),
        (
            {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"},
            b"\1\0\0\0\2\0\0\0\3\0\0\0",
            {"months": 1, "days": 2, "milliseconds": 3},
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}, b"\xff", "-1"),
    ],
)
def test_logical_types(schema: Any, stored: Any, value: Any) -> None:
    """A value outside of the range of dates stays the number that is stored."""
    plain = {name: schema[name] for name in schema if name != "logicalType"}
    assert decode_avro(schema, avro(plain, stored)) == DecodedValue("avro", value)


def test_ids_in_the_prefix_select_the_schema() -> None:
    """Magic 0 and four bytes, as Confluent's serializers write them; other bytes are left as they are."""
    source = SchemaSet([Schema(AVRO, '"string"', 7), Schema(JSON, "{}", 8)])
    decoder = FieldDecoder("value", "auto", source)
    assert decoder.decode("t", b"\0\0\0\0\7\6abc") == DecodedValue("avro", "abc", 7)
    assert decoder.decode("t", b'\0\0\0\0\x08{"a":1}') == DecodedValue("json-schema", {"a": 1}, 8)
    assert decoder.decode("t", b"\0\0\0\0\x09abcd") == DecodedValue(None, None, 9, "schema 9 is not known")
    assert decoder.decode("t", b"plain text") == NOT_DECODED
    assert decoder.decode("t", b"\0" * 8) == NOT_DECODED  # the int64 0
    assert decoder.decode("t", (1_700_000_000_000).to_bytes(8, "big")) == NOT_DECODED  # a time looks like an unknown id


def test_a_single_unnamed_schema_is_used_for_the_first_unknown_id() -> None:
    """Another id has another schema: its values are not decoded with the wrong one. Keys need a named type."""
    source = SchemaSet([Schema(AVRO, '"string"'), Schema(AVRO, '"int"', 8)])
    decoder = FieldDecoder("value", "auto", source)
    assert decoder.decode("t", b"\0\0\0\0\x08\6") == DecodedValue("avro", 3, 8)
    assert [decoder.decode("t", b"\0\0\0\0\7\6abc") for _ in range(2)] == [DecodedValue("avro", "abc", 7)] * 2
    hint = "schema 9 is not known: give --schema-file 9=FILE"
    assert decoder.decode("t", b"\0\0\0\0\x09\6abc") == DecodedValue(None, None, 9, hint)
    assert FieldDecoder("key", "auto", source).decode("t", b"\0\0\0\0\x09\6abc").error == hint
    two = FieldDecoder("value", "auto", SchemaSet([Schema(AVRO, '"string"'), Schema(AVRO, '"int"')]))
    assert two.decode("t", b"\0\0\0\0\x09\6abc").error == hint


def test_a_file_without_an_id_is_used_for_any_id() -> None:
    """A named type with one schema: values with an id that no source knows, and values without one."""
    decoder = FieldDecoder("value", "avro", SchemaSet([Schema(AVRO, '"string"')]))
    assert decoder.decode("t", b"\0\0\0\0\7\6abc") == DecodedValue("avro", "abc", 7)
    assert decoder.decode("t", b"\6abc") == DecodedValue("avro", "abc")
    decoder = FieldDecoder("value", "avro", SchemaSet([Schema(AVRO, json.dumps(NUMBERS))]))
    value = {**dict.fromkeys("abcde", 0), "e": 1, "f": 0}
    assert decoder.decode("t", b"\0\0\0\0\2\0") == DecodedValue("avro", value)
    two = FieldDecoder("value", "avro", SchemaSet([Schema(AVRO, '"string"'), Schema(AVRO, '"int"')]))
    assert two.decode("t", b"\6abc").error == "no schema id, and no schema of t-value"


NUMBERS = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in "abcdef"]}


@pytest.mark.parametrize("name", ["avro", "avro:t-value", "struct", "struct:t-value", "auto"])
def test_an_unknown_id_is_never_data(name: str) -> None:
    """A value is not decoded to a wrong one: its reason is the id, or why the bytes after it are not of the named schema."""
    decoder = FieldDecoder(
        "value", name, SchemaSet([Schema(AVRO, json.dumps(NUMBERS), 2, subject="t-value", version=1)])
    )
    found = decoder.decode("t", b"\0\0\0\0\x63\2")  # of another schema with the id 99, or six numbers
    assert (found.value, found.schema_id) == (None, 99)
    assert found.error == ("schema 99 is not known" if ":" not in name else "the value is longer than its 1 byte")


def test_a_named_schema_reads_unknown_ids() -> None:
    """The id of a row is the one in the bytes, also if a named schema with another id has read the value."""
    source = SchemaSet([Schema(AVRO, '"string"', 2, subject="t-value", version=1)])
    unknown = b"\0\0\0\0\x63\6abc"
    assert FieldDecoder("value", "avro:t-value", source).decode("t", unknown) == DecodedValue("avro", "abc", 99)
    for name in ("avro", "avro:t-value"):
        assert FieldDecoder("value", name, source).decode("t", b"\6abc") == DecodedValue("avro", "abc", 2)
    header = [("__value_schema_id", b"\0\0\0\0\x63")]
    assert FieldDecoder("value", "avro:t-value", source).decode("t", b"\6abc", header) == DecodedValue(
        "avro", "abc", 99
    )
    assert FieldDecoder("value", "avro", source).decode("t", b"\6abc", header).error == "schema 99 is not known"


@pytest.mark.parametrize("name", ["avro", "avro:t-value"])
def test_a_value_without_an_id_can_begin_like_one(name: str) -> None:
    """The first number is 0, as the null of a union is. No registry has counted to the id that the next bytes would be."""
    decoder = FieldDecoder(
        "value", name, SchemaSet([Schema(AVRO, json.dumps(NUMBERS), 2, subject="t-value", version=1)])
    )
    value = {"a": 0, "b": 3, "c": 0, "d": 0, "e": 0, "f": 0}
    assert decoder.decode("t", avro(NUMBERS, value)) == DecodedValue("avro", value, 2)


def test_eight_bytes_with_an_unknown_id() -> None:
    """They are a number, unless the subject of the topic is known: its values have ids, and ``kseg schemas`` counts them."""
    data = b"\0\0\0\0\x63abc"
    known = FieldDecoder("value", "auto", SchemaSet([Schema(AVRO, '"string"', 2, subject="t-value", version=1)]))
    assert known.decode("t", data).error == "schema 99 is not known"
    assert known.decode("other", data) == NOT_DECODED
    assert known.decode(None, data) == NOT_DECODED


def test_guids_in_headers_select_the_schema() -> None:
    """Newer serializers put magic 1 and a GUID into a header; the value then lacks a prefix."""
    guid = guid_of('"string"', ())
    source = SchemaSet([Schema(AVRO, '"string"', 7, guid=guid)])
    header = b"\1" + bytes.fromhex(guid.replace("-", ""))
    value = FieldDecoder("value", "auto", source)
    assert value.decode("t", b"\6abc", [(b"other", None), (b"__value_schema_id", header)]) == DecodedValue(
        "avro", "abc", 7
    )
    assert value.decode("t", b"\6abc", [("__key_schema_id", header)]) == NOT_DECODED
    key = FieldDecoder("key", "auto", source)
    assert key.decode("t", b"\6abc", [("__key_schema_id", header)]) == DecodedValue("avro", "abc", 7)
    assert "is not known" in str(key.decode("t", b"x", [("__key_schema_id", b"\1" * 17)]).error)


@pytest.mark.parametrize("name", ["__value_schema_id", "apicurio.value.globalId", "apicurio.value.contentId"])
def test_the_last_header_has_the_schema_id(name: str) -> None:
    """As in consumers, which would decode the value with the first one to another one. A malformed id is a reason."""
    source = SchemaSet([Schema(AVRO, '"string"', 7), Schema(AVRO, '"bytes"', 8)])
    start = b"\0" if name.startswith("__") else b""
    string, other = ((name, start + number.to_bytes(4, "big")) for number in (7, 8))
    read = FieldDecoder("value", "auto", source).decode
    assert read("t", b"\6abc", [other, ("a", b""), string]) == DecodedValue("avro", "abc", 7)
    assert read("t", b"\6abc", [string, other]) == DecodedValue("avro", "BmFiYw==", 8)
    assert read("t", b"\0\0\0\0\x07\6abc", [other, (name, None)]) == DecodedValue("avro", "abc", 7)
    for malformed in (b"", b"\0\0", b"\xc3\x01" + bytes(8), b"\0" * 17):
        for kind in ("auto", "avro"):
            found = FieldDecoder("value", kind, source).decode("t", b"\0\0\0\0\x07\6abc", [string, (name, malformed)])
            assert found == DecodedValue(None, error="the header has no valid schema id")
    only = FieldDecoder("value", "avro", SchemaSet([Schema(AVRO, '"string"')]))  # of a file: for values with any id
    assert only.decode("t", b"\6abc", [(name, b"\0\0")]).value == "abc"


def test_single_object_encoding() -> None:
    """C3 01 and the fingerprint of the schema."""
    schema = fastavro.schema.to_parsing_canonical_form(ORDER)
    mark = b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(schema, "CRC-64-AVRO"))
    source = SchemaSet([Schema(AVRO, json.dumps(ORDER), 1), Schema(AVRO, '"string"', 2)])
    value: dict[str, Any] = {"id": 1, "at": 0, "note": None, "price": Decimal(1), "tags": {}}
    found = FieldDecoder("value", "auto", source).decode("t", mark + avro(ORDER, value))
    assert found.error is None
    assert found.value["id"] == 1


def test_references_are_resolved() -> None:
    """A schema can use named types of other subjects, and these of others; a circle ends with a reason."""
    inner = {"type": "record", "name": "Inner", "namespace": "a", "fields": [{"name": "n", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "a.Inner"}]}
    to_inner = (Reference("a.Inner", "inner", 1),)
    source = SchemaSet([
        Schema(AVRO, json.dumps(inner), 1, subject="inner", version=1),
        Schema(AVRO, json.dumps(outer), 2, subject="outer", version=1, references=to_inner),
        Schema(AVRO, '"a.Inner"', 3, subject="top", version=1, references=to_inner),
        Schema(AVRO, '"a.Inner"', 4, subject="gone", version=1, references=(Reference("a.Inner", "inner", 9),)),
        Schema(AVRO, '"x"', 5, subject="circle", version=1, references=(Reference("x", "circle", 1),)),
    ])  # fmt: skip
    decoder = FieldDecoder("value", "auto", source)
    assert decoder.decode("t", b"\0\0\0\0\2\4").value == {"inner": {"n": 2}}
    assert decoder.decode("t", b"\0\0\0\0\3\4").value == {"n": 2}
    assert (
        decoder.decode("t", b"\0\0\0\0\4\4").error
        == "schema 4 refers to 'a.Inner', and version 9 of inner is not known"
    )
    assert decoder.decode("t", b"\0\0\0\0\5\4").error == "schema 5: its references form a circle at 'x'"


def test_the_schema_of_the_subjects_context_is_preferred() -> None:
    """Ids are unique in a context only."""
    source = SchemaSet([
        Schema(AVRO, '"int"', 7, subject=":.test:orders-value"),
        Schema(AVRO, '"string"', 7, subject="others-value"),
    ])  # fmt: skip
    decoder = FieldDecoder("value", "auto", source)
    assert decoder.decode("orders", b"\0\0\0\0\7\2").value == 1
    assert decoder.decode("elsewhere", b"\0\0\0\0\7\2a").value == "a"


def nested(levels: int) -> Any:
    """Return a schema of arrays in arrays."""
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def doubling(levels: int) -> Any:
    """Return a schema whose values are empty, and 2 to the power of ``levels`` fields."""
    schema: Any = "null"
    for level in range(levels):
        again = f"r{level - 1}" if level else "null"
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": again}]
        schema = {"type": "record", "name": f"r{level}", "fields": fields}
    return schema


LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("string", b"\xfe\xff\xff\xff\x0fabc", "the value is longer than its 8 bytes"),
        ("string", b"\6abcd", "1 byte after the value"),
        ("string", b"\2\xff", "not a value of the schema"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\2", "longer than its 10 bytes"),
        (
            {"type": "array", "items": "null"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
            "an array of items without bytes",
        ),
        (["null", "int"], b"\x08", "no union branch or enum symbol with the number 4"),
        (["null", "int"], b"\x01\x08", "no union branch or enum symbol with the number -1"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x08", "or enum symbol with the number 4"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x01", "or enum symbol with the number -1"),
        (LIST, b"\2\1", "no union branch or enum symbol with the number -1"),
        ("boolean", b"\2", "a boolean is 0 or 1, got 2"),
        ("boolean", b"", "longer than its 0 bytes"),
        ("int", zigzag(2**31), "the int 2147483648 has more than 32 bits"),
        ({"type": "int", "logicalType": "date"}, zigzag(-(2**31) - 1), "the int -2147483649 has more than 32 bits"),
        ("int", b"\x82\x80\x80\x80\x80\x00", "a number (int) has more than 5 bytes"),
        (["null", "int"], b"\x82\x80\x80\x80\x80\x00\x00", "a number (int) has more than 5 bytes"),
        ("long", b"\xff" * 9 + b"\x7f", "has more than 64 bits"),
        ("long", b"\x80" * 10 + b"\0", "a number (long) has more than 10 bytes"),
        ("long", b"\x80", "longer than its 1 byte"),
        ("string", b"\1", "the length -1 of a text or of bytes is negative"),
        ({"type": "map", "values": "long"}, b"\2\1\2\0", "the length -1 of a text or of bytes is negative"),
        ({"type": "array", "items": "long"}, b"\xff" * 9 + b"\1\0\0", "longer than its 12 bytes"),
        (LIST, b"\2" * 1_000_000 + b"\0", "the value is nested too deeply"),
        ({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}, b"", "nested too deeply"),
        (nested(250), b"\0", "nested deeper than 200 levels"),
        (doubling(40), b"", "a record with"),
        ({"type": "record", "name": "x"}, b"", "a record without valid fields"),
        ({"type": "enum", "name": "x"}, b"", "not a valid Avro schema"),
        ("absent", b"", "not a valid Avro schema: UnknownType: absent"),
        ({"type": "a\nb" * 1000}, b"", "not a valid Avro schema: UnknownType: a ba b"),
        ({}, b"", "has a type that is not a name"),
        ("string", bytes(MOST_BYTES + 1), "larger than 16,777,216 bytes"),
    ],
)
def test_hostile_avro_ends_with_a_reason(schema: Any, data: bytes, reason: str) -> None:
    """No schema and no value can crash the process, take all memory or take forever."""
    found = decode_avro(schema, data)
    assert reason in str(found.error)
    assert found.value is None


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("long", b"\x82\x80\x80\x80\x80\x80\x80\0", 1),
        ("long", zigzag(-(2**63)), -(2**63)),
        ("long", zigzag(2**63 - 1), 2**63 - 1),
        ("int", zigzag(-(2**31)), -(2**31)),
        ("int", b"\x82\x80\x80\x80\0", 1),
        ({"type": "array", "items": "boolean"}, b"\3\4\1\0\0", [True, False]),
        ({"type": "map", "values": "int"}, b"\1\6\2k\2\0", {"k": 1}),
        ("string", zigzag(24) + "\u4e2d\u6587".encode() * 4, "\u4e2d\u6587" * 4),
        ("string", zigzag(7) + b"a" + "\u4040".encode() * 2, "a" + "\u4040" * 2),
        (["null", {"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["A"]}}], b"\2\2\0\0", ["A"]),
    ],
)
def test_unusual_avro_is_decoded_as_java_does(schema: Any, data: bytes, value: Any) -> None:
    """Zeros after a number, negative numbers of items with a size after them, and texts that look like long numbers."""
    assert decode_avro(schema, data) == DecodedValue("avro", value)
