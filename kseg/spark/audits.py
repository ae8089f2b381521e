"""Audits of many log dirs on Spark, as DataFrames: different replicas, gaps, duplicates, old versions, largest producers.

    from kseg.spark import audits, session
    audits.gaps(session(), ["/backup/broker-1"]).show()

Spark distributes the parts of an audit (``kseg.audit_table``): files, folders or pairs of folders. The driver makes the
rows. An audit is complete when its function returns. A part that cannot be read is reported as a warning
(``kseg.file_access``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from kseg.audit_table import AUDITS, TOP, rows_of
from kseg.format.storage import file_access
from kseg.format.storage.process_pool import map_ordered
from kseg.format.storage.source import find_segments, once_each, total_size
from kseg.lazy import imported
from kseg.spark.jobs.pool import SparkPool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def replicas(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Compare the replicas of each partition, the first folder with each other one, as ``kseg diff`` does."""
    return audit(spark, "replicas", paths)


def gaps(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return offsets between segments that no segment has (``gap``, normal after compaction) or two have (``overlap``)."""
    return audit(spark, "gaps", paths)


def duplicates(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return batches that repeat offsets of their folder (``offset``) or sequences of their producer (``sequence``)."""
    return audit(spark, "duplicates", paths)


def legacy(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return segments with batches of v0 or v1, which newer brokers do not write: the segments to convert."""
    return audit(spark, "legacy", paths)


def top_producers(spark: SparkSession, paths: Sequence[str], top: int = TOP) -> DataFrame:
    """Return the producer ids with the most bytes in batches, by topic."""
    return audit(spark, "top-producers", paths, top=top)


def retention_pins(spark: SparkSession, paths: Sequence[str], now_ms: int | None = None) -> DataFrame:
    """Return segments that hold up time retention, with the batch that has the timestamp.

    A timestamp after ``now_ms`` (epoch milliseconds, None: now) is in the future.
    """
    return audit(spark, "retention-pins", paths, now_ms=now_ms)


def top_keys(spark: SparkSession, paths: Sequence[str], top: int = TOP) -> DataFrame:
    """Return the keys with the most bytes of keys and values, by topic. Reads all records.

    Spark groups the keys itself: those of a fleet do not fit on the driver.
    """
    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    reader = spark.read.format("kseg").options(columns="topic,key,value,control", mode="dropmalformed")
    return (
        reader.load(list(paths))
        .where("control is null")
        .groupBy("topic", "key")
        .agg(
            f.sum(size).alias("bytes"), f.count("*").alias("records"),
            f.count(f.when(f.col("value").isNull(), 1)).alias("tombstones"),
        )
        .orderBy(f.desc("bytes"), "topic", "key")
        .limit(top)
    )  # fmt: skip


def audit(
    spark: SparkSession,
    name: str,
    paths: Sequence[str],
    unread: Callable[[str], object] | None = None,
    **options: Any,
) -> DataFrame:
    """Return the rows of an audit of the table. ``unread`` is called with the reason for each part that is not read.

    Raises KsegError.
    """
    chosen = AUDITS[name]
    if chosen.streams:
        return top_keys(spark, paths, **options)
    files = once_each(chain.from_iterable(map(find_segments, paths)))
    parts = imported(chosen.parts)(files)
    each = partial(map_ordered, SparkPool(spark, size=total_size(files) or 0, calls=len(parts)))
    rows = rows_of(chosen, parts, each, unread or file_access.current().warn, **options)
    ddl = ", ".join(f"{column} {kind}" for column, kind in chosen.columns.items())
    return spark.createDataFrame([tuple(row[column] for column in chosen.columns) for row in rows], ddl)
