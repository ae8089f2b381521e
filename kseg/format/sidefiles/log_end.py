"""Find the position up to which a growing segment can be read: the end of its last complete batch with a valid CRC.

The batch after it can be half written or damaged: the bytes written later show which. Indexes avoid reading from the
segment's start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kseg.errors import NotASegmentError, VanishedError
from kseg.format.record import columns
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles import index_reader
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import open_range


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a batch: the ``offset`` after its last one, and the file ``position`` after its last byte.

    ``epoch`` is its leader epoch, -1 if no batch was read or it has none, as those of v0 and v1.
    """

    offset: int
    position: int
    epoch: int = -1


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
                mark = LogEnd(max(mark.offset, last + 1), end, epoch)
    return mark
