"""Repair one segment: copy its valid batches, validate the copy, and build its indexes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from kseg.commands.repair.batch_selection import SegmentSalvage
from kseg.commands.repair.kept_batches import CopiedBatches, SegmentTask, unplaced_path
from kseg.commands.repair.repair_losses import CorrectedBatch, LostRange, ReportLine, SegmentRepair, is_about_a_batch
from kseg.commands.repair.repaired_checkpoints import NO_EVIDENCE, EpochEvidence
from kseg.commands.repair.segment_places import SegmentPlace
from kseg.errors import KsegError
from kseg.findings import SERVED, Finding, Policy, Report, Severity, do_nothing
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.run_checks import check_settings, new_collector, run_checks
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import Window
from kseg.format.segment.transaction_events import Event, chunk_events, transaction_events
from kseg.format.sidefiles.checkpoints import known_leader_epochs
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES, AbortedTransactions, IndexBuilder
from kseg.format.sidefiles.log_end import named_ends
from kseg.format.storage.atomic_write import NewFile, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import UNPLACED, base_offset_of
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Source, check_same, open_source, stamp_of
from kseg.format.writer.batch_runs import ReadBackError
from kseg.format.writer.moved_batches import source_ranges
from kseg.format.writer.offset_order import AdjacentBatches, OffsetOrder, find_order
from kseg.format.writer.output_guards import DamagedError, index_paths, txn_index_path
from kseg.format.writer.overflowed_segments import split_parts
from kseg.format.writer.written_side_files import append_runs
from kseg.results import Settings, Summary
from kseg.text import count_of


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The settings of a repair. A batch with a finding that is an error in ``errors`` is dropped.

    ``replicas``: the batches are those of these folders, which are repaired already. The newest segment can begin with a
    hole.
    """

    salvage_records: bool = False
    indexes_only: bool = False
    dry_run: bool = False
    force: bool = False
    policy: Policy = field(default_factory=Policy)
    index_interval: int = INDEX_INTERVAL_BYTES
    replicas: tuple[str, ...] = ()

    @property
    def errors(self) -> Policy:
        """``policy``; what brokers and consumers do not notice is an error in it only if it says so."""
        return self.policy.with_defaults(dict.fromkeys(SERVED, Severity.WARNING))


def repair_segment(
    source: str,
    target: Path,
    plan: RepairPlan,
    report: ReportLine,
    progress: Progress = do_nothing,
    *,
    txns: AbortedTransactions | None = None,
    place: SegmentPlace | None = None,
    epochs: EpochEvidence = NO_EVIDENCE,
) -> SegmentRepair:
    """Repair a segment, a path or a URL, into new, synced files: ``target`` and its indexes.

    ``txns`` are the transactions that its partition's earlier segments left open, ``place`` is its place among the
    partition's segments, ``epochs`` are the leader epochs that other files show. Raises UsageError, UnreadableError,
    NotASegmentError, ReadBackError and other KsegError.
    """
    repair = _SegmentRun(SegmentRepair(source, str(target)), plan, report, progress, txns, place, epochs)
    if plan.dry_run:
        repair.preview()
    else:
        repair.write(target)
    return repair.tally


@dataclass(slots=True)
class _SegmentRun:
    """One run of ``repair_segment``."""

    tally: SegmentRepair
    plan: RepairPlan
    report: ReportLine
    progress: Progress
    txns: AbortedTransactions | None
    place: SegmentPlace | None
    epochs: EpochEvidence

    def preview(self) -> None:
        unwritten = _IndexWriter(self.tally, self.plan.index_interval, self.txns)
        if self.plan.indexes_only:
            self._check_source(unwritten)
        else:
            self._salvage(None, None, unwritten.follow_window)

    def write(self, target: Path) -> None:
        source, indexes = self.tally.source, index_paths(target)
        transactions, unplaced = txn_index_path(target), unplaced_path(target)
        if unplaced.exists():  # those of the file of that name, which has no place
            unplaced = target.with_name(target.name + UNPLACED)
        logs = () if self.plan.indexes_only else (target, unplaced)
        targets = [*logs, *indexes, *((transactions,) if self.txns is not None else ())]
        with ExitStack() as stack, writing(target):
            new = {path: stack.enter_context(NewFile(path)) for path in targets}
            stamp = stamp_of(source)
            modified = stamp[1] if stamp and os.path.exists(source) else None
            files = [new[path].file for path in targets if path not in logs]
            writer = _IndexWriter(self.tally, self.plan.index_interval, self.txns, *files)
            if self.plan.indexes_only:
                self._check_source(writer)
            else:
                progress = self.progress
                self.progress = lambda count: progress(count // 2)  # the bytes are read twice
                copied = self._salvage(new[target].file, new[unplaced].file)
                check_same(source, stamp)  # it is read several times
                new[target].sync(modified)
                self._read_back(str(target), writer, copied)
            # A broker creates the index of transactions with its first entry.
            for path in [each for each in (transactions, unplaced) if each in new and not new[each].file.tell()]:
                new.pop(path).file.close()
                path.unlink()
            for path in new:
                if path != target:
                    new[path].sync(modified)

    def _salvage(
        self, out: IO[bytes] | None, unplaced: IO[bytes] | None, after_window: Callable[[Window], object] = do_nothing
    ) -> CopiedBatches | None:
        """Write the valid batches of a segment; return them if none was changed (``SegmentSalvage.copied``).

        Those that the result can't have are written to ``unplaced``. ``after_window`` is that of ``SegmentSalvage.run``.
        """
        tally, place, policy = self.tally, self.place, self.plan.errors
        name = tally.source if place is None else tally.target
        ceiling, named = None if place is None else place.ceiling, _named_offset(tally)
        if ceiling is None and named is not None:
            ceiling = named + INT32_MAX + 1
        order = self._order(ceiling)
        if order.is_part:
            tally.begin = order.pieces[0][0]

        def report_at_source(row: LostRange) -> None:
            for begin, end in source_ranges(order.pieces, row.position, row.end):
                self.report(replace(row, position=begin, end=end))

        task = SegmentTask(
            tally, check_settings(name, Settings(policy=policy)), policy, report_at_source,
            place or SegmentPlace(name, name), self.epochs, ceiling, self.plan.salvage_records, out, unplaced,
        )  # fmt: skip
        salvage = SegmentSalvage(task)
        for one in order.moved:
            tally.mended += 1
            why = (
                f"offset {one.low} after offset {one.previous}: the batch was moved here, and goes back to the place where "
                "these offsets are missing"
            )
            place_in_file = tally.source, one.position, one.end, one.low, one.high
            self.report(CorrectedBatch(*place_in_file, "non-monotonic-offset", why))
        with order.arranged(open_source(tally.source)) as source:
            source.name = name
            salvage.run(source, order, self.progress, after_window)
        misnamed = named != base_offset_of(tally.source) or tally.misfits > 1
        if tally.misfits > tally.kept * 2 and misnamed and place is None:
            raise KsegError(
                f"{tally.source}: the offset in the file name contradicts {count_of(tally.misfits, 'batch')} and fits "
                f"{tally.kept:,}: give DST the right name"
            )
        return salvage.copied

    def _order(self, ceiling: int | None) -> OffsetOrder:
        """Return the order of the batches. If the name of the result has an offset, that of the source proves nothing."""
        if self.place is not None and self.place.order is not None:
            return self.place.order
        tally = self.tally

        def open_named() -> Source:
            source = open_source(tally.source)
            if base_offset_of(tally.target) is not None:
                source.name = tally.target
            return source

        log = Path(tally.source)
        around = AdjacentBatches(ends=named_ends(log), leader_epochs=known_leader_epochs(log.parent))
        order = find_order(open_named, ceiling, neighbours=around, moves=os.path.isfile(tally.source))
        if order.beyond and (parts := split_parts(open_named, None)):
            base = parts[-1].base
            named = f"give DST the name {base:020}.log"
            todo = named if len(parts) == 1 else "repair its folder, which splits the segment"
            raise KsegError(f"{tally.source}: offset {base} and higher ones do not fit a segment of that name: {todo}")
        return order

    def _read_back(self, path: str, indexes: _IndexWriter, copied: CopiedBatches | None) -> None:
        """Validate and index the output. Raises ReadBackError for any error, and if the counts differ.

        ``copied`` are its batches if all are copies. Their records are not decoded again: the source's are the same bytes.
        """
        # With its final name, because the name is checked, too.
        tally = self.tally
        found, error = self._check(path, tally.target, indexes, copied)[:2]
        if error:
            raise ReadBackError(f"{tally.target}: after reading back: {error}")
        records = found.records if copied is None else tally.records  # the CRC covers their number
        if (found.batches, records, found.bytes) != (tally.kept, tally.records, tally.bytes_after):
            raise ReadBackError(
                f"{tally.target}: could only read back {found.batches:,} of {tally.kept:,} batches, {records:,} of "
                f"{tally.records:,} records, {found.bytes:,} of {tally.bytes_after:,} bytes"
            )

    def _check_source(self, indexes: _IndexWriter) -> None:
        """Index an unchanged log. Raises DamagedError unless it is valid."""
        tally = self.tally
        found, error, history = self._check(tally.source, tally.source, indexes, report_gap=tally.add_gap)
        if history.overflows:
            error = error or "its offsets do not fit one segment, so it has to be split"
        if error:
            raise DamagedError(
                f"{tally.source}: {error} (indexes need an undamaged log: repair without --indexes-only)"
            )
        tally.kept, tally.records = found.batches, found.records
        tally.bytes_before = tally.bytes_after = found.bytes
        tally.intact_start, tally.keyless, tally.thinned = True, history.keyless, history.thinned

    def _check(
        self, path: str, name: str, indexes: _IndexWriter, copied: CopiedBatches | None = None,
        report_gap: Report = do_nothing,
    ) -> tuple[Summary, str, CheckState]:  # fmt: skip
        """Run every check over a log named ``name``; return the counts, the text of the first error, and the checks' state.

        If the log must have the batches ``copied``, these are compared instead of decoding the records.
        """
        settings = Settings(policy=self.plan.errors, deep=copied is None)
        checks = new_collector(SegmentFile(name), settings)
        found = CopiedBatches()

        def report(finding: Finding) -> None:
            if finding.rule == "offset-gap":
                report_gap(finding)
            checks(finding)

        def append_window(window: Window, _: CheckState) -> None:
            found.append(window.batches, 0, window.batches.count)
            indexes.append_window(window)

        append, after = (indexes.append, None) if copied is None else (do_nothing, append_window)
        with open_source(path) as source:
            source.name = name
            history = run_checks(
                source, settings, checks, self.progress, append, after_window=after, report=report
            ).history
        indexes.finish()
        for verdict in checks.result().verdicts:
            if verdict.is_error and is_about_a_batch(verdict.finding):
                error = f"{verdict.rule.name} at byte {verdict.finding.position}: {verdict.message}"
                return checks.summary, error, history
        if copied is not None and found != copied:
            return checks.summary, "the batches differ from those of the source", history
        return checks.summary, "", history


class _IndexWriter:
    """Builds the indexes of a log from its batches as they are read, and records its offsets.

    ``files`` are those of offsets, times and, with ``txns``, of aborted transactions; without them nothing is written.
    """

    def __init__(
        self, tally: SegmentRepair, interval: int, txns: AbortedTransactions | None, *files: IO[bytes]
    ) -> None:
        self._tally = tally
        self._interval = interval
        self._txns = txns
        self._files = [*files, *(io.BytesIO() for _ in range(3 - len(files)))]
        self._builder: IndexBuilder | None = None
        self._opener = DeepIterator()

    def append(self, chunk: Chunk) -> None:
        """Index the next decoded batches. Raises KsegError if an index can't contain them."""
        batches, tally = chunk.batches, self._tally
        if chunk.resumed:
            return
        if tally.first_offset is None:
            tally.first_offset = chunk.records.offset[0] if chunk.records.count else batches.base_offset[chunk.first]
        self._append(batches, chunk.first, chunk.stop)
        if self._txns is not None:
            self._follow_events(batches, chunk_events(chunk, batches.selected))

    def append_window(self, window: Window) -> None:
        """Index the next batches, of which only the markers of transactions are decoded. Raises KsegError."""
        self._append(window.batches, 0, window.batches.count)
        self.follow_window(window)

    def follow_window(self, window: Window) -> None:
        """Follow the transactions of the next selected batches, without other indexes. Raises KsegError."""
        if self._txns is not None:
            self._follow_events(window.batches, transaction_events(window, self._opener))

    def _append(self, batches: BatchColumns, first: int, stop: int) -> None:
        tally = self._tally
        if self._builder is None:
            named = _named_offset(tally)
            base = tally.first_offset if named is None else named
            self._builder = IndexBuilder(base or 0, self._files[0], self._files[1], self._interval)
        tally.last_offset = batches.last_offset[stop - 1]
        append_runs(tally.leader_epochs, batches, first, stop)
        if min(memoryview(batches.magic)[first:stop]) < 2:
            tally.legacy = True
            newest = next(row for row in reversed(range(first, stop)) if batches.magic[row] < 2)
            tally.last_legacy_offset = batches.last_offset[newest]
        with self._fitting():
            self._builder.add(batches, first, stop)

    def _follow_events(self, batches: BatchColumns, events: Iterable[Event]) -> None:
        assert self._txns is not None
        for txn in self._txns.update(batches, events):
            self._files[2].write(txn.pack())

    def finish(self) -> None:
        """Write the last entries of the indexes."""
        if self._builder is not None:
            with self._fitting():
                self._builder.finish()

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        try:
            yield
        except KsegError as error:
            first, named = self._tally.first_offset, _named_offset(self._tally)
            offsets = f"offsets {first}..{self._tally.last_offset}"
            below = first is not None and named is not None and first < named
            why = f"give DST the name {first:020}.log" if below else str(error)
            raise KsegError(f"{self._tally.target}: {offsets} do not fit a segment of that name: {why}") from error


def _named_offset(tally: SegmentRepair) -> int | None:
    bases = map(base_offset_of, (tally.target, tally.source))
    return next((base for base in bases if base is not None), None)
