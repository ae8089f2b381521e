"""Output of ``kseg pipeline``: rows, or a table of the partitions and lines with the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from kseg.report.row_formats import RowSet, table_of
from kseg.report.tables import TableColumn, cell_rows, print_pages, print_text
from kseg.schema import Column, RowKind
from kseg.text import count_of, size_text

if TYPE_CHECKING:
    from kseg.extras.pipeline.pipeline_run import PartitionOutcome

STATUSES = ("loaded", "to load", "current", "waiting", "failed", "same", "different")
FIELDS = RowKind("pipeline", "Partitions of a pipeline").of(
    "pipeline",
    Column("topic", "text", "the topic"),
    Column(
        "partition", "int32", "the partition",
        shown=TableColumn("partition", text="wrap", least=12, cell=lambda one: f"{one.topic}-{one.partition}"),
    ),
    Column("table", "text", "the table, or its folder", shown=TableColumn("table", text="cut", priority=5)),
    Column("first_offset", "count", "the first offset that the table did not have",
           shown=TableColumn("from", right=True, priority=1)),
    Column("end_offset", "count", "the offset after those that the table has, or will have",
           shown=TableColumn("to", right=True)),
    Column("log_end_offset", "count", "the end of the log",
           shown=TableColumn("log end", right=True, priority=3)),
    Column("lag", "count", "offsets between the two ends", shown=TableColumn("lag", right=True)),
    Column("segments", "count", "segments to read"),
    Column("size", "count", "bytes of these segments",
           shown=TableColumn("bytes", right=True, priority=4, cell=lambda one: size_text(one.size))),
    Column("damaged", "count", "rows in the quarantine list", shown=TableColumn("damage", right=True)),
    Column("status", "text", "what was done, or would be done", shown=TableColumn("status"), values=STATUSES),
    Column("reason", "text?", "why rows wait, or could not be loaded"),
)  # fmt: skip
COLUMNS = table_of(FIELDS.columns)
ROW_KINDS = (FIELDS,)
_STYLES = {"failed": "red", "different": "red", "waiting": "yellow"}
#: The reasons that a table lists.
_MOST_REASONS = 8


def rows(found: Sequence[PartitionOutcome], lines: Sequence[str]) -> RowSet:
    return RowSet.made(FIELDS.columns, found)


def write_table(found: Sequence[PartitionOutcome], lines: Sequence[str], out: TextIO, *, detail: int = 0) -> None:
    """Write the partitions, the reasons why rows are not loaded, and the lines. Current ones are folded without -v."""
    shown = [one for one in found if detail > 0 or one.status != "current" or one.damaged]
    print_pages(out, COLUMNS, cell_rows(COLUMNS, shown, lambda one: _STYLES.get(one.status, "")))
    reasons = [f"{one.topic}-{one.partition}: {one.reason}" for one in shown if one.reason]
    for reason in reasons[: None if detail > 0 else _MOST_REASONS]:
        print_text(out, reason)
    if len(reasons) > _MOST_REASONS and detail <= 0:
        print_text(out, f"and {count_of(len(reasons) - _MOST_REASONS, 'more reason')}: -v lists them")
    if len(shown) < len(found):
        print_text(out, f"{count_of(len(found) - len(shown), 'partition')} current")
    for line in lines:
        print_text(out, line)
