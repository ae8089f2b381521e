"""Find positions at which a segment can be split into ranges of whole batches."""

from __future__ import annotations

from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.record import framing
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.segment import batch_evidence
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.segment_reader import MAX_ENTRY_SIZE
from kseg.format.storage.naming import is_snapshot
from kseg.format.storage.source import open_range

#: The smallest range in bytes. A range costs 0.4 ms: it is searched, and its result is joined to that of the one before.
RANGE_SIZE = 8 * 1024 * 1024
#: The largest range: progress is reported by range.
LARGEST_RANGE = 128 * 1024 * 1024
#: The first batch of a range is searched in this many bytes. It is accepted if it begins a chain of CHAIN valid batches.
SEARCH_REACH = 4 * 1024 * 1024
CHAIN = 3


def range_starts(path: str, size: int, jobs: int, after: int = 0) -> list[int]:
    """Return the positions at which to split a file for ``jobs`` processes: starts of batches, the first of them 0.

    ``after`` is the number of bytes in the files after this one. Each range is a part of all bytes after the previous one:
    large ranges and whole files are few, and small ones at the end let all processes end at about the same time. The result
    is [0] if the file is smaller than two ranges.
    """
    starts = [0]
    # The checks of a KRaft snapshot's end need its beginning.
    if jobs < 2 or is_snapshot(path):
        return starts
    at = 0
    try:
        while size - at >= 2 * (part := _part_of(size - at + after, jobs)):
            at += part
            with open_range(path, at, size) as source:
                at += source.skip_hole(at, None)
            start = batch_near(path, at, size)
            if start is not None and start > starts[-1]:
                starts.append(start)
    except KsegError:
        return [0]
    return starts


def _part_of(left: int, jobs: int) -> int:
    """Return the size of the next range of ``left`` bytes."""
    return max(RANGE_SIZE, min(left // (4 * jobs), LARGEST_RANGE))


def batch_near(path: str, position: int, size: int) -> int | None:
    """Return the first position from ``position`` on where a chain of batches begins, None if there is none nearby."""
    for reach in (SEARCH_REACH // 32, SEARCH_REACH):  # a short read suffices for small batches
        with open_range(path, position, min(size, position + reach)) as source:
            buffer = InputBuffer(source, reach, do_nothing)
            buffer.fill(reach)
            at = 0
            while at < buffer.available:
                at = framing.find_signature(buffer.data, at, buffer.end, MAX_ENTRY_SIZE)
                if at < buffer.end and _begins_chain(buffer, at):
                    return position + at
                at += 1
    return None


def _begins_chain(buffer: InputBuffer, at: int) -> bool:
    for _ in range(CHAIN):
        if buffer.end - at < RECORD_BATCH_OVERHEAD or not framing.plausible(
            buffer.data, at, buffer.end, MAX_ENTRY_SIZE
        ):
            return False
        size = LOG_OVERHEAD + framing.read_int32(buffer.data, at + SIZE_AT)
        if size > buffer.end - at or not batch_evidence.is_valid_batch(buffer, at, size, buffer.data[at + 16]):
            return False
        at += size
    return True
