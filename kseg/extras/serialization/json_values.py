"""Values as JSON has them: the reader of JSON, and Python values as JSON, with limits."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from kseg.text import calendar_time, finite, text_or_json

#: The lists, objects and numbers of one value at most: a batch of some hundred bytes can hold a value of a hundred million.
MOST_ITEMS = 500_000
#: The levels of one value, except of JSON itself.
MOST_DEPTH = 100
#: Python writes whole numbers of up to 4,300 digits.
_MOST_BITS = 13_288
_MOST_SCALE = 10_000
_DAY_SECONDS = 86_400
_EPOCH = date(1970, 1, 1).toordinal()

#: Returns a value with a logical type as JSON has it; the second argument is its schema.
Convert = Callable[[Any, Mapping[str, Any]], Any]


class TooManyItemsError(ValueError):
    """A value with more than MOST_ITEMS items."""

    def __init__(self) -> None:
        super().__init__(f"the value has more than {MOST_ITEMS:,} items")


def text_of_bytes(data: bytes) -> str:
    """Return UTF-8 as text. Raises ValueError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} is not UTF-8") from None


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


_parse_json = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_float).decode


def parse_json(data: bytes) -> Any:
    """Return the value of JSON bytes in UTF-8. Raises ValueError."""
    # Commas in texts count, too: to tell them apart costs as much as reading the value.
    if len(data) > MOST_ITEMS and sum(map(data.count, (b",", b"[", b"{"))) > MOST_ITEMS:
        raise TooManyItemsError
    try:
        return _parse_json(text_of_bytes(data))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos:,}") from None
    except ValueError as error:
        if "integer string conversion" in str(error):  # Python's limit, which only its programs can change
            raise ValueError("a number has more than 4,300 digits") from None
        raise
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None


#: The types of a library, each with its conversion.
Others = Mapping[type, Callable[[Any], Any]]
_NO_OTHERS: Others = {}


def json_value(value: Any, depth: int = 0, others: Others = _NO_OTHERS) -> Any:
    """Return a Python value as JSON has it: bytes in base64, decimals and times as text.

    ``others`` converts the types of a library. Raises ValueError for types that are not known.
    """
    if depth > MOST_DEPTH:
        raise ValueError(f"the result is nested deeper than {MOST_DEPTH} levels")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("the result has a whole number of more than 4,000 digits")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return named((json_name(name, others), json_value(one, depth + 1, others)) for name, one in value.items())
    if (convert := others.get(type(value))) is not None:
        return convert(value)
    if isinstance(value, (list, tuple)):
        return [json_value(content, depth + 1, others) for content in value]
    for known, convert in _CONVERSIONS.items():
        if isinstance(value, known):
            return convert(value)
    raise ValueError(f"the result has a {type(value).__name__}, which JSON does not have")


def json_name(value: Any, others: Others = _NO_OTHERS) -> str:
    """Return the name of an entry as JSON has it: names that are not texts are their JSON. Raises ValueError."""
    return value if isinstance(value, str) else text_or_json(json_value(value, others=others))


class SameNameError(ValueError):
    """An object with two entries of the same name as JSON, such as 1 and "1": one of them would be lost."""

    def __init__(self, name: str = "") -> None:
        named = f" {name[:40]!r}" if name else ""
        super().__init__(f"two entries of a map have the same name{named}")


def named(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return entries as an object. Raises SameNameError."""
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            raise SameNameError(name)
        found[name] = value
    return found


def _datetime_text(value: datetime) -> str:
    """Return a time in UTC, with Z; a time without a zone has none."""
    if value.utcoffset() is None:
        return value.isoformat()
    try:
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
    except OverflowError:  # a year before 1 or after 9999 in UTC
        return value.isoformat()


_CONVERSIONS: Mapping[type | tuple[type, ...], Callable[[Any], Any]] = {
    float: finite,
    (bytes, bytearray, memoryview): lambda value: base64.b64encode(value).decode(),
    Decimal: str,
    UUID: str,
    datetime: _datetime_text,
    (date, time): lambda value: value.isoformat(),
}


def decimal_text(data: bytes, schema: Mapping[str, Any]) -> str:
    """Return a decimal with all its digits: ``-12.50``. A negative scale is a number of zeros: -1 with -2 is ``-100``."""
    scale = schema.get("scale", 0)
    unscaled = int.from_bytes(data, "big", signed=True)
    if not isinstance(scale, int) or not -_MOST_SCALE <= scale <= _MOST_SCALE:
        raise ValueError(f"a decimal with the scale {scale!r}")
    if scale < 0:
        return f"{unscaled}{'0' * -scale}" if unscaled else "0"
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def date_text(days: int, schema: Mapping[str, Any]) -> str | int:
    """Return days since 1970 as ISO 8601. Days outside of the years 1 to 9999 stay numbers."""
    try:
        return date.fromordinal(_EPOCH + days).isoformat()
    except (ValueError, OverflowError):
        return days


def timestamp_text(digits: int, zone: str) -> Convert:
    """Return the conversion of a number of 10^-digits seconds. Times outside of the years 1 to 9999 stay numbers."""
    unit = 10 ** (digits - 3)

    def convert(value: int, schema: Mapping[str, Any]) -> str | int:
        milliseconds, rest = divmod(value, unit)
        text = calendar_time(milliseconds)
        if not text.endswith("Z"):
            return value
        return f"{text[:-1]}{rest:0{digits - 3}}{zone}" if digits > 3 else text[:-1] + zone

    return convert


def time_text(digits: int) -> Convert:
    """Return the conversion of a time of day in 10^-digits seconds. Other numbers stay as they are."""

    def convert(value: int, schema: Mapping[str, Any]) -> str | int:
        seconds, rest = divmod(value, 10**digits)
        if not 0 <= seconds < _DAY_SECONDS:
            return value
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{digits}}"

    return convert
