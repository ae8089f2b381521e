"""``kseg sql --spark``: the same statements have the same results on Spark and in DuckDB."""

from __future__ import annotations

import pytest

from tests.support.cli import DAMAGED, SEGMENTS, kseg

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("duckdb", reason="duckdb is not installed")
pytestmark = pytest.mark.spark

HEADERS = SEGMENTS / "4.3.0-v2-none-headers"
STATEMENTS = {
    "select \"offset\", offset + 1 as n, key, value from records where key like 'k%' order by 1": HEADERS,
    "select h.key, h.value from (select explode(headers) as h from records) order by 1, 2": HEADERS,
    "select state, count(*) as n from transactions group by 1 order by 1": SEGMENTS / "4.3.0-v2-none-transactions",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_results_are_those_of_duckdb(statement: str) -> None:
    """A statement can be tried on one machine, and then run on a cluster."""
    arguments = ("sql", statement, STATEMENTS[statement].absolute(), "--format", "csv")
    on_spark = kseg(*arguments, "--spark", "local[1]")
    here = kseg("sql", statement.replace("explode", "unnest"), *arguments[2:])
    assert (here.returncode, on_spark.returncode, on_spark.stderr) == (0, 0, "")
    assert len(here.stdout.splitlines()) > 1
    # Nulls come first in Spark, and last in DuckDB.
    assert sorted(on_spark.stdout.splitlines()) == sorted(here.stdout.splitlines())


def test_a_wrong_statement_is_one_line() -> None:
    """Spark's error has the name; its plan and the traceback are left out."""
    done = kseg("sql", "select kye from records", DAMAGED, "--spark", "local[1]")
    assert done.returncode == 2
    assert "kye" in done.stderr
    assert len(done.stderr.splitlines()) == 1
