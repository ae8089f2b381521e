"""Which records of a batch with a right CRC and a fault in its records ``kseg repair --salvage-records`` keeps.

These are the records before a fault that ends the reading. Of a compressed v0 or v1 message set, the messages with a wrong
CRC of their own are left out: Java's consumer, kafka-python, Sarama and franz-go stop at one.

The messages of a v1 set have offsets relative to its last message (KIP-31). If that is missing, they are proved if the first
message could only be lower at an offset that a batch before it has.
"""

from __future__ import annotations

from kseg.commands.repair.repair_losses import SALVAGEABLE, BatchFindings
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32_of
from kseg.format.record.layout import CODEC_MASK, CONTROL, LEGACY_CRC_AT, MAGIC_AT, V0_KEY_AT, V1_KEY_AT
from kseg.format.segment.records_chunk import Chunk
from kseg.format.writer.records_builder import RepackedBatch, repack

#: The largest number of record headers of one batch that are kept as objects.
MAX_HEADERS_HELD = 500_000
_INNER_CRC = "inner-crc-mismatch"


class SalvagedRecords:
    """Finds the records to keep. ``name_offset`` is the offset in the name of the segment, None if unknown."""

    def __init__(self, findings: BatchFindings, name_offset: int | None) -> None:
        self._findings = findings
        self._floor = (name_offset or 0) - 1  # the last offset before the next batch

    def select(self, chunk: Chunk) -> None:
        """Mark the batches of a chunk as intact whose readable records can be kept, with their offsets corrected."""
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            if not batches.selected[row]:
                continue
            if not batches.intact[row] and chunk.payload_size is None and self._are_placed(chunk, row):
                batches.intact[row] = 1
            if batches.intact[row]:
                self._floor = max(self._floor, batches.last_offset[row])

    def repacked(self, chunk: Chunk, row: int) -> RepackedBatch | None:
        """Return the records to keep of a selected batch as a new batch; None if all of its records are kept."""
        if not self._findings.leaves_readable_records(chunk.batches.position[row]):
            return None
        rows, checked = chunk.rows(row), _INNER_CRC in self._rules(chunk.batches, row)
        kept = [i for i in rows if not checked or _has_right_crc(chunk, row, i)]
        left_out = tuple(chunk.records.offset[i] for i in sorted({*rows} - {*kept}))
        return repack(chunk.batches, row, (chunk.record(i, None) for i in kept), left_out)

    def _are_placed(self, chunk: Chunk, row: int) -> bool:
        """Return whether a batch has readable records whose offsets are known, after correcting those of a v1 set."""
        batches = chunk.batches
        if not has_readable_records(batches, row):
            return False
        if not self._findings.leaves_readable_records(batches.position[row]):
            return False
        rules = self._rules(batches, row)
        if _INNER_CRC in rules and not any(_has_right_crc(chunk, row, i) for i in chunk.rows(row)):
            return False
        if batches.magic[row] != 1 or rules == {_INNER_CRC}:
            return True
        by = _too_high(chunk, row, self._floor)
        if by is None:
            return False
        for i in chunk.rows(row) if by else ():
            chunk.records.offset[i] -= by
        batches.first_record_offset[row] -= by
        batches.last_record_offset[row] -= by
        return True

    def _rules(self, batches: BatchColumns, row: int) -> set[str]:
        return {finding.rule for finding in self._findings.at[batches.position[row]] if finding.rule in SALVAGEABLE}


def has_readable_records(batches: BatchColumns, row: int) -> bool:
    """Return whether some records of a batch can be kept without the others.

    A control batch has one record only. A batch with more than MAX_HEADERS_HELD headers is dropped.
    """
    if not batches.record_total[row] or batches.header_total[row] > MAX_HEADERS_HELD:
        return False
    if batches.magic[row] >= 2:
        return not batches.attributes[row] & CONTROL
    return bool(batches.attributes[row] & CODEC_MASK)


def _begin_of(chunk: Chunk, row: int, i: int) -> int:
    """Return where message ``i`` of a set begins in its payload."""
    return chunk.records.key_at[i] - 4 - (V1_KEY_AT if chunk.batches.magic[row] else V0_KEY_AT)


def _end_of(chunk: Chunk, i: int) -> int:
    return chunk.records.value_at[i] + max(chunk.records.value_size[i], 0)


def _has_right_crc(chunk: Chunk, row: int, i: int) -> bool:
    payload, at = chunk.payload(row), _begin_of(chunk, row, i)
    stored = int.from_bytes(payload[at + LEGACY_CRC_AT : at + MAGIC_AT], "big")
    return stored == crc32_of(payload, at + MAGIC_AT, _end_of(chunk, i))


def _too_high(chunk: Chunk, row: int, floor: int) -> int | None:
    """Return by how much the offsets of the readable messages of a v1 set are too high, None if nothing proves it.

    They are read as if the last of them had the offset of the set. The relative offset of the true last message is as high
    or higher, and the offset of the first is above ``floor``. The offset of an incomplete message can be readable.
    """
    batches, rows, payload = chunk.batches, chunk.rows(row), chunk.payload(row)
    if not batches.last_offset[row]:
        return None  # the offsets are not relative to its last message, see ``wrapper_shift``
    first, begin, end = chunk.records.offset[rows[0]], _begin_of(chunk, row, rows[-1]), _end_of(chunk, rows[-1])
    last, incomplete = (int.from_bytes(payload[at : at + 8], "big", signed=True) for at in (begin, end))
    least = incomplete - last if len(payload) - end >= 8 else 0
    return next((by for by in (0, least) if by >= 0 and first - by == floor + 1), None)
