"""Replicas with compressed message sets of v0 and v1: only the payload has the first offset of a set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke
from tests.support.damage import flip
from tests.support.fuzzing import cases
from tests.support.records import NOW


def _set(offsets: Sequence[int], magic: int, *, broken: bool = False) -> bytes:
    records = [PlainRecord(n, b"k%d" % n, b"v%d" % n, NOW + n if magic else -1) for n in offsets]
    data = build_wrapper(records, magic=magic, compression="gzip")
    return flip(data, len(data) - 4) if broken else data


def _replica(folder: Path, *sets: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(sets))
    return folder


def _repair(*paths: Path) -> tuple[int, list[dict[str, object]], list[int]]:
    """Return the exit code, the rows, and the offsets of the result."""
    done = invoke("repair", "--format", "jsonl", *paths)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, rows, [one.offset for one in kseg.open_partition(paths[-1]).records()]


def _offsets(rows: list[dict[str, object]], kind: str) -> list[tuple[object, object]]:
    return [(row["offset"], row["last_offset"]) for row in rows if row["kind"] == kind]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("magic", [0, 1])
def test_rows_have_the_offsets_of_the_sets(magic: int, tmp_path: Path) -> None:
    """The result has the sets that one replica has; the rows ``taken`` and ``lost`` name the offsets of all others."""
    for case in range(cases(20)):
        random, home = Random(case), tmp_path / str(case)
        starts, end = [], 0
        for _ in range(random.randrange(3, 9)):
            starts.append(end)
            end += random.randrange(1, 12)
        ranges = [range(first, stop) for first, stop in zip(starts, [*starts[1:], end], strict=True)]
        # The last set stays: nothing in the log shows that one was there.
        damage = [[random.random() < 0.4 for _ in ranges[:-1]] + [False] for _ in range(2)]
        replicas = [
            _replica(
                home / f"{n}" / "t-0", *(_set(one, magic, broken=bad) for one, bad in zip(ranges, own, strict=True))
            )
            for n, own in enumerate(damage)
        ]
        lost = [one for one, *bad in zip(ranges, *damage, strict=True) if all(bad)]
        code, rows, found = _repair(*replicas, home / "t-0")
        missing = {offset for one in lost for offset in one}
        assert found == [offset for offset in range(end) if offset not in missing], case
        assert code == bool(lost), case
        for kind, expected in (("taken", set(found)), ("lost", missing)):
            named = [n for first, last in _offsets(rows, kind) for n in range(int(str(first)), int(str(last)) + 1)]
            assert sorted(named) == sorted(expected), (case, kind)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("cleaned", [range(8), range(2, 10), range(3, 6), [0, 9]])
def test_a_compacted_set_and_a_whole_one(cleaned: Sequence[int], swapped: bool, tmp_path: Path) -> None:
    """The cleaner of one broker removed records at the ends of a set: the result has each record once, and is valid."""
    first = _replica(
        tmp_path / "a" / "t-0", _set(cleaned, 1), _set(range(10, 20), 1, broken=True), _set(range(20, 30), 1)
    )
    second = _replica(tmp_path / "b" / "t-0", *(_set(range(n, n + 10), 1, broken=n == 20) for n in (0, 10, 20)))
    replicas = (second, first) if swapped else (first, second)
    code, rows, found = _repair(*replicas, tmp_path / "t-0")
    assert (code, found) == (0, [*range(30)])
    assert _offsets(rows, "taken") == [(0, 19), (20, 29)]
    assert [path.name for path in (tmp_path / "t-0").glob("*.log")] == [f"{0:020}.log"]
    assert invoke("validate", "-q", tmp_path / "t-0").exit_code == 0


def test_two_compacted_sets(tmp_path: Path) -> None:
    """Each set has a record that the other one lacks: one of them is in the result, the other record may be lost."""
    first = _replica(tmp_path / "a" / "t-0", _set([0, 1, 2, 3], 1), _set(range(10, 20), 1))
    second = _replica(tmp_path / "b" / "t-0", _set([2, 3, 9], 1), _set(range(10, 20), 1, broken=True))
    code, rows, found = _repair(first, second, tmp_path / "t-0")
    assert (code, found) == (1, [0, 1, 2, 3, *range(10, 20)])
    assert _offsets(rows, "lost") == [(9, 9)]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_epoch_that_no_leader_set_excludes_no_history(damaged: bool, swapped: bool, tmp_path: Path) -> None:
    """Kafka 4 converts v1 while it compacts, with leader epoch -1. The other replica is still v1, and loses nothing."""
    old = _replica(tmp_path / "a" / "t-0", *(_set(range(n, n + 5), 1) for n in range(0, 30, 5)))
    batches = [
        build_batch(
            [PlainRecord(i, b"k%d" % i, b"v%d" % i, NOW + i) for i in range(n, n + 5)], partition_leader_epoch=-1
        )
        for n in range(15, 30, 5)  # the records before are deleted ones
    ]
    if damaged:
        batches[1] = flip(batches[1], len(batches[1]) - 4)
    new = _replica(tmp_path / "b" / "t-0", *batches)
    (new / "leader-epoch-checkpoint").write_text("0\n0\n")
    code, rows, found = _repair(*((new, old) if swapped else (old, new)), tmp_path / "t-0")
    assert (code, found, _offsets(rows, "lost")) == (0, [*range(30)], [])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_set_and_single_messages_of_it(swapped: bool, tmp_path: Path) -> None:
    """Zeros over the head of a stored set leave messages of v0 that are valid by themselves: their records are equal."""
    random = Random(5)
    sets = [
        build_wrapper(
            [PlainRecord(n + i, b"k", random.randbytes(900), -1) for i in range(4)], magic=0, compression="snappy"
        )
        for n in range(0, 24, 4)
    ]
    start = len(sets[0]) + 340
    data = b"".join(sets)
    damaged = data[:start] + bytes(4096) + data[start + 4096 :]
    replicas = [_replica(tmp_path / "a" / "t-0", data), _replica(tmp_path / "b" / "t-0", damaged)]
    single = invoke("repair", "--dry-run", replicas[1])
    assert "18 records" in single.stdout, single.stdout
    code, rows, found = _repair(*(replicas[::-1] if swapped else replicas), tmp_path / "t-0")
    assert (code, found, _offsets(rows, "lost")) == (0, [*range(24)], [])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_deletion_that_is_left_of_a_damaged_set_replaces_no_batch(swapped: bool, tmp_path: Path) -> None:
    """The other replica was converted and compacted, and lacks the deletion: its other records are in the result."""
    records = [PlainRecord(n, b"k%d" % n, None if n == 5 else b"v", NOW + n) for n in range(10)]
    whole = build_batch([one for one in records if one.value], base_offset=0, last_offset=9, partition_leader_epoch=-1)
    messages = (build_message(one, magic=1) for one in records[5:])
    replicas = [_replica(tmp_path / "a" / "t-0", whole), _replica(tmp_path / "b" / "t-0", b"\7" * 300, *messages)]
    code, rows, found = _repair(*(replicas[::-1] if swapped else replicas), tmp_path / "t-0")
    assert (code, found) == (1, [0, 1, 2, 3, 4, 6, 7, 8, 9])
    assert (5, 5) in _offsets(rows, "lost")


@pytest.mark.parametrize("swapped", [False, True])
def test_the_higher_format_of_equal_versions_counts(swapped: bool, tmp_path: Path) -> None:
    """One of two undamaged replicas was converted to v2: so is the result, not batch by batch as their CRCs have it."""
    old = _replica(tmp_path / "a" / "t-0", *(_set(range(n, n + 5), 1) for n in range(0, 60, 5)))
    new = tmp_path / "b" / "t-0"
    new.parent.mkdir()
    assert invoke("convert", "v1-to-v2", old, new).exit_code == 0
    code, rows, found = _repair(*((new, old) if swapped else (old, new)), tmp_path / "t-0")
    assert (code, found) == (0, [*range(60)])
    assert [row["file"] for row in rows if row["kind"] == "taken"] == [str(new)]
    magics = invoke("dump", "--format", "csv", "--columns", "magic", tmp_path / "t-0").stdout.split()
    assert {*magics[1:]} == {"2"}
