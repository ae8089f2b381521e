"""``kseg recovery`` as a library: the plans for a log directory and its partitions, or for one partition folder.

Source: ``LogManager.loadLogs`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kseg.errors import KsegError, UnreadableError
from kseg.format.internal_topics.metadata_loading import Replayed
from kseg.format.log_loader import log_dir_start
from kseg.format.log_loader.loaded_files import OfflineError, RefusedError
from kseg.format.log_loader.plan import (
    EMPTIED,
    FAILURES,
    LOSE_METADATA,
    NOT_A_PARTITION,
    STRAYS,
    WITH_ZEROS,
    LogDirPlan,
    PartitionPlan,
    Step,
    Stray,
)
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.sidefiles.log_end import ALL_ZEROS, lost_log
from kseg.format.sidefiles.metadata_files import MetaProperties
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    BOOTSTRAP,
    CLEAN_SHUTDOWN,
    CLUSTER_METADATA,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    METADATA_FOLDER,
    QUORUM_STATE,
    RECOVERY_POINTS,
    REMOTE_INDEX_CACHE,
    Partition,
    base_offset_of,
    is_remote_log,
    logs_among,
    partition_of,
)
from kseg.format.storage.segment_files import check_complete, log_dirs_in
from kseg.text import count_of, shell_word

_OF_A_LOG_DIR = {CLEAN_SHUTDOWN, RECOVERY_POINTS, META_PROPERTIES}

#: Observed in six of eight starts of 20 s. An upgrade from before Kafka 3.7 has none.
_NEW_ID = "directory.id is missing; if the cluster knows an earlier one, partitions can stay without a leader"
#: Observed with a combined broker and controller. A broker fetches the log from controllers that are other nodes.
_NO_METADATA = (
    "the metadata log is missing: unless it is in another log directory, or the controllers are other nodes, the broker "
    "starts without topics and renames {} to -stray"
)


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
        #: The log directories of other brokers: their partitions are replicas of those of this one.
        self._not_its_own: set[str] = set()
        self._metadata_dir: str | None = None
        self._has_metadata = False
        #: What each log directory with a metadata log says, None if not read yet.
        self._replayed: dict[str, Replayed | None] = {}

    def add_place(self, place: str) -> None:
        """Record whether a log directory of the broker has its metadata log. Call it for all before ``check_log_dirs``."""
        self._has_metadata = self._has_metadata or log_dir_start.has_metadata_log(place)
        for log_dir in (place, os.path.dirname(os.path.abspath(place))):
            if any(local_files.exists(os.path.join(log_dir, name)) for name in (METADATA_FOLDER, BOOTSTRAP)):
                self._replayed[os.path.realpath(log_dir)] = None

    def check_log_dirs(self, made: LogDirPlan | PartitionPlan) -> LogDirPlan | PartitionPlan:
        """Return the plan, with one more step if another log directory keeps the broker from starting."""
        if isinstance(made, LogDirPlan):
            steps = self._of_log_dir(made.folder)
            place = os.path.realpath(made.folder)
            if place in self._metadata_dirs() and (why := log_dir_start.why_bootstrap_fails(made.folder)):
                steps.append(Step("refuse", BOOTSTRAP, why))
            # A broker that is stopped by a folder starts as soon as somebody moves the folder away.
            if all(step.why == NOT_A_PARTITION for step in (*made.steps, *steps) if step.action in FAILURES):
                steps += self._without_metadata(made)
            return replace(made, steps=(*made.steps, *steps)) if steps else made
        partition = partition_of(os.path.basename(made.folder))
        if made.topic == CLUSTER_METADATA and not made.fails:
            return replace(made, steps=(*made.steps, *self._replay_steps(made.folder)))
        if partition is None or partition.state in ("-delete", "-stray") or made.fails:
            return made
        if os.path.dirname(made.folder) in self._not_its_own:
            return made
        other = self._homes.setdefault(partition, made.folder)
        # A running broker can have moved a replica between its disks since it was read (KIP-113).
        if other != made.folder and not os.path.isdir(other):
            other = self._homes[partition] = made.folder
        if other == made.folder or any(step.action in STRAYS for step in made.steps):
            return made
        step = Step("refuse", why=f"{other} has the same partition: compare them (kseg diff), and keep one")
        return replace(made, steps=(*made.steps, step))

    def _without_metadata(self, made: LogDirPlan) -> list[Step]:
        """Return a step if no log directory of the broker has the names of topics."""
        identified = self._identities.get(made.folder)
        if self._has_metadata or not identified or identified.version != 1:
            return []
        partitions = filter(None, map(partition_of, _entries(made.folder)[0]))
        found = sum(each.state in (None, "-future") and each.topic != CLUSTER_METADATA for each in partitions)
        return (
            [Step(LOSE_METADATA, METADATA_FOLDER, _NO_METADATA.format(count_of(found, "partition folder")))]
            if found
            else []
        )

    def _metadata_dirs(self) -> list[str]:
        """Return the log directories with a metadata log. Without one, those in which a node would begin it."""
        found = [place for place in self._replayed if local_files.exists(os.path.join(place, METADATA_FOLDER))]
        return found or [*self._replayed]

    def _metadata(self, log_dir: str) -> Replayed:
        """Return what a log directory's metadata log says; each is read once."""
        place = os.path.realpath(log_dir)
        known = self._replayed.get(place) or log_dir_start.loaded_metadata(os.path.join(log_dir, METADATA_FOLDER))
        self._replayed[place] = known
        return known

    def strays(self, log_dir: str, folders: Iterable[str]) -> dict[str, Stray]:
        """Return the partition folders of a log directory that become strays by the broker's metadata, each with the reason.

        Nothing is known without a metadata log that can be read to its end.
        """
        for place in self._metadata_dirs():
            if image := self._metadata(place).image:
                return log_dir_start.stray_folders(log_dir, folders, image)
        return {}

    def _replay_steps(self, folder: str) -> list[Step]:
        """Return a step if a record of a metadata log, or the vote next to it, keeps this node from starting."""
        try:
            log_dir_start.read_quorum_state(folder)
        except RefusedError as error:
            return [Step("refuse", QUORUM_STATE, error.why)]
        log_dir = os.path.dirname(os.path.abspath(folder))
        fault = self._metadata(log_dir).fault
        if fault is None:
            return []
        try:
            node = log_dir_start.read_identity(log_dir).node_id
        except RefusedError:
            node = None
        if not fault.brokers and fault.controllers and node is not None and node not in fault.controllers:
            return []
        who = "controllers and brokers" if fault.brokers else "controllers"
        why = f"{who} end at the {fault.record} record at offset {fault.offset}: {fault.why}"
        return [Step("refuse", os.path.basename(fault.path), why, offset=fault.offset)]

    def _of_log_dir(self, folder: str) -> list[Step]:
        steps: list[Step] = []
        if local_files.exists(os.path.join(folder, METADATA_FOLDER)):
            if self._metadata_dir is not None:
                steps.append(Step("refuse", METADATA_FOLDER, f"{self._metadata_dir} has it, too"))
            self._metadata_dir = self._metadata_dir or folder
        try:
            identity = log_dir_start.read_identity(folder)
        except RefusedError:
            return steps
        for other in self._identities.values():
            steps += [Step("refuse", META_PROPERTIES, why) for why in log_dir_start.conflicts(identity, other)]
            if (identity.node_id, identity.cluster_id) != (other.node_id, other.cluster_id):
                self._not_its_own.add(folder)
        self._identities[folder] = identity
        return steps


def plan(
    path: str, broker: Broker, requested: BrokerStart, unread: Callable[[str], object], each: Each = map
) -> Iterator[LogDirPlan | PartitionPlan]:
    """Yield the plan for a log directory, then the plans of its partitions; or the plan for a partition folder.

    ``path`` is a folder that ``places_of`` returned, ``broker`` has been told of all its log directories.

    ``unread`` is called with the reason for each partition that cannot be read. Raises UnreadableError if that is ``path``.
    """
    path = os.path.normpath(path)
    folders, files = _entries(path)
    alone = _is_partition(path, folders, files)
    log_dir = os.path.dirname(os.path.abspath(path)) if alone else path
    steps: list[Step] = []
    unreadable = _check_identity(log_dir, steps)
    if unreadable and not alone:
        # The broker ends before it loads any log.
        yield LogDirPlan(path, bool(requested.clean), tuple(steps), sum(bool(partition_of(name)) for name in folders))
        return
    starts = log_dir_start.starts_of(log_dir, steps, requested)
    if alone:
        name = os.path.basename(os.path.abspath(path))
        yield _plan_partition(path, starts.of(partition_of(name), broker.strays(log_dir, [name]).get(name)))
        return
    folders = [name for name in folders if name != REMOTE_INDEX_CACHE]
    steps += [Step("refuse", name, NOT_A_PARTITION) for name in folders if not partition_of(name)]
    folders = [name for name in folders if partition_of(name)]
    yield LogDirPlan(path, bool(starts.start.clean), tuple(steps), len(folders))
    partitions = [os.path.join(path, name) for name in folders]
    strays = broker.strays(path, folders)
    for made in each(_attempt, partitions, [starts.of(partition_of(name), strays.get(name)) for name in folders]):
        if isinstance(made, str):
            unread(made)
        else:
            yield made


def plans_of(
    paths: Iterable[str], request: BrokerStart, unread: Callable[[str], object], each: Each = map
) -> Iterator[LogDirPlan | PartitionPlan]:
    """Yield the plans for the log directories of one broker, each folder once. ``unread`` gets the errors of the others.

    Log directories in a folder that is given are those of the brokers that their meta.properties name.
    """
    given = Broker()
    brokers: dict[tuple[str | int | None, ...], Broker] = {}
    seen: set[str] = set()

    def places() -> Iterator[tuple[str, Broker]]:
        for path in paths:
            try:
                found = places_of(path)
            except KsegError as error:
                unread(str(error))
                seen.add(os.path.realpath(path))
                continue
            for place in found:
                named = place == os.path.normpath(path)
                yield place, given if named else brokers.setdefault(log_dir_start.owner_of(place), Broker())
            try:
                check_complete(path)
            except KsegError as error:  # partitions are missing, or files of the log directory
                unread(str(error))

    all_places = list(places())
    for place, broker in all_places:
        broker.add_place(place)
    for place, broker in all_places:
        if os.path.realpath(place) in seen:
            continue
        try:
            for made in plan(place, broker, request, unread, each):
                if (folder := os.path.realpath(made.folder)) not in seen:
                    seen.add(folder)
                    yield broker.check_log_dirs(made)
        except KsegError as error:
            unread(str(error))
            seen.add(os.path.realpath(place))


def _plan_partition(folder: str, start: BrokerStart) -> PartitionPlan:
    """Return the plan for a partition, with a step if the log has lost its records before the start, or may have."""
    made = plan_partition(folder, start)
    if not made.has_segments:
        return _with_lost_segments(made)
    lost = lost_log(Path(folder))
    if lost is None:
        return made
    name, end = lost
    if end is None:
        step = Step(WITH_ZEROS, name, ALL_ZEROS)
    else:
        why = f"it has no batch, but the files next to it show that the log reached offset {end - 1}"
        step = Step(EMPTIED, name, why, offset=end)
    return replace(made, steps=(*made.steps, step))


def _with_lost_segments(made: PartitionPlan) -> PartitionPlan:
    """Return the plan of a folder without a segment, with a step if its log directory shows that it had records."""
    partition = partition_of(os.path.basename(made.folder))
    end = checkpoint_offset(made.folder, HIGH_WATERMARKS) or 0
    if partition is None or partition.state or end <= (checkpoint_offset(made.folder, LOG_STARTS) or 0):
        return made
    why = f"no segment is in it, but {HIGH_WATERMARKS} shows that the log reached offset {end - 1}"
    return replace(made, steps=(*made.steps, Step(EMPTIED, why=why, offset=end)))


def _attempt(folder: str, start: BrokerStart) -> PartitionPlan | str:
    """Return the plan for a partition, or why it cannot be read."""
    try:
        return _plan_partition(folder, start)
    except KsegError as error:
        return str(error)


def _check_identity(log_dir: str, steps: list[Step]) -> bool:
    """Check the ids, and return whether a broker can't read them.

    A folder of partitions without a log directory's files may be a copy of some partitions. ``kseg repair`` writes their
    log starts.
    """
    names = {CLEAN_SHUTDOWN, META_PROPERTIES, *log_dir_start.CHECKPOINTS} - {LOG_STARTS}
    if not any(local_files.exists(os.path.join(log_dir, name)) for name in names):
        return False
    try:
        if log_dir_start.read_identity(log_dir).directory_id is None:
            steps.append(Step("write-directory-id", META_PROPERTIES, _NEW_ID))
    except RefusedError as error:
        offline = isinstance(error, OfflineError)
        # KafkaRaftServer needs the ids of the log directory that has the metadata log.
        ends = offline and local_files.exists(os.path.join(log_dir, METADATA_FOLDER))
        why = f"{error.why}; the log directory has {METADATA_FOLDER}" if ends else error.why
        steps.append(Step("refuse" if ends else error.action, META_PROPERTIES, why))
        return offline
    return False


def _entries(path: str) -> tuple[list[str], set[str]]:
    """Return the sorted names of the folders in a folder, and the names of its files."""
    try:
        entries = local_files.entries(path)
    except UnreadableError as error:
        if not isinstance(error.__cause__, NotADirectoryError):
            raise
        of_kafka = base_offset_of(path) is not None or recognise(path) is not None
        way_out = f"write kseg recovery {shell_word(os.path.dirname(path) or '.')}"
        raise UnreadableError(
            f"{path} is a file, and a broker starts on folders: {way_out if of_kafka else 'give a log directory'}"
        ) from error
    folders = sorted(name for name, kind in entries if kind == "folder")
    return folders, {name for name, kind in entries if kind != "folder"}


def _is_partition(path: str, folders: list[str], files: set[str]) -> bool:
    if files & _OF_A_LOG_DIR:
        return False
    if partition_of(os.path.basename(os.path.abspath(path))) and not any(partition_of(name) for name in folders):
        return True
    return any(base_offset_of(name) is not None for name in files)


def places_of(path: str) -> list[str]:
    """Return the folders to plan: the path if it is a log directory or a partition, or else the log directories in it.

    Raises UnreadableError if there are none.
    """
    path = os.path.normpath(path)
    folders, files = _entries(path)
    if any(map(is_remote_log, logs_among(sorted(files)))):
        raise UnreadableError(f"{path}: its segments are of remote storage: a broker does not load them at its start")
    if files & _OF_A_LOG_DIR or any(base_offset_of(name) is not None for name in files):
        return [path]
    found = log_dirs_in(path, frozenset(_OF_A_LOG_DIR))
    # A log directory can have folders that are not partitions: it is one broker's all the same.
    if path in found or (not found and _is_partition(path, folders, files)):
        return [path]
    if not found:
        named = next(filter(partition_of, folders), None)
        why = f"{named} holds no segment" if named else "neither a log directory nor a partition folder"
        raise UnreadableError(f"{path}: {why}")
    return found
