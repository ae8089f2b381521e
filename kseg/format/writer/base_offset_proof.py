"""Prove the right base offset of a batch from the batches next to it."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter

from kseg.format.record.offset_evidence import one_bit_apart, out_of_reach
from kseg.format.writer.increasing_offsets import FAR, LocatedBatch, most_in_order


class BaseOffsetProof:
    """The proofs that a block of batches, in the order of the file, holds for the base offset of one of them.

    A base offset is proved under two conditions. First, the batches that are adjacent in the file leave it one place only,
    and these join the batches beyond them. Second, the batches on both sides are adjacent and leave the same place, or the
    stored offset differs from it in one bit, or a producer's sequences and the timestamps continue through it. Against it
    is the possibility that the batch was moved or copied here: a hole at the offsets it names, or the same batch
    elsewhere. Timestamps alone are not evidence: producers send late. ``ended``: a side file, not a batch, is after the last
    batch of the segment.
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
        self._ranges: list[tuple[int, int]] | None = None
        self._highest: int | None = None
        self._copies: Counter[tuple[int, int]] | None = None

    def is_proved(self, n: int) -> LocatedBatch | None:
        """Return batch ``n`` with the offsets that are proved, None if the evidence is not enough or it has them."""
        batch = self._block[n]
        if batch.inner >= 0 and one_bit_apart(batch.stored, batch.inner):
            return batch.with_inner_offsets()
        before = self._block[n - 1] if n else self._before
        after = self._block[n + 1] if n + 1 < len(self._block) else self._after
        low = self._place(n, batch, before, after)
        if low is None or low < self._lowest:
            return None
        proved = batch.beginning_at(low)
        one_bit = one_bit_apart(batch.stored, proved.stored)
        begins = batch.position == before.end if before else not batch.position and self._name is not None
        enclosed = begins and after is not None and batch.end == after.position
        continued = _sequences_fit(batch, before, after) and _times_fit(batch, before, after)
        if not (one_bit or enclosed or continued):
            return None
        adjacent = enclosed or (begins and not n)
        # Bytes are lost on one side. Then the neighbour on the other side must be confirmed by the batch beyond it.
        if not adjacent and not (self._confirms(n - 2) if begins else self._confirms(n + 1)):
            return None
        if self._is_copied(n) and not (one_bit and enclosed and self._repeats(n)):
            return None
        # ``misplaced_offset_finding`` states a proof under this condition, which needs no other batch of the partition.
        if enclosed and out_of_reach(batch.stored, proved.stored):
            return proved
        if one_bit and abs(low - batch.low) < FAR and _strictly_between(batch, before, after):
            return proved
        if adjacent and not _times_contradict(batch, before, after):
            return None if self._may_be_moved(n, 0) else proved
        if adjacent and (one_bit or enclosed):
            # Its timestamps speak for another place. As many offsets can be missing there as the block has.
            if not one_bit and (batch.low < self._lowest or (batch.low >= self._limit and not self._newest)):
                return None  # it can be from another segment
            return None if self._may_be_moved(n, self._highest_without(n) - self._lowest + 1) else proved
        # The batches before a moved one can be lost with those bytes.
        alike = sum(one.crc == batch.crc for one in self._block) > 1
        return None if alike or self._may_be_moved(n, FAR) else proved

    def proved_run(self, first: int, stop: int) -> list[LocatedBatch]:
        """Return the batches ``first`` to ``stop`` (exclusive) with their proved offsets, an empty list without proof.

        The batches are adjacent in the file, and fill the offsets between the batches around them, which join those beyond.
        Each has its offset, or one that differs in one bit and is missing nowhere else, or the timestamps rise through all.
        """
        block = self._block
        before = block[first - 1] if first else self._before
        after = block[stop] if stop < len(block) else self._after
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
        rising = all(0 <= one.last_time < other.first_time for one, other in itertools.pairwise(around))
        stored = [one.stored for one in block[first:stop]]
        near = all(one.stored == old or one_bit_apart(one.stored, old) for one, old in zip(placed, stored, strict=True))
        changed = [n for n in range(first, stop) if placed[n - first].stored != block[n].stored]
        if len(changed) < 2:
            return []  # see ``is_proved``
        # Two swapped batches differ in one bit of their offsets, too.
        falling = any(0 <= other.last_time < one.first_time for one, other in itertools.pairwise(around))
        moved = any(self._may_be_moved(n, falling * (self._highest_without(n) - self._lowest + 1)) for n in changed)
        return placed if rising or (near and not moved) else []

    def _place(
        self, n: int, batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None
    ) -> int | None:
        """Return the only first offset that the adjacent batches leave, None if there is none or it is the stored one."""
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
        return low if not in_order or abs(by) >= FAR or ended else None

    def _joins(self, n: int) -> bool:
        """Return whether the batches ``n`` and ``n + 1`` join, as far as both exist."""
        if n < 0 or n + 1 >= len(self._block):
            return True
        return self._block[n].high + 1 == self._block[n + 1].low

    def _confirms(self, n: int) -> bool:
        """Return whether the batches ``n`` and ``n + 1`` exist and join."""
        return 0 <= n < len(self._block) - 1 and self._joins(n)

    def _is_copied(self, n: int) -> bool:
        """Return whether the batch is here twice."""
        if self._copies is None:
            self._copies = Counter((one.crc, one.stored) for one in self._block)
        return self._copies[self._block[n].crc, self._block[n].stored] > 1

    def _repeats(self, n: int) -> bool:
        """Return whether the same content is here with another offset, too: two batches with it can both be originals."""
        batch = self._block[n]
        return any(one.crc == batch.crc and one.stored != batch.stored for one in self._block)

    def _may_be_moved(self, n: int, lost: int) -> bool:
        """Return whether the batch has offsets that no other batch has and that could be missing.

        ``lost`` is the most offsets that could be missing before it, after the highest offset of the others.
        """
        if self._ranges is None:
            self._ranges = sorted((one.low, one.high) for one in self._block)
        batch = self._block[n]
        at = bisect_left(self._ranges, (batch.low, batch.high))
        before = self._ranges[at - 1][1] if at else self._lowest - 1
        after = self._ranges[at + 1][0] if at + 1 < len(self._ranges) else 1 << 63
        highest = self._highest_without(n)
        return before < batch.low and batch.high < min(after, self._limit) and batch.low <= highest + 1 + lost

    def _highest_without(self, n: int) -> int:
        """Return the highest offset of the batches that can stay, without batch ``n``."""
        if self._highest is None:
            self._highest = self._highest_of(self._block)
        if self._block[n].high != self._highest:
            return self._highest
        return self._highest_of(self._block[:n] + self._block[n + 1 :])

    def _highest_of(self, block: list[LocatedBatch]) -> int:
        kept = zip(block, most_in_order(block, self._floor), strict=True)
        return max((one.high for one, stays in kept if stays), default=-1)


def _sequences_fit(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether both neighbours are of the batch's producer, and its sequence lies between theirs."""
    if batch.producer is None or before is None or after is None:
        return False
    return (
        before.producer == batch.producer == after.producer
        and before.next_sequence == batch.sequence
        and batch.next_sequence == after.sequence
    )


def _times_fit(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether the timestamps of a batch lie between those of its neighbours."""
    if before is None or after is None:
        return False
    return before.first_time <= batch.first_time and batch.last_time <= after.last_time


def _times_contradict(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether all timestamps of a batch are earlier than those before it, or later than those after it."""
    early = before is not None and 0 <= batch.last_time < before.first_time
    return early or (after is not None and 0 <= after.last_time < batch.first_time)


def _strictly_between(batch: LocatedBatch, before: LocatedBatch | None, after: LocatedBatch | None) -> bool:
    """Return whether all timestamps of a batch are later than those before it, and earlier than those after it.

    A batch that was moved here does not fit so well: its timestamps are those of another place.
    """
    if before is None or after is None or before.last_time < 0:
        return False
    return before.last_time < batch.first_time <= batch.last_time < after.first_time
