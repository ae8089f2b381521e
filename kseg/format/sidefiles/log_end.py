"""Find the end of a segment: that of its last complete batch with a valid CRC, that its indexes prove, or of a time.

A growing segment can be read up to that batch. The one after it can be half written or damaged: the bytes written later show
which. Indexes avoid reading from the segment's start. They can have entries for batches that the log has lost: a broker
appends a batch before its index entries, and the cleaner writes new indexes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kseg.errors import KsegError, NotASegmentError, VanishedError
from kseg.format.record import columns
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader, batch_at, read_range
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.index_reader import may_hold, offset_entries, time_entries
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, StaleEntries
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import open_range, stored_size


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
    offsets, times = offset_entries(path), time_entries(path)
    if size:
        offsets = _without_batch(path, size, offsets)
        cut = bool(offsets) or has_zeros_at(path, max(0, size - _ZEROS), size)
        times = times if cut and _is_trimmed(path, TIME_ENTRY, len(times)) else []
    return max([base, *(entry.offset + 1 for entry in offsets), *(entry.offset + 1 for entry in times)])


def _without_batch(path: str, size: int, entries: list[OffsetEntry]) -> list[OffsetEntry]:
    """Return the last entry of an offset index if it fits the log, but no batch is where the entry points.

    After a truncation a broker leaves stale entries in an index that is preallocated (``StaleEntries``), but no zeros where
    these point. So of such an index only an entry counts that points to zeros.
    """
    trimmed = _is_trimmed(path, OFFSET_ENTRY, len(entries))
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
        if may_hold(path, size, entry):
            return True
        batches = batch_at(path, entry.log_position, size)
        if batches is not None and batches.last_offset[0] >= entry.offset:
            return False
        lost = lost and has_zeros_at(path, entry.log_position, size)
        back *= 2
    return lost


def _is_trimmed(path: str, layout: struct.Struct, count: int) -> bool:
    """Return whether an index has only its ``count`` valid entries: it is not preallocated, and not damaged."""
    index = os.path.splitext(path)[0] + (".index" if layout is OFFSET_ENTRY else ".timeindex")
    return stored_size(index) == count * layout.size and not StaleEntries(index, path, layout, 0).is_preallocated()


def has_zeros_at(path: str, position: int, size: int) -> bool:
    """Return whether the first bytes from ``position`` on are zeros, in a file of ``size`` bytes that can be read."""
    try:
        return position < size and not any(read_range(path, position, min(size, position + _ZEROS)))
    except (OSError, KsegError):
        return False
