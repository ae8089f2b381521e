"""The metadata of remote segments: ``__remote_log_metadata``, the topics of KRaft, and local logs.

Sources: ``RemoteLogSegmentMetadata``, ``RemoteLogSegmentState``, ``TopicBasedRemoteLogMetadataManager`` (KIP-405).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kseg.commands.tier.remote_segments import RemotePlace
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
from kseg.format.storage.naming import CLUSTER_METADATA, LEADER_EPOCHS, LOG_STARTS, base_offset_of, is_log, partition_of
from kseg.format.storage.segment_files import path_in, walk_folders
from kseg.format.storage.source import Source, open_source

_Entry = TypeVar("_Entry")

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
    epochs: tuple[tuple[int, int], ...]
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
    epochs: tuple[tuple[int, int], ...]


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
