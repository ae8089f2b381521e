"""Write the batches that ``batch_selection`` keeps, corrected where that is proved, and report the losses between them.

``CopiedBatches`` sums headers, by which a repair recognises its own copies: the CRC of a batch is computed when it is
read from the source and again when the result is read back. A batch with the same header and the same valid CRC is the
same batch, whose records were decoded and checked in the source.

``kseg repair --salvage-records`` replaces a batch with a right CRC and faulty records by its ``salvaged_records``.
The new batch has the header of the old one: the same last offset, as after compaction, producer, sequences, and the same
timestamp type. Missing records are not replaced.

The valid batches of a segment that are not in its repaired copy are written to a file next to it. Such a batch has a right
CRC, but its base offset, which no CRC covers, contradicts other batches and nothing proves the right one, or a check finds
an error in it. The file has the batches as they are in the source; ``kseg dump`` reads it, a broker does not. A second copy
of a batch that is in the result is not written: its records are in the result.
"""

from __future__ import annotations

import shutil
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kseg.commands.repair.repair_losses import (
    REWRITTEN,
    SALVAGEABLE,
    BatchFindings,
    CorrectedBatch,
    DuplicateBatch,
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
    ReportLine,
    SegmentRepair,
    UnplacedBatch,
    lost_offsets,
    reached,
)
from kseg.commands.repair.repaired_checkpoints import EpochCorrector, EpochEvidence
from kseg.commands.repair.segment_places import SegmentPlace
from kseg.findings import RULES, Finding, Policy, Severity
from kseg.format.checks.batch_checks import EPOCH_RULES, CheckSettings
from kseg.format.record import framing, layout
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.atomic_write import sync, writing
from kseg.format.storage.local_files import open_file
from kseg.format.storage.naming import UNPLACED
from kseg.format.storage.source import open_source
from kseg.format.writer import rewritten_rows
from kseg.format.writer.records_builder import RepackedBatch


def unplaced_path(log: Path) -> Path:
    """Return the path of the file with the unplaced batches of a log."""
    return log.with_name(log.name.removesuffix(".log") + UNPLACED)


def append_unplaced(source: Path, target: Path) -> None:
    """Add the batches that an earlier repair left out to those of this one."""
    with writing(target), open_file(str(source), named=False) as original, target.open("ab") as out:
        shutil.copyfileobj(original, out)
        out.flush()
        sync(out.fileno())


class UnplacedBatches:
    """Writes dropped batches to ``out`` (None: only report). ``kinds`` are the rows that report them, by their positions.

    ``copies`` are the positions of the batches that are in the result from another place. ``read`` are the lowest and the
    highest offset of the records that are read in faulty batches.
    """

    def __init__(self, out: IO[bytes] | None) -> None:
        self.kinds: dict[int, type[LostRange]] = {}
        self.read: dict[int, tuple[int, int]] = {}
        self._out = out
        self.copies: Container[int] = ()

    def add_read(self, chunk: Chunk, row: int) -> None:
        """Remember the offsets of the records of a faulty batch; a set of messages needs as many as it has messages."""
        batches = chunk.batches
        position, offsets = batches.position[row], [chunk.records.offset[i] for i in chunk.rows(row)]
        if offsets:
            known = self.read.get(position, (offsets[0], offsets[0] + batches.record_sum[row] - 1))
            self.read[position] = min(known[0], *offsets), max(known[1], *offsets)

    def append(self, window: Window, row: int) -> None:
        """Write a batch, unless its CRC is wrong. A size or a magic that the CRC proves is corrected."""
        batches = window.batches
        if batches.crc_state[row] == CRC_BAD:
            return
        position, at = batches.position[row], batches.at[row]
        if position in self.copies:
            self.kinds[position] = DuplicateBatch
            return
        self.kinds[position] = UnplacedBatch
        if self._out is not None:
            data = bytearray(window.view[at : at + batches.size[row]])
            data[layout.SIZE_AT : layout.SIZE_AT + 4] = (len(data) - layout.LOG_OVERHEAD).to_bytes(4, "big")
            data[layout.MAGIC_AT] = batches.magic[row]
            self._out.write(data)

    def forget(self, end: int) -> None:
        """Drop the kinds of the batches before ``end``, which are reported."""
        self.kinds = {position: kind for position, kind in self.kinds.items() if position >= end}
        self.read = {position: offsets for position, offsets in self.read.items() if position >= end}

    def append_all(self, source: str) -> int:
        """Write all valid batches of a segment; return their number. Raises KsegError from reading."""
        with SegmentReader(open_source(source)) as reader:
            for window in reader.windows():
                for row in range(window.batches.count):
                    self.append(window, row)
        return len(self.kinds)


#: The fields that the CRC does not cover, and the CRC itself. A wrong size makes the CRC wrong.
_FIELDS = ("base_offset", "partition_leader_epoch", "crc")


@dataclass(slots=True)
class CopiedBatches:
    """The number of batches of a log, and a sum over each field in their order."""

    count: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FIELDS, 0))

    def append(self, batches: BatchColumns, row: int, stop: int) -> None:
        """Add the batches ``row`` to ``stop`` (exclusive)."""
        for name in _FIELDS:
            self.sums[name] = crc32c(memoryview(getattr(batches, name))[row:stop].cast("B"), self.sums[name])
        self.count += stop - row


# The number of losses that wait for the next valid batch, which shows the lost offsets. More are reported without it.
REPORTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """The repair of one segment: its inputs and its outputs.

    The batches of the result are written to ``out``, which must be seekable, and the other valid ones to ``unplaced``; with
    None they are only reported. ``ceiling`` is the first offset of the next segment, or the first offset without a 32-bit
    relative offset. ``place`` is the segment's place in its partition, ``epochs`` are the leader epochs of other files.
    """

    tally: SegmentRepair
    limits: CheckSettings
    policy: Policy
    report: ReportLine
    place: SegmentPlace
    epochs: EpochEvidence
    ceiling: int | None
    salvage_records: bool
    out: IO[bytes] | None
    unplaced: IO[bytes] | None


class KeptBatches:
    """Writes the selected batches of a segment, and counts them in the tally.

    ``repacked`` has the batches that replace others, by their positions. ``copied`` are the v2 batches that were written
    unchanged, ``unplaced`` receives the others that are valid.
    """

    def __init__(self, task: SegmentTask, findings: BatchFindings) -> None:
        self.repacked: dict[int, RepackedBatch] = {}
        self.copied = CopiedBatches()
        self.findings = findings
        self.unplaced = UnplacedBatches(task.unplaced)
        self._task = task
        self._tally = task.tally
        self._report = task.report
        is_error = {rule: task.policy.severity(RULES[rule]) >= Severity.ERROR for rule in EPOCH_RULES}
        self._epochs = None
        if any(is_error.values()):
            negative = is_error["negative-leader-epoch"]
            self._epochs = EpochCorrector(task.out, task.tally, task.report, around=task.epochs, negative=negative)
        self._covered = 0  # the position after the last kept batch in the source
        self._last_record: int | None = None  # the highest offset of a record in the last kept batch

    def finish(self, end: int, log_end: int | None) -> None:
        """Report the losses before the end of the source, and correct the last leader epochs.

        ``log_end`` is that of the segment if its last batches are of another log.
        """
        place = self._task.place
        known = log_end if place.following is None else place.following
        self._drop_batch(end, known if place.named_end <= self._next_offset else place.named_end)
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
                self.unplaced.append(window, row)
                row += 1
                continue
            stop = rewritten_rows.end_of_selected(batches, row, self.findings.at)
            self._write_run(window, row, stop)
            row = stop
        if len(self.findings.at) > REPORTED_AT_ONCE:
            # All but the last batch, for which the reader can still report findings.
            self._drop_batch(batches.position[batches.count - 1], None)

    def _write_run(self, window: Window, row: int, stop: int) -> None:
        batches, tally = window.batches, self._tally
        begin, end = batches.position[row], batches.position[stop - 1] + batches.size[stop - 1]
        if not tally.kept:
            tally.intact_start = not begin
        if begin > self._covered:
            wrapper = is_wrapper(batches, row)
            self._drop_batch(begin, batches.first_record_offset[row] if wrapper else batches.base_offset[row])
        data: Any = window.view[batches.at[row] : batches.at[row] + end - begin]
        if begin in self.repacked:
            data = self._salvaged(self.repacked.pop(begin), batches, row)
        elif begin in self.findings.at:
            data = self._corrected_header(bytearray(data), batches, row)
        elif batches.magic[row] >= 2:
            self.copied.append(batches, row, stop)
        written = tally.bytes_after
        if self._task.out is not None:
            self._task.out.write(data)
        tally.bytes_after += len(data)
        tally.kept += stop - row
        tally.last_offset = self._last_record = batches.last_offset[stop - 1]
        if batches.record_total[stop - 1]:
            self._last_record = batches.last_record_offset[stop - 1]
        self._covered = end
        self.findings.forget(end)
        if self._epochs is not None:
            self._epochs.correct_window(batches, row, stop, written)

    def _corrected_header(self, entry: bytearray, batches: BatchColumns, row: int) -> bytearray:
        magic, position = batches.magic[row], batches.position[row]
        entry[layout.SIZE_AT : layout.SIZE_AT + 4] = (len(entry) - layout.LOG_OVERHEAD).to_bytes(4, "big")
        entry[layout.MAGIC_AT] = magic
        for finding in self.findings.at.pop(position):
            if finding.rule == "max-timestamp-mismatch":
                at = layout.MAX_TIMESTAMP_AT if magic >= 2 else layout.V1_TIMESTAMP_AT
                entry[at : at + 8] = finding.facts["actual"].to_bytes(8, "big", signed=True)
            elif finding.rule == "claimed-codec":
                entry[layout.ATTRIBUTES_AT + 1 if magic >= 2 else layout.LEGACY_ATTRIBUTES_AT] &= ~layout.CODEC_MASK
            if finding.rule in REWRITTEN:
                crc_at = layout.CRC_AT if magic >= 2 else layout.LEGACY_CRC_AT
                crc = framing.batch_crc(memoryview(entry), 0, len(entry), magic)
                entry[crc_at : crc_at + 4] = crc.to_bytes(4, "big")
            self._report_corrected(finding, batches, row)
        return entry

    def _salvaged(self, repacked: RepackedBatch, batches: BatchColumns, row: int) -> bytes:
        position, tally = batches.position[row], self._tally
        found, end = self.findings.at.pop(position), position + batches.size[row]
        finding = next(one for one in found if one.rule in SALVAGEABLE)
        for mended in found:
            if mended.rule not in SALVAGEABLE and mended.rule not in REWRITTEN:
                self._report_corrected(mended, batches, row)
        lost = repacked.lost_ranges(batches.last_offset[row])
        first, last = lost[0] if lost else (None, None)
        tally.salvaged += 1
        if tally.first_lost_offset is None:
            tally.first_lost_offset = repacked.last_offset + 1 if first is None else first
        why = finding.message
        if len(lost) > 1:
            each = (str(low) if low == high else f"{low}..{high}" for low, high in lost)
            why += f"; lost are offsets {', '.join(each)}"
        row_of = tally.source, position, end, first, last, finding.rule, why
        self._report(PartlyKeptBatch(*row_of, repacked.records, repacked.offset, repacked.last_offset))
        for low, high in lost[1:]:
            self._report(OffsetGap(tally.source, position, end, low, high, finding.rule, why))
        return repacked.data

    def _report_corrected(self, finding: Finding, batches: BatchColumns, row: int) -> None:
        first = None if is_wrapper(batches, row) else batches.base_offset[row]
        begin, last = batches.position[row], batches.last_offset[row]
        place = self._tally.source, begin, begin + batches.size[row], first, last
        self._tally.mended += 1
        self._report(CorrectedBatch(*place, finding.rule, finding.message))

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
        kinds = self.unplaced.kinds
        for finding in [one for one in ranges if kinds.get(one.position or 0) is DuplicateBatch]:
            ranges.remove(finding)
            self._tally.duplicates += 1
            place = self._tally.source, finding.position or 0, finding.end or 0
            self._report(DuplicateBatch(*place, None, None, finding.rule, finding.message))
        low = self._next_offset
        first, kept = ranges[0].offset if ranges else None, self._last_record
        if first is not None and kept is not None and kept < first < low:
            low = first  # the kept batch lacks records at the offsets that its header shares with this one
        high = None if next_offset is None else next_offset - 1
        lost = lost_offsets(ranges, low, high)
        for finding, offsets in zip(ranges, lost, strict=True):
            known = self.unplaced.read.get(finding.position or 0, offsets) if offsets[1] is None else offsets
            self._report_lost(finding, low, known)
        self.unplaced.forget(end)
        named = {(first, last) for first, last in lost if first is not None and last is not None}
        count = sum(last - first + 1 for first, last in named)
        if ranges and high is not None and low <= high and count < high - low + 1:
            why = "the result has no batch between those before and after the lost bytes"
            self._report(OffsetGap(self._tally.source, begin, end, low, high, "missing-batches", why))

    @property
    def _next_offset(self) -> int:
        """Return the offset after the last kept batch."""
        last = self._tally.last_offset
        return self._task.limits.name_offset or 0 if last is None else last + 1

    def _report_lost(self, finding: Finding, low: int, offsets: tuple[int | None, int | None]) -> None:
        tally = self._tally
        begin, end = finding.position or 0, finding.end or 0
        why = finding.message
        first, last = offsets
        if finding.rule == "zero-tail":
            following = self._task.place.following
            if following is None or following <= low:
                tally.zeros += end - begin
                return
            first, last = low, following - 1
            why += f"; but the next segment begins at offset {following}: they stand where batches were"
        tally.lost_to = end
        tally.lost_ranges += 1
        tally.lost_bytes += end - begin
        if tally.first_lost_offset is None:
            tally.first_lost_offset = low
        if last is not None:
            tally.lost_end = last + 1
        if last is not None and last + 1 == self._task.place.named_end and last != finding.last_offset:
            why += f"; {reached(last + 1)}"
        row = self.unplaced.kinds.get(begin, LostRange)
        tally.unplaced += row is UnplacedBatch
        self._report(row(tally.source, begin, end, first, last, finding.rule, why))
