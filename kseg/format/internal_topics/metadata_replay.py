"""Whether a metadata log can be replayed: the checks with which controllers and brokers of KRaft load its records.

A record that contradicts the records before it ends the process that loads it, although its bytes are right. The checks are
those of Kafka 4.3: ``replay`` of the control managers of ``QuorumController``, and ``MetadataDelta.replay`` for brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kseg.format.internal_topics.cluster_image import (
    FEATURES,
    METADATA_VERSION,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    feature_ranges,
)
from kseg.format.internal_topics.decode import DecodedPart
from kseg.format.messages.message_reader import Message
from kseg.text import excerpt

#: The record that marks a directory of a replica as not yet known (``DirectoryId.MIGRATING``).
_MIGRATING = "AAAAAAAAAAAAAAAAAAAAAA"
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


class MetadataReplay(ClusterImage):
    """The state with what only the checks need. Memory: topics, partitions, brokers, ACLs and credentials."""

    def __init__(self) -> None:
        super().__init__()
        self._topic_ids: dict[str, str] = {}
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
            raise NotReplayableError(f"topic {excerpt(name)} exists {ids}", brokers=False)
        self._set(self._topic_ids, name, topic_id)
        self._set(self.topics, topic_id, TopicImage(name))

    def _topic(self, data: Message) -> TopicImage:
        topic = self.topics.get(data["topicId"])
        if topic is None:
            raise NotReplayableError(f"no topic has the id {data['topicId']}")
        return topic

    def partition(self, data: Message) -> None:
        topic, replicas = self._topic(data), tuple(data["replicas"])
        if data.get("leaderRecoveryState", 0) not in (0, 1):
            raise NotReplayableError(f"leader recovery state {data['leaderRecoveryState']} is not valid")
        isr, eligible = tuple(data["isr"]), tuple(data.get("eligibleLeaderReplicas") or ())
        made = PartitionImage(replicas, isr, eligible, _directories(data, len(replicas)))
        self._set(topic.partitions, data["partitionId"], made)

    def partition_change(self, data: Message) -> None:
        topic = self._topic(data)
        known = topic.partitions.get(data["partitionId"])
        if known is None:
            raise NotReplayableError(f"topic {excerpt(topic.name)} has no partition {data['partitionId']}")
        if data.get("leaderRecoveryState", -1) not in (-1, 0, 1):
            raise NotReplayableError(f"leader recovery state {data['leaderRecoveryState']} is not valid")
        fields = {"replicas": "replicas", "isr": "isr", "eligible": "eligibleLeaderReplicas"}
        changed: dict[str, Any] = {
            name: tuple(data[field]) for name, field in fields.items() if data.get(field) is not None
        }
        made = known._replace(**changed)
        if data.get("directories") is not None:
            made = made._replace(directories=_directories(data, len(made.replicas)))
        if made.directories is not None:
            _check_directories(len(made.replicas), made.directories)
        self._set(topic.partitions, data["partitionId"], made)

    def remove_topic(self, data: Message) -> None:
        topic = self._topic(data)
        self._set(self.topics, data["topicId"], None)
        self._set(self._topic_ids, topic.name, None)

    def clear_elr(self, data: Message) -> None:
        name = data["topicName"]
        # Two names can have had one id: the topic of both ends with the first that is removed.
        if name and self._topic_ids.get(name, "") not in self.topics:
            raise NotReplayableError(f"topic {excerpt(name)} does not exist")

    def register_broker(self, data: Message) -> None:
        """Source: ``ClusterControlManager``, as for all records of brokers."""
        broker, directories = data["brokerId"], tuple(data.get("logDirs") or ())
        known = self.brokers.get(broker)
        made = BrokerImage(data["brokerEpoch"], directories, data.get("fenced", True), feature_ranges(data))
        self._set(self.brokers, broker, made)
        self._move_directories(broker, known.directories if known else (), directories)

    def unregister_broker(self, data: Message) -> None:
        known = self._broker(data["brokerId"], data["brokerEpoch"], brokers=False)
        self._move_directories(data["brokerId"], known.directories, ())
        self._set(self.brokers, data["brokerId"], None)

    def fence_broker(self, data: Message, *, fenced: bool) -> None:
        known = self._broker(data["id"], data["epoch"])
        self._set(self.brokers, data["id"], known._replace(fenced=fenced))

    def change_broker(self, data: Message) -> None:
        for name, allowed in (("fenced", (-1, 0, 1)), ("inControlledShutdown", (0, 1))):
            if data.get(name, 0) not in allowed:
                raise NotReplayableError(f"{name} {data[name]} is not valid")
        known = self._broker(data["brokerId"], data["brokerEpoch"])
        changed = tuple(data.get("logDirs") or ()) or known.directories
        fenced = {1: True, -1: False}.get(data.get("fenced", 0), known.fenced)
        self._set(self.brokers, data["brokerId"], known._replace(directories=changed, fenced=fenced))
        self._move_directories(data["brokerId"], known.directories, changed)

    def _broker(self, broker: int, epoch: int, *, brokers: bool = True) -> BrokerImage:
        found = self.brokers.get(broker)
        if found is None:
            raise NotReplayableError(f"broker {broker} is not registered", brokers=brokers)
        if found.epoch != epoch:
            raise NotReplayableError(f"broker {broker} has epoch {found.epoch}, not {epoch}", brokers=brokers)
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
        self._set(self.controllers, data["controllerId"], feature_ranges(data))

    def unregister_controller(self, data: Message) -> None:
        self._set(self.controllers, data["controllerId"], None)

    def feature(self, data: Message) -> None:
        """Source: ``FeatureControlManager``. Brokers check only metadata.version, and accept one level more."""
        name, level = data["name"], data["featureLevel"]
        low, high = FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            why = f"feature {excerpt(name)} has level {level}, but Kafka 4.3 supports {low} to {high}"
            raise NotReplayableError(why, brokers=name == METADATA_VERSION and not low <= level <= high + 1)
        if name == METADATA_VERSION:
            self.metadata_version = level

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
            raise NotReplayableError(f"user {excerpt(data['name'])} has no such SCRAM credential", brokers=False)
        self._set(self._credentials, _credential(data), None)

    def producer_ids(self, data: Message) -> None:
        """Source: ``ProducerIdControlManager``."""
        first, known = data["nextProducerId"], self._values.get("producer ids")
        if known is not None and first <= known:
            raise NotReplayableError(
                f"the next producer id is {first}, but the last block began at {known}", brokers=False
            )
        self._set(self._values, "producer ids", first)


_TRANSACTION_RECORDS = ("BeginTransaction", "EndTransaction", "AbortTransaction")
_CHECKS: Mapping[str, Callable[[MetadataReplay, Message], None]] = {
    "AccessControlEntry": MetadataReplay.acl,
    "BrokerRegistrationChange": MetadataReplay.change_broker,
    "ClearElr": MetadataReplay.clear_elr,
    "FeatureLevel": MetadataReplay.feature,
    "FenceBroker": partial(MetadataReplay.fence_broker, fenced=True),
    "Partition": MetadataReplay.partition,
    "PartitionChange": MetadataReplay.partition_change,
    "ProducerIds": MetadataReplay.producer_ids,
    "RegisterController": MetadataReplay.controller,
    "RegisterBroker": MetadataReplay.register_broker,
    "RemoveAccessControlEntry": MetadataReplay.remove_acl,
    "RemoveTopic": MetadataReplay.remove_topic,
    "RemoveUserScramCredential": MetadataReplay.remove_credential,
    "Topic": MetadataReplay.topic,
    "UnfenceBroker": partial(MetadataReplay.fence_broker, fenced=False),
    "UnregisterBroker": MetadataReplay.unregister_broker,
    "UnregisterController": MetadataReplay.unregister_controller,
    "UserScramCredential": MetadataReplay.credential,
}


def _directories(data: Message, replicas: int) -> int | None:
    """Return the number of a partition's directories, None if they are not known yet (``PartitionRegistration``)."""
    directories = data.get("directories")
    if not directories:
        return None
    _check_directories(replicas, len(directories))
    return None if all(directory == _MIGRATING for directory in directories) else len(directories)


def _check_directories(replicas: int, directories: int) -> None:
    if directories != replicas:
        raise NotReplayableError(f"{replicas} replicas, but {directories} directories")


def _credential(data: Message) -> tuple[str, int]:
    mechanism = data["mechanism"]
    return data["name"], mechanism if mechanism in _SCRAM_MECHANISMS else 0
