"""Remote segments as the cluster has them: in its metadata, and next to its local logs.

The metadata is the topic ``__remote_log_metadata``, and the topics of KRaft.

Sources: KIP-405; ``RemoteLogSegmentMetadata``, ``RemoteLogSegmentState``, ``TopicBasedRemoteLogMetadataManager``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kseg.commands.tier.remote_segments import NO_END, EpochStart, RemotePlace, ranges_in
from kseg.errors import KsegError, UnreadableError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.decode import decoded_record
from kseg.format.internal_topics.effective_state import effective, topic_names
from kseg.format.internal_topics.metadata_loading import state_files
from kseg.format.internal_topics.state import DELETE_STATES, SEGMENT_STATES
from kseg.format.messages.message_reader import jsonable
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.sidefiles.checkpoints import HARMLESS, walk_leader_epochs, walk_offset_checkpoint
from kseg.format.sidefiles.log_end import copy_order
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.sidefiles.side_file_reading import Walk, entries_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    LEADER_EPOCHS,
    LOG_STARTS,
    REMOTE_LOG_METADATA,
    base_offset_of,
    is_log,
    partition_of,
)
from kseg.format.storage.segment_files import path_in, walk_folders
from kseg.format.storage.source import open_source

_Entry = TypeVar("_Entry")

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = SEGMENT_STATES
#: The most numbers of missing partitions in a line.
_MOST_NUMBERS = 5


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A segment as the metadata has it. ``epochs`` are (leader epoch, first offset); ``end`` is the last offset."""

    topic: str
    place: RemotePlace
    segment_id: str
    state: str
    start: int
    end: int
    size: int
    epochs: tuple[EpochStart, ...]
    changed_ms: int


@dataclass(slots=True)
class ClusterMetadata:
    """The remote segments by id, the partitions being deleted, and the topics of KRaft by id, None without its log.

    ``deletions`` are the times of the last change by partition, ``deleted`` the ranges of offsets that the cluster has
    deleted from the tier. ``tiered`` are the topics with ``remote.storage.enable``. ``faults`` say why records can miss.

    ``partitions`` is how many partitions ``__remote_log_metadata`` has, None if unknown, and ``whole`` are those without a
    fault. ``sources`` has the one that has the records of a partition.
    """

    segments: dict[str, KnownSegment] = field(default_factory=dict)
    deletions: dict[RemotePlace, int] = field(default_factory=dict)
    deleted: dict[RemotePlace, list[tuple[int, int]]] = field(default_factory=dict)
    topics: dict[str, str] | None = None
    tiered: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    partitions: int | None = None
    whole: set[int] = field(default_factory=set)
    sources: dict[RemotePlace, int] = field(default_factory=dict)

    def has_all_of(self, place: RemotePlace) -> bool:
        """Return whether no record of a partition can be missing: one partition of the metadata has all of them.

        Source: ``RemoteLogMetadataTopicPartitioner``.
        """
        if place in self.sources:
            return self.sources[place] in self.whole
        return self.partitions is not None and self.whole >= set(range(self.partitions))


def read_cluster_metadata(path: str) -> ClusterMetadata:
    """Read the metadata partitions in a folder, or one of them. Of several copies the newest one counts.

    Cluster metadata that is damaged or lacks its start is a fault, and says nothing about topics. Raises UnreadableError
    without a partition of ``__remote_log_metadata``.
    """
    found = ClusterMetadata()
    copies: defaultdict[tuple[str, int], dict[str, tuple[int, int]]] = defaultdict(dict)
    for folder, names in walk_folders(path, lambda name: found.faults.append(f"{name}: cannot be listed")):
        named = partition_of(folder.name)
        if named and named.topic in _TOPICS and not named.state and any(map(is_log, names)):
            copies[named[:2]][str(folder)] = _order_of(str(folder), found.faults)
    numbers = {number for topic, number in copies if topic == REMOTE_LOG_METADATA}
    if not numbers:
        raise UnreadableError(f"{path}: no partition of {REMOTE_LOG_METADATA} found: give a broker's log directory")
    for (topic, number), orders in sorted(copies.items()):
        folder_path = max(orders, key=lambda one: orders[one])
        known = len(found.faults)
        try:
            _TOPICS[topic](found, folder_path, number)
        except KsegError as error:
            found.faults.append(str(error))
        if topic == REMOTE_LOG_METADATA and len(found.faults) == known:
            found.whole.add(number)
    found.faults = [*dict.fromkeys(found.faults)]  # a copy with a read error was read twice
    _check_numbers(found, path, numbers)
    return found


def _check_numbers(found: ClusterMetadata, path: str, numbers: Collection[int]) -> None:
    """Add a fault for partitions of ``__remote_log_metadata`` that are not there."""
    expected = max(numbers) + 1 if found.partitions is None else found.partitions
    lacking = [str(number) for number in range(expected) if number not in numbers]
    if lacking:
        some = ", ".join(lacking[:_MOST_NUMBERS]) + ", …" * (len(lacking) > _MOST_NUMBERS)
        found.faults.append(
            f"{path}: of {expected:,} partitions of {REMOTE_LOG_METADATA} {len(lacking):,} are not there, {some}: give a "
            "folder with the log directories of all brokers"
        )


def _order_of(folder: str, faults: list[str]) -> tuple[int, int]:
    """Return the order of a copy; one that cannot be read is a fault, and used only if it is the only one."""
    try:
        return copy_order(folder)
    except KsegError as error:
        faults.append(str(error))
        return -1, -1


def _reporter(found: ClusterMetadata, folder: str) -> Report:
    """Return the callback that adds damage to the faults."""

    def report(finding: Finding) -> None:
        if finding.is_error:
            found.faults.append(f"{folder}: {finding.rule} at byte {finding.position}: its records are missing")

    return report


def _read_topics(found: ClusterMetadata, folder: str, number: int) -> None:
    """Read the topics of a metadata log, unless its state lacks records. Raises KsegError."""
    state = effective(CLUSTER_METADATA, state_files(folder), lambda _: _reporter(found, folder))
    if not state.whole:
        return
    items = [item for item in state.items() if not item.pending]
    found.topics = topic_names(items)
    numbered = [found.topics.get(item.key["topicId"]) for item in items if item.entity == "partition"]
    found.partitions = numbered.count(REMOTE_LOG_METADATA) or None
    for item in items:
        if item.entity == "config" and item.key["name"] == "remote.storage.enable" and item.data["value"] == "true":
            found.tiered.add(item.key["resourceName"])


def _read_segments(found: ClusterMetadata, folder: str, number: int) -> None:
    """Apply the records of partition ``number`` of ``__remote_log_metadata``. Raises KsegError.

    The topic is not compacted, and keeps its records forever unless someone changes that: offsets that are missing are lost
    records. The first fault of a partition says that it is not whole.
    """
    end, known, report = 0, len(found.faults), _reporter(found, folder)

    def fault(why: str) -> None:
        if len(found.faults) == known:
            found.faults.append(f"{folder}: {why}: records of segments are missing")

    for name in sorted(filter(is_log, local_files.names_in(folder))):
        if (start := base_offset_of(name) or 0) > end:
            fault(f"no batch has offsets {end:,} to {start - 1:,}")
        for chunk in chunks_of(open_source(path_in(folder, name), listed=True), report):
            for row in range(chunk.first, chunk.stop):
                if (start := chunk.batches.base_offset[row]) > end:
                    fault(f"no batch has offsets {end:,} to {start - 1:,}")
                end = chunk.batches.last_offset[row] + 1
                for i in chunk.rows(row) if chunk.batches.record_total[row] else ():
                    record = decoded_record(REMOTE_LOG_METADATA, chunk, i)
                    if record and record.fault:
                        fault(f"the record at offset {chunk.lists.offset[i]:,}: {record.fault}")
                    if record and record.value and record.value.data is not None:
                        _apply(found, record.value.name or "", jsonable(record.value.data), number)


#: Topic -> what applies one of its partitions.
_TOPICS: dict[str, Callable[[ClusterMetadata, str, int], None]] = {
    CLUSTER_METADATA: _read_topics,
    REMOTE_LOG_METADATA: _read_segments,
}


def _apply(found: ClusterMetadata, name: str, data: dict[str, Any], number: int) -> None:
    """Apply a record as ``RemoteLogMetadataCache`` does: an update of an unknown segment is ignored."""
    if name == "RemotePartitionDeleteMetadata":
        place = _place(data["topicIdPartition"])
        found.sources[place] = number
        found.deletions[place] = data["eventTimestampMs"]
        if data["remotePartitionDeleteState"] == len(DELETE_STATES) - 1:
            del found.deletions[place]
            for one in [one for one in found.segments.values() if one.place == place]:
                del found.segments[one.segment_id]
        return
    segment_id, state = data["remoteLogSegmentId"]["id"], _name_of(data["remoteLogSegmentState"])
    found.sources[_place(data["remoteLogSegmentId"]["topicIdPartition"])] = number
    if name == "RemoteLogSegmentMetadata":
        parent = data["remoteLogSegmentId"]["topicIdPartition"]
        epochs = tuple((one["leaderEpoch"], one["offset"]) for one in data["segmentLeaderEpochs"])
        found.segments[segment_id] = KnownSegment(
            sys.intern(parent["name"]), _place(parent), segment_id, state, data["startOffset"], data["endOffset"],
            data["segmentSizeInBytes"], epochs, data["eventTimestampMs"],
        )  # fmt: skip
    elif known := found.segments.get(segment_id):
        found.segments[segment_id] = replace(known, state=state, changed_ms=data["eventTimestampMs"])
    if state == DELETE_FINISHED and (gone := found.segments.pop(segment_id, None)):
        ranges = found.deleted.setdefault(gone.place, [])
        if ranges and ranges[-1][0] <= gone.start <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], gone.end)
        else:
            ranges.append((gone.start, gone.end))


def _place(parent: dict[str, Any]) -> RemotePlace:
    return RemotePlace(sys.intern(parent["id"]), parent["partition"])


def _name_of(state: int) -> str:
    return SEGMENT_STATES[state] if 0 <= state < len(SEGMENT_STATES) else str(state)


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A local replica: its log start and its first local offset, and the (epoch, first offset) of its lineage.

    ``topic_id`` is None if it is not known.
    """

    folder: str
    log_start: int | None
    local_start: int
    epochs: tuple[EpochStart, ...]
    topic_id: str | None = None


def read_local_logs(log_dirs: Sequence[str], faults: list[str]) -> dict[str, list[LocalLog]]:
    """Return the replicas in log directories by partition name. Damage in their checkpoints is added to the faults.

    Raises UnreadableError.
    """
    found: dict[str, list[LocalLog]] = {}
    for log_dir in log_dirs:
        starts: dict[str, dict[str, int]] = {}
        for folder, names in walk_folders(log_dir, lambda name: faults.append(f"{name}: cannot be listed")):
            bases = [base for name in names if is_log(name) and (base := base_offset_of(name)) is not None]
            named = partition_of(folder.name)
            if not bases or named is None or named.state:
                continue
            home = str(folder.parent)
            if home not in starts:
                entries = _entries(path_in(home, LOG_STARTS), walk_offset_checkpoint, faults)
                starts[home] = {f"{one.topic}-{one.partition}": one.offset for one in entries}
            epochs = tuple(_entries(str(folder / LEADER_EPOCHS), walk_leader_epochs, faults))
            topic_id = topic_id_of(str(folder))
            log = LocalLog(str(folder), starts[home].get(folder.name), min(bases), epochs, topic_id)
            found.setdefault(folder.name, []).append(log)
    return found


def with_last_start(logs: Sequence[LocalLog]) -> list[LocalLog] | list[None]:
    """Return replicas with the log start of the partition: the last one that a checkpoint has. [None] without replicas."""
    start = max((log.log_start for log in logs if log.log_start is not None), default=None)
    return [replace(log, log_start=start) for log in logs] or [None]


def _entries(path: str, walk: Walk[_Entry], faults: list[str]) -> list[_Entry]:
    """Return the entries of a checkpoint; none without the file, or if a broker rejects it. Raises UnreadableError."""
    try:
        return entries_of(path, walk, HARMLESS) if local_files.is_file(path) else []
    except ValueError as error:
        faults.append(f"{path}: {error}")
        return []


def holes(
    segments: Iterable[KnownSegment], log: LocalLog | None, deleted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets that consumers cannot read from the tier, both ends inclusive.

    An offset is read from a segment that has it in the leader epoch of the local lineage. Without a local log each epoch
    counts, and only offsets between segments can be missing. Ranges that the cluster has ``deleted`` are not holes: the log
    start is after them, but its checkpoint is a minute old while a broker runs.
    """
    lineage = log.epochs if log else ()
    ranges = [found for one in segments for found in ranges_in(one.epochs, one.end, lineage or one.epochs)]
    if log is not None:
        ranges += deleted
    if log is not None and not (log.log_start is None and not ranges):  # otherwise it is not known to be tiered
        ranges.append((log.local_start, NO_END))
    ranges.sort()
    at = ranges[0][0] if ranges else 0
    if log and log.log_start is not None:
        # A broker cuts the lineage at the log start at once.
        at = max(log.log_start, min((first for _, first in lineage), default=0))
    for first, last in ranges:
        if first > at:
            yield at, first - 1
        at = max(at, last + 1)
