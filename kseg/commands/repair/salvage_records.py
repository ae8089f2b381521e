"""What ``kseg repair --salvage-records`` makes of an entry with a fault behind its CRC: the records before it, packed anew.

The fresh entry has the old one's header: offsets up to the same last one, as compaction leaves them, producer and
sequences, timestamps of the same type. Nothing is made up for what is missing.
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

#: Headers of one entry that are held as objects.
MAX_HEADERS_HELD = 500_000


@dataclass(frozen=True, slots=True)
class RepackedBatch:
    """An entry to be written in place of another, and how many records it has from which offset to which."""

    data: bytes
    records: int
    offset: int
    last_offset: int


def has_readable_records(batches: BatchColumns, row: int) -> bool:
    """Whether the records before the fault of an opened entry can stand alone.

    Those of a v1 wrapper can't: their offsets count from its last message, which is not there (KIP-31). Control batches
    say one thing, whole. An entry with more than MAX_HEADERS_HELD headers is not taken apart.
    """
    if not batches.record_total[row] or batches.header_total[row] > MAX_HEADERS_HELD:
        return False
    if batches.magic[row] >= 2:
        return not batches.attributes[row] & CONTROL
    return not batches.magic[row] and bool(batches.attributes[row] & CODEC_MASK)


def repack_readable_records(chunk: Chunk, row: int) -> RepackedBatch:
    """The readable records of an entry whose offsets were found in order, as an entry of its version and codec."""
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
