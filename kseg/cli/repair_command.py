"""``kseg repair``: options, report, exit codes. 1: data was lost. 2: a DST was not written."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TextIO

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail, guard_stdout, note, note_output
from kseg.cli.progress import progress_bar
from kseg.cli.typed_command import DetailOptions, command
from kseg.commands.repair.repair import repair as run
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import UsageError
from kseg.findings import Policy
from kseg.format.storage.source import find_segments, total_size
from kseg.report.formats import REPAIR, destination, writer
from kseg.report.repair_report import summary_line


@dataclass(frozen=True, kw_only=True)
class RepairOptions(DetailOptions):
    """The command line of ``kseg repair``."""

    source: str
    target: str | None
    dry_run: bool
    salvage_records: bool
    indexes_only: bool
    index_interval: int
    rule: tuple[str, ...]
    force: bool
    output: str | None

    @property
    def plan(self) -> RepairPlan:
        """The settings of the repair. Raises UsageError."""
        return RepairPlan(
            salvage_records=self.salvage_records,
            indexes_only=self.indexes_only,
            dry_run=self.dry_run,
            force=self.force,
            policy=Policy.parse(self.rule),
            index_interval=self.index_interval,
        )


@command(
    RepairOptions,
    results=REPAIR,
    arguments=(
        click.Argument(["source"], metavar="SRC", type=common.InputPath()),
        click.Argument(["target"], metavar="[DST]", required=False, type=common.ResultPath()),
    ),
    examples=(
        "kseg repair --dry-run kafka-logs/orders-0",
        "kseg repair kafka-logs/orders-0 repaired/orders-0",
        "kseg repair --format jsonl -o losses.jsonl kafka-logs repaired",
    ),
)
def repair(asked: RepairOptions) -> int:
    """Copy the valid batches of a segment, a partition folder or a log directory, and list the losses.

    A valid batch has a correct CRC, readable records, offsets in order, and no error of validate. Valid batches are copied
    byte for byte, and get new indexes. Wrong sizes and magic bytes are corrected if the CRC proves the value. SRC is never
    changed, and DST is written atomically.

    Exit codes: 0 nothing was lost, 1 data was lost, 2 the repair failed.
    """
    source, target, output, plan = asked.source, asked.target, asked.output, asked.plan
    _check_report(output, target)
    with destination(output) as out, progress_bar(total_size(find_segments(source))) as progress:
        sink = _ReportSink(out)
        report = writer(REPAIR, asked.format)(sink, asked.detail)
        result = run(source, target, plan, report.add, progress)
        report.finish(result, plan)
        with guard_stdout() if output in (None, "-") else nullcontext():
            sink.finish()
    note_output(output, summary_line(result))
    if result.left_out:
        note(f"not copied: {', '.join(result.left_out)}")
    for line in result.rebuilt:
        note(
            f"{line} is written from the log: the source lacks it, so read_committed consumers get aborted records there"
        )
    for line in result.log_starts:
        note(f"log start: {line}")
    for folder, producer_id, offset in result.open_transactions:
        note(f"{folder}: the transaction of producer {producer_id} from offset {offset} has no end in this log")
    if result.lost:
        # In place, the loss becomes the leader's log, and the replicas of it.
        note(
            "if another replica is in sync, do not put DST back: move the damaged folder out of the log directory while the "
            "broker is stopped, and it fetches the partition from the leader"
        )
    for line in result.failed:
        fail(line)
    return FAILED if result.failed else FOUND if result.lost else 0


def _check_report(output: str | None, target: str | None) -> None:
    """Raise UsageError if the report would do harm, or overwrite a file of DST."""
    common.check_outputs()
    try:
        common.check_outputs(*(() if target is None else (target,)))
    except UsageError:
        raise UsageError(f"-o {output}: the report would be in DST or replace it: give another FILE") from None


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

    def isatty(self) -> bool:
        """Return whether the report goes to a terminal."""
        return self._out.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the terminal."""
        return self._out.fileno()

    def finish(self) -> None:
        """Flush the report. Raises OSError if a write failed."""
        if self._error is not None:
            raise self._error
        self._out.flush()
