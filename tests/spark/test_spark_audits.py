"""The audits on Spark have the rows of the audits on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.audit_table import AUDITS
from tests.support import fleet
from tests.support.cli import SEGMENTS
from tests.support.spark_jobs import on_spark, run

pytest.importorskip("pyspark", reason="pyspark is not installed")


pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("name", AUDITS)
def test_spark_has_the_same_rows(name: str, tmp_path: Path) -> None:
    """Spark only distributes the work. The largest keys are grouped by Spark itself."""
    paths = [
        *fleet.make(tmp_path),
        *SEGMENTS.glob("*-mixed"),
        *SEGMENTS.glob("*-transactions"),
        SEGMENTS / "0.8.2.2-v0-lz4",
    ]
    here = run("audit", name, "--format", "jsonl", *paths)
    there = on_spark("audit", name, "--format", "jsonl", *paths)
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)
