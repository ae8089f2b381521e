"""The message format of a popular tutorial, which Kafka never wrote: without offset and size, with a 64-bit CRC.

message := crc int64                  -- CRC-32 of the value's bytes alone
           magic int8
           attributes int8            -- bits 0 to 2: the codec
           key_length int32 key       -- -1 is null
           value_length int32 value   -- -1 is null
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

HEADER = struct.Struct(
    ">q"  # crc
    "b"  # magic
    "b"  # attributes
    "i"  # key_length
)
LENGTH = struct.Struct(">i")
OVERHEAD = HEADER.size + LENGTH.size
KNOWN_MAGICS = (0, 1)
#: The largest accepted length of a key or value in bytes.
MAX_LENGTH = 256 * 1024 * 1024


class WideMessage(NamedTuple):
    """The position of a message in a buffer, in bytes; a size of -1 is null. ``crc`` is the stored CRC."""

    crc: int
    magic: int
    attributes: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int

    @property
    def end(self) -> int:
        """Return the position after the message."""
        return self.value_at + max(self.value_size, 0)


class NeedMoreBytes(NamedTuple):
    """The buffer ends within the message: this many bytes are needed."""

    bytes: int


class Fault(NamedTuple):
    """A length that is not valid."""

    size: int
    why: str


def read_message(data: bytes | bytearray, at: int, end: int) -> WideMessage | NeedMoreBytes | Fault:
    """Return the message at byte ``at`` of ``data[:end]``."""
    if end - at < OVERHEAD:
        return NeedMoreBytes(OVERHEAD)
    crc, magic, attributes, key_size = HEADER.unpack_from(data, at)
    if not -1 <= key_size <= MAX_LENGTH:
        return Fault(key_size, f"a key has -1 to {MAX_LENGTH} bytes")
    key_at = at + HEADER.size
    value_at = key_at + max(key_size, 0) + LENGTH.size
    if value_at > end:
        return NeedMoreBytes(value_at - at)
    (value_size,) = LENGTH.unpack_from(data, value_at - LENGTH.size)
    if not -1 <= value_size <= MAX_LENGTH:
        return Fault(value_size, f"a value has -1 to {MAX_LENGTH} bytes")
    if value_at + value_size > end:
        return NeedMoreBytes(value_at + value_size - at)
    return WideMessage(crc, magic, attributes, key_at, key_size, value_at, value_size)


def computed_crc(data: bytes | bytearray, message: WideMessage) -> int:
    """Return the CRC-32 of the value. For a null value it is 0, the CRC of no bytes."""
    return zlib.crc32(memoryview(data)[message.value_at : message.end])


def is_proved(data: bytes | bytearray, at: int, end: int) -> bool:
    """Return whether a message is certainly at byte ``at``.

    It must be complete, its magic known, and its CRC right for a value that is not empty.
    """
    if end - at < OVERHEAD or data[at + 8] not in KNOWN_MAGICS or any(data[at : at + 4]):
        return False  # rejects most positions quickly
    message = read_message(data, at, end)
    return isinstance(message, WideMessage) and message.value_size > 0 and computed_crc(data, message) == message.crc
