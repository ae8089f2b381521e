"""Protobuf messages as JSON values, in Protobuf's own JSON mapping with the names of the ``.proto`` file.

Schemas come as text, which a protoc process compiles, or as compiled descriptors. protoc is a separate process: a hostile
text can take long, or can end it.

Schemas import the ``.proto`` files that Confluent's registry knows without a reference. Sources: ``ProtobufSchema`` of that
registry, and ``google/type`` of googleapis, whose names and numbers these are.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from kseg.engine import without_pip
from kseg.errors import UsageError
from kseg.extras.serialization.libraries import descriptor_pb2, descriptor_pool, message_factory
from kseg.extras.serialization.protobuf_values import Decode, decoder_of
from kseg.extras.serialization.schema_set import Schema, SchemaError, one_line

_TIMEOUT = 30
_ROOT = "kseg_schema.proto"
_MOST_BYTES = 16 << 20
#: The option of the entries of maps: Java's client writes it into the texts that it makes of classes, and protoc rejects it.
#: ``_mark_maps`` sets it again.
_MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
#: Warnings on stderr, of protoc's own libraries.
_NOTE = re.compile(r"WARNING|[IW]\d{4} ")


@lru_cache(maxsize=8)
def compile_proto(label: str, text: str, imported: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the FileDescriptorSet of a ``.proto`` text, with its imports first.

    ``imported`` has the names and texts of imports. Raises SchemaError if the text is not valid, and UsageError if there is
    no protoc.
    """
    command = _protoc()
    with tempfile.TemporaryDirectory(prefix="kseg-") as folder:
        source = Path(folder) / "source"
        for name, content in {**KNOWN_IMPORTS, **dict(imported), _ROOT: text}.items():
            _write(label, source, name, content)
        result = Path(folder) / "result"
        arguments = [f"-I{source}", f"--descriptor_set_out={result}", "--include_imports", _ROOT]
        try:
            done = subprocess.run(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=_TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SchemaError(f"{label}: protoc did not finish within {_TIMEOUT} s") from None
        if done.returncode or not result.is_file():
            raise SchemaError(f"{label} is not valid Protobuf: {_reason(done.stderr, done.returncode)}")
        if result.stat().st_size > _MOST_BYTES:
            raise SchemaError(f"{label}: its descriptors are larger than {_MOST_BYTES:,} bytes")
        return result.read_bytes()


def _protoc() -> list[str]:
    if importlib.util.find_spec("grpc_tools"):
        return [sys.executable, "-P", "-m", "grpc_tools.protoc"]  # -P: no modules from the current folder
    if found := shutil.which("protoc"):
        return [found]
    raise UsageError(
        without_pip("Protobuf schemas as text need protoc: pip install 'kseg[protobuf]', which has grpcio-tools")
    )


def _write(label: str, folder: Path, name: str, text: str) -> None:
    """Write a file of an import; a name that leads out of the folder is rejected."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name or len(name) > 1000:
        raise SchemaError(f"{label} imports {name!r}, which is not a relative path")
    if parts[:2] == ("google", "protobuf"):
        return  # protoc has its own
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_MAP_ENTRY.sub("", text), encoding="utf-8", errors="replace")
    except OSError as error:
        raise SchemaError(f"{label} imports {name!r}: {error.strerror}") from None


def _reason(messages: bytes, code: int) -> str:
    """Return the first error of protoc, without the folder of the files and without the notes of its libraries."""
    lines = messages.decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if ": " in line and not _NOTE.match(line)]
    if code < 0 or not errors:
        return f"protoc ended with {code}"
    return re.sub(rf"\S*{re.escape(_ROOT)}:", "line ", errors[0]).strip()[:200]


#: The files of Protobuf's well-known types, and the modules that have them.
_WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
}
#: The types of keys of maps, as numbers of ``FieldDescriptorProto.Type``: integers, bool and string.
_KEY_TYPES = {3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18}


#: A message: its indexes in the file, its name, or its number.
_Message = tuple[int, ...] | str | int


class ProtobufSchema:
    """The messages of a compiled schema. Raises SchemaError if the schema cannot be used, UsageError without protobuf."""

    def __init__(self, schema: Schema, references: Iterable[tuple[str, Schema]]) -> None:
        self._label = schema.label
        files, of_text = _descriptors(schema, references)
        if not files.file:
            raise SchemaError(f"{schema.label} has no Protobuf file")
        self._root = files.file[-1]
        self._messages = _indexed(self._root.message_type, of_text=of_text)
        self._pool = descriptor_pool.DescriptorPool()
        self._decoders: dict[_Message, Decode] = {}
        try:
            for file in files.file:
                _mark_maps(file.message_type)
                self._pool.Add(file)
            self._pool.FindFileByName(self._root.name)
        except (TypeError, KeyError) as error:
            raise SchemaError(f"{schema.label} is not a valid Protobuf schema: {one_line(error)}") from None

    def decoder(self, message: _Message) -> Decode:
        """Return a function that decodes a message, given by its indexes in the file, its name or its number.

        A name is the full one, or that of a message of the file without the package. The number is the position among all
        messages of the file in the order of their full names.

        The function raises ValueError. Raises SchemaError if the schema lacks the message.
        """
        if message not in self._decoders:
            self._decoders[message] = decoder_of(self._class_of(message), self._pool)
        return self._decoders[message]

    def descriptor(self, message: _Message) -> Any:
        """Return the descriptor of a message, which is given as in ``decoder``. Raises SchemaError."""
        return self._class_of(message).DESCRIPTOR

    def _class_of(self, message: _Message) -> Any:
        name = self._full_name(message)
        try:
            return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
        except (KeyError, TypeError) as error:
            raise SchemaError(f"{self._label} has no message {name!r}: {one_line(error)}") from None

    def _full_name(self, message: _Message) -> str:
        if isinstance(message, tuple):
            return self._name_of(message)
        if isinstance(message, int):
            names = sorted(_names(self._root.package, self._root.message_type))
            if message >= len(names):
                raise SchemaError(f"{self._label} has no message with the number {message}: it has {len(names)}")
            return names[message]
        if self._root.package and any(message == one.name for one in self._root.message_type):
            return f"{self._root.package}.{message}"
        return message

    def _name_of(self, indexes: tuple[int, ...]) -> str:
        """Return the full name of a message: of a message of the file, of a message nested in that, and so on."""
        names = [self._root.package] if self._root.package else []
        messages = self._messages
        for index in indexes:
            if not 0 <= index < len(messages):
                raise SchemaError(f"{self._label} has no message with the indexes {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested
        return ".".join(names)


class _IndexedMessage(NamedTuple):
    """A message and those nested in it, in the order of their indexes."""

    name: str
    nested: list[_IndexedMessage]


def _indexed(messages: Iterable[Any], *, of_text: bool) -> list[_IndexedMessage]:
    """Return the messages that indexes count.

    Confluent's Java client counts those that a text declares: not the entry that protoc makes of a ``map<…>``, but an entry
    that the text has. Compiled schemas come from clients that count all messages of a descriptor. Source:
    ``ProtobufSchema.toMessageName``, and ``_create_index_array`` of confluent-kafka-python.
    """
    return [
        _IndexedMessage(one.name, _indexed(one.nested_type, of_text=of_text))
        for one in messages
        if not (of_text and one.options.map_entry)
    ]


def _names(parent: str, messages: Iterable[Any]) -> Iterator[str]:
    """Return the full names of messages and of those nested in them. Entries of maps are messages, too."""
    for message in messages:
        name = f"{parent}.{message.name}" if parent else message.name
        yield name
        yield from _names(name, message.nested_type)


def _mark_maps(messages: Iterable[Any]) -> None:
    """Set the option ``map_entry`` of the entries of map fields: some writers of descriptors leave it out.

    An entry has the name that protoc derives from the field. The bytes of a message are the same with and without it.
    """
    for message in messages:
        entries = {entry.name: entry for entry in message.nested_type}
        for field in message.field:
            name = "".join(word[:1].upper() + word[1:] for word in field.name.split("_")) + "Entry"
            is_own = field.label == field.LABEL_REPEATED and field.type_name.endswith(f"{message.name}.{name}")
            if is_own and name in entries and _is_map_entry(entries[name]):
                entries[name].options.map_entry = True
        _mark_maps(message.nested_type)


def _is_map_entry(message: Any) -> bool:
    fields = sorted(message.field, key=lambda field: field.number)
    shape = [(field.name, field.number, field.label == field.LABEL_OPTIONAL) for field in fields]
    return shape == [("key", 1, True), ("value", 2, True)] and fields[0].type in _KEY_TYPES


def _descriptors(schema: Schema, references: Iterable[tuple[str, Schema]]) -> tuple[Any, bool]:
    """Return the compiled files that a schema needs, its own file last, and whether it is a text. Raises SchemaError."""
    files = descriptor_pb2.FileDescriptorSet()
    if schema.descriptors:
        _parse(files, schema.descriptors, schema.label)
        return files, False
    own = _compiled_text(schema.text)
    if own is None:
        sources = tuple((name, other.text) for name, other in references)
        _parse(files, compile_proto(schema.label, schema.text, sources), schema.label)
        return files, True
    for name, other in references:
        if (compiled := _compiled_text(other.text)) is None:
            raise SchemaError(f"{schema.label} refers to {name!r}, which is not compiled as it is")
        compiled.name = name
        files.file.append(compiled)
    _add_known_types(files, own, schema.label)
    files.file.append(own)
    return files, False


def _parse(files: Any, data: bytes, label: str) -> None:
    try:
        files.ParseFromString(data)
    except Exception:  # DecodeError
        raise SchemaError(f"{label} is not a set of Protobuf descriptors") from None


def _compiled_text(text: str) -> Any:
    """Return the file that a text is as base64, which clients other than Java's register, None for a ``.proto`` text."""
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except Exception:  # not base64, or DecodeError, whose class differs between the implementations of protobuf
        return None


def _add_known_types(files: Any, own: Any, label: str) -> None:
    """Put the files that everyone knows, and that compiled files import, before them. Raises SchemaError."""
    present = {file.name for file in files.file}
    imported = {name for file in (*files.file, own) for name in file.dependency} - present
    found = descriptor_pb2.FileDescriptorSet()
    if names := sorted(imported & KNOWN_IMPORTS.keys()):
        text = "".join(f'import "{name}";' for name in names)
        _parse(found, compile_proto(label, f'syntax = "proto3"; {text}'), label)
        del found.file[-1]  # the text
    for name in sorted((imported & _WELL_KNOWN.keys()) - {file.name for file in found.file}):
        import_module(_WELL_KNOWN[name])
        descriptor_pool.Default().FindFileByName(name).CopyToProto(found.file.add())
    found.file.extend(files.file)
    files.CopyFrom(found)


def _numbered(names: str, first: int) -> str:
    """Return fields or symbols with numbers from ``first``."""
    return " ".join(f"{name.strip()} = {number};" for number, name in enumerate(names.split(","), first))


def _message_text(name: str, fields: str, more: str = "") -> str:
    return f"message {name} {{ {_numbered(fields, 1)} {more} }}"


def _enum(name: str, symbols: str) -> str:
    return f"enum {name} {{ {_numbered(symbols, 0)} }}"


#: The content of the files in ``google/type``, by name.
_GOOGLE_TYPES = {
    "calendar_period": _enum(
        "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED, DAY, WEEK, FORTNIGHT, MONTH, QUARTER, HALF, YEAR"
    ),
    "color": _message_text("Color", "float red, float green, float blue, google.protobuf.FloatValue alpha"),
    "date": _message_text("Date", "int32 year, int32 month, int32 day"),
    "datetime": _message_text(
        "DateTime", "int32 year, int32 month, int32 day, int32 hours, int32 minutes, int32 seconds, int32 nanos",
        "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }",
    ) + _message_text("TimeZone", "string id, string version"),
    "dayofweek": _enum(
        "DayOfWeek",
        "DAY_OF_WEEK_UNSPECIFIED, MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY",
    ),
    "decimal": _message_text("Decimal", "string value"),
    "expr": _message_text("Expr", "string expression, string title, string description, string location"),
    "fraction": _message_text("Fraction", "int64 numerator, int64 denominator"),
    "interval": _message_text("Interval", "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"),
    "latlng": _message_text("LatLng", "double latitude, double longitude"),
    "localized_text": _message_text("LocalizedText", "string text, string language_code"),
    "money": _message_text("Money", "string currency_code, int64 units, int32 nanos"),
    "month": _enum(
        "Month",
        "MONTH_UNSPECIFIED, JANUARY, FEBRUARY, MARCH, APRIL, MAY, JUNE, JULY, AUGUST, SEPTEMBER, OCTOBER, NOVEMBER,"
        " DECEMBER",
    ),
    "phone_number": "message PhoneNumber { oneof kind { string e164_number = 1; ShortCode short_code = 2; }"
    f" string extension = 3; {_message_text('ShortCode', 'string region_code, string number')} }}",
    "postal_address": _message_text(
        "PostalAddress",
        "int32 revision, string region_code, string language_code, string postal_code, string sorting_code,"
        " string administrative_area, string locality, string sublocality, repeated string address_lines,"
        " repeated string recipients, string organization",
    ),
    "quaternion": _message_text("Quaternion", "double x, double y, double z, double w"),
    "timeofday": _message_text("TimeOfDay", "int32 hours, int32 minutes, int32 seconds, int32 nanos"),
}  # fmt: skip
#: The files of Protobuf that they import.
_IMPORTS = {"color": "wrappers", "datetime": "duration", "interval": "timestamp"}
_META = """
message Meta {
  string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
"""


def _file(package: str, content: str, imported: str = "") -> str:
    own = f'import "google/protobuf/{imported}.proto"; ' if imported else ""
    return f'syntax = "proto3"; package {package}; {own}{content}'


#: The texts of the files by the names that schemas import.
KNOWN_IMPORTS = {
    "confluent/meta.proto": _file(
        "confluent",
        _META + "\n".join(
            f"extend google.protobuf.{name}Options {{ Meta {snake}_meta = 1088; }}"
            for name, snake in {
                "File": "file", "Message": "message", "Field": "field", "Enum": "enum", "EnumValue": "enum_value"
            }.items()
        ),
        "descriptor",
    ),
    "confluent/type/decimal.proto": _file(
        "confluent.type", _message_text("Decimal", "bytes value, uint32 precision, int32 scale")
    ),
    **{
        f"google/type/{name}.proto": _file("google.type", content, _IMPORTS.get(name, ""))
        for name, content in _GOOGLE_TYPES.items()
    },
}  # fmt: skip
