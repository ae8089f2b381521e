"""``kseg recovery`` as a library: the plans for a log dir and for every partition in it, or for one partition's folder.

Source: ``LogManager.loadLogs`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kseg.beside.checkpoint_files import HARMLESS, walk_offset_checkpoint
from kseg.beside.indexes import INDEX_INTERVAL_BYTES
from kseg.beside.metadata_files import walk_meta_properties
from kseg.beside.side_reading import Walk, entries_of
from kseg.errors import UnreadableError
from kseg.files.special import without_special
from kseg.files.storage import Partition, base_offset_of, partition_of
from kseg.restart.plan import LogDirPlan, PartitionPlan, Step
from kseg.restart.recovery import Start, plan_partition

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_OF_A_LOG_DIR = {CLEAN_SHUTDOWN, RECOVERY_POINTS, "meta.properties"}
# The cache of tiered storage is no partition, and the broker knows it by name.
_PASSED_OVER = frozenset({"remote-log-index-cache"})

_Offsets = dict[tuple[str, int], int]
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Asked:
    """``clean`` overrides what the log dir says of the last stop, None leaves it."""

    clean: bool | None = None
    index_interval: int = INDEX_INTERVAL_BYTES


#: ``map``, or one that hands the calls to other processes.
Each = Callable[[Callable[[str, Start], PartitionPlan], Iterable[str], Iterable[Start]], Iterable[PartitionPlan]]


def plan(path: str, asked: Asked, each: Each = map) -> Iterator[LogDirPlan | PartitionPlan]:
    """The plan for a log dir, then those for its partitions, made by ``each``; or the one for a partition's folder.

    Raises UnreadableError.
    """
    path = os.path.normpath(path)
    folders, files = _entries(path)
    alone = _is_partition(path, folders, files)
    log_dir = os.path.dirname(os.path.abspath(path)) if alone else path
    if not (alone or files & _OF_A_LOG_DIR or any(map(partition_of, folders))):
        raise UnreadableError(f"{path}: neither a log dir nor a partition's folder")
    steps: list[Step] = []
    starts = _starts(log_dir, asked, steps)
    if alone:
        yield plan_partition(path, starts.of(partition_of(os.path.basename(os.path.abspath(path)))))
        return
    folders = [name for name in folders if name not in _PASSED_OVER]
    steps += [Step("refuse", name, "it is no partition's folder") for name in folders if not partition_of(name)]
    folders = [name for name in folders if partition_of(name)]
    yield LogDirPlan(path, starts.clean, tuple(steps), len(folders))
    partitions = [os.path.join(path, name) for name in folders]
    yield from each(plan_partition, partitions, [starts.of(partition_of(name)) for name in folders])


@dataclass(frozen=True, slots=True)
class _Starts:
    clean: bool
    index_interval: int
    recovery_points: _Offsets
    log_starts: _Offsets

    def of(self, partition: Partition | None) -> Start:
        key = (partition.topic, partition.partition) if partition else ("", -1)
        return Start(self.clean, self.recovery_points.get(key, 0), self.log_starts.get(key, 0), self.index_interval)


def _starts(log_dir: str, asked: Asked, steps: list[Step]) -> _Starts:
    found = os.path.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
    if found:
        steps.append(Step("delete-file", CLEAN_SHUTDOWN, "a crash from here on shall not pass for a clean stop"))
    offsets = {name: _read(log_dir, name, walk_offset_checkpoint, steps) for name in _CHECKPOINTS}
    _read(log_dir, "meta.properties", walk_meta_properties, steps)
    recovery_points, log_starts = (
        {(entry.topic, entry.partition): entry.offset for entry in offsets[name]}
        for name in (RECOVERY_POINTS, LOG_STARTS)
    )
    return _Starts(found if asked.clean is None else asked.clean, asked.index_interval, recovery_points, log_starts)


def _read(log_dir: str, name: str, walk: Walk[_Entry], steps: list[Step]) -> list[_Entry]:
    """The entries of a file of the log dir; nothing where it is not there or can't be used, which takes it offline."""
    path = os.path.join(log_dir, name)
    if not os.path.exists(path) or not without_special(log_dir, [name]):
        return []
    try:
        return entries_of(path, walk, passes=HARMLESS)
    except ValueError as error:
        steps.append(Step("offline", name, f"{error}; until then it counts as empty"))
        return []


def _entries(path: str) -> tuple[list[str], set[str]]:
    """The names of a folder's folders, sorted, and of its files."""
    try:
        with os.scandir(path) as found:
            entries = list(found)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    folders = sorted(entry.name for entry in entries if entry.is_dir())
    return folders, {entry.name for entry in entries if not entry.is_dir()}


def _is_partition(path: str, folders: list[str], files: set[str]) -> bool:
    if partition_of(os.path.basename(os.path.abspath(path))) and not any(partition_of(name) for name in folders):
        return True
    return any(base_offset_of(name) is not None for name in files)
