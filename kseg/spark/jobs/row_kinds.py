"""Which rows of a DataFrame are not records to write: damage, control records, aborted and undecided transactions.

They are told by the columns of the records view: ``damage``, ``control``, ``transaction_state`` and ``transactional``. A
DataFrame without these columns is taken as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from kseg.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

#: The column that names the kind of a row; null for a record.
KIND = "kind_of_row"

#: Each kind of row that is not a record, what it is, and what can be done.
KINDS = {
    "damage": ("a row of damage, not a record", "drop=['damage'] leaves such rows out"),
    "control": (
        "a control record, such as a transaction marker, not data",
        "drop=['control'] leaves such rows out, as_data=['control'] writes them as plain records",
    ),
    "aborted": (
        "a record of an aborted or open transaction",
        "drop=['aborted'] leaves such rows out, as_data=['aborted'] writes them as plain records",
    ),
    "transactional": (
        "a record of a transaction, and no column says whether it was aborted",
        "read the column transaction_state too; or read with isolation=read_committed and give as_data=['transactional']",
    ),
}
_NEVER_DATA = "damage"


def check_kinds(drop: Collection[str], as_data: Collection[str]) -> None:
    """Raises UsageError for kinds that do not exist or can't be written."""
    for option, kinds in (("drop", drop), ("as_data", as_data)):
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if isinstance(kinds, str) or kind not in KINDS:
                raise UsageError(f"{option}: expected a list of {', '.join(KINDS)}, got {kinds!r}")
    if _NEVER_DATA in as_data:
        raise UsageError("as_data: damage has no content to write")


def kind_column(df: DataFrame, as_data: Collection[str]) -> Column:
    """The kind of each row, null for what is written: records, and the kinds of ``as_data``."""
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
    # The first condition that holds decides: a marker of an aborted transaction is a control record.
    for kind, condition in reversed(conditions.items()):
        found = f.when(condition, f.lit(None if kind in as_data else kind)).otherwise(found)
    return found.cast("string").alias(KIND)


def refuse_other_rows(batch: pa.RecordBatch) -> None:
    """Raises UsageError for the first row of a record batch that is not a record."""
    kinds = batch.column(KIND)
    if kinds.null_count == batch.num_rows:
        return
    import pyarrow.compute as pc

    row = pc.indices_nonzero(pc.is_valid(kinds))[0].as_py()
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    what, remedy = KINDS[kinds[row].as_py()]
    where = f"{topic}-{partition}" + ("" if offset is None else f", offset {offset}")
    raise UsageError(f"{where}: {what}; {remedy}")
