"""The declarative pipeline of the documentation is run by Spark's own program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark.pipelines", reason="pyspark 4.1 or newer is not installed")
pytest.importorskip("pandas", reason="pandas is not installed, which Spark's pipelines need")
pytest.importorskip("yaml", reason="PyYAML is not installed, which Spark's pipelines need")

import pyarrow.parquet as pq

import kseg
from tests.support.cli import ROOT, SEGMENTS

pytestmark = pytest.mark.spark
PAGE = ROOT / "docs" / "how-to" / "stream-with-spark.md"


def run(project: Path) -> tuple[list[int], list[str]]:
    """Run the project; return the offsets of its records, and the rules of the damage."""
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [folder / "spark-pipelines", "run"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables = project / "spark-warehouse"
    offsets = [
        one for file in (tables / "records").glob("*.parquet") for one in pq.read_table(file)["offset"].to_pylist()
    ]
    damage = [one for file in (tables / "damage").glob("*.parquet") for one in pq.read_table(file)["rule"].to_pylist()]
    return sorted(offsets), damage


def test_a_run_has_every_record(tmp_path: Path) -> None:
    """Each record is in the table once, and a sound log has no damage."""
    (code,) = re.findall(
        r"```python\n(from pyspark import pipelines.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    logs, project = tmp_path / "orders-0", tmp_path / "project"
    (project / "transformations").mkdir(parents=True)
    (project / "transformations" / "tables.py").write_text(code)
    (project / "spark-pipeline.yml").write_text(
        f"name: night\nstorage: file://{project}/storage\nlibraries: [{{glob: {{include: transformations/**}}}}]\n"
        f"configuration: {{kseg.logs: '{logs}'}}\n"
    )
    source = sorted((SEGMENTS / "4.3.0-v2-none-segments").glob("*.log"))
    logs.mkdir()
    for segment in source:
        shutil.copy(segment, logs)
    offsets, damage = run(project)
    assert offsets == [record.offset for record in kseg.open_partition(logs).records()]
    assert damage == []
