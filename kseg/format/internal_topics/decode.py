"""Decoding of the records of Kafka's internal topics: the topic of a segment, the framing of its messages, and their JSON.

Three coordinators write a key and a value; KRaft and tiered storage write a value only::

    key    := type:int16 message                  -- the type is the API key of the definitions
    value  := version:int16 message               -- null is a tombstone
    framed := frame:uvarint type:uvarint version:uvarint message

An unknown type or version is not an error: a newer broker wrote it, and the bytes are kept as they are. The column
``decoded`` is written directly from the bytes where that is possible, with the names of Kafka's enums for their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from kseg.format.internal_topics import json_text
from kseg.format.internal_topics.json_text import JsonProgram, JsonText, Kinds, parts_of
from kseg.format.internal_topics.state import Item
from kseg.format.messages import message_reader
from kseg.format.messages.definitions import RECORDS, definition, named
from kseg.format.messages.message_reader import Cursor, MalformedMessage
from kseg.format.record.layout import CONTROL
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.source import topic_partition
from kseg.text import count_of

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
SHARE_GROUP_STATE = "__share_group_state"
REMOTE_LOG_METADATA = "__remote_log_metadata"

#: The version of the frame.
FRAME_VERSION = 1
_CONSUMER_PROTOCOL = "consumer"
_MEMBER_FIELDS = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_SUFFIX = re.compile("(Key|Value|Record)$")


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """The key or the value of a record.

    ``type`` is the number of the record type and ``name`` its name, if it has them. ``data`` is the message. For an
    unknown type or version it is None, and ``raw`` has the stored bytes. ``fault`` is the reason if the bytes are not a
    valid message.
    """

    type: int | None = None
    name: str | None = None
    version: int | None = None
    data: message_reader.Message | None = None
    raw: bytes | None = None
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, with JSON values."""
        found = zip(_SHOWN, _shown(self), strict=True)
        return {name: message_reader.jsonable(value) for name, value in found if value is not None}


_SHOWN = ("type", "name", "version", "data", "raw", "fault")
_shown = attrgetter(*_SHOWN)


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A decoded record of an internal topic; a null key or value is None."""

    key: DecodedPart | None
    value: DecodedPart | None

    @property
    def fault(self) -> str | None:
        """The faults of key and value in one line; None if both are valid."""
        found = [
            f"{name}: {half.fault}" for name, half in (("key", self.key), ("value", self.value)) if half and half.fault
        ]
        return "; ".join(found) or None

    def as_dict(self) -> dict[str, Any]:
        """Return the value of the column ``decoded`` of a record row."""
        return {"key": self.key and self.key.as_dict(), "value": self.value and self.value.as_dict()}


def decode(topic: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode a record of ``topic``, one of TOPICS. Does not raise: faults are in the parts of the result."""
    return TOPICS[topic](key, value)


def _coordinated(topic: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    if key is None:
        return DecodedRecord(
            DecodedPart(fault="null instead of a record type"), None if value is None else DecodedPart(raw=value)
        )
    first = _attempt(key, partial(_key, topic))
    if value is None or first.fault or first.name is None:
        return DecodedRecord(first, None if value is None else DecodedPart(raw=value))
    return DecodedRecord(first, _attempt(value, partial(_value, first.name)))


def _key(topic: str, cursor: Cursor) -> DecodedPart:
    kind = cursor.int16()
    name = record_types(topic).get(kind)
    return DecodedPart(kind) if name is None else DecodedPart(kind, name, data=_message(f"{name}Key", 0, cursor))


def _value(name: str, cursor: Cursor) -> DecodedPart:
    version = cursor.int16()
    half = DecodedPart(version=version, data=_message(f"{name}Value", version, cursor))
    if name == "GroupMetadata" and half.data and half.data["protocolType"] == _CONSUMER_PROTOCOL:
        for member in half.data["members"]:
            _open_member(member)
    return half


def _open_member(member: message_reader.Message) -> None:
    """Decode the member data of a classic consumer group, if it is in the format of Kafka's own consumers."""
    for field, name in _MEMBER_FIELDS.items():
        data = member.get(field)
        if not data:
            continue
        try:
            cursor = Cursor(data)
            version = cursor.int16()
            known = definition(RECORDS, name, version)
            if known is not None:
                member[field] = message_reader.read(known, version, cursor)
        except MalformedMessage:
            pass  # the broker does not decode these bytes either


def _framed(topic: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    found = value if value is None else _attempt(value, partial(_typed, topic))
    return DecodedRecord(None if key is None else DecodedPart(raw=key), found)


def _typed(topic: str, cursor: Cursor) -> DecodedPart:
    frame = cursor.uvarint()
    if frame != FRAME_VERSION:
        raise MalformedMessage(f"frame version {frame}, expected {FRAME_VERSION}")
    kind = cursor.uvarint()
    version = cursor.uvarint()
    name = record_types(topic).get(kind)
    if name is None:
        return DecodedPart(kind, version=version)
    return DecodedPart(kind, name, version, _message(f"{name}Record", version, cursor))


@cache
def record_types(topic: str) -> Mapping[int, str]:
    """Return the record types of a topic by number."""
    kinds = {**named(RECORDS, "coordinator-key", topic), **named(RECORDS, "metadata", topic)}
    return {number: _SUFFIX.sub("", name) for number, name in kinds.items()}


def _message(name: str, version: int, cursor: Cursor) -> message_reader.Message | None:
    known = definition(RECORDS, name, version)
    if known is None:
        return None
    data = message_reader.read(known, version, cursor)
    if cursor.remaining:
        raise MalformedMessage(f"{name}: {count_of(cursor.remaining, 'byte')} after the end of version {version}")
    return data


def _attempt(stored: bytes, read: Callable[[Cursor], DecodedPart]) -> DecodedPart:
    try:
        half = read(Cursor(stored))
    except MalformedMessage as error:
        return DecodedPart(raw=stored, fault=str(error))
    return half if half.data is not None else replace(half, raw=stored)


#: The topics of coordinators: a record's key begins with its type.
KEYED = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
#: Topic -> decoder of (key, value).
TOPICS: Mapping[str, Callable[[bytes | None, bytes | None], DecodedRecord]] = {
    **{topic: partial(_coordinated, topic) for topic in KEYED},
    **{topic: partial(_framed, topic) for topic in (CLUSTER_METADATA, REMOTE_LOG_METADATA)},
}


#: Recognise the internal topic by the name of the folder.
BY_FOLDER = "auto"
_PREFIX = "__"


def internal_topic(path: str, decode_as: str | None = BY_FOLDER) -> str | None:
    """Return the internal topic whose decoder reads the segment: ``decode_as``, or the topic in the folder's name.

    Returns None if the records are not decoded: for other topics, and if ``decode_as`` is None.
    """
    if decode_as == BY_FOLDER:
        decode_as, _ = topic_partition(path)
    if decode_as is None or not decode_as.startswith(_PREFIX):
        return None
    return decode_as if decode_as in TOPICS else None


def decoded_record(topic: str, chunk: Chunk, i: int) -> DecodedRecord | None:
    """Return record ``i`` of the chunk, decoded. Control records belong to no topic: for them, return None."""
    if chunk.control(i) is not None:
        return None
    return decode(topic, chunk.key(i), chunk.value(i))


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


#: Values whose members' data are decoded, too: they are left to ``decode``.
_NESTED = "GroupMetadata"
_VERSIONS = range(32)


class RecordJson:
    """Writes records of a topic whose keys have a type. ``text`` has the JSON of the last written record."""

    def __init__(self, topic: str) -> None:
        self._kinds = _kinds(topic)
        self.text = JsonText()

    def write(self, chunk: Chunk, i: int, row: int) -> bool:
        """Write data record ``i`` of batch ``row``; return False if ``decode`` must decode it.

        A record that is written has a valid key, and a valid value or null.
        """
        return self.text.write_record(self._kinds, chunk.payload(row), chunk.records, i)

    def first_unwritten(self, chunk: Chunk, row: int, first: int, stop: int) -> int:
        """Return the first record of batch ``row``, from ``first`` on, that ``decode`` must decode, or ``stop``."""
        if chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL:
            return first
        return self.text.first_unwritten(self._kinds, chunk.payload(row), chunk.records, first, stop)


@cache
def record_json(topic: str) -> RecordJson | None:
    """Return the writer of a topic's records, None if the engine is not compiled or the records have no typed keys."""
    return RecordJson(topic) if json_text.COMPILED and topic in KEYED else None


@cache
def _kinds(topic: str) -> Kinds:
    found: Kinds = {}
    for number, name in record_types(topic).items():
        key = _program(f"{name}Key", 0, f'{{"key":{{"type":{number},"name":"{name}","data":', '},"value":')
        if key is None:
            continue
        values = {
            version: program
            for version in (_VERSIONS if name != _NESTED else ())
            if (program := _program(f"{name}Value", version, f'{{"version":{version},"data":', "}}"))
        }
        found[number] = key, JsonProgram([], "null}"), values
    return found


def _program(name: str, version: int, prefix: str, suffix: str) -> JsonProgram | None:
    known = definition(RECORDS, name, version)
    parts = parts_of(known, version) if known else None
    return JsonProgram(parts, prefix, suffix) if parts is not None else None
