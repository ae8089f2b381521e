"""Files beside the log: which there are, by their names, and for each its decoder, its row and kafka-dump-log's line.

A file may have a suffix that says what is to become of it (``.deleted``), and so may a partition's folder
(``-delete``). Sources: ``UnifiedLog``, ``LogFileUtils``, ``LogManager`` of Kafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from kseg.errors import NotASegmentError, UnreadableError
from kseg.findings import Report
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.sidefiles import checkpoints, index_reader, metadata_files, producer_snapshot
from kseg.format.sidefiles.indexes import OffsetEntry, TimeEntry
from kseg.format.sidefiles.producer_snapshot import ProducerState
from kseg.format.sidefiles.txn_index import AbortedTxn
from kseg.format.storage.source import SegmentFile, Source, named_offset, partition_of, segments_in, walk_folders
from kseg.schema import Column, Row

#: From a source, the offset in its name (0 where none is) and a report, to (byte, entry) of each entry.
Walk = Callable[[Source, int, Report], Iterator[tuple[int, Any]]]


@dataclass(frozen=True, slots=True)
class SideFile:
    """A kind of file. ``kind`` is that of its rows, whose ``columns`` are an entry's fields, in their order.

    ``name`` is a pattern of the whole base name, its group the offset that it tells. ``line`` makes what
    kafka-dump-log prints of an entry, None where it knows no such file; of one kind it says that a file is empty.
    """

    title: str
    kind: str
    name: str
    walk: Walk
    columns: tuple[Column, ...]
    line: Callable[[Any], str] | None = None
    reports_empty_file: bool = False


def _nameless(walk: Callable[[Source, Report], Iterator[tuple[int, Any]]]) -> Walk:
    """For a file whose name tells no offset, or whose entries don't depend on it."""
    return lambda source, base_offset, report: walk(source, report)


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


def _offset_line(entry: OffsetEntry) -> str:
    return f"offset: {entry.offset} position: {entry.log_position}"


def _time_line(entry: TimeEntry) -> str:
    return f"timestamp: {entry.timestamp} offset: {entry.offset}"


_OFFSET = r"(\d{20})"
# In the cache of a tiered log the offset is not padded, and the remote segment's id follows (RemoteIndexCache).
_OF_INDEX = r"(\d{20}|\d{1,19}(?=_))(?:_[A-Za-z0-9_-]{22})?"

SIDE_FILES = (
    SideFile(
        "offset index", "offset_index_entry", _OF_INDEX + r"\.index", index_reader.walk_offset_index,
        (
            Column("offset", "int", "the last of the batch at log_position"),
            Column("log_position", "int", "that batch's first byte in the log"),
        ),
        _offset_line, reports_empty_file=True,
    ),
    SideFile(
        "time index", "time_index_entry", _OF_INDEX + r"\.timeindex", index_reader.walk_time_index,
        (
            Column("timestamp", "int", "the largest so far, epoch ms"),
            Column("offset", "int", "where it is"),
        ),
        _time_line,
    ),
    SideFile(
        "transaction index", "aborted_transaction", _OF_INDEX + r"\.txnindex", index_reader.walk_txn_index,
        (
            Column("producer_id", "int", "whose transaction was aborted"),
            Column("first_offset", "int", "of its first batch"),
            Column("last_offset", "int", "of its marker"),
            Column("last_stable_offset", "int", "where the earliest transaction then open began, or behind the marker"),
            Column("version", "int", "of the entry"),
        ),
        _aborted_line,
    ),
    SideFile(
        "producer snapshot", "producer_state", _OFFSET + r"\.snapshot",
        _nameless(producer_snapshot.walk_snapshot),
        (
            Column("producer_id", "int", "the producer"),
            Column("producer_epoch", "int", "its epoch"),
            Column("last_sequence", "int", "of its last batch; -1 is none"),
            Column("last_offset", "int", "of its last batch; -1 is none"),
            Column("offset_delta", "int", "from that batch's first offset to its last"),
            Column("timestamp", "int", "of its last batch or marker, epoch ms"),
            Column("coordinator_epoch", "int", "of its last marker; -1 is none"),
            Column("current_txn_first_offset", "int", "of its open transaction; null is none"),
        ),
        _snapshot_line,
    ),
    SideFile(
        "leader epoch checkpoint", "leader_epoch", "leader-epoch-checkpoint",
        _nameless(checkpoints.walk_leader_epochs),
        (
            Column("epoch", "int", "the leader epoch"),
            Column("start_offset", "int", "its first offset"),
        ),
    ),
    SideFile(
        "offset checkpoint", "checkpoint_offset", "(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint",
        _nameless(checkpoints.walk_offset_checkpoint),
        (
            Column("topic", "text", "the partition's topic"),
            Column("partition", "int", "its number"),
            Column("offset", "int", "recovery point, high watermark, log start, or where the cleaner is: the name says"),
        ),
    ),
    SideFile(
        "partition metadata", "partition_metadata", r"partition\.metadata",
        _nameless(metadata_files.walk_partition_metadata),
        (
            Column("version", "int", "of the file"),
            Column("topic_id", "text", "the topic's id"),
        ),
    ),
    SideFile(
        "log dir properties", "meta_properties", r"meta\.properties", _nameless(metadata_files.walk_meta_properties),
        (
            Column("version", "int", "0 with ZooKeeper, 1 with KRaft"),
            Column("cluster_id", "text", "the cluster"),
            Column("node_id", "int", "the node, or version 0's broker.id"),
            Column("directory_id", "text", "the log dir"),
        ),
    ),
    SideFile(
        "quorum state", "quorum_state", "quorum-state", _nameless(metadata_files.walk_quorum_state),
        (
            Column("data_version", "int", "0 or 1"),
            Column("leader_id", "int", "-1 is none"),
            Column("leader_epoch", "int", "the epoch it is in"),
            Column("voted_id", "int", "-1 is none"),
            Column("voted_directory_id", "text", "version 1"),
            Column("applied_offset", "int", "version 0"),
            Column("current_voters", "object", "version 0: their ids"),
        ),
    ),
    SideFile(
        "clean shutdown mark", "clean_shutdown", r"\.kafka_cleanshutdown",
        _nameless(metadata_files.walk_clean_shutdown),
        (
            Column("version", "int", "null before 3.8"),
            Column("broker_epoch", "int", "null before 3.8"),
        ),
    ),
)  # fmt: skip

#: Of the indexes beside a segment that has the same name up to there.
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

#: What stands before an entry's own columns.
COMMON = (
    Column("kind", "text", "what it is"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "the entry's first byte in the file"),
)

SUFFIXES: Mapping[str, str] = {
    ".deleted": "about to be deleted",
    ".cleaned": "left by a cleaner that did not finish",
    ".swap": "complete, and about to replace what it covers",
    ".tmp": "left by a write that did not finish",
}
FOLDER_SUFFIXES: Mapping[str, str] = {
    "-delete": "in a folder about to be deleted",
    "-future": "in the folder of a replica that is moving here",
    "-stray": "in the folder of a replica that was not this broker's",
}
# A log, a snapshot of KRaft, the lock of a log dir: known, but no side files.
_OTHERS = re.compile(_OFFSET + r"\.log|" + _OFFSET + r"-\d{10}\.checkpoint|bootstrap\.checkpoint|\.lock")
_PATTERNS = tuple((re.compile(side.name), side) for side in SIDE_FILES)


class Recognised(NamedTuple):
    """A file known by its name: what it is, the offset the name tells (0 where none), what is to become of it."""

    side: SideFile
    base_offset: int
    fate: str | None


def recognise(path: str) -> Recognised | None:
    """What side file a path is, by its name alone; None for any other file."""
    folder, name = os.path.split(path)
    stem, fate = _without_suffix(name)
    for pattern, side in _PATTERNS:
        match = pattern.fullmatch(stem)
        if match:
            base_offset = named_offset(match[1]) if match.groups() else 0
            return Recognised(side, base_offset, fate or _folder_kind(os.path.basename(folder)))
    return None


def check_not_side_file(path: str) -> None:
    """Raises NotASegmentError for a file that by its name is none, whatever its bytes look like."""
    known = recognise(path)
    if known:
        raise NotASegmentError(f"{path}: no Kafka log segment: by its name, {known.side.title}")


def _without_suffix(name: str) -> tuple[str, str | None]:
    stem, dot, suffix = name.rpartition(".")
    fate = SUFFIXES.get(dot + suffix)
    return (stem, fate) if fate else (name, None)


def _folder_kind(name: str) -> str | None:
    partition = partition_of(name)
    return FOLDER_SUFFIXES[partition.state] if partition and partition.state else None


def side_row(file: str, side: SideFile, position: int, entry: tuple[Any, ...]) -> Row:
    """An entry as a row: COMMON and the columns of its kind."""
    own = zip((column.name for column in side.columns), entry, strict=True)
    return {"kind": side.kind, "file": file, "position": position, **dict(own)}


def find_files(path: str, unknown: Callable[[str], None]) -> Iterator[SegmentFile]:
    """The segments and side files of a folder and all below it. A segment's indexes stand with it, not by themselves.

    ``unknown`` is told the other files, also those with a suffix: they are no part of the log yet, or no more. Raises
    UnreadableError where there is nothing.
    """
    nothing = True
    for folder, names in walk_folders(path):
        present = set(names)
        of_segments: set[str] = set()
        for file in segments_in(folder, names):
            nothing = False
            stem = os.path.basename(file.path).removesuffix(".log")
            beside = [stem + suffix for suffix in INDEX_SUFFIXES if stem + suffix in present]
            of_segments.update(beside)
            yield replace(file, indexes=tuple(str(folder / name) for name in beside))
        for file in _side_files_in(folder, [name for name in names if name not in of_segments], unknown):
            nothing = False
            yield file
    if nothing:
        raise UnreadableError(
            f"{path}: no segment in it or below it (a .log named by 20 digits), nor a file beside one"
        )


def _side_files_in(folder: Path, names: list[str], unknown: Callable[[str], None]) -> Iterator[SegmentFile]:
    for name in names:
        if any(pattern.fullmatch(name) for pattern, _ in _PATTERNS):
            yield SegmentFile(str(folder / name), indexes=(), listed=True)
        elif not _OTHERS.fullmatch(name):
            unknown(str(folder / name))
