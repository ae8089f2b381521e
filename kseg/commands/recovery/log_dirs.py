"""``kseg recovery`` as a library: the plans for a log directory and its partitions, or for one partition folder.

Source: ``LogManager.loadLogs`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kseg.commands.recovery.identity import META, conflicts, read_identity
from kseg.errors import KsegError, UnreadableError
from kseg.format.log_loader.checkpoints import MAX_TEXT, read_offsets
from kseg.format.log_loader.loader import METADATA_TOPIC, BrokerStart, plan_partition
from kseg.format.log_loader.log_segment import INDEX_BYTES
from kseg.format.log_loader.partition_files import File
from kseg.format.log_loader.plan import LogDirPlan, PartitionPlan, Step
from kseg.format.log_loader.refusals import OfflineError, RefusedError
from kseg.format.sidefiles.checkpoints import CheckpointOffset
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.sidefiles.log_dir_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from kseg.format.sidefiles.metadata_files import MetaProperties
from kseg.format.storage import local_files
from kseg.format.storage.naming import Partition, base_offset_of, partition_of
from kseg.format.storage.special_files import skip_special

_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_OF_A_LOG_DIR = {CLEAN_SHUTDOWN, RECOVERY_POINTS, META}
# The cache of tiered storage is not a partition; the broker knows its name.
_PASSED_OVER = frozenset({"remote-log-index-cache"})

_METADATA_FOLDER = f"{METADATA_TOPIC}-0"
#: Observed in six of eight starts of 20 s. An upgrade from before Kafka 3.7 has none.
_NEW_ID = "directory.id is missing; if the cluster knows an earlier one, partitions can stay without a leader"
_Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """The settings of a prediction. ``clean`` overrides the log directory's state of the last shutdown; None keeps it.

    ``index_interval`` and ``index_bytes`` are the topics' index.interval.bytes and segment.index.bytes.
    """

    clean: bool | None = None
    index_interval: int = INDEX_INTERVAL_BYTES
    index_bytes: int = INDEX_BYTES


#: ``map``, or a function like it that uses other processes.
Each = Callable[
    [Callable[[str, BrokerStart], PartitionPlan | str], Iterable[str], Iterable[BrokerStart]],
    Iterable[PartitionPlan | str],
]


class Broker:
    """The partitions, ids and metadata that only one log directory of a broker may have."""

    def __init__(self) -> None:
        self._homes: dict[Partition, str] = {}
        self._identities: dict[str, MetaProperties] = {}
        self._metadata_dir: str | None = None

    def check_log_dirs(self, made: LogDirPlan | PartitionPlan) -> LogDirPlan | PartitionPlan:
        """Return the plan, with one more step if another log directory keeps the broker from starting."""
        if isinstance(made, LogDirPlan):
            steps = self._of_log_dir(made.folder)
            return replace(made, steps=(*made.steps, *steps)) if steps else made
        partition = partition_of(os.path.basename(made.folder))
        if partition is None or partition.state in ("-delete", "-stray") or made.fails:
            return made
        other = self._homes.setdefault(partition, made.folder)
        if other == made.folder or any(step.action == "mark-stray" for step in made.steps):
            return made
        step = Step("refuse", os.path.basename(made.folder), f"{other} has the same partition")
        return replace(made, steps=(*made.steps, step))

    def _of_log_dir(self, folder: str) -> list[Step]:
        steps: list[Step] = []
        if local_files.exists(os.path.join(folder, _METADATA_FOLDER)):
            if self._metadata_dir is not None:
                steps.append(Step("refuse", _METADATA_FOLDER, f"{self._metadata_dir} has it, too"))
            self._metadata_dir = self._metadata_dir or folder
        try:
            identity = read_identity(folder)
        except RefusedError:
            return steps
        for other in self._identities.values():
            steps += [Step("refuse", META, why) for why in conflicts(identity, other)]
        self._identities[folder] = identity
        return steps


def plan(
    path: str, requested: RecoveryRequest, unread: Callable[[str], object], each: Each = map
) -> Iterator[LogDirPlan | PartitionPlan]:
    """Yield the plan for a log directory, then the plans of its partitions; or the plan for a partition folder.

    ``unread`` is called with the reason for each partition that cannot be read. Raises UnreadableError if that is ``path``.
    """
    path = os.path.normpath(path)
    folders, files = _entries(path)
    alone = _is_partition(path, folders, files)
    log_dir = os.path.dirname(os.path.abspath(path)) if alone else path
    if not (alone or files & _OF_A_LOG_DIR or any(map(partition_of, folders))):
        raise UnreadableError(f"{path}: neither a log directory nor a partition folder")
    steps: list[Step] = []
    _check_identity(log_dir, steps)
    if steps and steps[0].action == "offline" and not alone:
        # The broker ends before it loads any log.
        yield LogDirPlan(path, bool(requested.clean), tuple(steps), sum(bool(partition_of(name)) for name in folders))
        return
    starts = _starts(log_dir, requested, steps)
    if alone:
        yield plan_partition(path, starts.of(partition_of(os.path.basename(os.path.abspath(path)))))
        return
    folders = [name for name in folders if name not in _PASSED_OVER]
    steps += [Step("refuse", name, "it is not a partition folder") for name in folders if not partition_of(name)]
    folders = [name for name in folders if partition_of(name)]
    yield LogDirPlan(path, starts.clean, tuple(steps), len(folders))
    partitions = [os.path.join(path, name) for name in folders]
    for made in each(_attempt, partitions, [starts.of(partition_of(name)) for name in folders]):
        if isinstance(made, str):
            unread(made)
        else:
            yield made


def _attempt(folder: str, start: BrokerStart) -> PartitionPlan | str:
    """Return the plan for a partition, or why it cannot be read."""
    try:
        return plan_partition(folder, start)
    except KsegError as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class _BrokerStarts:
    clean: bool
    requested: RecoveryRequest
    recovery_points: _Offsets
    log_starts: _Offsets

    def of(self, partition: Partition | None) -> BrokerStart:
        key = (partition.topic, partition.partition) if partition else ("", -1)
        requested = self.requested
        recovery_point, log_start = self.recovery_points.get(key, 0), self.log_starts.get(key, 0)
        return BrokerStart(self.clean, recovery_point, log_start, requested.index_interval, requested.index_bytes)


def _starts(log_dir: str, requested: RecoveryRequest, steps: list[Step]) -> _BrokerStarts:
    found = local_files.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
    if found:
        steps.append(Step("delete-file", CLEAN_SHUTDOWN, "a crash after the start must not look like a clean shutdown"))
    offsets = {name: _read_offsets(log_dir, name, steps) for name in _CHECKPOINTS}
    recovery_points, log_starts = (
        {(entry.topic, entry.partition): entry.offset for entry in offsets[name]}
        for name in (RECOVERY_POINTS, LOG_STARTS)
    )
    return _BrokerStarts(found if requested.clean is None else requested.clean, requested, recovery_points, log_starts)


def _read_offsets(log_dir: str, name: str, steps: list[Step]) -> list[CheckpointOffset]:
    """Return the entries of a checkpoint, none if a broker treats it as empty."""
    path = os.path.join(log_dir, name)
    if not local_files.exists(path) or not skip_special(log_dir, [name]):
        return []
    try:
        return read_offsets(File.at(path).read(0, MAX_TEXT + 1), name)
    except OfflineError as error:
        steps.append(Step("offline", name, f"{error.why}; until then the broker treats it as empty"))
    except RefusedError as error:
        steps.append(Step("pass-over", name, f"{error.why}; the broker treats it as empty"))
    return []


def _check_identity(log_dir: str, steps: list[Step]) -> None:
    """Check the ids. A folder of partitions without a log directory's files may be a copy of some partitions."""
    if not any(local_files.exists(os.path.join(log_dir, name)) for name in (CLEAN_SHUTDOWN, META, *_CHECKPOINTS)):
        return
    try:
        if read_identity(log_dir).directory_id is None:
            steps.append(Step("write-directory-id", META, _NEW_ID))
    except OfflineError as error:
        steps.append(Step("offline", META, error.why))
    except RefusedError as error:
        steps.append(Step("refuse", META, error.why))


def _entries(path: str) -> tuple[list[str], set[str]]:
    """Return the sorted names of the folders in a folder, and the names of its files."""
    try:
        entries = local_files.entries(path)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    folders = sorted(name for name, kind in entries if kind == "folder")
    return folders, {name for name, kind in entries if kind != "folder"}


def _is_partition(path: str, folders: list[str], files: set[str]) -> bool:
    if partition_of(os.path.basename(os.path.abspath(path))) and not any(partition_of(name) for name in folders):
        return True
    return any(base_offset_of(name) is not None for name in files)
