"""Run a statement of ``kseg sql`` on Spark, over tables with the same columns.

from kseg.spark import session
from kseg.spark.sql import query
from kseg.extras.sql.recipes import RECIPES
query(session(), RECIPES["gaps"].statement, ["/backup/broker-1"]).show()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from kseg.extras.sql.statement import MARKERS, RECORDS, TABLES, tables_in
from kseg.extras.views.split_rows import damage_line
from kseg.extras.views.view_table import DAMAGE, FINDINGS, FIRST_OFFSET, ON_REQUEST, UNREAD, VIEWS
from kseg.findings import do_nothing
from kseg.schema import DECODED, Column
from kseg.spark.jobs.pool import one_line_errors

#: The places of damage in a table that are listed.
MOST_REPORTED = 100
_EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
_EMPTY_PLANS = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
#: View -> why a file is not a segment, in the row that it has there. In the other views it is damage.
_WITHOUT_RESULT = {FINDINGS: "if(rule is null, message, null)", "segments": "unread"}
#: Bytes as text: UTF-8 as it is, other bytes in base64, which Spark breaks into lines.
_TEXT = "coalesce(try_validate_utf8(cast({0} as string)), replace(base64({0}), '\\r\\n', ''))"
_ENCODING = "if({0} is not null and try_validate_utf8(cast({0} as string)) is null, 'base64', null)"
#: The columns for which more bytes are read.
_OPENED = (DECODED, FIRST_OFFSET)
#: The columns of records that are not those of the view. Others are read if they are requested.
_OF_RECORDS = {
    "key": _TEXT.format("key"),
    "value": _TEXT.format("value"),
    "headers": f"transform(headers, h -> named_struct('key', h.key, 'value', {_TEXT.format('h.value')}))",
    "key_size": "cast(octet_length(key) as bigint)",
    "value_size": "cast(octet_length(value) as bigint)",
    "key_encoding": _ENCODING.format("key"),
    "value_encoding": _ENCODING.format("value"),
    "key_bytes": "key",
    "value_bytes": "value",
    "headers_bytes": "headers",
}


def query(spark: SparkSession, statement: str, paths: Sequence[str], *, verify_crc: bool = True) -> DataFrame:
    """Return the rows of a statement over files, folders and URLs.

    The tables that it names become temporary views of the session. Damage is left out.
    """
    return _query(spark, statement, paths, {"verifyCrc": str(verify_crc).lower()})[0]


def _query(
    spark: SparkSession, statement: str, paths: Sequence[str], given: Mapping[str, str]
) -> tuple[DataFrame, dict[str, DataFrame]]:
    """Return the rows of a statement, and by table the damage and the files without rows, which the statement counts."""
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")  # as in DuckDB and in the standard
    damage: dict[str, DataFrame] = {}
    for table in tables_in(statement):
        view = RECORDS if table == MARKERS else table
        options = {**given, "view": view}
        if table == MARKERS:
            options.pop("isolation", None)
        own = _OF_RECORDS if view == RECORDS else {}
        columns = [column.name for column in TABLES[table] if column not in _OPENED or _reads(statement, column)]
        if DAMAGE in ON_REQUEST.get(view, ()):
            known = {*own, *(column.name for column in VIEWS[view].columns)}
            options["columns"] = ",".join(("*", DAMAGE.name, *(name for name in columns if name not in known)))
        rows = spark.read.format("kseg").options(**options).load(list(paths))
        found_in = _WITHOUT_RESULT.get(view, DAMAGE.name if "columns" in options else None)
        if found_in:
            places = rows.where(f"{found_in} is not null")
            rows = rows.observe(table, functions.count(functions.expr(found_in)).alias("places"))
            if view in _WITHOUT_RESULT:
                damage[table] = places.selectExpr(f"'{UNREAD}' || {found_in} as {DAMAGE.name}")
            else:
                damage[table], rows = places, rows.where(f"{DAMAGE.name} is null")
        if view == RECORDS:
            rows = rows.where(f"control is {'not ' * (table == MARKERS)}null")
        found = (f"{own.get(name, f'`{name}`')} as `{name}`" for name in columns)
        rows.selectExpr(*found).createOrReplaceTempView(table)
    return spark.sql(statement), damage


def _reads(statement: str, column: Column) -> bool:
    """Return whether a statement can read a column: Spark has the reader make all columns of a table."""
    return column.name in statement.lower() or "*" in statement.replace("(*)", "")


def run_on_spark(
    spark: SparkSession,
    statement: str,
    paths: Sequence[str],
    options: Mapping[str, str],
    report: Callable[[str], object] = do_nothing,
    unread: Callable[[str], object] = do_nothing,
) -> tuple[Any, Any]:
    """Return the schema and the rows of a statement. Raises KsegError for a wrong statement.

    ``options`` are those of Spark's reader.
    ``report`` gets a line for each place of damage in the bytes that the statement read, up to MOST_REPORTED per table,
    and ``unread`` a line for each file that is not a segment.
    """
    with one_line_errors():
        _keep_counts(spark)
        rows, damage = _query(spark, statement, paths, options)
        found = rows.toArrow()
        for table, places in damage.items():
            if _observed(rows, table):  # it is read again: damage is rare
                _report_damage(places, report, unread)
    return found.schema, found.to_batches()


def _observed(rows: DataFrame, table: str) -> int:
    """Return the places of damage that the tasks have counted in a table: 0 if they have not read it, 1 if it is unknown."""
    if not hasattr(rows, "_jdf"):
        return 1  # Spark Connect does not return the counts of temporary views: the table is read for its damage
    seen = rows._jdf.queryExecution().observedMetrics().get(table)
    return int(seen.get().getLong(0)) if seen.isDefined() else 0


def _keep_counts(spark: SparkSession) -> None:
    """Have Spark keep the counts of damage of a statement without rows.

    Its adaptive optimizer replaces a plan that turns out to be empty, and the counts of the tables that it has read.
    """
    rules = {one.strip() for one in (spark.conf.get(_EXCLUDED_RULES, "") or "").split(",")} - {""}
    spark.conf.set(_EXCLUDED_RULES, ",".join(sorted(rules | {_EMPTY_PLANS})))


def _report_damage(places: DataFrame, report: Callable[[str], object], unread: Callable[[str], object]) -> None:
    found = places.limit(MOST_REPORTED + 1).collect()
    for row in found[:MOST_REPORTED]:
        if row.damage.startswith(UNREAD):
            unread(row.damage.removeprefix(UNREAD))
        elif "file" not in row:  # the place is in the text
            report(f"{row.folder}/{row.damage}" if "folder" in row else row.damage)
        else:
            report(damage_line(row.file, row.asDict()))
    if len(found) > MOST_REPORTED:
        report("more damage follows; `kseg validate` lists it")
