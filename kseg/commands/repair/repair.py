"""``kseg repair`` as a library: copy the valid batches of a segment, a partition folder or a log directory.

    result = repair("damaged/00000000000000000000.log", "good/00000000000000000000.log", RepairPlan(), print)

The source is only read. The result is validated before it is published, and its indexes are built again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from kseg.commands.repair.kept_batches import unplaced_path
from kseg.commands.repair.partition_gaps import report_emptied, report_lost_end
from kseg.commands.repair.repair_losses import (
    RepairResult,
    ReportLine,
    SegmentRepair,
    all_lost,
)
from kseg.commands.repair.repaired_checkpoints import write_log_starts
from kseg.commands.repair.repaired_partition import PartitionRepair
from kseg.commands.repair.repaired_segment import RepairPlan, repair_segment
from kseg.errors import NotASegmentError, UsageError
from kseg.findings import do_nothing
from kseg.format.sidefiles.log_end import ALL_ZEROS, indexed_end, is_all_zeros
from kseg.format.sidefiles.registry import check_not_side_file
from kseg.format.storage import remote_outputs
from kseg.format.storage.atomic_write import check_absent, whole_files
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import check_regular
from kseg.format.storage.naming import LOG_STARTS, base_offset_of, is_url, without_file_scheme
from kseg.format.storage.source import STDIN
from kseg.format.writer.output_guards import PartitionFolder, each_partition, index_paths, target_path, txn_index_path
from kseg.format.writer.output_rule import check_dst, check_dst_url


def repair(
    source: str,
    target: str | None,
    plan: RepairPlan,
    report: ReportLine = do_nothing,
    progress: Progress = do_nothing,
) -> RepairResult:
    """Copy the valid batches of a segment (a path or a URL), a partition folder or a log directory, and build the indexes.

    ``target``, a path or a URL, is created atomically; in a log directory, each partition folder is. It may be None for a
    dry run. ``report`` is called with each lost and each corrected range, ``progress`` with the source bytes read. A single
    segment without valid batches is not written.

    Raises UsageError, UnreadableError, NotASegmentError, ReadBackError and other KsegError; no target is created then. With
    ``indexes_only`` raises DamagedError for a log that has to be repaired itself.
    """
    if source == STDIN:
        raise UsageError("repair cannot read standard input: give a file or a folder")
    if plan.salvage_records and plan.indexes_only:
        raise UsageError("--indexes-only cannot be combined with --salvage-records: it does not change the log")
    if target is None and not plan.dry_run:
        raise UsageError("DST is missing: repair never changes SRC (--dry-run needs no DST)")
    if target is None:
        plan = replace(plan, force=True)  # there is no DST that can exist
    elif is_url(target := without_file_scheme(target)):
        check_dst_url(target)
        if not plan.dry_run:
            with remote_outputs.staged_result(target) as staged:
                return _at_url(repair(source, str(staged), plan, report, progress), str(staged), target)
    output_path = target_path(source if target is None else target)
    check_regular(source)
    if target is not None:
        check_dst(source, output_path, target, force=plan.force, keeps_log=plan.indexes_only)
    result = RepairResult()
    if not os.path.isdir(source):
        check_not_side_file(source)
        if os.path.exists(source) and not plan.indexes_only and is_all_zeros(source):
            result.unknown.append(source)
            result.segments.append(all_lost(Path(source), (base_offset_of(source) or 0, None), ALL_ZEROS, report))
            return result
        result.segments.append(_repair_alone(source, output_path, plan, report, progress))
        result.left_out += [] if plan.dry_run else _copy_side_files(source)
        return result
    folder = PartitionFolder(Path(source), finish=True)
    run = PartitionRepair(folder.path, plan, report, progress, result)
    if folder.logs:
        run.repair(folder, output_path)
        return result
    write = not plan.dry_run
    if write and not plan.force and not plan.indexes_only:
        check_absent([output_path / LOG_STARTS])
    result.failed, others = each_partition(folder, output_path, run.repair, write=write, force=plan.force, finish=True)
    if write:
        if not plan.indexes_only and write_log_starts([folder.path], output_path, result):
            others = [name for name in others if name != LOG_STARTS]
        result.left_out += others
    return result


def _at_url(result: RepairResult, staged: str, target: str) -> RepairResult:
    """Name the objects of DST in a result, in place of the files that were uploaded."""
    for segment in result.segments:
        segment.target = segment.target.replace(staged, target, 1)
    return result


def _repair_alone(source: str, target: Path, plan: RepairPlan, report: ReportLine, progress: Progress) -> SegmentRepair:
    """Repair a single segment. A file without batches is not written."""
    base = base_offset_of(source)
    proved = -1 if base is None or plan.indexes_only else indexed_end(source, base)
    try:
        # An unchanged log keeps its transaction index.
        others = () if plan.indexes_only else (txn_index_path(target), unplaced_path(target))
        indexes = (*index_paths(target), *others)
        if not plan.force:
            check_absent([*(() if plan.indexes_only else (target,)), *indexes])
        if plan.dry_run:
            return _with_lost_end(repair_segment(source, target, plan, report, progress), proved, report)
        with whole_files(target, replace=plan.force, obsolete=indexes, owned_as=Path(source)) as folder:
            done = repair_segment(source, folder / target.name, plan, report, progress)
        done.target = str(target)
        return _with_lost_end(done, proved, report)
    except NotASegmentError as error:
        if plan.indexes_only or base_offset_of(source) is None or not os.path.exists(source):
            raise
        why = str(error).removeprefix(f"{source}: ")
        return all_lost(Path(source), (base_offset_of(source) or 0, None), why, report)


def _with_lost_end(done: SegmentRepair, proved: int, report: ReportLine) -> SegmentRepair:
    """Return the result of a single segment with the loss that its indexes prove: they show the log end ``proved``."""
    base = base_offset_of(done.source) or 0
    if done.last_offset is None and not done.bytes_before:
        report_emptied(done, base, proved, None, report)
    else:
        report_lost_end(done, base if done.last_offset is None else done.last_offset + 1, -1, proved, report)
    return done


def _copy_side_files(source: str) -> list[str]:
    """Return the side files of a single segment that can only be written with its whole partition."""
    stem, folder = os.path.basename(source).removesuffix(".log"), os.path.dirname(source)
    names = (stem + suffix for suffix in (".txnindex", ".snapshot"))
    return [name for name in names if os.path.isfile(os.path.join(folder, name))]
