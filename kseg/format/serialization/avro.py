"""Avro values: fastavro reads them, with bounds for schemas and data that nobody has checked.

fastavro's compiled reader recurses without a limit, so schemas that contain themselves use its Python reader. Schemas are
rejected if a few bytes can have any number of values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from kseg.format.serialization.avro_types import LOGICAL_READERS, marked
from kseg.format.serialization.libraries import fastavro_python, fastavro_read, fastavro_schema
from kseg.format.serialization.schemas import Schema, SchemaError, one_line
from kseg.text import count_of

#: The field of the record around every schema: fastavro prepares a record once, and other types at each call.
_WRAPPED = "value"
#: The values that a record may have for each byte that it needs at least, and without any byte.
_VALUES_PER_BYTE, _FREE_VALUES = 8, 32


def avro_reader(schema: Schema, references: Iterable[tuple[str, Schema]]) -> Callable[[bytes], Any]:
    """Return a function that decodes one value: all of its bytes. It raises ValueError.

    Raises SchemaError for a schema that cannot be used, and UsageError if fastavro is not installed.
    """
    prepared, recursive = _prepare(schema, references)
    read: Any = fastavro_python.schemaless_reader if recursive else fastavro_read.schemaless_reader

    def decode(data: bytes) -> Any:
        source = BytesIO(data)
        try:
            value = read(source, prepared, None)[_WRAPPED]
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None
        except EOFError:
            raise ValueError(f"the value is longer than its {count_of(len(data), 'byte')}") from None
        except IndexError:
            raise ValueError(
                "the value has the number of a union branch or of an enum symbol that is not in the schema"
            ) from None
        except Exception as error:  # fastavro's errors do not share a base class
            raise ValueError(f"not a value of the schema: {one_line(error)}") from None
        if source.tell() != len(data):
            raise ValueError(f"{count_of(len(data) - source.tell(), 'byte')} after the value")
        return value

    return decode


def fingerprint(schema: Schema) -> bytes:
    """Return the fingerprint in the single-object encoding (CRC-64-AVRO). Raises SchemaError."""
    try:
        canonical = fastavro_schema.to_parsing_canonical_form(_parsed(schema))
        return bytes.fromhex(fastavro_schema.fingerprint(canonical, "CRC-64-AVRO"))
    except _schema_errors() as error:
        raise SchemaError(f"{schema.label} has no fingerprint: {one_line(error)}") from None


def _prepare(schema: Schema, references: Iterable[tuple[str, Schema]]) -> tuple[Any, bool]:
    """Return the schema as fastavro wants it, and whether it contains itself."""
    fastavro_read.LOGICAL_READERS.update(LOGICAL_READERS)
    named: dict[str, Any] = {}
    try:
        for _, other in references:
            fastavro_schema.parse_schema(marked(_parsed(other)), named, _write_hint=False)
        wrapper = {
            "type": "record",
            "name": "KsegValue",
            "fields": [{"name": _WRAPPED, "type": marked(_parsed(schema))}],
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
    return prepared, shape.recursive


def _schema_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that fastavro raises for an invalid schema; called only after one of them."""
    return ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro_schema.SchemaParseException


def _parsed(schema: Schema) -> Any:
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

    def measure(self, node: Any) -> tuple[int, int]:
        """Return the least number of bytes of a value, and its number of values. Raises SchemaError."""
        if isinstance(node, list):
            return 1, 1 + max((self.measure(branch)[1] for branch in node), default=0)
        kind = node["type"] if isinstance(node, dict) else node
        if kind == "record":
            return self._record(node)
        if kind == "array" or kind == "map":
            size, _ = self.measure(node["items" if kind == "array" else "values"])
            if kind == "array" and not size:
                raise SchemaError(f"{self._label} has an array of items without bytes, which can have any length")
            return 1, 1
        if kind in self._named and kind not in _SIZES:
            return (
                self._record(self._named[kind])
                if self._named[kind]["type"] == "record"
                else self.measure(self._named[kind])
            )
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
        return size, values


#: The least number of bytes of the primitive types; others need one.
_SIZES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
