"""The bytes that serializers of schema registries put before a value, or into a header.

Magic 0 and an id of four bytes, or magic 1 and a GUID of 16 bytes; Protobuf has the indexes of the message next. With the
GUID in a header, the value lacks the prefix. Source: ``io.confluent.kafka.serializers.schema.id.SchemaId``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from kseg.format.serialization.schemas import SchemaError

#: The header with the schema id of a key or of a value.
HEADERS = {"key": b"__key_schema_id", "value": b"__value_schema_id"}
_MAGIC_ID, _MAGIC_GUID = 0, 1
#: The first bytes of Avro's single-object encoding, and the end of the fingerprint after them.
SINGLE_OBJECT, SINGLE_OBJECT_END = b"\xc3\x01", 10
ID_END, _GUID_END = 5, 17
#: Larger numbers are probably other data: registries count from 1.
LARGEST_ID = 0x7FFFFFFF
_MOST_INDEXES = 100
_MOST_VARINT_BYTES = 5


class SchemaId(NamedTuple):
    """The id or the GUID of a schema, and the position after it."""

    number: int | None
    guid: str | None
    end: int


def read_schema_id(data: bytes) -> SchemaId | None:
    """Return the schema id at the start of a value or of a header's value, None if there is none.

    A GUID is accepted in a header only: a value that begins with 1 is more often other data.
    """
    if len(data) >= ID_END and data[0] == _MAGIC_ID:
        number = int.from_bytes(data[1:ID_END], "big")
        return SchemaId(number, None, ID_END) if 0 < number <= LARGEST_ID else None
    return None


def read_header_id(data: bytes) -> SchemaId | None:
    """Return the schema id in the value of a header."""
    if len(data) >= _GUID_END and data[0] == _MAGIC_GUID:
        return SchemaId(None, str(uuid.UUID(bytes=data[1:_GUID_END])), _GUID_END)
    return read_schema_id(data)


def header_of(side: str, headers: Iterable[tuple[Any, Any]]) -> bytes | None:
    """Return the value of the header with a schema id; ``side`` is "key" or "value"."""
    wanted = HEADERS[side]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
        if name == wanted and value is not None:
            return bytes(value)
    return None


def read_message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a Protobuf message in its file, and the position after it. A 0 is short for the first message.

    Raises SchemaError.
    """
    count, at = _zigzag(data, at)
    if not count:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise SchemaError(f"the list of message indexes has {count:,} entries")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _MOST_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise SchemaError("the message indexes are cut or too long")
