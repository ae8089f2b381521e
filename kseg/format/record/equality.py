"""Compare records and batch headers of two files in columns.

Compiled with the types of ``equality.pxd``.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.encoder import headers_end
from kseg.format.record.layout import CONTROL, INT32_MAX, LOG_APPEND_TIME, TRANSACTIONAL
from kseg.format.record.memory import equal_bytes


def count_same(
    left: Any, left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right: Any, right_records: RecordColumns, right_batches: BatchColumns, j: int, count: int, magic: int,
) -> int:  # fmt: skip
    """Return how many of ``count`` records, from rows ``i`` and ``j``, are equal in version ``magic``.

    Version 0 lacks timestamps. Versions 0 and 1 lack headers.
    """
    for n in range(count):
        key_size = left_records.key_size[i]
        value_size = left_records.value_size[i]
        if (
            left_records.offset[i] != right_records.offset[j]
            or key_size != right_records.key_size[j]
            or value_size != right_records.value_size[j]
        ):
            return n
        a = left_records.key_at[i]
        b = right_records.key_at[j]
        if key_size > 0 and not equal_bytes(left, a, right, b, key_size):
            return n
        a = left_records.value_at[i]
        b = right_records.value_at[j]
        if value_size > 0 and not equal_bytes(left, a, right, b, value_size):
            return n
        if magic and not same_timestamp(left_records, left_batches, i, right_records, right_batches, j):
            return n
        if magic >= 2 and not same_headers(left, left_records, i, right, right_records, j):
            return n
        i += 1
        j += 1
    return count


def count_different(
    left: Any, left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right: Any, right_records: RecordColumns, right_batches: BatchColumns, j: int, count: int, magic: int,
) -> int:  # fmt: skip
    """Return how many of ``count`` records, from rows ``i`` and ``j``, have equal offsets but differ otherwise."""
    n = 0
    while n < count and left_records.offset[i] == right_records.offset[j]:
        if count_same(left, left_records, left_batches, i, right, right_records, right_batches, j, 1, magic):
            return n
        n += 1
        i += 1
        j += 1
    return n


def same_timestamp(
    left_records: RecordColumns, left_batches: BatchColumns, i: int,
    right_records: RecordColumns, right_batches: BatchColumns, j: int,
) -> bool:  # fmt: skip
    """Return whether timestamp and timestamp type are equal. In v0 they are -1 and CreateTime."""
    row = left_records.batch[i]
    left_type = left_batches.attributes[row] & LOG_APPEND_TIME if left_batches.magic[row] else 0
    row = right_records.batch[j]
    right_type = right_batches.attributes[row] & LOG_APPEND_TIME if right_batches.magic[row] else 0
    return left_type == right_type and left_records.timestamp[i] == right_records.timestamp[j]


def same_headers(
    left: Any, left_records: RecordColumns, i: int, right: Any, right_records: RecordColumns, j: int
) -> bool:
    """Return whether the headers are equal, byte for byte."""
    count = left_records.header_count[i]
    if count != right_records.header_count[j]:
        return False
    if not count:
        return True
    a = left_records.headers_at[i]
    b = right_records.headers_at[j]
    size = headers_end(left, a, count) - a
    if headers_end(right, b, count) - b != size:
        return False
    return equal_bytes(left, a, right, b, size)


def count_same_headers(left: BatchColumns, i: int, right: BatchColumns, j: int, leader_epochs: bool) -> int:
    """Return how many batches, from rows ``i`` and ``j``, have equal offsets, sizes, versions and valid CRCs.

    With ``leader_epochs``, their partition leader epochs are equal, too. No CRC covers them, because brokers set them.
    """
    n = 0
    while i < left.count and j < right.count:
        if (
            left.base_offset[i] != right.base_offset[j]
            or left.last_offset[i] != right.last_offset[j]
            or left.size[i] != right.size[j]
            or left.magic[i] != right.magic[j]
            or left.crc[i] != right.crc[j]
            or left.crc_state[i] == CRC_BAD
            or right.crc_state[j] == CRC_BAD
            or (leader_epochs and left.partition_leader_epoch[i] != right.partition_leader_epoch[j])
        ):
            return n
        n += 1
        i += 1
        j += 1
    return n


def different_producer_fields(left: BatchColumns, i: int, right: BatchColumns, j: int) -> list[str]:
    """Return the names of the fields of a record's producer that differ between two batches; v0 and v1 have none.

    Followers copy these fields, and the log cleaner keeps them. They decide which transaction a record belongs to, and
    which sequence a broker expects next. Sequences are those of the records, wherever their batches begin.
    """
    if left.magic[i] < 2 or right.magic[j] < 2:
        return []
    columns = ("producer_id", "producer_epoch")
    found = [name for name in columns if getattr(left, name)[i] != getattr(right, name)[j]]
    if _sequence_of_offset_0(left, i) != _sequence_of_offset_0(right, j):
        found.append("sequence")
    changed = left.attributes[i] ^ right.attributes[j]
    bits = (("transactional", TRANSACTIONAL), ("control", CONTROL))
    return found + [name for name, bit in bits if changed & bit]


def _sequence_of_offset_0(batches: BatchColumns, row: int) -> int:
    """Return the sequence that a record at offset 0 would have in this batch; -1 if its records have none."""
    base = batches.base_sequence[row]
    return -1 if base < 0 else (base - (batches.base_offset[row] & INT32_MAX)) & INT32_MAX
