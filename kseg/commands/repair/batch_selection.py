"""Decide which batches of a segment ``kseg repair`` keeps, corrects and drops.

A batch is kept if its CRC is right, all its records can be read, its offsets are in order, and no check of ``kseg validate``
finds an error in it, except one that brokers and consumers do not notice. It is copied byte for byte. A correction needs
proof in the file, or must not affect data: a size or magic that the CRC proves, a base offset that the adjacent batches
prove, a largest timestamp that the records prove, and leader epochs that are negative or decrease. No CRC covers leader
epochs; each becomes that of an adjacent batch.
"""

from __future__ import annotations

from collections.abc import Callable

from kseg.commands.repair import salvaged_records
from kseg.commands.repair.kept_batches import CopiedBatches, KeptBatches, SegmentTask
from kseg.commands.repair.repair_losses import BatchFindings, Errors
from kseg.findings import do_nothing
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.record_checks import update_compaction_evidence
from kseg.format.checks.run_checks import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.record import framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX, LOG_OVERHEAD
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import Source
from kseg.format.writer import rewritten_rows
from kseg.format.writer.batch_runs import mark_out_of_range, validated_chunks
from kseg.format.writer.moved_batches import source_ranges
from kseg.format.writer.offset_order import OffsetOrder


class SegmentSalvage:
    """Reads one segment and writes its valid batches.

    With ``task.salvage_records``, a batch with a right CRC and a fault in its records is replaced by a batch with its
    ``SalvagedRecords``.
    """

    def __init__(self, task: SegmentTask) -> None:
        self.findings = BatchFindings(task.tally.source, task.policy)
        self._tally = task.tally
        self._limits = task.limits
        self._ceiling = task.ceiling
        self._history = CheckState()
        self._salvaged = None
        if task.salvage_records:
            self._salvaged = salvaged_records.SalvagedRecords(self.findings, task.limits.name_offset)
        self._kept = KeptBatches(task, self.findings)

    @property
    def copied(self) -> CopiedBatches | None:
        """Return the batches of the result if each of them is a v2 batch that was copied unchanged, otherwise None."""
        tally, copied = self._tally, self._kept.copied
        return copied if copied.count == tally.kept and not tally.mended else None

    def run(
        self, source: Source, order: OffsetOrder, progress: Progress, after_window: Callable[[Window], object]
    ) -> None:
        """Read the segment and write its batches; ``order`` is the result of ``find_order`` for it.

        ``after_window`` is called with each window, in which the batches of the result are selected. Raises KsegError from
        reading and OSError from writing.
        """
        done = source.start
        self._kept.unplaced.copies = {position for position, one in order.misplaced.items() if one.copy}
        reader = SegmentReader(source, report=self.findings, by_name=False)
        opened = do_nothing if self._salvaged is None else self._salvaged.select
        for chunk in validated_chunks(reader, self.findings, self._mark_misfits, opened, order=order):
            self._check_records(chunk)
            if chunk.stop == chunk.batches.count and not chunk.unfinished:
                self._check_batches(chunk.window)
                self._kept.write(chunk.window)
                after_window(chunk.window)
                progress(reader.position - done)
                done = reader.position
        progress(reader.position - done)
        self._kept.finish(reader.position, order.end)
        self._tally.bytes_before = reader.position
        self._tally.keyless, self._tally.thinned = self._history.keyless, self._history.thinned
        self._tally.gaps = sorted(
            (source_ranges(order.pieces, position, position)[0][0], first, last)
            for position, first, last in self._tally.gaps
        )

    def _check_records(self, chunk: Chunk) -> None:
        for check in RECORD_CHECKS:
            check.run(chunk, self._limits, self.findings)
        batches, findings, tally = chunk.batches, self.findings, self._tally
        row = chunk.first
        while True:
            row, records = rewritten_rows.next_faulty(batches, row, chunk.stop, findings.at)
            tally.records += 0 if chunk.resumed else records
            if row == chunk.stop:
                break
            if not batches.intact[row] or findings.drops_batch(batches.position[row]):
                batches.selected[row] = 0
                if findings.is_placed(batches.position[row]):
                    self._kept.unplaced.add_read(chunk, row)
                tally.records -= batches.record_sum[row] if chunk.resumed else 0
            elif not chunk.resumed:
                if self._salvaged is not None and (repacked := self._salvaged.repacked(chunk, row)) is not None:
                    self._kept.repacked[batches.position[row]] = repacked
                    batches.record_sum[row] = repacked.records
                tally.records += batches.record_sum[row]
            row += 1
        update_compaction_evidence(chunk, self._history)
        if tally.first_offset is None and not chunk.resumed:
            self._begin(chunk)

    def _begin(self, chunk: Chunk) -> None:
        """Record the first offset of the segment, if a batch of the chunk is selected."""
        batches = chunk.batches
        row = next((row for row in range(chunk.first, chunk.stop) if batches.selected[row]), None)
        if row is None:
            return
        legacy = batches.magic[row] < 2  # wrappers do not have their first offset
        self._tally.first_offset = batches.first_record_offset[row] if legacy else batches.base_offset[row]
        if self._ceiling is None:
            self._ceiling = self._tally.first_offset + INT32_MAX + 1

    def _mark_misfits(self, batches: BatchColumns) -> None:
        """Deselect batches at or after the ceiling before the order is checked: later batches would seem to go back."""
        if self._ceiling is not None:
            self._tally.misfits += mark_out_of_range(batches, self._ceiling, self.findings)

    def _check_batches(self, window: Window) -> None:
        """Run the checks of validate over the selected batches, and drop those with an error in the policy."""
        batches = window.batches
        before = _copy(self._history)
        errors = Errors(self.findings)
        for check in _CHECKS:
            check.run(batches, self._limits, self._history, errors)
        if errors.found:
            # A dropped batch must not affect the checks of later batches.
            self._history = before
            self._check_batches_singly(window)
        else:
            self._add_gaps(errors)

    def _check_batches_singly(self, window: Window) -> None:
        batches, history = window.batches, self._history
        one = BatchColumns(1)
        one.count = 1
        for row in range(batches.count):
            if not batches.selected[row]:
                continue
            framing.read_header(
                window.data, batches.at[row], batches.size[row] - LOG_OVERHEAD, batches.magic[row], one, 0
            )
            one.position[0] = batches.position[row]
            producer = one.producer_id[0]
            known, before = history.producers.get(producer), [getattr(history, name) for name in _REMEMBERED]
            errors = Errors(self.findings)
            for check in _CHECKS:
                check.run(one, self._limits, history, errors)
            self._add_gaps(errors)
            if errors.found:
                for finding in [each for each in errors.found if each.position == one.position[0]][-1:]:
                    batches.selected[row] = 0
                    self._tally.records -= batches.record_sum[row]
                    self.findings(finding)
                for name, value in zip(_REMEMBERED, before, strict=True):
                    setattr(history, name, value)
                if known is not None:
                    history.producers.put(producer, known)
                else:
                    history.producers.drop(producer)

    def _add_gaps(self, errors: Errors) -> None:
        for gap in errors.gaps:
            self._tally.add_gap(gap)


# Leader epochs in disorder are corrected, see ``EpochCorrector``.
_CHECKS = tuple(check for check in BATCH_CHECKS if check.in_repair)
# The state that is restored after a dropped batch, besides its producer's state.
_REMEMBERED = tuple(
    name for name in dir(CheckState()) if name[0] != "_" and isinstance(getattr(CheckState(), name), (bool, int))
)


def _copy(history: CheckState) -> CheckState:
    """Return a copy that further checks do not change."""
    copied = CheckState()
    copied.producers = history.producers.copy()
    for name in _REMEMBERED:
        setattr(copied, name, getattr(history, name))
    return copied
