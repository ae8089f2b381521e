"""DataFrames to segments: records as they were, indexes that agree, and nothing where something is amiss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, UsageError
from tests.test_cli import MIXED, SEGMENTS
from tests.test_fixtures import expected
from tests.test_spark_fleet import run

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from kseg.spark.writing import write_segments

pytestmark = pytest.mark.spark


def dumped(path: Path) -> list[tuple[Any, ...]]:
    lines = run("dump", "--deep", "--format", "jsonl", "--bytes", "base64", path).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return [tuple(row[name] for name in ("offset", "timestamp", "key", "value", "headers")) for row in found]


def test_what_is_read_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions, old versions and headers among them, in segments that every check finds sound."""
    load = spark.read.format("kseg").option("mode", "failfast")
    first = load.load(str(SEGMENTS / "4.3.0-v2-none-headers")).withColumn("topic", lit("headers"))
    second = load.load(str(MIXED)).withColumn("topic", lit("mixed"))
    both = first.union(second).withColumn("partition", lit(3))
    write_segments(both, str(tmp_path / "out"), compression="lz4", segment_bytes=2000, batch_bytes=200)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["headers-3", "mixed-3"]
    assert dumped(tmp_path / "out" / "headers-3") == dumped(SEGMENTS / "4.3.0-v2-none-headers")
    assert dumped(tmp_path / "out" / "mixed-3") == dumped(MIXED)
    assert len(list((tmp_path / "out" / "mixed-3").glob("*.log"))) > 1
    checked = run("validate", "--fail-on", "warning", tmp_path / "out")
    assert checked.exit_code == 0, checked.stdout


@pytest.mark.kafka
def test_kafka_reads_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    """Its own reader says of the records what it said of those they were made of."""
    from tests.lab import oracle

    source = SEGMENTS / "4.3.0-v2-none-headers"
    rows = spark.read.format("kseg").load(str(source)).withColumn("topic", lit("t")).withColumn("partition", lit(0))
    write_segments(rows, str(tmp_path), compression="zstd", batch_bytes=200)
    (log,) = (tmp_path / "t-0").glob("*.log")
    judged, (wanted,) = oracle.rows_of([log])[log], expected(source).values()
    names = ("offset", "timestamp", "key", "value", "headers")
    assert [[row[name] for name in names] for row in judged if row["kind"] == "record"] == [
        [row[name] for name in names] for row in wanted if row["kind"] == "record"
    ]


def test_what_is_there_is_refused_or_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Whole columns only where they are needed: text is bytes, timestamps and headers may be missing."""
    rows = spark.createDataFrame([("t", 0, 5, "k", "v"), ("t", 0, 3, None, None)], "topic string, partition int, "
                                 "offset bigint, key string, value string")  # fmt: skip
    write_segments(rows, str(tmp_path))
    assert [row[:2] for row in dumped(tmp_path / "t-0")] == [(3, None), (5, None)]
    assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == ["00000000000000000003.log"]
    with pytest.raises(KsegError, match="t-0 exists"):
        write_segments(rows, str(tmp_path))
    write_segments(rows.where("offset = 5"), str(tmp_path), overwrite=True)
    assert [row[0] for row in dumped(tmp_path / "t-0")] == [5]
    assert [path.name for path in tmp_path.iterdir()] == ["t-0"]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([("t", 0, 1), ("t", 0, 2), ("t", 0, 1)], "t-0: offset 1 comes after 1"),
        ([("ok", 0, 1), ("../up", 0, 1)], "'../up' is no name of a topic"),
        ([("t", -1, 1)], "-1 is no partition"),
        ([("t", 0, -1)], "offset -1 comes after -1"),
        ([("t", 0, 1), ("t", 0, None)], "t-0: there is a row without an offset"),
    ],
)
def test_rows_that_are_no_log_leave_nothing(
    spark: SparkSession,
    tmp_path: Path,
    rows: list[tuple[str, int, int | None]],
    line: str,
) -> None:
    """Not even what other tasks had written already."""
    table = spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    with pytest.raises(KsegError, match=line):
        write_segments(table.withColumn("key", lit(None)).withColumn("value", lit("v")), str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="there is no column key"):
        write_segments(table, str(tmp_path / "out"))
