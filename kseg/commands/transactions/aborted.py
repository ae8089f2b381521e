"""The aborted transactions of a partition and its last stable offset, for read_committed readers.

Kafka's consumer with isolation.level=read_committed (KIP-98) skips records of aborted transactions and stops at the last
stable offset, which is the first offset of the earliest open transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from kseg.errors import NotASegmentError, UnreadableError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CONTROL, INT64_MAX, TRANSACTIONAL
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.transaction_events import log_events
from kseg.format.sidefiles.producer_snapshot import read_snapshot
from kseg.format.sidefiles.txn_index import AbortedTransactions, AbortedTxn, read_txn_index
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import open_source
from kseg.format.storage.special_files import read_file

#: First and last offset of a transaction, both inclusive.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """``aborted``: spans of aborted transactions by producer id, ascending. ``open``: first offsets of open ones."""

    aborted: Mapping[int, Sequence[Span]] = field(default_factory=dict)
    open: Mapping[int, int] = field(default_factory=dict)

    @property
    def stable_offset(self) -> int | None:
        """The last stable offset; None if no transaction is open."""
        return min(self.open.values(), default=None)

    def within(self, first: int, end: int | None) -> CommittedOffsets:
        """Return the transactions that touch offsets ``first`` to ``end`` (exclusive; None for no end)."""
        near = {
            producer: [span for span in spans if span[1] >= first and (end is None or span[0] < end)]
            for producer, spans in self.aborted.items()
        }
        return CommittedOffsets({producer: spans for producer, spans in near.items() if spans}, self.open)

    def accepts(self, batches: BatchColumns, row: int) -> bool:
        """Return whether a consumer receives the batch: not control, not aborted, below the last stable offset."""
        offset, attributes = batches.base_offset[row], batches.attributes[row]
        if self.stable_offset is not None and offset >= self.stable_offset:
            return False
        if batches.magic[row] < 2 or not attributes & (CONTROL | TRANSACTIONAL):
            return True
        return not attributes & CONTROL and not self._aborted(batches.producer_id[row], offset)

    def outcome(self, producer_id: int, offset: int) -> str:
        """Return the state of the transaction of a record or marker: ``open``, ``aborted`` or ``committed``."""
        if offset >= self.open.get(producer_id, INT64_MAX):
            return "open"
        return "aborted" if self._aborted(producer_id, offset) else "committed"

    def _aborted(self, producer_id: int, offset: int) -> bool:
        # A producer has one transaction at a time: its spans do not overlap.
        spans = self.aborted.get(producer_id, ())
        i = bisect_right(spans, (offset, INT64_MAX))
        return i > 0 and offset <= spans[i - 1][1]


def committed(paths: Sequence[str]) -> CommittedOffsets:
    """Return the transactions of one partition's local segments, given in offset order. Unreadable segments are skipped.

    The broker's own files save reading: for segments before the newest producer snapshot the ``.txnindex`` has the
    aborted transactions, and the snapshot has those that were open at its offset. Without them all markers are read.
    """
    transactions = AbortedTransactions()
    begin = _load_newest_snapshot(paths, transactions)
    spans: dict[int, list[Span]] = defaultdict(list)
    indexes = (_bytes(Path(path).with_suffix(".txnindex")) for path in paths[:begin])
    found = chain(
        chain.from_iterable(map(read_txn_index, indexes)), *(_ended_in(path, transactions) for path in paths[begin:])
    )
    for txn in found:
        spans[txn.producer_id].append((txn.first_offset, txn.last_offset))
    aborted = {producer: sorted(of_producer) for producer, of_producer in spans.items()}
    return CommittedOffsets(aborted, transactions.open)


def _load_newest_snapshot(paths: Sequence[str], transactions: AbortedTransactions) -> int:
    """Load the newest producer snapshot; return the index of the path of the segment that follows it."""
    for i in range(len(paths) - 1, -1, -1):
        base = base_offset_of(paths[i])
        snapshot = _bytes(Path(paths[i]).with_name(f"{base:020d}.snapshot")) if base is not None else b""
        if read_snapshot(snapshot) is not None:
            transactions.add_open(snapshot)
            return i
    return 0


def _bytes(path: Path) -> bytes:
    try:
        return read_file(str(path))
    except UnreadableError:
        return b""  # an index without entries is deleted


def _ended_in(path: str, transactions: AbortedTransactions) -> Iterator[AbortedTxn]:
    with suppress(UnreadableError, NotASegmentError), SegmentReader(open_source(path, listed=True)) as reader:
        for batches, events in log_events(reader):
            yield from transactions.update(batches, events)
