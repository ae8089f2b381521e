"""Decoding of the records of Kafka's internal topics, and the framing of each topic's messages.

Three coordinators write a key and a value; KRaft and tiered storage write a value only::

    key    := type:int16 message                  -- the type is the API key of the definitions
    value  := version:int16 message               -- null is a tombstone
    framed := frame:uvarint type:uvarint version:uvarint message

An unknown type or version is not an error: a newer broker wrote it, and the bytes are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from kseg.format.messages import reader
from kseg.format.messages.cursor import Cursor, MalformedMessage
from kseg.format.messages.definitions import RECORDS, definition, named
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
    data: reader.Message | None = None
    raw: bytes | None = None
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, with JSON values."""
        found = zip(_SHOWN, _shown(self), strict=True)
        return {name: reader.jsonable(value) for name, value in found if value is not None}


_SHOWN = ("type", "name", "version", "data", "raw", "fault")
_shown = attrgetter(*_SHOWN)


@dataclass(frozen=True, slots=True)
class Decoded:
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


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """Decode a record of ``topic``, one of TOPICS. Does not raise: faults are in the parts of the result."""
    return TOPICS[topic](key, value)


def _coordinated(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    if key is None:
        return Decoded(
            DecodedPart(fault="null instead of a record type"), None if value is None else DecodedPart(raw=value)
        )
    first = _attempt(key, partial(_key, topic))
    if value is None or first.fault or first.name is None:
        return Decoded(first, None if value is None else DecodedPart(raw=value))
    return Decoded(first, _attempt(value, partial(_value, first.name)))


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


def _open_member(member: reader.Message) -> None:
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
                member[field] = reader.read(known, version, cursor)
        except MalformedMessage:
            pass  # the broker does not decode these bytes either


def _framed(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    found = value if value is None else _attempt(value, partial(_typed, topic))
    return Decoded(None if key is None else DecodedPart(raw=key), found)


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


def _message(name: str, version: int, cursor: Cursor) -> reader.Message | None:
    known = definition(RECORDS, name, version)
    if known is None:
        return None
    data = reader.read(known, version, cursor)
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
TOPICS: Mapping[str, Callable[[bytes | None, bytes | None], Decoded]] = {
    **{topic: partial(_coordinated, topic) for topic in KEYED},
    **{topic: partial(_framed, topic) for topic in (CLUSTER_METADATA, REMOTE_LOG_METADATA)},
}
