"""Log segments as Spark tables: ``spark.read.format("kseg").load("/var/kafka-logs")``.

Spark finds the format by itself (``pyspark_kseg``); ``register`` names it to a session that has already looked, and
turns on what it is faster and clearer with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of a session: filters reach the reader, and an error is its one line.
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
}


def register(spark: SparkSession) -> None:
    """Make ``format("kseg")`` known to the session, with SETTINGS."""
    from kseg.spark.source import KsegDataSource

    spark.dataSource.register(KsegDataSource)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def session(master: str = "local[*]", **settings: Any) -> SparkSession:
    """A session with kseg registered; see ``kseg.spark.session.start``."""
    from kseg.spark.session import start

    return start(master, settings)
