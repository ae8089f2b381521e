"""The plan of a load: the parts of the segments that it reads, up to the last stable offset, and the parts left out."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from kseg.commands.dump.dumped_rows import byte_range
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.source_replicas import Place
from kseg.extras.views.planned_transactions import LOST, PlannedTransactions, ProducerEvent, outcomes
from kseg.extras.views.planning import SegmentRange
from kseg.findings import without_ranges
from kseg.format.segment.row_filter import RowFilter
from kseg.text import inclusive_range


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets ``first`` to ``end`` (exclusive) of a segment."""

    checked: CheckedSegment
    first: int
    end: int

    def ranges(self, committed: PlannedTransactions | None) -> list[SegmentRange]:
        """Return the bytes that hold the offsets, without batches whose offsets are not proved."""
        file, size = self.checked.file, self.checked.valid_end
        near = committed.within(self.first, self.end) if committed else None
        start, end = 0, size
        if self.checked.is_sound and self.first > self.checked.base_offset:
            start, _ = byte_range(file.path, size, RowFilter(self.first), sealed=not file.active)
        if self.checked.is_sound and self.end < self.checked.next_offset:
            _, end = byte_range(file.path, size, RowFilter(None, self.end), sealed=not file.active)
        return [SegmentRange(file, *one, near) for one in without_ranges(start, end, self.checked.excluded)]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The plan of a run for a partition.

    It loads offsets ``first`` to ``end`` (exclusive) from ``parts``. ``log_end`` is the end of the valid log. ``waiting``
    says why the rows from ``end`` on are not loaded yet. ``failure``: why the run cannot succeed, such as a segment that
    cannot be read. ``gaps`` are ranges (first, end, reason) of offsets that are lost. ``damaged`` are the segments
    with damage in the range, of those that are read; their ``damage`` are the listed findings. ``lost`` are
    ranges (first, end) of offsets that damaged segments can have had, and that no replica has.
    ``unknown`` are ranges (first, end, reason) with records that are left out, because their transaction's end is unknown.
    """

    place: Place
    first: int
    end: int
    log_end: int
    parts: tuple[Part, ...] = ()
    committed: PlannedTransactions | None = None
    waiting: str | None = None
    failure: str | None = None
    gaps: tuple[tuple[int, int, str], ...] = ()
    damaged: tuple[CheckedSegment, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    unknown: tuple[tuple[int, int, str], ...] = ()
    topic_id: str | None = None

    @property
    def name(self) -> str:
        return "{}-{}".format(*self.place)

    def within(self, first: int, end: int) -> LoadPlan:
        """Return the plan for offsets ``first`` to ``end`` (exclusive) alone."""
        parts = (one for one in self.parts if one.first < end and first < one.end)
        clipped = (replace(one, first=max(one.first, first), end=min(one.end, end)) for one in parts)
        return replace(self, first=first, end=end, parts=tuple(clipped))


@dataclass(frozen=True, slots=True)
class PlanRules:
    """The rules of a pipeline for offsets (see ``PipelineSettings``), and the file of its configuration."""

    committed: bool = True
    gaps_stop: bool = True
    hold_segments: bool = False
    config: str = "FILE"


def up_to_stable(
    plan: LoadPlan, torn: Container[int], before: Sequence[tuple[Sequence[ProducerEvent], int]]
) -> LoadPlan:
    """Return the plan up to its last stable offset, with the outcomes of its transactions.

    ``before`` are the events of the parts before it. ``torn`` are the first offsets of parts before which offsets are lost.
    """
    ends = [plan.first, *(part.end for part in plan.parts)]
    lost = {
        part.first: [(end, part.first, LOST)] for end, part in zip(ends, plan.parts, strict=False) if part.first in torn
    }
    own = (([*lost.get(part.first, ()), *part.checked.events], part.end) for part in plan.parts)
    committed = outcomes([*before, *own])
    begun = committed.open
    if min(begun.values(), default=plan.end) < plan.end:
        producer = min(begun, key=lambda one: begun[one])
        plan = plan.within(plan.first, max(begun[producer], plan.first))
        plan = replace(plan, waiting=f"producer {producer} has a transaction open from offset {begun[producer]} on")
    unknown = tuple(one for one in sorted(_unknown(committed)) if one[0] < plan.end)
    return replace(plan, committed=committed, unknown=unknown)


def _unknown(committed: PlannedTransactions) -> Iterator[tuple[int, int, str]]:
    for producer, spans in committed.unknown.items():
        for first, last in spans:
            why = f"the marker of the transaction of producer {producer} can be among the lost offsets"
            yield first, last + 1, f"{inclusive_range('offset', first, last)}: {why}: its records are left out"
