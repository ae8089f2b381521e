"""Control records: transaction markers (KIP-98) and the control messages of KRaft (KIP-595, KIP-630, KIP-853).

The key has the type of a control record, the value has its content::

    key            := version:int16 type:int16                     -- ControlRecordType; newer versions may be longer
    ABORT, COMMIT  := version:int16 coordinatorEpoch:int32         -- EndTxnMarker; may be longer
    KRaft types    := the messages below, whose first field is their version

Kafka 4.3 reads every KRaft value as version 0. This module reads a value as the version it contains, so that version 1
of LEADER_CHANGE is read correctly: Kafka has published its layout, but does not write it yet.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kseg.engine import lazy
from kseg.format.messages import definitions

if TYPE_CHECKING:
    from kseg.format.messages import message_reader as message_reader
else:
    message_reader = lazy("kseg.format.messages.message_reader")  # an import runs it, as it is compiled

_EPOCH = struct.Struct(">i")
_CAPITAL = re.compile("([A-Z])")


class MalformedControlRecord(ValueError):
    """The bytes are not a control record; ``str(error)`` is the reason in one line."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record.

    ``type`` is a name of Kafka's ``ControlRecordType``, or ``UNKNOWN-<type_id>``. ``version`` is the version of the key.
    ``fields`` are the fields of Kafka's JSON converter with snake-cased names; those of a KRaft message include its own
    ``version``. If kseg does not know the version of a value, ``fields`` has only ``version``. If the type is unknown,
    ``fields`` is empty.
    """

    type: str
    type_id: int
    version: int
    fields: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        """Return one flat object. The message's own ``version`` replaces the key's."""
        return {"type": self.type, "version": self.version, **self.fields}


_MARKERS = ("ABORT", "COMMIT")
# The other types by number, and the message in the value of each.
_MESSAGES = {
    "LEADER_CHANGE": "LeaderChangeMessage",
    "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord",
    "KRAFT_VERSION": "KRaftVersionRecord",
    "KRAFT_VOTERS": "VotersRecord",
}
_TYPES = (*_MARKERS, *_MESSAGES)


# Coordinators write the same few bytes again and again.
@lru_cache(maxsize=16)
def decode(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return the control record with this key and value. Raises only MalformedControlRecord.

    As in Kafka, a newer version of the key or of a transaction marker is read as version 0. An unknown type, and a KRaft
    value newer than the tables, are not errors: the result lacks the fields that cannot be decoded.
    """
    if key is None or len(key) < 4:
        raise MalformedControlRecord("null key" if key is None else f"key of {len(key)} bytes, but the minimum is 4")
    version, type_id = struct.unpack_from(">hh", key)
    if version < 0:
        raise MalformedControlRecord(f"key version {version}")
    if not 0 <= type_id < len(_TYPES):
        return ControlRecord(f"UNKNOWN-{type_id}", type_id, version, {})
    name = _TYPES[type_id]
    try:
        fields = _fields(name, value)
    except message_reader.MalformedMessage as error:
        raise MalformedControlRecord(f"{name}: {error}") from None
    return ControlRecord(name, type_id, version, fields)


def newer(control: ControlRecord) -> str:
    """Return how a control record is newer than Kafka 4.3, empty if it is not."""
    if control.type_id >= len(_TYPES) or control.type_id < 0:
        return f"type {control.type_id} is unknown"
    if control.version:
        return f"version {control.version} of its key, expected 0"
    version = control.fields.get("version", 0)
    return f"version {version} of {control.type} is unknown" if [*control.fields] == ["version"] and version else ""


def _fields(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        raise message_reader.MalformedMessage("null value")
    cursor = message_reader.Cursor(value)
    version = cursor.int16()
    if version < 0:
        raise message_reader.MalformedMessage(f"value version {version}")
    if name in _MARKERS:
        return {"coordinator_epoch": _EPOCH.unpack(cursor.read_bytes(_EPOCH.size))[0]}
    message = definitions.definition(definitions.RECORDS, _MESSAGES[name], version)
    if message is None:
        return {"version": version}
    fields: dict[str, object] = _snake_cased(message_reader.known(message_reader.decode(message, version, value)))
    return fields


def _snake_cased(node: Any) -> Any:
    if isinstance(node, dict):
        return {_CAPITAL.sub(r"_\1", name).lower(): _snake_cased(value) for name, value in node.items()}
    return [_snake_cased(item) for item in node] if isinstance(node, list) else node
