"""What neighbouring entries prove of one another's offsets, which no CRC covers."""

from __future__ import annotations

from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import CODEC_MASK

# As a C integer, see the .pxd.
CODEC = CODEC_MASK


def base_offset_proved_wrong(
    batches: BatchColumns, row: int, beyond: BatchColumns, following: int, previous: int
) -> bool:
    """Whether the neighbours prove an entry's base offset wrong, which no CRC covers.

    They do if the next one, row ``following`` of ``beyond``, goes on where this one would end, had it begun right
    behind the one before, which ended with offset ``previous``; and the one behind goes on from that, if it is there.
    Of a segment's first entry ``previous`` is one less than the offset in the file's name, which may be -1.
    """
    last = batches.last_offset[row]
    first = last if batches.magic[row] < 2 else clamped(batches.base_offset[row])
    if previous < -1 or first == previous + 1 or last < first or following >= beyond.count:
        return False
    if is_wrapper(batches, row) or is_wrapper(beyond, following):
        return False
    if beyond.base_offset[following] != previous + 2 + last - first:
        return False
    if beyond.position[following] != batches.position[row] + batches.size[row]:
        return False
    # Where many offsets are compacted away, a wrong one fits a gap by chance.
    behind = following + 1
    if behind == beyond.count or is_wrapper(beyond, behind):
        return True
    return beyond.base_offset[behind] == beyond.last_offset[following] + 1


def is_wrapper(batches: BatchColumns, row: int) -> bool:
    """Whether an entry's header does not say where it begins."""
    return batches.magic[row] < 2 and batches.attributes[row] & CODEC != 0
