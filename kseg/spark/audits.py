"""Audits of many log dirs, as DataFrames: different replicas, gaps, duplicates, old versions, largest producers.

    from kseg.spark import audits, session
    audits.gaps(session(), ["/backup/broker-1"]).show()

All audits except ``replicas`` and ``top_keys`` read headers only. Each folder is one replica of a partition: folders of
the same partition in several paths are not merged.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from kseg.commands.diff.diff import compare, truncations
from kseg.commands.diff.replica import Replica
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.storage import naming
from kseg.format.storage.process_pool import map_ordered
from kseg.format.storage.source import find_segments, once_each, topic_partition
from kseg.spark.jobs.pool import SparkPool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The number of rows of top_producers and top_keys.
TOP = 20

_REPLICA_PAIRS = (
    "topic string, partition int, a string, b string, verdict string, first_offset bigint, a_epoch int, b_epoch int, "
    "stale string, last_common_offset bigint, a_truncates_to bigint, b_truncates_to bigint, unread string"
)


def replicas(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Compare the replicas of each partition, the first folder with each other one, as ``kseg diff`` does.

    ``first_offset`` is the first offset with different records, ``stale`` the side (a or b) with the older leader epoch
    at that offset, ``…_truncates_to`` the offset to which a side would truncate if the other led. The comparison is
    complete when the function returns. Raises KsegError.
    """
    folders: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    for file in once_each(chain.from_iterable(map(find_segments, paths))):
        topic, partition = topic_partition(file.path)
        if topic is not None and partition is not None:
            folders[topic, partition][file.path.rpartition("/")[0]] = None
    pool = SparkPool(spark)
    calls = [
        (place, first, other)
        for place, (first, *others) in sorted((place, list(found)) for place, found in folders.items())
        for other in others
    ]
    compared = map_ordered(pool, _compare, [first for _, first, _ in calls], [other for *_, other in calls])
    rows = [(*place, *row) for (place, *_), row in zip(calls, compared, strict=True)]
    return spark.createDataFrame(rows, _REPLICA_PAIRS)


def _compare(a: str, b: str) -> tuple[Any, ...]:
    try:
        left, right = Replica(a, do_nothing), Replica(b, do_nothing)
        result = compare(left, right, do_nothing)
        truncates = truncations(left.summary(), right.summary())
    except KsegError as error:
        return a, b, "unread", None, None, None, None, None, None, None, str(error)
    first = result.first_difference
    epochs = [place.leader_epoch if place else None for place in (first.a, first.b)] if first else [None, None]
    stale = None
    if epochs[0] is not None and epochs[1] is not None and epochs[0] != epochs[1]:
        stale = "a" if epochs[0] < epochs[1] else "b"
    return (
        a, b, result.verdict, first.first_offset if first else None, *epochs, stale, result.last_common_offset,
        truncates["a"], truncates["b"], None,
    )  # fmt: skip


def gaps(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return offsets between segments that no segment has (``gap``, normal after compaction) or two have (``overlap``)."""
    following = Window.partitionBy("folder").orderBy("file")
    seams = (
        _segments(spark, paths)
        .withColumn("next_file", f.lead("file").over(following))
        .withColumn("next_offset", f.lead("first_offset").over(following))
        .where("next_offset <> last_offset + 1")
    )
    overlaps = f.col("next_offset") <= f.col("last_offset")
    return seams.select(
        f.when(overlaps, "overlap").otherwise("gap").alias("kind"),
        "topic", "partition", "file", "next_file",
        f.when(overlaps, f.col("next_offset")).otherwise(f.col("last_offset") + 1).alias("first_offset"),
        f.when(overlaps, f.col("last_offset")).otherwise(f.col("next_offset") - 1).alias("last_offset"),
    ).orderBy("file")  # fmt: skip


def duplicates(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return batches that repeat offsets of their folder (``offset``) or sequences of their producer (``sequence``).

    ``earlier_offset`` is the last offset of the previous batch or of the first batch with that sequence. Sequences
    restart after 2,147,483,647 records of one producer.
    """
    batches = _batches(spark, paths, "producer_id", "producer_epoch", "base_sequence", "control")
    before = Window.partitionBy("folder").orderBy("file", "position").rowsBetween(Window.unboundedPreceding, -1)
    same = Window.partitionBy("folder", "producer_id", "producer_epoch", "base_sequence").orderBy("file", "position")
    offsets = batches.withColumn("earlier_offset", f.max("last_offset").over(before)).where(
        "first_offset <= earlier_offset"
    )
    sequences = (
        batches.where("producer_id >= 0 and base_sequence >= 0 and not control")
        .withColumn("earlier_offset", f.first("last_offset").over(same))
        .where("earlier_offset <> last_offset")
    )
    columns = (
        "kind", "topic", "partition", "file", "position", "first_offset", "last_offset", "producer_id",
        "producer_epoch", "base_sequence", "earlier_offset",
    )  # fmt: skip
    found = [table.withColumn("kind", f.lit(kind)) for kind, table in (("offset", offsets), ("sequence", sequences))]
    return found[0].select(*columns).union(found[1].select(*columns)).orderBy("file", "position", "kind")


def legacy(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return segments with batches of v0 or v1, which newer brokers do not write: the segments to convert."""
    return (
        _batches(spark, paths, "size", "max_timestamp_ms")
        .where("magic < 2")
        .groupBy("topic", "partition", "file", "magic")
        .agg(
            f.count("*").alias("batches"),
            f.sum("size").alias("bytes"),
            f.max("last_offset").alias("last_offset"),
            f.max("max_timestamp_ms").alias("max_timestamp_ms"),
        )
        .orderBy("file", "magic")
    )


def top_producers(spark: SparkSession, paths: Sequence[str], top: int = TOP) -> DataFrame:
    """Return the producer ids with the most bytes in batches, by topic."""
    return (
        _batches(spark, paths, "size", "record_count", "producer_id")
        .where("producer_id >= 0")
        .groupBy("topic", "producer_id")
        .agg(
            f.sum("size").alias("bytes"), f.count("*").alias("batches"),
            f.sum(f.greatest("record_count", f.lit(0))).alias("records"),  # a damaged count may be negative
            f.countDistinct("partition").alias("partitions"),
        )
        .orderBy(f.desc("bytes"), "topic", "producer_id")
        .limit(top)
    )  # fmt: skip


def top_keys(spark: SparkSession, paths: Sequence[str], top: int = TOP) -> DataFrame:
    """Return the keys with the most bytes of keys and values, by topic. Reads all records."""
    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    return (
        _load(spark, paths, "records", "topic", "key", "value", "control", mode="dropmalformed")
        .where("control is null")
        .groupBy("topic", "key")
        .agg(
            f.sum(size).alias("bytes"), f.count("*").alias("records"),
            f.count(f.when(f.col("value").isNull(), 1)).alias("tombstones"),
        )
        .orderBy(f.desc("bytes"), "topic", "key")
        .limit(top)
    )  # fmt: skip


def retention_pins(spark: SparkSession, paths: Sequence[str], now_ms: int | None = None) -> DataFrame:
    """Return segments that hold up time retention, with the batch that has the timestamp.

    A broker deletes segments from the oldest on and stops at the first one whose largest timestamp is too recent. A
    timestamp in the future (after ``now_ms``, epoch milliseconds), or larger than those of later segments, holds up the
    deletion of these segments, too.
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    segments = _segments(spark, paths)
    later = segments.select(
        f.col("folder").alias("other_folder"), f.col("file").alias("later_file"),
        f.col("timestamp_ms").alias("later_ms"), f.col("bytes").alias("later_bytes"),
    )  # fmt: skip
    held = (f.col("folder") == f.col("other_folder")) & (f.col("file") < f.col("later_file"))
    held &= f.col("later_ms") < f.col("timestamp_ms")
    return (
        segments.join(later, held, "left")
        .groupBy("topic", "partition", "file", "timestamp_ms", "at.position", "at.offset", "at.producer_id")
        .agg(f.count("later_file").alias("held_segments"), f.sum("later_bytes").alias("held_bytes"))
        .withColumn("future", f.col("timestamp_ms") > now)
        .where("held_segments > 0 or future")
        .orderBy("file")
    )


def _segments(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return segments with batches: offsets, bytes, and ``at``, the batch with the largest timestamp."""
    named = f.regexp_extract("file", naming.LOG + "$", 1).cast("bigint")
    stamped = f.when(f.col("max_timestamp_ms").isNotNull(), f.struct("max_timestamp_ms", "position"))
    place = f.struct("position", f.col("last_offset").alias("offset"), "producer_id")
    return (
        _batches(spark, paths, "size", "max_timestamp_ms", "producer_id")
        .groupBy("topic", "partition", "folder", "file")
        .agg(
            # The first offset of a compressed message set is unknown until it is opened; the file name has a lower bound.
            f.min(f.coalesce("base_offset", named)).alias("first_offset"),
            f.max("last_offset").alias("last_offset"),
            f.sum("size").alias("bytes"),
            f.max("max_timestamp_ms").alias("timestamp_ms"),
            f.max_by(place, stamped).alias("at"),
        )
    )


def _batches(spark: SparkSession, paths: Sequence[str], *columns: str) -> DataFrame:
    """Return batches with a correct CRC, without KRaft snapshots. A compressed message set has its last as first offset."""
    base = ("topic", "partition", "file", "position", "magic", "base_offset", "last_offset", "crc_valid")
    return (
        _load(spark, paths, "batches", *base, *columns)
        .where("crc_valid is not false and file not like '%.checkpoint'")
        .withColumn("folder", f.regexp_replace("file", "/[^/]*$", ""))
        .withColumn("first_offset", f.coalesce("base_offset", "last_offset"))
    )


def _load(spark: SparkSession, paths: Sequence[str], view: str, *columns: str, **options: str) -> DataFrame:
    reader = spark.read.format("kseg").options(view=view, columns=",".join(columns), **options)
    return reader.load(list(paths))
