"""Find the batches that get an index entry, and the largest timestamp up to each of them.

Compiled with the types of ``max_timestamp.pxd``.
"""

from __future__ import annotations

from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import NO_TIMESTAMP


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
