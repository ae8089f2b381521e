"""Evidence for the offset of a batch in the batches around it, because no CRC covers the base offset.

Also a map from numbers to values in bounded memory, such as the state of producers by their ids. It has two tables. When
the young table is full, it becomes the old table, and the previous old table is dropped. So the ``LIMIT`` numbers that
were stored last are always known, at most twice as many are held, and the time to store one is constant.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK, DELETE_HORIZON, INT32_MAX, LARGE_JUMP


def base_offset_proved_wrong(batches: BatchColumns, row: int, previous: int, opened: bool) -> bool:
    """Return whether the batches around a batch prove that its base offset is wrong, or the offset of a wrapper.

    They do if the next batch begins where this batch would end if it began right after ``previous``, the last offset of the
    batch before it. The batch after the next must continue, too, if it is available. For the first batch of a segment,
    ``previous`` is one less than the offset in the file's name, which may be -1. ``opened``: the batches are decoded.
    """
    following, behind, span = row + 1, row + 2, span_of(batches, row, opened)
    if previous < -1 or span < 0 or following >= batches.count:
        return False
    first = clamped(batches.last_offset[row]) - span
    if first == previous + 1 or batches.position[following] != batches.position[row] + batches.size[row]:
        return False
    if not _begins_at(batches, following, previous + 2 + span, opened):
        return False
    if is_wrapper(batches, row) and not batches.magic[row]:
        return False  # the CRC covers the offsets of its messages
    # In a compacted log with large gaps, a wrong offset can fit a gap by chance.
    if behind == batches.count or span_of(batches, behind, opened) < 0:
        return True
    return _begins_at(batches, behind, clamped(batches.last_offset[following]) + 1, opened)


def span_of(batches: BatchColumns, row: int, opened: bool) -> int:
    """Return the last offset of a batch less its first one, -1 if it is not known. ``opened``: the batch is decoded.

    The header of a wrapper lacks it. In v1 its messages have it also if they do not fit below the offset in the header.
    """
    if batches.magic[row] >= 2:
        return max(batches.last_offset[row] - clamped(batches.base_offset[row]), -1)
    if not is_wrapper(batches, row):
        return 0
    if not opened or batches.record_sum[row] <= 0:
        return -1
    first = clamped(batches.first_record_offset[row])
    if not batches.intact[row] and (first >= 0 or not batches.magic[row]):
        return -1
    return max(clamped(batches.last_record_offset[row]) - first, -1)


def _begins_at(batches: BatchColumns, row: int, offset: int, opened: bool) -> bool:
    span = span_of(batches, row, opened)
    return span >= 0 and clamped(batches.last_offset[row]) - span == offset


def out_of_reach(stored: int, expected: int) -> bool:
    """Return whether one flipped bit moved a base offset farther than the offsets of a segment reach.

    Then the batch was not moved there from another place of the segment.
    """
    return abs(stored - expected) > INT32_MAX and one_bit_apart(stored, expected)


def too_far_by_one_bit(last: int, previous: int) -> bool:
    """Return whether a batch ends far after ``previous``, the last offset before it, and would not with one bit less.

    One flipped bit of its base offset explains that, and so does a compacted log with as large a gap: this proves nothing.
    """
    if last <= previous + LARGE_JUMP:
        return False
    return previous < last - (1 << (last.bit_length() - 1)) <= previous + LARGE_JUMP


def leaps_by_one_bit(first: int, previous: int) -> bool:
    """Return whether a base offset is far after ``previous``, the last offset before it, and near it with one bit less."""
    bits = range(first.bit_length() if first > previous + LARGE_JUMP else 0)
    return any(first >> bit & 1 and previous < first - (1 << bit) <= previous + LARGE_JUMP for bit in bits)


def one_bit_apart(one: int, other: int) -> bool:
    """Return whether two int64 differ in one bit."""
    return ((one ^ other) & ((1 << 64) - 1)).bit_count() == 1


def is_wrapper(batches: BatchColumns, row: int) -> bool:
    """Return whether a batch is a v0 or v1 wrapper, whose header lacks its first offset."""
    return batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK != 0


def shows_compaction(batches: BatchColumns, row: int) -> bool:
    """Return whether a v2 batch has fewer records than offsets, or a delete horizon. Only the log cleaner causes that."""
    if 0 <= batches.record_count[row] <= batches.last_offset[row] - clamped(batches.base_offset[row]):
        return True
    return batches.attributes[row] & DELETE_HORIZON != 0


#: Numbers that are never dropped. A broker drops a producer that was idle for a day, and with default settings its memory
#: does not hold as many producers of one partition.
LIMIT = 100_000
#: The number of gaps between neighbouring batches that indicates compaction: damage leaves one.
SEVERAL = 2

# A C constant when compiled.
FULL = LIMIT


class BoundedMap:
    """Values by number. ``old`` is empty until more than LIMIT numbers were stored.

    ``forgot`` is whether a number was dropped.
    """

    def __init__(self) -> None:
        self.young: dict[int, Any] = {}
        self.old: dict[int, Any] = {}
        self.forgot = False

    def get(self, number: int) -> Any:
        """Return the last value of a number, or None if the number is unknown or was dropped."""
        found = self.young.get(number)
        if found is None and self.old:
            found = self.old.get(number)
        return found

    def put(self, number: int, value: Any) -> None:
        """Store a value."""
        if len(self.young) >= FULL and number not in self.young:
            self.forgot = self.forgot or not self.old.keys() <= self.young.keys()
            self.old = self.young
            self.young = {}
        self.young[number] = value

    def drop(self, number: int) -> None:
        """Remove a number."""
        self.young.pop(number, None)
        self.old.pop(number, None)

    def forget(self) -> None:
        """Remove all numbers."""
        self.forgot = self.forgot or bool(self.young or self.old)
        self.young = {}
        self.old = {}

    def all(self) -> dict[int, Any]:
        """Return all known values as a new dict."""
        return {**self.old, **self.young}

    def copy(self) -> BoundedMap:
        """Return an independent copy."""
        copied = BoundedMap()
        copied.young, copied.old, copied.forgot = dict(self.young), dict(self.old), self.forgot
        return copied
