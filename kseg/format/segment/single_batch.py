"""One batch of a segment, read at a given position."""

from __future__ import annotations

from kseg.errors import KsegError
from kseg.format.record import columns, framing
from kseg.format.record.layout import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC_AT, SIZE_AT
from kseg.format.segment.reader import MAX_ENTRY_SIZE
from kseg.format.storage.source import open_range


def batch_at(path: str, position: int, size: int) -> columns.BatchColumns | None:
    """Return the batch that begins at byte ``position`` of a log of ``size`` bytes.

    None if no batch with a valid CRC begins there.
    """
    if not 0 <= position < size:
        return None
    batches = columns.BatchColumns(1)
    try:
        header = _read(path, position, min(size, position + HEADER_SIZE_UP_TO_MAGIC))
        if len(header) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        length = framing.read_int32(header, SIZE_AT)
        if not framing.smallest_size(header[MAGIC_AT]) <= length <= min(MAX_ENTRY_SIZE, size - position - LOG_OVERHEAD):
            return None
        data = _read(path, position, position + LOG_OVERHEAD + length)
    except (KsegError, OSError):
        return None
    framed = framing.frame(data, 0, len(data), position, MAX_ENTRY_SIZE, batches) and batches.count
    return batches if framed and framing.check_crcs(memoryview(data), batches) else None


def _read(path: str, start: int, end: int) -> bytearray:
    """Return bytes ``start`` to ``end`` of a file, fewer if the file ends before."""
    data = bytearray(end - start)
    with open_range(path, start, end) as source:
        return data[: source.readinto(memoryview(data))]
