"""The hot loops of looking before writing: what each entry needs, whether offsets are in order, whether records agree.

Like ``kernel`` and ``encoder`` ordinary Python over columns, to be compiled or not.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.encoder import headers_end
from kseg.format.record.framing import clamped
from kseg.format.record.memory import equal_bytes

COMPILED = not __file__.endswith(".py")

CODEC_MASK = layout.CODEC_MASK
LOG_APPEND_TIME = layout.LOG_APPEND_TIME
CONTROL = layout.CONTROL
INT32_MAX = layout.INT32_MAX
NO_TIMESTAMP = layout.NO_TIMESTAMP
BAD = CRC_BAD

# What is done with an entry on its way to another version.
SKIP = 0  # damaged
COPY = 1  # already of the target's version
DROP = 2  # a control batch, which v0 and v1 do not know
PLAIN = 3
PACKED = 4  # compressed: its records lie in a payload of their own
# The same for the loops here.
SKIPPED = SKIP
COPIED = COPY
DROPPED = DROP
UNPACKED = PLAIN
COMPRESSED = PACKED


class MaxTimestamp:
    """The largest timestamp that was met, in epoch milliseconds, and the last offset of the entry that has it."""

    def __init__(self) -> None:
        self.timestamp = NO_TIMESTAMP
        self.offset = -1


def classify(batches: BatchColumns, row: int, target: int, copies: bool) -> int:
    """What to do with an entry: SKIP, COPY (only with ``copies``), DROP, PLAIN or PACKED."""
    magic = batches.magic[row]
    attributes = batches.attributes[row]
    if batches.crc_state[row] == BAD or not batches.intact[row]:
        return SKIPPED
    if copies and magic == target:
        return COPIED
    if magic >= 2 and target < 2 and attributes & CONTROL:
        return DROPPED
    return COMPRESSED if attributes & CODEC_MASK else UNPACKED


def classify_run(batches: BatchColumns, row: int, stop: int, target: int, copies: bool) -> tuple[int, int]:
    """The kind of entry ``row`` and the end of the run of its kind and version; a compressed entry is a run alone."""
    kind = classify(batches, row, target, copies)
    magic = batches.magic[row]
    row += 1
    if kind != COMPRESSED:
        while row < stop and batches.magic[row] == magic and classify(batches, row, target, copies) == kind:
            row += 1
    return kind, row


def check_offsets_in_batch(
    batches: BatchColumns, records: RecordColumns, first: int, stop: int, last_offset: int, faults: list[Any]
) -> int:
    """Mark opened entries ``first`` to ``stop`` that no log can hold as not intact, and say why on ``faults``.

    Offsets increase from entry to entry and from record to record, and an entry spans no more than an int32. Returns
    the last offset of what is sound, ``last_offset`` being the one before.
    """
    for row in range(first, stop):
        if batches.crc_state[row] != BAD and batches.intact[row]:
            last_offset = check_batch_offsets(batches, records, row, last_offset, faults)
    return last_offset


def first_offset(batches: BatchColumns, records: RecordColumns, row: int) -> int:
    """The first offset of an opened entry; a wrapper's header does not say it."""
    if batches.magic[row] >= 2:
        return clamped(batches.base_offset[row])
    return batches.first_record_offset[row]


def check_batch_offsets(
    batches: BatchColumns, records: RecordColumns, row: int, last_offset: int, faults: list[Any]
) -> int:
    """``check_offsets_in_batch`` for one entry."""
    low = first_offset(batches, records, row)
    first = batches.first_record[row]
    total = batches.record_total[row]
    high = batches.last_offset[row] if batches.magic[row] >= 2 else batches.last_record_offset[row]
    if low <= last_offset:
        faults.append(("behind", row, low, last_offset))
    elif high < low or high - low > INT32_MAX:
        faults.append(("span", row, low, high - low))
    elif batches.disorder[row] >= 0:
        index = batches.disorder[row]
        # Of a large batch it may lie behind the part at hand.
        offset = records.offset[index] if index < first + total else batches.last_record_offset[row]
        faults.append(("record", row, offset, index - first))
    elif total and records.offset[first] < low:
        faults.append(("record", row, records.offset[first], 0))
    elif total and batches.last_record_offset[row] > high:
        faults.append(("record", row, batches.last_record_offset[row], batches.record_sum[row] - 1))
    else:
        return high
    batches.intact[row] = 0
    return last_offset


def count_codecs(batches: BatchColumns, row: int, stop: int, counts: list[int]) -> int:
    """Count entries into the eight of ``counts`` by codec; returns the largest one's size in bytes."""
    size = 0
    while row < stop:
        counts[batches.attributes[row] & CODEC_MASK] += 1
        if batches.size[row] > size:
            size = batches.size[row]
        row += 1
    return size


def largest_timestamp(records: RecordColumns, first: int, stop: int) -> int:
    """The largest timestamp of rows ``first`` to ``stop``."""
    largest = records.timestamp[first]
    for i in range(first, stop):
        if records.timestamp[i] > largest:
            largest = records.timestamp[i]
    return largest


def count_timed(records: RecordColumns, first: int, stop: int) -> int:
    """How many of rows ``first`` to ``stop`` have a timestamp."""
    timed = 0
    for i in range(first, stop):
        if records.timestamp[i] != NO_TIMESTAMP:
            timed += 1
    return timed


def next_index_entry(batches: BatchColumns, row: int, stop: int, position: int, peak: MaxTimestamp) -> int:
    """The first of rows ``row`` to ``stop`` that begins behind that byte, or ``stop``; ``peak`` is told of all up to it."""
    largest = peak.timestamp
    while row < stop:
        if batches.max_timestamp[row] > largest:
            largest = peak.timestamp = batches.max_timestamp[row]
            peak.offset = batches.last_offset[row]
        if batches.position[row] > position:
            return row
        row += 1
    return stop


def count_same(
    left: Any, left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right: Any, right_records: RecordColumns, right_batches: BatchColumns, j: int, count: int, magic: int,
) -> int:  # fmt: skip
    """How many of ``count`` records from rows ``i`` and ``j`` on are the same, as far as version ``magic`` can tell.

    v0 has no timestamps, v0 and v1 have no headers.
    """
    for n in range(count):
        key_size = left_records.key_size[i]
        value_size = left_records.value_size[i]
        if (
            left_records.offset[i] != right_records.offset[j]
            or key_size != right_records.key_size[j]
            or value_size != right_records.value_size[j]
        ):
            return n
        a = left_records.key_at[i]
        b = right_records.key_at[j]
        if key_size > 0 and not equal_bytes(left, a, right, b, key_size):
            return n
        a = left_records.value_at[i]
        b = right_records.value_at[j]
        if value_size > 0 and not equal_bytes(left, a, right, b, value_size):
            return n
        if magic and not same_timestamp(left_records, left_batches, i, right_records, right_batches, j):
            return n
        if magic >= 2 and not same_headers(left, left_records, i, right, right_records, j):
            return n
        i += 1
        j += 1
    return count


def count_different(
    left: Any, left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right: Any, right_records: RecordColumns, right_batches: BatchColumns, j: int, count: int, magic: int,
) -> int:  # fmt: skip
    """How many of ``count`` records from rows ``i`` and ``j`` on have the same offsets and are not the same."""
    n = 0
    while n < count and left_records.offset[i] == right_records.offset[j]:
        if count_same(left, left_records, left_batches, i, right, right_records, right_batches, j, 1, magic):
            return n
        n += 1
        i += 1
        j += 1
    return n


def same_timestamp(
    left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right_records: RecordColumns, right_batches: BatchColumns, j: int,
) -> bool:  # fmt: skip
    """Whether timestamp and timestamp type are the same; those of v0 are -1 and CreateTime."""
    row = left_records.batch[i]
    left_type = left_batches.attributes[row] & LOG_APPEND_TIME if left_batches.magic[row] else 0
    row = right_records.batch[j]
    right_type = right_batches.attributes[row] & LOG_APPEND_TIME if right_batches.magic[row] else 0
    return left_type == right_type and left_records.timestamp[i] == right_records.timestamp[j]


def same_headers(
    left: Any, left_records: RecordColumns, i: int, right: Any, right_records: RecordColumns, j: int
) -> bool:
    """Whether the headers are the same, byte for byte."""
    count = left_records.header_count[i]
    if count != right_records.header_count[j]:
        return False
    if not count:
        return True
    a = left_records.headers_at[i]
    b = right_records.headers_at[j]
    size = headers_end(left, a, count) - a
    if headers_end(right, b, count) - b != size:
        return False
    return equal_bytes(left, a, right, b, size)


def count_same_headers(left: BatchColumns, i: int, right: BatchColumns, j: int, leader_epochs: bool) -> int:
    """How many entries from rows ``i`` and ``j`` on have the same offsets, size, version and CRC, which held.

    With ``leader_epochs`` they have the same partition leader epoch, too: no CRC covers it, and brokers set it.
    """
    n = 0
    while i < left.count and j < right.count:
        if (
            left.base_offset[i] != right.base_offset[j]
            or left.last_offset[i] != right.last_offset[j]
            or left.size[i] != right.size[j]
            or left.magic[i] != right.magic[j]
            or left.crc[i] != right.crc[j]
            or left.crc_state[i] == BAD
            or right.crc_state[j] == BAD
            or (leader_epochs and left.partition_leader_epoch[i] != right.partition_leader_epoch[j])
        ):
            return n
        n += 1
        i += 1
        j += 1
    return n
