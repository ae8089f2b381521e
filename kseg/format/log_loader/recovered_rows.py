"""The loops of a broker's recovery over the rows of a window, up to the next batch that needs a closer look.

Compiled with the types of ``recovered_rows.pxd``.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record.columns import CRC_GOOD, BatchColumns
from kseg.format.record.layout import CODEC_MASK, CONTROL, INT32_MAX, INT64_MAX, NO_TIMESTAMP, SUM_LIMIT, TRANSACTIONAL

# C constants when compiled.
CODEC = CODEC_MASK
MARKER = CONTROL
IN_TRANSACTION = TRANSACTIONAL
GOOD = CRC_GOOD
MAX_RELATIVE = INT32_MAX
FAR = SUM_LIMIT
MAX_INT64 = INT64_MAX


class IndexProgress:
    """The bytes and the largest timestamp of the batches so far, which decide where an index gets an entry.

    ``valid`` are the bytes of all batches, ``indexed`` those before the batch of the last entry. ``timestamp`` is in epoch
    milliseconds, ``offset`` the last offset of its batch.
    """

    def __init__(self, interval: int, base_offset: int) -> None:
        self.interval = interval
        self.valid = 0
        self.indexed = 0
        self.timestamp = NO_TIMESTAMP
        self.offset = base_offset

    def next_entry(self, batches: BatchColumns, row: int, stop: int) -> int:
        """Add the batches from ``row`` up to the first that gets an index entry; return its row, else ``stop``.

        The caller writes the entry, sets ``indexed`` to ``valid``, and continues with that row.
        """
        while row < stop:
            if batches.max_timestamp[row] > self.timestamp:
                self.timestamp = batches.max_timestamp[row]
                self.offset = batches.last_offset[row]
            if self.valid - self.indexed > self.interval:
                break
            self.valid += batches.size[row]
            row += 1
        return row


def end_of_plain(
    batches: BatchColumns, row: int, base_offset: int, latest_epoch: int, transactions: dict[int, Any]
) -> int:
    """Return the end of the batches from ``row`` on that change neither leader epochs nor transactions.

    They have one header format, and their offsets fit a segment that starts at ``base_offset``. ``transactions`` has the
    producers with an open transaction.
    """
    legacy = batches.magic[row] < 2
    while row < batches.count:
        if base_offset < 0 or batches.last_offset[row] < base_offset:
            break
        if batches.last_offset[row] - base_offset > MAX_RELATIVE or (batches.magic[row] < 2) != legacy:
            break
        if not legacy and (
            batches.partition_leader_epoch[row] > latest_epoch or changes_transactions(batches, row, transactions)
        ):
            break
        row += 1
    return row


def end_without_transactions(batches: BatchColumns, row: int, transactions: dict[int, Any]) -> int:
    """Return the end of the batches from ``row`` on that have a readable header and change no transaction."""
    while row < batches.count and (
        batches.magic[row] < 2 or (batches.intact[row] and not changes_transactions(batches, row, transactions))
    ):
        row += 1
    return row


def last_rows(batches: BatchColumns, row: int, stop: int, last: dict[int, int]) -> None:
    """Set ``last`` to the row of each producer's last v2 batch among the rows ``row`` to ``stop`` (exclusive)."""
    while row < stop:
        producer = batches.producer_id[row]
        row += 1
        if producer < 0 or (row < stop and batches.producer_id[row] == producer):
            continue  # v0 and v1 lack producers
        last[producer] = row - 1


def changes_transactions(batches: BatchColumns, row: int, transactions: dict[int, Any]) -> bool:
    """Return whether a v2 batch begins or ends a transaction, or is outside of its producer's open one."""
    producer = batches.producer_id[row]
    if producer < 0:
        return False
    if batches.attributes[row] & MARKER:
        return True
    if batches.attributes[row] & IN_TRANSACTION:
        return producer not in transactions
    return len(transactions) > 0 and producer in transactions


def end_of_lower(batches: BatchColumns, row: int, offset: int) -> int:
    """Return the end of the batches from ``row`` on whose headers show that they begin before ``offset``."""
    while (
        row < batches.count
        and batches.base_offset[row] < offset
        and (batches.magic[row] >= 2 or not batches.attributes[row] & CODEC)
    ):
        row += 1
    return row


def has_far_offsets(batches: BatchColumns) -> bool:
    """Return whether the sum of a base offset and a delta can exceed 64 bits."""
    for row in range(batches.count):  # noqa: SIM110 - a generator is not compiled into a loop
        if batches.base_offset[row] > FAR or batches.base_offset[row] < -FAR:
            return True
    return False


def count_records(batches: BatchColumns) -> tuple[int, int, int]:
    """Return the number of records of the batches with a good CRC, their first, and their last offset.

    The first number is -1 if a header does not have the number of records: that of a compressed v0 or v1 message.
    The first offset is INT64_MAX without such a batch.
    """
    records = 0
    first = MAX_INT64
    last = -1
    for row in range(batches.count):
        if batches.crc_state[row] != GOOD:
            continue
        if batches.magic[row] < 2 and batches.attributes[row] & CODEC:
            return -1, first, last
        records += max(0, batches.record_count[row]) if batches.magic[row] >= 2 else 1
        first = min(first, batches.base_offset[row])
        last = max(last, batches.last_offset[row])
    return records, first, last
