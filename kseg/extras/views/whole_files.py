"""Read the views that need all of a segment or of a folder: findings, segments and transactions.

The row of a segment: versions, codecs, offsets, times, counts, and the verdict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby

from kseg import schema
from kseg.commands.transactions import MAX_TRANSACTION_MS, Transaction, items_of
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate import validate_segment
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, NotASegmentError, UnreadableError
from kseg.extras.views.planned_transactions import MOST_EVENTS, EventCollector
from kseg.extras.views.split_rows import Damaged, DamagePolicy, Task, as_arrow, damage_line, keeps_damage
from kseg.extras.views.splits import Split
from kseg.extras.views.view_table import UNREAD
from kseg.extras.views.zone_maps import EVENT_COLUMNS, ZoneCollector
from kseg.findings import Finding, do_nothing
from kseg.format.checks.claimed_offsets import ClaimedOffsets
from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, DELETE_HORIZON, NO_TIMESTAMP
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Stamp, stamp_of, stamp_text, stored_size
from kseg.report.arrow_table import pa
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
    zones: ZoneCollector = field(default_factory=ZoneCollector)
    events: EventCollector = field(default_factory=EventCollector)
    end: int = 0

    def has_read(self, chunk: Chunk) -> bool:
        """Return whether a chunk begins before the end of the last one: the file has changed, and is read again."""
        return not chunk.resumed and chunk.batches.position[chunk.first] < self.end

    def __call__(self, chunk: Chunk) -> None:
        self.zones(chunk)
        if self.zones.certain and len(self.events.columns[0]) <= MOST_EVENTS:
            self.events.add_chunk(chunk, chunk.batches.selected)
        last = chunk.stop - 1
        self.end = chunk.batches.position[last] + chunk.batches.size[last]
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
                self.first_offset = None if is_wrapper(batches, row) else batches.base_offset[row]
            self.last_offset = last if self.last_offset is None else max(last, self.last_offset)
        shown = [batches.max_timestamp[row]]
        if not (magic >= 2 and attributes & DELETE_HORIZON):
            shown.append(batches.base_timestamp[row])
        for timestamp in shown:
            if timestamp != NO_TIMESTAMP:
                known = self.min_timestamp is not None
                self.min_timestamp = min(timestamp, self.min_timestamp) if known else timestamp  # type: ignore[type-var]
                self.max_timestamp = max(timestamp, self.max_timestamp) if known else timestamp  # type: ignore[type-var]

    def kept(self) -> Row:
        """Return what an inventory keeps of a sound segment: its zone map, and the events of its transactions."""
        known = self.zones.certain and len(self.events.columns[0]) <= MOST_EVENTS
        events = (column.tolist() if known else None for column in self.events.columns)
        return {**self.zones.columns(), **dict(zip(EVENT_COLUMNS, events, strict=True))}


def result_and_row(file: SegmentFile, size: int | None, settings: Settings) -> tuple[FileResult, Row]:
    """Return the result of ``validate_segment``, and the row of SEGMENT_TABLE.

    ``size`` is in bytes, None if it is unknown before reading.
    """
    facts = _SummaryFacts(offsets=ClaimedOffsets(file.path, do_nothing))

    def watch(chunk: Chunk) -> None:
        nonlocal facts
        if facts.has_read(chunk):
            facts = _SummaryFacts(offsets=ClaimedOffsets(file.path, do_nothing))
        facts(chunk)

    stamp = _stamp(file.path)
    result = validate_segment(file, settings, add_progress, watch)
    summary = result.summary
    whole = not (result.unread or summary.errors) and summary.verdict == "sound" and _stamp(file.path) == stamp
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
        "stamp": stamp_text(stamp),
        **(facts.kept() if whole else {}),
    }


def _stamp(path: str) -> Stamp:
    """Return the stamp of a file, None if it was deleted. Raises UnreadableError: a read error is never a missing map."""
    found = stamp_of(path)
    return stamp_of(path) if found is None and stored_size(path) is not None else found


#: Findings of one rule in one file that the findings view shows; the segments view counts all.
MAX_PER_RULE = 1000


def read_findings(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the findings of ``validate`` folder by folder. An unreadable file is a row, too."""
    return as_arrow(task, _finding_rows(task, split))


def _finding_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=MAX_PER_RULE)
    files = [piece.file for piece in split.pieces]
    for result in check_folders(files, settings, validate_files(files, settings)):
        _report_unread(task, result)
        for verdict in result.verdicts:
            yield verdict.as_row()
        if result.unlisted_error:
            yield {"file": result.file, "message": result.unlisted_error}


def read_segments(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    return as_arrow(task, _segment_rows(task, split))


def _segment_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    settings = Settings(verify_crc=task.request.verify_crc, max_per_rule=1)
    for piece in split.pieces:
        result, row = result_and_row(piece.file, piece.size, settings)
        _report_unread(task, result)
        yield row


def read_transactions(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the transactions of each partition, the open ones last."""
    return as_arrow(task, _transaction_rows(task, split))


def _transaction_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    now = time.time_ns() // 1_000_000
    policies = {piece.file.path: DamagePolicy(piece, task) for piece in split.pieces}
    unreadable: list[str] = []

    def report(path: str, finding: Finding) -> None:
        policies[path](finding)

    def unread(error: KsegError) -> None:
        if isinstance(error, Damaged) or (isinstance(error, NotASegmentError) and task.request.mode == "failfast"):
            raise Damaged(str(error))
        task.notices.unread(error)
        if keeps_damage(task):
            unreadable.append(str(error))

    for folder, pieces in groupby(split.pieces, key=lambda piece: os.path.dirname(piece.file.path)):
        files = (piece.file for piece in pieces)
        for item in items_of(files, now, MAX_TRANSACTION_MS // 1000, report, unread):
            if isinstance(item, Transaction):
                yield asdict(item)
        yield from ({"folder": folder, "damage": UNREAD + reason} for reason in unreadable)
        unreadable.clear()
    for path, policy in policies.items():
        folder, name = os.path.split(path)
        for row in policy.rows:
            yield {"folder": folder, "damage": damage_line(name, row)}


def _report_unread(task: Task, result: FileResult) -> None:
    if result.read_error:
        task.notices.unread(UnreadableError(result.read_error))
    elif result.unread and task.request.mode == "failfast":
        raise Damaged(result.unread)
    elif result.unread:
        task.notices.unread(NotASegmentError(result.unread))
