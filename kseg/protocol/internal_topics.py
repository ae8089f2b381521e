"""Records of the topics that Kafka keeps for itself, decoded: which there are, how each frames its messages.

Three coordinators write a key and a value, KRaft and tiered storage a value alone::

    key    := type:int16 message                  -- the type is the API key of the definitions
    value  := version:int16 message               -- null is a tombstone
    framed := frame:uvarint type:uvarint version:uvarint message

What is of an unknown type or version is no error: a newer broker wrote it, and it is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from kseg.protocol import messages
from kseg.protocol.definitions import RECORDS, definition, named
from kseg.protocol.wire import Cursor, MalformedMessage

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
class Half:
    """A key or a value. ``type`` is the number of its kind of record, ``name`` that kind's name, where it tells them.

    ``data`` is the message; None where that isn't known, and ``raw`` then are the bytes as stored. ``fault`` says why
    bytes are not the message they claim to be.
    """

    type: int | None = None
    name: str | None = None
    version: int | None = None
    data: messages.Message | None = None
    raw: bytes | None = None
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What there is of it, as JSON has it."""
        found = zip(_SHOWN, _shown(self), strict=True)
        return {name: messages.jsonable(value) for name, value in found if value is not None}


_SHOWN = ("type", "name", "version", "data", "raw", "fault")
_shown = attrgetter(*_SHOWN)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record of an internal topic; a half that is null is None."""

    key: Half | None
    value: Half | None

    @property
    def fault(self) -> str | None:
        """What is malformed, None where nothing is."""
        found = [
            f"{name}: {half.fault}" for name, half in (("key", self.key), ("value", self.value)) if half and half.fault
        ]
        return "; ".join(found) or None

    def as_dict(self) -> dict[str, Any]:
        """The column ``decoded`` of a record's row."""
        return {"key": self.key and self.key.as_dict(), "value": self.value and self.value.as_dict()}


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """A record of ``topic``, one of TOPICS. Raises nothing: what is wrong is told in the halves."""
    return TOPICS[topic](key, value)


def _coordinated(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    if key is None:
        return Decoded(Half(fault="null, where a type should be"), None if value is None else Half(raw=value))
    first = _attempt(key, partial(_key, topic))
    if value is None or first.fault or first.name is None:
        return Decoded(first, None if value is None else Half(raw=value))
    return Decoded(first, _attempt(value, partial(_value, first.name)))


def _key(topic: str, cursor: Cursor) -> Half:
    kind = cursor.int16()
    name = _records(topic).get(kind)
    return Half(kind) if name is None else Half(kind, name, data=_message(f"{name}Key", 0, cursor))


def _value(name: str, cursor: Cursor) -> Half:
    version = cursor.int16()
    half = Half(version=version, data=_message(f"{name}Value", version, cursor))
    if name == "GroupMetadata" and half.data and half.data["protocolType"] == _CONSUMER_PROTOCOL:
        for member in half.data["members"]:
            _open_member(member)
    return half


def _open_member(member: messages.Message) -> None:
    """What clients tell each other through a classic group, opened where it is what Kafka's own consumers say."""
    for field, name in _MEMBER_FIELDS.items():
        data = member.get(field)
        if not data:
            continue
        try:
            cursor = Cursor(data)
            version = cursor.int16()
            known = definition(RECORDS, name, version)
            if known is not None:
                member[field] = messages.read(known, version, cursor)
        except MalformedMessage:
            pass  # the broker passes it on as it is, whatever it is


def _framed(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    found = value if value is None else _attempt(value, partial(_typed, topic))
    return Decoded(None if key is None else Half(raw=key), found)


def _typed(topic: str, cursor: Cursor) -> Half:
    frame = cursor.uvarint()
    if frame != FRAME_VERSION:
        raise MalformedMessage(f"frame version {frame}, where {FRAME_VERSION} should be")
    kind = cursor.uvarint()
    version = cursor.uvarint()
    name = _records(topic).get(kind)
    if name is None:
        return Half(kind, version=version)
    return Half(kind, name, version, _message(f"{name}Record", version, cursor))


@cache
def _records(topic: str) -> Mapping[int, str]:
    """The kinds of a topic's records by their numbers."""
    kinds = {**named(RECORDS, "coordinator-key", topic), **named(RECORDS, "metadata", topic)}
    return {number: _SUFFIX.sub("", name) for number, name in kinds.items()}


def _message(name: str, version: int, cursor: Cursor) -> messages.Message | None:
    known = definition(RECORDS, name, version)
    if known is None:
        return None
    data = messages.read(known, version, cursor)
    if cursor.left:
        raise MalformedMessage(f"{name}: {cursor.left} bytes behind the end of version {version}")
    return data


def _attempt(stored: bytes, read: Callable[[Cursor], Half]) -> Half:
    try:
        half = read(Cursor(stored))
    except MalformedMessage as error:
        return Half(raw=stored, fault=str(error))
    return half if half.data is not None else replace(half, raw=stored)


#: The topics, and for each what makes a record of a key and a value.
TOPICS: Mapping[str, Callable[[bytes | None, bytes | None], Decoded]] = {
    **{topic: partial(_coordinated, topic) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)},
    **{topic: partial(_framed, topic) for topic in (CLUSTER_METADATA, REMOTE_LOG_METADATA)},
}
