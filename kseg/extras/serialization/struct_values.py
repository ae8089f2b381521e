"""Decoded values (JSON) as the values of typed columns, which Arrow accepts. Other values are errors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from kseg.extras.serialization.decoding import DecodedValue, Decoder, Headers
from kseg.extras.serialization.json_values import SameNameError
from kseg.schema import Column
from kseg.text import to_json, to_unicode_json, unicode_text

Convert = Callable[[Any], Any]
_WHOLE = re.compile(r"-?\d{1,20}")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_JSON_KINDS = ("json", "json-schema")
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class TypedDecoder:
    """Decodes keys or values to those of a typed column: a value that the column cannot hold has its reason."""

    def __init__(self, decoder: Decoder, column: Column) -> None:
        self.column = column
        self._decoder = decoder
        # The JSON of Avro and Protobuf has numbers as text where JSON lacks them. In JSON itself a text is never a number.
        self._strict, self._lenient = converter(column, texts=False), converter(column, texts=True)

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        found = self._decoder.decode(topic, data, headers)
        if found.error is not None or found.value is None:
            return found
        try:
            convert = self._strict if found.kind in _JSON_KINDS else self._lenient
            return found._replace(value=convert(found.value))
        except ValueError as error:
            return found._replace(value=None, error=str(error))


def converter(column: Column, *, texts: bool) -> Convert:
    """Return the function for the values of a column. It raises ValueError with the field and the reason.

    With ``texts``, numbers can be texts, as in Protobuf's JSON, and so can the booleans that are keys of a map.
    """
    kind = column.type
    if kind == "struct":
        return _struct(column, texts=texts)
    if kind == "list_of":
        return _list(converter(column.of[0], texts=texts))
    if kind == "map_of":
        return _map(*(converter(one, texts=texts or one.name == "key") for one in column.of))
    if digits := _DECIMAL.fullmatch(kind):
        return _decimal(int(digits[1]), int(digits[2]))
    return _SCALARS[kind] if kind in _SCALARS else _OF_TEXTS[kind][texts]


def _struct(column: Column, *, texts: bool) -> Convert:
    converters = [(one, converter(one, texts=texts)) for one in column.of]
    fields = [(one.name, of_field, one.aliases) for one, of_field in converters]
    defaults = {one.name: _default(of_field, one.default) for one, of_field in converters}

    def convert(value: Any) -> Any:
        _check(value, dict, "an object")
        found = {}
        left = len(value)
        for name, of_field, aliases in fields:
            given = name if name in value or not aliases else next((one for one in aliases if one in value), name)
            if given in value:
                left -= given == name
                item = value[given]
                try:
                    found[name] = None if item is None else of_field(item)
                except ValueError as error:
                    raise ValueError(f"field {_path(name, error)}") from None
            else:
                found[name] = defaults[name]
        if left:
            unknown = next(name for name in value if name not in defaults)
            raise ValueError(f"field {unknown}: not in the columns: a newer schema, or one that allows any field")
        return found

    return convert


def _path(name: str, error: ValueError) -> str:
    """Return the path of a field in a reason: ``total.amount: …``."""
    reason = str(error)
    return f"{name}.{reason.removeprefix('field ')}" if reason.startswith("field ") else f"{name}: {reason}"


def _default(convert: Convert, text: str) -> Any:
    if not text:
        return None
    try:
        return convert(json.loads(text))
    except ValueError:
        return None  # a default that is not of its field's type


def _list(convert: Convert) -> Convert:
    def of_items(value: Any) -> Any:
        return [None if one is None else convert(one) for one in _check(value, list, "a list")]

    return of_items


def _map(of_key: Convert, of_value: Convert) -> Convert:
    def of_pairs(value: Any) -> Any:
        found = _check(value, dict, "an object")
        pairs = [(of_key(key), None if one is None else of_value(one)) for key, one in found.items()]
        if len({key for key, _ in pairs}) < len(pairs):
            raise SameNameError
        return pairs

    return of_pairs


def _check(value: Any, kind: type, expected: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected {expected}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    text = to_json(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _whole(bits: int, *, texts: bool) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> Any:
        is_text = texts and type(value) is str and _WHOLE.fullmatch(value)
        if is_text or (type(value) is float and value.is_integer()):
            value = int(value)
        if type(value) is not int:
            raise ValueError(f"expected a whole number, got {_shown(value)}")
        if not -limit <= value < limit:
            raise ValueError(f"{_shown(value)} has more than {bits} bits")
        return value

    return convert


def _float(*, texts: bool) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) in (int, float):
            try:
                return float(value)
            except OverflowError:
                pass
        if texts and type(value) is str and value in _FLOATS:
            return _FLOATS[value]
        raise ValueError(f"expected a number, got {_shown(value)}")

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    def convert(value: Any) -> Any:
        try:
            found = Decimal(_check(value, str, "a decimal")) if type(value) is not int else Decimal(value)
        except InvalidOperation:
            raise ValueError(f"expected a decimal, got {_shown(value)}") from None
        exponent = found.as_tuple().exponent
        too_large = bool(found) and found.adjusted() >= precision - scale
        if not isinstance(exponent, int) or -exponent > scale or too_large:
            raise ValueError(f"{_shown(value)} does not fit into decimal({precision},{scale})")
        return found

    return convert


def _text(value: Any) -> Any:
    return unicode_text(_check(value, str, "a text"))


def _of_any_text(value: Any) -> Any:
    """Return a text; numbers are enum values without a name, and times outside of a day."""
    return str(value) if type(value) is int else _text(value)


def _bool(value: Any) -> Any:
    return _check(value, bool, "true or false")


def _bool_or_text(value: Any) -> Any:
    return value == "true" if value in ("true", "false") else _bool(value)


def _bytes(value: Any) -> Any:
    return base64.b64decode(_check(value, str, "bytes in base64"), validate=True)


def _time(value: Any) -> Any:
    try:
        return datetime.fromisoformat(_check(value, str, "a time in the years 1 to 9999"))
    except ValueError:
        raise ValueError(f"expected a time in the years 1 to 9999, got {_shown(value)}") from None


def _date(value: Any) -> Any:
    return date.fromisoformat(_check(value, str, "a date in the years 1 to 9999"))


#: Type -> its function without and with ``texts``.
_OF_TEXTS: Mapping[str, tuple[Convert, Convert]] = {
    "bool": (_bool, _bool_or_text),
    "text": (_text, _of_any_text),
    "int32": (_whole(32, texts=False), _whole(32, texts=True)),
    "int": (_whole(64, texts=False), _whole(64, texts=True)),
    **dict.fromkeys(("float", "float32"), (_float(texts=False), _float(texts=True))),
}
_SCALARS: Mapping[str, Convert] = {
    "bytes": _bytes,
    "timestamp": _time,
    "timestamp_ntz": _time,
    "date": _date,
    "object": to_unicode_json,
}
