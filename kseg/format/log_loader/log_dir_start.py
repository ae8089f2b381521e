"""What a broker reads of a log directory before it loads its logs: ids, last shutdown and checkpoints, and stray folders.

A KRaft broker checks the ids in ``meta.properties`` before all else. It renames the folders of partitions to ``-stray`` that
the metadata does not place on it. It asks the metadata that the controllers have by then; the log on its disk ends with its
last shutdown: a topic that is deleted later makes more strays, and one that is created later has no folder here.

Sources: ``MetaPropertiesEnsemble``, ``KafkaRaftServer.initializeLogDirs``, ``LogManager.loadLogs`` and
``LogManager.isStrayKraftReplica`` of Kafka 4.3.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kseg.errors import KsegError, NotASegmentError, UnreadableError
from kseg.format.internal_topics.cluster_image import ClusterImage
from kseg.format.internal_topics.metadata_loading import Replayed, names_topics, replayed, state_files
from kseg.format.log_loader.loaded_files import OfflineError, RefusedError
from kseg.format.log_loader.partition_files import File
from kseg.format.log_loader.plan import (
    LEAVE_UNSERVED,
    MARK_DAMAGED_ID,
    MARK_FORGOTTEN,
    MARK_UNPLACED,
    REJECT_ID,
    STOP_CLEANER,
    Step,
    Stray,
)
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.sidefiles.checkpoints import MAX_TEXT, CheckpointOffset, read_checkpoint_offsets
from kseg.format.sidefiles.metadata_files import (
    MetaProperties,
    QuorumState,
    topic_id_of,
    walk_meta_properties,
    walk_quorum_state,
)
from kseg.format.sidefiles.side_file_reading import entries_of
from kseg.format.storage import local_files
from kseg.format.storage.java_text import FileFault, MemoryFault, UncheckedFault
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import (
    BOOTSTRAP,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    CLUSTER_METADATA,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    METADATA_FOLDER,
    QUORUM_STATE,
    RECOVERY_POINTS,
    Partition,
    is_in_use,
    is_log,
    is_snapshot,
    partition_of,
)
from kseg.text import excerpt

# DirectoryId: UNASSIGNED, LOST, MIGRATING and 97 more values are reserved.
_RESERVED = 100
_SHOWN = {"cluster_id": "cluster.id", "node_id": "node.id", "directory_id": "directory.id"}


def read_identity(log_dir: str) -> MetaProperties:
    """Return the cluster, node and directory ids of a log directory.

    Raises OfflineError if a broker can't read the file, RefusedError if the file names no cluster or node.
    """
    path = os.path.join(log_dir, META_PROPERTIES)
    if not local_files.exists(path):
        raise RefusedError("it does not exist: the log directory is not formatted", META_PROPERTIES)
    try:
        if os.path.isdir(path):
            raise OfflineError("it is a folder", META_PROPERTIES)
        found: MetaProperties = entries_of(path, partial(walk_meta_properties, needs_node=False))[0]
    except ValueError as error:
        raise OfflineError(str(error), META_PROPERTIES) from error
    if found.directory_id is not None and _number(found.directory_id) < _RESERVED:
        raise RefusedError(f"directory.id {found.directory_id} is reserved", META_PROPERTIES)
    for field in ("node_id", "cluster_id"):
        if getattr(found, field) is None:
            raise RefusedError(f"{_SHOWN[field]} is missing", META_PROPERTIES)
    if found.node_id is not None and found.node_id < 0:
        raise RefusedError(f"{_SHOWN['node_id']} is {found.node_id}: no broker has it", META_PROPERTIES)
    return found


def _number(directory_id: str) -> int:
    """Return the 128 bits of an id in the base64 of ``Uuid.toString``."""
    return int.from_bytes(base64.urlsafe_b64decode(directory_id + "=" * (-len(directory_id) % 4)))


#: In the reasons of ``conflicts``.
IN_ANOTHER = "another log directory"


def conflicts(one: MetaProperties, other: MetaProperties) -> Iterator[str]:
    """Yield the reasons why two log directories can't belong to one broker."""
    if one.cluster_id != other.cluster_id:
        # A text of a file, not always one of Kafka's ids.
        names = excerpt(one.cluster_id or ""), excerpt(other.cluster_id or "")
        yield f"{_SHOWN['cluster_id']} is {names[0]}, but {names[1]} in {IN_ANOTHER}"
    if one.node_id != other.node_id:
        yield f"{_SHOWN['node_id']} is {one.node_id}, but {other.node_id} in {IN_ANOTHER}"
    if one.directory_id is not None and one.directory_id == other.directory_id:
        yield f"{IN_ANOTHER} has the same directory.id {one.directory_id}"


def several_clusters(log_dirs: Iterable[str]) -> str | None:
    """Return a message if log directories are of different clusters: topics of both can have one name without an id."""
    clusters: dict[str, str] = {}
    for log_dir in log_dirs:
        with suppress(OfflineError, RefusedError):
            clusters.setdefault(str(read_identity(log_dir).cluster_id), log_dir)
    if len(clusters) < 2:
        return None
    each = ", ".join(f"{log_dir} ({excerpt(cluster)})" for cluster, log_dir in clusters.items())
    return f"the log directories are of different clusters: {each}"


def owner_of(log_dir: str) -> tuple[str | int | None, ...]:
    """Return what identifies the broker of a log directory: its cluster and node, or the folder if that is unknown."""
    try:
        identity = read_identity(log_dir)
    except RefusedError:
        return (log_dir,)
    return identity.cluster_id, identity.node_id


def loaded_metadata(folder: str) -> Replayed:
    """Return what a node has that loads the metadata log in a folder: nothing if it cannot be read.

    A controller begins an empty log with the records of ``bootstrap.checkpoint``, to which ``kseg adopt`` writes the topics.
    """
    bootstrap = os.path.join(os.path.dirname(folder), BOOTSTRAP)
    try:
        files = state_files(folder) if local_files.exists(folder) else []
        found = replayed(files)
        empty = not files or (found.image is not None and found.image.empty)
        if empty and local_files.exists(bootstrap) and names_topics(bootstrap):
            found = replayed([bootstrap])
            if found.image is not None:
                found.image.initial = True
    except KsegError:
        return Replayed(None, None)
    with suppress(RefusedError):
        if found.image is not None and (state := read_quorum_state(folder)) and state.current_voters is not None:
            found.image.static_voters = frozenset(state.current_voters)
    return found


def why_bootstrap_fails(log_dir: str) -> str | None:
    """Return why a node that reads ``bootstrap.checkpoint`` does not start, None if it does. Each start reads the file.

    Source: ``BootstrapDirectory.readFromBinaryFile``.
    """
    path = os.path.join(log_dir, BOOTSTRAP)
    if not local_files.exists(path):
        return None
    try:
        fault, image = replayed([path])
    except (NotASegmentError, UnreadableError) as error:
        return str(error)
    if fault is not None:
        return f"the {fault.record} record at offset {fault.offset}: {fault.why}"
    if image is None or image.damaged:
        return "its batches cannot be read"
    return "no record has the metadata.version" if image.metadata_version is None else None


def read_quorum_state(folder: str) -> QuorumState | None:
    """Return the vote in the folder of a metadata log, None without one. Raises RefusedError if a node can't read it."""
    path = os.path.join(folder, QUORUM_STATE)
    if not local_files.exists(path):
        return None
    try:
        return entries_of(path, walk_quorum_state)[0]
    except (ValueError, UnreadableError) as error:
        raise RefusedError(str(error), QUORUM_STATE) from error


def has_metadata_log(log_dir: str) -> bool:
    """Return whether a folder has a metadata log with a record or a snapshot, or topics for an empty one to begin with.

    A controller whose log is empty appends the records of ``bootstrap.checkpoint``: ``kseg adopt`` writes the topics there.
    """
    folder, bootstrap = os.path.join(log_dir, METADATA_FOLDER), os.path.join(log_dir, BOOTSTRAP)
    try:
        if local_files.exists(bootstrap) and names_topics(bootstrap):
            return True
        names = [name for name, kind in local_files.entries(folder) if kind != "folder"]
        return any(
            is_snapshot(name) or (is_log(name) and os.path.getsize(os.path.join(folder, name))) for name in names
        )
    except (OSError, UnreadableError):
        # An error of the disk is not a missing log.
        return local_files.exists(folder)


def stray_folders(log_dir: str, folders: Iterable[str], image: ClusterImage) -> dict[str, Stray]:
    """Return the names among ``folders`` that become strays, each with the reason.

    Folders without a readable topic id are not among them. Nothing is said of a broker that runs, which may just have
    created a folder, or that neither the log nor its quorum knows: it is that of another cluster. The same goes for a
    broker that fetches what is missing from other controllers.
    """
    try:
        node = read_identity(log_dir).node_id
    except RefusedError:
        return {}
    if node is None or not image.is_last_word(node) or is_in_use(log_dir):
        return {}
    found: dict[str, Stray] = {}
    for name in folders:
        partition = partition_of(name)
        if partition is None or partition.state is not None or partition.topic == CLUSTER_METADATA:
            continue
        topic_id = topic_id_of(os.path.join(log_dir, name))
        if topic_id is None:
            continue
        place = node, topic_id, partition.topic, partition.partition
        if why := image.why_stray(*place):
            forgotten = MARK_FORGOTTEN if image.lacks_end(node) else MARK_UNPLACED
            found[name] = Stray(MARK_DAMAGED_ID if image.similar_id(topic_id) else forgotten, why)
        elif why := image.why_rejected(*place):
            found[name] = Stray(REJECT_ID, why)
    return found


#: The checkpoints of a log directory.
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class BrokerStarts:
    """The inputs of a broker for all partitions of a log directory: ``start`` for all, and its checkpoints."""

    start: BrokerStart
    recovery_points: _Offsets
    log_starts: _Offsets

    def of(self, partition: Partition | None, stray: Stray | None = None) -> BrokerStart:
        """Return the inputs for a partition; ``stray`` is that of ``BrokerStart``."""
        key = (partition.topic, partition.partition) if partition else ("", -1)
        recovery_point, log_start = self.recovery_points.get(key, 0), self.log_starts.get(key, 0)
        return replace(self.start, recovery_point=recovery_point, log_start=log_start, stray=stray)


def starts_of(log_dir: str, steps: list[Step], request: BrokerStart) -> BrokerStarts:
    """Return the inputs of a broker for the partitions of a log directory. ``steps`` gets what it does to the files."""
    found = local_files.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
    if found:
        steps.append(Step("delete-file", CLEAN_SHUTDOWN, "a crash after the start must not look like a clean shutdown"))
    offsets = {name: _read_offsets(log_dir, name, steps) for name in CHECKPOINTS}
    recovery_points, log_starts = (
        {(entry.topic, entry.partition): entry.offset for entry in offsets[name]}
        for name in (RECOVERY_POINTS, LOG_STARTS)
    )
    start = replace(request, clean=found) if request.clean is None else request
    return BrokerStarts(start, recovery_points, log_starts)


def _read_offsets(log_dir: str, name: str, steps: list[Step]) -> list[CheckpointOffset]:
    """Return the entries of a checkpoint, none if a broker treats it as empty."""
    path = os.path.join(log_dir, name)
    if not local_files.exists(path) or not skip_special(log_dir, [name]):
        return []
    try:
        return read_checkpoint_offsets(File.at(path).read(0, MAX_TEXT + 1))
    except FileFault as fault:
        steps.append(_fault_step(name, fault))
    return []


def _fault_step(name: str, fault: FileFault) -> Step:
    """Return what follows from the exception of a checkpoint's reader.

    An IOException takes the log directory offline. ``LogManager`` catches others for the two files that it reads, if they
    are not Errors. The first partition needs the high watermarks while the broker applies its metadata (``ReplicaManager``).
    """
    if not isinstance(fault, UncheckedFault):
        return Step("offline", name, f"{fault}; until then the broker treats it as empty")
    if name == HIGH_WATERMARKS:
        return Step(LEAVE_UNSERVED, name, str(fault))
    if name == CLEANER_OFFSETS:
        return Step(STOP_CLEANER, name, str(fault))
    if isinstance(fault, MemoryFault):
        return Step("refuse", name, str(fault))
    return Step("pass-over", name, f"{fault}; the broker treats it as empty")
