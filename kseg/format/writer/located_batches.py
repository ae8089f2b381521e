"""Read the offsets, timestamps and sequences of a segment's batches, as far as they help to find their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, DELETE_HORIZON
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.segment.records_chunk import Chunk

# Two batches of one log that are next to each other have fewer offsets missing between them.
FAR = 1 << 16


class Batch(NamedTuple):
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
        return self._replace(low=low, high=high, stored=stored, first_inner=-1, inner=-1)

    def with_inner_offsets(self) -> Batch:
        """Return the v0 wrapper with the offsets of its messages, which are absolute."""
        low = min(self.first_inner, self.inner) if self.first_inner >= 0 else self.low
        return self._replace(low=low, high=self.inner, stored=self.inner)

    def one_bit_places(self) -> Iterator[tuple[int, int]]:
        """Return the first and the last offset that each flip of one bit in the base offset field results in."""
        for bit in range(63):
            by = (self.stored ^ 1 << bit) - self.stored
            if self.low + by >= 0:
                yield self.low + by, self.high + by


def batches_of(reader: SegmentReader) -> Iterator[Batch]:
    """Return the batches with a valid CRC whose own offsets don't contradict each other."""
    opener = DeepIterator()
    for window in reader.windows():
        batches = window.batches
        wrapped: dict[int, tuple[int, int]] = {}
        if _has_wrappers(batches):
            for chunk in opener.chunks(window):
                wrapped.update(_wrapped_offsets(chunk))
        columns = [memoryview(getattr(batches, name))[: batches.count].tolist() for name in _Header._fields]
        for row, fields in enumerate(zip(*columns, strict=True)):
            header = _Header._make(fields)
            if header.crc_state != CRC_BAD and header.last_offset >= clamped(header.base_offset):
                yield _batch_of(header, wrapped.get(row))


def _has_wrappers(batches: BatchColumns) -> bool:
    if min(memoryview(batches.magic)[: batches.count], default=2) >= 2:
        return False
    return any(batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK for row in range(batches.count))


def _wrapped_offsets(chunk: Chunk) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return the first and the last offset in each v0 and v1 wrapper, by row."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        # A v0 wrapper whose own offset is not that of its last message does not count as intact.
        if wrapper and batches.record_sum[row] and (batches.intact[row] or not batches.magic[row]):
            yield row, (batches.first_record_offset[row], batches.last_record_offset[row])


class _Header(NamedTuple):
    """The columns that a Batch is made from. Lists of them are read faster than each number of a column."""

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    crc: int
    crc_state: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def batch_at(window: Window, row: int, wrapped: tuple[int, int] | None) -> Batch:
    """Return the batch in ``row``; ``wrapped`` are the first and the last offset in it if it is a v0 or v1 wrapper."""
    return _batch_of(_Header._make(getattr(window.batches, name)[row] for name in _Header._fields), wrapped)


def _batch_of(header: _Header, wrapped: tuple[int, int] | None) -> Batch:
    high = header.last_offset
    low = high if header.magic < 2 else clamped(header.base_offset)
    first_inner = inner = -1
    if wrapped is not None:
        low = min(wrapped[0], high)
        if header.magic == 0:
            first_inner, inner = wrapped
    producer = None
    if header.producer_id >= 0 and not header.attributes & CONTROL and header.base_sequence >= 0:
        producer = header.producer_id, header.producer_epoch
    horizon = header.magic >= 2 and header.attributes & DELETE_HORIZON
    return Batch(
        position=header.position,
        end=header.position + header.size,
        low=low,
        high=high,
        stored=header.base_offset,
        crc=header.crc,
        first_time=-1 if horizon else header.base_timestamp,
        last_time=header.max_timestamp,
        producer=producer,
        sequence=header.base_sequence,
        next_sequence=increment_sequence(header.base_sequence, high - low + 1),
        first_inner=first_inner,
        inner=inner,
    )
