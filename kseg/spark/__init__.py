"""Log segments as Spark tables: ``spark.read.format("kseg").load("/var/kafka-logs")``.

Spark finds the format by itself (``pyspark_kseg``); ``register`` names it to a session that has already looked, and
turns on what makes errors clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of a session: an error is its one line.
SETTINGS = {
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
}


def register(spark: SparkSession) -> None:
    """Make ``format("kseg")`` known to the session, with SETTINGS."""
    from kseg.spark.source import KsegDataSource

    spark.dataSource.register(KsegDataSource)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def session(master: str = "local[*]", **settings: Any) -> SparkSession:
    """A session with kseg registered; see ``kseg.spark.launch.start``."""
    from kseg.spark.launch import start

    return start(master, settings)
