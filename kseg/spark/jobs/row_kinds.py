"""Find the rows of a DataFrame that are not records to write: damage, control records, aborted and undecided
transactions.

These columns of the records view show them: ``damage``, ``control``, ``transaction_state`` and ``transactional``. A
DataFrame that reads log segments needs them, or must read with isolation=read_committed. All rows of others are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from kseg.errors import UsageError
from kseg.report.arrow_table import pa, pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The column that names the kind of a row; null for a record.
KIND = "kind_of_row"

#: Each kind of row that is not a record, with its meaning and the remedy.
KINDS = {
    "damage": ("a damaged range, not a record", "drop=['damage'] skips such rows"),
    "control": (
        "a control record, such as a transaction marker, not data",
        "drop=['control'] skips such rows, as_data=['control'] writes them as plain records",
    ),
    "aborted": (
        "a record of an aborted or open transaction",
        "drop=['aborted'] skips such rows, as_data=['aborted'] writes them as plain records",
    ),
    "transactional": (
        "a record of a transaction, without a column that shows whether it was aborted",
        "read the column transaction_state too, or read with isolation=read_committed and give as_data=['transactional']",
    ),
}
_NEVER_DATA = "damage"


def check_kinds(drop: Collection[str], as_data: Collection[str]) -> None:
    """Raise UsageError for kinds that do not exist or can't be written."""
    for option, kinds in (("drop", drop), ("as_data", as_data)):
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if isinstance(kinds, str) or kind not in KINDS:
                raise UsageError(f"{option}: expected a list of {', '.join(KINDS)}, got {kinds!r}")
    if _NEVER_DATA in as_data:
        raise UsageError("as_data: damage has no content; use drop=['damage']")


def check_source(df: DataFrame, as_data: Collection[str]) -> None:
    """Raise UsageError if a DataFrame reads log segments, and lacks the columns that show which rows are not records."""
    if not any(map(_is_all_kinds, _reads_of_segments(df))):
        return
    names = {"control": {"control"}, "transactional": {"transaction_state", "transactional"}}
    for kind, columns in names.items():
        if columns.isdisjoint(df.columns) and kind not in as_data:
            raise UsageError(
                f"the rows are read from log segments, and a column is missing that shows which are not records: "
                f"keep {' or '.join(sorted(columns))}, or read with isolation=read_committed"
            )


def _is_all_kinds(options: Mapping[str, str]) -> bool:
    return (
        options.get("view", "records") == "records"
        and options.get("isolation") != "read_committed"
        and "as" not in options
    )


def _reads_of_segments(df: Any) -> Iterator[dict[str, str]]:
    """Yield the options of each read of log segments in the plan, with names in lower case."""
    if hasattr(df, "_jdf"):
        leaves = df._jdf.queryExecution().analyzed().collectLeaves()
        for leaf in (leaves.apply(number) for number in range(leaves.size())):
            if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == "kseg":
                yield {name.lower(): value.lower() for name, value in leaf.options().items()}
        return
    for read in _connect_reads(df._plan.to_proto(df.sparkSession.client)):  # Spark Connect
        if read.format.lower() == "kseg":
            yield {name.lower(): value.lower() for name, value in read.options.items()}


def _connect_reads(message: Any) -> Iterator[Any]:
    """Yield the reads of data sources in a plan of Spark Connect."""
    if message.DESCRIPTOR.full_name == "spark.connect.Read.DataSource":
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.label == field.LABEL_REPEATED else [value]:
                yield from _connect_reads(one)


def kind_column(df: DataFrame, as_data: Collection[str]) -> Column:
    """Return a column with the kind of each row; null for rows to write: records, and rows of the kinds ``as_data``."""
    there = set(df.columns)
    conditions: dict[str, Column] = {}
    if "damage" in there:
        conditions["damage"] = f.col("damage").isNotNull()
    if "control" in there:
        conditions["control"] = f.col("control").isNotNull()
    if "transaction_state" in there:
        conditions["aborted"] = f.col("transaction_state").isin("aborted", "open")
    elif "transactional" in there:
        conditions["transactional"] = f.col("transactional")
    found: Column = f.lit(None)
    # The first true condition decides: a marker of an aborted transaction is a control record.
    for kind, condition in reversed(conditions.items()):
        found = f.when(condition, f.lit(None if kind in as_data else kind)).otherwise(found)
    return found.cast("string").alias(KIND)


def refuse_other_rows(batch: pa.RecordBatch) -> None:
    """Raise UsageError for the first row of a record batch that is not a record."""
    kinds = batch.column(KIND)
    if kinds.null_count == batch.num_rows:
        return

    row = pc.indices_nonzero(pc.is_valid(kinds))[0].as_py()
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    what, remedy = KINDS[kinds[row].as_py()]
    where = f"{topic}-{partition}" + ("" if offset is None else f", offset {offset}")
    raise UsageError(f"{where}: {what}; {remedy}")
