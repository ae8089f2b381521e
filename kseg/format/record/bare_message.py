"""A v0 or v1 message by itself, without the offset and size that it has in a log.

message := crc uint32                 -- CRC-32 of all bytes after it
           magic int8                 -- 0 or 1
           attributes int8            -- bits 0 to 2: the codec; bit 3: the timestamp type (magic 1)
           timestamp int64            -- magic 1 only
           key_length int32 key       -- -1 is null
           value_length int32 value   -- -1 is null

Source: ``LegacyRecord``.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from kseg.format.record.wide_message import LENGTH, MAX_LENGTH, Fault, NeedMoreBytes

#: Bytes of the smallest message: magic 0, no key, no value.
OVERHEAD = 14
KNOWN_MAGICS = (0, 1)
_CRC = struct.Struct(">I")
_TIMESTAMP = 8
# The highest codec number; other bits of the attributes are not defined.
_ATTRIBUTES = {0: 0x07, 1: 0x0F}


class BareMessage(NamedTuple):
    """Where a message lies in a buffer: bytes ``at`` to ``end``. ``crc`` is as stored."""

    at: int
    crc: int
    magic: int
    attributes: int
    end: int


def read_message(data: bytes | bytearray, at: int, end: int) -> BareMessage | NeedMoreBytes | Fault:
    """Return the message at byte ``at`` of ``data[:end]``. An unknown magic is read like magic 0."""
    if end - at < OVERHEAD:
        return NeedMoreBytes(OVERHEAD)
    magic, attributes = data[at + 4], data[at + 5]
    place = at + 6 + (_TIMESTAMP if magic == 1 else 0)
    for what in ("key", "value"):
        if place + LENGTH.size > end:
            return NeedMoreBytes(place + LENGTH.size - at)
        (size,) = LENGTH.unpack_from(data, place)
        if not -1 <= size <= MAX_LENGTH:
            return Fault(size, f"a {what} has -1 to {MAX_LENGTH} bytes")
        place += LENGTH.size + max(size, 0)
    if place > end:
        return NeedMoreBytes(place - at)
    return BareMessage(at, _CRC.unpack_from(data, at)[0], magic, attributes, place)


def computed_crc(data: bytes | bytearray, message: BareMessage) -> int:
    """Return the CRC-32 of what follows the CRC field."""
    return zlib.crc32(memoryview(data)[message.at + _CRC.size : message.end])


def is_proved(data: bytes | bytearray, at: int, end: int) -> bool:
    """Return whether a whole message with a known magic and a valid CRC is at byte ``at``."""
    message = _plausible(data, at, end)
    return message is not None and computed_crc(data, message) == message.crc


def is_all(data: bytes | bytearray) -> bool:
    """Return whether the bytes are one message by its lengths alone, whatever its CRC is."""
    message = _plausible(data, 0, len(data))
    return message is not None and message.end == len(data)


def _plausible(data: bytes | bytearray, at: int, end: int) -> BareMessage | None:
    if end - at < OVERHEAD or data[at + 5] & ~_ATTRIBUTES.get(data[at + 4], 0):
        return None
    message = read_message(data, at, end)
    return message if isinstance(message, BareMessage) and message.magic in KNOWN_MAGICS else None
