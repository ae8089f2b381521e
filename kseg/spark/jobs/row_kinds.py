"""Find the rows that are not records to write: damage, control records, aborted and undecided transactions.

These columns of the records view show them: ``damage``, ``control``, ``transaction_state`` and ``transactional``. Rows
without the last three are written if the plan of the DataFrame shows that they are not of log segments, or that they were
read with isolation=read_committed; otherwise ``as_data`` must say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from kseg.errors import UsageError
from kseg.report.arrow_table import pa, pc

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
NEVER_DATA = "damage"
#: The columns that show each kind: one of them is needed.
SHOWN_BY = {"control": ("control",), "transactional": ("transaction_state", "transactional")}
_UNDECIDED = ("aborted", "open")


def check_kinds(drop: Collection[str], as_data: Collection[str]) -> None:
    """Raise UsageError for kinds that do not exist or can't be written."""
    for option, kinds in (("drop", drop), ("as_data", as_data)):
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if isinstance(kinds, str) or kind not in KINDS:
                raise UsageError(f"{option}: expected a list of {', '.join(KINDS)}, got {kinds!r}")
    if NEVER_DATA in as_data:
        raise UsageError("as_data: damage has no content; use drop=['damage']")


def check_columns(names: Collection[str], as_data: Collection[str]) -> None:
    """Raise UsageError if a column is missing that shows which rows are not records."""
    for kind, columns in SHOWN_BY.items():
        if set(columns).isdisjoint(names) and kind not in as_data:
            raise UsageError(
                f"a column is missing that shows which rows are not records: keep {' or '.join(columns)}, read segments "
                f"with isolation=read_committed, and give asData={kind} for rows that are all records"
            )


def proved_data(df: DataFrame, as_data: Collection[str]) -> set[str]:
    """Return the kinds that the rows of a DataFrame do not have, as its plan shows, with those of ``as_data``.

    Raises UsageError if it reads log segments, and lacks the columns that show which rows are not records.
    """
    missing = {kind for kind, columns in SHOWN_BY.items() if set(columns).isdisjoint(df.columns)}
    if missing - set(as_data) and any(map(_is_all_kinds, reads_of_segments(df))):
        names = SHOWN_BY[min(missing - set(as_data))]
        raise UsageError(
            f"the rows are read from log segments, and a column is missing that shows which are not records: "
            f"keep {' or '.join(names)}, or read with isolation=read_committed"
        )
    return missing | set(as_data)


def _is_all_kinds(options: Mapping[str, str]) -> bool:
    return (
        options.get("view", "records") == "records"
        and options.get("isolation") != "read_committed"
        and "as" not in options
    )


def reads_of_segments(df: Any) -> Iterator[dict[str, str]]:
    """Yield the options of each read of log segments in the plan, with names in lower case."""
    if hasattr(df, "_jdf"):
        leaves = items_of(df._jdf.queryExecution().analyzed().collectLeaves())
        given = (leaf.options() for leaf in leaves if is_read_of_segments(leaf))
    else:  # Spark Connect
        reads = _connect_reads(df._plan.to_proto(df.sparkSession.client))
        given = (read.options for read in reads if read.format.lower() == "kseg")
    for options in given:
        yield {name.lower(): value.lower() for name, value in options.items()}


def items_of(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence in the JVM."""
    return (sequence.apply(number) for number in range(sequence.size()))


def is_read_of_segments(leaf: Any) -> bool:
    """Return whether a leaf of a plan in the JVM is a read of log segments."""
    return bool(leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == "kseg")


def _connect_reads(message: Any) -> Iterator[Any]:
    """Yield the reads of data sources in a plan of Spark Connect."""
    if message.DESCRIPTOR.full_name == "spark.connect.Read.DataSource":
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.label == field.LABEL_REPEATED else [value]:
                yield from _connect_reads(one)


def kinds_of(batch: pa.RecordBatch, as_data: Collection[str]) -> pa.Array:
    """Return the kind of each row of an Arrow batch; null for rows to write: records, and kinds of ``as_data``."""
    there = set(batch.schema.names)
    conditions: dict[str, pa.Array] = {
        name: batch.column(name).is_valid() for name in ("damage", "control") if name in there
    }
    if "transaction_state" in there:
        states = batch.column("transaction_state").cast(pa.string())
        conditions["aborted"] = pc.is_in(states, pa.array(_UNDECIDED))
    elif "transactional" in there:
        conditions["transactional"] = pc.fill_null(batch.column("transactional").cast(pa.bool_()), False)
    found = pa.nulls(batch.num_rows, pa.string())
    # The first true condition decides: a marker of an aborted transaction is a control record.
    for kind, condition in reversed(conditions.items()):
        found = pc.if_else(condition, pa.scalar(None if kind in as_data else kind, pa.string()), found)
    return found


def records_only(batch: pa.RecordBatch, drop: Collection[str], as_data: Collection[str]) -> pa.RecordBatch:
    """Return the rows to write, without those of the kinds ``drop``. Raises UsageError for the first of other kinds."""
    kinds = kinds_of(batch, as_data)
    if kinds.null_count == batch.num_rows:
        return batch
    dropped = pc.is_in(kinds, pa.array(list(drop), pa.string()))
    refused = pc.indices_nonzero(pc.and_(kinds.is_valid(), pc.invert(dropped)))
    if len(refused):
        row = refused[0].as_py()
        topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
        what, remedy = KINDS[kinds[row].as_py()]
        where = f"{topic}-{partition}" + ("" if offset is None else f", offset {offset}")
        raise UsageError(f"{where}: {what}; {remedy}")
    return batch.filter(pc.invert(dropped))
