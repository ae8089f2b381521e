"""The writer of Kafka's messages: from a definition, a version and a dict to bytes, the inverse of ``message_reader``.

A message is a dict as ``message_reader`` returns it, or as ``jsonable`` makes it: bytes may be base64. All fields of the
version are required but tagged ones, which are written if the dict has them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sized
from typing import Any

from kseg.format.messages.definitions import Definition
from kseg.format.messages.message_reader import UNKNOWN_TAGS, FieldReader, Message, StructureReader, reader


def encode(definition: Definition, version: int, message: Message) -> bytes:
    """Return the bytes of a message in one of the definition's versions.

    Raises KeyError for a missing field, and ValueError, TypeError or OverflowError for a value that a field cannot have.
    """
    out = bytearray()
    _write_structure(out, reader(definition, version), message)
    return bytes(out)


def uvarint(number: int) -> bytes:
    """Return an unsigned varint: seven bits per byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _write_structure(out: bytearray, structure: StructureReader, message: Message) -> None:
    tagged: dict[int, bytes] = {one["tag"]: _bytes_of(one["data"]) for one in message.get(UNKNOWN_TAGS, ())}
    for field in structure.fields:
        _write_field(out, field, message[field.name])
    for tag, field in structure.tagged.items():
        if field.name in message:
            own = bytearray()
            _write_field(own, field, message[field.name])
            tagged[tag] = bytes(own)
    if structure.flexible:
        out += uvarint(len(tagged))
        for tag in sorted(tagged):
            out += uvarint(tag) + uvarint(len(tagged[tag])) + tagged[tag]


def _write_field(out: bytearray, field: FieldReader, value: Any) -> None:
    if not field.array:
        _write_item(out, field, field.nullable, value)
        return
    _write_length(out, 4, field, field.nullable, value)
    for one in value or ():
        _write_item(out, field, False, one)


def _write_item(out: bytearray, field: FieldReader, nullable: bool, value: Any) -> None:
    if field.type in _FIXED:
        out += _FIXED[field.type](value)
    elif field.structure is None:
        data = None if value is None else value.encode() if field.type == "string" else _bytes_of(value)
        _write_length(out, field.size, field, nullable, data)
        out += data or b""
    else:
        if nullable:
            absent, present = (b"\x00", b"\x01") if field.tagged else (b"\xff", b"\x01")
            out += absent if value is None else present
            if value is None:
                return
        _write_structure(out, field.structure, value)


def _write_length(out: bytearray, size: int, field: FieldReader, nullable: bool, value: Sized | None) -> None:
    if value is None and not nullable:
        raise ValueError("null in a field that is not nullable")
    length = -1 if value is None else len(value)
    out += uvarint(length + 1) if field.flexible else length.to_bytes(size, "big", signed=True)


def _integer(size: int, signed: bool) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(size, "big", signed=signed)


def _bytes_of(value: bytes | str) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


#: Type -> its bytes.
_FIXED: Mapping[str, Callable[[Any], bytes]] = {
    **{f"int{8 * size}": _integer(size, True) for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": _integer(size, False) for size in (2, 4)},
    "bool": lambda value: bytes([value]),
    "float64": lambda value: struct.pack(">d", float(value)),
    "uuid": lambda value: base64.urlsafe_b64decode(value + "=="),
}
