"""The texts that every match of a regular expression contains, so that a search of bytes can exclude most records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kseg.format.record.byte_search import ByteClasses, Needle

#: Python's parser of regular expressions, and its operators.
parser: Any = import_module("re._parser")
constants: Any = import_module("re._constants")
REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
#: ASCII letters that match other characters if case is ignored: dotless i, long s and the Kelvin sign.
OTHER_CASES = frozenset("iskISK")
#: The most needles of one expression: each is a search of its own.
_MOST_NEEDLES = 16


def needles_of(pattern: re.Pattern[str]) -> tuple[Needle, ...] | None:
    """Return needles of which each match of the pattern contains one, in UTF-8; None if there are no such texts."""
    ignore_case = bool(pattern.flags & re.IGNORECASE)
    texts = _required(parser.parse(pattern.pattern, pattern.flags), ignore_case)
    if not texts or len(texts) > _MOST_NEEDLES:
        return None
    return tuple(Needle(encoded(text), folded) for text, folded in sorted(texts))


def encoded(text: str) -> bytes:
    """Return the bytes of a text in a field. Surrogates other than those of single bytes are in no field."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


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
