"""Control records: transaction markers (KIP-98) and the control messages of KRaft (KIP-595, KIP-630, KIP-853).

The key says what a control record is, the value what it carries::

    key            := version:int16 type:int16                     -- ControlRecordType; longer keys are newer ones
    ABORT, COMMIT  := version:int16 coordinatorEpoch:int32         -- EndTxnMarker; longer allowed
    the KRaft ones := the messages below, whose first field is their version

Kafka 4.3 reads every KRaft value as version 0, whatever it says; here a value is read as the version it names, so
that LEADER_CHANGE 1, whose layout Kafka has published but not yet written, is read right.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

from kseg.format.messages.cursor import Cursor, MalformedMessage

_EPOCH = struct.Struct(">i")
_CAPITAL = re.compile("([A-Z])")


class MalformedControlRecord(MalformedMessage):
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


_MARKERS = ("ABORT", "COMMIT")
_TYPES = (*_MARKERS, "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
# The message that is the value.
_MESSAGES = {
    "LEADER_CHANGE": "LeaderChangeMessage",
    "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord",
    "KRAFT_VERSION": "KRaftVersionRecord",
    "KRAFT_VOTERS": "VotersRecord",
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
    if not 0 <= type_id < len(_TYPES):
        return ControlRecord(f"UNKNOWN-{type_id}", type_id, version, {})
    name = _TYPES[type_id]
    try:
        fields = _fields(name, value)
    except MalformedMessage as error:
        raise MalformedControlRecord(f"{name}: {error}") from None
    return ControlRecord(name, type_id, version, fields)


def _fields(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        raise MalformedControlRecord("null value")
    cursor = Cursor(value)
    version = cursor.int16()
    if version < 0:
        raise MalformedControlRecord(f"value version {version}")
    if name in _MARKERS:
        return {"coordinator_epoch": _EPOCH.unpack(cursor.read_bytes(_EPOCH.size))[0]}
    # Here, since nearly no log has such records: the tables take a while to load.
    from kseg.format.messages import reader
    from kseg.format.messages.definitions import RECORDS, definition

    message = definition(RECORDS, _MESSAGES[name], version)
    if message is None:
        return {"version": version}
    fields: dict[str, object] = _snake_cased(reader.known(reader.decode(message, version, value)))
    return fields


def _snake_cased(node: Any) -> Any:
    if isinstance(node, dict):
        return {_CAPITAL.sub(r"_\1", name).lower(): _snake_cased(value) for name, value in node.items()}
    return [_snake_cased(item) for item in node] if isinstance(node, list) else node
