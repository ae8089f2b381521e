"""Compare the indexes of a segment with its batches, reading each index once.

The checks require only what Kafka's look-ups need, because followers before 2025 wrote one index entry for a whole
append, with its last offset:
- no batch before ``log_position`` reaches the entry's offset (``OffsetIndex.lookup``)
- no batch before the entry's offset is later than its timestamp, and none that a look-up of the timestamp skips has it
  (``LogSegment.findOffsetByTimestamp``)
- consumers that read committed find each aborted transaction (``TransactionIndex.collectAbortedTxns``)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from kseg.commands.validate.segment_facts import FactsCollector, SegmentFacts
from kseg.commands.validate.txn_index_check import TxnIndexCheck
from kseg.errors import UnreadableError, VanishedError
from kseg.findings import READ_ERROR, Finding, Report, do_nothing
from kseg.format.checks.run_checks import is_cleanly_shut_down
from kseg.format.record.layout import INT64_MAX, NO_TIMESTAMP
from kseg.format.record.offset_evidence import LIMIT
from kseg.format.segment.segment_reader import Window
from kseg.format.sidefiles.index_columns import Columns
from kseg.format.sidefiles.index_walks import IndexRun, offset_runs, time_runs
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, StaleEntries, TimeEntry
from kseg.format.sidefiles.log_end import has_zeros_at
from kseg.format.sidefiles.side_file_reading import with_read_error
from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of
from kseg.format.storage.segment_files import SegmentFile, is_unfinished
from kseg.format.storage.source import Source, local_size, open_source
from kseg.text import iso_time

#: The most reported positions of an index that are remembered, so that one entry gives one finding.
MAX_REPORTED = 4096

_Entry = TypeVar("_Entry", OffsetEntry, TimeEntry)
_Runs = Callable[[Source, int, Report, "StaleEntries | None"], Iterator[IndexRun[_Entry]]]


class _IndexCursor(Generic[_Entry]):
    """The entries of an index, one run of entries at a time as two columns for the compiled loop of ``FactsCollector``.

    ``stale`` is given for the newest segment: its first wrong entry can be the start of stale entries, which a broker
    leaves there and which are not a fault.
    """

    rule: str
    size: int

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
        self._source = source
        self._base_offset = base_offset
        # The positions of entries that already have a finding.
        self._reported: set[int | None] = set()
        self._unread = False
        found = runs(source, base_offset, self._record, stale) if source else iter(())
        self._runs: Iterator[IndexRun[_Entry]] = with_read_error(source.name if source else "", found, self._record)
        self._run: IndexRun[_Entry] | None = None
        self._last: tuple[int, _Entry] | None = None

    def _record(self, finding: Finding) -> None:
        self._reported.add(finding.position)
        self._unread |= finding.rule == READ_ERROR
        self._report(finding)

    def next_columns(self) -> Columns | None:
        """Return the two columns of the next run, or None after the last. The previous run is finished."""
        if self._run:
            self._last = self._run.entry(len(self._run) - 1)
            if len(self._reported) > MAX_REPORTED:
                self._reported &= {self._last[0]}
        self._run = next(self._runs, None)
        return self._run.columns if self._run else None

    def _is_stale(self, at: int) -> bool:
        return self._stale is not None and self._stale.stale_from(at)

    def _unreported(self, row: int) -> tuple[int, _Entry] | None:
        """Return the position and the entry of a row of the run, None if it already has a finding."""
        assert self._run, "a row is one of next_columns()'s"
        found = self._run.entry(row)
        return None if found[0] in self._reported else found

    def _entry_before(self, row: int) -> tuple[int, _Entry] | None:
        """Return the entry before the row and its position, or None if it was reported."""
        found = self._run.entry(row - 1) if self._run and row else self._last
        return None if found is None or found[0] in self._reported else found

    def _mismatch(self, at: int, entry: _Entry, why: str) -> None:
        facts = {**entry._asdict(), "why": why}
        self._record(Finding(self.rule, at, at + self.size, entry.offset, None, facts))

    def _report_stale(self) -> None:
        if self._stale is not None:
            self._stale.report(self._report)

    def _remaining(self, row: int) -> Iterator[tuple[int, _Entry]]:
        """Yield the remaining entries from the row on, without those that were reported."""
        in_run = islice(self._run.entries(), row, None) if self._run else ()
        in_later_runs = chain.from_iterable(run.entries() for run in self._runs)
        for at, entry in chain(in_run, in_later_runs):
            if at in self._reported:
                self._reported.remove(at)
            else:
                yield at, entry


class OffsetIndexCheck(_IndexCursor[OffsetEntry]):
    """The checks of an offset index; its columns are offsets and positions in the log."""

    rule, size = "index-mismatch", OFFSET_ENTRY.size

    def check(self, row: int, position: int, end: int, highest: int) -> None:
        """Check an entry whose log position is before ``end``, the end of the batch at ``position``.

        ``highest`` is the largest offset before that batch. An entry for bytes that are not a batch is skipped, because
        the damage is reported for the log.
        """
        if (found := self._unreported(row)) is None:
            return
        at, entry = found
        wrong = entry.log_position > position or (entry.log_position == position and highest >= entry.offset)
        if not wrong or self._is_stale(at):
            return
        if entry.log_position > position:
            self._mismatch(at, entry, f"no batch starts there, a batch has bytes {position}..{end - 1}")
        else:
            self._mismatch(at, entry, f"the batches before it end at offset {highest}")

    def finish(self, row: int, end: int, size: int, highest: int | None, *, whole: bool) -> None:
        """Check the entries from ``row`` on, which no batch matched, and the last entry.

        ``end`` is the end of the log in bytes, ``highest`` its largest offset, ``whole`` whether no bytes in it are lost.
        The file has ``size`` bytes, and zeros from ``end`` on. No entry for these is stale: a truncation cuts them off.
        """
        last = self._entry_before(row)
        left = past = False
        for at, entry in self._remaining(row):
            left = True
            if entry.log_position >= end and not past:
                if entry.log_position >= size and self._is_stale(at):
                    break
                zeros = ", and only zeros follow" if end < size else ""
                self._mismatch(at, entry, f"the log ends at byte {end}{zeros}")
                past = True
        too_far = last is not None and highest is not None and last[1].offset > highest
        if whole and not left and last is not None and too_far and not self._is_stale(last[0]):
            self._mismatch(*last, f"the log ends at offset {highest}")
        self._report_stale()


class LargestTimestamps(NamedTuple):
    """Largest timestamps: ``timestamp`` of the segment, ``indexed`` of the batch of the time index's last entry."""

    timestamp: int
    indexed: int


class TimeIndexCheck(_IndexCursor[TimeEntry]):
    """The checks of a time index; its columns are timestamps and offsets."""

    rule, size = "time-index-mismatch", TIME_ENTRY.size

    def check(self, row: int, before: int, latest: int) -> None:
        """Check an entry: ``before`` is the largest timestamp before the batch of its offset, ``latest`` includes it."""
        found = self._unreported(row)
        if found is None or self._is_stale(found[0]):
            return
        at, entry = found
        if before > entry.timestamp:
            self._mismatch(at, entry, f"a batch before it has {iso_time(before)}")
        elif latest < entry.timestamp:
            self._mismatch(at, entry, f"the largest timestamp up to there is {iso_time(latest)}")

    def check_skipped(self, row: int) -> None:
        """Check an entry for which the offset index leads past a batch that has its timestamp."""
        if (found := self._unreported(row)) and not self._is_stale(found[0]):
            self._mismatch(*found, "the offset index leads past a batch that has it")

    def check_position(self, row: int, first: int) -> None:
        """Report an entry whose offset is below ``first``, the log's first offset."""
        if found := self._unreported(row):
            self._mismatch(*found, f"the header of the first batch claims offset {first}")

    def finish(self, row: int, highest: int | None, *, whole: bool, latest: LargestTimestamps | None) -> None:
        """Check the entries from ``row`` on, which no batch matched, and the last entry.

        ``highest`` is the log's largest offset, ``whole`` whether no bytes in it are lost. ``latest`` is given if the
        index is complete (see ``IndexChecks``).
        """
        last = self._entry_before(row)
        reported = not whole
        ends = "the log has no batch" if highest is None else f"the log ends at offset {highest}"
        for at, entry in self._remaining(row):
            last = None
            if not reported:
                reported = True
                if not self._is_stale(at):
                    self._mismatch(at, entry, ends)
        if latest and latest.timestamp > NO_TIMESTAMP and not reported and (read := self._zeros_at_end() or last):
            self._check_last(*read, latest)
        self._report_stale()

    def _zeros_at_end(self) -> tuple[int, TimeEntry] | None:
        """Return the position of zeros at the end of a complete index, and the entry that a broker reads in them.

        It takes the entry's time, 1970, for the segment's largest timestamp (``LogSegment.largestTimestamp``).
        """
        size = self._source.size if self._source and not self._unread else None
        end = self._last[0] + TIME_ENTRY.size if self._last else 0
        return None if size is None or size - end < TIME_ENTRY.size else (end, TimeEntry(0, self._base_offset))

    def _check_last(self, at: int, entry: TimeEntry, latest: LargestTimestamps) -> None:
        """Report a last entry that is not the one for the segment's largest timestamp.

        Kafka appends that entry when a segment is rolled, closed, recovered or cleaned
        (``LogSegment.onBecomeInactiveSegment``), with the last offset of the batch, or the record's offset.
        """
        if entry.timestamp != latest.timestamp:
            self._mismatch(
                at, entry, f"the last entry should have the segment's largest timestamp, {iso_time(latest.timestamp)}"
            )
        elif latest.indexed != latest.timestamp:
            why = f"it is the last entry, but the largest timestamp of that batch is {iso_time(latest.indexed)}"
            self._mismatch(at, entry, why)


class IndexChecks:
    """The checks of one segment's indexes, while the segment is read.

    ``reports`` has the report of each existing index by its path, ``report`` is that of the segment and gets the
    findings about missing indexes. ``unread`` has the error by path of each index that cannot be read, ``vanished`` the
    paths that a broker has deleted since they were listed.
    """

    def __init__(self, file: SegmentFile, reports: Mapping[str, Report], report: Report) -> None:
        self._file = file
        self._reports = reports
        self._report = report
        self._crowded = False
        self.unread: dict[str, UnreadableError] = {}
        self.vanished: set[str] = set()
        self._sources: list[Source] = []
        base = base_offset_of(file.path) or 0
        # Before the entries are read: a broker that rolls the segment meanwhile fills and trims its indexes.
        stale = self._stale_entries(base)
        self._has_last_entry = self._is_complete(stale.get(".timeindex"))
        opened = {os.path.splitext(path)[1]: (self._open(path), reported) for path, reported in reports.items()}
        opened |= {os.path.splitext(path)[1]: (None, do_nothing) for path in self.unread}
        try:
            self._begin(opened, base, report, stale)
        except BaseException:
            self.close()
            raise

    def _begin(self, opened: _Opened, base: int, report: Report, stale: Mapping[str, StaleEntries]) -> None:
        """Read the first entries of the indexes."""
        # Without any index the folder is a copy of the logs alone, and the .txnindex is not missing. An archive can lack it.
        copied = not opened or is_unfinished(os.path.dirname(self._file.path))
        missing = None, do_nothing if copied else report
        (offsets, of_offsets), (times, of_times), (aborts, of_aborts) = (
            opened.get(suffix, missing) for suffix in INDEX_SUFFIXES
        )
        self._offsets = OffsetIndexCheck(offset_runs, offsets, base, of_offsets, stale.get(".index"))
        self._times = TimeIndexCheck(time_runs, times, base, of_times, stale.get(".timeindex"))
        path, growing = os.path.splitext(self._file.path)[0] + ".txnindex", bool(opened) and self._file.active
        self._aborts = TxnIndexCheck(aborts, base, of_aborts, path, growing=growing)
        self._collector = FactsCollector(self._offsets, self._times)

    def _stale_entries(self, base_offset: int) -> dict[str, StaleEntries]:
        """Return the detection of stale entries by suffix. A broker leaves stale entries only in the newest segment."""
        layouts = {".index": OFFSET_ENTRY, ".timeindex": TIME_ENTRY} if self._file.active else {}
        stem, found = os.path.splitext(self._file.path)[0], {}
        for suffix, layout in layouts.items():
            try:
                found[suffix] = StaleEntries(stem + suffix, self._file.path, layout, base_offset)
            except UnreadableError as error:
                if stem + suffix in self._reports:
                    self.unread[stem + suffix] = error
        return found

    def _open(self, path: str) -> Source | None:
        if path in self.unread:
            return None
        try:
            self._sources.append(open_source(path, listed=True))
        except VanishedError:
            self.vanished.add(path)
            return None
        except UnreadableError as error:
            self.unread[path] = error
            return None
        return self._sources[-1]

    def update(self, window: Window, misplaced: set[int], *, deep: bool) -> None:
        """Check the next window of the segment, after all other checks of it. ``deep``: markers are decoded.

        ``misplaced`` as in ``FactsCollector.update``.
        """
        watch = self._collector
        transaction_events = watch.update(window.batches, misplaced)
        if not self._crowded and (watch.crowded or watch.producers.forgot):
            self._crowded = True
            why = "sequences and transactions of producers that wrote much earlier are not compared"
            self._report(Finding("limit-reached", 0, facts={"limit": LIMIT, "what": "producers", "why": why}))
        if transaction_events and deep and not (watch.damaged or watch.disorder):
            self._aborts.update(window)

    def finish(self, size: int, lost: int, *, deep: bool) -> SegmentFacts:
        """Finish the checks of a segment of ``size`` bytes, ``lost`` of them unreadable, and return its facts."""
        watch = self._collector
        watch.damaged = watch.damaged or lost > 0
        facts = watch.facts(size)
        # A broker may have appended to the segment since.
        grown = self._file.active and (local_size(self._file.path) or 0) > size
        zeros = not watch.damaged and has_zeros_at(self._file.path, watch.end, size)
        whole = not (grown or watch.damaged or watch.disorder) and (zeros or watch.end == size)
        end = INT64_MAX if grown else watch.end if zeros else size
        self._offsets.finish(watch.offset_row, end, size, facts.last_offset, whole=whole)
        complete = whole and not watch.untimed and self._has_last_entry
        latest = LargestTimestamps(watch.largest_timestamp, watch.indexed_timestamp) if complete else None
        self._times.finish(watch.time_row, facts.last_offset, whole=whole, latest=latest)
        self._aborts.finish(whole=whole and deep)
        self.close()
        facts = replace(facts, coordinators=self._aborts.coordinators)
        # Without any index the folder is a copy of the logs alone.
        if not self._reports or any(path.endswith(".txnindex") for path in self.unread):
            return facts
        return replace(facts, unindexed=self._aborts.unindexed, carried=tuple(self._aborts.carried))

    def _is_complete(self, times: StaleEntries | None) -> bool:
        """Return whether the time index has its last entry, which a broker appends when it rolls or closes a segment."""
        if not self._file.active or is_cleanly_shut_down(self._file.path):
            return True
        try:
            return times is not None and not times.is_preallocated()
        except UnreadableError:  # the checks of the entries report it
            return False

    def close(self) -> None:
        for source in self._sources:
            source.close()


_Opened = dict[str, tuple[Source | None, Report]]
