"""A job on the cluster of a test: reads a log dir as a table and as a stream, and prints the origin of the executors'
kseg.

python -m tests.support.cluster_job MASTER ARCHIVE LOG_DIR TARGET

The output is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from kseg.spark import session
from tools.lab import maven


def _where(_: Iterable[int]) -> Iterable[str]:
    import kseg

    yield str(kseg.__file__)


def _sum(table: DataFrame) -> list[int]:
    return [number for row in table.selectExpr("sum(offset)", "count(1)").collect() for number in row]


def run(master: str, archive: str, log_dir: str, target: str) -> dict[str, Any]:
    """Run the job; ``archive`` has kseg and its dependencies, unpacked next to each executor."""
    spark = session(
        master,
        **{
            "spark.archives": f"{archive}#kseg_env",
            "spark.executorEnv.PYTHONPATH": "./kseg_env",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(maven.QUICK),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        },
    )
    try:
        table = spark.read.format("kseg").option("splitBytes", "200000").load(log_dir)
        stream = spark.readStream.format("kseg").option("columns", "offset").load(log_dir)
        sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{target}/checkpoint")
        query = sink.trigger(availableNow=True).start(f"{target}/table")
        query.awaitTermination()
        executors = spark.sparkContext.parallelize(range(4), 4).mapPartitions(_where)
        return {
            "tasks": table.rdd.getNumPartitions(),
            "read": _sum(table),
            "streamed": _sum(spark.read.parquet(f"{target}/table")),
            "kseg": sorted(set(executors.collect())),
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
