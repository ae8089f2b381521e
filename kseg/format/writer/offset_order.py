"""Find the batches of a segment whose base offsets can't be right, over the whole segment.

No CRC covers the base offset, and damage moves and copies whole batches. The batches that stay are the most that have
increasing offsets (a longest increasing subsequence), so a few wrong ones never cost many right ones. A wrong base
offset is corrected only if there is proof of the right one, see ``BaseOffsetProof``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kseg.findings import Finding
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.record.offset_evidence import one_bit_apart
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import checkpoints
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source

# Seldom needed, but for rewritten_rows.
from kseg.format.writer import base_offset_proof, foreign_batches, increasing_offsets, moved_batches, rewritten_rows

if TYPE_CHECKING:
    from kseg.format.sidefiles.checkpoints import LeaderEpoch
    from kseg.format.writer.increasing_offsets import LocatedBatch

_ZEROS = 32  # no record ends with so many
# More offsets per lost byte are not expected.
_DENSE = 64
# Batches that are compared with each other at a time: more would take more than 100 MB.
COMPARED = 200_000


class MisplacedBatch(NamedTuple):
    """A batch whose base offset contradicts others, or that may be wrong.

    ``previous`` and ``following`` are the last offset before it and the first one after it in the file that stay, None for
    none. ``fault`` is why it does not stay:

    - "behind" or "ahead": its offset is not between these two.
    - "foreign": it is of another log, see ``foreign_batches``.
    - "stray": it is below the offset in the name of the file, and no batch continues it.
    - "doubtful": nothing contradicts its offset, but its size field, right after the base offset, was overwritten.
    - "zeroed": nothing contradicts its offset, but zeros before it can reach into it.
    - "undecided": it contradicts only the batch next to it, where one flipped bit in either explains both, or one flipped
      bit explains it and no batch after it contradicts it (``too_high``).
    - "unconfirmed": no other batch shows that its offset is right, and the others are more likely without it.

    ``guess`` is a base offset that the evidence suggests but does not prove. ``copy``: the same batch stays elsewhere.
    """

    previous: int
    following: int | None
    fault: str
    guess: int | None
    copy: bool


@dataclass(slots=True)
class OffsetOrder:
    """Batches whose offsets can't be right, by their position in the file.

    ``misplaced`` fit nowhere. ``corrected`` have a proved offset; ``ended`` is the one whose end a side file shows.

    ``moved`` are the batches that damage moved. All other positions are those of the file with these in their places, whose
    byte ranges are ``pieces``. Both are empty if no batch was moved, or if nobody asked for them. Without ``moved``, the one
    of ``pieces`` is the part of the file that becomes a segment. ``shortened`` are the last offsets of batches whose headers
    name a higher one. ``head`` and ``tail`` are the first and the last batch that stay, None if no batch does. ``size`` is
    the number of bytes in the file. ``beyond``: batches were left out because of ``ceiling``. ``end`` is the log end that
    side files name, or that of the ``tail``, if batches of another log are the last in the file, otherwise None.
    """

    misplaced: dict[int, MisplacedBatch]
    corrected: dict[int, moved_batches.CorrectedOffset]
    head: LocatedBatch | None = None
    tail: LocatedBatch | None = None
    size: int = 0
    beyond: bool = False
    ended: int | None = None
    end: int | None = None
    moved: tuple[moved_batches.MovedBatch, ...] = ()
    pieces: tuple[tuple[int, int], ...] = ()
    shortened: dict[int, int] = field(default_factory=dict)

    @property
    def is_part(self) -> bool:
        """Return whether the batches are those of a part of the file."""
        return bool(self.pieces) and not self.moved

    def arranged(self, source: Source) -> Source:
        """Return the file with each moved batch in its place."""
        return source.rearranged(self.pieces) if self.pieces else source


IN_ORDER = OffsetOrder({}, {})


@dataclass(frozen=True, slots=True)
class AdjacentBatches:
    """The last batch of the segment before, and the first batch of the segment after.

    None if the segment is missing, or if the batch is not at the end of its file that is adjacent. ``newest``: no segment
    follows. The newest segment is never compacted, so its first batch has the offset of its name. ``ends`` are offsets at
    which side files show the end of a batch. ``following`` is the offset in the name of the next segment, None if unknown.
    ``leader_epochs`` are those of the ``leader-epoch-checkpoint``.
    """

    before: LocatedBatch | None = None
    after: LocatedBatch | None = None
    newest: bool = False
    ends: Collection[int] = ()
    following: int | None = None
    leader_epochs: Sequence[LeaderEpoch] = ()

    def proved_end(self, previous: int, last: LocatedBatch) -> LocatedBatch | None:
        """Return a batch in place of the next one if a side file shows that ``last`` continues offset ``previous``.

        Not if one shows its stored offsets, too: a merge of segments leaves a snapshot inside of the new segment, and where
        its leader epoch begins is its own beginning as well as an end before it. Nor if the offsets are of another epoch.
        """
        end = previous + 1 + last.high - last.low + 1
        stored = last.low in self.ends or last.high + 1 in self.ends
        if last.low == previous + 1 or end not in self.ends or stored:
            return None
        epochs = checkpoints.epochs_of(self.leader_epochs, previous + 1, end)
        if last.leader_epoch >= 0 and epochs - {last.leader_epoch}:
            return None
        return last.beginning_at(end)._replace(position=last.end, first_time=-1, last_time=-1, producer=None)

    def contradicts(self, first: LocatedBatch, name: int | None) -> bool:
        """Return whether the first batch begins after the offset that the segment's first batch must have."""
        joins = self.newest and self.before is not None and self.before.high + 1 == name
        return joins and first.position == 0 and name is not None and first.low > name


NO_NEIGHBOURS = AdjacentBatches()


def ceiling_of(path: str) -> int | None:
    """Return the first offset that a segment of that name can't hold, None for a name without an offset."""
    named = base_offset_of(path)
    return None if named is None else named + INT32_MAX + 1


def find_order(
    open_segment: Callable[[], Source],
    ceiling: int | None = None,
    floor: int = -1,
    neighbours: AdjacentBatches = NO_NEIGHBOURS,
    *,
    moves: bool = False,
) -> OffsetOrder:
    """Read a segment, and return which of its batches can't stay where they are with the offsets they have.

    With ``moves`` a batch of a local file that damage moved gets its place again, and ``shortened`` ones their last offset.

    ``ceiling`` is the first offset of the next segment, ``floor`` the last offset of the segment before. Batches that are
    not between the two are left out, unless their offset can be corrected. A segment in order takes one pass over the
    headers. Raises KsegError as reading does.
    """
    overwritten, lost_ends = set[int](), set[int | None]()
    damaged = False

    def note_damage(finding: Finding) -> None:
        nonlocal damaged
        damaged, facts = True, finding.facts
        proved = finding.rule == "invalid-size" and "proved_size" in facts
        if proved and not one_bit_apart(facts["size"], facts["proved_size"]):
            overwritten.add(finding.position or 0)
        lost_ends.add(finding.end)

    with SegmentReader(open_segment(), report=note_damage) as reader:
        ends: list[LocatedBatch] = []
        ascends = _ascends(reader, ceiling, floor, ends) and not overwritten and not _leaps(reader, floor, ends)
        before = ends[-2].high if len(ends) > 1 else (reader.name_offset or 0) - 1
        late = ends and neighbours.contradicts(ends[0], reader.name_offset)
        overlong = ends and neighbours.following and moved_batches.overlaps(ends[-1], neighbours.following)
        if ascends and not late and not overlong and not (ends and neighbours.proved_end(before, ends[-1])):
            head, tail = (ends[0], ends[-1]) if ends else (None, None)
            ascending = OffsetOrder({}, {}, head=head, tail=tail, size=reader.position)
            if not damaged:
                return ascending
        else:
            ascending = None
    search = _Search(ceiling, floor, neighbours, open_segment if moves else None)
    with SegmentReader(open_segment(), report=note_damage) as reader:
        search.name = reader.name_offset
        block: list[LocatedBatch] = []
        for batch in increasing_offsets.batches_of(reader):
            at = batch.position
            if at in overwritten:
                batch = batch._replace(doubtful=True)
            if at in lost_ends and (not batch.stored or reader.source.follows_zeros(at, _ZEROS)):
                batch = batch._replace(after_zeros=True)
            block.append(batch)
            if len(block) == COMPARED:
                # The second half is compared with what follows it, too.
                search.decide(block, COMPARED // 2)
                del block[: COMPARED // 2]
        search.size = search.order.size = reader.position
        search.decide(block, len(block))
    if ascending and not search.contradicted:
        return ascending
    if moves and search.moved:
        pieces = moved_batches.arranged_pieces(search.moved, search.size)
        again = find_order(lambda: open_segment().rearranged(pieces), ceiling, floor, neighbours)
        return replace(again, moved=tuple(search.moved), pieces=pieces)
    return search.order


def _ascends(reader: SegmentReader, ceiling: int | None, floor: int, ends: list[LocatedBatch]) -> bool:
    """Return whether all offsets increase, as far as headers show it; ``ends`` receives the first and last batches."""
    last_offset = max((reader.name_offset or 0) - 1, floor)
    limit = INT64_MAX if ceiling is None else min(ceiling, INT64_MAX)
    for window in reader.windows():
        ascends, last_offset = rewritten_rows.offsets_ascend(window.batches, last_offset, limit)
        if not ascends:
            return False
        if not ends:
            ends += _valid(window, range(window.batches.count), 1)
        _keep_last(window, ends)
    return True


def _leaps(reader: SegmentReader, floor: int, ends: list[LocatedBatch]) -> bool:
    """Return whether the last batch may be too high. No batch after it shows that."""
    if not ends:
        return False
    before, end = (ends[-2].high, ends[-2].end) if len(ends) > 1 else (max((reader.name_offset or 0) - 1, floor), 0)
    lost = ends[-1].position - end
    return increasing_offsets.too_high(ends[-1], before, lost + reader.position - ends[-1].end, 0, _DENSE * lost)


def _valid(window: Window, rows: range, most: int) -> list[LocatedBatch]:
    """Return the first batches of a window's rows with a good CRC."""
    valid = (row for row in rows if window.batches.crc_state[row] != CRC_BAD)
    return [increasing_offsets.batch_at(window, row, None) for row in islice(valid, most)]


def _keep_last(window: Window, ends: list[LocatedBatch]) -> None:
    """Put the last two batches of a window with a good CRC at the end of ``ends``, which holds three at most."""
    last = _valid(window, range(window.batches.count - 1, -1, -1), 2)[::-1]
    others = [one for one in ends if not last or one.position < last[0].position]
    ends[:] = [*others[:1], *[*others[1:], *last][-2:]]


@dataclass(slots=True)
class _Search:
    """Finds the ``order`` of a segment, block by block. ``size`` is set before its last block.

    ``last`` is the last offset that stays, at first the offset before the segment. ``moved`` are the moved batches.
    """

    ceiling: int | None
    last: int
    neighbours: AdjacentBatches
    open_segment: Callable[[], Source] | None
    name: int | None = None
    size: int | None = None
    moved: list[moved_batches.MovedBatch] = field(default_factory=list)
    contradicted: bool = False
    order: OffsetOrder = field(default_factory=lambda: OffsetOrder({}, {}))

    @property
    def limit(self) -> int:
        """The first offset that is too high."""
        return 1 << 63 if self.ceiling is None else self.ceiling

    @property
    def floor(self) -> int:
        """The last offset that is too low for the next batch."""
        return max(self.last, (self.name or 0) - 1)

    def decide(self, block: list[LocatedBatch], stop: int) -> None:
        """Decide which of the first ``stop`` batches stay. ``size`` is set if the block holds the segment's last batch."""
        self._shorten(block)
        late = self.order.head is None and block and self.neighbours.contradicts(block[0], self.name)
        floor = self.floor
        leaps = bool(block) and max(increasing_offsets.suspects(block, floor, self.size), default=-1) == len(block) - 1
        name = None if self.order.head else self.name
        foreign = foreign_batches.foreign_batches(block, floor, self.size, name, self.neighbours.ends)
        self.contradicted = self.contradicted or bool(foreign) or any(batch.after_zeros for batch in block)
        doubted = foreign or late or leaps or self._proved_end(block)
        if not doubted and foreign_batches.all_in_order(block, floor, self.limit):
            self._keep(block[:stop])
            return
        moved = list(block)
        evidence = self._evidence(moved)
        corrected = {}
        for n, batch in enumerate(moved):
            if (proved := evidence.is_proved(n)) is not None:
                moved[n] = proved
                corrected[n] = proved.stored - batch.stored
        staying, faults = self._select(moved, foreign)
        runs = evidence.correct_runs(staying)
        if runs:
            corrected |= {n: by + corrected.get(n, 0) for n, by in runs.items() if by}
            staying, faults = self._select(moved, foreign)
        if self.order.head is None and self.size is not None:
            # What zeros can have left of an offset does not show where a batch was.
            decided = staying | faults.keys() | {n for n, batch in enumerate(moved) if batch.after_zeros}
            others = [n for n, batch in enumerate(moved) if n not in decided and batch.high < self.limit]
            self.moved = moved_batches.moved_batches(moved, staying, others, floor)
        if len(block) - 1 in corrected and self._proved_end(block):
            self.order.ended = block[-1].position
        self._place(moved, stop, staying, faults, corrected)
        if self.size is not None and len(block) - 1 in foreign:
            known = (end for end in self.neighbours.ends if end <= block[-1].low)
            self.order.end = max([self.last + 1, *known])

    def _shorten(self, block: list[LocatedBatch]) -> None:
        """Give the batches whose headers name too high last offsets those of their records."""
        if self.open_segment is not None:
            whole = self.size is not None
            found = moved_batches.shortened(block, self.neighbours.following, self.open_segment, whole=whole)
            for n, batch in found.items():
                block[n] = batch
                self.order.shortened[batch.position] = batch.high

    def _place(
        self, moved: list[LocatedBatch], stop: int, staying: set[int], faults: dict[int, str], corrected: dict[int, int]
    ) -> None:
        """Note the first ``stop`` batches of a block: those that stay, and why the others don't."""
        following = moved_batches.next_staying(moved, staying)
        bodies = {_body(moved[n]) for n in staying}
        holes = moved_batches.holes_before(moved, staying, self.floor)
        for n, batch in enumerate(moved[:stop]):
            if batch.high >= self.limit:
                self.order.beyond = True
                continue  # reported as such
            if n in staying:
                if n in corrected:
                    self.order.corrected[batch.position] = moved_batches.CorrectedOffset(
                        corrected[n], batch.low, batch.high
                    )
                self._keep([batch])
                continue
            after = following[n]
            ahead = "unconfirmed" if after is None or after > batch.high else "ahead"
            fault = faults.get(n) or ("behind" if batch.low <= self.last else ahead)
            guess = None if fault == "foreign" else increasing_offsets.probable_base_offset(batch, self.last, after)
            # A hole of its length where it or its twin lies: it is the batch of these offsets, or has overwritten it.
            length = batch.high - batch.low + 1
            fills = length in (holes.get(batch.low), None if after is None else after - self.last - 1)
            copy = _body(batch) in bodies and not fills
            self.order.misplaced[batch.position] = MisplacedBatch(self.last, after, fault, guess, copy)

    def _keep(self, batches: list[LocatedBatch]) -> None:
        if batches:
            self.order.head = self.order.head or batches[0]
            self.order.tail = batches[-1]
            self.last = batches[-1].high

    def _select(self, moved: list[LocatedBatch], foreign: set[int]) -> tuple[set[int], dict[int, str]]:
        """Return the batches of a block that stay, and the faults of others."""
        own = [n for n in range(len(moved)) if n not in foreign]
        strays = {own[m] for m in foreign_batches.before_name([moved[n] for n in own], self.name or 0)}
        fitting = [n for n in own if n not in strays and moved[n].high < self.limit]
        compared = [moved[n] for n in fitting]
        dubious = increasing_offsets.suspects(compared, self.floor, self.size)
        in_order = increasing_offsets.most_in_order(
            compared, self.last, None if self.order.head else self.name, dubious
        )
        unclear = {fitting[m] for m in increasing_offsets.undecided(compared, in_order, self.last, dubious)}
        kept = [n for n, stays in zip(fitting, in_order, strict=True) if stays and n not in unclear]
        leaping = {fitting[m] for m in dubious} if self.size is not None else set()
        while len(kept) > 1 and kept[-1] in leaping:
            unclear.add(kept.pop())
        doubtful = foreign_batches.unjoined(moved, kept, self.last, self.name)
        faults = {
            **dict.fromkeys(foreign, "foreign"),
            **dict.fromkeys(strays, "stray"),
            **dict.fromkeys(unclear, "undecided"),
        }
        why = {n: "doubtful" if moved[n].doubtful else "zeroed" for n in doubtful}
        return set(kept) - doubtful, faults | why

    def _evidence(self, moved: list[LocatedBatch]) -> base_offset_proof.BaseOffsetProof:
        """Return the proofs of a block. The adjacent batches of other segments count as if they were in this file."""
        before = self.neighbours.before if self.order.head is None else None
        after = self.neighbours.after if self.size is not None else None
        end = self._proved_end(moved)
        return base_offset_proof.BaseOffsetProof(
            moved, self.last, self.name, self.limit,
            before and before._replace(end=0),
            end or (after and after._replace(position=self.size or 0)), self.neighbours.newest, ended=end is not None,
        )  # fmt: skip

    def _proved_end(self, block: list[LocatedBatch]) -> LocatedBatch | None:
        if self.size is None or not block:
            return None
        return self.neighbours.proved_end(block[-2].high if len(block) > 1 else (self.name or 0) - 1, block[-1])


def _body(batch: LocatedBatch) -> tuple[int, int, int]:
    """Return what two copies of a batch have in common: the CRC, the size in bytes and the first offset."""
    return batch.crc, batch.end - batch.position, batch.low
