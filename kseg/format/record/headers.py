# cython: boundscheck=False
"""The headers of records (KIP-82). Compiled without bounds checks: each function checks its range once."""

from __future__ import annotations

from typing import Any

from kseg.format.record.memory import is_utf8
from kseg.format.record.varints import finish_varint


def skip_headers(data: Any, at: int, stop: int, count: int) -> tuple[int, bool]:
    """Return (position after ``count`` headers, whether all keys are UTF-8).

    The position is -1 if the headers do not fit into ``data[at:stop]`` or a key is null. Raises IndexError.
    """
    check_range(len(data), at, stop)
    valid = True
    for _ in range(count):
        if at >= stop:
            return -1, valid
        byte = data[at]
        at += 1
        if byte >= 128:
            byte, at = finish_varint(data, at, stop, byte, 28)
        size = (byte >> 1) ^ -(byte & 1)
        if at < 0 or size < 0 or size >= stop - at:
            return -1, valid
        key_at = at
        end = at + size
        bits = 0
        while at < end:
            bits |= data[at]
            at += 1
        if bits >= 128 and not is_utf8(data, key_at, size):
            valid = False
        byte = data[at]
        at += 1
        if byte >= 128:
            byte, at = finish_varint(data, at, stop, byte, 28)
        size = (byte >> 1) ^ -(byte & 1)
        if at < 0 or size < -1 or size > stop - at:
            return -1, valid
        if size > 0:
            at += size
    return at, valid


def header_field(data: Any, at: int, stop: int) -> tuple[int, int]:
    """Return (size, first byte) of a header's key or value at ``data[at]``.

    Size -1 is null, first byte -1 is not valid. Raises IndexError.
    """
    if at >= stop:
        return 0, -1
    check_range(len(data), at, stop)
    byte = data[at]
    at += 1
    if byte >= 128:
        byte, at = finish_varint(data, at, stop, byte, 28)
    size = (byte >> 1) ^ -(byte & 1)
    if at < 0 or size < -1 or size > stop - at:
        return 0, -1
    return size, at


def check_range(size: int, at: int, stop: int) -> None:
    """Raise IndexError unless ``at`` to ``stop`` is within ``size`` bytes."""
    if at < 0 or stop > size:
        raise IndexError(f"{at} to {stop} is not within {size}")
