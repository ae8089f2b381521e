"""Whether a broker changed a segment or its indexes while they were validated: their sizes, times and inodes."""

from __future__ import annotations

import os
import time

from kseg.format.storage import local_files
from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of, is_in_use
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import LATELY, Stamp, stamp_of

# Seconds to wait for a write to finish, and between looks. A write is short, but the writer may wait for a processor.
_PATIENCE = _STEP = 0.05
# A broker writes a batch and then its index entries; on a busy machine, another process can run between the two.
_PATIENCE_WITH_BROKER = 2.0


def stamps_of(file: SegmentFile) -> tuple[Stamp, ...]:
    """Return the stamps of a file and of the indexes that are checked with it, in their order."""
    return tuple(map(stamp_of, (file.path, *(file.indexes or ()))))


def unchanged(file: SegmentFile, before: tuple[Stamp, ...]) -> bool:
    """Return whether the stamps equal ``before`` and the same index files exist.

    The first aborted transaction creates a .txnindex, and a compaction can remove it. A broker writes producer snapshots
    in place, so a new one can be empty or incomplete for a moment. If a file was written within the last ``LATELY``
    seconds, the function waits before it compares.
    """
    if file.indexes != indexes_of(file):
        return False
    now = stamps_of(file)
    newest = max((stamp[1] for stamp in now if stamp), default=0)
    if now == before and time.time_ns() - newest < LATELY * 1e9:
        log_dir = os.path.dirname(os.path.dirname(local_files.absolute(file.path)))
        until = time.monotonic() + (_PATIENCE_WITH_BROKER if is_in_use(log_dir) else _PATIENCE)
        while now == before and time.monotonic() < until:
            time.sleep(_STEP)
            now = stamps_of(file)
    return now == before


def indexes_of(file: SegmentFile) -> tuple[str, ...] | None:
    """Return the paths of the segment's indexes that exist now, or ``file.indexes`` if the file is not a segment."""
    if file.indexes is None or base_offset_of(file.path) is None:
        return file.indexes
    stem = file.path.removesuffix(".log")
    return tuple(stem + suffix for suffix in INDEX_SUFFIXES if local_files.is_file(stem + suffix))
