"""Output of ``kseg repair``: losses and corrections, then each file and a summary, as text or JSON Lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

from kseg.commands.repair.repair_losses import (
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
    RepairResult,
    SegmentRepair,
)
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.report.row_formats import TextOutput, write_jsonl
from kseg.report.tables import print_text
from kseg.schema import Column, RowKind, names_of, row_maker
from kseg.text import count_of, escape_controls

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
        "kind", "text", "mended: corrected; duplicate: a copy of a batch in the result; missing: offsets between two "
        "segments that the source lacks; gap: offsets that the result lacks and no other row has", "kind",
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
    Column("missing", "count", "places where offsets are missing between segments"),
)
_TOTALS = names_of(_COUNTS)
ROW_KINDS = (
    RowKind("repair", "Lost and corrected ranges", _CHANGE),
    RowKind("repair", "Batches that are kept in part", _PARTIAL),
    RowKind("repair", "Repaired segments", _SEGMENT, "a row per segment"),
    RowKind("repair", "Summary of a repair", _SUMMARY, "the last row"),
)


#: The words for kinds of rows in the text report.
_KINDS = {"mended": "corrected"}


class RepairText:
    """The report as text: a line per lost or corrected range, then one per file that is not copied whole, and a summary.

    With ``detail`` 1 each file has a line, with -1 only the summary is written.
    """

    def __init__(self, out: TextIO, detail: int = 0) -> None:
        self._out = out
        self._detail = detail

    def add(self, what: LostRange) -> None:
        kind = "unplaced" if what.unplaced else _KINDS.get(what.kind, what.kind)
        place = f"{kind:9} {what.file}: bytes {what.position}..{what.end}, offsets {_offsets(what)}"
        if self._detail >= 0 and not isinstance(what, OffsetGap):
            self._line(f"{place}: {what.rule}: {what.why}")

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        for one in result.segments if self._detail >= 0 else ():
            if len(result.segments) > 1 and self._detail <= 0 and _is_whole(one):
                continue
            self._line(f"{one.source if plan.dry_run or not one.target else one.target}: {_counts(one, plan)}")
        if len(result.segments) > 1:
            self._line(f"total: {_counts(_total(result), plan)}")
        self._line(summary_line(result))

    def _line(self, text: str) -> None:
        print_text(self._out, escape_controls(text), indent=2)


def summary_line(result: RepairResult) -> str:
    """Return the losses and corrections as one line of text."""
    unread = f"; {count_of(len(result.failed), 'partition')} unreadable" if result.failed else ""
    verdict = _verdict(_total(result), len(result.missing)) if result.segments else "no segment was read"
    return verdict + unread


def _is_whole(one: SegmentRepair) -> bool:
    """Return whether all of a segment was copied unchanged."""
    return not (one.dropped or one.lost_bytes or one.mended or one.salvaged or one.zeros)


def _offsets(what: LostRange) -> str:
    text = (
        "unknown" if what.last_offset is None else f"{'?' if what.offset is None else what.offset}..{what.last_offset}"
    )
    return f"{text}, kept {what.kept_offset}..{what.last_kept_offset}" if isinstance(what, PartlyKeptBatch) else text


def _counts(one: SegmentRepair, plan: RepairPlan) -> str:
    if plan.indexes_only:
        indexed = f"{count_of(one.kept, 'batch')} indexed"
        return f"{indexed}, {count_of(one.records, 'record')}, {count_of(one.bytes_before, 'byte')}"
    zeros = f"; {count_of(one.zeros, 'byte')} of zeros at the end removed" if one.zeros else ""
    return (
        f"{count_of(one.kept, 'batch')} kept, {one.dropped:,} dropped; {count_of(one.records, 'record')}; "
        f"{one.bytes_before:,} -> {count_of(one.bytes_after, 'byte')}, {one.lost_bytes:,} lost{zeros}"
    )


def _verdict(one: SegmentRepair, missing: int) -> str:
    some = one.lost_ranges or one.salvaged
    lost = f"{count_of(one.lost_ranges, 'range')} lost ({count_of(one.lost_bytes, 'byte')})" if some else "no data lost"
    lost += f"; offsets missing between segments in {count_of(missing, 'place')}" if missing else ""
    salvaged = f"; {count_of(one.salvaged, 'batch')} kept in part" if one.salvaged else ""
    unplaced = f"; {count_of(one.unplaced, 'lost batch')} with a right CRC in .unplaced files" if one.unplaced else ""
    copies = f"; {count_of(one.duplicates, 'duplicate batch')} left out" if one.duplicates else ""
    return f"{lost}; {count_of(one.mended, 'batch')} corrected{salvaged}{unplaced}{copies}"


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

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        dry_run = {"target": None} if plan.dry_run else {}
        write_jsonl((row_maker(_SEGMENT)(one) | dry_run for one in result.segments), self._out)
        counts = {"files": len(result.segments), "missing": len(result.missing), **asdict(_total(result))}
        write_jsonl([row_maker(_SUMMARY)(counts)], self._out)
