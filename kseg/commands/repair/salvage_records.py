"""``kseg repair --salvage-records``: replace a batch with a right CRC and faulty records by the records before the fault.

The new batch has the header of the old one: the same last offset, as after compaction, producer, sequences, and the same
timestamp type. Missing records are not replaced.
"""

from __future__ import annotations

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
from kseg.format.segment.records_chunk import Chunk
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper

#: The largest number of record headers of one batch that are kept as objects.
MAX_HEADERS_HELD = 500_000


@dataclass(frozen=True, slots=True)
class RepackedBatch:
    """A batch that replaces another, with the number of its records and their first and last offset."""

    data: bytes
    records: int
    offset: int
    last_offset: int


def has_readable_records(batches: BatchColumns, row: int) -> bool:
    """Return whether the records before the fault of a batch can be kept without the others.

    Those of a v1 wrapper can't: their offsets are relative to its last message, which is missing (KIP-31). A control batch
    has one record only. A batch with more than MAX_HEADERS_HELD headers is dropped.
    """
    if not batches.record_total[row] or batches.header_total[row] > MAX_HEADERS_HELD:
        return False
    if batches.magic[row] >= 2:
        return not batches.attributes[row] & CONTROL
    return not batches.magic[row] and bool(batches.attributes[row] & CODEC_MASK)


def repack_readable_records(chunk: Chunk, row: int) -> RepackedBatch:
    """Return the readable records of a batch, whose offsets are in order, as a batch of its version and codec."""
    batches = chunk.batches
    records = [
        PlainRecord(
            one.offset, one.key, one.value, NO_TIMESTAMP if one.timestamp is None else one.timestamp, one.headers
        )
        for one in (chunk.record(i, None) for i in chunk.rows(row))
    ]
    build = _batch if batches.magic[row] >= 2 else _wrapper
    return RepackedBatch(build(batches, row, records), len(records), records[0].offset, records[-1].offset)


def _wrapper(batches: BatchColumns, row: int, records: list[PlainRecord]) -> bytes:
    return build_wrapper(records, magic=0, compression=codec_name(batches.attributes[row] & CODEC_MASK))


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
        delete_horizon=batches.base_timestamp[row] if attributes & DELETE_HORIZON else None,
    )
