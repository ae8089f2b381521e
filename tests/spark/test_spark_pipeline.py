"""``kseg pipeline`` with the executors of Spark: the tables are those of processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from tests.support import pipelines
from tests.support.cli import kseg, kseg_here
from tests.support.damage import flip
from tests.support.evolving_values import write_topic
from tests.support.pipelines import split_log
from tests.support.schema_registry import Registry
from tests.support.tiered_objects import OBJECTS, key_file, other_key_file

pytestmark = pytest.mark.spark
_SMALL = ("--spark", "local[2]", "--spark-conf", "spark.driver.memory=600m")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_the_rows_are_those_of_processes(kind: str, tmp_path: Path) -> None:
    """Damage is set aside in the same way, and a second run has nothing to load.

    Spark loads the table of Parquet files from a process with its own JVM, the others in the session of the module.
    """
    pytest.importorskip({"iceberg": "pyiceberg", "delta": "deltalake"}.get(kind, "pyarrow"))
    found = {}
    options: tuple[str | int, ...]
    for name, options in (("processes", ("--jobs", 2)), ("spark", ("--spark", "local[2]"))):
        home = tmp_path / name
        for partition in range(3):
            ignored = shutil.ignore_patterns("ORIGIN", "expect*")
            shutil.copytree(pipelines.TRANSACTIONS, home / "source" / f"orders-{partition}", ignore=ignored)
        log = min((home / "source" / "orders-1").glob("*.log"))
        log.write_bytes(flip(log.read_bytes(), 300))
        path = pipelines.config(home, kind, more='settle = "0 s"')
        if name == "spark" and kind == "parquet":  # chosen by the size, and the master is that of the configuration
            auto = '[pipeline]\nengine = "auto"\nspark = "local[2]"\nspark_above = "1 KB"\n'
            path.write_text(path.read_text().replace("[pipeline]\n", auto))
            options = ()
        run = kseg_here if name == "spark" and kind != "parquet" else kseg
        done = run("pipeline", "run", *options, path)
        assert done.returncode == 1, done.stderr
        assert ("engine: Spark, local[2]" in done.stderr) == (options == ())
        again = pipelines.run_in_process(path)
        assert "no rows" in again.stdout
        assert pipelines.run_in_process(path, "verify").returncode == 0
        found[name] = pipelines.rows(home, kind)
        replayed = run("pipeline", "replay", "--topic", "orders", "--offsets", "2:5:70", *options, path)
        assert replayed.returncode == 0, replayed.stderr
        assert pipelines.rows(home, kind) == found[name]
    assert found["spark"] == found["processes"]
    assert len(found["spark"]) > 50


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("values", "kind"), [("AVRO", "iceberg"), ("PROTOBUF", "parquet"), ("JSON", "delta")])
def test_typed_tables_are_those_of_processes(values: str, kind: str, tmp_path: Path) -> None:
    """The executors decode by the schemas that the driver has read: the same rows, the same records in the side table."""
    pytest.importorskip({"iceberg": "pyiceberg", "delta": "deltalake"}.get(kind, "pyarrow"))
    topic = write_topic(tmp_path / "topic", values, count=90)
    found = []
    for name, options in (("processes", ("--jobs", 1)), ("spark", ("--spark", "local[2]"))):
        home = tmp_path / name
        shutil.copytree(tmp_path / "topic" / "registry", home / "registry")
        split_log(topic.log, home / "source" / "orders-0")
        path = pipelines.config(home, kind, more='schemas = "registry/_schemas-0"', table='file_size = "1 KB"')
        done = kseg_here("pipeline", "run", *options, path)
        assert done.returncode == 1, done.stderr
        assert f"{len(topic.undecodable)} records without a typed row" in done.stdout
        rows = sorted(pipelines.table_rows(home, kind), key=lambda row: row["offset"])
        rejected = sorted(pipelines.table_rows(home, kind, "__rejects"), key=lambda row: row["offset"])
        found.append((rows, [{**row, "run": None} for row in rejected]))
        assert pipelines.run_in_process(path, "verify").returncode == 0
    assert found[0] == found[1]
    assert [row["offset"] for row in found[1][0]] == sorted(topic.truth)
    assert [row["offset"] for row in found[1][1]] == sorted(topic.undecodable)


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (["after LISTED", "in check_segment", "after CHECKED"], "parquet"),
        (["after PLACED", "in load_parts", "before commit"], "parquet"),
        (["after commit", "after LOADED", "after REPORTED"], "parquet"),
        (["before commit", "after commit", "after commit"], "iceberg"),
        (["before commit", "after commit", "after commit"], "delta"),
    ],
)
def test_a_driver_that_is_killed_three_times_leaves_the_same_table(tmp_path: Path, steps: list[str], kind: str) -> None:
    """SIGKILL after each state, in the jobs, and around the commit: no row is lost, and none is in the table twice."""
    pytest.importorskip({"iceberg": "pyiceberg", "delta": "deltalake"}.get(kind, "pyarrow"))
    folder = tmp_path / "source" / "orders-0"
    shutil.copytree(pipelines.TRANSACTIONS, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect*"))
    log = min(folder.glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 300))
    path = pipelines.config(tmp_path, kind, table='file_size = "1 KB"')
    assert [pipelines.killed(path, step, kind, *_SMALL) for step in steps] == [-9, -9, -9]
    done = pipelines.run_in_process(path)
    assert done.returncode == 1, done.stderr
    assert json.loads((tmp_path / "state" / "manifest.json").read_text())["state"] == "DONE"
    found = pipelines.rows(tmp_path, kind)
    shutil.rmtree(tmp_path / "lake")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / pipelines.CATALOG).unlink(missing_ok=True)
    assert pipelines.run_here(path).code == 1
    assert found == pipelines.rows(tmp_path, kind)
    assert len(found) > 20


@pytest.mark.usefixtures("spark")
def test_encrypted_objects_are_loaded_with_their_key(tmp_path: Path) -> None:
    """The key of ``--kek`` reaches the executors; another key, and a second topic of the same name, load nothing."""
    rows = {}
    key = key_file(tmp_path)
    for name, options in (("processes", ("--jobs", 1)), ("spark", ("--spark", "local[2]"))):
        home = tmp_path / name
        shutil.copytree(OBJECTS.parents[0], home / "source" / OBJECTS.parents[0].name)
        path = pipelines.config(home, topic="tiered", more='settle = "0 s"')
        refused = kseg_here("pipeline", "run", "--kek", other_key_file(tmp_path), *options, path)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "cannot decrypt the data key" in refused.stderr
        done = kseg_here("pipeline", "run", "--kek", key, *options, path)
        assert done.returncode == 0, done.stderr
        rows[name] = sorted(
            (row["offset"], row["value"])
            for row in pipelines.parquet_rows(home / "lake" / "tiered", ("offset", "value"))
        )
        shutil.copytree(OBJECTS.parents[0], home / "source" / OBJECTS.parents[0].name.replace("6cG", "xxx"))
        both = pipelines.run_in_process(path, "run", "--kek", str(key))
        assert both.returncode == 2
        assert "are of topics with the same name" in both.stderr
    assert len(rows["processes"]) == 7992
    assert rows["spark"] == rows["processes"]


def test_a_registry_that_gives_no_answer_rejects_no_record(spark: SparkSession, tmp_path: Path) -> None:
    """The reason comes from the executors to stderr, in the pipeline and in a view, also with ``ignoreUnreadable``."""
    fixture = Path(__file__).parents[2] / "fixtures" / "serialized"
    registry = Registry()
    registry.schemas = [json.loads(line) for line in (fixture / "registry.jsonl").read_text("utf-8").splitlines()]
    shutil.copytree(fixture / "orders-0", tmp_path / "source" / "orders-0")
    with registry.serve() as url:
        path = pipelines.config(tmp_path, more=f'registry = "{url}"\nsettle = "0 s"')
        registry.broken["/schemas/ids/2"] = 503
        failed = kseg_here("pipeline", "run", "--spark", "local[2]", path)
        assert (failed.returncode, f"registry {url}: HTTP 503" in failed.stderr) == (2, True), failed.stderr
        options = {"registry": url, "ignoreUnreadable": "true"}
        with pytest.raises(Exception, match="HTTP 503"):
            spark.read.format("kseg").options(**options).load(str(fixture / "orders-0")).collect()
        registry.broken.clear()
        assert kseg_here("pipeline", "run", "--spark", "local[2]", path).returncode == 0
    assert len(pipelines.table_rows(tmp_path, "parquet")) == 7
