"""The classes of bytes of regular expressions."""

from __future__ import annotations

import re
import sys
from random import Random

import pytest

from kseg.commands.grep.text_patterns import CATEGORIES, classes_of
from kseg.format.record.memory import MOST_PLACES, ByteClasses, find_classes

_EVERY = "".join(map(chr, (*range(0x80, 0xD800), *range(0xE000, sys.maxunicode + 1))))


@pytest.mark.slow
@pytest.mark.parametrize("expression", sorted(text for text, _ in CATEGORIES.values()))
def test_a_category_has_the_first_bytes_of_all_its_characters(expression: str) -> None:
    """A missing byte would exclude records that match. Python's tables grow with Unicode."""
    (known,) = (bytes(first) for text, first in CATEGORIES.values() if text == expression)
    found = set(bytes(character.encode()[0] for character in re.findall(expression, _EVERY)))
    assert found <= set(known)


@pytest.mark.parametrize("seed", range(10))
def test_the_sequence_is_found_where_it_ends_first(seed: int) -> None:
    """Compared with Python's expressions, in which the shortest match that ends first is searched from each position."""
    random = Random(seed)
    alphabet = random.choice((b"ab", b"abcd", b"ab\x80\xff"))
    for _ in range(100):
        data = bytes(random.choices(alphabet, k=random.choice((0, 1, 5, 30))))
        places = [
            (random.sample(alphabet, random.choice((1, 2))), random.sample(alphabet, random.choice((0, 0, 1))))
            for _ in range(random.choice((1, 2, 4)))
        ]
        parts = (
            b"[%s][%s]*" % (bytes(first), bytes(more)) if more else b"[%s]" % bytes(first) for first, more in places
        )
        expression = re.compile(b"".join(parts))
        begin = random.randint(0, len(data))
        ends = (
            end
            for end in range(begin, len(data) + 1)
            if any(expression.fullmatch(data, at, end) for at in range(begin, end))
        )
        assert find_classes(data, begin, len(data), ByteClasses(places)) == next(ends, 0) - 1


def test_wrong_ranges_and_numbers_of_places_are_refused() -> None:
    """The loop has no bounds checks, and an integer of C has 64 bits."""
    for begin, end in ((-1, 2), (0, 4)):
        with pytest.raises(IndexError):
            find_classes(b"abc", begin, end, ByteClasses([(b"c", b"")]))
    for count in (0, MOST_PLACES + 1):
        with pytest.raises(ValueError, match=f"1 to {MOST_PLACES} places"):
            ByteClasses([(b"a", b"")] * count)


@pytest.mark.parametrize("expression", [".", r"\d", r"\w*", "(?:ab)?", r"(.)\1", "", "[^x]", r"\S+", "a|b"])
def test_an_expression_that_matches_almost_everything_has_none(expression: str) -> None:
    """A search that excludes nothing costs time."""
    assert classes_of(re.compile(expression)) is None


def test_nested_repetitions_stay_small() -> None:
    """Each level could double the sequence."""
    assert classes_of(re.compile("(?:" * 60 + "abc" + "){2,}" * 60))
    assert classes_of(re.compile("(?:" * 20 + "abc" + "){60}" * 5 + ")" * 15))


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        (r"\d{4}", "at 2024", "at 202"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}", "id 0123abcd-00ff", "id 0123abcd_00ff"),
        (r"^\w+@\w+\.com$", "kim@örebro.com", "kim@org"),
        (r"(?i)[k-l]{2}7", "\u212al7", "km7"),
        (r"(?:\d\d:){2,}\d\d", "10:20:30:40", "10:20"),
        (r"x{80}", "x" * 90, "x" * 60),
        (r"(?:(?:ab?){3}c){40,}d", "aaac" * 41 + "d", "aaad"),
        (r"(?:x{60}y){60}", ("x" * 60 + "y") * 60, "x" * 60),
        (r"a(?=\d)\d{2}(?!z)", "a12", "a1b"),
    ],
)
def test_a_text_that_matches_has_the_sequence(expression: str, matching: str, other: str) -> None:
    """And the texts that it is to exclude do not."""
    classes = classes_of(re.compile(expression))
    assert classes
    for text, found in ((matching, True), (other, False)):
        data = text.encode()
        assert (find_classes(data, 0, len(data), classes) >= 0) is found
