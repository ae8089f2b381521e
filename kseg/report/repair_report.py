"""Output of ``kseg repair``: losses and corrections, then each file and a summary, as text or JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from kseg.commands.repair.repair_losses import (
    DuplicateBatch,
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
    RepairResult,
    SegmentRepair,
)
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.report.ranking import MOST_ROWS, fold, rule_columns, some_text, times
from kseg.report.row_formats import TextOutput, write_jsonl
from kseg.report.spool import Spool
from kseg.report.tables import print_cells, print_text
from kseg.schema import Column, RowKind, names_of, row_maker
from kseg.text import count_of, escape_controls, inclusive_range

if TYPE_CHECKING:
    from kseg.commands.repair.several_replicas import MergeResult, TakenRange

_RANGE = (
    Column("file", "text", "the source"),
    Column("position", "count", "first byte in the source"),
    Column("end", "count", "byte after the range"),
    Column("offset", "int?", "first offset; null if unknown"),
    Column("last_offset", "int?", "last offset; null if unknown"),
    Column("rule", "text", "the rule of the finding"),
    Column("why", "text", "the message of the finding"),
)
_CHANGE = (
    Column(
        "kind", "text", "mended: corrected; duplicate: a copy of a batch in the result; missing: offsets that "
        "the source lacks; gap: offsets that the result lacks and no other row has", "kind",
        values=("lost", "mended", "duplicate", "missing", "gap"),
    ),
    Column("unplaced", "bool", "whether it is a batch with a right CRC: the file `.unplaced` next to the result has it"),
    *_RANGE,
)  # fmt: skip
_PARTIAL = (
    Column("kind", "text", "salvaged"),
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
_SEGMENT = (
    Column("kind", "text", "segment"),
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
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column("files", "count", "number of segments"),
    *_COUNTS,
    Column("missing", "count", "places where the source lacks offsets"),
)
_TOTALS = names_of(_COUNTS)
_TAKEN = (
    Column("kind", "text", "taken"),
    Column("file", "text", "the replica that the batches are from"),
    Column("offset", "int", "first offset"),
    Column("last_offset", "int", "last offset"),
    Column("batches", "count", "batches from there"),
    Column("bytes", "count", "bytes of them"),
    Column("also_in", "json", "the other replicas that have the same batches"),
)
_TRUNCATED = (
    Column("kind", "text", "truncated"),
    Column("file", "text", "the replica"),
    Column("offset", "int", "offset from which on its batches belong to another history, and are not in the result"),
)
ROW_KINDS = (
    RowKind("repair", "Lost and corrected ranges", _CHANGE),
    RowKind("repair", "Batches that are kept in part", _PARTIAL),
    RowKind("repair", "Repaired segments", _SEGMENT, "a row per segment"),
    RowKind("repair", "Ranges of a result from several replicas", _TAKEN, "in the order of the offsets"),
    RowKind("repair", "Replicas with another history", _TRUNCATED),
    RowKind("repair", "Summary of a repair", _SUMMARY, "the last row"),
)


#: The words for kinds of rows in the text report, the worst first.
_WORDS = {
    "lost": "lost", "unplaced": "unplaced", "salvaged": "kept in part", "missing": "missing", "duplicate": "duplicate",
    "mended": "corrected",
}  # fmt: skip
#: The most changed segments of which each has a line without ``detail``.
_MOST_SEGMENTS = 8


class RepairText:
    """The report as text: the summary, a line per lost or corrected range, and one per file that is not copied whole.

    Many ranges are a row for each rule. With ``detail`` 1 each range and each file has a line, with -1 only the summary is
    written. The summary comes first, so the ranges are kept until the end.
    """

    def __init__(self, out: TextIO, detail: int = 0) -> None:
        self._out = out
        self._detail = detail
        self._spool = Spool[LostRange]()
        self._groups: dict[tuple[str, str], _Group] = {}
        self._count = 0
        self._merged: MergeResult | None = None

    def add(self, what: LostRange) -> None:
        if self._detail >= 0 and not isinstance(what, OffsetGap):
            self._spool.add(what)
            self._count += 1
            self._groups.setdefault((_kind(what), what.rule), _Group(what)).add(what)

    def add_replicas(self, merged: MergeResult) -> None:
        self._merged = merged

    def _write_replicas(self, merged: MergeResult) -> None:
        """Write which replica each range is from, of many ranges only how many are from each replica."""
        excluded = [(file, f"from offset {offset} on") for file, offset in merged.truncated.items()]
        if self._detail <= 0 and len(excluded) > MOST_ROWS:
            self._line(
                f"{count_of(len(excluded), 'replica')} with another history, which leader epochs exclude; the first:"
            )
            excluded = excluded[:1]
        for file, where in excluded:
            self._line(f"{file}: {where} it has another history, which leader epochs exclude")
        if self._detail < 0:
            return
        if self._detail > 0 or len(merged.taken) <= MOST_ROWS:
            for one in merged.taken:
                also = f"; the same in {', '.join(one.also_in)}" if one.also_in else ""
                batches = count_of(one.batches, "batch")
                offsets = inclusive_range("offset", one.offset, one.last_offset)
                self._line(f"{offsets} from {one.file}: {batches}{also}")
            return
        places: dict[str, list[TakenRange]] = {}
        many = len({one.file for one in merged.taken}) > MOST_ROWS
        for one in merged.taken:
            places.setdefault(os.path.dirname(one.file) if many else one.file, []).append(one)
        for place, own in places.items():
            batches = count_of(sum(one.batches for one in own), "batch")
            self._line(f"{batches} in {count_of(len(own), 'range')} from {place} (-v lists them)")

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        self._line(summary_line(result))
        if self._merged is not None:
            self._write_replicas(self._merged)
        if self._detail > 0 or self._count <= MOST_ROWS:
            for what in self._spool.again():
                place = f"{_WORDS[_kind(what)]:9} {what.file}: {_place(what)}"
                self._line(f"{place}: {what.rule}: {what.why}")
        else:
            ranked = sorted(self._groups.values(), key=lambda group: group.key)
            self._out.write("\n" * (not self._out.isatty()))
            rows = fold(ranked, lambda group: group.key)
            print_cells(self._out, rule_columns("change", "bytes"), [(_cells(groups), "") for groups in rows])
        self._spool.close()
        changed = [one for one in result.segments if self._detail > 0 or not _is_whole(one)]
        many = self._detail == 0 and len(changed) > _MOST_SEGMENTS
        for one in [] if many or self._detail < 0 else changed if len(result.segments) > 1 else result.segments:
            self._line(f"{one.source if plan.dry_run or not one.target else one.target}: {_counts(one, plan)}")
        if many or (self._detail == 0 and self._count > MOST_ROWS):
            self._line(f"-v lists each place and each of the {count_of(len(changed), 'changed segment')}")
        if len(result.segments) > 1:
            worst = max(result.segments, key=lambda one: one.lost_bytes)
            named = f"; the worst: {worst.source}" if worst.lost_bytes else ""
            self._line(f"total: {_counts(_total(result), plan)}{named}")

    def _line(self, text: str) -> None:
        print_text(self._out, escape_controls(text), indent=2)


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


def _cells(groups: Sequence[_Group]) -> list[str]:
    first, places = groups[0].first, sum(group.places for group in groups)
    rules = [times(group.first.rule, group.places) for group in groups]
    return [
        times(_WORDS[_kind(first)], places if len(groups) > 1 else 1),
        some_text(rules),
        f"{sum(group.bytes for group in groups):,}",
        escape_controls(f"{first.file}: {_place(first)}"),
    ]


def _kind(what: LostRange) -> str:
    return "unplaced" if what.unplaced else what.kind


def summary_line(result: RepairResult) -> str:
    """Return the losses and corrections as one line of text."""
    verdict = _verdict(_total(result), result) if result.segments else "no segment was read"
    if not result.failed:
        return verdict
    return (
        f"{count_of(len(result.failed), 'partition')} not repaired; {'in the others ' * bool(result.segments)}{verdict}"
    )


def _is_whole(one: SegmentRepair) -> bool:
    """Return whether all of a segment was copied unchanged."""
    return not (one.dropped or one.lost_bytes or one.mended or one.salvaged or one.zeros)


def _place(what: LostRange) -> str:
    """Return the bytes and offsets of a range; a copy loses no offsets."""
    return _bytes(what) + ("" if isinstance(what, DuplicateBatch) else f", {_offsets(what)}")


def _bytes(what: LostRange) -> str:
    """Return the bytes of a range as text; both ends are inclusive there."""
    return inclusive_range("byte", what.position, max(what.position, what.end - 1))


def _offsets(what: LostRange) -> str:
    text = what.offsets_text
    if isinstance(what, PartlyKeptBatch):
        return f"{text}; kept {inclusive_range('offset', what.kept_offset, what.last_kept_offset)}"
    return text


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
    before, renamed = len(result.lost_before), result.renamed
    missing = len(result.missing) - before
    earlier = f"offsets lost before this repair in {count_of(before, 'place')}" if before else ""
    lost = ranges if some else earlier or "no data lost"
    lost += f" in the other replicas; {count_of(len(result.unread), 'replica')} unreadable" if result.unread else ""
    lost += f"; {earlier}" if some and before else ""
    lost += f"; offsets missing between segments in {count_of(missing, 'place')}" if missing else ""
    names = f"; {count_of(renamed, 'segment name')} corrected" if renamed else ""
    salvaged = f"; {count_of(one.salvaged, 'batch')} kept in part" if one.salvaged else ""
    unplaced = (
        f"; {count_of(one.unplaced, 'batch')} with a right CRC left out, in .unplaced files" if one.unplaced else ""
    )
    copies = f"; {count_of(one.duplicates, 'duplicate batch')} left out" if one.duplicates else ""
    others = f"{names}{salvaged}{unplaced}{copies}"
    corrected = f"; {count_of(one.mended, 'batch')} corrected" if one.mended or not others else ""
    return f"{lost}{corrected}{others}"


def _total(result: RepairResult) -> SegmentRepair:
    """Return the sums of all segments."""
    counts = {name: sum(getattr(one, name) for one in result.segments) for name in _TOTALS}
    return SegmentRepair("", "", **counts)


class RepairJsonLines:
    """The report as JSON Lines: one row per loss or correction, a "segment" per file, a "summary"."""

    def __init__(self, out: TextOutput, detail: int = 0) -> None:
        self._out = out

    def add(self, what: LostRange) -> None:
        write_jsonl([row_maker(_PARTIAL if isinstance(what, PartlyKeptBatch) else _CHANGE)(what)], self._out)

    def add_replicas(self, merged: MergeResult) -> None:
        write_jsonl(map(row_maker(_TAKEN), merged.taken), self._out)
        rows = ({"kind": "truncated", "file": file, "offset": offset} for file, offset in merged.truncated.items())
        write_jsonl(map(row_maker(_TRUNCATED), rows), self._out)

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        dry_run = {"target": None} if plan.dry_run else {}
        write_jsonl((row_maker(_SEGMENT)(one) | dry_run for one in result.segments), self._out)
        counts = {"files": len(result.segments), "missing": len(result.missing), **asdict(_total(result))}
        write_jsonl([row_maker(_SUMMARY)(counts)], self._out)
