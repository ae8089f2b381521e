"""``--decoder``: a function of the user's own decodes keys and values."""

from __future__ import annotations

import base64
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from kseg.errors import UsageError
from kseg.format.serialization.decoding import NOT_DECODED, Decoded, Headers
from kseg.format.serialization.plain import finite
from kseg.format.serialization.schemas import one_line

_MOST_DEPTH = 100
#: Python writes whole numbers of up to 4,300 digits.
_MOST_BITS = 13_288


class FunctionDecoder:
    """Calls ``decode(topic, side, data, headers)`` for each value that is not null; the result is its value as JSON.

    ``place`` is "module:function" or "file.py:function". ``side`` is "key" or "value", ``data`` are bytes, and ``headers`` a
    list of (text, bytes or None). An exception, also SystemExit, is the reason why a value was not decoded. Raises
    UsageError if the function cannot be imported.
    """

    def __init__(self, side: str, place: str) -> None:
        self._side = side
        self._place = place
        self._function = _imported(place)

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> Decoded:
        if data is None:
            return NOT_DECODED
        shown = [
            (name if isinstance(name, str) else str(name, "utf-8", "replace"), None if value is None else bytes(value))
            for name, value in headers
        ]
        try:
            return Decoded(self._place, json_value(self._function(topic, self._side, data, shown)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the user's function can raise anything, and can call sys.exit
            return Decoded(self._place, error=reason_of(error))


def reason_of(error: BaseException) -> str:
    """Return an exception of other people's code as one line."""
    try:
        return f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    except Exception:  # its __str__ fails
        return type(error).__name__


def json_value(value: Any, depth: int = 0) -> Any:
    """Return a Python value as JSON has it: bytes in base64, decimals and times as text. Raises ValueError for others."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"the result is nested deeper than {_MOST_DEPTH} levels")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("the result has a whole number of more than 4,000 digits")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(name): json_value(content, depth + 1) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(content, depth + 1) for content in value]
    for known, convert in _CONVERSIONS.items():
        if isinstance(value, known):
            return convert(value)
    raise ValueError(f"the result has a {type(value).__name__}, which JSON does not have")


_CONVERSIONS: Mapping[type | tuple[type, ...], Callable[[Any], Any]] = {
    float: finite,
    (bytes, bytearray, memoryview): lambda value: base64.b64encode(value).decode(),
    Decimal: str,
    UUID: str,
    (date, datetime, time): lambda value: value.isoformat(),
}


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.rpartition(":")
    if not module or not name:
        raise UsageError(f"--decoder: expected module:function or file.py:function, got {place!r}")
    try:
        found = _module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's module can raise anything, and can call sys.exit
        raise UsageError(f"--decoder {place}: {reason_of(error)}") from None
    function = getattr(found, name, None)
    if not callable(function):
        raise UsageError(f"--decoder {place}: there is no function {name!r}")
    return function  # type: ignore[no-any-return]


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
