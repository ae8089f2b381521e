"""Find the end of a segment: that of its last complete batch with a valid CRC, that its side files prove, or of a time.

A growing segment can be read up to that batch. The one after it can be half written or damaged: the bytes written later show
which. Indexes avoid reading from the segment's start. They can have entries for batches that the log has lost: a broker
appends a batch before its index entries, and the cleaner writes new indexes.

No batch follows the last one, so only side files can prove its base offset. A broker writes each of them when the log ends
there: a producer snapshot, the start of a leader epoch, an index entry with the last offset of a batch, a checkpoint of the
log directory, the name of the next segment. Such an offset proves nothing alone, because the log can continue.

Of a log without a batch they show whether it had one. A segment of zeros without them is of unknown content.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import KsegError, NotASegmentError, UnreadableError, VanishedError
from kseg.findings import Finding
from kseg.format.record import columns
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader, batch_at, read_range
from kseg.format.sidefiles import checkpoints, index_reader, indexes
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    base_offset_of,
    is_in_use,
    is_log,
    producer_snapshot_offset,
    snapshot_id,
)
from kseg.format.storage.segment_files import find_segments, path_in
from kseg.format.storage.source import open_range, open_source, stored_size

if TYPE_CHECKING:
    import struct

    from kseg.format.sidefiles.indexes import OffsetEntry


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a batch: the ``offset`` after its last one, and the file ``position`` after its last byte.

    ``epoch`` is its leader epoch, -1 if no batch was read or it has none, as those of v0 and v1. ``begin`` and ``crc`` are
    the batch's first byte and its stored CRC, -1 if no batch was read.
    """

    offset: int
    position: int
    epoch: int = -1
    begin: int = -1
    crc: int = -1


def last_valid_batch(
    path: str,
    size: int,
    *,
    below: int = INT64_MAX,
    before: int = INT64_MAX,
    beyond: int = -1,
    known: LogEnd | None = None,
) -> LogEnd:
    """Return the end of a local segment's last valid batch with only offsets ``below`` that ends at or before ``before``.

    Up to offset ``beyond`` batches count whatever these limits. ``known`` is an end found earlier that is within the
    limits. Without such a batch, or if the file was deleted, the result is ``known`` or the segment's start. Raises
    UnreadableError.
    """
    least = known or LogEnd(base_offset_of(path) or 0, 0)
    entry = index_reader.last_entry(path, size, below=below, before=before)
    if entry and before < INT64_MAX:
        # The batch of the last entry may end after ``before``.
        entry = index_reader.last_entry(path, size, below=below, before=entry.log_position)
    if entry and entry.log_position > least.position:
        found = _read_batches(path, size, LogEnd(-1, entry.log_position), below, before, beyond)
        if found.offset >= 0:
            return found
    return _read_batches(path, size, least, below, before, beyond)


def copy_order(folder: str) -> tuple[int, int]:
    """Return the leader epoch and the offset at the end of a copy of a log: both together are larger for the newer copy.

    In an election the epoch counts first (KIP-101, KIP-595). A snapshot of a metadata log can be all that a copy has. Raises
    UnreadableError.
    """
    names = sorted(local_files.names_in(folder))
    found = [identity[::-1] for identity in map(snapshot_id, names) if identity]
    for path in (path_in(folder, name) for name in reversed(names) if is_log(name)):
        end = last_valid_batch(path, stored_size(path) or 0)
        if end.position:
            return max(*found, (end.epoch, end.offset), (-1, 0))
    return max(found, default=(-1, 0))


def _read_batches(path: str, size: int, mark: LogEnd, below: int, before: int, beyond: int) -> LogEnd:
    with (
        suppress(VanishedError, NotASegmentError),
        SegmentReader(open_range(path, mark.position, size)) as reader,
    ):
        for window in reader.windows():
            batches = window.batches
            for row in range(batches.count):
                last, end = batches.last_offset[row], batches.position[row] + batches.size[row]
                if batches.crc_state[row] == columns.CRC_BAD:
                    continue
                if (last >= below or end > before) and mark.offset > beyond:
                    return mark
                epoch = batches.partition_leader_epoch[row] if batches.magic[row] >= 2 else -1
                mark = LogEnd(max(mark.offset, last + 1), end, epoch, batches.position[row], batches.crc[row])
    return mark


def log_end_at(paths: Sequence[str], time: int, now: int) -> int | None:
    """Return the end of a local log at a time: the offset before its first batch with a later timestamp.

    ``paths`` are its segments in offset order, times are epoch milliseconds. Timestamps after ``now`` are of wrong clocks,
    and do not count. None if the log no longer has records of that time, or has none with timestamps. Raises
    UnreadableError.
    """
    end = None
    for number, path in enumerate(paths):
        base, size, sealed = base_offset_of(path) or 0, stored_size(path) or 0, number + 1 < len(paths)
        end = base if number or not base else None
        if sealed and -1 < (index_reader.newest_timestamp(path) or -1) <= time:
            continue
        start, _ = index_reader.byte_range(path, size, None, None, time + 1, sealed=sealed)
        with suppress(VanishedError, NotASegmentError), SegmentReader(open_range(path, start, size)) as reader:
            for window in reader.windows():
                batches = window.batches
                for row in range(batches.count):
                    if batches.crc_state[row] == columns.CRC_BAD:
                        continue
                    if start:
                        end, start = batches.base_offset[row], 0
                    if batches.max_timestamp[row] < 0:
                        return None
                    if time < batches.max_timestamp[row] <= now:
                        return end
                    end = batches.last_offset[row] + 1
    return end


# Bytes that show whether zeros follow the last batch.
_ZEROS = 64


def indexed_end(path: str, base: int) -> int:
    """Return the log end that the indexes of a segment prove, ``base`` for none. Raises UnreadableError.

    In a log with bytes, entries prove an end if no batch is where they point. A time index has no positions: an offset
    index, or zeros at the end of the log, must agree that the log has lost its end.
    """
    size = stored_size(path) or 0
    offsets, times = index_reader.offset_entries(path), index_reader.time_entries(path)
    if size:
        offsets = _without_batch(path, size, offsets)
        cut = bool(offsets) or has_zeros_at(path, max(0, size - _ZEROS), size)
        times = times if cut and _is_trimmed(path, indexes.TIME_ENTRY, len(times)) else []
    return max([base, *(entry.offset + 1 for entry in offsets), *(entry.offset + 1 for entry in times)])


def _without_batch(path: str, size: int, entries: list[OffsetEntry]) -> list[OffsetEntry]:
    """Return the last entry of an offset index if it fits the log, but no batch is where the entry points.

    After a truncation a broker leaves stale entries in an index that is preallocated (``StaleEntries``), but no zeros where
    these point. So of such an index only an entry counts that points to zeros.
    """
    trimmed = _is_trimmed(path, indexes.OFFSET_ENTRY, len(entries))
    last = [entry for entry in entries if trimmed or entry.log_position < size][-1:]
    if not last or batch_at(path, last[0].log_position, size) or not _fits_log(path, size, entries):
        return []
    return last if trimmed or has_zeros_at(path, last[0].log_position, size) else []


def _fits_log(path: str, size: int, entries: Sequence[OffsetEntry]) -> bool:
    """Return whether an offset index is of this log. Entries ever farther from its end are compared up to one that fits.

    One that fits is needed if the log has bytes other than zeros where they point. Followers before 2025 wrote one entry
    for a whole append, with its last offset, so the batch at an entry's position can end before its offset.
    """
    inside = [entry for entry in entries if entry.log_position < size]
    back, lost = 1, True
    while back <= len(inside):
        entry = inside[-back]
        if index_reader.may_hold(path, size, entry):
            return True
        batches = batch_at(path, entry.log_position, size)
        if batches is not None and batches.last_offset[0] >= entry.offset:
            return False
        lost = lost and has_zeros_at(path, entry.log_position, size)
        back *= 2
    return lost


def _is_trimmed(path: str, layout: struct.Struct, count: int) -> bool:
    """Return whether an index has only its ``count`` valid entries: it is not preallocated, and not damaged."""
    index = os.path.splitext(path)[0] + (".index" if layout is indexes.OFFSET_ENTRY else ".timeindex")
    return (
        stored_size(index) == count * layout.size and not indexes.StaleEntries(index, path, layout, 0).is_preallocated()
    )


def has_zeros_at(path: str, position: int, size: int) -> bool:
    """Return whether the first bytes from ``position`` on are zeros, in a file of ``size`` bytes that can be read."""
    try:
        return position < size and not any(read_range(path, position, min(size, position + _ZEROS)))
    except (OSError, KsegError):
        return False


_CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS)
ALL_ZEROS = "all bytes are zeros, and nothing shows whether batches were ever written"
# Bytes at the start of a file that show that it is not all zeros.
_HEAD = 64


def named_ends(log: Path, *, of_log_dir: bool = True) -> frozenset[int]:
    """Return the offsets that can be the end of the last batch of a segment, as the files next to it name them.

    Without ``of_log_dir`` the checkpoints of its log directory are left out: they can be older than a truncation of the log.
    """
    try:
        of_names = _ends_by_name(str(log.parent), local_files.status(log.parent).st_mtime_ns)
    except (OSError, UnreadableError):  # the folder cannot be listed
        return frozenset()
    base = base_offset_of(log.name) or 0
    ends = {entry.start_offset for entry in checkpoints.known_leader_epochs(log.parent)}
    ends |= {entry.offset + 1 for entry in index_reader.offset_entries(str(log))}
    ends |= {entry.offset + 1 for entry in index_reader.time_entries(str(log))}
    ends |= set(checkpointed(log.parent, _CHECKPOINTS)) if of_log_dir else set()
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
    ends = named_ends(folder / logs[0], of_log_dir=False)
    if ends:
        return logs[0], max(ends)
    return (logs[0], None) if with_bytes and is_of_unknown_content(folder / logs[0]) else None


def checkpointed(folder: Path, names: Iterable[str]) -> Iterator[int]:
    """Yield the offsets of the partition in the checkpoints of its log directory that can be read."""
    for name in names:
        with suppress(KsegError):
            offset = checkpoints.checkpoint_offset(str(folder), name)
            if offset is not None:
                yield offset
