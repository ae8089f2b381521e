"""Committed offsets of consumer groups next to the log ends of their partitions.

The offsets are those that a group coordinator has after loading ``__consumer_offsets``: the last commit of each group and
partition, without tombstones and without commits of transactions that are open or aborted.
Source: ``kafka-consumer-groups --describe``, ``OffsetMetadataManager``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any

from kseg.errors import KsegError, VanishedError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.effective_state import Effective, effective, topic_names
from kseg.format.internal_topics.state import OFFSET_COMMIT, Item, Moment, entity_of
from kseg.format.log_loader.loaded_files import LeaderEpochCache
from kseg.format.sidefiles.checkpoints import checkpoint_offset, stored_leader_epochs
from kseg.format.sidefiles.log_end import last_valid_batch, log_end_at
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage import file_access, local_files
from kseg.format.storage.naming import (
    CLEANER_OFFSETS,
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    HIGH_WATERMARKS,
    INTERNAL_TOPICS,
    LOG_STARTS,
    base_offset_of,
    partition_of,
)
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.resting_logs import cleaned_before
from kseg.format.storage.segment_files import SegmentFile, segments_in
from kseg.format.storage.source import local_size, stamp_of, stored_size

#: Topic and partition.
Place = tuple[str, int]


@dataclass(slots=True)
class PartitionReplica:
    """A partition folder with the paths of its segments in offset order. ``listed``: these are all that it had."""

    folder: str
    segments: list[str]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The offsets of the replica that leads. ``high_watermark`` is None without a checkpoint of it."""

    folder: str
    log_start: int
    log_end: int
    high_watermark: int | None
    topic_id: str | None


class LogDirs:
    """The partitions of several log directories. ``deleted`` has the topics of which only deleted folders are left.

    ``report`` is called with the path and the finding of damage in the cluster metadata, when it is read.
    """

    def __init__(self, files: Iterable[SegmentFile], report: Callable[[str, Finding], object]) -> None:
        self._report = report
        self.replicas: dict[Place, list[PartitionReplica]] = {}
        self._by_topic: dict[str, list[PartitionReplica]] = {}
        self._id_of = cache(topic_id_of)
        self._topic_ids: dict[str, str | None] = {}
        self._leaders: dict[Place, tuple[PartitionReplica, int] | None] = {}
        self._extents: dict[Place, LogExtent | None] = {}
        folders: dict[str, PartitionReplica] = {}
        deleted: set[str] = set()
        for file in files:
            folder = os.path.dirname(file.path)
            partition = partition_of(os.path.basename(os.path.abspath(folder)))
            if partition is None or partition.state is not None:
                deleted |= {partition.topic} if partition and partition.state == "-delete" else set()
                continue
            if folder not in folders:
                folders[folder] = PartitionReplica(folder, [], file.listed)
                self.replicas.setdefault(partition[:2], []).append(folders[folder])
                self._by_topic.setdefault(partition.topic, []).append(folders[folder])
            folders[folder].segments.append(file.path)
        self.deleted = deleted - {topic for topic, _ in self.replicas}

    def leader(self, place: Place) -> PartitionReplica | None:
        """Return the replica of a partition that leads, None if no log directory has the partition.

        The latest leader epoch decides, of several the highest log end: the others truncate to where their history differs
        from its own (KIP-101). Epochs of another topic id are those of a deleted topic: they do not count.
        """
        found = self._leader(place)
        return found and found[0]

    def extent(self, place: Place) -> LogExtent | None:
        """Return the extent of the replica that leads, None if no log directory has the partition."""
        if place not in self._extents:
            found = self._leader(place)
            self._extents[place] = found and self._extent(*found)
        return self._extents[place]

    def is_deleted(self, topic: str) -> bool:
        """Return whether a topic was deleted, by the cluster metadata or, without the whole log, by the names of folders."""
        if self.known_ids is None:
            return topic in self.deleted
        return topic not in self.known_ids and topic != CLUSTER_METADATA

    def topic_id(self, topic: str) -> str | None:
        """Return the id that a topic has now: that of the cluster metadata, or of its folders.

        Only the metadata shows which of several ids of folders it is: without that log it is the one written last, and the
        function that gets warnings is called.
        """
        if topic not in self._topic_ids:
            self._topic_ids[topic] = (self.known_ids or {}).get(topic) or self._stored_id(topic)
        return self._topic_ids[topic]

    def topics_by_id(self) -> dict[str, str]:
        """Return the names of topics by id: of the cluster metadata, also of a part of it, and of the folders."""
        ids = {self._id_of(one.folder): place[0] for place, ones in self.replicas.items() for one in ones}
        known = topic_names(self.metadata.items()) if self.metadata else {}
        return known | {topic_id: topic for topic_id, topic in ids.items() if topic_id}

    @cached_property
    def metadata(self) -> Effective | None:
        """The effective cluster metadata, None without that log."""
        leader = self.leader((CLUSTER_METADATA, 0))
        if leader is None:
            return None
        return effective(CLUSTER_METADATA, leader.segments, lambda path: partial(self._report, path))

    @cached_property
    def known_ids(self) -> Mapping[str, str] | None:
        """The ids of topics in the cluster metadata by name, None without the whole log."""
        known = self.metadata
        return {name: one for one, name in topic_names(known.items()).items()} if known and known.whole else None

    def _stored_id(self, topic: str) -> str | None:
        written: dict[str, int] = {}
        for replica in self._by_topic.get(topic, ()):
            if one := self._id_of(replica.folder):
                written[one] = max(written.get(one, 0), (stamp_of(replica.segments[-1]) or (0, 0))[1])
        newest = max(written, key=lambda one: written[one], default=None)
        if len(written) > 1:
            file_access.current().warn(
                f"topic {topic}: its folders have the ids {', '.join(sorted(written))}, and no cluster metadata names one: "
                f"{newest} is used, whose log was written last"
            )
        return newest

    def _leader(self, place: Place) -> tuple[PartitionReplica, int] | None:
        """Return the replica that leads, and its log end."""
        if place not in self._leaders:
            replicas = self.replicas.get(place, [])
            if place[0] not in INTERNAL_TOPICS:  # those are read as they were listed, and before the others
                replicas = [found for found in map(listed_again, replicas) if found.segments]
            if place[0] != CLUSTER_METADATA and (topic_id := self.topic_id(place[0])):
                replicas = [one for one in replicas if self._id_of(one.folder) in (None, topic_id)]
            epochs = list(map(leader_epochs, replicas))
            at = max(range(len(replicas)), key=lambda at: epochs[at].order, default=None)
            self._leaders[place] = None if at is None else (replicas[at], epochs[at].log_end)
        return self._leaders[place]

    def _extent(self, replica: PartitionReplica, log_end: int) -> LogExtent:
        folder = replica.folder
        return LogExtent(
            folder,
            log_start(replica, checkpoint_offset(folder, LOG_STARTS)),
            log_end,
            checkpoint_offset(folder, HIGH_WATERMARKS),
            self._id_of(folder),
        )


def listed_again(replica: PartitionReplica) -> PartitionReplica:
    """Return a replica with the segments that its folder has now, none if it is gone.

    A broker rolls the log while the commits are read, and a group commits offsets in the new segment. Of named files and in
    archives nothing changes. Raises UnreadableError.
    """
    folder = replica.folder
    if not replica.listed or local_files.is_in_archive(folder):
        return replica
    try:
        names = local_files.skip_special(folder, sorted(local_files.names_in(folder)))
    except VanishedError:
        names = []
    return replace(replica, segments=[file.path for file in segments_in(folder, names)])


def log_start(replica: PartitionReplica, stored: int | None) -> int:
    """Return the log start of a replica. ``stored`` is that in ``log-start-offset-checkpoint``, None without an entry.

    With tiered storage it is before the first local segment, and the leader epochs begin there, too. Otherwise a broker
    truncates them when it deletes segments, and after a kill the checkpoint can be older than that.
    Sources: ``LogManager.checkpointLogStartOffsetsInDir``, ``UnifiedLog.maybeIncrementLogStartOffset``.
    """
    local = base_offset_of(replica.segments[0]) or 0
    if stored is None or stored >= local:
        return max(stored or 0, local)
    epochs = stored_leader_epochs(replica.folder)
    return stored if epochs and epochs[0].start_offset < local else local


def leader_epochs(replica: PartitionReplica) -> LeaderEpochCache:
    """Return the leader epochs of a replica up to that of its last valid batch, and its log end."""
    ends = (last_valid_batch(path, stored_size(path) or 0) for path in reversed(replica.segments))
    newest = next(ends)
    last = next((end for end in chain([newest], ends) if end.position), newest)  # the newest segment can be empty
    found = LeaderEpochCache(stored_leader_epochs(replica.folder) or (), newest.offset)
    if last.epoch >= 0:
        found.assign(last.epoch, last.offset - 1)
    return found


#: The statuses of a committed offset that a consumer cannot continue from.
OUTSIDE = ("before-log-start", "after-log-end")
#: ``compacted``: the commit at the requested time may be gone, because the cleaner keeps only the last one of a key.
STATUSES = ("ok", *OUTSIDE, "expired", "other-topic-id", "deleted-topic", "missing-partition", "compacted")


@dataclass(frozen=True, slots=True)
class Commit:
    """An effective commit. Times are epoch milliseconds; ``expire_timestamp`` is None for the group's retention.

    ``is_certain`` is False if an earlier state was asked for, and the cleaner may have removed the commit of that time. If
    no earlier one is left, ``offset`` and ``commit_timestamp`` are None.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    metadata: str
    commit_timestamp: int | None
    expire_timestamp: int | None
    topic_id: str | None
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class CommitsRead:
    """The commits of a partition of ``__consumer_offsets``, its findings with their files, and why it was not read.

    ``undecoded`` says which commits have a value that cannot be decoded: they are not among the commits.
    """

    commits: Sequence[Commit] = ()
    findings: Sequence[tuple[str, Finding]] = ()
    unread: str = ""
    undecoded: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A commit, the log of its partition (None if it is missing), and a status of STATUSES.

    ``log_end`` is that of the time of the commits, None if it is unknown: ``log`` is the log now.
    """

    commit: Commit
    log: LogExtent | None
    status: str
    log_end: int | None

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed one to the log end, None if that is unknown."""
        return None if self.log_end is None or self.commit.offset is None else self.log_end - self.commit.offset


def partitions_of(found: LogDirs, topic: str) -> list[PartitionReplica]:
    """Return the replica that leads of each partition of a topic."""
    places = sorted(place for place in found.replicas if place[0] == topic)
    return [leader for place in places if (leader := found.leader(place))]


def read_commits(replica: PartitionReplica, at: Moment | None = None) -> CommitsRead:
    """Read the effective commits of a partition of ``__consumer_offsets``, with ``at`` those of that moment."""
    findings: list[tuple[str, Finding]] = []

    def report_of(path: str) -> Report:
        return lambda finding: findings.append((path, finding))

    try:
        found = effective(CONSUMER_OFFSETS, replica.segments, report_of, at=at)
        until = _cleaned_until(replica.folder) if found.later else 0
    except KsegError as error:
        return CommitsRead(unread=str(error))
    add_progress(sum(local_size(path) or 0 for path in replica.segments))
    cleaned = {place for key, offset in found.later.items() if offset < until and (place := _place_of(key))}
    commits = {
        (item.key["group"], item.key["topic"], item.key["partition"]): commit_of(item.key, item.data)
        for item in found.items()
        if item.entity == OFFSET_COMMIT and not item.pending and "offset" in item.data
    }
    for place in cleaned:  # of most of them only the later commit is left
        known = commits.get(place) or Commit(*place, None, None, "", None, None, None)
        commits[place] = replace(known, is_certain=False)
    undecoded = [_left_out(item) for item in found.items() if item.entity == OFFSET_COMMIT and "fault" in item.data]
    return CommitsRead(list(commits.values()), findings, undecoded=undecoded)


def _cleaned_until(folder: str) -> int:
    """Return the offset before which the cleaner may have removed commits when the segments were read. Call it after that.

    A broker writes the checkpoint after it has cleaned all of a log, and replaces segments before.
    """
    return max(cleaned_before(folder), checkpoint_offset(folder, CLEANER_OFFSETS) or 0)


def commit_of(key: Mapping[str, Any], data: Mapping[str, Any]) -> Commit:
    """Return the commit in the key and the value of a record."""
    expires = data.get("expireTimestamp", -1)
    return Commit(
        key["group"], key["topic"], key["partition"], data["offset"], data.get("leaderEpoch"),
        data.get("metadata") or "", data["commitTimestamp"], expires if expires >= 0 else None, data.get("topicId"),
    )  # fmt: skip


def _left_out(item: Item) -> str:
    place = f"{item.key['topic']}-{item.key['partition']}"
    return f"group {item.key['group']}: the commit of {place} is left out: {item.data['fault']}"


def _place_of(key: bytes | None) -> tuple[str, str, int] | None:
    """Return the group, the topic and the partition in the key of a commit, None for other keys."""
    decoded = decode(CONSUMER_OFFSETS, key, None).key
    data = decoded.data if decoded and entity_of(decoded) == OFFSET_COMMIT else None
    return (data["group"], data["topic"], data["partition"]) if data else None


def lags(found: LogDirs, commits: Iterable[Commit], at: Moment | None = None) -> Iterator[GroupLag]:
    """Yield the lag of each commit, by group, topic and partition. ``at`` is the time of the commits, None for now."""
    now = now_ms()
    moment = now if at is None or at.timestamp is None else at.timestamp

    @cache
    def end_of(place: Place) -> int | None:
        leader = found.leader(place)
        return log_end_at(leader.segments, moment, now) if leader else None

    for commit in sorted(commits, key=lambda commit: (commit.group, commit.topic, commit.partition)):
        one = lag_of(found, commit, moment)
        yield one if at is None else _at_time(one, end_of((commit.topic, commit.partition)))


def _at_time(one: GroupLag, end: int | None) -> GroupLag:
    """Return a lag with the log end of that time. A commit proves that the log had reached it, if it still has it."""
    committed = one.commit.offset or 0
    is_known = one.log is not None and end is not None and committed <= one.log.log_end
    return replace(one, log_end=max(end or 0, committed) if is_known else None)


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def lag_of(found: LogDirs, commit: Commit, at: int) -> GroupLag:
    """Return the lag of a commit. ``at`` is the time in epoch milliseconds at which it can be expired."""
    log = found.extent((commit.topic, commit.partition))
    if log is None and found.is_deleted(commit.topic):
        return GroupLag(commit, None, "deleted-topic", None)
    status = _status(commit, log, found.topic_id(commit.topic), at)
    return GroupLag(commit, log, status, None if log is None else log.log_end)


def _status(commit: Commit, log: LogExtent | None, topic_id: str | None, at: int) -> str:
    if not commit.is_certain or commit.offset is None:
        return "compacted"
    if commit.topic_id and topic_id and commit.topic_id != topic_id:
        return "other-topic-id"
    if commit.expire_timestamp is not None and commit.expire_timestamp <= at:
        return "expired"
    if log is None:
        return "missing-partition"
    if commit.offset > log.log_end:
        return "after-log-end"
    return "before-log-start" if commit.offset < log.log_start else "ok"
