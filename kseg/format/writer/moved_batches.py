"""Find the batches that damage moved within a segment, and those whose headers name a last offset that is too high.

Damage to a base offset leaves a batch where it is in the file. So a batch was moved if it does not fit between the
batches around it, or if its offsets join the batches around a hole elsewhere and no flipped bit explains them. The segment
is read with each of them in its place.

A last offset is too high if no record of a v2 batch has it, but the batch after it has. The CRC covers it, so a faulty
writer wrote it. The batch after it is right if it begins right after the records, and the log continues right after it.
Compaction leaves a last offset without a record, but none that another batch has.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kseg.format.record.framing import increment_sequence
from kseg.format.record.offset_evidence import one_bit_apart
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.increasing_offsets import LocatedBatch


class CorrectedOffset(NamedTuple):
    """The number ``by`` to add to the offset in the header of a batch, and its first and last offset then."""

    by: int
    first: int
    last: int


class MovedBatch(NamedTuple):
    """A batch to read at byte ``to`` of the file instead of its ``position`` to ``end`` (exclusive)."""

    position: int
    end: int
    low: int
    high: int
    previous: int
    to: int


@dataclass(frozen=True, slots=True)
class _Hole:
    """The batches around the offsets of another one, None at an end of the segment; ``low`` is the last offset before."""

    low: int
    below: LocatedBatch | None
    above: LocatedBatch | None

    def joins(self, batch: LocatedBatch) -> bool:
        """Return whether the batch continues the one before, and the next one continues it."""
        return self.low + 1 == batch.low and (self.above is None or batch.high + 1 == self.above.low)

    def has(self, batch: LocatedBatch) -> bool:
        """Return whether no other batch has offsets of the batch."""
        return self.low < batch.low and (self.above is None or batch.high < self.above.low)


def moved_batches(
    block: list[LocatedBatch], staying: Container[int], candidates: Iterable[int], floor: int
) -> list[MovedBatch]:
    """Return the ``candidates`` of a whole segment that were moved, with their places; ``staying`` have theirs.

    ``floor`` is the last offset before the segment.
    """
    stays = [batch for n, batch in enumerate(block) if n in staying]
    if not stays:
        return []
    found: list[MovedBatch] = []
    placed = sorted(stays, key=lambda batch: batch.low)
    lows = [batch.low for batch in placed]
    homes = {batch.position: batch.end for batch in stays}
    left, done = sorted(candidates, key=lambda n: block[n].low), -1
    while done != len(found):  # a batch that goes back shows that another one was not in its place
        done = len(found)
        for n in list(left):
            batch = block[n]
            at = bisect_left(lows, batch.low)
            below = placed[at - 1] if at else None
            hole = _Hole(below.high if below else floor, below, placed[at] if at < len(placed) else None)
            room = _Room(*_around(block, n, staying, floor), placed)
            out_of_time = batch.is_out_of_time(hole.below, hole.above) and not hole.joins(batch)
            if out_of_time or not hole.has(batch) or not _was_moved(batch, hole, room):
                continue
            to = homes[below.position] if below else 0
            found.append(MovedBatch(batch.position, batch.end, batch.low, batch.high, room.low, to))
            homes[batch.position] = to
            placed.insert(at, batch)
            lows.insert(at, batch.low)
            left.remove(n)
    return sorted(found, key=lambda one: one.low)


@dataclass(frozen=True, slots=True)
class _Room:
    """The offsets between ``low`` and ``high`` (both exclusive) that the batches ``placed``, in order, do not have."""

    low: int
    high: int
    placed: list[LocatedBatch]

    def joins(self, first: int, last: int) -> bool:
        """Return whether the offsets ``first`` to ``last`` are free, and next to offsets of a batch."""
        at = bisect_left(self.placed, first, key=lambda batch: batch.low)
        low = max(self.low, self.placed[at - 1].high) if at else self.low
        high = min(self.high, self.placed[at].low) if at < len(self.placed) else self.high
        return low < first and last < high and (first == low + 1 or last == high - 1)

    def fits(self, count: int) -> bool:
        """Return whether there are ``count`` adjacent free offsets."""
        at = bisect_left(self.placed, self.low, key=lambda batch: batch.low)
        begin = self.low
        while at < len(self.placed) and self.placed[at].low < self.high:
            if self.placed[at].low - begin > count:
                return True
            begin = max(begin, self.placed[at].high)
            at += 1
        return self.high - begin > count


def _was_moved(batch: LocatedBatch, hole: _Hole, room: _Room) -> bool:
    """Return whether a batch is not where it was written: ``hole`` has its offsets, ``room`` is where it is in the file."""
    if (hole.below is None or hole.above is None) and not hole.joins(batch):
        return False
    if not room.fits(batch.high - batch.low + 1):
        return True
    return hole.joins(batch) and not any(room.joins(*place) for place in batch.one_bit_places())


def _around(block: list[LocatedBatch], n: int, staying: Container[int], floor: int) -> tuple[int, int]:
    """Return the last offset before a batch in the file and the first one after it, of batches that stay."""
    before = next((block[m].high for m in range(n - 1, -1, -1) if m in staying), floor)
    return before, next((block[m].low for m in range(n + 1, len(block)) if m in staying), 1 << 63)


def arranged_pieces(moved: Iterable[MovedBatch], size: int) -> tuple[tuple[int, int], ...]:
    """Return the byte ranges of a file in the order in which each moved batch is in its place."""
    moved = list(moved)
    cuts = sorted({0, size, *(at for one in moved for at in (one.position, one.end, one.to))})
    pieces: list[tuple[int, int]] = []
    for begin, end in itertools.pairwise(cuts):
        pieces += [(one.position, one.end) for one in moved if one.to == begin]
        # A place inside a moved batch does not exist: it is the end of a batch that stays.
        if not any(one.position <= begin < one.end for one in moved):
            pieces.append((begin, end))
    return (*pieces, *((one.position, one.end) for one in moved if one.to == size))


def source_ranges(pieces: tuple[tuple[int, int], ...], position: int, end: int) -> list[tuple[int, int]]:
    """Return the byte ranges of the file for a range of the file as it was read; all of it without ``pieces``."""
    found: list[tuple[int, int]] = []
    begin = 0
    for first, stop in pieces:
        low, high = max(position, begin), min(end, begin + stop - first)
        if low < high or (low == high == position == end):
            found.append((first + low - begin, first + high - begin))
        begin += stop - first
    merged: list[tuple[int, int]] = []
    for first, stop in found or [(position, end)]:
        if merged and merged[-1][1] == first:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((first, stop))
    return merged


def next_staying(block: list[LocatedBatch], staying: set[int]) -> list[int | None]:
    """Return for each batch the first offset of the next one that stays."""
    following: list[int | None] = [None] * len(block)
    for n in range(len(block) - 2, -1, -1):
        following[n] = block[n + 1].low if n + 1 in staying else following[n + 1]
    return following


def holes_before(block: list[LocatedBatch], staying: set[int], floor: int) -> dict[int, int]:
    """Return the number of offsets that are missing before each batch that stays, by its first offset."""
    holes, last = {}, floor
    for n in sorted(staying):
        holes[block[n].low] = block[n].low - last - 1
        last = block[n].high
    return holes


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
