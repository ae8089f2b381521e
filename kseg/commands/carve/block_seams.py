"""Runs that touch where a block ends: one file continues there, or another one begins.

File systems put the blocks of a file in a row where they can, so the next block mostly has the next bytes of the file. But
partitions have equal offsets: an extent of one can end at the offset at which an extent of another begins. Then each of them
continues in another place. If no other run ends or begins at that offset, the two runs are joined. That is a guess, unless a
producer's sequence continues, too. A batch that a block cuts before the end of its CRC is such a place: both files can have
the same bytes there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from kseg.commands.carve.image_scan import Head
from kseg.commands.carve.links import NEXT_BLOCK, SEQUENCE, Link, have_several_records
from kseg.commands.carve.runs import CarvedRun

#: An offset, and a position in a block. Blocks are those of the file, too: a run continues at the position where it ends.
Place = tuple[int, int]
# The mark of a batch that is not whole: no other batch has it.
_TORN = -1  # hash() never returns it


def touching(runs: Sequence[CarvedRun]) -> Iterator[tuple[CarvedRun, CarvedRun]]:
    """Yield the pairs of runs of which the second one begins where the first one ends, with the next offset."""
    begins = {(run.image, run.position): run for run in runs}
    for run in runs:
        after = begins.get((run.image, run.end))
        if after and after.first == run.last + 1 and after.first_epoch >= run.last_epoch and _fits(run, after):
            yield run, after


def _fits(before: CarvedRun, after: CarvedRun) -> bool:
    """Return whether the first batch of a run has the next sequence of its producer, if it is in the run before."""
    return all(
        producer not in before.lanes or before.lanes[producer].next_sequence == lane.first_sequence
        for producer, lane in after.lanes.items()
        if lane.first_offset == after.first
    )


def unclear_places(runs: Iterable[CarvedRun], torn: Iterable[Head], block: int) -> set[Place]:
    """Return the places at which several runs begin, or at which several end: which one continues which is not clear.

    Copies of a run count once. ``torn`` are headers without their batch, which can be the end of a run, or the start of one.
    """
    ends: dict[Place, set[int]] = {}
    begins: dict[Place, set[int]] = {}
    for head in torn:
        ends.setdefault((head.last + 1, (head.position + head.size) % block), set()).add(_TORN)
        begins.setdefault((head.first, head.position % block), set()).add(_TORN)
    for run in runs:
        ends.setdefault((run.last + 1, run.end % block), set()).add(run.marks[-1])
        begins.setdefault((run.first, run.position % block), set()).add(run.marks[0])
    return {place for marks in (ends, begins) for place, found in marks.items() if len(found) > 1}


def seam_links(runs: Sequence[CarvedRun], unclear: Collection[Place], block: int) -> Iterator[Link]:
    """Yield the links of runs that touch, but not at an unclear place, with their places: they become one run."""
    for before, after in touching(runs):
        if (after.first, after.position % block) in unclear:
            continue
        kind, why = NEXT_BLOCK, f"with offset {after.first:,}, at which no other run ends or begins"
        if _sequences_follow(before, after):
            kind, why = SEQUENCE, f"and sequences of producers and offset {after.first:,} follow"
        places = before.pieces[0], after.pieces[0]
        yield Link(kind, before, after, f"it begins where the other one ends, {why}", places)


def unclear_links(runs: Sequence[CarvedRun]) -> Iterable[Link]:
    """Return guesses: runs that touch, though another run ends or begins at that offset."""
    why = "it begins where the other one ends, with the next offset, but other runs end or begin at that offset, too"
    return (Link(NEXT_BLOCK, before, after, why) for before, after in touching(runs))


def _sequences_follow(before: CarvedRun, after: CarvedRun) -> bool:
    """Return whether the sequences of producers continue.

    A single sequence that equals the offset says no more than the offset, if each batch has one record.
    """
    common = before.lanes.keys() & after.lanes.keys()
    if any(before.lanes[one].next_sequence != after.lanes[one].first_sequence for one in common):
        return False
    own = len(common) > 1 or any(before.lanes[one].keys[1] for one in common)
    return own or (bool(common) and have_several_records(before, after))
