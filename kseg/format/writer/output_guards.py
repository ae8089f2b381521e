"""Source and target folders of ``convert`` and ``repair``: their content, and checks that no input is overwritten."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.format.sidefiles import registry
from kseg.format.sidefiles.segment_files import files_of_segment
from kseg.format.storage.atomic_write import check_absent, stage, sync_folder, writing
from kseg.format.storage.naming import is_log
from kseg.format.storage.special_files import open_file, skip_special


def target_path(given: str) -> Path:
    """Return DST as it was given. One without a name of its own, such as ``.`` or ``..``, becomes absolute."""
    path = Path(given)
    return path if path.name not in ("", "..") else Path(os.path.abspath(given))


def check_no_overlap(source: str, target: Path, option: str = "") -> None:
    """Raise UsageError if writing ``target`` could change the source.

    ``option`` is the option that names the target, for messages; by default it is the argument DST.
    """
    given, input_ = (option, f"the input {source}") if option else ("DST", "SRC")
    if target.name == "-" or target.name.endswith(registry.segment_suffixes()):
        raise UsageError(
            f"{target}: {option} needs a name that is neither - nor that of a side file"
            if option
            else f"{target}: expected a .log file or a folder as DST"
        )
    if not os.path.exists(source):
        return
    first, second = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    if first == second or (second.exists() and os.path.samefile(first, second)):
        raise UsageError(f"{target} is {input_}{'' if option else ' itself'}: give another {given}")
    if first.is_dir() and second.is_relative_to(first):
        raise UsageError(f"{target} is in {input_}: inputs are never changed")
    if first.is_relative_to(second):
        raise UsageError(f"{target} contains {input_}: give another {given}")


def check_not_input(source: str, targets: Iterable[Path]) -> None:
    """Raise UsageError if the targets of a single segment are its own files."""
    own = files_of_segment(os.path.realpath(source))
    for target in targets:
        if os.path.realpath(target) in own:
            raise UsageError(f"{target} is a side file of SRC: give DST another folder or name")


def check_replaceable(sources: Iterable[PartitionFolder], targets: Iterable[Path]) -> None:
    """Raise UsageError if replacing target folders would destroy a source, or if a target lies in a source.

    Symbolic links are followed: a partition can be a link in its log dir, and a file a link in its partition.
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
            raise UsageError(f"{target} is in SRC: inputs are never changed")


def check_not_folder(target: Path, source: str, given: str) -> None:
    """Raise UsageError if the target of a segment is a folder, or is given as one (``DST/``)."""
    if target.is_dir() or given.endswith("/"):
        raise UsageError(
            f"{target} is a folder: give the file to write as DST, such as {target / os.path.basename(source)}"
        )


def check_only_kafka_files(target: Path) -> None:
    """Raise UsageError if a folder to be replaced contains files that do not belong to a partition."""
    if target.is_dir():
        found = [
            entry for entry in os.scandir(target) if entry.is_dir() or not registry.belongs_to_partition(entry.name)
        ]
        foreign = sorted(entry.name for entry in found)
        if foreign:
            raise UsageError(
                f"{target} holds {foreign[0]}, which is not a file of a partition and would be lost: give another DST"
            )


class PartitionFolder:
    """A folder and its file names. ``logs`` are its segments, none if it is not a partition. Raises UnreadableError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.names = skip_special(path, sorted(os.listdir(path)))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        self.logs = [name for name in self.names if is_log(name) and not (path / name).is_dir()]
        for name in self.names:
            if name.endswith(".log.swap"):
                raise UnreadableError(
                    f"{path}: {name} is the result of an unfinished compaction: start a broker on a copy to finish it, "
                    "or copy the folder without this file if all segments that it replaces exist"
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
    """Call ``work`` for each partition folder of a log dir and the folder with its name in ``target``.

    All folders are checked first, because the work can take hours. If ``work`` raises an exception in ``excused``, the
    others are still processed. Returns one line per such exception, and the names that are not partitions. Without
    ``write`` no target is created.
    """
    partitions: dict[str, PartitionFolder] = {}
    failed = []
    for name in filter(lambda name: (log_dir.path / name).is_dir(), log_dir.names):
        try:
            folder = PartitionFolder(log_dir.path / name)
        except UnreadableError as error:
            failed.append(str(error))
            continue
        if folder.logs:
            partitions[name] = folder
    if not partitions and not failed:
        raise UnreadableError(f"{log_dir.path}: no segment found (a .log file named by 20 digits)")
    if write:
        targets = [target / name for name in partitions]
        if not force:
            check_absent(targets)
        check_replaceable(partitions.values(), targets)
    with _folder(target) if write else nullcontext():
        for name, partition in partitions.items():
            try:
                work(partition, target / name)
            except UsageError:
                raise
            except excused as error:
                failed.append(str(error))
    return failed, [name for name in log_dir.names if name not in partitions]


@contextmanager
def _folder(target: Path) -> Iterator[None]:
    """Create a folder if it does not exist, and remove it after the block if it is still empty, also on Ctrl-C."""
    exists = target.is_dir()
    with writing(target):
        target.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if not exists:
            with suppress(OSError):  # it is not empty
                target.rmdir()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its modification time. If it raises KsegError, no copy exists."""
    with ExitStack() as stack, writing(target):
        staged = stage(stack, target)
        with open_file(str(source), named=False) as original:
            shutil.copyfileobj(original, staged.file)
            staged.sync(os.stat(source).st_mtime_ns)
        staged.publish(replace=False)
        sync_folder(target.parent)
