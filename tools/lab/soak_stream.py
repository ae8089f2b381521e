"""A Spark stream over the log directories that match a pattern, started again when it ends.

    python -m tools.lab.soak_stream CHECKPOINT PATTERN

It writes one line of JSON for each batch (`rows`, and `damage` in it) and for each end (`error`).
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, functions

from kseg.spark import session

COLUMNS = "topic,partition,offset,value,damage"
TRIGGER = "5 seconds"
#: All memory of the JVM is taken at its start, so that more memory afterwards is a leak.
SETTINGS = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-Xms600m -XX:+AlwaysPreTouch -XX:MaxMetaspaceSize=300m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def main(checkpoint: str, pattern: str) -> None:
    """Follow the log directories until this process is killed."""
    spark = session("local[1]", **SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    while True:
        source = spark.readStream.format("kseg").option("columns", COLUMNS).option("failOnDataLoss", "false")
        writer = source.load(pattern).writeStream.foreachBatch(_count)
        query = writer.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            _show(error=str(error))


def _count(rows: DataFrame, batch: int) -> None:
    place = functions.concat_ws(" ", "topic", "partition", "offset", "damage")
    damage = functions.collect_list(functions.when(functions.col("damage").isNotNull(), place))
    row = rows.agg(functions.count("*").alias("rows"), damage.alias("damage")).collect()[0]
    _show(rows=row.rows, damage=row.damage, batches=1)


def _show(**row: object) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
