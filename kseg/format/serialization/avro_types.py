"""Avro's types as JSON values: bytes in base64, decimals as text, times as ISO 8601.

fastavro calls a function for each logical type. ``marked`` replaces the logical types of a schema, and the types that JSON
does not have, by logical types of kseg's own, so that other users of fastavro in the same process are not affected.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from kseg.format.serialization.plain import finite
from kseg.format.serialization.schemas import SchemaError
from kseg.text import calendar_time

_PREFIX = "kseg-"
#: The depth of a schema as JSON. Avro's schemas of this depth are not written by people.
_MOST_DEPTH = 200
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()

Convert = Callable[[Any, Mapping[str, Any]], Any]


def _decimal(data: bytes, schema: Mapping[str, Any]) -> str:
    """Return a decimal with all its digits: ``-12.50``."""
    scale = schema.get("scale", 0)
    unscaled = int.from_bytes(data, "big", signed=True)
    if not isinstance(scale, int) or not 0 <= scale <= 10_000:
        raise ValueError(f"a decimal with the scale {scale!r}")
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _date(days: int, schema: Mapping[str, Any]) -> str | int:
    try:
        return date.fromordinal(_EPOCH + days).isoformat()
    except (ValueError, OverflowError):
        return days


def _timestamp(digits: int, zone: str) -> Convert:
    """Return the conversion of a number of 10^-digits seconds. Times outside of the years 1 to 9999 stay numbers."""
    unit = 10 ** (digits - 3)

    def convert(value: int, schema: Mapping[str, Any]) -> str | int:
        milliseconds, rest = divmod(value, unit)
        text = calendar_time(milliseconds)
        if not text.endswith("Z"):
            return value
        return f"{text[:-1]}{rest:0{digits - 3}}{zone}" if digits > 3 else text[:-1] + zone

    return convert


def _time(digits: int) -> Convert:
    def convert(value: int, schema: Mapping[str, Any]) -> str | int:
        seconds, rest = divmod(value, 10**digits)
        if not 0 <= seconds < _DAY_MS // 1000:
            return value
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{digits}}"

    return convert


def _duration(data: bytes, schema: Mapping[str, Any]) -> dict[str, int]:
    numbers = [int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8)]
    return dict(zip(("months", "days", "milliseconds"), numbers, strict=True))


def _bytes(data: bytes, schema: Mapping[str, Any]) -> str:
    return base64.b64encode(data).decode()


#: The conversions by Avro type and logical type. The empty logical type is for values without one.
_CONVERSIONS: Mapping[str, Mapping[str, Convert]] = {
    "bytes": {"": _bytes, "decimal": _decimal},
    "fixed": {
        "": _bytes,
        "decimal": _decimal,
        "duration": _duration,
        "uuid": lambda data, schema: str(uuid.UUID(bytes=data)),
    },
    "float": {"": lambda value, schema: finite(value)},
    "double": {"": lambda value, schema: finite(value)},
    "int": {"date": _date, "time-millis": _time(3)},
    "long": {
        "time-micros": _time(6),
        "timestamp-millis": _timestamp(3, "Z"),
        "timestamp-micros": _timestamp(6, "Z"),
        "timestamp-nanos": _timestamp(9, "Z"),
        "local-timestamp-millis": _timestamp(3, ""),
        "local-timestamp-micros": _timestamp(6, ""),
        "local-timestamp-nanos": _timestamp(9, ""),
    },
}
#: What fastavro calls for each of them, by the names that ``marked`` uses.
LOGICAL_READERS = {
    f"{avro_type}-{_PREFIX}{logical or 'plain'}": lambda data, writer=None, reader=None, convert=convert: convert(
        data, writer or {}
    )
    for avro_type, known in _CONVERSIONS.items()
    for logical, convert in known.items()
}
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


def _primitive(kind: str, node: Mapping[str, Any]) -> Any:
    known = _CONVERSIONS.get(kind, {})
    logical = node.get("logicalType")
    if kind == "fixed" and logical in _FIXED_SIZES and node.get("size") != _FIXED_SIZES[logical]:
        logical = None
    if not isinstance(logical, str) or logical not in known:
        logical = ""
    if logical not in known:
        return kind
    found = {"type": kind, "logicalType": f"{_PREFIX}{logical or 'plain'}"}
    return {**found, "scale": node.get("scale", 0)} if logical == "decimal" else found
