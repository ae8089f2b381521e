"""Varints of more than one byte (Kafka's ``ByteUtils.readVarint``, ``readVarlong``). Loops read one byte themselves."""

from __future__ import annotations

from typing import Any


def finish_varint(data: Any, at: int, end: int, first: int, last_shift: int) -> tuple[int, int]:
    """Return (raw value, next byte) of a zig-zag varint whose first byte has its high bit set.

    The next byte is -1 if the varint is not valid. ``last_shift`` is 28 for an int32 (at most five bytes) and 63 for an
    int64.
    """
    raw = first - 128
    shift = 7
    while at < end and shift <= last_shift:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        if byte < 128:
            return raw | byte << shift, at
        raw |= (byte - 128) << shift
        shift += 7
    return 0, -1
