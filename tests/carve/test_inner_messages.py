"""``kseg carve`` writes no message of a compressed v1 set whose header is missing: its offset is relative to the set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from

import pytest

from kseg.commands.carve.carving import Carving
from kseg.format.writer.records_builder import PlainRecord, build_message, build_wrapper
from tests.support.cut_images import BLOCK, CutImage
from tests.support.fuzzing import cases
from tests.support.stored_sets import MIXED, PURE, TIME, Log, damage, random_log, wrong

BASES = (0, 1, 40, 300, 70_000, 5_000_000)


def _image(dice: random.Random, logs: list[Log]) -> bytes:
    """Return an image of damaged logs: some whole, some in extents of 1 to 12 blocks, in random order."""
    pieces = []
    for log in logs:
        begin = 0
        extents = dice.random() < 0.5
        while begin < len(log.data):
            end = begin + BLOCK * dice.randrange(1, 13) if extents else len(log.data)
            piece = log.data[begin:end]
            pieces.append(piece + bytes(-len(piece) % BLOCK))
            begin = end
    dice.shuffle(pieces)
    return b"".join(pieces)


def _messages(data: bytes, carving: Carving) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the uncompressed v1 messages of runs as (offset, value, whether the run begins with a block)."""
    for run in carving.runs:
        content = b"".join(data[piece.position : piece.end] for piece in run.pieces)
        for at in run.starts:
            offset, size, magic, attributes = unpack_from(">qi4xBB", content, at)
            if magic == 1 and not attributes & 7:
                yield offset, content[at + 35 : at + 12 + size], run.position % BLOCK == 0


def _case(seed: int, path: Path, codecs: list[str]) -> tuple[list[str], int, int]:
    """Return wrong messages of a random image, how many of the whole uncompressed ones are found, and how many there are."""
    dice = random.Random(seed)
    logs = [random_log(dice, 0, codecs, BASES, magic=1) for _ in range(3)]
    whole = [log.data[begin:end] for log in logs for begin, end, _ in log.bare]
    for log in logs[1:]:
        damage(log, logs[0], dice)
    logs[1].renumbered = set.union(*(log.renumbered for log in logs))
    data = _image(dice, logs)
    carving = CutImage(data, {}).carve(path)
    found = list(_messages(data, carving))
    # A message of a set that begins with a block by chance passes for the start of a file: 3 of 5,000 such images have one.
    bad = wrong(logs[1], [(offset, value) for offset, value, is_first in found if not is_first])
    values = {value for _, value, _ in found}
    there = [message for message in whole if message in data]
    return [f"seed {seed}: {one}" for one in bad], sum(message[35:] in values for message in there), len(there)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize(("codecs", "least"), [(MIXED, 0.85), (PURE, 0.6)], ids=["mixed", "uncompressed"])
def test_no_inner_message_is_carved(tmp_path: Path, codecs: list[str], least: float) -> None:
    """Of damaged files, and of files in extents, of which most do not begin with a message."""
    found = [_case(seed, tmp_path / "image", codecs) for seed in range(cases(60))]
    assert [one for bad, _, _ in found for one in bad] == []
    assert sum(read for _, read, _ in found) >= least * sum(there for *_, there in found)


def test_messages_of_a_set_without_its_header_are_torn(tmp_path: Path) -> None:
    """Their number is reported, and where they are; a file of uncompressed messages is whole."""
    dice = random.Random(1)
    records = [PlainRecord(7000 + n, b"k", b"0/%d/" % (7000 + n) + dice.randbytes(5000), TIME) for n in range(6)]
    packed = build_wrapper(records, magic=1, compression="snappy")
    plain = b"".join(build_message(one, magic=1) for one in records)
    data = plain + bytes(-len(plain) % BLOCK) + bytes(512) + packed[512:]
    carving = CutImage(data, {}).carve(tmp_path / "image")
    assert [(run.first, run.last) for run in carving.runs] == [(7000, 7005)]
    assert [(head.messages > 1, head.last) for _, head in carving.torn] == [(True, 5)]
    assert not carving.is_whole
