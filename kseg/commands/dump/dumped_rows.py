"""``kseg dump`` as a library: the filtered rows of segments, shallow (one per batch) or deep (one per record).

Side files have one row per entry. A ``DumpRequest`` is the same for each file of a run.

The last rows of partitions are found from the end of each log. They are counted first and shown then, so that memory does
not depend on their number. The offset index shows from which byte to count: 64 KiB before the end of a segment at first,
then 16 times as many, at last the whole segment, and then the segments before it. Without a valid index whole segments are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kseg.commands.dump import neighbours
from kseg.commands.dump.dump_items import (
    BatchItem,
    EmptyFile,
    FileStart,
    RecordsItem,
    SegmentItem,
    SideFileItem,
    damaged_bytes,
)
from kseg.errors import UsageError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.checks.run_checks import SegmentChecks, check_settings
from kseg.format.record import columns
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT, DeepIterator
from kseg.format.segment.input_buffer import Buffers, borrowed
from kseg.format.segment.records_chunk import Chunk, record_batch
from kseg.format.segment.row_filter import RowFilter
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import index_reader, transaction_states
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import internal_topic, open_range, open_source, stored_size
from kseg.results import Settings

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.checks.record_set_checks import RecordSetChecks
    from kseg.format.sidefiles.registry import Recognised
import os
from collections.abc import Callable, Iterable

from kseg.commands.dump.dump_items import Item, row_count
from kseg.errors import KsegError
from kseg.format.record.layout import INT64_MAX
from kseg.format.storage.naming import base_offset_of, is_missing, is_snapshot, is_url
from kseg.format.storage.source import local_size

#: The latest findings that are kept to explain damaged bytes.
MAX_FINDINGS_KEPT = 1000
_ALL = RowFilter()


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """Which rows of segments are dumped: with ``deep`` records, otherwise batches, of which ``keep`` selects some.

    A batch with a wrong CRC is a row of a shallow dump; its records are rows only without ``verify_crc``, or with
    ``wrong_crc`` as far as they can be decoded. With ``headings`` a deep dump has each batch before its records, too. With
    ``damaged`` and without ``keep`` the bytes that are not in a batch are items, too. ``before`` and ``after`` are the
    numbers of neighbours of an accepted record. ``decode_as`` is that of ``internal_topic``. ``decoder`` decodes keys and
    values. ``logs`` has the transactions; without it they are those of ``keep``.
    """

    deep: bool = False
    keep: RowFilter = _ALL
    headings: bool = False
    verify_crc: bool = True
    wrong_crc: bool = False
    damaged: bool = False
    before: int = 0
    after: int = 0
    decode_as: str | None = None
    decoder: RecordDecoder | None = None
    logs: transaction_states.TransactionLogs | None = None

    def items(
        self,
        file: SegmentFile,
        report: Report = do_nothing,
        start: int = 0,
        end: int | None = None,
        *,
        check: bool = True,
    ) -> Iterator[SegmentItem]:
        """Yield the rows of one file, or of its bytes ``start`` to ``end``, a FileStart first.

        With ``check`` all checks of ``kseg validate`` run, not only those of reading. With a range of offsets or times only
        the bytes are read that can have these rows according to the segment's indexes. Raises UnreadableError,
        NotASegmentError, and UsageError if conditions select records and ``deep`` is False.
        """
        path, wanted = file.path, self._keep_of(file)
        if wanted.selects_records and not self.deep:
            raise UsageError("conditions select records: add --deep")
        damaged = self.damaged and end is None and wanted == _ALL
        if end is None and (size := stored_size(path)) is not None:
            start, end = byte_range(path, size, wanted)
            end = None if (start, end) == (0, size) else end
        source = open_source(path, listed=file.listed) if end is None else open_range(path, start, end)
        findings: list[Finding] = []

        def collect(finding: Finding) -> None:
            findings.append(finding)
            del findings[:-MAX_FINDINGS_KEPT]
            report(finding)

        reported = collect if damaged else report
        with (
            borrowed() as buffers,
            SegmentReader(
                source, report=reported, verify_crc=self.verify_crc, buffers=buffers, reports_read_error=True
            ) as reader,
        ):
            yield FileStart(path, reader.name_offset)
            checks = checks_of(path, reader, report, deep=self.deep) if check else None
            items = self.items_of_reader(file, reader, report, checks=checks, buffers=buffers)
            yield from _with_damaged_bytes(items, path, reader, findings) if damaged else items

    def counted_items(self, file: SegmentFile, start: int, end: int | None) -> Iterator[SegmentItem]:
        """Yield items with the same rows as ``items``, without messages and checks, to count them."""
        return replace(self, headings=False, damaged=False).items(file, do_nothing, start, end, check=False)

    def items_of_reader(
        self,
        file: SegmentFile,
        reader: SegmentReader,
        report: Report,
        *,
        checks: SegmentChecks | None = None,
        decompression_limit: int = DECOMPRESSION_LIMIT,
        buffers: Buffers | None = None,
    ) -> Iterator[SegmentItem]:
        """Yield the items of ``items`` after the FileStart. Raises UnreadableError and NotASegmentError.

        ``checks`` are run, too. ``decompression_limit`` is the maximum size of one decompressed batch in bytes. ``buffers``
        are used instead of new ones.
        """
        path, wanted, topic = file.path, self._keep_of(file), internal_topic(file.path, self.decode_as)
        near = neighbours.Neighbours(self.before, self.after) if self.before or self.after else None
        silent = DeepIterator(limit=decompression_limit)  # the finding about the CRC is reported already
        opener = DeepIterator(report, limit=decompression_limit, buffers=buffers)
        for window in reader.windows():
            if not self.deep:
                if checks:
                    checks.check_batches(window)
                yield from _shallow(path, window, wanted)
                continue
            # The reader returns such a batch in a separate window.
            damaged = self.wrong_crc and window.batches.crc_state[0] == columns.CRC_BAD
            if damaged:
                window.batches.selected[0] = 1
            for chunk in (silent if damaged else opener).chunks(window):
                if checks and not damaged:
                    checks.check_records(chunk)
                found = near.items(path, chunk, wanted) if near else self._deep(path, chunk, wanted, topic)
                yield from found if self.decoder is None else _decoded(found, self.decoder)
            if checks:
                checks.check_batches(window)
        if checks:
            checks.finish(reader.position)

    def _deep(self, path: str, chunk: Chunk, wanted: RowFilter, topic: str | None) -> Iterator[BatchItem | RecordsItem]:
        accepted = wanted.accepted_records(chunk)
        if not self.headings:
            for row, kept in accepted:
                yield RecordsItem(path, chunk, row, kept, topic, search=wanted.search, transactions=wanted.transactions)
            return
        kept_of = dict(accepted)
        for row in range(chunk.first, chunk.stop):
            if not wanted.accepts_batch(chunk.batches, row, opened=True):
                continue
            if not chunk.resumed:
                yield _batch_item(path, chunk.window, row, True)
            if row in kept_of:
                yield RecordsItem(path, chunk, row, kept_of[row], topic, transactions=wanted.transactions)

    def _keep_of(self, file: SegmentFile) -> RowFilter:
        """Return the filter of the rows of a segment."""
        if self.logs is None:
            return self.keep
        return self.keep.of_segment(file.path, self.logs.of(file.path, listed=file.listed), self.decoder)


def byte_range(path: str, size: int, wanted: RowFilter, *, sealed: bool = False) -> tuple[int, int]:
    """Return the bytes of a segment that can have the wanted rows, half-open, according to its indexes.

    ``sealed``: it is not the last segment of its log.
    """
    if (wanted.first_offset, wanted.end_offset, wanted.since) == (None, None, None):
        return 0, size
    return index_reader.byte_range(path, size, wanted.first_offset, wanted.end_offset, wanted.since, sealed=sealed)


def checks_of(
    path: str, reader: SegmentReader, report: Report, *, deep: bool, record_set: RecordSetChecks | None = None
) -> SegmentChecks:
    """Return the checks of ``kseg validate`` for a segment, or for a record set with its additional checks."""
    limits = check_settings(reader.name, Settings(deep=deep))
    return SegmentChecks(reader.name, limits, report, internal_topic(path), record_set)


def dump_side_file(
    path: str, known: Recognised, report: Report = do_nothing
) -> Iterator[FileStart | SideFileItem | EmptyFile]:
    """Yield the entries of a side file, a FileStart first. Raises UnreadableError."""
    side = known.side
    with open_source(path) as source:
        yield FileStart(path, None, side)
        empty = True
        for position, entry in side.walk(source, known.base_offset, report):
            empty = False
            yield SideFileItem(path, side, position, entry)
        if empty:
            yield EmptyFile(path, side)


def _shallow(path: str, window: Window, wanted: RowFilter) -> Iterator[BatchItem]:
    for row in range(window.batches.count):
        if wanted.accepts_batch(window.batches, row):
            yield _batch_item(path, window, row, False)


def _batch_item(path: str, window: Window, row: int, heading: bool) -> BatchItem:
    batches = window.batches
    at = batches.at[row]
    return BatchItem(path, record_batch(batches, row), window.view[at : at + batches.size[row]], heading)


def _decoded(items: Iterator[BatchItem | RecordsItem], decoder: RecordDecoder) -> Iterator[BatchItem | RecordsItem]:
    return (replace(item, decoder=decoder) if isinstance(item, RecordsItem) else item for item in items)


def _with_damaged_bytes(
    items: Iterator[SegmentItem], file: str, reader: SegmentReader, findings: Sequence[Finding]
) -> Iterator[SegmentItem]:
    """Yield the items of ``items_of_reader`` with all batches, and between them the bytes that are not in a batch.

    ``findings`` is the growing list of the reader's findings.
    """
    end = reader.position
    for item in items:
        if isinstance(item, BatchItem):
            yield from damaged_bytes(file, end, item.batch.position, findings)
            end = item.batch.position + item.batch.size
        yield item
    yield from damaged_bytes(file, end, reader.position, findings)


#: The bytes before the end of a segment that are counted first, and by how much they grow.
FIRST_REACH, GROWTH = 64 * 1024, 16

#: Returns the items of bytes ``start`` to ``end`` of a file; None is its end.
ItemsOf = Callable[[SegmentFile, int, int | None], Iterator[Item]]


@dataclass(frozen=True, slots=True)
class LastRows:
    """The last rows of a file: those of bytes ``start`` to ``end`` (None: its end) without the first ``skipped``."""

    file: SegmentFile
    start: int
    end: int | None
    skipped: int

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the items of these bytes without the first ``skipped`` rows."""
        return without_first(items, self.skipped)


def last_rows(files: Sequence[SegmentFile], most: int, keep: RowFilter, items: ItemsOf) -> Iterator[LastRows]:
    """Yield where the last ``most`` rows of each folder's segments are, in the order of the files.

    ``items`` reads rows to count them, with the conditions of ``keep``. A file that cannot be read is the first one of its
    folder: showing it reports the error. Raises UsageError for a pipe.
    """
    folders: dict[str, list[SegmentFile]] = {}
    for file in files:
        _check_read_twice(file.path)
        if not (file.listed and is_snapshot(file.path)):
            folders.setdefault(os.path.dirname(file.path), []).append(file)
    for segments in folders.values():
        # After all others those that an archive lacks.
        segments.sort(key=lambda file: (is_missing(file.path), base_offset_of(file.path) or 0))
        found: list[LastRows] = []
        left = most
        while segments and left > 0:
            file = segments.pop()
            try:
                start, end, count = _count_from_end(file, left, keep, items)
            except UsageError:
                raise
            except KsegError:
                found.append(LastRows(file, 0, None, 0))
                if is_missing(file.path):
                    continue  # the last rows are those before them
                break
            found.append(LastRows(file, start, end, max(0, count - left)))
            left -= count
        yield from reversed(found)


def _check_read_twice(path: str) -> None:
    if not is_url(path) and local_size(path) is None and (path == "-" or _is_special(path)):
        raise UsageError(f"{path}: --last reads a file twice: write the input to a file")


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _count_from_end(file: SegmentFile, most: int, keep: RowFilter, items: ItemsOf) -> tuple[int, int | None, int]:
    """Return the byte range of a segment with at least ``most`` rows at its end, or all, and the number of rows in it."""
    size, reach = stored_size(file.path), FIRST_REACH
    first, end = (0, None) if size is None else byte_range(file.path, size, keep)
    while True:
        start = first if size is None or end is None else _start_before(file.path, size, end - reach, first)
        count = sum(map(row_count, items(file, start, end)))
        if start == first or count >= most:
            return start, end, count
        reach *= GROWTH


def _start_before(path: str, size: int, before: int, first: int) -> int:
    """Return the start of a batch at a position before ``before``, from the index; ``first`` without one."""
    if before <= first:
        return first
    entry = index_reader.last_entry(path, size, below=INT64_MAX, before=before)
    return max(first, entry.log_position) if entry else first


def without_first(items: Iterable[Item], skipped: int) -> Iterator[Item]:
    """Yield the items without the first ``skipped`` rows. The heading of a batch stays if a row of the batch does."""
    heading: BatchItem | None = None
    for item in items:
        if isinstance(item, BatchItem) and item.heading and skipped:
            heading = item
            continue
        if skipped and (count := row_count(item)):
            if count <= skipped:
                skipped -= count
                continue
            assert isinstance(item, RecordsItem)
            item, skipped = replace(item, kept=item.kept[skipped:]), 0
        if heading is not None and isinstance(item, RecordsItem):
            yield heading
        if not isinstance(item, FileStart):
            heading = None
        yield item
