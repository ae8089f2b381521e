"""The preview of a run, and the state of the tables: of segments that were not checked only ends are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kseg.errors import KsegError, UnreadableError
from kseg.extras.pipeline.checked_segments import CheckedSegment, Inventory, unread_segment
from kseg.extras.pipeline.engine_choice import choose_engine
from kseg.extras.pipeline.lake_table import LakeTable
from kseg.extras.pipeline.load_plan import LoadPlan
from kseg.extras.pipeline.offset_plan import first_offset, needed, plan_partition
from kseg.extras.pipeline.pipeline_run import PartitionOutcome, Pipeline
from kseg.extras.pipeline.pipeline_state import MANIFEST
from kseg.extras.pipeline.replica_ends import Loaded
from kseg.extras.pipeline.source_listing import ListedSegment, Place, SourceReplica, partitions_by_topic
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.text import count_of, iso_time, size_text

_Found = tuple[list[PartitionOutcome], list[str]]


def plan(pipeline: Pipeline, spark: str | None = None) -> _Found:
    """Return the planned load by partition, and lines with the sums, the engine and the tables that it would create.

    ``spark`` is the master of the command line.
    """
    inventory = Inventory(pipeline.state)
    found, lines = [], []
    known_bytes = new_bytes = new_segments = 0
    states = pipeline.states()
    for topic, partitions in partitions_by_topic(pipeline.listed(states)).items():
        table, state = pipeline.tables[topic], states[topic]
        conflict = _conflict(table) if state else None
        if state is None:
            lines.append(f"would create {table.describe()}")
        for partition, replicas in partitions.items():
            loaded = state.offsets.get(f"{topic}-{partition}") if state else None
            segments = needed(replicas, loaded)
            for one in segments:
                if inventory.is_known(one):
                    known_bytes += one.size
                else:
                    new_segments, new_bytes = new_segments + 1, new_bytes + one.size
            planned = _planned(pipeline, (topic, partition), replicas, loaded, inventory, conflict)
            read = {part.listed.path: part.listed.size for part in planned.parts}
            found.append(
                PartitionOutcome(
                    topic, partition, table.settings.shown, planned.first, planned.end, planned.log_end, _status(planned),
                    len(read), sum(read.values()), reason=planned.failure or planned.waiting,
                )
            )  # fmt: skip
    lines += _failed(found)
    lines.append(f"would check {count_of(new_segments, 'segment')}, {size_text(new_bytes)}")
    lines.append(str(choose_engine(pipeline.settings, new_bytes + known_bytes, spark)))
    if known_bytes:
        lines.append(f"checked already: {size_text(known_bytes)}")
    return found, [*lines, *_last_run(pipeline)]


def status(pipeline: Pipeline) -> _Found:
    """Return the loaded and the missing offsets by partition, and lines about the last run."""
    inventory = Inventory(pipeline.state)
    found = []
    states = pipeline.states()
    for topic, partitions in partitions_by_topic(pipeline.listed(states)).items():
        table, state = pipeline.tables[topic], states[topic]
        conflict = _conflict(table) if state else None
        for partition, replicas in partitions.items():
            loaded: Loaded | None = state.offsets.get(f"{topic}-{partition}") if state else None
            planned = _planned(pipeline, (topic, partition), replicas, loaded, inventory, conflict)
            has = planned.first
            found.append(
                PartitionOutcome(
                    topic, partition, table.settings.shown, min(first_offset(replicas), has), has, planned.log_end,
                    _status(planned), reason=planned.failure or planned.waiting,
                )
            )  # fmt: skip
    lag = sum(one.lag for one in found)
    return found, [f"{count_of(lag, 'offset')} not loaded", *_failed(found), *_last_run(pipeline)]


def _planned(
    pipeline: Pipeline, place: Place, replicas: Sequence[SourceReplica], loaded: Loaded | None, inventory: Inventory,
    conflict: str | None,
) -> LoadPlan:  # fmt: skip
    """Return the plan of the next run for a partition, as far as the inventory and the names of segments show it.

    ``conflict``: why its table cannot have the columns that it would get.
    Of transactions it is only if all segments were checked: one of the others can have the end of a transaction.
    """
    segments = needed(replicas, loaded)
    known = inventory.known(segments)
    checked = {one.path: known.get(one.path) or _assumed(one) for one in segments}
    unchecked = any(one.unread is None and one.path not in known for one in segments)
    rules = replace(pipeline.rules, committed=pipeline.rules.committed and not unchecked)
    found = plan_partition(place, replicas, checked, loaded, rules)
    return replace(found, failure=found.failure or conflict)


def _conflict(table: LakeTable) -> str | None:
    """Return why a table cannot have the columns of its configuration and schemas, None if it can."""
    try:
        table.lacks_columns()
    except KsegError as error:
        return str(error)
    return None


def _assumed(listed: ListedSegment) -> CheckedSegment:
    """Return the result that the check of a segment has if it is sound: it ends where the next one begins."""
    if listed.unread:
        return unread_segment(listed)
    try:
        newest = listed.until == INT64_MAX
        end = last_valid_batch(listed.path, listed.size).offset if newest else listed.until
    except UnreadableError as error:
        return unread_segment(replace(listed, unread=str(error)))
    return CheckedSegment(listed.path, listed.stamp, listed.base_offset, end, listed.size, listed.size, 0, 0, 0)


def _status(plan: LoadPlan) -> str:
    if plan.failure:
        return "failed"
    return "to load" if plan.end > plan.first else "waiting" if plan.waiting else "current"


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
