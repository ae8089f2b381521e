"""Find the rows of a window at which a repair or a conversion has to look closer.

The batches of a healthy log need nothing but a look at their columns: these loops skip them without an object per batch.
Compiled with the types of ``batch_rows.pxd``.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK

# C constants when compiled.
BAD = CRC_BAD
CODEC = CODEC_MASK


def offsets_ascend(batches: BatchColumns, last_offset: int, ceiling: int) -> tuple[bool, int]:
    """Return whether the offsets of a window are above ``last_offset``, below ``ceiling`` and in order, and the highest.

    Batches with a wrong CRC are skipped. A compressed v0 or v1 message is not in order, because its header does not have
    its first offset.
    """
    for row in range(batches.count):
        if batches.crc_state[row] == BAD:
            continue
        if batches.magic[row] < 2 and batches.attributes[row] & CODEC:
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
