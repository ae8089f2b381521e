"""Plan the load of a partition: a half-open range of offsets, and the bytes of the replicas that hold it.

A load continues at the next offset of the table. It ends at the last stable offset, so a transaction is loaded as a whole
after it has ended, wherever the segments of two nights are cut. At each offset the replica is read whose segment is sound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kseg.errors import UnreadableError
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.load_rows import LoadPlan, Part, PlanRules, up_to_stable
from kseg.extras.pipeline.quarantine import listed_damage, unnamed
from kseg.extras.pipeline.source_replicas import Loaded, Place, SourceReplica, divergence, without_former_leaders
from kseg.extras.views.planned_transactions import ProducerEvent
from kseg.format.record.layout import INT64_MAX
from kseg.format.record.offset_evidence import SEVERAL
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.storage.naming import CLEANER_OFFSETS
from kseg.format.storage.segment_files import SegmentFile
from kseg.text import inclusive_range


def needed(replicas: Sequence[SourceReplica], loaded: Loaded | None) -> list[SegmentFile]:
    """Return the segments that can hold offsets that are not loaded, and that are old enough."""
    return [
        segment
        for replica in replicas
        for segment in replica.segments[: replica.settled]
        if loaded is None or segment.end_offset > loaded.next_offset
    ]


def first_offset(replicas: Iterable[SourceReplica]) -> int:
    """Return the first offset of the segments of replicas, 0 without any."""
    return min((one.segments[0].base_offset for one in replicas if one.segments), default=0)


def _without_parts(
    place: Place,
    replicas: Sequence[SourceReplica],
    loaded: Loaded | None,
    log_end: int,
    config: str,
    *,
    unknown: bool,
    known_id: str | None,
) -> LoadPlan:
    """Return a plan that loads nothing yet. Its ``failure`` says why nothing can be loaded, such as for another log.

    ``log_end`` is the end of the segments that were read. ``unknown``: some of them cannot be read. ``known_id`` is the
    topic id of the table's rows.
    """
    ids = {one.topic_id: one.folder for one in replicas if one.topic_id}
    topic_id = next(iter(ids), None)
    first = loaded.next_offset if loaded else first_offset(replicas)
    every = [segment for replica in replicas for segment in replica.segments]
    log_end = max([log_end, *(one.base_offset for one in every)], default=first)
    empty = LoadPlan(place, first, first, log_end, topic_id=topic_id)
    if not replicas:
        why = "no segment of it in the source, and the table has it: mount its disk, or list its folder in source.paths"
        return replace(empty, failure=f'{why}; if its log is gone for good, set source.ended = ["{empty.name}"]')
    if len(ids) > 1:
        return replace(
            empty,
            failure=f"{' and '.join(ids.values())} are of topics with the same name: list one of them in source.paths",
        )
    if unread := [one.unread for one in replicas if one.unread]:
        return replace(empty, failure=unread[0])
    unknown = unknown or any(one.settled is not None for one in replicas)
    failure = _is_another(empty, loaded, known_id, unknown=unknown)
    try:
        if failure is None and loaded and (found := divergence(replicas, loaded)):
            failure = found.reason(*place, loaded, config)
    except UnreadableError as error:
        failure = str(error)
    return replace(empty, failure=failure)


def plan_partition(
    place: Place,
    replicas: Sequence[SourceReplica],
    checked: Mapping[str, CheckedSegment],
    loaded: Loaded | None,
    rules: PlanRules,
    known_id: str | None = None,
) -> LoadPlan:
    """Plan the load of a partition. ``checked`` has the results of the ``needed`` segments by path, and can have others.

    ``known_id`` is the id of the topic that the table's rows are from, None if it is not known.
    """
    own = {one.path: checked[one.path] for one in needed(replicas, loaded)}
    try:
        segments = list(without_former_leaders(replicas, own).values())
    except UnreadableError as error:
        empty = _without_parts(place, replicas, loaded, 0, rules.config, unknown=True, known_id=known_id)
        return replace(empty, failure=str(error))
    log_end = max((one.next_offset for one in segments), default=0)
    unknown = any(one.unread for one in segments)
    empty = _without_parts(place, replicas, loaded, log_end, rules.config, unknown=unknown, known_id=known_id)
    if empty.failure:
        return empty
    thinned = any(one.thinned for one in segments) or sum(one.gaps for one in segments) >= SEVERAL
    walk = _Walk(empty.first, segments, rules, thinned=thinned)
    walk.run()
    damaged = walk.damaged  # a segment that waits as a whole has all of its damage in the list
    if not rules.hold_segments:
        listed = ((one, listed_damage(one, empty.first, walk.read[one.path], walk.lost)) for one in damaged)
        damaged = [replace(one, damage=damage) for one, damage in listed if damage]
        if not thinned:  # of a compacted log, offsets next to damage can have been removed before
            passed = (one for one in walk.lost if one[1] <= walk.at)
            walk.gaps += [_lost(*one) for one in unnamed(passed, damaged)]
    found = replace(
        empty, end=walk.at, parts=tuple(walk.parts), waiting=walk.waiting, failure=walk.failure, gaps=tuple(walk.gaps),
        damaged=tuple(damaged), lost=tuple(walk.lost),
    )  # fmt: skip
    if not rules.committed:
        return found
    return up_to_stable(found, walk.torn, _before(found, segments, thinned=thinned))


def _before(
    plan: LoadPlan, segments: Sequence[CheckedSegment], *, thinned: bool
) -> list[tuple[Sequence[ProducerEvent], int]]:
    """Return the events before the first offset of a plan, of the best replicas there, and where each of these parts ends.

    Without damage the first part has them itself.
    """
    if not plan.parts or plan.parts[0].checked.is_sound or plan.first == plan.parts[0].checked.base_offset:
        return []
    begin = min(one.base_offset for one in segments if one.file.end_offset > plan.first)
    earlier = [one for one in segments if one.base_offset < plan.first]
    walk = _Walk(begin, earlier, PlanRules(gaps_stop=False), thinned=thinned)
    walk.run()
    return [(one.checked.events, min(one.end, plan.first)) for one in walk.parts if one.first < plan.first]


def _is_another(plan: LoadPlan, loaded: Loaded | None, known_id: str | None, *, unknown: bool) -> str | None:
    """Return why the log is not the one that was loaded. ``unknown``: its end is not known."""
    if known_id and plan.topic_id and known_id != plan.topic_id:
        return (
            f"the topic was deleted and created again: the table has rows of topic id {known_id}, and "
            f"the segments are of {plan.topic_id}: load them into a new table"
        )
    if loaded is None:
        return None
    if plan.log_end < loaded.next_offset and not unknown:
        return (
            f"the log ends at offset {plan.log_end}, and the table has its rows up to offset "
            f"{loaded.next_offset - 1}: it was truncated, the topic was created again, or segments are missing"
        )
    return None


class _Walk:
    """Walks through the segments of all replicas, from the first offset that is not loaded."""

    def __init__(self, first: int, segments: Iterable[CheckedSegment], rules: PlanRules, *, thinned: bool) -> None:
        self.at = first
        self.parts: list[Part] = []
        self.read: dict[str, list[tuple[int, int]]] = defaultdict(list)  # the offsets of parts, by path
        self.gaps: list[tuple[int, int, str]] = []
        self.damaged: list[CheckedSegment] = []
        self.lost: list[tuple[int, int]] = []
        self.torn: set[int] = set()  # offsets after lost ends of segments, and after missing segments
        self.waiting: str | None = None
        self.failure: str | None = None
        self._segments = sorted(segments, key=lambda one: one.base_offset)
        self._position = 0  # of the first segment after the current offset
        self._newest: dict[str, CheckedSegment] = {}
        self._open: list[CheckedSegment] = []  # those that have the current offset, or later ones
        self._rules = rules
        self._thinned = thinned

    def run(self) -> None:
        """Collect the parts, up to the end of the log or the first offset that must wait."""
        while self.waiting is None and self.failure is None:
            part = self._best()
            if part is not None:
                self._add(part)
                continue
            if self.failure:
                return
            unread = [one for one in self._at() if one.unread]
            if unread and self._position == len(self._segments) and self._is_reached(unread):
                self._end()
                self.waiting = f"{unread[0].unread}: what it has from offset {self.at} on is loaded later"
                return
            if unread:
                self.failure = unread[0].unread
            elif self._position == len(self._segments):
                self._end()
                return
            else:
                self._pass_gap(self._segments[self._position].base_offset)

    def _is_reached(self, unread: Sequence[CheckedSegment]) -> bool:
        """Return whether another replica has the log beyond the first offsets of newest segments that cannot be read.

        It can lag, as any replica: a later run loads what follows.
        """
        end = max((one.next_offset for one in self._at() if one.is_sound), default=0)
        return end >= self.at > max(one.base_offset for one in unread)

    def _at(self) -> list[CheckedSegment]:
        """Return the segments that can hold the current offset by their names: the last one of each folder before it."""
        self._advance()
        return list(self._newest.values())

    def _advance(self) -> None:
        """Follow the current offset, which only increases: each segment is looked at once."""
        while self._position < len(self._segments) and self._segments[self._position].base_offset <= self.at:
            one = self._segments[self._position]
            self._newest[one.path.rpartition("/")[0]] = one
            self._open.append(one)
            self._position += 1
        self._open = [one for one in self._open if self.at < one.next_offset]

    def _best(self) -> Part | None:
        """Return the best segment at the current offset: a sound one, and of these the one that ends last.

        Of damaged ones it is the one that has the next offset, up to where another replica has offsets that it has not.
        """
        self._advance()
        candidates = [one for one in self._open if one.unread is None]
        if not candidates:
            return None
        if sound := [one for one in candidates if one.is_sound]:
            best = max(sound, key=lambda one: one.next_offset)
            return Part(best, self.at, best.next_offset)
        starts = {one.path: one.next_known(self.at) for one in candidates}
        best = min(candidates, key=lambda one: (starts[one.path], -one.known_until(starts[one.path])))
        folder = best.path.rpartition("/")[0]
        others = [
            one
            for one in self._segments
            if self.at < one.base_offset < best.next_offset and one.path.rpartition("/")[0] != folder
        ]
        # The next sound segment of another replica takes over where it begins; a damaged one where the best lacks offsets.
        end = min([best.next_offset, *(one.base_offset for one in others if one.is_sound)])
        end = min([end, *(known for one in others if (known := one.next_known(self.at)) < starts[best.path])])
        beside = [*(one for one in candidates if one is not best), *others]
        holes = [one for one in best.holes_from(self.at) if one[0] < end]
        for first, stop in holes:
            if starts[best.path] < first and any(one.next_known(first) < stop for one in beside):
                end = first
                break
        lost = [(max(first, self.at), min(stop, end)) for first, stop in holes if first < end]
        for number, (first, stop) in enumerate(lost):
            if unread := self._unread(stop, others):
                if first == self.at:
                    self.failure = unread
                    return None
                end, lost = first, lost[:number]
                break
        self.lost += lost
        return Part(best, self.at, end)

    def _unread(self, stop: int, others: Iterable[CheckedSegment]) -> str | None:
        """Return why a segment cannot be read that can have the lost offsets before ``stop``; None without one."""
        return next((one.unread for one in (*self._at(), *others) if one.unread and one.base_offset < stop), None)

    def _add(self, part: Part) -> None:
        if not part.checked.is_sound:
            if self._rules.hold_segments:
                self.waiting = f"{part.checked.path} is damaged, and quarantine.unit is segment"
                self.damaged.append(part.checked)
                return
            if part.checked not in self.damaged:
                self.damaged.append(part.checked)
        self.parts.append(part)
        self.read[part.checked.path].append((part.first, part.end))
        self.at = part.end

    def _pass_gap(self, following: int) -> None:
        """Continue at the next segment, or stop before a gap that nothing explains."""
        here = self._at()
        damaged = [one for one in here if one.has_lost_end]
        # What lost bytes at the end of a segment can have had is in its findings.
        first = max((one.claimed_end() or following for one in damaged), default=self.at)
        self.damaged += [one for one in damaged if one not in self.damaged]
        self.lost += [(self.at, following)] if damaged else []
        if damaged and self._rules.hold_segments:
            self.waiting = f"{damaged[0].path} is damaged, and quarantine.unit is segment"
            return
        try:
            cleaned = bool(here) and first < following and self._is_cleaned(here[0].path, following)
        except UnreadableError as error:
            self.failure = str(error)
            return
        if first < following and not cleaned:
            text = inclusive_range("offset", first, following - 1)
            why = "in no segment" if here else "deleted before the load"
            if self._rules.gaps_stop:
                wait = "wait for a segment that has not arrived yet, or " if here else ""
                self.failure = f'{text}: {why}: {wait}set source.gaps to "continue", which loads what follows'
                return
            self.gaps.append((first, following, f"{text}: {why}"))
            self.torn.add(following)
        elif damaged:
            self.torn.add(following)
        self.at = following

    def _end(self) -> None:
        """Add the offsets to the lost ones that bytes at the end of the log can have had, and that no replica has."""
        ends = [0]
        for one in self._at():
            if one.has_lost_end:
                ends.append(one.claimed_end() or (INT64_MAX if one.next_offset >= self.at else 0))
                if not one.valid_end and ends[-1] > self.at:  # no part has it
                    self.damaged.append(one)
        if max(ends) > self.at:
            self.lost.append((self.at, max(ends)))

    def _is_cleaned(self, path: str, offset: int) -> bool:
        """Return whether a log cleaner can have removed the offsets before ``offset``. Raises UnreadableError."""
        return self._thinned or (checkpoint_offset(path.rpartition("/")[0], CLEANER_OFFSETS) or 0) >= offset


def _lost(first: int, end: int) -> tuple[int, int, str]:
    """Return the gap of offsets that were in lost bytes, and that no finding names."""
    return first, end, f"{inclusive_range('offset', first, end - 1)}: in no valid batch of a replica"
