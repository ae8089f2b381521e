"""The metadata of remote segments: ``__remote_log_metadata``, the topics of KRaft, and local logs.

Sources: ``RemoteLogSegmentMetadata``, ``RemoteLogSegmentState``, ``TopicBasedRemoteLogMetadataManager`` (KIP-405).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, Finding, Severity
from kseg.format.internal_topics.decode import CLUSTER_METADATA, REMOTE_LOG_METADATA
from kseg.format.internal_topics.effective_state import Effective, effective, topic_names
from kseg.format.internal_topics.state import DELETE_STATES, SEGMENT_STATES, Item
from kseg.format.sidefiles.checkpoints import LEADER_EPOCHS, walk_leader_epochs, walk_offset_checkpoint
from kseg.format.storage import local_files
from kseg.format.storage.naming import base_offset_of, is_log, is_snapshot, partition_of
from kseg.format.storage.source import open_source, path_in, walk_folders

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, _ = SEGMENT_STATES
_LOG_STARTS = "log-start-offset-checkpoint"


class RemotePlace(NamedTuple):
    """A partition of a topic id."""

    topic_id: str
    partition: int


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

    ``tiered`` are the topics with ``remote.storage.enable``. ``faults`` say why records can be missing.
    """

    segments: dict[str, KnownSegment] = field(default_factory=dict)
    deletions: list[tuple[str, RemotePlace, str, int]] = field(default_factory=list)
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
    for name in sorted(copies):
        state = _state(name.rpartition("-")[0], copies[name][1], found.faults)
        if state is None:
            continue
        items = [item for item in state.items() if not item.pending]
        if name.startswith(CLUSTER_METADATA):
            found.topics = topic_names(items)
        for item in items:
            _add(found, item)
    if not any(name.startswith(REMOTE_LOG_METADATA) for name in copies):
        raise UnreadableError(f"{path}: no partition of {REMOTE_LOG_METADATA} found: give a broker's log directory")
    return found


def _newest(folder: os.PathLike[str], names: Sequence[str]) -> tuple[str, int]:
    last = max(filter(is_log, names))
    return last, local_files.status(os.path.join(folder, last)).st_size


def _state(topic: str, folder: str, faults: list[str]) -> Effective | None:
    """Return the effective state of a partition, None if it cannot be read. Damage is added to ``faults``."""

    def report(finding: Finding) -> None:
        if RULES[finding.rule].severity is Severity.ERROR:
            faults.append(f"{folder}: {finding.rule} at byte {finding.position}: its records are missing")

    names = sorted(name for name in local_files.names_in(folder) if is_log(name) or is_snapshot(name))
    try:
        return effective(topic, [path_in(folder, name) for name in names], lambda _: report)
    except KsegError as error:
        faults.append(str(error))
        return None


def _add(found: ClusterMetadata, item: Item) -> None:
    key, data = item.key, item.data
    if item.entity == "remote segment":
        parent, segment_id = key["remoteLogSegmentId"]["topicIdPartition"], key["remoteLogSegmentId"]["id"]
        found.segments[segment_id] = KnownSegment(
            parent["name"],
            RemotePlace(parent["id"], parent["partition"]),
            segment_id,
            dict(enumerate(SEGMENT_STATES)).get(data["remoteLogSegmentState"], str(data["remoteLogSegmentState"])),
            data["startOffset"],
            data["endOffset"],
            data["segmentSizeInBytes"],
            tuple((one["leaderEpoch"], one["offset"]) for one in data["segmentLeaderEpochs"]),
            data["eventTimestampMs"],
        )
    elif item.entity == "config" and key["name"] == "remote.storage.enable" and data["value"] == "true":
        found.tiered.add(key["resourceName"])
    elif item.entity == "remote partition":
        parent = key["topicIdPartition"]
        state = dict(enumerate(DELETE_STATES)).get(data["remotePartitionDeleteState"], "")
        place = RemotePlace(parent["id"], parent["partition"])
        found.deletions.append((parent["name"], place, state, data["eventTimestampMs"]))


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
                starts[home] = _log_starts(path_in(home, _LOG_STARTS))
            log = LocalLog(str(folder), starts[home].get(folder.name), min(bases), _epochs(folder, names))
            found.setdefault(folder.name, []).append(log)
    return found


def _epochs(folder: os.PathLike[str], names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    if LEADER_EPOCHS not in names:
        return ()
    with open_source(os.path.join(folder, LEADER_EPOCHS), listed=True) as source:
        return tuple((entry.epoch, entry.start_offset) for _, entry in walk_leader_epochs(source, lambda _: None))


def _log_starts(path: str) -> dict[str, int]:
    """Return the log starts by partition name in the checkpoint of a log directory; none without it."""
    if not local_files.is_file(path):
        return {}
    with open_source(path, listed=True) as source:
        entries = [entry for _, entry in walk_offset_checkpoint(source, lambda _: None)]
        return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}
