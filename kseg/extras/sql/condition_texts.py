"""The tree of a condition of ``--where``: its constants and children, and the texts that a record must contain."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Node = dict[str, Any]
#: Returns the field and the steps of a path into it, None for a node that is no path.
PathOf = Callable[[Node], tuple[str, list[str | int]] | None]
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
#: A shorter text, in bytes, is in too many records.
_LEAST_TEXT = 3


def texts_of(node: Node, path_of: PathOf, sides: Sequence[str]) -> set[bytes] | None:
    """Return texts of which each record that fulfils a condition contains one; None if they are not known.

    ``path_of`` returns the field and the steps of a node that is a path. ``sides`` of "key" and "value" are decoded.
    """
    parts = children(node)
    if node.get("class") == "CONJUNCTION":
        found = [texts_of(part, path_of, sides) for part in parts]
        if node["type"] == "CONJUNCTION_OR":
            return None if None in found else set().union(*(texts for texts in found if texts))
        known = [texts for texts in found if texts]
        return max(known, key=lambda texts: min(map(len, texts)), default=None)
    values = [constant(part) for part in parts[1:]]
    if not values or not all(isinstance(value, str) and value for value in values):
        return None
    if node.get("type") in ("COMPARE_EQUAL", "COMPARE_IN"):
        return _equal_texts(parts[0], path_of, sides, [str(value) for value in values])
    if node.get("class") == "FUNCTION" and len(values) == 1 and _plain_field(parts[0]) in ("key", "value"):
        fixed = _FIXED.get(node["function_name"].lower())
        return _in_text_or_base64(fixed(str(values[0]))) if fixed else None
    return None


def _equal_texts(node: Node, path_of: PathOf, sides: Sequence[str], values: Sequence[str]) -> set[bytes] | None:
    path = path_of(node)
    if _plain_field(node) in ("key", "value") or (path and path[0] == "headers"):
        found = [text for value in values for text in (value.encode(), _of_base64(value)) if text]
    elif path and path[0] in ("key", "value") and path[0] not in sides:
        # JSON can write these characters, and characters of other texts than strings, in several ways.
        if any(re.search(r'["\\/\x00-\x1f]', value) or _can_be_number(value) for value in values):
            return None
        found = [*(value.encode() for value in values), rb"\u"]
    else:
        return None
    return set(found) if min(map(len, found)) >= _LEAST_TEXT - 1 else None


#: Function -> the text that is in each text for which it is true, by its second argument.
_FIXED: Mapping[str, Callable[[str], str]] = {
    "~~": lambda text: max(re.split("[%_]", text), key=lambda part: len(part)),
    **dict.fromkeys(("contains", "starts_with", "prefix", "^@", "ends_with", "suffix"), lambda text: text),
}


def _can_be_number(text: str) -> bool:
    """Return whether JSON other than a string can have this text: a number, a list or an object."""
    return text[:1] in "[{-0123456789NI"


def _plain_field(node: Node) -> str | None:
    names: list[Any] = node.get("column_names") or []
    return str(names[0]).lower() if len(names) == 1 else None


def _of_base64(text: str) -> bytes | None:
    """Return the bytes whose base64 is the text: this is the text of bytes that are not UTF-8."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _in_text_or_base64(fixed: str) -> set[bytes] | None:
    """Return needles for a text within a text: the text itself, and its bytes if it is a part of base64."""
    if len(fixed.encode()) < _LEAST_TEXT:
        return None
    if not _BASE64.fullmatch(fixed):
        return {fixed.encode()}
    digits = fixed.rstrip("=")
    found = {fixed.encode()}
    for before in range(4):  # the digits of the group in which the text begins
        data = base64.b64decode("A" * before + digits + "A" * (-(before + len(digits)) % 4))
        first = -(-before * 6 // 8)
        found.add(data[first : (before + len(digits)) * 6 // 8])
    return found if min(map(len, found)) >= 2 else None


def constant(node: Node) -> str | int | float | bool | None:
    """Return the value of a constant: DuckDB 2 has its literal, older versions a typed value."""
    if node.get("class") != "CONSTANT":
        return None
    if (literal := node.get("literal")) is not None:
        kind, text = literal.get("kind"), literal.get("text")
        known: Mapping[str, Callable[[str], str | int | float]] = {"STRING": str, "INTEGER": int, "NUMERIC": float}
        if kind in ("BOOLEAN", "TRUE", "FALSE"):
            return str(text if text is not None else kind).lower() == "true"
        return known[kind](str(text)) if kind in known else None
    value: Any = node["value"]
    if value.get("is_null"):
        return None
    found = value["value"]
    if value["type"]["id"] == "DECIMAL":
        return float(found / 10.0 ** int(value["type"]["type_info"]["scale"]))
    if value["type"]["id"] == "HUGEINT":
        return (int(found["upper"]) << 64) + int(found["lower"])
    return found if isinstance(found, (str, int, float)) else None


def children(node: Node) -> list[Node]:
    """Return the expressions in a node, in their order."""

    def expressions(value: Any) -> Iterator[Node]:
        if isinstance(value, list):
            for one in value:
                yield from expressions(one)
        elif isinstance(value, dict):
            if "class" in value:
                yield value
            else:
                for one in value.values():
                    yield from expressions(one)

    return [child for value in node.values() for child in expressions(value)]


def nodes(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)
