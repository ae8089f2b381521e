"""Read a split in a task: batches become rows of a view, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from kseg import schema
from kseg.commands.dump.framed import framed_rows
from kseg.commands.dump.row_filter import RowFilter
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.parallel import validate_files
from kseg.errors import KsegError
from kseg.findings import RULES, Finding, Severity, Verdict
from kseg.format.checks.run_checks import policy_for
from kseg.format.internal_topics.recognise import internal_topic
from kseg.format.segment import rows
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.objects import record_batch
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.storage.source import open_source, open_split
from kseg.report.arrow_parts import pa, pc
from kseg.report.arrow_rows import BATCH_ROWS, Place, RecordRows, from_rows, payload_runs
from kseg.results import Settings
from kseg.spark.source.options import Options, RowLimits
from kseg.spark.source.planning import SegmentRange, Split, reads_committed
from kseg.spark.source.segment_summary import segment_row
from kseg.spark.source.views import FINDINGS, VIEWS

#: Findings of one rule in one file that the findings view shows; the segments view counts all.
MAX_PER_RULE = 1000


class Damaged(KsegError):
    """Damage was found with mode=failfast."""


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of a view's reader: the options, and the limits of options and pushed filters."""

    options: Options
    limits: RowLimits

    @property
    def filter(self) -> RowFilter:
        """The limits of batches."""
        limits = self.limits
        return RowFilter(limits.first_offset, limits.end_offset, limits.since, limits.until)


def read(options: Options, limits: RowLimits, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split. Raises Damaged in failfast mode.

    In other modes unreadable data becomes rows or is left out.
    """
    module, _, function = VIEWS[options.view].reader.partition(":")
    reader = _framed if options.framing and options.view != FINDINGS else getattr(import_module(module), function)
    found: Iterator[pa.RecordBatch] = reader(Task(options, limits), split)
    return found


class DamagePolicy:
    """Receives the findings of a piece. By the mode it keeps them as rows, raises Damaged at the first, or drops
    them.
    """

    def __init__(self, piece: SegmentRange, mode: str) -> None:
        self.rows: list[schema.Row] = []
        self._piece = piece
        self._mode = mode
        self._policy = policy_for(piece.file, Settings())

    def __call__(self, finding: Finding) -> None:
        path = self._piece.file.path
        verdict = Verdict(path, self._policy.severity(RULES[finding.rule]), finding)
        if verdict.severity < Severity.ERROR:
            return
        self.add(f"{finding.rule}: {verdict.message}", finding.position, finding.offset)

    def add(self, what: str, position: int | None = None, offset: int | None = None) -> None:
        """Add a description of damage."""
        path = self._piece.file.path
        if self._mode == "failfast":
            raise Damaged(f"{path}: {'' if position is None else f'byte {position}: '}{what}")
        if self._mode == "permissive":
            self.rows.append({"file": path, "position": position, "offset": offset, "damage": what})

    def reported(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows kept so far with the task's columns, and drop them."""
        for at in range(0, len(self.rows), BATCH_ROWS):
            yield from_rows(task.options.columns, self.rows[at : at + BATCH_ROWS])
        self.rows.clear()


def read_records(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    bounds = _bounds(task.limits)
    wanted = task.options.columns
    # The columns that the bounds need are read, too, and removed from the result.
    hidden = [column for column in VIEWS["records"].columns if column.name in bounds and column not in wanted]
    gathered = RecordRows([*wanted, *hidden])
    for piece in split.pieces:
        damage = DamagePolicy(piece, task.options.mode)
        path = piece.file.path
        place = Place.of(path, internal_topic(path, task.options.decode_as))
        if piece.committed:
            place = replace(place, outcome=piece.committed.outcome)
        opener = DeepIterator(damage)
        try:
            for window in _windows(piece, task, damage):
                _skip_rows(window, _rows_to_skip(piece, task))
                for chunk in opener.chunks(window):
                    for data, first, stop in payload_runs(chunk):
                        for batch in gathered.add(place, chunk, data, first, stop):
                            yield _within(batch, bounds, len(wanted))
                if len(damage.rows) >= BATCH_ROWS:
                    yield from damage.reported(task)
        except Damaged:
            raise
        except KsegError as error:
            damage.add(str(error))
        yield from damage.reported(task)
    for batch in gathered.finish():
        yield _within(batch, bounds, len(wanted))


def _bounds(limits: RowLimits) -> dict[str, tuple[int | None, int | None]]:
    """Return the columns that the limits bound, with their bounds."""
    bounds = {"offset": (limits.first_offset, limits.end_offset), "timestamp_ms": (limits.since, limits.until)}
    return {name: bound for name, bound in bounds.items() if bound != (None, None)}


def _within(batch: Any, bounds: Mapping[str, tuple[int | None, int | None]], columns: int) -> Any:
    """Return the rows of a record batch within the bounds, with the first ``columns`` of its columns."""

    for name, (first, end) in bounds.items():
        if first is not None:
            batch = batch.filter(pc.greater_equal(batch.column(name), first))
        if end is not None:
            batch = batch.filter(pc.less(batch.column(name), end))
    return batch.select(range(columns)) if columns < batch.num_columns else batch


def _windows(piece: SegmentRange, task: Task, damage: DamagePolicy) -> Iterator[Window]:
    """Yield the windows of a piece. A batch at the edge of a piece has the same findings as in a whole file."""
    path, end = piece.file.path, piece.size if piece.end is None else piece.end
    source = open_source(path, listed=True) if end is None else open_split(path, piece.start, end)
    with SegmentReader(source, report=damage, verify_crc=task.options.verify_crc) as reader:
        yield from reader.windows()


def _rows_to_skip(piece: SegmentRange, task: Task) -> Callable[[Any, int], bool] | None:
    """Return a test for batches without requested records, None if all batches are requested."""
    keep, seen = task.filter, piece.committed if reads_committed(task.options) else None
    if seen is not None:
        return lambda batches, row: not (seen.accepts(batches, row) and keep.accepts_batch(batches, row))
    return None if keep == RowFilter() else lambda batches, row: not keep.accepts_batch(batches, row)


def _skip_rows(window: Window, unwanted: Callable[[Any, int], bool] | None) -> None:
    """Deselect the batches of which no record is wanted: the deep reader then skips them."""
    if unwanted is None:
        return
    batches = window.batches
    for row in range(batches.count):
        if unwanted(batches, row):
            batches.selected[row] = 0


def read_batches(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    found: list[schema.Row] = []
    keep = task.filter
    for piece in split.pieces:
        damage = DamagePolicy(piece, "failfast" if task.options.mode == "failfast" else "dropmalformed")
        try:
            for window in _windows(piece, task, damage):
                for row in range(window.batches.count):
                    if keep.accepts_batch(window.batches, row):
                        found.append(rows.batch_row(piece.file.path, record_batch(window.batches, row)))
                    if len(found) == BATCH_ROWS:
                        yield from_rows(task.options.columns, found)
                        found.clear()
        except Damaged:
            raise
        except KsegError as error:
            damage.add(str(error))
    if found:
        yield from_rows(task.options.columns, found)


def _framed(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files that are not logs, like ``kseg dump --as``."""
    options = task.options
    for piece in split.pieces:
        damage = DamagePolicy(
            piece, options.mode if options.view == "records" or options.mode == "failfast" else "dropmalformed"
        )
        found: list[schema.Row] = []
        try:
            for row in framed_rows(piece.file, damage, deep=options.view == "records", verify_crc=options.verify_crc):
                found.append(row)
                if len(found) == BATCH_ROWS:
                    yield from_rows(options.columns, found)
                    found.clear()
        except Damaged:
            raise
        except KsegError as error:
            damage.add(str(error))
        if found:
            yield from_rows(options.columns, found)
        yield from damage.reported(task)


def read_findings(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the findings of ``validate`` folder by folder. An unreadable file is a row, too."""
    settings = Settings(verify_crc=task.options.verify_crc, max_per_rule=MAX_PER_RULE)
    files = [piece.file for piece in split.pieces]
    found: list[schema.Row] = []
    for result in check_folders(files, settings, validate_files(files, settings)):
        found += [verdict.as_row() for verdict in result.verdicts]
        if result.unread:
            found.append({"file": result.file, "severity": "error", "message": result.unread})
        _fail_fast(task, result.unread)
        if len(found) >= BATCH_ROWS:
            yield from _whole_batches(task, found)
            found.clear()
    yield from _whole_batches(task, found)


def _whole_batches(task: Task, found: list[schema.Row]) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(found), BATCH_ROWS):
        yield from_rows(task.options.columns, found[at : at + BATCH_ROWS])


def read_segments(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    settings = Settings(verify_crc=task.options.verify_crc, max_per_rule=1)
    found = []
    for piece in split.pieces:
        found.append(segment_row(piece.file, piece.size, settings))
        _fail_fast(task, found[-1]["unread"])
    if found:
        yield from_rows(task.options.columns, found)


def _fail_fast(task: Task, unread: str | None) -> None:
    if unread and task.options.mode == "failfast":
        raise Damaged(unread)
