"""Check that the offsets of decoded batches and their records increase, before they are written again.

Compiled with the types of ``batch_offsets.pxd``.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import INT32_MAX

# C constants when compiled.
BAD = CRC_BAD
MAX_SPAN = INT32_MAX


def check_offsets_in_batch(
    batches: BatchColumns, records: RecordColumns, first: int, stop: int, last_offset: int, faults: list[Any]
) -> int:
    """Mark the decoded batches ``first`` to ``stop`` that a log can't have as not intact, and append to ``faults``.

    Offsets must increase from batch to batch and from record to record, and a batch spans at most an int32. ``last_offset``
    is the offset before. Returns the last valid offset.
    """
    for row in range(first, stop):
        if batches.crc_state[row] != BAD and batches.intact[row]:
            last_offset = check_batch_offsets(batches, records, row, last_offset, faults)
    return last_offset


def first_offset(batches: BatchColumns, records: RecordColumns, row: int) -> int:
    """Return the first offset of a decoded batch; the header of a wrapper does not have it."""
    if batches.magic[row] >= 2:
        return clamped(batches.base_offset[row])
    return batches.first_record_offset[row]


def check_batch_offsets(
    batches: BatchColumns, records: RecordColumns, row: int, last_offset: int, faults: list[Any]
) -> int:
    """Check one batch, like ``check_offsets_in_batch``."""
    low = first_offset(batches, records, row)
    first = batches.first_record[row]
    total = batches.record_total[row]
    high = batches.last_offset[row] if batches.magic[row] >= 2 else batches.last_record_offset[row]
    if low <= last_offset:
        faults.append(("behind", row, low, last_offset))
    elif high < low or high - low > MAX_SPAN:
        faults.append(("span", row, low, high - low))
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
