"""``kseg lag`` as a library: committed offsets of consumer groups next to the log ends of their partitions.

The offsets are those that a group coordinator has after loading ``__consumer_offsets``: the last commit of each group and
partition, without tombstones and without commits of transactions that are open or aborted.
Source: ``kafka-consumer-groups --describe``, ``OffsetMetadataManager``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kseg.commands.lag.partitions import LogDirs, LogExtent, Place, Replica, log_end
from kseg.errors import KsegError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.decode import CONSUMER_OFFSETS
from kseg.format.internal_topics.effective import effective
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import local_size

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


def offsets_replicas(found: LogDirs) -> list[Replica]:
    """Return the replica with the highest log end of each partition of ``__consumer_offsets``."""
    places = sorted(place for place in found.replicas if place[0] == CONSUMER_OFFSETS)
    return [max(found.replicas[place], key=log_end) for place in places]


def read_commits(replica: Replica) -> CommitsRead:
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
