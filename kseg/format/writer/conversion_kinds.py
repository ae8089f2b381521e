"""How each batch is treated on its way to another record version: copied, rewritten, dropped or skipped.

Compiled with the types of ``conversion_kinds.pxd``.
"""

from __future__ import annotations

from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.layout import CODEC_MASK, CONTROL, NO_TIMESTAMP

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
