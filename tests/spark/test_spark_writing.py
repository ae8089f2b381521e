"""DataFrames to segments: the records are unchanged, indexes agree, and a faulty input writes no file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, UsageError
from tests.support.cli import MIXED, SEGMENTS
from tests.support.fixtures import expected
from tests.support.spark_jobs import run

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from kseg.spark.writing import write_segments

pytestmark = pytest.mark.spark


def dumped(path: Path) -> list[tuple[Any, ...]]:
    lines = run("dump", "--deep", "--format", "jsonl", "--bytes", "base64", path).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return [tuple(row[name] for name in ("offset", "timestamp", "key", "value", "headers")) for row in found]


def test_read_records_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions, old versions and headers among them, in segments in which every check passes."""
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
    """Kafka's own reader returns the same records for the copy as for the original."""
    from tools.lab import oracle

    source = SEGMENTS / "4.3.0-v2-none-headers"
    rows = spark.read.format("kseg").load(str(source)).withColumn("topic", lit("t")).withColumn("partition", lit(0))
    write_segments(rows, str(tmp_path), compression="zstd", batch_bytes=200)
    (log,) = (tmp_path / "t-0").glob("*.log")
    read_by_kafka, (wanted,) = oracle.rows_of([log])[log], expected(source).values()
    names = ("offset", "timestamp", "key", "value", "headers")
    assert [[row[name] for name in names] for row in read_by_kafka if row["kind"] == "record"] == [
        [row[name] for name in names] for row in wanted if row["kind"] == "record"
    ]


def test_an_existing_target_is_rejected_or_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Only needed columns are required: text counts as bytes, timestamps and headers may be missing."""
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
        ([("t", 0, 1), ("t", 0, 2), ("t", 0, 1)], "t-0: offset 1 after 1"),
        ([("ok", 0, 1), ("../up", 0, 1)], "'../up' is not a valid topic name"),
        ([("t", -1, 1)], "-1 is not a valid partition number"),
        ([("t", 0, -1)], "offset -1 after -1"),
        ([("t", 0, 1), ("t", 0, None)], "t-0: a row has no offset"),
    ],
)
def test_rows_that_are_no_log_leave_nothing(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[str, int, int | None]], line: str
) -> None:
    """Files that other tasks had already written are removed, too."""
    table = spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    with pytest.raises(KsegError, match=line):
        write_segments(table.withColumn("key", lit(None)).withColumn("value", lit("v")), str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="column key is missing"):
        write_segments(table, str(tmp_path / "out"))


def rows_of_kinds(spark: SparkSession) -> DataFrame:
    """A record, a marker, an aborted record and a row of damage, as the records view has them."""
    found = [
        ("t", 0, 1, "k", "v", "committed", None, None, True),
        ("t", 0, 2, "k", "marker", "committed", '{"type":"COMMIT"}', None, True),
        ("t", 0, 3, "k", "aborted", "aborted", None, None, True),
        ("t", 0, 4, None, None, None, None, "lost-bytes: 7 bytes", None),
        ("t", 0, 5, "k", "v", None, None, None, False),
    ]
    return spark.createDataFrame(
        found,
        "topic string, partition int, offset bigint, key string, value string, transaction_state string, "
        "control string, damage string, transactional boolean",
    )


KINDS = ["damage", "control", "aborted"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_records_are_rejected(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Rows that are not records are rejected, unless they are requested by name."""
    others = [other for other in KINDS if other != kind]
    rows = rows_of_kinds(spark)
    with pytest.raises(KsegError, match=rf"t-0, offset \d: .*drop=\['{kind}'\]"):
        write_segments(rows, str(tmp_path / "out"), drop=others)
    assert not list(tmp_path.iterdir())
    write_segments(rows, str(tmp_path / "out"), drop=KINDS)
    assert [row[0] for row in dumped(tmp_path / "out" / "t-0")] == [1, 5]
    if kind == "damage":
        with pytest.raises(UsageError, match="damage has no content"):
            write_segments(rows, str(tmp_path / "more"), as_data=[kind])
    else:
        write_segments(rows, str(tmp_path / "more"), drop=others, as_data=[kind])
        assert [row[0] for row in dumped(tmp_path / "more" / "t-0")] == sorted([1, 5, KINDS.index(kind) + 1])


def test_transactions_whose_end_is_not_known_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Writing them could publish aborted records."""
    rows = rows_of_kinds(spark).where("damage is null and control is null").drop("transaction_state")
    with pytest.raises(KsegError, match="without a column that shows whether it was aborted"):
        write_segments(rows, str(tmp_path / "out"))
    write_segments(rows, str(tmp_path / "out"), as_data=["transactional"])
    assert [row[0] for row in dumped(tmp_path / "out" / "t-0")] == [1, 3, 5]
    with pytest.raises(UsageError, match="drop: expected a list of damage, control"):
        write_segments(rows, str(tmp_path / "out"), drop="control")


@pytest.mark.parametrize(
    "url", ["s3://bucket/out", "hdfs://host/out", "s3a:/bucket/out", "file://host/out", "file:///a?b"]
)
def test_other_urls_are_refused_by_name(spark: SparkSession, tmp_path: Path, url: str, monkeypatch: Any) -> None:
    """A folder of that name is not created in the current one."""
    monkeypatch.chdir(tmp_path)
    rows = rows_of_kinds(spark).where("offset = 5").select("topic", "partition", "offset", "key", "value")
    with pytest.raises(UsageError, match="expected a local folder") as refused:
        write_segments(rows, url)
    assert url in str(refused.value)
    assert not list(tmp_path.iterdir())
    write_segments(rows, (tmp_path / "with space").as_uri())
    assert [row[0] for row in dumped(tmp_path / "with space" / "t-0")] == [5]


def test_rows_of_segments_need_the_columns_that_tell_records(spark: SparkSession, tmp_path: Path) -> None:
    """A marker without its column would become an ordinary record, and so would an aborted record."""
    source = SEGMENTS / "4.3.0-v2-none-transactions"
    names = ["offset", "key", "value"]

    def read(*columns: str, **options: str) -> DataFrame:
        found = spark.read.format("kseg").options(**options).load(str(source)).select(*names, *columns)
        return found.withColumn("topic", lit("t")).withColumn("partition", lit(0))

    plain = spark.createDataFrame(
        [("t", 1, 0, b"k", b"v")], "topic string, partition int, offset bigint, key binary, value binary"
    )
    for rows in (
        read(),
        read().cache(),
        read("control"),
        read("transactional"),
        plain.unionByName(read().select(*plain.columns)),
    ):
        with pytest.raises(UsageError, match="read with isolation=read_committed"):
            write_segments(rows, str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())
    write_segments(plain, str(tmp_path / "plain"))
    write_segments(read(isolation="read_committed"), str(tmp_path / "committed"))
    known = read("control", "transaction_state", columns="*,transaction_state")
    write_segments(known, str(tmp_path / "known"), drop=["control", "aborted"])
    given = {"committed": read(isolation="read_committed")}
    given["known"] = known.where("control is null and coalesce(transaction_state, '') not in ('aborted', 'open')")
    for folder, rows in given.items():
        assert [row[0] for row in dumped(tmp_path / folder / "t-0")] == sorted(row.offset for row in rows.collect())
