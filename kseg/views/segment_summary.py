"""The row of a segment: versions, codecs, offsets, times, counts, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

from kseg.commands.validate.validate import validate_segment
from kseg.findings import do_nothing
from kseg.format.checks.claimed_offsets import ClaimedOffsets
from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, DELETE_HORIZON, NO_TIMESTAMP
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.source import SegmentFile
from kseg.results import FileResult, Settings
from kseg.schema import Row


@dataclass(slots=True)
class _SummaryFacts:
    magics: set[int] = field(default_factory=set)
    codecs: set[int] = field(default_factory=set)
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    any: bool = False
    offsets: ClaimedOffsets | None = None
    claimed: set[int] = field(default_factory=set)

    def __call__(self, chunk: Chunk) -> None:
        if self.offsets and not chunk.first and not chunk.resumed:
            self.claimed = self.offsets.update(chunk.batches)
        for row in range(chunk.first, chunk.stop):
            if chunk.batches.selected[row]:
                self._update(chunk.batches, row)

    def _update(self, batches: BatchColumns, row: int) -> None:
        magic, attributes, last = batches.magic[row], batches.attributes[row], batches.last_offset[row]
        self.magics.add(magic)
        self.codecs.add(attributes & CODEC_MASK)
        if batches.position[row] not in self.claimed:
            if not self.any:
                self.any = True
                self.first_offset = None if magic < 2 and attributes & CODEC_MASK else batches.base_offset[row]
            self.last_offset = last if self.last_offset is None else max(last, self.last_offset)
        shown = [batches.max_timestamp[row]]
        if not (magic >= 2 and attributes & DELETE_HORIZON):
            shown.append(batches.base_timestamp[row])
        for timestamp in shown:
            if timestamp != NO_TIMESTAMP:
                known = self.min_timestamp is not None
                self.min_timestamp = min(timestamp, self.min_timestamp) if known else timestamp  # type: ignore[type-var]
                self.max_timestamp = max(timestamp, self.max_timestamp) if known else timestamp  # type: ignore[type-var]


def segment_row(file: SegmentFile, size: int | None, settings: Settings) -> Row:
    """Return the row of SEGMENT_TABLE for one file; ``size`` in bytes, None if unknown before reading."""
    return result_and_row(file, size, settings)[1]


def result_and_row(file: SegmentFile, size: int | None, settings: Settings) -> tuple[FileResult, Row]:
    """Return the result of ``validate_segment`` and the row of SEGMENT_TABLE."""
    facts = _SummaryFacts(offsets=ClaimedOffsets(file.path, do_nothing))
    result = validate_segment(file, settings, watch=facts)
    summary = result.summary
    return result, {
        "file": file.path,
        "size": summary.bytes if size is None else size,
        "active": file.active,
        "magics": sorted(facts.magics),
        "compressions": [codec_name(codec) for codec in sorted(facts.codecs)],
        "batches": summary.batches,
        "records": summary.records,
        "first_offset": facts.first_offset,
        "last_offset": facts.last_offset,
        "min_timestamp": facts.min_timestamp,
        "max_timestamp": facts.max_timestamp,
        "errors": summary.errors,
        "warnings": summary.warnings,
        "infos": summary.infos,
        "lost_bytes": summary.lost_bytes,
        "verdict": summary.verdict,
        "unread": result.unread,
    }
