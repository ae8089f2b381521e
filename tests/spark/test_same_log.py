"""``df.write.format("kseg")``: ranges of offsets in several tasks, and the same log again with all that a broker needs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, UsageError
from tests.support.cli import SEGMENTS
from tests.support.spark_jobs import run
from tests.support.transactional_logs import write_log

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kseg.spark.writing import is_ordered, write_segments

pytestmark = pytest.mark.spark
BROKERS = ("transactions", "transactions-v2", "idempotent", "log-append-time")


def rows_of(folder: Path, *options: str) -> list[dict[str, Any]]:
    lines = run("dump", "--deep", "--format", "jsonl", "--bytes", "base64", *options, folder).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return [{name: value for name, value in row.items() if name not in ("file", "position")} for row in rows]


def batches_of(folder: Path) -> list[dict[str, Any]]:
    lines = run("dump", "--shallow", "--format", "jsonl", folder).stdout.splitlines()
    # The times of producers are not part of records with LogAppendTime.
    other = ("file", "position", "crc", "size", "compression", "base_timestamp")
    return [{name: value for name, value in json.loads(line).items() if name not in other} for line in lines]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random logs with transactions, and logs of brokers."""
    home = tmp_path_factory.mktemp("logs")
    for seed in range(4):
        write_log(home / f"random-{seed}", random.Random(seed), steps=120)
    for number, name in enumerate(BROKERS):
        shutil.copytree(SEGMENTS / f"4.3.0-v2-none-{name}", home / f"broker-{number}")
    return home


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kseg").options(mode="failfast", splitBytes="3000", **options).load(str(path))


def test_the_same_log_is_the_source_again(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """Producers, transactions, times, epochs and the batches are those of the source, in any order of the rows."""
    frame = read(spark, logs)
    assert frame.rdd.getNumPartitions() > 8
    frame.write.format("kseg").options(sameLog="true", compression="zstd").mode("append").save(str(tmp_path / "out"))
    write_segments(read(spark, logs / "random-1").orderBy("value"), str(tmp_path / "sorted"), same_log=True)
    assert rows_of(tmp_path / "sorted" / "random-1") == rows_of(logs / "random-1")
    for source in sorted(logs.iterdir()):
        compared = run("diff", source, tmp_path / "out" / source.name)
        assert compared.exit_code == 0, compared.output
        wanted = rows_of(source)
        assert rows_of(tmp_path / "out" / source.name) == wanted
        committed = ("--isolation", "read_committed")
        assert rows_of(tmp_path / "out" / source.name, *committed) == rows_of(source, *committed)
        if source.name.startswith("broker-"):
            assert batches_of(tmp_path / "out" / source.name) == batches_of(source)
    checked = run("validate", "--fail-on", "error", tmp_path / "out", tmp_path / "sorted")
    assert checked.exit_code == 0, checked.output


def test_without_places_of_batches_the_records_are_the_same(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """Rows that were kept in Parquet, without the file and position of their batches, in the scan's own order."""
    read(spark, logs).drop("file", "position").write.option("compression", "none").parquet(str(tmp_path / "kept"))
    spark.conf.set("spark.sql.files.openCostInBytes", "1g")  # a task for each file
    kept = spark.read.parquet(str(tmp_path / "kept"))
    write_segments(kept, str(tmp_path / "out"), same_log=True, ordered=True, batch_bytes=300)
    for source in logs.iterdir():
        assert rows_of(tmp_path / "out" / source.name) == rows_of(source)
    assert run("validate", "--fail-on", "error", tmp_path / "out").exit_code == 0


def test_what_the_same_log_lacks_is_named(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """A log without its markers would have transactions that never end."""
    frame = read(spark, logs)
    with pytest.raises(UsageError, match="column sequence is missing"):
        write_segments(frame.drop("sequence"), str(tmp_path / "out"), same_log=True)
    with pytest.raises(UsageError, match="lack the markers"):
        write_segments(read(spark, logs, isolation="read_committed"), str(tmp_path / "out"), same_log=True)
    with pytest.raises(UsageError, match="no drop but damage"):
        write_segments(frame, str(tmp_path / "out"), same_log=True, drop=["aborted"])
    assert not (tmp_path / "out").exists()


def test_the_plan_shows_the_order(spark: SparkSession, logs: Path) -> None:
    """Rows are sorted only if a read of segments, its filters and constants do not give their order."""
    frame = read(spark, logs)
    constant = frame.where("offset > 3").withColumn("partition", f.lit(0)).select("offset", "topic", "partition")
    for ordered in (frame, constant, constant.union(constant), frame.withColumn("value", f.upper("value"))):
        assert is_ordered(ordered)
    for other in (
        frame.withColumn("offset", -f.col("offset")),
        frame.withColumn("partition", f.col("offset") % 2),
        frame.orderBy("value"),
        frame.join(constant.select("offset"), "offset"),
        spark.createDataFrame([("t", 0, 1)], "topic string, partition int, offset bigint"),
    ):
        assert not is_ordered(other)


def test_tasks_write_ranges_of_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    """Without a sort each task writes segments; ranges that overlap and rows in no order are refused."""
    rows = spark.range(0, 4000, numPartitions=4).select(
        f.lit("t").alias("topic"), f.lit(0).alias("partition"), f.col("id").alias("offset"),
        f.lit(None).alias("key"), f.col("id").cast("string").alias("value"),
    )  # fmt: skip
    out = tmp_path / "out"
    data = {"asData": "control,transactional"}
    with pytest.raises(PySparkException, match="asData=control"):
        rows.write.format("kseg").mode("append").save(str(out))
    rows.write.format("kseg").options(**data).mode("append").save(str(out))
    assert len(list((out / "t-0").glob("*.log"))) == 4
    found = rows_of(out)
    assert [row["offset"] for row in found] == list(range(4000))
    with pytest.raises(PySparkException, match="unknown option 'sorted': expected compression, segmentBytes"):
        rows.write.format("kseg").options(sorted="true").mode("append").save(str(tmp_path / "more"))
    for other, line in (
        (rows.union(rows.where("offset between 10 and 20")), "offset 10 after 999: .*two tasks"),
        (rows.coalesce(1).withColumn("offset", f.col("offset") * 7919 % 4001), "sort them by topic"),
    ):
        with pytest.raises(KsegError, match=line):
            write_segments(other, str(tmp_path / "more"), ordered=True)
        assert not (tmp_path / "more").exists()
    write_segments(rows.withColumn("offset", f.col("offset") * 7919 % 4001), str(tmp_path / "more"))
    assert sorted(row["offset"] for row in rows_of(tmp_path / "more")) == sorted(i * 7919 % 4001 for i in range(4000))
