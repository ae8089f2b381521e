"""Write some of the records of a batch as a batch of the same version, codec, producer and offsets, as a cleaner does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TIMESTAMP_TYPES,
    TRANSACTIONAL,
)
from kseg.format.segment.records_chunk import Record
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper


@dataclass(frozen=True, slots=True)
class RepackedBatch:
    """A batch that replaces another, with the number of its records and their first and last offset.

    ``left_out`` are the offsets of the readable records that it lacks.
    """

    data: bytes
    records: int
    offset: int
    last_offset: int
    left_out: tuple[int, ...] = ()

    def lost_ranges(self, last: int) -> list[tuple[int, int]]:
        """Return the ranges of lost offsets, ends inclusive, of a batch with the last offset ``last``."""
        after = max((self.last_offset, *self.left_out)) + 1
        ranges: list[tuple[int, int]] = []
        for low, high in [*((one, one) for one in self.left_out), *([(after, last)] if after <= last else ())]:
            begin = ranges.pop()[0] if ranges and ranges[-1][1] + 1 == low else low
            ranges.append((begin, high))
        return ranges


def repack(batches: BatchColumns, row: int, kept: Iterable[Record], left_out: tuple[int, ...] = ()) -> RepackedBatch:
    """Return some records of a batch, at least one, whose offsets are in order, as a batch of its version and codec."""
    records = [
        PlainRecord(
            one.offset, one.key, one.value, NO_TIMESTAMP if one.timestamp is None else one.timestamp, one.headers
        )
        for one in kept
    ]
    build = _batch if batches.magic[row] >= 2 else _wrapper
    return RepackedBatch(build(batches, row, records), len(records), records[0].offset, records[-1].offset, left_out)


def _wrapper(batches: BatchColumns, row: int, records: list[PlainRecord]) -> bytes:
    attributes = batches.attributes[row]
    return build_wrapper(
        records,
        magic=batches.magic[row],
        compression=codec_name(attributes & CODEC_MASK),
        timestamp_type=TIMESTAMP_TYPES[bool(batches.magic[row] and attributes & LOG_APPEND_TIME)],
    )


def _batch(batches: BatchColumns, row: int, records: list[PlainRecord]) -> bytes:
    attributes = batches.attributes[row]
    append_time = attributes & LOG_APPEND_TIME
    return build_batch(
        records,
        base_offset=batches.base_offset[row],
        last_offset=batches.last_offset[row],
        compression=codec_name(attributes & CODEC_MASK),
        timestamp_type=TIMESTAMP_TYPES[bool(append_time)],
        base_timestamp=batches.base_timestamp[row],
        max_timestamp=batches.max_timestamp[row] if append_time else None,
        producer_id=batches.producer_id[row],
        producer_epoch=batches.producer_epoch[row],
        base_sequence=batches.base_sequence[row],
        partition_leader_epoch=batches.partition_leader_epoch[row],
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & CONTROL),
        delete_horizon=batches.base_timestamp[row] if attributes & DELETE_HORIZON else None,
    )
