"""Write an adopted cluster: new log directories with copies of the partitions, and the metadata that names them.

The records are in ``bootstrap.checkpoint``: a controller appends them to its metadata log if that is empty
(``ActivationRecordsGenerator.recordsForEmptyLog`` of Kafka 3.9 and later). So topics keep their ids, and no broker renames
a folder to ``-stray``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kseg.commands.adopt.adoption_plan import AdoptedPartition, AdoptedTopic, AdoptionPlan
from kseg.commands.adopt.disks import AdoptedReplica, Disk, random_id
from kseg.commands.adopt.old_metadata import (
    ELR,
    METADATA_VERSION,
    MetadataRecord,
    OldMetadata,
    config_records,
    producer_ids_in,
    write_snapshot,
)
from kseg.errors import UsageError
from kseg.findings import do_nothing
from kseg.format.log_loader.log_dir_start import CHECKPOINTS
from kseg.format.storage import local_files
from kseg.format.storage.atomic_write import NewFile, sync_folder, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import (
    BOOTSTRAP,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    TRANSACTION_STATE,
)
from kseg.format.writer.output_guards import copy_file

_NEW_FEATURES = {"group.version": 1, "transaction.version": 2}
#: Release -> its metadata.version (``MetadataVersion``), and the levels of other features that it starts with.
RELEASES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "3.9": (21, {}),
    "4.0": (25, _NEW_FEATURES),
    "4.1": (27, _NEW_FEATURES),
    "4.2": (29, {**_NEW_FEATURES, "share.version": 1, "streams.version": 1}),
    "4.3": (30, {**_NEW_FEATURES, "share.version": 1, "streams.version": 1}),
}
# Directories of replicas (KIP-858) are part of a partition's record from this metadata.version on.
_LEAST_VERSION = 17
#: Producer ids that are left out: brokers had given out some that no log has. A broker takes 1000 at once.
_SPARE_PRODUCER_IDS = 100_000
_PRODUCER_IDS_PER_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Identity:
    """What the new cluster is called, and the levels of its features."""

    cluster_id: str
    features: Mapping[str, int]

    @classmethod
    def of(cls, cluster_id: str | None, release: str | None, old: OldMetadata) -> Identity:
        """Return the identity with a new id unless one is given, of a release, or else with the old features."""
        features = dict(RELEASES[release][1]) if release else dict(old.features)
        if release:
            features[METADATA_VERSION] = RELEASES[release][0]
        features[METADATA_VERSION] = max(features.get(METADATA_VERSION, RELEASES["3.9"][0]), _LEAST_VERSION)
        return cls(cluster_id or random_id(), {name: level for name, level in features.items() if name != ELR})


@dataclass(frozen=True, slots=True)
class NewDisk:
    """A log directory to write, ``name`` below DST, and the disk that it is a copy of; None for a controller's."""

    node: int
    name: str
    directory_id: str
    source: Disk | None = None


def new_disks(disks: Sequence[Disk], controllers: Sequence[int]) -> list[NewDisk]:
    """Return the log directories of the new cluster: one per disk, and one for each controller without a disk."""
    names: Counter[str] = Counter()
    found = []
    for disk in disks:
        name = os.path.join(f"node-{disk.node}", os.path.basename(os.path.abspath(disk.path)) or "logs")
        names[name] += 1
        found.append(NewDisk(disk.node, name + f"-{names[name]}" * (names[name] > 1), disk.directory_id, disk))
    known = {disk.node for disk in disks}
    alone = [node for node in dict.fromkeys(controllers) if node not in known]
    return found + [NewDisk(node, os.path.join(f"node-{node}", "metadata"), random_id()) for node in alone]


def metadata_records(plan: AdoptionPlan, identity: Identity, old: OldMetadata) -> Iterator[MetadataRecord]:
    """Yield the records of the new cluster's metadata."""
    for name in sorted(identity.features, key=lambda name: name != METADATA_VERSION):
        yield MetadataRecord("FeatureLevelRecord", 0, {"name": name, "featureLevel": identity.features[name]})
    for topic in plan.topics:
        yield MetadataRecord("TopicRecord", 0, {"name": topic.name, "topicId": topic.topic_id})
        yield from config_records(topic.name, topic.configs)
        for partition in topic.partitions:
            yield _partition_record(topic, partition, plan)
    yield from old.others
    yield MetadataRecord(
        "ProducerIdsRecord",
        0,
        {"brokerId": plan.disks[0].node, "brokerEpoch": -1, "nextProducerId": _next_producer_id(plan, old)},
    )


def _partition_record(topic: AdoptedTopic, partition: AdoptedPartition, plan: AdoptionPlan) -> MetadataRecord:
    """Return a partition's record: only the leader is in sync, and the others join it once they have fetched."""
    homes = {disk.node: disk.directory_id for disk in reversed(plan.disks)}
    homes |= {replica.disk.node: replica.disk.directory_id for replica in partition.replicas}
    leader = partition.leader.disk.node if partition.leader else partition.order[0]
    data = {
        "partitionId": partition.number,
        "topicId": topic.topic_id,
        "replicas": list(partition.order),
        "isr": [leader],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": 0,
        "directories": [homes[node] for node in partition.order],
    }
    return MetadataRecord("PartitionRecord", 1, data)


def _next_producer_id(plan: AdoptionPlan, old: OldMetadata) -> int:
    """Return an id after all those that producers have: an id given out twice mixes up their sequences."""
    last = old.next_producer_id - 1
    for topic, _, replica in plan.replicas:
        last = max(last, replica.last_producer_id)
        if topic.name == TRANSACTION_STATE:
            last = max(last, *producer_ids_in(replica.logs, topic.name), -1)
    blocks = (last + _SPARE_PRODUCER_IDS) // _PRODUCER_IDS_PER_BLOCK + 1
    return blocks * _PRODUCER_IDS_PER_BLOCK


def write_cluster(
    plan: AdoptionPlan,
    disks: Sequence[NewDisk],
    identity: Identity,
    old: OldMetadata,
    target: Path,
    progress: Progress = do_nothing,
) -> None:
    """Write the log directories of the new cluster into the new folder ``target``, all or nothing.

    ``progress`` is called with the bytes copied. Raises UsageError if the plan is blocked, KsegError if the folder exists or
    cannot be written. The caller checks that it is in no source.
    """
    if plan.blocked:
        path, why = plan.blocked[0]
        raise UsageError(f"{path}: {why}")
    records = list(metadata_records(plan, identity, old))
    with whole_folder(target, replace=False) as folder, writing(target):
        seen: set[int] = set()
        for new in disks:
            home = folder / new.name
            home.mkdir(parents=True)
            _write_identity(home, new, identity)
            if new.node not in seen:  # the metadata log is in the first one, if metadata.log.dir is not set
                seen.add(new.node)
                with NewFile(home / BOOTSTRAP) as out:
                    write_snapshot(records, out.file)
                    out.sync()
            if new.source is not None:
                _copy_checkpoints(new.source, home)
        for topic, partition, replica in plan.replicas:
            place = next(new.name for new in disks if new.source == replica.disk)
            _copy_replica(replica, topic.topic_id, folder / place / f"{topic.name}-{partition.number}", progress)
        for new in disks:
            sync_folder(folder / new.name)


def _write_identity(home: Path, new: NewDisk, identity: Identity) -> None:
    values = {
        "version": "1",
        "cluster.id": identity.cluster_id,
        "node.id": str(new.node),
        "directory.id": new.directory_id,
    }
    _write_text(home / META_PROPERTIES, "".join(f"{name}={value}\n" for name, value in values.items()))


def _write_text(path: Path, text: str) -> None:
    with writing(path), NewFile(path) as out:
        out.file.write(text.encode())
        out.sync()


def _copy_checkpoints(disk: Disk, home: Path) -> None:
    for name in (*CHECKPOINTS, CLEAN_SHUTDOWN):
        source = Path(disk.path, name)
        if local_files.exists(str(source)):
            copy_file(source, home / name)


def _copy_replica(replica: AdoptedReplica, topic_id: str, target: Path, progress: Progress) -> None:
    """Copy the files of a replica; only the id of its topic is written if the folder lacks it."""
    target.mkdir()
    for name, kind in local_files.entries(replica.path):
        if kind != "file" or name.endswith(".deleted") or (name == PARTITION_METADATA and not replica.topic_id):
            continue
        source = Path(replica.path, name)
        copy_file(source, target / name)
        progress(source.stat().st_size)
    if not replica.topic_id:
        _write_text(target / PARTITION_METADATA, f"version: 0\ntopic_id: {topic_id}\n")
    sync_folder(target)
