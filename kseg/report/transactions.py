"""Output of ``kseg transactions``: rows or a table, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TextIO

from kseg.commands.transactions.history import STATES, PartitionState, Transaction
from kseg.report.spool import Spool
from kseg.report.tables import FOLDED, Row, TableColumn, print_cells, print_command, print_text
from kseg.schema import Row as JsonRow
from kseg.text import count_of, escape_controls, inclusive_range, iso_time

Items = Iterable[Transaction | PartitionState]


@dataclass(slots=True)
class Total:
    """Counts over all partitions, complete after the last one."""

    partitions: int = 0
    states: Counter[str] = field(default_factory=Counter)

    def counted(self, items: Items) -> Iterator[Transaction | PartitionState]:
        for item in items:
            if isinstance(item, PartitionState):
                self.partitions += 1
                self.states += item.states
            yield item


def rows(items: Items, total: Total, states: Collection[str], now: int) -> Iterator[JsonRow]:
    """Yield a ``kind="transaction"`` row per transaction in ``states``, a "partition" row each, and a "summary"."""
    for item in items:
        if isinstance(item, PartitionState):
            counts = {state: item.states[state] for state in STATES}
            yield {"kind": "partition", **asdict(item), "states": counts}
        elif item.state in states:
            yield {"kind": "transaction", **asdict(item), "age_ms": _age(item, now), "abort": item.abort}
    yield {"kind": "summary", "partitions": total.partitions, **{state: total.states[state] for state in STATES}}


COLUMNS = (
    TableColumn("state"),
    TableColumn("producer", right=True),
    TableColumn("epoch", right=True, priority=2),
    TableColumn("first", right=True),
    TableColumn("last", right=True),
    TableColumn("records", right=True, priority=4),
    TableColumn("since", priority=3),
    TableColumn("age", priority=1),
)
HANGING_COLUMNS = (
    TableColumn("hanging in", text="wrap"),
    TableColumn("producer", right=True, priority=1),
    TableColumn("epoch", right=True, priority=3),
    TableColumn("offsets"),
    TableColumn("age"),
    TableColumn("since", priority=4),
    TableColumn("records", right=True, priority=5),
    TableColumn("blocked offsets", priority=2),
)
_PAGE_ROWS = 500
BLOCKED = "Consumers with read_committed do not see the blocked offsets."
REMEDY = "Ask the coordinator with `kafka-transactions.sh find-hanging`, then abort what it confirms:"


def write_table(items: Items, total: Total, states: Collection[str], now: int, out: TextIO, *, detail: int = 0) -> None:
    """Write the hanging transactions with what they block and the commands that end them, the others, and a line.

    Other transactions in ``states`` have a table per partition. Several of one state are one row, unless ``detail`` is 1
    or only one state is listed. With ``detail`` 1 each partition has a line, with -1 there are no such tables.
    """
    hanging: list[tuple[Transaction, PartitionState]] = []
    others = Spool[tuple[str, list[Row]]]()
    line = ""
    for _, of_partition in groupby(items, key=lambda item: item.folder):
        listed = ListedTransactions(now, len(states) == 1 or detail > 0)
        stuck: list[Transaction] = []
        for item in of_partition:
            if isinstance(item, PartitionState):
                line = escape_controls(f"{item.folder}: {partition_text(item)}")
                hanging += [(one, item) for one in stuck]
                if detail > 0 or (not detail and listed.count):
                    others.add((line, listed.rows()))
                    line = ""
            elif item.state == "hanging" and item.state in states:
                stuck.append(item)
            elif item.state in states:
                listed.add(item)
                if listed.is_full():
                    others.add(("", listed.rows()))
    _write_hanging(hanging, out, now)
    for text, rows in others.again():
        if text:
            print_text(out, text, indent=2)
        if rows:
            out.write("\n" * (not out.isatty()))
            print_cells(out, COLUMNS, rows)
    others.close()
    if line and total.partitions == 1:
        print_text(out, line, indent=2)
    out.write(f"{summary_line(total)}\n")


def summary_line(total: Total) -> str:
    """Return the summary as one line of text."""
    counts = ", ".join(f"{total.states[state]} {state}" for state in STATES)
    return f"{count_of(total.partitions, 'partition')}: {counts}"


class ListedTransactions:
    """The rows of transactions of a partition. Without ``each``, several of one state are one row."""

    def __init__(self, now: int, each: bool) -> None:
        self._now = now
        self._each = each
        self._rows: list[Row] = []
        self._equal: dict[str, _Folded] = {}
        self.count = 0

    def add(self, item: Transaction) -> None:
        self.count += 1
        if not self._each and item.state in ("aborted", "committed"):
            self._equal.setdefault(item.state, _Folded()).add(item)
        else:
            self._rows.append((transaction_cells(item, self._now), ""))

    def is_full(self) -> bool:
        return len(self._rows) >= _PAGE_ROWS

    def rows(self) -> list[Row]:
        """Return the rows since the last call."""
        rows, self._rows = self._rows, []
        for folded in self._equal.values():
            rows += [(cells, "") for cells in folded.rows(self._now)]
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

    def rows(self, now: int) -> list[list[str]]:
        if self._count < FOLDED:
            return [transaction_cells(item, now) for item in self._first]
        first = self._first[0]
        producer = str(first.producer_id) if len(self._producers) == 1 else "several"
        known = [item.first_offset for item in self._first if item.first_offset is not None]
        offsets = (str(min(known, default="?")), str(self._last))
        return [[f"{first.state} ×{self._count:,}", producer, "", *offsets, str(self._records), _since(first), ""]]


def _write_hanging(hanging: Sequence[tuple[Transaction, PartitionState]], out: TextIO, now: int) -> None:
    """Write the hanging transactions, and what to do."""
    if not hanging:
        return
    print_cells(out, HANGING_COLUMNS, [(hanging_cells(item, partition, now), "red") for item, partition in hanging])
    print_text(out, BLOCKED)
    commands = dict.fromkeys(item.abort for item, _ in hanging if item.abort)  # replicas have the same one
    if commands:
        print_text(out, f"What to do: {REMEDY}", indent=2)
        for command in commands:
            print_command(out, command)
    out.write("\n")


def hanging_cells(item: Transaction, partition: PartitionState, now: int) -> list[str]:
    """Return the cells of a hanging transaction and of the offsets that it blocks."""
    blocks = partition.held_by == item.producer_id and partition.last_stable_offset == item.first_offset
    blocked = f"{partition.last_stable_offset}..{(partition.log_end or 0) - 1}" if blocks else "-"
    span = f"{_offset(item.first_offset)}..{_offset(item.last_offset)}"
    numbers = (str(item.producer_id), str(item.producer_epoch), span)
    cells = (item.folder, *numbers, _duration(_age(item, now)), _since(item), str(item.records), blocked)
    return [*map(escape_controls, cells)]


def transaction_cells(item: Transaction, now: int) -> list[str]:
    offsets = (_offset(item.first_offset), _offset(item.last_offset))
    numbers = (item.producer_id, item.producer_epoch, *offsets, item.records)
    return [item.state, *map(str, numbers), _since(item), _duration(_age(item, now))]


def _offset(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def _since(item: Transaction) -> str:
    return _moment(item.last_timestamp if item.start_timestamp is None else item.start_timestamp)


def _age(item: Transaction, now: int) -> int | None:
    """Return the milliseconds since the last batch of an open transaction; None for ended ones."""
    if item.state in ("aborted", "committed") or item.last_timestamp is None:
        return None
    return now - item.last_timestamp


def partition_text(item: PartitionState) -> str:
    counts = ", ".join(f"{item.states[state]} {state}" for state in STATES if item.states[state])
    if item.unread_segments:
        unread = count_of(item.unread_segments, "segment")
        return f"{counts or 'no transactions found'}; {unread} could not be read, so the last stable offset is unknown"
    if item.held_by is None:
        end = "" if item.last_stable_offset is None else f" {item.last_stable_offset}"
        return f"{counts or 'no transactions'}; last stable offset{end or ' unknown'}, not held by a transaction"
    if item.last_stable_offset is None:
        return f"{counts}; last stable offset unknown, producer {item.held_by} blocks it"
    unseen = inclusive_range("offset", item.last_stable_offset or 0, (item.log_end or 0) - 1)
    return (
        f"{counts}; last stable offset {item.last_stable_offset}, producer {item.held_by} blocks it: "
        f"read_committed consumers do not see {unseen}"
    )


def _moment(timestamp: int | None) -> str:
    return "" if timestamp is None else iso_time(timestamp)


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    seconds = milliseconds // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
