"""A cursor over bytes that checks every length before it reads."""

from __future__ import annotations

import struct
from typing import Any

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
