"""Find the v2 batches whose headers name a last offset that the batch after them has, too, but no record of theirs.

The CRC covers the last offset, so a faulty writer wrote it. The batch after it is right if it begins right after the
records, and the log continues right after it. Compaction leaves a last offset without a record, but
none that another batch has.
"""

from __future__ import annotations

from collections.abc import Callable

from kseg.format.record.framing import increment_sequence
from kseg.format.record.offset_evidence import one_bit_apart
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.increasing_offsets import LocatedBatch

#: The offset of the next segment if none follows.
NO_SEGMENT = 1 << 63


def overlaps(batch: LocatedBatch, following: int | None) -> bool:
    """Return whether the offset after a batch is in its range, so that its header or that offset is wrong."""
    return following is not None and batch.low < following <= batch.high


def shortened(
    block: list[LocatedBatch],
    following: int | None,
    open_segment: Callable[[], Source],
    *,
    whole: bool,
) -> dict[int, LocatedBatch]:
    """Return the batches of a block that end with their records, by index, with these offsets.

    ``following`` is the offset in the name of the next segment, NO_SEGMENT if none follows, None if unknown. ``whole``: the
    block has the last batch of the segment. The segment is a local file.
    """
    found: dict[int, LocatedBatch] = {}
    for n in reversed(range(len(block))):
        batch = block[n]
        after = found.get(n + 1, block[n + 1]) if n + 1 < len(block) else None
        begins = after.low if after else following if whole else None
        if not overlaps(batch, begins):
            continue
        then = block[n + 2].low if n + 2 < len(block) else following if whole else -1
        if after and (after.position != batch.end or not _continues(batch, after, then)):
            continue
        last = _last_record(open_segment, batch)
        if last is not None and last + 1 == begins:
            count = last - batch.low + 1
            found[n] = batch._replace(high=last, next_sequence=increment_sequence(batch.sequence, count))
    return found


def _continues(batch: LocatedBatch, after: LocatedBatch, then: int | None) -> bool:
    """Return whether the offset of the batch ``after`` another one is confirmed: ``then`` is the next offset of the log.

    The newest segment is not compacted, so its last batch does not need it. Otherwise no flipped bit may explain its offset.
    """
    confirmed = then in (after.high + 1, NO_SEGMENT)
    return confirmed or (then is None and not one_bit_apart(after.stored, batch.high + 1))


def _last_record(open_segment: Callable[[], Source], batch: LocatedBatch) -> int | None:
    """Return the offset of the last record of a batch, None if not all of its records can be read."""
    with SegmentReader(open_segment().rearranged([(batch.position, batch.end)])) as reader:
        for window in reader.windows():
            for chunk in DeepIterator().chunks(window):
                batches, row = chunk.batches, chunk.first
                whole = batches.magic[row] >= 2 and batches.intact[row] and batches.disorder[row] < 0
                return batches.last_record_offset[row] if whole and batches.record_total[row] else None
    return None
