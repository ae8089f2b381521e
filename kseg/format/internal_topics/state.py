"""The states to which records are applied: items of the metadata of a cluster and of tiered storage, or latest values.

Follows Kafka's ``MetadataDelta`` and ``RemoteLogMetadataCache``: a record replaces an item, changes some of its fields,
or removes it together with the items that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

from kseg.format.internal_topics.decode import DecodedPart, DecodedRecord, decode
from kseg.format.messages.message_reader import jsonable
from kseg.text import parse_time_or_word

Data = dict[str, Any]
# Epoch milliseconds since 1973 have as many digits or more.
_DIGITS_OF_TIME = 12


class RecordPlace(NamedTuple):
    """The place of a record: ``offset``, ``timestamp`` (epoch ms or None), and ``size``: bytes of its key and value."""

    offset: int
    timestamp: int | None
    size: int


@dataclass(frozen=True, slots=True)
class Item:
    """The value of a key. ``entity`` is its kind, ``at`` the place of the last record that changed it.

    ``pending``: the value is not effective yet, because its transaction is open. Each producer can have one of a key.
    """

    entity: str
    key: Data
    data: Data
    at: RecordPlace
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a log: after the record at ``offset``, or after the records until ``timestamp`` (epoch milliseconds)."""

    offset: int | None = None
    timestamp: int | None = None

    @classmethod
    def parse(cls, text: str) -> Moment:
        """Return the moment of an offset, a time, or an integer of 12 or more digits: epoch ms. Raises ValueError."""
        if text.isascii() and text.isdecimal() and len(text) < _DIGITS_OF_TIME:
            return cls(offset=int(text))
        return cls(timestamp=parse_time_or_word(text))

    def is_before(self, offset: int, timestamp: int) -> bool:
        """Return whether the record with this offset and timestamp is later."""
        if self.offset is not None:
            return offset > self.offset
        return self.timestamp is not None and timestamp > self.timestamp


class State:
    """Items by entity and key, in the order of their creation."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Item] = {}

    def put(self, entity: str, key: Data, data: Data, at: RecordPlace) -> None:
        """Set a value."""
        self._items[_place(entity, key)] = Item(entity, key, data, at)

    def merge(self, entity: str, key: Data, data: Data, at: RecordPlace) -> None:
        """Change some fields of an item, or create it."""
        place = _place(entity, key)
        known = self._items.get(place)
        self._items[place] = Item(entity, key, {**known.data, **data} if known else data, at)

    def remove(self, entity: str, key: Data) -> Item | None:
        """Remove an item and return it, or None."""
        return self._items.pop(_place(entity, key), None)

    def get(self, entity: str, key: Data) -> Item | None:
        """Return the item of a key, or None."""
        return self._items.get(_place(entity, key))

    def remove_where(self, entity: str, unwanted: Callable[[Item], bool]) -> None:
        """Remove the items of an entity for which ``unwanted`` returns true."""
        for place in [place for place, item in self._items.items() if item.entity == entity and unwanted(item)]:
            del self._items[place]

    def change_where(self, entity: str, wanted: Callable[[Item], bool], change: Callable[[Data], Data]) -> None:
        """Replace the data of the items of an entity for which ``wanted`` returns true."""
        for place, item in self._items.items():
            if item.entity == entity and wanted(item):
                self._items[place] = replace(item, data=change(item.data))

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())


def _place(entity: str, key: Data) -> tuple[str, str]:
    # The fields of a key are in the order of its definition.
    return entity, repr(key)


Change = Callable[[State, Data, RecordPlace], None]

#: The numbers in BrokerRegistrationChangeRecord; 0 means unchanged.
_SWITCHES = ("fenced", "inControlledShutdown")
_NO_LEADER_CHANGE = -2
_NO_RECOVERY_CHANGE = -1
#: RemoteLogSegmentState and RemotePartitionDeleteState after the deletion.
_SEGMENT_GONE, _PARTITION_GONE = 3, 2
_TOPIC_RESOURCE = 2  # ConfigResource.Type


def put(entity: str, *fields: str) -> Change:
    """Return a change that replaces the item whose key consists of the given fields."""
    return lambda state, data, at: state.put(entity, *_split(data, fields), at)


def remove(entity: str, *fields: str) -> Change:
    """Return a change that removes the item."""

    def change(state: State, data: Data, at: RecordPlace) -> None:
        state.remove(entity, _split(data, fields)[0])

    return change


def apply_unless(gone: Callable[[Data], bool], entity: str, *fields: str) -> Change:
    """Return a change that replaces the item, or removes it if the record marks it as removed."""
    kept, dropped = put(entity, *fields), remove(entity, *fields)
    return lambda state, data, at: (dropped if gone(data) else kept)(state, data, at)


def _split(data: Data, fields: tuple[str, ...]) -> tuple[Data, Data]:
    rest = {name: value for name, value in data.items() if name not in fields}
    return {name: data[name] for name in fields}, rest


def _remove_topic(state: State, data: Data, at: RecordPlace) -> None:
    topic = state.remove("topic", {"topicId": data["topicId"]})
    state.remove_where("partition", lambda item: item.key["topicId"] == data["topicId"])
    if topic:
        of_topic = _TOPIC_RESOURCE, topic.data["name"]
        state.remove_where("config", lambda item: (item.key["resourceType"], item.key["resourceName"]) == of_topic)


def _change_partition(state: State, data: Data, at: RecordPlace) -> None:
    key, changed = _split(data, ("topicId", "partitionId"))
    known = state.get("partition", key)
    fields = {name: value for name, value in changed.items() if value is not None}
    if fields.get("leaderRecoveryState") == _NO_RECOVERY_CHANGE:
        del fields["leaderRecoveryState"]
    if fields.get("leader") == _NO_LEADER_CHANGE:
        del fields["leader"]
    if known and "leaderEpoch" in known.data:
        # PartitionRegistration.merge: the record does not contain them.
        fields["leaderEpoch"] = known.data["leaderEpoch"] + ("leader" in fields)
        fields["partitionEpoch"] = known.data["partitionEpoch"] + 1
    state.merge("partition", key, fields, at)


def _clear_elr(state: State, data: Data, at: RecordPlace) -> None:
    topics = {
        item.key["topicId"] for item in state if item.entity == "topic" and item.data["name"] == data["topicName"]
    }
    state.change_where(
        "partition",
        lambda item: not data["topicName"] or item.key["topicId"] in topics,
        lambda fields: {**fields, "eligibleLeaderReplicas": [], "lastKnownElr": []},
    )


def _change_broker(state: State, data: Data, at: RecordPlace) -> None:
    key, fields = _split(data, ("brokerId",))
    switches = {name: fields[name] > 0 for name in _SWITCHES if fields.get(name)}
    others = {name: value for name, value in fields.items() if name not in _SWITCHES and value is not None}
    state.merge("broker", key, {**others, **switches}, at)


_QUOTA = apply_unless(lambda data: bool(data["remove"]), "quota", "entity", "key")


def _change_quota(state: State, data: Data, at: RecordPlace) -> None:
    # ClientQuotasImage.dataToEntity makes a map of the list: its parts can be in any order.
    _QUOTA(state, {**data, "entity": sorted(data["entity"], key=lambda part: str(part["entityType"]))}, at)


def _fence(fenced: bool) -> Change:
    return lambda state, data, at: state.merge("broker", {"brokerId": data["id"]}, {"fenced": fenced}, at)


#: Record name -> change. Records that do not affect the state are left out.
CLUSTER: Mapping[str, Change] = {
    "AccessControlEntry": put("acl", "id"),
    "BrokerRegistrationChange": _change_broker,
    "ClearElr": _clear_elr,
    "ClientQuota": _change_quota,
    "Config": apply_unless(lambda data: data["value"] is None, "config", "resourceType", "resourceName", "name"),
    "DelegationToken": put("delegation token", "tokenId"),
    "FeatureLevel": apply_unless(lambda data: not data["featureLevel"], "feature", "name"),
    "FenceBroker": _fence(True),
    "Partition": put("partition", "topicId", "partitionId"),
    "PartitionChange": _change_partition,
    "ProducerIds": put("producer ids"),
    "RegisterBroker": put("broker", "brokerId"),
    "RegisterController": put("controller", "controllerId"),
    "RemoveAccessControlEntry": remove("acl", "id"),
    "RemoveDelegationToken": remove("delegation token", "tokenId"),
    "RemoveTopic": _remove_topic,
    "RemoveUserScramCredential": remove("scram credential", "name", "mechanism"),
    "Topic": put("topic", "topicId"),
    "UnfenceBroker": _fence(False),
    "UnregisterBroker": remove("broker", "brokerId"),
    "UnregisterController": remove("controller", "controllerId"),
    "UserScramCredential": put("scram credential", "name", "mechanism"),
    "ZkMigrationState": put("zk migration"),
}


def _change_segment(state: State, data: Data, at: RecordPlace) -> None:
    key, fields = _split(data, ("remoteLogSegmentId",))
    if fields["remoteLogSegmentState"] == _SEGMENT_GONE:
        state.remove("remote segment", key)
    elif state.get("remote segment", key):  # the broker ignores updates of a segment that it does not know
        state.merge("remote segment", key, fields, at)


def _change_remote_partition(state: State, data: Data, at: RecordPlace) -> None:
    key, fields = _split(data, ("topicIdPartition",))
    if fields["remotePartitionDeleteState"] != _PARTITION_GONE:
        state.put("remote partition", key, fields, at)
        return
    state.remove("remote partition", key)
    place = data["topicIdPartition"]
    state.remove_where("remote segment", lambda item: item.key["remoteLogSegmentId"]["topicIdPartition"] == place)


REMOTE: Mapping[str, Change] = {
    "RemoteLogSegmentMetadata": put("remote segment", "remoteLogSegmentId"),
    "RemoteLogSegmentMetadataUpdate": _change_segment,
    "RemotePartitionDeleteMetadata": _change_remote_partition,
}


#: RemoteLogSegmentState and RemotePartitionDeleteState.
SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
_TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"
)  # fmt: skip
_ACL_OPERATIONS = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_ACL_RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")

#: Entity -> field -> number -> name. ACLs and configs number their resource types differently.
_NAMES: Mapping[str, Mapping[str, Mapping[int, str]]] = {
    "acl": {
        "resourceType": dict(enumerate(_ACL_RESOURCES)),
        "patternType": dict(enumerate(("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"))),
        "operation": dict(enumerate(_ACL_OPERATIONS)),
        "permissionType": dict(enumerate(("UNKNOWN", "ANY", "DENY", "ALLOW"))),
    },
    "config": {
        "resourceType": {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"},
    },
    "partition": {"leaderRecoveryState": {0: "RECOVERED", 1: "RECOVERING"}},
    "scram credential": {"mechanism": {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}},
    "remote segment": {"remoteLogSegmentState": dict(enumerate(SEGMENT_STATES))},
    "remote partition": {"remotePartitionDeleteState": dict(enumerate(DELETE_STATES))},
    "TransactionLog": {"transactionStatus": dict(enumerate(_TRANSACTION_STATES))},
}
#: The fields that hold a status.
_STATUSES = ("transactionStatus", "remoteLogSegmentState", "remotePartitionDeleteState")


def names(item: Item) -> dict[str, str]:
    """Return the names of an item's numbers by field. Numbers that a newer Kafka added are left out."""
    fields = {**item.key, **item.data}
    known = {name: numbers.get(fields.get(name, -1)) for name, numbers in _NAMES.get(item.entity, {}).items()}
    return {name: value for name, value in known.items() if value is not None}


def status(item: Item) -> str | None:
    """Return the status of a transactional id, a remote segment or a remote partition; None for other items."""
    known = names(item)
    return next((known[name] for name in _STATUSES if name in known), None)


# Offset, timestamp (-1 for none) and size of the key (-1 for null), before key and value.
_HEAD = Struct("<qqi")
_DIGEST_SIZE = 16


class LatestValues:
    """Items by key, in the order of their creation.

    A topic can have millions of keys, so keys and values are kept as the log has them, and decoded when items are read.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._records: dict[bytes, bytes] = {}

    def put(self, place: bytes, key: bytes | None, value: bytes, at: RecordPlace) -> None:
        """Set the value of a key; ``place`` is that of ``place_of``."""
        timestamp = -1 if at.timestamp is None else at.timestamp
        head = _HEAD.pack(at.offset, timestamp, -1 if key is None else len(key))
        self._records[place] = b"".join((head, key or b"", value))

    def remove(self, place: bytes) -> None:
        """Remove a key, if there is one."""
        self._records.pop(place, None)

    def commit(self, pending: LatestValues) -> None:
        """Apply the values of a transaction, unless a later record has already set the value of the key.

        Source: ``OffsetMetadataManager.replayEndTransactionMarker``.
        """
        for place, record in pending._records.items():
            known = self._records.get(place)
            if known is None or _HEAD.unpack_from(known)[0] < _HEAD.unpack_from(record)[0]:
                self._records[place] = record

    def __iter__(self) -> Iterator[Item]:
        for record in self._records.values():
            offset, timestamp, _ = _HEAD.unpack_from(record)
            key, value = _key_and_value(record)
            decoded = decode(self._topic, key, value)
            at = RecordPlace(offset, None if timestamp < 0 else timestamp, len(record) - _HEAD.size)
            yield Item(entity_of(decoded.key), _shown(decoded.key), _shown(decoded.value), at)

    def sizes(self) -> Iterator[tuple[str, Data, int]]:
        """Yield the entity, the key, and the bytes of key and value of each item, without decoding its value."""
        for record in self._records.values():
            key = decode(self._topic, _key_and_value(record)[0], None).key
            yield entity_of(key), _shown(key), len(record) - _HEAD.size


def place_of(decoded: DecodedRecord, entity: str | None = None) -> bytes:
    """Return what identifies the key of a record, or one of another ``entity`` with the same fields.

    Versions of a key differ in their bytes. The fields of a key are in the order of its definition.
    """
    place = repr((entity or entity_of(decoded.key), _shown(decoded.key))).encode("utf-8", "surrogatepass")
    return blake2b(place, digest_size=_DIGEST_SIZE).digest()


def _key_and_value(record: bytes) -> tuple[bytes | None, bytes]:
    key_size = _HEAD.unpack_from(record)[2]
    end = _HEAD.size + max(0, key_size)
    return None if key_size < 0 else record[_HEAD.size : end], record[end:]


#: The entity of a committed offset.
OFFSET_COMMIT = "OffsetCommit"
# Commits of Kafka before 0.9 have a type of their own, but the same key (``GroupCoordinatorShard.replay``).
_LEGACY_COMMIT = "LegacyOffsetCommit"


def entity_of(part: DecodedPart | None) -> str:
    """Return the kind of the item that a key or a value describes."""
    if part is None or part.type is None:
        return "unreadable"
    return OFFSET_COMMIT if part.name == _LEGACY_COMMIT else part.name or f"type {part.type}"


def _shown(part: DecodedPart | None) -> Data:
    if part is None:
        return {}
    return part.as_dict() if part.data is None else jsonable(part.data)
