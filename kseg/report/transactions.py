"""Output of ``kseg transactions``: rows or a table, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TextIO

from kseg.commands.transactions.history import STATES, PartitionState, Transaction
from kseg.schema import Row
from kseg.text import count_of, escape_controls, iso_time

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


def write_table(items: Items, total: Total, states: Collection[str], now: int, out: TextIO) -> None:
    """Write one line per transaction in ``states``, and after them one line per partition."""
    headed = False
    for item in items:
        if isinstance(item, PartitionState):
            out.write(escape_controls(f"{item.folder}: {_partition_text(item)}") + "\n")
            headed = False
        elif item.state in states:
            if not headed:
                out.write(f"{'state':<10} {'producer':>12} {'epoch':>5} {'first':>12} {'last':>12} "
                          f"{'records':>9}  {'since':<24} age\n")  # fmt: skip
                headed = True
            _write_transaction(item, out, now)
    counts = ", ".join(f"{total.states[state]} {state}" for state in STATES)
    out.write(f"{count_of(total.partitions, 'partition')}: {counts}\n")


def _write_transaction(item: Transaction, out: TextIO, now: int) -> None:
    since = item.last_timestamp if item.start_timestamp is None else item.start_timestamp
    out.write(
        f"{item.state:<10} {item.producer_id:>12} {item.producer_epoch:>5} {item.first_offset:>12} "
        f"{item.last_offset:>12} {item.records:>9}  {_moment(since):<24} {_duration(_age(item, now))}\n"
    )
    if item.state == "hanging" and item.abort:
        out.write(escape_controls(f"  {item.abort}") + "\n")


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
    behind = (item.log_end or 0) - (item.last_stable_offset or 0)
    return (
        f"{counts}; last stable offset {item.last_stable_offset}, held by producer {item.held_by}: "
        f"read_committed consumers miss {count_of(behind, 'offset')} up to {item.log_end}"
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
