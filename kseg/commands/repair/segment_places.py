"""Find the place of each segment of a partition by its batches, since its name can be wrong.

A stray file, a copy or a renamed segment must not limit the offsets of another segment. So a segment is limited by the
offsets that the next one has, and by the name of the next one only if the batches of both agree with it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kseg.errors import NotASegmentError
from kseg.format.record.layout import INT32_MAX, SUM_LIMIT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import known_leader_epochs
from kseg.format.sidefiles.log_end import named_ends
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source, open_source
from kseg.format.writer.increasing_offsets import LocatedBatch, batches_of
from kseg.format.writer.moved_batches import NO_SEGMENT
from kseg.format.writer.offset_order import AdjacentBatches, OffsetOrder, ceiling_of, find_order
from kseg.format.writer.overflowed_segments import SegmentPart, split_parts


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """The place of a segment in its partition.

    ``name`` is its file, ``target`` the file name that its offsets need. ``floor`` is the last offset of the segment
    before (-1: no segment), ``ceiling`` the first offset that it can't have. ``following`` is the first offset after it
    that the partition has, None for its last segment. ``order`` is the order of its batches with these limits, None if
    it has none. ``copied`` names the segment that has all of its batches; ``why`` says why it is not a segment, or,
    of a copy, that other bytes follow where offsets are missing. Of a
    segment without batches, ``floor`` and ``ceiling`` are the limits of the offsets that are missing around it.
    ``named_end`` is the log end that side files prove, -1 for none: only the last segment has it.
    """

    name: str
    target: str
    floor: int = -1
    ceiling: int | None = None
    following: int | None = None
    order: OffsetOrder | None = None
    copied: str = ""
    why: str = ""
    named_end: int = -1

    @property
    def offsets(self) -> tuple[int | None, int | None]:
        """Return the first and the last offset in it, None without batches."""
        if self.order is None or self.order.head is None or self.order.tail is None:
            return None, None
        return self.order.head.low, self.order.tail.high


def find_places(folder: Path, names: Sequence[str], *, merged: bool) -> list[SegmentPlace]:
    """Read the segments ``names`` of a partition, and return their places in the order of their offsets.

    ``merged``: they are made from several replicas. Raises UnreadableError and other KsegError from reading.
    """
    surveys: list[_Survey] = []
    for name in names:
        surveys += _surveys(folder, name, surveys[-1].order if surveys else None, names, merged)
    found = [one for one in surveys if one.first is not None]
    placed, covered = _without_overlaps(sorted(found, key=_Survey.key))
    placed = [one for n, one in enumerate(placed) if not _name_contradicts_one_header(one, placed[:n], placed[n + 1 :])]
    places = _named([_bounded(one, placed[n + 1 :]) for n, one in enumerate(placed)])
    done = _with_neighbours(folder, places, merged)
    for one in surveys:
        if one not in placed:
            start = min(each.base for each in surveys if each not in placed)
            done.append(_without_batches(one, done, start, covered.get(one.name, "")))
    return sorted(done, key=lambda place: (base_offset_of(place.target) or 0, place.order is not None))


@dataclass(slots=True)
class _Survey:
    """A single segment: its order, and the range of offsets that it can have. ``part`` is the name of a part of it."""

    folder: Path
    name: str
    order: OffsetOrder | None
    why: str = ""
    floor: int = -1
    ceiling: int | None = None
    part: str = ""
    _ranges: list[tuple[int, int, int, int]] | None = None

    @property
    def base(self) -> int:
        return base_offset_of(self.part or self.name) or 0

    @property
    def first(self) -> int | None:
        """Return the first offset, None without batches."""
        if self.floor < 0 and self.ceiling is None:
            return self.order.head.low if self.order and self.order.head else None
        left = self.ranges
        return left[0][0] if left else None

    @property
    def last(self) -> int:
        if self.floor < 0 and self.ceiling is None:
            return self.order.tail.high if self.order and self.order.tail else -1
        return self.ranges[-1][1]

    @property
    def ranges(self) -> list[tuple[int, int, int, int]]:
        """Return the first and last offset, CRC and size of each batch, in order. Used only for overlapping segments."""
        if self._ranges is None:
            self._ranges = self.batches(self.order.misplaced if self.order else ())
        limit = 1 << 63 if self.ceiling is None else self.ceiling
        return [one for one in self._ranges if one[0] > self.floor and one[1] < limit]

    def batches(self, without: Container[int] = ()) -> list[tuple[int, int, int, int]]:
        """Read the ranges of all valid batches but those at the positions ``without``."""
        order = self.order
        if order is None:
            return []
        with SegmentReader(order.arranged(_open(self.folder, self.name, self.name))) as reader:
            return [
                (batch.low + by, batch.high + by, batch.crc, batch.end - batch.position)
                for batch in batches_of(reader)
                if batch.position not in without
                for by in (order.corrected[batch.position].by if batch.position in order.corrected else 0,)
            ]

    def key(self) -> tuple[int, bool, str]:
        first = self.first or 0
        return first, first != self.base, self.name


def _open(folder: Path, name: str, target: str, pieces: Sequence[tuple[int, int]] = ()) -> Source:
    """Open a segment, or ``pieces`` of it, with the name that it should have, "" if its name can be wrong."""
    source = open_source(str(folder / name))
    source.name = str(folder / target) if target else ""
    return source.rearranged(pieces) if pieces else source


def _ends_of(log: Path, merged: bool) -> frozenset[int]:
    """Return the ends that side files name. In a ``merged`` log they prove nothing: the batches around lost ones meet."""
    return frozenset() if merged else named_ends(log)


def _surveys(
    folder: Path, name: str, previous: OffsetOrder | None, names: Sequence[str], merged: bool
) -> list[_Survey]:
    """Read a segment, or the parts that a broker splits it into.

    ``previous`` is the order of the segment before it by name, ``names`` are all segments.
    """
    following = next((base_offset_of(one) for one in names[names.index(name) + 1 :]), None)
    before = AdjacentBatches(
        _last_of(previous),
        ends=_ends_of(folder / name, merged),
        following=NO_SEGMENT if following is None else following,
        leader_epochs=known_leader_epochs(folder),
    )
    try:
        order = find_order(lambda: _open(folder, name, name), ceiling_of(name), neighbours=before, moves=True)
        if order.beyond and (parts := split_parts(lambda: _open(folder, name, name), following)):
            return [_survey_of(folder, name, part) for part in parts]
        # If no batch stays, the name contradicts all of them.
        if order.head is None or _is_copy(folder, name, order, names):
            order = find_order(lambda: _open(folder, name, ""), moves=True)
    except NotASegmentError as error:
        return [_Survey(folder, name, None, str(error).removeprefix(": ").removeprefix(f"{folder / name}: "))]
    return [_Survey(folder, name, order)]


def _survey_of(folder: Path, name: str, part: SegmentPart) -> _Survey:
    """Read a part of a segment as one with the name that it needs."""
    target, pieces = f"{part.base:020}.log", ((part.begin, part.end),)
    order = find_order(lambda: _open(folder, name, target, pieces), ceiling_of(target))
    return _Survey(folder, name, replace(order, pieces=pieces), part=target)


def _is_copy(folder: Path, name: str, order: OffsetOrder, names: Sequence[str]) -> bool:
    """Return whether a segment's only batch was corrected, and another segment has it at its stored offset.

    If the names of both differ in one bit, so do the offsets: of a segment that another one's copy replaced.
    """
    if order.head != order.tail or order.head is None or not (corrected := order.corrected.get(order.head.position)):
        return False
    stored = order.head.beginning_at(order.head.low - corrected.by)
    others = [one for one in names if one != name and (base_offset_of(one) or 0) <= stored.low]
    if not others:
        return False
    try:
        with SegmentReader(_open(folder, others[-1], others[-1])) as reader:
            found = next((one for one in batches_of(reader) if one.high >= stored.low), None)
    except NotASegmentError:
        return False
    return found is not None and (found.low, found.high, found.crc) == (stored.low, stored.high, stored.crc)


def _last_of(order: OffsetOrder | None) -> LocatedBatch | None:
    """Return the last batch of a segment, None if other bytes follow it."""
    return order.tail if order and order.tail and order.tail.end == order.size else None


def _without_overlaps(surveys: list[_Survey]) -> tuple[list[_Survey], dict[str, str]]:
    """Limit segments that have the same offsets, and return those that keep batches, by offsets.

    See ``_is_outweighed`` for which of two keeps the offsets. A segment of another log keeps none. Also returns, for each
    copy, the segment that has the same batches.
    """
    joins = _joins_of(surveys)
    waiting = [(*one.key(), one) for one in surveys]
    heapq.heapify(waiting)
    placed: list[_Survey] = []
    covered: dict[str, str] = {}

    def drop(one: _Survey, other: _Survey) -> None:
        kept = set(replace(other, floor=-1, ceiling=None).ranges)
        if kept.issuperset(one.batches()):  # those without a place, too: no other segment may have them
            covered[one.name] = other.name

    while waiting:
        one = heapq.heappop(waiting)[-1]
        before = placed[-1] if placed else None
        first = one.first
        assert first is not None
        if before is None or first > before.last:
            placed.append(one)
            continue
        inside = sum(high >= first for _, high, *_ in before.ranges)
        below = sum(low <= before.last for low, *_ in one.ranges)
        if _is_outweighed(before, inside, one, below, joins):
            foreign = inside > 1 and before.first != before.base and not joins[before.name]
            before.ceiling = before.first if foreign else first
            if before.first is None:
                drop(placed.pop(), one)
        else:
            foreign = below > 1 and first != one.base and not joins[one.name]
            one.floor = one.last if foreign else before.last
            if one.first is None:
                drop(one, before)
                continue
        heapq.heappush(waiting, (*one.key(), one))
    return placed, covered


def _joins_of(surveys: list[_Survey]) -> dict[str, int]:
    """Return for each segment on how many sides the offsets of another one join its own."""
    firsts, lasts = {one.first for one in surveys}, {one.last for one in surveys}
    return {one.name: ((one.first or 0) - 1 in lasts) + (one.last + 1 in firsts) for one in surveys}


def _is_outweighed(before: _Survey, inside: int, one: _Survey, below: int, joins: Mapping[str, int]) -> bool:
    """Return whether the first of two segments with the same offsets loses them.

    ``inside`` is the number of its batches there, ``below`` that of the second one. The segment keeps them that more others
    join, or, if as many do, the only one that has the offset of its name. Not if both share batches, or if one has a single
    batch there that does not join its others: its offset can be damaged. Then it is the one that contradicts fewer batches
    of the other.
    """
    lone = (inside == 1 and not _joined(before.ranges[-2:])) or (below == 1 and not _joined(one.ranges[:2]))
    named = before.first == before.base, one.first == one.base
    if not lone and set(before.ranges).isdisjoint(one.ranges):
        if joins[before.name] != joins[one.name]:
            return joins[before.name] < joins[one.name]
        if named[0] != named[1]:
            return named[1]
    return inside < below or (inside == below and named[1])


def _joined(ranges: Sequence[tuple[int, int, int, int]]) -> bool:
    """Return whether each batch continues the one before."""
    return all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ranges))


def _bounded(one: _Survey, later: list[_Survey]) -> _Survey:
    """Limit a segment by the name of the next one, if the offsets of both agree with that name.

    They don't if several batches reach the name, or if the one that does joins the batch before it.
    """
    if not later:
        return one
    following, first = later[0], later[0].first
    if one.ceiling is None and following.base <= one.last and first is not None and following.base <= first:
        ranges = one.ranges
        beyond = [n for n, (_, high, *_) in enumerate(ranges) if high >= following.base]
        n = beyond[0]
        if len(beyond) == 1 and n and ranges[n - 1][1] + 1 != ranges[n][0]:
            one.ceiling = following.base
    return one


def _name_contradicts_one_header(one: _Survey, before: list[_Survey], after: list[_Survey]) -> bool:
    """Return whether a segment's name and the header of its only batch contradict each other, and nothing decides.

    No CRC covers the base offset. A second batch that continues it, or a segment that it joins, shows that the name is
    wrong: then the segment is written with another name.
    """
    head, tail = (one.order.head, one.order.tail) if one.order else (None, None)
    last = before[-1].last if before else -1
    if head is None or tail is None or (last < one.base <= head.low <= tail.high <= one.base + INT32_MAX):
        return False
    stored = head.stored < SUM_LIMIT  # otherwise ``low`` is not its offset
    joins = (before and before[-1].last + 1 == head.low) or (after and tail.high + 1 == after[0].first)
    if stored and (joins or head.position != tail.position):
        return False
    one.why = f"a header claims offset {head.stored}, the file name {one.base}, and nothing proves either"
    return True


def _named(surveys: list[_Survey]) -> list[SegmentPlace]:
    """Give each segment its own name, or, if its offsets contradict that, the name of its first offset."""
    places: list[SegmentPlace] = []
    last = -1
    for one in surveys:
        first = one.first
        assert first is not None
        fits = last < one.base <= first and one.last - one.base <= INT32_MAX
        target = (one.part or one.name).removesuffix(".swap") if fits else f"{first:020}.log"
        places.append(SegmentPlace(one.name, target, one.floor, one.ceiling, None, one.order))
        last = one.last
    for n, one in enumerate(surveys[:-1]):
        following, first = base_offset_of(places[n + 1].target), surveys[n + 1].first
        limit = first if following is None or one.last >= following else following
        ceiling = limit if one.ceiling is None else one.ceiling
        places[n] = replace(places[n], ceiling=ceiling, following=following)
    return places


def _with_neighbours(folder: Path, places: list[SegmentPlace], merged: bool) -> list[SegmentPlace]:
    """Find the order of batches again for segments whose neighbours limit their offsets."""
    done: list[SegmentPlace] = []
    for n, place in enumerate(places):
        assert place.order is not None
        before = done[-1].order if done else None
        after = places[n + 1].order if n + 1 < len(places) else None
        neighbours = AdjacentBatches(
            _last_of(before),
            after.head if after and after.head and not after.head.position else None,
            newest=n + 1 == len(places) and not merged,
            ends=_ends_of(folder / place.name, merged),
            following=NO_SEGMENT if place.following is None else place.following,
            leader_epochs=known_leader_epochs(folder),
        )
        floor = max(place.floor, before.tail.high if before and before.tail else -1)
        order = place.order
        late = order.head and neighbours.contradicts(order.head, base_offset_of(place.target))
        if late or place.target != place.name or not _in_order(order, floor, place.ceiling):
            pieces = order.pieces if order.is_part else ()
            opened = partial(_open, folder, place.name, place.target, pieces)
            ceiling = ceiling_of(place.target) if place.ceiling is None else place.ceiling
            order = find_order(opened, ceiling, floor, neighbours, moves=not pieces)
            order = replace(order, pieces=pieces or order.pieces)
        done.append(replace(place, floor=floor, order=order))
    return done


def _without_batches(one: _Survey, places: list[SegmentPlace], start: int, copied: str) -> SegmentPlace:
    """Return the place of a segment without its own batches: the missing offsets around its name.

    ``start`` is the lowest offset in the names of such segments. Without batches before them, the log starts there.
    """
    floor, ceiling = -1, None
    ends = [(place.order.tail.high, place.following) for place in places if place.order and place.order.tail]
    for last, following in ends:
        if last < one.base:
            floor, ceiling = last, following
    heads = [base_offset_of(place.target) or 0 for place in places if place.order]
    if floor < 0 and heads:
        floor, ceiling = start - 1, min(heads)
    elif floor < 0:
        floor = one.base - 1
    empty = "no readable batch in it" if one.order is None or one.order.head is None else ""
    why = one.why or empty or "other segments have all its offsets, in other batches"
    if copied:
        damaged = (ceiling is None or floor + 1 < ceiling) and _last_of(one.order) is None
        why = f"its batches are copies of those in {copied}, its other bytes cannot be read" if damaged else ""
    return SegmentPlace(one.name, one.name.removesuffix(".swap"), floor, ceiling, copied=copied, why=why)


def _in_order(order: OffsetOrder, floor: int, ceiling: int | None) -> bool:
    """Return whether all batches are in order and within the limits."""
    if order.misplaced or order.corrected or order.moved or order.beyond or order.head is None or order.tail is None:
        return False
    return order.head.low > floor and (ceiling is None or order.tail.high < ceiling)
