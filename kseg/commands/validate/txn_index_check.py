"""Compare the transaction index of a segment with the markers in the segment.

Consumers that read committed must find each aborted transaction (``TransactionIndex.collectAbortedTxns``).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kseg.errors import UnreadableError
from kseg.findings import READ_ERROR, Finding, Report, do_nothing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT64_MAX
from kseg.format.record.offset_evidence import LIMIT, BoundedMap
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import Window
from kseg.format.segment.transaction_events import transaction_events
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.sidefiles.index_walks import walk_txn_index
from kseg.format.sidefiles.indexes import ABORTED_TXN, AbortedTxn
from kseg.format.sidefiles.side_file_reading import with_read_error
from kseg.format.storage.naming import LOG_STARTS
from kseg.format.storage.source import Source, local_size, open_range

if TYPE_CHECKING:
    from kseg.commands.validate.segment_facts import CarriedEntry

#: Seconds to wait, once in a segment, for the entry of a marker that a broker has just written.
WAIT = 0.2
#: The ``why`` of an aborted transaction without an entry.
MISSING = "it is missing in the index"


class TxnIndexCheck:
    """The checks of a transaction index. If the file does not exist, it has 0 entries and ``report`` is the log's.

    ``path``: that of the index. ``growing``: whether a broker may be writing the segment.
    """

    def __init__(self, source: Source | None, base_offset: int, report: Report, path: str, *, growing: bool) -> None:
        self._path = path
        self._growing = growing
        # The log start offset by the log dir's checkpoint, once it was needed.
        self._log_start: int | None = None
        self._base_offset = base_offset
        self._report = report
        # Whether the current entry already has a finding.
        self._reported = False
        # Whether the index cannot be read on, or more transactions are open than are followed.
        self._stopped = False
        found = walk_txn_index(source, base_offset, self._record) if source else iter(())
        self._entries = with_read_error(path, found, self._record)
        self._at = 0
        self._entry: AbortedTxn | None = None
        self._read_to = 0
        self._appended: Source | None = None
        self._wait = WAIT
        self._advance()
        self._opener = DeepIterator(do_nothing)
        self._open: dict[int, int] = {}
        self._ended = BoundedMap()
        # Matched entries with a last stable offset after their marker, until a transaction begins there.
        self._ahead: list[tuple[int, AbortedTxn]] = []
        # As in SegmentFacts: marker offsets by producer id.
        self.unindexed: dict[int, int] = {}
        # As in SegmentFacts.
        self.coordinators: dict[int, tuple[int, int]] = {}
        self.carried: list[CarriedEntry] = []

    def _record(self, finding: Finding) -> None:
        self._reported = finding.rule != "late-stable-offset"
        self._stopped |= finding.rule == READ_ERROR
        self._report(finding)

    def _advance(self) -> None:
        self._reported = False
        self._at, self._entry = next(self._entries, (self._at, None))
        if self._entry is not None:
            self._read_to = self._at + ABORTED_TXN.size

    def _read_appended(self) -> bool:
        """Continue with the entries that a broker has appended since; return whether there are any.

        In a preallocated segment a reader also gets the batches that are appended while it reads. A broker writes a marker
        and then its entry (``UnifiedLog.append``), and creates the file for the first entry, so the entries of these
        markers are not in the index as it was opened. The entry of the newest marker can be a moment late.
        """
        if not self._growing:
            return False
        size = local_size(self._path) or 0
        if size < self._read_to + ABORTED_TXN.size and self._wait:
            time.sleep(self._wait)
            self._wait = 0.0
            size = local_size(self._path) or 0
        if size < self._read_to + ABORTED_TXN.size:
            return False
        self.close()
        self._appended = open_range(self._path, self._read_to, size)
        found = walk_txn_index(self._appended, self._base_offset, self._record)
        self._entries = with_read_error(self._path, found, self._record)
        self._advance()
        return True

    def close(self) -> None:
        """Close the files that were opened for appended entries."""
        if self._appended is not None:
            self._appended.close()
            self._appended = None

    def update(self, window: Window) -> None:
        """Compare the window's transactional batches with the index."""
        batches = window.batches
        if self._stopped:
            return
        producer_ids, record_counts = batches.producer_id, batches.record_count
        for row, offset, marker in transaction_events(window, self._opener):
            producer_id = producer_ids[row]
            if marker is not None:
                epoch = marker.fields.get("coordinator_epoch")
                if isinstance(epoch, int) and (len(self.coordinators) < LIMIT or producer_id in self.coordinators):
                    self.coordinators[producer_id] = offset, epoch
                self._end(producer_id, offset, marker.type == "ABORT")
                if self._stopped:
                    return
            elif producer_id not in self._open and record_counts[row]:
                if len(self._open) >= LIMIT:
                    self._stop_checking()
                    return
                self._open[producer_id] = offset
                if self._ahead:
                    self._check_ahead(batches, producer_id, offset)

    def _check_ahead(self, batches: BatchColumns, producer_id: int, begin: int) -> None:
        """Check the last stable offsets after a marker: the next transaction of another producer begins there.

        ``begin`` is the first offset of a transaction. In a compacted log it can be later than it was.
        """
        for at, entry in self._ahead:
            stable = entry.last_stable_offset
            if entry.producer_id == producer_id or begin == stable:
                continue
            if begin < stable or _has_record_at(batches, stable):
                why = f"its last stable offset is {stable}, but the next transaction begins at offset {begin}"
                self._mismatch(at, entry, why)
        self._ahead = [(at, entry) for at, entry in self._ahead if entry.producer_id == producer_id]

    def _stop_checking(self) -> None:
        self._stopped = True
        why = "later transactions are not compared with the index"
        self._report(
            Finding("limit-reached", self._at, facts={"limit": LIMIT, "what": "open transactions", "why": why})
        )

    def _end(self, producer_id: int, offset: int, aborted: bool) -> None:
        first = self._open.pop(producer_id, None)
        known = self._ended.get(producer_id)
        before = -1 if known is None else known
        self._ended.put(producer_id, offset)
        if self._entry is None and aborted:
            self._read_appended()
        self._skip_entries(offset)
        if self._stopped:
            return
        entry = self._entry
        if entry is not None and entry.last_offset == offset:
            forgotten = first is not None and entry.first_offset > first and self._is_forgotten(first)
            begun = None if forgotten else first
            why = _contradiction(entry, producer_id, begun, before, aborted) or self._contradiction_of_open(entry)
            if why and not self._reported:
                self._mismatch(self._at, entry, why)
            elif entry.is_ahead and not self._reported and len(self._ahead) < LIMIT:
                self._ahead.append((self._at, entry))
            in_doubt = before < 0 or entry.first_offset != first
            if not why and in_doubt and not self._reported and len(self.carried) < LIMIT:
                own = -1 if first is None else first
                self.carried.append((self._at, producer_id, entry.first_offset, entry.last_offset, own, before))
            self._advance()
        elif aborted and first is not None and not self._is_forgotten(first):
            self._report(txn_mismatch(self._at, None, producer_id, first, offset, MISSING))
        elif aborted and before < 0 and not self._ended.forgot and len(self.unindexed) < LIMIT:
            self.unindexed[producer_id] = offset

    def _contradiction_of_open(self, entry: AbortedTxn) -> str | None:
        """Return why the last stable offset of an entry is too high, or None.

        It is the first offset of the earliest other open transaction (``ProducerStateManager.lastStableOffset``). A fetch
        below it reads no entry after this one. Here the transactions are in the order of their first offsets.
        """
        open_ = ((one, first) for one, first in self._open.items() if one != entry.producer_id)
        other, first = next(open_, (0, INT64_MAX))
        if entry.last_stable_offset <= first or self._is_forgotten(first):
            return None
        stable = entry.last_stable_offset
        return f"its last stable offset is {stable}, but a transaction of producer {other} is open from offset {first}"

    def _is_forgotten(self, first: int) -> bool:
        """Return whether the log starts after ``first``, the first offset of a transaction.

        A broker that loads its producers again reads the log from the log start on. For it the transaction begins later, or
        never: its index entry has a later first offset, or there is none. Consumers read nothing below the log start.
        """
        if self._log_start is None:
            try:
                self._log_start = checkpoint_offset(os.path.dirname(self._path), LOG_STARTS) or 0
            except UnreadableError:  # reported for the checkpoint itself
                self._log_start = INT64_MAX
        return first < self._log_start

    def _skip_entries(self, offset: int) -> None:
        """Report the entries whose marker should be before ``offset`` but was not found."""
        while (entry := self._entry) is not None and entry.last_offset < offset:
            if not self._reported:
                self._mismatch(self._at, entry, "the log does not have a marker at its last offset")
            self._advance()

    def finish(self, *, whole: bool) -> None:
        if whole and not self._stopped:
            self._skip_entries(INT64_MAX)
        while self._entry is not None:
            self._advance()
        self.close()

    def _mismatch(self, at: int, entry: AbortedTxn, why: str) -> None:
        end = at + ABORTED_TXN.size
        self._report(txn_mismatch(at, end, entry.producer_id, entry.first_offset, entry.last_offset, why))


def txn_mismatch(at: int, end: int | None, producer_id: int, first: int, last: int, why: str) -> Finding:
    """Return ``txn-index-mismatch`` about bytes ``at`` to ``end`` of an index, for a transaction with these offsets."""
    facts = {"producer_id": producer_id, "first": first, "last": last, "why": why}
    return Finding("txn-index-mismatch", at, end, first, last, facts)


def _has_record_at(batches: BatchColumns, offset: int) -> bool:
    rows = range(batches.count)
    return any(
        batches.base_offset[row] <= offset <= batches.last_offset[row] and batches.record_count[row] for row in rows
    )


def _contradiction(entry: AbortedTxn, producer_id: int, first: int | None, before: int, aborted: bool) -> str | None:
    if entry.producer_id != producer_id:
        return f"the marker at its last offset is of producer {producer_id}"
    if not aborted:
        return "the marker at its last offset is a commit"
    if first is not None and entry.first_offset > first:
        return f"its records start at offset {first}"
    if entry.first_offset <= before:
        return f"the producer's previous transaction ended later, at offset {before}"
    return None
