"""The lines that kafka-dump-log prints for records of internal topics, with the decoder of the topic.

``--offsets-decoder``, ``--transaction-log-decoder`` and ``--share-group-state-decoder`` print a key and a payload as
JSON, and ``--cluster-metadata-decoder`` prints a payload. ``--remote-log-metadata-decoder`` prints the ``toString`` of
Java objects. If a part cannot be decoded, the line has the reason in its place. Kafka prints the message of a Java
exception there, which differs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from kseg.format.internal_topics.decode import DecodedPart, DecodedRecord
from kseg.format.internal_topics.state import DELETE_STATES, SEGMENT_STATES
from kseg.format.messages.message_reader import jsonable, known
from kseg.format.storage.naming import CLUSTER_METADATA, REMOTE_LOG_METADATA

_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_WORD = re.compile("(?<!^)([A-Z])")


def decoded_parts(topic: str, decoded: DecodedRecord, offset: int) -> tuple[str | None, str | None]:
    """Return the texts after ``key:`` and ``payload:`` in the line of a record; None for a part that is not printed."""
    if topic == CLUSTER_METADATA:
        return None, _of_value(decoded, _kraft, f"Error at {offset}, skipping.")
    failed = f"Error at offset {offset}, skipping."
    if topic == REMOTE_LOG_METADATA:
        return None, _of_value(decoded, _tiered, failed)
    key, value = decoded.key, decoded.value
    if key is not None and key.type is not None and key.name is None:
        return f"Unknown record type {key.type} at offset {offset}, skipping.", None
    if key is None or key.data is None or (value is not None and value.data is None):
        return f"{failed} {decoded.fault or _unknown(value)}", None
    payload = "<DELETE>" if value is None else jackson({"version": str(value.version), "data": known(value.data)})
    return jackson({"type": str(key.type), "data": known(key.data)}), payload


def jackson(node: Any) -> str:
    """Return JSON as Kafka's library writes it: without spaces, escapes only in ASCII, \\u001F instead of \\u001f."""
    text = _with_doubles(node) if _has_doubles(node) else _encode(jsonable(node))
    if "\\u" not in text:
        return text
    return _JSON_ESCAPE.sub(lambda escape: f"\\u{escape[1].upper()}" if escape[1] else escape[0], text)


def _has_doubles(node: Any) -> bool:
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return isinstance(node, float) or any(map(_has_doubles, items))


def _with_doubles(node: Any) -> str:
    """Return the node with doubles as text, because the JSON encoder cannot format them."""
    if isinstance(node, dict):
        return "{" + ",".join(f"{_encode(name)}:{_with_doubles(value)}" for name, value in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(_with_doubles, node)) + "]"
    return _double(node) if isinstance(node, float) else _encode(jsonable(node))


def _double(number: float) -> str:
    """Return a number as ``Double.toString`` does."""
    if not math.isfinite(number):
        return _encode(jsonable(number))
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{number!r}".partition("e")
    mantissa, _, power = f"{number:.{len(digits)}e}".partition("e") if not exponent else (digits, "", exponent)
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}E{int(power)}"


def _of_value(decoded: DecodedRecord, write: Callable[[DecodedPart], str], failed: str) -> str:
    value = decoded.value
    if value is None or value.data is None:
        return f"{failed} {decoded.fault or _unknown(value)}"
    return write(value)


def _unknown(value: DecodedPart | None) -> str:
    if value is None:
        return "null value"
    return f"unknown {'version' if value.name or value.type is None else f'type {value.type} version'} {value.version}"


def _kraft(value: DecodedPart) -> str:
    kind = _WORD.sub(r"_\1", value.name or "").upper() + "_RECORD"
    return jackson({"type": kind, "version": value.version, "data": known(value.data)})


def _tiered(value: DecodedPart) -> str:
    data, name = value.data or {}, value.name or ""
    if name not in _TIERED:
        return jackson(known(data))  # in files of a cache, never in the topic
    return _java(name, {field: write(data) for field, write in _TIERED[name].items()})


def _java(name: str, fields: Mapping[str, object]) -> str:
    return name + "{" + ", ".join(f"{field}={value}" for field, value in fields.items()) + "}"


_Data = Mapping[str, Any]


def _place(data: _Data) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _segment_id(data: _Data) -> str:
    segment = data["remoteLogSegmentId"]
    return _java("RemoteLogSegmentId", {"topicIdPartition": _place(segment["topicIdPartition"]), "id": segment["id"]})


def _epochs(data: _Data) -> str:
    pairs = {epoch["leaderEpoch"]: epoch["offset"] for epoch in data["segmentLeaderEpochs"]}
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(pairs.items())) + "}"


def _custom(data: _Data) -> str:
    metadata = data.get("customMetadata")
    return "Optional.empty" if metadata is None else f"Optional[CustomMetadata{{{len(metadata)} bytes}}]"


def _state(names: tuple[str, ...], field: str) -> Callable[[_Data], object]:
    return lambda data: names[data[field]] if 0 <= data[field] < len(names) else data[field]


def _same(name: str) -> Callable[[_Data], object]:
    return lambda data: data[name]


def _flag(name: str) -> Callable[[_Data], object]:
    return lambda data: str(data.get(name, False)).lower()


_STATE = _state(SEGMENT_STATES, "remoteLogSegmentState")
#: The fields of each object in the order of its ``toString`` in Java.
_TIERED: Mapping[str, Mapping[str, Callable[[_Data], object]]] = {
    "RemoteLogSegmentMetadata": {
        "remoteLogSegmentId": _segment_id,
        **{
            name: _same(name) for name in ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")
        },
        "segmentLeaderEpochs": _epochs,
        "segmentSizeInBytes": _same("segmentSizeInBytes"),
        "customMetadata": _custom,
        "state": _STATE,
        "txnIdxEmpty": _flag("txnIndexEmpty"),
    },
    "RemoteLogSegmentMetadataUpdate": {
        "remoteLogSegmentId": _segment_id,
        "customMetadata": _custom,
        "state": _STATE,
        "eventTimestampMs": _same("eventTimestampMs"),
        "brokerId": _same("brokerId"),
    },
    "RemotePartitionDeleteMetadata": {
        "topicPartition": lambda data: _place(data["topicIdPartition"]),
        "state": _state(DELETE_STATES, "remotePartitionDeleteState"),
        "eventTimestampMs": _same("eventTimestampMs"),
        "brokerId": _same("brokerId"),
    },
}
