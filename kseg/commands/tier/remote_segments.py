"""Remote segments: in the bucket of tiered storage by the names of their objects, and as the cluster's metadata has them.

A lineage is a list of (leader epoch, first offset), as in ``leader-epoch-checkpoint``. An offset is written by the leader of
one epoch only, so two logs have the same records up to the offset at which their lineages differ. The metadata is the topic
``__remote_log_metadata``, the topics of KRaft, and what local logs have.

Sources: KIP-101, KIP-405, ``RemoteLogSegmentFileset``, ``RemoteLogLeaderEpochState`` and
``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`` of Kafka, ``ObjectKeyFactory`` of Aiven's plugin;
``RemoteLogSegmentMetadata``, ``RemoteLogSegmentState``, ``TopicBasedRemoteLogMetadataManager``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, Finding, Report, Severity
from kseg.format.internal_topics.decode import REMOTE_LOG_METADATA, decoded_record
from kseg.format.internal_topics.effective_state import effective, state_files, topic_names
from kseg.format.internal_topics.state import DELETE_STATES, SEGMENT_STATES
from kseg.format.messages.message_reader import jsonable
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import walk_leader_epochs, walk_offset_checkpoint
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    LEADER_EPOCHS,
    LOG_STARTS,
    base_offset_of,
    is_log,
    partition_of,
    remote_name,
    remote_partition_of,
    tiered_view,
)
from kseg.format.storage.segment_files import check_complete, folders_at, path_in, walk_folders
from kseg.format.storage.source import Source, open_source

_Entry = TypeVar("_Entry")

LOG = ".log"


class RemotePlace(NamedTuple):
    """A partition of a topic id."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in remote storage. ``files`` are the names of its objects, or of its decoded files, by suffix."""

    topic: str
    topic_id: str
    partition: int
    base: int
    segment_id: str
    folder: str
    files: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the partition, such as ``orders-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def place(self) -> RemotePlace:
        """The partition under its topic id."""
        return RemotePlace(self.topic_id, self.partition)

    def path(self, suffix: str) -> str:
        """Return the path or URL of one of its files."""
        return path_in(self.folder, self.files[suffix])


def remote_segments(path: str, *, decoded: bool) -> Iterator[RemoteSegment]:
    """Yield the segments of a bucket, of a folder in it, or of the folder of one partition.

    ``decoded``: those of Aiven's plugin have the files of their decoded view, otherwise their objects. Raises
    UnreadableError, also if a folder cannot be listed: its segments would be taken as missing.
    """
    folders = folders_at(path, _fail, decoded=decoded)
    if folders is None:
        raise UnreadableError(f"{path}: expected a folder with the objects of tiered storage")
    for folder, names in folders:
        name = os.path.basename(tiered_view(folder) or folder)
        place = remote_partition_of(name)
        if place is not None:
            yield from _segments_of(folder, names, place.topic, name[-22:], place.partition)
    check_complete(path)


def _fail(folder: str) -> NoReturn:
    local_files.names_in(folder)  # its error has the reason
    raise UnreadableError(f"{folder}: the folder cannot be listed")


def _segments_of(folder: str, names: list[str], topic: str, topic_id: str, partition: int) -> Iterator[RemoteSegment]:
    found: dict[tuple[int, str], dict[str, str]] = {}
    for name in names:
        if parts := remote_name(name):
            found.setdefault((parts.base, parts.segment_id), {})[parts.suffix] = name
    for (base, segment_id), files in found.items():
        yield RemoteSegment(topic, topic_id, partition, base, segment_id, folder, files)


#: An epoch, and the first offset that its leader wrote.
EpochStart = tuple[int, int]
#: An offset after all others.
NO_END = 1 << 63


def epoch_ranges(epochs: Sequence[EpochStart], end: int) -> list[tuple[int, int, int]]:
    """Return (epoch, first, last offset) for the epochs of a segment or a log that ends at ``end``, its last offset."""
    ordered = sorted(epochs)
    ends = [first - 1 for _, first in ordered[1:]] + [end] * bool(ordered)
    return [(epoch, first, min(last, end)) for (epoch, first), last in zip(ordered, ends, strict=True)]


def epochs_within(epochs: Sequence[EpochStart], start: int, end: int) -> list[EpochStart]:
    """Return the epochs of a segment with offsets ``start`` to ``end``, inclusive, from those of its log."""
    ranges = epoch_ranges(epochs, end)
    return [(epoch, max(first, start)) for epoch, first, last in ranges if last >= max(first, start)]


def ranges_in(epochs: Sequence[EpochStart], end: int, lineage: Sequence[EpochStart]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets of a segment that ends at ``end`` and are in a lineage, both ends inclusive, by epoch."""
    valid = {epoch: (first, last) for epoch, first, last in epoch_ranges(lineage, NO_END)}
    for epoch, first, last in epoch_ranges(epochs, end):
        begin, stop = valid.get(epoch, (0, -1))
        if max(first, begin) <= min(last, stop):
            yield max(first, begin), min(last, stop)


def newest_lineage(lineages: Iterable[tuple[Sequence[EpochStart], int]]) -> list[EpochStart]:
    """Return the lineage with the newest leader epoch, from (lineage, log end offset) of several segments.

    A broker removes the epochs before the log start. Those of other segments complete it at its start.
    """
    found: list[EpochStart] = []
    known = [(epochs[-1][0], end, epochs) for epochs, end in lineages if epochs]
    for _, _, epochs in sorted(known, key=lambda one: one[:2], reverse=True):
        for epoch, first in reversed(epochs):
            if found and epoch == found[0][0]:
                found[0] = epoch, min(first, found[0][1])
            elif not found or (epoch < found[0][0] and first < found[0][1]):
                found.insert(0, (epoch, first))
    return found


COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = SEGMENT_STATES


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
    """

    segments: dict[str, KnownSegment] = field(default_factory=dict)
    deletions: dict[RemotePlace, int] = field(default_factory=dict)
    deleted: dict[RemotePlace, list[tuple[int, int]]] = field(default_factory=dict)
    topics: dict[str, str] | None = None
    tiered: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def read_cluster_metadata(path: str) -> ClusterMetadata:
    """Read the metadata partitions in a folder, or one of them. Of several copies the newest one counts.

    Raises UnreadableError without a partition of ``__remote_log_metadata``.
    """
    found = ClusterMetadata()
    copies: dict[str, tuple[tuple[str, int], str]] = {}
    for folder, names in walk_folders(path, lambda name: found.faults.append(f"{name}: cannot be listed")):
        named = partition_of(folder.name)
        if named and named.topic in (REMOTE_LOG_METADATA, CLUSTER_METADATA) and any(map(is_log, names)):
            copies[folder.name] = max(copies.get(folder.name, (("", 0), "")), (_newest(folder, names), str(folder)))
    if not any(name.startswith(REMOTE_LOG_METADATA) for name in copies):
        raise UnreadableError(f"{path}: no partition of {REMOTE_LOG_METADATA} found: give a broker's log directory")
    for name in sorted(copies):
        read = _read_topics if name.startswith(CLUSTER_METADATA) else _read_segments
        try:
            read(found, copies[name][1])
        except KsegError as error:
            found.faults.append(str(error))
    return found


def _newest(folder: os.PathLike[str], names: Sequence[str]) -> tuple[str, int]:
    last = max(filter(is_log, names))
    return last, local_files.status(os.path.join(folder, last)).st_size


def _reporter(found: ClusterMetadata, folder: str) -> Report:
    """Return the callback that adds damage to the faults."""

    def report(finding: Finding) -> None:
        if RULES[finding.rule].severity is Severity.ERROR:
            found.faults.append(f"{folder}: {finding.rule} at byte {finding.position}: its records are missing")

    return report


def _read_topics(found: ClusterMetadata, folder: str) -> None:
    """Read the topics of a metadata log. Raises KsegError."""
    state = effective(CLUSTER_METADATA, state_files(folder), lambda _: _reporter(found, folder))
    items = [item for item in state.items() if not item.pending]
    found.topics = topic_names(items)
    for item in items:
        if item.entity == "config" and item.key["name"] == "remote.storage.enable" and item.data["value"] == "true":
            found.tiered.add(item.key["resourceName"])


def _read_segments(found: ClusterMetadata, folder: str) -> None:
    """Apply the records of a partition of ``__remote_log_metadata``. Raises KsegError."""
    opener = DeepIterator(report := _reporter(found, folder))
    for name in sorted(filter(is_log, local_files.names_in(folder))):
        with SegmentReader(open_source(path_in(folder, name), listed=True), report=report) as reader:
            for window in reader.windows():
                for chunk in opener.chunks(window):
                    for row in range(chunk.first, chunk.stop):
                        for i in chunk.rows(row) if chunk.batches.record_total[row] else ():
                            record = decoded_record(REMOTE_LOG_METADATA, chunk, i)
                            if record and record.value and record.value.data is not None:
                                _apply(found, record.value.name or "", jsonable(record.value.data))


def _apply(found: ClusterMetadata, name: str, data: dict[str, Any]) -> None:
    """Apply a record as ``RemoteLogMetadataCache`` does: an update of an unknown segment is ignored."""
    if name == "RemotePartitionDeleteMetadata":
        place = _place(data["topicIdPartition"])
        found.deletions[place] = data["eventTimestampMs"]
        if data["remotePartitionDeleteState"] == len(DELETE_STATES) - 1:
            del found.deletions[place]
            for one in [one for one in found.segments.values() if one.place == place]:
                del found.segments[one.segment_id]
        return
    segment_id, state = data["remoteLogSegmentId"]["id"], _name_of(data["remoteLogSegmentState"])
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
    """A local replica: its log start and its first local offset, and the (epoch, first offset) of its lineage."""

    folder: str
    log_start: int | None
    local_start: int
    epochs: tuple[EpochStart, ...]


def read_local_logs(log_dirs: Sequence[str], faults: list[str]) -> dict[str, list[LocalLog]]:
    """Return the replicas in log directories by partition name."""
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
                entries = _entries(path_in(home, LOG_STARTS), walk_offset_checkpoint)
                starts[home] = {f"{one.topic}-{one.partition}": one.offset for one in entries}
            epochs = tuple(_entries(str(folder / LEADER_EPOCHS), walk_leader_epochs))
            log = LocalLog(str(folder), starts[home].get(folder.name), min(bases), epochs)
            found.setdefault(folder.name, []).append(log)
    return found


def _entries(path: str, walk: Callable[[Source], Iterator[tuple[int, _Entry]]]) -> list[_Entry]:
    """Return the entries of a checkpoint that can be read; none without the file."""
    if not local_files.is_file(path):
        return []
    with open_source(path, listed=True) as source:
        return [entry for _, entry in walk(source)]


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
