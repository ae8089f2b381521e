"""Read a split: batches become rows of a view, as Arrow record batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from kseg import schema
from kseg.commands.dump import framed_dump
from kseg.engine import imported
from kseg.errors import KsegError, LimitError, NotASegmentError, UnreadableError
from kseg.extras.serialization import record_decoder
from kseg.extras.serialization.schema_set import RegistryError
from kseg.extras.views.planning import Request, SegmentRange, Split, reads_committed
from kseg.extras.views.view_table import BATCHES, DAMAGE, FINDINGS, FIRST_OFFSET, UNREAD, VIEWS
from kseg.findings import READ_ERROR, RULES, Finding, Verdict, do_nothing, unreadable
from kseg.format.checks.run_checks import policy_for
from kseg.format.record.layout import INT64_MAX, INT64_MIN
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.row_filter import RowFilter
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.segment.transaction_events import drop_control_batches
from kseg.format.sidefiles.transaction_states import TransactionLogs
from kseg.format.storage import remote_files
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import SegmentFile, UnlessDeleted
from kseg.format.storage.source import check_same, internal_topic, open_source, open_split
from kseg.report.arrow_rows import gathered_rows
from kseg.report.arrow_table import BATCH_ROWS, ColumnPlace, batch_rows, from_rows, pa, pc
from kseg.results import Settings


class Damaged(KsegError):
    """Damage was found with mode=failfast."""


def fail_unread(error: KsegError) -> None:
    """Raise the error of a file that cannot be read: rows would be missing. A file that is not a segment has none."""
    if not isinstance(error, NotASegmentError):
        raise error


def as_error(error: KsegError, _: SegmentFile | None) -> KsegError:
    """Return the error: rows that were planned would be missing."""
    return error


@dataclass(frozen=True, slots=True)
class Notices:
    """Receives each finding with its file, and the error of each file that cannot be read. If ``unread`` returns, the read
    continues with the next file. ``encoded`` receives the names of text columns in which bytes are base64. ``deleted``
    returns the error to report of a file, None to leave it out: ``unless_deleted``, otherwise each error.
    """

    finding: Callable[[SegmentFile, Finding], object] = do_nothing
    unread: Callable[[KsegError], object] = fail_unread
    encoded: Callable[[str], object] = do_nothing
    deleted: UnlessDeleted = as_error


NO_NOTICES = Notices()


def as_planned(piece: SegmentRange) -> Iterable[SegmentRange]:
    """Return the part of a file that is read for a piece of a plan: the piece."""
    return (piece,)


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of a view's reader: the request, the limits of the request and of filters, and the notices.

    ``current`` returns the parts of files that have the batches of a piece of records or batches when it is read. With one,
    objects have the size that they have then.
    """

    request: Request
    limits: RowFilter
    notices: Notices = NO_NOTICES
    current: Callable[[SegmentRange], Iterable[SegmentRange]] = as_planned

    def pieces(self, split: Split) -> Iterator[SegmentRange]:
        """Yield the parts of files to read for a split."""
        return chain.from_iterable(map(self.current, split))


def read(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split. Raises Damaged in failfast mode, and in every mode what the notices raise.

    Without failfast damage is left out. It becomes rows if the column ``damage`` is requested, in permissive mode.
    """
    for file in (piece.file for piece in split if task.current is as_planned):
        if file.stored:
            remote_files.remember(file.path, file.stored)
    view = VIEWS[task.request.view]
    if task.request.framing and task.request.view != FINDINGS:
        return _as_arrow(task, _framed_rows(task, split))
    found: Iterator[Any] = imported(view.reader)(task, split)
    return found if view.unit == BATCHES else _as_arrow(task, found)


def keeps_damage(task: Task) -> bool:
    """Return whether the request wants damage as rows."""
    return task.request.mode == "permissive" and DAMAGE in task.request.columns


def damage_line(file: str, row: schema.Row) -> str:
    """Return the damage in a row of a DamagePolicy with its place, for views that have no columns for a place."""
    if row["damage"].startswith(UNREAD):
        return str(row["damage"])
    rule, _, message = row["damage"].partition(": ")
    place = "" if row["position"] is None else f" at byte {row['position']}"
    return f"{file}: {rule}{place}: {message}"


def report_unread(task: Task, error: KsegError, file: SegmentFile | None = None) -> KsegError | None:
    """Report a file that cannot be read, and return the error; None if the file is left out.

    Raises Damaged in failfast mode if its bytes are not those of a log.
    """
    if isinstance(error, NotASegmentError) and task.request.mode == "failfast":
        raise Damaged(str(error))
    if reported := task.notices.deleted(error, file):
        task.notices.unread(reported)
    return reported


class DamagePolicy:
    """Receives the findings of a piece. By the mode it keeps them as rows, raises Damaged at the first, or drops
    them. A read error is not damage: the file is unread.
    """

    def __init__(self, piece: SegmentRange, task: Task) -> None:
        self.rows: list[schema.Row] = []
        self.unread = False
        self._piece = piece
        self._task = task
        self._policy = policy_for(piece.file, Settings())

    def __call__(self, finding: Finding) -> None:
        path = self._piece.file.path
        if finding.rule == READ_ERROR:
            self.add_error(unreadable(path, finding))
            return
        self._task.notices.finding(self._piece.file, finding)
        verdict = Verdict(path, self._policy.severity(RULES[finding.rule]), finding)
        if not verdict.is_error:
            return
        if self._task.request.mode == "failfast":
            place = "" if finding.position is None else f"byte {finding.position}: "
            raise Damaged(f"{path}: {place}{finding.rule}: {verdict.message}")
        self._keep(f"{finding.rule}: {verdict.message}", finding.position, finding.offset)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Add the error of the file that ends the block. Raises the errors of the notices, and all others."""
        try:
            yield
        except RegistryError:  # not of the file: the rows of the next one would lack the same schema
            raise
        except (LimitError, NotASegmentError, UnreadableError) as error:
            self.add_error(error)

    def add_error(self, error: KsegError) -> None:
        """Add the reason why the file cannot be read to its end: it is damage only if the bytes are not those of a log."""
        if reported := report_unread(self._task, error, self._piece.file):
            self.unread = True
            self._keep(UNREAD + str(reported))

    def _keep(self, what: str, position: int | None = None, offset: int | None = None) -> None:
        if keeps_damage(self._task):
            path = self._piece.file.path
            self.rows.append({"file": path, "position": position, "offset": offset, "damage": what})

    def reported(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows kept so far with the task's columns, and drop them."""
        for at in range(0, len(self.rows), BATCH_ROWS):
            yield from_rows(self._task.request.columns, self.rows[at : at + BATCH_ROWS])
        self.rows.clear()


def read_records(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    stable = {os.path.dirname(piece.file.path): piece.stable_offset for piece in split}
    limits_of = partial(_limits_of, task, TransactionLogs(stable, task.notices.unread))
    bounds = _bounds(task.limits)
    wanted = task.request.columns
    # The columns that the bounds need are read, too, and removed from the result. The log start is a bound, too.
    bounded = {*bounds, *(("offset",) if reads_committed(task.request) else ())}
    hidden = [column for column in VIEWS["records"].columns if column.name in bounded and column not in wanted]
    gathered = gathered_rows([*wanted, *hidden])
    gathered.encoded = task.notices.encoded
    decoder = None
    if task.request.decoding and not set(task.request.decoding.columns).isdisjoint(wanted):
        decoder = task.request.decoder or record_decoder.record_decoder(task.request.decoding)
    for piece in task.pieces(split):
        damage = DamagePolicy(piece, task)
        path, limits = piece.file.path, limits_of(piece)
        if bounds != _bounds(limits):  # the rows so far are of another log, with another log start
            yield from (_within(batch, bounds, len(wanted)) for batch in gathered.finish())
            bounds = _bounds(limits)
        place = replace(ColumnPlace.of(path, internal_topic(path, task.request.decode_as)), decoder=decoder)
        place = replace(place, transactions=limits.transactions)
        opener = DeepIterator(damage)
        with damage.kept():
            for window in _windows(piece, task, damage):
                _skip_rows(window, task.request.control, _rows_to_skip(limits, task))
                for chunk in opener.chunks(window):
                    for batch in gathered.add_chunk(place, chunk):
                        yield _within(batch, bounds, len(wanted))
                if len(damage.rows) >= BATCH_ROWS:
                    yield from damage.reported()
        yield from damage.reported()
    for batch in gathered.finish():
        yield _within(batch, bounds, len(wanted))


def _limits_of(task: Task, logs: TransactionLogs, piece: SegmentRange) -> RowFilter:
    """Return the limits of a piece, with the transactions of its file."""
    transactions = piece.committed or logs.of(piece.file.path, listed=piece.file.listed)
    limits = replace(task.limits, committed=reads_committed(task.request))
    return limits.of_segment(piece.file.path, transactions)


def _bounds(limits: RowFilter) -> dict[str, tuple[int | None, int | None]]:
    bounds = {"offset": (limits.first_offset, limits.end_offset), "timestamp_ms": (limits.since, limits.until)}
    return {name: bound for name, bound in bounds.items() if bound != (None, None)}


def _within(batch: Any, bounds: Mapping[str, tuple[int | None, int | None]], columns: int) -> Any:
    """Return the rows of a record batch within the bounds, with the first ``columns`` of its columns.

    Bounds can have more than 64 bits, such as the end after the highest offset.
    """
    for name, (start, end) in bounds.items():
        first = INT64_MIN if start is None else max(start, INT64_MIN)
        last = INT64_MAX if end is None else min(end - 1, INT64_MAX)
        if first > last:
            batch = batch.slice(0, 0)
            continue
        found = batch.column(name)
        batch = batch.filter(pc.and_(pc.greater_equal(found, first), pc.less_equal(found, last)))
    return batch.select(range(columns)) if columns < batch.num_columns else batch


def _windows(piece: SegmentRange, task: Task, damage: DamagePolicy) -> Iterator[Window]:
    """Yield the windows of a piece. A batch at the edge of a piece has the same findings as in a whole file.

    Raises UnreadableError for a file that ends before the bytes that were planned, or that it had when it was opened.
    """
    path, end = piece.file.path, piece.file.size if piece.end is None else piece.end
    source = open_source(path, listed=True) if end is None else open_split(path, piece.start, end)
    with SegmentReader(source, report=damage, verify_crc=task.request.verify_crc, reports_read_error=True) as reader:
        if (piece.start or piece.end is not None) and not is_url(path):
            check_same(path, piece.file.stamp, copied=True, end=end)
        yield from reader.windows()
        if source.size is not None and source.position < source.size and not damage.unread:
            raise UnreadableError(
                f"{path}: ends at byte {source.position}, and had {source.size} bytes: it has changed"
            )


def _rows_to_skip(limits: RowFilter, task: Task) -> Callable[[Any, int], bool] | None:
    """Return a test for batches without requested records, None if all batches are requested."""
    keep = limits.of_rows
    if task.request.control:
        keep = replace(keep, control=True)
    return None if keep == RowFilter() else lambda batches, row: not keep.accepts_batch(batches, row, opened=True)


def _skip_rows(window: Window, control: bool | None, unwanted: Callable[[Any, int], bool] | None) -> None:
    """Deselect the batches of which no record is wanted: the deep reader then skips them."""
    if control is False:
        drop_control_batches(window.batches)
    if unwanted is None:
        return
    batches = window.batches
    for row in range(batches.count):
        if batches.selected[row] and unwanted(batches, row):
            batches.selected[row] = 0


def read_batches(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the batches in record batches of about BATCH_ROWS rows: a window of large batches has a few."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for found in _batch_rows(task, split):
        held.append(found)
        rows += found.num_rows
        if rows >= BATCH_ROWS:
            yield from _joined(held)
            held, rows = [], 0
    yield from _joined(held)


def _joined(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches(BATCH_ROWS)


def _batch_rows(task: Task, split: Split) -> Iterator[pa.RecordBatch]:
    keep = task.limits.of_rows
    for piece in task.pieces(split):
        damage, place = DamagePolicy(piece, task), ColumnPlace.of(piece.file.path)
        opener = DeepIterator(damage) if FIRST_OFFSET in task.request.columns else None
        with damage.kept():
            for window in _windows(piece, task, damage):
                if opener:
                    _open_sets(window, opener)
                rows = None
                if keep != RowFilter():
                    rows = [row for row in range(window.batches.count) if keep.accepts_batch(window.batches, row)]
                if rows is None or rows:
                    yield batch_rows(task.request.columns, place, window.batches, rows)
        yield from damage.reported()


def _open_sets(window: Window, opener: DeepIterator) -> None:
    """Read the records of the compressed v0 and v1 messages of a window: their headers lack the first offset."""
    batches = window.batches
    for row in range(batches.count):
        batches.record_sum[row] = 0
        batches.selected[row] = batches.selected[row] and is_wrapper(batches, row)
    for _ in opener.chunks(window):
        pass  # the facts of the batches stay


def _framed_rows(task: Task, split: Split) -> Iterator[schema.Row]:
    """Yield the rows of files that are not logs, like ``kseg dump --as``."""
    deep = task.request.view == "records"
    for piece in split:
        damage = DamagePolicy(piece, task)
        with damage.kept():
            yield from framed_dump.framed_rows(piece.file, damage, deep=deep, verify_crc=task.request.verify_crc)
        yield from damage.rows


def _as_arrow(task: Task, found: Iterator[schema.Row]) -> Iterator[pa.RecordBatch]:
    while group := list(islice(found, BATCH_ROWS)):
        yield from_rows(task.request.columns, group)
