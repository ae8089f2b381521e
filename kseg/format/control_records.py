"""Control records: transaction markers (KIP-98) and the control messages of KRaft (KIP-595, KIP-630, KIP-853).

The key says what a control record is, the value what it carries::

    key            := version:int16 type:int16                     -- ControlRecordType; longer keys are newer ones
    ABORT, COMMIT  := version:int16 coordinatorEpoch:int32         -- EndTxnMarker; longer allowed
    the KRaft ones := version:int16 field* tags                    -- the tables below, "flexible" (KIP-482)

    tags           := count:uvarint (tag:uvarint size:uvarint byte*)*
    compact array  := (count + 1):uvarint item*                    -- 0 is null, which no field here may be
    compact string := (size + 1):uvarint byte*

Kafka 4.3 reads every KRaft value as version 0, whatever it says; here a value is read as the version it names, so
that LEADER_CHANGE 1, whose layout Kafka has published but not yet written, is read right.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass

_SHORT = struct.Struct(">h")
_UNSIGNED_VARINT_MAX_BYTES = 5


class MalformedControlRecord(ValueError):
    """Bytes that are no control record; ``str(error)`` is one line that says why."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record.

    ``type`` is the name of Kafka's ``ControlRecordType``, ``UNKNOWN-<type_id>`` for one that has none. ``version`` is
    the key's. ``fields`` are those that Kafka's JSON converter of the message writes, snake-cased; a KRaft message has
    a ``version`` of its own among them. Of a value newer than kseg knows only that ``version`` is there, of an unknown
    type nothing.
    """

    type: str
    type_id: int
    version: int
    fields: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        """One flat object; the message's own ``version`` stands in place of the key's."""
        return {"type": self.type, "version": self.version, **self.fields}


class _Cursor:
    """Bytes read from the front; nothing is taken before it is known to be there."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise MalformedControlRecord(f"{size} bytes wanted at byte {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self) -> int:
        value = 0
        for index in range(_UNSIGNED_VARINT_MAX_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise MalformedControlRecord(f"varint of more than {_UNSIGNED_VARINT_MAX_BYTES} bytes before byte {self.at}")

    def compact_length(self, what: str) -> int:
        # Stored as one more than it is. No item is smaller than a byte, so a count can't exceed what is left, either.
        length = self.uvarint() - 1
        if length < 0:
            raise MalformedControlRecord(f"null {what} at byte {self.at}")
        if length > self.left:
            raise MalformedControlRecord(f"{what} of length {length} with {self.left} bytes left")
        return length


# Reads one value of a message of the given version.
_Reader = Callable[[_Cursor, int], object]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: _Reader
    since: int = 0


def _integer(code: str) -> _Reader:
    layout = struct.Struct(">" + code)

    def read(cursor: _Cursor, version: int) -> object:
        return layout.unpack(cursor.take(layout.size))[0]

    return read


def _uuid(cursor: _Cursor, version: int) -> object:
    # As Kafka's Uuid prints itself.
    return base64.urlsafe_b64encode(cursor.take(16)).rstrip(b"=").decode("ascii")


def _string(cursor: _Cursor, version: int) -> object:
    return cursor.take(cursor.compact_length("string")).decode("utf-8", "replace")


def _array(item: _Reader) -> _Reader:
    def read(cursor: _Cursor, version: int) -> object:
        return [item(cursor, version) for _ in range(cursor.compact_length("array"))]

    return read


def _structure(*fields: _Field) -> Callable[[_Cursor, int], dict[str, object]]:
    def read(cursor: _Cursor, version: int) -> dict[str, object]:
        values = {field.name: field.read(cursor, version) for field in fields if version >= field.since}
        _skip_tags(cursor)
        return values

    return read


def _skip_tags(cursor: _Cursor) -> None:
    # No message here has a tag that means something yet.
    for _ in range(cursor.uvarint()):
        cursor.uvarint()
        cursor.take(cursor.uvarint())


_INT16 = _integer("h")
_INT32 = _integer("i")
_INT64 = _integer("q")
_UINT16 = _integer("H")

_VERSION = _Field("version", _INT16)
_LEADER_CHANGE_VOTERS = _array(
    _structure(
        _Field("voter_id", _INT32),
        _Field("voter_directory_id", _uuid, since=1),
    )
)
_ENDPOINTS = _array(
    _structure(
        _Field("name", _string),
        _Field("host", _string),
        _Field("port", _UINT16),
    )
)
_KRAFT_VERSION_FEATURE = _structure(
    _Field("min_supported_version", _INT16),
    _Field("max_supported_version", _INT16),
)
_VOTERS = _array(
    _structure(
        _Field("voter_id", _INT32),
        _Field("voter_directory_id", _uuid),
        _Field("endpoints", _ENDPOINTS),
        _Field("k_raft_version_feature", _KRAFT_VERSION_FEATURE),
    )
)


@dataclass(frozen=True, slots=True)
class _Message:
    """A KRaft value: the newest version whose layout is known, and the layout."""

    newest: int
    read: Callable[[_Cursor, int], dict[str, object]]


_TRANSACTION_MARKERS = {0: "ABORT", 1: "COMMIT"}
_KRAFT_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}
_TYPES = {**_TRANSACTION_MARKERS, **_KRAFT_TYPES}

# LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord.
_MESSAGES = {
    "LEADER_CHANGE": _Message(
        1,
        _structure(
            _VERSION,
            _Field("leader_id", _INT32),
            _Field("voters", _LEADER_CHANGE_VOTERS),
            _Field("granting_voters", _LEADER_CHANGE_VOTERS),
        ),
    ),
    "SNAPSHOT_HEADER": _Message(0, _structure(_VERSION, _Field("last_contained_log_timestamp", _INT64))),
    "SNAPSHOT_FOOTER": _Message(0, _structure(_VERSION)),
    "KRAFT_VERSION": _Message(0, _structure(_VERSION, _Field("k_raft_version", _INT16))),
    "KRAFT_VOTERS": _Message(0, _structure(_VERSION, _Field("voters", _VOTERS))),
}


def decode(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The control record that a key and a value make. Raises MalformedControlRecord, and nothing else.

    As in Kafka, a newer key version is read as version 0, and so is a newer transaction marker. An unknown type, and a
    KRaft value newer than the tables here, are no errors: they come back without the fields that can't be told.
    """
    if key is None or len(key) < 4:
        raise MalformedControlRecord("null key" if key is None else f"key of {len(key)} bytes, at least 4 wanted")
    version, type_id = struct.unpack_from(">hh", key)
    if version < 0:
        raise MalformedControlRecord(f"key version {version}")
    name = _TYPES.get(type_id)
    if name is None:
        return ControlRecord(f"UNKNOWN-{type_id}", type_id, version, {})
    try:
        fields = _fields(name, value)
    except MalformedControlRecord as error:
        raise MalformedControlRecord(f"{name}: {error}") from None
    return ControlRecord(name, type_id, version, fields)


def _fields(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        raise MalformedControlRecord("null value")
    cursor = _Cursor(value)
    (version,) = _SHORT.unpack(cursor.take(_SHORT.size))
    if version < 0:
        raise MalformedControlRecord(f"value version {version}")
    message = _MESSAGES.get(name)
    if message is None:
        return {"coordinator_epoch": _INT32(cursor, version)}
    if version > message.newest:
        return {"version": version}
    cursor.at = 0  # the version is the message's first field, too
    fields = message.read(cursor, version)
    if cursor.left:
        raise MalformedControlRecord(f"{cursor.left} bytes behind the end of version {version}")
    return fields
