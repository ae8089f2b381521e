"""All partitions of several log directories, each from its replicas: ``kseg repair LOGDIR LOGDIR... DST``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import RepairResult, ReportLine
from kseg.commands.repair.repaired_checkpoints import write_log_starts
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.repair.several_replicas import ONE_COPY, check_settings, repair_replicas
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.log_loader.log_dir_start import several_clusters
from kseg.format.storage import file_access
from kseg.format.storage.atomic_write import check_absent
from kseg.format.storage.file_access import Progress
from kseg.format.storage.log_dir_places import PartitionReplicas, partition_replicas
from kseg.format.storage.naming import CLUSTER_METADATA, LOG_STARTS
from kseg.format.writer.output_guards import folder_of_results, target_path


def repair_log_dirs(
    log_dirs: Sequence[str],
    target: str | None,
    plan: RepairPlan,
    report: ReportLine = do_nothing,
    progress: Progress = do_nothing,
    prefer: str | None = None,
) -> RepairResult:
    """Write a log directory with the partitions of several: those that more than one has, from all of their replicas.

    Each partition folder in ``target`` is created atomically. A partition that fails, such as one whose replicas diverge, is
    a line in ``failed``, and the others are still written. ``prefer`` is the log directory whose replicas count where
    replicas diverge. ``report`` and ``progress`` are called as by ``repair_replicas``.

    Raises UsageError, and UnreadableError for a log directory that cannot be listed.
    """
    check_settings(log_dirs, target, plan, prefer)
    goal = target_path(log_dirs[0] if target is None else target)
    if warning := several_clusters(log_dirs):
        file_access.current().warn(warning)
    whole = RepairResult()
    partitions = partition_replicas(log_dirs)
    if metadata := next((one for one in partitions if one.topic == CLUSTER_METADATA), None):
        partitions.remove(metadata)
        whole.left_out.append(f"{_name(metadata)} ({ONE_COPY})")
    write = not plan.dry_run
    if write and not plan.force:
        check_absent([goal / LOG_STARTS, *(goal / _name(one) for one in partitions)])
    with folder_of_results(goal, write=write):
        for one in partitions:
            name, folders = _name(one), [folder for folder in one.folders if folder is not None]
            place = str(goal / name) if write else None
            try:
                if len(folders) > 1:
                    chosen = None if prefer is None else one.folders[log_dirs.index(prefer)]
                    done = repair_replicas(folders, place, plan, report, progress, chosen)
                else:
                    done = repair(folders[0], place, plan, report, progress)
                    done.left_out = [os.path.join(name, each) for each in done.left_out]
            except KsegError as error:
                whole.failed.append(f"{name}: {error}")
                continue
            whole.add(done)
        if write:
            write_log_starts([Path(one) for one in log_dirs], goal, whole)
    return whole


def _name(one: PartitionReplicas) -> str:
    return f"{one.topic}-{one.partition}"
