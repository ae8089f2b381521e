"""The names of Kafka's files and folders, and the lock of a log directory on which a broker of this machine runs.

Every rule about a file name is here, except for the names of side files, which are rows of ``sidefiles.registry``.
Sources: ``LogFileUtils``, ``LocalLog``, ``Snapshots`` of Kafka.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from kseg.engine import lazy
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.storage import file_access, java_text

if TYPE_CHECKING:
    from kseg.extras import archive as archive
else:
    # The reader of paths into archives. A run that meets no such path works without it.
    archive = lazy("kseg.extras.archive")

#: The topic of a KRaft cluster's metadata, whose only partition is on its controllers.
CLUSTER_METADATA = "__cluster_metadata"
METADATA_FOLDER = f"{CLUSTER_METADATA}-0"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
REMOTE_LOG_METADATA = "__remote_log_metadata"
#: The topics of coordinators: a record's key begins with its type.
KEYED = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
#: The topics whose records Kafka itself writes, and kseg decodes.
INTERNAL_TOPICS = (*KEYED, CLUSTER_METADATA, REMOTE_LOG_METADATA)
#: The records that a controller appends to its metadata log if that is empty (``BootstrapDirectory``).
BOOTSTRAP = "bootstrap.checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
#: The name of a file in place of those that an incomplete archive can lack. Opening it fails with the reason.
MISSING_FILES = "(files that the archive lacks)"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
#: The folder for the indexes of tiered storage in a log directory: it is not a partition, and the broker knows its name.
REMOTE_INDEX_CACHE = "remote-log-index-cache"
#: The files of a log directory itself, which are about all its partitions.
OF_LOG_DIRS = frozenset(
    {CLEAN_SHUTDOWN, META_PROPERTIES, RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS}
)
#: The files of a partition's folder.
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
#: The vote of a node, next to its metadata log (``FileQuorumStateStore``).
QUORUM_STATE = "quorum-state"
#: The most characters of a topic's name.
LONGEST_TOPIC = 249
_TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST_TOPIC}}}")
#: The first part of the name of each file of a segment: its base offset.
OFFSET = r"(\d{20})"
#: The name of a segment in use.
LOG = OFFSET + r"\.log"
#: The suffixes of the indexes of a segment. The rest of the name is the segment's.
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

#: The suffix of a file of ``kseg repair``: the valid batches of a segment that are not in its result. No broker reads it.
UNPLACED = ".unplaced"

#: The id of a topic or of a remote segment: 16 bytes in base64 (``Uuid.toString``).
ID = r"[A-Za-z0-9_-]{22}"
_REMOTE = rf"-{ID}"

_LOG = re.compile(LOG)
# Kafka's LocalTieredStorage: RemoteLogSegmentFileset.
_REMOTE_LOG = re.compile(OFFSET + _REMOTE + r"\.log")
_REMOTE_NAME = re.compile(OFFSET + rf"-({ID})(\.[a-z_-]+)")
_DELETED_LOG = re.compile(LOG + r"\.deleted")
_REMOTE_FOLDER = re.compile(rf"(.+)-(\d{{1,10}})-({ID})", re.DOTALL)
_ARCHIVE = r"\.(?:tar|tar\.gz|tgz|tar\.zst|tzst|zip)"
_ARCHIVE_NAME = re.compile(_ARCHIVE + "$", re.IGNORECASE)
#: The suffix of the manifest of a segment whose bytes a plugin of remote storage transforms (Aiven's).
MANIFEST = ".rsm-manifest"
# The objects of a partition are in <prefix><topic>-<topic id>/<partition>.
_OBJECT_FOLDER = re.compile(rf"(?:.*/)?([^/]+)-({ID})/(\d{{1,10}})", re.DOTALL)
# A path into standard input begins with "-".
_IN_ARCHIVE = re.compile(rf"-(?:/|$)|.*{_ARCHIVE}(?:/|$)", re.IGNORECASE | re.DOTALL)
_SEGMENT = re.compile(OFFSET + rf"(?:{_REMOTE})?\.log" + r"(?:\.deleted|\.cleaned|\.swap)?$")
_KRAFT_SNAPSHOT = re.compile(OFFSET + r"-(\d{10})\.checkpoint$")
_SEGMENT_STEM = re.compile(r"(?:^|/)" + OFFSET + r"\Z")
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# A URL with this ending is a file; others need a request to find out.
_FILE = re.compile(r"/\d{20}[^/]*$")
# The suffixes of folders that a broker deletes, moves between disks, or does not know (LocalLog).
_STATES = ("-delete", "-future", "-stray")


def base_offset_of(name: str) -> int | None:
    """Return the offset in a segment's file name, None for other names (``LocalLog.filenamePrefixFromOffset``)."""
    match = _SEGMENT.search(name)
    return named_offset(match[1]) if match else None


def named_offset(digits: str) -> int:
    """Return the offset in a file name, limited to the range of int64: twenty digits can exceed it."""
    return min(int(digits), INT64_MAX - INT32_MAX)


def end_offsets(paths: Sequence[str]) -> Iterator[int | None]:
    """Yield, for each segment, the base offset of the next one of its folder, which its offsets are below; None without one.

    ``paths`` are in the order of ``find_segments``.
    """
    for path, following in zip_longest(paths, paths[1:], fillvalue=""):
        base, end = base_offset_of(path), base_offset_of(following)
        beside = path.rpartition("/")[0] == following.rpartition("/")[0]
        yield end if beside and base is not None and end is not None and end > base else None


def is_log(name: str) -> bool:
    """Return whether a file name is that of a segment in use: 20 digits and ``.log``."""
    return _LOG.fullmatch(name) is not None


def is_remote_log(name: str) -> bool:
    """Return whether a file name is that of a segment in Kafka's reference tiered storage (``LocalTieredStorage``)."""
    return _REMOTE_LOG.fullmatch(name) is not None


def is_missing(path: str) -> bool:
    """Return whether a path is the one in place of files that an archive lacks."""
    return os.path.basename(path) == MISSING_FILES


def logs_among(names: Iterable[str]) -> list[str]:
    """Return the segments among the file names of a folder: those in use.

    Without one: those of remote storage, or those that a broker was about to delete. Other plugins of remote storage
    transform the bytes: a log with a manifest (``.rsm-manifest`` of Aiven's plugin) is none.
    """
    present = list(names)
    if logs := [name for name in present if is_log(name)]:
        return logs
    manifests = {name.removesuffix(MANIFEST) for name in present if name.endswith(MANIFEST)}
    remote = [name for name in present if is_remote_log(name) and name.removesuffix(".log") not in manifests]
    return remote or [name for name in present if _DELETED_LOG.fullmatch(name)]


def is_archive_name(name: str) -> bool:
    """Return whether a file is an archive by its name."""
    return _ARCHIVE_NAME.search(name) is not None


def may_be_in_archive(path: str) -> bool:
    """Return whether a path can be an archive, or lead into one, by the names of its parts.

    The decoded view of objects in remote storage (``tiered_parts``) is one.
    """
    return _IN_ARCHIVE.match(path) is not None or tiered_parts(path) is not None


def tiered_view(folder: str) -> str | None:
    """Return the path of the decoded view of a folder with objects of a partition, None for another name.

    The view is a folder in that folder with the name that ``LocalTieredStorage`` would use, ``<topic>-<partition>-<topic
    id>``.
    """
    match = _OBJECT_FOLDER.fullmatch(folder)
    return f"{folder}/{match[1]}-{match[3]}-{match[2]}" if match else None


def tiered_parts(path: str) -> tuple[str, str] | None:
    """Return the folder with the objects of a partition, and the file name, of a path into the decoded view of them.

    The file name is "" for the view itself. None for other paths.
    """
    above, _, name = path.rpartition("/")
    for view, file in ((path, ""), (above, name)):
        folder = view.rpartition("/")[0]
        if folder and tiered_view(folder) == view:
            return folder, file
    return None


class RemoteName(NamedTuple):
    """The parts of the name of an object in remote storage: the base offset, the segment's id, and the suffix."""

    base: int
    segment_id: str
    suffix: str


def remote_name(name: str) -> RemoteName | None:
    """Parse the name of an object in remote storage (``RemoteLogSegmentFileset``); None for other names."""
    match = _REMOTE_NAME.fullmatch(name)
    return RemoteName(int(match[1]), match[2], match[3]) if match else None


def has_manifests(names: Iterable[str]) -> bool:
    """Return whether a folder has objects of Aiven's plugin by the names of its files: manifests, or those of Iceberg."""
    return any(name.endswith((MANIFEST, ".puffin")) for name in names)


def is_index(name: str) -> bool:
    """Return whether a file name is that of an index of a segment: 20 digits and one of INDEX_SUFFIXES."""
    stem, dot, suffix = name.rpartition(".")
    return dot + suffix in INDEX_SUFFIXES and re.fullmatch(OFFSET, stem) is not None


def is_snapshot(name: str) -> bool:
    """Return whether a path is that of a KRaft snapshot: ``<20 digits>-<10 digits>.checkpoint``."""
    return _KRAFT_SNAPSHOT.search(name) is not None


def snapshot_id(name: str) -> tuple[int, int] | None:
    """Return the end offset and the epoch in the file name of a KRaft snapshot, None for other names (KIP-630)."""
    match = _KRAFT_SNAPSHOT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def producer_snapshot_offset(name: str) -> int | None:
    """Return the offset in the file name of a producer snapshot, None for other names."""
    stem = name.removesuffix(".snapshot")
    return int(stem) if stem != name and is_segment_stem(stem) else None


def is_segment_stem(path: str) -> bool:
    """Return whether a path ends like a segment's without its suffix: with a name of 20 digits."""
    return _SEGMENT_STEM.search(path) is not None


def is_url(path: str) -> bool:
    """Return whether a path is a URL."""
    return _URL.match(path) is not None


def without_file_scheme(path: str) -> str:
    """Return the local path of a ``file:`` URL, other paths and URLs as they are."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def is_file_url(url: str) -> bool:
    """Return whether a URL is that of a segment or its side file, by its name: ``kafka.log`` can be a folder."""
    return _FILE.search(url) is not None


class Partition(NamedTuple):
    """The parts of a partition folder's name. ``state`` is ``-delete``, ``-future`` or ``-stray``, None if in use."""

    topic: str
    partition: int
    state: str | None


def partition_of(name: str) -> Partition | None:
    """Parse the name of a partition folder (``LocalLog.parseTopicPartitionName``); None for other names."""
    state = next(filter(name.endswith, _STATES), None)
    if state is None:
        in_use, marked = name, True
    else:
        in_use, _, mark = name.removesuffix(state).rpartition(".")
        marked = bool(mark) and java_text.WHITE_SPACE.search(name) is None
    topic, _, digits = in_use.rpartition("-")
    found = java_text.number(digits, INT32_MAX) if topic and marked else None
    return None if found is None else Partition(topic, found, state)


def leftover_of(name: str) -> str | None:
    """Return ``delete``, ``future`` or ``stray`` for a partition folder with that suffix, None for other names."""
    partition = partition_of(name)
    return partition.state[1:] if partition and partition.state else None


def remote_partition_of(name: str) -> Partition | None:
    """Parse the name of a folder in Kafka's reference tiered storage, ``<topic>-<partition>-<topic id>``."""
    match = _REMOTE_FOLDER.fullmatch(name)
    return Partition(match[1], int(match[2]), None) if match else None


def remote_topic_id_of(name: str) -> str | None:
    """Return the topic id in the name of a partition's folder in remote storage, None for other names."""
    match = None if partition_of(name) else _REMOTE_FOLDER.fullmatch(name)
    return match[3] if match else None


# struct flock of Linux, 64 bit: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")


def is_in_use(log_dir: str) -> bool:
    """Whether another process holds the lock of a log dir (``.lock``, Kafka's ``FileLock``), as every broker does.

    The lock is queried (F_GETLK), never taken. False if it is unknown: without a ``.lock``, for a broker on another
    machine, and on systems other than Linux, where a warning says so.
    """
    if sys.platform != "linux":
        if os.path.exists(os.path.join(log_dir, ".lock")):
            file_access.current().warn(
                f"{log_dir}: kseg detects a running broker on Linux only: with one, findings about checkpoints can "
                "disappear within seconds"
            )
        return False
    try:
        import fcntl  # Windows has no such module
    except ImportError:
        return False
    try:
        handle = os.open(os.path.join(log_dir, ".lock"), os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would block
    except OSError:
        return False
    try:
        requested = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, requested))[0]
    except (OSError, struct.error):
        return False
    finally:
        os.close(handle)
    return bool(kind != fcntl.F_UNLCK)


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows a topic of this name (``Topic.validate``)."""
    return name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None
