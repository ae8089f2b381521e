"""Copies of damaged segments in the quarantine: what a run has set aside remains there when the source deletes it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from kseg.errors import VanishedError
from kseg.extras.pipeline.load_rows import check_unchanged
from kseg.extras.pipeline.pipeline_state import new_file
from kseg.extras.pipeline.source_listing import ListedSegment
from kseg.format.storage import local_files, remote_files
from kseg.format.storage.segment_files import path_in

_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment to copy into a folder of the quarantine. ``number``: that of its replica of the partition, from 1."""

    listed: ListedSegment
    folder: str
    number: int

    @property
    def target(self) -> str:
        """The folder of the partition, one for each replica."""
        name = os.path.basename(os.path.dirname(self.listed.path))
        return path_in(self.folder, name if self.number == 1 else f"replica-{self.number}/{name}")


def copy_segment(asked: SegmentCopy) -> tuple[str, str]:
    """Copy a segment and its indexes, and return the paths of the segment and of the copy.

    A copy that exists is replaced: a run that was killed copies again. Raises KsegError if the segment cannot be read, or is
    not the one that was checked.
    """
    listed = asked.listed
    if listed.file.stored:
        remote_files.remember(listed.path, listed.file.stored)
    _copy(listed.path, asked.target)
    check_unchanged(listed)
    for path in listed.file.indexes or ():
        try:
            _copy(path, asked.target)
        except VanishedError:
            continue  # a broker rebuilds it
    return listed.path, path_in(asked.target, os.path.basename(listed.path))


def _copy(path: str, folder: str) -> None:
    with (
        local_files.open_file(path, named=False) as found,
        new_file(path_in(folder, os.path.basename(path))) as out,
    ):
        shutil.copyfileobj(found, out, _CHUNK)
