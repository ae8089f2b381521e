"""Decide which batches of a segment ``kseg repair`` keeps, corrects and drops.

A batch is kept if its CRC is right, all its records can be read, its offsets are in order, and no check of ``kseg validate``
finds an error in it. It is copied byte for byte. A correction needs proof in the file, or must not affect data: a size or
magic that the CRC proves, a base offset that the adjacent batches prove, a largest timestamp that the records prove, and
leader epochs that are negative or decrease. No CRC covers leader epochs; each becomes that of an adjacent batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

from kseg.commands.repair.leader_epochs import NO_EVIDENCE, EpochCorrector, EpochEvidence
from kseg.commands.repair.report import (
    SALVAGEABLE,
    BatchFindings,
    CorrectedBatch,
    Errors,
    LostRange,
    PartialBatch,
    ReportLine,
    SegmentRepair,
    lost_offsets,
    message,
)
from kseg.commands.repair.salvage_records import RepackedBatch, has_readable_records, repack_readable_records
from kseg.commands.repair.segment_places import SegmentPlace
from kseg.findings import RULES, Finding, Policy, Severity, do_nothing
from kseg.format.checks.check_state import CheckSettings, CheckState
from kseg.format.checks.table import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.record import framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import (
    CODEC_MASK,
    CRC_AT,
    INT32_MAX,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    SIZE_AT,
    V1_TIMESTAMP_AT,
)
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import Source
from kseg.format.writer.batch_runs import mark_out_of_range, validated_chunks
from kseg.format.writer.offset_order import OffsetOrder

# The number of losses that wait for the next valid batch, which shows the lost offsets. More are reported without it.
REPORTED_AT_ONCE = 1000
EPOCH_RULES = ("leader-epoch-regression", "negative-leader-epoch")


class SegmentSalvage:
    """Reads one segment and writes its valid batches to ``out``, which must be seekable (None: only report).

    ``ceiling`` is the first offset of the next segment, or the first offset without a 32-bit relative offset. ``place`` is
    the segment's place in its partition. With ``salvage_records``, a batch with a right CRC and a fault in its records is
    replaced by a batch with the records before the fault.
    """

    def __init__(
        self,
        out: IO[bytes] | None,
        tally: SegmentRepair,
        limits: CheckSettings,
        policy: Policy,
        ceiling: int | None,
        tell: ReportLine,
        *,
        salvage_records: bool = False,
        place: SegmentPlace | None = None,
        epochs: EpochEvidence = NO_EVIDENCE,
    ) -> None:
        self.findings = BatchFindings(tally.source, policy)
        self._out = out
        self._tally = tally
        self._limits = limits
        self._salvage_records = salvage_records
        self._ceiling = ceiling
        self._following = place.following if place else None
        self._floor = place.floor if place else -1
        self._tell = tell
        self._history = CheckState()
        self._covered = 0  # the position after the last kept batch in the source
        matter = {rule: policy.severity(RULES[rule]) >= Severity.ERROR for rule in EPOCH_RULES}
        self._epochs = (
            EpochCorrector(out, tally, tell, around=epochs, negative=matter["negative-leader-epoch"])
            if any(matter.values())
            else None
        )
        self._fresh: dict[int, RepackedBatch] = {}  # by position: the batch that replaces another

    def run(self, source: Source, order: OffsetOrder, progress: Progress = do_nothing) -> None:
        """Read the segment and write its batches; ``order`` is the result of ``find_order`` for it.

        Raises KsegError from reading and OSError from writing.
        """
        done = source.start
        reader = SegmentReader(source, report=self.findings, by_name=False)
        for window in self._checked_chunks(reader, order):
            self._write(window)
            progress(reader.position - done)
            done = reader.position
        progress(reader.position - done)
        self._drop_batch(reader.position, self._following)
        if self._epochs is not None:
            self._epochs.finish()
            self._tally.last_epoch = self._epochs.last
        self._tally.bytes_before = reader.position

    def _checked_chunks(self, reader: SegmentReader, order: OffsetOrder) -> Iterator[Window]:
        """Yield the windows, in which the batches to keep are selected."""
        for chunk in validated_chunks(reader, self.findings, self._mark_misfits, self._keep_batch, order=order):
            self._check_records(chunk)
            if chunk.stop == chunk.batches.count and not chunk.unfinished:
                self._check_batches(chunk.window)
                yield chunk.window

    def _keep_batch(self, chunk: Chunk) -> None:
        """Check batches by their records before a fault, if these are kept."""
        batches = chunk.batches
        # Not all records of a large batch are in memory.
        large = chunk.payload_size is not None
        for row in range(chunk.first, chunk.stop if self._salvage_records and not large else chunk.first):
            if not batches.selected[row] or batches.intact[row]:
                continue
            if has_readable_records(batches, row) and self.findings.spares_some(batches.position[row]):
                batches.intact[row] = 1

    def _check_records(self, chunk: Chunk) -> None:
        for check in RECORD_CHECKS:
            check.run(chunk, self._limits, self.findings)
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            if not batches.selected[row]:
                continue
            if not batches.intact[row] or (self.findings.at and self.findings.cost(batches.position[row])):
                batches.selected[row] = 0
                self._tally.records -= batches.record_sum[row] if chunk.resumed else 0
                continue
            if chunk.resumed:
                continue
            self._tally.records += batches.record_sum[row]
            if self.findings.at and self.findings.spares_some(batches.position[row]):
                self._fresh[batches.position[row]] = repack_readable_records(chunk, row)
            if self._tally.first_offset is None:
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
            if errors.found:
                self._drop(batches, errors, row)
                for name, value in zip(_REMEMBERED, before, strict=True):
                    setattr(history, name, value)
                if known is not None:
                    history.producers.put(producer, known)
                else:
                    history.producers.drop(producer)

    def _drop(self, batches: BatchColumns, errors: Errors, first: int = 0) -> None:
        """Deselect the batches that have errors, from row ``first``."""
        if not errors.found:
            return
        about = {finding.position: finding for finding in errors.found}
        for row in range(first, batches.count):
            finding = about.pop(batches.position[row], None)
            if finding is not None:
                batches.selected[row] = 0
                self._tally.records -= batches.record_sum[row]
                self.findings(finding)
            if not about:
                return

    # --- writing ---

    def _write(self, window: Window) -> None:
        batches = window.batches
        row = 0
        while row < batches.count:
            if not batches.selected[row]:
                self._tally.dropped += 1
                self._fresh.pop(batches.position[row], None)
                row += 1
                continue
            stop = self._end_of_run(batches, row)
            self._write_run(window, row, stop)
            row = stop
        if len(self.findings.at) > REPORTED_AT_ONCE:
            # All but the last batch, for which the reader can still report findings.
            self._drop_batch(batches.position[batches.count - 1], None)

    def _end_of_run(self, batches: BatchColumns, row: int) -> int:
        """Return the end of the batches from ``row`` that can be copied in one piece; a corrected batch is alone."""
        found = self.findings.at
        alone = batches.position[row] in found
        row += 1
        while (
            not alone
            and row < batches.count
            and batches.selected[row]
            and not (found and batches.position[row] in found)
            and batches.position[row] == batches.position[row - 1] + batches.size[row - 1]
        ):
            row += 1
        return row

    def _write_run(self, window: Window, row: int, stop: int) -> None:
        batches, tally = window.batches, self._tally
        begin, end = batches.position[row], batches.position[stop - 1] + batches.size[stop - 1]
        if begin > self._covered:
            wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
            self._drop_batch(begin, None if wrapper else batches.base_offset[row])
        data: Any = window.view[batches.at[row] : batches.at[row] + end - begin]
        if begin in self._fresh:
            data = self._salvaged(self._fresh.pop(begin), batches, row)
        elif begin in self.findings.at:
            data = self._corrected_header(bytearray(data), batches, row)
        written = tally.bytes_after
        if self._out is not None:
            self._out.write(data)
        tally.bytes_after += len(data)
        tally.kept += stop - row
        tally.last_offset = batches.last_offset[stop - 1]
        self._covered = end
        self.findings.forget(end)
        if self._epochs is not None:
            self._epochs.correct_window(batches, row, stop, written)

    def _corrected_header(self, entry: bytearray, batches: BatchColumns, row: int) -> bytearray:
        magic, position = batches.magic[row], batches.position[row]
        entry[SIZE_AT : SIZE_AT + 4] = (len(entry) - LOG_OVERHEAD).to_bytes(4, "big")
        entry[MAGIC_AT] = magic
        for finding in self.findings.at.pop(position):
            if finding.rule == "max-timestamp-mismatch":
                at, crc_at = (MAX_TIMESTAMP_AT, CRC_AT) if magic >= 2 else (V1_TIMESTAMP_AT, LEGACY_CRC_AT)
                entry[at : at + 8] = finding.facts["actual"].to_bytes(8, "big", signed=True)
                crc = framing.batch_crc(memoryview(entry), 0, len(entry), magic)
                entry[crc_at : crc_at + 4] = crc.to_bytes(4, "big")
            self._report_corrected(finding, batches, row)
        return entry

    def _salvaged(self, fresh: RepackedBatch, batches: BatchColumns, row: int) -> bytes:
        position, tally = batches.position[row], self._tally
        found = self.findings.at.pop(position)
        finding = next(one for one in found if one.rule in SALVAGEABLE)
        for mended in found:
            if mended.rule not in SALVAGEABLE and mended.rule != "max-timestamp-mismatch":
                self._report_corrected(mended, batches, row)
        behind = fresh.last_offset + 1
        first, last = (behind, batches.last_offset[row]) if behind <= batches.last_offset[row] else (None, None)
        tally.salvaged += 1
        if tally.first_lost_offset is None:
            tally.first_lost_offset = behind
        self._tell(
            PartialBatch(tally.source, position, position + batches.size[row], first, last, finding.rule, message(finding),
                    fresh.records, fresh.offset, fresh.last_offset)
        )  # fmt: skip
        return fresh.data

    def _report_corrected(self, finding: Finding, batches: BatchColumns, row: int) -> None:
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        first = None if wrapper else batches.base_offset[row]
        begin, end = batches.position[row], batches.position[row] + batches.size[row]
        why = message(finding)
        self._tally.mended += 1
        self._tell(CorrectedBatch(self._tally.source, begin, end, first, batches.last_offset[row], finding.rule, why))

    # --- losses ---

    def _drop_batch(self, end: int, next_offset: int | None) -> None:
        """Report the bytes from the last kept batch to ``end``, where the batch of ``next_offset`` or the file's end is."""
        begin = self._covered
        if begin >= end:
            return
        self._covered = end
        unknown = Finding("lost-bytes", begin, end, facts={"bytes": end - begin, "why": "no entry begins there"})
        findings = self.findings.pop(begin, end)
        if not findings or (findings[0].position or 0) > begin:
            findings.insert(0, unknown)
        stretches = []
        for i, finding in enumerate(findings):
            stop = end if i + 1 == len(findings) else findings[i + 1].position or 0
            start = max(begin, finding.position or 0)
            if stop > start:
                stretches.append(replace(finding, position=start, end=stop))
        low = self._limits.name_offset or 0 if self._tally.last_offset is None else self._tally.last_offset + 1
        high = None if next_offset is None else next_offset - 1
        for finding, offsets in zip(stretches, lost_offsets(stretches, low, high), strict=True):
            self._report_lost(finding, low, offsets)

    def _report_lost(self, finding: Finding, low: int, offsets: tuple[int | None, int | None]) -> None:
        tally = self._tally
        begin, end = finding.position or 0, finding.end or 0
        why = message(finding)
        first, last = offsets
        if finding.rule == "zero-tail":
            if self._following is None or self._following <= low:
                tally.zeros += end - begin
                return
            first, last = low, self._following - 1
            why += f"; but the next segment begins at offset {self._following}: they stand where batches were"
        tally.lost_to = end
        tally.lost_ranges += 1
        tally.lost_bytes += end - begin
        if tally.first_lost_offset is None:
            tally.first_lost_offset = low
        self._tell(LostRange(tally.source, begin, end, first, last, finding.rule, why))


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
