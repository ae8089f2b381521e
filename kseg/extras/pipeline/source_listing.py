"""The segments of a pipeline's topics, as one listing of the source has them: with sizes, stamps and replicas."""

from __future__ import annotations

import glob
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kseg.errors import UnreadableError
from kseg.extras.pipeline.pipeline_settings import PipelineSettings
from kseg.findings import do_nothing
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage import remote_files
from kseg.format.storage.naming import (
    base_offset_of,
    is_snapshot,
    is_url,
    partition_of,
    remote_partition_of,
    remote_topic_id_of,
)
from kseg.format.storage.segment_files import SegmentFile, by_folder
from kseg.format.storage.source import stamp_of, stamp_text, stored_size

#: Topic and partition.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """A segment as it was listed. ``stamp`` changes with its content: size, and ETag or time and inode.

    ``young``: it was written within the time that a pipeline waits (``settle``).
    """

    file: SegmentFile
    base_offset: int
    size: int
    stamp: str
    young: bool = False

    @property
    def path(self) -> str:
        return self.file.path


@dataclass(frozen=True, slots=True)
class SourceReplica:
    """The segments of a partition's folder, by offset. ``topic_id`` is None if no file of the folder has it."""

    folder: str
    topic: str
    partition: int
    segments: tuple[ListedSegment, ...]
    topic_id: str | None


#: The replicas of each partition.
Listing = Mapping[Place, tuple[SourceReplica, ...]]
#: The replicas of each partition by topic and number.
Partitions = Mapping[str, Mapping[int, tuple[SourceReplica, ...]]]


def partitions_by_topic(listing: Listing) -> Partitions:
    """Return the partitions of each topic."""
    found: dict[str, dict[int, tuple[SourceReplica, ...]]] = defaultdict(dict)
    for (topic, partition), replicas in listing.items():
        found[topic][partition] = replicas
    return found


def list_source(settings: PipelineSettings) -> Listing:
    """List the segments of the pipeline's topics. Raises UnreadableError if a folder cannot be listed."""
    by_place: dict[Place, list[SourceReplica]] = defaultdict(list)
    places = [place for path in settings.paths for place in _matches(path)]
    for folder, files in by_folder(places, _files):
        name = os.path.basename(folder)
        partition = partition_of(name) or remote_partition_of(name)
        if partition is None or partition.state or partition.topic not in settings.tables:
            continue
        segments = sorted((_listed(file, settings.settle) for file in files), key=lambda one: one.base_offset)
        topic_id = topic_id_of(folder) or remote_topic_id_of(name)
        replica = SourceReplica(folder, partition.topic, partition.partition, tuple(segments), topic_id)
        by_place[partition.topic, partition.partition].append(replica)
    return {place: tuple(sorted(by_place[place], key=lambda replica: replica.folder)) for place in sorted(by_place)}


def _matches(pattern: str) -> list[str]:
    """Return the folders that a pattern matches, or the path itself. Raises UnreadableError if nothing matches."""
    if not glob.has_magic(pattern):
        return [pattern]
    found = remote_files.matches(pattern) if is_url(pattern) else sorted(glob.glob(pattern))
    if not found:
        raise UnreadableError(f"{pattern}: no folder matches")
    return found


def _files(place: str) -> Iterator[SegmentFile]:
    for file in find_files(place, do_nothing):
        name = os.path.basename(file.path)
        if file.path.endswith(".log") and base_offset_of(name) is not None and not is_snapshot(name):
            yield file
        elif not file.listed:  # a folder that could not be listed: rows would be missing without a word
            os.listdir(file.path)
            raise UnreadableError(f"{file.path}: cannot be listed")


def _listed(file: SegmentFile, settle: float) -> ListedSegment:
    stamp = stamp_of(file.path)
    size = stored_size(file.path)
    if stamp is None or size is None:
        raise UnreadableError(f"{file.path}: its size is unknown, or it was deleted meanwhile: run again")
    young = settle > 0 and not is_url(file.path) and time.time() - stamp[1] / 1e9 < settle
    if is_url(file.path):
        file = replace(file, stored=remote_files.listed(file.path))
    return ListedSegment(file, base_offset_of(file.path) or 0, size, stamp_text(stamp) or "", young)
