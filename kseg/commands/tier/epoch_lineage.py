"""Leader epochs of remote segments: which of their offsets belong to the history of a partition.

A lineage is a list of (leader epoch, first offset), as in ``leader-epoch-checkpoint``. An offset is written by the leader of
one epoch only, so two logs have the same records up to the offset at which their lineages differ. Sources: KIP-101, KIP-405,
``RemoteLogLeaderEpochState``, ``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: An epoch, and the first offset that its leader wrote.
EpochStart = tuple[int, int]
#: An offset after all others.
NO_END = 1 << 63


def epoch_ranges(epochs: Sequence[EpochStart], end: int) -> list[tuple[int, int, int]]:
    """Return (epoch, first, last offset) for the epochs of a segment or a log that ends at ``end``, its last offset."""
    ordered = sorted(epochs)
    ends = [first - 1 for _, first in ordered[1:]] + [end] * bool(ordered)
    return [(epoch, first, min(last, end)) for (epoch, first), last in zip(ordered, ends, strict=True)]


def epochs_within(epochs: Sequence[EpochStart], start: int, end: int) -> list[EpochStart]:
    """Return the epochs of a segment with offsets ``start`` to ``end``, inclusive, from those of its log."""
    ranges = epoch_ranges(epochs, end)
    return [(epoch, max(first, start)) for epoch, first, last in ranges if last >= max(first, start)]


def ranges_in(epochs: Sequence[EpochStart], end: int, lineage: Sequence[EpochStart]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets of a segment that ends at ``end`` and are in a lineage, both ends inclusive, by epoch."""
    valid = {epoch: (first, last) for epoch, first, last in epoch_ranges(lineage, NO_END)}
    for epoch, first, last in epoch_ranges(epochs, end):
        begin, stop = valid.get(epoch, (0, -1))
        if max(first, begin) <= min(last, stop):
            yield max(first, begin), min(last, stop)


def newest_lineage(lineages: Iterable[tuple[Sequence[EpochStart], int]]) -> list[EpochStart]:
    """Return the lineage with the newest leader epoch, from (lineage, log end offset) of several segments.

    A broker removes the epochs before the log start. Those of other segments complete it at its start.
    """
    found: list[EpochStart] = []
    known = [(epochs[-1][0], end, epochs) for epochs, end in lineages if epochs]
    for _, _, epochs in sorted(known, key=lambda one: one[:2], reverse=True):
        for epoch, first in reversed(epochs):
            if found and epoch == found[0][0]:
                found[0] = epoch, min(first, found[0][1])
            elif not found or (epoch < found[0][0] and first < found[0][1]):
                found.insert(0, (epoch, first))
    return found
