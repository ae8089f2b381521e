"""The indexes of a segment against its log, each walked once and in step with it.

What is asked of an entry is what Kafka's look-ups need and no more, since brokers before 2025 wrote a follower's
entry for a whole append, with its last offset: no batch before ``log_position`` may reach the entry's offset
(``OffsetIndex.lookup``), none before the offset may be later than its timestamp (``LogSegment.findOffsetByTimestamp``),
and consumers that read committed must meet each aborted record (``TransactionIndex.collectAbortedTxns``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from kseg.commands.validate.segment_facts import FactsCollector, SegmentFacts
from kseg.errors import UnreadableError
from kseg.findings import Finding, Report, ignore_finding
from kseg.format.record.bounded_map import LIMIT, BoundedMap
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import Window
from kseg.format.segment.transaction_events import transaction_events
from kseg.format.sidefiles.index_columns import Columns
from kseg.format.sidefiles.index_reader import IndexRun, offset_runs, time_runs, walk_txn_index
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from kseg.format.sidefiles.stale_entries import StaleEntries
from kseg.format.sidefiles.txn_index import ABORTED_TXN, AbortedTxn
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import SegmentFile, Source, local_size, open_source

#: Findings of an index that are remembered, so that one fault gives one finding; those passed by are forgotten.
MAX_REPORTED = 4096

_Entry = TypeVar("_Entry", OffsetEntry, TimeEntry)
_Runs = Callable[[Source, int, Report, "StaleEntries | None"], Iterator[IndexRun[_Entry]]]


class _IndexCursor(Generic[_Entry]):
    """The entries of an index, a run of them at hand as two columns, for a compiled loop to compare with the log's.

    ``stale`` is given for the newest segment: the first entry that can't be right may begin its stale entries, which are
    no fault.
    """

    def __init__(
        self,
        runs: _Runs[_Entry],
        source: Source | None,
        base_offset: int,
        report: Report,
        stale: StaleEntries | None = None,
    ) -> None:
        self._report = report
        self._stale = stale
        # The bytes of entries of which something was said already.
        self._told: set[int | None] = set()
        self._runs: Iterator[IndexRun[_Entry]] = runs(source, base_offset, self._record, stale) if source else iter(())
        self._run: IndexRun[_Entry] | None = None
        self._last: tuple[int, _Entry] | None = None

    def _record(self, finding: Finding) -> None:
        self._told.add(finding.position)
        self._report(finding)

    def more(self) -> Columns | None:
        """The two columns of the next run, None behind the last. The run before is done with."""
        if self._run:
            self._last = self._run.entry(len(self._run) - 1)
            if len(self._told) > MAX_REPORTED:
                self._told &= {self._last[0]}
        self._run = next(self._runs, None)
        return self._run.columns if self._run else None

    def _is_stale(self, at: int) -> bool:
        return self._stale is not None and self._stale.stale_from(at)

    def _at(self, row: int) -> tuple[int, _Entry, bool]:
        assert self._run, "a row is one of more()'s"
        at, entry = self._run.entry(row)
        return at, entry, at in self._told

    def _before(self, row: int) -> tuple[int, _Entry] | None:
        """The entry before that row, unless something was said of it."""
        found = self._run.entry(row - 1) if self._run and row else self._last
        return None if found is None or found[0] in self._told else found

    def _report_stale(self) -> None:
        if self._stale is not None:
            self._stale.report(self._report)

    def _rest(self, row: int) -> Iterator[tuple[int, _Entry]]:
        """What is left, from that row on, but for what something was said of."""
        at_hand = islice(self._run.entries(), row, None) if self._run else ()
        ahead = chain.from_iterable(run.entries() for run in self._runs)
        for at, entry in chain(at_hand, ahead):
            if at in self._told:
                self._told.remove(at)
            else:
                yield at, entry


class OffsetIndexCheck(_IndexCursor[OffsetEntry]):
    """An offset index beside its log; its columns are offsets, and bytes of the log."""

    def check(self, row: int, position: int, end: int, highest: int) -> None:
        """An entry that leads to a byte before ``end`` of the log, of which an entry begins at ``position``.

        ``highest`` is the largest offset before that. What leads into bytes that are no entry is passed over: that
        the log is damaged there is said of the log.
        """
        at, entry, reported = self._at(row)
        if reported:
            return
        wrong = entry.log_position > position or (entry.log_position == position and highest >= entry.offset)
        if not wrong or self._is_stale(at):
            return
        if entry.log_position > position:
            self._mismatch(at, entry, f"no batch begins there, one has the bytes {position} to {end - 1}")
        else:
            self._mismatch(at, entry, f"the batches before go up to offset {highest}")

    def finish(self, row: int, size: int, highest: int | None, *, whole: bool) -> None:
        """The log ends at byte ``size``, ``highest`` is its largest offset; ``whole`` if no bytes were lost in it.

        ``row`` is the entry that would have come next.
        """
        last = self._before(row)
        left = past = False
        for at, entry in self._rest(row):
            left = True
            if entry.log_position >= size and not past:
                if self._is_stale(at):
                    break
                self._mismatch(at, entry, f"the log ends at byte {size}")
                past = True
        too_far = last is not None and highest is not None and last[1].offset > highest
        if whole and not left and last is not None and too_far and not self._is_stale(last[0]):
            self._mismatch(*last, f"the log ends at offset {highest}")
        self._report_stale()

    def _mismatch(self, at: int, entry: OffsetEntry, why: str) -> None:
        facts = {**entry._asdict(), "why": why}
        self._record(Finding("index-mismatch", at, at + OFFSET_ENTRY.size, entry.offset, None, facts))


class Latest(NamedTuple):
    """``timestamp`` is a segment's largest; ``indexed`` that of the batch with the last offset of its time index."""

    timestamp: int
    indexed: int


class TimeIndexCheck(_IndexCursor[TimeEntry]):
    """A time index beside its log; its columns are timestamps, and offsets."""

    def check(self, row: int, before: int, latest: int) -> None:
        """An entry: ``before`` is the latest timestamp before the batch of its offset, ``latest`` reckons that in."""
        at, entry, reported = self._at(row)
        if reported:
            return
        if self._is_stale(at):
            return
        if before > entry.timestamp:
            self._mismatch(at, entry, f"there is {before} before it")
        elif latest < entry.timestamp:
            self._mismatch(at, entry, f"the latest up to there is {latest}")

    def check_position(self, row: int, first: int) -> None:
        """Report an entry whose offset is before ``first``, the log's first."""
        at, entry, reported = self._at(row)
        if not reported:
            self._mismatch(at, entry, f"the log begins at offset {first}")

    def finish(self, row: int, highest: int | None, *, whole: bool, latest: Latest | None) -> None:
        """Report what the entries from ``row`` on, which is the next, and the last entry contradict.

        ``highest`` is the log's largest offset, ``whole`` is whether no bytes were lost in it. ``latest`` is given where
        the index is complete (see ``IndexChecks``).
        """
        last = self._before(row)
        reported = not whole or highest is None
        for at, entry in self._rest(row):
            last = None
            if not reported:
                reported = True
                if not self._is_stale(at):
                    self._mismatch(at, entry, f"the log ends at offset {highest}")
        if whole and latest and last:
            self._check_last(*last, latest)
        self._report_stale()

    def _check_last(self, at: int, entry: TimeEntry, latest: Latest) -> None:
        """Report a last entry that is not the one for the segment's largest timestamp.

        Kafka appends that entry when a segment is rolled, closed, recovered or cleaned
        (``LogSegment.onBecomeInactiveSegment``), with the last offset of the batch, or the record's offset.
        """
        if entry.timestamp != latest.timestamp:
            self._mismatch(
                at, entry, f"it is the last entry, but the segment's largest timestamp is {latest.timestamp}"
            )
        elif latest.indexed != latest.timestamp:
            why = f"it is the last entry, but the batch of that offset has the largest timestamp {latest.indexed}"
            self._mismatch(at, entry, why)

    def _mismatch(self, at: int, entry: TimeEntry, why: str) -> None:
        facts = {**entry._asdict(), "why": why}
        self._record(Finding("time-index-mismatch", at, at + TIME_ENTRY.size, entry.offset, None, facts))


class TxnIndexCheck:
    """A transaction index beside its log. One that is not there has no entries; ``report`` is then the log's."""

    def __init__(self, source: Source | None, base_offset: int, report: Report) -> None:
        self._report = report
        # Whether something was said of the entry at hand already.
        self._told = False
        self._entries = walk_txn_index(source, base_offset, self._record) if source else iter(())
        self._at = 0
        self._entry: AbortedTxn | None = None
        self._advance()
        self._opener = DeepIterator(ignore_finding)
        self._open: dict[int, int] = {}
        self._ended = BoundedMap()
        # Whether more transactions are open than are followed.
        self._crowded = False
        # Aborts that are not in it, of what could only have been written to segments before: markers, by producer.
        self.unindexed: dict[int, int] = {}
        # Entries of transactions that began in an earlier segment, as in SegmentFacts.
        self.carried: list[tuple[int, int, int, int]] = []

    def _record(self, finding: Finding) -> None:
        self._told = True
        self._report(finding)

    def _advance(self) -> None:
        self._told = False
        self._at, self._entry = next(self._entries, (self._at, None))

    def update(self, window: Window) -> None:
        """Compare the window's transactional batches with the index."""
        batches = window.batches
        if self._crowded:
            return
        for row, offset, marker in transaction_events(window, self._opener):
            if marker is not None:
                self._end(batches.producer_id[row], offset, marker.type == "ABORT")
            elif batches.record_count[row] and batches.producer_id[row] not in self._open:
                if len(self._open) >= LIMIT:
                    self._stop_checking()
                    return
                self._open[batches.producer_id[row]] = offset

    def _stop_checking(self) -> None:
        self._crowded = True
        why = "from here on transactions are not compared with the index"
        self._report(
            Finding("limit-reached", self._at, facts={"limit": LIMIT, "what": "open transactions", "why": why})
        )

    def _end(self, producer_id: int, offset: int, aborted: bool) -> None:
        first = self._open.pop(producer_id, None)
        known = self._ended.get(producer_id)
        before = -1 if known is None else known
        self._ended.put(producer_id, offset)
        self._skip_entries(offset)
        entry = self._entry
        if entry is not None and entry.last_offset == offset:
            why = _contradiction(entry, producer_id, first, before, aborted)
            if why and not self._told:
                self._mismatch(entry, why)
            elif first is None and not self._told and len(self.carried) < LIMIT:
                self.carried.append((self._at, producer_id, entry.first_offset, entry.last_offset))
            self._advance()
        elif aborted and first is not None:
            facts = {"producer_id": producer_id, "first": first, "last": offset, "why": "is not in it"}
            self._report(Finding("txn-index-mismatch", self._at, None, first, offset, facts))
        elif aborted and before < 0 and not self._ended.forgot and len(self.unindexed) < LIMIT:
            self.unindexed[producer_id] = offset

    def _skip_entries(self, offset: int) -> None:
        """The entries of markers before that offset, which did not come."""
        while (entry := self._entry) is not None and entry.last_offset < offset:
            if not self._told:
                self._mismatch(entry, "has no marker there")
            self._advance()

    def finish(self, *, whole: bool) -> None:
        if whole and not self._crowded:
            self._skip_entries(INT64_MAX)
        while self._entry is not None:
            self._advance()

    def _mismatch(self, entry: AbortedTxn, why: str) -> None:
        facts = {"producer_id": entry.producer_id, "first": entry.first_offset, "last": entry.last_offset, "why": why}
        end = self._at + ABORTED_TXN.size
        self._report(Finding("txn-index-mismatch", self._at, end, entry.first_offset, entry.last_offset, facts))


def _contradiction(entry: AbortedTxn, producer_id: int, first: int | None, before: int, aborted: bool) -> str | None:
    if entry.producer_id != producer_id:
        return f"has a marker of producer {producer_id} there"
    if not aborted:
        return "was committed there"
    if first is not None and entry.first_offset > first:
        return f"has records from offset {first} on"
    if entry.first_offset <= before:
        return f"begins before its last transaction ended at offset {before}"
    if entry.last_stable_offset > entry.last_offset + 1:
        return f"can't leave all decided up to offset {entry.last_stable_offset}"
    return None


class IndexChecks:
    """The indexes of one segment, while it is read. ``reports`` has one for each index that is there, by its path.

    ``report`` is the segment's own: what it lacks beside it is said of itself. ``unread`` says why an index can't be
    read, by its path.
    """

    def __init__(self, file: SegmentFile, reports: Mapping[str, Report], report: Report) -> None:
        self._file = file
        self._reports = reports
        self._report = report
        self._crowded = False
        self.unread: dict[str, str] = {}
        self._sources: list[Source] = []
        base = base_offset_of(file.path) or 0
        opened = {os.path.splitext(path)[1]: (self._open(path), reported) for path, reported in reports.items()}
        stale = self._stale_entries(base)
        self._stale = stale.get(".timeindex")
        self._offsets = OffsetIndexCheck(offset_runs, *_of(opened, ".index", base, report), stale.get(".index"))
        self._times = TimeIndexCheck(time_runs, *_of(opened, ".timeindex", base, report), stale.get(".timeindex"))
        # A copy of the logs alone lacks it with the others.
        self._aborts = TxnIndexCheck(*_of(opened, ".txnindex", base, report if opened else ignore_finding))
        self._watch = FactsCollector(self._offsets, self._times)

    def _stale_entries(self, base_offset: int) -> dict[str, StaleEntries]:
        """What decides on stale entries, by suffix: a broker leaves them in the newest segment alone."""
        layouts = {".index": OFFSET_ENTRY, ".timeindex": TIME_ENTRY} if self._file.active else {}
        stem = os.path.splitext(self._file.path)[0]
        return {
            suffix: StaleEntries(stem + suffix, self._file.path, layout, base_offset)
            for suffix, layout in layouts.items()
        }

    def _open(self, path: str) -> Source | None:
        try:
            self._sources.append(open_source(path, listed=True))
        except UnreadableError as error:
            self.unread[path] = str(error)
            return None
        return self._sources[-1]

    def update(self, window: Window, misplaced: set[int], *, deep: bool) -> None:
        """The next window of the segment, after all else is done with it. ``deep``: markers are opened.

        ``misplaced`` as in SegmentWatch.
        """
        watch = self._watch
        transaction_events = watch.update(window.batches, misplaced)
        if not self._crowded and (watch.crowded or watch.producers.forgot):
            self._crowded = True
            why = "sequences and transactions of those that wrote long before are not compared"
            self._report(Finding("limit-reached", 0, facts={"limit": LIMIT, "what": "producers", "why": why}))
        if transaction_events and deep and not (watch.damaged or watch.disorder):
            self._aborts.update(window)

    def finish(self, size: int, lost: int, *, deep: bool) -> SegmentFacts:
        """The segment was read up to byte ``size``, ``lost`` of which are of no use. Returns what is known of it."""
        watch = self._watch
        watch.damaged = watch.damaged or lost > 0
        facts = watch.facts()
        # A broker may have written more since.
        grown = self._file.active and (local_size(self._file.path) or 0) > size
        whole = not (grown or watch.damaged or watch.disorder) and watch.end == size
        self._offsets.finish(watch.offset_row, INT64_MAX if grown else size, facts.last_offset, whole=whole)
        complete = whole and not watch.untimed and self._is_complete()
        latest = Latest(watch.largest_timestamp, watch.indexed_timestamp) if complete else None
        self._times.finish(watch.time_row, facts.last_offset, whole=whole, latest=latest)
        self._aborts.finish(whole=whole and deep)
        self.close()
        # A copy of the logs alone has no index for any of them.
        carried = tuple(self._aborts.carried)
        return replace(facts, unindexed=self._aborts.unindexed, carried=carried) if self._reports else facts

    def _is_complete(self) -> bool:
        """Whether the time index has its last entry: of a segment that is not written to any more."""
        return not self._file.active or (self._stale is not None and not self._stale.is_preallocated())

    def close(self) -> None:
        for source in self._sources:
            source.close()


_Opened = Mapping[str, tuple[Source | None, Report]]


def _of(opened: _Opened, suffix: str, base_offset: int, report: Report) -> tuple[Source | None, int, Report]:
    source, reported = opened.get(suffix, (None, report))
    return source, base_offset, reported
