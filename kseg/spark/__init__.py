"""Log segments as Spark tables: ``spark.read.format("kseg").load("/var/kafka-logs")``.

Spark discovers the format through the module ``pyspark_kseg``. ``register`` adds it to a session that has already
searched, and applies SETTINGS for clear errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
