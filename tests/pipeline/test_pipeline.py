"""``kseg pipeline``: each committed record is in the table once, wherever the nights are cut and the runs are killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow.parquet as pq

import kseg as library
from tests.support import pipelines
from tests.support.cli import kseg
from tests.support.growing_logs import batch, write
from tests.support.pipelines import TRANSACTIONS, config, killed, rows, run, run_here, split_log

pytestmark = pytest.mark.slow


def committed_rows(folder: Path) -> list[tuple[int, int, bytes | None]]:
    """Return what a consumer with isolation.level=read_committed gets, by the view of transactions."""
    found = library.scan(folder, "transactions").to_table().to_pylist()
    stable = min((row["first_offset"] for row in found if row["state"] in ("open", "hanging")), default=1 << 62)
    aborted = [row for row in found if row["state"] == "aborted"]
    columns = ["partition", "offset", "value", "control", "producer_id", "transactional"]
    every = library.scan(folder, columns=columns).to_table().to_pylist()
    kept = []
    for row in every:
        ended = any(
            row["transactional"]
            and one["producer_id"] == row["producer_id"]
            and one["first_offset"] <= row["offset"] <= one["last_offset"]
            for one in aborted
        )
        if row["control"] is None and row["offset"] < stable and not ended:
            kept.append((row["partition"], row["offset"], row["value"]))
    return sorted(kept)


def test_nights_cut_anywhere_equal_the_whole(tmp_path: Path) -> None:
    """27 cuts of a log with transactions: each night loads up to the last stable offset, and none loses a record."""
    log = split_log(TRANSACTIONS, tmp_path / "log" / "orders-0")
    whole = committed_rows(log[0].parent)
    cuts = 0
    for cut in range(len(log) + 1):
        home = tmp_path / str(cut)
        folder = home / "source" / "orders-0"
        folder.mkdir(parents=True)
        path = config(home)
        for night in (log[:cut], log[cut:]):
            for segment in night:
                shutil.copy(segment, folder)
            if any(folder.iterdir()):
                assert run_here(path).code == 0
            else:
                assert run(path).returncode == 2  # a source without segments is a mistake
        assert rows(home, "parquet") == whole, cut
        cuts += 1
    assert cuts == 27


def test_one_night_per_batch_equals_the_whole(tmp_path: Path, kind: str) -> None:
    """Each night brings one batch; a table of any format ends with the rows of the whole log, each once."""
    log = split_log(TRANSACTIONS, tmp_path / "log" / "orders-0")
    folder = tmp_path / "source" / "orders-0"
    folder.mkdir(parents=True)
    path = config(tmp_path, kind)
    for segment in log[:: 1 if kind == "parquet" else 3]:
        at = log.index(segment)
        for one in log[at : at + 3]:
            shutil.copy(one, folder)
        assert run_here(path).code == 0
    assert rows(tmp_path, kind) == committed_rows(log[0].parent)


def test_several_processes_load_the_same_files(tmp_path: Path, kind: str) -> None:
    """A call has its own files, so that their rows do not depend on the number of processes."""
    found = {}
    for jobs in (1, 3):
        home = tmp_path / str(jobs)
        for partition in range(4):
            split_log(TRANSACTIONS, home / "source" / f"orders-{partition}")
        path = config(home, kind, table='file_size = "1 KB"')
        assert kseg("pipeline", "run", "--jobs", jobs, path).returncode == 0
        files = sorted((home / "lake").rglob("kseg-*.parquet"))
        assert len(files) > 4
        found[jobs] = rows(home, kind), sorted(pq.read_metadata(file).num_rows for file in files)
    assert found[1] == found[3]


def test_killed_at_every_step_three_times(tmp_path: Path, kind: str) -> None:
    """SIGKILL before and after each write, commit and data file, three times each: the same table in the end."""
    shutil.copytree(TRANSACTIONS, tmp_path / "whole" / "source" / "orders-0")
    folder = tmp_path / "whole" / "source" / "orders-0"
    whole = committed_rows(folder)
    steps = killed(config(tmp_path / "whole", kind), 0, kind)
    assert steps > 14
    every = range(1, steps + 1, 1 if kind == "parquet" else 3)
    for step in every:
        home = tmp_path / str(step)
        shutil.copytree(folder, home / "source" / "orders-0")
        path = config(home, kind)
        codes = [killed(path, step, kind) for _ in range(3)]
        assert codes[0] == -9, step
        assert run_here(path).code == 0
        assert rows(home, kind) == whole, step
        assert json.loads((home / "state" / "manifest.json").read_text())["state"] == "DONE"


def test_good_batches_of_a_damaged_segment_are_loaded(tmp_path: Path, kind: str) -> None:
    """The damage is in the quarantine list with its reason; the exit code is 1; it is not listed again the next night."""
    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir(parents=True)
    batches = [batch(number) for number in range(8)]
    bad = bytearray(b"".join(batches[:4]))
    bad[len(batches[0]) + len(batches[1]) - 5] ^= 1
    write(folder, [bytes(bad)])
    write(folder, batches[4:6], first=4)
    path = config(tmp_path, kind)
    done = run(path)
    assert done.returncode == 1, done.stderr
    assert [row[1] for row in rows(tmp_path, kind)] == [*range(4), *range(8, 24)]
    (listed,) = (tmp_path / "quarantine").iterdir()
    (row,) = map(json.loads, listed.read_text().splitlines())
    assert (row["rule"], row["offset"], row["last_offset"]) == ("crc-mismatch", 4, 7)
    write(folder, batches[6:], first=6)
    assert run(path).returncode == 0
    assert [row[1] for row in rows(tmp_path, kind)] == [*range(4), *range(8, 32)]
    assert pipelines.run(path, "status", "--format", "jsonl").returncode == 0
