"""The plan of a load, and the load of a topic into its table: read the rows, write data files, commit them with the offsets.

A plan has the parts of the segments that are read, up to the last stable offset, and the parts that are left out.

The commits of the side table of records without a row precede those of the table. The calls that load the table write its
files, so no process holds the records of several calls. The next offsets of the side table are its own. If a run is killed
between the two commits, the next one reads the same offsets again, and leaves out the rejected records that it has.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat

from kseg.commands.dump.dumped_rows import byte_range
from kseg.errors import KsegError
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.data_files import DataFile, DataFiles, NewPlace, remove_files
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.extras.pipeline.source_replicas import Loaded, Place, check_unchanged, with_epoch
from kseg.extras.pipeline.table_rows import TableRows
from kseg.extras.serialization.record_decoder import DecodeSettings
from kseg.extras.views.planned_transactions import LOST, PlannedTransactions, ProducerEvent, outcomes
from kseg.extras.views.planning import Request, SegmentRange, Split
from kseg.extras.views.split_rows import Notices, Task, read
from kseg.findings import Finding, without_ranges
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage.process_pool import Pool, map_ordered
from kseg.format.storage.segment_files import SegmentFile
from kseg.report.arrow_table import pa, pc
from kseg.schema import Column
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


#: The bytes of data files after which a commit is made: a run that is killed continues there.
COMMIT_BYTES = 1024 * 1024 * 1024
#: The most tasks of a topic's load. Beyond it, tasks read more bytes, and write several files.
MOST_TASKS = 20_000


def part_rows(
    part: Part, plan: LoadPlan, columns: Sequence[Column], decoding: DecodeSettings | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. Raises KsegError if its bytes cannot be read, or are not those that were checked."""

    def notice(file: SegmentFile, finding: Finding) -> None:
        if part.checked.is_sound and finding.is_error:
            raise KsegError(f"{file.path}: {finding.rule} at byte {finding.position}: it has changed since its check")

    request = Request(
        paths=(),
        columns=tuple(columns),
        decoding=decoding,
        mode="dropmalformed",
        isolation="read_uncommitted" if plan.committed is None else "read_committed",
        control=False,
    )
    task = Task(request, RowFilter(part.first, part.end), Notices(finding=notice))
    yield from read(task, Split(part.ranges(plan.committed)))
    check_unchanged(part.checked)


class _TableCommits:
    """The commits of a run to a table, and the files that none of them has yet."""

    def __init__(self, table: LakeTable, run: str, state: TableState) -> None:
        self.state = state
        self.files: list[DataFile] = []
        self._table = table
        self._run = run

    def commit(self, offsets: Mapping[str, Loaded]) -> None:
        """Commit the files with the next offsets that the table is about to have."""
        files, self.files = self.files, []  # a failed commit can have been made: its files stay
        rows = sum(file.rows for file in files) + (self.state.rows if self.state.run == self._run else 0)
        after = replace(self.state, offsets={**self.state.offsets, **offsets}, run=self._run, rows=rows)
        self._table.commit(files, self.state, after)
        self.state = after

    def remove_orphans(self) -> None:
        self.state = self._table.remove_orphans(self.state, self._run)


@dataclass(frozen=True, slots=True)
class PartsTask:
    """Parts that one call loads into data files, each with its plan. Calls run in this process, in others, or on Spark.

    ``new_place`` is that of the table, ``rejected`` that of its side table, which has the rows of partitions before the
    offsets ``known``. Each call has files of its own, so that their rows are the same anywhere.
    """

    rows: TableRows
    new_place: NewPlace
    run: str
    parts: tuple[tuple[Part, LoadPlan], ...]
    rejected: NewPlace | None = None
    known: Mapping[str, Loaded] = field(default_factory=dict)


@dataclass(slots=True)
class LoadedParts:
    """The result of a task: complete data files of the table, and of its side table.

    ``without_time`` counts the records whose timestamp a table cannot have.
    """

    files: list[DataFile] = field(default_factory=list)
    rejected: list[DataFile] = field(default_factory=list)
    without_time: int = 0


def split_rows(task: PartsTask, found: LoadedParts) -> Iterator[tuple[LoadPlan, pa.RecordBatch, pa.RecordBatch | None]]:
    """Yield the rows of parts for the table, and the rejected ones (None without any); count them. Raises KsegError."""
    for part, plan in task.parts:
        for batch in part_rows(part, plan, task.rows.needed, task.rows.decoding):
            if batch.num_rows:
                found.without_time += task.rows.without_time(batch)
                yield plan, *task.rows.split(batch, task.run)


def load_parts(task: PartsTask) -> LoadedParts:
    """Load parts into data files. Raises KsegError; then no file is left."""
    found = LoadedParts()
    files = DataFiles(replace(task.new_place, schema=task.rows.schema))
    side = DataFiles(task.rejected) if task.rejected else None
    try:
        for plan, loaded, rejected in split_rows(task, found):
            if rejected is not None and side:
                if known := task.known.get(plan.name):
                    rejected = rejected.filter(pc.greater_equal(rejected.column("offset"), known.next_offset))
                if rejected.num_rows:
                    side.add(rejected)
            if loaded.num_rows:
                files.add(loaded)
        found.rejected = side.take() if side else []
        found.files = files.take()
    except BaseException:
        for one in (files, side):
            if one:
                one.discard()
                remove_files(one.done)
        remove_files(found.rejected)
        raise
    return found


def tasks_of(
    table: LakeTable, run: str, plans: Sequence[LoadPlan], known: Mapping[str, Loaded] | None = None
) -> Iterator[PartsTask]:
    """Yield the parts of plans in their order, those of a file's bytes together; at most MOST_TASKS tasks.

    ``known`` are the loaded partitions of the side table; None for tasks that do not write into it.
    """
    side = table.rejected.new_place if table.rejected and known is not None else None
    task = PartsTask(table.rows, table.new_place, run, (), side, known or {})
    every: list[tuple[Part, LoadPlan]] = []
    for plan in plans:
        alone = replace(plan, parts=(), damaged=(), lost=())  # ``_with_transactions`` adds what its parts need
        every += ((part, alone) for part in plan.parts)
    # Two tasks in a row have more than ``most`` bytes: with half as many tasks in mind there are at most MOST_TASKS.
    fair = 2 * sum(part.checked.bytes for part, _ in every) // (MOST_TASKS - 1) + 1
    most = max(min(table.settings.file_bytes, COMMIT_BYTES), fair)
    parts: list[tuple[Part, LoadPlan]] = []
    size = 0
    for part, plan in every:
        if parts and size + part.checked.bytes > most:
            yield replace(task, parts=_with_transactions(parts))
            parts, size = [], 0
        parts.append((part, plan))
        size += part.checked.bytes
    if parts:
        yield replace(task, parts=_with_transactions(parts))


def _with_transactions(parts: Sequence[tuple[Part, LoadPlan]]) -> tuple[tuple[Part, LoadPlan], ...]:
    """Return parts in their order, their plans with the transactions that touch their offsets only."""
    mine: list[tuple[Part, LoadPlan]] = []
    for _, group in groupby(parts, key=lambda one: one[1].name):
        own, (plan, *_) = zip(*group, strict=True)
        near = plan.committed and plan.committed.within(own[0].first, own[-1].end)
        mine += zip(own, repeat(replace(plan, committed=near)))
    return tuple(mine)


class TableLoad:
    """The load of a topic's partitions, by calls in ``pool`` if there is one. The side table is created if it is missing."""

    def __init__(self, table: LakeTable, run: str, before: TableState, pool: Pool | None = None) -> None:
        self._table = table
        self._run = run
        self._pool = pool
        self._offsets = dict(before.offsets)
        self._ends: dict[str, Part] = {}  # the last parts since the last commit
        self._main = _TableCommits(table, run, before)
        self._side: _TableCommits | None = None
        if side := table.rejected:
            side.create()
            self._side = _TableCommits(side, run, side.remove_orphans(side.state(), run))
        self._tables = [self._main, *filter(None, [self._side])]
        #: The records whose timestamp the table cannot have.
        self.without_time = 0

    def load(self, plans: Sequence[LoadPlan]) -> TableState:
        """Load the plans, and return the state of the table. Raises KsegError; commits before it stay."""
        tasks = list(tasks_of(self._table, self._run, plans, self._side.state.offsets if self._side else None))
        try:
            for task, found in zip(tasks, map_ordered(self._pool, load_parts, tasks), strict=True):
                self._add(task, found)
            for plan in plans:
                if plan.end > plan.first:
                    self._set(plan, plan.end)
            if self._offsets != self._main.state.offsets:
                self._commit()
            for one in self._tables if self._pool is not None else ():
                one.remove_orphans()
        finally:
            for one in self._tables:
                remove_files(one.files)
        return self._main.state

    def _add(self, task: PartsTask, found: LoadedParts) -> None:
        self._main.files += found.files
        if self._side:
            self._side.files += found.rejected
        self.without_time += found.without_time
        for part, plan in task.parts:
            self._set(plan, part.end)
            self._ends[plan.name] = part
        if sum(file.bytes for file in self._main.files) >= COMMIT_BYTES:
            self._commit()

    def _set(self, plan: LoadPlan, offset: int) -> None:
        known = self._offsets.get(plan.name)
        if known and known.next_offset == offset:
            return
        topic_id = plan.topic_id or (known.topic_id if known else None)
        self._offsets[plan.name] = Loaded(offset, topic_id)

    def _commit(self) -> None:
        for name, part in self._ends.items():
            self._offsets[name] = with_epoch(self._offsets[name], part.checked)
        self._ends.clear()
        if self._side and self._side.files:
            self._side.commit(self._offsets)
        self._main.commit(self._offsets)
