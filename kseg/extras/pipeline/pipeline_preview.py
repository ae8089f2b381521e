"""The preview of a run, and the state of the tables: of segments that were not checked only ends are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.errors import KsegError, UnreadableError
from kseg.extras.pipeline.checked_segments import CheckedSegment, Inventory, unread_segment
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.extras.pipeline.load_plan import LoadPlan
from kseg.extras.pipeline.offset_plan import first_offset, needed, plan_partition
from kseg.extras.pipeline.pipeline_run import PartitionOutcome, Pipeline, choose_engine
from kseg.extras.pipeline.pipeline_state import MANIFEST
from kseg.extras.pipeline.source_listing import SourceReplica
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.storage.segment_files import SegmentFile
from kseg.text import count_of, iso_time, size_text

_Found = tuple[list[PartitionOutcome], list[str]]


def plan(pipeline: Pipeline, spark: str | None = None) -> _Found:
    """Return the planned load by partition, and lines with the sums, the engine and the tables that it would create.

    ``spark`` is the master of the command line.
    """
    inventory = Inventory(pipeline.state)
    states = pipeline.states()
    found: list[PartitionOutcome] = []
    segments: list[SegmentFile] = []
    for one, replicas in _planned(pipeline, states, inventory):
        state = states[one.place[0]]
        segments += needed(replicas, state.loaded(one.place) if state else None)
        read = {part.checked.path: part.checked.file.bytes for part in one.parts}
        found.append(_outcome(pipeline, one, one.first, one.end, len(read), sum(read.values())))
    topics = dict.fromkeys(one.topic for one in found)
    lines = [f"would create {pipeline.tables[topic].describe()}" for topic in topics if states[topic] is None]
    new = [one.bytes for one in segments if not inventory.is_known(one)]
    size = sum(one.bytes for one in segments)
    lines += _failed(found)
    lines.append(f"would check {count_of(len(new), 'segment')}, {size_text(sum(new))}")
    lines.append(str(choose_engine(pipeline.settings, size, spark)))
    if size > sum(new):
        lines.append(f"checked already: {size_text(size - sum(new))}")
    return found, [*lines, *_last_run(pipeline)]


def status(pipeline: Pipeline) -> _Found:
    """Return the loaded and the missing offsets by partition, and lines about the last run."""
    found = []
    for one, replicas in _planned(pipeline, pipeline.states(), Inventory(pipeline.state)):
        found.append(_outcome(pipeline, one, min(first_offset(replicas), one.first), one.first))
    lag = sum(one.lag for one in found)
    return found, [f"{count_of(lag, 'offset')} not loaded", *_failed(found), *_last_run(pipeline)]


def _outcome(
    pipeline: Pipeline, plan: LoadPlan, first: int, end: int, segments: int = 0, size: int = 0
) -> PartitionOutcome:
    status = "to load" if plan.end > plan.first else "waiting" if plan.waiting else "current"
    return PartitionOutcome(
        *plan.place, pipeline.settings.tables[plan.place[0]].shown, first, end, plan.log_end,
        "failed" if plan.failure else status, segments, size, reason=plan.failure or plan.waiting,
    )  # fmt: skip


def _planned(
    pipeline: Pipeline, states: Mapping[str, TableState | None], inventory: Inventory
) -> Iterator[tuple[LoadPlan, Sequence[SourceReplica]]]:
    """Yield the plan of the next run for each partition, as far as the inventory and the names of segments show it.

    Of transactions it is only if all segments were checked: one of the others can have the end of a transaction.
    """
    conflicts: dict[str, str | None] = {}  # why a table cannot have the columns that it would get
    for place, replicas in pipeline.listed(states).items():
        topic, state = place[0], states[place[0]]
        if topic not in conflicts:
            conflicts[topic] = _conflict(pipeline.tables[topic]) if state else None
        loaded = state.loaded(place) if state else None
        segments = needed(replicas, loaded)
        known = inventory.known(segments)
        checked = {one.path: known.get(one.path) or _assumed(one) for one in segments}
        unchecked = any(one.unread is None and one.path not in known for one in segments)
        rules = replace(pipeline.rules, committed=pipeline.rules.committed and not unchecked)
        found = plan_partition(place, replicas, checked, loaded, rules, state.topic_id(place) if state else None)
        yield replace(found, failure=found.failure or conflicts[topic]), replicas


def _conflict(table: LakeTable) -> str | None:
    """Return why a table cannot have the columns of its configuration and schemas, None if it can."""
    try:
        table.lacks_columns()
    except KsegError as error:
        return str(error)
    return None


def _assumed(listed: SegmentFile) -> CheckedSegment:
    """Return the result that the check of a segment has if it is sound: it ends where the next one begins."""
    if listed.unread:
        return unread_segment(listed)
    try:
        newest = listed.end_offset == INT64_MAX
        end = last_valid_batch(listed.path, listed.bytes).offset if newest else listed.end_offset
    except UnreadableError as error:
        return unread_segment(replace(listed, unread=str(error)))
    return replace(unread_segment(listed), next_offset=end, valid_end=listed.bytes, bytes=listed.bytes)


def _failed(found: Sequence[PartitionOutcome]) -> list[str]:
    """Return the line about the partitions that a run cannot load."""
    failed = sum(one.status == "failed" for one in found)
    return [f"{count_of(failed, 'partition')} cannot be loaded"] if failed else []


def _last_run(pipeline: Pipeline) -> list[str]:
    manifest = pipeline.state.read(MANIFEST)
    if not manifest:
        return ["no run yet"]
    when = iso_time(int(manifest["time"] * 1000))
    if manifest["state"] != "DONE":
        return [f"run {manifest['run']} was ended after {manifest['state']}, {when}: the next run continues it"]
    return [f"last run {manifest['run']}: exit code {manifest.get('code')}, {when}"]
