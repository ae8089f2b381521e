"""With an inventory, read_committed returns exactly the committed records, and the plan reads no segment that it has."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow as pa
import pyarrow.parquet as pq

import kseg
from kseg.extras.views import planned_transactions
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed
from kseg.format.storage.source import open_source
from tests.support.damage import flip
from tests.support.transactional_logs import RandomLog, write_log


def inventory_of(folder: Path, target: Path) -> Path:
    pq.write_table(pa.RecordBatchReader.from_stream(kseg.scan(folder, "segments")).read_all(), target)
    return target


def committed(folder: Path, inventory: Path | None, offsets: tuple[int | None, int | None] | None = None) -> list[Any]:
    found = kseg.scan(folder, columns=["offset"], isolation="read_committed", inventory=inventory, offsets=offsets)
    return list(pa.RecordBatchReader.from_stream(found).read_all()["offset"].to_pylist())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments whose headers a plan reads for their transactions."""
    names: list[str] = []

    def watched(path: str, **options: bool) -> object:
        names.append(path)
        return open_source(path, **options)

    monkeypatch.setattr(planned_transactions, "open_source", watched)
    return names


def logs(tmp_path: Path, count: int) -> list[tuple[int, Path, RandomLog]]:
    folders = [tmp_path / str(seed) / "orders-0" for seed in range(count)]
    return [(seed, folder, write_log(folder, Random(seed))) for seed, folder in enumerate(folders)]


@pytest.mark.slow
def test_the_rows_are_those_of_committed_transactions(tmp_path: Path, opened: list[str]) -> None:
    """60 random logs with interleaved transactions: all rows, and those of a range of offsets."""
    known = 0
    for seed, folder, truth in logs(tmp_path, 60):
        inventory = inventory_of(folder, tmp_path / f"{seed}.parquet")
        assert committed(folder, inventory) == truth.committed, seed
        first, end = sorted(Random(seed).sample(range(120), 2))
        within = [offset for offset in truth.committed if first <= offset < end]
        assert committed(folder, inventory, offsets=(first, end)) == within, seed
        known += not truth.compacted
    assert not opened
    assert known > 30


@pytest.mark.slow
def test_only_the_segments_that_are_new_are_read(tmp_path: Path, opened: list[str]) -> None:
    """The inventory has the segments of the night before. Transactions begin in these, and end in the new ones."""
    for seed, folder, truth in logs(tmp_path, 40):
        inventory = inventory_of(folder, tmp_path / f"{seed}.parquet")
        names = sorted(folder.glob("*.log"))
        for new in names[len(names) // 2 :]:
            os.utime(new, (1, 1))
        opened.clear()
        assert committed(folder, inventory) == truth.committed, seed
        assert set(opened) <= set(map(str, names[len(names) // 2 :])), seed


@pytest.mark.slow
@pytest.mark.parametrize("change", ["damaged", "missing", "changed and damaged"])
def test_an_uncertain_log_gives_the_rows_of_a_read_without_it(change: str, tmp_path: Path) -> None:
    """A lost marker makes transactions uncertain, and their records are not returned, with the inventory or without."""
    fewer = 0
    for seed, folder, truth in logs(tmp_path, 30):
        names = sorted(folder.glob("*.log"))
        one = Random(seed).choice(names)
        inventory = tmp_path / f"{seed}.parquet"
        if change == "changed and damaged":
            inventory_of(folder, inventory)
        if change == "missing":
            one.unlink()
            if len(names) == 1:
                continue
        else:
            one.write_bytes(flip(one.read_bytes(), len(one.read_bytes()) // 2))
        if change != "changed and damaged":
            inventory_of(folder, inventory)
        found = committed(folder, inventory)
        assert found == committed(folder, None), seed
        fewer += len(found) < len(truth.committed)
    assert fewer > 10


@pytest.mark.slow
def test_a_wrong_base_offset_hides_no_other_record(tmp_path: Path) -> None:
    """No CRC covers it: one flipped bit in any batch of 40 logs. The rows are those of a read without the inventory."""
    for seed, folder, _ in logs(tmp_path, 40):
        dice = Random(seed)
        path = dice.choice(sorted(folder.glob("*.log")))
        data = bytearray(path.read_bytes())
        starts = [0]
        while starts[-1] < len(data):
            starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12]))
        data[dice.choice(starts[:-1]) + dice.randrange(4, 8)] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        inventory = inventory_of(folder, tmp_path / f"{seed}.parquet")
        assert committed(folder, inventory) == committed(folder, None), seed


def test_a_transaction_that_a_producer_snapshot_has_is_open(tmp_path: Path) -> None:
    """Its segment is deleted, and its producer is silent since: the last stable offset is before the log, as without it."""
    tried = 0
    for seed, folder, truth in logs(tmp_path, 60):
        *_, newest = sorted(folder.glob("*.log"))
        if not truth.committed or truth.committed[-1] < 9 or truth.stable is not None:
            continue
        open_since = ProducerState(77, 0, 3, 4, 0, 1_700_000_000_000, 0, 4)
        newest.with_suffix(".snapshot").write_bytes(packed([open_since]))
        inventory = inventory_of(folder, tmp_path / f"{seed}.parquet")
        found = committed(folder, inventory)
        assert found == committed(folder, None)
        assert len(found) < len(truth.committed)
        tried += 1
    assert tried > 3
