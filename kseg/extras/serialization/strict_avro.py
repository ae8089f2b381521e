"""Bytes that Avro does not allow, and that fastavro's compiled reader accepts.

They are negative numbers of union branches and enum symbols, and numbers that are too long. The prepared schema rejects the
former (``make_strict``). Bytes that can have the latter (``is_suspect``) are read by fastavro's Python reader, with a
strict decoder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from kseg.extras.serialization.libraries import fastavro_decoder, fastavro_python

#: The begin of the names of kseg's own logical types.
PREFIX = "kseg-"
_INT_LIMIT, _LONG_LIMIT = 1 << 31, 1 << 63


class MalformedError(ValueError):
    """Bytes that Avro does not allow, with a reason that names the place."""


def checked_int(value: int, schema: Mapping[str, Any], reader: Any = None) -> int:
    """Return an int. fastavro reads the values of a long; Java's reader cuts the bits that are too many."""
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        raise MalformedError(f"the int {value} has more than 32 bits")
    return value


def checked_boolean(data: bytes, schema: Mapping[str, Any], reader: Any = None) -> bool:
    """Return a boolean. fastavro reads each byte but 0 as true, and Java's reader each but 1 as false."""
    if data == b"\1":
        return True
    if data != b"\0":
        raise MalformedError(f"a boolean is 0 or 1, got {data[0]}") if data else EOFError
    return False


class _Numbered(dict[Any, Any]):
    """The branches of a union, or the symbols of an enum, by number. In a list, -1 would be the last one."""

    def __missing__(self, number: Any) -> Any:
        raise MalformedError(f"the schema has no union branch or enum symbol with the number {number}")


def make_strict(node: Any) -> Any:
    """Return a prepared schema whose reader rejects wrong numbers of branches and symbols, and wrong booleans."""
    if isinstance(node, list):
        branches = _Numbered(enumerate(map(make_strict, node)))
        branches["type"] = "union"  # fastavro asks for it
        return branches
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "boolean":
        return {"type": "fixed", "name": "KsegBoolean", "size": 1, "logicalType": f"{PREFIX}boolean"}
    if kind == "enum" and not isinstance(node["symbols"], _Numbered):
        node["symbols"] = _Numbered(enumerate(node["symbols"]))
    elif kind == "record":
        for field in node["fields"]:
            field["type"] = make_strict(field["type"])
    elif kind in ("array", "map"):
        content = "items" if kind == "array" else "values"
        node[content] = make_strict(node[content])
    return node


#: The bytes of a number with more than 64 bits, of the smallest long (a number of items that fastavro reads as none), and of
#: an int in more than five bytes. Other data, such as text, can have them, too.
is_suspect = re.compile(rb"[\x80-\xff]{4}(?:[\x80-\xff]{5}[^\x00\x01]|\xff{5}\x01|[\x80-\x8f]\x80{0,4}\x00)").search


def read_strictly(source: BytesIO, prepared: Any) -> Any:
    """Return a value, read by fastavro's Python reader. Raises MalformedError, EOFError and errors of fastavro.

    Source: ``org.apache.avro.io.BinaryDecoder``. It cuts the bits of a number that are too many, which are errors here.
    """
    decoder: Any = fastavro_decoder.BinaryDecoder(source)  # type: ignore[no-untyped-call]

    def read_number(most: int, limit: int, kind: str) -> int:
        value = shift = 0
        for _ in range(most):
            if not (byte := source.read(1)):
                raise EOFError
            value |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte < b"\x80":
                number = (value >> 1) ^ -(value & 1)
                if not -limit <= number < limit:
                    raise MalformedError(f"the {kind} {number} has more than {limit.bit_length()} bits")
                return number
        raise MalformedError(f"a number ({kind}) has more than {most} bytes")

    def read_int() -> int:
        return read_number(5, _INT_LIMIT, "int")

    def read_long() -> int:
        return read_number(10, _LONG_LIMIT, "long")

    def read_bytes() -> bytes:
        size = read_long()
        if size < 0:
            raise MalformedError(f"the length {size} of a text or of bytes is negative")
        return exactly(size)

    def exactly(size: int) -> bytes:
        if len(data := source.read(size)) < size:
            raise EOFError
        return data

    # Attributes of the object hide the methods of its class.
    decoder.read_long, decoder.read_bytes, decoder.read_fixed = read_long, read_bytes, exactly
    decoder.read_int = decoder.read_enum = decoder.read_index = read_int
    names = {"writer": prepared["__named_schemas"], "reader": {}}
    return fastavro_python.read_data(decoder, prepared, names, None, {})  # type: ignore[no-untyped-call]
