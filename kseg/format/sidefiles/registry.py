"""The registry of side files: for each kind its name, its decoder, its columns, and what commands do with it.

The name of a file can have a suffix that shows its state (``.deleted``), and so can a partition's folder (``-delete``).
Sources: ``UnifiedLog``, ``LogFileUtils``, ``LogManager`` of Kafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kseg.errors import NotASegmentError, UnreadableError
from kseg.findings import Report
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.sidefiles import checkpoints, index_walks, metadata_files, producer_snapshot
from kseg.format.storage.naming import (
    BOOTSTRAP,
    ID,
    INDEX_SUFFIXES,
    MISSING_FILES,
    OFFSET,
    UNPLACED,
    base_offset_of,
    is_log,
    is_segment_stem,
    logs_among,
    named_offset,
    partition_of,
    snapshot_id,
)
from kseg.format.storage.segment_files import SegmentFile, as_decoded, folders_at, path_in, segments_in
from kseg.format.storage.source import Source
from kseg.schema import Column

if TYPE_CHECKING:
    from kseg.format.sidefiles.indexes import AbortedTxn
    from kseg.format.sidefiles.producer_snapshot import ProducerState

#: Yields (byte, entry) of each entry of a source. Parameters: the source, the offset in its name (0 without one), a report.
Walk = Callable[[Source, int, Report], Iterator[tuple[int, Any]]]


#: The treatment by a command of a file of a partition.
COPY, REBUILD, LEAVE_OUT = "copy", "rebuild", "leave out"


class Handling(NamedTuple):
    """What ``convert`` to a newer version, ``convert`` to an older one and ``repair`` do with a file of a partition."""

    upgrade: str = LEAVE_OUT
    downgrade: str = LEAVE_OUT
    repair: str = LEAVE_OUT


_LEFT_OUT = Handling()


class SideFile(NamedTuple):
    """A kind of side file.

    ``kind`` is the kind of its rows; ``columns`` are the fields of an entry in their order. ``name`` is a pattern of the
    whole file name; its group is the offset in the name. ``line`` returns the line that kafka-dump-log prints for an
    entry; it is None if that tool can't read the file. ``reports_empty_file``: kafka-dump-log reports an empty file.
    ``suffix`` is set for files of a segment, ``in_partition`` for other files of a partition folder.
    """

    title: str
    kind: str
    name: str
    walk: Walk
    columns: tuple[Column, ...]
    line: Callable[[Any], str] | None = None
    reports_empty_file: bool = False
    suffix: str | None = None
    in_partition: bool = False
    handling: Handling = _LEFT_OUT


def _snapshot_line(producer: ProducerState) -> str:
    first = producer.current_txn_first_offset
    timestamp = NO_TIMESTAMP if producer.timestamp is None else producer.timestamp
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch}"
        f" coordinatorEpoch: {producer.coordinator_epoch}"
        f" currentTxnFirstOffset: {'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'}"
        f" lastTimestamp: {timestamp}"
    )
    if producer.last_offset < 0:
        return line
    return (
        f"{line} firstSequence: {increment_sequence(producer.last_sequence, -producer.offset_delta)}"
        f" lastSequence: {producer.last_sequence} lastOffset: {producer.last_offset}"
        f" offsetDelta: {producer.offset_delta} timestamp: {timestamp}"
    )


def _aborted_line(txn: AbortedTxn) -> str:
    return (
        f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
        f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
    )


# In the cache of a tiered log the offset is not padded, and the remote segment's id follows (RemoteIndexCache).
# In remote storage the id follows a dash (LocalTieredStorage).
_OF_INDEX = OFFSET.replace(")", r"|\d{1,19}(?=_))") + f"(?:[_-]{ID})?"
# Files that contain only offsets stay valid when batches are converted to a newer version. A conversion to an older version
# loses producers, transactions and epochs, and side files with these would contradict the log.
_REBUILT = Handling(REBUILD, REBUILD, REBUILD)

# The decoders are functions here, so that a look-up of a name runs none of their modules.
SIDE_FILES = (
    SideFile(
        "offset index", "offset_index_entry", _OF_INDEX + r"\.index",
        lambda source, base, report: index_walks.walk_offset_index(source, base, report),
        (
            Column("offset", "int", "last offset of the batch at log_position"),
            Column("log_position", "int", "first byte of that batch in the log"),
        ),
        lambda entry: f"offset: {entry.offset} position: {entry.log_position}",
        reports_empty_file=True, suffix=".index", handling=_REBUILT,
    ),
    SideFile(
        "time index", "time_index_entry", _OF_INDEX + r"\.timeindex",
        lambda source, base, report: index_walks.walk_time_index(source, base, report),
        (
            Column("timestamp", "int", "largest timestamp so far, epoch ms"),
            Column("offset", "int", "offset of that timestamp"),
        ),
        lambda entry: f"timestamp: {entry.timestamp} offset: {entry.offset}", suffix=".timeindex", handling=_REBUILT,
    ),
    SideFile(
        "transaction index", "aborted_transaction", _OF_INDEX + r"\.txnindex",
        lambda source, base, report: index_walks.walk_txn_index(source, base, report),
        (
            Column("producer_id", "int", "producer of the transaction"),
            Column("first_offset", "int", "offset of its first batch"),
            Column("last_offset", "int", "offset of its marker"),
            Column("last_stable_offset", "int", "start of the earliest transaction then open, or offset after the marker"),
            Column("version", "int", "version of the entry"),
        ),
        _aborted_line, suffix=".txnindex", handling=Handling(upgrade=REBUILD, repair=REBUILD),
    ),
    SideFile(
        "producer snapshot", "producer_state", OFFSET + rf"(?:-{ID})?\.snapshot",
        lambda source, base, report: producer_snapshot.walk_snapshot(source, report),
        (
            Column("producer_id", "int", "id of the producer"),
            Column("producer_epoch", "int", "epoch of the producer"),
            Column("last_sequence", "int", "last sequence of its last batch; -1 is none"),
            Column("last_offset", "int", "last offset of its last batch; -1 is none"),
            Column("offset_delta", "int", "last offset of that batch minus its first"),
            Column("timestamp", "int?", "timestamp of its last batch or marker, epoch ms"),
            Column("coordinator_epoch", "int", "coordinator epoch of its last marker; -1 is none"),
            Column("current_txn_first_offset", "int?", "first offset of its open transaction; null is none"),
        ),
        # Snapshots before the first loss are kept: a later one describes lost batches, too.
        _snapshot_line, suffix=".snapshot", handling=Handling(upgrade=REBUILD, repair=REBUILD),
    ),
    SideFile(
        "leader epoch checkpoint", "leader_epoch", rf"leader-epoch-checkpoint|\d{{20}}-{ID}\.leader_epoch_checkpoint",
        lambda source, base, report: checkpoints.walk_leader_epochs(source, report),
        (Column("epoch", "int", "the leader epoch"), Column("start_offset", "int", "first offset of the epoch")),
        in_partition=True, handling=Handling(upgrade=REBUILD, repair=REBUILD),
    ),
    SideFile(
        "offset checkpoint", "checkpoint_offset", "(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint",
        lambda source, base, report: checkpoints.walk_offset_checkpoint(source, report),
        (
            Column("topic", "text", "topic of the partition"),
            Column("partition", "int", "number of the partition"),
            Column("offset", "int", "recovery point, high watermark, log start or cleaner position, by file name"),
        ),
    ),
    SideFile(
        "partition metadata", "partition_metadata", r"partition\.metadata",
        lambda source, base, report: metadata_files.walk_partition_metadata(source, report),
        (Column("version", "int", "version of the file"), Column("topic_id", "text", "id of the topic")),
        in_partition=True, handling=Handling(COPY, COPY, COPY),
    ),
    SideFile(
        "log directory properties", "meta_properties", r"meta\.properties",
        lambda source, base, report: metadata_files.walk_meta_properties(source, report),
        (
            Column("version", "int", "0 with ZooKeeper, 1 with KRaft"),
            Column("cluster_id", "text", "id of the cluster"),
            Column("node_id", "int", "id of the node; broker.id in version 0"),
            Column("directory_id", "text", "id of the log directory"),
        ),
    ),
    SideFile(
        "quorum state", "quorum_state", "quorum-state",
        lambda source, base, report: metadata_files.walk_quorum_state(source, report),
        (
            Column("data_version", "int", "0 or 1"),
            Column("leader_id", "int", "id of the leader; -1 is none"),
            Column("leader_epoch", "int", "current leader epoch"),
            Column("voted_id", "int", "id that this node voted for; -1 is none"),
            Column("voted_directory_id", "text?", "directory id that this node voted for; version 1 only"),
            Column("applied_offset", "int?", "applied offset; version 0 only"),
            Column("current_voters", "json", "ids of the voters; version 0 only"),
        ),
        in_partition=True, handling=Handling(repair=COPY),
    ),
    SideFile(
        "clean shutdown mark", "clean_shutdown", r"\.kafka_cleanshutdown",
        lambda source, base, report: metadata_files.walk_clean_shutdown(source, report),
        (
            Column("version", "int?", "version of the file; null before Kafka 3.8"),
            Column("broker_epoch", "int?", "epoch of the broker; null before Kafka 3.8"),
        ),
    ),
)  # fmt: skip

#: The columns before those of an entry.
COMMON = (
    Column("kind", "text", "the kind of the row"),
    Column("file", "text", "the path as it was given"),
    Column("position", "count", "first byte of the entry in the file"),
)

SUFFIXES: Mapping[str, str] = {
    ".deleted": "about to be deleted",
    ".cleaned": "left by a cleaner that did not finish",
    ".swap": "complete, about to replace segments",
    ".tmp": "left by a write that did not finish",
}
FOLDER_SUFFIXES: Mapping[str, str] = {
    "-delete": "in a folder about to be deleted",
    "-future": "in the folder of a replica that moves to this log directory",
    "-stray": "in the folder of a stray replica",
}
# The suffixes that files of a segment, other files of a partition, and KRaft snapshots can have.
_SEGMENT_SUFFIXES = (".deleted", ".cleaned", ".swap")
_PARTITION_SUFFIXES = (".tmp",)
_KRAFT_SUFFIXES = (".deleted",)
# Kafka's files that are neither logs nor side files: KRaft's bootstrap snapshot, the lock of a log dir.
_OTHERS = (BOOTSTRAP, ".lock")
# The files of a remote segment: <offset>-<id>.<kind> in a tiered storage, <offset>_<id>.<kind> in a broker's cache.
_TIERED = r"\d{1,20}[-_][a-z0-9_-]{22}\.(?:log|[a-z]*index|indexes|snapshot|leader[_-]epoch[_-]checkpoint|rsm-manifest)"


class Recognised(NamedTuple):
    """A side file, by its name: its kind, the offset in the name (0 without one), and a phrase for its state, or None."""

    side: SideFile
    base_offset: int
    state: str | None


def recognise(path: str) -> Recognised | None:
    """Return the kind of side file that a path is by its name; None for any other file."""
    stem, state = _without_suffix(path)
    for side in SIDE_FILES:
        if match := re.fullmatch(side.name, stem):
            return Recognised(side, named_offset(match[1]) if match.groups() else 0, state)
    return None


def _side_file(name: str) -> SideFile | None:
    """Return the kind of a side file without a suffix such as ``.deleted``, None for other names."""
    return next((side for side in SIDE_FILES if re.fullmatch(side.name, name)), None)


def _in_partition(side: SideFile, name: str) -> bool:
    """Return whether files of this kind and name are in partition folders (not in the cache of a tiered log)."""
    return side.in_partition or (side.suffix is not None and is_segment_stem(name.removesuffix(side.suffix)))


def handling_of(name: str) -> Handling:
    """Return what convert and repair do with a file of a partition folder that is not a log."""
    side = _side_file(name)
    return side.handling if side and _in_partition(side, name) else _LEFT_OUT


def belongs_to_partition(name: str) -> bool:
    """Return whether a broker or ``kseg repair`` can have written a file of this name into a partition folder."""
    stem, suffix = os.path.splitext(name)
    if suffix == UNPLACED:
        return is_segment_stem(stem)
    if suffix not in SUFFIXES:
        stem, suffix = name, ""
    if is_log(stem):
        return suffix in ("", *_SEGMENT_SUFFIXES)
    if snapshot_id(stem):
        return suffix in ("", *_KRAFT_SUFFIXES)
    side = _side_file(stem)
    if side is None or not _in_partition(side, stem):
        return False
    return suffix in ("", *(_SEGMENT_SUFFIXES if side.suffix else _PARTITION_SUFFIXES))


def is_kafka_name(name: str) -> bool:
    """Return whether a file of a broker or of a tiered storage can have this name. Case is ignored: some disks do."""
    name = name.lower()
    stem = _without_suffix(name)[0]
    if is_log(stem) or snapshot_id(stem) or stem in _OTHERS or _side_file(stem):
        return True
    return re.fullmatch(_TIERED, stem) is not None


def segment_suffixes() -> tuple[str, ...]:
    """Return the suffixes of the side files of a segment."""
    return tuple(side.suffix for side in SIDE_FILES if side.suffix)


def check_not_side_file(path: str) -> None:
    """Raise NotASegmentError for a path with the name of a side file. Its bytes are not read."""
    known = recognise(path)
    if known:
        raise NotASegmentError(f"{path}: not a Kafka log segment: by its name it is a file of kind {known.side.title}")


def _without_suffix(path: str) -> tuple[str, str | None]:
    """Return the name of a file without a suffix of its state, and a phrase for its state or that of its folder."""
    folder, name = os.path.split(path)
    stem, dot, suffix = name.rpartition(".")
    if state := SUFFIXES.get(dot + suffix):
        return stem, state
    partition = partition_of(os.path.basename(folder))
    return name, FOLDER_SUFFIXES[partition.state] if partition and partition.state else None


def find_files(path: str, unknown: Callable[[str], None]) -> Iterator[SegmentFile]:
    """Yield the segments and side files of a folder or URL and all folders below it; a path to a file is that file.

    ``unknown`` is called with each other file, such as ``.deleted`` ones, and with a folder in place of a segment. A folder
    that cannot be listed is yielded, too, as ``find_segments`` does: opening it fails with the reason. Raises
    UnreadableError if no file is found.
    """
    empty = True
    unlisted: list[str] = []
    folders = folders_at(path, unlisted.append)
    if folders is None:
        yield SegmentFile(as_decoded(path))
        return
    for folder, names in folders:
        if is_log(os.path.basename(folder)):
            unknown(folder)
        present = set(names)
        of_segments = {MISSING_FILES}
        for file in segments_in(folder, names):
            empty = False
            stem = os.path.basename(file.path).removesuffix(".log")
            indexes = [stem + suffix for suffix in INDEX_SUFFIXES if stem + suffix in present]
            of_segments.update(indexes)
            yield replace(file, indexes=tuple(path_in(folder, name) for name in indexes))
        for file in _side_files_in(folder, [name for name in names if name not in of_segments], unknown):
            empty = False
            yield file
    yield from (SegmentFile(folder, indexes=()) for folder in unlisted)
    if empty and not unlisted:
        raise UnreadableError(f"{path}: no segment found (a .log file named by 20 digits), and no side file")


def every_file(path: str) -> Iterator[SegmentFile]:
    """Yield all files that ``find_files`` finds, also indexes of segments and files that are not part of the log."""
    unknown: list[str] = []

    def others() -> Iterator[SegmentFile]:
        found = [SegmentFile(name, indexes=(), listed=True) for name in unknown if not is_log(os.path.basename(name))]
        unknown.clear()
        yield from found

    for file in find_files(path, unknown.append):
        yield file
        yield from (SegmentFile(index, indexes=(), listed=True) for index in file.indexes or ())
        yield from others()
    yield from others()


class NamedFile(NamedTuple):
    """The meaning of a file's name: the kind, the offset in it, and a phrase for the state; each None without one."""

    kind: str | None
    base_offset: int | None
    state: str | None


def named_file(path: str) -> NamedFile:
    """Return the meaning of the name of any file of a log directory. Side files have the names of their kinds."""
    if known := recognise(path):
        return NamedFile(known.side.title, known.base_offset if known.side.suffix else None, known.state)
    stem, state = _without_suffix(path)
    kind = "segment" if is_log(stem) else "metadata snapshot" if snapshot_id(stem) else None
    return NamedFile(kind, base_offset_of(stem), state)


def _side_files_in(folder: str, names: list[str], unknown: Callable[[str], None]) -> Iterator[SegmentFile]:
    logs = set(logs_among(names))
    for name in names:
        if _side_file(name):
            yield SegmentFile(path_in(folder, name), indexes=(), listed=True)
        elif not (name in logs or snapshot_id(name) or name in _OTHERS):
            unknown(path_in(folder, name))
