"""Folders as ``convert`` and ``repair`` take and write them: what is in them, what must not be written over, log dirs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.files.safe_output import refuse_existing, stage, sync_folder, writing
from kseg.files.special import open_file, without_special
from kseg.files.storage import files_of_segment

LOG_NAME = re.compile(r"\d{20}\.log")
_OF_A_PARTITION = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(deleted|cleaned|swap))?"
    r"|\d{20}-\d{10}\.checkpoint(\.deleted)?|(leader-epoch-checkpoint|partition\.metadata|quorum-state)(\.tmp)?"
)


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


def refuse_own_files(source: str, targets: Iterable[Path]) -> None:
    """Raises UsageError where a lone segment's results would stand in the place of its own files."""
    own = files_of_segment(os.path.realpath(source))
    for target in targets:
        if os.path.realpath(target) in own:
            raise UsageError(f"{target} belongs to the source itself: give DST another folder, or another name")


def refuse_replacing(sources: Iterable[PartitionFolder], targets: Iterable[Path]) -> None:
    """Raises UsageError where replacing target folders would destroy a source, to which links may lead.

    A partition may be a link in its log dir, and a file one in its partition. Nor may a target lie in a source.
    """
    doomed = {Path(os.path.realpath(target)): target for target in targets}
    folders = set()
    for partition in sources:
        folders.add(Path(os.path.realpath(partition.path)))
        for path in (partition.path, *(partition.path / name for name in partition.names)):
            real = Path(os.path.realpath(path))
            for place in (real, *real.parents):
                if place in doomed:
                    raise UsageError(f"{doomed[place]} {'is' if real == place else 'holds'} the source itself")
    for real, target in doomed.items():
        if not folders.isdisjoint(real.parents):
            raise UsageError(f"{target} lies in the source: inputs are never changed")


def refuse_folder(target: Path, source: str, given: str) -> None:
    """Raises UsageError for a folder where a segment is to be written; ``given`` as one, ``DST/``, it need not exist."""
    if target.is_dir() or given.endswith("/"):
        raise UsageError(f"{target} is a folder: DST is the segment to write, as {target / os.path.basename(source)}")


def refuse_foreign(target: Path) -> None:
    """Raises UsageError for a folder to be replaced that holds what is none of a partition's files."""
    if target.is_dir():
        found = [entry for entry in os.scandir(target) if entry.is_dir() or not _OF_A_PARTITION.fullmatch(entry.name)]
        foreign = sorted(entry.name for entry in found)
        if foreign:
            raise UsageError(f"{target} holds {foreign[0]}, which is no file of a partition: it would be lost")


class PartitionFolder:
    """A folder and the names in it; ``logs`` are its segments, none where it is no partition's. Raises UnreadableError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.names = without_special(path, sorted(os.listdir(path)))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        self.logs = [name for name in self.names if LOG_NAME.fullmatch(name)]
        for name in self.names:
            if name.endswith(".log.swap"):
                raise UnreadableError(
                    f"{path}: {name} is a compaction's result that waits to replace segments: start a broker on a copy "
                    "to finish that, or make a copy without it if the segments it would replace are all there"
                )


def each_partition(
    log_dir: PartitionFolder,
    target: Path,
    work: Callable[[PartitionFolder, Path], None],
    excused: tuple[type[KsegError], ...],
    *,
    write: bool = True,
    force: bool = False,
) -> tuple[list[str], list[str]]:
    """Have ``work`` done on each partition folder of a log dir and a folder of that name in ``target``.

    All are looked at first: what is refused is refused before the work of hours. Where ``work`` raises what is
    ``excused``, the others are gone on with. Returns a line for each of these, and the names of what is no partition.
    Without ``write`` there will be no target.
    """
    folders = [PartitionFolder(log_dir.path / name) for name in log_dir.names if (log_dir.path / name).is_dir()]
    partitions = {folder.path.name: folder for folder in folders if folder.logs}
    if not partitions:
        raise UnreadableError(f"{log_dir.path}: no segment (a .log named by 20 digits) in it or in a folder of it")
    if write:
        targets = [target / name for name in partitions]
        if not force:
            refuse_existing(targets)
        refuse_replacing(partitions.values(), targets)
        with writing(target):
            target.mkdir(exist_ok=True)
    failed = []
    for name, partition in partitions.items():
        try:
            work(partition, target / name)
        except excused as error:
            failed.append(str(error))
    if write:
        with suppress(OSError):
            target.rmdir()  # nothing came to be in it
    return failed, [name for name in log_dir.names if name not in partitions]


def copy_file(source: Path, target: Path) -> None:
    """A copy under a new name, with the modification time. Raises KsegError; then there is none."""
    with copying(source, target, replace=False):
        pass


@contextmanager
def copying(source: Path, target: Path, *, replace: bool) -> Iterator[None]:
    """A copy, with the modification time, that gets its name when the block ends well. Raises KsegError."""
    with ExitStack() as stack:
        staged = stage(stack, target)
        with writing(target), open_file(str(source), named=False) as original:
            shutil.copyfileobj(original, staged.file)
            staged.sync(os.stat(source).st_mtime_ns)
        yield
        with writing(target):
            staged.publish(replace=replace)
            sync_folder(target.parent)
