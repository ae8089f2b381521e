"""Avro values: fastavro reads them, with bounds for schemas and data that nobody has checked.

fastavro's compiled reader recurses without a limit, so schemas that contain themselves use its Python reader. Schemas are
rejected if a few bytes can have any number of values.

The compiled reader accepts bytes that Avro does not allow, see ``strict_avro``.

Avro's types as JSON values: bytes in base64, decimals as text, times as ISO 8601.

fastavro calls a function for each logical type. ``marked`` replaces the logical types of a schema, and the types that JSON
does not have, by logical types of kseg's own, so that other users of fastavro in the same process are not affected.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any

from kseg.extras.serialization import strict_avro
from kseg.extras.serialization.json_values import (
    MOST_ITEMS,
    Convert,
    TooManyItemsError,
    date_text,
    decimal_text,
    time_text,
    timestamp_text,
)
from kseg.extras.serialization.libraries import fastavro_read, fastavro_schema
from kseg.extras.serialization.schema_set import Schema, SchemaError, one_line
from kseg.text import count_of, finite

#: The depth of a schema as JSON. Avro's schemas of this depth are not written by people.
_MOST_DEPTH = 200
_TIME_MILLIS = time_text(3)


def _duration(data: bytes, schema: Mapping[str, Any]) -> dict[str, int]:
    numbers = [int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8)]
    return dict(zip(("months", "days", "milliseconds"), numbers, strict=True))


def _bytes(data: bytes, schema: Mapping[str, Any]) -> str:
    return base64.b64encode(data).decode()


#: The conversions by Avro type and logical type. The empty logical type is for values without one.
_CONVERSIONS: Mapping[str, Mapping[str, Convert]] = {
    "bytes": {"": _bytes, "decimal": decimal_text},
    "fixed": {
        "": _bytes,
        "decimal": decimal_text,
        "duration": _duration,
        "uuid": lambda data, schema: str(uuid.UUID(bytes=data)),
    },
    "float": {"": lambda value, schema: finite(value)},
    "double": {"": lambda value, schema: finite(value)},
    "int": {
        "": strict_avro.checked_int,
        "date": lambda value, schema: date_text(strict_avro.checked_int(value, schema), schema),
        "time-millis": lambda value, schema: _TIME_MILLIS(strict_avro.checked_int(value, schema), schema),
    },
    "long": {
        "time-micros": time_text(6),
        "timestamp-millis": timestamp_text(3, "Z"),
        "timestamp-micros": timestamp_text(6, "Z"),
        "timestamp-nanos": timestamp_text(9, "Z"),
        "local-timestamp-millis": timestamp_text(3, ""),
        "local-timestamp-micros": timestamp_text(6, ""),
        "local-timestamp-nanos": timestamp_text(9, ""),
    },
}
#: What fastavro calls for each of them, by the names that ``marked`` uses.
LOGICAL_READERS: dict[str, Callable[..., Any]] = {
    f"{avro_type}-{strict_avro.PREFIX}{logical or 'plain'}": lambda data, writer=None, reader=None, convert=convert: (
        convert(data, writer or {})
    )
    for avro_type, known in _CONVERSIONS.items()
    for logical, convert in known.items()
}
#: Without the function around them: these are called most often.
LOGICAL_READERS[f"int-{strict_avro.PREFIX}plain"] = strict_avro.checked_int
LOGICAL_READERS[f"fixed-{strict_avro.PREFIX}boolean"] = strict_avro.checked_boolean
_FIXED_SIZES = {"duration": 12, "uuid": 16}


def marked(node: Any, depth: int = 0) -> Any:
    """Return a schema (parsed JSON) with kseg's logical types, and without what does not concern reading.

    Raises SchemaError.
    """
    if depth > _MOST_DEPTH:
        raise SchemaError(f"the schema is nested deeper than {_MOST_DEPTH} levels")
    if isinstance(node, str):
        return _primitive(node, {})
    if isinstance(node, list):
        return [marked(branch, depth + 1) for branch in node]
    if not isinstance(node, dict) or "type" not in node:
        raise SchemaError("the schema has a type that is not a name, a list or an object with a type")
    kind = node["type"]
    if not isinstance(kind, str):
        return marked(kind, depth + 1)
    if kind in ("record", "error"):
        fields = node.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) and "type" in field for field in fields):
            raise SchemaError("the schema has a record without valid fields")
        kept = [{"name": field.get("name"), "type": marked(field["type"], depth + 1)} for field in fields]
        return {**_named(node), "type": "record", "fields": kept}
    if kind == "enum":
        return {**_named(node), "type": kind, "symbols": node.get("symbols")}
    if kind == "fixed":
        return {**_named(node), "size": node.get("size"), **_primitive(kind, node)}
    if kind in ("array", "map"):
        content = "items" if kind == "array" else "values"
        return {"type": kind, content: marked(node.get(content), depth + 1)}
    return _primitive(kind, node)


def _named(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: node[name] for name in ("name", "namespace") if node.get(name) is not None}


def logical_type(kind: str, node: Mapping[str, Any]) -> str:
    """Return the logical type of a node that is read as such, "" if it has none that is valid."""
    logical = node.get("logicalType")
    if kind == "fixed" and logical in _FIXED_SIZES and node.get("size") != _FIXED_SIZES[logical]:
        return ""
    return logical if isinstance(logical, str) and logical in _CONVERSIONS.get(kind, {}) else ""


def default_value(node: Any, value: Any, column: str) -> Any:
    """Return the default of a field as a decoded value is, None without one. ``column`` is the type of its column."""
    if isinstance(node, list):
        return default_value(next((one for one in node if one != "null"), "null"), value, column)
    if isinstance(node, dict) and not isinstance(node["type"], str):
        return default_value(node["type"], value, column)
    kind, own = (node, {}) if isinstance(node, str) else (node["type"], node)
    convert = _CONVERSIONS.get(kind, {}).get(logical_type(kind, own))
    try:
        if kind in ("bytes", "fixed") or column == "bytes":
            value = value.encode("latin-1")
            convert = convert or _bytes
        return convert(value, own) if convert else value
    except (AttributeError, TypeError, ValueError):
        return None


def _primitive(kind: str, node: Mapping[str, Any]) -> Any:
    known, logical = _CONVERSIONS.get(kind, {}), logical_type(kind, node)
    if logical not in known:
        return kind
    found = {"type": kind, "logicalType": f"{strict_avro.PREFIX}{logical or 'plain'}"}
    return {**found, "scale": node.get("scale", 0)} if logical == "decimal" else found


class _CountedItems(BytesIO):
    """The bytes of a value, from which at most ``most`` items are read: fastavro asks for the bytes of each alone."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._left = most

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        # A number has a byte at a time; all but its last have the high bit.
        self._left -= size != 1 or data < b"\x80"
        if self._left < 0:
            raise TooManyItemsError
        return data


#: The field of the record around every schema: fastavro prepares a record once, and other types at each call.
_WRAPPED = "value"
#: The values that a record may have for each byte that it needs at least, and without any byte.
_VALUES_PER_BYTE, _FREE_VALUES = 8, 32


def avro_reader(schema: Schema, references: Iterable[tuple[str, Schema]]) -> Callable[[bytes], Any]:
    """Return a function that decodes one value: all of its bytes. It raises ValueError.

    Raises SchemaError for a schema that cannot be used, and UsageError if fastavro is not installed.
    """
    prepared, shape = _prepare(schema, references)
    read: Any = fastavro_read.schemaless_reader
    most = MOST_ITEMS // shape.most_values_per_byte

    def open_source(data: bytes) -> BytesIO:
        return BytesIO(data) if len(data) <= most else _CountedItems(data, most)

    def decode_strictly(data: bytes) -> Any:
        source = open_source(data)
        try:
            value = strict_avro.read_strictly(source, prepared)
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None
        except (TooManyItemsError, strict_avro.MalformedError):
            raise
        except EOFError:
            raise ValueError(f"the value is longer than its {count_of(len(data), 'byte')}") from None
        except Exception as error:  # fastavro's errors do not share a base class
            raise ValueError(f"not a value of the schema: {one_line(error)}") from None
        if source.tell() != len(data):
            raise ValueError(f"{count_of(len(data) - source.tell(), 'byte')} after the value")
        return value[_WRAPPED]

    def decode(data: bytes) -> Any:
        if not strict_avro.is_suspect(data):
            source = open_source(data)
            try:
                value = read(source, prepared, None)
            except TooManyItemsError:
                raise
            except Exception:  # the strict reader has the reason
                return decode_strictly(data)
            if source.tell() == len(data):
                return value[_WRAPPED]
        return decode_strictly(data)

    return decode_strictly if shape.recursive else decode


def bytes_reader(schema: Schema) -> Callable[[bytes], Any] | None:
    """Return a function that decodes a value that is all of its bytes, None if the type of the schema is not bytes.

    Confluent's serializers write such a value without the length that Avro puts before it, and their deserializers read it
    so. Sources: ``AbstractKafkaAvroSerializer``, ``AbstractKafkaAvroDeserializer``, and ``AvroDeserializer`` of
    confluent-kafka-python.
    """
    node = parsed(schema)
    while isinstance(node, dict) and isinstance(node.get("type"), dict):
        node = node["type"]
    own = node if isinstance(node, dict) else {"type": node}
    if own.get("type") != "bytes":
        return None
    convert = _CONVERSIONS["bytes"][logical_type("bytes", own)]
    return lambda data: convert(data, own)


def fingerprint(schema: Schema) -> bytes:
    """Return the fingerprint in the single-object encoding (CRC-64-AVRO). Raises SchemaError."""
    try:
        canonical = fastavro_schema.to_parsing_canonical_form(parsed(schema))
        return bytes.fromhex(fastavro_schema.fingerprint(canonical, "CRC-64-AVRO"))
    except _schema_errors() as error:
        raise SchemaError(f"{schema.label} has no fingerprint: {one_line(error)}") from None


def _prepare(schema: Schema, references: Iterable[tuple[str, Schema]]) -> tuple[Any, _Shape]:
    """Return the schema as fastavro wants it, and its shape."""
    fastavro_read.LOGICAL_READERS.update(LOGICAL_READERS)
    named: dict[str, Any] = {}
    try:
        for _, other in references:
            fastavro_schema.parse_schema(marked(parsed(other)), named, _write_hint=False)
        wrapper = {
            "type": "record",
            "name": "KsegValue",
            "fields": [{"name": _WRAPPED, "type": marked(parsed(schema))}],
        }
        prepared = fastavro_schema.parse_schema(wrapper, named)
    except SchemaError as error:
        raise SchemaError(f"{schema.label}: {error}") from None
    except _schema_errors() as error:
        raise SchemaError(
            f"{schema.label} is not a valid Avro schema: {type(error).__name__}: {one_line(error)}"
        ) from None
    shape = _Shape(schema.label, named)
    shape.measure(prepared)
    for node in (prepared, *named.values()):
        strict_avro.make_strict(node)
    return prepared, shape


def _schema_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that fastavro raises for an invalid schema; called only after one of them."""
    return ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro_schema.SchemaParseException


def parsed(schema: Schema) -> Any:
    """Return a schema as parsed JSON. Raises SchemaError."""
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        if schema.text.isidentifier():
            return schema.text  # a type without quotes
        raise SchemaError(f"not JSON: {error}") from None


class _Shape:
    """Finds types that contain themselves, and values without bytes: both can make a value without an end."""

    def __init__(self, label: str, named: dict[str, Any]) -> None:
        self._label = label
        self._named = named
        self._measured: dict[str, tuple[int, int] | None] = {}
        self.recursive = False
        #: The values of a record for each of its bytes, rounded down: 1 for records whose fields all have bytes.
        self.most_values_per_byte = 1

    def measure(self, node: Any) -> tuple[int, int]:
        """Return the least number of bytes of a value, and its number of values. Raises SchemaError."""
        if isinstance(node, list):
            branches = [(1 + size, 1 + values) for size, values in map(self.measure, node)]
            return max(branches, key=lambda branch: branch[1] - _VALUES_PER_BYTE * branch[0], default=(1, 1))
        kind = node["type"] if isinstance(node, dict) else node
        if kind == "record":
            return self._record(node)
        if kind == "array" or kind == "map":
            size, _ = self.measure(node["items" if kind == "array" else "values"])
            if kind == "array" and not size:
                raise SchemaError(f"{self._label} has an array of items without bytes, which can have any length")
            return 1, 1
        if kind in self._named and kind not in _SIZES:
            return self.measure(self._named[kind])
        return (node["size"] if kind == "fixed" else _SIZES.get(kind, 1)), 1

    def _record(self, node: Any) -> tuple[int, int]:
        name = node["name"]
        if name in self._measured:
            if (known := self._measured[name]) is None:
                self.recursive = True
                return 1, 1
            return known
        self._measured[name] = None
        size, values = 0, 1
        for field in node["fields"]:
            of_field = self.measure(field["type"])
            size, values = size + of_field[0], values + of_field[1]
        if values > _FREE_VALUES + _VALUES_PER_BYTE * size:
            raise SchemaError(f"{self._label} has a record with {values:,} values in {count_of(size, 'byte')}")
        self._measured[name] = size, values
        self.most_values_per_byte = max(self.most_values_per_byte, values // (size + 1))
        return size, values


#: The least number of bytes of the primitive types; others need one.
_SIZES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
