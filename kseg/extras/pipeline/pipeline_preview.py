"""The preview of a run, and the state of the tables, without reading segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kseg.errors import UnreadableError
from kseg.extras.pipeline.checked_segments import Inventory
from kseg.extras.pipeline.engine_choice import choose_engine
from kseg.extras.pipeline.offset_plan import LoadPlan, first_offset, needed, plan_without_parts
from kseg.extras.pipeline.pipeline_run import PartitionOutcome, Pipeline
from kseg.extras.pipeline.pipeline_state import MANIFEST
from kseg.extras.pipeline.replica_ends import Loaded
from kseg.extras.pipeline.source_listing import Place, SourceReplica, partitions_by_topic
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
    for topic, partitions in partitions_by_topic(pipeline.listed()).items():
        table = pipeline.tables[topic]
        state = table.read_state()
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
            begun = _begun((topic, partition), replicas, loaded, inventory)
            first, end = begun.first, max(begun.log_end, begun.first)
            status = "failed" if begun.failure else "to load" if end > first else "current"
            sizes = (len(segments), sum(one.size for one in segments)) if status == "to load" else (0, 0)
            found.append(
                PartitionOutcome(
                    topic, partition, table.settings.shown, first, first if begun.failure else end, begun.log_end, status,
                    *sizes, reason=begun.failure,
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
    for topic, partitions in partitions_by_topic(pipeline.listed()).items():
        table = pipeline.tables[topic]
        state = table.read_state()
        for partition, replicas in partitions.items():
            loaded: Loaded | None = state.offsets.get(f"{topic}-{partition}") if state else None
            begun = _begun((topic, partition), replicas, loaded, inventory)
            has, end = begun.first, begun.log_end
            found.append(
                PartitionOutcome(
                    topic, partition, table.settings.shown, min(first_offset(replicas), has), has, end,
                    "failed" if begun.failure else "to load" if end > has else "current", reason=begun.failure,
                )
            )  # fmt: skip
    lag = sum(one.lag for one in found)
    return found, [f"{count_of(lag, 'offset')} not loaded", *_failed(found), *_last_run(pipeline)]


def _begun(place: Place, replicas: Sequence[SourceReplica], loaded: Loaded | None, inventory: Inventory) -> LoadPlan:
    """Return the plan of a partition without parts, up to the end of its longest replica.

    Its ``failure`` says why a run will fail: another log than the loaded one, or no replica that can be read.
    """
    ends, unread = [0], []
    for replica in replicas:
        end, reason = _end_of(replica, loaded, inventory)
        ends.append(end)
        unread += [reason] if reason else []
    found = plan_without_parts(place, replicas, loaded, max(ends), unknown=bool(unread))
    return replace(found, failure=unread[0]) if len(unread) == len(replicas) and not found.failure else found


def _end_of(replica: SourceReplica, loaded: Loaded | None, inventory: Inventory) -> tuple[int, str | None]:
    """Return the end of a replica, from the inventory or the end of its last segment; and why it cannot be read."""
    if replica.unlisted:
        return 0, replica.unlisted
    last = replica.segments[-1]
    reason = next((one.unread for one in needed([replica], loaded) if one.unread), None)
    try:
        known = inventory.known(last)
        return known.next_offset if known else last_valid_batch(last.path, last.size).offset, reason
    except UnreadableError as error:
        return last.base_offset, reason or str(error)


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
