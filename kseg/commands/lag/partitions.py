"""The replicas of partitions in log directories: their log ends, log starts and high watermarks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.internal_topics.decode import CLUSTER_METADATA
from kseg.format.internal_topics.effective import effective, topic_names
from kseg.format.sidefiles.checkpoints import walk_offset_checkpoint
from kseg.format.sidefiles.log_dir_names import HIGH_WATERMARKS, LOG_STARTS
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.naming import base_offset_of, partition_of
from kseg.format.storage.source import SegmentFile, local_size, open_source

#: Topic and partition.
Place = tuple[str, int]


@dataclass(slots=True)
class Replica:
    """A partition folder with the paths of its segments in offset order."""

    folder: str
    segments: list[str]


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The offsets of the replica with the highest log end. ``high_watermark`` is None without a checkpoint of it."""

    folder: str
    log_start: int
    log_end: int
    high_watermark: int | None
    topic_id: str | None


class LogDirs:
    """The partitions of several log directories. ``deleted`` has the topics of which only deleted folders are left."""

    def __init__(self, files: Iterable[SegmentFile]) -> None:
        self.replicas: dict[Place, list[Replica]] = {}
        self._checkpoints: dict[str, dict[Place, int]] = {}
        folders: dict[str, Replica] = {}
        deleted: set[str] = set()
        for file in files:
            folder = os.path.dirname(file.path)
            partition = partition_of(os.path.basename(os.path.abspath(folder)))
            if partition is None or partition.state is not None:
                deleted |= {partition.topic} if partition and partition.state == "-delete" else set()
                continue
            if folder not in folders:
                folders[folder] = Replica(folder, [])
                self.replicas.setdefault(partition[:2], []).append(folders[folder])
            folders[folder].segments.append(file.path)
        self._deleted = deleted - {topic for topic, _ in self.replicas}

    def extent(self, place: Place) -> LogExtent | None:
        """Return the extent of the replica with the highest log end, None if no log directory has the partition."""
        found = [self._extent(place, replica) for replica in self.replicas.get(place, ())]
        return max(found, key=lambda extent: extent.log_end, default=None)

    def is_deleted(self, topic: str) -> bool:
        """Return whether a topic was deleted, by the cluster metadata or, without that log, by the names of folders."""
        return topic in self._deleted if self._topics is None else topic not in self._topics

    @cached_property
    def _topics(self) -> set[str] | None:
        """The topics in the cluster metadata, None without that log."""
        replicas = self.replicas.get((CLUSTER_METADATA, 0))
        if not replicas:
            return None
        newest = max(replicas, key=log_end)
        return set(topic_names(effective(CLUSTER_METADATA, newest.segments, lambda path: do_nothing).items()).values())

    def _extent(self, place: Place, replica: Replica) -> LogExtent:
        log_dir = os.path.dirname(os.path.abspath(replica.folder))
        return LogExtent(
            replica.folder,
            max(self._checkpoint(log_dir, LOG_STARTS).get(place, 0), base_offset_of(replica.segments[0]) or 0),
            log_end(replica),
            self._checkpoint(log_dir, HIGH_WATERMARKS).get(place),
            topic_id_of(replica.folder),
        )

    def _checkpoint(self, log_dir: str, name: str) -> dict[Place, int]:
        """Return the offsets of a checkpoint by partition, none if it cannot be read."""
        path = os.path.join(log_dir, name)
        if path not in self._checkpoints:
            self._checkpoints[path] = {}
            with suppress(KsegError), open_source(path, listed=True) as source:
                entries = walk_offset_checkpoint(source)
                self._checkpoints[path] = {(entry.topic, entry.partition): entry.offset for _, entry in entries}
        return self._checkpoints[path]


def log_end(replica: Replica) -> int:
    """Return the offset after the last valid batch of the newest segment."""
    newest = replica.segments[-1]
    return last_valid_batch(newest, local_size(newest) or 0).offset
