"""All entries of a segment's indexes, and their checks, which need no log.

The checks are the ``sanityCheck`` of Kafka's ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex``, and the rules of
their ``append``. Each ``walk`` function yields (byte of the index, entry). Offset and time indexes can also be read run by
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import Generic, TypeVar

from kseg.findings import Finding, Report, do_nothing
from kseg.format.record.layout import INT32_MAX
from kseg.format.sidefiles.index_columns import Columns, Order, offset_columns, time_columns
from kseg.format.sidefiles.indexes import (
    ABORTED_TXN,
    OFFSET_ENTRY,
    TIME_ENTRY,
    VERSION,
    AbortedTxn,
    OffsetEntry,
    StaleEntries,
    TimeEntry,
    of_single_index,
)
from kseg.format.sidefiles.side_file_reading import fixed_runs
from kseg.format.storage.source import Source
from kseg.text import iso_time

_Entry = TypeVar("_Entry", OffsetEntry, TimeEntry)


@dataclass(frozen=True, slots=True)
class IndexRun(Generic[_Entry]):
    """Consecutive entries of ``size`` bytes, from byte ``at`` of the index on, as the columns of their two fields."""

    at: int
    size: int
    columns: Columns
    make: Callable[[int, int], _Entry]

    def __len__(self) -> int:
        return len(self.columns[0])

    def entry(self, row: int) -> tuple[int, _Entry]:
        """Return (byte of the index, entry) of a row."""
        return self.at + row * self.size, self.make(self.columns[0][row], self.columns[1][row])

    def entries(self) -> Iterator[tuple[int, _Entry]]:
        """Yield (byte of the index, entry) of all rows."""
        return zip(count(self.at, self.size), map(self.make, *self.columns), strict=False)


def offset_runs(
    source: Source, base_offset: int, report: Report = do_nothing, stale: StaleEntries | None = None
) -> Iterator[IndexRun[OffsetEntry]]:
    """Yield the entries of an ``.index``, without the zeros at the end of a preallocated one.

    Reading ends at the first decreasing entry that ``stale`` decides to be stale.
    """
    size = OFFSET_ENTRY.size

    def check(at: int, entry: OffsetEntry, before: OffsetEntry | None) -> None:
        if entry.offset < base_offset:
            _below_base(at, size, entry.offset, base_offset, report)
            return
        why = f"follows offset {before.offset} at byte {before.log_position}" if before else "is not a valid position"
        report(Finding("index-not-increasing", at, at + size, entry.offset, facts={**entry._asdict(), "why": why}))

    blocks = fixed_runs(source, size, report, preallocated=True)
    runs = (IndexRun(at, size, offset_columns(block, base_offset), OffsetEntry) for at, block in blocks)
    return _checked_runs(runs, Order(base_offset, 0, 1), check, stale)


def time_runs(
    source: Source, base_offset: int, report: Report = do_nothing, stale: StaleEntries | None = None
) -> Iterator[IndexRun[TimeEntry]]:
    """Yield the entries of a ``.timeindex``, with the rules of offset_runs."""
    size = TIME_ENTRY.size

    def check(at: int, entry: TimeEntry, before: TimeEntry | None) -> None:
        if entry.offset < base_offset:
            _below_base(at, size, entry.offset, base_offset, report)
            return
        why = f"follows {iso_time(before.timestamp)} of offset {before.offset}" if before else "is not a valid time"
        report(Finding("time-index-not-increasing", at, at + size, entry.offset, facts={**entry._asdict(), "why": why}))

    blocks = fixed_runs(source, size, report, preallocated=True)
    runs = (IndexRun(at, size, time_columns(block, base_offset), TimeEntry) for at, block in blocks)
    return _checked_runs(runs, Order(0, base_offset, 0), check, stale)


def _checked_runs(
    runs: Iterator[IndexRun[_Entry]],
    order: Order,
    check: Callable[[int, _Entry, _Entry | None], None],
    stale: StaleEntries | None,
) -> Iterator[IndexRun[_Entry]]:
    """Yield the runs. Call ``check`` with each entry that is out of order, and the entry before it."""
    before: _Entry | None = None
    for run in runs:
        row = order.next_break(*run.columns, 0)
        while row < len(run):
            at, entry = run.entry(row)
            if stale and stale.stale_from(at):
                if row:
                    yield IndexRun(run.at, run.size, (run.columns[0][:row], run.columns[1][:row]), run.make)
                return
            check(at, entry, run.entry(row - 1)[1] if row else before)
            row = order.next_break(*run.columns, row + 1)
        before = run.entry(len(run) - 1)[1]
        yield run


def walk_offset_index(
    source: Source, base_offset: int, report: Report = do_nothing
) -> Iterator[tuple[int, OffsetEntry]]:
    """Yield the entries of an ``.index`` without stale ones at its end (reported as ``stale-index-entries``)."""
    stale = of_single_index(source.name, OFFSET_ENTRY, base_offset)
    for run in offset_runs(source, base_offset, report, stale):
        yield from run.entries()
    if stale:
        stale.report(report)


def walk_time_index(source: Source, base_offset: int, report: Report = do_nothing) -> Iterator[tuple[int, TimeEntry]]:
    """Yield the entries of a ``.timeindex`` without stale ones at its end (reported as ``stale-index-entries``)."""
    stale = of_single_index(source.name, TIME_ENTRY, base_offset)
    for run in time_runs(source, base_offset, report, stale):
        yield from run.entries()
    if stale:
        stale.report(report)


def walk_txn_index(source: Source, base_offset: int, report: Report = do_nothing) -> Iterator[tuple[int, AbortedTxn]]:
    """Yield the entries of a ``.txnindex``. Entries of an unknown version are read with the known layout."""
    before: AbortedTxn | None = None
    size = ABORTED_TXN.size
    runs = (zip(count(at, size), ABORTED_TXN.iter_unpack(run)) for at, run in fixed_runs(source, size, report))
    for at, (version, *fields) in chain.from_iterable(runs):
        entry = AbortedTxn._make((*fields, version))
        end = at + size
        if version != VERSION:
            facts: dict[str, object] = {"version": version}
            report(Finding("txn-index-version", at, end, facts=facts))
        elif entry.last_offset < base_offset:
            _below_base(at, size, entry.last_offset, base_offset, report)
        else:
            facts = {"producer_id": entry.producer_id, "first": entry.first_offset, "last": entry.last_offset}
            place = at, end, entry.first_offset, entry.last_offset
            if why := _disorder(entry, before, base_offset):
                report(Finding("txn-index-order", *place, facts={**facts, "why": why}))
            elif entry.is_ahead:
                report(Finding("late-stable-offset", *place, facts={**facts, "stable": entry.last_stable_offset}))
        yield at, entry
        before = entry


def _disorder(entry: AbortedTxn, before: AbortedTxn | None, base_offset: int) -> str | None:
    if not 0 <= entry.first_offset <= entry.last_offset:
        return "the first offset is above the last"
    if entry.is_ahead and entry.last_stable_offset > base_offset + INT32_MAX:
        return f"a segment from offset {base_offset} cannot have the last stable offset {entry.last_stable_offset}"
    if before and entry.last_offset <= before.last_offset:
        return f"the previous marker, at offset {before.last_offset}, is not before this one"
    return None


def _below_base(at: int, size: int, offset: int, base_offset: int, report: Report) -> None:
    facts = {"offset": offset, "base": base_offset}
    report(Finding("index-below-base", at, at + size, offset, facts=facts))
