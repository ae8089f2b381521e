"""Chains of valid batches, and whether their offsets continue a log."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from kseg.format.record.layout import INT32_MAX

# The number of batches of a chain whose offsets are compared.
COMPARED = 16


@dataclass(frozen=True, slots=True)
class BatchChain:
    """Batches with a valid CRC, one directly after the other, up to byte ``end`` of the file.

    ``batches`` are (position, first offset, last offset); for a compressed v0 or v1 message both offsets are its last
    one. ``closed`` is whether a header, zeros or the end of the file follows, or the chain has the length up to which
    it is read.
    """

    batches: tuple[tuple[int, int, int], ...]
    end: int
    closed: bool

    @property
    def position(self) -> int:
        return self.batches[0][0]

    @property
    def offset(self) -> int:
        return self.batches[0][1]

    def begins_batch(self, position: int) -> bool:
        """Return whether a batch of the chain begins at that byte, or the chain ends there."""
        return position == self.end or any(batch[0] == position for batch in self.batches)

    def continues(self, floor: int | None) -> bool:
        """Return whether most batches have offsets from ``floor`` on that one segment can hold."""
        if floor is None:
            return True
        within = sum(floor <= first <= floor + INT32_MAX for _, first, _ in self.batches)
        return 2 * within >= len(self.batches)

    def first_from(self, floor: int | None) -> int:
        """Return the first offset that the log can continue with: the base offset of the first batch may be damaged."""
        if floor is None:
            return self.offset
        return next((first for _, first, _ in self.batches[:2] if floor <= first <= floor + INT32_MAX), self.offset)

    def leads_to(self, later: BatchChain, floor: int | None) -> bool:
        """Return whether its last batch has offsets from ``floor`` on and below those of a later chain."""
        _, first, last = self.batches[-1]
        return (floor is None or floor <= first) and last < later.first_from(floor)

    def follows_soon(self, floor: int | None, began: int) -> bool:
        """Return whether no more offsets are missing before it than bytes were lost since byte ``began``."""
        return floor is not None and 0 <= self.first_from(floor) - floor <= self.position - began

    def precedes(self, later: BatchChain) -> bool:
        """Return whether most of its batches have smaller offsets than those of a later chain."""
        firsts = sorted(first for _, first, _ in later.batches[:COMPARED])
        pairs = sum(len(firsts) - bisect_right(firsts, last) for _, _, last in self.batches)
        return 2 * pairs >= len(self.batches) * len(firsts)
