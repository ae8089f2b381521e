"""``kseg pipeline replay``: rows of a range are replaced in one commit, the others and the next offsets stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.extras.pipeline.lake_table import open_table
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import flip
from tests.support.evolving_values import write_schemas, write_topic
from tests.support.growing_logs import batch, write
from tests.support.pipelines import TRANSACTIONS, config, killed, rows, run_here, statuses, table_rows
from tests.support.pipelines import run_in_process as run
from tests.support.read_faults import local_faults

pytestmark = pytest.mark.slow

REPLAY = ("replay", "--topic", "orders", "--offsets")


def state(path: Path) -> Any:
    return open_table(read_settings(str(path)), "orders").read_state()


def loaded(home: Path, kind: str) -> Path:
    """Load two partitions of a log with transactions; return the configuration."""
    for partition in range(2):
        shutil.copytree(TRANSACTIONS, home / "source" / f"orders-{partition}")
    path = config(home, kind, table='file_size = "2 KB"')
    assert run_here(path).code == 0
    return path


def test_a_range_is_replaced_and_killed_around_its_commit(tmp_path: Path, kind: str) -> None:
    """The table is the same, whether SIGKILL came before or after the commit, and so are the next offsets."""
    path = loaded(tmp_path, kind)
    before, known = rows(tmp_path, kind), state(path)
    shown = run(path, *REPLAY, "0:10:60", "--dry-run")
    count = sum(partition == 0 and 10 <= offset < 60 for partition, offset, _ in before)
    assert f"would replace {count} rows" in shown.stdout
    for step in ("before replace_rows", "after replace_rows"):
        assert killed(path, step, kind, *REPLAY, "0:10:60") == -9
        assert sorted(set(rows_now(tmp_path, kind))) == before, step
    done = run(path, *REPLAY, "0:10:60")
    assert (done.returncode, f"{count} rows" in done.stdout) == (0, True), done.stderr
    assert run(path, *REPLAY, ":40").returncode == 0
    assert rows(tmp_path, kind) == before
    assert state(path).offsets == known.offsets
    assert run(path, "verify").returncode == 0
    assert run_here(path).rows == {}
    assert rows(tmp_path, kind) == before


def rows_now(home: Path, kind: str) -> list[tuple[Any, ...]]:
    """Return the rows of the table after a kill. A folder of Parquet can have files that no commit lists."""
    if kind != "parquet":
        return rows(home, kind)
    table = open_table(read_settings(str(home / "night.toml")), "orders")
    found: list[tuple[Any, ...]] = []
    for part in table.batches(("partition", "offset", "value")):
        found += zip(*(part.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True)
    return sorted(found)


def test_rejected_records_become_rows_after_a_repair_of_the_schema(tmp_path: Path, kind: str) -> None:
    """The registry's copy was too old: with the missing version the replayed records are in the table, and only there."""
    topic = write_topic(tmp_path, "AVRO", count=60, bad=False)
    registry = tmp_path / "registry" / "_schemas-0"
    write_schemas(registry, "AVRO", topic.texts[:2], "orders-value")
    path = config(tmp_path, kind, more='schemas = "registry/_schemas-0"')
    assert run_here(path).code == 1
    rejected = {row["offset"] for row in table_rows(tmp_path, kind, "__rejects")}
    assert rejected
    write_schemas(registry, "AVRO", topic.texts, "orders-value")
    middle = sorted(rejected)[len(rejected) // 2]
    for step in ("before replace_rows", "after replace_rows"):
        assert killed(path, step, kind, *REPLAY, f"0:{middle}:") == -9
    shown = run(path, *REPLAY, f"0:{middle}:", "--dry-run")
    done = run(path, *REPLAY, f"0:{middle}:")
    assert (shown.returncode, shown.stderr) == (done.returncode, done.stderr)
    assert done.returncode == 0, done.stderr
    left = {row["offset"] for row in table_rows(tmp_path, kind, "__rejects")}
    assert left == {offset for offset in rejected if offset < middle}
    assert {row["offset"] for row in table_rows(tmp_path, kind)} == topic.truth.keys() - left
    assert run(path, *REPLAY, ":").returncode == 2
    assert run(path, *REPLAY, "0:").returncode == 0
    assert {row["offset"] for row in table_rows(tmp_path, kind)} == set(topic.truth)
    write_schemas(registry, "AVRO", topic.texts[:2], "orders-value")
    shown = run(path, *REPLAY, "0:", "--dry-run")
    again = run(path, *REPLAY, "0:")
    assert (shown.returncode, shown.stderr) == (again.returncode, again.stderr)
    assert again.returncode in (1, 2), again.stderr
    assert run(path, "verify").returncode == 0


def test_a_replay_that_would_lose_rows_is_refused(tmp_path: Path) -> None:
    """Segments that are damaged or gone since: one line, and the table stays as it is. Wrong arguments are one line, too."""
    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir(parents=True)
    for number in range(0, 6, 3):
        write(folder, [batch(one) for one in range(number, number + 3)], first=number)
    path = config(tmp_path)
    assert run_here(path).code == 0
    before = rows(tmp_path, "parquet")
    log = folder / f"{0:020}.log"
    whole, text = log.read_bytes(), path.read_text()
    damaged = bytearray(whole)
    damaged[-5] ^= 1
    for change, asked, line in (
        (
            lambda: log.write_bytes(damaged),
            "0:20",
            "no longer have the records of 4 rows of the range, such as offset 8",
        ),
        (lambda: log.unlink(), "0:20", "no longer have the records of 12 rows of the range, such as offset 0"),
        (
            lambda: log.write_bytes(whole),
            "0:5:40",
            "has orders-0 up to offset 23, got 40 as the end: expected at most 24",
        ),
        (lambda: None, "1:5:40", "has no rows of orders-1: `status` says why"),
        (
            lambda: path.write_text(
                text + 'evolve = "stop"\ncolumns = ["partition", "offset", "timestamp", "partition_leader_epoch"]\n'
            ),
            "0:20",
            'set evolve = "add", or columns',
        ),
        (lambda: path.write_text(text), "1:5:40", "has no rows of orders-1"),
        (lambda: None, "x:5:40", "expected [P:]A:B"),
    ):
        change()
        for more in ((), ("--dry-run",)):
            done = run(path, *REPLAY, asked, *more)
            assert (done.returncode, len(done.stderr.splitlines()[-1:])) == (2, 1), done.stderr
            assert line in done.stderr
        assert rows(tmp_path, "parquet") == before
    for options, line in (
        (("run", "--topic", "orders"), "--topic is for replay, not for run"),
        (("replay", "--topic", "orders"), "replay needs --offsets"),
        (("replay", "--topic", "users", "--offsets", "1:2"), "expected one of orders, got 'users'"),
    ):
        done = run(path, *options)
        assert (done.returncode, line in done.stderr) == (2, True), done.stderr
    assert run(path, *REPLAY, "0:20").returncode == 0
    assert rows(tmp_path, "parquet") == before


@pytest.mark.parametrize(("asked", "code"), [("0:0:8", 0), ("0:6:10", 1), ("0:12:24", 0), ("0:", 1)])
def test_a_replay_over_damage_exits_with_1(tmp_path: Path, asked: str, code: int) -> None:
    """The page of exit codes says: damage was set aside. Offsets 8 to 11 are damaged, and in no row."""
    folder = tmp_path / "source" / "orders-0"
    folder.parent.mkdir(parents=True)
    write(folder, [batch(0), batch(1), flip(batch(2), 70), *(batch(number) for number in range(3, 6))])
    path = config(tmp_path)
    assert run_here(path).code == 1
    before = rows(tmp_path, "parquet")
    for more in (["--dry-run"], []):
        done = run(path, *REPLAY, asked, *more, "--format", "jsonl")
        assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["damaged"]) == (code, code), done.stderr
    assert rows(tmp_path, "parquet") == before


def partition(home: Path, number: int, topic_id: str, value: bytes, *, epoch: int = 0) -> None:
    """Write a partition of the topic with an id, with three records."""
    folder = home / "source" / f"orders-{number}"
    folder.parent.mkdir(exist_ok=True)
    records = [PlainRecord(at, b"k", value) for at in range(3)]
    write(folder, [build_batch(records, base_offset=0, partition_leader_epoch=epoch)])
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id * 21}A")


def test_a_topic_that_was_created_again_changes_no_row(tmp_path: Path) -> None:
    """Its records are not mixed with those of the deleted one: not in a partition that only the new topic has, nor by a
    replay, although the log has all offsets of the range.
    """
    partition(tmp_path, 0, "C", b"old")
    path = config(tmp_path)
    assert run_here(path).code == 0
    before = rows(tmp_path, "parquet")
    shutil.rmtree(tmp_path / "source")
    for number in range(2):
        partition(tmp_path, number, "B", b"new")
    assert [statuses(path, action) for action in ("plan", "status", "run")] == 3 * [(2, ["failed", "failed"])]
    assert statuses(path, "verify") == (1, ["different"])
    for more in ((), ("--dry-run",)):
        done = run(path, *REPLAY, "0:0:3", *more)
        assert (done.returncode, "the topic was deleted and created again" in done.stderr) == (2, True), done.stderr
    assert rows(tmp_path, "parquet") == before


def test_a_replay_from_a_former_leader_is_refused(tmp_path: Path) -> None:
    """An older copy has other records at the loaded offsets, which no consumer got: a run does not load it, either."""
    partition(tmp_path, 0, "A", b"leader", epoch=5)
    partition(tmp_path, 1, "A", b"other")
    path = config(tmp_path)
    assert run_here(path).code == 0
    before = rows(tmp_path, "parquet")
    partition(tmp_path, 0, "A", b"former", epoch=4)
    assert statuses(path, "run") == (2, ["failed", "current"])
    for asked, code in (("0:0:3", 2), ("0:3", 2), ("1:0:3", 0)):
        done = run(path, *REPLAY, asked)
        assert (done.returncode, "they are of a former leader" in done.stderr) == (code, code == 2), done.stderr
    assert rows(tmp_path, "parquet") == before


def test_leader_epochs_that_cannot_be_read_are_not_those_of_the_loaded_log(tmp_path: Path) -> None:
    """The log was truncated and continued by a later leader: rows of its history are not appended to those of the former.

    A replay of another partition needs none of them.
    """
    partition(tmp_path, 0, "A", b"old", epoch=1)
    partition(tmp_path, 1, "A", b"other")
    path = config(tmp_path)
    assert run_here(path).code == 0
    before = rows(tmp_path, "parquet")
    folder = tmp_path / "source" / "orders-0"
    newer = [PlainRecord(at, b"k", b"new") for at in range(1, 5)]
    write(folder, [build_batch([PlainRecord(0, b"k", b"old")], partition_leader_epoch=1)])
    write(folder, [build_batch(newer[2:], base_offset=3, partition_leader_epoch=2)], first=3)
    checkpoint = folder / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n2\n1 0\n2 1\n")
    with local_faults(checkpoint, "EIO", range(10**6)):
        done = run_here(path)
        assert (done.code, "Input/output error" in str(done.failures)) == (2, True)
        assert run(path, *REPLAY, "1:0:3").returncode == 0
        assert run(path, *REPLAY, "0:0:1").returncode == 2
    assert rows(tmp_path, "parquet") == before
