"""The segments in a bucket of tiered storage, by the names of their objects.

Sources: ``RemoteLogSegmentFileset`` of Kafka, ``ObjectKeyFactory`` of Aiven's plugin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from kseg.errors import UnreadableError
from kseg.format.storage import local_files
from kseg.format.storage.naming import remote_name, remote_partition_of, tiered_view
from kseg.format.storage.segment_files import check_complete, folders_at, path_in

LOG = ".log"


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
