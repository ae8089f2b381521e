"""What files were when they were looked at: by their stamps it shows whether a broker has changed them since."""

from __future__ import annotations

import os
import time

from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of
from kseg.format.storage.source import LATELY, SegmentFile

#: Size in bytes, modification time in ns, inode; None where no file is.
Stamp = tuple[int, int, int] | None
# A write is short, but the writer may have to wait for a processor.
_PATIENCE = 0.05


def stamp_of(path: str) -> Stamp:
    """The stamp of a local file. One that was renamed into its place has another inode, whatever its time."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def stamps_of(file: SegmentFile) -> tuple[Stamp, ...]:
    """The stamps of a file and of the indexes that are judged with it, in their order."""
    return tuple(map(stamp_of, (file.path, *(file.indexes or ()))))


def unchanged(file: SegmentFile, before: tuple[Stamp, ...]) -> bool:
    """Whether the stamps are what they were, and the indexes those that there are.

    The first aborted transaction makes a .txnindex, a compaction may leave it out. Snapshots of producers are not
    renamed into place: for a moment they are empty, or there in part, so of what was written lately this waits for
    the rest.
    """
    if file.indexes != indexes_of(file):
        return False
    now = stamps_of(file)
    newest = max((stamp[1] for stamp in now if stamp), default=0)
    if now == before and time.time_ns() - newest < LATELY * 1e9:
        time.sleep(_PATIENCE)
        now = stamps_of(file)
    return now == before


def indexes_of(file: SegmentFile) -> tuple[str, ...] | None:
    """What ``beside`` of that file would be now."""
    if file.indexes is None or base_offset_of(file.path) is None:
        return file.indexes
    stem = file.path.removesuffix(".log")
    return tuple(stem + suffix for suffix in INDEX_SUFFIXES if os.path.isfile(stem + suffix))
