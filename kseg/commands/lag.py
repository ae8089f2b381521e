"""``kseg lag`` as a library: committed offsets of consumer groups next to the log ends of their partitions.

The offsets are those that a group coordinator has after loading ``__consumer_offsets``: the last commit of each group and
partition, without tombstones and without commits of transactions that are open or aborted.
Source: ``kafka-consumer-groups --describe``, ``OffsetMetadataManager``.

The replicas of partitions in log directories: their log ends, log starts and high watermarks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from kseg.errors import KsegError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.internal_topics.decode import CLUSTER_METADATA, CONSUMER_OFFSETS
from kseg.format.internal_topics.effective_state import effective, topic_names
from kseg.format.sidefiles.checkpoints import walk_offset_checkpoint
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.sidefiles.metadata_files import HIGH_WATERMARKS, LOG_STARTS, topic_id_of
from kseg.format.storage.naming import base_offset_of, partition_of
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import SegmentFile, local_size, open_source

#: Topic and partition.
Place = tuple[str, int]


@dataclass(slots=True)
class PartitionReplica:
    """A partition folder with the paths of its segments in offset order."""

    folder: str
    segments: list[str]


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The offsets of the replica with the highest log end. ``high_watermark`` is None without a checkpoint of it."""

    folder: str
    log_start: int
    log_end: int
    high_watermark: int | None
    topic_id: str | None


class LogDirs:
    """The partitions of several log directories. ``deleted`` has the topics of which only deleted folders are left."""

    def __init__(self, files: Iterable[SegmentFile]) -> None:
        self.replicas: dict[Place, list[PartitionReplica]] = {}
        self._checkpoints: dict[str, dict[Place, int]] = {}
        folders: dict[str, PartitionReplica] = {}
        deleted: set[str] = set()
        for file in files:
            folder = os.path.dirname(file.path)
            partition = partition_of(os.path.basename(os.path.abspath(folder)))
            if partition is None or partition.state is not None:
                deleted |= {partition.topic} if partition and partition.state == "-delete" else set()
                continue
            if folder not in folders:
                folders[folder] = PartitionReplica(folder, [])
                self.replicas.setdefault(partition[:2], []).append(folders[folder])
            folders[folder].segments.append(file.path)
        self._deleted = deleted - {topic for topic, _ in self.replicas}

    def extent(self, place: Place) -> LogExtent | None:
        """Return the extent of the replica with the highest log end, None if no log directory has the partition."""
        found = [self._extent(place, replica) for replica in self.replicas.get(place, ())]
        return max(found, key=lambda extent: extent.log_end, default=None)

    def is_deleted(self, topic: str) -> bool:
        """Return whether a topic was deleted, by the cluster metadata or, without that log, by the names of folders."""
        return topic in self._deleted if self._topics is None else topic not in self._topics

    @cached_property
    def _topics(self) -> set[str] | None:
        """The topics in the cluster metadata, None without that log."""
        replicas = self.replicas.get((CLUSTER_METADATA, 0))
        if not replicas:
            return None
        newest = max(replicas, key=log_end)
        return set(topic_names(effective(CLUSTER_METADATA, newest.segments, lambda path: do_nothing).items()).values())

    def _extent(self, place: Place, replica: PartitionReplica) -> LogExtent:
        log_dir = os.path.dirname(os.path.abspath(replica.folder))
        return LogExtent(
            replica.folder,
            max(self._checkpoint(log_dir, LOG_STARTS).get(place, 0), base_offset_of(replica.segments[0]) or 0),
            log_end(replica),
            self._checkpoint(log_dir, HIGH_WATERMARKS).get(place),
            topic_id_of(replica.folder),
        )

    def _checkpoint(self, log_dir: str, name: str) -> dict[Place, int]:
        """Return the offsets of a checkpoint by partition, none if it cannot be read."""
        path = os.path.join(log_dir, name)
        if path not in self._checkpoints:
            self._checkpoints[path] = {}
            with suppress(KsegError), open_source(path, listed=True) as source:
                entries = walk_offset_checkpoint(source)
                self._checkpoints[path] = {(entry.topic, entry.partition): entry.offset for _, entry in entries}
        return self._checkpoints[path]


def log_end(replica: PartitionReplica) -> int:
    """Return the offset after the last valid batch of the newest segment."""
    newest = replica.segments[-1]
    return last_valid_batch(newest, local_size(newest) or 0).offset


_ENTITY = "OffsetCommit"
#: The statuses of a committed offset that a consumer cannot continue from.
OUTSIDE = ("before-log-start", "after-log-end")
STATUSES = ("ok", *OUTSIDE, "expired", "other-topic-id", "deleted-topic", "missing-partition")


@dataclass(frozen=True, slots=True)
class Commit:
    """An effective commit. Times are epoch milliseconds; ``expire_timestamp`` is None for the group's retention."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class CommitsRead:
    """The commits of a partition of ``__consumer_offsets``, its findings with their files, and why it was not read."""

    folder: str
    commits: Sequence[Commit] = ()
    findings: Sequence[tuple[str, Finding]] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A commit, the log of its partition (None if it is missing), and a status of STATUSES."""

    commit: Commit
    log: LogExtent | None
    status: str

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed one to the log end, None if that is unknown."""
        return None if self.log is None else self.log.log_end - self.commit.offset


def offsets_replicas(found: LogDirs) -> list[PartitionReplica]:
    """Return the replica with the highest log end of each partition of ``__consumer_offsets``."""
    places = sorted(place for place in found.replicas if place[0] == CONSUMER_OFFSETS)
    return [max(found.replicas[place], key=log_end) for place in places]


def read_commits(replica: PartitionReplica) -> CommitsRead:
    """Read the effective commits of a partition of ``__consumer_offsets``."""
    findings: list[tuple[str, Finding]] = []

    def report_of(path: str) -> Report:
        return lambda finding: findings.append((path, finding))

    try:
        found = effective(CONSUMER_OFFSETS, replica.segments, report_of)
    except KsegError as error:
        return CommitsRead(replica.folder, unread=str(error))
    add_progress(sum(local_size(path) or 0 for path in replica.segments))
    commits = [
        Commit(
            item.key["group"], item.key["topic"], item.key["partition"], item.data["offset"],
            item.data.get("leaderEpoch"), item.data.get("metadata") or "", item.data["commitTimestamp"],
            item.data.get("expireTimestamp", -1) if item.data.get("expireTimestamp", -1) >= 0 else None,
            item.data.get("topicId"),
        )
        for item in found.items()
        if item.entity == _ENTITY and not item.pending and {"group", "topic"} <= item.key.keys() and "offset" in item.data
    ]  # fmt: skip
    return CommitsRead(replica.folder, commits, findings)


def lags(found: LogDirs, commits: Iterable[Commit], now: int | None = None) -> Iterator[GroupLag]:
    """Yield the lag of each commit, sorted by group, topic and partition. ``now`` is in epoch milliseconds."""
    now = time.time_ns() // 1_000_000 if now is None else now
    extents: dict[Place, LogExtent | None] = {}
    for commit in sorted(commits, key=lambda commit: (commit.group, commit.topic, commit.partition)):
        place = commit.topic, commit.partition
        if place not in extents:
            extents[place] = found.extent(place)
        log = extents[place]
        if log is None:
            yield GroupLag(commit, None, "deleted-topic" if found.is_deleted(commit.topic) else "missing-partition")
        else:
            yield GroupLag(commit, log, _status(commit, log, now))


def _status(commit: Commit, log: LogExtent, now: int) -> str:
    if commit.topic_id and log.topic_id and commit.topic_id != log.topic_id:
        return "other-topic-id"
    if commit.expire_timestamp is not None and commit.expire_timestamp <= now:
        return "expired"
    if commit.offset > log.log_end:
        return "after-log-end"
    return "before-log-start" if commit.offset < log.log_start else "ok"
