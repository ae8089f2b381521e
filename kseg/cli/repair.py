"""``kseg repair``: options, report, exit codes. 1: data was lost. 2: a DST was not written."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, TextIO

import click

from kseg.cli import common
from kseg.cli.common import check_output
from kseg.cli.messages import FAILED, FOUND, fail, guard_stdout, note
from kseg.cli.progress import progress_bar
from kseg.commands.repair.repair import RepairResult
from kseg.commands.repair.repair import repair as run
from kseg.commands.repair.report import LostRange, PartialBatch, SegmentRepair
from kseg.commands.repair.segment import RepairPlan
from kseg.findings import Policy
from kseg.format.storage.source import find_segments, total_size
from kseg.report.formats import destination
from kseg.text import escape_controls, to_json


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="[DST]", required=False)
@click.option("--dry-run", is_flag=True, help="Write only the report; DST can be omitted.")
@click.option("--salvage-records", is_flag=True, help="Keep the readable records before a fault in a batch with a correct "
              "CRC, in a new batch.")  # fmt: skip
@click.option("--indexes-only", is_flag=True, help="Build only the indexes of DST, for an undamaged log.")
@click.option("--index-interval", type=click.IntRange(min=0), default=4096, show_default=True, metavar="BYTES",
              help="The index.interval.bytes of the topic.")  # fmt: skip
@click.option("--rule", multiple=True, metavar="NAME=SEVERITY",
              help="Set a rule to error, warning, info or ignore; errors drop the batch.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace DST and its indexes.")
@click.option("--format", "format_name", type=common.Choice(["text", "jsonl"]), default="text", show_default=True,
              help="The format of the report.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE",
              help="Write the report to FILE instead of stdout (atomically).")  # fmt: skip
def repair(source: str, target: str | None, format_name: str, output: str | None, **options: Any) -> int:
    """Copy the valid batches of a segment, a partition folder or a log dir, with new indexes, and list the losses.

    A batch is kept byte for byte if its CRC is correct, all its records are readable, its offsets are in order and
    validate finds no error in it. Wrong sizes and magic bytes are corrected if the CRC proves the correction. SRC is never
    changed; DST is written atomically. Exit codes: 0 nothing was lost, 1 data was lost, 2 the repair failed.
    """
    policy = Policy.parse(options.pop("rule"))
    plan = RepairPlan(**options, policy=policy)
    check_output(output, [source] if target is None else [source, target])
    with destination(output) as out, progress_bar(total_size(find_segments(source))) as progress:
        sink = _ReportSink(out)
        report = _REPORTS[format_name](sink)
        result = run(source, target, plan, report.add, progress)
        report.finish(result, plan)
        with guard_stdout() if out is sys.stdout else nullcontext():
            sink.finish()
    if result.left_out:
        note(f"not copied: {', '.join(result.left_out)}")
    for folder, producer_id, offset in result.open_transactions:
        note(f"{folder}: the transaction of producer {producer_id} from offset {offset} on has no end in this log")
    for line in result.failed:
        fail(line)
    return FAILED if result.failed else FOUND if result.lost else 0


class _ReportSink:
    """Buffers write errors of the report, so that a full disk or a closed pipe does not end the repair."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._error: OSError | None = None

    def write(self, text: str) -> None:
        if self._error is None:
            try:
                self._out.write(text)
            except OSError as error:
                self._error = error

    def finish(self) -> None:
        """Flush the report. Raises OSError if a write failed."""
        if self._error is not None:
            raise self._error
        self._out.flush()


class _TextReport:
    """The report as text: one line per lost or corrected range, then one per file and a summary."""

    def __init__(self, out: _ReportSink) -> None:
        self._out = out

    def add(self, what: LostRange) -> None:
        place = f"{what.kind:8} {what.file}: bytes {what.position}..{what.end}, offsets {_offsets(what)}"
        self._line(f"{place}: {what.rule}: {what.why}")

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        for one in result.segments:
            self._line(f"{one.source if plan.dry_run or not one.target else one.target}: {_counts(one, plan)}")
        if len(result.segments) > 1:
            self._line(f"in all: {_counts(_total(result), plan)}")
        unread = f"; partitions that could not be read: {len(result.failed)}" if result.failed else ""
        self._line(
            (_verdict(_total(result), len(result.missing)) if result.segments else "nothing was looked at") + unread
        )

    def _line(self, text: str) -> None:
        self._out.write(escape_controls(text) + "\n")


def _offsets(what: LostRange) -> str:
    text = "-" if what.last_offset is None else f"{'?' if what.offset is None else what.offset}..{what.last_offset}"
    return f"{text}, kept {what.kept_offset}..{what.last_kept_offset}" if isinstance(what, PartialBatch) else text


def _counts(one: SegmentRepair, plan: RepairPlan) -> str:
    if plan.indexes_only:
        return f"entries indexed {one.kept}; records {one.records}; bytes {one.bytes_before}"
    zeros = f", {one.zeros} bytes of zeros at its end cut off" if one.zeros else ""
    return (
        f"entries kept {one.kept}, dropped {one.dropped}; records {one.records}; "
        f"bytes {one.bytes_before} -> {one.bytes_after}, {one.lost_bytes} of them lost{zeros}"
    )


def _verdict(one: SegmentRepair, missing: int) -> str:
    some = one.lost_ranges or one.salvaged
    nothing = "nothing is lost of the segments that are there" if missing else "nothing is lost"
    lost = f"stretches lost: {one.lost_ranges} ({one.lost_bytes} bytes)" if some else nothing
    lost += f"; offsets are missing between segments: {missing}" if missing else ""
    salvaged = f"; salvaged in part: {one.salvaged}" if one.salvaged else ""
    return f"{lost}; entries mended: {one.mended}{salvaged}"


def _total(result: RepairResult) -> SegmentRepair:
    """Return the sums of all segments."""
    counts = {name: sum(getattr(one, name) for one in result.segments) for name in _TOTALS}
    return SegmentRepair("", "", **counts)


class _JsonLinesReport:
    """The report as JSON Lines: one row per loss or correction, a "segment" per file, a "summary"."""

    def __init__(self, out: _ReportSink) -> None:
        self._out = out

    def add(self, what: LostRange) -> None:
        self._object({"kind": what.kind, **asdict(what)})

    def finish(self, result: RepairResult, plan: RepairPlan) -> None:
        for one in result.segments:
            row = {"kind": "segment", **asdict(one)}
            self._object({**row, "target": None} if plan.dry_run else row)
        counts = _total(result)
        totals = {name: getattr(counts, name) for name in _TOTALS}
        self._object({"kind": "summary", "files": len(result.segments), **totals, "missing": len(result.missing)})

    def _object(self, row: dict[str, Any]) -> None:
        self._out.write(to_json(row) + "\n")


_TOTALS = (
    "kept", "dropped", "records", "mended", "salvaged", "bytes_before", "bytes_after", "lost_bytes", "lost_ranges", "zeros",
)  # fmt: skip
_REPORTS: dict[str, type[_TextReport] | type[_JsonLinesReport]] = {"text": _TextReport, "jsonl": _JsonLinesReport}
