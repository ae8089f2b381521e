"""The reports of a pipeline without a load: the preview of a run, the state of its tables, and their differences.

Previews read only ends of segments that were not checked. The tables and the segments are compared by rows, offsets, and a
checksum of keys and values per partition.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kseg.errors import KsegError, UnreadableError
from kseg.extras.pipeline.checked_segments import CheckedSegment, Inventory, unread_segment
from kseg.extras.pipeline.lake_table import LakeTable, TableState
from kseg.extras.pipeline.load_rows import LoadPlan, part_rows
from kseg.extras.pipeline.offset_plan import first_offset, needed, plan_partition
from kseg.extras.pipeline.pipeline_run import PartitionOutcome, Pipeline, choose_engine
from kseg.extras.pipeline.pipeline_state import MANIFEST
from kseg.extras.pipeline.source_replicas import Listing, Place, SourceReplica
from kseg.extras.views.view_table import VIEWS
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.storage.process_pool import Pool
from kseg.format.storage.segment_files import SegmentFile
from kseg.report.arrow_table import pa
from kseg.text import count_of, inclusive_range, iso_time, size_text

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


#: The columns that are compared, if the table has them as they are stored.
_COMPARED = ("offset", "key", "value")
_RECORDS = {column.name: column for column in VIEWS["records"].columns}


@dataclass(slots=True)
class Digest:
    """The rows of a partition: their number, the range of their offsets, and the sum of their checksums."""

    rows: int = 0
    first: int | None = None
    last: int | None = None
    sum: int = 0

    def add(self, offset: int, *contents: bytes | None) -> None:
        self.rows += 1
        self.first = offset if self.first is None else min(offset, self.first)
        self.last = offset if self.last is None else max(offset, self.last)
        crc = zlib.crc32(offset.to_bytes(8, "big", signed=True))
        for content in contents:
            crc = zlib.crc32(b"\0" if content is None else b"\1" + content, crc)
        self.sum += crc

    def difference(self, other: Digest) -> str | None:
        """Return how another digest differs, None if it is equal."""
        if self.rows != other.rows:
            return f"{count_of(self.rows, 'row')} in the table, {count_of(other.rows, 'row')} in the segments"
        if (self.first, self.last) != (other.first, other.last):
            return f"offsets {self.first} to {self.last} in the table, {other.first} to {other.last} in the segments"
        return None if self.sum == other.sum else "equal offsets, but other keys or values"


def verify(pipeline: Pipeline, pool: Pool | None = None) -> tuple[list[PartitionOutcome], list[str]]:
    """Compare the loaded offsets of all partitions, and return them with status ``same`` or ``different``.

    Only offsets are compared that the segments still have. ``failed``: some of them cannot be read.
    """
    states = pipeline.states()
    listing = pipeline.listed(states)
    found: list[PartitionOutcome] = []
    gone = 0
    for topic, table in pipeline.tables.items():
        state = states[topic] or TableState()
        plans = plans_of_loaded(pipeline, listing, topic, state, pool)
        stored = _of_table(table, {place: plan.first for place, plan in plans.items()})
        for place, plan in plans.items():
            why = plan.failure or _deleted(plan) or stored[place[1]].difference(_of_segments(table, plan))
            is_another = plan.topic_id not in (None, state.topic_id(place))
            unread = plan.failure is not None and bool(listing[place]) and not is_another
            status = "failed" if unread else "different" if why else "same"
            first, log_end = min(plan.first, plan.end), max(plan.log_end, plan.end)
            size = sum(one.checked.bytes for one in plan.parts)
            found.append(
                PartitionOutcome(
                    *place, table.settings.shown, first, plan.end, log_end, status, len(plan.parts), size, reason=why
                )
            )
            if plan.first >= plan.end and not plan.failure:
                gone += 1
    counts = Counter(one.status for one in found)
    compared = count_of(len(found) - counts["failed"] - gone, "partition")
    lines = [f"{compared} compared, {counts['different']:,} different"]
    lines += [f"{count_of(gone, 'partition')} without loaded offsets in the segments"] * bool(gone)
    return found, lines + [f"{count_of(counts['failed'], 'partition')} cannot be read"] * bool(counts["failed"])


def plans_of_loaded(
    pipeline: Pipeline, listing: Listing, topic: str, state: TableState, pool: Pool | None
) -> dict[Place, LoadPlan]:
    """Return plans for the loaded offsets of a topic that the segments still have, by partition."""
    partitions = {place: replicas for place, replicas in listing.items() if place[0] == topic}
    every = [one for replicas in partitions.values() for one in needed(replicas, None)]
    checked = Inventory(pipeline.state).check(every, pool)
    plans = {}
    for place, replicas in partitions.items():
        loaded = state.loaded(place)
        if loaded is not None:
            rules, known_id = replace(pipeline.rules, gaps_stop=False), state.topic_id(place)
            plan = plan_partition(place, replicas, checked, None, rules, known_id)
            plans[place] = plan.within(plan.first, loaded.next_offset)
    return plans


def _deleted(plan: LoadPlan) -> str | None:
    """Return that records were deleted before a load, None if the segments begin at a loaded offset or right after them."""
    missing = inclusive_range("offset", plan.end, plan.first - 1)
    return f"{missing}: deleted before the load" if plan.first > plan.end else None


def _compared(table: LakeTable) -> dict[str, str]:
    """Return the compared columns of the records, with their names in the table."""
    names = {one.path: one.name for one in table.settings.paths if not one.cast}
    return {path: names[path] for path in _COMPARED if path in names}


def _rows(batch: pa.RecordBatch, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _of_segments(table: LakeTable, plan: LoadPlan) -> Digest:
    digest, names = Digest(), list(_compared(table))
    columns = [_RECORDS[name] for name in names]
    for part in plan.parts:
        for batch in part_rows(part, plan, columns):
            for offset, *contents in _rows(batch, names):
                digest.add(offset, *contents)
    return digest


def _of_table(table: LakeTable, first: Mapping[Place, int]) -> Mapping[int, Digest]:
    """Return the digests of the rows of a topic from the first offsets of the segments on, by partition.

    Rejected records of the side table are rows, too.
    """
    digests: dict[int, Digest] = defaultdict(Digest)
    start = {partition: offset for (_, partition), offset in first.items()}
    compared = _compared(table)
    found = [(table, ["topic"] * ("topic" in table.rows.schema.names), list(compared.values()))]
    if table.rejected and table.rejected.read_state() is not None:
        found.append((table.rejected, ["topic"], list(compared)))
    for one, with_topic, contents in found if start else ():
        for batch in one.batches([*with_topic, "partition", *contents]):
            for row in _rows(batch, [*with_topic, "partition", *contents]):
                if with_topic and row[0] != table.settings.topic:
                    continue
                partition, offset, *values = row[len(with_topic) :]
                if partition in start and offset >= start[partition]:
                    digests[partition].add(offset, *values)
    return digests
