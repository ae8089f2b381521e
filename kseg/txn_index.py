"""The index of aborted transactions: its layout, and building it from the markers in a log.

``.txnindex`` is n x (version:int16 producerId:int64 firstOffset:int64 lastOffset:int64 lastStableOffset:int64), one
entry for each transaction whose ABORT marker stands in the segment (``AbortedTxn``, ``TransactionIndex``, KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kseg.chunk import Chunk
from kseg.kernel import BatchColumns
from kseg.log_format import CONTROL, TRANSACTIONAL

ABORTED_TXN = struct.Struct(
    ">"
    "h"  # version
    "q"  # producerId
    "q"  # firstOffset
    "q"  # lastOffset
    "q"  # lastStableOffset
)
VERSION = 0

# A producer snapshot (ProducerStateManager.readSnapshot): what precedes its entries, and one of them.
_SNAPSHOT_HEADER = struct.Struct(
    ">"
    "h"  # version
    "I"  # crc
    "i"  # count
)
_SNAPSHOT_ENTRY = struct.Struct(
    ">"
    "q"  # producerId
    "h"  # epoch
    "i"  # lastSequence
    "q"  # lastOffset
    "i"  # offsetDelta
    "q"  # timestamp
    "i"  # coordinatorEpoch
    "q"  # currentTxnFirstOffset, -1 for none
)
_SNAPSHOT_VERSION = 1


class AbortedTxn(NamedTuple):
    """``first_offset`` is that of its first batch, ``last_offset`` its marker's; the rest ``AbortedTxn`` tells."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def pack(self) -> bytes:
        return ABORTED_TXN.pack(VERSION, *self)


def read_txn_index(data: bytes) -> Iterator[AbortedTxn]:
    """The entries as stored; a rest shorter than an entry is left out."""
    whole = len(data) - len(data) % ABORTED_TXN.size
    for _, *fields in ABORTED_TXN.iter_unpack(memoryview(data)[:whole]):
        yield AbortedTxn(*fields)


class Transactions:
    """Follows transactions through the segments of a partition, as ProducerStateManager does at recovery.

    ``open`` has the first offset of each producer's open transaction.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def seed(self, snapshot: bytes) -> None:
        """Begin with the open transactions of a producer snapshot; one that does not hold says nothing."""
        from crc32c import crc32c

        if len(snapshot) < _SNAPSHOT_HEADER.size:
            return
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(snapshot)
        # The CRC covers what follows it.
        if version != _SNAPSHOT_VERSION or crc != crc32c(snapshot[6:]):
            return
        entries = memoryview(snapshot)[_SNAPSHOT_HEADER.size :]
        if len(entries) != count * _SNAPSHOT_ENTRY.size:
            return
        for producer_id, *_, first_offset in _SNAPSHOT_ENTRY.iter_unpack(entries):
            if first_offset >= 0:
                self.open[producer_id] = first_offset

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
