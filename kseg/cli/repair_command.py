"""``kseg repair``: options, report, exit codes. 1: data was lost. 2: a DST was not written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, INPUTS, fail_after, guard_stdout, note, note_output, progress_bar
from kseg.cli.typed_command import DetailOptions, command
from kseg.commands.repair import replicated_log_dirs, several_replicas
from kseg.commands.repair.repair import repair as run
from kseg.commands.repair.repair_losses import LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import UsageError
from kseg.findings import Policy
from kseg.format.storage.local_files import check_no_url_folder
from kseg.format.storage.log_dir_places import is_log_dir
from kseg.format.storage.naming import METADATA_FOLDER
from kseg.format.storage.segment_files import check_exists, find_segments, total_size, without_unused
from kseg.format.storage.source import is_metadata_log
from kseg.remedies import METADATA_LOG
from kseg.report.formats import REPAIR, destination
from kseg.report.repair_report import summary_line
from kseg.report.row_formats import Spool
from kseg.report.wording import some_text


@dataclass(frozen=True, kw_only=True)
class RepairOptions(DetailOptions):
    paths: tuple[str, ...]
    prefer: str | None
    dry_run: bool
    salvage_records: bool
    indexes_only: bool
    index_interval: int
    rule: tuple[str, ...]
    force: bool

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
    arguments=(click.Argument(["paths"], metavar="SRC... [DST]", nargs=-1, required=True, type=common.ResultPath()),),
    examples=(
        "kseg repair --dry-run kafka-logs/orders-0",
        "kseg repair kafka-logs/orders-0 repaired/orders-0",
        "kseg repair broker1/logs broker2/logs broker3/logs repaired",
    ),
)
def repair(asked: RepairOptions) -> int:
    """Copy the valid batches of a segment, a partition folder or a log directory, and list the losses.

    A valid batch has a correct CRC, readable records, offsets in order, and no error of validate that a broker or a consumer
    notices. Valid batches are copied byte for byte, and get new indexes. Wrong sizes and magic bytes are corrected if the
    CRC proves the value. SRC is never changed, and DST is written atomically.

    Several SRC are replicas of one partition, or log directories with replicas of the same partitions: DST has what at least
    one of them has. If replicas diverge and leader epochs do not decide it, the partition is not written without --prefer.

    Exit codes: 0 nothing was lost, 1 data was lost, in this repair or before it, 2 the repair failed.
    """
    output, plan = asked.output, asked.plan
    sources, target = _sources_and_target(asked)
    _check_report(output, sources, target)
    sources = tuple(without_unused(sources))
    size = sum(total_size(find_segments(source)) or 0 for source in sources)
    with destination(output) as out, closing(Spool[LostRange]()) as changes:
        with progress_bar(size) as progress:
            if len(sources) > 1:
                log_dirs = _are_log_dirs(sources)
                repair_all = replicated_log_dirs.repair_log_dirs if log_dirs else several_replicas.repair_replicas
                result = repair_all(sources, target, plan, changes.add, progress, asked.prefer)
                click.get_current_context().meta[INPUTS] = []  # of a segment of zeros, another replica has the content
            else:
                result = run(sources[0], target, plan, changes.add, progress)
        # A full disk or a closed pipe does not end the repair: it is done.
        with guard_stdout() if output in (None, "-") else nullcontext():
            asked.write(REPAIR, out, changes, result, plan)
            out.flush()
    note_output(output, summary_line(result))
    if result.left_out:
        note(f"not copied: {', '.join(result.left_out) if asked.verbose else some_text(result.left_out)}")
    rebuilt = "is written from the log: the source lacks it, so read_committed consumers get aborted records there"
    _note_first([f"{line} {rebuilt}" for line in result.rebuilt], asked)
    _note_first([f"log start: {line}" for line in result.log_starts], asked)
    _note_first(
        [
            f"{folder}: the transaction of producer {producer_id} from offset {offset} has no end in this log"
            for folder, producer_id, offset in result.open_transactions
        ],
        asked,
    )
    _note_first(result.uncertain_transactions, asked)
    _note_first(result.unread, asked)
    if any(one.lost_bytes and is_metadata_log(os.path.dirname(one.source)) for one in result.segments):
        note(f"{METADATA_FOLDER}: {METADATA_LOG.text}")
    elif result.lost:
        # In place, the loss becomes the leader's log, and the replicas of it.
        note(
            "if another replica is in sync, do not put DST back: move the damaged folder out of the log directory while the "
            "broker is stopped, and it fetches the partition from the leader"
        )
    for line in result.failed:
        fail_after(line)
    return FAILED if result.failed else FOUND if result.lost else 0


#: The number of messages of one kind up to which each has a line without ``-v``.
_MOST_LINES = 3


def _note_first(lines: Sequence[str], asked: RepairOptions) -> None:
    """Print messages of one kind, of many only the first and the number of the others, unless all are asked for."""
    shown = lines if asked.verbose or len(lines) <= _MOST_LINES else lines[:1]
    for line in shown:
        note(line)
    if len(shown) < len(lines):
        note(f"and {len(lines) - len(shown):,} more such messages: -v prints them")


def _sources_and_target(asked: RepairOptions) -> tuple[tuple[str, ...], str | None]:
    """Return SRC... and DST; a dry run needs none. Raises UsageError."""
    paths = asked.paths
    if asked.dry_run and (len(paths) == 1 or (len(paths) > 2 and os.path.exists(paths[-1]))):
        return paths, None
    if len(paths) == 1:
        return paths, None  # repair names the missing path
    if asked.prefer is not None and len(paths) < 3:
        raise UsageError("--prefer needs several replicas")
    return paths[:-1], paths[-1]


def _are_log_dirs(sources: tuple[str, ...]) -> bool:
    """Return whether several sources are log directories, not replicas of one partition. Raises UsageError for both."""
    for source in sources:
        check_no_url_folder(source)
        check_exists(source)
    log_dirs = [source for source in sources if is_log_dir(source)]
    if log_dirs and len(log_dirs) < len(sources):
        raise UsageError(
            f"{log_dirs[0]} is no partition folder: give replicas of one partition, or only log directories"
        )
    return bool(log_dirs)


def _check_report(output: str | None, sources: tuple[str, ...], target: str | None) -> None:
    """Raise UsageError if the report would do harm, or overwrite a file of DST."""
    common.check_outputs(*sources)
    try:
        common.check_outputs(*sources, *(() if target is None else (target,)))
    except UsageError:
        raise UsageError(f"-o {output}: the report would be in DST or replace it: give another FILE") from None
