"""Read the offsets, timestamps and sequences of a segment's batches, as far as they help to find their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kseg.format.record.columns import CRC_BAD
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, DELETE_HORIZON
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.segment.records_chunk import Chunk

# Two batches of one log that are next to each other have fewer offsets missing between them.
FAR = 1 << 16


@dataclass(frozen=True, slots=True)
class Batch:
    """The offsets of one batch, and what shows whether they are right.

    ``position`` and ``end`` (exclusive) are bytes of the file. ``low`` and ``high`` are the first and the last offset.
    ``stored`` is the number in the base offset field. ``first_inner`` and ``inner`` are the first and the last offset in a
    v0 wrapper, -1 for other batches. ``doubtful``: the size field was overwritten, so the base offset before it may be
    overwritten, too.
    """

    position: int
    end: int
    low: int
    high: int
    stored: int
    crc: int
    first_time: int
    last_time: int
    producer: tuple[int, int] | None
    sequence: int
    next_sequence: int
    first_inner: int
    inner: int
    doubtful: bool = False

    def beginning_at(self, low: int) -> Batch:
        """Return the batch with ``low`` as its first offset."""
        high = low + self.high - self.low
        # Of a wrapper the last offset is stored.
        stored = high if self.stored == self.high else low
        return replace(self, low=low, high=high, stored=stored, first_inner=-1, inner=-1)

    def with_inner_offsets(self) -> Batch:
        """Return the v0 wrapper with the offsets of its messages, which are absolute."""
        low = min(self.first_inner, self.inner) if self.first_inner >= 0 else self.low
        return replace(self, low=low, high=self.inner, stored=self.inner)

    def one_bit_places(self) -> Iterator[tuple[int, int]]:
        """Return the first and the last offset that each flip of one bit in the base offset field results in."""
        for bit in range(63):
            by = (self.stored ^ 1 << bit) - self.stored
            if self.low + by >= 0:
                yield self.low + by, self.high + by


def one_bit_apart(one: int, other: int) -> bool:
    """Return whether two int64 differ in one bit."""
    return ((one ^ other) & ((1 << 64) - 1)).bit_count() == 1


def batches_of(reader: SegmentReader) -> Iterator[Batch]:
    """Return the batches with a valid CRC whose own offsets don't contradict each other."""
    opener = DeepIterator()
    for window in reader.windows():
        batches = window.batches
        wrapped: dict[int, tuple[int, int]] = {}
        if any(batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK for row in range(batches.count)):
            for chunk in opener.chunks(window):
                wrapped.update(_wrapped_offsets(chunk))
        for row in range(batches.count):
            if batches.crc_state[row] != CRC_BAD and batches.last_offset[row] >= clamped(batches.base_offset[row]):
                yield batch_at(window, row, wrapped.get(row))


def _wrapped_offsets(chunk: Chunk) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return the first and the last offset in each v0 and v1 wrapper, by row."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        # A v0 wrapper whose own offset is not that of its last message does not count as intact.
        if wrapper and batches.record_sum[row] and (batches.intact[row] or not batches.magic[row]):
            yield row, (batches.first_record_offset[row], batches.last_record_offset[row])


def batch_at(window: Window, row: int, wrapped: tuple[int, int] | None) -> Batch:
    """Return the batch in ``row``; ``wrapped`` are the first and the last offset in it if it is a v0 or v1 wrapper."""
    batches = window.batches
    high = batches.last_offset[row]
    low = high if batches.magic[row] < 2 else clamped(batches.base_offset[row])
    first_inner = inner = -1
    if wrapped is not None:
        low = min(wrapped[0], high)
        if batches.magic[row] == 0:
            first_inner, inner = wrapped
    attributes, producer = batches.attributes[row], None
    if batches.producer_id[row] >= 0 and not attributes & CONTROL and batches.base_sequence[row] >= 0:
        producer = batches.producer_id[row], batches.producer_epoch[row]
    horizon = batches.magic[row] >= 2 and attributes & DELETE_HORIZON
    sequence = batches.base_sequence[row]
    return Batch(
        position=batches.position[row],
        end=batches.position[row] + batches.size[row],
        low=low,
        high=high,
        stored=batches.base_offset[row],
        crc=batches.crc[row],
        first_time=-1 if horizon else batches.base_timestamp[row],
        last_time=batches.max_timestamp[row],
        producer=producer,
        sequence=sequence,
        next_sequence=increment_sequence(sequence, high - low + 1),
        first_inner=first_inner,
        inner=inner,
    )
