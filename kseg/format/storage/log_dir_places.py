"""The folders that commands name: the log directory of a folder, and new folders, which are next to log directories.

The folders of a partition in several log directories, and the folders that are replicas of one partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.format.storage import local_files
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import OF_LOG_DIRS, PARTITION_METADATA, Partition, is_log, logs_among, partition_of
from kseg.format.storage.segment_files import check_complete, is_folder, walk_folders, warn_skipped, without_unused
from kseg.text import shell_word


def argument(path: str) -> str:
    """Return a path as a word of a command: quoted, and never an option."""
    return shell_word(f"./{path}" if path.startswith("-") else path)


def beside(log_dir: str, suffix: str) -> str:
    """Return the path of a new folder next to a log directory: a broker refuses unknown folders in it.

    It is outside of the log directories that hold this one, too.
    """
    place = _named(log_dir)
    while (parent := os.path.dirname(place) or ".") != place and _holds(parent, place):
        place = _named(parent)
    return _free(f"{place}.{suffix}")


def _named(path: str) -> str:
    """Return a path that ends with a name, also for ``.`` and ``..``."""
    if os.path.basename(os.path.normpath(path)) in (".", ".."):
        path = os.path.join(path, "..", os.path.basename(os.path.abspath(path)))
    return os.path.normpath(path)


def _holds(parent: str, folder: str) -> bool:
    """Return whether a folder is in a log directory. One without its files is known by the partitions next to segments."""
    if not OF_LOG_DIRS.isdisjoint(_names_in(parent)):
        return True
    return _has_logs(folder) and _has_partitions(parent)


def _free(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}-{number}"
    return free


def log_dir_of(folder: str) -> str:
    """Return the log directory of a partition folder; a log directory itself."""
    return folder if partition_at(folder) is None else os.path.dirname(os.path.normpath(folder)) or "."


def partition_at(folder: str) -> Partition | None:
    """Return the partition of a folder with the name of one, None for a log directory with such a name, as ``kafka-1``."""
    partition = partition_of(os.path.basename(os.path.normpath(folder)))
    if partition is None or _has_logs(folder):
        return partition
    names = _names_in(folder)
    below = (name for name in names if partition_of(name) and local_files.is_folder(os.path.join(folder, name)))
    return None if not OF_LOG_DIRS.isdisjoint(names) or any(below) else partition


def unused_place(folder: str, log_dirs: Iterable[str]) -> tuple[str, str] | None:
    """Return the log directory and the folder in it in which a broker reads no partition ``folder``; None if it does.

    Such a folder has another name than a partition, and stops the broker, or ``folder`` is in a partition's folder.
    ``log_dirs`` are those whose start is predicted.
    """
    known = {os.path.abspath(one): one for one in log_dirs}
    above = [*_above(folder)]
    for parent, name, depth in reversed(above):
        if parent in known and (depth or partition_of(name) is None):
            return known[parent], name
    parent, name, _ = above[0]
    if partition_of(name) is None and _has_logs(folder) and not OF_LOG_DIRS.isdisjoint(_names_in(parent)):
        return os.path.dirname(os.path.normpath(folder)) or ".", name
    return None


def _above(folder: str) -> Iterator[tuple[str, str, int]]:
    """Yield each folder above, the name in it, and how many levels the folder is below that name."""
    path, depth = os.path.abspath(folder), 0
    while (parent := os.path.dirname(path)) != path:
        yield parent, os.path.basename(path), depth
        path, depth = parent, depth + 1


def _has_logs(folder: str) -> bool:
    return any(map(is_log, _names_in(folder)))


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder, none if it cannot be listed."""
    with suppress(KsegError):
        return local_files.names_in(folder)
    return []


def other_partition(folder: str) -> str | None:
    """Return another partition folder of the topic in the same log directory that has partition.metadata."""
    log_dir, name = os.path.split(os.path.normpath(folder))
    try:
        state = os.stat(log_dir or ".").st_mtime_ns
    except OSError:
        return None
    found = _identified_partitions(log_dir, state).get(name.rpartition("-")[0], ())
    beside = (os.path.join(log_dir, one) for one in found if one != name)
    return next((one for one in beside if local_files.is_file(os.path.join(one, PARTITION_METADATA))), None)


@lru_cache(maxsize=8)
def _identified_partitions(log_dir: str, state: int) -> dict[str, list[str]]:
    """Return the first two folders with partition.metadata of each topic in a log directory that was changed at ``state``.

    Thousands of folders can lack it, and each of them needs another one.
    """
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(log_dir or ".")):
            known = found.setdefault(name.rpartition("-")[0], [])
            if len(known) < 2 and local_files.is_file(os.path.join(log_dir, name, PARTITION_METADATA)):
                known.append(name)
    return found


def has_segments(folder: str) -> bool:
    """Return whether a partition folder, or a partition of a log directory, has a segment."""
    return _has_logs(folder) or _has_partitions(folder)


def _has_partitions(folder: str) -> bool:
    return any(partition_of(name) and _has_logs(os.path.join(folder, name)) for name in _names_in(folder))


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The folders of a partition in the log directories, None where it is missing."""

    topic: str
    partition: int
    folders: tuple[str | None, ...]


def is_log_dir(path: str) -> bool:
    """Return whether ``path`` is a folder without segments: its partitions are in folders below it."""
    return is_folder(path) and not logs_among(skip_special(path, sorted(local_files.names_in(path))))


def partition_replicas(log_dirs: Sequence[str]) -> list[PartitionReplicas]:
    """Return the partitions of log directories, sorted by topic and partition. Raises UnreadableError, UsageError.

    Folders with the suffixes ``-delete``, ``-future`` and ``-stray`` are skipped with a warning.
    """
    used = without_unused(log_dirs)
    found = [_partitions_in(log_dir) if log_dir in used else {} for log_dir in log_dirs]
    return [PartitionReplicas(*key, tuple(one.get(key) for one in found)) for key in sorted(set().union(*found))]


def replicas_of_one(folders: Sequence[str]) -> PartitionReplicas:
    """Return several folders, or segments in folders, as the replicas of one partition. Raises UsageError."""
    found = {folder: partition_named(folder) for folder in folders}
    names = set(found.values())
    (name,) = names if len(names) == 1 else (None,)
    if name is None:
        each = ", ".join(folders)
        raise UsageError(f"more than two replicas need folders with one name TOPIC-PARTITION, not {each}")
    return PartitionReplicas(*name, tuple(folders))


def partition_named(path: str) -> tuple[str, int] | None:
    """Return the topic and partition that the name of a folder has, None for a segment or another name."""
    found = partition_of(os.path.basename(os.path.abspath(path))) if is_folder(path) else None
    return None if found is None else found[:2]


def _partitions_in(log_dir: str) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    skipped: list[str] = []
    unnamed: list[str] = []
    unlisted: list[str] = []
    logs = [folder for folder, names in walk_folders(log_dir, unlisted.append) if logs_among(names)]
    for folder in [*logs, *map(Path, unlisted)]:  # comparing an unlisted folder fails with the reason
        partition = partition_of(folder.name)
        if partition is None:
            unnamed.append(str(folder))
            continue
        if partition.state is not None:
            skipped.append(folder.name)
            continue
        other = found.setdefault(partition[:2], str(folder))
        if other != str(folder):
            raise UsageError(f"{log_dir}: {other} and {folder} are the same partition: give one log directory")
    check_complete(log_dir)
    if not found:
        raise UnreadableError(f"{log_dir}: no segment found: give a log directory, a partition folder or a segment")
    warn_skipped(log_dir, skipped, "not in use")
    warn_skipped(log_dir, unnamed, "whose name is no TOPIC-PARTITION")
    return found
