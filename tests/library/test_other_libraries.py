"""kseg in a program that has loaded other libraries with threads of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cli import SEGMENTS

PROGRAM = """
import os, sys
import duckdb, polars, pyarrow, pyarrow.compute
import kseg
from kseg.format.segment import several_processes
from kseg.format.segment import several_processes
several_processes.BEGIN_ALONE = False
several_processes.RANGE_SIZE = 20_000
forks = []
os.register_at_fork(after_in_parent=lambda: forks.append(1))
expected = kseg.validate(sys.argv[1]).summary
for n in range(5):
    numbers = pyarrow.table({"a": list(range(10_000))})
    assert duckdb.sql("select count(*) from numbers").fetchall() == [(10_000,)]
    assert polars.from_arrow(numbers).lazy().select(polars.col("a").sum()).collect().item() == 49_995_000
    assert pyarrow.compute.sum(numbers["a"]).as_py() == 49_995_000
    assert kseg.validate(sys.argv[1], jobs=2).summary == expected
assert len(forks) == 5 * 2
"""


@pytest.mark.slow
def test_workers_next_to_duckdb_polars_and_pyarrow() -> None:
    """A worker is a copy of a process with the threads of these libraries. Nothing is printed, and all results are right."""
    for library in ("duckdb", "polars", "pyarrow"):
        pytest.importorskip(library)
    command = [sys.executable, "-c", PROGRAM, str(SEGMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
