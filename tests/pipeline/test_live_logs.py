"""``kseg pipeline`` next to a broker that truncates, continues or rolls the newest segment after its check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow.parquet as pq

from kseg.extras.pipeline import load_rows
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.pipelines import config, rows, run_here, run_in_process


def write(home: Path, values: list[bytes], *, later: int = 6, zeros: int = 0, partition: int = 0) -> Path:
    """Write a log with one value per batch, those from offset ``later`` on by a later leader."""
    folder = home / "source" / f"orders-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    made = [
        build_batch([PlainRecord(at, b"k", value)], base_offset=at, partition_leader_epoch=int(at >= later))
        for at, value in enumerate(values)
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(made) + bytes(zeros))
    return folder / f"{0:020}.log"


def loaded(home: Path) -> list[Any]:
    return [row[2] for row in rows(home, "parquet")]


def changed(patched: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object] = bool) -> None:
    """Call functions before and after the rows of each part are read."""
    original = load_rows.part_rows

    def part_rows(*given: Any) -> Iterator[Any]:
        before()
        yield from original(*given)
        after()

    patched.setattr(load_rows, "part_rows", part_rows)


OLD = [b"old%d" % n for n in range(6)]


@pytest.mark.parametrize("later", [[b"new", b"x" * 500], [b"new3", b"new4", b"new5"]])
def test_a_newest_segment_that_was_replaced_after_its_check_is_not_loaded(
    later: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is loaded once: a log that a later leader continued has no rows up to the end that was planned.

    It can be larger with fewer offsets, or have as many bytes and offsets.
    """
    segment, path = write(tmp_path, OLD), config(tmp_path)
    now = [*OLD[: 6 - len(later)], *later]
    with monkeypatch.context() as patched:
        changed(patched, lambda: write(tmp_path, now, later=6 - len(later)))
        outcome = run_here(path)
    why = f"topic orders: {segment}: it was changed or deleted since it was listed: run again"
    assert (outcome.code, outcome.failures, outcome.rows) == (2, (why,), {})
    now += [b"more%d" % n for n in range(6)]
    write(tmp_path, now, later=6 - len(later))
    assert run_here(path).code == 0
    assert loaded(tmp_path) == now


def test_a_log_that_is_truncated_between_its_load_and_the_commit_is_told_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are not those of the log are found: the table has the leader epoch of the rows, not that of the commit."""
    write(tmp_path, OLD)
    path, now = config(tmp_path), [*OLD[:3], b"new3", b"new4", b"new5"]
    with monkeypatch.context() as patched:
        changed(patched, bool, lambda: write(tmp_path, now, later=3))
        assert run_here(path).code == 0
    outcome = run_here(path)
    assert (outcome.code, "the table differs from offset 3 on" in outcome.failures[0]) == (2, True)
    assert run_in_process(path, "replay", "--topic", "orders", "--offsets", "0:3:6").returncode == 0
    assert run_here(path).code == 0
    assert loaded(tmp_path) == now


@pytest.mark.parametrize("at", [8, 16])
def test_a_last_batch_with_a_damaged_header_is_not_taken_for_a_replaced_one(at: int, tmp_path: Path) -> None:
    """A batch whose size or magic is damaged is loaded if its CRC proves others: at the log end, too, and each night."""
    segment = write(tmp_path, OLD)
    data = bytearray(segment.read_bytes())
    data[len(data) * 5 // 6 + at] ^= 0x10
    segment.write_bytes(data)
    assert run_here(config(tmp_path)).code == 1
    assert loaded(tmp_path) == OLD


def test_a_preallocated_segment_that_is_rolled_after_its_check_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll cuts the zeros after the batches: no partition of the topic waits for the next night."""
    segments = [write(tmp_path, OLD, zeros=4096, partition=partition) for partition in range(2)]
    path, size = config(tmp_path), len(segments[0].read_bytes()) - 4096
    with monkeypatch.context() as patched:
        changed(patched, lambda: os.truncate(segments[1], size))
        outcome = run_here(path)
    assert (outcome.code, outcome.failures) == (0, ())
    assert loaded(tmp_path) == 2 * OLD
    more = write(tmp_path, [*OLD, b"more"], partition=1)
    with monkeypatch.context() as patched:
        changed(patched, lambda: os.truncate(more, more.stat().st_size - 1))
        outcome = run_here(path)
    assert (outcome.code, outcome.failures) == (2, (f"topic orders: {more}: replaced meanwhile: run again",))


def test_an_inventory_of_an_older_kseg_is_read_anew(tmp_path: Path) -> None:
    """An update adds columns: the segments are checked again, and no night stops."""
    write(tmp_path, [b"a", b"b"])
    path = config(tmp_path)
    assert run_in_process(path).returncode == 0
    inventory = next(tmp_path.rglob("inventory.parquet"))
    pq.write_table(pq.read_table(inventory).drop_columns(["last_batch"]), inventory)
    write(tmp_path, [b"a", b"b", b"c"])
    done = run_in_process(path)
    assert (done.returncode, len(loaded(tmp_path))) == (0, 3), done.stderr
