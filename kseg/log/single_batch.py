"""One batch of a segment, read at a given position."""

from __future__ import annotations

from kseg.errors import KsegError
from kseg.files.storage import open_range
from kseg.format import kernel
from kseg.format.log_format import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC_AT, SIZE_AT
from kseg.log.segment import MAX_ENTRY_SIZE


def batch_at(path: str, position: int, size: int) -> kernel.BatchColumns | None:
    """Return the batch that begins at byte ``position`` of a log of ``size`` bytes.

    None where no batch begins there whose CRC is right.
    """
    if not 0 <= position < size:
        return None
    batches = kernel.BatchColumns(1)
    try:
        head = _read(path, position, min(size, position + HEADER_SIZE_UP_TO_MAGIC))
        if len(head) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        length = kernel.read_int32(head, SIZE_AT)
        if not kernel.smallest(head[MAGIC_AT]) <= length <= min(MAX_ENTRY_SIZE, size - position - LOG_OVERHEAD):
            return None
        data = _read(path, position, position + LOG_OVERHEAD + length)
    except (KsegError, OSError):
        return None
    whole = kernel.frame(data, 0, len(data), position, MAX_ENTRY_SIZE, batches) and batches.count
    return batches if whole and kernel.check_crcs(memoryview(data), batches) else None


def _read(path: str, start: int, end: int) -> bytearray:
    """Bytes ``start`` to ``end`` of a file, fewer where it ends before."""
    data = bytearray(end - start)
    with open_range(path, start, end) as source:
        return data[: source.readinto(memoryview(data))]
