"""One reader for all of Kafka's messages: from a definition, a version and bytes to a plain dict.

The encoding, of which "flexible" versions (KIP-482) have the second column::

    string    int16 length, byte*           (length + 1):uvarint, byte*
    bytes     int32 length, byte*           (length + 1):uvarint, byte*
    array     int32 count, item*            (count + 1):uvarint, item*
    structure field*                        field*, tags

    tags := count:uvarint (tag:uvarint size:uvarint byte*)*

A length below 0 is null (0 in the second column). A structure that may be null has an int8 before it, negative where it is;
as a tagged field it has an uvarint, 0 where it is. Names and values are those of Kafka's generated JSON converters, so that
they can be compared with what kafka-dump-log prints; a tagged field that isn't stored is left out, and one with a tag that
the definition lacks is kept in ``unknownTaggedFields`` as it is.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kseg.protocol.definitions import Definition, Field
from kseg.protocol.wire import Cursor, MalformedMessage

#: Where tagged fields are kept that the definition lacks: ``[{"tag": int, "data": bytes}]``.
UNKNOWN_TAGS = "unknownTaggedFields"

Message = dict[str, Any]
_Reader = Callable[[Cursor], Any]


def read(definition: Definition, version: int, cursor: Cursor) -> Message:
    """The message at the cursor, which then stands behind it. Raises MalformedMessage, and nothing else.

    ``version`` is one of the definition's. Bytes and records are ``bytes``, UUIDs text as Kafka prints them.
    """
    message: Message = _message_reader(definition, version)(cursor)
    return message


def decode(definition: Definition, version: int, data: bytes | memoryview) -> Message:
    """The message that the bytes are, to their end. Raises MalformedMessage."""
    cursor = Cursor(data)
    message = read(definition, version, cursor)
    if cursor.left:
        raise MalformedMessage(f"{cursor.left} bytes behind the end of version {version}")
    return message


def jsonable(node: Any) -> Any:
    """The same in what JSON has: bytes in base64, a number that is none by its name, as Kafka's converters write them."""
    if isinstance(node, dict):
        return {name: jsonable(value) for name, value in node.items()}
    if isinstance(node, list):
        return [jsonable(item) for item in node]
    if isinstance(node, bytes):
        return base64.b64encode(node).decode()
    if isinstance(node, float) and not math.isfinite(node):
        return "NaN" if math.isnan(node) else "Infinity" if node > 0 else "-Infinity"
    return node


def known(node: Any) -> Any:
    """The same without what the definition lacks."""
    if isinstance(node, dict):
        return {name: known(value) for name, value in node.items() if name != UNKNOWN_TAGS}
    return [known(item) for item in node] if isinstance(node, list) else node


@cache
def _message_reader(definition: Definition, version: int) -> _Reader:
    return _structure(definition.fields, version, version in definition.flexible)


def _structure(fields: tuple[Field, ...], version: int, flexible: bool) -> _Reader:
    present = [(field, _field(field, version, flexible)) for field in fields if version in field.versions]
    plain = [(field.name, reader) for field, reader in present if version not in field.tagged]
    order = (*(field.name for field, _ in present), UNKNOWN_TAGS)
    tagged = {field.tag: (field.name, reader) for field, reader in present if version in field.tagged}

    def read_fields(cursor: Cursor) -> Message:
        message: Message = {}
        for name, reader in plain:
            message[name] = _within(name, reader, cursor)
        if flexible and _read_tags(cursor, tagged, message):
            # The order is that of the definition, as in Kafka's JSON: tags may be anywhere in it.
            return {name: message[name] for name in order if name in message}
        return message

    return read_fields


def _within(name: str, reader: _Reader, cursor: Cursor) -> Any:
    try:
        return reader(cursor)
    except MalformedMessage as error:
        raise MalformedMessage(f"{name}: {error}") from None


def _read_tags(cursor: Cursor, known: Mapping[int, tuple[str, _Reader]], message: Message) -> int:
    count = cursor.uvarint()
    for _ in range(count):
        tag = cursor.uvarint()
        data = cursor.take(cursor.uvarint())
        if tag not in known:
            message.setdefault(UNKNOWN_TAGS, []).append({"tag": tag, "data": data})
            continue
        name, reader = known[tag]
        own = Cursor(data)
        message[name] = _within(name, reader, own)
        if own.left:
            raise MalformedMessage(f"{name}: {own.left} bytes behind its end")
    return count


def _field(field: Field, version: int, message_flexible: bool) -> _Reader:
    flexible = message_flexible if field.flexible is None else version in field.flexible
    nullable = version in field.nullable
    item = field.type.removeprefix("[]")
    if item in _FIXED:
        reader = _FIXED[item]
    elif item in _LENGTHS:
        of_items = nullable and item == field.type
        reader = _sized(_length(_LENGTHS[item], flexible, of_items), _TAKEN[item])
    else:
        reader = _structure(field.fields, version, flexible)
        if nullable and item == field.type:
            reader = _nullable(reader, version in field.tagged)
    return reader if item == field.type else _array(_length("i", flexible, nullable), reader)


def _fixed(code: str) -> _Reader:
    layout = struct.Struct(">" + code)
    return lambda cursor: layout.unpack(cursor.take(layout.size))[0]


def _uuid(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(cursor.take(16)).rstrip(b"=").decode()


_FIXED: Mapping[str, _Reader] = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "uint16": _fixed("H"),
    "int32": _fixed("i"),
    "uint32": _fixed("I"),
    "int64": _fixed("q"),
    "float64": _fixed("d"),
    "uuid": _uuid,
}
# What has a length before it, and how that is stored in versions that are not flexible.
_LENGTHS = {"string": "h", "bytes": "i", "records": "i"}
_TAKEN: Mapping[str, Callable[[Cursor, int], Any]] = {
    "string": lambda cursor, size: cursor.take(size).decode("utf-8", "replace"),
    "bytes": Cursor.take,
    "records": lambda cursor, size: cursor.records(size),
}


def _length(code: str, flexible: bool, nullable: bool) -> Callable[[Cursor], int]:
    """Reads a length or a count; -1 is null. No item is smaller than a byte, so neither can exceed what is left."""
    layout = _fixed(code)

    def read_length(cursor: Cursor) -> int:
        length: int = cursor.uvarint() - 1 if flexible else layout(cursor)
        if length < 0 and not nullable:
            raise MalformedMessage(f"null at byte {cursor.at}, where none may be")
        if length > cursor.left:
            raise MalformedMessage(f"length {length} at byte {cursor.at}, with {cursor.left} bytes left")
        return max(length, -1)

    return read_length


def _sized(read_length: Callable[[Cursor], int], take: Callable[[Cursor, int], Any]) -> _Reader:
    def read_sized(cursor: Cursor) -> Any:
        length = read_length(cursor)
        return None if length < 0 else take(cursor, length)

    return read_sized


def _array(read_length: Callable[[Cursor], int], item: _Reader) -> _Reader:
    def read_items(cursor: Cursor) -> list[Any] | None:
        count = read_length(cursor)
        if count < 0:
            return None
        cursor.count(count)
        return [item(cursor) for _ in range(count)]

    return read_items


def _nullable(reader: _Reader, tagged: bool) -> _Reader:
    if tagged:
        return lambda cursor: reader(cursor) if cursor.uvarint() else None
    present = _FIXED["int8"]
    return lambda cursor: reader(cursor) if present(cursor) >= 0 else None
