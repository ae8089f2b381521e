"""The columns of decoded values: the fields of a schema, and the union of the fields of several versions.

A field is a ``schema.Column``. Its type is one of columnar tables, or ``struct``, ``list_of`` or ``map_of`` with the columns
in it. Types that Arrow, Parquet and Spark do not all have are JSON (``object``): unions of several types, types that contain
themselves, schemas of any value, and types that differ between versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any
from urllib.parse import unquote

from kseg.extras.serialization import avro, protobuf, protobuf_values
from kseg.extras.serialization.json_values import parse_json
from kseg.extras.serialization.schema_set import AVRO, JSON, PROTOBUF, Schema, SchemaError, SchemaSource, referenced
from kseg.schema import Column
from kseg.text import count_of, to_json, unicode_text

ANY = "object"
#: The fields of a table at most, with those in structs: a short schema can name a type a million times.
_MOST_FIELDS = 5_000
#: Deeper types are JSON.
_MOST_DEPTH = 20
_MOST_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_References = Sequence[tuple[str, Schema]]


def column_of(name: str, schemas: Iterable[Schema], source: SchemaSource, message: str = "") -> Column:
    """Return the column for the values of all versions of a schema, the newest last.

    ``message`` is a Protobuf message; "" is the first of each file. Raises SchemaError if a version cannot be used.
    """

    def own(schema: Schema) -> Column:
        if schema.type not in _TYPES:
            raise SchemaError(f"{schema.label} has the type {schema.type!r}")
        return _TYPES[schema.type](schema, referenced(schema, source), message)

    return reduce(united, map(own, schemas))._replace(name=name)


def united(old: Column, new: Column) -> Column:
    """Return the column for values of two versions: with the fields of both, and types that hold the values of both."""
    kinds = old.type, new.type
    default = new.default or old.default
    if kinds == ("struct", "struct"):
        added = {field.name: field for field in new.of}
        fields = [united(field, added.pop(field.name)) if field.name in added else field for field in old.of]
        return new._replace(of=(*fields, *added.values()), default=default)
    if kinds[0] == kinds[1] and new.of:
        return new._replace(of=tuple(map(united, old.of, new.of)), default=default)
    if kinds[0] == kinds[1]:
        return new._replace(default=default)
    for wider in _WIDER:
        if wider.issuperset(kinds):
            return new._replace(json="float" if "float" in kinds or "float32" in kinds else "int", default=default)
    digits = [_DECIMAL.fullmatch(kind) for kind in kinds]
    if digits[0] and digits[1]:
        scale = max(int(digits[0][2]), int(digits[1][2]))
        return new._replace(json=_decimal(max(int(one[1]) - int(one[2]) for one in digits if one) + scale, scale))
    return new._replace(json=ANY, of=(), default=default)


#: Types whose values the widest of them holds, as in Avro's promotions.
_WIDER = ({"int32", "int"}, {"int32", "int", "float32", "float"})


def _decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})" if 0 <= scale <= precision <= _MOST_DIGITS and precision else "text"


def _column(kind: str, *of: Column, name: str = "element") -> Column:
    return Column(name, kind, "", of=of)


class _Types:
    """Counts the fields of a schema, and the types that are being read: a type in itself is JSON."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._count = 0
        self._open: list[Any] = []

    def _nested(self, read: Callable[..., Column], *of: Any) -> Column:
        """Return the column of items; lists in lists count for the depth."""
        self._open.append(None)
        found = _column(ANY) if len(self._open) > _MOST_DEPTH else read(*of)
        self._open.pop()
        return found

    def _struct(self, key: Any, fields: Callable[[], Iterable[Column]]) -> Column:
        """Return a struct. ``key`` is its type's name."""
        if key in self._open or len(self._open) >= _MOST_DEPTH:
            return _column(ANY)
        self._open.append(key)
        found = []
        for field in fields():
            self._count += 1
            if self._count > _MOST_FIELDS:
                raise SchemaError(
                    f"{self._label} has more than {count_of(_MOST_FIELDS, 'field')} with those in its types"
                )
            found.append(field)
        self._open.pop()
        # A name of JSON can have half of a surrogate pair, and a name of Arrow cannot.
        named = found and all(unicode_text(field.name) == field.name for field in found)
        return _column("struct", *found) if named else _column(ANY)


def _avro(schema: Schema, references: _References, message: str) -> Column:
    avro.avro_reader(schema, references)  # rejects invalid schemas
    types = _AvroTypes(schema.label)
    for _, other in references:
        types.read(avro.parsed(other))
    return types.read(avro.parsed(schema))


class _AvroTypes(_Types):
    """The columns of Avro's types, as ``avro.marked`` reads them."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}

    def read(self, node: Any, space: str = "") -> Column:
        if isinstance(node, list):
            branches = [one for one in node if one != "null"]
            found = [self.read(one, space) for one in branches]
            return found[0] if len(found) == 1 else _column(ANY)
        if isinstance(node, str):
            full = self._full(node, space)
            if full in self._named:
                return self._of_named(full)
            return _column(_AVRO_TYPES.get(node, ANY))
        kind = node["type"]
        if not isinstance(kind, str):
            return self.read(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            full = self._full(node["name"], node.get("namespace", space))
            self._named[full] = node, full.rpartition(".")[0]
            return self._of_named(full)
        if kind == "array":
            return _column("list_of", self._nested(self.read, node["items"], space))
        if kind == "map":
            return _column("map_of", _column("text", name="key"), self._nested(self.read, node["values"], space))
        logical = avro.logical_type(kind, node)
        return self._logical(logical, node) if logical else self.read(kind, space)

    @staticmethod
    def _full(name: str, space: str) -> str:
        return f"{space}.{name}" if space and "." not in name else name

    def _of_named(self, full: str) -> Column:
        node, space = self._named[full]
        if node["type"] == "enum":
            return _column("text")
        if node["type"] == "fixed":
            logical = avro.logical_type("fixed", node)
            return self._logical(logical, node) if logical else _column("bytes")

        def fields() -> Iterable[Column]:
            for field in node["fields"]:
                own = self.read(field["type"], space)._replace(name=field["name"])
                default = avro.default_value(field["type"], field["default"], own.type) if "default" in field else None
                aliases = tuple(alias for alias in field.get("aliases") or () if isinstance(alias, str))
                yield own._replace(default="" if default is None else to_json(default), aliases=aliases)

        return self._struct(full, fields)

    @staticmethod
    def _logical(logical: str, node: Mapping[str, Any]) -> Column:
        if logical == "decimal":
            precision, scale = node.get("precision"), node.get("scale", 0)
            known = isinstance(precision, int) and isinstance(scale, int)
            return _column(_decimal(precision or 0, scale) if known else "text")
        if logical == "duration":
            return _column("struct", *(_column("int", name=name) for name in ("months", "days", "milliseconds")))
        return _column(_AVRO_LOGICAL.get(logical, "text"))


_AVRO_TYPES = {
    "boolean": "bool", "int": "int32", "long": "int", "float": "float32", "double": "float", "bytes": "bytes",
    "string": "text",
}  # fmt: skip
_AVRO_LOGICAL = {
    "date": "date",
    **{f"timestamp-{unit}": "timestamp" for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": "timestamp_ntz" for unit in ("millis", "micros", "nanos")},
}


def _protobuf(schema: Schema, references: _References, message: str) -> Column:
    compiled = protobuf.ProtobufSchema(schema, references)
    return _MessageTypes(schema.label).message(compiled.descriptor(message or (0,)))


class _MessageTypes(_Types):
    """The columns of Protobuf's messages, as Protobuf's JSON mapping writes them."""

    def message(self, descriptor: Any) -> Column:
        if descriptor.full_name in _WELL_KNOWN:
            return _column(_WELL_KNOWN[descriptor.full_name])
        return self._struct(descriptor.full_name, lambda: map(self._field, descriptor.fields))

    def _field(self, field: Any) -> Column:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key, value = inner.fields
            found = _column(
                "map_of", self._single(key)._replace(name="key"), self._single(value)._replace(name="element")
            )
            return found._replace(name=field.name, default="{}")
        if protobuf_values.is_repeated(field):
            return _column("list_of", self._single(field)._replace(name="element"))._replace(
                name=field.name, default="[]"
            )
        found = self._single(field)
        # A reader with this schema has these values for records that were written without the field.
        default = "" if field.has_presence or inner is not None else to_json(_protobuf_default(field))
        return found._replace(name=field.name, default=default)

    def _single(self, field: Any) -> Column:
        if field.message_type is not None:
            return self.message(field.message_type)
        return _column(_PROTOBUF_TYPES[field.type])


def _protobuf_default(field: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values[0].name
    return "" if isinstance(field.default_value, bytes) else field.default_value


#: By ``FieldDescriptor.type``.
_PROTOBUF_TYPES = {
    1: "float", 2: "float32", 3: "int", 4: "decimal(20,0)", 5: "int32", 6: "decimal(20,0)", 7: "int", 8: "bool",
    9: "text", 12: "bytes", 13: "int", 14: "text", 15: "int32", 16: "int", 17: "int32", 18: "int",
}  # fmt: skip
_WELL_KNOWN = {
    f"google.protobuf.{name}": kind
    for name, kind in {
        "Timestamp": "timestamp", "Duration": "text", "FieldMask": "text", "Any": ANY, "Struct": ANY, "Value": ANY,
        "ListValue": ANY, "DoubleValue": "float", "FloatValue": "float32", "Int64Value": "int",
        "UInt64Value": "decimal(20,0)", "Int32Value": "int32", "UInt32Value": "int", "BoolValue": "bool",
        "StringValue": "text", "BytesValue": "bytes",
    }.items()
}  # fmt: skip


def _json_schema(schema: Schema, references: _References, message: str) -> Column:
    try:
        root = parse_json(schema.text.encode())
        others = {name: parse_json(other.text.encode()) for name, other in references}
    except ValueError as error:
        raise SchemaError(f"{schema.label}: {error}") from None
    return _JsonTypes(schema.label, others).read(root, root)


class _JsonTypes(_Types):
    """The columns of JSON Schema. Formats of texts are not read: the texts stay as they are."""

    def __init__(self, label: str, others: Mapping[str, Any]) -> None:
        super().__init__(label)
        self._others = others

    def read(self, node: Any, root: Any) -> Column:
        if not isinstance(node, dict) or len(self._open) >= _MOST_DEPTH:
            return _column(ANY)
        if "$ref" in node:
            return self._referred(str(node["$ref"]), root)
        for name in ("oneOf", "anyOf"):
            if isinstance(node.get(name), list) and "properties" not in node:
                branches = [one for one in node[name] if not (isinstance(one, dict) and one.get("type") == "null")]
                return self._nested(self.read, branches[0], root) if len(branches) == 1 else _column(ANY)
        kinds = node.get("type", "object" if "properties" in node else None)
        kinds = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else "number" if set(map(str, kinds)) == {"integer", "number"} else None
        if kind == "object" and "allOf" not in node and "patternProperties" not in node:
            return self._object(node, root)
        if kind == "array" and isinstance(node.get("items"), dict) and "prefixItems" not in node:
            return _column("list_of", self._nested(self.read, node["items"], root))
        return _column(_JSON_TYPES.get(str(kind), ANY))

    def _object(self, node: Mapping[str, Any], root: Any) -> Column:
        properties, others = node.get("properties"), node.get("additionalProperties")
        if isinstance(properties, dict) and properties and not isinstance(others, dict):
            return self._struct(
                id(node), lambda: (self.read(one, root)._replace(name=name) for name, one in properties.items())
            )
        if not properties and isinstance(others, dict):
            return _column("map_of", _column("text", name="key"), self._nested(self.read, others, root))
        return _column(ANY)

    def _referred(self, text: str, root: Any) -> Column:
        name, _, pointer = text.partition("#")
        node = root = self._others.get(name) if name else root
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
        return _column(ANY) if id(node) in self._open else self._nested(self.read, node, root)


_JSON_TYPES = {"string": "text", "integer": "int", "number": "float", "boolean": "bool"}
#: The columns of a schema, by its type. Adding a type is one row.
_TYPES: Mapping[str, Callable[[Schema, _References, str], Column]] = {
    AVRO: _avro,
    PROTOBUF: _protobuf,
    JSON: _json_schema,
}
