"""Remote segments in the bucket of tiered storage, by the names of their objects, and the lineages of segments and logs.

A lineage is a list of (leader epoch, first offset), as in ``leader-epoch-checkpoint``. An offset is written by the leader of
one epoch only, so two logs have the same records up to the offset at which their lineages differ.

Sources: KIP-101, KIP-405, ``RemoteLogSegmentFileset``, ``RemoteLogLeaderEpochState`` and
``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`` of Kafka, ``ObjectKeyFactory`` of Aiven's plugin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from kseg.errors import UnreadableError
from kseg.format.storage import local_files
from kseg.format.storage.naming import remote_name, remote_partition_of, tiered_view
from kseg.format.storage.segment_files import check_complete, folders_at, path_in

LOG = ".log"


class RemotePlace(NamedTuple):
    """A partition of a topic id."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in remote storage. ``files`` are the names of its objects, or of its decoded files, by suffix."""

    topic: str
    topic_id: str
    partition: int
    base: int
    segment_id: str
    folder: str
    files: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the partition, such as ``orders-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def place(self) -> RemotePlace:
        """The partition under its topic id."""
        return RemotePlace(self.topic_id, self.partition)

    def path(self, suffix: str) -> str:
        """Return the path or URL of one of its files."""
        return path_in(self.folder, self.files[suffix])


def remote_segments(path: str, *, decoded: bool) -> Iterator[RemoteSegment]:
    """Yield the segments of a bucket, of a folder in it, or of the folder of one partition.

    ``decoded``: those of Aiven's plugin have the files of their decoded view, otherwise their objects. Raises
    UnreadableError, also if a folder cannot be listed: its segments would be taken as missing.
    """
    folders = folders_at(path, _fail, decoded=decoded)
    if folders is None:
        raise UnreadableError(f"{path}: expected a folder with the objects of tiered storage")
    for folder, names in folders:
        name = os.path.basename(tiered_view(folder) or folder)
        place = remote_partition_of(name)
        if place is not None:
            yield from _segments_of(folder, names, place.topic, name[-22:], place.partition)
    check_complete(path)


def _fail(folder: str) -> NoReturn:
    local_files.names_in(folder)  # its error has the reason
    raise UnreadableError(f"{folder}: the folder cannot be listed")


def _segments_of(folder: str, names: list[str], topic: str, topic_id: str, partition: int) -> Iterator[RemoteSegment]:
    found: dict[tuple[int, str], dict[str, str]] = {}
    for name in names:
        if parts := remote_name(name):
            found.setdefault((parts.base, parts.segment_id), {})[parts.suffix] = name
    for (base, segment_id), files in found.items():
        yield RemoteSegment(topic, topic_id, partition, base, segment_id, folder, files)


#: An epoch, and the first offset that its leader wrote.
EpochStart = tuple[int, int]
#: An offset after all others.
NO_END = 1 << 63


def epoch_ranges(epochs: Sequence[EpochStart], end: int) -> list[tuple[int, int, int]]:
    """Return (epoch, first, last offset) for the epochs of a segment or a log that ends at ``end``, its last offset."""
    ordered = sorted(epochs)
    ends = [first - 1 for _, first in ordered[1:]] + [end] * bool(ordered)
    return [(epoch, first, min(last, end)) for (epoch, first), last in zip(ordered, ends, strict=True)]


def epochs_within(epochs: Sequence[EpochStart], start: int, end: int) -> list[EpochStart]:
    """Return the epochs of a segment with offsets ``start`` to ``end``, inclusive, from those of its log."""
    ranges = epoch_ranges(epochs, end)
    return [(epoch, max(first, start)) for epoch, first, last in ranges if last >= max(first, start)]


def ranges_in(epochs: Sequence[EpochStart], end: int, lineage: Sequence[EpochStart]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets of a segment that ends at ``end`` and are in a lineage, both ends inclusive, by epoch."""
    valid = {epoch: (first, last) for epoch, first, last in epoch_ranges(lineage, NO_END)}
    for epoch, first, last in epoch_ranges(epochs, end):
        begin, stop = valid.get(epoch, (0, -1))
        if max(first, begin) <= min(last, stop):
            yield max(first, begin), min(last, stop)


def newest_lineage(lineages: Iterable[tuple[Sequence[EpochStart], int]]) -> list[EpochStart]:
    """Return the lineage with the newest leader epoch, from (lineage, log end offset) of several segments.

    A broker removes the epochs before the log start. Those of other segments complete it at its start.
    """
    found: list[EpochStart] = []
    known = [(epochs[-1][0], end, epochs) for epochs, end in lineages if epochs]
    for _, _, epochs in sorted(known, key=lambda one: one[:2], reverse=True):
        for epoch, first in reversed(epochs):
            if found and epoch == found[0][0]:
                found[0] = epoch, min(first, found[0][1])
            elif not found or (epoch < found[0][0] and first < found[0][1]):
                found.insert(0, (epoch, first))
    return found
