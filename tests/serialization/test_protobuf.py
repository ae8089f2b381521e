"""Protobuf values: schemas as text, as base64 and as descriptor sets, and data that nobody has checked."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory

from kseg.extras.serialization.decoding import DecodedValue, FieldDecoder
from kseg.extras.serialization.protobuf import KNOWN_IMPORTS, ProtobufSchema, compile_proto
from kseg.extras.serialization.schema_set import PROTOBUF, Reference, Schema, SchemaSet
from kseg.extras.serialization.schema_sources import schemas_of_file

TEXT = """
syntax = "proto3";
package a.b;
import "confluent/meta.proto";
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message First {
  int32 x = 1;
  First first = 2;
  google.protobuf.Any any = 3;
  google.protobuf.Struct struct = 4;
  repeated int32 list = 5;
  optional float f = 6 [(confluent.field_meta).doc = "a note"];
  google.protobuf.Int64Value long = 7;
  message Inner { string y = 1; }
  optional string text = 8;
}
message Second { bool z = 1; }
"""
PREFIX = b"\0\0\0\0\5"
DEFAULTS = {"x": 0, "list": []}


def decode(data: bytes, text: str = TEXT, *others: Schema, as_: str = "auto", **more: Any) -> DecodedValue:
    """Return bytes decoded with a schema of id 5."""
    schema = Schema(PROTOBUF, text, 5, subject="t-value", version=1, **more)
    return FieldDecoder("value", as_, SchemaSet([schema, *others])).decode("t", data)


def length(data: bytes) -> bytes:
    """Return bytes with their length before them, as a field has them."""
    size, out = len(data), bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size]) + data


@pytest.mark.parametrize(
    ("indexes", "payload", "value"),
    [
        (b"\0", b"\x08\x05", {**DEFAULTS, "x": 5}),
        (b"\2\0", b"\x08\x05", {**DEFAULTS, "x": 5}),
        (b"\2\2", b"\x08\1", {"z": True}),
        (b"\4\0\0", b"\x0a\1y", {"y": "y"}),
        (b"\0", b"\x35\0\0\xc0\x7f", {**DEFAULTS, "f": "NaN"}),
        (b"\0", b"\x3a\2\x08\7", {**DEFAULTS, "long": "7"}),
    ],
)
def test_message_indexes_and_types(indexes: bytes, payload: bytes, value: Any) -> None:
    """The path of indexes is a list of zigzag numbers; 0 is short for the first message."""
    assert decode(PREFIX + indexes + payload) == DecodedValue("protobuf", value, 5)


MAPS = """syntax = "proto3"; package p; message Other { int32 z = 1; }
message Ev { map<string, int64> m = 1; message A { string a = 1; } %s
  message B { string b = 1; map<int32, A> as = 2; } B by_id = 2; }"""
#: The same entry as Java's client writes it into the text of a class.
ENTRY = (
    "repeated .p.Ev.MoreEntry more = 3; message MoreEntry { option map_entry = true; string key = 1; int64 value = 2; }"
)


def test_message_indexes_count_the_messages_of_the_text() -> None:
    """A value is decoded as the message that Confluent's Java client takes it for: a map is not a message of the text."""
    map_ = MAPS % "map<string, int64> more = 3;"
    assert decode(PREFIX + b"\4\2\0" + b"\x0a\1x", map_).value == {"a": "x"}
    assert decode(PREFIX + b"\4\2\2" + b"\x0a\1x", map_).value == {"b": "x", "as": {}}
    assert "no message with the indexes [1, 2]" in str(decode(PREFIX + b"\4\2\4" + b"\x0a\1x", map_).error)
    entry = MAPS % ENTRY
    assert decode(PREFIX + b"\4\2\0" + b"\x0a\1x", entry).value == {"a": "x"}
    assert decode(PREFIX + b"\4\2\4" + b"\x0a\1x", entry).value == {"b": "x", "as": {}}
    for text in (map_, entry):
        assert decode(PREFIX + b"\2\2" + b"\x1a\5\x0a\1k\x10\7", text).value == {"m": {}, "more": {"k": "7"}}


def test_message_indexes_count_the_entries_of_descriptors() -> None:
    """Clients that register descriptors, such as Python's and Go's, count all messages in them."""
    compiled = descriptor_pb2.FileDescriptorSet.FromString(
        compile_proto("t", MAPS % "map<string, int64> more = 3;")
    ).file[-1]
    text = base64.b64encode(compiled.SerializeToString()).decode()
    assert [one.name for one in compiled.message_type[1].nested_type] == ["MEntry", "A", "MoreEntry", "B"]
    assert decode(PREFIX + b"\4\2\2" + b"\x0a\1x", text).value == {"a": "x"}
    assert decode(PREFIX + b"\4\2\6" + b"\x0a\1x", text).value == {"b": "x", "as": {}}


def test_messages_without_a_schema_id() -> None:
    """The first message of the file, or a message that is named."""
    assert decode(b"\x08\5", as_="protobuf").value == {**DEFAULTS, "x": 5}
    assert decode(b"\x08\1", as_="protobuf:a.b.Second").value == {"z": True}
    assert decode(PREFIX + b"\2\2\x08\1", as_="protobuf:a.b.Second").value == {"z": True}
    other_id = b"\0\0\0\0\x09"
    assert decode(other_id + b"\0\x08\1", as_="protobuf:a.b.Second").value == {"z": True}
    assert decode(other_id + b"\2\2\x08\1", as_="protobuf").error == "schema 9 is not known"
    unnamed = FieldDecoder("value", "protobuf", SchemaSet([Schema(PROTOBUF, TEXT)]))
    assert unnamed.decode("t", other_id + b"\2\2\x08\1") == DecodedValue("protobuf", {"z": True}, 9)
    assert decode(PREFIX + b"\0\x08\5", as_="protobuf:a.b.Third").value == {**DEFAULTS, "x": 5}
    assert "has no message 'a.b.Third'" in str(decode(b"\x08\1", as_="protobuf:a.b.Third").error)


def test_schemas_in_base64_are_read() -> None:
    """Clients other than Java's register a file's descriptor, and its imports by reference."""
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(name="a", number=1, type=5, label=1)
    other = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3", dependency=["x.proto"])
    other.dependency.append("google/protobuf/timestamp.proto")
    fields = other.message_type.add(name="N").field
    fields.add(name="m", number=1, type=11, type_name=".M", label=1)
    fields.add(name="t", number=2, type=11, type_name=".google.protobuf.Timestamp", label=1)
    texts = [base64.b64encode(one.SerializeToString()).decode() for one in (file, other)]
    assert decode(PREFIX + b"\0\x08\7", texts[0]).value == {"a": 7}
    imported = Schema(PROTOBUF, texts[0], 6, subject="x", version=1)
    found = decode(
        PREFIX + b"\0\x0a\2\x08\7\x12\2\x08\5", texts[1], imported, references=(Reference("x.proto", "x", 1),)
    )
    assert found.value == {"m": {"a": 7}, "t": "1970-01-01T00:00:05Z"}


def test_schema_files(tmp_path: Path) -> None:
    """A ``.proto`` file with its imports next to it, also in a circle, and what protoc compiled from it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.proto").write_text('syntax="proto3";\nimport "sub/b.proto";\nmessage A { B b = 1; }')
    (tmp_path / "sub" / "b.proto").write_text('syntax="proto3";\nmessage B { int32 n = 1; }')
    arguments = [f"-I{tmp_path}", "--include_imports", f"--descriptor_set_out={tmp_path / 'a.desc'}", "a.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True, cwd=tmp_path)
    for given in (f"7={tmp_path / 'a.proto'}", f"7={tmp_path / 'a.desc'}"):
        decoder = FieldDecoder("value", "auto", SchemaSet(schemas_of_file(given)))
        assert decoder.decode("t", b"\0\0\0\0\7\0\x0a\2\x08\5").value == {"b": {"n": 5}}
    (tmp_path / "sub" / "b.proto").write_text('syntax="proto3";\nimport "a.proto";\nmessage B { int32 n = 1; }')
    (tmp_path / "sub" / "a.proto").write_text('syntax="proto3";\nimport "sub/b.proto";\nmessage A { B b = 1; }')
    found = FieldDecoder("value", "auto", SchemaSet(schemas_of_file(given.replace(".desc", ".proto"))))
    assert found.decode("t", b"\0\0\0\0\7\0").error


def deep(levels: int) -> bytes:
    """Return a message in itself."""
    data = b""
    for _ in range(levels):
        data = b"\x12" + length(data)
    return data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the message indexes are cut or too long"),
        (b"\xff" * 9, "the message indexes are cut or too long"),
        (b"\xfe\x7f", "the list of message indexes has 8,191 entries"),
        (b"\2\x08", "schema 5 has no message with the indexes [4]"),
        (b"\2\1", "schema 5 has no message with the indexes [-1]"),
        (b"\0" + deep(1000), "not a message a.b.First"),
        (b"\0\x2a\xff\xff\xff\xff\7", "not a message a.b.First"),
        (b"\0\x42\1\xff", "not a message a.b.First"),
    ],
)
def test_hostile_messages_end_with_a_reason(data: bytes, reason: str) -> None:
    """Cut, too deep, or too long."""
    found = decode(PREFIX + data)
    assert reason in str(found.error)
    assert found.value is None


@pytest.mark.parametrize(
    ("text", "references", "reason"),
    [
        ("message {", (), "schema 5 is not valid Protobuf: line 1:9: Expected message name"),
        ('syntax = "proto3"; import "no.proto";', (), "no.proto: File not found"),
        ('syntax = "proto3"; import "/etc/passwd";', (), "is not valid Protobuf"),
        (TEXT, (Reference("../../x.proto", "r", 1),), "'../../x.proto', which is not a relative path"),
        (TEXT, (Reference("/tmp/x.proto", "r", 1),), "'/tmp/x.proto', which is not a relative path"),
        (TEXT, (Reference("x", "r", 1), Reference("x/y.proto", "r", 1)), "imports 'x/y.proto': "),
        ("message A {" * 3000, (), "is not valid Protobuf"),
    ],
)
def test_hostile_schemas_end_with_a_reason(text: str, references: tuple[Reference, ...], reason: str) -> None:
    """They are compiled in another process, and write no file outside of its folder."""
    other = Schema(PROTOBUF, "", 6, subject="r", version=1)
    assert reason in str(decode(PREFIX + b"\0", text, other, references=references).error)


@pytest.mark.parametrize("marked", [True, False])
def test_maps_of_descriptors_without_their_option(marked: bool) -> None:
    """Some writers leave out ``map_entry``: a search for a key of the map would not find it in a list of entries."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3", package="p")
    message = file.message_type.add(name="M")
    names = [("attr_by_name", "AttrByNameEntry"), ("items", "Item"), ("plainEntry", "PlainEntryEntry")]
    for number, (name, entry) in enumerate(names, 1):
        message.field.add(name=name, number=number, label=3, type=11, type_name=f".p.M.{entry}")
        nested = message.nested_type.add(name=entry)
        nested.field.add(name="key", number=1, label=1, type=1 if name == "plainEntry" else 9)
        nested.field.add(name="value", number=2, label=1, type=5)
    message.nested_type[0].options.map_entry = marked
    data = bytes.fromhex("0a050a016110010a050a016210021205" + "0a01611001")
    schema = Schema(PROTOBUF, "", 1, descriptors=descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    assert ProtobufSchema(schema, ()).decoder("p.M")(data) == {
        "attr_by_name": {"a": 1, "b": 2}, "items": [{"key": "a", "value": 1}], "plainEntry": []
    }  # fmt: skip


WITH_MAPS = """
syntax = "proto2";
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
message Maps {
  map<string, Maps> texts = 1; map<sint32, int64> numbers = 2; map<bool, string> flags = 3; repeated Maps more = 4;
  optional Maps one = 5; optional google.protobuf.Struct free = 6; optional google.protobuf.Any any = 7;
  map<fixed64, double> doubles = 8;
  extensions 100 to 200;
}
extend Maps { optional Maps added = 100; }
"""


def test_the_entries_of_maps_are_sorted() -> None:
    """At every depth: protobuf has them in another order in each process, and outputs would differ from run to run."""
    schema = ProtobufSchema(Schema(PROTOBUF, WITH_MAPS, 5), [])
    maps = message_factory.GetMessageClass(schema.descriptor("Maps"))
    texts, numbers = [f"k{n}" for n in range(12)], [*range(-20, 0), *range(5, 120, 7)]

    def filled(depth: int, infinite: float) -> Any:
        """Return a message; JSON cannot have an infinite number in a Struct."""
        message = maps(numbers=dict.fromkeys(numbers[::-1], 1), flags={True: "a", False: "b"})
        message.doubles.update(dict.fromkeys((100, 20, 3), 1.5))
        message.free.update({text: {"b": [{"d": 1, "c": 2}], "a": infinite} for text in texts})
        for text in reversed(texts):
            message.texts[text].numbers[1] = 1
        if depth:
            inner = filled(depth - 1, infinite)
            message.more.append(inner)
            message.one.CopyFrom(inner)
            message.texts["k3"].CopyFrom(inner)
            message.any.Pack(inner)
            (added,) = schema.descriptor("Maps").file.extensions_by_name.values()
            message.Extensions[added].CopyFrom(inner)
        return message

    for infinite in (1.5, float("inf")):
        found = schema.decoder("Maps")(filled(2, infinite).SerializeToString())
        for shown in (found, found["one"], found["more"][0]["texts"]["k3"]):
            assert list(shown["texts"]) == sorted(texts)
            assert [list(shown[name]) for name in ("numbers", "flags", "doubles")] == [
                list(map(str, numbers)), ["false", "true"], ["3", "20", "100"]
            ]  # fmt: skip
        for shown in (found["any"], found["[added]"], found["one"]["free"]):
            assert json.dumps(shown) == json.dumps(shown, sort_keys=True)


ALL = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; SOME = 1; }
message All {
  int64 long = 1; bytes data = 2; Kind kind = 3; repeated uint64 list = 4; map<bool, int64> flags = 5; double real = 6;
  map<string, All> inner = 7; repeated All more = 8; All one = 9; optional string text = 10; int32 absent = 11;
  google.protobuf.Timestamp at = 12; google.protobuf.Duration time = 13; google.protobuf.Any any = 14;
  google.protobuf.Value value = 15; repeated google.protobuf.Timestamp times = 16;
}
"""
WITHOUT_JSON = {
    "at": (b"\x62" + length(b"\x08\x80\xdc\xdd\x96\xb0\x07"), {"seconds": 253450743296}),
    "time": (b"\x6a" + length(b"\x10\x80\x94\xeb\xdc\x03"), {"nanos": 1_000_000_000}),
    "any": (b"\x72" + length(b"\x0a\3x/y\x12\2\0\xff"), {"type_url": "x/y", "value": "AP8="}),
    "value": (b"\x7a" + length(b"\x11" + bytes.fromhex("000000000000f87f")), {"number_value": "NaN"}),
    "times": (
        b"\x82\1" + length(b"\x08\5") + b"\x82\1" + length(b"\x10\x80\x94\xeb\xdc\x03"),
        ["1970-01-01T00:00:05Z", {"nanos": 1_000_000_000}],
    ),
}


@pytest.mark.parametrize("name", WITHOUT_JSON)
def test_a_field_that_json_cannot_have_does_not_hide_the_others(name: str) -> None:
    """Its own fields have the stored values; all other fields are as in a message without it, at every depth."""
    plain = bytes.fromhex("0887f8ffffffffffffff01 1202fffe 1801 2203010203 2a040801100a 31000000000000f87f 5201 78")
    data, shown = WITHOUT_JSON[name]
    inside = plain + data
    nested = b"\x3a" + length(b"\x0a\1k\x12" + length(inside)) + b"\x42" + length(inside) + b"\x4a" + length(inside)
    whole, found = decode(PREFIX + b"\0" + plain, ALL).value, decode(PREFIX + b"\0" + inside + nested, ALL).value
    of_inside = {**whole, name: shown}
    assert found == {**of_inside, "inner": {"k": of_inside}, "more": [of_inside], "one": of_inside}
    assert whole == {
        "long": "-1017", "data": "//4=", "kind": "SOME", "list": ["1", "2", "3"], "flags": {"true": "10"}, "real": "NaN",
        "text": "x", "absent": 0, "inner": {}, "more": [], "times": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"\x08" + b"\xff" * 10 + b"\1", b"\x12" + b"\xff" * 9 + b"\1abc", b"\x12\xff\xff\xff\xff\x0fabc", b"\0\1", b"\x0e\1",
        b"\x08\x80", b"\x0c",
    ],
    ids=["varint of 11 bytes", "negative length", "long length", "field 0", "wire type 6", "cut", "end of a group"],
)  # fmt: skip
def test_malformed_messages_have_a_reason(data: bytes) -> None:
    """protobuf rejects them, as Java's parser does. It keeps enum values without a name as numbers."""
    text = 'syntax = "proto3"; enum E { A = 0; } message M { int64 i = 1; string s = 2; E e = 3; }'
    decoder = FieldDecoder("value", "auto", SchemaSet([Schema(PROTOBUF, text, 1)]))
    found = decoder.decode("t", b"\0\0\0\0\1\0" + data)
    assert (found.value, str(found.error)[:15]) == (None, "not a message M")
    unnamed = decoder.decode("t", b"\0\0\0\0\1\0\x18" + b"\xff" * 9 + b"\1")
    assert unnamed.value == {"i": "0", "s": "", "e": -1}


TYPED = """syntax = "proto3"; package p; import "google/type/date.proto"; import "google/type/datetime.proto";
import "google/type/dayofweek.proto"; import "google/protobuf/wrappers.proto"; import "confluent/type/decimal.proto";
message M { google.type.Date day = 1; google.type.DateTime at = 2; google.type.DayOfWeek name = 3;
google.protobuf.Int32Value n = 4; confluent.type.Decimal d = 5; }"""


@pytest.mark.parametrize("is_compiled", [False, True])
def test_types_of_google_need_no_reference(is_compiled: bool) -> None:
    """Confluent's registry knows them. Its Java client registers texts, the others compiled files, without these imports."""
    text = TYPED
    if is_compiled:
        files = descriptor_pb2.FileDescriptorSet.FromString(compile_proto("x", TYPED))
        text = base64.b64encode(files.file[-1].SerializeToString()).decode()
    decoder = FieldDecoder("value", "auto", SchemaSet([Schema(PROTOBUF, text, 1)]))
    day = b"\x08\xe8\x0f\x10\x02\x18\x1d"
    found = decoder.decode(
        "t", b"\0\0\0\0\1\0\x0a\x07" + day + b"\x12\x0b" + day + b"\x42\x02\x08\x3c\x18\3\x22\2\x08\7"
    )
    assert found.error is None
    assert found.value["day"] == {"year": 2024, "month": 2, "day": 29}
    assert found.value["at"]["utc_offset"] == "60s"
    assert (found.value["name"], found.value["n"]) == ("WEDNESDAY", 7)


def test_the_types_of_google_are_those_of_googleapis() -> None:
    """The names, numbers and types of all fields and symbols."""
    package = pytest.importorskip("google.type", reason="googleapis-common-protos is not installed")
    names = {f"google/type/{path.stem}.proto" for path in Path(package.__path__[0]).glob("*.proto")}
    assert names == {name for name in KNOWN_IMPORTS if name.startswith("google/type/")}
    text = "".join(f'import "{name}";' for name in sorted(names))
    compiled = descriptor_pb2.FileDescriptorSet.FromString(compile_proto("x", f'syntax = "proto3"; {text}'))
    for file in compiled.file:
        if file.name in names:
            module = import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2")
            wanted = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(wanted)
            both = [re.sub(" *json_name: .*\n", "", f"{one.message_type}{one.enum_type}") for one in (file, wanted)]
            assert both[0] == both[1]
