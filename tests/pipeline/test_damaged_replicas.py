"""``kseg pipeline`` of replicas that are damaged in other places: the list has what no replica has, and no more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import flip
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


def test_of_the_damage_of_a_replica_only_what_no_other_has_is_listed(tmp_path: Path) -> None:
    """Batch 1 is lost in both, and batch 2 only in one."""
    write_replica(tmp_path, 0, {1: 70, 2: 70})
    write_replica(tmp_path, 1, {1: 70})
    outcome = run_here(config(tmp_path, source="source/broker-*"))
    assert outcome.code == 1
    assert listed(tmp_path) == [("broker-0", 4, 7), ("broker-1", 4, 7)]


@pytest.mark.parametrize("seed", range(60))
def test_each_offset_that_no_replica_has_is_listed(tmp_path: Path, seed: int) -> None:
    """Two replicas with other segments, and random bytes damaged: exit code 0 and no list if all rows are loaded."""
    chance = random.Random(seed)
    for broker in range(2):
        damaged = {number: chance.randrange(17, 80) for number in range(BATCHES) if chance.random() < 0.3}
        ends = sorted({*chance.sample(range(1, BATCHES), chance.randrange(3)), BATCHES})
        write_replica(tmp_path, broker, damaged, tuple(ends))
    outcome = run_here(config(tmp_path, source="source/broker-*", more='gaps = "continue"'))
    (partition,) = outcome.partitions
    loaded = [row[1] for row in rows(tmp_path, "parquet")] if any((tmp_path / "lake").rglob("*.parquet")) else []
    missing = set(range(partition.end_offset)) - set(loaded)
    told = [
        range(row["offset"], row["last_offset"] + 1) if row["offset"] is not None else range(BATCHES * RECORDS)
        for row in outcome.damage
    ]
    assert [offset for offset in missing if not any(offset in one for one in told)] == []
    if len(loaded) == BATCHES * RECORDS:
        assert (outcome.code, list(outcome.damage)) == (0, [])
    else:
        assert outcome.code == 1 or partition.end_offset == len(loaded)


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
