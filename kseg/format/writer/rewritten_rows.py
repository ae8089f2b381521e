"""The rows of a window on their way to a new log: how each is treated, which ones are looked at closer, and their order.

Compiled with the types of ``rewritten_rows.pxd``. A conversion copies, rewrites, drops or skips a batch. A healthy log
takes a look at the columns, and no object per batch.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK, CONTROL, INT32_MAX, NO_TIMESTAMP


def check_offsets_in_batch(
    batches: BatchColumns, records: RecordColumns, first: int, stop: int, last_offset: int, faults: list[Any]
) -> int:
    """Mark the decoded batches ``first`` to ``stop`` that a log can't have as not intact, and append to ``faults``.

    Offsets must increase from batch to batch and from record to record, and a batch spans at most an int32. ``last_offset``
    is the offset before. Returns the last valid offset.
    """
    for row in range(first, stop):
        if batches.crc_state[row] != CRC_BAD and batches.intact[row]:
            last_offset = check_batch_offsets(batches, records, row, last_offset, faults)
    return last_offset


def first_offset(batches: BatchColumns, row: int) -> int:
    """Return the first offset of a decoded batch; the header of a wrapper does not have it."""
    if batches.magic[row] >= 2:
        return clamped(batches.base_offset[row])
    return batches.first_record_offset[row]


def check_batch_offsets(
    batches: BatchColumns, records: RecordColumns, row: int, last_offset: int, faults: list[Any]
) -> int:
    """Check one batch, like ``check_offsets_in_batch``."""
    low = first_offset(batches, row)
    first = batches.first_record[row]
    total = batches.record_total[row]
    high = batches.last_offset[row] if batches.magic[row] >= 2 else batches.last_record_offset[row]
    if low <= last_offset:
        faults.append(("behind", row, low, last_offset))
    elif high < low or high - low > INT32_MAX:
        faults.append(("span", row, low, high - low))
    elif not batches.selected[row]:
        return high  # it was not decoded: the caller leaves it out
    elif batches.disorder[row] >= 0:
        index = batches.disorder[row]
        # The last record of a large batch can be in a later chunk.
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


def offsets_ascend(batches: BatchColumns, last_offset: int, ceiling: int) -> tuple[bool, int]:
    """Return whether the offsets of a window are above ``last_offset``, below ``ceiling`` and in order, and the highest.

    Batches with a wrong CRC are skipped. A compressed v0 or v1 message is not in order, because its header does not have
    its first offset.
    """
    for row in range(batches.count):
        if batches.crc_state[row] == CRC_BAD:
            continue
        if batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK:
            return False, last_offset
        if clamped(batches.base_offset[row]) <= last_offset or batches.last_offset[row] >= ceiling:
            return False, last_offset
        last_offset = max(last_offset, batches.last_offset[row])
    return True, last_offset


def first_reaching(batches: BatchColumns, row: int, ceiling: int) -> int:
    """Return the first row from ``row`` on whose last offset reaches ``ceiling``, ``batches.count`` without one."""
    while row < batches.count and batches.last_offset[row] < ceiling:
        row += 1
    return row


def next_faulty(batches: BatchColumns, row: int, stop: int, found: dict[int, Any]) -> tuple[int, int]:
    """Return the first selected row from ``row`` to ``stop`` (exclusive) that is not intact or has a finding, else ``stop``.

    ``found`` has the findings by position. The second number counts the records of the selected batches before that row.
    """
    records = 0
    while row < stop:
        if batches.selected[row]:
            if not batches.intact[row] or (found and batches.position[row] in found):
                break
            records += batches.record_sum[row]
        row += 1
    return row, records


def end_of_selected(batches: BatchColumns, row: int, found: dict[int, Any]) -> int:
    """Return the end of the selected batches from ``row`` on that are consecutive in the file and have one header format.

    A batch whose position is in ``found`` is alone.
    """
    if found and batches.position[row] in found:
        return row + 1
    row += 1
    while (
        row < batches.count
        and batches.selected[row]
        and (batches.magic[row] < 2) == (batches.magic[row - 1] < 2)
        and batches.position[row] == batches.position[row - 1] + batches.size[row - 1]
        and not (found and batches.position[row] in found)
    ):
        row += 1
    return row


def first_other_epoch(batches: BatchColumns, row: int, stop: int, epoch: int) -> int:
    """Return the first row from ``row`` to ``stop`` (exclusive) of a v2 batch with another leader epoch, else ``stop``."""
    while row < stop and (batches.magic[row] < 2 or batches.partition_leader_epoch[row] == epoch):
        row += 1
    return row


SKIP = 0  # damaged
COPY = 1  # already of the target's version
DROP = 2  # a control batch, which v0 and v1 lack
PLAIN = 3
PACKED = 4  # compressed: its records are in a payload
LEFT_OUT = 5  # intact, but the caller deselected it
# C constants when compiled.
SKIPPED = SKIP
COPIED = COPY
DROPPED = DROP
UNPACKED = PLAIN
COMPRESSED = PACKED
DESELECTED = LEFT_OUT


def classify(batches: BatchColumns, row: int, target: int, copies: bool) -> int:
    """Return the kind of a batch: SKIP, LEFT_OUT, COPY (only with ``copies``), DROP, PLAIN or PACKED."""
    magic = batches.magic[row]
    attributes = batches.attributes[row]
    if batches.crc_state[row] == CRC_BAD or not batches.intact[row]:
        return SKIPPED
    if not batches.selected[row]:
        return DESELECTED
    if copies and magic == target:
        return COPIED
    if magic >= 2 and target < 2 and attributes & CONTROL:
        return DROPPED
    return COMPRESSED if attributes & CODEC_MASK else UNPACKED


def classify_run(batches: BatchColumns, row: int, stop: int, target: int, copies: bool) -> tuple[int, int]:
    """Return the kind of batch ``row`` and the end of the run of its kind and version; a compressed batch is alone."""
    kind = classify(batches, row, target, copies)
    magic = batches.magic[row]
    row += 1
    if kind != COMPRESSED:
        while row < stop and batches.magic[row] == magic and classify(batches, row, target, copies) == kind:
            row += 1
    return kind, row


def count_codecs(batches: BatchColumns, row: int, stop: int, counts: list[int]) -> int:
    """Count batches by codec in ``counts``; return the size of the largest batch in bytes."""
    size = 0
    while row < stop:
        counts[batches.attributes[row] & CODEC_MASK] += 1
        if batches.size[row] > size:
            size = batches.size[row]
        row += 1
    return size


def count_timed(records: RecordColumns, first: int, stop: int) -> int:
    """Return how many of the rows ``first`` to ``stop`` have a timestamp."""
    timed = 0
    for i in range(first, stop):
        if records.timestamp[i] != NO_TIMESTAMP:
            timed += 1
    return timed
