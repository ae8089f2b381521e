"""A run of a pipeline: list, check, quarantine, load, report.

Each state is recorded when its work is done. A run that was ended is continued by the next one: it lists again, checks what
has changed, and loads from the offsets that the tables have. So it does not matter where the first one ended.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat
from typing import Any

from kseg.errors import KsegError, UsageError
from kseg.extras.pipeline.checked_segments import CheckedSegment, Inventory
from kseg.extras.pipeline.lake_table import ChangedTableError, LakeTable, TableState, open_table
from kseg.extras.pipeline.load_rows import LoadPlan, PlanRules, TableLoad
from kseg.extras.pipeline.offset_plan import needed, plan_partition
from kseg.extras.pipeline.pipeline_settings import AUTO, PipelineSettings
from kseg.extras.pipeline.pipeline_state import MANIFEST, STATES, PipelineState, new_file
from kseg.extras.pipeline.quarantine import copy_segment, is_new, listed_damage
from kseg.extras.pipeline.source_replicas import Listing, list_source
from kseg.findings import do_nothing
from kseg.format.storage.process_pool import Pool, map_ordered
from kseg.format.storage.segment_files import SegmentFile
from kseg.text import size_text

#: Exit codes: damage was set aside; the run could not do its work; ``fail_if`` is met.
SET_ASIDE, FAILED, FAIL_IF = 1, 2, 3
#: The stages of a run, and the state that each one ends with.
STAGES = dict(zip(("list", "check", "quarantine", "load", "report"), STATES, strict=False))
#: Returns what runs the calls of a run that reads that many bytes.
Workers = Callable[[int], AbstractContextManager[Pool | None]]
#: How often a load begins again because another program has committed to its table.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run: a ``master`` of Spark, None for processes; and the ``reason`` for people."""

    master: str | None
    reason: str

    def __str__(self) -> str:
        return f"engine: {f'Spark, {self.master}' if self.master else 'processes of this machine'}: {self.reason}"


def choose_engine(settings: PipelineSettings, size: int, asked: str | None = None) -> EngineChoice:
    """Return the engine for a run that reads ``size`` bytes. ``asked`` is the master of the command line."""
    if asked:
        return EngineChoice(asked, "asked for by --spark")
    if settings.engine != AUTO:
        return EngineChoice(settings.spark, f"engine = {settings.engine}")
    limit = f"pipeline.spark_above = {size_text(settings.spark_above)}"
    if size > settings.spark_above:
        return EngineChoice(settings.spark, f"{size_text(size)} to read is more than {limit}")
    return EngineChoice(None, f"{size_text(size)} to read is at most {limit}")


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The result of a run for a partition, or its plan.

    The run loads offsets ``first_offset`` to ``end_offset`` (exclusive). ``size`` are the bytes to read, of ``segments``
    segments. ``status`` is one of ``pipeline_report.STATUSES``, and ``reason`` says why rows are not loaded.
    """

    topic: str
    partition: int
    table: str
    first_offset: int
    end_offset: int
    log_end_offset: int
    status: str
    segments: int = 0
    size: int = 0
    damaged: int = 0
    reason: str | None = None

    @property
    def lag(self) -> int:
        """The offsets from the end of the loaded ones to the end of the log."""
        return max(self.log_end_offset - self.end_offset, 0)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run: its id, the exit code, the partitions, the damage and the rows loaded per topic.

    ``unneeded`` are damaged segments that are not in ``damage``, because another replica has their rows. ``without_time``
    are the rows per topic whose timestamp is null, because it is outside of the years 1 to 9999.
    """

    run: str
    code: int
    partitions: Sequence[PartitionOutcome]
    damage: Sequence[Mapping[str, Any]]
    rows: Mapping[str, int]
    failures: Sequence[str] = ()
    segments: Sequence[CheckedSegment] = ()
    started: float = 0.0
    fail_if: str | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    state: str = "DONE"
    unneeded: Sequence[str] = ()
    without_time: Mapping[str, int] = field(default_factory=dict)


class Pipeline:
    """A pipeline with its state and its tables. ``note`` is called with lines for people."""

    def __init__(self, settings: PipelineSettings, note: Callable[[str], object] = do_nothing) -> None:
        self.settings = settings
        self.state = PipelineState(settings.state)
        self.tables: dict[str, LakeTable] = {topic: open_table(settings, topic) for topic in settings.tables}
        self.rules = PlanRules(
            settings.isolation == "read_committed", settings.gaps_stop, settings.hold_segments, settings.path
        )
        self._note = note

    def close(self) -> None:
        """Close the connections of all tables."""
        for table in self.tables.values():
            table.close()

    def states(self) -> dict[str, TableState | None]:
        """Return the states of the tables by topic, None for a table that does not exist."""
        return {topic: table.read_state() for topic, table in self.tables.items()}

    def listed(self, states: Mapping[str, TableState | None]) -> Listing:
        """List the source. Loaded partitions that it lacks are without replicas. Raises UsageError if it has no topic.

        ``states`` were read before the listing: a partition that another run loads meanwhile is not missing.
        """
        listing = list_source(self.settings)
        there = {topic for topic, _ in listing}
        for topic in self.tables:
            if topic not in there:
                self._note(f"topic {topic}: no partition in {', '.join(self.settings.paths)}")
        if not there:
            raise UsageError(f"{self.settings.path}: no partition of {', '.join(self.tables)} in the source")
        loaded = ((topic, name) for topic, state in states.items() if state for name in state.offsets)
        lost = {(topic, int(name.rpartition("-")[2])): () for topic, name in loaded if name not in self.settings.ended}
        return dict(sorted({**lost, **listing}.items()))

    def run(
        self, report: Callable[[RunOutcome], object], workers: Workers = lambda _: nullcontext(), until: str = "report"
    ) -> RunOutcome:
        """Do a run, or continue the last one, and return its outcome. Raises KsegError if it could not do its work.

        ``report`` writes the reports. The run ends after the stage ``until``; the next one continues it.
        """
        with self.state.leased():
            manifest = self.state.read(MANIFEST)
            if manifest.get("state") in (None, "DONE"):
                number = int(manifest.get("number", 0)) + 1
                manifest = {"run": new_run_id(number), "number": number, "started": time.time(), "damage": []}
            else:
                self._note(f"continuing run {manifest['run']}, which ended after {manifest['state']}")
            return _Run(self, manifest, workers).do(report, STAGES[until])


class _Run:
    """The states of one run, in their order."""

    def __init__(self, pipeline: Pipeline, manifest: dict[str, Any], workers: Workers) -> None:
        self._pipeline = pipeline
        self._settings = pipeline.settings
        self._manifest = manifest
        self._workers = workers
        self._id = str(manifest["run"])
        self._pool: Pool | None = None
        self._listing: Listing = {}
        self._states: dict[str, TableState] = {}
        self._plans: list[LoadPlan] = []
        self._segments: dict[str, CheckedSegment] = {}
        self._failures: list[str] = []
        self._done: dict[str, TableState] = {}
        self._without_time: dict[str, int] = {}

    def _record(self, state: str, **facts: Any) -> None:
        """Record that the work of a state is done."""
        assert state in STATES
        self._manifest |= {"state": state, "time": time.time(), "config": self._settings.digest, **facts}
        self._pipeline.state.write(MANIFEST, self._manifest)

    def do(self, report: Callable[[RunOutcome], object], until: str) -> RunOutcome:
        states = self._pipeline.states()
        self._listing = listing = self._pipeline.listed(states)
        sizes = [one.bytes for replicas in listing.values() for replica in replicas for one in replica.segments]
        self._states = {topic: state or TableState() for topic, state in states.items()}
        self._record("LISTED", segments=len(sizes), bytes=sum(sizes))
        if until == "LISTED":
            return self._outcome([], met=False)
        loaded = {place: self._states[place[0]].loaded(place) for place in listing}
        wanted = [one for place, replicas in listing.items() for one in needed(replicas, loaded[place])]
        with self._workers(sum(one.bytes for one in wanted)) as self._pool:
            outcome = self._work_until(until, wanted)
        if until == "REPORTED":
            report(outcome)
            self._record("REPORTED", code=outcome.code)
            self._record("DONE", ended=time.time())
            return replace(outcome, state="DONE")
        return outcome

    def _work_until(self, until: str, wanted: Sequence[SegmentFile]) -> RunOutcome:
        """Check, set aside and load; return the outcome after the last of these states."""
        self._check(wanted)
        damage = self._damage()
        first = {plan.name: plan.first for plan in self._plans}
        self._record("CHECKED", damage=damage, first=first | self._manifest.get("first", {}))
        met = self._settings.fail_if is not None and self._settings.fail_if.is_met(*self._counts())
        if not met and until != "CHECKED":
            self._record("PLACED", copies=self._place(damage))
            if until != "PLACED":
                self._load()
                self._record("LOADED")
        return self._outcome(damage, met=met)

    def _check(self, wanted: Sequence[SegmentFile]) -> None:
        """Check the segments that are not loaded, and plan the load of each partition."""
        self._segments = Inventory(self._pipeline.state).check(wanted, self._pool)
        for place, replicas in self._listing.items():
            state = self._states[place[0]]
            rules, known_id = self._pipeline.rules, state.topic_id(place)
            plan = plan_partition(place, replicas, self._segments, state.loaded(place), rules, known_id)
            self._plans.append(plan)
            if plan.failure:
                self._failures.append(f"{plan.name}: {plan.failure}")

    def _damage(self) -> list[dict[str, Any]]:
        """Return the rows of the quarantine list: those of this pass, and of the run before it was ended."""
        rows = [row for plan in self._plans for row in rows_of_damage(self._id, plan)]
        found = {json.dumps(row, sort_keys=True): row for row in (*self._manifest["damage"], *rows)}
        return list(found.values())

    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return the damaged and the checked bytes and segments."""
        damaged, every = Counter[str](), Counter[str]()
        for one in self._segments.values():
            every += Counter(bytes=one.bytes, segments=1)
            if one.damage:
                damaged += Counter(bytes=one.lost_bytes, segments=1)
        return damaged, every

    def _place(self, damage: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Write the quarantine list of the run, and copies of the damaged segments if the configuration wants them.

        Returns the copies by their segments: a run that continues after the load no longer reads these.
        """
        places: dict[str, str] = dict(self._manifest.get("copies", {}))
        if self._settings.quarantine and damage:
            folder = f"{self._settings.quarantine}/{self._id}"
            if self._settings.copies:
                numbers = [number for number, _ in self._damaged_segments()]
                segments = [segment for _, segment in self._damaged_segments()]
                places |= map_ordered(self._pool, copy_segment, segments, repeat(folder), numbers)
                damage = [{**row, "copy": places.get(row["file"])} for row in damage]
            with new_file(f"{self._settings.quarantine}/{self._id}.jsonl") as out:
                out.write("".join(f"{json.dumps(row)}\n" for row in damage).encode())
        return places

    def _damaged_segments(self) -> Iterator[tuple[int, CheckedSegment]]:
        """Yield the segments with damage, each with the number of its folder among those of the partition."""
        for plan in self._plans:
            paths = {checked.path for checked in plan.damaged}
            for number, replica in enumerate(self._listing[plan.place], 1):
                yield from ((number, self._segments[one.path]) for one in replica.segments if one.path in paths)

    def _load(self) -> None:
        for topic, plans in groupby(self._plans, key=lambda plan: plan.place[0]):
            try:
                self._done[topic] = self._load_table(self._pipeline.tables[topic], topic, list(plans))
            except ChangedTableError:
                raise
            except KsegError as error:
                self._failures.append(f"topic {topic}: {error}")

    def _load_table(self, table: LakeTable, topic: str, plans: Sequence[LoadPlan]) -> TableState:
        table.create()
        state = self._states[topic]
        with table.leased():
            for _ in range(_TRIES):
                try:
                    state = table.remove_orphans(state, self._id)
                    load = TableLoad(table, self._id, state, self._pool)
                    state = load.load(plans)
                    self._without_time |= {topic: load.without_time} if load.without_time else {}
                    return state
                except ChangedTableError:
                    now = table.state()
                    if now.offsets != state.offsets:
                        raise
                    state = now
        raise ChangedTableError(f"{table.settings.shown}: other programs commit all the time: run again")

    def _outcome(self, damage: Sequence[Mapping[str, Any]], *, met: bool) -> RunOutcome:
        rejected = {} if met else self._rejected()
        code = FAIL_IF if met else FAILED if self._failures else SET_ASIDE if damage or rejected else 0
        counts = Counter((row["topic"], row["partition"]) for row in damage)
        partitions = [self._partition(one, counts[one.place]) for one in self._plans]
        rows = {topic: state.rows for topic, state in self._done.items() if state.run == self._id}
        condition = self._settings.fail_if.text if met and self._settings.fail_if else None
        return RunOutcome(
            self._id, code, partitions, damage, rows, tuple(self._failures), tuple(self._segments.values()),
            float(self._manifest["started"]), condition, rejected, str(self._manifest["state"]), tuple(self._unneeded()),
            self._without_time,
        )  # fmt: skip

    def _unneeded(self) -> Iterator[str]:
        """Yield the paths of damaged segments of replicas whose rows the run loads from another replica."""
        for plan in self._plans:
            replicas, listed = self._listing[plan.place], {checked.path for checked in plan.damaged}
            for one in (one for replica in replicas for one in replica.segments if len(replicas) > 1):
                checked = self._segments.get(one.path)
                if checked is None or one.path in listed or one.base_offset >= plan.end:
                    continue
                new = any(is_new(found, plan.first) for found in checked.damage)
                if new and not listed_damage(checked, plan.first, (), plan.lost):
                    yield one.path

    def _rejected(self) -> dict[str, int]:
        """Return the rows that the run has added to side tables, by their names."""
        found = {}
        for topic in self._done:
            side = self._pipeline.tables[topic].rejected
            state = side.read_state() if side else None
            if side and state and state.run == self._id:
                found[side.settings.shown] = state.rows
        return found

    def _partition(self, plan: LoadPlan, damaged: int) -> PartitionOutcome:
        topic, partition = plan.place
        loaded = self._done.get(topic, self._states[topic]).loaded(plan.place)
        end = loaded.next_offset if loaded else plan.first
        first = min(self._manifest.get("first", {}).get(plan.name, plan.first), end)
        if self._manifest["state"] in ("CHECKED", "PLACED") and not plan.failure and plan.end > end:
            status, end = "to load", plan.end
        else:
            status = "failed" if plan.failure or end < plan.end else "waiting" if plan.waiting else "current"
        if status == "current" and end > first:
            status = "loaded"
        return PartitionOutcome(
            topic, partition, self._settings.tables[topic].shown, first, end, plan.log_end, status,
            len({one.checked.path for one in plan.parts}), sum(one.checked.bytes for one in plan.parts),
            damaged, plan.failure or plan.waiting,
        )  # fmt: skip


def rows_of_damage(run: str, plan: LoadPlan) -> list[dict[str, Any]]:
    """Return the rows of the quarantine list of a partition: its damage from the first loaded offset on, its gaps, and
    the records that are left out because the end of their transaction is unknown.
    """
    topic, partition = plan.place
    place = {"run": run, "topic": topic, "partition": partition}
    rows: list[dict[str, Any]] = []
    for checked in plan.damaged:
        for found in checked.damage:
            if is_new(found, plan.first):
                rows.append({**place, "file": checked.path, "stamp": checked.stamp, **found})
    for rule, ranges in (("missing-offsets", plan.gaps), ("unknown-transaction", plan.unknown)):
        for first, end, why in ranges:
            rows.append({**place, "file": None, "stamp": None, "rule": rule, "code": None, "position": None,
                         "end": None, "offset": first, "last_offset": end - 1, "message": why, "facts": {}})  # fmt: skip
    return rows


def new_run_id(number: int | str) -> str:
    """Return the id of a new run: the time, and its number among the runs of the pipeline."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(time.time()))}-{number}"
