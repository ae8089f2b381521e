"""The index of aborted transactions: its layout, and building it from the markers in a log.

``.txnindex`` is n x (version:int16 producerId:int64 firstOffset:int64 lastOffset:int64 lastStableOffset:int64), one
entry per transaction whose ABORT marker is in the segment (``AbortedTxn``, ``TransactionIndex``, KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kseg.errors import LimitError
from kseg.format.record.columns import BatchColumns
from kseg.format.segment.transaction_events import Event
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

    ``last_stable_offset`` is where the earliest transaction then open began, or the offset after the marker. A follower
    appends several batches at once, and then counts the transactions of all of them as open
    (``UnifiedLog.append`` updates the producers before it completes the transactions).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = VERSION

    @property
    def is_ahead(self) -> bool:
        """Whether the last stable offset is one that only a follower writes: later than the offset after the marker."""
        return self.last_stable_offset > self.last_offset + 1

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
    MAX_OPEN, ``add_open``, ``begin`` and ``update`` raise LimitError.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        # A heap of (first offset, producer) of the open transactions and of some that have ended.
        self._earliest: list[tuple[int, int]] = []

    def add_open(self, snapshot: bytes) -> None:
        """Start with the open transactions of a producer snapshot. A damaged snapshot is ignored."""
        for producer in read_snapshot(snapshot) or ():
            if producer.current_txn_first_offset is not None:
                self.begin(producer.producer_id, producer.current_txn_first_offset)

    def begin(self, producer_id: int, first: int) -> None:
        """Add the open transaction of a producer that has none. Raises LimitError."""
        if len(self.open) >= MAX_OPEN:
            raise LimitError(f"more than {MAX_OPEN:,} transactions are open at once")
        self.open[producer_id] = first
        if len(self._earliest) > 2 * len(self.open):
            self._earliest = [(offset, producer) for producer, offset in self.open.items()]
            heapify(self._earliest)
        else:
            heappush(self._earliest, (first, producer_id))

    def update(self, batches: BatchColumns, events: Iterable[Event]) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions that end with the events of a window or chunk."""
        for row, offset, marker in events:
            producer_id = batches.producer_id[row]
            if marker is not None:
                yield from self._end(producer_id, offset, marker.type == "ABORT")
            elif producer_id not in self.open:
                self.begin(producer_id, offset)

    def _end(self, producer_id: int, offset: int, aborted: bool) -> Iterator[AbortedTxn]:
        # Coordinators also write markers without data: these end no transaction.
        first = self.open.pop(producer_id, None)
        if first is not None and aborted:
            while self._earliest and self.open.get(self._earliest[0][1]) != self._earliest[0][0]:
                heappop(self._earliest)
            stable = self._earliest[0][0] if self._earliest else offset + 1
            yield AbortedTxn(producer_id, first, offset, stable)
