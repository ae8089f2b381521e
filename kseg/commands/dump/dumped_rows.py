"""``kseg dump`` as a library: the filtered rows of segments, shallow (one per batch) or deep (one per record).

Side files have one row per entry.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from kseg.errors import UsageError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.checks.run_checks import SegmentChecks, check_settings
from kseg.format.internal_topics.decode import decoded_record, internal_topic
from kseg.format.record import columns
from kseg.format.record.layout import TRANSACTIONAL, UNKNOWN
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT, DeepIterator
from kseg.format.segment.input_buffer import Buffers, borrowed
from kseg.format.segment.records_chunk import Chunk, Record, RecordBatch, record_batch
from kseg.format.segment.row_filter import BatchTransactions, RecordCondition, RowFilter
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import index_reader
from kseg.format.storage.source import open_range, open_source, stored_size, topic_partition
from kseg.results import Settings
from kseg.schema import Row

if TYPE_CHECKING:
    from kseg.commands.dump.neighbours import Neighbours
    from kseg.extras.serialization.decoding import DecodedValue
    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.checks.record_set_checks import RecordSetChecks
    from kseg.format.sidefiles.registry import Recognised, SideFile


#: The latest findings that are kept to explain damaged bytes.
MAX_FINDINGS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class BatchItem:
    """A batch: a row of a shallow dump, or, as ``heading``, the row before its records in a deep dump.

    ``stored`` are its bytes in the file.
    """

    file: str
    batch: RecordBatch
    stored: memoryview
    heading: bool = False
    side: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class RecordsItem:
    """The accepted records of a batch: the rows ``kept`` of the chunk. Valid until the next item is read.

    ``topic`` is the internal topic whose decoder is used, None for no decoding. ``decoder`` decodes keys and values.
    ``search`` is the condition that chose the records, except for those in ``neighbours``, which are next to such records.
    ``group_starts`` are the rows of ``kept`` that have records which are not shown between them and the shown record before.
    ``transactions`` has the state of the batch's transaction.
    """

    file: str
    chunk: Chunk
    row: int
    kept: Sequence[int]
    topic: str | None = None
    decoder: RecordDecoder | None = None
    search: RecordCondition | None = None
    neighbours: Collection[int] = ()
    group_starts: Container[int] = ()
    transactions: BatchTransactions | None = None
    side: ClassVar[None] = None

    @property
    def transaction(self) -> tuple[str | None, str | None]:
        """The state of the batch's transaction and the transactional id of its producer; None outside transactions."""
        batches, row = self.chunk.batches, self.row
        if batches.magic[row] < 2 or not batches.attributes[row] & TRANSACTIONAL:
            return None, None
        if self.transactions is None:
            return UNKNOWN, None
        return self.transactions.state(batches, row), self.transactions.transactional_id(batches, row)

    @property
    def batch(self) -> RecordBatch:
        return record_batch(self.chunk.batches, self.row)

    def records(self) -> Iterator[Record]:
        """Return the records as objects."""
        transaction = self.transaction
        return (self.chunk.record(i, transaction=transaction) for i in self.kept)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of consecutive rows, each as its first row and the row after its last."""
        first = stop = self.kept[0]
        if self.kept[-1] - first + 1 == len(self.kept):
            yield first, self.kept[-1] + 1
            return
        for i in self.kept:
            if i != stop:
                yield first, stop
                first = i
            stop = i + 1
        yield first, stop

    def decoded(self, i: int) -> dict[str, Any] | None:
        """Return the column ``decoded`` of record ``i``, None for a control record."""
        found = decoded_record(self.topic, self.chunk, i) if self.topic else None
        return found.as_dict() if found else None

    def contents(self, i: int) -> tuple[DecodedValue, DecodedValue] | None:
        """Return key and value of record ``i`` decoded, None without a decoder."""
        return next(self.all_contents((i,)))

    def all_contents(self, kept: Iterable[int]) -> Iterator[tuple[DecodedValue, DecodedValue] | None]:
        """Yield ``contents`` of some records."""
        if self.decoder:
            return self.decoder.of_records(_topic_of(self.file), self.chunk, self.row, kept)
        return (None for _ in kept)

    def content_fields(self, i: int) -> Row:
        """Return the columns of decoded keys and values of record ``i``, none without a decoder."""
        return self.decoder.fields(_topic_of(self.file), self.chunk, i) if self.decoder else {}

    @property
    def searched(self) -> bool:
        """Whether a search found the records, or they are neighbours of found ones."""
        return bool(self.search or self.neighbours)

    def matched(self, i: int) -> Sequence[str] | None:
        """Return the names of the fields of record ``i`` that the search found; None for a neighbour."""
        return None if i in self.neighbours or not self.search else self.search.matched_fields(self.chunk, i)

    def search_row(self, i: int) -> Row:
        """Return the columns SEARCH_COLUMNS of record ``i``."""
        state, matched = self.chunk.batches.crc_state[self.row], self.matched(i)
        return {
            "crc_valid": None if state == columns.CRC_UNCHECKED else state == columns.CRC_GOOD,
            "matched": None if matched is None else list(matched),
        }


@lru_cache
def _topic_of(file: str) -> str | None:
    return topic_partition(file)[0]


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Positions ``position`` to ``end`` of a file, which contain no batch, frame or message; ``findings`` say why.

    ``framing`` is the name of the file's kind, empty for a segment.
    """

    file: str
    position: int
    end: int
    findings: tuple[Finding, ...]
    framing: str = ""
    side: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class FileStart:
    """The item before a file's rows. ``first_offset`` is the offset in a segment's name, None for other names."""

    file: str
    first_offset: int | None
    side: SideFile | None = None


@dataclass(frozen=True, slots=True)
class SideFileItem:
    """An entry of a side file at byte ``position``."""

    file: str
    side: SideFile
    position: int
    entry: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WireRow:
    """A row of a file other than a log, with raw bytes. ``framing`` is the name of the file's kind."""

    file: str
    row: Row
    framing: str = ""
    side: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class EmptyFile:
    """The item of a side file without entries."""

    file: str
    side: SideFile


def dump_segment(
    path: str,
    *,
    deep: bool = False,
    headings: bool = False,
    keep: RowFilter | None = None,
    verify_crc: bool = True,
    report: Report = do_nothing,
    start: int = 0,
    end: int | None = None,
    listed: bool = False,
    topic: str | None = None,
    check: bool = False,
    damaged: bool = False,
    near: Neighbours | None = None,
    wrong_crc: bool = False,
) -> Iterator[SegmentItem]:
    """Yield the rows of one file, or of its bytes ``start`` to ``end``, a FileStart first.

    Raises UnreadableError and NotASegmentError.

    A batch with a wrong CRC is a row of a shallow dump; its records are rows only without ``verify_crc``. With
    ``headings`` a deep dump has each batch before its records, too. ``listed`` is that of open_source, ``topic`` that of
    RecordsItem. With ``check`` all checks of ``kseg validate`` run, not only those of reading. With ``damaged`` and without
    ``keep`` the bytes that are not in a batch are items, too. With a range of offsets or times only the bytes are read that
    can have these rows according to the segment's indexes.
    """
    wanted = keep or RowFilter()
    if wanted.selects_records and not deep:
        raise UsageError("conditions select records: add --deep")
    if end is None and (size := stored_size(path)) is not None:
        start, end = byte_range(path, size, wanted)
        end = None if (start, end) == (0, size) else end
    source = open_source(path, listed=listed) if end is None else open_range(path, start, end)
    findings: list[Finding] = []

    def collect(finding: Finding) -> None:
        findings.append(finding)
        del findings[:-MAX_FINDINGS_KEPT]
        report(finding)

    with (
        borrowed() as buffers,
        SegmentReader(source, report=collect if damaged else report, verify_crc=verify_crc, buffers=buffers) as reader,
    ):
        yield FileStart(path, reader.name_offset)
        items = dump_reader(
            path,
            reader,
            report,
            wanted,
            deep=deep,
            headings=headings,
            topic=topic,
            checks=checks_of(path, reader, report, deep=deep) if check else None,
            near=near,
            wrong_crc=wrong_crc,
            buffers=buffers,
        )
        yield from with_damaged_bytes(items, path, reader, findings) if damaged and wanted == RowFilter() else items


def byte_range(path: str, size: int, wanted: RowFilter, *, sealed: bool = False) -> tuple[int, int]:
    """Return the bytes of a segment that can have the wanted rows, half-open, according to its indexes.

    ``sealed``: it is not the last segment of its log.
    """
    return index_reader.byte_range(path, size, wanted.first_offset, wanted.end_offset, wanted.since, sealed=sealed)


def dump_reader(
    path: str,
    reader: SegmentReader,
    report: Report,
    wanted: RowFilter,
    *,
    deep: bool,
    headings: bool,
    topic: str | None = None,
    checks: SegmentChecks | None = None,
    decompression_limit: int = DECOMPRESSION_LIMIT,
    near: Neighbours | None = None,
    wrong_crc: bool = False,
    buffers: Buffers | None = None,
) -> Iterator[BatchItem | RecordsItem]:
    """Yield the items of ``dump_segment`` after the FileStart. Raises UnreadableError and NotASegmentError.

    ``checks`` are run, too. ``decompression_limit`` is the maximum size of one decompressed batch in bytes. ``near`` adds
    neighbours to the records that the filter accepts. With ``wrong_crc`` a deep dump has the records of batches with a
    wrong CRC, too, as far as they can be decoded. ``buffers`` are used instead of new ones.
    """
    silent = DeepIterator(limit=decompression_limit)  # the finding about the CRC is reported already
    opener = DeepIterator(report, limit=decompression_limit, buffers=buffers)
    for window in reader.windows():
        if checks:
            checks.check_batches(window)
        if not deep:
            yield from _shallow(path, window, wanted)
            continue
        # The reader returns such a batch in a separate window.
        damaged = wrong_crc and window.batches.crc_state[0] == columns.CRC_BAD
        if damaged:
            window.batches.selected[0] = 1
        for chunk in (silent if damaged else opener).chunks(window):
            if checks and not damaged:
                checks.check_records(chunk)
            yield from near.items(path, chunk, wanted) if near else _deep(path, chunk, wanted, headings, topic)
    if checks:
        checks.finish(reader.position)


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


def _deep(
    path: str, chunk: Chunk, wanted: RowFilter, headings: bool, topic: str | None
) -> Iterator[BatchItem | RecordsItem]:
    accepted = wanted.accepted_records(chunk)
    if not headings:
        for row, kept in accepted:
            yield RecordsItem(path, chunk, row, kept, topic, search=wanted.search, transactions=wanted.transactions)
        return
    kept_of = dict(accepted)
    for row in range(chunk.first, chunk.stop):
        if not wanted.accepts_batch(chunk.batches, row):
            continue
        if not chunk.resumed:
            yield _batch_item(path, chunk.window, row, True)
        if row in kept_of:
            yield RecordsItem(path, chunk, row, kept_of[row], topic, transactions=wanted.transactions)


def with_damaged_bytes(
    items: Iterator[BatchItem | RecordsItem], file: str, reader: SegmentReader, findings: Sequence[Finding]
) -> Iterator[BatchItem | RecordsItem | DamagedBytes]:
    """Yield the items of ``dump_reader`` with all batches, and between them the bytes that are not in a batch.

    ``findings`` is the growing list of the reader's findings.
    """
    end = reader.position

    def gap(stop: int) -> Iterator[DamagedBytes]:
        if stop > end:
            inside = tuple(found for found in findings if found.position is not None and end <= found.position < stop)
            yield DamagedBytes(file, end, stop, inside)

    for item in items:
        if isinstance(item, BatchItem):
            yield from gap(item.batch.position)
            end = item.batch.position + item.batch.size
        yield item
    yield from gap(reader.position)


#: The items of a segment.
SegmentItem = FileStart | BatchItem | RecordsItem | DamagedBytes
#: The items of any file.
Item = FileStart | BatchItem | RecordsItem | DamagedBytes | SideFileItem | EmptyFile | WireRow


def row_count(item: Item) -> int:
    """Return the number of rows of an item: none for the start of a file, an empty file and a heading."""
    if isinstance(item, RecordsItem):
        return len(item.kept)
    return not isinstance(item, (FileStart, EmptyFile)) and not (isinstance(item, BatchItem) and item.heading)


def from_position(items: Iterable[Item], position: int) -> Iterator[Item]:
    """Yield the items of the batches that begin at byte ``position`` of the file or later; with 0 the FileStart, too."""
    for item in items:
        if isinstance(item, RecordsItem):
            at = item.chunk.batches.position[item.row]
        elif isinstance(item, BatchItem):
            at = item.batch.position
        else:
            at = 0
        if at >= position:
            yield item


def at_position(rows: Iterable[Item], position: int | None) -> Iterator[Item]:
    """Yield the items of the batch that contains byte ``position`` of the file, or of the damaged bytes that do."""
    if position is None:
        yield from rows
        return
    inside = True
    for row in rows:
        if isinstance(row, BatchItem):
            inside = row.batch.position <= position < row.batch.position + row.batch.size
        elif isinstance(row, DamagedBytes):
            inside = row.position <= position < row.end
        elif isinstance(row, RecordsItem):
            batch = row.batch
            inside = batch.position <= position < batch.position + batch.size
        elif isinstance(row, SideFileItem):
            inside = row.position <= position
        if inside or isinstance(row, FileStart):
            yield row


def with_decoder(items: Iterator[Item], decoder: RecordDecoder | None) -> Iterator[Item]:
    """Return the items; the keys and values of their records are decoded with ``decoder``."""
    if decoder is None:
        return items
    return (replace(item, decoder=decoder) if isinstance(item, RecordsItem) else item for item in items)


def first_rows(rows: Iterable[Item], limit: int | None) -> Iterator[Item]:
    """Yield at most ``limit`` rows; file starts and headings don't count."""
    if limit is None:
        yield from rows
        return
    left = limit
    if not left:
        return
    for row in rows:
        if isinstance(row, RecordsItem):
            row = replace(row, kept=row.kept[:left])
            left -= len(row.kept)
        elif isinstance(row, (SideFileItem, WireRow)) or (isinstance(row, BatchItem) and not row.heading):
            left -= 1
        yield row
        if not left:
            return
