"""Read the views that need the files of whole log directories: groups, schemas, topics and files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.commands.lag.committed_offsets import Commit, LogDirs, lags, partitions_of, read_commits
from kseg.commands.schemas import IdCounter, SchemasTotal, listed
from kseg.errors import UnreadableError, UsageError
from kseg.extras.serialization.schemas_topic import TOPIC, RegistryState, applied_records
from kseg.extras.views.split_rows import DamagePolicy, Task, as_arrow, damage_line
from kseg.extras.views.splits import Split
from kseg.format.internal_topics.decode import CONSUMER_OFFSETS, TOPICS
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.sidefiles.registry import named_file
from kseg.format.storage import local_files
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import is_folder
from kseg.format.storage.source import local_size, open_source, topic_partition
from kseg.report import lag_report, schemas_report
from kseg.report.arrow_table import pa
from kseg.schema import Row

if TYPE_CHECKING:
    from kseg.extras.views.splits import SegmentRange


def read_groups(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the committed offsets of consumer groups with their lag, as ``kseg lag`` lists them."""
    return as_arrow(task, _group_rows(task, split))


def _group_rows(task: Task, split: Split) -> Iterator[Row]:
    found = _log_dirs(task, split)
    policies = {piece.file.path: DamagePolicy(piece, task) for piece in split.pieces}

    def commits() -> Iterator[Commit]:
        for read in map(read_commits, partitions_of(found, CONSUMER_OFFSETS)):
            for path, finding in read.findings:
                policies[path](finding)
            if read.unread:
                task.notices.unread(UnreadableError(read.unread))
            yield from read.commits

    yield from lag_report.rows(lags(found, commits()), lag_report.LagTotal()).rows
    yield from _damage_rows(policies)


def read_schemas(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the versions of the schemas in the topic ``_schemas``. Data are read only for the column ``used_by``."""
    return as_arrow(task, _schema_rows(task, split))


def _schema_rows(task: Task, split: Split) -> Iterator[Row]:
    state, counter = RegistryState(), IdCounter()
    policies = {piece.file.path: DamagePolicy(piece, task) for piece in split.pieces}
    by_topic: defaultdict[str | None, list[str]] = defaultdict(list)
    for piece in _readable(task, split):
        by_topic[topic_partition(piece.file.path)[0]].append(piece.file.path)

    for path in by_topic[TOPIC]:
        with policies[path].kept():
            for _ in applied_records([path], state, policies.__getitem__):
                pass
    counted = any(column.name == "used_by" for column in task.request.columns)
    for topic, paths in by_topic.items() if counted else ():
        for path in paths if topic not in (TOPIC, *TOPICS) else ():
            with policies[path].kept():
                counter.read(path, topic, policies[path])
    found = listed(state.all(), counter if counted else None, SchemasTotal())
    yield from schemas_report.rows((row for row in found if row["kind"] == "schema"), SchemasTotal()).rows
    yield from _damage_rows(policies)


def _damage_rows(policies: Mapping[str, DamagePolicy]) -> Iterator[Row]:
    """Yield the damage that policies have kept, and the files that were not read, with the place in the text."""
    for path, policy in policies.items():
        yield from ({"damage": damage_line(path, row)} for row in policy.rows)


def read_topics(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the topics in the cluster metadata and in the names of partition folders."""
    return as_arrow(task, _topic_rows(task, split))


def _topic_rows(task: Task, split: Split) -> Iterator[Row]:
    found = _log_dirs(task, split)
    known = found.metadata
    ids = {item.data["name"]: item.key["topicId"] for item in known or () if item.entity == "topic"}
    partitions: defaultdict[str, int] = defaultdict(int)
    configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for item in known or ():
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
        topic_id = ids.get(topic) or next(filter(None, (topic_id_of(one.folder) for one in replicas)), None)
        yield {
            "topic": topic,
            "topic_id": topic_id,
            "partitions": partitions[ids[topic]] if topic in ids else len(places.get(topic, ())),
            "replicas": len(replicas),
            "segments": len(segments),
            "size": sum(local_size(path) or 0 for path in segments),
            "is_deleted": found.is_deleted(topic),
            "configs": configs.get(topic, {}) if known is not None else None,
        }


def read_files(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield all files, also those that are not Kafka's. None of them is opened."""
    return as_arrow(task, map(_file_row, _readable(task, split)))


def _file_row(piece: SegmentRange) -> Row:
    path = piece.file.path
    row: Row = {"file": path, **named_file(path)._asdict(), "size": piece.size}
    if not is_url(path):
        with suppress(OSError, ValueError):  # a broker has deleted it
            row["modified_timestamp"] = int(local_files.status(path).st_mtime * 1000)
    return row


def _readable(task: Task, split: Split) -> Iterator[SegmentRange]:
    """Yield the pieces but folders that cannot be listed, which are reported."""
    for piece in split.pieces:
        if is_folder(piece.file.path):
            task.notices.unread(UnreadableError(f"{piece.file.path}: the folder cannot be listed"))
        else:
            yield piece


def _log_dirs(task: Task, split: Split) -> LogDirs:
    """Return the log directories. Raises UsageError for files at URLs, whose ends of logs are not read."""
    pieces = list(_readable(task, split))
    for piece in pieces:
        if local_size(piece.file.path) is None:
            open_source(piece.file.path).close()  # raises for a link to nothing
            raise UsageError(f"{piece.file.path}: the table {task.request.view} needs local log directories")
    return LogDirs(piece.file for piece in pieces)
