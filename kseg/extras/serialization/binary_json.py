"""MessagePack and CBOR, decoded by their libraries after a look at the heads of all items.

The heads are counted before an object is built: a batch of some hundred bytes can hold a value of many millions of items.
Sources: the MessagePack specification, and RFC 8949 for CBOR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kseg.errors import UsageError
from kseg.extras.serialization.json_values import MOST_DEPTH, MOST_ITEMS, TooManyItemsError, json_value, timestamp_text
from kseg.extras.serialization.libraries import cbor2, msgpack
from kseg.extras.serialization.schema_set import one_line
from kseg.text import count_of

#: A number of items that is not stored: they end with a break.
_UNTIL_BREAK = -1
#: An item that is a break.
_BREAK = -2
#: Returns the position after the item at a position without those in it, and the number of items in it.
_Head = Callable[[bytes, int], tuple[int, int]]


def decode_msgpack(data: bytes) -> Any:
    """Return the value of MessagePack as JSON has it; other extensions than times are their type and bytes.

    Raises ValueError.
    """
    _check(data, _msgpack_head)
    found = _decoded("MessagePack", lambda: msgpack.unpackb(data, strict_map_key=False, ext_hook=_extension))
    return json_value(found, others={msgpack.Timestamp: lambda time: _NANOS(time.to_unix_nano(), {})})


def decode_cbor(data: bytes) -> Any:
    """Return the value of CBOR as JSON has it. Raises ValueError, also for a tag that is not in _TAGS."""
    _check(data, _cbor_head)
    found = _decoded("CBOR", lambda: cbor2.loads(data, tag_hook=lambda tag, *_: tag.value))
    others = {type(cbor2.undefined): lambda value: None, cbor2.CBORSimpleValue: lambda value: value.value}
    return json_value(found, others=others)


_NANOS = timestamp_text(9, "Z")


def _decoded(name: str, decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # the libraries raise many kinds
        raise ValueError(f"not {name}: {one_line(error)}") from None


def _extension(kind: int, data: bytes) -> Mapping[str, Any]:
    return {"type": kind, "data": data}


def _check(data: bytes, head: _Head) -> None:
    """Raise ValueError unless the bytes are one whole item, within the limits of items and of depth."""
    at = total = 0
    waiting = [1]  # the items that still come, level by level
    while waiting:
        if not waiting[-1]:
            waiting.pop()
            continue
        if at >= len(data):
            raise ValueError(f"the value is cut after {count_of(len(data), 'byte')}")
        at, inside = head(data, at)
        if inside == _BREAK:
            if waiting.pop() >= 0:
                raise ValueError(f"byte {at - 1:,} is a break outside of a list or an object")
            continue
        waiting[-1] -= 1
        total += 1
        if total > MOST_ITEMS or inside > MOST_ITEMS:
            raise TooManyItemsError
        if inside:
            waiting.append(inside)
            if len(waiting) > MOST_DEPTH:
                raise ValueError(f"the value is nested deeper than {MOST_DEPTH} levels")
    if at > len(data):
        raise ValueError(f"expected {count_of(at, 'byte')}, got {len(data):,}")
    if at < len(data):
        raise ValueError(f"{count_of(len(data) - at, 'byte')} after the value")


#: First byte -> the bytes after it; the bytes of the size, and of the type of an extension; the bytes of the number of
#: items, and the items of each.
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3,
          0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0),
          0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _msgpack_head(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    at += 1
    if 0x80 <= first <= 0x9F:
        return at, (first & 15) * (1 if first & 0x10 else 2)
    if 0xA0 <= first <= 0xBF:
        return at + (first & 31), 0
    if first in _SIZED:
        size, kind = _SIZED[first]
        return at + size + kind + int.from_bytes(data[at : at + size], "big"), 0
    if first in _COUNTED:
        size, each = _COUNTED[first]
        return at + size, int.from_bytes(data[at : at + size], "big") * each
    return at + _FIXED.get(first, 0), 0


#: Times, large numbers, decimals, encodings, URIs, UUIDs, days, and the mark of CBOR itself. Others are programs' own, or
#: share values: a value of some bytes could become gigabytes.
_TAGS = frozenset({0, 1, 2, 3, 4, 21, 22, 23, 24, 32, 33, 34, 37, 100, 1004, 55799})
_BIGNUMS = (2, 3)
_MOST_BIGNUM = 1024
_BYTES, _TEXT, _LIST, _OBJECT, _TAG, _SIMPLE = range(2, 8)


def _cbor_head(data: bytes, at: int) -> tuple[int, int]:
    kind, info = data[at] >> 5, data[at] & 31
    at += 1
    if info == 31 and kind in (_BYTES, _TEXT, _LIST, _OBJECT, _SIMPLE):
        return at, _BREAK if kind == _SIMPLE else _UNTIL_BREAK
    if info > 27:
        raise ValueError(f"byte {at - 1:,} is not CBOR")
    size = 1 << (info - 24) if info >= 24 else 0
    number = int.from_bytes(data[at : at + size], "big") if size else info
    at += size
    if kind in (_BYTES, _TEXT):
        return at + number, 0
    if kind == _TAG:
        if number not in _TAGS:
            raise ValueError(f"the tag {number} of CBOR is not decoded")
        cut = at >= len(data)  # the caller reports it
        if number in _BIGNUMS and not cut and (data[at] >= 0x5A or _cbor_head(data, at)[0] - at > _MOST_BIGNUM):
            raise ValueError(f"a number has more than {_MOST_BIGNUM:,} bytes")
        return at, 1
    return at, {_LIST: number, _OBJECT: 2 * number}.get(kind, 0)
