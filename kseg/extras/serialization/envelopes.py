"""What programs put around a key or a value: Kafka Streams windows and times, Connect's schemas, and envelopes of events."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kseg.extras.serialization.json_values import (
    Convert,
    date_text,
    decimal_text,
    parse_json,
    time_text,
    timestamp_text,
)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Numbers before or after the bytes of a key or a value. ``names`` are those of the numbers in ``layout``.

    Times are epoch milliseconds. The decoded bytes get the name ``content``.
    """

    meaning: str
    content: str
    layout: str
    names: tuple[str, ...]
    first: bool = False

    def split(self, data: bytes) -> tuple[bytes, dict[str, int]]:
        """Return the bytes, and the numbers by their names. Raises ValueError."""
        size = struct.calcsize(self.layout)
        if len(data) < size:
            raise ValueError(f"expected at least {size} bytes, got {len(data):,}")
        numbers, inner = (data[:size], data[size:]) if self.first else (data[-size:], data[:-size])
        return inner, dict(zip(self.names, struct.unpack(self.layout, numbers), strict=True))


#: By the name before the colon in ``--key-as`` and ``--value-as``; the type of the bytes is after it. Adding one is one row.
#: Sources: ``WindowKeySchema``, ``SessionKeySchema`` and ``ValueAndTimestampSerializer`` of Kafka Streams.
WRAPPERS: Mapping[str, Wrapper] = {
    "time-windowed": Wrapper("a key and the start of its window (TimeWindowedSerializer)", "key", ">q", ("window_start",)),
    "session-windowed": Wrapper(
        "a key, the end and the start of its session (SessionWindowedSerializer)", "key", ">qq",
        ("window_end", "window_start"),
    ),
    "window-store": Wrapper(
        "a key in the changelog of a window store: with the start and a sequence number", "key", ">qi",
        ("window_start", "sequence"),
    ),
    "value-and-timestamp": Wrapper(
        "a timestamp and the value (ValueAndTimestampSerializer)", "value", ">q", ("timestamp",), first=True
    ),
}  # fmt: skip


def decode_connect(data: bytes) -> Any:
    """Return the payload of Connect's JSON, with decimals as texts and times in ISO 8601. Raises ValueError."""
    found = parse_json(data)
    if not _is_connect(found):
        raise ValueError("expected an object with schema and payload: JSON without a schema is --value-as json")
    try:
        return _payload(found["schema"], found["payload"])
    except RecursionError:
        raise ValueError("the schema is nested too deeply") from None


def _payload(schema: Any, value: Any) -> Any:
    """Return a value with the logical types of its schema; what does not fit its schema stays as it is."""
    if not isinstance(schema, dict) or value is None:
        return value
    kind, fields = schema.get("type"), schema.get("fields")
    if convert := _LOGICAL.get(str(schema.get("name"))):
        try:
            return convert(value, schema)
        except (KeyError, TypeError, ValueError):
            return value  # such as a decimal with decimal.format=NUMERIC
    if kind == "struct" and isinstance(value, dict) and isinstance(fields, list):
        types = {str(field.get("field")): field for field in fields if isinstance(field, dict)}
        return {name: _payload(types.get(name), one) for name, one in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_payload(schema.get("items"), one) for one in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _payload(schema.get("values"), one) for name, one in value.items()}
    if kind == "map" and isinstance(value, list):  # keys other than texts: pairs
        both = schema.get("keys"), schema.get("values")
        return [
            [_payload(part, one) for part, one in zip(both, pair, strict=False)] if isinstance(pair, list) else pair
            for pair in value
        ]
    return value


def _decimal(value: str, schema: Mapping[str, Any]) -> str:
    return decimal_text(base64.b64decode(value, validate=True), {"scale": int(schema["parameters"]["scale"])})


_DATA = "org.apache.kafka.connect.data."
_LOGICAL: Mapping[str, Convert] = {
    f"{_DATA}Decimal": _decimal,
    f"{_DATA}Date": date_text,
    f"{_DATA}Time": time_text(3),
    f"{_DATA}Timestamp": timestamp_text(3, "Z"),
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """An object around an event: whether a value is one, and its content."""

    is_one: Callable[[dict[str, Any]], bool]
    content: Callable[[dict[str, Any]], Any]


def _is_connect(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"schema", "payload"}


#: What ``--unwrap`` removes. Adding one is one row. Sources: ``JsonConverter`` of Kafka Connect, ``Envelope`` of
#: ``io.debezium.data``, and the JSON format of CloudEvents 1.0.
ENVELOPES: tuple[Envelope, ...] = (
    Envelope(_is_connect, lambda value: value["payload"]),
    Envelope(  # Debezium: the row after the change, or of a deletion the row before it
        lambda value: {"op", "before", "after", "source"} <= value.keys(),
        lambda value: value["before"] if value["after"] is None else value["after"],
    ),
    Envelope(  # CloudEvents
        lambda value: {"specversion", "id", "source", "type"} <= value.keys(),
        lambda value: value.get("data", value.get("data_base64")),
    ),
)
_MOST_ENVELOPES = 4


def unwrapped(value: Any) -> Any:
    """Return the content of the envelopes of a decoded value, or the value itself."""
    for _ in range(_MOST_ENVELOPES):
        known = next((one for one in ENVELOPES if isinstance(value, dict) and one.is_one(value)), None)
        if known is None:
            break
        value = known.content(value)
    return value
