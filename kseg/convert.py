"""``kseg convert`` as a library: segments and partition folders from one record version to another.

    plan = Plan.of("v0-to-v2", compression="zstd")
    result = convert("old/00000000000000000000.log", "new/00000000000000000000.log", plan)

The source is only read; what was written is read back and compared with it.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kseg.conversion import Conversion
from kseg.conversion_plan import Plan
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import Finding
from kseg.rewrite import Progress, Report
from kseg.rewrite_jobs import convert_segments
from kseg.safe_output import Staged, refuse_existing, whole_folder, writing
from kseg.storage import STDIN, find_segments, local_size

# What stays true of a partition when its entries change their version upwards, since it speaks of offsets only. On
# the way down producers, transactions and epochs are lost, and these would contradict the log.
_KEPT = re.compile(r"partition\.metadata")
_KEPT_UPWARDS = re.compile(r"partition\.metadata|leader-epoch-checkpoint|\d{20}\.(snapshot|txnindex)")
_REBUILT = re.compile(r"\d{20}\.(log|index|timeindex)")


@dataclass(frozen=True, slots=True)
class Result:
    """What was written. ``left_out`` are the names of files of a partition folder that are not in its copy."""

    segments: tuple[Conversion, ...]
    left_out: tuple[str, ...] = ()


def _silence(path: str, finding: Finding) -> None:
    """A report that keeps nothing."""


def _no_progress(count: int) -> None:
    """Progress that nobody looks at."""


def convert(
    source: str, target: str, plan: Plan, report: Report = _silence, progress: Progress = _no_progress,
    jobs: int = 1,
) -> Result:  # fmt: skip
    """Convert a segment (a path or a URL) or a partition folder, with its indexes built anew.

    ``target`` appears whole or not at all. Raises DamagedError, WrongVersionError, ReadBackError, UsageError,
    UnreadableError and NotASegmentError; then there is no target.
    """
    if source == STDIN:
        raise UsageError("convert takes a file or a folder, not standard input")
    goal = Path(os.path.abspath(target))
    refuse_overlap(source, goal)
    refuse_foreign(goal)
    if os.path.isdir(source):
        return _convert_folder(Path(source), goal, plan, report, progress, jobs)
    return Result(tuple(convert_segments([(source, goal)], plan, report, progress, jobs)))


def size_of(source: str) -> int | None:
    """The bytes that ``convert`` has to go through, None where that isn't known."""
    try:
        return local_size(source) or sum(local_size(file.path) or 0 for file in find_segments(source)) or None
    except KsegError:
        return None


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


def _convert_folder(source: Path, target: Path, plan: Plan, report: Report, progress: Progress, jobs: int) -> Result:
    try:
        names = sorted(entry.name for entry in os.scandir(source))
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from error
    logs = [name for name in names if re.fullmatch(r"\d{20}\.log", name)]
    if not logs:
        raise UnreadableError(f"{source}: no segment in it (a .log named by 20 digits); give one partition's folder")
    unfinished = [name for name in names if name.endswith(".swap")]
    if unfinished:
        raise UnreadableError(f"{source}: {unfinished[0]} waits to replace segments: let a broker finish that first")
    if not plan.force:
        refuse_existing([target])
    kept = _KEPT if plan.downwards else _KEPT_UPWARDS
    with whole_folder(target, replace=plan.force) as folder:
        pairs = [(str(source / name), folder / name) for name in logs]
        segments = tuple(convert_segments(pairs, plan, report, progress, jobs))
        for conversion, name in zip(segments, logs, strict=True):
            conversion.target = str(target / name)
        for name in filter(kept.fullmatch, names):
            copy_file(source / name, folder / name)
    left_out = [name for name in names if not kept.fullmatch(name) and not _REBUILT.fullmatch(name)]
    return Result(segments, tuple(left_out))


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
