"""Walk the indexes beside a segment, entry by entry, and say what a look-up in them would stumble over.

What is checked is what can be told without the log: ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex`` of Kafka,
their ``sanityCheck`` and what their ``append`` refuses. Each function yields (byte of the index, entry).
"""

from __future__ import annotations

from collections.abc import Iterator

from kseg.beside.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from kseg.beside.side_reading import fixed_entries
from kseg.beside.txn_index import ABORTED_TXN, VERSION, AbortedTxn
from kseg.files.storage import Source
from kseg.findings import Finding, Report, ignore


def walk_offset_index(source: Source, base_offset: int, report: Report = ignore) -> Iterator[tuple[int, OffsetEntry]]:
    """The entries of an ``.index``, without the zeros at the end of a preallocated one."""
    before: OffsetEntry | None = None
    for at, (relative, log_position) in fixed_entries(source, OFFSET_ENTRY, report, preallocated=True):
        entry = OffsetEntry(base_offset + relative, log_position)
        if relative < 0:
            _below_base(at, OFFSET_ENTRY.size, entry.offset, base_offset, report)
        elif log_position < 0 or (before and (entry.offset <= before.offset or log_position <= before.log_position)):
            facts = {
                "offset": entry.offset,
                "log_position": log_position,
                "why": f"after offset {before.offset} at byte {before.log_position}" if before else "is no place",
            }
            report(Finding("index-not-increasing", at, at + OFFSET_ENTRY.size, entry.offset, facts=facts))
        yield at, entry
        before = entry


def walk_time_index(source: Source, base_offset: int, report: Report = ignore) -> Iterator[tuple[int, TimeEntry]]:
    """The entries of a ``.timeindex``, without the zeros at the end of a preallocated one."""
    before: TimeEntry | None = None
    for at, (timestamp, relative) in fixed_entries(source, TIME_ENTRY, report, preallocated=True):
        entry = TimeEntry(timestamp, base_offset + relative)
        if relative < 0:
            _below_base(at, TIME_ENTRY.size, entry.offset, base_offset, report)
        elif timestamp < 0 or (before and (timestamp <= before.timestamp or entry.offset < before.offset)):
            why = f"after {before.timestamp} of offset {before.offset}" if before else "is no time"
            facts = {"timestamp": timestamp, "offset": entry.offset, "why": why}
            report(Finding("time-index-not-increasing", at, at + TIME_ENTRY.size, entry.offset, facts=facts))
        yield at, entry
        before = entry


def walk_txn_index(source: Source, base_offset: int, report: Report = ignore) -> Iterator[tuple[int, AbortedTxn]]:
    """The entries of a ``.txnindex``, those of another version too, read as if they were of this."""
    before: AbortedTxn | None = None
    for at, (version, *fields) in fixed_entries(source, ABORTED_TXN, report):
        entry = AbortedTxn._make((*fields, version))
        end = at + ABORTED_TXN.size
        if version != VERSION:
            facts: dict[str, object] = {"version": version}
            report(Finding("txn-index-version", at, end, facts=facts))
        elif entry.last_offset < base_offset:
            _below_base(at, ABORTED_TXN.size, entry.last_offset, base_offset, report)
        elif why := _disorder(entry, before):
            facts = {"producer_id": entry.producer_id, "first": entry.first_offset, "last": entry.last_offset}
            report(
                Finding("txn-index-order", at, end, entry.first_offset, entry.last_offset, facts={**facts, "why": why})
            )
        yield at, entry
        before = entry


def _disorder(entry: AbortedTxn, before: AbortedTxn | None) -> str | None:
    if not 0 <= entry.first_offset <= entry.last_offset:
        return "are no range"
    if entry.last_stable_offset > entry.last_offset + 1:
        return f"have a last stable offset behind their marker, {entry.last_stable_offset}"
    if before and entry.last_offset <= before.last_offset:
        return f"stand after a marker at {before.last_offset}"
    return None


def _below_base(at: int, size: int, offset: int, base_offset: int, report: Report) -> None:
    facts = {"offset": offset, "base": base_offset}
    report(Finding("index-below-base", at, at + size, offset, facts=facts))
