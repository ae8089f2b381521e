"""The loops of offset and time indexes: entries as columns, those out of order, and the batches that get an entry.

An index has an entry per 4 KiB of log. As objects, one by one, they took a fifth of a validation's time.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import NO_TIMESTAMP

_LITTLE = sys.byteorder == "little"

#: The two columns of a run, in the order of an entry's fields.
Columns = tuple["array[int]", "array[int]"]


def offset_columns(block: memoryview, base_offset: int) -> Columns:
    """Return the offsets and log positions of complete ``.index`` entries. ``base_offset`` is the segment's."""
    words = _words(block)
    offsets, positions = _columns(len(words) // 2)
    split_offsets(words, base_offset, offsets, positions)
    return offsets, positions


def time_columns(block: memoryview, base_offset: int) -> Columns:
    """Return the timestamps (epoch ms) and offsets of complete ``.timeindex`` entries, as ``offset_columns``."""
    words = _words(block)
    timestamps, offsets = _columns(len(words) // 3)
    split_times(words, base_offset, timestamps, offsets)
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


# ``words`` are the entries as int32 values in this machine's byte order.
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
    """The required order of entries, checked run by run: the first field increases, the second by at least ``step``.

    Neither field may be below its ``lowest`` value.
    """

    def __init__(self, lowest_first: int, lowest_second: int, step: int) -> None:
        self._lowest_first = lowest_first
        self._lowest_second = lowest_second
        self._step = step
        self._first = lowest_first - 1
        self._second = lowest_second - step

    def next_break(self, first: Any, second: Any, row: int) -> int:
        """Return the first row from ``row`` on that is out of order, or the number of rows. Check each row once."""
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


class MaxTimestamp:
    """The largest timestamp so far, in epoch milliseconds, and the last offset of the batch that has it.

    Kafka: ``LogSegment.maxTimestampAndOffsetSoFar``.
    """

    def __init__(self) -> None:
        self.timestamp = NO_TIMESTAMP
        self.offset = -1


def next_index_entry(batches: BatchColumns, row: int, stop: int, position: int, peak: MaxTimestamp) -> int:
    """Return the first of rows ``row`` to ``stop`` that begins after ``position``, or ``stop``; update ``peak``."""
    largest = peak.timestamp
    while row < stop:
        if batches.max_timestamp[row] > largest:
            largest = peak.timestamp = batches.max_timestamp[row]
            peak.offset = batches.last_offset[row]
        if batches.position[row] > position:
            return row
        row += 1
    return stop
