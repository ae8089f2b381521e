"""What every match of a regular expression contains, texts and classes of bytes, and a limit on its time.

A search of bytes for the texts excludes most records. Classes of bytes, such as those of three digits and a dash,
exclude records if an expression has no fixed text, or a short one. Characters that are not ASCII have several bytes in
UTF-8: a class has their first bytes, and the bytes 0x80 to 0xbf may follow. A field that is not UTF-8 has single bytes from
0x80 on, which are lone surrogates in its text.

Python's matcher tries all ways to match: ``(a+)+$`` needs twice as long for each further character of a text like ``aaaa!``.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import log2
from typing import Any

from kseg.errors import UsageError
from kseg.format.record.memory import MOST_PLACES, ByteClasses, Needle
from kseg.text import stored_bytes

#: Python's parser of regular expressions, and its operators.
parser: Any = import_module("re._parser")
constants: Any = import_module("re._constants")
REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
#: ASCII letters that match other characters if case is ignored: dotless i, long s and the Kelvin sign.
OTHER_CASES = frozenset("iskISK")
#: The most needles of one expression: each is a separate search.
_MOST_NEEDLES = 16


def needles_of(pattern: re.Pattern[str]) -> tuple[Needle, ...] | None:
    """Return needles of which each match of the pattern contains one, in UTF-8; None if there are no such texts."""
    ignore_case = bool(pattern.flags & re.IGNORECASE)
    texts = _required(parser.parse(pattern.pattern, pattern.flags), ignore_case)
    if not texts or len(texts) > _MOST_NEEDLES:
        return None
    return tuple(Needle(stored_bytes(text), folded) for text, folded in sorted(texts))


def either(found: Sequence[tuple[Needle | ByteClasses, ...] | None]) -> tuple[Needle | ByteClasses, ...] | None:
    """Return needles for a match of any of several patterns; None if one of them has none."""
    if any(needles is None for needles in found):
        return None
    return tuple(needle for needles in found for needle in needles or ())


def _required(parsed: Any, ignore_case: bool) -> frozenset[tuple[str, bool]]:
    """Return texts of which each match contains one, with whether their case is ignored. Empty: nothing is required."""
    choices: list[frozenset[tuple[str, bool]]] = []
    run = ""
    for operator, argument in parsed:
        if operator is constants.LITERAL and _is_fixed(chr(argument), ignore_case):
            run += chr(argument)
            continue
        choices.append(frozenset({(run, ignore_case)} if run else ()))
        run = ""
        if operator is constants.SUBPATTERN:
            _, added, removed, inner = argument
            folded = bool((ignore_case or added & re.IGNORECASE) and not removed & re.IGNORECASE)
            choices.append(_required(inner, folded))
        elif operator in REPEATS and argument[0]:
            choices.append(_required(argument[2], ignore_case))
        elif operator is constants.BRANCH:
            branches = [_required(branch, ignore_case) for branch in argument[1]]
            choices.append(frozenset().union(*branches) if all(branches) else frozenset())
        elif operator is constants.ATOMIC_GROUP:
            choices.append(_required(argument, ignore_case))
    choices.append(frozenset({(run, ignore_case)} if run else ()))
    return max(choices, key=lambda texts: min((len(text) for text, _ in texts), default=0))


def _is_fixed(character: str, ignore_case: bool) -> bool:
    """Return whether a character matches only itself, or if case is ignored only the two cases of an ASCII letter."""
    return not ignore_case or (character.isascii() and character not in OTHER_CASES)


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
            parts += (Place(frozenset((byte,))) for byte in stored_bytes(chr(argument)))
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
    # The first repetitions follow the text before them, the last ones are before the text after them.
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


#: Seconds of processor time.
SECONDS = 10


class SlowPattern(UsageError):
    """A regular expression that searched one text for too long."""


class MatchClock:
    """Notices a match that takes too long.

    ``text`` is the searched text, None between searches. ``steps`` grows with each text and each match in it.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.steps = 0
        self._steps_before = -1
        self._ticks = 0

    def tick(self, *_: Any) -> None:
        """Compare with a second ago. Raises SlowPattern."""
        same = self.text is not None and self.steps == self._steps_before
        self._ticks = self._ticks + 1 if same else 0
        self._steps_before = self.steps
        if self._ticks >= SECONDS:
            raise SlowPattern(
                f"the pattern has searched one text of {len(self.text or ''):,} characters for {SECONDS} s of processor "
                "time: write it without a repeat in a repeat, such as (a+)+, or search for a text with -F"
            )


@contextmanager
def limited(clock: MatchClock) -> Iterator[None]:
    """Call ``clock.tick`` after each second of processor time.

    A signal does it, since the matcher lets no other thread run. Python calls its handler in the main thread alone, and
    Windows lacks the timer: no limit then.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, clock.tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
