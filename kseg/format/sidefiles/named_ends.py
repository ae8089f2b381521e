"""The ends of logs that side files prove: the offsets after a batch that they name.

No batch follows the last one, so only side files can prove its base offset. A broker writes each of them when the log ends
there: a producer snapshot, the start of a leader epoch, an index entry with the last offset of a batch, a checkpoint of the
log directory, the name of the next segment. Such an offset proves nothing alone, because the log can continue.

Of a log without a batch they show whether it had one. A segment of zeros without them is of unknown content.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from kseg.errors import KsegError, NotASegmentError, UnreadableError
from kseg.findings import Finding
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.checkpoints import checkpoint_offset, known_leader_epochs
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    base_offset_of,
    is_in_use,
    is_log,
    producer_snapshot_offset,
)
from kseg.format.storage.segment_files import find_segments
from kseg.format.storage.source import open_source, stored_size

_CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS)
ALL_ZEROS = "all bytes are zeros, and nothing shows whether batches were ever written"
# Bytes at the start of a file that show that it is not all zeros.
_HEAD = 64


def named_ends(log: Path, *, checkpoints: bool = True) -> frozenset[int]:
    """Return the offsets that can be the end of the last batch of a segment, as the files next to it name them.

    Without ``checkpoints`` those of its log directory are left out: they can be older than a truncation of the log.
    """
    try:
        of_names = _ends_by_name(str(log.parent), local_files.status(log.parent).st_mtime_ns)
    except (OSError, UnreadableError):  # the folder cannot be listed
        return frozenset()
    base = base_offset_of(log.name) or 0
    ends = {entry.start_offset for entry in known_leader_epochs(log.parent)}
    ends |= {entry.offset + 1 for entry in index_reader.offset_entries(str(log))}
    ends |= {entry.offset + 1 for entry in index_reader.time_entries(str(log))}
    ends |= set(checkpointed(log.parent, _CHECKPOINTS)) if checkpoints else set()
    return frozenset(of_names[bisect_right(of_names, base) :]).union(end for end in ends if end > base)


@lru_cache(maxsize=1)
def _ends_by_name(folder: str, changed: int) -> list[int]:
    """Return the offsets in the names of a folder's snapshots and segments, in order. ``changed`` is its time of change.

    A log of thousands of segments asks for each of them.
    """
    names = local_files.names_in(folder)
    found = {producer_snapshot_offset(name) or 0 for name in names}
    return sorted(found | {base_offset_of(name) or 0 for name in names if is_log(name)})


def is_all_zeros(path: str) -> bool:
    """Return whether a file has bytes, and all are zeros. Raises KsegError from reading."""
    found: list[Finding] = []
    try:
        with SegmentReader(open_source(path), report=found.append) as reader:
            return next(reader.windows(), None) is None and [each.rule for each in found] == ["zero-tail"]
    except NotASegmentError:
        return False


def is_of_unknown_content(log: Path) -> bool:
    """Return whether a segment has only zeros, and nothing shows whether batches were ever written.

    A segment before it shows that the broker preallocated this one, and so does the high watermark of an empty log. A
    running broker has just created it. Raises KsegError from reading.
    """
    with local_files.open_file(str(log), named=False) as file:
        head = file.read(_HEAD)
    if not head or any(head) or not is_all_zeros(str(log)):
        return False
    folder, base = Path(os.path.abspath(log)).parent, base_offset_of(log.name) or 0
    others = [name for name in local_files.names_in(folder) if is_log(name) and (base_offset_of(name) or 0) < base]
    known_empty = any(offset <= base for offset in checkpointed(folder, (HIGH_WATERMARKS,)))
    return not others and not known_empty and not is_in_use(str(folder.parent))


def unknown_segments(path: str) -> Iterator[Path]:
    """Yield the segments of a local file or folder that are of unknown content. Those that cannot be read are left out."""
    try:
        files = [Path(file.path) for file in find_segments(path)] if os.path.exists(path) else []
        first: dict[Path, Path] = {}
        for log in files:
            first.setdefault(log.parent, log)
        for log in first.values():
            if base_offset_of(log.name) is not None and log.is_file() and is_of_unknown_content(log):
                yield log
    except (KsegError, OSError):  # the command has reported it
        return


def lost_log(folder: Path) -> tuple[str, int | None] | None:
    """Return the first segment of a log without any batch that may have lost its records, and the offset that it reached.

    The offset is None if nothing shows whether it had records. None for a log that has a batch or never had one.
    """
    logs = sorted(name for name in local_files.names_in(folder) if is_log(name))
    with_bytes = [name for name in logs if stored_size(str(folder / name))]
    if not logs or not all(is_all_zeros(str(folder / name)) for name in with_bytes):
        return None
    ends = named_ends(folder / logs[0], checkpoints=False)
    if ends:
        return logs[0], max(ends)
    return (logs[0], None) if with_bytes and is_of_unknown_content(folder / logs[0]) else None


def checkpointed(folder: Path, names: Iterable[str]) -> Iterator[int]:
    """Yield the offsets of the partition in the checkpoints of its log directory that can be read."""
    for name in names:
        with suppress(KsegError):
            offset = checkpoint_offset(str(folder), name)
            if offset is not None:
                yield offset
