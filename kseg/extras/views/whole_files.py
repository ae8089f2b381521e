"""Read the views that need all of a segment, of a folder or of log directories: all but records and batches.

The row of a segment: versions, codecs, offsets, times, counts, and the verdict. ``kseg validate --inventory`` writes
findings and segments as Parquet, one row each.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby, repeat
from pathlib import Path

from kseg.commands.lag.committed_offsets import Commit, LogDirs, lags, partitions_of, read_commits
from kseg.commands.schemas import IdCounter, SchemasTotal, listed
from kseg.commands.transactions import MAX_TRANSACTION_MS, Transaction, items_of
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate import validate_segment
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, NotASegmentError, UnreadableError, UsageError, VanishedError
from kseg.extras.serialization.schemas_topic import TOPIC, RegistryState, applied_records
from kseg.extras.views.planned_transactions import MOST_EVENTS, EventCollector
from kseg.extras.views.planning import SegmentRange, Split
from kseg.extras.views.split_rows import Damaged, DamagePolicy, Task, damage_line, keeps_damage, report_unread
from kseg.extras.views.view_table import UNREAD, VIEWS
from kseg.extras.views.zone_maps import EVENT_COLUMNS, ZoneCollector
from kseg.findings import Finding, do_nothing
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, first_timestamp, timestamp_or_none
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles.registry import named_file
from kseg.format.storage import local_files
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.naming import CONSUMER_OFFSETS, INTERNAL_TOPICS, is_missing, is_url
from kseg.format.storage.process_pool import Pool, add_progress, map_ordered
from kseg.format.storage.segment_files import SegmentFile, check_complete, is_folder
from kseg.format.storage.source import (
    Stamp,
    local_size,
    open_source,
    stamp_of,
    stamp_text,
    stored_size,
    topic_partition,
)
from kseg.report import lag_report, schemas_report
from kseg.report.arrow_table import BATCH_ROWS, ParquetWriter, arrow_schema, from_rows
from kseg.results import FileResult, Settings
from kseg.schema import Row


@dataclass(slots=True)
class _SummaryFacts:
    offsets: ClaimedOffsets
    magics: set[int] = field(default_factory=set)
    codecs: set[int] = field(default_factory=set)
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    any: bool = False
    claimed: set[int] = field(default_factory=set)
    zones: ZoneCollector = field(default_factory=ZoneCollector)
    events: EventCollector = field(default_factory=EventCollector)
    end: int = 0

    def __call__(self, chunk: Chunk) -> None:
        self.zones(chunk)
        if self.zones.certain and len(self.events.columns[0]) <= MOST_EVENTS:
            self.events.add_chunk(chunk, chunk.batches.selected)
        last = chunk.stop - 1
        self.end = chunk.batches.position[last] + chunk.batches.size[last]
        if not chunk.first and not chunk.resumed:
            self.claimed = self.offsets.update(chunk.batches)
        for row in range(chunk.first, chunk.stop):
            if chunk.batches.selected[row]:
                self._update(chunk.batches, row)

    def _update(self, batches: BatchColumns, row: int) -> None:
        attributes, last = batches.attributes[row], batches.last_offset[row]
        self.magics.add(batches.magic[row])
        self.codecs.add(attributes & CODEC_MASK)
        if batches.position[row] not in self.claimed:
            if not self.any:
                self.any = True
                self.first_offset = None if is_wrapper(batches, row) else batches.base_offset[row]
            self.last_offset = last if self.last_offset is None else max(last, self.last_offset)
        newest, first = (
            timestamp_or_none(batches.max_timestamp[row]),
            first_timestamp(attributes, batches.base_timestamp[row]),
        )
        for timestamp in (newest, first):
            if timestamp is not None:
                known = self.min_timestamp is not None
                self.min_timestamp = min(timestamp, self.min_timestamp) if known else timestamp  # type: ignore[type-var]
                self.max_timestamp = max(timestamp, self.max_timestamp) if known else timestamp  # type: ignore[type-var]

    def kept(self) -> Row:
        """Return what an inventory keeps of a sound segment: its zone map, and the events of its transactions."""
        known = self.zones.certain and len(self.events.columns[0]) <= MOST_EVENTS
        events = (column.tolist() if known else None for column in self.events.columns)
        return {**self.zones.columns(), **dict(zip(EVENT_COLUMNS, events, strict=True))}


def result_and_row(file: SegmentFile, size: int | None, settings: Settings) -> tuple[FileResult, Row]:
    """Return the result of ``validate_segment``, and the row of SEGMENT_TABLE.

    ``size`` is in bytes, None if it is unknown before reading.
    """
    facts = _SummaryFacts(ClaimedOffsets(file.path, do_nothing))

    def watch(chunk: Chunk) -> None:
        nonlocal facts
        if not chunk.resumed and chunk.batches.position[chunk.first] < facts.end:
            facts = _SummaryFacts(ClaimedOffsets(file.path, do_nothing))  # the file has changed, and is read again
        facts(chunk)

    stamp = _stamp(file.path)
    result = validate_segment(file, settings, add_progress, watch)
    summary = result.summary
    whole = not (result.unread or summary.errors) and summary.verdict == "sound" and _stamp(file.path) == stamp
    return result, {
        "file": file.path,
        "size": summary.bytes if size is None else size,
        "active": file.active,
        "magics": sorted(facts.magics),
        "compressions": [codec_name(codec) for codec in sorted(facts.codecs)],
        "batches": summary.batches,
        "records": summary.records,
        "first_offset": facts.first_offset,
        "last_offset": facts.last_offset,
        "min_timestamp": facts.min_timestamp,
        "max_timestamp": facts.max_timestamp,
        "errors": summary.errors,
        "warnings": summary.warnings,
        "infos": summary.infos,
        "lost_bytes": summary.lost_bytes,
        "verdict": summary.verdict,
        "unread": result.unread,
        "stamp": stamp_text(stamp),
        **(facts.kept() if whole else {}),
    }


def _stamp(path: str) -> Stamp:
    """Return the stamp of a file, None if it was deleted. Raises UnreadableError: a read error is never a missing map."""
    found = stamp_of(path)
    return stamp_of(path) if found is None and stored_size(path) is not None else found


#: The views that are written, each to a file with its name.
WRITTEN = ("findings", "segments")


def with_inventory(
    pool: Pool | None, files: Sequence[SegmentFile], settings: Settings, target: Path
) -> Iterator[FileResult]:
    """Yield the results of ``check_folders``, and write ``findings.parquet`` and ``segments.parquet`` at the end.

    The files have the columns of the views of these names. Raises KsegError if they cannot be written.
    ``add_progress`` is called with the bytes that are read.
    """
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        findings, segments = (_Table(stack, target, view) for view in WRITTEN)

        def results() -> Iterator[FileResult]:
            sizes = (local_size(file.path) for file in files)
            for of_segment, row in map_ordered(pool, result_and_row, files, sizes, repeat(settings)):
                if of_segment.summary.files:
                    segments.add(row)
                yield of_segment
                yield from of_segment.indexes

        for result in check_folders(files, settings, results()):
            for verdict in result.verdicts:
                findings.add(verdict.as_row())
            yield result
        findings.close()
        segments.close()


class _Table:
    """Writes the rows of a view to a Parquet file."""

    def __init__(self, stack: ExitStack, folder: Path, view: str) -> None:
        self._columns = VIEWS[view].columns
        self._rows: list[Row] = []
        out = stack.enter_context(whole_file(folder / f"{view}.parquet"))
        self._writer = stack.enter_context(ParquetWriter(out, arrow_schema(self._columns)))

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(from_rows(self._columns, self._rows))
            self._rows.clear()


#: Findings of one rule in one file that the findings view shows; the segments view counts all.
MAX_PER_RULE = 1000


def read_findings(task: Task, split: Split) -> Iterator[Row]:
    """Yield the findings of ``validate`` folder by folder. An unreadable file is a row, too."""
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=MAX_PER_RULE)
    files = [piece.file for piece in split]
    for result in check_folders(files, settings, validate_files(files, settings)):
        _report_unread(task, result)
        for verdict in result.verdicts:
            yield verdict.as_row()
        if result.unlisted_error:
            yield {"file": result.file, "message": result.unlisted_error}


def read_segments(task: Task, split: Split) -> Iterator[Row]:
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=1)
    for piece in split:
        result, row = result_and_row(piece.file, piece.file.size, settings)
        if _report_unread(task, result) or not result.vanished:
            yield row


def read_transactions(task: Task, split: Split) -> Iterator[Row]:
    """Yield the transactions of each partition, the open ones last."""
    now = time.time_ns() // 1_000_000
    policies = _policies(task, split)
    unreadable: list[str] = []

    def report(path: str, finding: Finding) -> None:
        policies[path](finding)

    def unread(error: KsegError) -> None:
        if isinstance(error, Damaged):
            raise error
        report_unread(task, error)
        if keeps_damage(task):
            unreadable.append(str(error))

    for folder, pieces in groupby(split, key=lambda piece: os.path.dirname(piece.file.path)):
        files = (piece.file for piece in pieces)
        for item in items_of(
            files, now, MAX_TRANSACTION_MS // 1000, report, unread, unless_deleted=task.notices.deleted
        ):
            if isinstance(item, Transaction):
                yield asdict(item)
        yield from ({"folder": folder, "damage": UNREAD + reason} for reason in unreadable)
        unreadable.clear()
    for path, policy in policies.items():
        folder, name = os.path.split(path)
        for row in policy.rows:
            yield {"folder": folder, "damage": damage_line(name, row)}


def _report_unread(task: Task, result: FileResult) -> KsegError | None:
    file = SegmentFile(result.file, listed=True)
    if result.read_error:
        kind = VanishedError if result.vanished else UnreadableError
        return report_unread(task, kind(result.read_error), file)
    return report_unread(task, NotASegmentError(result.unread), file) if result.unread else None


def read_groups(task: Task, split: Split) -> Iterator[Row]:
    """Yield the committed offsets of consumer groups with their lag, as ``kseg lag`` lists them."""
    policies = _policies(task, split)
    found = _log_dirs(task, split, policies)

    def commits() -> Iterator[Commit]:
        for read in map(read_commits, partitions_of(found, CONSUMER_OFFSETS)):
            for path, finding in read.findings:
                policies[path](finding)
            if read.unread:
                task.notices.unread(UnreadableError(read.unread))
            yield from read.commits

    yield from lag_report.rows(lags(found, commits()), lag_report.LagTotal()).rows
    yield from _damage_rows(policies)


def read_schemas(task: Task, split: Split) -> Iterator[Row]:
    """Yield the versions of the schemas in the topic ``_schemas``. Data are read only for the column ``used_by``."""
    state, counter = RegistryState(), IdCounter()
    policies = _policies(task, split)
    by_topic: defaultdict[str | None, list[str]] = defaultdict(list)
    for piece in _readable(task, split):
        by_topic[topic_partition(piece.file.path)[0]].append(piece.file.path)

    for path in by_topic[TOPIC]:
        with policies[path].kept():
            for _ in applied_records([path], state, policies.__getitem__):
                pass
    counted = any(column.name == "used_by" for column in task.request.columns)
    for topic, paths in by_topic.items() if counted else ():
        for path in paths if topic not in (TOPIC, *INTERNAL_TOPICS) else ():
            with policies[path].kept():
                counter.read(path, topic, policies[path])
    found = listed(state.all(), counter if counted else None, SchemasTotal())
    yield from schemas_report.rows((row for row in found if row["kind"] == "schema"), SchemasTotal()).rows
    yield from _damage_rows(policies)


def _policies(task: Task, split: Split) -> dict[str, DamagePolicy]:
    return {piece.file.path: DamagePolicy(piece, task) for piece in split}


def _damage_rows(policies: Mapping[str, DamagePolicy]) -> Iterator[Row]:
    """Yield the damage that policies have kept, and the files that were not read, with the place in the text."""
    for path, policy in policies.items():
        yield from ({"damage": damage_line(path, row)} for row in policy.rows)


def read_topics(task: Task, split: Split) -> Iterator[Row]:
    """Yield the topics in the cluster metadata and in the names of partition folders."""
    policies = _policies(task, split)
    found = _log_dirs(task, split, policies)
    known = list(found.metadata.items()) if found.metadata else ()
    ids = {item.data["name"]: item.key["topicId"] for item in known if item.entity == "topic"}
    partitions: defaultdict[str, int] = defaultdict(int)
    configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for item in known:
        if item.entity == "partition":
            partitions[item.key["topicId"]] += 1
        elif item.entity == "config":
            configs[item.key["resourceName"]][item.key["name"]] = item.data["value"]
    places: defaultdict[str, set[int]] = defaultdict(set)
    for topic, partition in found.replicas:
        places[topic].add(partition)
    for topic in sorted({*ids, *places, *found.deleted}):
        replicas = [one for partition in places.get(topic, ()) for one in found.replicas[topic, partition]]
        segments = [path for one in replicas for path in one.segments]
        yield {
            "topic": topic,
            "topic_id": found.topic_id(topic),
            "partitions": partitions[ids[topic]] if topic in ids else len(places.get(topic, ())),
            "replicas": len(replicas),
            "segments": len(segments),
            "size": sum(local_size(path) or 0 for path in segments),
            "is_deleted": found.is_deleted(topic),
            "configs": configs.get(topic, {}) if found.metadata else None,
        }
    yield from _damage_rows(policies)


def read_files(task: Task, split: Split) -> Iterator[Row]:
    """Yield all files, also those that are not Kafka's. None of them is opened."""
    for piece in _readable(task, split):
        path = piece.file.path
        row: Row = {"file": path, **named_file(path)._asdict(), "size": piece.file.size}
        if not is_url(path):
            with suppress(OSError, ValueError):  # a broker has deleted it
                row["modified_timestamp"] = int(local_files.status(path).st_mtime * 1000)
        yield row


def _readable(task: Task, split: Split) -> Iterator[SegmentRange]:
    """Yield the pieces but folders that cannot be listed, and files that an archive lacks, which are reported."""
    for piece in split:
        folder, name = os.path.split(piece.file.path)
        try:
            if is_folder(piece.file.path):
                raise UnreadableError(f"{piece.file.path}: the folder cannot be listed")
            if is_missing(name):
                check_complete(folder)
        except UnreadableError as error:
            task.notices.unread(error)
        else:
            yield piece


def _log_dirs(task: Task, split: Split, policies: Mapping[str, DamagePolicy]) -> LogDirs:
    """Return the log directories. Raises UsageError for files at URLs, whose ends of logs are not read."""
    pieces = list(_readable(task, split))
    for piece in pieces:
        if local_size(piece.file.path) is None:
            open_source(piece.file.path).close()  # raises for a link to nothing
            raise UsageError(f"{piece.file.path}: the table {task.request.view} needs local log directories")
    return LogDirs((piece.file for piece in pieces), lambda path, finding: policies[path](finding))
