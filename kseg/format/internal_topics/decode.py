"""Decoding of the records of Kafka's internal topics: the topic of a segment, and the framing of its messages.

Three coordinators write a key and a value; KRaft and tiered storage write a value only::

    key    := type:int16 message                  -- the type is the API key of the definitions
    value  := version:int16 message               -- null is a tombstone
    framed := frame:uvarint type:uvarint version:uvarint message

A fault is what Kafka 4.3 fails on when it loads the record, also if a newer Kafka may have written it. Coordinators ignore
bytes after a message, and skip keys of unknown types; the transaction coordinator also skips values of unknown versions.
``metadata_replay`` reports unknown types and versions of KRaft. Compiled with the types of ``decode.pxd``.

Sources: ``CoordinatorRecordSerde``, ``TransactionLog.read``, ``AbstractApiMessageSerde``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kseg.findings import Finding, Report
from kseg.format.messages.definitions import RECORDS, definition, named
from kseg.format.messages.message_reader import (
    Cursor,
    MalformedMessage,
    Message,
    StructureReader,
    append_json,
    jsonable,
    reader,
)
from kseg.format.record.columns import RecordColumns
from kseg.format.record.layout import CONTROL
from kseg.format.storage.naming import CLUSTER_METADATA, KEYED, REMOTE_LOG_METADATA, TRANSACTION_STATE
from kseg.text import count_of, escape_json

if TYPE_CHECKING:  # a compiled module hides which library its import lacks
    from kseg.format.segment.records_chunk import Chunk

#: The version of the frame.
FRAME_VERSION = 1
# Values of this type have the data of members, which are decoded, too, if Kafka's own consumers wrote them.
_GROUP = "GroupMetadata"
_CONSUMER_PROTOCOL = "consumer"
_MEMBER_FIELDS = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_SUFFIX = re.compile("(Key|Value|Record)$")
#: Topics in which values of unknown versions have no fault.
_ANY_VERSION = (TRANSACTION_STATE, CLUSTER_METADATA)
#: Record name -> field -> how many numbers Kafka 4.3 knows, from 0 on. It fails on other ones. Sources:
#: ``TransactionState.fromId``, ``TransactionVersion.fromFeatureLevel``, ``RemoteLogSegmentState.forId``,
#: ``RemotePartitionDeleteState.forId``.
_NUMBERS: Mapping[str, Mapping[str, int]] = {
    "TransactionLog": {"transactionStatus": 8, "clientTransactionVersion": 3},
    "RemoteLogSegmentMetadata": {"remoteLogSegmentState": 4},
    "RemoteLogSegmentMetadataUpdate": {"remoteLogSegmentState": 4},
    "RemoteLogSegmentMetadataSnapshot": {"remoteLogSegmentState": 4},
    "RemotePartitionDeleteMetadata": {"remotePartitionDeleteState": 3},
}
#: The topics whose values are checked after they are read.
_CHECKED = (TRANSACTION_STATE, REMOTE_LOG_METADATA)


class DecodedPart:
    """The key or the value of a record.

    ``type`` is the number of the record type and ``name`` its name, if it has them. ``data`` is the message, None if the
    type or version is unknown. ``raw`` has the stored bytes if there is no message, or if more bytes follow it. ``fault`` is
    the reason if Kafka 4.3 cannot load it.
    """

    def __init__(self, raw: bytes | None = None, fault: str | None = None) -> None:
        self.type: int | None = None
        self.name: str | None = None
        self.version: int | None = None
        self.data: Message | None = None
        self.raw = raw
        self.fault = fault

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, with JSON values."""
        found = zip(_SHOWN, _shown(self), strict=True)
        return {name: jsonable(value) for name, value in found if value is not None}

    def append_json(self, parts: list[str]) -> None:
        """Append the pieces of ``as_dict`` as JSON."""
        start = len(parts)
        if self.type is not None:
            parts.append(f',"type":{self.type}')
        if self.name is not None:
            parts.append(f',"name":"{self.name}"')
        if self.version is not None:
            parts.append(f',"version":{self.version}')
        if self.data is not None:
            parts.append(',"data":')
            append_json(parts, self.data)
        if self.raw is not None:
            parts.append(',"raw":')
            append_json(parts, self.raw)
        if self.fault is not None:
            parts.append(',"fault":')
            append_json(parts, self.fault)
        parts[start] = "{" + parts[start][1:]
        parts.append("}")


_SHOWN = ("type", "name", "version", "data", "raw", "fault")
_shown = attrgetter(*_SHOWN)


class DecodedRecord:
    """A decoded record of an internal topic; a null key or value is None."""

    def __init__(self, key: DecodedPart | None, value: DecodedPart | None) -> None:
        self.key = key
        self.value = value

    @property
    def fault(self) -> str | None:
        """The faults of key and value in one line; None if both are valid."""
        found = []
        if self.key and self.key.fault:
            found.append(f"key: {self.key.fault}")
        if self.value and self.value.fault:
            found.append(f"value: {self.value.fault}")
        return "; ".join(found) or None

    def as_dict(self) -> dict[str, Any]:
        """Return the value of the column ``decoded`` of a record row."""
        return {"key": self.key and self.key.as_dict(), "value": self.value and self.value.as_dict()}

    def as_json(self) -> str:
        """Return ``as_dict`` as JSON: in a third of the time of ``to_json``."""
        parts = ['{"key":']
        if self.key:
            self.key.append_json(parts)
        parts.append(',"value":' if self.key else 'null,"value":')
        if self.value:
            self.value.append_json(parts)
        parts.append("}" if self.value else "null}")
        return escape_json("".join(parts))


class RecordType:
    """A type of records with its ``name`` and the readers of its messages."""

    def __init__(self, number: int, name: str, topic: str) -> None:
        self.number = number
        self.name = name
        self._topic = topic
        self._message = f"{name}Value" if topic in KEYED else f"{name}Record"
        self._key = self._reader(f"{name}Key", 0) if topic in KEYED else None
        self._readers: dict[int, StructureReader | None] = {}

    def key(self, cursor: Cursor) -> Message | None:
        """Return the message in a key."""
        return self._key.read(cursor) if self._key else None

    def value(self, version: int, cursor: Cursor) -> Message | None:
        """Return the message in a value, None if the version is unknown. Raises MalformedMessage."""
        if version not in self._readers:
            self._readers[version] = self._reader(self._message, version)
        found = self._readers[version]
        if found is None:
            if self._topic in _ANY_VERSION:
                return None
            raise MalformedMessage(_unknown(f"version {version}"))
        data = found.read(cursor)
        if cursor.remaining and self._key is None:
            raise MalformedMessage(
                f"{self._message}: {count_of(cursor.remaining, 'byte')} after the end of version {version}"
            )
        return data

    def _reader(self, message: str, version: int) -> StructureReader | None:
        known = definition(RECORDS, message, version)
        return reader(known, version) if known else None


def _unknown(what: str) -> str:
    return f"{what} is unknown to Kafka 4.3: a newer one may have written it"


@cache
def record_types(topic: str) -> Mapping[int, RecordType]:
    """Return the record types of a topic by number."""
    kinds = {**named(RECORDS, "coordinator-key", topic), **named(RECORDS, "metadata", topic)}
    return {number: RecordType(number, _SUFFIX.sub("", name), topic) for number, name in kinds.items()}


def decode(topic: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode a record of ``topic``, one of INTERNAL_TOPICS. Does not raise: faults are in the parts of the result."""
    return _decoded(topic, None if key is None else Cursor(key), None if value is None else Cursor(value))


class RecordsDecoder:
    """Decodes the records of a batch of ``topic``, one of INTERNAL_TOPICS; the bytes of the batch are in ``payload``."""

    def __init__(self, topic: str, payload: bytes | memoryview) -> None:
        self._topic = topic
        self._key = Cursor(payload)
        self._value = Cursor(payload)

    def decode(self, records: RecordColumns, i: int) -> DecodedRecord:
        """Decode data record ``i``, as ``decode``."""
        if key_size := max(records.key_size[i], -1) + 1:
            self._key.move(records.key_at[i], records.key_at[i] + key_size - 1)
        if value_size := max(records.value_size[i], -1) + 1:
            self._value.move(records.value_at[i], records.value_at[i] + value_size - 1)
        return _decoded(self._topic, self._key if key_size else None, self._value if value_size else None)

    def first_fault(self, records: RecordColumns, first: int, stop: int) -> int:
        """Return the first of the data records ``first`` to ``stop`` (exclusive) that is not valid, otherwise ``stop``."""
        self._key.discards = self._value.discards = self._topic not in _CHECKED
        while first < stop and self.decode(records, first).fault is None:
            first += 1
        self._key.discards = self._value.discards = False
        return first


def _decoded(topic: str, key: Cursor | None, value: Cursor | None) -> DecodedRecord:
    types = record_types(topic)
    if topic not in KEYED:
        part = _framed(topic, types, value) if value else None
        if value is None and topic == REMOTE_LOG_METADATA:
            part = DecodedPart(None, "null instead of a record")
        return DecodedRecord(DecodedPart(key.stored()) if key else None, part)
    first = _key(types, key) if key else DecodedPart(None, "null instead of a record type")
    if value is None:
        return DecodedRecord(first, None)
    kind = types.get(first.type) if first.type is not None else None
    return DecodedRecord(first, _value(kind, value) if kind else DecodedPart(value.stored()))


def _key(types: Mapping[int, RecordType], cursor: Cursor) -> DecodedPart:
    part = DecodedPart()
    try:
        kind = cursor.int16()
        found = types.get(kind)
        part.data = found.key(cursor) if found else None
        part.type, part.name = kind, found.name if found else None
    except MalformedMessage as error:
        part.fault = str(error)
    return _with_stored(part, cursor)


def _value(kind: RecordType, cursor: Cursor) -> DecodedPart:
    part = DecodedPart()
    try:
        part.version = cursor.int16()
        part.data = kind.value(part.version, cursor)
        part.fault = _load_fault(kind, part.data)
    except MalformedMessage as error:
        part.fault = str(error)
    if kind.name == _GROUP and not cursor.discards and part.data and part.data["protocolType"] == _CONSUMER_PROTOCOL:
        for member in part.data["members"]:
            _decode_member(member)
    return _with_stored(part, cursor)


def _framed(topic: str, types: Mapping[int, RecordType], cursor: Cursor) -> DecodedPart:
    part = DecodedPart()
    try:
        frame = cursor.uvarint()
        if frame != FRAME_VERSION:
            raise MalformedMessage(f"frame version {frame}, expected {FRAME_VERSION}")
        kind, version = cursor.uvarint(), cursor.uvarint()
        found = types.get(kind)
        part.data = found.value(version, cursor) if found else None
        part.type, part.name, part.version = kind, found.name if found else None, version
        if found:
            part.fault = _load_fault(found, part.data)
        elif topic == REMOTE_LOG_METADATA:
            part.fault = _unknown(f"type {kind}")
    except MalformedMessage as error:
        part.fault = str(error)
    return _with_stored(part, cursor)


def _load_fault(kind: RecordType, data: Message | None) -> str | None:
    """Return why Kafka 4.3 cannot load a message that it can read, None if it can."""
    if not data:
        return None
    for field, count in _NUMBERS.get(kind.name, {}).items():
        number = data.get(field, 0)
        if not 0 <= number < count:
            return _unknown(f"{field} {number}")
    if data.get("transactionStatus") and data["transactionPartitions"] is None:
        return "transactionPartitions is null, but the status is not Empty"
    if kind.name == "RemoteLogSegmentMetadata" and not 0 <= data["startOffset"] <= data["endOffset"]:
        return f"startOffset {data['startOffset']}, endOffset {data['endOffset']}"
    if "segmentLeaderEpochs" in data and not data["segmentLeaderEpochs"]:
        return "segmentLeaderEpochs is empty"
    return None


def _with_stored(part: DecodedPart, cursor: Cursor) -> DecodedPart:
    """Return a part with its stored bytes if Kafka defines no message, or reads only a part of them."""
    if part.data is None or cursor.remaining:
        part.raw = cursor.stored()
    return part


def _decode_member(member: Message) -> None:
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
                member[field] = reader(known, version).read(cursor)
        except MalformedMessage:
            pass  # the broker does not decode these bytes either


def records_decoder(topic: str, chunk: Chunk, row: int) -> RecordsDecoder | None:
    """Return the decoder of the records of batch ``row``. Control records belong to no topic: for them, return None."""
    if chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL:
        return None
    return RecordsDecoder(topic, chunk.payload(row))


def decoded_record(topic: str, chunk: Chunk, i: int) -> DecodedRecord | None:
    """Return record ``i`` of the chunk, decoded; None for a control record."""
    decoder = records_decoder(topic, chunk, chunk.records.batch[i])
    return decoder.decode(chunk.records, i) if decoder else None


_HEADER, _FOOTER = "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"


class SnapshotEnds:
    """Keeps the types of the first and the last record of the chunks of a snapshot.

    It is complete if the first one is a header and the last one a footer (KIP-630).
    """

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None

    def append(self, chunk: Chunk) -> None:
        if not chunk.records.count:
            return
        if self._first is None:
            self._first = _type_of(chunk, 0)
        self._last = _type_of(chunk, chunk.records.count - 1)

    def check(self, size: int, report: Report) -> None:
        """Report a missing header or footer of a file of ``size`` bytes. Call it after the last chunk."""
        if self._first != _HEADER:
            why = f"the first record is not a {_HEADER} ({self._first or 'there is none'})"
            report(Finding("kraft-snapshot-incomplete", 0, facts={"why": why}))
        elif self._last != _FOOTER:
            why = f"the last record is not a {_FOOTER} ({self._last})"
            report(Finding("kraft-snapshot-incomplete", size, facts={"why": why}))


def _type_of(chunk: Chunk, i: int) -> str:
    control = chunk.control(i)
    return control.type if control else "it is data"
