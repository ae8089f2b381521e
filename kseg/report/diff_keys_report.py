"""Output of ``kseg diff --by-key``: the keys that changed, appeared or were deleted, and the counts by partition."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from kseg.commands.diff.key_differences import CHANGES, KeyComparison, KeyDifference
from kseg.format.storage.naming import partition_of
from kseg.report.row_formats import RowSet, cell, key_text, table_of
from kseg.report.tables import TableColumn, cell_rows, print_pages, print_text
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of

DIFFERENCE_FIELDS = RowKind("diff", "Differences of keys", "with `--by-key`: the first ones of each change").of(
    "key-difference",
    Column("change", "text", "changed, appeared, deleted, or gone: no tombstone is left", "one.change",
        TableColumn("change"), tuple(CHANGES)),
    Column("topic", "text?", "from the name of the folder", "place.topic"),
    Column("partition", "int32?", "from the name of the folder", "place.partition",
        TableColumn("partition", priority=3, cell=lambda found: os.path.basename(os.path.abspath(found["path"])))),
    Column("key", "bytes", "the key", "one.key",
        TableColumn("key", text="cut", cell=lambda found: key_text(found["one"].key))),
    Column("offset_a", "int?", "its last offset in a; null without one", "one.offset_a",
        TableColumn("offset a", right=True)),
    Column("timestamp_a", "ms?", "its time", lambda found: _time(found["one"].timestamp_a)),
    Column("offset_b", "int?", "its last offset in b, or that of the tombstone", "one.offset_b",
        TableColumn("offset b", right=True)),
    Column("timestamp_b", "ms?", "its time", lambda found: _time(found["one"].timestamp_b),
        TableColumn("time b", priority=2, cell=lambda found: cell(_time(found["one"].timestamp_b), "timestamp"))),
)  # fmt: skip
_READ = (
    Column("path", "text", "the partition or segment"),
    Column("records", "count", "committed records with a key"),
    Column("keys", "count", "keys with a value"),
    Column("null_keys", "count", "records without a key: they are not compared"),
    Column("undecided", "count", "records of transactions without a known end: they are not compared"),
)
_SUMMARY = RowKind("diff", "Comparison of keys", "with `--by-key`: a row for each partition").of(
    "key-diff",
    Column("a", "object", "the first backup", of=_READ),
    Column("b", "object", "the second backup", of=_READ),
    Column("same", "count", "keys with equal values"),
    *(
        Column(change, "count", meaning, lambda one, change=change: one.counts[change])  # type: ignore[misc]
        for change, meaning in CHANGES.items()
    ),
)
ROW_KINDS = (DIFFERENCE_FIELDS, _SUMMARY)
COLUMNS = table_of(DIFFERENCE_FIELDS.columns)
_difference_row, _summary_row = DIFFERENCE_FIELDS.maker(), _SUMMARY.maker()
#: The most differences of the table without ``detail``.
_MOST_ROWS = 48


def _time(timestamp: int | None) -> int | None:
    return None if timestamp is None or timestamp < 0 else timestamp


@dataclass(slots=True)
class KeyDiffTotal:
    """Sums over all partitions, complete after the last one."""

    partitions: int = 0
    same: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    null_keys: int = 0
    undecided: int = 0

    def counted(self, found: Iterable[KeyComparison]) -> Iterator[KeyComparison]:
        for one in found:
            self.partitions += 1
            self.same += one.same
            self.counts.update(one.counts)
            self.null_keys += one.a.null_keys + one.b.null_keys
            self.undecided += one.a.undecided + one.b.undecided
            yield one


def rows(found: Iterable[KeyComparison], total: KeyDiffTotal) -> RowSet:
    """Return the differences of each partition, then its counts. CSV has the differences."""
    return RowSet.of(DIFFERENCE_FIELDS.columns, _rows(found))


def _rows(found: Iterable[KeyComparison]) -> Iterator[Row]:
    for one in found:
        yield from (_difference_row(_placed(one, difference)) for difference in one.differences)
        yield _summary_row(one)


def _placed(comparison: KeyComparison, one: KeyDifference) -> Row:
    path = comparison.b.path
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    return {"one": one, "path": folder, "place": partition_of(os.path.basename(os.path.abspath(folder)))}


def write_table(found: Iterable[KeyComparison], total: KeyDiffTotal, out: TextIO, *, detail: int = 0) -> None:
    """Write the differences and the counts, with ``detail`` -1 only the counts."""
    listed: list[Row] = []
    for one in found:
        room = len(one.differences) if detail > 0 else _MOST_ROWS - len(listed)
        listed += [_placed(one, difference) for difference in one.differences[: max(room, 0)]]
    if detail >= 0:
        print_pages(out, COLUMNS, cell_rows(COLUMNS, listed))
    left_out = total.counts.total() - len(listed)
    if left_out and detail >= 0:
        print_text(
            out, f"{count_of(left_out, 'more difference')}: --limit N lists N of each change, -v of all partitions"
        )
    print_text(out, summary_line(total))


def summary_line(total: KeyDiffTotal) -> str:
    keys = count_of(total.same + total.counts.total(), "key")
    partitions = f" in {count_of(total.partitions, 'partition')}" if total.partitions > 1 else ""
    counts = ", ".join(f"{total.counts[change]:,} {change}" for change in CHANGES if total.counts[change])
    kinds = ((total.null_keys, "records without a key"), (total.undecided, "records of open transactions"))
    left_out = ", ".join(f"{count:,} {what}" for count, what in kinds if count)
    not_compared = f"; not compared: {left_out}" if left_out else ""
    return f"{keys}{partitions}: {counts or 'no difference'}, {total.same:,} the same{not_compared}"
