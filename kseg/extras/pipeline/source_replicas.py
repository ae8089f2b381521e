"""The segments of a pipeline's topics by partition and replica, as one listing of the source has them, and where they part.

By leader epochs it is known where the replicas of a partition leave its history, and where a table leaves theirs.
A former leader has records that no consumer got. If a log was truncated below the loaded offsets, and continued by the next
leader, the table has such records.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from kseg.errors import KsegError, NotASegmentError, UnreadableError, VanishedError
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.pipeline_settings import PipelineSettings
from kseg.extras.views.planning import matching
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.record import columns
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.checkpoints import stored_leader_epochs
from kseg.format.sidefiles.metadata_files import stored_topic_id
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    Partition,
    base_offset_of,
    is_log,
    is_snapshot,
    is_url,
    partition_of,
    remote_partition_of,
    remote_topic_id_of,
)
from kseg.format.storage.segment_files import SegmentFile, by_folder, in_order, is_folder, measured
from kseg.format.storage.source import open_range, open_source, stamp_of
from kseg.text import inclusive_range

#: Topic and partition.
Place = tuple[str, int]


def check_unchanged(checked: CheckedSegment) -> None:
    """Raise KsegError if a local segment was replaced since it was listed. Requests for objects name the version.

    The newest segment can grow, and be rolled. A follower truncates it, and continues it with a later leader epoch: with the
    last batch all batches before it are still there (KIP-101).
    """
    file, last = checked.file, checked.last_batch
    if is_url(file.path):
        return
    same = last is None or last.is_in(file.path) if file.active else stamp_of(file.path) == file.stamp
    if not same:
        raise KsegError(f"{file.path}: it was changed or deleted since it was listed: run again")


@dataclass(frozen=True, slots=True)
class SourceReplica:
    """The segments of a partition's folder, by offset. ``topic_id`` is None if no file of the folder has it.

    A segment is ``unread`` if its size or stamp is unknown, as of a symbolic link to nothing: it cannot be read in this
    run. The first ``settled`` ones were not written within the time that a pipeline waits (``settle``); None for all.
    ``unread``: why the folder or its topic id could not be read; its segments are then unknown.
    """

    folder: str
    segments: Sequence[SegmentFile] = ()
    topic_id: str | None = None
    unread: str | None = None
    settled: int | None = None


#: The replicas of each partition.
Listing = Mapping[Place, tuple[SourceReplica, ...]]


def list_source(settings: PipelineSettings) -> Listing:
    """List the segments of the pipeline's topics.

    An error of one segment, or of the folder of one partition, is part of the result. Raises UnreadableError if another
    folder cannot be listed: which partitions it has is unknown.
    """
    by_place: dict[Place, list[SourceReplica]] = defaultdict(list)
    unlisted: list[str] = []
    log_dirs: set[str] = set()
    places = [place for path in settings.paths for place in matching(path)]
    for folder, files in by_folder(places, partial(_files, unlisted=unlisted)):
        partition = _partition(folder)
        if partition is None:
            continue
        log_dirs.add(os.path.dirname(folder))
        if partition.state or partition.topic not in settings.tables:
            continue
        segments = in_order(map(_listed, files))
        since = time.time() - settings.settle if settings.settle else math.inf
        local = ((at, one.stamp) for at, one in enumerate(segments) if not is_url(one.path))
        young = (at for at, stamp in local if stamp and stamp[1] / 1e9 > since)
        try:
            topic_id = stored_topic_id(folder) or remote_topic_id_of(os.path.basename(folder))
            replica = SourceReplica(folder, segments, topic_id, settled=next(young, None))
        except UnreadableError as error:  # the segments can be those of a topic that was created again
            replica = SourceReplica(folder, unread=str(error))
        by_place[partition[:2]].append(replica)
    for place, replica in _unlisted(dict.fromkeys(unlisted), log_dirs, settings):
        by_place[place].append(replica)
    return {place: tuple(sorted(by_place[place], key=lambda replica: replica.folder)) for place in sorted(by_place)}


def _unlisted(
    folders: Iterable[str], log_dirs: Container[str], settings: PipelineSettings
) -> Iterator[tuple[Place, SourceReplica]]:
    """Yield the replicas of the pipeline's topics among folders that cannot be listed. Raises UnreadableError.

    ``log_dirs`` are folders with partitions: other partitions in them can be skipped.
    """
    for folder in folders:
        partition, reason = _partition(folder), _reason(folder)
        if partition and not partition.state and partition.topic in settings.tables:
            yield partition[:2], SourceReplica(folder, unread=reason)
        elif partition is None or os.path.dirname(folder) not in log_dirs:  # a broker's folder can be named broker-1
            raise UnreadableError(reason)


def _partition(folder: str) -> Partition | None:
    """Return the partition of a folder by its name, None for other names."""
    name = os.path.basename(folder)
    return partition_of(name) or remote_partition_of(name)


def _files(place: str, unlisted: list[str]) -> Iterator[SegmentFile]:
    """Yield the segments of a path, also folders with such names. What cannot be listed is added to ``unlisted``."""
    folders: list[str] = []
    try:
        for file in find_files(place, lambda path: folders.append(path) if is_log(os.path.basename(path)) else None):
            yield from _as_segments(folders)
            name = os.path.basename(file.path)
            if file.path.endswith(".log") and base_offset_of(name) is not None and not is_snapshot(name):
                yield file
            elif not file.listed:
                unlisted.append(file.path)
        yield from _as_segments(folders)
    except UnreadableError:
        # A store whose listing fails can have any partition: only a folder of a disk is one partition.
        if is_url(place) or _partition(place) is None or not os.path.isdir(place):
            raise
        unlisted.append(place)


def _as_segments(folders: list[str]) -> Iterator[SegmentFile]:
    """Yield the folders that have names of segments, and remove them from the list. Nothing can be read of them."""
    yield from (SegmentFile(path, listed=True) for path in folders)
    folders.clear()


def _reason(folder: str) -> str:
    """Return why a folder cannot be listed."""
    try:
        local_files.names_in(folder)
    except UnreadableError as error:
        return str(error)
    return f"{folder}: cannot be listed"


def _listed(file: SegmentFile) -> SegmentFile:
    """Return a segment with its size and stamp, or with the reason why it has none."""
    try:
        if file.indexes is None and is_folder(file.path):
            raise UnreadableError(f"{file.path}: a folder with the name of a segment")
        found = measured(file)
        if found.stamp is None:
            open_source(file.path, listed=True).close()  # its error is the reason
            raise UnreadableError(f"{file.path}: its size is unknown: run again")
        return found
    except UnreadableError as error:
        return replace(file, size=None, stamp=None, unread=str(error))


class EpochBatch(NamedTuple):
    """The offsets of a batch, both inclusive, and its leader epoch, -1 for none."""

    base_offset: int
    last_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loaded part of a partition: the next offset, and the id of the topic that its rows are from, if known.

    ``leader_epoch`` is that of the batch with the offset before the next one. None: unknown, as in states of older versions.
    """

    next_offset: int
    topic_id: str | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The log at the loaded offsets is another one from ``first`` on, of leader epoch ``epoch``.

    ``at_start``: nothing shows whether offsets before ``first`` differ, too, which the log no longer has.
    """

    first: int
    epoch: int
    at_start: bool = False

    def reason(self, topic: str, partition: int, loaded: Loaded, config: str) -> str:
        """Return why nothing can be loaded, and what to do with the pipeline of the file ``config``."""
        end, known = loaded.next_offset, loaded.leader_epoch
        if known is not None and self.epoch < known:
            return (
                f"the table has rows of leader epoch {known}, and the segments have leader epoch {self.epoch} at offset "
                f"{self.first}: they are of a former leader, or an older copy: list the leader's folder in source.paths"
            )
        earlier = ", or from an earlier one on that the log no longer has" if self.at_start else ""
        return (
            f"the table differs from offset {self.first} on{earlier}: the log was truncated after the load, and continued "
            f"with leader epoch {self.epoch}: load {inclusive_range('offset', self.first, end - 1)} again with `kseg "
            f"pipeline replay {shlex.quote(config)} --topic {topic} --offsets {partition}:{self.first}:{end}`"
        )


def with_epoch(loaded: Loaded, checked: CheckedSegment) -> Loaded:
    """Return the loaded part with the leader epoch of its last batch, which a segment had when it was checked.

    Raises KsegError if the segment must be read for it, and has changed.
    """
    offset, last = loaded.next_offset - 1, checked.last_batch
    if last and last.last_offset == offset:
        return replace(loaded, leader_epoch=last.leader_epoch if last.leader_epoch >= 0 else None)
    found = _batch_from([checked.file], offset)
    check_unchanged(checked)
    known = found and found.base_offset <= offset and found.epoch >= 0
    return replace(loaded, leader_epoch=found.epoch if found and known else None)


def divergence(replicas: Sequence[SourceReplica], loaded: Loaded | None) -> Divergence | None:
    """Return where the log of the latest leader is not the loaded one, None if nothing shows it.

    Of equal leader epochs at an offset all records before it are equal (KIP-101). If a log cleaner has removed the batch of
    the last loaded offset, the ``leader-epoch-checkpoint`` decides, as for the answer to OffsetsForLeaderEpoch.
    Raises UnreadableError.
    """
    if loaded is None or loaded.leader_epoch is None or loaded.next_offset <= 0:
        return None
    stored = cache(_stored_epochs)  # often the batch is enough, and nobody reads the checkpoint of a single replica
    if len(replicas) > 1:
        latest = max(stored(one.folder).latest for one in replicas)
        replicas = [one for one in replicas if stored(one.folder).latest == latest]
    found = [_compared(replica, stored, loaded.next_offset, loaded.leader_epoch) for replica in replicas]
    known = [one for one in found if one]
    newer = [one for one in known if one.epoch > loaded.leader_epoch]
    older = [one for one in known if one.epoch < loaded.leader_epoch]
    if newer:
        return min(newer, key=lambda one: one.first)
    return older[0] if older and len(older) == len(known) else None


def _compared(
    replica: SourceReplica, stored: Callable[[str], LeaderEpochCache], end: int, loaded: int
) -> Divergence | None:
    """Return the leader epoch of a replica before ``end``, and the first offset of it if it is later than ``loaded``.

    None if nothing shows the leader epoch. ``stored`` returns the leader epochs of a folder.
    """
    try:
        found = _batch_from(replica.segments, end - 1)
    except UnreadableError:
        return None  # the load reports it
    if found and 0 <= found.epoch < loaded:
        return Divergence(found.base_offset, found.epoch)
    if found and found.base_offset < end and found.epoch <= loaded:
        return Divergence(end, loaded) if found.epoch == loaded else None
    epochs = stored(replica.folder)
    first = (epochs.end_offset_for(loaded) or (loaded, INT64_MAX))[1]
    if found is None or found.base_offset >= end:
        later = (one for one in epochs.entries if one.start_offset == first)
        return Divergence(first, next(later).epoch) if first < end else None
    if first < end:
        return Divergence(first, found.epoch)
    first = _first_later(replica.segments, found, loaded)
    return Divergence(first, found.epoch, 0 < first == replica.segments[0].base_offset)


def _first_later(segments: Sequence[SegmentFile], found: EpochBatch, epoch: int) -> int:
    """Return the first offset of the batches up to ``found`` that are of a later leader epoch."""
    first = found.base_offset
    for segment in reversed([one for one in segments if one.base_offset <= first]):
        earlier = False
        for one in _batches(segment, 0):
            if one.epoch > epoch:
                first = min(first, one.base_offset)
                break
            earlier = True
        if earlier:
            break
    return first


def _batch_from(segments: Sequence[SegmentFile], offset: int) -> EpochBatch | None:
    """Return the first valid batch that ends at an offset or after it, None without one. Raises UnreadableError."""
    for segment in segments:
        if segment.end_offset <= offset or segment.unread:
            continue
        entry = index_reader.last_entry(segment.path, segment.bytes, below=offset + 1, before=INT64_MAX)
        for one in _batches(segment, entry.log_position if entry else 0):
            if one.last_offset >= offset:
                return one
    return None


def _batches(segment: SegmentFile, position: int) -> Iterator[EpochBatch]:
    """Yield the valid batches of a segment from a byte on."""
    with (
        suppress(VanishedError, NotASegmentError),
        SegmentReader(open_range(segment.path, position, segment.bytes)) as reader,
    ):
        for window in reader.windows():
            found = window.batches
            for row in range(found.count):
                if found.crc_state[row] != columns.CRC_BAD:
                    epoch = found.partition_leader_epoch[row] if found.magic[row] >= 2 else -1
                    yield EpochBatch(found.base_offset[row], found.last_offset[row], epoch)


def _stored_epochs(folder: str) -> LeaderEpochCache:
    """Return the stored leader epochs of a replica's folder. Raises UnreadableError."""
    return LeaderEpochCache(stored_leader_epochs(folder) or (), INT64_MAX)


def without_former_leaders(
    replicas: Sequence[SourceReplica], checked: Mapping[str, CheckedSegment]
) -> Mapping[str, CheckedSegment]:
    """Return the results of a partition's segments without the offsets that a replica would truncate as a follower.

    The leader is the replica with the latest leader epoch in its ``leader-epoch-checkpoint``. A replica without one is not
    limited, as in logs of v0 and v1. Nor does the end of the leader limit another one of the same epoch: its last segment
    can be damaged, or too young to be read.
    """
    if len(replicas) < 2:
        return checked
    epochs = {one.folder: _stored_epochs(one.folder) for one in replicas}
    leader = max(epochs.values(), key=lambda one: one.latest)
    found = dict(checked)
    for replica in replicas:
        end = truncation_offset(epochs[replica.folder], leader)
        for segment in replica.segments:
            one = found.get(segment.path)
            if end is None or one is None or one.next_offset <= end:
                continue
            if segment.base_offset < end:
                found[segment.path] = replace(one, next_offset=end)
            else:
                del found[segment.path]
    return found
