"""The log directories that a cluster is made of, and the replicas in them.

A broker's own start decides what a replica has: its log end and its leader epochs are those of the plan of recovery.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from kseg.errors import NotASegmentError, UnreadableError, UsageError
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.log_dir_start import read_identity, starts_of
from kseg.format.log_loader.plan import FAILURES, PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.checkpoints import known_leader_epochs
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.sidefiles.metadata_files import MetaProperties, stored_topic_id
from kseg.format.sidefiles.producer_snapshot import walk_snapshot
from kseg.format.sidefiles.side_file_reading import entries_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    META_PROPERTIES,
    REMOTE_INDEX_CACHE,
    Partition,
    is_in_use,
    is_log,
    is_topic_name,
    partition_of,
    producer_snapshot_offset,
)
from kseg.format.storage.segment_files import check_exists, check_single_log_dir
from kseg.format.storage.source import open_range

#: The states of folders that only ``--deleted`` adopts.
DELETED_STATES = ("-delete", "-stray")
#: Folders without data: that of the file system itself, and one that a broker makes again.
_NO_DATA = ("lost+found", REMOTE_INDEX_CACHE)


@dataclass(frozen=True, slots=True)
class Disk:
    """A log directory: the node that it belongs to, its path, and its directory id."""

    node: int
    path: str
    directory_id: str


@dataclass(frozen=True)
class AdoptedReplica:
    """A folder of a partition on a disk. ``topic_id`` is that of its ``partition.metadata``, None without one."""

    disk: Disk
    folder: str
    partition: Partition
    topic_id: str | None
    plan: PartitionPlan

    @property
    def path(self) -> str:
        """The path of the folder."""
        return os.path.join(self.disk.path, self.folder)

    @property
    def log_end(self) -> int:
        """The offset after its last record, once a broker has loaded it."""
        return self.plan.log_end or 0

    @property
    def log_start(self) -> int:
        """The offset of its first record."""
        return self.plan.log_start or 0

    @cached_property
    def epoch(self) -> int:
        """The leader epoch of its last batch, or of its checkpoint if that is higher; -1 for none."""
        return max(self._tail[0], *(epoch for epoch, _ in self.plan.epochs), -1)

    @property
    def known_epoch(self) -> int:
        """The highest leader epoch that clients can know: a start drops one without records, but its leader had it."""
        return max(self.epoch, *(entry.epoch for entry in known_leader_epochs(self.path)), -1)

    @property
    def last_timestamp(self) -> int:
        """The highest timestamp at the end of its log, -1 for none."""
        return self._tail[2]

    @cached_property
    def last_producer_id(self) -> int:
        """The highest producer id in its newest producer snapshot and at the end of its log, -1 for none."""
        found = [self._tail[1], -1]
        names = self._files(".snapshot")
        newest = max((name for name in names if producer_snapshot_offset(name) is not None), default=None)
        if newest is not None:
            with suppress(ValueError):  # a damaged snapshot, not one that cannot be read
                found += [one.producer_id for one in entries_of(os.path.join(self.path, newest), walk_snapshot)]
        return max(found)

    @cached_property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """The ranges (first, end) of offsets after the last valid batch of a segment, before the next one or the log end.

        After a clean shutdown a broker takes the last batch for the log end, and does not check its CRC.
        """
        found = []
        ends = [*(base for base, _ in self.plan.segments[1:]), self.log_end]
        for (base, size), following in zip(self.plan.segments, ends, strict=False):
            path = os.path.join(self.path, f"{base:020}.log")
            if local_files.exists(path):  # else a broker makes it of a .swap
                end = max(last_valid_batch(path, size).offset, self.log_start)
                found += [(end, following)] if end < following else []
        return tuple(found)

    @property
    def readable_end(self) -> int:
        """The offset after the last record that a consumer can read, at most the log end."""
        return self.holes[-1][0] if self.holes and self.holes[-1][1] == self.log_end else self.log_end

    def missing(self, other: AdoptedReplica, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges (first, end) below ``end`` that this replica does not have, and the other one has."""
        for first, stop in ((0, self.log_start), *self.holes):
            at, stop = max(first, other.log_start), min(stop, end)
            for hole, hole_end in (*other.holes, (stop, stop)):
                if at < min(hole, stop):
                    yield at, min(hole, stop)
                at = max(at, hole_end)

    @property
    def order(self) -> tuple[int, int, int, int, int]:
        """Replicas in the order in which they can lead: the last epoch, the end, the offsets, no more after the end, and
        the readable records.

        Followers delete the offsets before the leader's log start, and never fetch offsets that it does not have.
        """
        offsets = self.log_end - self.log_start - sum(end - first for first, end in self.holes)
        return self.epoch, self.readable_end, offsets, self.readable_end - self.log_end, -self.plan.lost.records

    @property
    def refused(self) -> str | None:
        """Why no broker would load the folder, None if it would."""
        steps = (step for step in self.plan.steps if step.action in FAILURES)
        return next((f"{step.file}: {step.why}" for step in steps), None)

    @cached_property
    def _tail(self) -> tuple[int, int, int]:
        """The highest leader epoch, producer id and timestamp of the last batches.

        They are those after the last entry of the index of the newest segment that has bytes.
        """
        newest = max((name for name in self._files(".log") if is_log(name) and self._size(name)), default=None)
        epoch = producer_id = timestamp = -1
        if newest is None:
            return epoch, producer_id, timestamp
        path, size = os.path.join(self.path, newest), self._size(newest)
        entry = index_reader.last_entry(path, size, below=INT64_MAX, before=INT64_MAX)
        with (
            suppress(NotASegmentError),
            SegmentReader(open_range(path, entry.log_position if entry else 0, size)) as reader,
        ):
            for window in reader.windows():
                rows = window.batches
                for row in range(rows.count):
                    timestamp = max(timestamp, rows.max_timestamp[row])
                    if rows.magic[row] >= 2:
                        epoch = max(epoch, rows.partition_leader_epoch[row])
                        producer_id = max(producer_id, rows.producer_id[row])
        return epoch, producer_id, timestamp

    def _size(self, name: str) -> int:
        return dict(self.plan.files).get(name, 0)

    @property
    def logs(self) -> list[str]:
        """The paths of its segments in offset order."""
        return [os.path.join(self.path, name) for name in sorted(filter(is_log, self._files(".log")))]

    def _files(self, suffix: str) -> list[str]:
        """Return the names with a suffix. The plan also has files that a broker would write."""
        names = (name for name, _ in self.plan.files if name.endswith(suffix))
        return [name for name in names if local_files.exists(os.path.join(self.path, name))]


def random_id() -> str:
    """Return a new id as Kafka prints one: 22 characters, not beginning with a dash (``Uuid.randomUuid``)."""
    while (found := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22]).startswith("-"):
        pass
    return found


def disks_of(paths: Iterable[str], nodes: Mapping[str, int]) -> list[Disk]:
    """Return the disks of log directories. ``nodes`` has the nodes of those that the user named, by path.

    Raises UsageError if the node of one is not known, if one is used by a broker, or if two are the same.
    """
    disks: list[Disk] = []
    for path in dict.fromkeys(map(os.path.normpath, (*paths, *nodes))):
        _check_is_log_dir(path)
        if is_in_use(path):
            raise UsageError(f"{path}: a broker runs on it: stop it first, a copy of a moving log has no one state")
        identity, why = _identity(path)
        node = nodes.get(path, identity.node_id if identity else None)
        if node is None:
            raise UsageError(f"{path}: no broker starts with its {META_PROPERTIES} ({why}): write --node ID={path}")
        known = identity.directory_id if identity else None
        disks.append(Disk(node, path, known or random_id()))
    _check_different(disks)
    return disks


def _check_is_log_dir(path: str) -> None:
    """Raise UsageError for a folder that is not a log directory: its folders would become topics."""
    check_exists(path)
    if not os.path.isdir(path):
        raise UsageError(f"{path}: expected the folder of a log directory")
    parent = os.path.dirname(os.path.abspath(path))
    if any(map(is_log, local_files.names_in(path))) or (_identity(path)[0] is None and _identity(parent)[0]):
        raise UsageError(f"{path} is a folder of a log directory: give that one, {os.path.dirname(path) or parent}")
    check_single_log_dir(path)


def _identity(path: str) -> tuple[MetaProperties | None, str]:
    """Return the ids of a log directory; or None, and why a broker cannot use them."""
    try:
        return read_identity(path), ""
    except RefusedError as error:
        return None, error.why


def _check_different(disks: Sequence[Disk]) -> None:
    places: dict[str, str] = {}
    ids: dict[str, str] = {}
    for disk in disks:
        for known, key, what in (
            (places, os.path.realpath(disk.path), "folder"),
            (ids, disk.directory_id, "directory.id"),
        ):
            other = known.setdefault(key, disk.path)
            if other != disk.path:
                raise UsageError(f"{disk.path} and {other} have the same {what}: give one of them")


def replicas_of(
    disk: Disk, left_out: list[tuple[str, str]], unread: list[tuple[str, str]], *, deleted: bool
) -> Iterator[AdoptedReplica]:
    """Yield the replicas on a disk, with ``deleted`` those in folders of deleted topics and strays, too.

    ``left_out`` gets the folders that are no replica, with the reason. ``unread`` gets those with a read error: such a
    replica can be the one that must lead. Raises UnreadableError if the disk cannot be read.
    """
    starts = starts_of(disk.path, [], BrokerStart())
    for name in sorted(name for name, kind in local_files.entries(disk.path) if kind == "folder"):
        partition = partition_of(name)
        path = os.path.join(disk.path, name)
        if partition is None:
            if name not in _NO_DATA and not name.startswith("."):
                left_out.append((path, "its name is not that of a partition: TOPIC-NUMBER"))
            continue
        if partition.topic == CLUSTER_METADATA:
            continue
        if not is_topic_name(partition.topic):
            left_out.append((path, "Kafka has no topic of this name: letters, digits, dots, _ and -, at most 249"))
            continue
        if partition.state == "-future":
            left_out.append((path, "a copy for another disk that was not complete"))
            continue
        if partition.state in DELETED_STATES and not deleted:
            what = "its topic was deleted" if partition.state == "-delete" else "no topic had its id"
            left_out.append((path, f"{what}: --deleted brings it back"))
            continue
        try:
            plan = plan_partition(path, starts.of(partition), adopted=True)
            topic_id = stored_topic_id(path)
        except UnreadableError as error:
            why = str(error).removeprefix(path).lstrip("/: ")
            unread.append((path, f"{why}: run again, or leave its folder out"))
            continue
        if not plan.has_segments and partition.state:
            left_out.append((path, "its segments are deleted already"))
            continue
        yield AdoptedReplica(disk, name, partition, topic_id, plan)
