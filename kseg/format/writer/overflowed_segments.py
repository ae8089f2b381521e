"""Find where a broker splits a segment whose offsets its indexes can't have (``LocalLog.splitOverflowedSegment``).

The log cleaner of brokers before 1.0.2, 1.1.1 and 2.0 merged segments beyond 2^31 offsets (KAFKA-6264). Their offsets are
right if they are in order, end before the next segment, and no flipped bit explains the first one beyond the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kseg.format.record.layout import INT32_MAX
from kseg.format.record.offset_evidence import leaps_by_one_bit
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.increasing_offsets import LocatedBatch, batches_of
from kseg.format.writer.offset_order import find_order


class SegmentPart(NamedTuple):
    """The bytes ``begin`` to ``end`` (exclusive) of a segment, which need a segment with the base offset ``base``."""

    base: int
    begin: int
    end: int


def split_parts(open_segment: Callable[[], Source], following: int | None) -> list[SegmentPart]:
    """Return the parts of a segment with offsets beyond its range; none if these can be wrong.

    ``following`` is the base offset of the next segment, None without one. The first part keeps the segment's base offset
    if its first batch fits. Raises KsegError from reading.
    """
    order = find_order(open_segment, following)
    with SegmentReader(open_segment()) as reader:
        base = reader.name_offset
        batches = [
            batch._replace(low=low, high=batch.high + low - batch.low)
            for batch in batches_of(reader)
            if batch.position not in order.misplaced
            for low in (order.corrected[batch.position].first if batch.position in order.corrected else batch.low,)
        ]
        size = reader.position
    if base is None or order.beyond:
        return []
    starts = [(base, 0)]
    previous = base - 1
    for batch, after in zip(batches, [*batches[1:], None], strict=True):
        if not previous < batch.low <= previous + INT32_MAX or batch.inner not in (-1, batch.high):
            return []  # a v0 wrapper has the offsets of its messages
        if batch.high > starts[-1][0] + INT32_MAX:
            if not _is_proved(batch, previous, after):
                return []
            starts = [*starts, (batch.low, batch.position)] if previous >= base else [(batch.low, 0)]
        previous = batch.high
    if starts == [(base, 0)]:
        return []
    ends = [*(begin for _, begin in starts[1:]), size]
    return [SegmentPart(low, begin, end) for (low, begin), end in zip(starts, ends, strict=True)]


def _is_proved(batch: LocatedBatch, previous: int, after: LocatedBatch | None) -> bool:
    """Return whether the offsets of a batch are right: one flipped bit does not explain them, or a batch continues them."""
    if not leaps_by_one_bit(batch.low, previous):
        return True
    return after is not None and batch.high < after.low <= batch.high + INT32_MAX
