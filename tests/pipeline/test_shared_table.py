"""Two pipelines with one table, and two replicas with damage: no row that a segment has is missing afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.extras.pipeline.data_files import DataFile, DataFiles
from kseg.extras.pipeline.lake_table import ChangedTableError, LakeTable, TableState, open_table
from kseg.extras.pipeline.pipeline_run import Pipeline
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.findings import do_nothing
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.growing_logs import batch, write
from tests.support.pipelines import config, leased, rows, run, run_here


def loaded_offsets(home: Path, kind: str = "parquet") -> list[int]:
    return [row[1] for row in rows(home, kind)]


@pytest.mark.slow
def test_another_pipeline_waits_until_the_table_is_free(tmp_path: Path) -> None:
    """With a state of its own it has a lease of its own; the lease in the table stops it, and one line says so."""
    (tmp_path / "source").mkdir()
    write(tmp_path / "source" / "orders-0", [batch(0), batch(1)])
    path = config(tmp_path)
    place = tmp_path / "lake" / "orders" / "_kseg" / "lease"
    leased(place)
    done = run(path)
    assert done.returncode == 2
    assert f"lake/orders/_kseg/lease: another run works: process {os.getpid()}" in done.stderr
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    place.unlink()
    assert run(path).returncode == 0
    assert loaded_offsets(tmp_path) == [*range(8)]
    assert not place.exists()


def test_a_run_that_was_stopped_does_not_commit_files_that_are_gone(tmp_path: Path) -> None:
    """A lease can be taken over from a process that only stopped. Its commit fails, and so the offsets are not passed."""
    (tmp_path / "source").mkdir()
    write(tmp_path / "source" / "orders-0", [batch(0), batch(1)])
    path = config(tmp_path)
    assert run(path).returncode == 0
    stopped, other = (open_table(read_settings(str(path)), "orders") for _ in range(2))
    before = stopped.read_state()
    assert before is not None
    files = _copied(stopped)
    after = TableState(before.offsets, "stopped", 8)
    fenced = other.remove_orphans(before, "other")
    assert fenced.offsets == before.offsets
    assert not Path(files[0].place).exists()
    with pytest.raises(ChangedTableError):
        stopped.commit(files, before, after)
    assert stopped.read_state() == fenced
    assert other.remove_orphans(fenced, "other") == fenced  # nothing to remove: no commit
    assert loaded_offsets(tmp_path) == [*range(8)]


class Repeating:
    """A pool that loses the result of each call, and runs it again, as Spark does after the loss of an executor."""

    jobs, ahead = 1, 1

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        work(*args)
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done

    def result(self, future: Future[Any]) -> Any:
        return future.result()


def test_calls_that_ran_twice_leave_no_file(tmp_path: Path) -> None:
    """A reader of all files of the folder would have their rows twice."""
    (tmp_path / "source").mkdir()
    write(tmp_path / "source" / "orders-0", [batch(0), batch(1)])
    path = config(tmp_path)
    done = Pipeline(read_settings(str(path))).run(do_nothing, lambda _: nullcontext(Repeating()))
    assert done.rows == {"orders": 8}
    assert loaded_offsets(tmp_path) == [*range(8)]  # which also looks for files without a commit


def _copied(table: LakeTable) -> list[DataFile]:
    """Write the rows of a table again, as files without a commit."""
    files = DataFiles(table.new_place)
    for one in list(table.batches(table.schema.names)):
        files.add(one)
    return files.take()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_days_of_all_years_that_a_timestamp_can_have(tmp_path: Path, kind: str) -> None:
    """Beyond the year 2255 the microseconds of a day are no exact floating point number."""
    times = [-62135596800000, -1, 0, 9007199254740, 9007199254741, 10413792000000, 253402300799999, 2**62]
    folder = tmp_path / "source" / "orders-0"
    folder.mkdir(parents=True)
    batches = [build_batch([PlainRecord(n, b"k", b"v", at)]) for n, at in enumerate(times)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    path = config(tmp_path, kind)
    done = run(path)
    assert (done.returncode, "1 row of orders loaded without the timestamp" in " ".join(done.stdout.split())) == (
        0,
        True,
    )
    assert loaded_offsets(tmp_path, kind) == [*range(len(times))]
    assert "PyArrow" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_valid_batches_of_all_damaged_replicas_are_loaded(tmp_path: Path, seed: int) -> None:
    """A row is lost, with exit code 1, only if each replica has damage there. No segment without it is called unneeded."""
    chance = random.Random(f"replicas {seed}")
    batches = [batch(number) for number in range(30)]
    replicas = chance.choice((2, 3))
    valid, ranges = set[int](), dict[str, range]()
    for replica in range(replicas):
        folder = tmp_path / "source" / f"broker-{replica}" / "orders-0"
        folder.parent.mkdir(parents=True)
        starts = [0, *sorted(chance.sample(range(1, 30), chance.choice((0, 2))))]
        broken = set(chance.sample(range(30), chance.choice((1, 3, 8))))
        for first, end in zip(starts, [*starts[1:], 30], strict=True):
            ranges[str(folder / f"{first * 4:020}.log")] = range(first, end)
            write(folder, [_flipped(batches[n]) if n in broken else batches[n] for n in range(first, end)], first=first)
        valid |= set(range(30)) - broken
    outcome = run_here(config(tmp_path))
    wanted = [number * 4 + i for number in sorted(valid) for i in range(4)]
    assert loaded_offsets(tmp_path) == wanted, outcome
    assert outcome.code == (len(valid) < 30)
    assert all(valid >= set(ranges[path]) for path in outcome.unneeded)


def _flipped(data: bytes) -> bytes:
    return data[:80] + bytes([data[80] ^ 1]) + data[81:]


def test_errors_of_libraries_are_short_lines() -> None:
    """A tree of causes in colours is one line of limited length with both of its ends, and a KeyError has its class."""
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    from kseg.extras.pipeline.delta_table import DeltaLakeTable

    table = object.__new__(DeltaLakeTable)
    arrow, place = "\n  \x1b[31m↳\x1b[0m ", "s3/lake/" * 20
    tree = arrow.join(["Generic S3 error", f"Error performing PUT {place} in 4 ms", "HTTP error", "Connection reset"])
    line = table._line(OSError(tree))
    assert len(line) <= 200
    assert line.startswith("Generic S3 error: Error performing PUT")
    assert line.endswith("HTTP error: Connection reset")
    no_blanks = table._line(OSError(f"Error PUT https://{'x' * 200} <?xml?><Code>{'y' * 200}</Code>"))
    assert (no_blanks[:26], no_blanks[-14:]) == ("Error PUT https://xxxxxxxx", "yyyyyyy</Code>")
    assert table._line(KeyError("metadata")) == "KeyError: 'metadata'"
