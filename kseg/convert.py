"""``kseg convert`` as a library: segments, partition folders and log dirs from one record version to another.

    plan = Plan.of("v0-to-v2", compression="zstd")
    result = convert("old/00000000000000000000.log", "new/00000000000000000000.log", plan)

The source is only read; what was written is read back and compared with it.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kseg.conversion import Conversion
from kseg.conversion_plan import Plan
from kseg.errors import NotASegmentError, UnreadableError, UsageError
from kseg.findings import Finding
from kseg.rewrite import DamagedError, Report
from kseg.rewrite_jobs import convert_segments
from kseg.safe_output import Staged, refuse_existing, whole_folder, writing
from kseg.storage import STDIN
from kseg.transcode import WrongVersionError
from kseg.validate import Progress, no_progress

# What stays true of a partition when its entries change their version upwards, since it speaks of offsets only. On
# the way down producers, transactions and epochs are lost, and these would contradict the log.
_KEPT = re.compile(r"partition\.metadata")
_KEPT_UPWARDS = re.compile(r"partition\.metadata|leader-epoch-checkpoint|\d{20}\.(snapshot|txnindex)")
_LOG = re.compile(r"\d{20}\.log")
_REBUILT = re.compile(r"\d{20}\.(log|index|timeindex)")


@dataclass(slots=True)
class Result:
    """What was written.

    ``left_out`` are files of a folder that are not in its copy. ``failed`` says, a line each, which partitions of a log
    dir could not be converted; there is nothing of these.
    """

    segments: list[Conversion] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def _silence(path: str, finding: Finding) -> None:
    """A report that keeps nothing."""


def convert(
    source: str,
    target: str,
    plan: Plan,
    report: Report = _silence,
    progress: Progress = no_progress,
    jobs: int = 1,
) -> Result:
    """Convert a segment (a path or a URL), a partition folder or a log dir, with the indexes built anew.

    ``target`` appears whole or not at all, of a log dir each partition folder in it. ``jobs`` is the number of processes
    to use at most; what is written and reported is the same for any. Raises DamagedError, WrongVersionError,
    ReadBackError, UsageError, UnreadableError and NotASegmentError; then there is no target.
    """
    if source == STDIN:
        raise UsageError("convert takes a file or a folder, not standard input")
    goal = Path(os.path.abspath(target))
    refuse_overlap(source, goal)
    if not os.path.isdir(source):
        if goal.is_dir():
            raise UsageError(f"{target} is a folder: DST is the segment to write, as {goal / os.path.basename(source)}")
        return Result(list(convert_segments([(source, goal)], plan, report, progress, jobs)))
    folder = PartitionFolder(Path(source))
    run = _Run(folder.path, plan, report, progress, jobs)
    if not folder.logs:
        return _convert_log_dir(folder, goal, run)
    result = Result()
    run.convert_partition(folder, goal, result)
    return result


_OF_A_PARTITION = re.compile(r"\d{20}|leader-epoch-checkpoint|partition\.metadata")


def refuse_overlap(source: str, target: Path) -> None:
    """Raises UsageError where writing ``target`` could touch the source."""
    if target.name == "-" or target.name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
        raise UsageError(f"{target}: no name for a segment; DST is a .log file or a folder")
    if not os.path.exists(source):
        return
    first, second = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    if first == second or (second.exists() and os.path.samefile(first, second)):
        raise UsageError(f"{target} is the source itself")
    if first.is_dir() and second.is_relative_to(first):
        raise UsageError(f"{target} lies in the source: inputs are never changed")
    if first.is_relative_to(second):
        raise UsageError(f"{target} holds the source")


def refuse_foreign(target: Path) -> None:
    """Raises UsageError for a folder to be replaced that holds what is none of a partition's files."""
    if target.is_dir():
        foreign = sorted(entry.name for entry in os.scandir(target) if not _OF_A_PARTITION.match(entry.name))
        if foreign:
            raise UsageError(f"{target} holds {foreign[0]}, which is no file of a partition: it would be lost")


class PartitionFolder:
    """A folder and the names in it; ``logs`` are its segments, none where it is no partition's. Raises UnreadableError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.names = sorted(os.listdir(path))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        self.logs = [name for name in self.names if _LOG.fullmatch(name)]
        for name in self.names:
            if name.endswith(".log.swap"):
                raise UnreadableError(
                    f"{path}: {name} is a compaction's result that waits to replace segments: start a broker on a copy "
                    "to finish that, or make a copy without it if the segments it would replace are all there"
                )


def partitions_of(folder: PartitionFolder) -> list[PartitionFolder]:
    """The partition folders of a log dir. Raises UnreadableError where there is none, or one is not to be read."""
    folders = [PartitionFolder(folder.path / name) for name in folder.names if (folder.path / name).is_dir()]
    partitions = [each for each in folders if each.logs]
    if not partitions:
        raise UnreadableError(f"{folder.path}: no segment (a .log named by 20 digits) in it or in a folder of it")
    return partitions


def _convert_log_dir(folder: PartitionFolder, target: Path, run: _Run) -> Result:
    """Each partition folder into one of its own; one that can't be converted does not keep the others from it."""
    partitions = partitions_of(folder)
    if not run.plan.force:
        refuse_existing([target / partition.path.name for partition in partitions])
    with writing(target):
        target.mkdir(exist_ok=True)
    result = Result()
    for partition in partitions:
        try:
            run.convert_partition(partition, target / partition.path.name, result)
        except (DamagedError, WrongVersionError, UnreadableError, NotASegmentError) as error:
            result.failed.append(str(error))
    with suppress(OSError):
        target.rmdir()  # nothing came to be in it
    result.left_out += [name for name in folder.names if name not in {each.path.name for each in partitions}]
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """What all partitions of one call have in common."""

    root: Path
    plan: Plan
    report: Report
    progress: Progress
    jobs: int

    def convert_partition(self, partition: PartitionFolder, target: Path, result: Result) -> None:
        plan = self.plan
        if not plan.force:
            refuse_existing([target])
        refuse_foreign(target)
        kept = _KEPT if plan.downwards else _KEPT_UPWARDS
        with whole_folder(target, replace=plan.force) as folder:
            pairs = [(str(partition.path / name), folder / name) for name in partition.logs]
            segments = list(convert_segments(pairs, plan, self.report, self.progress, self.jobs))
            for name in filter(kept.fullmatch, partition.names):
                copy_file(partition.path / name, folder / name)
        for segment, name in zip(segments, partition.logs, strict=True):
            segment.target = str(target / name)
        result.segments += segments
        left_out = [name for name in partition.names if not kept.fullmatch(name) and not _REBUILT.fullmatch(name)]
        result.left_out += [str((partition.path / name).relative_to(self.root)) for name in left_out]


def copy_file(source: Path, target: Path) -> None:
    staged = Staged(target)
    try:
        with writing(target), open(source, "rb") as original:
            shutil.copyfileobj(original, staged.file)
            staged.sync(os.stat(source).st_mtime_ns)
            staged.publish(replace=False)
    except BaseException:
        staged.discard()
        raise
