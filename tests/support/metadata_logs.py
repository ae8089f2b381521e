"""Metadata logs of KRaft with any records, and random logs."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kseg.commands.adopt.old_metadata import MetadataRecord, control_batch, encoded_record
from kseg.format.internal_topics.cluster_image import FEATURES, METADATA_VERSION
from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.metadata_replay import MetadataReplay, NotReplayableError
from kseg.format.messages.definitions import RECORDS, MessageField, definition
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.naming import CLUSTER_METADATA, partition_of
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import entries, get

#: A record: its type without the suffix, its version, its fields.
Change = tuple[str, int, dict[str, Any]]
_DEFAULTS: dict[str, Any] = {"bool": False, "uuid": "A" * 22, "string": "", "bytes": b""}


def encoded(change: Change) -> bytes:
    """Return the value of a record. Fields that it lacks are null or zero."""
    name, version, data = change
    found = definition(RECORDS, f"{name}Record", version)
    assert found is not None
    return encoded_record(MetadataRecord(found.name, version, _filled(found.fields, version, data)))


def _filled(fields: Sequence[MessageField], version: int, data: dict[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for field in fields:
        value = data.get(field.name)
        if version not in field.versions or (version in field.tagged and field.name not in data):
            continue
        if value is None and version not in field.nullable:
            value = [] if field.type.startswith("[]") else _DEFAULTS.get(field.type, 0)
        elif field.fields and value is not None:
            value = [_filled(field.fields, version, one) for one in value]
        filled[field.name] = value
    return filled


def write_log(path: Path, changes: Iterable[Change], *, per_batch: int = 3) -> Path:
    """Write a segment with these records, ``per_batch`` in each batch."""
    values = list(map(encoded, changes))
    parts = []
    for base in range(0, len(values), per_batch):
        records = [
            PlainRecord(base + i, None, value, 1_700_000_000_000 + base + i)
            for i, value in enumerate(values[base : base + per_batch])
        ]
        parts.append(build_batch(records, base_offset=base, partition_leader_epoch=1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(parts))
    return path


def appended(data: bytes, *changes: Change) -> bytes:
    """Return a log with one more batch, with these records."""
    offset, epoch, timestamp = _end_of(data)
    records = [PlainRecord(offset + i, None, encoded(one), timestamp) for i, one in enumerate(changes)]
    return data + build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


def with_voters(data: bytes, voters: Iterable[int]) -> bytes:
    """Return a log with one more record, which names the voters of a dynamic quorum."""
    offset, epoch, timestamp = _end_of(data)
    listed = [
        {"voterId": voter, "voterDirectoryId": uuid(voter), "endpoints": [],
         "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1}}
        for voter in voters
    ]  # fmt: skip
    kind = (6, "VotersRecord")
    return data + control_batch(kind, {"version": 0, "voters": listed}, offset, timestamp, leader_epoch=epoch)


def _end_of(data: bytes) -> tuple[int, int, int]:
    """Return the offset after the last record of a log, and the leader epoch and the timestamp of its last batch."""
    last = entries(data)[-1].at
    offset = get(data, last, "base_offset") + get(data, last, "last_offset_delta") + 1
    return offset, get(data, last, "partition_leader_epoch"), get(data, last, "max_timestamp")


def folder_for(log_dir: Path) -> Path:
    """Return the folder of the metadata log in a log directory."""
    return log_dir / f"{CLUSTER_METADATA}-0"


def uuid(number: int) -> str:
    """Return an id that is not reserved."""
    return base64.urlsafe_b64encode((number + 1000).to_bytes(16, "big")).decode().rstrip("=")


FEATURE: Change = ("FeatureLevel", 0, {"name": "metadata.version", "featureLevel": 30})


def broker(number: int, epoch: int, directories: Sequence[str] = ()) -> Change:
    """Return the registration of a broker."""
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "securityProtocol": 0}
    data = {"brokerId": number, "incarnationId": uuid(epoch), "brokerEpoch": epoch, "endPoints": [listener]}
    return "RegisterBroker", 3, {**data, "features": [], "rack": None, "fenced": True, "logDirs": list(directories)}


def controller(number: int, metadata_version: int = 30) -> Change:
    """Return the registration of a controller that supports metadata.version up to a level, and other features as 4.3."""
    features = [
        {"name": name, "minSupportedVersion": low, "maxSupportedVersion": high}
        for name, (low, high) in {**FEATURES, METADATA_VERSION: (7, metadata_version)}.items()
    ]
    return "RegisterController", 0, {"controllerId": number, "incarnationId": uuid(number), "features": features}


def topic(name: str, number: int) -> Change:
    """Return a record that creates a topic."""
    return "Topic", 0, {"name": name, "topicId": uuid(number)}


def partition(number: int, replicas: Sequence[int], directories: Sequence[str] = ()) -> Change:
    """Return a record that creates partition 0 of a topic."""
    data = {"partitionId": 0, "topicId": uuid(number), "replicas": list(replicas), "isr": list(replicas)}
    return "Partition", 1, {**data, "leader": replicas[0], "leaderEpoch": 0, "directories": list(directories)}


def place_folders(log_dir: Path, node: int = 1) -> Path:
    """Write the metadata log of a cluster that has the partition folders of a log directory, all on one broker."""
    return write_log(folder_for(log_dir) / f"{0:020}.log", (FEATURE, broker(node, 1), *placements(log_dir, node)))


def placements(log_dir: Path, node: int) -> list[Change]:
    """Return the records of a cluster that has the partition folders of a log directory, all on one broker."""
    found: dict[str, tuple[str, list[int]]] = {}
    for folder in sorted(log_dir.iterdir()):
        named = partition_of(folder.name)
        if named and named.state is None and (topic_id := topic_id_of(str(folder))):
            found.setdefault(topic_id, (named.topic, []))[1].append(named.partition)
    changes: list[Change] = []
    for count, (topic_id, (name, numbers)) in enumerate(found.items()):
        # Fixtures beside one another can have one name and two ids, which no cluster has.
        changes.append(("Topic", 0, {"name": f"{name}.{count}" if count else name, "topicId": topic_id}))
        for number in numbers:
            kind, version, data = partition(0, [node])
            changes.append((kind, version, {**data, "topicId": topic_id, "partitionId": number}))
    return changes


class RandomLog:
    """Random records over few topics, brokers and ids. About every second log has a record that contradicts the others."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def changes(self) -> list[Change]:
        """Return the records of one log."""
        found = [FEATURE]
        for _ in range(self._random.randint(1, 40)):
            change = self._change()
            # Without this most logs would end at their first records.
            if _fits(found, change) or self._random.random() < 0.03:
                found.append(change)
        return found

    def _change(self) -> Change:
        draw = self._random
        number, few = draw.randint(1, 3), draw.randint(1, 2)
        directories = draw.choice(([], [uuid(50 + few)], [uuid(50 + few), uuid(60 + few)]))
        replicas = [1, 2, 3][: draw.randint(1, 3)]
        epoch = draw.choice((7, 7, 7, 8))
        placed = draw.choice(([], [uuid(70 + i) for i in replicas], ["A" * 22 for _ in replicas], [uuid(71)]))
        changed = {"partitionId": draw.choice((0, 0, 0, 1)), "topicId": uuid(number)}
        options: list[Change] = [
            topic(f"topic-{few}", number),
            partition(number, replicas, placed),
            ("PartitionChange", 1, {**changed, "isr": [1]}),
            ("PartitionChange", 1, {**changed, "replicas": replicas, "directories": placed}),
            ("PartitionChange", 1, {**changed, "leader": 1, "leaderRecoveryState": draw.choice((-1, 0, 1, 2))}),
            ("RemoveTopic", 0, {"topicId": uuid(number)}),
            ("ClearElr", 0, {"topicName": draw.choice(("", f"topic-{few}"))}),
            broker(few, epoch, directories),
            ("UnregisterBroker", 0, {"brokerId": few, "brokerEpoch": epoch}),
            ("FenceBroker", 0, {"id": few, "epoch": epoch}),
            ("UnfenceBroker", 0, {"id": few, "epoch": epoch}),
            (
                "BrokerRegistrationChange",
                2,
                {
                    "brokerId": few,
                    "brokerEpoch": epoch,
                    "fenced": draw.choice((-1, 0, 1, 2)),
                    "inControlledShutdown": draw.choice((0, 1, -1)),
                    "logDirs": directories,
                },
            ),
            ("FeatureLevel", 0, {"name": "transaction.version", "featureLevel": draw.choice((0, 1, 2, 3))}),
            ("FeatureLevel", 0, {"name": "metadata.version", "featureLevel": draw.choice((6, 7, 29, 30, 31))}),
            ("FeatureLevel", 0, {"name": "unknown.version", "featureLevel": draw.choice((0, 1))}),
            (
                "AccessControlEntry",
                0,
                {
                    "id": uuid(number),
                    "resourceType": 2,
                    "resourceName": f"t-{few}",
                    "patternType": 3,
                    "principal": "User:x",
                    "host": "*",
                    "operation": 3,
                    "permissionType": 3,
                },
            ),
            ("RemoveAccessControlEntry", 0, {"id": uuid(number)}),
            ("UserScramCredential", 0, {"name": "u", "mechanism": few, "iterations": 4096}),
            ("RemoveUserScramCredential", 0, {"name": "u", "mechanism": few}),
            ("ProducerIds", 0, {"brokerId": 1, "brokerEpoch": 7, "nextProducerId": draw.randint(0, 5) * 1000}),
            ("BeginTransaction", 0, {}),
            ("EndTransaction", 0, {}),
            ("AbortTransaction", 0, {}),
            ("NoOp", 0, {}),
        ]
        return draw.choice(options)


def _fits(before: Sequence[Change], change: Change) -> bool:
    replay = MetadataReplay()
    try:
        for offset, one in enumerate((*before, change)):
            replay.apply(decode(CLUSTER_METADATA, None, encoded(one)).value, offset, in_snapshot=False)
    except NotReplayableError:
        return False
    return True
