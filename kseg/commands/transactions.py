"""``kseg transactions`` as a library: every transaction of a partition, its state, and the last stable offset.

A transaction begins with a producer's first transactional batch and ends with its marker (KIP-98). Under transactions
v2 (KIP-890) a marker's epoch may be larger than its data's, so transactions are matched by producer id alone. A
transaction that is open for longer than the maximum timeout is called hanging, as ``kafka-transactions.sh find-hanging``
does (KIP-664). That tool also asks the coordinator, which is not possible offline.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from types import MappingProxyType

from kseg.errors import KsegError, LimitError, ReportUnread, UnreadableError
from kseg.findings import Finding
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.control_records import ControlRecord
from kseg.format.record.layout import INT64_MAX, first_timestamp
from kseg.format.record.offset_evidence import LIMIT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import log_events
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.sidefiles.last_stable_offset import (
    are_compacted,
    first_offsets,
    open_after_end,
    open_before,
    producers_at,
)
from kseg.format.sidefiles.producer_snapshot import ProducerState
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    LOG_STARTS,
    base_offset_of,
    is_log,
    leftover_of,
    partition_of,
    producer_snapshot_offset,
)
from kseg.format.storage.segment_files import SegmentFile, UnlessDeleted, unless_deleted
from kseg.format.storage.source import open_source
from kseg.results import FileResult
from kseg.text import shell_word

#: The default of the broker setting transaction.max.timeout.ms, which find-hanging uses, too.
MAX_TRANSACTION_MS = 15 * 60 * 1000
#: ``unknown``: bytes or a segment between its data and the next marker of its producer are lost or unread, so its own can be
#: there. Also one without a marker, after whose beginning offsets are missing or unread.
STATES = ("hanging", "open", "unknown", "aborted", "committed")


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
        """The command that aborts it; None if it has ended, if its place is unknown, or if its folder is not in use."""
        if self.state not in ("hanging", "open") or self.topic is None or self.first_offset is None:
            return None
        if not is_served(self.folder):
            return None  # a partition in use can have the same name
        return (
            "kafka-transactions.sh --bootstrap-server HOST:9092 abort"
            f" --topic {shell_word(self.topic)} --partition {self.partition} --start-offset {self.first_offset}"
        )


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """The state of a partition at the end of its log.

    ``last_stable_offset`` is the log end if no transaction is open; else ``held_by`` is the producer id of the earliest
    open one, and the offset is its first one or the log start, whichever is higher. Both offsets are exclusive, None for a
    log without batches. A lower high watermark, which is not in the log, can hold the broker's last stable offset back
    further. If ``unread_segments`` is not 0, the last stable offset is None.
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
    torn: bool = False

    @property
    def begin(self) -> int:
        """The first offset, for sorting: a transaction without a known one goes first."""
        return -1 if self.first_offset is None else self.first_offset

    def add(self, batches: BatchColumns, row: int, *, known: bool) -> None:
        self.epoch = batches.producer_epoch[row]
        self.last_offset = batches.last_offset[row] if known else None
        self.last = batches.max_timestamp[row]
        self.batches += 1
        self.records += max(0, batches.record_count[row])


def is_served(folder: str) -> bool:
    """Return whether clients can read a partition's folder: none that a broker deletes, moves or does not know."""
    return leftover_of(os.path.basename(os.path.abspath(folder))) is None


#: Called with the path of the file and a finding.
ReportFinding = Callable[[str, Finding], object]


def end_without_transactions(result: FileResult) -> int | None:
    """Return the offset after a segment by its validation, if it is sound and none of its batches is transactional."""
    facts = result.facts
    if facts is None or facts.last_offset is None or result.suspicious:
        return None
    eventful = facts.open or facts.ended or facts.gaps or facts.damaged or facts.disorder or facts.crowded
    return None if eventful else facts.last_offset + 1


def items_of(
    files: Iterable[SegmentFile],
    now: int,
    max_age: int,
    report: ReportFinding,
    unread: ReportUnread,
    ends: Mapping[str, int] = MappingProxyType({}),
    unless_deleted: UnlessDeleted = unless_deleted,
) -> Iterator[Transaction | PartitionTransactions]:
    """Yield the ended transactions of each partition in the order of their ends, then the open ones, then its state.

    ``files`` are the segments in offset order, ``now`` is in epoch milliseconds, ``max_age`` in seconds. Segments with one
    of the ``ends`` by path (``end_without_transactions``) are not read. If no segment of a partition can be read, it is left
    out. Segments for which ``unless_deleted`` returns None are not missing: the log begins after them.
    """
    for folder, of_partition in groupby(files, key=lambda file: os.path.dirname(file.path)):
        tracker = _TransactionTracker(folder or ".", now, max_age * 1000, report, unread)
        yield from tracker.read(of_partition, ends, unless_deleted)


class _TransactionTracker:
    """Follows the transactions of one partition, batch by batch."""

    def __init__(self, folder: str, now: int, max_age: int, report: ReportFinding, unread: ReportUnread) -> None:
        self._folder = folder
        partition = partition_of(os.path.basename(os.path.abspath(folder)))
        self._place = folder, partition.topic if partition else None, partition.partition if partition else None
        self._now = now
        self._max_age = max_age
        self._report = report
        self._unread = unread
        self._log_start = 0
        # A broker starts with the newest snapshot up to its log end: one of these, which are not below the newest segment.
        self._snapshots: list[int] = []
        self._states: Counter[str] = Counter()
        self._lost_bytes = 0  # of the current segment, up to here
        self._end_before: int | None = None  # the end before a window
        # Open transactions that the newest snapshot has, too.
        self._confirmed: set[int] = set()
        self._path = ""
        self._restart()

    def _restart(self) -> None:
        """Begin the log with the next segment."""
        self._begun = False
        self._end: int | None = None
        self._open: dict[int, _OpenTransaction] = {}  # in the order in which they began
        # The last markers of producers after the first of the snapshots: they have ended what is open in it.
        self._ended_late: dict[int, int] = {}
        # Whether transactions began when too many were open: the earliest, which decide the last stable offset, are known.
        self._unlisted = False
        # The offset after the last missing ones, of those that can concern open transactions.
        self._gap_end = -1

    def read(
        self, files: Iterable[SegmentFile], ends: Mapping[str, int], unless_deleted: UnlessDeleted
    ) -> Iterator[Transaction | PartitionTransactions]:
        """Yield the transactions and the state of the partition."""
        readable, unread_segments = False, 0
        for file in files:
            try:
                self._begin(file.path)
                if file.path in ends:
                    self._end = max(self._end or 0, ends[file.path])
                else:
                    yield from self._read_segment(file)
                readable = True
            except KsegError as error:
                self._lose()
                self._path, self._gap_end = "", INT64_MAX
                if reported := unless_deleted(error, file):
                    unread_segments += 1
                    self._unread(reported)
                else:  # retention has deleted the segments before it, too
                    self._restart()
        if not unread_segments:
            self._load_newest_snapshot()
        if self._unlisted:
            why = f"more than {LIMIT:,} transactions are open at once: later ones are not listed"
            self._unread(LimitError(f"{self._folder}: {why}"))
        if readable or self._open or self._states:
            yield from self._finish(unread_segments)

    def _read_segment(self, file: SegmentFile) -> Iterator[Transaction]:
        report = partial(self._report, file.path)
        with SegmentReader(open_source(file.path, listed=file.listed), report=report) as reader:
            offsets = ClaimedOffsets(file.path, report)
            for batches, events in log_events(reader):
                claimed = offsets.update(batches)
                self._update_log_end(batches, claimed)
                self._look_for_loss(batches, reader.lost_bytes)
                for row, offset, marker in events:
                    known = None if batches.position[row] in claimed else offset
                    yield from self._follow(batches, row, known, marker)
                self._look_for_gap(batches, claimed)
            self._look_for_loss(None, reader.lost_bytes)

    def _begin(self, path: str) -> None:
        """Begin a segment. Before the first one, load the transactions that its producer snapshot lists as open."""
        base = base_offset_of(path)
        self._lost_bytes = 0
        if base is not None:
            if self._end is not None and (base > self._end or not self._path):
                self._gap_end = base
                # What an unreadable segment had is lost for the open transactions already.
                if self._open and self._path and not are_compacted(self._folder, [self._path, path]):
                    self._lose()
            self._end = max(base, self._end or 0)
        self._path = path
        if self._begun or base is None:
            return
        self._begun = True
        self._list_files(base)
        self._add_open(open_before(self._folder, base), base)

    def _list_files(self, base: int) -> None:
        """List the producer snapshots that a broker can start with, and find the log start.

        If the folder cannot be listed, there is no snapshot, and the log starts at the offset ``base``.
        """
        names: list[str] = []
        with suppress(UnreadableError):
            names = local_files.names_in(self._folder)
        segments = [base, *(base_offset_of(name) or 0 for name in names if is_log(name))]
        found = [offset for name in names if (offset := producer_snapshot_offset(name)) is not None and offset > base]
        below = max((offset for offset in found if offset <= max(segments)), default=0)
        self._snapshots = sorted(offset for offset in found if offset >= below)
        self._log_start = max(min(segments), checkpoint_offset(self._folder, LOG_STARTS) or 0)

    def _add_open(self, producers: Iterable[ProducerState], offset: int) -> None:
        """Add the transactions that are open in producer snapshots at an offset, but not by the log after it."""
        for producer in sorted(producers, key=lambda one: one.current_txn_first_offset or 0):
            first, producer_id = producer.current_txn_first_offset, producer.producer_id
            if first is None or producer_id in self._open or self._ended_late.get(producer_id, -1) >= offset:
                continue
            if len(self._open) >= LIMIT:
                self._unlisted = True
                return
            last = max(first, producer.last_offset)
            self._open[producer_id] = _OpenTransaction(producer.producer_epoch, first, last, None, producer.timestamp)

    def _update_log_end(self, batches: BatchColumns, claimed: set[int]) -> None:
        self._end_before = self._end
        for row in range(batches.count - 1, -1, -1):
            if batches.crc_state[row] != CRC_BAD and batches.position[row] not in claimed:
                self._end = max(self._end or 0, batches.last_offset[row] + 1)
                return

    def _look_for_loss(self, batches: BatchColumns | None, lost_bytes: int) -> None:
        """Look for lost bytes before the batches of a window, or at a segment's end. ``lost_bytes``: of it up to here."""
        if lost_bytes > self._lost_bytes or (batches is not None and batches.crc_state[0] == CRC_BAD):
            self._lose()
        self._lost_bytes = lost_bytes

    def _look_for_gap(self, batches: BatchColumns, claimed: set[int]) -> None:
        """Look for missing offsets in a window, once its events are followed."""
        expected = self._end_before
        for row in range(batches.count if self._open else 0):
            if batches.crc_state[row] == CRC_BAD or batches.position[row] in claimed:
                continue
            if expected is not None and batches.magic[row] >= 2 and batches.base_offset[row] > expected:
                self._gap_end = batches.base_offset[row]
            expected = batches.last_offset[row] + 1

    def _lose(self) -> None:
        """Note that markers of the open transactions can be lost here."""
        for one in self._open.values():
            one.torn = True

    def _follow(
        self, batches: BatchColumns, row: int, offset: int | None, marker: ControlRecord | None
    ) -> Iterator[Transaction]:
        producer_id = batches.producer_id[row]
        if marker is None:
            if producer_id not in self._open:
                if len(self._open) >= LIMIT:
                    self._unlisted = True
                    return
                start = first_timestamp(batches.attributes[row], batches.base_timestamp[row])
                self._open[producer_id] = _OpenTransaction(
                    batches.producer_epoch[row], offset, offset, start, batches.max_timestamp[row]
                )
            self._open[producer_id].add(batches, row, known=offset is not None)
            return
        if offset is not None and self._snapshots and offset >= self._snapshots[0]:
            self._ended_late[producer_id] = offset
        # A marker without data, which coordinators also write, ends no transaction.
        ended = self._open.pop(producer_id, None)
        if ended is not None:
            ended.last_offset = offset
            epoch = marker.fields.get("coordinator_epoch")
            state = "unknown" if ended.torn else "aborted" if marker.type == "ABORT" else "committed"
            yield self._transaction(producer_id, ended, state, epoch if isinstance(epoch, int) else None)

    def _transaction(
        self, producer_id: int, one: _OpenTransaction, state: str, coordinator_epoch: int | None, age: int | None = None
    ) -> Transaction:
        self._states[state] += 1
        return Transaction(
            *self._place, state, producer_id, one.epoch, one.first_offset, one.last_offset, one.batches, one.records,
            one.start, one.last, coordinator_epoch, age,
        )  # fmt: skip

    def _load_newest_snapshot(self) -> None:
        """Add the transactions that are open by the newest snapshot up to the log end, once all segments are read.

        The cleaner can have removed all records of a transaction whose end was truncated after an unclean election.
        """
        end = -1 if self._end is None else self._end
        if (newest := max((offset for offset in self._snapshots if offset <= end), default=None)) is not None:
            producers = producers_at(self._folder, newest) or ()
            if newest >= self._gap_end:
                self._confirm(first_offsets(producers))
            self._add_open(producers, newest)
            self._open = dict(sorted(self._open.items(), key=lambda item: item[1].begin))
        if later := open_after_end(self._folder, end, self._snapshots):
            self._gap_end, begun = later
            self._confirm(begun)

    def _confirm(self, begun: Mapping[int, int]) -> None:
        """Note which transactions are open in a snapshot, too, which has the first offsets ``begun`` by producer id."""
        self._confirmed = {one for one, open_ in self._open.items() if begun.get(one) == open_.first_offset}

    def _finish(self, unread_segments: int) -> Iterator[Transaction | PartitionTransactions]:
        first: tuple[int | None, int] | None = None
        for producer_id, one in self._open.items():
            first = first or (one.first_offset, producer_id)
            if self._gap_end > one.begin and producer_id not in self._confirmed:
                # No log cleaner has removed what is missing: it stops at the first offset of an open transaction
                # (LogCleanerManager.cleanableOffsets). So a marker can be lost.
                yield self._transaction(producer_id, one, "unknown", None)
                continue
            age = None if one.last is None else self._now - one.last
            late = age is not None and age > self._max_age
            state = "hanging" if late and is_served(self._folder) else "open"
            yield self._transaction(producer_id, one, state, None, age)
        stable, held_by = (None, None) if unread_segments else first or (self._end, None)
        if held_by is not None and stable is not None:
            stable = max(stable, self._log_start)  # UnifiedLog.maybeIncrementFirstUnstableOffset
        yield PartitionTransactions(*self._place, self._end, stable, held_by, self._states, unread_segments)
