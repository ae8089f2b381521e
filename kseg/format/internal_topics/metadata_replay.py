"""Whether a metadata log can be replayed: the checks with which controllers and brokers of KRaft load its records.

A record that contradicts the records before it ends the process that loads it, although its bytes are right. The checks are
those of Kafka 4.3: ``replay`` of the control managers of ``QuorumController``, and ``MetadataDelta.replay`` for brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from kseg.errors import NotASegmentError
from kseg.findings import Finding
from kseg.format.internal_topics.decode import DecodedPart, DecodedRecord, decoded_record
from kseg.format.internal_topics.effective_state import newest_sources
from kseg.format.messages.message_reader import Message
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.naming import CLUSTER_METADATA, base_offset_of, is_snapshot
from kseg.format.storage.source import open_source
from kseg.rule_table import RULES, Severity

#: The record that marks a directory of a replica as not yet known (``DirectoryId.MIGRATING``).
_MIGRATING = "AAAAAAAAAAAAAAAAAAAAAA"
#: The lowest and highest level of each feature that Kafka 4.3 supports: ``QuorumFeatures.defaultSupportedFeatureMap``.
FEATURES: Mapping[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
_METADATA_VERSION = "metadata.version"
_SCRAM_MECHANISMS = (1, 2)


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """A record that cannot be replayed.

    ``path`` is the file, ``position`` and ``end`` the bytes of its batch, ``offset`` that of the record; ``record`` is its
    type. ``why`` is the contradiction. ``brokers``: it ends brokers, too, unless they apply it together with
    the record that it contradicts, in one batch; otherwise only controllers, of which
    ``controllers`` are the registered ones: none before Kafka 3.7.
    """

    path: str
    position: int
    end: int
    offset: int
    record: str
    why: str
    brokers: bool
    controllers: frozenset[int]


class NotReplayableError(Exception):
    """``why`` a record contradicts those before it; ``brokers`` as in ``ReplayFault``."""

    def __init__(self, why: str, *, brokers: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.brokers = brokers


@dataclass(slots=True)
class _Topic:
    name: str
    #: The numbers of replicas and of known directories, by partition.
    partitions: dict[int, tuple[int, int | None]] = field(default_factory=dict)


class MetadataReplay:
    """The state of a controller, as far as its checks need it. Memory: topics, partitions, brokers, ACLs and credentials."""

    def __init__(self) -> None:
        #: The ids of the registered controllers.
        self.controllers: set[int] = set()
        self._topics: dict[str, _Topic] = {}
        self._topic_ids: dict[str, str] = {}
        #: The epoch and the directories of each registered broker.
        self._brokers: dict[int, tuple[int, tuple[str, ...]]] = {}
        self._directories: dict[str, int] = {}
        self._acls: dict[str, str] = {}
        self._acl_contents: dict[str, bool] = {}
        self._credentials: dict[tuple[str, int], bool] = {}
        self._values: dict[str, int] = {}
        #: The offset of BeginTransaction, and the changes of a transaction, for its abort (KIP-868).
        self._begun: int | None = None
        self._changes: list[tuple[MutableMapping[Any, Any], Any, Any]] = []

    def apply(self, value: DecodedPart | None, offset: int, *, in_snapshot: bool) -> None:
        """Apply one record. Raises NotReplayableError."""
        if value is None:
            raise NotReplayableError("it has no value")
        if value.data is None:
            what = f"type {value.type}, version {value.version}" if value.fault is None else value.fault
            raise NotReplayableError(f"Kafka 4.3 cannot decode it: {what}")
        name = value.name or ""
        if name in _TRANSACTION_RECORDS:
            self._apply_transaction(name, offset, in_snapshot=in_snapshot)
        elif name in _CHECKS:
            _CHECKS[name](self, value.data)

    # Changes in a transaction can be undone.

    def _set(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        if self._begun is not None:
            self._changes.append((table, key, table.get(key)))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def _apply_transaction(self, name: str, offset: int, *, in_snapshot: bool) -> None:
        """Source: ``OffsetControlManager``."""
        if in_snapshot:
            raise NotReplayableError("a snapshot has no transactions")
        if name == "BeginTransaction":
            if self._begun is not None:
                raise NotReplayableError(f"the transaction that began at offset {self._begun} has not ended")
            self._begun = offset
            return
        if self._begun is None:
            raise NotReplayableError("no transaction is open")
        if name == "AbortTransaction":
            for table, key, before in reversed(self._changes):
                table.pop(key, None) if before is None else table.__setitem__(key, before)
        self._changes.clear()
        self._begun = None

    def topic(self, data: Message) -> None:
        """Source: ``ReplicationControlManager``, as for all records of topics and partitions."""
        name, topic_id = data["name"], data["topicId"]
        known = self._topic_ids.get(name)
        if known is not None:
            ids = (
                f"with the same topic id {known}" if known == topic_id else f"with the topic id {known}, not {topic_id}"
            )
            raise NotReplayableError(f"topic {name} exists {ids}", brokers=False)
        self._set(self._topic_ids, name, topic_id)
        self._set(self._topics, topic_id, _Topic(name))

    def _topic(self, data: Message) -> _Topic:
        topic = self._topics.get(data["topicId"])
        if topic is None:
            raise NotReplayableError(f"no topic has the id {data['topicId']}")
        return topic

    def partition(self, data: Message) -> None:
        topic, replicas = self._topic(data), len(data["replicas"])
        if data.get("leaderRecoveryState", 0) not in (0, 1):
            raise NotReplayableError(f"leader recovery state {data['leaderRecoveryState']} is not valid")
        self._set(topic.partitions, data["partitionId"], (replicas, _directories(data, replicas)))

    def partition_change(self, data: Message) -> None:
        topic = self._topic(data)
        known = topic.partitions.get(data["partitionId"])
        if known is None:
            raise NotReplayableError(f"topic {topic.name} has no partition {data['partitionId']}")
        if data.get("leaderRecoveryState", -1) not in (-1, 0, 1):
            raise NotReplayableError(f"leader recovery state {data['leaderRecoveryState']} is not valid")
        replicas, directories = known
        if (changed := data.get("replicas")) is not None:
            replicas = len(changed)
        if data.get("directories") is not None:
            directories = _directories(data, replicas)
        if directories is not None and directories != replicas:
            raise NotReplayableError(_MISMATCH.format(replicas, directories))
        self._set(topic.partitions, data["partitionId"], (replicas, directories))

    def remove_topic(self, data: Message) -> None:
        topic = self._topic(data)
        self._set(self._topics, data["topicId"], None)
        self._set(self._topic_ids, topic.name, None)

    def clear_elr(self, data: Message) -> None:
        name = data["topicName"]
        # Two names can have had one id: the topic of both ends with the first that is removed.
        if name and self._topic_ids.get(name, "") not in self._topics:
            raise NotReplayableError(f"topic {name} does not exist")

    def register_broker(self, data: Message) -> None:
        """Source: ``ClusterControlManager``, as for all records of brokers."""
        broker, directories = data["brokerId"], tuple(data.get("logDirs") or ())
        _, known = self._brokers.get(broker, (-1, ()))
        self._set(self._brokers, broker, (data["brokerEpoch"], directories))
        self._move_directories(broker, known, directories)

    def unregister_broker(self, data: Message) -> None:
        _, directories = self._broker(data["brokerId"], data["brokerEpoch"], brokers=False)
        self._move_directories(data["brokerId"], directories, ())
        self._set(self._brokers, data["brokerId"], None)

    def fence_broker(self, data: Message) -> None:
        self._broker(data["id"], data["epoch"])

    def change_broker(self, data: Message) -> None:
        for name, allowed in (("fenced", (-1, 0, 1)), ("inControlledShutdown", (0, 1))):
            if data.get(name, 0) not in allowed:
                raise NotReplayableError(f"{name} {data[name]} is not valid")
        epoch, known = self._broker(data["brokerId"], data["brokerEpoch"])
        changed = tuple(data.get("logDirs") or ()) or known
        self._set(self._brokers, data["brokerId"], (epoch, changed))
        self._move_directories(data["brokerId"], known, changed)

    def _broker(self, broker: int, epoch: int, *, brokers: bool = True) -> tuple[int, tuple[str, ...]]:
        found = self._brokers.get(broker)
        if found is None:
            raise NotReplayableError(f"broker {broker} is not registered", brokers=brokers)
        if found[0] != epoch:
            raise NotReplayableError(f"broker {broker} has epoch {found[0]}, not {epoch}", brokers=brokers)
        return found

    def _move_directories(self, broker: int, before: Iterable[str], now: Iterable[str]) -> None:
        for directory in before:
            if self._directories.get(directory) != broker:
                raise NotReplayableError(f"directory {directory} is not one of broker {broker}", brokers=False)
            self._set(self._directories, directory, None)
        for directory in now:
            owner = self._directories.get(directory)
            if owner is not None and owner != broker:
                raise NotReplayableError(f"directory {directory} belongs to broker {owner}", brokers=False)
            self._set(self._directories, directory, broker)

    def controller(self, data: Message) -> None:
        self.controllers.add(data["controllerId"])

    def feature(self, data: Message) -> None:
        """Source: ``FeatureControlManager``. Brokers check only metadata.version, and accept one level more."""
        name, level = data["name"], data["featureLevel"]
        low, high = FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            why = f"feature {name} has level {level}, but Kafka 4.3 supports {low} to {high}"
            raise NotReplayableError(why, brokers=name == _METADATA_VERSION and not low <= level <= high + 1)

    def acl(self, data: Message) -> None:
        """Source: ``AclControlManager``."""
        content = repr({name: value for name, value in data.items() if name != "id"})
        self._set(self._acls, data["id"], content)
        self._set(self._acl_contents, content, True)

    def remove_acl(self, data: Message) -> None:
        content = self._acls.get(data["id"])
        if content is None:
            raise NotReplayableError(f"no ACL has the id {data['id']}")
        self._set(self._acls, data["id"], None)
        if content not in self._acl_contents:
            raise NotReplayableError(f"an ACL equal to that with the id {data['id']} was removed before", brokers=False)
        self._set(self._acl_contents, content, None)

    def credential(self, data: Message) -> None:
        """Source: ``ScramControlManager``."""
        self._set(self._credentials, _credential(data), True)

    def remove_credential(self, data: Message) -> None:
        if _credential(data) not in self._credentials:
            raise NotReplayableError(f"user {data['name']} has no such SCRAM credential", brokers=False)
        self._set(self._credentials, _credential(data), None)

    def producer_ids(self, data: Message) -> None:
        """Source: ``ProducerIdControlManager``."""
        first, known = data["nextProducerId"], self._values.get("producer ids")
        if known is not None and first <= known:
            raise NotReplayableError(
                f"the next producer id is {first}, but the last block began at {known}", brokers=False
            )
        self._set(self._values, "producer ids", first)


_MISMATCH = "{} replicas, but {} directories"
_TRANSACTION_RECORDS = ("BeginTransaction", "EndTransaction", "AbortTransaction")
_CHECKS: Mapping[str, Callable[[MetadataReplay, Message], None]] = {
    "AccessControlEntry": MetadataReplay.acl,
    "BrokerRegistrationChange": MetadataReplay.change_broker,
    "ClearElr": MetadataReplay.clear_elr,
    "FeatureLevel": MetadataReplay.feature,
    "FenceBroker": MetadataReplay.fence_broker,
    "Partition": MetadataReplay.partition,
    "PartitionChange": MetadataReplay.partition_change,
    "ProducerIds": MetadataReplay.producer_ids,
    "RegisterController": MetadataReplay.controller,
    "RegisterBroker": MetadataReplay.register_broker,
    "RemoveAccessControlEntry": MetadataReplay.remove_acl,
    "RemoveTopic": MetadataReplay.remove_topic,
    "RemoveUserScramCredential": MetadataReplay.remove_credential,
    "Topic": MetadataReplay.topic,
    "UnfenceBroker": MetadataReplay.fence_broker,
    "UnregisterBroker": MetadataReplay.unregister_broker,
    "UserScramCredential": MetadataReplay.credential,
}


def _directories(data: Message, replicas: int) -> int | None:
    """Return the number of a partition's directories, None if they are not known yet (``PartitionRegistration``)."""
    directories = data.get("directories") or ()
    if all(directory == _MIGRATING for directory in directories):
        return None if not directories or len(directories) == replicas else _mismatch(replicas, len(directories))
    return len(directories) if len(directories) == replicas else _mismatch(replicas, len(directories))


def _mismatch(replicas: int, directories: int) -> int:
    raise NotReplayableError(_MISMATCH.format(replicas, directories))


def _credential(data: Message) -> tuple[str, int]:
    mechanism = data["mechanism"]
    return data["name"], mechanism if mechanism in _SCRAM_MECHANISMS else 0


class _Damaged(Exception):
    """The rest of a log cannot be read."""


def _stop_at_damage(finding: Finding) -> None:
    if RULES[finding.rule].severity >= Severity.ERROR:
        raise _Damaged


def replay_fault(paths: Iterable[str]) -> ReplayFault | None:
    """Return the first record of a metadata log that cannot be replayed, None if there is none.

    ``paths`` are the snapshots and segments of one folder. The newest snapshot is loaded, then the log after it. Records
    after damage are not looked at: no node loads them. Raises UnreadableError and NotASegmentError.
    """
    replay = MetadataReplay()
    sources = list(newest_sources(sorted(paths)))
    if sources and not is_snapshot(sources[0][0]) and base_offset_of(sources[0][0]):
        return None  # without its beginning a log says nothing
    try:
        for path, first_offset in sources:
            in_snapshot = is_snapshot(path)
            for batch, offset, decoded in _records(path):
                if offset < first_offset:
                    continue
                try:
                    replay.apply(decoded.value, offset, in_snapshot=in_snapshot)
                except NotReplayableError as error:
                    name = decoded.value.name if decoded.value else None
                    who = frozenset(replay.controllers)
                    return ReplayFault(path, *batch, offset, name or "record", error.why, error.brokers, who)
    except _Damaged:
        pass
    return None


def names_topics(path: str) -> bool:
    """Return whether a snapshot, such as ``bootstrap.checkpoint``, has a topic before any damage. Raises UnreadableError."""
    try:
        return any(decoded.value is not None and decoded.value.name == "Topic" for _, _, decoded in _records(path))
    except (_Damaged, NotASegmentError):
        return False


def _records(path: str) -> Iterator[tuple[tuple[int, int], int, DecodedRecord]]:
    """Yield the bytes of its batch (begin and end), the offset and the content of each record but control records."""
    opener = DeepIterator(_stop_at_damage)
    with SegmentReader(open_source(path), report=_stop_at_damage) as reader:
        for window in reader.windows():
            for chunk in opener.chunks(window):
                batches = chunk.batches
                for row in range(chunk.first, chunk.stop):
                    for i in chunk.rows(row) if batches.record_total[row] else ():
                        if decoded := decoded_record(CLUSTER_METADATA, chunk, i):
                            begin = batches.position[row]
                            yield (begin, begin + batches.size[row]), chunk.lists.offset[i], decoded
