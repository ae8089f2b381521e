"""Bytes read from the front; nothing is taken before it is known to be there."""

from __future__ import annotations

import struct
from typing import Any

_UNSIGNED_VARINT_MAX_BYTES = 5
#: Of all arrays of a message together: an item of one byte becomes an object of hundreds.
MAX_ITEMS = 1_000_000
_SHORT = struct.Struct(">h")


class MalformedMessage(ValueError):
    """Bytes that are not the message they should be; ``str(error)`` is one line that says why."""


class Cursor:
    """A place in some bytes. Every method raises MalformedMessage where they end too early."""

    __slots__ = ("at", "data", "items")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.at = 0
        self.items = MAX_ITEMS

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes, at least 0."""
        if size > len(self.data) - self.at:
            raise MalformedMessage(f"{size} bytes wanted at byte {self.at} of {len(self.data)}")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def records(self, size: int) -> Any:
        """Records of that many bytes; they are no part of the message, and may be left where they are."""
        return self.take(size)

    def count(self, items: int) -> None:
        """So many items of an array follow."""
        self.items -= items
        if self.items < 0:
            raise MalformedMessage(f"more than {MAX_ITEMS} items before byte {self.at}")

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next values, as the layout has them."""
        at = self.at
        if layout.size > len(self.data) - at:
            raise MalformedMessage(f"{layout.size} bytes wanted at byte {at} of {len(self.data)}")
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)

    def int16(self) -> int:
        """A signed integer of two bytes."""
        number: int = self.unpack(_SHORT)[0]
        return number

    def uvarint(self) -> int:
        """An unsigned integer, seven bits a byte, the lowest first."""
        value = 0
        for index in range(_UNSIGNED_VARINT_MAX_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise MalformedMessage(f"varint of more than {_UNSIGNED_VARINT_MAX_BYTES} bytes before byte {self.at}")
