"""Two damaged replicas: `kseg diff` states which offsets each has alone and which neither can read, as the bytes say."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import damage
from tests.support.cli import SEGMENTS, invoke

# Offsets without holes: the range of a compressed message set begins after the previous batch.
PARTITIONS = (
    "4.3.0-v2-none-segments", "0.10.2.2-v1-gzip-segments", "4.3.0-v2-none-transactions", "3.9.1-v2-zstd",
    "2.8.2-v0v1v2-mixed",
)  # fmt: skip
# Bytes of a batch from here on are covered by its CRC, and none of them is its CRC.
BODY = {0: 17, 1: 17, 2: 61}


class Written(NamedTuple):
    """A batch of the undamaged partition: its offsets (inclusive), its file and its bytes in it."""

    first: int
    last: int
    file: str
    at: int
    end: int
    body: int


def written(folder: Path) -> list[Written]:
    """Return the batches by their headers; that nothing is missing between them is checked."""
    found: list[Written] = []
    expected = 0
    for log in sorted(folder.glob("*.log")):
        data = log.read_bytes()
        expected = max(expected, int(log.stem))
        for place in damage.entries(data):
            base, magic = struct.unpack_from(">q8xB", data, place.at)
            last = base + struct.unpack_from(">i", data, place.at + 23)[0] if magic == 2 else base
            assert last >= expected
            assert magic < 2 or base == expected
            found.append(Written(expected, last, log.name, place.at, place.end, place.at + BODY[magic]))
            expected = last + 1
    return found


def hurt(folder: Path, batches: list[Written], kept: int, chance: random.Random) -> set[int]:
    """Invert random ranges of bytes in the segments, from one batch's body to another's; return the damaged batches.

    Batch ``kept`` stays valid: a folder without any is not compared.
    """
    damaged: set[int] = set()
    for _ in range(chance.randint(1, 3)):
        first = chance.choice([n for n in range(len(batches)) if n != kept])
        one = batches[first]
        end = min(first + 3, len(batches) if first > kept else kept)
        same_file = [n for n in range(first, end) if batches[n].file == one.file]
        last = chance.choice(same_file)
        start = chance.randrange(one.body, one.end)
        stop = chance.randrange(max(start, batches[last].body), batches[last].end) + 1
        path = folder / one.file
        data = bytearray(path.read_bytes())
        # What is damaged twice stays damaged.
        pattern = 0x5A + len(damaged) % 7
        data[start:stop] = bytes(byte ^ pattern for byte in data[start:stop])
        path.write_bytes(data)
        damaged |= set(range(first, last + 1))
    return damaged


def outcome(a: Path, b: Path, *options: str) -> tuple[int, dict[str, Any]]:
    run = invoke("diff", "--format", "jsonl", *options, a, b)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return run.exit_code, next(row for row in rows if row["kind"] == "diff")


def ranges(batches: list[Written], states: list[str], state: str) -> Iterator[list[Written]]:
    """Yield the runs of batches that have this state."""
    for found, run in groupby(zip(batches, states, strict=True), key=lambda pair: pair[1]):
        if found == state:
            yield [batch for batch, _ in run]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_stated_ranges_are_those_that_were_damaged(partition: str, seed: int, tmp_path: Path) -> None:
    """Advice that replaces a replica rests on these ranges: a wrong one deletes the only copy of records."""
    chance = random.Random(f"{partition} {seed}")
    a, b = (Path(shutil.copytree(SEGMENTS / partition, tmp_path / name / "orders-0")) for name in "ab")
    batches = written(a)
    lost = [hurt(folder, batches, chance.randrange(len(batches)), chance) for folder in (a, b)]
    states = [("AB"[n in lost[0]] + "AB"[n in lost[1]]) for n in range(len(batches))]
    code, row = outcome(a, b)
    together = row["together"]
    assert (code, row["verdict"]) == (1, "damaged")
    for name, folder, state in (("a", a, "AB"), ("b", b, "BA")):
        stated = [
            (one["first_offset"], one["last_offset"], one["file"], one["position"])
            for one in together[f"only_in_{name}"]
        ]
        assert stated == [
            (run[0].first, run[-1].last, str(folder / run[0].file), run[0].at) for run in ranges(batches, states, state)
        ]
        assert together[f"only_in_{name}_ranges"] == len(stated)
    # Nothing after the last readable batch proves where the lost offsets end.
    expected = [
        (run[0].first, None if run[-1] is batches[-1] else run[-1].last) for run in ranges(batches, states, "BB")
    ]
    assert [(one["first_offset"], one["last_offset"]) for one in together["lost_in_both"]] == expected
    assert together["whole"] is not bool(expected)
    assert outcome(tmp_path / "a", tmp_path / "b")[1]["together"] == together
    if partition != "0.10.2.2-v1-gzip-segments":
        assert outcome(a, b, "--shallow")[1]["together"]["lost_in_both"] == together["lost_in_both"]


def damaged_pair(tmp_path: Path, of_a: list[int], of_b: list[int]) -> tuple[Path, Path]:
    """Return two replicas of one segment in which these batches are damaged."""
    pair = []
    for name, hit in (("a", of_a), ("b", of_b)):
        folder = Path(shutil.copytree(SEGMENTS / PARTITIONS[0], tmp_path / name / "orders-0"))
        batches = written(folder)
        for n in hit:
            path = folder / batches[n].file
            path.write_bytes(damage.flip(path.read_bytes(), batches[n].body + 3))
        pair.append(folder)
    return pair[0], pair[1]


def advice(a: Path, b: Path) -> str:
    return invoke("diff", a, b).stdout


def test_two_replicas_that_are_whole_together_are_both_kept(tmp_path: Path) -> None:
    """Following the advice to replace both loses records that exist, and the printed command shows where they are."""
    a, b = damaged_pair(tmp_path, [7], [1, 11])
    shown = advice(a, b)
    assert "together the replicas have all offsets 0..120" in shown
    assert "Do not replace one by a copy of the other" in shown
    assert "a lacks fewer records: 8, b 16" in shown
    assert "Replace" not in shown
    assert "together the replicas have all offsets" in advice(tmp_path / "a", tmp_path / "b")
    command = shown.split("b has the offsets that a has lost")[1].split("`")[1].split()
    run = invoke(*command[1:], "--format", "jsonl")
    offsets = [row["offset"] for row in map(json.loads, run.stdout.splitlines()) if row["kind"] == "record"]
    assert offsets == list(range(56, 64))


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        ([7], [7], ["neither replica can read offsets 56..63", "Both replicas have the same records", "third replica"]),
        ([7], [7, 1], ["neither replica can read offsets 56..63", "Keep a: it has each record that b has"]),
        ([7, 8], [8, 9], ["neither replica can read offsets 64..71", "Do not replace one by a copy of the other"]),
        ([15], [15], ["neither replica can read offsets from 120 on"]),
        ([], [7], ["What to do: Replace b: "]),
    ],
    ids=["same", "one has all", "overlap", "end", "one damaged"],
)
def test_the_advice_keeps_the_only_copy(of_a: list[int], of_b: list[int], expected: list[str], tmp_path: Path) -> None:
    """A replica is replaced only if the other one has each of its records."""
    shown = advice(*damaged_pair(tmp_path, of_a, of_b))
    for text in expected:
        assert text in shown
