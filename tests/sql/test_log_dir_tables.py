"""The tables of ``kseg sql`` about whole log directories: groups, topics, schemas and files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import invoke
from tests.support.cli import rows_of as run
from tests.support.commits import commit_value, write_commits
from tests.support.fixtures import SEGMENTS
from tests.support.internal_topics import placed

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

REGISTRY = SEGMENTS.parent / "serialized"
LOG = f"{0:020}.log"


def write_log(folder: Path, records: int) -> None:
    folder.mkdir(parents=True)
    (folder / LOG).write_bytes(build_batch([PlainRecord(n, b"k", b"v", 1_000) for n in range(records)]))


def test_lags_are_the_differences(tmp_path: Path) -> None:
    """The last commit of each partition counts, also with a condition on the topic, which is not that of the log read."""
    random = Random(4)
    ends = {(topic, number): random.randrange(5, 30) for topic in ("orders", "clicks") for number in range(2)}
    for (topic, number), end in ends.items():
        write_log(tmp_path / f"{topic}-{number}", end)
    places = [("g1", *place) for place in ends] + [("g2", "orders", 1)]
    first, last = ({place: random.randrange(ends[place[1:]]) for place in places} for _ in range(2))
    commits = ({place: commit_value(offset) for place, offset in one.items()} for one in (first, last))
    write_commits(tmp_path / "__consumer_offsets-0", *commits)
    names = '"group", topic, partition, committed_offset, log_end_offset, lag, status'
    wanted = [
        {"group": group, "topic": topic, "partition": number, "committed_offset": offset, "status": "ok"}
        | {"log_end_offset": ends[topic, number], "lag": ends[topic, number] - offset}
        for (group, topic, number), offset in sorted(last.items())
    ]
    assert run("sql", f"select {names} from groups", tmp_path) == [{name: row[name] for name in row} for row in wanted]
    of_orders = run("sql", f"select {names} from groups where topic = 'orders' and lag >= 0", tmp_path)
    assert of_orders == [row for row in wanted if row["topic"] == "orders"]
    assert kseg.scan(tmp_path, "groups").count_rows() == len(places)
    done = invoke("sql", "select * from groups", SEGMENTS / "missing")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


def test_files_are_those_of_the_disk(tmp_path: Path) -> None:
    """All files are listed once, with their sizes; what kseg does not know has no kind."""
    folder = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder)
    shutil.copy(folder / LOG, folder / f"{LOG}.deleted")
    (tmp_path / "meta.properties").write_text("version=1\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("own\n", encoding="utf-8")
    found = {row["file"]: row for row in run("sql", "select * from files", tmp_path)}
    wanted = [os.path.join(place, name) for place, _, names in os.walk(tmp_path) for name in names]
    assert sorted(found) == sorted(wanted)
    for path, row in found.items():
        assert row["size"] == os.path.getsize(path)
        assert row["modified_timestamp_ms"] == int(os.stat(path).st_mtime * 1000)
        assert (row["topic"] == "orders") == (os.path.dirname(path) == str(folder))
    shown = {os.path.basename(path): (row["kind"], row["state"], row["base_offset"]) for path, row in found.items()}
    assert shown[LOG] == ("segment", None, 0)
    assert shown[f"{LOG}.deleted"] == ("segment", "about to be deleted", 0)
    assert shown["meta.properties"] == ("log directory properties", None, None)
    assert shown["notes.txt"] == (None, None, None)
    assert shown["leader-epoch-checkpoint"] == ("leader epoch checkpoint", None, None)
    assert {name: row for name, row in shown.items() if name.endswith(".index")} == {
        f"{n:020}.index": ("offset index", None, n) for n in (0, 24, 48, 72, 96, 120)
    }


def test_topics_are_those_of_the_metadata_and_the_folders(tmp_path: Path) -> None:
    """A topic without a folder is listed, and so is one that the metadata does not have: it was deleted."""
    placed("__cluster_metadata", tmp_path)
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "left-over-3")
    done = invoke("dump", "--effective", "--format", "jsonl", tmp_path / "__cluster_metadata-0")
    state = [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "state" and not row["pending"]]
    names = {row["key"]["topicId"]: row["data"]["name"] for row in state if row["entity"] == "topic"}
    configs = [row for row in state if row["entity"] == "config" and row["key"]["resourceName"] in names.values()]
    found = {row["topic"]: row for row in run("sql", "select * from topics", tmp_path)}
    assert found.keys() == {*names.values(), "__cluster_metadata", "left-over"}
    assert names
    for topic_id, name in names.items():
        row = found[name]
        own = {one["key"]["name"]: one["data"]["value"] for one in configs if one["key"]["resourceName"] == name}
        assert (row["topic_id"], json.loads(row["configs"]), row["is_deleted"]) == (topic_id, own, False)
        ids = [
            row["key"]["partitionId"]
            for row in state
            if row["entity"] == "partition" and row["key"]["topicId"] == topic_id
        ]
        assert row["partitions"] == len(ids) > 0
    logs = list((tmp_path / "left-over-3").glob("*.log"))
    sizes = {"segments": len(logs), "size": sum(path.stat().st_size for path in logs), "replicas": 1, "partitions": 1}
    assert {name: found["left-over"][name] for name in sizes} == sizes
    assert found["left-over"]["is_deleted"] is True
    assert run("sql", "select is_deleted from topics", tmp_path / "left-over-3") == [{"is_deleted": False}]


def test_a_topic_that_damaged_metadata_lacks_was_not_deleted(tmp_path: Path) -> None:
    """Its record can be among the damaged ones: as for each table, the damage sets the exit code."""
    log = placed("__cluster_metadata", tmp_path) / LOG
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "left-over-3")
    log.write_bytes(damage.flip(log.read_bytes(), log.stat().st_size - 10))
    done = invoke("sql", "--format", "jsonl", "select is_deleted from topics where topic = 'left-over'", tmp_path)
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"is_deleted": False})
    assert "crc-mismatch" in done.stderr


def test_schemas_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of ``kseg schemas``. Data are read only for the column that needs them."""
    wanted = run("schemas", REGISTRY, "--used-by", REGISTRY)
    found = run("sql", "select * from schemas", REGISTRY)
    for row in found:
        row["used_by"], row["references"] = json.loads(row["used_by"]), json.loads(row["references"])
    assert found == [{name: row[name] for name in found[0]} for row in wanted if row["kind"] == "schema"]
    assert any(row["used_by"] for row in found)
    monkeypatch.setattr("kseg.commands.schemas.IdCounter.read", lambda *_: pytest.fail("the data were read"))
    assert len(run("sql", "select subject, id from schemas", REGISTRY)) == len(found)


@pytest.mark.parametrize("table", ["groups", "topics", "schemas", "files"])
def test_a_log_directory_without_them_has_no_rows(table: str, tmp_path: Path) -> None:
    """A table can be empty: that is no error."""
    write_log(tmp_path / "orders-0", 1)
    assert run("sql", f"select count(*) as n from {table}", tmp_path) == [{"n": int(table in ("topics", "files"))}]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_records_are_those_that_clients_can_read(state: str, tmp_path: Path) -> None:
    """A folder that is deleted or copied has another partition's name: its records would count twice, or again."""
    unused = tmp_path / f"orders-0.{'0' * 32}-{state}"
    write_log(tmp_path / "orders-0", 5)
    write_log(unused, 3)
    for table, count in (("records", 5), ("batches", 1), ("segments", 1)):
        statement = f"select topic, partition, count(*) n from {table} group by all"
        assert run("sql", statement, tmp_path) == [{"topic": "orders", "partition": 0, "n": count}]
    assert run("sql", "select replicas, segments from topics", tmp_path) == [{"replicas": 1, "segments": 1}]
    assert run("sql", "select count(*) n from records", unused) == [{"n": 3}]
    assert kseg.scan(tmp_path, "records").count_rows() == 5
    shutil.rmtree(tmp_path / "orders-0")
    done = invoke("sql", "select * from records", tmp_path)
    assert (done.exit_code, "no segment in use found" in done.stderr) == (2, True)
