"""MessagePack and CBOR, decoded by their libraries after a look at the heads of all items.

The heads are counted before an object is built: a batch of some hundred bytes can hold a value of many millions of items.
Sources: the MessagePack specification, and RFC 8949 for CBOR.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from kseg.errors import UsageError
from kseg.extras.serialization.json_values import (
    MOST_DEPTH,
    MOST_ITEMS,
    SameNameError,
    TooManyItemsError,
    date_text,
    json_name,
    json_value,
    named,
    timestamp_text,
)
from kseg.extras.serialization.libraries import cbor2, msgpack
from kseg.extras.serialization.schema_set import one_line
from kseg.text import count_of, finite

#: A number of items that is not stored: they end with a break.
_UNTIL_BREAK = -1
#: An item that is a break.
_BREAK = -2
#: Returns the position after the item at a position without those in it, the number of items in it, and whether it is a map.
_Head = Callable[[bytes, int], tuple[int, int, bool]]


def decode_msgpack(data: bytes) -> Any:
    """Return the value of MessagePack as JSON has it; other extensions than times are their type and bytes.

    Raises ValueError.
    """
    others = {msgpack.Timestamp: lambda time: _NANOS(time.to_unix_nano(), {})}  # a missing library is the first error
    _check(data, _msgpack_head)

    def as_object(pairs: Any) -> Mapping[str, Any]:  # names can be lists, which a dict of Python cannot have
        return named((json_name(name, others), value) for name, value in pairs)

    found = _decoded(
        "MessagePack",
        lambda: msgpack.unpackb(data, strict_map_key=False, ext_hook=_extension, object_pairs_hook=as_object),
    )
    return json_value(found, others=others)


def decode_cbor(data: bytes) -> Any:
    """Return the value of CBOR as JSON has it. Raises ValueError, also for tags and simple values without a meaning here."""
    times: list[int] = []
    others = {type(cbor2.undefined): lambda value: None}
    entries = _check(data, partial(_cbor_head, times=times))
    found = _decoded("CBOR", lambda: cbor2.loads(_with_own_times(data, times), tag_hook=_of_tag))
    if _entries_in(found) < entries:  # in a dict of Python, 1 and true are the same name, too
        raise SameNameError
    return json_value(found, others=others)


_NANOS = timestamp_text(9, "Z")


def _decoded(name: str, decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except (UsageError, MemoryError, SameNameError, _TimeError):
        raise
    except Exception as error:  # the libraries raise many kinds
        if isinstance(error.__cause__, _TimeError):  # newer versions of cbor2 replace the errors of _of_tag
            raise error.__cause__ from None
        raise ValueError(f"not {name}: {one_line(error)}") from None


def _extension(kind: int, data: bytes) -> Mapping[str, Any]:
    return {"type": kind, "data": data}


def _check(data: bytes, head: _Head) -> int:
    """Return the number of entries of all maps.

    Raises ValueError unless the bytes are one whole item, within the limits of items and of depth.
    """
    at = total = entries = 0
    waiting = [1]  # the items that still come, level by level
    maps = [False]
    while waiting:
        if not waiting[-1]:
            waiting.pop()
            maps.pop()
            continue
        if at >= len(data):
            raise ValueError(f"the value is cut after {count_of(len(data), 'byte')}")
        at, inside, is_map = head(data, at)
        if inside == _BREAK:
            if (left := waiting.pop()) >= 0:
                raise ValueError(f"byte {at - 1:,} is a break outside of a list or an object")
            entries += (_UNTIL_BREAK - left) // 2 if maps.pop() else 0
            continue
        waiting[-1] -= 1
        total += 1
        if total > MOST_ITEMS or inside > MOST_ITEMS:
            raise TooManyItemsError
        if inside:
            entries += inside // 2 if is_map and inside > 0 else 0
            maps.append(is_map)
            waiting.append(inside)
            if len(waiting) > MOST_DEPTH:
                raise ValueError(f"the value is nested deeper than {MOST_DEPTH} levels")
    if at > len(data):
        raise ValueError(f"expected {count_of(at, 'byte')}, got {len(data):,}")
    if at < len(data):
        raise ValueError(f"{count_of(len(data) - at, 'byte')} after the value")
    return entries


def _entries_in(value: Any) -> int:
    """Return the number of entries of all maps in a decoded value, also in their names."""
    if isinstance(value, Mapping):
        return len(value) + sum(map(_entries_in, value)) + sum(map(_entries_in, value.values()))
    return sum(map(_entries_in, value)) if isinstance(value, (list, tuple)) else 0


#: First byte -> the bytes after it; the bytes of the size, and of the type of an extension; the bytes of the number of
#: items, and the items of each.
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3,
          0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0),
          0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _msgpack_head(data: bytes, at: int) -> tuple[int, int, bool]:
    first = data[at]
    at += 1
    if 0x80 <= first <= 0x9F:
        return at, (first & 15) * (1 if first & 0x10 else 2), first < 0x90
    if 0xA0 <= first <= 0xBF:
        return at + (first & 31), 0, False
    if first in _SIZED:
        size, kind = _SIZED[first]
        return at + size + kind + int.from_bytes(data[at : at + size], "big"), 0, False
    if first in _COUNTED:
        size, each = _COUNTED[first]
        return at + size, int.from_bytes(data[at : at + size], "big") * each, each == 2
    return at + _FIXED.get(first, 0), 0, False


#: Times, large numbers, decimals, encodings, URIs, UUIDs, days, and the mark of CBOR itself. Others are programs' own, or
#: share values: a value of some bytes could become gigabytes.
_TAGS = frozenset({0, 1, 2, 3, 4, 21, 22, 23, 24, 32, 33, 34, 37, 100, 1004, 55799})
_BIGNUMS = (2, 3)
_MOST_BIGNUM = 1024
_BYTES, _TEXT, _LIST, _OBJECT, _TAG, _SIMPLE = range(2, 8)
#: The simple values that have a meaning (RFC 8949, 3.3): false, true, null and undefined. Others are of one or of two bytes.
_SIMPLE_VALUES = range(20, 24)
_MOST_SIMPLE_INFO = 24


#: The tags of times and dates: texts, and numbers of seconds and of days since 1970. cbor2 raises an error for those that
#: Python's types cannot have, and cuts the digits of seconds: ``_with_own_times`` replaces these tags.
_TIME_TEXT, _SECONDS, _DAYS, _DATE_TEXT = 0, 1, 100, 1004
_TIMES = (_TIME_TEXT, _SECONDS, _DAYS, _DATE_TEXT)
#: Added to the number of a tag, it is that of a tag which is in neither _TAGS nor cbor2.
_OWN = 6


def _cbor_head(data: bytes, at: int, times: list[int]) -> tuple[int, int, bool]:
    """Read a head as _Head does. The last byte of a tag of _TIMES is added to ``times``."""
    kind, info = data[at] >> 5, data[at] & 31
    at += 1
    if info == 31 and kind in (_BYTES, _TEXT, _LIST, _OBJECT, _SIMPLE):
        return at, _BREAK if kind == _SIMPLE else _UNTIL_BREAK, kind == _OBJECT
    if info > 27:
        raise ValueError(f"byte {at - 1:,} is not CBOR")
    size = 1 << (info - 24) if info >= 24 else 0
    number = int.from_bytes(data[at : at + size], "big") if size else info
    at += size
    if kind == _SIMPLE and info <= _MOST_SIMPLE_INFO and at <= len(data):
        if size and number < 1 << 5:
            raise ValueError(f"byte {at - 2:,} is not CBOR")
        if number not in _SIMPLE_VALUES:
            raise ValueError(f"the simple value {number} of CBOR is not decoded")
    if kind in (_BYTES, _TEXT):
        return at + number, 0, False
    if kind == _TAG:
        if number not in _TAGS:
            raise ValueError(f"the tag {number} of CBOR is not decoded")
        cut = at >= len(data)  # the caller reports it
        if number in _BIGNUMS and not cut and (data[at] >= 0x5A or _cbor_head(data, at, times)[0] - at > _MOST_BIGNUM):
            raise ValueError(f"a number has more than {_MOST_BIGNUM:,} bytes")
        if number in _TIMES:
            times.append(at - 1)
        return at, 1, False
    return at, {_LIST: number, _OBJECT: 2 * number}.get(kind, 0), kind == _OBJECT


def _with_own_times(data: bytes, times: list[int]) -> bytes:
    """Return CBOR whose times have tags of kseg's own, which ``_of_tag`` converts."""
    if not times:
        return data
    changed = bytearray(data)
    for at in times:
        changed[at] += _OWN
    return bytes(changed)


class _TimeError(ValueError):
    """The value of a tag of CBOR for times or dates that is not one."""


#: RFC 3339: the time, the digits after the seconds, and the zone.
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_MICROS = timestamp_text(6, "Z")


def _time_of_text(value: Any) -> str:
    """Return a time of RFC 3339 in UTC, with the digits that it has. Times that Python lacks stay as they are."""
    if not isinstance(value, str) or not (parts := _RFC_3339.fullmatch(value)):
        raise _TimeError(f"a time is a text such as 2026-01-31T12:00:00Z, got {str(value)[:40]!r}")
    day, clock, digits, zone = parts.groups()
    try:
        time = datetime.fromisoformat(f"{day}T{clock}{zone.upper()}").astimezone(UTC)
    except (ValueError, OverflowError):  # such as a leap second, or a year after 9999 in UTC
        return value
    return f"{time.replace(tzinfo=None).isoformat()}{digits or ''}Z"


def _time_of_seconds(value: Any) -> Any:
    """Return seconds since 1970 in UTC, those of a float in microseconds. Others stay numbers, as ``timestamp_text``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _TimeError(f"a time is a number of seconds, got {str(value)[:40]!r}")
    try:
        text = _MICROS(round(value * 1_000_000), {})
    except (ValueError, OverflowError):  # NaN and infinities, and a float that is too large
        return finite(value)
    if not isinstance(text, str):
        return value
    return text if isinstance(value, float) else text.replace(".000000", "")


def _date_of_days(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _TimeError(f"a date is a number of days, got {str(value)[:40]!r}")
    return date_text(value, {})


def _date_of_text(value: Any) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except (ValueError, TypeError):
        raise _TimeError(f"a date is a text such as 2026-01-31, got {str(value)[:40]!r}") from None


_OF_TIMES: Mapping[int, Callable[[Any], Any]] = {
    _TIME_TEXT + _OWN: _time_of_text,
    _SECONDS + _OWN: _time_of_seconds,
    _DAYS + _OWN: _date_of_days,
    _DATE_TEXT + _OWN: _date_of_text,
}


def _of_tag(*given: Any) -> Any:
    """Return the value of a tag that cbor2 does not decode. Its older versions give the decoder before the tag."""
    tag = next(one for one in given if isinstance(one, cbor2.CBORTag))
    convert = _OF_TIMES.get(tag.tag)
    return convert(tag.value) if convert else tag.value
