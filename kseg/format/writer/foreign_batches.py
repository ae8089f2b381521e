"""Find the batches of another log or an earlier segment: a block of another file that a failing disk wrote into a segment.

Their CRCs are right, and their offsets increase, so only the batches around them, names and side files contradict them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from kseg.format.writer.increasing_offsets import LocatedBatch, block_density

# The least size of a block of a disk.
_BLOCK = 512


def foreign_batches(
    block: list[LocatedBatch], floor: int, size: int | None, name: int | None, ends: Collection[int]
) -> set[int]:
    """Return the batches of a block that are of another log.

    Bytes are lost before them, among which a block of the disk begins, or they begin the file. Two cases are decided.
    Several batches are between batches that continue without them, and not with them. Or they are the last of the file, and
    more offsets are missing before them than the lost bytes can have held; then the timestamps of several or a log end that
    side files name have to contradict them, too.

    ``floor`` is the last offset before the block, ``size`` the end of the file if the block has its last batch. ``name`` is
    the offset in the segment's name if the block has its first batch, otherwise None. ``ends`` are those of
    ``AdjacentBatches``.
    """
    found: set[int] = set()
    pieces = _pieces(block)
    if len(pieces) < 2:
        return found
    log = _LostOffsets(block, pieces)
    before: LocatedBatch | None = None
    kept = 0  # the batches that join right before a piece
    for at, (first, stop) in enumerate(pieces):
        run = _own_offsets(block[first:stop])
        last, end = (before.high, before.end) if before else (floor, 0)
        rises = all(one.high < other.low for one, other in itertools.pairwise(run))
        begins = (before is not None or name is not None) and -(-end // _BLOCK) * _BLOCK <= block[first].position
        foreign = False
        if rises and begins and at + 1 < len(pieces):
            foreign = stop - first > 1 and _is_between(block, pieces[at:], last, end, kept, log)
        elif rises and begins and size is not None and before is not None:
            foreign = log.are_more(last, end, run[0]) and _is_contradicted(run, before, ends)
        if foreign:
            found.update(range(first, stop))
        else:
            before, kept = run[-1], _joined(run, -1)
    return found


class _LostOffsets:
    """How many offsets lost bytes can have held. Compaction leaves holes: then any number."""

    def __init__(self, block: list[LocatedBatch], pieces: list[tuple[int, int]]) -> None:
        self._density = 4 * max(map(block_density, block))
        pairs = itertools.chain.from_iterable(itertools.pairwise(block[slice(*piece)]) for piece in pieces)
        self._dense = all(one.high + 1 >= other.low for one, other in pairs)

    def are_more(self, last: int, end: int, batch: LocatedBatch) -> bool:
        """Return whether more are missing between ``last`` and a batch than the bytes from ``end`` on can have held."""
        return self._dense and batch.low - last - 1 > self._density * (batch.position - end)


def _is_between(
    block: list[LocatedBatch], pieces: list[tuple[int, int]], last: int, end: int, kept: int, log: _LostOffsets
) -> bool:
    """Return whether the first of the ``pieces`` is between batches that continue without it, and not with it.

    ``last`` and ``end`` are the offset and the byte at which the batches before it end, ``kept`` of which join there.
    """
    (first, stop), (begin, then) = pieces[:2]
    run, after = _own_offsets(block[first:stop]), block[begin]
    behind, ahead = run[0].low <= last, after.low <= run[-1].high
    high = log.are_more(last, end, run[0])
    apart = ahead or log.are_more(run[-1].high, run[-1].end, after)
    confirmed = kept > 1 and _joined(block[begin:then], 1) > 1
    continues = after.low > last and not log.are_more(last, end, after)
    if not (continues and (((behind or high) and apart) or ((behind or ahead) and confirmed))):
        return False
    if not ahead or high:
        return True
    # One of the two is in the wrong place: it is the next one if the piece after it continues without it.
    without = within = True
    if len(pieces) > 2:
        later = _own_offsets(block[slice(*pieces[2])])[0]
        without, within = (
            later.low > one.high and not log.are_more(one.high, one.end, later) for one in (run[-1], block[then - 1])
        )
    return not without or (within and stop - first < then - begin)


def _own_offsets(run: list[LocatedBatch]) -> list[LocatedBatch]:
    """Return a run without its first batch, unless that joins: lost bytes can reach into its offset, which no CRC covers."""
    return run if len(run) < 2 or run[0].high + 1 == run[1].low else run[1:]


def _pieces(block: list[LocatedBatch]) -> list[tuple[int, int]]:
    """Return the first and the stop index of each run of batches without lost bytes between them."""
    starts = [n for n, batch in enumerate(block) if not n or batch.position != block[n - 1].end]
    return list(itertools.pairwise([*starts, len(block)]))


def _joined(run: list[LocatedBatch], step: int) -> int:
    """Return how many batches join, from the first one of a run (``step`` 1) or up to the last one (-1)."""
    pairs = list(itertools.pairwise(run))[::step]
    return 1 + sum(1 for _ in itertools.takewhile(lambda pair: pair[0].high + 1 == pair[1].low, pairs))


def _is_contradicted(run: list[LocatedBatch], before: LocatedBatch, ends: Collection[int]) -> bool:
    """Return whether timestamps or a log end that side files name speak against the last batches of a file."""
    if any(end > run[0].low for end in ends):
        return False
    older = len(run) > 1 and all(batch.is_earlier_than(before) for batch in run)
    return older or any(before.high + 1 < end for end in ends)


def all_in_order(block: list[LocatedBatch], last_offset: int, limit: int) -> bool:
    """Return whether nothing contradicts the offsets of a block, which are after ``last_offset`` and below ``limit``."""
    for batch in block:
        doubtful = batch.doubtful or batch.after_zeros or batch.inner not in (-1, batch.high)
        if doubtful or batch.low <= last_offset or batch.high >= limit:
            return False
        last_offset = batch.high
    return True


def before_name(block: list[LocatedBatch], name: int) -> set[int]:
    """Return the batches that end before the offset in the segment's name.

    None if the name is wrong: a batch joins the first one after it that does not, or most batches do so. The name is right
    if the file begins with batches of that name.
    """
    strays = {n for n, batch in enumerate(block) if batch.high < name}
    if len(strays) > 1 and 2 * len(strays) > len(block) and not _begins_with_name(block, min(strays), name):
        return set()
    for n in sorted(strays, reverse=True):
        if n + 1 < len(block) and block[n].high + 1 == block[n + 1].low and n + 1 not in strays:
            return set()
    return strays


def _begins_with_name(block: list[LocatedBatch], first_stray: int, name: int) -> bool:
    """Return whether the file begins with the batch at offset ``name``, or with several in order after it (compacted).

    Batches of an earlier segment can follow these, however many they are.
    """
    if not first_stray or block[0].position or block[0].low < name:
        return False
    return block[0].low == name or (first_stray > 1 and all_in_order(block[:first_stray], name - 1, 1 << 63))


def unjoined(block: list[LocatedBatch], kept: list[int], floor: int, name: int | None) -> set[int]:
    """Return the doubtful batches of those that are ``kept`` which join neither the batch before nor the one after.

    And those after zeros that do not join the one after, if there is room for a base offset whose first bytes are not 0.
    """
    found = set()
    for at, n in enumerate(kept):
        batch, after = block[n], block[kept[at + 1]] if at + 1 < len(kept) else None
        if batch.after_zeros and (after.low - batch.high > batch.lost_unit if after else not batch.stored):
            found.add(n)
        if not batch.doubtful:
            continue
        if at:
            begins = block[kept[at - 1]].high + 1
        elif floor >= 0:
            begins = floor + 1
        else:
            begins = -1 if batch.position or name is None else name
        if batch.low != begins and not (after and batch.high + 1 == after.low):
            found.add(n)
    return found
