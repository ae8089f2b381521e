"""Output of ``kseg transactions``: rows or a table, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TextIO

from kseg.commands.transactions import STATES, PartitionTransactions, Transaction, is_served
from kseg.report.row_formats import RowSet, Spool, table_of
from kseg.report.tables import (
    FOLDED,
    PAGE_ROWS,
    Row,
    TableColumn,
    cell_rows,
    cells_of,
    print_cells,
    print_text,
    text_lines,
)
from kseg.report.wording import MOST_NAMES, MOST_ROWS, common_text, fold, names_text
from kseg.schema import TRANSACTION_TABLE, Column, RowKind
from kseg.schema import Row as JsonRow
from kseg.text import count_of, inclusive_range, iso_time

Items = Iterable[Transaction | PartitionTransactions]


@dataclass(slots=True)
class TransactionsTotal:
    """Counts over all partitions, complete after the last one."""

    partitions: int = 0
    states: Counter[str] = field(default_factory=Counter)

    def counted(self, items: Items) -> Iterator[Transaction | PartitionTransactions]:
        for item in items:
            if isinstance(item, PartitionTransactions):
                self.partitions += 1
                self.states += item.states
            yield item


_SHOWN = {
    "state": TableColumn("state"),
    "producer_id": TableColumn("producer", right=True),
    "producer_epoch": TableColumn("epoch", right=True, priority=2),
    "first_offset": TableColumn("first", right=True, cell=lambda item: _offset(item.first_offset)),
    "last_offset": TableColumn("last", right=True, cell=lambda item: _offset(item.last_offset)),
    "records": TableColumn("records", right=True, priority=4),
    "start_timestamp": TableColumn("since", priority=3, cell=lambda item: _since(item)),
}
_PLACE = (TRANSACTION_TABLE[2], *TRANSACTION_TABLE[:2])
FIELDS = RowKind("transactions", "Transactions").of(
    "transaction",
    *(column._replace(shown=_SHOWN.get(column.name)) for column in (*_PLACE, *TRANSACTION_TABLE[3:])),
    Column(
        "age_ms", "int?", "milliseconds since its last batch; null if it has ended",
        shown=TableColumn("age", priority=1, cell=lambda item: _duration(item.age_ms)),
    ),
    Column("abort", "text?", "the command that aborts it; null if it has ended or its first offset is unknown"),
)  # fmt: skip
_PARTITION = RowKind("transactions", "Partitions with transactions", "one row per partition").of(
    "partition",
    *_PLACE,
    Column("log_end", "count?", "offset after the last record; null for a log without batches"),
    Column("last_stable_offset", "count?", "first offset that read_committed consumers do not see, or the log end"),
    Column("held_by", "int?", "producer of the earliest open transaction"),
    Column(
        "states", "object", "number of transactions by state",
        of=tuple(Column(state, "count", f"{state} transactions") for state in STATES),
    ),
    Column("unread_segments", "count", "segments that could not be read"),
)  # fmt: skip
_SUMMARY = RowKind("transactions", "Summary of transactions", "the last row").of(
    "summary",
    Column("partitions", "count", "number of partitions"),
    *(Column(one, "count", f"{one} transactions", f"states.{one}") for one in STATES),
)
ROW_KINDS = (FIELDS, _PARTITION, _SUMMARY)


def rows(items: Items, total: TransactionsTotal, states: Collection[str]) -> RowSet:
    """Return a row per transaction in ``states``, one after those of each partition, and a summary."""
    return RowSet.of(FIELDS.columns, _rows(items, total, states))


def _rows(items: Items, total: TransactionsTotal, states: Collection[str]) -> Iterator[JsonRow]:
    transaction, partition = FIELDS.maker(), _PARTITION.maker()
    for item in items:
        if isinstance(item, PartitionTransactions):
            yield partition(item)
        elif item.state in states:
            yield transaction(item)
    yield _SUMMARY.maker()(total)


COLUMNS = table_of(FIELDS.columns)
#: A hanging transaction, and its partition.
Hanging = tuple[Transaction, PartitionTransactions]


def _all(text: Callable[[Hanging], str]) -> Callable[[Sequence[Hanging]], str]:
    """Return the cell of a row of equal transactions."""
    return lambda ones: common_text(map(text, ones))


#: The columns of hanging transactions, of which a row has one, or equal ones of several partitions.
HANGING_COLUMNS = (
    TableColumn("hanging in", text="wrap", cell=lambda ones: names_text(one.folder for one, _ in ones)),
    TableColumn("producer", right=True, cell=_all(lambda one: str(one[0].producer_id))),
    TableColumn("epoch", right=True, priority=3, cell=_all(lambda one: str(one[0].producer_epoch))),
    TableColumn("offsets", cell=_all(lambda one: f"{_offset(one[0].first_offset)}..{_offset(one[0].last_offset)}")),
    TableColumn("age", priority=2, cell=_all(lambda one: _duration(one[0].age_ms))),
    TableColumn("since", priority=4, cell=_all(lambda one: _since(one[0]))),
    TableColumn("records", right=True, priority=5, cell=lambda ones: str(sum(one.records for one, _ in ones))),
    TableColumn("blocked offsets", cell=_all(lambda one: _blocked(*one))),
)
BLOCKED = "Consumers with read_committed do not see the blocked offsets."
REMEDY = "Ask the coordinator with `kafka-transactions.sh find-hanging`, then abort what it confirms:"


def write_table(
    items: Items, total: TransactionsTotal, states: Collection[str], out: TextIO, *, detail: int = 0
) -> None:
    """Write the hanging transactions with what they block and the commands that end them, the others, and a line.

    Other transactions in ``states`` have a table per partition. Several of one state are one row, unless ``detail`` is 1
    or only one state is listed. With ``detail`` 1 each partition has a line, with -1 there are no such tables.
    """
    hanging: list[Hanging] = []
    others = Spool[tuple[str, list[Row]]]()
    line, tables = "", 0
    for _, of_partition in groupby(items, key=lambda item: item.folder):
        listed = ListedTransactions(len(states) == 1 or detail > 0)
        stuck: list[Transaction] = []
        for item in of_partition:
            if isinstance(item, PartitionTransactions):
                line = f"{item.folder}: {partition_text(item)}"
                hanging += [(one, item) for one in stuck]
                if detail > 0 or (not detail and listed.count):
                    tables += 1
                    others.add((line, listed.rows()))
                    line = ""
            elif item.state == "hanging" and item.state in states:
                stuck.append(item)
            elif item.state in states:
                listed.add(item)
                if listed.is_full():
                    others.add(("", listed.rows()))
    if detail <= 0:
        hanging.sort(key=lambda one: -(one[0].age_ms or 0))
    _write_hanging(hanging, out, whole=detail > 0)
    many = detail == 0 and tables > MOST_ROWS
    if many:
        print_text(out, f"-v lists the transactions of {count_of(tables, 'partition')}")
    for text, rows in () if many else others.again():
        if rows:
            print_cells(out, COLUMNS, rows, title=text)
        elif text:
            print_text(out, text)
    others.close()
    if line and total.partitions == 1:
        print_text(out, line)
    oldest = f"; the oldest hangs in {hanging[0][0].folder}" if len(hanging) > 1 and detail <= 0 else ""
    print_text(out, summary_line(total) + oldest)


def summary_line(total: TransactionsTotal) -> str:
    if not any(total.states.values()):
        return f"no transactions in {count_of(total.partitions, 'partition')}"
    shown = [state for state in STATES if total.states[state] or state != "unknown"]
    counts = ", ".join(f"{total.states[state]:,} {state}" for state in shown)
    return f"{count_of(total.partitions, 'partition')}: {counts}"


class ListedTransactions:
    """The rows of transactions of a partition. Without ``each``, several of one state are one row."""

    def __init__(self, each: bool) -> None:
        self._each = each
        self._rows: list[Row] = []
        self._equal: dict[str, _Folded] = {}
        self.count = 0

    def add(self, item: Transaction) -> None:
        self.count += 1
        if not self._each and item.state in ("aborted", "committed"):
            self._equal.setdefault(item.state, _Folded()).add(item)
        else:
            self._rows.append((cells_of(COLUMNS, item), ""))

    def is_full(self) -> bool:
        return len(self._rows) >= PAGE_ROWS

    def rows(self) -> list[Row]:
        """Return the rows since the last call."""
        rows, self._rows = self._rows, []
        for folded in self._equal.values():
            rows += [(cells, "") for cells in folded.rows()]
        self._equal.clear()
        return rows


class _Folded:
    """The transactions of one state: the first ones, and what all of them have together."""

    def __init__(self) -> None:
        self._first: list[Transaction] = []
        self._producers: set[int] = set()
        self._count = self._records = self._last = 0

    def add(self, item: Transaction) -> None:
        self._count += 1
        self._records += item.records
        self._last = max(self._last, item.last_offset or 0)
        if len(self._first) < FOLDED:
            self._first.append(item)
        if len(self._producers) < 2:
            self._producers.add(item.producer_id)

    def rows(self) -> list[list[str]]:
        if self._count < FOLDED:
            return [cells_of(COLUMNS, item) for item in self._first]
        first = self._first[0]
        producer = str(first.producer_id) if len(self._producers) == 1 else "several"
        known = [item.first_offset for item in self._first if item.first_offset is not None]
        offsets = (str(min(known, default="?")), str(self._last))
        return [[f"{first.state} ×{self._count:,}", producer, "", *offsets, str(self._records), _since(first), ""]]


def _write_hanging(hanging: list[Hanging], out: TextIO, *, whole: bool) -> None:
    """Write the hanging transactions, of many the oldest first and equal ones as one row, and what to do."""
    if not hanging:
        return
    folders = count_of(len({one.folder for one, _ in hanging}), "partition")
    title = f"{len(hanging):,} hanging transactions in {folders}" if len(hanging) > 1 else None
    groups = fold(hanging, equal_ones, whole=whole)
    print_cells(out, HANGING_COLUMNS, cell_rows(HANGING_COLUMNS, groups, "red"), title=title)
    print_text(out, BLOCKED, indent=0)
    commands = dict.fromkeys(item.abort for item, _ in hanging if item.abort)  # replicas have the same one
    if commands:
        print_text(out, f"What to do: {REMEDY}")
        most = len(commands) if whole or len(commands) <= MOST_ROWS else MOST_NAMES
        for command in islice(commands, most):
            out.write(text_lines(out, f"  {command}", 6, " \\"))  # a terminal shows it in lines that can be copied
        if most < len(commands):
            print_text(out, f"-v lists {len(commands) - most:,} more commands")
    out.write("\n")


def equal_ones(one: Hanging) -> tuple[str, ...]:
    """Return what equal transactions have in common: first the age, by which they are ranked."""
    item = one[0]
    return (_duration(item.age_ms), str(item.producer_id), _offset(item.first_offset), _offset(item.last_offset))


def _blocked(item: Transaction, partition: PartitionTransactions) -> str:
    stable, end = partition.last_stable_offset, partition.log_end or 0
    blocks = partition.held_by == item.producer_id and stable is not None and stable < end
    return f"{stable}..{end - 1}" if blocks else "-"


def _offset(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def _since(item: Transaction) -> str:
    timestamp = item.last_timestamp if item.start_timestamp is None else item.start_timestamp
    return "" if timestamp is None else iso_time(timestamp)


def partition_text(item: PartitionTransactions) -> str:
    counts = ", ".join(f"{item.states[state]} {state}" for state in STATES if item.states[state])
    if item.unread_segments:
        unread = count_of(item.unread_segments, "segment")
        return f"{counts or 'no transactions found'}; {unread} could not be read, so the last stable offset is unknown"
    if not is_served(item.folder):
        return f"{counts or 'no transactions'}; clients cannot read this folder"
    if item.held_by is None:
        end = "" if item.last_stable_offset is None else f" {item.last_stable_offset}"
        return f"{counts or 'no transactions'}; last stable offset{end or ' unknown'}, not held by a transaction"
    if item.last_stable_offset is None:
        return f"{counts}; last stable offset unknown, producer {item.held_by} blocks it"
    blocked = f"{counts}; last stable offset {item.last_stable_offset}, producer {item.held_by} blocks it"
    if item.last_stable_offset >= (item.log_end or 0):  # DeleteRecords has moved the log start to the log end
        return f"{blocked}: read_committed consumers do not see the next records"
    unseen = inclusive_range("offset", item.last_stable_offset, (item.log_end or 0) - 1)
    return f"{blocked}: read_committed consumers do not see {unseen}"


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    if milliseconds < 0:
        return "in the future"
    seconds = milliseconds // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
