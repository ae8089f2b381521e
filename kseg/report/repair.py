"""Output of ``kseg repair``: what is lost and corrected, then each file and a summary, as text or JSON Lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

from kseg.commands.repair.report import LostRange, OffsetGap, PartialBatch, RepairResult, SegmentRepair
from kseg.commands.repair.segment import RepairPlan
from kseg.report.rows import TextOutput, write_jsonl
from kseg.report.tables import print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls

_TOTALS = (
    "kept", "dropped", "records", "mended", "salvaged", "bytes_before", "bytes_after", "lost_bytes", "lost_ranges", "zeros",
)  # fmt: skip


#: The words for kinds of rows in the text report.
_KINDS = {"mended": "corrected"}


class TextWriter:
    """The report as text: a line per lost or corrected range, then one per file that is not copied whole, and a summary.

    With ``detail`` 1 each file has a line, with -1 only the summary is written.
    """

    def __init__(self, out: TextIO, detail: int = 0) -> None:
        self._out = out
        self._detail = detail

    def add(self, what: LostRange) -> None:
        kind = _KINDS.get(what.kind, what.kind)
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
    """Return what was lost and corrected as one line of text."""
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
    return f"{text}, kept {what.kept_offset}..{what.last_kept_offset}" if isinstance(what, PartialBatch) else text


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
    return f"{lost}; {count_of(one.mended, 'batch')} corrected{salvaged}"


def _total(result: RepairResult) -> SegmentRepair:
    """Return the sums of all segments."""
    counts = {name: sum(getattr(one, name) for one in result.segments) for name in _TOTALS}
    return SegmentRepair("", "", **counts)


class JsonLinesWriter:
    """The report as JSON Lines: one row per loss or correction, a "segment" per file, a "summary"."""

    def __init__(self, out: TextOutput, detail: int = 0) -> None:
        self._out = out

    def add(self, what: LostRange) -> None:
        self._write({"kind": what.kind, **asdict(what)})

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        for one in result.segments:
            row = {"kind": "segment", **asdict(one)}
            self._write({**row, "target": None} if plan.dry_run else row)
        counts = _total(result)
        totals = {name: getattr(counts, name) for name in _TOTALS}
        self._write({"kind": "summary", "files": len(result.segments), **totals, "missing": len(result.missing)})

    def _write(self, row: Row) -> None:
        write_jsonl([row], self._out)
