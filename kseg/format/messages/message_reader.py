"""The reader of all of Kafka's messages, over a cursor that checks every length before it reads.

A cursor over bytes that checks every length before it reads.

The reader of all of Kafka's messages: from a definition, a version and bytes to a plain dict.

The encoding; "flexible" versions (KIP-482) use the second column::

    string    int16 length, byte*           (length + 1):uvarint, byte*
    bytes     int32 length, byte*           (length + 1):uvarint, byte*
    array     int32 count, item*            (count + 1):uvarint, item*
    structure field*                        field*, tags

    tags := count:uvarint (tag:uvarint size:uvarint byte*)*

A negative length is null (0 in the second column). A nullable structure is preceded by an int8 that is negative for null;
as a tagged field by a uvarint that is 0 for null. Names and values are those of Kafka's generated JSON converters, so that
they can be compared with the output of kafka-dump-log. Tagged fields that are not stored are left out; those with a tag
that the definition lacks are kept as bytes in ``unknownTaggedFields``.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from kseg.format.messages.definitions import Definition, MessageField
from kseg.text import count_of

_UNSIGNED_VARINT_MAX_BYTES = 5
#: Limit on the items of all arrays of a message: an item of one byte becomes an object of hundreds of bytes.
MAX_ITEMS = 1_000_000
_SHORT = struct.Struct(">h")


class MalformedMessage(ValueError):
    """The bytes are not a valid message; ``str(error)`` is one line that says why."""


class Cursor:
    """A position in a bytes object. Every method raises MalformedMessage if the bytes end too early."""

    __slots__ = ("at", "data", "items")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.at = 0
        self.items = MAX_ITEMS

    @property
    def remaining(self) -> int:
        """The number of bytes not yet read."""
        return len(self.data) - self.at

    def read_bytes(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > len(self.data) - self.at:
            raise MalformedMessage(f"expected {count_of(size, 'byte')} at byte {self.at} of {len(self.data)}")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def records(self, size: int) -> Any:
        """Return ``size`` bytes of records. Subclasses may return their position instead of a copy."""
        return self.read_bytes(size)

    def count(self, items: int) -> None:
        """Count ``items`` of an array against the limit of the message."""
        self.items -= items
        if self.items < 0:
            raise MalformedMessage(f"more than {MAX_ITEMS:,} items before byte {self.at}")

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the next values in the given layout."""
        at = self.at
        if layout.size > len(self.data) - at:
            raise MalformedMessage(f"expected {count_of(layout.size, 'byte')} at byte {at} of {len(self.data)}")
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)

    def int16(self) -> int:
        """Return a signed 16-bit integer."""
        number: int = self.unpack(_SHORT)[0]
        return number

    def uvarint(self) -> int:
        """Return an unsigned varint: seven bits per byte, the lowest first."""
        value = 0
        for index in range(_UNSIGNED_VARINT_MAX_BYTES):
            byte = self.read_bytes(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise MalformedMessage(f"varint of more than {_UNSIGNED_VARINT_MAX_BYTES} bytes before byte {self.at}")


#: The key of tagged fields that the definition lacks: ``[{"tag": int, "data": bytes}]``.
UNKNOWN_TAGS = "unknownTaggedFields"

_JSON_TYPES = frozenset((str, int, bool, type(None)))

Message = dict[str, Any]
_Reader = Callable[[Cursor], Any]
_Step = Callable[[Cursor, Message], None]


def read(definition: Definition, version: int, cursor: Cursor) -> Message:
    """Read the message at the cursor and advance the cursor past it. Raises only MalformedMessage.

    ``version`` is one of the definition's versions. Bytes and records become ``bytes``, UUIDs text as Kafka prints them.
    """
    message: Message = _message_reader(definition, version)(cursor)
    return message


def decode(definition: Definition, version: int, data: bytes | memoryview) -> Message:
    """Read a message that takes up all of ``data``. Raises MalformedMessage."""
    cursor = Cursor(data)
    message = read(definition, version, cursor)
    if cursor.remaining:
        raise MalformedMessage(f"{count_of(cursor.remaining, 'byte')} after the end of version {version}")
    return message


def jsonable(node: Any) -> Any:
    """Return a message as JSON values, as Kafka's converters do: bytes in base64, NaN and infinities as text."""
    kind = type(node)
    if kind in _JSON_TYPES:
        return node
    if kind is dict:
        return {name: value if type(value) in _JSON_TYPES else jsonable(value) for name, value in node.items()}
    if kind is list:
        return [item if type(item) in _JSON_TYPES else jsonable(item) for item in node]
    if kind is bytes:
        return base64.b64encode(node).decode()
    return node if math.isfinite(node) else "NaN" if math.isnan(node) else "Infinity" if node > 0 else "-Infinity"


def known(node: Any) -> Any:
    """Return a message without tagged fields that the definition lacks."""
    if isinstance(node, dict):
        return {name: known(value) for name, value in node.items() if name != UNKNOWN_TAGS}
    return [known(item) for item in node] if isinstance(node, list) else node


@cache
def _message_reader(definition: Definition, version: int) -> _Reader:
    return _structure(definition.fields, version, version in definition.flexible)


def _structure(fields: tuple[MessageField, ...], version: int, flexible: bool) -> _Reader:
    present = [field for field in fields if version in field.versions]
    steps = list(_steps([field for field in present if version not in field.tagged], version, flexible))
    tagged = {field.tag: (field.name, _field(field, version, flexible)) for field in present if version in field.tagged}
    order = (*(field.name for field in present), UNKNOWN_TAGS)

    def read_fields(cursor: Cursor) -> Message:
        message: Message = {}
        for step in steps:
            step(cursor, message)
        if flexible and _read_tags(cursor, tagged, message):
            # In the order of the definition, as in Kafka's JSON, where tagged fields can be anywhere.
            return {name: message[name] for name in order if name in message}
        return message

    return read_fields


def _steps(fields: Sequence[MessageField], version: int, flexible: bool) -> Iterator[_Step]:
    """Read consecutive numbers with one struct: this halves the time of most messages."""
    for numbers, group in groupby(fields, key=lambda field: field.type in _CODES):
        run = list(group)
        singles = [_single(field.name, _field(field, version, flexible)) for field in run]
        yield from [_run(run, singles)] if numbers and len(run) > 1 else singles


def _single(name: str, reader: _Reader) -> _Step:
    def read_one(cursor: Cursor, message: Message) -> None:
        try:
            message[name] = reader(cursor)
        except MalformedMessage as error:
            raise MalformedMessage(f"{name}: {error}") from None

    return read_one


def _run(fields: Sequence[MessageField], singles: Sequence[_Step]) -> _Step:
    names = [field.name for field in fields]
    layout = struct.Struct(">" + "".join(_CODES[field.type] for field in fields))

    def read_run(cursor: Cursor, message: Message) -> None:
        if cursor.remaining >= layout.size:
            message.update(zip(names, cursor.unpack(layout), strict=True))
            return
        for single in singles:
            single(cursor, message)  # raises with the name of the incomplete field

    return read_run


def _read_tags(cursor: Cursor, known: Mapping[int, tuple[str, _Reader]], message: Message) -> int:
    count = cursor.uvarint()
    for _ in range(count):
        tag = cursor.uvarint()
        data = cursor.read_bytes(cursor.uvarint())
        if tag not in known:
            message.setdefault(UNKNOWN_TAGS, []).append({"tag": tag, "data": data})
            continue
        name, reader = known[tag]
        own = Cursor(data)
        _single(name, reader)(own, message)
        if own.remaining:
            raise MalformedMessage(f"{name}: {count_of(own.remaining, 'byte')} after its end")
    return count


def _field(field: MessageField, version: int, message_flexible: bool) -> _Reader:
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
    return lambda cursor: cursor.unpack(layout)[0]


def _uuid(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(cursor.read_bytes(16)).rstrip(b"=").decode()


def _texts(data: bytes) -> str:
    return data.decode("utf-8", "replace")


#: Integer and float types -> format characters of ``struct``.
_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
_FIXED: Mapping[str, _Reader] = {**{name: _fixed(code) for name, code in _CODES.items()}, "uuid": _uuid}
# Types with a length prefix -> the format of the length in versions that are not flexible.
_LENGTHS = {"string": "h", "bytes": "i", "records": "i"}
_TAKEN: Mapping[str, Callable[[Cursor, int], Any]] = {
    "string": lambda cursor, size: cursor.read_bytes(size).decode("utf-8", "replace"),
    "bytes": Cursor.read_bytes,
    "records": lambda cursor, size: cursor.records(size),
}


def _length(code: str, flexible: bool, nullable: bool) -> Callable[[Cursor], int]:
    """Return a reader of a length or count; -1 is null. An item has at least one byte, so neither exceeds the bytes left."""
    layout = _fixed(code)

    def read_length(cursor: Cursor) -> int:
        length: int = cursor.uvarint() - 1 if flexible else layout(cursor)
        if length < 0 and not nullable:
            raise MalformedMessage(f"null at byte {cursor.at} in a field that is not nullable")
        if length > cursor.remaining:
            raise MalformedMessage(
                f"length {length} at byte {cursor.at}, but only {count_of(cursor.remaining, 'byte')} left"
            )
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
