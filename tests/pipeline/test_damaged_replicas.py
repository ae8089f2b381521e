"""``kseg pipeline`` of replicas that are damaged in other places: the list has what no replica has, and no more."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import replicated
from tests.support.damage import flip
from tests.support.folders import marker
from tests.support.fuzzing import cases
from tests.support.growing_logs import batch
from tests.support.pipelines import config, quarantined, rows, run_here

pytestmark = pytest.mark.slow

BATCHES, RECORDS = 6, 4


def write_replica(home: Path, broker: int, damaged: dict[int, int], ends: tuple[int, ...] = (BATCHES,)) -> None:
    """Write a replica, in segments that end before the batches ``ends``. ``damaged`` has bytes to change, by batch."""
    folder = home / "source" / f"broker-{broker}" / "orders-0"
    folder.mkdir(parents=True)
    first = 0
    for end in ends:
        data = [batch(number) for number in range(first, end)]
        data = [flip(one, damaged[number]) if number in damaged else one for number, one in enumerate(data, first)]
        (folder / f"{first * RECORDS:020}.log").write_bytes(b"".join(data))
        first = end


def listed(home: Path) -> list[tuple[str, int, int]]:
    """Return broker and offsets of each row of the quarantine list."""
    return sorted((row["file"].split("/")[-3], row["offset"], row["last_offset"]) for row in quarantined(home))


# Bytes of a batch: its CRC, its last offset delta, its number of records, and its first record.
@pytest.mark.parametrize("byte", [17, 26, 59, 70])
@pytest.mark.parametrize(
    ("one", "two"), [((1,), (2,)), ((5,), (4,)), ((2, 5), (0,)), ((4, 5), (0, 1)), ((1, 3), (0, 2, 4))]
)
def test_damage_of_each_replica_that_the_other_has_is_not_listed(
    tmp_path: Path, one: tuple[int, ...], two: tuple[int, ...], byte: int
) -> None:
    """The page says: damage of a replica is not in the list if another replica has the rows."""
    for broker, damaged in enumerate((one, two)):
        write_replica(tmp_path, broker, dict.fromkeys(damaged, byte))
    outcome = run_here(config(tmp_path, source="source/broker-*"))
    assert [row[1] for row in rows(tmp_path, "parquet")] == list(range(BATCHES * RECORDS))
    assert (outcome.code, list(outcome.damage), len(outcome.unneeded)) == (0, [], 2)
    assert not (tmp_path / "quarantine").exists()


@pytest.mark.parametrize("number", [0, 3, BATCHES - 1])
def test_a_batch_with_another_offset_costs_its_own_records(tmp_path: Path, number: int) -> None:
    """No CRC covers the base offset. Of the last batch of a segment it once cost all rows before it, too."""
    write_replica(tmp_path, 0, {number: 2})
    outcome = run_here(config(tmp_path, source="source/broker-*"))
    lost = range(number * RECORDS, (number + 1) * RECORDS)
    assert [row[1] for row in rows(tmp_path, "parquet")] == [at for at in range(BATCHES * RECORDS) if at not in lost]
    assert (outcome.code, len(outcome.damage)) == (1, 1)


def test_of_the_damage_of_a_replica_only_what_no_other_has_is_listed(tmp_path: Path) -> None:
    """Batch 1 is lost in both, and batch 2 only in one."""
    write_replica(tmp_path, 0, {1: 70, 2: 70})
    write_replica(tmp_path, 1, {1: 70})
    outcome = run_here(config(tmp_path, source="source/broker-*"))
    assert outcome.code == 1
    assert listed(tmp_path) == [("broker-0", 4, 7), ("broker-1", 4, 7)]


def random_log(chance: random.Random) -> list[tuple[int, bytes]]:
    """Return the units of a log that one CRC covers, each with its first offset: batches, sets or messages of one version.

    After a damaged set, uncompressed messages can be its content: a log has only one of them.
    """
    magic, codec, found, offset = chance.randrange(3), chance.choice(["none", "gzip"]), [], 0
    for _ in range(chance.randint(2, 8)):
        count = chance.randint(1, 6)
        if magic == 2:
            found.append((offset, replicated.batch(offset, count, 0, codec)))
        elif codec != "none":
            found.append((offset, replicated.messages(offset, count, magic, codec)))
        else:
            found += [(offset + n, replicated.messages(offset + n, 1, magic)) for n in range(count)]
        offset += count
    return [*found, (offset, b"")]


def damaged(unit: bytes, chance: random.Random, *, framed: bool) -> bytes:
    """Damage a unit, but not its base offset and leader epoch, which no CRC covers, nor its size alone: the CRC proves it.

    ``framed``: only the value is damaged.
    """
    what = chance.choice(["flip", "flip", "zeros", "noise"] + ["cut", "noise"] * (not framed))
    at = chance.randrange(len(unit) - 9 if framed else 18 if what == "flip" else 8, len(unit) - 1)
    if what == "flip":
        return flip(unit, at, chance.randrange(1, 256))
    if what == "cut":
        return unit[: min(at, len(unit) - 12)]  # the next bytes can be equal to the last ones
    return unit[:at] + (bytes(len(unit) - at) if what == "zeros" else chance.randbytes(len(unit) - at))


def write_damaged(folder: Path, log: list[tuple[int, bytes]], chance: random.Random, share: float) -> set[int]:
    """Write a replica with damage and with segments of its own; return the first offsets of its valid units."""
    folder.mkdir(parents=True)
    valid, segment = set(), folder / f"{0:020}.log"
    # After a wrong size, uncompressed messages can be the content of a set, and a last batch can be unfinished.
    framed = log[0][1][16] < 2 and not log[0][1][17] & 7
    for first, unit in log[:-1]:
        if chance.random() < 0.2:
            segment = folder / f"{first:020}.log"
        hit = chance.random() < share and (framed or first != log[-2][0])
        data = damaged(unit, chance, framed=framed) if hit else unit
        if data == unit:
            valid.add(first)
        with segment.open("ab") as out:
            out.write(data)
    return valid


@pytest.mark.parametrize("seed", range(cases(80)))
def test_each_record_that_a_replica_has_is_loaded_and_each_other_one_is_listed(tmp_path: Path, seed: int) -> None:
    """Replicas of each version with other segments and damage: exit code 0 and no list if all rows are loaded."""
    chance = random.Random(seed)
    log, valid = random_log(chance), set[int]()
    for broker in range(chance.randint(1, 3)):
        folder = tmp_path / "source" / f"broker-{broker}" / "orders-0"
        valid |= write_damaged(folder, log, chance, chance.choice([0.1, 0.3, 0.6]))
    outcome = run_here(config(tmp_path, source="source/broker-*", more='gaps = "continue"'))
    ranges = [range(first, end) for (first, _), (end, _) in pairwise(log) if first in valid]
    wanted = [offset for one in ranges for offset in one]
    loaded = rows(tmp_path, "parquet") if wanted else []
    assert [(row[1], row[2]) for row in loaded] == [(offset, b"%d" % offset * 9) for offset in wanted]
    told = [
        range(row["offset"] or 0, log[-1][0] if row["last_offset"] is None else row["last_offset"] + 1)
        for row in outcome.damage
    ]
    missing = set(range(log[-1][0])) - set(wanted)
    assert [offset for offset in missing if not any(offset in one for one in told)] == []
    assert (outcome.code, bool(outcome.damage)) == ((1, True) if missing else (0, False))


def test_a_marker_that_one_replica_has_ends_its_transaction_in_a_later_run(tmp_path: Path) -> None:
    """Before the first offset of a load, too, a replica can lack the end of a transaction that another one has."""
    records = [PlainRecord(n, b"k", b"v", 1) for n in range(3)]
    begun = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    ended = marker(3, 7, abort=False)
    later = batch(2)
    folders = [tmp_path / "source" / f"broker-{broker}" / "orders-0" for broker in range(2)]
    segments = [folder / f"{0:020}.log" for folder in folders]
    for folder in folders:
        folder.mkdir(parents=True)
    segments[0].write_bytes(begun + ended + batch(1))
    segments[1].write_bytes(begun + flip(ended, 70) + batch(1))
    path = config(tmp_path, source="source/broker-*")
    assert run_here(path).code == 0
    segments[0].write_bytes(begun + ended + batch(1) + flip(later, 70))
    segments[1].write_bytes(begun + flip(ended, 70) + batch(1) + later)
    outcome = run_here(path)
    assert [(one.status, one.end_offset) for one in outcome.partitions] == [("loaded", 12)]
    assert [row[1] for row in rows(tmp_path, "parquet")] == [0, 1, 2, *range(4, 12)]


@pytest.mark.parametrize("rolled", [False, True])
def test_the_end_of_a_former_leader_is_not_loaded(tmp_path: Path, rolled: bool) -> None:
    """It wrote records that the next leader never got, and truncates them once it starts: no consumer has them."""
    ends = (4, BATCHES) if rolled else (BATCHES,)
    write_replica(tmp_path, 0, {}, ends)
    write_replica(tmp_path, 1, {}, (4,))
    old, new = (tmp_path / "source" / f"broker-{broker}" / "orders-0" for broker in range(2))
    records = [PlainRecord(16 + n, b"k", b"new leader", 1_700_000_009_000) for n in range(4)]
    (new / f"{16:020}.log").write_bytes(build_batch(records, base_offset=16, partition_leader_epoch=1))
    (old / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (new / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 16\n")
    outcome = run_here(config(tmp_path, source="source/broker-*"))
    assert outcome.code == 0
    loaded = rows(tmp_path, "parquet")
    assert [row[1] for row in loaded] == list(range(20))
    assert [b"new leader" in row for row in loaded] == 16 * [False] + 4 * [True]


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_a_table_of_another_replica_is_not_continued(tmp_path: Path, later: bool, checkpoints: bool) -> None:
    """Loaded from the next leader and continued from the former one, or the reverse: exit code 2, and no row is added."""
    write_replica(tmp_path, 0, {}, (BATCHES,))
    write_replica(tmp_path, 1, {}, (4,))
    old, new = (tmp_path / "source" / f"broker-{broker}" / "orders-0" for broker in range(2))
    records = [PlainRecord(16 + n, b"k", b"new leader", 1_700_000_009_000) for n in range(12 if later else 4)]
    (new / f"{16:020}.log").write_bytes(build_batch(records, base_offset=16, partition_leader_epoch=1))
    if checkpoints:
        (old / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (new / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 16\n")
    assert run_here(config(tmp_path, source=str((old if later else new).parent))).code == 0
    before = rows(tmp_path, "parquet")
    outcome = run_here(config(tmp_path, source="source/broker-*" if later else str(old.parent)))
    assert (outcome.code, rows(tmp_path, "parquet")) == (2, before)
    what = "differs from offset 16 on" if later else "has rows of leader epoch 1, and the segments have leader epoch 0"
    assert what in outcome.failures[0]
