"""The search for bytes, compared with Python's own."""

from __future__ import annotations

import random
import re

import pytest

from kseg.format.record.columns import RecordColumns
from kseg.format.record.memory import Needle, find, records_with


@pytest.mark.parametrize("seed", range(20))
def test_the_first_position_is_that_of_pythons_search(seed: int) -> None:
    """The loop over blocks, the bytes after the last block and the two chosen bytes of a needle miss nothing."""
    rand = random.Random(seed)
    alphabet = rand.choice((b"ab", b"aAbB{}", bytes(range(256)), b"\0\xff\x80"))
    for _ in range(200):
        data = bytearray(rand.choices(alphabet, k=rand.choice((0, 1, 5, 63, 64, 65, 130, 700))))
        needle = bytes(rand.choices(alphabet, k=rand.choice((1, 1, 2, 3, 8, 70))))
        if rand.random() < 0.5 and data:
            at = rand.randrange(len(data))
            data[at : at + len(needle)] = needle[: len(data) - at]
        begin = rand.randint(0, len(data))
        end = rand.randint(begin, len(data))
        for ignore_case in (False, True):
            expression = re.compile(re.escape(needle), re.IGNORECASE * ignore_case | re.DOTALL)
            match = expression.search(data, begin, end)
            assert find(data, begin, end, Needle(needle, ignore_case)) == (match.start() if match else -1)


def test_a_range_outside_of_the_data_is_refused() -> None:
    """The loop has no bounds checks, so the function checks its range."""
    for begin, end in ((-1, 2), (0, 4)):
        with pytest.raises(IndexError):
            find(b"abc", begin, end, Needle(b"c"))
    with pytest.raises(IndexError):
        records_with(b"abc", 3, Needle(b"c"), RecordColumns(4), 0, 2, [])


def test_an_empty_needle_is_refused() -> None:
    """It would be in every record, also in those with null fields."""
    with pytest.raises(ValueError, match="empty"):
        Needle(b"")
