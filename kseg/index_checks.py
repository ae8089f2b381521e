"""The indexes of a segment against its log, each walked once and in step with it.

What is asked of an entry is what Kafka's look-ups need and no more, since brokers before 2025 wrote a follower's
entry for a whole append, with its last offset: no batch before ``log_position`` may reach the entry's offset
(``OffsetIndex.lookup``), none before the offset may be later than its timestamp (``LogSegment.findOffsetByTimestamp``),
and consumers that read committed must meet each aborted record (``TransactionIndex.collectAbortedTxns``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from kseg.deep_iteration import DeepIterator
from kseg.errors import UnreadableError
from kseg.findings import Finding, Report, ignore
from kseg.index_files import walk_offset_index, walk_time_index, walk_txn_index
from kseg.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from kseg.log_format import INT64_MAX
from kseg.markers import transactional
from kseg.segment import Window
from kseg.segment_watch import SegmentFacts, SegmentWatch
from kseg.storage import SegmentFile, Source, base_offset_of, local_size, open_source
from kseg.txn_index import ABORTED_TXN, AbortedTxn

_Entry = TypeVar("_Entry", OffsetEntry, TimeEntry, AbortedTxn)
_Walk = Callable[[Source, int, Report], Iterator[tuple[int, _Entry]]]


class _Steps(Generic[_Entry]):
    """The entries of an index, one at hand: ``entry``, None behind the last, from byte ``at`` of the index on."""

    def __init__(self, entries: Iterator[tuple[int, _Entry]], report: Report) -> None:
        self.report = report
        self._entries: Iterator[tuple[int, _Entry | None]] = iter(entries)
        self.at = 0
        self.entry: _Entry | None = None
        # Whether something was said of the entry at hand already: one fault gives one finding.
        self.told = False

    def advance(self) -> None:
        self.told = False
        self.at, self.entry = next(self._entries, (self.at, None))

    def tell(self, rule: str, size: int, offset: int, last_offset: int | None, facts: dict[str, Any]) -> None:
        self.report(Finding(rule, self.at, self.at + size, offset, last_offset, facts))


def _steps(walk: _Walk[_Entry], source: Source | None, base_offset: int, report: Report) -> _Steps[_Entry]:
    def told(finding: Finding) -> None:
        steps.told = True
        report(finding)

    steps: _Steps[_Entry] = _Steps(walk(source, base_offset, told) if source else iter(()), report)
    steps.advance()
    return steps


class OffsetsInStep:
    """An offset index beside its log. ``due`` is the byte of the log that the entry at hand leads to."""

    def __init__(self, source: Source | None, base_offset: int, report: Report) -> None:
        self._steps = _steps(walk_offset_index, source, base_offset, report)
        self._last: OffsetEntry | None = None

    @property
    def due(self) -> int:
        entry = self._steps.entry
        return INT64_MAX if entry is None else entry.log_position

    def meet(self, position: int, end: int, highest: int) -> int:
        """The entries that lead to a byte before ``end`` of the log, of which an entry begins at ``position``.

        ``highest`` is the largest offset before that. What leads into bytes that are no entry is passed over: that
        the log is damaged there is said of the log.
        """
        steps = self._steps
        while (entry := steps.entry) is not None and entry.log_position < end:
            if not steps.told and entry.log_position > position:
                self._tell(entry, f"no batch begins there, one has the bytes {position} to {end - 1}")
            elif not steps.told and entry.log_position == position and highest >= entry.offset:
                self._tell(entry, f"the batches before go up to offset {highest}")
            elif not steps.told:
                self._last = entry
            steps.advance()
        return self.due

    def finish(self, size: int, highest: int | None, *, whole: bool) -> None:
        """The log ends at byte ``size``, ``highest`` is its largest offset; ``whole`` if no bytes were lost in it."""
        last = self._last
        if last and highest is not None and last.offset > highest and whole and self._steps.entry is None:
            self._steps.at -= OFFSET_ENTRY.size
            self._tell(last, f"the log ends at offset {highest}")
        past = False
        while (entry := self._steps.entry) is not None:
            if entry.log_position >= size and not (past or self._steps.told):
                self._tell(entry, f"the log ends at byte {size}")
                past = True
            self._steps.advance()

    def _tell(self, entry: OffsetEntry, why: str) -> None:
        facts = {**entry._asdict(), "why": why}
        self._steps.tell("index-mismatch", OFFSET_ENTRY.size, entry.offset, None, facts)


class TimesInStep:
    """A time index beside its log. ``due`` is the offset that the entry at hand names."""

    def __init__(self, source: Source | None, base_offset: int, report: Report) -> None:
        self._steps = _steps(walk_time_index, source, base_offset, report)

    @property
    def due(self) -> int:
        entry = self._steps.entry
        return INT64_MAX if entry is None else entry.offset

    def meet(self, last: int, before: int, latest: int) -> int:
        """The entries up to offset ``last``, that of the entry at hand: ``before`` is the latest timestamp before it.

        ``latest`` reckons it in.
        """
        steps = self._steps
        while (entry := steps.entry) is not None and entry.offset <= last:
            if not steps.told and before > entry.timestamp:
                self._tell(entry, f"there is {before} before it")
            elif not steps.told and latest < entry.timestamp:
                self._tell(entry, f"the latest up to there is {latest}")
            steps.advance()
        return self.due

    def finish(self, highest: int | None, *, whole: bool) -> None:
        """``highest`` is the log's largest offset, ``whole`` whether no bytes were lost in it."""
        told = not whole or highest is None
        while (entry := self._steps.entry) is not None:
            if not (told or self._steps.told):
                self._tell(entry, f"the log ends at offset {highest}")
                told = True
            self._steps.advance()

    def _tell(self, entry: TimeEntry, why: str) -> None:
        facts = {**entry._asdict(), "why": why}
        self._steps.tell("time-index-mismatch", TIME_ENTRY.size, entry.offset, None, facts)


class AbortsInStep:
    """A transaction index beside its log. One that is not there has no entries; ``report`` is then the log's."""

    def __init__(self, source: Source | None, base_offset: int, report: Report) -> None:
        self._steps = _steps(walk_txn_index, source, base_offset, report)
        self._opener = DeepIterator(ignore)
        self._open: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def take(self, window: Window) -> None:
        """The window's transactional entries; nobody looks at it afterwards."""
        batches = window.batches
        for row, offset, marker in transactional(window, self._opener):
            if marker is not None:
                self._end(batches.producer_id[row], offset, marker.type == "ABORT")
            elif batches.record_count[row]:
                self._open.setdefault(batches.producer_id[row], offset)

    def _end(self, producer_id: int, offset: int, aborted: bool) -> None:
        first = self._open.pop(producer_id, None)
        before = self._ended.get(producer_id, -1)
        self._ended[producer_id] = offset
        steps = self._steps
        self._pass(offset)
        entry = steps.entry
        if entry is not None and entry.last_offset == offset:
            why = _contradiction(entry, producer_id, first, before, aborted)
            if why and not steps.told:
                self._tell(entry, why)
            steps.advance()
        elif aborted and first is not None:
            facts = {"producer_id": producer_id, "first": first, "last": offset, "why": "is not in it"}
            steps.report(Finding("txn-index-mismatch", steps.at, None, first, offset, facts))

    def _pass(self, offset: int) -> None:
        """The entries of markers before that offset, which did not come."""
        while (entry := self._steps.entry) is not None and entry.last_offset < offset:
            if not self._steps.told:
                self._tell(entry, "has no marker there")
            self._steps.advance()

    def finish(self, *, whole: bool) -> None:
        if whole:
            self._pass(INT64_MAX)
        while self._steps.entry is not None:
            self._steps.advance()

    def _tell(self, entry: AbortedTxn, why: str) -> None:
        facts = {"producer_id": entry.producer_id, "first": entry.first_offset, "last": entry.last_offset, "why": why}
        self._steps.tell("txn-index-mismatch", ABORTED_TXN.size, entry.first_offset, entry.last_offset, facts)


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


class Beside:
    """The indexes of one segment, while it is read. ``reports`` has one for each index that is there, by its path.

    ``report`` is the segment's own: what it lacks beside it is said of itself. ``unread`` says why an index can't be
    read, by its path.
    """

    def __init__(self, file: SegmentFile, reports: Mapping[str, Report], report: Report) -> None:
        self._file = file
        self._reports = reports
        self.unread: dict[str, str] = {}
        self._sources: list[Source] = []
        base = base_offset_of(file.path) or 0
        opened = {os.path.splitext(path)[1]: (self._open(path), told) for path, told in reports.items()}
        self._offsets = OffsetsInStep(*_of(opened, ".index", base, report))
        self._times = TimesInStep(*_of(opened, ".timeindex", base, report))
        # A copy of the logs alone lacks it with the others.
        self._aborts = AbortsInStep(*_of(opened, ".txnindex", base, report if opened else ignore))
        self._watch = SegmentWatch(self._offsets, self._times)

    def _open(self, path: str) -> Source | None:
        try:
            self._sources.append(open_source(path))
        except UnreadableError as error:
            self.unread[path] = str(error)
            return None
        return self._sources[-1]

    def take(self, window: Window, *, deep: bool) -> None:
        """The next window of the segment, after all else is done with it. ``deep``: markers are opened."""
        if self._watch.take(window.batches) and deep:
            self._aborts.take(window)

    def finish(self, size: int, *, deep: bool) -> SegmentFacts:
        """The segment was read up to byte ``size``. Returns what is known of it."""
        watch = self._watch
        facts = watch.facts()
        # A broker may have written more since.
        grown = self._file.active and (local_size(self._file.path) or 0) > size
        whole = not (grown or watch.damaged or watch.disorder) and watch.end == size
        self._offsets.finish(INT64_MAX if grown else size, facts.last_offset, whole=whole)
        self._times.finish(facts.last_offset, whole=whole)
        self._aborts.finish(whole=whole and deep)
        self.close()
        return facts

    def close(self) -> None:
        for source in self._sources:
            source.close()


_Opened = Mapping[str, tuple[Source | None, Report]]


def _of(opened: _Opened, suffix: str, base_offset: int, report: Report) -> tuple[Source | None, int, Report]:
    source, told = opened.get(suffix, (None, report))
    return source, base_offset, told
