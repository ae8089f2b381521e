"""Byte ranges of a segment: where by its indexes records of given offsets or times can be, and where to split it.

An index is believed where the log agrees: at the byte it names an entry must stand whose CRC holds and that can have
the offset it names. Where there is none, or it is wrong, the log is walked.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from kseg.errors import KsegError, UnreadableError
from kseg.format.record.layout import CODEC_MASK, NO_TIMESTAMP
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.single_batch import batch_at
from kseg.format.sidefiles.indexes import OffsetEntry, TimeEntry, read_offset_index, read_time_index
from kseg.format.storage.source import base_offset_of, local_size, open_range
from kseg.format.storage.special_files import read_file

#: Time index entries that are compared with the log, from the last one back, before the index is not used.
_TRIED = 8


def byte_range(path: str, size: int, first_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """The bytes of a local segment that by its offset index hold all of ``first_offset <= offset < end_offset``.

    The whole file where there is no index, or none that holds. Both ends are bytes at which entries begin (or the
    file ends).
    """
    entries = offset_entries(path, size)
    start, end = 0, size
    if first_offset is not None:
        # Kafka's look-up: the last entry at or before the offset names where to begin looking (OffsetIndex.lookup).
        before = [entry for entry in entries if entry.offset <= first_offset]
        if before and may_hold(path, size, before[-1]):
            start = before[-1].log_position
    if end_offset is not None:
        # An entry's batch can hold smaller offsets than the one it names; the next one's can't.
        for entry, behind in pairwise(entries):
            if entry.offset >= end_offset - 1:
                end = behind.log_position if may_hold(path, size, behind) else size
                break
    return start, max(start, end)


def first_offset_since(path: str, since: int) -> int | None:
    """By the time index: an offset before which all records of a local segment are older than ``since`` (epoch ms).

    None where the index has no such entry that the log agrees with: stale entries of an active segment, which Kafka
    leaves after a truncation, may follow the valid ones in order.
    """
    older = [entry for entry in time_entries(path) if entry.timestamp < since]
    size = local_size(path) or 0
    for entry in reversed(older[-_TRIED:]):
        if _largest_timestamp(path, size, entry.offset) == entry.timestamp:
            return entry.offset + 1
    return None


def _largest_timestamp(path: str, size: int, offset: int) -> int | None:
    """The largest timestamp in the batch that has an offset, None without such a batch."""
    start, end = byte_range(path, size, offset, offset + 1)
    with suppress(KsegError), SegmentReader(open_range(path, start, end), verify_crc=False) as reader:
        for window in reader.windows():
            batches = window.batches
            for row in range(batches.count):
                if batches.last_offset[row] >= offset:
                    return batches.max_timestamp[row]
    return None


def newest_timestamp(path: str) -> int | None:
    """The largest timestamp (epoch ms) of a sealed segment by its time index, to which a broker adds it at the end."""
    entries = time_entries(path)
    return entries[-1].timestamp if entries else None


def boundaries(path: str, start: int, end: int, size: int, step: int) -> list[int]:
    """Bytes of ``start`` to ``end``, the first of them ``start``, at which to split: about ``step`` apart, at entries."""
    found = [start]
    entries = offset_entries(path, size)
    for entry in entries:
        if found[-1] + step <= entry.log_position <= end - step // 2:
            if not may_hold(path, size, entry):
                return _read_batches(path, start, end, size, step)
            found.append(entry.log_position)
    return found if entries else _read_batches(path, start, end, size, step)


def _read_batches(path: str, start: int, end: int, size: int, step: int) -> list[int]:
    """As boundaries, by framing the log: a byte that only looks like an entry can't be told from one otherwise."""
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
    """The offset index beside a local segment as far as it makes sense: preallocated ones end in zeros."""
    found: list[OffsetEntry] = []
    for entry in read_offset_index(_index_of(path, ".index"), base_offset_of(path) or 0):
        if entry.log_position >= size or (
            found and (entry.log_position <= found[-1].log_position or entry.offset <= found[-1].offset)
        ):
            break
        found.append(entry)
    return found


def time_entries(path: str) -> list[TimeEntry]:
    """The time index beside a local segment as far as it makes sense."""
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
    """Whether the log has a sound entry at that byte that can hold that offset."""
    batches = batch_at(path, entry.log_position, size)
    if batches is None:
        return False
    wrapper = batches.magic[0] < 2 and batches.attributes[0] & CODEC_MASK
    first = 0 if wrapper else batches.base_offset[0]  # a wrapper tells its last offset only
    return bool(first <= entry.offset <= batches.last_offset[0])
