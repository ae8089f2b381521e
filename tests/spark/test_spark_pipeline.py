"""``kseg pipeline`` with the executors of Spark: the tables are those of processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tests.support import pipelines
from tests.support.cli import kseg
from tests.support.damage import flip

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_the_rows_are_those_of_processes(kind: str, tmp_path: Path) -> None:
    """Damage is set aside in the same way, and a second run has nothing to load."""
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
        done = kseg("pipeline", "run", *options, path)
        assert done.returncode == 1, done.stderr
        assert ("engine: Spark, local[2]" in done.stderr) == (options == ())
        again = kseg("pipeline", "run", "--jobs", 1, path)
        assert "no rows" in again.stdout
        assert kseg("pipeline", "verify", "--jobs", 1, path).returncode == 0
        found[name] = pipelines.rows(home, kind)
    assert found["spark"] == found["processes"]
    assert len(found["spark"]) > 50
