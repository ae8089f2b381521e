"""``kseg carve`` at a block that begins with the next offset: the file can continue there, or another one begins.

The batches are made by an encoder that shares nothing with kseg. Each has the name of its partition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.cli import invoke, rows_of
from tests.support.transactional_logs import batch

BLOCK = 512


def sized(partition: str, first: int, size: int, producer: int, behind: int = 0) -> bytes:
    """Return a batch of 10 records with ``size`` bytes. The sequences of its producer are ``behind`` the offsets."""
    padding = size - 190
    while True:
        records = [(first + n, b"k", partition.encode()) for n in range(9)]
        records.append((first + 9, b"k", (partition * size).encode()[: 2 + padding]))
        sequence = first - behind if producer >= 0 else -1
        epoch = 0 if producer >= 0 else -1
        data = batch(first, first + 9, records, producer=producer, producer_epoch=epoch, sequence=sequence)
        if len(data) == size:
            return data
        padding += size - len(data)


carve = partial(rows_of, "carve", code=None)


def partitions(folder: Path) -> set[bytes]:
    """Return the names of the partitions in the batches of a group."""
    data = b"".join(path.read_bytes() for path in folder.iterdir())
    return {name for name in (b"P0", b"P1") if name in data}


def groups_of(image: Path, target: Path, *options: object) -> list[Path]:
    invoke("carve", image, "-o", target, "--block-size", BLOCK, *options)
    return sorted(target.glob("group-*"))


@pytest.mark.parametrize("producer", [-1, 77])
def test_equal_offsets_in_the_next_block_join_nothing(producer: int, tmp_path: Path) -> None:
    """Two partitions whose extents continue each other's offsets and sequences are not joined without ``--guess``."""
    zero, one = ([sized(name, 10 * n, BLOCK, producer) for n in range(6)] for name in ("P0", "P1"))
    image = tmp_path / "image"
    image.write_bytes(b"".join((*zero[:2], *one[2:4], *one[:2], *zero[2:5], one[5], one[4], zero[5])))
    assert [partitions(group) for group in groups_of(image, tmp_path / "new") if len(partitions(group)) > 1] == []
    rows = carve(image, "--block-size", BLOCK, "--guess")
    used = [row for row in rows if row["kind"] == "link" and row["group"]]
    assert used
    assert {(row["evidence"], row["strength"]) for row in used} == {("next block", "guess")}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_extents_of_two_partitions_are_joined_by_guesses_only(seed: int, tmp_path: Path) -> None:
    """Two partitions with batches of equal sizes, in extents in random order: a group has batches of one, or a guess."""
    chance = random.Random(seed)
    sizes = [BLOCK * chance.randrange(1, 4) - chance.choice((0, 0, 0, 7)) for _ in range(8)]
    extents: list[bytes] = []
    for name in ("P0", "P1"):
        data = b"".join(sized(name, 10 * n, size, -1) for n, size in enumerate(sizes))
        edges = sorted({0, len(data), *(chance.randrange(len(data)) // BLOCK * BLOCK for _ in range(3))})
        extents += [data[at:end] + bytes(-end % BLOCK) for at, end in pairwise(edges)]
    chance.shuffle(extents)
    (tmp_path / "image").write_bytes(b"".join(extents))
    groups = groups_of(tmp_path / "image", tmp_path / "new")
    assert groups
    guessed = {
        row["group"] for row in carve(tmp_path / "image", "--block-size", BLOCK) if row.get("strength") == "guess"
    }
    assert [group for group in groups if len(partitions(group)) > 1 and group.name not in guessed] == []


def log(name: str, sizes: Iterable[int], producer: int = -1, behind: int = 0) -> bytes:
    return b"".join(sized(name, 10 * n + behind, size, producer, behind) for n, size in enumerate(sizes))


@pytest.mark.parametrize(
    ("producer", "behind", "kind", "strength"),
    [(-1, 0, "next block", "guess"), (77, 0, "sequence", "strong"), (77, 5, "sequence", "strong")],
)
def test_a_file_in_a_row_of_blocks_is_one_run(
    producer: int, behind: int, kind: str, strength: str, tmp_path: Path
) -> None:
    """A batch that begins with a block does not split a file that no other one fits, and what joins it is shown."""
    data = log("P0", (300, 212, 400, 300, 324, 700), producer, behind)
    image = tmp_path / "image"
    image.write_bytes(bytes(BLOCK) + data + bytes(3 * BLOCK) + log("P1", (300, 340, 300)))
    rows = carve(image, "--block-size", BLOCK)
    link, second = (row for row in rows if row["kind"] == "link")
    assert (link["evidence"], link["strength"], link["group"]) == (kind, strength, "group-001")
    assert (link["before"]["position"], link["after"]["position"]) == (BLOCK, 2 * BLOCK)
    assert (second["evidence"], second["after"]["position"]) == (kind, 4 * BLOCK)
    first = next(row for row in rows if row["kind"] == "group")
    assert (first["links"], first["runs"], first["batches"]) == ([kind], 1, 6)
    shown = invoke("carve", image, "--block-size", BLOCK).stdout
    assert ("next block (guess)" in shown) == (strength == "guess")
    assert b"".join(path.read_bytes() for path in groups_of(image, tmp_path / "new")[0].iterdir()) == data


def test_copies_of_a_file_do_not_split_it(tmp_path: Path) -> None:
    """A replica on another disk ends and begins at the same offset: its batches are the same."""
    data = log("P0", (300, 212, 400, 400))
    (tmp_path / "one").write_bytes(data)
    (tmp_path / "two").write_bytes(bytes(BLOCK) + data)
    rows = carve(tmp_path / "one", tmp_path / "two", "--block-size", BLOCK)
    assert [(row["batches"], row["copies"]) for row in rows if row["kind"] == "group"] == [(4, 1)]


@pytest.mark.parametrize("before_block", [0, 7, 12, 17, 21, 40])
def test_a_header_in_two_blocks_is_not_torn(before_block: int, tmp_path: Path) -> None:
    """A whole batch that begins at any byte before the end of a block continues its file, and is not reported as torn."""
    (tmp_path / "image").write_bytes(log("P0", (BLOCK - before_block, 400, 300)))
    done = invoke("carve", tmp_path / "image", "--block-size", BLOCK, "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [row["batches"] for row in rows if row["kind"] == "group"]) == (0, [3])
    # The CRC of a batch ends 21 bytes after its start: from there on it proves that both blocks are of one file.
    assert [row["strength"] for row in rows if row["kind"] == "link"] == ["guess"] * (before_block < 21)


@pytest.mark.parametrize("shared", [0, 1, 2, 5, 8])
def test_a_file_begins_where_the_end_of_a_batch_of_another_was(shared: int, tmp_path: Path) -> None:
    """The end of a batch is lost, and the next block begins with the same bytes: the batch there is found, too."""
    before = batch(0, 0, [(0, b"k", b"P0" + bytes(BLOCK - 73 + shared))])
    assert len(before) == BLOCK + shared
    image = tmp_path / "image"
    image.write_bytes(before[:BLOCK] + log("P1", (300, 300)))
    assert [group.name for group in groups_of(image, tmp_path / "new")] == ["group-001", "group-002"]
    written = {b"".join(path.read_bytes() for path in group.iterdir()) for group in (tmp_path / "new").glob("group-*")}
    assert written == {before, log("P1", (300, 300))}


def test_a_batch_that_ends_after_the_start_of_a_block_hides_no_batch_in_its_value(tmp_path: Path) -> None:
    """A value that holds a segment is not taken for a file that begins there."""
    inner = log("P1", (300,))
    outer = batch(0, 0, [(0, b"k", bytes(BLOCK - 70) + inner)])
    assert outer.find(inner) == BLOCK
    (tmp_path / "image").write_bytes(outer)
    assert [row["batches"] for row in carve(tmp_path / "image", "--block-size", BLOCK) if row["kind"] == "group"] == [1]
