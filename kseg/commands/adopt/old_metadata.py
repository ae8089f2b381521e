"""Read the last metadata of a cluster: its topics, replicas, configurations, users, access. Write new metadata.

The log of the metadata can be on brokers, too, when all controllers are gone: they replicate it.

New metadata are a KRaft snapshot, which is also the format of ``bootstrap.checkpoint``: a control batch with its header,
batches of records, and a control batch with its footer (KIP-630). Sources: ``BootstrapDirectory``, ``BatchFileWriter``,
``MetadataRecordSerde``.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, NamedTuple

from kseg.errors import KsegError, UnreadableError
from kseg.findings import Finding, do_nothing
from kseg.format.internal_topics.decode import FRAME_VERSION
from kseg.format.internal_topics.effective_state import effective
from kseg.format.internal_topics.metadata_loading import state_files
from kseg.format.internal_topics.state import Item
from kseg.format.messages.definitions import RECORDS, Definition, definition
from kseg.format.messages.message_reader import Message
from kseg.format.messages.message_writer import encode, uvarint
from kseg.format.sidefiles.log_end import copy_order
from kseg.format.storage.naming import CLUSTER_METADATA, METADATA_FOLDER
from kseg.format.writer.records_builder import PlainRecord, build_batch

METADATA_VERSION = "metadata.version"
#: With it, the first start of a broker counts as an unclean one: it leaves the replicas in sync (KIP-966).
ELR = "eligible.leader.replicas.version"
_OF_TOPIC = 2  # ConfigResource.Type
#: Entity of the state -> the message that recreates it. They are those of users and clients.
_KEPT = {
    "acl": "AccessControlEntryRecord",
    "delegation token": "DelegationTokenRecord",
    "quota": "ClientQuotaRecord",
    "scram credential": "UserScramCredentialRecord",
}


@dataclass(slots=True)
class OldMetadata:
    """The state of an old metadata log. ``path`` is its folder, ``faults`` why parts of it may be wrong or missing."""

    path: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    #: The nodes of each partition's replicas, the preferred leader first, by topic id and then by partition.
    replicas: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    #: Leader epochs by topic id and partition.
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    others: list[MetadataRecord] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def newest_metadata(folders: Iterable[str]) -> str | None:
    """Return the metadata log among the folders of log directories that would win an election. Raises UnreadableError."""
    found = [os.path.join(folder, METADATA_FOLDER) for folder in folders]
    with _named_remedy():
        return max(filter(os.path.isdir, found), key=copy_order, default=None)


@contextmanager
def _named_remedy() -> Iterator[None]:
    """Say what helps if a metadata log cannot be read."""
    try:
        yield
    except UnreadableError as error:
        raise UnreadableError(f"{error}: run again, or --no-metadata ignores it") from error


def read_metadata(path: str) -> OldMetadata:
    """Return the state at the end of a metadata log. Raises UnreadableError if the folder has none."""
    files = state_files(path)
    if not files:
        raise UnreadableError(f"{path}: no segment or snapshot of a metadata log found")
    found = OldMetadata(path)
    rules: set[str] = set()

    def report(finding: Finding) -> None:
        rules.add(finding.rule)
        if finding.is_error and len(found.faults) < 3:
            found.faults.append(f"{finding.rule} at byte {finding.position}: changes of topics can be missing")

    try:
        with _named_remedy():
            state = effective(CLUSTER_METADATA, files, lambda _: report)
    except UnreadableError:
        raise
    except KsegError as error:
        found.faults.append(str(error))
        return found
    _fill(found, [item for item in state.items() if not item.pending])
    # Each record of another topic is an internal-record.
    if rules <= {"internal-record"} and not (found.features or found.names):
        raise UnreadableError(f"{path}: no record of a cluster's metadata found: give a folder {METADATA_FOLDER}")
    return found


def _fill(found: OldMetadata, items: Sequence[Item]) -> None:
    for item in items:
        key, data = item.key, item.data
        if item.entity == "topic":
            found.names[key["topicId"]] = data["name"]
        elif item.entity == "partition" and "replicas" in data:
            found.replicas.setdefault(key["topicId"], {})[key["partitionId"]] = list(data["replicas"])
            found.epochs[key["topicId"], key["partitionId"]] = data.get("leaderEpoch", -1)
        elif item.entity == "config" and key["resourceType"] == _OF_TOPIC:
            found.configs.setdefault(key["resourceName"], {})[key["name"]] = data["value"]
        elif item.entity == "config":
            found.others.append(MetadataRecord("ConfigRecord", 0, {**key, **data}))
        elif item.entity == "feature":
            found.features[key["name"]] = data["featureLevel"]
        elif item.entity == "producer ids":
            found.next_producer_id = data["nextProducerId"]
        elif item.entity in _KEPT:
            found.others.append(MetadataRecord(_KEPT[item.entity], 0, {**key, **data, "remove": False}))


def producer_ids_in(paths: Sequence[str], topic: str) -> Iterator[int]:
    """Yield the producer ids of a partition of ``__transaction_state``; ``paths`` are its segments."""
    for item in effective(topic, paths, lambda _: do_nothing).items():
        for name in ("producerId", "previousProducerId", "nextProducerId"):
            if isinstance(found := item.data.get(name), int):
                yield found


def config_records(topic: str, configs: Mapping[str, str]) -> Iterator[MetadataRecord]:
    """Yield the records of a topic's configuration."""
    for name, value in configs.items():
        data = {"resourceType": _OF_TOPIC, "resourceName": topic, "name": name, "value": value}
        yield MetadataRecord("ConfigRecord", 0, data)


# ControlRecordType, and the message of each.
_HEADER, _FOOTER = (3, "SnapshotHeaderRecord"), (4, "SnapshotFooterRecord")
_CONTROL_KEY = struct.Struct(">hh")
_RECORDS_PER_BATCH = 1000


class MetadataRecord(NamedTuple):
    """A record: the name of its message, its version, and its fields with Kafka's names."""

    name: str
    version: int
    data: Message


def encoded_record(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises the errors of ``encode``."""
    found = _definition(record.name, record.version)
    assert found.api_key is not None, record.name
    frame = uvarint(FRAME_VERSION) + uvarint(found.api_key) + uvarint(record.version)
    return frame + encode(found, record.version, record.data)


def write_snapshot(records: Iterable[MetadataRecord], out: IO[bytes]) -> int:
    """Write a snapshot with these records to ``out``, and return their number."""
    now = time.time_ns() // 1_000_000
    out.write(control_batch(_HEADER, {"version": 0, "lastContainedLogTimestamp": now}, 0, now))
    offset = 1
    for values in _in_batches(map(encoded_record, records)):
        batch = [PlainRecord(offset + n, None, value, now) for n, value in enumerate(values)]
        out.write(build_batch(batch, partition_leader_epoch=0))
        offset += len(batch)
    out.write(control_batch(_FOOTER, {"version": 0}, offset, now))
    return offset - 1


def control_batch(kind: tuple[int, str], data: Message, offset: int, timestamp: int, *, leader_epoch: int = 0) -> bytes:
    """Return a batch with one control record of KRaft: ``kind`` is its type and its message."""
    number, name = kind
    record = PlainRecord(offset, _CONTROL_KEY.pack(0, number), encode(_definition(name, 0), 0, data), timestamp)
    return build_batch([record], partition_leader_epoch=leader_epoch, control=True)


def _definition(name: str, version: int) -> Definition:
    found = definition(RECORDS, name, version)
    if found is None:
        raise KeyError(f"{name} has no version {version}")
    return found


def _in_batches(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(values, _RECORDS_PER_BATCH)):
        yield batch
