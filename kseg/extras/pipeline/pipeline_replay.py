"""Load offsets again that a table has: after a schema was repaired, or for records that were rejected.

The rows of the range are replaced in one commit of the table, and its next offsets stay. So a replay that was killed has
either been made or not, and can be repeated. With a side table there are three commits: rejected records that it lacks are
added, the rows of the table are replaced, and then the rejected records. At no time a record is in neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kseg.errors import UnreadableError, UsageError
from kseg.extras.pipeline.data_files import DataFile, DataFiles, RowRange, parquet_batches, remove_files
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.extras.pipeline.load_rows import LoadedParts, LoadPlan, PartsTask, load_parts, split_rows, tasks_of
from kseg.extras.pipeline.pipeline_preview import plans_of_loaded
from kseg.extras.pipeline.pipeline_reports import timeless_lines
from kseg.extras.pipeline.pipeline_run import PartitionOutcome, Pipeline, Workers, new_run_id, rows_of_damage
from kseg.extras.pipeline.source_replicas import Listing, divergence, with_epoch
from kseg.format.record.layout import INT64_MAX
from kseg.format.storage.process_pool import Pool, map_ordered
from kseg.report.arrow_table import pa, pc
from kseg.text import PartitionOffsets, count_of


@dataclass(slots=True)
class ReplayOutcome:
    """The replaced rows, or those that would be: the partitions, the rows before and after, and the rejected records after.

    ``without_time`` are the rows whose timestamp is null, because it is outside of the years 1 to 9999.
    """

    partitions: list[PartitionOutcome]
    run: str
    before: int = 0
    after: int = 0
    rejected: int = 0
    without_time: int = 0
    table: str = ""
    done: bool = False

    @property
    def damaged(self) -> int:
        """The damaged places of the range, as a run lists them."""
        return sum(one.damaged for one in self.partitions)

    @property
    def lines(self) -> list[str]:
        """The sums for people."""
        rows = count_of(self.before, "row")
        found = [f"{self.run}: {rows} of {self.table} replaced by {count_of(self.after, 'row')}"]
        if not self.done:
            by = "" if self.after == self.before else f" by {count_of(self.after, 'row')}"
            found = [f"would replace {rows} of {self.table}{by} in one commit"]
        if self.damaged:
            found.append(f"{count_of(self.damaged, 'damaged place')} in the range, whose records are not loaded")
        found += timeless_lines({self.table: self.without_time} if self.without_time else {})
        if self.rejected:
            found.append(f"{count_of(self.rejected, 'record')} without a typed row: {self.table}__rejects")
        return found


def replay(
    pipeline: Pipeline, topic: str, asked: PartitionOffsets, workers: Workers, *, dry_run: bool = False
) -> ReplayOutcome:
    """Replace the rows of a topic's offsets by those of the segments. Raises UsageError if the segments lack some of them.

    With ``dry_run`` the rows are read and checked, and nothing is written but the results of checks.
    """
    table = pipeline.tables.get(topic)
    if table is None:
        raise UsageError(f"--topic: expected one of {', '.join(pipeline.tables)}, got {topic!r}")
    with pipeline.state.leased():
        state = table.read_state()
        ranges = _ranges(table, state or TableState(), asked)
        listing = pipeline.listed({topic: state})
        size = sum(
            one.bytes for place, found in listing.items() if place[0] == topic for r in found for one in r.segments
        )
        with workers(size) as pool:
            state = state or TableState()
            plans = plans_of_loaded(pipeline, listing, topic, state, pool)
            differs = _differs(listing, topic, state, {one.partition for one in ranges}, pipeline.rules.config)
            chosen = [_within(table, plans.get((topic, one.partition)), one, differs) for one in ranges]
            work = _Replay(table, new_run_id("replay"), state, ranges, differs)
            return work.do(chosen, pool, dry_run)


def _differs(listing: Listing, topic: str, state: TableState, asked: set[int], config: str) -> dict[int, int]:
    """Return the first offset by partition from which on the log is not the loaded one, but that of a later leader.

    Raises UsageError if the log of a partition of ``asked`` is that of a former leader, UnreadableError if its epochs cannot
    be read.
    """
    found = {}
    for place, replicas in listing.items():
        loaded = state.loaded(place) if place[0] == topic else None
        try:
            one = divergence(replicas, loaded)
        except UnreadableError:
            if place[1] in asked:
                raise
            continue
        if one and loaded and one.epoch > (loaded.leader_epoch or 0):
            found[place[1]] = one.first
        elif one and loaded and place[1] in asked and one.epoch < (loaded.leader_epoch or 0):
            raise UsageError(f"{topic}-{place[1]}: {one.reason(*place, loaded, config)}: its rows stay as they are")
    return found


def _ranges(table: LakeTable, state: TableState, asked: PartitionOffsets) -> list[RowRange]:
    """Return the asked offsets that the table has, by partition. Raises UsageError if there are none, or not all."""
    partition, first, end = asked
    topic = table.settings.topic
    loaded = {int(name.rpartition("-")[2]): one.next_offset for name, one in state.offsets.items()}
    if partition is not None and partition not in loaded:
        raise UsageError(f"--offsets: {table.settings.shown} has no rows of {topic}-{partition}: `status` says why")
    found = []
    for number, following in sorted(loaded.items()):
        if partition not in (None, number):
            continue
        if partition is not None and end is not None and end > following:
            raise UsageError(
                f"--offsets: {table.settings.shown} has {topic}-{number} up to offset {following - 1}, got {end} as the "
                f"end: expected at most {following}; `status` says why the others are not loaded"
            )
        one = RowRange(number, first or 0, following if end is None else min(end, following))
        if one.first < one.end:
            found.append(one)
    if not found:
        raise UsageError(f"--offsets: {table.settings.shown} has no such offsets of {topic}")
    return found


def _within(table: LakeTable, plan: LoadPlan | None, wanted: RowRange, differs: Mapping[int, int]) -> LoadPlan:
    """Return the part of a plan for a range. Raises UsageError if the segments cannot be read there.

    Rows that differ from the log can be removed: so its records must be known up to the end of the range.
    """
    name = f"{table.settings.topic}-{wanted.partition}"
    if plan is None:
        raise UsageError(f"{name}: the source has no segments of it: its rows stay as they are")
    found = plan.within(wanted.first, wanted.end)
    is_cut = not found.parts or found.parts[-1].end < wanted.end
    if plan.failure and is_cut:
        raise UsageError(f"{name}: {plan.failure}: its rows stay as they are")
    if differs.get(wanted.partition, wanted.end) < wanted.end and is_cut:
        if plan.log_end < wanted.end:
            raise UsageError(f"{name}: the log ends at offset {plan.log_end}: its rows stay as they are")
        if plan.waiting:
            raise UsageError(f"{name}: {plan.waiting}: its rows stay as they are")
    return found


@dataclass(slots=True)
class _Replay:
    """The steps of a replay of a table."""

    table: LakeTable
    run: str
    state: TableState
    ranges: Sequence[RowRange]
    differs: Mapping[int, int]
    files: list[DataFile] = field(default_factory=list)
    rejected: list[DataFile] = field(default_factory=list)

    @property
    def _side(self) -> LakeTable | None:
        side = self.table.rejected
        return side if side is not None and side.read_state() is not None else None

    def do(self, plans: Sequence[LoadPlan], pool: Pool | None, dry_run: bool) -> ReplayOutcome:
        if dry_run:
            for one in filter(None, (self.table, self._side)):
                one.lacks_columns()
            return self._replaced(plans, pool, dry_run)
        with self.table.leased():
            self._prepare()
            return self._replaced(plans, pool, dry_run)

    def _replaced(self, plans: Sequence[LoadPlan], pool: Pool | None, dry_run: bool) -> ReplayOutcome:
        before = _offsets(self.table.batches(_PLACE, self.ranges))
        rejected = _offsets(self._side.batches(_PLACE, self.ranges)) if self._side else {}
        done = ReplayOutcome(
            [self._outcome(plan, dry_run) for plan in plans], self.run, sum(map(len, before.values())),
            table=self.table.settings.shown, done=not dry_run,
        )  # fmt: skip
        try:
            found = self._read(plans, pool, done) if dry_run else self._load(plans, pool, done)
            self._check_whole(plans, found, before, rejected)
            if not dry_run:
                self._commit(plans, rejected)
        finally:
            remove_files([*self.files, *self.rejected])
        return done

    def _prepare(self) -> None:
        self.table.create()
        self.state = self.table.remove_orphans(self.state, self.run)
        if (side := self.table.rejected) is not None:
            side.create()
            side.remove_orphans(side.state(), self.run)

    def _read(self, plans: Sequence[LoadPlan], pool: Pool | None, done: ReplayOutcome) -> dict[int, Any]:
        """Read the rows of plans without writing them; return their offsets by partition."""
        places: list[Any] = []
        tasks = list(tasks_of(self.table, self.run, plans))
        for rows, rejected, without_time in map_ordered(pool, _read_places, tasks):
            done.without_time += without_time
            done.after += sum(one.num_rows for one in rows)
            done.rejected += sum(one.num_rows for one in rejected)
            places += [*rows, *rejected]
        return _offsets(places)

    def _load(self, plans: Sequence[LoadPlan], pool: Pool | None, done: ReplayOutcome) -> dict[int, Any]:
        """Write the rows of plans into data files; return their offsets by partition."""
        for found in map_ordered(pool, load_parts, list(tasks_of(self.table, self.run, plans, {}))):
            self.files += found.files
            self.rejected += found.rejected
            done.without_time += found.without_time
        done.after, done.rejected = (sum(one.rows for one in found) for found in (self.files, self.rejected))
        files = (*self.files, *self.rejected)
        return _offsets(batch for one in files for batch in parquet_batches(one.place, _PLACE))

    def _check_whole(self, plans: Sequence[LoadPlan], found: dict[int, Any], *before: dict[int, Any]) -> None:
        """Raise UsageError if the table or its side table has an offset that the segments no longer give.

        Where a later leader has replaced the log, they need not have it, unless damage can be the reason.
        """
        sound = {plan.place[1] for plan in plans if all(part.checked.is_sound for part in plan.parts)}
        replaced = {partition: first for partition, first in self.differs.items() if partition in sound}
        for offsets in before:
            for partition, known in offsets.items():
                lost = known.filter(pc.invert(pc.is_in(known, found.get(partition, pa.array([], pa.int64())))))
                lost = lost.filter(pc.less(lost, replaced.get(partition, INT64_MAX)))
                if len(lost):
                    raise UsageError(
                        f"{self.table.settings.topic}-{partition}: the segments no longer have the records of "
                        f"{count_of(len(lost), 'row')} of the range, such as offset {pc.min(lost)}: they were compacted or "
                        "damaged since: its rows stay as they are"
                    )

    def _commit(self, plans: Sequence[LoadPlan], rejected: dict[int, Any]) -> None:
        side = self._side
        if side is not None and self.rejected:
            self._add_missing(side, rejected)
        files, self.files = self.files, []  # a failed commit can have been made: its files stay
        self.table.replace_rows(files, self.ranges, self.state, self._after(plans))
        if side is not None and (rejected or self.rejected):
            files, self.rejected = self.rejected, []
            state = side.state()
            side.replace_rows(files, self.ranges, state, state)

    def _after(self, plans: Sequence[LoadPlan]) -> TableState:
        """Return the state with the leader epochs of the log where all rows that differed from it are replaced."""
        offsets = dict(self.state.offsets)
        for plan in plans:
            loaded, first = offsets[plan.name], self.differs.get(plan.place[1])
            if first is not None and plan.first <= first and plan.end == loaded.next_offset:
                last = plan.parts[-1].checked if plan.parts else None
                offsets[plan.name] = with_epoch(loaded, last) if last else replace(loaded, leader_epoch=None)
        return replace(self.state, offsets=offsets)

    def _add_missing(self, side: LakeTable, known: dict[int, Any]) -> None:
        """Add the rejected records that the side table lacks, before their rows leave the table."""
        added = DataFiles(side.new_place)
        for one in self.rejected:
            for batch in parquet_batches(one.place, side.schema.names):
                for partition in pc.unique(batch.column("partition")).to_pylist():
                    rows = batch.filter(pc.equal(batch.column("partition"), partition))
                    there = pc.is_in(rows.column("offset"), known.get(partition, pa.array([], pa.int64())))
                    rows = rows.filter(pc.invert(there))
                    if rows.num_rows:
                        added.add(rows)
        if files := added.take():
            state = side.state()
            side.commit(files, state, state)

    def _outcome(self, plan: LoadPlan, dry_run: bool) -> PartitionOutcome:
        return PartitionOutcome(
            *plan.place, self.table.settings.shown, plan.first, plan.end, plan.log_end, "to load" if dry_run else "loaded",
            len(plan.parts), sum(one.checked.bytes for one in plan.parts), _damaged(self.run, plan),
        )  # fmt: skip


def _damaged(run: str, plan: LoadPlan) -> int:
    """Return how many rows of a quarantine list can have offsets of a plan."""
    bases = {one.path: one.base_offset for one in plan.damaged}
    rows = rows_of_damage(run, plan)
    firsts = [bases[row["file"]] if row["offset"] is None else row["offset"] for row in rows]
    lasts = [row["last_offset"] for row in rows]
    return sum(
        first < plan.end and (last is None or last >= plan.first) for first, last in zip(firsts, lasts, strict=True)
    )


_PLACE = ("partition", "offset")


def _read_places(task: PartsTask) -> tuple[list[Any], list[Any], int]:
    """Return the partitions and offsets of the rows of a task and of its rejected records, and the rows without a time."""
    rows, rejected, found = [], [], LoadedParts()
    for _, loaded, wrong in split_rows(task, found):
        rows.append(loaded.select(_PLACE))
        rejected += [] if wrong is None else [wrong.select(_PLACE)]
    return rows, rejected, found.without_time


def _offsets(batches: Iterable[Any]) -> dict[int, Any]:
    """Return the offsets of rows as one Arrow array per partition."""
    found: dict[int, list[Any]] = {}
    for batch in batches:
        partitions = batch.column("partition")
        for partition in pc.unique(partitions).to_pylist():
            rows = batch.column("offset").filter(pc.equal(partitions, partition))
            found.setdefault(partition, []).append(rows.cast(pa.int64()))
    return {partition: pa.concat_arrays(arrays) for partition, arrays in found.items()}
