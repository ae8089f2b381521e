"""Batches, records and headers as objects, with Kafka's field names in snake case.

Most work uses columns (``BatchColumns``, ``RecordColumns``). Objects are made one at a time, for what is shown or
returned.
"""

from __future__ import annotations

from dataclasses import dataclass

from kseg.format.compress.codecs import codec_name
from kseg.format.record import columns, framing, layout
from kseg.format.record.control_records import ControlRecord


@dataclass(frozen=True, slots=True)
class Header:
    """A record header (KIP-82). Bytes of ``key`` that are not UTF-8 are surrogate escapes."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record, with its first 10,000 headers. ``position`` is the byte where its batch begins.

    ``timestamp`` is in epoch milliseconds, None if it is missing. ``sequence`` is None in v0 and v1, and -1 if the
    producer is not idempotent. ``control`` is the decoded marker of a control record, otherwise None.
    """

    position: int
    offset: int
    timestamp: int | None
    timestamp_type: str | None
    sequence: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    control: ControlRecord | None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A v2 record batch, or a v0 or v1 message (a compressed message set if ``compression`` isn't none).

    ``position`` is a byte of the file, ``size`` the whole size in bytes. Timestamps are epoch milliseconds. Fields that
    the version lacks are None. The ``base_offset`` of a compressed message set is None: only decompression shows it.
    ``crc_valid`` is None if the CRC was not checked.
    """

    position: int
    size: int
    magic: int
    base_offset: int | None
    last_offset: int
    record_count: int | None
    compression: str
    timestamp_type: str | None
    base_timestamp: int | None
    max_timestamp: int | None
    crc: int
    crc_valid: bool | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    partition_leader_epoch: int | None
    transactional: bool | None
    control: bool | None
    delete_horizon: int | None

    @property
    def last_sequence(self) -> int | None:
        """The sequence of the last record; wraps after Int.MAX like ``DefaultRecordBatch.incrementSequence``."""
        if self.base_sequence is None or self.base_sequence < 0 or self.base_offset is None:
            return self.base_sequence
        return framing.increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


def timestamp_type(magic: int, attributes: int) -> str | None:
    """Return ``CreateTime`` or ``LogAppendTime``, None for v0."""
    if not magic:
        return None
    return layout.TIMESTAMP_TYPES[1 if attributes & layout.LOG_APPEND_TIME else 0]


def record_batch(batches: columns.BatchColumns, row: int) -> RecordBatch:
    """Return one row of the columns as an object."""
    magic, attributes = batches.magic[row], batches.attributes[row]
    codec = attributes & layout.CODEC_MASK
    modern = magic >= 2
    state = batches.crc_state[row]
    base_timestamp = layout.timestamp_or_none(batches.base_timestamp[row])
    return RecordBatch(
        position=batches.position[row],
        size=batches.size[row],
        magic=magic,
        base_offset=batches.base_offset[row] if modern or not codec else None,
        last_offset=batches.last_offset[row],
        record_count=batches.record_count[row] if modern else None,
        compression=codec_name(codec),
        timestamp_type=timestamp_type(magic, attributes),
        base_timestamp=base_timestamp if modern else None,
        max_timestamp=layout.timestamp_or_none(batches.max_timestamp[row]),
        crc=batches.crc[row],
        crc_valid=None if state == columns.CRC_UNCHECKED else state == columns.CRC_GOOD,
        producer_id=batches.producer_id[row] if modern else None,
        producer_epoch=batches.producer_epoch[row] if modern else None,
        base_sequence=batches.base_sequence[row] if modern else None,
        partition_leader_epoch=batches.partition_leader_epoch[row] if modern else None,
        transactional=bool(attributes & layout.TRANSACTIONAL) if modern else None,
        control=bool(attributes & layout.CONTROL) if modern else None,
        delete_horizon=base_timestamp if modern and attributes & layout.DELETE_HORIZON else None,
    )
