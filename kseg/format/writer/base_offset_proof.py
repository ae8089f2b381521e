"""Prove the right base offset of a batch from the batches next to it."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from functools import cached_property

from kseg.format.record.offset_evidence import one_bit_apart, out_of_reach
from kseg.format.writer.increasing_offsets import FAR, LocatedBatch, most_in_order

# The orders of more batches are not compared.
_MOST_ORDERED = 5


class BaseOffsetProof:
    """The proofs that a block of batches, in the order of the file, holds for the base offset of one of them.

    A base offset is proved under two conditions. First, the batches that are adjacent in the file leave it one place only,
    and these join the batches beyond them. Second, the batches on both sides are adjacent and leave the same place, or the
    stored offset differs from it in one bit, or a producer's sequences and the timestamps continue through it and as many
    offsets are missing there as it has. Sequences do not show how many offsets compaction has removed between two batches.

    Against it is the possibility that the batch was moved or copied here: a hole at the offsets it names, another batch
    with the offsets of the place, sequences that do not continue, or the same batch elsewhere. In a log with gaps, a wrong
    neighbour can leave a place by chance. Timestamps alone are not evidence: producers send late.

    ``ended``: a side file, not a batch, is after the last batch of the segment. The block is shared with the caller: it
    puts the batches with proved offsets in, and so does ``correct_runs``.
    """

    def __init__(
        self, block: list[LocatedBatch], floor: int, name: int | None, limit: int, before: LocatedBatch | None,
        after: LocatedBatch | None, newest: bool, *, ended: bool = False,
    ) -> None:  # fmt: skip
        self._block = block
        self._floor = floor
        self._name = name
        self._limit = limit
        self._before = before
        self._after = after
        self._newest = newest
        self._ended = ended
        self._lowest = name or 0

    def is_proved(self, n: int) -> LocatedBatch | None:
        """Return batch ``n`` with the offsets that are proved, None if the evidence is not enough or it has them."""
        batch = self._block[n]
        if batch.inner >= 0 and one_bit_apart(batch.stored, batch.inner):
            # The offsets of the messages in a v0 wrapper are absolute.
            first = min(batch.first_inner, batch.inner) if batch.first_inner >= 0 else batch.low
            return batch._replace(low=first, high=batch.inner, stored=batch.inner)
        before, after = self._around(n, n + 1)
        low = self._place(n)
        if low is None or low < self._lowest:
            return None
        proved = batch.beginning_at(low)
        one_bit = one_bit_apart(batch.stored, proved.stored)
        begins = batch.position == before.end if before else not batch.position and self._name is not None
        enclosed = begins and after is not None and batch.end == after.position
        fills = before is not None and before.high + 1 == low and after is not None and proved.high + 1 == after.low
        continued = fills and _sequences_fit(batch, before, after) and _times_fit(batch, before, after)
        # In a log without gaps the batch after it shows what zeros have overwritten.
        by = proved.stored - batch.stored
        zeroed = batch.after_zeros and by > 0 == by % batch.lost_unit and self._is_dense_without(n)
        if not (one_bit or enclosed or continued or zeroed):
            return None
        if self._is_copied(n) and not (one_bit and enclosed and self._repeats(n)):
            return None
        # ``misplaced_offset_finding`` states a proof under this condition, which needs no other batch of the partition.
        if enclosed and out_of_reach(batch.stored, proved.stored):
            return proved
        if _sequences_contradict(before, proved) or _sequences_contradict(proved, after) or self._is_claimed(n, proved):
            return None
        if not self._is_only_place(n, low, exact=enclosed or fills or zeroed, one_bit=one_bit):
            return None
        adjacent = enclosed or (begins and not n)
        # Bytes are lost on one side. Then the neighbour on the other side must be confirmed by the batch beyond it.
        if not adjacent and not (self._confirms(n - 2) if begins else self._confirms(n + 1)):
            return None
        if zeroed:
            moved = False
        elif adjacent:
            moved = self._may_be_from_elsewhere(n, one_bit=one_bit, enclosed=enclosed)
        else:
            # The batches before a moved one can be lost with those bytes.
            moved = sum(one.crc == batch.crc for one in self._block) > 1 or self._may_be_moved(n, FAR)
        return None if moved else proved

    def _around(self, first: int, stop: int) -> tuple[LocatedBatch | None, LocatedBatch | None]:
        """Return the batches before and after those from ``first`` to ``stop`` (exclusive)."""
        before = self._block[first - 1] if first else self._before
        return before, self._block[stop] if stop < len(self._block) else self._after

    def _is_only_place(self, n: int, low: int, *, exact: bool, one_bit: bool) -> bool:
        """Return whether gaps of the log leave batch ``n`` no other place than ``low``.

        ``exact``: its neighbours leave as many offsets as it has. In a log with gaps this can be chance.
        """
        dense, (before, after) = self._is_dense_without(n), self._around(n, n + 1)
        if not exact and (after is not None or not dense) and not self._is_only_far_place(n, low):
            return False
        if dense:
            return True
        times_fit = one_bit or not self._block[n].is_out_of_time(before, after)
        return times_fit and self._is_contradicted(n)

    def _may_be_from_elsewhere(self, n: int, *, one_bit: bool, enclosed: bool) -> bool:
        """Return whether batch ``n``, between adjacent batches, may be right where its offsets are missing."""
        batch, (before, after) = self._block[n], self._around(n, n + 1)
        as_many = self._highest_without(n) - self._lowest + 1
        if not batch.is_out_of_time(before, after):
            ordered = one_bit or _sequences_fit(batch, before, after) or (self._ended and n == len(self._block) - 1)
            return self._may_be_moved(n, 0 if ordered else as_many)
        # Its timestamps speak for another place. As many offsets can be missing there as the block has.
        if not (one_bit or enclosed):
            return self._may_be_moved(n, FAR)
        if not one_bit and (batch.low < self._lowest or (batch.low >= self._limit and not self._newest)):
            return True  # it can be from another segment
        return self._may_be_moved(n, as_many)

    def correct_runs(self, staying: set[int]) -> dict[int, int]:
        """Correct several adjacent batches of the block at once where that is proved; return the number added to each.

        ``staying`` are the batches that have a place. The others are between them.
        """
        corrected: dict[int, int] = {}
        first, count = 0, len(self._block)
        for n in [*sorted(staying), count]:
            # A batch next to them can have a wrong offset that fits by chance.
            for begin, stop in ((first, n), (first - 1, n), (first, n + 1)) if n > first else ():
                placed = self._proved_run(begin, stop) if begin >= 0 and stop <= count and stop - begin > 1 else []
                for m, batch in enumerate(placed, begin):
                    corrected[m] = batch.stored - self._block[m].stored + corrected.get(m, 0)
                    self._block[m] = batch
                if placed:
                    break
            first = n + 1
        return corrected

    def _proved_run(self, first: int, stop: int) -> list[LocatedBatch]:
        """Return the batches ``first`` to ``stop`` (exclusive) with their proved offsets, an empty list without proof.

        The batches are adjacent in the file, and fill the offsets between the batches around them, which join those beyond.
        Each has its offset or one that differs in one bit, or the timestamps rise through all. None of the offsets that
        change is missing elsewhere, and in no other order of the batches one of them is right.
        """
        block = self._block
        before, after = self._around(first, stop)
        if before is not None:
            low, end = before.high + 1, before.end
        elif not first and self._name is not None:
            low, end = self._name, 0
        else:
            return []
        if after is None or not (self._joins(first - 2) or self._joins(stop)):
            return []
        placed = []
        for n in range(first, stop):
            if block[n].position != end or self._is_copied(n) or low < self._lowest:
                return []
            placed.append(block[n].beginning_at(low))
            low, end = placed[-1].high + 1, block[n].end
        if low != after.low or end != after.position:
            return []
        around = [*([before] if before else []), *placed, after]
        pairs = list(itertools.pairwise(around))
        rising = all(one.is_earlier_than(other) for one, other in pairs)
        stored = [one.stored for one in block[first:stop]]
        near = all(one.stored == old or one_bit_apart(one.stored, old) for one, old in zip(placed, stored, strict=True))
        changed = [n for n in range(first, stop) if placed[n - first].stored != block[n].stored]
        if len(changed) < 2:
            return []  # see ``is_proved``
        # Two swapped batches differ in one bit of their offsets, too.
        falling = any(other.is_earlier_than(one) for one, other in pairs)
        outside = [n for n in changed if block[n].low < placed[0].low or block[n].high > placed[-1].high]
        moved = any(self._may_be_moved(n, falling * (self._highest_without(n) - self._lowest + 1)) for n in outside)
        if moved or any(_sequences_contradict(one, other) for one, other in pairs):
            return []
        ordered = all(_sequence_follows(one, other) for one, other in pairs)
        return placed if (rising or near) and (ordered or not _fits_in_other_order(block[first:stop], placed)) else []

    def _place(self, n: int) -> int | None:
        """Return the only first offset that the adjacent batches leave, None if there is none or it is the stored one."""
        batch, (before, after) = self._block[n], self._around(n, n + 1)
        if before and before.end != batch.position:
            before = None
        if after and batch.end != after.position:
            after = None
        places, joined = set(), False
        if not n and not batch.position and self._name is not None:
            places.add(self._name)
            joined = before is not None and before.high + 1 == self._name
            joined = joined or (not after and abs(self._name - batch.low) >= FAR)
        elif before:
            places.add(before.high + 1)
            joined = self._joins(n - 2)
        if after:
            places.add(after.low - 1 - (batch.high - batch.low))
            joined = joined or self._joins(n + 1)
        if len(places) != 1 or not joined or batch.low in places:
            return None
        (low,) = places
        by = low - batch.low
        last = self._block[n - 1].high if n else self._floor
        following = self._block[n + 1].low if n + 1 < len(self._block) else self._limit
        if low <= last or batch.high + by >= following:
            return None
        if not n and self._newest and before and before.high + 1 == low == self._name:
            return low
        # A hole before the last batch may be one that compaction left.
        in_order = max(last, self._lowest - 1) < batch.low and batch.high < following
        ended = self._ended and n == len(self._block) - 1
        return low if not in_order or abs(by) >= FAR or ended or batch.after_zeros else None

    def _joins(self, n: int) -> bool:
        """Return whether the batches ``n`` and ``n + 1`` join, as far as both exist."""
        if n < 0 or n + 1 >= len(self._block):
            return True
        return self._block[n].high + 1 == self._block[n + 1].low

    def _confirms(self, n: int) -> bool:
        """Return whether the batches ``n`` and ``n + 1`` exist and join."""
        return 0 <= n < len(self._block) - 1 and self._joins(n)

    def _is_dense_without(self, n: int) -> bool:
        """Return whether no offsets are missing between adjacent batches of the block, except next to batch ``n``.

        A wrong offset leaves a gap on one side, and contradicts the batch on the other side: this is not a missing offset.
        """
        return all(at in (n - 1, n) for at in self._gaps[:3])

    @cached_property
    def _gaps(self) -> list[int]:
        """The batches with missing offsets after them, between adjacent ones."""
        steps = [other.low - one.high - 1 for one, other in itertools.pairwise(self._block)]
        near = zip([0, *steps], steps, [*steps[1:], 0], strict=False)
        return [
            at for at, (before, gap, after) in enumerate(near)
            if before >= 0 < gap and after >= 0 and self._block[at].end == self._block[at + 1].position
        ]  # fmt: skip

    def _is_contradicted(self, n: int) -> bool:
        """Return whether a neighbour that joins the one beyond it contradicts the stored offsets of batch ``n``.

        If only one neighbour contradicts them, that one can be wrong instead. If none does, either one counts.
        """
        block, batch, (before, after) = self._block, self._block[n], self._around(n, n + 1)
        if n > 1:
            joins_before = self._joins(n - 2)
        else:
            joins_before = not n or (not block[0].position and block[0].low == self._name)
        if n + 2 < len(block):
            joins_after = self._joins(n + 1)
        else:
            joins_after = n + 1 == len(block) or (self._after is not None and block[-1].high + 1 == self._after.low)
        behind = before is not None and batch.low <= before.high
        ahead = after is not None and batch.high >= after.low
        return (joins_before and (behind or not ahead)) or (joins_after and (ahead or not behind))

    def _is_only_far_place(self, n: int, low: int) -> bool:
        """Return whether ``low`` is far from the stored offset of batch ``n``, and the only place for it by one flipped bit.

        A near place can differ in one bit by chance.
        """
        before, after = self._around(n, n + 1)
        floor = self._floor if before is None else before.high
        limit = floor + FAR if after is None else after.low
        places = sum(floor < first and last < limit for first, last in self._block[n].one_bit_places())
        return places == 1 and abs(low - self._block[n].low) >= FAR

    def _is_claimed(self, n: int, placed: LocatedBatch) -> bool:
        """Return whether another batch has offsets of the place of batch ``n``."""
        ranges = self._ranges
        at = bisect_left(ranges, (placed.low, -1, 0))
        if at and ranges[at - 1][1] >= placed.low:
            at -= 1
        while at < len(ranges) and ranges[at][0] <= placed.high:
            low, _, m = ranges[at]
            if m != n and self._block[m].low == low:  # not corrected since
                return True
            at += 1
        return False

    def _is_copied(self, n: int) -> bool:
        """Return whether the batch is here twice."""
        return self._copies[self._block[n].crc, self._block[n].stored] > 1

    @cached_property
    def _copies(self) -> Counter[tuple[int, int]]:
        return Counter((one.crc, one.stored) for one in self._block)

    def _repeats(self, n: int) -> bool:
        """Return whether the same content is here with another offset, too: two batches with it can both be originals."""
        batch = self._block[n]
        return any(one.crc == batch.crc and one.stored != batch.stored for one in self._block)

    def _may_be_moved(self, n: int, lost: int) -> bool:
        """Return whether the batch has offsets that no other batch has and that could be missing.

        ``lost`` is the most offsets that could be missing before it, after the highest offset of the others.
        """
        ranges, batch = self._ranges, self._block[n]
        at = bisect_left(ranges, (batch.low, batch.high, 0))
        before = ranges[at - 1][1] if at else self._lowest - 1
        after = ranges[at + 1][0] if at + 1 < len(ranges) else 1 << 63
        highest = self._highest_without(n)
        return before < batch.low and batch.high < min(after, self._limit) and batch.low <= highest + 1 + lost

    @cached_property
    def _ranges(self) -> list[tuple[int, int, int]]:
        """The first and last stored offset of all batches, and their numbers, in the order of the offsets."""
        return sorted((one.low, one.high, m) for m, one in enumerate(self._block))

    def _highest_without(self, n: int) -> int:
        """Return the highest offset of the batches that can stay, without batch ``n``."""
        if self._block[n].high != self._highest:
            return self._highest
        return self._highest_of(self._block[:n] + self._block[n + 1 :])

    @cached_property
    def _highest(self) -> int:
        return self._highest_of(self._block)

    def _highest_of(self, block: list[LocatedBatch]) -> int:
        kept = zip(block, most_in_order(block, self._floor), strict=True)
        return max((one.high for one, stays in kept if stays), default=-1)


def _fits_in_other_order(stored: list[LocatedBatch], placed: list[LocatedBatch]) -> bool:
    """Return whether another order of the corrected batches explains their stored offsets as well as that of the file.

    One of them keeps its offset in it, and none has more than one flipped bit, unless it has in the order of the file, too.
    """
    pairs = list(zip(stored, placed, strict=True))
    changed = [pair for pair in pairs if pair[0].stored != pair[1].stored]
    right = {one.low: one.high + 1 for old, one in pairs if old.stored == one.stored}
    low, high = placed[0].low, placed[-1].high
    inside = any(
        low <= old.low and old.high <= high and all(end <= old.low or old.high < begin for begin, end in right.items())
        for old, _ in changed
    )
    if not inside or len(changed) > _MOST_ORDERED:
        return inside
    return any(_explains(order, right, low) for order in itertools.permutations(changed))


def _explains(order: tuple[tuple[LocatedBatch, LocatedBatch], ...], right: dict[int, int], low: int) -> bool:
    """Return whether batches fit in that order from offset ``low`` on, next to the ranges ``right``, and one is right."""
    kept = False
    for old, placed in order:
        while low in right:
            low = right[low]
        one = old.beginning_at(low)
        if any(low < begin <= one.high for begin in right):
            return False
        same = one.stored == old.stored
        if not same and not one_bit_apart(one.stored, old.stored) and one_bit_apart(placed.stored, old.stored):
            return False
        kept = kept or same
        low = one.high + 1
    return kept


def _sequences_fit(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether both neighbours are of the batch's producer, and its sequence lies between theirs."""
    if before is None or after is None:
        return False
    return _sequence_follows(before, batch) and _sequence_follows(batch, after)


def _sequences_contradict(batch: LocatedBatch | None, following: LocatedBatch | None) -> bool:
    """Return whether a batch with the next offset is of the same producer, but does not have its next sequence."""
    if batch is None or following is None or batch.high + 1 != following.low:
        return False
    same = batch.producer is not None and batch.producer == following.producer
    return same and not _sequence_follows(batch, following)


def _sequence_follows(batch: LocatedBatch, following: LocatedBatch) -> bool:
    """Return whether a batch has the next sequence of the same producer."""
    same = batch.producer is not None and batch.producer == following.producer
    return same and batch.next_sequence == following.sequence


def _times_fit(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether the timestamps of a batch lie between those of its neighbours."""
    if before is None or after is None:
        return False
    return before.first_time <= batch.first_time and batch.last_time <= after.last_time
