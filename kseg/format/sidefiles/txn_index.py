"""The index of aborted transactions: its layout, and building it from the markers in a log.

``.txnindex`` is n x (version:int16 producerId:int64 firstOffset:int64 lastOffset:int64 lastStableOffset:int64), one
entry per transaction whose ABORT marker is in the segment (``AbortedTxn``, ``TransactionIndex``, KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kseg.errors import LimitError
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles.producer_snapshot import read_snapshot

ABORTED_TXN = struct.Struct(
    ">"
    "h"  # version
    "q"  # producerId
    "q"  # firstOffset
    "q"  # lastOffset
    "q"  # lastStableOffset
)
VERSION = 0
#: The most open transactions that are followed. A broker has a few.
MAX_OPEN = 500_000


class AbortedTxn(NamedTuple):
    """An aborted transaction: ``first_offset`` is the first of its first batch, ``last_offset`` is its marker's.

    ``last_stable_offset`` is where the earliest transaction then open began, or the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = VERSION

    def pack(self) -> bytes:
        return ABORTED_TXN.pack(self.version, *self[:-1])


def read_txn_index(data: bytes) -> Iterator[AbortedTxn]:
    """Yield the entries as stored. An incomplete entry at the end is left out."""
    complete = len(data) - len(data) % ABORTED_TXN.size
    for version, *fields in ABORTED_TXN.iter_unpack(memoryview(data)[:complete]):
        yield AbortedTxn._make((*fields, version))


class AbortedTransactions:
    """Follows transactions through the segments of a partition, like ProducerStateManager during recovery.

    ``open`` maps each producer with an open transaction to its first offset. None is forgotten: with more than
    MAX_OPEN, ``add_open`` and ``update`` raise LimitError.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        # A heap of (first offset, producer) of the open transactions and of some that have ended.
        self._earliest: list[tuple[int, int]] = []

    def add_open(self, snapshot: bytes) -> None:
        """Start with the open transactions of a producer snapshot. A damaged snapshot is ignored."""
        for producer in read_snapshot(snapshot) or ():
            if producer.current_txn_first_offset is not None:
                self._begin(producer.producer_id, producer.current_txn_first_offset)

    def update(self, chunk: Chunk) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions that end in the chunk. Batches with a wrong CRC are skipped."""
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            attributes = batches.attributes[row]
            transactional = attributes & TRANSACTIONAL and batches.magic[row] >= 2 and batches.producer_id[row] >= 0
            if not transactional or batches.crc_state[row] == CRC_BAD:
                continue
            if not attributes & CONTROL:
                if batches.producer_id[row] not in self.open:
                    self._begin(batches.producer_id[row], batches.base_offset[row])
                continue
            for i in chunk.rows(row):
                # The cleaner leaves an empty control batch of a marker whose transaction was removed.
                marker = chunk.control(i)
                if marker is not None and marker.type in ("ABORT", "COMMIT"):
                    yield from self._end(batches.producer_id[row], chunk.records.offset[i], marker.type == "ABORT")

    def _begin(self, producer_id: int, first: int) -> None:
        if len(self.open) >= MAX_OPEN:
            raise LimitError(f"more than {MAX_OPEN} transactions are open at once")
        self.open[producer_id] = first
        if len(self._earliest) > 2 * len(self.open):
            self._earliest = [(offset, producer) for producer, offset in self.open.items()]
            heapify(self._earliest)
        else:
            heappush(self._earliest, (first, producer_id))

    def _end(self, producer_id: int, offset: int, aborted: bool) -> Iterator[AbortedTxn]:
        # Coordinators also write markers without data: these end no transaction.
        first = self.open.pop(producer_id, None)
        if first is not None and aborted:
            while self._earliest and self.open.get(self._earliest[0][1]) != self._earliest[0][0]:
                heappop(self._earliest)
            stable = self._earliest[0][0] if self._earliest else offset + 1
            yield AbortedTxn(producer_id, first, offset, stable)


def has_markers(batches: BatchColumns) -> bool:
    """Return whether any batch belongs to a transaction."""
    return any(batches.attributes[row] & TRANSACTIONAL and batches.magic[row] >= 2 for row in range(batches.count))
