"""The state of a partition after some of its segments, and the offsets that are missing in and between them.

Later segments and side files are checked against the state. Missing offsets are lost, or removed by compaction.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from kseg.commands.validate.segment_facts import EpochRun, SegmentFacts
from kseg.findings import Finding, Report
from kseg.format.checks import compaction_evidence
from kseg.format.checks.compaction_evidence import CompactionEvidence, orphan_within
from kseg.format.checks.offset_checks import gap_finding
from kseg.format.record.offset_evidence import LIMIT, BoundedMap
from kseg.format.segment.framed_files import LOSING
from kseg.format.storage.naming import base_offset_of, is_index
from kseg.format.storage.segment_files import path_in
from kseg.results import FileResult

MAX_EPOCHS = 100_000
MAX_SPANS = 10_000


class Extent(NamedTuple):
    """The offsets of a partition's log. ``end`` is exclusive, and None if unknown."""

    start: int
    end: int | None


@dataclass(slots=True)
class PartitionState:
    """A partition, and its state after the segments so far. Ends are exclusive, None if unknown.

    ``names`` are the files of its ``folder``, and ``report_for`` returns the report of a file by its name.

    ``end`` is that of the log, ``known_end`` that of its valid batches and of lost ones whose headers have offsets. The
    two differ if bytes at the end are lost.
    """

    folder: str
    names: set[str]
    report_for: Callable[[str], Report]
    # The base offsets of the segments.
    bases: list[int] = field(default_factory=list)
    end: int | None = None
    known_end: int | None = None
    name: str = ""
    zeros: bool = False
    holes: bool = False
    compaction: CompactionEvidence = field(default_factory=CompactionEvidence)
    # (first offset, last offset, name) of the segments for which these are known.
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    producers: BoundedMap = field(default_factory=BoundedMap)
    # The offset of the last marker by producer id.
    markers: BoundedMap = field(default_factory=BoundedMap)
    # The offset of the last marker that was decoded, and its coordinator epoch, by producer id.
    coordinators: BoundedMap = field(default_factory=BoundedMap)
    open: dict[int, int] = field(default_factory=dict)
    # Whether there were too many producers to know the open transactions of each.
    crowded: bool = False

    def path(self, name: str) -> str:
        """Return the path of a file of the partition."""
        return os.path.join(self.folder, name)

    def add(self, facts: SegmentFacts) -> None:
        self.holes |= facts.holes or facts.damaged
        self.compaction.thinned |= facts.thinned
        self.compaction.unopened |= facts.wrapped and not facts.opened
        self.compaction.gaps += facts.gaps
        for run in facts.epochs:
            if self.epochs and self.epochs[-1][0] == run[0]:
                self.epochs[-1] = (*self.epochs[-1][:2], run[2])
            elif len(self.epochs) < MAX_EPOCHS:
                self.epochs.append(run)
        if facts.crowded:
            self.producers.forget()  # any of them may have written again
        for producer_id, last in facts.producers.items():
            self.producers.put(producer_id, last)
        self.crowded |= facts.crowded
        for producer_id, marker in facts.ended.items():
            self.open.pop(producer_id, None)
            self.markers.put(producer_id, marker)
        for producer_id, ended in facts.coordinators.items():
            self.coordinators.put(producer_id, ended)
        for producer_id, first in facts.open.items():
            if producer_id in self.open or len(self.open) < LIMIT:
                self.open.setdefault(producer_id, first)
            else:
                self.crowded = True

    @property
    def epochs_in_order(self) -> list[EpochRun]:
        """The runs of leader epochs without those of which one must be wrong, which ``leader-epoch-regression`` reports."""
        steps = [one[0] > other[0] for one, other in pairwise(self.epochs)]
        falls = zip(self.epochs, [False, *steps], [*steps, False], strict=True) if self.epochs else ()
        return [run for run, after_fall, before_fall in falls if not (after_fall or before_fall)]


MAX_GAPS = 1_000


class Gap(NamedTuple):
    """Missing offsets ``first`` to ``last`` (inclusive), before byte ``position`` of the segment ``name``.

    ``rule`` applies if the offsets are lost. If the gap is between segments, ``other`` is the previous segment, and
    ``zeros`` is whether that one ends with zeros.
    """

    name: str
    rule: str
    position: int
    first: int
    last: int
    other: str = ""
    zeros: bool = False


class MissingOffsets:
    """The gaps of one partition."""

    def __init__(self, state: PartitionState) -> None:
        # Indexes without a segment: those of existing segments are not among the names.
        self._orphans = sorted(name for name in state.names if is_index(name))
        self._state = state
        self._gaps: list[Gap] = []
        # First offsets of gaps between batches that another finding explains, by segment.
        self._explained: dict[str, set[int]] = {}

    def add_segment(self, name: str, base: int, facts: SegmentFacts) -> None:
        """Add the gaps at the segment's start, as its name shows, and between its batches."""
        if facts.disorder:
            return
        first = facts.first_offset
        if first is not None and first > base and facts.intact_start and not facts.wrapped:
            self.add(Gap(name, "missing-batches", 0, base, first - 1))
        for position, begin, last in facts.missing:
            self.add(Gap(name, "missing-batches", position, begin, last))

    def add(self, gap: Gap) -> None:
        if len(self._gaps) < MAX_GAPS:
            self._gaps.append(gap)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets are missing in the segments so far. The reason is only known after the last segment."""
        return bool(self._gaps)

    def report(self) -> dict[str, set[int]]:
        """Report the missing offsets. Call it after the last segment.

        Returns by segment the first offsets of the gaps between batches that another finding reports: the caller drops
        their ``offset-gap``.
        """
        lost_within = {name: set(offsets) for name, offsets in self._explained.items()}
        spans = self._state.spans
        in_order = all(one[1] < min(other[0], base_offset_of(other[2]) or 0) for one, other in pairwise(spans))
        for gap in self._gaps if in_order else filter(None, map(self._uncovered_part, self._gaps)):
            lost, why = self._explain(gap.first, gap.last, gap.name, zeros=gap.zeros)
            between = gap.rule == "segment-gap"
            if lost or between:
                rule = gap.rule if lost else "offset-gap"
                other = {"other": gap.other} if between else {}
                self._state.report_for(gap.name)(gap_finding(rule, gap.position, gap.first, gap.last, why, **other))
            if lost and not between:
                lost_within.setdefault(gap.name, set()).add(gap.first)
        return lost_within

    def _uncovered_part(self, gap: Gap) -> Gap | None:
        """Return the gap without the offsets at its ends that other segments hold, or None if it is covered."""
        first, last = gap.first, gap.last
        for begin, end, name in sorted(self._state.spans):
            if name != gap.name and begin <= first:
                first = max(first, end + 1)
        for begin, end, name in sorted(self._state.spans, reverse=True):
            if name != gap.name and begin <= last <= end:
                last = begin - 1
        return gap._replace(first=first, last=last) if first <= last else None

    def why(self, first: int, last: int, name: str) -> str:
        """Return the reason why offsets ``first`` to ``last`` (inclusive) are not in the segment ``name``."""
        return self._explain(first, last, name)[1]

    def _explain(self, first: int, last: int, name: str, *, zeros: bool = False) -> tuple[bool, str]:
        orphan = orphan_within(self._state.folder, self._orphans, first, last)
        unstable = None if self._state.crowded else min(self._state.open.values(), default=None)
        base = base_offset_of(name) or 0
        return self._state.compaction.explain(first, last, base, orphan, zeros=zeros, unstable=unstable)

    def are_apart(self) -> bool:
        """Return whether keys are repeated between the gaps of the segments. It reads the segments again."""
        spans = self._state.spans
        return len(spans) < MAX_SPANS and compaction_evidence.gaps_are_apart(
            path_in(self._state.folder, name) for _, _, name in sorted(spans)
        )

    def explain(self, name: str, first: int) -> None:
        """Remove the gap of the segment from offset ``first``, because another finding explains it."""
        self._gaps = [gap for gap in self._gaps if (gap.name, gap.first) != (name, first)]
        self._explained.setdefault(name, set()).add(first)


def with_lost_end(result: FileResult, bases: Sequence[int]) -> FileResult:
    """Return a segment's result with the offsets of lost bytes at its end, which the name of the next segment bounds.

    The header of a torn batch names its own offsets, but bytes after that batch can have been others. ``bases`` are the
    base offsets of the partition's segments, in order.
    """
    facts, base = result.facts, base_offset_of(result.file)
    following = bisect_right(bases, -1 if base is None else base)
    if facts is None or base is None or facts.disorder or following == len(bases):
        return result
    end = bases[following]
    lost = [each.finding for each in result.verdicts if each.finding.rule in LOSING]
    last = next((one for one in lost if one.end == result.summary.bytes and _is_open(one)), None)
    if last is None or last.position is None:
        return result
    before = [one.last_offset for one in lost if one.last_offset is not None and (one.end or 0) <= last.position]
    first = 1 + max([base - 1 if facts.last_offset is None else facts.last_offset, *(n for n in before if n < end)])
    first = first if last.offset is None else last.offset
    if first >= end:
        return result
    bounded = last._replace(offset=first, last_offset=end - 1)
    found = (replace(one, finding=bounded) if one.finding is last else one for one in result.verdicts)
    return replace(result, verdicts=tuple(found))


def end_of_lost(result: FileResult) -> int:
    """Return the offset after a lost batch at the end of a segment, by its header; 0 without one.

    An incomplete batch does not count: a broker truncates the log there.
    """
    lost = (each.finding for each in result.verdicts if each.finding.rule in LOSING)
    ends = (one.last_offset for one in lost if one.end == result.summary.bytes and not _is_open(one))
    return 1 + max((last for last in ends if last is not None), default=-1)


def _is_open(lost: Finding) -> bool:
    """Return whether lost bytes at the end of a segment can hold later offsets than the finding names."""
    return lost.last_offset is None or lost.rule == "truncated-tail"
