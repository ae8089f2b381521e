"""Find the batches of a segment whose base offsets can't be right, over the whole segment.

No CRC covers the base offset, and damage moves and copies whole batches. The batches that stay are the most that have
increasing offsets (a longest increasing subsequence), so a few wrong ones never cost many right ones. A wrong base
offset is corrected only if there is proof of the right one, see ``BaseOffsetProof``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from kseg.findings import Finding
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.record.offset_evidence import one_bit_apart
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source
from kseg.format.writer import rewritten_rows
from kseg.format.writer.base_offset_proof import BaseOffsetProof
from kseg.format.writer.increasing_offsets import (
    LocatedBatch,
    batch_at,
    batches_of,
    most_in_order,
    suspects,
    too_high,
    undecided,
)

# More offsets per lost byte are not expected.
_DENSE = 64
# Batches that are compared with each other at a time: more would take more than 100 MB.
COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class OffsetOrder:
    """Batches whose offsets can't be right, by their position in the file.

    ``previous`` has the batches that have no place, with the last offset before each. ``corrected`` has the batches whose
    offset is proved, with the number to add to it. ``doubtful`` are batches of ``previous`` whose offset nothing
    contradicts, but whose size field, right after the base offset, was overwritten. ``undecided`` are batches of
    ``previous`` that contradict only the batch next to them, where one flipped bit in either explains both, or that one
    flipped bit explains and no batch after them contradicts (``too_high``).

    ``head`` and ``tail`` are the first and the last batch that stay, None if no batch does. ``size`` is the number of
    bytes in the file. ``beyond`` is whether batches were left out because of ``ceiling``.
    """

    previous: dict[int, int]
    corrected: dict[int, int]
    doubtful: set[int] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    head: LocatedBatch | None = None
    tail: LocatedBatch | None = None
    size: int = 0
    beyond: bool = False


IN_ORDER = OffsetOrder({}, {})


@dataclass(frozen=True, slots=True)
class AdjacentBatches:
    """The last batch of the segment before, and the first batch of the segment after.

    None if the segment is missing, or if the batch is not at the end of its file that is adjacent. ``newest``: no segment
    follows. The newest segment is never compacted, so its first batch has the offset of its name.
    """

    before: LocatedBatch | None = None
    after: LocatedBatch | None = None
    newest: bool = False

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
) -> OffsetOrder:
    """Read a segment, and return which of its batches can't stay where they are with the offsets they have.

    ``ceiling`` is the first offset of the next segment, ``floor`` the last offset of the segment before. Batches that are
    not between the two are left out, unless their offset can be corrected. A segment in order takes one pass over the
    headers. Raises KsegError as reading does.
    """
    overwritten: set[int] = set()

    def note_overwritten_size(finding: Finding) -> None:
        facts = finding.facts
        proved = finding.rule == "invalid-size" and "proved_size" in facts
        if proved and not one_bit_apart(facts["size"], facts["proved_size"]):
            overwritten.add(finding.position or 0)

    with SegmentReader(open_segment(), report=note_overwritten_size) as reader:
        ends: list[LocatedBatch] = []
        ascends = _ascends(reader, ceiling, floor, ends) and not overwritten and not _leaps(reader, floor, ends)
        if ascends and not (ends and neighbours.contradicts(ends[0], reader.name_offset)):
            head, tail = (ends[0], ends[-1]) if ends else (None, None)
            return OffsetOrder({}, {}, head=head, tail=tail, size=reader.position)
    found = _Found(ceiling, floor, neighbours)
    with SegmentReader(open_segment(), report=note_overwritten_size) as reader:
        found.name = reader.name_offset
        block: list[LocatedBatch] = []
        for batch in batches_of(reader):
            block.append(batch if batch.position not in overwritten else batch._replace(doubtful=True))
            if len(block) == COMPARED:
                # The second half is compared with what follows it, too.
                found.decide(block, COMPARED // 2)
                del block[: COMPARED // 2]
        found.size = reader.position
        found.decide(block, len(block))
    return OffsetOrder(
        found.previous, found.corrected, found.doubtful, found.undecided, found.head, found.tail, found.size,
        found.beyond,
    )  # fmt: skip


def _ascends(reader: SegmentReader, ceiling: int | None, floor: int, ends: list[LocatedBatch]) -> bool:
    """Return whether all offsets increase, as far as headers show it; ``ends`` receives the first and last batches."""
    last_offset = max((reader.name_offset or 0) - 1, floor)
    limit = INT64_MAX if ceiling is None else min(ceiling, INT64_MAX)
    for window in reader.windows():
        ascends, last_offset = rewritten_rows.offsets_ascend(window.batches, last_offset, limit)
        if not ascends:
            return False
        if not ends:
            ends += _first_valid(window)
        _keep_last(window, ends)
    return True


def _leaps(reader: SegmentReader, floor: int, ends: list[LocatedBatch]) -> bool:
    """Return whether the last batch may be too high. No batch after it shows that."""
    if not ends:
        return False
    before, end = (ends[-2].high, ends[-2].end) if len(ends) > 2 else (max((reader.name_offset or 0) - 1, floor), 0)
    lost = ends[-1].position - end
    return too_high(ends[-1], before, lost + reader.position - ends[-1].end, 0, _DENSE * lost)


def _first_valid(window: Window) -> list[LocatedBatch]:
    """Return the first batch of a window with a good CRC, if there is one."""
    rows = (row for row in range(window.batches.count) if window.batches.crc_state[row] != CRC_BAD)
    return [batch_at(window, row, None) for row in islice(rows, 1)]


def _keep_last(window: Window, ends: list[LocatedBatch]) -> None:
    """Put the last two batches of a window with a good CRC at the end of ``ends``, which holds three at most."""
    rows = (row for row in range(window.batches.count - 1, -1, -1) if window.batches.crc_state[row] != CRC_BAD)
    last = [batch_at(window, row, None) for row in islice(rows, 2)][::-1]
    others = [one for one in ends if not last or one.position < last[0].position]
    ends[:] = [*others[:1], *[*others[1:], *last][-2:]]


@dataclass(slots=True)
class _Found:
    """The result for a segment, block by block; the fields are those of ``OffsetOrder``.

    ``last`` is the last offset that stays, at first the offset before the segment.
    """

    ceiling: int | None
    last: int
    neighbours: AdjacentBatches
    name: int | None = None
    previous: dict[int, int] = field(default_factory=dict)
    corrected: dict[int, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    head: LocatedBatch | None = None
    tail: LocatedBatch | None = None
    size: int | None = None
    beyond: bool = False

    def decide(self, block: list[LocatedBatch], stop: int) -> None:
        """Decide which of the first ``stop`` batches stay. ``size`` is set if the block holds the segment's last batch."""
        limit = 1 << 63 if self.ceiling is None else self.ceiling
        late = self.head is None and block and self.neighbours.contradicts(block[0], self.name)
        floor = max(self.last, (self.name or 0) - 1)
        leaps = bool(block) and max(suspects(block, floor, self.size), default=-1) == len(block) - 1
        if not late and not leaps and _all_in_order(block, floor, limit):
            self._keep(block[:stop])
            return
        moved = list(block)
        corrected = self._correct(moved, limit)
        strays = _before_name(moved, self.name or 0)
        fitting = [n for n, batch in enumerate(moved) if n not in strays and batch.high < limit]
        compared = [moved[n] for n in fitting]
        dubious = suspects(compared, floor, self.size)
        in_order = most_in_order(compared, self.last, None if self.head else self.name, dubious)
        unclear = {fitting[m] for m in undecided(compared, in_order, self.last, dubious)}
        kept = [n for n, stays in zip(fitting, in_order, strict=True) if stays and n not in unclear]
        leaping = {fitting[m] for m in dubious} if self.size is not None else set()
        while len(kept) > 1 and kept[-1] in leaping:
            unclear.add(kept.pop())
        doubtful = _doubtful(moved, kept, self.last, self.name)
        staying = set(kept) - doubtful
        for n in range(stop):
            if moved[n].high >= limit:
                self.beyond = True
                continue  # reported as such
            position = block[n].position
            if n not in staying:
                self.previous[position] = self.last
                self.doubtful |= {position} if n in doubtful else set()
                self.undecided |= {position} if n in unclear else set()
                continue
            if n in corrected:
                self.corrected[block[n].position] = corrected[n]
            self._keep([moved[n]])

    def _keep(self, batches: list[LocatedBatch]) -> None:
        if batches:
            self.head = self.head or batches[0]
            self.tail = batches[-1]
            self.last = batches[-1].high

    def _correct(self, moved: list[LocatedBatch], limit: int) -> dict[int, int]:
        """Correct the base offsets of a block that are proved wrong; return the number added to each."""
        # The adjacent batches of other segments are compared with as if they were in this file.
        before = self.neighbours.before if self.head is None else None
        after = self.neighbours.after if self.size is not None else None
        evidence = BaseOffsetProof(
            moved, self.last, self.name, limit,
            before and before._replace(end=0),
            after and after._replace(position=self.size or 0), self.neighbours.newest,
        )  # fmt: skip
        corrected = {}
        for n, batch in enumerate(moved):
            proved = evidence.is_proved(n)
            if proved is not None:
                moved[n] = proved
                corrected[n] = proved.stored - batch.stored
        return corrected


def _all_in_order(block: list[LocatedBatch], last_offset: int, limit: int) -> bool:
    for batch in block:
        if batch.doubtful or batch.low <= last_offset or batch.high >= limit or batch.inner not in (-1, batch.high):
            return False
        last_offset = batch.high
    return True


def _before_name(block: list[LocatedBatch], name: int) -> set[int]:
    """Return the batches that end before the offset in the segment's name and do not join the batch after them.

    If most batches do so, the name is wrong, unless the file begins with batches of that name.
    """
    strays = {n for n, batch in enumerate(block) if batch.high < name}
    if len(strays) > 1 and 2 * len(strays) > len(block) and not _begins_with_name(block, min(strays), name):
        return set()
    for n in sorted(strays, reverse=True):
        if n + 1 < len(block) and block[n].high + 1 == block[n + 1].low and n + 1 not in strays:
            strays.discard(n)
    return strays


def _begins_with_name(block: list[LocatedBatch], first_stray: int, name: int) -> bool:
    """Return whether the file begins with the batch at offset ``name``, or with several in order after it (compacted).

    Batches of an earlier segment can follow these, however many they are.
    """
    if not first_stray or block[0].position or block[0].low < name:
        return False
    return block[0].low == name or (first_stray > 1 and _all_in_order(block[:first_stray], name - 1, 1 << 63))


def _doubtful(block: list[LocatedBatch], kept: list[int], floor: int, name: int | None) -> set[int]:
    """Return the doubtful batches of those that are ``kept``, without those that join the batch before or after."""
    found = set()
    for at, n in enumerate(kept):
        batch = block[n]
        if not batch.doubtful:
            continue
        if at:
            begins = block[kept[at - 1]].high + 1
        elif floor >= 0:
            begins = floor + 1
        else:
            begins = -1 if batch.position or name is None else name
        follows = at + 1 < len(kept) and batch.high + 1 == block[kept[at + 1]].low
        if batch.low != begins and not follows:
            found.add(n)
    return found
