"""The index of aborted transactions: its layout, and building it from the markers in a log.

``.txnindex`` is n x (version:int16 producerId:int64 firstOffset:int64 lastOffset:int64 lastStableOffset:int64), one
entry for each transaction whose ABORT marker stands in the segment (``AbortedTxn``, ``TransactionIndex``, KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kseg.beside.producer_snapshot import read_snapshot
from kseg.format.kernel import BatchColumns
from kseg.format.log_format import CONTROL, TRANSACTIONAL
from kseg.log.chunk import Chunk

ABORTED_TXN = struct.Struct(
    ">"
    "h"  # version
    "q"  # producerId
    "q"  # firstOffset
    "q"  # lastOffset
    "q"  # lastStableOffset
)
VERSION = 0


class AbortedTxn(NamedTuple):
    """``first_offset`` is that of its first batch, ``last_offset`` its marker's; the rest ``AbortedTxn`` tells."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = VERSION

    def pack(self) -> bytes:
        return ABORTED_TXN.pack(self.version, *self[:-1])


def read_txn_index(data: bytes) -> Iterator[AbortedTxn]:
    """The entries as stored; a rest shorter than an entry is left out."""
    whole = len(data) - len(data) % ABORTED_TXN.size
    for version, *fields in ABORTED_TXN.iter_unpack(memoryview(data)[:whole]):
        yield AbortedTxn._make((*fields, version))


class Transactions:
    """Follows transactions through the segments of a partition, as ProducerStateManager does at recovery.

    ``open`` has the first offset of each producer's open transaction.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def seed(self, snapshot: bytes) -> None:
        """Begin with the open transactions of a producer snapshot; one that does not hold says nothing."""
        for producer in read_snapshot(snapshot) or ():
            if producer.current_txn_first_offset is not None:
                self.open[producer.producer_id] = producer.current_txn_first_offset

    def take(self, chunk: Chunk) -> Iterator[AbortedTxn]:
        """The transactions that end, aborted, among the chunk's entries, which must be sound."""
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            attributes = batches.attributes[row]
            if batches.magic[row] < 2 or not attributes & TRANSACTIONAL or batches.producer_id[row] < 0:
                continue
            if not attributes & CONTROL:
                self.open.setdefault(batches.producer_id[row], batches.base_offset[row])
                continue
            for i in chunk.rows(row):
                # An empty control batch is what the cleaner left of a marker whose transaction is gone.
                marker = chunk.control(i)
                if marker is not None and marker.type in ("ABORT", "COMMIT"):
                    yield from self._end(batches.producer_id[row], chunk.records.offset[i], marker.type == "ABORT")

    def _end(self, producer_id: int, offset: int, aborted: bool) -> Iterator[AbortedTxn]:
        # A marker without data, as coordinators also write them, ends nothing.
        first = self.open.pop(producer_id, None)
        if first is not None and aborted:
            stable = min(self.open.values(), default=offset + 1)
            yield AbortedTxn(producer_id, first, offset, stable)


def has_markers(batches: BatchColumns) -> bool:
    """Whether any entry has to do with a transaction."""
    return any(batches.attributes[row] & TRANSACTIONAL and batches.magic[row] >= 2 for row in range(batches.count))
