"""Deserializers without a schema: those of ``org.apache.kafka.common.serialization``, JSON, and bytes as text."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kseg.extras.serialization import binary_json, envelopes
from kseg.extras.serialization.json_values import parse_json, text_of_bytes
from kseg.text import finite


@dataclass(frozen=True, slots=True)
class Deserializer:
    """A way to decode bytes. ``decode`` raises ValueError with the reason in one line."""

    meaning: str
    decode: Callable[[bytes], Any]


def _number(layout: str) -> Callable[[bytes], Any]:
    reader = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != reader.size:
            raise ValueError(f"expected {reader.size} bytes, got {len(data):,}")
        return finite(reader.unpack(data)[0])

    return decode


def _uuid(data: bytes) -> str:
    text = text_of_bytes(data)
    if len(text) != 36:
        raise ValueError(f"expected a UUID as a text of 36 characters, got {len(text):,}")
    return str(uuid.UUID(text))


#: The deserializers by their names in ``--key-as`` and ``--value-as``. Adding one is one row.
PLAIN: Mapping[str, Deserializer] = {
    "string": Deserializer("UTF-8 text (StringSerializer)", text_of_bytes),
    "json": Deserializer("JSON in UTF-8", parse_json),
    "connect-json": Deserializer(
        "a payload with its schema, as JSON (Connect's JsonConverter)", envelopes.decode_connect
    ),
    "msgpack": Deserializer("MessagePack", binary_json.decode_msgpack),
    "cbor": Deserializer("CBOR (RFC 8949)", binary_json.decode_cbor),
    "int16": Deserializer("2 bytes, big endian (ShortSerializer)", _number(">h")),
    "int32": Deserializer("4 bytes, big endian (IntegerSerializer)", _number(">i")),
    "int64": Deserializer("8 bytes, big endian (LongSerializer)", _number(">q")),
    "float": Deserializer("4 bytes, IEEE 754 (FloatSerializer)", _number(">f")),
    "double": Deserializer("8 bytes, IEEE 754 (DoubleSerializer)", _number(">d")),
    "uuid": Deserializer("a UUID as text (UUIDSerializer)", _uuid),
    "hex": Deserializer("the bytes in hexadecimal", bytes.hex),
    "base64": Deserializer("the bytes in base64", lambda data: base64.b64encode(data).decode()),
}
