"""Deserializers without a schema: those of ``org.apache.kafka.common.serialization``, JSON, and bytes as text."""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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


def finite(value: Any) -> Any:
    """Return a number; NaN and the infinities as text, as in Protobuf's JSON: JSON lacks such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} is not UTF-8") from None


def _uuid(data: bytes) -> str:
    text = _string(data)
    if len(text) != 36:
        raise ValueError(f"expected a UUID as a text of 36 characters, got {len(text):,}")
    return str(uuid.UUID(text))


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


#: The lists, objects and numbers of one value at most: a batch of some hundred bytes can hold a value of a hundred million.
MOST_ITEMS = 500_000


class TooManyItemsError(ValueError):
    """A value with more than MOST_ITEMS items."""

    def __init__(self) -> None:
        super().__init__(f"the value has more than {MOST_ITEMS:,} items")


_parse_json = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_float).decode


def parse_json(data: bytes) -> Any:
    """Return the value of JSON bytes in UTF-8. Raises ValueError."""
    # Commas in texts count, too: to tell them apart costs as much as reading the value.
    if len(data) > MOST_ITEMS and sum(map(data.count, (b",", b"[", b"{"))) > MOST_ITEMS:
        raise TooManyItemsError
    try:
        return _parse_json(_string(data))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None


#: The deserializers by their names in ``--key-as`` and ``--value-as``. Adding one is one row.
PLAIN: Mapping[str, Deserializer] = {
    "string": Deserializer("UTF-8 text (StringSerializer)", _string),
    "json": Deserializer("JSON in UTF-8", parse_json),
    "int16": Deserializer("2 bytes, big endian (ShortSerializer)", _number(">h")),
    "int32": Deserializer("4 bytes, big endian (IntegerSerializer)", _number(">i")),
    "int64": Deserializer("8 bytes, big endian (LongSerializer)", _number(">q")),
    "float": Deserializer("4 bytes, IEEE 754 (FloatSerializer)", _number(">f")),
    "double": Deserializer("8 bytes, IEEE 754 (DoubleSerializer)", _number(">d")),
    "uuid": Deserializer("a UUID as text (UUIDSerializer)", _uuid),
    "hex": Deserializer("the bytes in hexadecimal", bytes.hex),
    "base64": Deserializer("the bytes in base64", lambda data: base64.b64encode(data).decode()),
}
