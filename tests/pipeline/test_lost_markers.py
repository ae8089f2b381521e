"""A load of committed records beside damage: no record of an aborted transaction, and none is left out without a word."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from tests.support.damage import entries, flip, get
from tests.support.pipelines import config, rows, run_here
from tests.support.transactional_logs import RandomLog, write_log


def damage(folder: Path, chance: random.Random, share: float, parity: int | None = None) -> None:
    """Damage about this share of the batches; with ``parity`` only those with even, or odd, first offsets."""
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for place in entries(data):
            mine = parity is None or get(data, place.at, "base_offset") % 2 == parity
            if mine and chance.random() < share:
                data = flip(data, place.end - 1)
        path.write_bytes(data)


def loaded(home: Path, log: RandomLog) -> list[int]:
    """Load a source, and return the offsets in the table. Each that is left out before its end is in the report."""
    outcome = run_here(config(home, more='gaps = "continue"'))
    got = [row[1] for row in rows(home, "parquet")] if any((home / "lake").rglob("*.parquet")) else []
    ended = {one.offset for one in log.records if one.state in (None, "committed") and not one.control}
    assert not set(got) - ended, "records of aborted or open transactions"
    (partition,) = outcome.partitions
    told = [range(row["offset"], row["last_offset"] + 1) for row in outcome.damage if row["offset"] is not None]
    missing = {offset for offset in log.committed if offset < partition.end_offset} - set(got)
    assert [offset for offset in missing if not any(offset in one for one in told)] == []
    return got


@pytest.mark.parametrize("seed", range(40))
def test_lost_markers_load_no_aborted_record(seed: int, tmp_path: Path) -> None:
    """The next marker of a producer is not that of its earlier transactions, if theirs can be among lost bytes."""
    chance = random.Random(seed)
    folder = tmp_path / "source" / "orders-0"
    log = write_log(folder, chance)
    damage(folder, chance, 0.1)
    loaded(tmp_path, log)


@pytest.mark.parametrize("seed", range(40, 60))
def test_replicas_with_damage_in_other_places_lose_no_record(seed: int, tmp_path: Path) -> None:
    """What one has lost, the other one has: also the markers."""
    chance = random.Random(seed)
    folder = tmp_path / "source" / "one" / "orders-0"
    log = write_log(folder, chance)
    shutil.copytree(folder, tmp_path / "source" / "two" / "orders-0")
    for parity, name in enumerate(("one", "two")):
        damage(tmp_path / "source" / name / "orders-0", chance, 0.2, parity)
    got = loaded(tmp_path, log)
    assert got == log.committed or log.compacted  # where offsets are missing anyway, a damaged batch can have had them
