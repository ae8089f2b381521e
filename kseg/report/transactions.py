"""Output of ``kseg transactions``: rows or a table, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TextIO

from kseg.commands.transactions.history import STATES, PartitionState, Transaction
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Row
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


def rows(items: Items, total: Total, states: Collection[str], now: int) -> Iterator[Row]:
    """Yield a ``kind="transaction"`` row per transaction in ``states``, a "partition" row each, and a "summary"."""
    for item in items:
        if isinstance(item, PartitionState):
            counts = {state: item.states[state] for state in STATES}
            yield {"kind": "partition", **asdict(item), "states": counts}
        elif item.state in states:
            yield {"kind": "transaction", **asdict(item), "age_ms": _age(item, now), "abort": item.abort}
    yield {"kind": "summary", "partitions": total.partitions, **{state: total.states[state] for state in STATES}}


_COLUMNS = (
    TableColumn("state"),
    TableColumn("producer", right=True),
    TableColumn("epoch", right=True, priority=2),
    TableColumn("first", right=True),
    TableColumn("last", right=True),
    TableColumn("records", right=True, priority=4),
    TableColumn("since", priority=3),
    TableColumn("age", priority=1),
)
_PAGE_ROWS = 500


def write_table(items: Items, total: Total, states: Collection[str], now: int, out: TextIO) -> None:
    """Write a table of the transactions in ``states`` per partition, the commands that end hanging ones, and a line."""
    for _, of_partition in groupby(items, key=lambda item: item.folder):
        listed: list[Transaction] = []
        for item in of_partition:
            if isinstance(item, PartitionState):
                _write_transactions(listed, out, now)
                listed = []
                print_text(out, escape_controls(f"{item.folder}: {_partition_text(item)}"))
            elif item.state in states:
                listed.append(item)
            if len(listed) == _PAGE_ROWS:
                _write_transactions(listed, out, now)
                listed = []
    counts = ", ".join(f"{total.states[state]} {state}" for state in STATES)
    out.write(f"{count_of(total.partitions, 'partition')}: {counts}\n")


def _write_transactions(listed: list[Transaction], out: TextIO, now: int) -> None:
    if not listed:
        return
    print_cells(out, _COLUMNS, [(_cells(item, now), "red" if item.state == "hanging" else "") for item in listed])
    for item in listed:
        if item.state == "hanging" and item.abort:
            out.write(escape_controls(f"  {item.abort}") + "\n")


def _cells(item: Transaction, now: int) -> list[str]:
    since = item.last_timestamp if item.start_timestamp is None else item.start_timestamp
    numbers = (item.producer_id, item.producer_epoch, item.first_offset, item.last_offset, item.records)
    return [item.state, *map(str, numbers), _moment(since), _duration(_age(item, now))]


def _age(item: Transaction, now: int) -> int | None:
    """Return the milliseconds since the last batch of an open transaction; None for ended ones."""
    if item.state in ("aborted", "committed") or item.last_timestamp is None:
        return None
    return now - item.last_timestamp


def _partition_text(item: PartitionState) -> str:
    counts = ", ".join(f"{item.states[state]} {state}" for state in STATES if item.states[state])
    if item.held_by is None:
        end = "" if item.last_stable_offset is None else f" {item.last_stable_offset}"
        return f"{counts or 'no transactions'}; last stable offset{end or ' unknown'}, not held by a transaction"
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
