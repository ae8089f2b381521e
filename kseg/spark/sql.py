"""Run a statement of ``kseg sql`` on Spark, over tables with the same columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kseg.spark.jobs.pool import one_line_errors
from kseg.sql.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes as text: UTF-8 as it is, other bytes in base64.
_TEXT = "coalesce(try_validate_utf8(cast({0} as string)), base64({0}))"
_CONTENTS = {
    "text": _TEXT,
    "text_headers": f"transform({{0}}, h -> named_struct('key', h.key, 'value', {_TEXT.format('h.value')}))",
}


def run_on_spark(
    spark: SparkSession, statement: str, tables: Iterable[str], paths: Sequence[str], verify_crc: bool
) -> tuple[Any, Any]:
    """Return the schema and the rows of a statement over the named tables. Raises KsegError for a wrong statement."""
    with one_line_errors():
        spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")  # as in DuckDB and in the standard
        for table in tables:
            options = {"view": table, "mode": "dropmalformed", "verifyCrc": str(verify_crc).lower()}
            rows = spark.read.format("kseg").options(**options).load(list(paths))
            contents = {"key", "value", "headers"} if table == "records" else set()
            rows.selectExpr(
                *(
                    f"{_CONTENTS[column.type].format(column.name)} as {column.name}"
                    if column.name in contents
                    else f"`{column.name}`"
                    for column in TABLES[table]
                )
            ).createOrReplaceTempView(table)
        found = spark.sql(statement).toArrow()
    return found.schema, found.to_batches()
