"""``kseg transactions`` as a library: every transaction of a partition, its state, and the last stable offset.

A transaction begins with a producer's first transactional batch and ends with its marker (KIP-98). Under transactions
v2 (KIP-890) a marker's epoch may be larger than its data's, so transactions are matched by producer id alone. A
transaction that is open for longer than the maximum timeout is called hanging, as ``kafka-transactions.sh find-hanging``
does (KIP-664). That tool also asks the coordinator, which is not possible offline.

The aborted transactions of a partition and its last stable offset, for read_committed readers.

Kafka's consumer with isolation.level=read_committed (KIP-98) skips records of aborted transactions and stops at the last
stable offset, which is the first offset of the earliest open transaction.
"""

from __future__ import annotations

import os
import shlex
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from kseg.errors import KsegError, LimitError, NotASegmentError, VanishedError
from kseg.findings import Finding, fail_on_read_error
from kseg.format.checks.claimed_offsets import ClaimedOffsets
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.control_records import ControlRecord
from kseg.format.record.layout import CONTROL, INT64_MAX, TRANSACTIONAL
from kseg.format.record.offset_evidence import LIMIT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import log_events
from kseg.format.sidefiles.indexes import AbortedTransactions, AbortedTxn, read_txn_index
from kseg.format.sidefiles.producer_snapshot import read_snapshot, walk_snapshot
from kseg.format.sidefiles.side_file_reading import entries_of
from kseg.format.storage.local_files import read_file
from kseg.format.storage.naming import base_offset_of, partition_of
from kseg.format.storage.source import SegmentFile, open_source, path_in

#: The default of the broker setting transaction.max.timeout.ms, which find-hanging uses, too.
MAX_TRANSACTION_MS = 15 * 60 * 1000
STATES = ("hanging", "open", "aborted", "committed")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction. Times are epoch milliseconds of its first and last data batch, None if these were deleted.

    ``last_offset`` is the offset of its marker or, without one, of its last record. An offset is None if
    only a header claims it. ``producer_epoch`` is the epoch of the data. ``batches`` and ``records`` count the data in
    the log, without data before its first segment. ``age_ms`` are the milliseconds since the last batch of an open
    transaction, None if it has ended or its last batch was deleted.
    """

    folder: str
    topic: str | None
    partition: int | None
    state: str
    producer_id: int
    producer_epoch: int
    first_offset: int | None
    last_offset: int | None
    batches: int
    records: int
    start_timestamp: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None = None
    age_ms: int | None = None

    @property
    def abort(self) -> str | None:
        """The command that aborts the transaction; None if it has ended, or its partition or first offset is unknown."""
        if self.state not in ("hanging", "open") or self.topic is None or self.first_offset is None:
            return None
        return (
            "kafka-transactions.sh --bootstrap-server HOST:9092 abort"
            f" --topic {shlex.quote(self.topic)} --partition {self.partition} --start-offset {self.first_offset}"
        )


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """The state of a partition at the end of its log.

    ``last_stable_offset`` is the log end if no transaction is open; else ``held_by`` is the producer id of the earliest
    open one. Both offsets are exclusive, None for a log without batches. A lower high watermark, which is not in the log,
    can hold the broker's last stable offset back further. If ``unread_segments`` is not 0, the last stable offset is None,
    and open transactions can have ended in a segment that was not read.
    """

    folder: str
    topic: str | None
    partition: int | None
    log_end: int | None
    last_stable_offset: int | None
    held_by: int | None
    states: Counter[str] = field(default_factory=Counter)
    unread_segments: int = 0


@dataclass(slots=True)
class _OpenTransaction:
    epoch: int
    first_offset: int | None
    last_offset: int | None
    start: int | None
    last: int | None
    batches: int = 0
    records: int = 0

    def add(self, batches: BatchColumns, row: int, *, known: bool) -> None:
        self.epoch = batches.producer_epoch[row]
        self.last_offset = batches.last_offset[row] if known else None
        self.last = batches.max_timestamp[row]
        self.batches += 1
        self.records += max(0, batches.record_count[row])


#: Called with the path of the file and a finding.
ReportFinding = Callable[[str, Finding], None]
#: Called with the reason why a file cannot be read.
ReportUnread = Callable[[KsegError], None]


def transactions_of(
    folder: str, files: Iterable[SegmentFile], now: int, max_age: int, report: ReportFinding, unread: ReportUnread
) -> Iterator[Transaction | PartitionTransactions]:
    """Yield the ended transactions of a partition in the order of their ends, then the open ones, then its state.

    ``files`` are the segments in offset order, ``now`` is in epoch milliseconds, ``max_age`` in milliseconds. If no
    segment can be read, the result is empty.
    """
    history = _TransactionTracker(folder, now, max_age)
    readable = False
    unread_segments = 0
    for file in files:
        try:
            history.begin(file.path)
            with SegmentReader(open_source(file.path, listed=file.listed), report=partial(report, file.path)) as reader:
                offsets = ClaimedOffsets(file.path, partial(report, file.path))
                for batches, events in log_events(reader):
                    claimed = offsets.update(batches)
                    history.update_log_end(batches, claimed)
                    for row, offset, marker in events:
                        known = None if batches.position[row] in claimed else offset
                        yield from history.follow(batches, row, known, marker)
            readable = True
        except KsegError as error:
            unread_segments += 1
            unread(error)
    if history.unlisted:
        unread(LimitError(f"{folder}: more than {LIMIT:,} transactions are open at once: later ones are not listed"))
    if readable or history.has_transactions:
        yield from history.finish(unread_segments)


class _TransactionTracker:
    """Follows the transactions of one partition, batch by batch."""

    def __init__(self, folder: str, now: int, max_age: int) -> None:
        self._folder = folder
        partition = partition_of(os.path.basename(os.path.abspath(folder)))
        self._topic = partition.topic if partition else None
        self._partition = partition.partition if partition else None
        self._now = now
        self._max_age = max_age
        self._begun = False
        self._end: int | None = None
        self._open: dict[int, _OpenTransaction] = {}  # in the order in which they began
        # Whether transactions began when too many were open: the earliest, which hold what is stable, are known.
        self.unlisted = False
        self._states: Counter[str] = Counter()

    def begin(self, path: str) -> None:
        """Begin a segment. Before the first one, load the transactions that its producer snapshot lists as open."""
        base = base_offset_of(path)
        if base is not None:
            self._end = max(base, self._end or 0)
        if self._begun or base is None:
            return
        self._begun = True
        try:
            producers = entries_of(os.path.join(self._folder, f"{base:020}.snapshot"), walk_snapshot)
        except (VanishedError, ValueError):
            return  # there is none, or a broker rejects it
        for producer in sorted(producers, key=lambda one: one.current_txn_first_offset or 0):
            first = producer.current_txn_first_offset
            if first is not None and len(self._open) >= LIMIT:
                self.unlisted = True
            elif first is not None:
                last = max(first, producer.last_offset)
                self._open[producer.producer_id] = _OpenTransaction(
                    producer.producer_epoch, first, last, None, producer.timestamp
                )

    @property
    def has_transactions(self) -> bool:
        """Whether any transaction was found."""
        return bool(self._open or self._states)

    def update_log_end(self, batches: BatchColumns, claimed: set[int]) -> None:
        for row in range(batches.count - 1, -1, -1):
            if batches.crc_state[row] != CRC_BAD and batches.position[row] not in claimed:
                self._end = max(self._end or 0, batches.last_offset[row] + 1)
                return

    def follow(
        self, batches: BatchColumns, row: int, offset: int | None, marker: ControlRecord | None
    ) -> Iterator[Transaction]:
        producer_id = batches.producer_id[row]
        if marker is None:
            if producer_id not in self._open:
                if len(self._open) >= LIMIT:
                    self.unlisted = True
                    return
                timestamp = batches.base_timestamp[row]
                self._open[producer_id] = _OpenTransaction(
                    batches.producer_epoch[row], offset, offset, timestamp, timestamp
                )
            self._open[producer_id].add(batches, row, known=offset is not None)
            return
        # A marker without data, which coordinators also write, ends no transaction.
        ended = self._open.pop(producer_id, None)
        if ended is not None:
            ended.last_offset = offset
            epoch = marker.fields.get("coordinator_epoch")
            state = "aborted" if marker.type == "ABORT" else "committed"
            yield self._transaction(producer_id, ended, state, epoch if isinstance(epoch, int) else None)

    def _transaction(
        self, producer_id: int, one: _OpenTransaction, state: str, coordinator_epoch: int | None, age: int | None = None
    ) -> Transaction:
        self._states[state] += 1
        return Transaction(
            self._folder, self._topic, self._partition, state, producer_id, one.epoch, one.first_offset,
            one.last_offset, one.batches, one.records, one.start, one.last, coordinator_epoch, age,
        )  # fmt: skip

    def finish(self, unread_segments: int) -> Iterator[Transaction | PartitionTransactions]:
        first: tuple[int | None, int] | None = None
        for producer_id, one in self._open.items():
            first = first or (one.first_offset, producer_id)
            age = None if one.last is None else self._now - one.last
            state = "hanging" if age is not None and age > self._max_age else "open"
            yield self._transaction(producer_id, one, state, None, age)
        stable, held_by = (None, None) if unread_segments else first or (self._end, None)
        yield PartitionTransactions(
            self._folder, self._topic, self._partition, self._end, stable, held_by, self._states, unread_segments
        )


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
    """Return the transactions of one partition's segments, given in offset order. Raises UnreadableError.

    Deleted segments are skipped, and files that are not segments.

    The broker's own files save reading: for segments before the newest producer snapshot the ``.txnindex`` has the
    aborted transactions, and the snapshot has those that were open at its offset. Without them all markers are read.
    """
    transactions = AbortedTransactions()
    begin = _load_newest_snapshot(paths, transactions)
    spans: dict[int, list[Span]] = defaultdict(list)
    indexes = (_bytes(os.path.splitext(path)[0] + ".txnindex") for path in paths[:begin])
    found = chain(
        chain.from_iterable(map(read_txn_index, indexes)), *(_ended_in(path, transactions) for path in paths[begin:])
    )
    for txn in found:
        spans[txn.producer_id].append((txn.first_offset, txn.last_offset))
    aborted = {producer: sorted(of_producer) for producer, of_producer in spans.items()}
    return CommittedOffsets(aborted, transactions.open)


def open_at(path: str, before: Sequence[str]) -> Mapping[int, int]:
    """Return the first offsets of the transactions that are open where a segment begins, by producer id.

    ``before`` are the segments before it, in offset order. They are read after the newest producer snapshot.
    """
    transactions = AbortedTransactions()
    begin = _load_newest_snapshot([*before, path], transactions)
    for earlier in before[begin:]:
        for _ in _ended_in(earlier, transactions):
            pass
    return transactions.open


def _load_newest_snapshot(paths: Sequence[str], transactions: AbortedTransactions) -> int:
    """Load the newest producer snapshot; return the index of the path of the segment that follows it."""
    for i in range(len(paths) - 1, -1, -1):
        base = base_offset_of(paths[i])
        snapshot = _bytes(path_in(os.path.dirname(paths[i]), f"{base:020d}.snapshot")) if base is not None else b""
        if read_snapshot(snapshot) is not None:
            transactions.add_open(snapshot)
            return i
    return 0


def _bytes(path: str) -> bytes:
    try:
        return read_file(path)
    except VanishedError:
        return b""  # an index without entries is deleted


def _ended_in(path: str, transactions: AbortedTransactions) -> Iterator[AbortedTxn]:
    with (
        suppress(VanishedError, NotASegmentError),
        SegmentReader(open_source(path, listed=True), report=fail_on_read_error(path)) as reader,
    ):
        for batches, events in log_events(reader):
            yield from transactions.update(batches, events)
