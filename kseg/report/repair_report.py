"""Output of ``kseg repair``: losses and corrections, then each file and a summary, as text or JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from kseg.commands.repair.repair_losses import (
    DuplicateBatch,
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
    RepairResult,
    SegmentRepair,
)
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.report.row_formats import Spool
from kseg.report.tables import TableColumn, cell_rows, print_cells, print_text
from kseg.report.wording import MOST_ROWS, fold, grouped, some_text, times
from kseg.schema import Column, Row, RowKind, names_of
from kseg.text import count_of, inclusive_range

_RANGE = (
    Column("file", "text", "the source"),
    Column("position", "count", "first byte in the source"),
    Column("end", "count", "byte after the range"),
    Column("offset", "int?", "first offset; null if unknown"),
    Column("last_offset", "int?", "last offset; null if unknown"),
    Column("rule", "text", "the rule of the finding"),
    Column("why", "text", "the message of the finding"),
)
_CHANGE = RowKind("repair", "Lost and corrected ranges").of(
    Column(
        "kind", "text", "mended: corrected; duplicate: a copy of a batch in the result; missing: offsets that "
        "the source lacks; gap: offsets that the result lacks and no other row has; uncertain: records of the result that "
        "may be deleted ones", "kind", values=("lost", "mended", "duplicate", "missing", "gap", "uncertain"),
    ),
    Column("unplaced", "bool", "whether it is a batch with a right CRC: the file `.unplaced` next to the result has it"),
    *_RANGE,
)  # fmt: skip
_PARTIAL = RowKind("repair", "Batches that are kept in part").of(
    "salvaged",
    *_RANGE,
    Column("records", "count", "records before the fault, which are kept"),
    Column("kept_offset", "int", "first offset of them"),
    Column("last_kept_offset", "int", "last offset of them"),
)
_COUNTS = (
    Column("kept", "count", "batches in the result"),
    Column("dropped", "count", "batches that are not"),
    Column("records", "count", "records in the result"),
    Column("mended", "count", "kept batches that were corrected"),
    Column("salvaged", "count", "kept batches without the records after a fault"),
    Column("unplaced", "count", "valid batches that are in the file `.unplaced` next to the result"),
    Column("duplicates", "count", "copies of batches in the result, which are left out"),
    Column("bytes_before", "count", "bytes of the source"),
    Column("bytes_after", "count", "bytes of the result"),
    Column("lost_bytes", "count", "bytes of the source that are not in the result"),
    Column("lost_ranges", "count", "ranges of these bytes"),
    Column("zeros", "count", "bytes of zeros at the end, which are removed"),
)
_SEGMENT = RowKind("repair", "Repaired segments", "a row per segment").of(
    "segment",
    Column("source", "text", "the segment"),
    Column("target", "text?", "the result; null with `--dry-run`"),
    *_COUNTS,
    Column("lost_to", "count", "byte after the last lost range in the source"),
    Column("misfits", "count", "batches with offsets after the end of the segment"),
    Column("first_offset", "int?", "first kept offset"),
    Column("last_offset", "int?", "last kept offset"),
    Column("first_lost_offset", "int?", "first offset from which on the result differs; null if nothing was lost"),
    Column("epochs_mended", "count", "batches that got another leader epoch"),
    Column("last_epoch", "int", "the last leader epoch; -1 is none"),
    Column("leader_epochs", "json", "[epoch, first offset, last offset] of the kept batches"),
    Column("legacy", "bool", "whether kept batches are v0 or v1"),
)
_SUMMARY = RowKind("repair", "Summary of a repair", "the last row").of(
    "summary",
    Column("files", "count", "number of segments"),
    *_COUNTS,
    Column("missing", "count", "places where the source lacks offsets"),
)
_TOTALS = names_of(_COUNTS)
_TAKEN = RowKind("repair", "Ranges of a result from several replicas", "in the order of the offsets").of(
    "taken",
    Column("file", "text", "the replica that the batches are from"),
    Column("offset", "int", "first offset"),
    Column("last_offset", "int", "last offset"),
    Column("batches", "count", "batches from there"),
    Column("bytes", "count", "bytes of them"),
    Column("also_in", "json", "the other replicas that have the same batches"),
)
_TRUNCATED = RowKind("repair", "Replicas with another history").of(
    "truncated",
    Column("file", "text", "the replica"),
    Column("offset", "int", "offset from which on its batches belong to another history, and are not in the result"),
)
ROW_KINDS = (_CHANGE, _PARTIAL, _SEGMENT, _TAKEN, _TRUNCATED, _SUMMARY)


#: The words for kinds of rows in the text report, the worst first.
_WORDS = {
    "lost": "lost", "unplaced": "unplaced", "salvaged": "kept in part", "missing": "missing", "uncertain": "uncertain",
    "duplicate": "duplicate", "mended": "corrected",
}  # fmt: skip
#: The most changed segments of which each has a line without ``detail``.
_MOST_SEGMENTS = 8


def write_text(
    changes: Spool[LostRange], result: RepairResult, plan: RepairPlan, out: TextIO, *, detail: int = 0
) -> None:
    """Write the summary, a line per lost or corrected range, and one per file that is not copied whole.

    Many ranges are a row for each rule. With ``detail`` 1 each range and each file has a line, with -1 only the summary is
    written.
    """
    print_text(out, summary_line(result))
    _write_replicas(result, out, detail)
    groups: dict[tuple[str, str], _Group] = {}
    for what in _shown(changes, detail):
        groups.setdefault((_kind(what), what.rule), _Group(what)).add(what)
    count = sum(group.places for group in groups.values())
    if detail > 0 or count <= MOST_ROWS:
        for what in _shown(changes, detail):
            place = f"{_WORDS[_kind(what)]:9} {what.file}: {_place(what)}"
            print_text(out, f"{place}: {what.rule}: {what.why}")
    else:
        folded = fold(sorted(groups.values(), key=lambda group: group.key), lambda group: group.key)
        print_cells(out, _COLUMNS, cell_rows(_COLUMNS, folded), title="")
    changed = [
        one for one in result.segments
        if detail > 0 or one.dropped or one.lost_bytes or one.mended or one.salvaged or one.zeros
    ]  # fmt: skip
    many = detail == 0 and len(changed) > _MOST_SEGMENTS
    for one in [] if many or detail < 0 else changed if len(result.segments) > 1 else result.segments:
        print_text(out, f"{one.source if plan.dry_run or not one.target else one.target}: {_counts(one, plan)}")
    if many or (detail == 0 and count > MOST_ROWS):
        print_text(out, f"-v lists each place and each of the {count_of(len(changed), 'changed segment')}")
    if len(result.segments) > 1:
        worst = max(result.segments, key=lambda one: one.lost_bytes)
        named = f"; the worst: {worst.source}" if worst.lost_bytes else ""
        print_text(out, f"total: {_counts(_total(result), plan)}{named}")


def _shown(changes: Spool[LostRange], detail: int) -> Iterator[LostRange]:
    return (what for what in changes.again() if detail >= 0 and not isinstance(what, OffsetGap))


def _write_replicas(result: RepairResult, out: TextIO, detail: int) -> None:
    """Write which replica each range is from, of many ranges only how many are from each replica."""
    excluded, taken = result.truncated, result.taken
    if detail <= 0 and len(excluded) > MOST_ROWS:
        count = count_of(len(excluded), "replica")
        print_text(out, f"{count} with another history, which leader epochs exclude; the first:")
        excluded = excluded[:1]
    for file, offset in excluded:
        print_text(out, f"{file}: from offset {offset} on it has another history, which leader epochs exclude")
    if detail < 0:
        return
    if detail > 0 or len(taken) <= MOST_ROWS:
        for one in taken:
            also = f"; the same in {', '.join(one.also_in)}" if one.also_in else ""
            batches = count_of(one.batches, "batch")
            offsets = inclusive_range("offset", one.offset, one.last_offset)
            print_text(out, f"{offsets} from {one.file}: {batches}{also}")
        return
    many = len({one.file for one in taken}) > MOST_ROWS
    places = grouped(taken, lambda one: os.path.dirname(one.file) if many else one.file)
    for place, own in places.items():
        batches = count_of(sum(one.batches for one in own), "batch")
        print_text(out, f"{batches} in {count_of(len(own), 'range')} from {place} (-v lists them)")


class _Group:
    """The changes of one kind by one rule: their number, their bytes, and the first one."""

    def __init__(self, first: LostRange) -> None:
        self.first = first
        self.places = self.bytes = 0

    def add(self, what: LostRange) -> None:
        self.places += 1
        self.bytes += what.end - what.position

    @property
    def key(self) -> tuple[int, int, str]:
        """The rank of the kind, and that of the group in it: worst first."""
        return list(_WORDS).index(_kind(self.first)), -self.bytes, self.first.rule


#: The columns of the changes by one rule, or of those of one kind.
_COLUMNS = (
    TableColumn("change", cell=lambda groups: times(
        _WORDS[_kind(groups[0].first)], sum(group.places for group in groups) if len(groups) > 1 else 1)),
    TableColumn("rule", text="wrap", cell=lambda groups: some_text(
        [times(group.first.rule, group.places) for group in groups])),
    TableColumn("bytes", right=True, cell=lambda groups: sum(group.bytes for group in groups)),
    TableColumn("the first", text="wrap", cell=lambda groups: f"{groups[0].first.file}: {_place(groups[0].first)}"),
)  # fmt: skip


def _kind(what: LostRange) -> str:
    return "unplaced" if what.unplaced else what.kind


def summary_line(result: RepairResult) -> str:
    """Return the losses and corrections as one line of text."""
    verdict = _verdict(_total(result), result) if result.segments else "no segment was read"
    if not result.failed:
        return verdict
    failed = count_of(len(result.failed), "partition")
    return f"{failed} not repaired; {'in the others ' * bool(result.segments)}{verdict}"


def _place(what: LostRange) -> str:
    """Return the bytes and offsets of a range, both ends inclusive; a copy loses no offsets."""
    place = inclusive_range("byte", what.position, max(what.position, what.end - 1))
    if isinstance(what, DuplicateBatch):
        return place
    place += f", {what.offsets_text}"
    if isinstance(what, PartlyKeptBatch):
        place += f"; kept {inclusive_range('offset', what.kept_offset, what.last_kept_offset)}"
    return place


def _counts(one: SegmentRepair, plan: RepairPlan) -> str:
    if plan.indexes_only:
        indexed = f"{count_of(one.kept, 'batch')} indexed"
        return f"{indexed}, {count_of(one.records, 'record')}, {count_of(one.bytes_before, 'byte')}"
    zeros = f"; {count_of(one.zeros, 'byte')} of zeros at the end removed" if one.zeros else ""
    return (
        f"{count_of(one.kept, 'batch')} kept, {one.dropped:,} dropped; {count_of(one.records, 'record')}; "
        f"{one.bytes_before:,} -> {count_of(one.bytes_after, 'byte')}, {one.lost_bytes:,} {_lost(one)}{zeros}"
    )


def _lost(one: SegmentRepair) -> str:
    """Return the word for ranges that are not in the result: those in a file ``.unplaced`` are not lost."""
    return "lost or left out" if one.unplaced else "lost"


def _verdict(one: SegmentRepair, result: RepairResult) -> str:
    some = one.lost_ranges or one.salvaged
    ranges = f"{count_of(one.lost_ranges, 'range')} {_lost(one)} ({count_of(one.lost_bytes, 'byte')})"
    before = len(result.lost_before)
    missing = len(result.missing) - before
    earlier = f"offsets lost before this repair in {count_of(before, 'place')}" if before else ""
    lost = ranges if some else earlier or "no data lost"
    lost += f" in the other replicas; {count_of(len(result.unread), 'replica')} unreadable" if result.unread else ""
    lost += f"; {earlier}" if some and before else ""
    lost += f"; offsets missing between segments in {count_of(missing, 'place')}" if missing else ""
    lost += "; some records may be deleted ones" if result.uncertain else ""
    names = f"; {count_of(result.renamed, 'segment name')} corrected" if result.renamed else ""
    names += f"; {count_of(result.split_off, 'segment')} split off" if result.split_off else ""
    salvaged = f"; {count_of(one.salvaged, 'batch')} kept in part" if one.salvaged else ""
    left_out = f"; {count_of(one.unplaced, 'batch')} with a right CRC left out, in .unplaced files"
    unplaced = left_out if one.unplaced else ""
    copies = f"; {count_of(one.duplicates, 'duplicate batch')} left out" if one.duplicates else ""
    others = f"{names}{salvaged}{unplaced}{copies}"
    corrected = f"; {count_of(one.mended, 'batch')} corrected" if one.mended or not others else ""
    return f"{lost}{corrected}{others}"


def _total(result: RepairResult) -> SegmentRepair:
    counts = {name: sum(getattr(one, name) for one in result.segments) for name in _TOTALS}
    return SegmentRepair("", "", **counts)


def rows(changes: Spool[LostRange], result: RepairResult, plan: RepairPlan) -> Iterator[Row]:
    """Yield a row per loss or correction, a "segment" per file, and a "summary"."""
    for what in changes.again():
        yield from (_PARTIAL if isinstance(what, PartlyKeptBatch) else _CHANGE).rows([what])
    yield from _TAKEN.rows(result.taken)
    yield from _TRUNCATED.rows(
        {"kind": "truncated", "file": file, "offset": offset} for file, offset in result.truncated
    )
    dry_run = {"target": None} if plan.dry_run else {}
    yield from (_SEGMENT.maker()(one) | dry_run for one in result.segments)
    counts = {"files": len(result.segments), "missing": len(result.missing), **asdict(_total(result))}
    yield _SUMMARY.maker()(counts)
