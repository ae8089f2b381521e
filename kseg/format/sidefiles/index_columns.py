"""The hot loops over offset and time indexes: runs of entries to columns, and to what is out of order in them.

An index has an entry for every 4 KiB of log: one by one, as objects, they took a fifth of a validation's time.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY

_LITTLE = sys.byteorder == "little"

#: A run's two columns, as the fields of an entry.
Columns = tuple["array[int]", "array[int]"]


def offset_columns(block: memoryview, base_offset: int) -> Columns:
    """Offsets and bytes of the log, from whole entries of an ``.index``."""
    offsets, positions = _columns(len(block) // OFFSET_ENTRY.size)
    split_offsets(_words(block), base_offset, offsets, positions)
    return offsets, positions


def time_columns(block: memoryview, base_offset: int) -> Columns:
    """Timestamps and offsets, from whole entries of a ``.timeindex``."""
    timestamps, offsets = _columns(len(block) // TIME_ENTRY.size)
    split_times(_words(block), base_offset, timestamps, offsets)
    return timestamps, offsets


def _words(block: memoryview) -> array[int]:
    words = array("i")
    words.frombytes(block)
    if _LITTLE:
        words.byteswap()
    return words


def _columns(rows: int) -> Columns:
    room = bytes(8 * rows)
    return array("q", room), array("q", room)


# Entries as int32 words in this machine's order.
def split_offsets(words: Any, base: int, offsets: Any, positions: Any) -> None:
    for row in range(len(offsets)):
        offsets[row] = base + words[2 * row]
        positions[row] = words[2 * row + 1]


def split_times(words: Any, base: int, timestamps: Any, offsets: Any) -> None:
    for row in range(len(offsets)):
        high = words[3 * row]
        low = words[3 * row + 1]
        timestamps[row] = high * 0x100000000 + (low & 0xFFFFFFFF)
        offsets[row] = base + words[3 * row + 2]


class Order:
    """The order that entries keep to, run after run: the first field grows, the second by ``step`` at least.

    Neither is below its ``lowest``, the first entry's neither.
    """

    def __init__(self, lowest_first: int, lowest_second: int, step: int) -> None:
        self._lowest_first = lowest_first
        self._lowest_second = lowest_second
        self._step = step
        self._first = lowest_first - 1
        self._second = lowest_second - step

    def next_break(self, first: Any, second: Any, row: int) -> int:
        """The first row from ``row`` on that breaks it, or the number of rows. To be asked for each row once."""
        while row < len(first):
            kept = (
                first[row] > self._first
                and second[row] - self._second >= self._step
                and first[row] >= self._lowest_first
                and second[row] >= self._lowest_second
            )
            self._first = first[row]
            self._second = second[row]
            if not kept:
                break
            row += 1
        return row
