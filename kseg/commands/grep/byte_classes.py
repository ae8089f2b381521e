"""The classes of bytes that every match of a regular expression contains in sequence, such as three digits and a dash.

They exclude records if an expression has no fixed text, or a short one. Characters that are not ASCII have several bytes in
UTF-8: a class has their first bytes, and the bytes 0x80 to 0xbf may follow. A field that is not UTF-8 has single bytes from
0x80 on, which are lone surrogates in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import log2
from typing import Any

from kseg.commands.grep.literals import OTHER_CASES, REPEATS, constants, encoded, parser
from kseg.format.record.byte_search import MOST_PLACES, ByteClasses

_HIGH = frozenset(range(0x80, 0x100))
_LEADING = frozenset(range(0xC2, 0xF5))
_FURTHER = frozenset(range(0x80, 0xC0))
#: Categories of characters, and the first bytes of those that are not ASCII.
CATEGORIES = {
    constants.CATEGORY_DIGIT: (r"\d", frozenset(b"\xd9\xdb\xdf\xe0\xe1\xea\xef\xf0")),
    constants.CATEGORY_SPACE: (r"\s", frozenset(b"\xc2\xe1\xe2\xe3")),
    constants.CATEGORY_WORD: (r"\w", _LEADING),
    constants.CATEGORY_NOT_DIGIT: (r"\D", _HIGH),
    constants.CATEGORY_NOT_SPACE: (r"\S", _HIGH),
    constants.CATEGORY_NOT_WORD: (r"\W", _HIGH),
}
_ZERO_WIDTH = (constants.AT, constants.ASSERT, constants.ASSERT_NOT)
#: A sequence with less information, in bits, is in too many records. Three digits have 12 bits.
_LEAST_BITS = 11.0
#: The ASCII letters among OTHER_CASES as bytes.
_OTHER = frozenset(map(ord, OTHER_CASES))


@dataclass(frozen=True, slots=True)
class Place:
    """The first bytes of a character, and the bytes that can follow any number of times."""

    first: frozenset[int]
    further: frozenset[int] = frozenset()

    @property
    def repeated(self) -> Place:
        """The place of one character or more."""
        return Place(self.first, self.first | self.further)

    @property
    def bits(self) -> float:
        return 8 - log2(max(len(self.first), 1))


#: Places in sequence; None is where anything can be between them.
_Parts = list[Place | None]


def classes_of(pattern: re.Pattern[str]) -> ByteClasses | None:
    """Return the sequence of classes with the most information; None if all have little."""
    parts = _parts(parser.parse(pattern.pattern, pattern.flags), bool(pattern.flags & re.IGNORECASE))
    best: list[Place] = []
    run: list[Place] = []
    for part in (*parts, None):
        if part is not None:
            run.append(part)
            continue
        best, run = max(best, run[:MOST_PLACES], key=_bits), []
    return ByteClasses([(place.first, place.further) for place in best]) if _bits(best) >= _LEAST_BITS else None


def _bits(places: list[Place]) -> float:
    return sum(place.bits for place in places)


def _parts(parsed: Any, ignore_case: bool) -> _Parts:
    """Return the places of a parsed expression."""
    parts: _Parts = []
    for operator, argument in parsed:
        if operator in _ZERO_WIDTH:
            continue
        if operator is constants.SUBPATTERN:
            _, added, removed, inner = argument
            parts += _parts(inner, bool((ignore_case or added & re.IGNORECASE) and not removed & re.IGNORECASE))
        elif operator is constants.ATOMIC_GROUP:
            parts += _parts(argument, ignore_case)
        elif operator in REPEATS:
            parts += _repeated(_parts(argument[2], ignore_case), argument[0], argument[1] > argument[0])
        elif operator is constants.LITERAL and not ignore_case:
            parts += (Place(frozenset((byte,))) for byte in encoded(chr(argument)))
        else:
            parts.append(_place(operator, argument, ignore_case))
    return parts


def _repeated(inner: _Parts, least: int, more: bool) -> _Parts:
    """Return the places of ``least`` repetitions or, with ``more``, of more than that; not many more than MOST_PLACES."""
    if not (least and inner):
        return [None]
    if len(inner) == 1 and inner[0] is not None and more:
        return [*inner * (min(least, MOST_PLACES) - 1), inner[0].repeated]
    if len(inner) > MOST_PLACES:
        return [*inner[:MOST_PLACES], None]
    times = min(least, MOST_PLACES // len(inner))
    parts = inner * times
    # The first repetitions follow what is before, the last ones are before what follows.
    return [*parts, None, *parts] if more or times < least else parts


def _place(operator: Any, argument: Any, ignore_case: bool) -> Place | None:
    """Return the place of one character; None for other operators."""
    items = argument if operator is constants.IN else [(operator, argument)]
    if operator is constants.ANY:
        first = frozenset(range(0x100))
    elif operator is constants.NOT_LITERAL or items[0][0] is constants.NEGATE:
        # Without the other cases of the characters that are left out: the set may be too large, not too small.
        left_out = [(constants.LITERAL, argument)] if operator is constants.NOT_LITERAL else items
        first = frozenset(range(0x80)).difference(*_members(left_out, False)) | _HIGH
    elif operator in (constants.IN, constants.LITERAL):
        first = frozenset().union(*_members(items, ignore_case))
    else:
        return None
    return Place(first, (_HIGH if first >= _HIGH else _FURTHER) if first & _HIGH else frozenset())


def _members(items: Any, ignore_case: bool) -> Iterator[frozenset[int]]:
    """Yield the first bytes of the characters of each item of a set."""
    for operator, argument in items:
        if operator is constants.CATEGORY:
            yield _category(argument)
            continue
        low, high = argument if operator is constants.RANGE else (argument, argument)
        if operator not in (constants.RANGE, constants.LITERAL):
            continue  # NEGATE
        ascii_members = frozenset(range(low, min(high, 0x7F) + 1))
        yield ascii_members
        if high >= 0x80:
            yield _HIGH if low <= 0xDFFF and high >= 0xD800 else _LEADING
        if ignore_case:
            yield frozenset(ord(case) for byte in ascii_members for case in chr(byte).lower() + chr(byte).upper())
            if high >= 0x80:
                yield _OTHER
            if ascii_members & _OTHER:
                yield _LEADING


@cache
def _category(name: Any) -> frozenset[int]:
    expression, other = CATEGORIES[name]
    return frozenset(byte for byte in range(0x80) if re.match(expression, chr(byte))) | other
