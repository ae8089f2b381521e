"""What programs put around a key or a value: schema ids, windows and times of Kafka Streams, Connect's schemas, envelopes.

Serializers of schema registries put these bytes before a value, or into a header:

Confluent: magic 0 and an id of four bytes, or magic 1 and a GUID of 16 bytes; Protobuf has the indexes of the message next.
With the GUID in a header, the value lacks the prefix. Source: ``io.confluent.kafka.serializers.schema.id.SchemaId``.

Apicurio: magic 0 and an id of eight or four bytes, or the id in a header; Protobuf has the name of the message next, or in
another header. Source: ``io.apicurio.registry.serde.DefaultIdHandler``, ``…serde.protobuf.ProtobufKafkaSerializer``.

AWS Glue: magic 3, a byte for the compression, and a UUID; Protobuf has the number of the message next. Source:
``com.amazonaws.services.schemaregistry.utils.AWSSchemaRegistryConstants``, ``…serializers.protobuf.MessageIndexFinder``.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kseg.extras.serialization.json_values import (
    Convert,
    date_text,
    decimal_text,
    parse_json,
    time_text,
    timestamp_text,
)
from kseg.extras.serialization.schema_set import MOST_BYTES, Read, SchemaError, one_line
from kseg.text import count_of

#: Headers with the schema id of a key or of a value -> the bytes that the id has before it at the start of a value.
HEADERS = {
    side: {
        f"__{side}_schema_id".encode(): b"",
        f"apicurio.{side}.globalId".encode(): b"\0",
        f"apicurio.{side}.contentId".encode(): b"\0",
    }
    for side in ("key", "value")
}
#: Headers with the name of the Protobuf message of a key or of a value.
_MESSAGE_HEADERS = {"key": b"apicurio.protobuf.type.key", "value": b"apicurio.protobuf.type"}
_MAGIC_ID, _MAGIC_GUID = 0, 1
#: The first bytes of Avro's single-object encoding, and the end of the fingerprint after them.
SINGLE_OBJECT, SINGLE_OBJECT_END = b"\xc3\x01", 10
ID_END, _GUID_END, _LONG_ID_END, GLUE_END = 5, 17, 9, 18
#: The first byte of values of AWS Glue, and the second one without compression and with zlib.
GLUE, _NOT_COMPRESSED, _ZLIB = b"\3", 0, 5
#: Larger numbers are probably other data: registries count from 1.
LARGEST_ID = 0x7FFFFFFF
_MOST_INDEXES = 100
_MOST_VARINT_BYTES = 5


class SchemaId(NamedTuple):
    """The id or the GUID of a schema, and the position after it."""

    number: int | None
    guid: str | None
    end: int

    @property
    def is_glue(self) -> bool:
        """Return whether it is that of AWS Glue."""
        return self.end == GLUE_END

    @property
    def is_confluent(self) -> bool:
        """Return whether it is that of Confluent, which Apicurio's ids of four bytes look like."""
        return self.end in (ID_END, _GUID_END)


def read_schema_id(data: bytes) -> SchemaId | None:
    """Return the schema id at the start of a value or of a header's value, None if there is none.

    A GUID is accepted in a header only: a value that begins with 1 is more often other data.
    """
    if len(data) >= ID_END and data[0] == _MAGIC_ID:
        # An id of eight bytes begins with zeros, and no id of four bytes is 0.
        for end in (ID_END, _LONG_ID_END)[: 1 + (len(data) >= _LONG_ID_END)]:
            if number := int.from_bytes(data[1:end], "big"):
                return SchemaId(number, None, end) if number <= LARGEST_ID else None
    if len(data) >= GLUE_END and data[:1] == GLUE and data[1] in (_NOT_COMPRESSED, _ZLIB):
        found = uuid.UUID(bytes=data[2:GLUE_END])
        return SchemaId(None, str(found), GLUE_END) if found.version == 4 else None
    return None


def decompressing(prefix: bytes, read: Read) -> Read:
    """Return a function that decodes the bytes after a prefix, which says whether they are compressed."""
    if prefix[:2] != bytes((*GLUE, _ZLIB)):
        return read

    def decompressed(data: bytes, indexes: bytes | None) -> Any:
        stream = zlib.decompressobj()
        try:
            whole = stream.decompress(data, MOST_BYTES)
        except zlib.error as error:
            raise SchemaError(f"not zlib: {one_line(error)}") from None
        if not stream.eof:
            raise SchemaError(f"cut, or larger than {MOST_BYTES:,} bytes without zlib")
        if stream.unused_data:
            raise SchemaError(f"{count_of(len(stream.unused_data), 'byte')} after the end of zlib's stream")
        return read(whole, indexes)

    return decompressed


def read_header_id(data: bytes) -> SchemaId | None:
    """Return the schema id in the value of a header."""
    if len(data) >= _GUID_END and data[0] == _MAGIC_GUID:
        return SchemaId(None, str(uuid.UUID(bytes=data[1:_GUID_END])), _GUID_END)
    return read_schema_id(data)


def header_of(side: str, headers: Iterable[tuple[Any, Any]]) -> bytes | None:
    """Return the schema id in a header, as the start of a value has it; ``side`` is "key" or "value".

    The name of a Protobuf message in another header follows it. Of several headers with a name consumers use the last one,
    and none if that is null. Source: ``io.confluent.kafka.serializers.schema.id.DualSchemaIdDeserializer``.
    """
    ids, message_header = HEADERS[side], _MESSAGE_HEADERS[side]
    found, message = None, b""
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)
        if name in ids:
            found = None if value is None else ids[name] + bytes(value)
        elif name == message_header:
            message = b"" if value is None else _message_name(bytes(value))
    return None if found is None else found + message


#: A message ``Ref`` with one field, the name, after its own size: sizes below 128 are one byte.
_NAME_TAG, _LONGEST_NAME = 0x0A, 0x7D


def _message_name(name: bytes) -> bytes:
    """Return the name of a message as Apicurio has it before a value; "" if it is too long for a name."""
    return bytes((len(name) + 2, _NAME_TAG, len(name))) + name if len(name) <= _LONGEST_NAME else b""


def read_message(data: bytes) -> tuple[tuple[int, ...] | str, int]:
    """Return which message of its file a value is, and the position after that: its path (Confluent), or its name.

    A name is that of a message of the file, without the package (Apicurio). No path of indexes has its bytes: the first
    letter would be a third index above 31. Raises SchemaError.
    """
    if len(data) > 2 and data[1] == _NAME_TAG and data[0] == data[2] + 2:
        end = data[0] + 1
        name = data[3:end].decode("ascii", "replace")
        if len(data) >= end and name.isidentifier():
            return name, end
    count, at = _varint(data, 0)
    count = _signed(count)
    if not count:
        return (0,), at  # short for the first message
    if not 0 < count <= _MOST_INDEXES:
        raise SchemaError(f"the list of message indexes has {count:,} entries")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(_signed(index))
    return tuple(found), at


def read_message_number(data: bytes) -> tuple[int, int]:
    """Return the number of a message among those of its file (AWS Glue), and the position after it. Raises SchemaError."""
    return _varint(data, 0)


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _MOST_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if not byte & 0x80:
            return value, at
    raise SchemaError("the message indexes are cut or too long")


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
