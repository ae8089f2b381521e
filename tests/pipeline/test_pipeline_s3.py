"""``kseg pipeline`` with the source, the state and the table in an object store: a real server of S3's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("flask_cors", reason="moto's server is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import json

import fsspec
import pyarrow.parquet as pq

from kseg.errors import KsegError
from tests.support.pipelines import TRANSACTIONS, config, iceberg_table, killed, run, run_here
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        server.put_folder(TRANSACTIONS, "logs/orders-0")
        yield server


@pytest.fixture(scope="module")
def whole(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The offsets in the table of one undisturbed run."""
    assert run_here(settings(tmp_path_factory.mktemp("whole"), "whole")).code == 0
    found = offsets("whole")
    assert len(found) == 45
    return found


def offsets(name: str) -> list[int]:
    """Return the offsets in the files that the commits of a table list."""
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    home = f"backup/{name}/lake/orders"
    found: list[int] = []
    for commit in sorted(store.ls(f"{home}/_kseg/commits")):
        for one in json.loads(store.cat_file(commit))["files"]:
            with store.open(f"{home}/{one['place']}") as raw:
                found += pq.ParquetFile(raw).read(columns=["offset"]).column(0).to_pylist()
    return sorted(found)


def settings(folder: Path, name: str, kind: str = "parquet") -> Path:
    """Write a configuration with the source, the state and the table in the bucket."""
    home = f"s3://backup/{name}"
    folder.mkdir(exist_ok=True)
    return config(folder, kind, source="s3://backup/logs", lake=f"{home}/lake", state=f"{home}/state")


def test_killed_in_a_bucket_the_table_is_the_same(server: S3Server, whole: list[int], tmp_path: Path) -> None:
    """SIGKILL at steps of a run whose state and table are objects; then another run completes the table."""
    steps = killed(settings(tmp_path / "count", "count"), 0, "parquet")
    assert offsets("count") == whole
    for step in range(2, steps + 1, 4):
        path = settings(tmp_path / str(step), f"killed-{step}")
        codes = [killed(path, step, "parquet") for _ in range(3)]
        assert codes[0] == -9
        assert run(path).returncode == 0
        assert offsets(f"killed-{step}") == whole, step


@pytest.mark.parametrize("fault", ["exists", "no upload"])
def test_lost_answers_of_a_store(server: S3Server, whole: list[int], tmp_path: Path, fault: str) -> None:
    """The lease, the commit, the data and the state of the run itself are never those of another run."""
    name = f"lost-{fault[:2]}"
    server.fault = fault
    server.loses = lambda asked, path: asked.startswith("POST uploadId=") and f"/{name}/" in path
    done = run_here(settings(tmp_path / name, name))
    server.loses = lambda asked, path: False
    assert done.code == 0
    assert offsets(name) == whole


def test_a_lost_answer_to_a_new_delta_table(server: S3Server, tmp_path: Path) -> None:
    """The table exists, so the run loads its rows."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    server.fault = "denied"
    server.loses = lambda asked, path: asked.startswith("PUT") and path.endswith("_delta_log/00000000000000000000.json")
    done = run_here(settings(tmp_path / "created", "created", "delta"))
    server.loses = lambda asked, path: False
    assert done.code == 0
    options = {"aws_endpoint_url": server.endpoint, "allow_http": "true"}
    table = deltalake.DeltaTable("s3://backup/created/lake/orders", storage_options=options)
    assert table.to_pyarrow_table().num_rows == 45


def test_a_store_that_fails_fails_the_run(server: S3Server, whole: list[int], tmp_path: Path) -> None:
    """HTTP 503 for each kind of request: exit code 2, nothing is set aside, and the next run has all rows."""
    path = settings(tmp_path / "fails", "fails")
    failing = {
        "listing": lambda method, place: method == "GET" and place.count("/") < 3,
        "segments": lambda method, place: place.endswith(".log"),
        "data": lambda method, place: method in ("PUT", "POST") and "/lake/" in place,
        "commit": lambda method, place: method == "PUT" and "/commits/" in place,
        "state": lambda method, place: method == "PUT" and "/state/" in place,
    }
    for name, fails in failing.items():
        server.fails = fails
        try:
            code = run_here(path).code
        except (KsegError, OSError):
            code = 2
        finally:
            server.fails = lambda method, place: False
        assert code == 2, name
        assert not (tmp_path / "fails" / "quarantine").exists()
    assert run(path).returncode == 0
    assert offsets("fails") == whole


def test_iceberg_in_a_bucket(server: S3Server, whole: list[int], tmp_path: Path) -> None:
    """The night without a JVM: a bucket of segments becomes an Iceberg table by day, read by pyiceberg."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    path = settings(tmp_path / "ice", "ice", "iceberg")
    assert run(path).returncode == 0
    table = iceberg_table(tmp_path / "ice", "s3://backup/ice/lake")
    assert table.location().startswith("s3://")
    assert str(table.spec().fields[0].transform) == "day"
    assert sorted(table.scan().to_arrow().column("offset").to_pylist()) == whole
    assert run(path, "verify").returncode == 0
