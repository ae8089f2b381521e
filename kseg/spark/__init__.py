"""Log segments as Spark tables: ``spark.read.format("kseg").load("/var/kafka-logs")``.

Spark discovers the format through the module ``pyspark_kseg``. ``register`` adds it to a session that has already
searched, and applies SETTINGS for clear errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

#: Settings of a session that reduce an error to one line.
SETTINGS = {
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
}


def register(spark: SparkSession) -> None:
    """Register ``format("kseg")`` with the session and apply SETTINGS."""
    from kseg.spark.data_source import KsegDataSource  # imports pyspark

    spark.dataSource.register(KsegDataSource)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def session(master: str = "local[*]", **settings: Any) -> SparkSession:
    """Return a session with kseg registered; see ``kseg.spark.jobs.launch.start``."""
    from kseg.spark.jobs.launch import start  # imports this module

    return start(master, settings)


def observe(rows: DataFrame, observation: Observation | str) -> DataFrame:
    """Return rows of ``format("kseg")`` whose tasks count them, for ``observation.get`` after an action.

    The metrics are ``rows``; ``bytes`` of the keys and values; ``damage``, the damaged places that are rows; ``newest``,
    the largest timestamp, from which the lag in time follows. A metric whose columns the rows lack is left out. A stream
    takes a name for the observation, and has the metrics in its progress.
    """
    from pyspark.sql import functions  # imports pyspark

    sizes = [f"coalesce(octet_length({name}), 0)" for name in ("key", "value") if name in rows.columns]
    metrics = [functions.count("*").alias("rows")]
    if sizes:
        metrics.append(functions.expr(f"coalesce(sum({' + '.join(sizes)}), 0)").alias("bytes"))
    if "damage" in rows.columns:
        metrics.append(functions.count("damage").alias("damage"))
    if "timestamp" in rows.columns:
        metrics.append(functions.max("timestamp").alias("newest"))
    return rows.observe(observation, *metrics)
