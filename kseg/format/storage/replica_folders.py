"""The folders of a partition in several log directories, and the folders that are replicas of one partition."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kseg.errors import UnreadableError, UsageError
from kseg.format.storage import local_files
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import logs_among, partition_of
from kseg.format.storage.segment_files import check_complete, is_folder, walk_folders, warn_skipped, without_unused


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
