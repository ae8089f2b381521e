"""The writer of Kafka's messages: from a definition, a version and a dict to bytes, the inverse of ``message_reader``.

A message is a dict as ``message_reader`` returns it, or as ``jsonable`` makes it: bytes may be base64. All fields of the
version are required but tagged ones, which are written if the dict has them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kseg.format.messages.definitions import Definition, MessageField
from kseg.format.messages.message_reader import UNKNOWN_TAGS, Message

_NULL = -1


def encode(definition: Definition, version: int, message: Message) -> bytes:
    """Return the bytes of a message in one of the definition's versions.

    Raises KeyError for a missing field, and ValueError, TypeError or OverflowError for a value that a field cannot have.
    """
    out = bytearray()
    _write_structure(out, definition.fields, version, version in definition.flexible, message)
    return bytes(out)


def uvarint(number: int) -> bytes:
    """Return an unsigned varint: seven bits per byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _write_structure(
    out: bytearray, fields: Sequence[MessageField], version: int, flexible: bool, message: Message
) -> None:
    tagged: dict[int, bytes] = {one["tag"]: _bytes_of(one["data"]) for one in message.get(UNKNOWN_TAGS, ())}
    for field in fields:
        if version not in field.versions:
            continue
        if version not in field.tagged:
            _write_field(out, field, version, flexible, message[field.name])
        elif field.name in message:
            own = bytearray()
            _write_field(own, field, version, flexible, message[field.name])
            tagged[field.tag] = bytes(own)
    if flexible:
        out += uvarint(len(tagged))
        for tag in sorted(tagged):
            out += uvarint(tag) + uvarint(len(tagged[tag])) + tagged[tag]


def _write_field(out: bytearray, field: MessageField, version: int, message_flexible: bool, value: Any) -> None:
    flexible = message_flexible if field.flexible is None else version in field.flexible
    nullable = version in field.nullable
    item = field.type.removeprefix("[]")
    if item == field.type:
        _write_item(out, field, item, version, flexible, nullable, value)
        return
    _write_length(out, 4, flexible, nullable, None if value is None else len(value))
    for one in value or ():
        _write_item(out, field, item, version, flexible, False, one)


def _write_item(
    out: bytearray, field: MessageField, item: str, version: int, flexible: bool, nullable: bool, value: Any
) -> None:
    if item in _FIXED:
        out += _FIXED[item](value)
    elif item in _LENGTHS:
        data = None if value is None else value.encode() if item == "string" else _bytes_of(value)
        _write_length(out, _LENGTHS[item], flexible, nullable, None if data is None else len(data))
        out += data or b""
    else:
        if nullable:
            absent, present = (b"\x00", b"\x01") if version in field.tagged else (b"\xff", b"\x01")
            out += absent if value is None else present
            if value is None:
                return
        _write_structure(out, field.fields, version, flexible, value)


def _write_length(out: bytearray, size: int, flexible: bool, nullable: bool, length: int | None) -> None:
    if length is None and not nullable:
        raise ValueError("null in a field that is not nullable")
    length = _NULL if length is None else length
    out += uvarint(length + 1) if flexible else length.to_bytes(size, "big", signed=True)


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
#: Type -> the size of its length in bytes, in versions that are not flexible.
_LENGTHS: Mapping[str, int] = {"string": 2, "bytes": 4, "records": 4}
