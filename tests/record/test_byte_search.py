"""The search for bytes, compared with Python's own."""

from __future__ import annotations

import random
import re

import pytest

from kseg.format.record import memory
from kseg.format.record.columns import RecordColumns
from kseg.format.record.memory import Needle, find, find_header_bytes, records_with


@pytest.fixture(params=[False, True], autouse=True)
def by_the_byte(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways of plain Python: with its own search, and byte by byte as compiled (where only this way exists)."""
    monkeypatch.setattr(memory, "BY_THE_BYTE", request.param, raising=False)
    return bool(request.param)


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


@pytest.mark.parametrize("seed", range(10))
def test_no_header_is_missed(seed: int, by_the_byte: bool) -> None:
    """Resynchronization begins where a batch can begin, at each distance from the ends, among zeros and in noise."""
    rand = random.Random(seed)
    for _ in range(150):
        data = bytearray(
            rand.choices(rand.choice((b"\0", b"\0\xff", bytes(range(256)))), k=rand.choice((0, 16, 17, 18, 90, 700)))
        )
        for _ in range(rand.randrange(3)):
            at = rand.choice((0, max(0, len(data) - 17), rand.randrange(len(data) + 1)))
            header = bytes(2) + rand.choice((bytes(6), rand.randbytes(6))) + rand.randbytes(8)
            header = header[:8] + bytes([rand.randrange(9)]) + header[9:] + bytes([rand.randrange(5)])
            data[at : at + 17] = header[: len(data) - at]
        begin = rand.choice((0, max(0, len(data) - 17), rand.randint(0, len(data))))
        end = rand.choice((len(data), rand.randint(begin, len(data))))
        places = [at for at in range(begin, end - 16) if _can_begin(data, at)]
        found = find_header_bytes(data, begin, end)
        if memory.COMPILED or by_the_byte:
            assert found == min(places, default=end)
        else:  # plain Python also stops at sizes of 0
            assert found <= min(places, default=end)
            assert found == end or (
                data[found : found + 2] == bytes(2) and data[found + 8] < 8 and data[found + 16] < 4
            )


def _can_begin(data: bytearray, at: int) -> bool:
    """Return whether the bytes are those of a header: an offset below 2^48, a size of 1 to 2^27, and a magic below 4."""
    size = int.from_bytes(data[at + 8 : at + 12], "big")
    return data[at : at + 2] == bytes(2) and 0 < size < 1 << 27 and data[at + 16] < 4
