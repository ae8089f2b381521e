"""Select the batches that stay, the most with increasing offsets, from what is known of the place of each.

Of several selections with as many batches, the one that damage explains least is chosen.

Where two selections are equal and one flipped bit explains either, both batches are left out: see ``undecided``.

Read the offsets, timestamps and sequences of a segment's batches, as far as they help to find their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator
from typing import NamedTuple

from kseg.format.record.columns import CRC_BAD
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CONTROL, DELETE_HORIZON, INT32_MAX
from kseg.format.record.offset_evidence import is_wrapper, one_bit_apart, span_of
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window

# Two batches of one log that are next to each other have fewer offsets missing between them.
FAR = 1 << 16


class LocatedBatch(NamedTuple):
    """The offsets of one batch, and what shows whether they are right.

    ``position`` and ``end`` (exclusive) are bytes of the file. ``low`` and ``high`` are the first and the last offset.
    ``stored`` is the number in the base offset field. ``first_inner`` and ``inner`` are the first and the last offset in a
    v0 wrapper, -1 for other batches. ``doubtful``: the size field was overwritten, so the base offset before it may be
    overwritten, too. ``after_zeros``: zeros are lost before it, or its base offset is 0 after lost bytes.
    ``leader_epoch`` is -1 in v0 and v1.
    """

    position: int
    end: int
    low: int
    high: int
    stored: int
    crc: int
    first_time: int
    last_time: int
    producer: tuple[int, int] | None
    sequence: int
    next_sequence: int
    first_inner: int
    inner: int
    doubtful: bool = False
    after_zeros: bool = False
    leader_epoch: int = -1

    def beginning_at(self, low: int) -> LocatedBatch:
        """Return the batch with ``low`` as its first offset."""
        high = low + self.high - self.low
        # Of a wrapper the last offset is stored.
        stored = high if self.stored == self.high else low
        return self._replace(low=low, high=high, stored=stored, first_inner=-1, inner=-1)

    def is_earlier_than(self, other: LocatedBatch) -> bool:
        """Return whether all its timestamps are before those of another batch."""
        return 0 <= self.last_time < other.first_time

    def is_out_of_time(self, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
        """Return whether all its timestamps are earlier than those ``before``, or later than those ``after``."""
        early = before is not None and self.is_earlier_than(before)
        return early or (after is not None and after.is_earlier_than(self))

    @property
    def lost_unit(self) -> int:
        """A power of 256 that divides what the base offset was more, if its first bytes are lost."""
        return 1 << (self.stored.bit_length() + 7) // 8 * 8

    def one_bit_places(self) -> Iterator[tuple[int, int]]:
        """Return the first and the last offset that each flip of one bit in the base offset field results in."""
        for bit in range(63):
            by = (self.stored ^ 1 << bit) - self.stored
            if self.low + by >= 0:
                yield self.low + by, self.high + by


def batches_of(reader: SegmentReader) -> Iterator[LocatedBatch]:
    """Return the batches with a valid CRC whose own offsets don't contradict each other."""
    opener = DeepIterator()
    for window in reader.windows():
        batches = window.batches
        wrapped = wrapped_offsets(window, opener)
        columns = [memoryview(getattr(batches, name))[: batches.count].tolist() for name in _Header._fields]
        for row, fields in enumerate(zip(*columns, strict=True)):
            header = _Header._make(fields)
            ordered = header.magic < 2 or header.last_offset >= clamped(header.base_offset)
            if header.crc_state != CRC_BAD and ordered:
                yield _batch_of(header, wrapped.get(row))


def wrapped_offsets(window: Window, opener: DeepIterator) -> dict[int, tuple[int, int]]:
    """Return the first and the last offset in each v0 and v1 wrapper of a window, by row: only its payload has the first.

    ``record_sum`` of these batches is the number of their records then.
    """
    found: dict[int, tuple[int, int]] = {}
    batches = window.batches
    oldest = min(memoryview(batches.magic)[: batches.count], default=2)
    if oldest < 2 and any(is_wrapper(batches, row) for row in range(batches.count)):
        for chunk in opener.chunks(window):
            found.update(_wrapped_offsets(chunk))
    return found


def _wrapped_offsets(chunk: Chunk) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return the first and the last offset in each v0 and v1 wrapper, by row."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        # A wrapper whose messages contradict its own offset does not count as intact. Those of v0 have absolute offsets.
        absolute = not batches.magic[row] and batches.record_sum[row] > 0
        if is_wrapper(batches, row) and (span_of(batches, row, True) >= 0 or absolute):
            yield row, (batches.first_record_offset[row], batches.last_record_offset[row])


class _Header(NamedTuple):
    """The columns that a Batch is made from. Lists of them are read faster than each number of a column."""

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    crc: int
    crc_state: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    partition_leader_epoch: int


def batch_at(window: Window, row: int, wrapped: tuple[int, int] | None) -> LocatedBatch:
    """Return the batch in ``row``; ``wrapped`` are the first and the last offset in it if it is a v0 or v1 wrapper."""
    return _batch_of(_Header._make(getattr(window.batches, name)[row] for name in _Header._fields), wrapped)


def _batch_of(header: _Header, wrapped: tuple[int, int] | None) -> LocatedBatch:
    high = header.last_offset
    low = high if header.magic < 2 else clamped(header.base_offset)
    first_inner = inner = -1
    if wrapped is not None:
        # Those of v1 are relative to the offset in the header, which 64 bits may not hold.
        low = min(wrapped[0], high) if header.magic == 0 else high - (wrapped[1] - wrapped[0])
        if header.magic == 0:
            first_inner, inner = wrapped
    producer = None
    if header.producer_id >= 0 and not header.attributes & CONTROL and header.base_sequence >= 0:
        producer = header.producer_id, header.producer_epoch
    horizon = header.magic >= 2 and header.attributes & DELETE_HORIZON
    return LocatedBatch(
        position=header.position,
        end=header.position + header.size,
        low=low,
        high=high,
        stored=header.base_offset,
        crc=header.crc,
        first_time=-1 if horizon else header.base_timestamp,
        last_time=header.max_timestamp,
        producer=producer,
        sequence=header.base_sequence,
        next_sequence=increment_sequence(header.base_sequence, (high - low + 1) & INT32_MAX),  # of 2**63 offsets, too
        first_inner=first_inner,
        inner=inner,
        leader_epoch=header.partition_leader_epoch,
    )


# The score of a selection. A smaller unit counts only between selections that are equal in all larger ones.
ONE_BATCH = 1 << 96
ONE_BIT_WRONG = -1 << 64
JOINS = 1 << 32
AFTER_LOST_BYTES = -1


# Fewer missing offsets are not suspicious: compaction leaves holes of a few offsets everywhere.
_SUSPICIOUS = 64


def too_high(batch: LocatedBatch, before: int, lost: int, least: int, most: int) -> bool:
    """Return whether one flipped bit explains that offsets are missing before a batch, and lost bytes don't.

    No bytes need to be lost for it if many offsets are missing, or if the batch joins the one before without this bit.

    ``before`` is the last offset before it, ``lost`` the number of bytes lost next to it. If more than ``least`` offsets
    are missing, the lost bytes don't explain it; ``most`` can be missing without the flipped bit.
    """
    gap = batch.low - before - 1
    bit = 1 << max(gap, 1).bit_length() - 1
    damaged = lost or gap >= FAR or one_bit_apart(batch.low, before + 1)
    return bool(damaged and gap >= _SUSPICIOUS and least < gap <= bit + most and batch.stored & bit)


def suspects(block: list[LocatedBatch], floor: int, size: int | None) -> set[int]:
    """Return the batches whose base offset is too high by one bit, if the log is dense.

    It is if no other offsets are missing between adjacent batches: compaction leaves holes. ``size`` is the end of the
    file if the block has its last batch. Lost bytes can have held four times the most offsets per byte of the others.
    """
    found: set[int] = set()
    density = max((block_density(batch) for batch in block), default=0.0)
    high, end = floor, 0
    for n, batch in enumerate(block):
        after = block[n + 1].position if n + 1 < len(block) else size or batch.end
        lost = batch.position - end
        room = int(4 * density * lost)
        if too_high(batch, high, lost + after - batch.end, room, room):
            found.add(n)
            end = batch.end
            continue
        if not lost and n and batch.low > high + 1 and n - 1 not in found:
            return set()
        high, end = max(high, batch.high), batch.end
    return found


def block_density(batch: LocatedBatch) -> float:
    """Return the number of offsets per byte of a batch."""
    return (batch.high - batch.low + 1) / max(batch.end - batch.position, 1)


def most_in_order(
    block: list[LocatedBatch], floor: int, name: int | None = None, doubted: Container[int] = ()
) -> list[bool]:
    """Return which batches of a block stay, all with offsets above ``floor``.

    Batches that contradict no other stay without being compared. ``name`` is the offset in the segment's name if the block
    begins with the segment's first batch. Batches that are ``doubted`` stay only if no others could.
    """
    kept = [batch.low > floor for batch in block]
    highest, lowest = floor, [1 << 63] * (len(block) + 1)
    for n in range(len(block) - 1, -1, -1):
        lowest[n] = min(lowest[n + 1], block[n].low) if kept[n] else lowest[n + 1]
    zone: list[int] = []
    last = floor
    for n, batch in enumerate(block):
        if not kept[n]:
            continue
        if highest < batch.low and batch.high < lowest[n + 1]:
            _select_in_zone(block, zone, kept, {last, last if name is None else name - 1}, batch.low, doubted)
            zone, last, name = [], batch.high, None
        else:
            zone.append(n)
        highest = max(highest, batch.high)
    _select_in_zone(block, zone, kept, {last, last if name is None else name - 1}, -1, doubted)
    return kept


def _select_in_zone(
    block: list[LocatedBatch],
    zone: list[int],
    kept: list[bool],
    last: set[int],
    following: int,
    doubted: Container[int],
) -> None:
    """Mark which batches of a zone stay.

    ``last`` are the offsets that the first batch of the zone can join, ``following`` is the first offset after the zone, -1
    for none. ``highs`` and ``best`` are the selections worth continuing, by their last offset: the score, and the index of
    the last batch.
    """
    if not zone:
        return
    last_offset = min(last)
    far = _far_by_one_bit(block, zone, last_offset) | {n for n in zone if n in doubted}
    before: dict[int, int] = {}
    highs: list[int] = []
    best: list[tuple[int, int]] = []
    ending = dict.fromkeys(last, (0, -1))
    for n in zone:
        low, high = block[n].low, block[n].high
        at = bisect_left(highs, low)
        score, previous = best[at - 1] if at else (0, -1)
        if low - 1 in ending:
            joined, index = ending[low - 1]
            if joined + JOINS >= score:
                score, previous = joined + JOINS, index
        before[n] = previous
        score += (0 if n in far else ONE_BATCH) + _demerits(block, n, last_offset, far)
        if high not in ending or score > ending[high][0]:
            ending[high] = score, n
        at = bisect_left(highs, high)
        if at and best[at - 1][0] > score:
            continue
        stop = at
        while stop < len(best) and best[stop][0] < score:
            stop += 1
        highs[at:stop] = [high]
        best[at:stop] = [(score, n)]
    for n in zone:
        kept[n] = False
    _, _, n = max((score + JOINS * (high + 1 == following), -high, n) for high, (score, n) in ending.items())
    while n >= 0:
        kept[n] = True
        n = before[n]


def _demerits(block: list[LocatedBatch], n: int, floor: int, far: set[int]) -> int:
    """Return what speaks against the offsets of a batch.

    Bytes were lost right before it, so its base offset may be among them. Or one flipped bit explains why the batch does
    not fit between its neighbours.
    """
    lost = block[n].position != (block[n - 1].end if n else 0)
    return AFTER_LOST_BYTES * lost + ONE_BIT_WRONG * _is_one_bit_wrong(block, n, floor, far)


def _is_one_bit_wrong(block: list[LocatedBatch], n: int, floor: int, far: Container[int] = ()) -> bool:
    """Return whether a batch does not fit between its neighbours in the file, and does with one bit flipped.

    The batches ``far`` and copies of the batch are skipped.
    """
    before, after = n - 1, n + 1
    while before >= 0 and (before in far or block[before].crc == block[n].crc):
        before -= 1
    while after < len(block) and (after in far or block[after].crc == block[n].crc):
        after += 1
    low = block[before].high if before >= 0 else floor
    high = block[after].low if after < len(block) else max(low, block[n].high) + FAR
    if low >= high or (low < block[n].low and block[n].high < high):
        return False
    return any(low < first and last < high for first, last in block[n].one_bit_places())


def _far_by_one_bit(block: list[LocatedBatch], zone: list[int], floor: int) -> set[int]:
    """Return the batches far above the others, if not more than these, that are near them with one bit cleared."""
    ordered = sorted(zone, key=lambda n: block[n].low)
    below, highest = 0, floor
    for below, n in enumerate(ordered):
        if below and block[n].low - highest > FAR:
            break
        highest = max(highest, block[n].high)
    else:
        return set()
    far = ordered[below:]
    if len(far) > below:
        return set()
    return {
        n
        for n in far
        if any(floor < first <= highest + FAR for first, _ in block[n].one_bit_places() if first < block[n].low)
    }


def probable_base_offset(batch: LocatedBatch, before: int, after: int | None) -> int | None:
    """Return the base offset that a misplaced batch probably had, None if nothing suggests one.

    ``before`` and ``after`` are the offsets next to it in the file. It is the only place between them that one flipped bit
    explains, or the only one that joins an offset next to it. Without a flipped bit it is the place that it fills exactly.
    """
    limit = 1 << 63 if after is None else after
    places = [(first, last) for first, last in batch.one_bit_places() if before < first and last < limit]
    joining = [place for place in places if place[0] == before + 1 or place[1] == limit - 1]
    if len(joining) == 1:
        return joining[0][0]
    if before < batch.low and batch.high < limit:
        return None
    if len(places) == 1:
        return places[0][0]
    exact = batch.high - batch.low + 1 == limit - before - 1
    return before + 1 if exact and not places else None


def undecided(block: list[LocatedBatch], kept: list[bool], floor: int, doubted: Container[int] = ()) -> set[int]:
    """Return the batches of which one is wrong, and nothing shows which: two neighbours in the file, one of them kept.

    Each fits without the other, and each fits next to the other with one bit flipped. They do not join the batches around
    them. Timestamps that go back between them show that the two were moved, and then both offsets are right.
    """
    found: set[int] = set()
    for n in range(len(block) - 1):
        one, other = block[n], block[n + 1]
        if kept[n] == kept[n + 1] or other.low > one.high or other.is_earlier_than(one):
            continue
        if (one.crc, one.stored) == (other.crc, other.stored):
            continue  # a copy
        if (n in doubted) != (n + 1 in doubted):
            continue
        if one.low - other.high > FAR:
            continue  # see ``_far_by_one_bit``
        low = block[n - 1].high if n else floor
        high = block[n + 2].low if n + 2 < len(block) else max(one.high, other.high) + 2
        fit = all(low < batch.low and batch.high < high for batch in (one, other))
        joined = low + 1 in (one.low, other.low) or high - 1 in (one.high, other.high)
        if fit and not joined and all(_is_one_bit_wrong(block, m, floor) for m in (n, n + 1)):
            found |= {n, n + 1}
    return found
