"""Which runs are of the same partition: a batch names neither its topic nor its partition.

Equal offsets prove nothing: each partition of a topic has the same ones. Evidence is, the strongest first: a batch that was
torn between two runs, which its CRC proves if no other partition can have it; a damaged batch that fills the gap between
two runs exactly; an offset index whose entries are the batch ends of both runs; and sequences of an idempotent producer
that continue, which count per partition (KIP-98). A sequence that equals the offset says no more than the offset: then the
second run must begin a file where the first one ends.

Runs that touch where a block ends: one file continues there, or another one begins.

File systems put the blocks of a file in a row where they can, so the next block mostly has the next bytes of the file. But
partitions have equal offsets: an extent of one can end at the offset at which an extent of another begins. Then each of them
continues in another place. If no other run ends or begins at that offset, the two runs are joined. That is a guess, unless a
producer's sequence continues, too. A batch that a block cuts before the end of its CRC is such a place: both files can have
the same bytes there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kseg.commands.carve.image_scan import Head, Image, entries_of
from kseg.commands.carve.runs import CarvedRun, Lane, Piece

#: The kinds of links, the strongest first. The last three are guesses.
TORN, DAMAGED, INDEX, SEQUENCE, COPY, NEXT_BLOCK, WEAK_SEQUENCE, OFFSETS = KINDS = (
    "torn batch", "damaged batch", "index", "sequence", "same batches", "next block", "sequence that equals the offset",
    "next offset",
)  # fmt: skip
GUESSES = (NEXT_BLOCK, WEAK_SEQUENCE, OFFSETS)
#: The strengths of links.
PROOF, STRONG, GUESS = STRENGTHS = ("proof", "strong", "guess")
# Batches of one producer follow each other within this time, in milliseconds, for a guess.
_SOON = 10 * 60 * 1000
# Two entries of an index prove a place in a segment.
_FEWEST_HITS = 2
_MOST_INDEX = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Link:
    """Two runs are of the same partition. ``why`` is a sentence with the evidence.

    ``pieces`` are the places of a link within a run, such as those of a torn batch: ``before`` and ``after`` are that run.
    ``unsequenced``: the torn batch has no producer's sequence, or is a control batch. Others can be equal to it.
    """

    kind: str
    before: CarvedRun
    after: CarvedRun
    why: str
    pieces: tuple[Piece, Piece] | None = None
    unsequenced: bool = False

    @property
    def is_guess(self) -> bool:
        """Whether it is used only with ``--guess``. A run whose blocks touch is one run without it."""
        return self.kind in GUESSES and self.before is not self.after

    @property
    def strength(self) -> str:
        """What the evidence is worth.

        Only a torn batch with a producer's sequence is a proof, by its CRC. A marker is the same in each partition of its
        transaction. The others hold but for two partitions that got the same numbers of records from the same producer, if
        each lost what the other kept, or both are torn in the same bytes.
        """
        return PROOF if self.kind == TORN and not self.unsequenced else GUESS if self.kind in GUESSES else STRONG


def find_copies(runs: Sequence[CarvedRun]) -> tuple[dict[CarvedRun, CarvedRun], list[Link]]:
    """Return the runs that have only batches of another run, and the links of those that continue one after batches of both.

    Batches are equal by base offset, CRC and size. Replicas have equal batches, and so have files that were moved. Two
    partitions can have equal control batches, and equal batches without sequences: these do not join runs.
    """
    copies: dict[CarvedRun, CarvedRun] = {}
    links: list[Link] = []
    firsts: dict[int, list[CarvedRun]] = {run.marks[0]: [] for run in runs}
    for run in runs:
        for mark in {mark for mark in run.marks if mark in firsts}:
            firsts[mark].append(run)
    pairs = [(other, run) for run in runs for other in firsts[run.marks[0]] if other is not run]
    for other, run in pairs:
        if run not in copies and other not in copies and other.holds(run):
            copies[run] = other
    for other, run in pairs:
        if run in copies or other in copies or run.unsequenced or other.unsequenced:
            continue
        if (same := other.same_from(run)) > 1:
            links.append(Link(COPY, other, run, f"{same:,} batches are in both"))
    return copies, links


def sequence_links(runs: Sequence[CarvedRun], block: int, torn_ends: set[tuple[int, int]]) -> list[Link]:
    """Return the links by producers whose sequences continue from the end of a run to the next offset in another.

    ``torn_ends`` has the image and the position of headers without their batch: a file does not end there.
    """
    starts: dict[tuple[int, int, int], list[CarvedRun]] = {}
    ends: dict[tuple[int, int, int], list[CarvedRun]] = {}
    for run in runs:
        for producer, lane in run.lanes.items():
            ends.setdefault((*producer, lane.next_sequence), []).append(run)
            if lane.first_sequence:
                starts.setdefault((*producer, lane.first_sequence), []).append(run)
    pairs: dict[tuple[CarvedRun, CarvedRun], list[tuple[int, int]]] = {}
    for key, after in starts.items():
        producer, before = key[:2], ends.get(key, ())
        # Others: the producer writes to several partitions, with equal sequences.
        alone = len({run.lanes[producer].last_mark for run in before}) == 1
        if alone and len({run.lanes[producer].first_mark for run in after}) == 1:
            for one in before:
                for other in after:
                    if one.last + 1 == other.first:
                        pairs.setdefault((one, other), []).append(producer)
    shared = _shared_lanes(runs)
    links = []
    for (one, other), producers in pairs.items():
        if len(producers) != len(one.lanes.keys() & other.lanes.keys()):
            continue
        end, start = one.lanes[producers[0]], other.lanes[producers[0]]
        distance = end.keys[1]
        # Sequences that all partitions could have: the file must end, and the next one begin.
        is_roll = (
            other.position % block == 0 and (one.image, one.end) not in torn_ends and have_several_records(one, other)
        )
        own = distance == start.keys[0] != 0 and (producers[0], distance) not in shared
        strong = len(producers) > 1 or own or is_roll
        id_, epoch = producers[0]
        why = f"sequence {start.first_sequence:,} of producer {id_} epoch {epoch} and offset {other.first:,} follow"
        links.append(Link(SEQUENCE if strong else WEAK_SEQUENCE, one, other, why))
    return links


def have_several_records(before: CarvedRun, after: CarvedRun) -> bool:
    """Return whether batches have several records: then few partitions have a batch that ends at the same offset."""
    return min(before.records / len(before.marks), after.records / len(after.marks)) >= 2


def _shared_lanes(runs: Iterable[CarvedRun]) -> set[tuple[tuple[int, int], int]]:
    """Return producers and differences of sequence and offset that different runs have at the same sequences."""
    ranges: dict[tuple[tuple[int, int], int], list[tuple[int, int]]] = {}
    for run in runs:
        for producer, lane in run.lanes.items():
            if lane.next_sequence > lane.first_sequence:
                for distance in set(lane.keys):
                    ranges.setdefault((producer, distance), []).append((lane.first_sequence, lane.next_sequence))
    shared = set()
    for key, found in ranges.items():
        reach = -1
        for begin, end in sorted(found):
            if begin < reach:
                shared.add(key)
            reach = max(reach, end)
    return shared


def index_links(images: Iterable[Image], runs: Sequence[CarvedRun], block: int) -> Iterator[Link]:
    """Yield the links by offset indexes: two entries or more in the first run of a segment, and in a later one.

    An entry has the last offset of a batch, and the position of that batch or of one that was appended with it
    (``LogSegment.append``). The first run begins a segment. An index that fits different runs, or of which there are two, is
    not used, nor are runs with producers but none in common.
    """
    begins: dict[int, list[CarvedRun]] = {}
    for run in runs:
        if run.position % block == 0:
            for start in run.starts[1:_MOST_FIRST]:
                begins.setdefault(start, []).append(run)
    indexes: dict[tuple[tuple[int, int], ...], list[tuple[Image, int]]] = {}
    for image in images:
        for place in image.index_places:
            entries = tuple(entries_of(image.read(place, min(_MOST_INDEX, image.size - place))))
            if len(entries) >= _FEWEST_HITS:
                indexes.setdefault(entries, []).append((image, place))
    for entries, places in indexes.items():
        owners = [run for run in begins.get(entries[0][1], ()) if _hits(run, entries, run.first, 0) >= _FEWEST_HITS]
        # Partitions with batches of equal sizes have equal indexes.
        if len(places) > 1 or len({owner.marks[0] for owner in owners}) != 1:
            continue
        owner, (image, place) = owners[0], places[0]
        found = list(_later_runs(owner, [entry for entry in entries if entry[1] >= owner.size], runs))
        for run, shift, hits in found:
            end = shift + run.size
            if not any(shift < at + one.size and at < end and one is not run for one, at, _ in found):
                why = f"{hits:,} entries of the index at byte {place:,} of {image.path} are batches of it"
                yield Link(INDEX, owner, run, why)


#: Batches of a segment's start among which the first entry of its index is looked for.
_MOST_FIRST = 256


def _hits(run: CarvedRun, entries: Sequence[tuple[int, int]], base: int, shift: int) -> int:
    """Return the number of entries that are batches of a run at byte ``shift`` of a segment, 0 if any is none."""
    hits = 0
    for offset, position in entries:
        at = position - shift
        if at < 0 or at >= run.size:
            continue
        start = bisect_left(run.starts, at)
        last = bisect_left(run.lasts, base + offset)
        if start == len(run.starts) or run.starts[start] != at:
            return 0
        if last < len(run.lasts) and (run.lasts[last] != base + offset or last < start):
            return 0
        hits += last < len(run.lasts)
    return hits


def _later_runs(
    owner: CarvedRun, entries: Sequence[tuple[int, int]], runs: Iterable[CarvedRun]
) -> Iterator[tuple[CarvedRun, int, int]]:
    """Yield the later runs of a segment by its index: run, first byte in the segment, number of entries."""
    if len(entries) < _FEWEST_HITS:
        return
    first, last = owner.first + entries[0][0], owner.first + entries[-1][0]
    for run in runs:
        if run is owner or run.first <= owner.last or run.last < first or run.first > last:
            continue
        if owner.lanes and run.lanes and owner.lanes.keys().isdisjoint(run.lanes):
            continue
        for offset, position in entries:
            at = bisect_left(run.lasts, owner.first + offset)
            if at < len(run.lasts) and run.lasts[at] == owner.first + offset:
                shift = position - run.starts[at]
                if shift >= owner.size and (hits := _hits(run, entries, owner.first, shift)) >= _FEWEST_HITS:
                    yield run, shift, hits
                break


def guessed_links(runs: Sequence[CarvedRun]) -> list[Link]:
    """Return guesses: the next offset, by one run only, with a codec of both, no lower epoch, and a time soon after."""
    ends: dict[int, list[CarvedRun]] = {}
    starts: dict[int, list[CarvedRun]] = {}
    for run in runs:
        ends.setdefault(run.last + 1, []).append(run)
        starts.setdefault(run.first, []).append(run)
    return [
        Link(OFFSETS, before[0], after[0], f"offset {offset:,} is the next one, and no other run ends or begins there")
        for offset, before in ends.items()
        if len(before) == 1 and len(after := starts.get(offset, [])) == 1 and _alike(before[0], after[0])
    ]


def _alike(before: CarvedRun, after: CarvedRun) -> bool:
    """Return whether codecs, epochs, times and producers allow that a run follows another."""
    return bool(
        before.codecs & after.codecs
        and after.first_epoch >= before.last_epoch
        and abs(after.first_time - before.last_time) <= _SOON
        and (not before.lanes or all(_may_follow(before, *lane) for lane in after.lanes.items()))
    )


def _may_follow(before: CarvedRun, producer: tuple[int, int], lane: Lane) -> bool:
    """Return whether the sequences of a producer continue after a run, or begin."""
    earlier = before.lanes.get(producer)
    return lane.first_sequence == (earlier.next_sequence if earlier else 0)


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
