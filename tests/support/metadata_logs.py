"""Metadata logs of KRaft with any records, and random logs."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.metadata_replay import MetadataReplay, NotReplayableError
from kseg.format.messages.definitions import RECORDS, MessageField, definition
from kseg.format.storage.naming import CLUSTER_METADATA
from kseg.format.writer.metadata_snapshot import MetadataRecord, encoded_record
from kseg.format.writer.records_builder import PlainRecord, build_batch

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


def topic(name: str, number: int) -> Change:
    """Return a record that creates a topic."""
    return "Topic", 0, {"name": name, "topicId": uuid(number)}


def partition(number: int, replicas: Sequence[int], directories: Sequence[str] = ()) -> Change:
    """Return a record that creates partition 0 of a topic."""
    data = {"partitionId": 0, "topicId": uuid(number), "replicas": list(replicas), "isr": list(replicas)}
    return "Partition", 1, {**data, "leader": replicas[0], "leaderEpoch": 0, "directories": list(directories)}


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
