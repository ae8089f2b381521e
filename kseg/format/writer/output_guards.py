"""Source and target folders of ``convert`` and ``repair``: their content, the checks of replaced folders, and new files."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kseg.errors import KsegError, NotASegmentError, UnreadableError, UsageError
from kseg.format.log_loader import loaded_files, log_segment, partition_files
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles import registry
from kseg.format.storage.atomic_write import NewFile, check_absent, is_result, writing
from kseg.format.storage.local_files import open_file, skip_special, stored_ranges
from kseg.format.storage.naming import has_manifests, is_log, is_remote_log, logs_among
from kseg.format.storage.segment_files import check_single_log_dir
from kseg.format.storage.source import open_source
from kseg.text import count_of

# FICLONE of Linux, and the bytes that are copied at once.
_CLONE = 0x40049409
_COPIED = 1 << 20


def target_path(given: str) -> Path:
    """Return DST as it was given. One without a name, such as ``.`` or ``..``, becomes absolute."""
    path = Path(given)
    return path if path.name not in ("", "..") else Path(os.path.abspath(given))


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


def check_earlier_result(target: Path) -> None:
    """Raise UsageError if a folder to be replaced has a log that kseg did not write, or a file of something else."""
    if not target.is_dir():
        return
    for entry in sorted(os.scandir(target), key=lambda entry: entry.name):
        if entry.is_dir() or not registry.belongs_to_partition(entry.name):
            raise UsageError(
                f"{target} holds {entry.name}, which is not a file of a partition and would be lost: give another DST"
            )
        if is_log(entry.name) and not is_result(Path(entry.path)):
            raise UsageError(
                f"{target} holds {entry.name}, which kseg did not write, or which has changed since: it can be Kafka's, and "
                "is never replaced: delete the folder first, or give another DST"
            )


class PartitionFolder:
    """A folder and its file names. ``logs`` are its segments, none if it is not a partition. Raises UnreadableError.

    With ``finish`` a .swap file is read in place of the files that it replaces, as a broker does at its start
    (``LogLoader``). The files that it would delete are not among the names: ``deleted`` has them with the reason. Without
    it, a .swap file raises UnreadableError.
    """

    def __init__(self, path: Path, *, finish: bool = False) -> None:
        self.path = path
        self.deleted: dict[str, str] = {}
        try:
            self.names = skip_special(path, sorted(os.listdir(path)))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        self.logs = [name for name in self.names if is_log(name) and not (path / name).is_dir()]
        swaps = [name for name in self.names if name.endswith(".log.swap")]
        others = [] if self.logs or swaps else logs_among(self.names)
        if (others and is_remote_log(others[0])) or has_manifests(self.names):
            raise UnreadableError(f"{path} is in remote storage: make a folder of it: kseg tier fetch {path} -o DIR")
        if others:
            raise UnreadableError(
                f"{path}: {others[0]} is a segment that a broker was deleting: copy one file per offset to another folder, "
                f"with names such as {others[0][:20]}.log"
            )
        for name in swaps:
            if not finish or not _is_whole(path / name):
                raise UnreadableError(
                    f"{path}: {name} is the result of an unfinished compaction"
                    f"{', and empty or damaged' if finish else ''}: start a broker on a copy to finish it, "
                    "or copy the folder without this file if all segments that it replaces exist"
                )
        if swaps:
            self._finish()

    def _finish(self) -> None:
        """Finish the compactions and splits of segments that did not end."""
        files = partition_files.Files(str(self.path))
        before = set(files)

        def add_step(action: str, name: str, why: str) -> None:
            if action != "rename-swap":
                self.deleted[name] = why

        try:
            log_segment.delete_unfinished(files, add_step)
            log_segment.complete_swaps(files, log_segment.DEFAULT_LIMITS, add_step)
        except loaded_files.RefusedError as error:
            raise UnreadableError(f"{self.path}: {error.file}: {error.why}") from error
        named = {name: os.path.basename(file.path or name) for name, file in files.items()}
        gone = before - set(named.values())
        self.names = [name for name in self.names if name not in gone]
        self.logs = [named[name] for name in sorted(named) if is_log(name)]


def _is_whole(path: Path) -> bool:
    """Return whether a segment has batches and no damage: a broker would replace others by it without a look."""
    try:
        with SegmentReader(open_source(path)) as reader:
            batches = sum(window.batches.count for window in reader.windows())
            return bool(batches) and not reader.damaged
    except NotASegmentError:
        return False


def each_partition(
    log_dir: PartitionFolder,
    target: Path,
    work: Callable[[PartitionFolder, Path], None],
    *,
    write: bool = True,
    force: bool = False,
    finish: bool = False,
) -> tuple[list[str], list[str]]:
    """Call ``work`` for each partition folder of a log dir and the folder with its name in ``target``.

    All folders are checked first, because the work can take hours. If ``work`` raises a KsegError other than
    UsageError, the others are still processed. Returns one line per such error, and the names that are not partitions.
    Without ``write`` no target is created.
    """
    partitions: dict[str, PartitionFolder] = {}
    failed = []
    for name in filter(lambda name: (log_dir.path / name).is_dir(), log_dir.names):
        try:
            folder = PartitionFolder(log_dir.path / name, finish=finish)
        except UnreadableError as error:
            failed.append(str(error))
            continue
        if folder.logs:
            partitions[name] = folder
    if not partitions and not failed:
        check_single_log_dir(str(log_dir.path))
        raise UnreadableError(f"{log_dir.path}: no segment found (a .log file named by 20 digits)")
    if write:
        targets = [target / name for name in partitions]
        if not force:
            check_absent(targets)
        check_replaceable(partitions.values(), targets)
    with folder_of_results(target, write=write):
        for done, (name, partition) in enumerate(partitions.items()):
            try:
                work(partition, target / name)
            except BaseException as error:
                if isinstance(error, KsegError) and not isinstance(error, UsageError):
                    failed.append(str(error))
                    continue
                # A signal can come after this partition got its name; with force it may have had it before.
                begun = list(partitions)[: done + (not force)] if write else []
                whole = sum((target / one).is_dir() for one in begun)
                if whole:  # they are not removed: an hour's work can be in them
                    error.args = (
                        f"{error}; {target} has {whole:,} of {count_of(len(partitions), 'partition')}, complete",
                    )
                raise
    return failed, [name for name in log_dir.names if name not in partitions]


@contextmanager
def folder_of_results(target: Path, *, write: bool) -> Iterator[None]:
    """Create a folder if it does not exist, and remove it after the block if it is still empty, also on Ctrl-C.

    Without ``write``, a dry run, it does nothing.
    """
    if not write:
        yield
        return
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
    """Copy a file to a new, synced file with its modification time. Raises KsegError.

    The copy shares the blocks of the source where the file system can do that. Holes stay holes: a broker preallocates each
    index of its newest segments with 10 MiB, of which few bytes are stored.
    """
    with writing(target), open_file(str(source), named=False) as original, NewFile(target) as copy:
        if not isinstance(original, io.FileIO):  # it is in an archive
            shutil.copyfileobj(original, copy.file)
        elif not _is_cloned(original, copy.file):
            _copy_ranges(original, copy.file)
        copy.sync(os.stat(source).st_mtime_ns)


def _is_cloned(source: io.FileIO, target: IO[bytes]) -> bool:
    """Make the target a clone of the source, and return whether the file system can (Btrfs, XFS)."""
    if sys.platform != "linux":
        return False
    import fcntl  # Windows has no such module

    with suppress(OSError):
        fcntl.ioctl(target.fileno(), _CLONE, source.fileno())
        return True
    return False


def _copy_ranges(source: io.FileIO, target: IO[bytes]) -> None:
    size = os.fstat(source.fileno()).st_size
    stored = stored_ranges(source.fileno(), 0, size)
    for first, end in [(0, size)] if stored is None else stored:
        source.seek(first)
        target.seek(first)
        while first < end and (data := source.read(min(_COPIED, end - first))):
            target.write(data)
            first += len(data)
    target.truncate(size)


class DamagedError(KsegError):
    """The source is damaged, and ``skip_damaged`` is not set."""


def index_paths(log: Path) -> tuple[Path, Path]:
    """Return the paths of the offset index and the time index of a log."""
    stem = log.name.removesuffix(".log")
    return log.with_name(stem + ".index"), log.with_name(stem + ".timeindex")


def txn_index_path(log: Path) -> Path:
    """Return the path of the transaction index of a log."""
    return index_paths(log)[0].with_suffix(".txnindex")
