"""Positions at which a segment can be split into ranges of whole batches."""

from __future__ import annotations

from kseg.errors import KsegError
from kseg.format.record import framing
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.reader import MAX_ENTRY_SIZE
from kseg.format.storage.source import is_snapshot, open_range

#: A file is split into ranges of at least this many bytes: below, a process costs more than it saves.
RANGE_SIZE = 16 * 1024 * 1024


# How far to look for a range's first entry, and how many must follow it for it to be believed.
SEARCH_REACH = 4 * 1024 * 1024


CHAIN = 3


def range_starts(path: str, size: int, jobs: int) -> list[int]:
    """Where to split a file: bytes at which entries begin, 0 the first. Only 0 where it isn't worth it."""
    count = min(jobs * 8, size // RANGE_SIZE)  # so many that none is waited for long at the end
    starts = [0]
    # The end of a snapshot is judged by its beginning, too.
    if jobs < 2 or count < 2 or is_snapshot(path):
        return starts
    try:
        for i in range(1, count):
            start = _batch_near(path, size * i // count, size)
            if start is not None and start > starts[-1]:
                starts.append(start)
    except KsegError:
        return [0]
    return starts


def _batch_near(path: str, position: int, size: int) -> int | None:
    """The first byte from ``position`` on where an entry seems to begin, and others follow; None if it isn't near."""
    for reach in (SEARCH_REACH // 32, SEARCH_REACH):  # small entries are found in a little
        with open_range(path, position, min(size, position + reach)) as source:
            buffer = InputBuffer(source, reach, lambda finding: None)
            buffer.fill(reach)
            at = 0
            while at < buffer.available:
                at = framing.find_plausible(buffer.data, at, buffer.end, MAX_ENTRY_SIZE)
                if at < buffer.end and _begins_chain(buffer, at):
                    return position + at
                at += 1
    return None


def _begins_chain(buffer: InputBuffer, at: int) -> bool:
    from kseg.format.segment.resync_search import is_valid_batch

    for _ in range(CHAIN):
        if buffer.end - at < RECORD_BATCH_OVERHEAD or not framing.plausible(
            buffer.data, at, buffer.end, MAX_ENTRY_SIZE
        ):
            return False
        size = LOG_OVERHEAD + framing.read_int32(buffer.data, at + SIZE_AT)
        if size > buffer.end - at or not is_valid_batch(buffer, at, size, buffer.data[at + 16]):
            return False
        at += size
    return True
