"""Write the kept batches of a segment, corrected where that is proved, and report what is lost between them."""

from __future__ import annotations

from typing import IO, Any

from kseg.commands.repair.copied_batches import CopiedBatches
from kseg.commands.repair.leader_epochs import EpochCorrector
from kseg.commands.repair.report import (
    REWRITTEN,
    SALVAGEABLE,
    BatchFindings,
    CorrectedBatch,
    LostRange,
    OffsetGap,
    PartialBatch,
    ReportLine,
    SegmentRepair,
    lost_offsets,
    message,
)
from kseg.commands.repair.salvage_records import RepackedBatch
from kseg.findings import Finding
from kseg.format.record import framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    SIZE_AT,
    V1_TIMESTAMP_AT,
)
from kseg.format.segment.reader import Window
from kseg.format.writer import batch_rows

# The number of losses that wait for the next valid batch, which shows the lost offsets. More are reported without it.
REPORTED_AT_ONCE = 1000


class KeptBatches:
    """Writes the selected batches to ``out`` (None: only report), and counts them in ``tally``.

    ``following`` is the base offset of the next segment, ``name_offset`` that of this one, None if unknown. ``repacked`` has
    the batches that replace others, by their positions. ``copied`` are the v2 batches that were written unchanged.
    """

    def __init__(
        self,
        out: IO[bytes] | None,
        tally: SegmentRepair,
        findings: BatchFindings,
        report: ReportLine,
        epochs: EpochCorrector | None,
        *,
        name_offset: int | None,
        following: int | None,
    ) -> None:
        self.repacked: dict[int, RepackedBatch] = {}
        self.copied = CopiedBatches()
        self.findings = findings
        self._out = out
        self._tally = tally
        self._report = report
        self._epochs = epochs
        self._name_offset = name_offset
        self._following = following
        self._covered = 0  # the position after the last kept batch in the source

    def finish(self, end: int) -> None:
        """Report the losses before the end of the source, and correct the last leader epochs."""
        self._drop_batch(end, self._following)
        if self._epochs is not None:
            self._epochs.finish()
            self._tally.last_epoch = self._epochs.last

    def write(self, window: Window) -> None:
        batches = window.batches
        row = 0
        while row < batches.count:
            if not batches.selected[row]:
                self._tally.dropped += 1
                self.repacked.pop(batches.position[row], None)
                row += 1
                continue
            stop = batch_rows.end_of_selected(batches, row, self.findings.at)
            self._write_run(window, row, stop)
            row = stop
        if len(self.findings.at) > REPORTED_AT_ONCE:
            # All but the last batch, for which the reader can still report findings.
            self._drop_batch(batches.position[batches.count - 1], None)

    def _write_run(self, window: Window, row: int, stop: int) -> None:
        batches, tally = window.batches, self._tally
        begin, end = batches.position[row], batches.position[stop - 1] + batches.size[stop - 1]
        if begin > self._covered:
            wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
            self._drop_batch(begin, batches.first_record_offset[row] if wrapper else batches.base_offset[row])
        data: Any = window.view[batches.at[row] : batches.at[row] + end - begin]
        if begin in self.repacked:
            data = self._salvaged(self.repacked.pop(begin), batches, row)
        elif begin in self.findings.at:
            data = self._corrected_header(bytearray(data), batches, row)
        elif batches.magic[row] >= 2:
            self.copied.append(batches, row, stop)
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
                at = MAX_TIMESTAMP_AT if magic >= 2 else V1_TIMESTAMP_AT
                entry[at : at + 8] = finding.facts["actual"].to_bytes(8, "big", signed=True)
            elif finding.rule == "claimed-codec":
                entry[ATTRIBUTES_AT + 1 if magic >= 2 else LEGACY_ATTRIBUTES_AT] &= ~CODEC_MASK
            if finding.rule in REWRITTEN:
                crc_at = CRC_AT if magic >= 2 else LEGACY_CRC_AT
                crc = framing.batch_crc(memoryview(entry), 0, len(entry), magic)
                entry[crc_at : crc_at + 4] = crc.to_bytes(4, "big")
            self._report_corrected(finding, batches, row)
        return entry

    def _salvaged(self, repacked: RepackedBatch, batches: BatchColumns, row: int) -> bytes:
        position, tally = batches.position[row], self._tally
        found = self.findings.at.pop(position)
        finding = next(one for one in found if one.rule in SALVAGEABLE)
        for mended in found:
            if mended.rule not in SALVAGEABLE and mended.rule not in REWRITTEN:
                self._report_corrected(mended, batches, row)
        next_offset = repacked.last_offset + 1
        first, last = (
            (next_offset, batches.last_offset[row]) if next_offset <= batches.last_offset[row] else (None, None)
        )
        tally.salvaged += 1
        if tally.first_lost_offset is None:
            tally.first_lost_offset = next_offset
        self._report(
            PartialBatch(tally.source, position, position + batches.size[row], first, last, finding.rule, message(finding),
                    repacked.records, repacked.offset, repacked.last_offset)
        )  # fmt: skip
        return repacked.data

    def _report_corrected(self, finding: Finding, batches: BatchColumns, row: int) -> None:
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        first = None if wrapper else batches.base_offset[row]
        begin, end = batches.position[row], batches.position[row] + batches.size[row]
        why = message(finding)
        self._tally.mended += 1
        self._report(CorrectedBatch(self._tally.source, begin, end, first, batches.last_offset[row], finding.rule, why))

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
        ranges = []
        for i, finding in enumerate(findings):
            stop = end if i + 1 == len(findings) else findings[i + 1].position or 0
            start = max(begin, finding.position or 0)
            if stop > start:
                ranges.append(finding._replace(position=start, end=stop))
        low = self._name_offset or 0 if self._tally.last_offset is None else self._tally.last_offset + 1
        high = None if next_offset is None else next_offset - 1
        lost = lost_offsets(ranges, low, high)
        for finding, offsets in zip(ranges, lost, strict=True):
            self._report_lost(finding, low, offsets)
        named = {(first, last) for first, last in lost if first is not None and last is not None}
        if high is not None and low <= high and sum(last - first + 1 for first, last in named) < high - low + 1:
            why = "the result has no batch between those before and after the lost bytes"
            self._report(OffsetGap(self._tally.source, begin, end, low, high, "missing-batches", why))

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
        self._report(LostRange(tally.source, begin, end, first, last, finding.rule, why))
