"""The segments of a pipeline's topics, as one listing of the source has them: with sizes, stamps and replicas."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kseg.errors import KsegError, UnreadableError
from kseg.extras.pipeline.pipeline_settings import PipelineSettings
from kseg.extras.views.planning import matching
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
from kseg.format.storage.source import open_source, stamp_of

#: Topic and partition.
Place = tuple[str, int]


def check_unchanged(segment: SegmentFile) -> None:
    """Raise KsegError if a local segment was replaced since it was listed. Requests for objects name the version."""
    if not is_url(segment.path) and not segment.active and stamp_of(segment.path) != segment.stamp:
        raise KsegError(f"{segment.path}: it was changed or deleted since it was listed: run again")


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
