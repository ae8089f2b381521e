"""Use a segment's indexes to find the bytes with given offsets or times, and positions to split it at.

An index entry is used only if the log agrees: at its position a batch with a valid CRC must begin that can contain its
offset. Without a valid index the batches of the log are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kseg.errors import KsegError, UnreadableError
from kseg.format.record.layout import CODEC_MASK, NO_TIMESTAMP
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.single_batch import batch_at
from kseg.format.sidefiles.index_columns import Order, offset_columns
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, OffsetEntry, TimeEntry, read_time_index
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import local_size, open_range
from kseg.format.storage.special_files import read_file

#: The number of time index entries, from the last one back, that are compared with the log.
_TRIED = 8


def byte_range(path: str, size: int, first_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """Return the byte range of a local segment that contains all of ``first_offset <= offset < end_offset``.

    The range is found with the offset index: the whole file without a valid one. Both ends are batch starts or the
    file's end.
    """
    offsets, positions = _valid_entries(path, size)
    start, end = 0, size
    if first_offset is not None:
        # As OffsetIndex.lookup: reading begins at the position of the last entry at or before the offset.
        row = bisect_right(offsets, first_offset) - 1
        if row >= 0 and may_hold(path, size, OffsetEntry(offsets[row], positions[row])):
            start = positions[row]
    if end_offset is not None:
        # The batch of an entry can contain smaller offsets than the entry's. The batch of the next entry can't.
        row = bisect_left(offsets, end_offset - 1) + 1
        if row < len(offsets) and may_hold(path, size, OffsetEntry(offsets[row], positions[row])):
            end = positions[row]
    return start, max(start, end)


def first_offset_since(path: str, since: int) -> int | None:
    """Return an offset before which all records of a local segment are older than ``since`` (epoch ms), from the time
    index.

    None without such an entry that agrees with the log. The valid entries of an active segment can be followed
    by stale ones in the same order, which Kafka leaves after a truncation.
    """
    older = [entry for entry in time_entries(path) if entry.timestamp < since]
    size = local_size(path) or 0
    for entry in reversed(older[-_TRIED:]):
        if _largest_timestamp(path, size, entry.offset) == entry.timestamp:
            return entry.offset + 1
    return None


def _largest_timestamp(path: str, size: int, offset: int) -> int | None:
    """Return the largest timestamp in the batch that contains an offset, None without such a batch."""
    start, end = byte_range(path, size, offset, offset + 1)
    with suppress(KsegError), SegmentReader(open_range(path, start, end), verify_crc=False) as reader:
        for window in reader.windows():
            batches = window.batches
            for row in range(batches.count):
                if batches.last_offset[row] >= offset:
                    return batches.max_timestamp[row]
    return None


def newest_timestamp(path: str) -> int | None:
    """Return the largest timestamp (epoch ms) of a sealed segment: the last time index entry, which a broker adds at
    the roll.
    """
    entries = time_entries(path)
    return entries[-1].timestamp if entries else None


def boundaries(path: str, start: int, end: int, size: int, step: int) -> list[int]:
    """Return split positions from ``start`` (the first one) to ``end``: batch starts about ``step`` bytes apart."""
    found = [start]
    entries = offset_entries(path, size)
    for entry in entries:
        if found[-1] + step <= entry.log_position <= end - step // 2:
            if not may_hold(path, size, entry):
                return _read_batches(path, start, end, size, step)
            found.append(entry.log_position)
    return found if entries else _read_batches(path, start, end, size, step)


def _read_batches(path: str, start: int, end: int, size: int, step: int) -> list[int]:
    """Return the same as ``boundaries`` without an index: only framed batches are certain batch starts."""
    found = [start]
    try:
        with SegmentReader(open_range(path, start, end), verify_crc=False) as reader:
            for window in reader.windows():
                batches = window.batches
                if batches.position[batches.count - 1] < found[-1] + step:
                    continue
                for row in range(batches.count):
                    position = batches.position[row]
                    if found[-1] + step <= position <= end - step // 2 and batch_at(path, position, size):
                        found.append(position)
    except KsegError:
        return [start]
    return found


def offset_entries(path: str, size: int) -> list[OffsetEntry]:
    """Return the entries of a local segment's offset index, up to the first one that is not valid (preallocated
    zeros).
    """
    return [OffsetEntry(*entry) for entry in zip(*_valid_entries(path, size), strict=True)]


def _valid_entries(path: str, size: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the entries of ``offset_entries`` as two columns: offsets and log positions."""
    base_offset = base_offset_of(path) or 0
    data = memoryview(_index_of(path, ".index"))
    offsets, positions = offset_columns(data[: len(data) - len(data) % OFFSET_ENTRY.size], base_offset)
    valid = Order(base_offset, 0, 1).next_break(offsets, positions, 0)
    valid = bisect_left(positions, size, 0, valid)
    return offsets[:valid], positions[:valid]


def time_entries(path: str) -> list[TimeEntry]:
    """Return the entries of a local segment's time index, up to the first one that is not valid."""
    found: list[TimeEntry] = []
    for entry in read_time_index(_index_of(path, ".timeindex"), base_offset_of(path) or 0):
        if not entry.timestamp or entry.timestamp <= (found[-1].timestamp if found else NO_TIMESTAMP):
            break
        found.append(entry)
    return found


def _index_of(path: str, suffix: str) -> bytes:
    try:
        return read_file(str(Path(path).with_suffix(suffix))) if base_offset_of(path) is not None else b""
    except UnreadableError:
        return b""


def may_hold(path: str, size: int, entry: OffsetEntry) -> bool:
    """Return whether a batch with a valid CRC begins at the entry's position and can contain its offset."""
    batches = batch_at(path, entry.log_position, size)
    if batches is None:
        return False
    wrapper = batches.magic[0] < 2 and batches.attributes[0] & CODEC_MASK
    first = 0 if wrapper else batches.base_offset[0]  # only the last offset of a wrapper is known
    return bool(first <= entry.offset <= batches.last_offset[0])
