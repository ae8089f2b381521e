"""The indexes of a segment: look-ups of offsets and times, and positions to split it at.

An index entry is used only if the log agrees: at its position a batch with a valid CRC must begin that can contain its
offset. Without a valid index the batches of the log are read.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

from kseg.errors import KsegError, UnreadableError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import HEADER_SIZE_UP_TO_MAGIC, MAGIC_AT
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.segment_reader import SegmentReader, batch_at, read_range
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import local_size, open_range, stored_size

#: The number of time index entries, from the last one back, that are compared with the log.
_TRIED = 8
#: The entries that are read at once: 16 KiB of an offset index, and 24 KiB of a time index.
_BLOCK = 2048
#: The most bytes at the end of a log that are compared with the last time index entry.
_COMPARED = 16 << 20


class _Entries:
    """The entries of an index, read in blocks where they are looked at: a preallocated index has 10 MB of zeros.

    Of an ``.index`` they are (offset, log position), of a ``.timeindex`` (timestamp, offset). An index that cannot be
    opened has none. Reading raises UnreadableError.
    """

    def __init__(self, path: str, layout: struct.Struct) -> None:
        self._base = base_offset_of(path)
        self._layout = layout
        self._blocks: dict[int, list[tuple[int, ...]]] = {}
        self._stored = 0
        if self._base is not None:
            self._index = os.path.splitext(path)[0] + (".index" if layout is OFFSET_ENTRY else ".timeindex")
            with suppress(UnreadableError):
                self._stored = (stored_size(self._index) or 0) // layout.size

    @cached_property
    def rows(self) -> range:
        """The numbers of the entries, without the zeros at the end of a preallocated index."""
        if not self._stored or any(self._raw(self._stored - 1)):
            return range(self._stored)
        return range(bisect_left(range(self._stored), True, key=lambda row: not any(self._raw(row))))

    def __getitem__(self, row: int) -> tuple[int, int]:
        first, second = self._raw(row)
        base = self._base or 0
        return (base + first, second) if self._layout is OFFSET_ENTRY else (first, base + second)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the entries in order, up to the first zeros."""
        for row in range(self._stored):
            if not any(self._raw(row)):
                return
            yield self[row]

    def _raw(self, row: int) -> tuple[int, ...]:
        number, at = divmod(row, _BLOCK)
        if number not in self._blocks:
            size, begin = self._layout.size, number * _BLOCK
            try:
                data = read_range(self._index, begin * size, min(begin + _BLOCK, self._stored) * size)
            except OSError as error:
                raise UnreadableError(f"{self._index}: {error.strerror or error}") from error
            self._blocks[number] = [*self._layout.iter_unpack(data[: len(data) - len(data) % size])]
        block = self._blocks[number]
        return block[at] if at < len(block) else (0, 0)  # it has become shorter


def byte_range(
    path: str,
    size: int,
    first_offset: int | None,
    end_offset: int | None,
    since: int | None = None,
    *,
    sealed: bool = False,
) -> tuple[int, int]:
    """Return the byte range of a segment that contains all of ``first_offset <= offset < end_offset`` not before ``since``.

    The range is found with the indexes: the whole file without valid ones. Both ends are batch starts or the file's end.
    ``since`` is in epoch ms, ``sealed`` as in ``first_offset_since``.
    """
    if (first_offset, end_offset, since) == (None, None, None):
        return 0, size
    entries = _Entries(path, OFFSET_ENTRY)
    if since is not None and (newer := first_offset_since(path, size, since, sealed=sealed, offsets=entries)):
        first_offset = max(first_offset or 0, newer)
    return _range_of(path, size, entries, first_offset, end_offset)


def _range_of(
    path: str, size: int, entries: _Entries, first_offset: int | None, end_offset: int | None
) -> tuple[int, int]:
    start, end = 0, size
    with suppress(UnreadableError):
        if first_offset is not None:
            # As OffsetIndex.lookup: reading begins at the position of the last entry at or before the offset.
            row = bisect_right(entries.rows, first_offset, key=lambda row: entries[row][0]) - 1
            if row >= 0 and may_hold(path, size, OffsetEntry(*entries[row])):
                start = entries[row][1]
        if end_offset is not None:
            # The batch of an entry can contain smaller offsets than the entry's. The batch of the next entry can't.
            row = bisect_left(entries.rows, end_offset - 1, key=lambda row: entries[row][0])
            if row + 1 < len(entries.rows) and _begins_after(path, size, end_offset, entries[row], entries[row + 1]):
                end = entries[row + 1][1]
    return start, max(start, end)


def _begins_after(path: str, size: int, end_offset: int, entry: tuple[int, int], following: tuple[int, int]) -> bool:
    """Return whether the log agrees that no batch from the one of ``following`` on has an offset before ``end_offset``."""
    batches = _batch_of(path, size, OffsetEntry(*following))
    if batches is None or following <= entry or following[1] <= entry[1]:
        return False
    wrapper = is_wrapper(batches, 0)
    return may_hold(path, size, OffsetEntry(*entry)) if wrapper else bool(batches.base_offset[0] >= end_offset)


def first_offset_since(
    path: str, size: int, since: int, *, sealed: bool = False, offsets: _Entries | None = None
) -> int | None:
    """Return an offset before which all records of a segment are older than ``since`` (epoch ms), from the time index.

    ``offsets`` are the entries of its offset index, if they are read already. None without an entry that agrees with the
    log. The valid entries of an active segment can be followed by stale ones in the same order, which Kafka leaves after a
    truncation: only those of a ``sealed`` one are bisected.
    """
    entries = _Entries(path, TIME_ENTRY)
    older: Iterable[tuple[int, int]]
    try:
        if sealed:
            end = bisect_left(entries.rows, since, key=lambda row: entries[row][0])
            older = [entries[row] for row in range(max(0, end - _TRIED), end)]
        else:
            older = deque((entry for entry in _in_order(entries) if entry[0] < since), _TRIED)
    except UnreadableError:
        return None
    offsets = offsets or _Entries(path, OFFSET_ENTRY)
    for timestamp, offset in reversed(older):
        if _largest_timestamp(path, size, offsets, offset) == timestamp:
            return offset + 1 if begins_with_v2(path) else None
    return None


def begins_with_v2(path: str) -> bool:
    """Return whether the first batch of a log has version 2: then no header is from a broker before 0.11.

    These brokers wrote too small timestamps when they converted compressed messages, and made time indexes of them.
    """
    with suppress(KsegError, OSError):
        data = read_range(path, 0, HEADER_SIZE_UP_TO_MAGIC)
        return len(data) == HEADER_SIZE_UP_TO_MAGIC and data[MAGIC_AT] >= 2
    return False


def _largest_timestamp(path: str, size: int, offsets: _Entries, offset: int) -> int | None:
    """Return the largest timestamp in the batch that contains an offset, None without such a batch."""
    start, end = _range_of(path, size, offsets, offset, offset + 1)
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

    None without an entry, if the last entries are not in order, or if a local log does not agree with the last one.
    """
    entries = _Entries(path, TIME_ENTRY)
    with suppress(UnreadableError):
        if (last := len(entries.rows) - 1) >= 0 and (not last or entries[last] > entries[last - 1]):
            size = local_size(path)
            return entries[last][0] if size is None or _is_newest(path, size, *entries[last]) else None
    return None


def _is_newest(path: str, size: int, timestamp: int, offset: int) -> bool:
    """Return whether the batches from ``offset`` to the end of a log have that largest timestamp.

    An index can be damaged, or lack its end. More than _COMPARED bytes are not read.
    """
    start, _ = byte_range(path, size, offset, None)
    found = -1
    if size - start <= _COMPARED:
        with suppress(KsegError), SegmentReader(open_range(path, start, size), verify_crc=False) as reader:
            for window in reader.windows():
                batches = window.batches
                found = max(found, *(batches.max_timestamp[row] for row in range(batches.count)))
            return not reader.damaged and found == timestamp
    return False


def boundaries(path: str, start: int, end: int, size: int, step: int) -> list[int]:
    """Return split positions from ``start`` (the first one) to ``end``: batch starts about ``step`` bytes apart."""
    found = [start]
    entries = _Entries(path, OFFSET_ENTRY)
    try:
        if not entries.rows:
            return _read_batches(path, start, end, size, step)
        while True:
            row = bisect_left(entries.rows, found[-1] + step, key=lambda row: entries[row][1])
            if row == len(entries.rows) or entries[row][1] > end - step // 2:
                return found
            if entries[row][1] < found[-1] + step or not may_hold(path, size, OffsetEntry(*entries[row])):
                return _read_batches(path, start, end, size, step)
            found.append(entries[row][1])
    except UnreadableError:
        return _read_batches(path, start, end, size, step)


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


def last_entry(path: str, size: int, *, below: int, before: int) -> OffsetEntry | None:
    """Return the last entry of the offset index for an offset ``below`` and a position ``before`` these limits.

    None if the index has none, or if the log does not agree with it. ``size`` is the size of the segment in bytes.
    """
    entries = _Entries(path, OFFSET_ENTRY)

    def is_beyond(row: int) -> bool:
        offset, position = entries[row]
        return offset >= below or position >= min(before, size)

    with suppress(UnreadableError):
        row = bisect_left(entries.rows, True, key=is_beyond) - 1
        if row >= 0 and may_hold(path, size, entry := OffsetEntry(*entries[row])):
            return entry
        # Stale entries follow in another order.
        within = (entry for row, entry in enumerate(_in_order(entries)) if not is_beyond(row))
        last = deque(within, 1)
        if last and may_hold(path, size, entry := OffsetEntry(*last[0])):
            return entry
    return None


def offset_entries(path: str) -> list[OffsetEntry]:
    """Return the entries of a segment's offset index, up to the first one that is not valid (preallocated zeros)."""
    with suppress(UnreadableError):
        return [OffsetEntry(*entry) for entry in _in_order(_Entries(path, OFFSET_ENTRY))]
    return []


def time_entries(path: str) -> list[TimeEntry]:
    """Return the entries of a segment's time index, up to the first one that is not valid."""
    with suppress(UnreadableError):
        return [TimeEntry(*entry) for entry in _in_order(_Entries(path, TIME_ENTRY))]
    return []


def _in_order(entries: _Entries) -> Iterator[tuple[int, int]]:
    """Yield the entries up to the first one whose fields are not above those of the one before."""
    before = (-1, -1)
    for entry in entries:
        if entry[0] <= before[0] or entry[1] <= before[1] or min(entry) < 0:
            return
        yield entry
        before = entry


def may_hold(path: str, size: int, entry: OffsetEntry) -> bool:
    """Return whether a batch with a valid CRC begins at the entry's position and can contain its offset."""
    return _batch_of(path, size, entry) is not None


def _batch_of(path: str, size: int, entry: OffsetEntry) -> BatchColumns | None:
    batches = batch_at(path, entry.log_position, size)
    if batches is None:
        return None
    wrapper = is_wrapper(batches, 0)
    first = 0 if wrapper else batches.base_offset[0]  # only the last offset of a wrapper is known
    return batches if first <= entry.offset <= batches.last_offset[0] else None
