"""The items of a dump: batches, records, entries of side files and damaged bytes, each with its file.

The functions limit items to a byte, to a number of rows, or decode their records.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from kseg.engine import lazy
from kseg.findings import Finding
from kseg.format.record import columns
from kseg.format.record.layout import TRANSACTIONAL, UNKNOWN
from kseg.format.segment.records_chunk import Chunk, Record, RecordBatch, record_batch
from kseg.format.segment.row_filter import BatchTransactions, RecordCondition
from kseg.format.storage.source import topic_partition
from kseg.schema import Row

if TYPE_CHECKING:
    from kseg.format.internal_topics import decode as decode
else:
    decode = lazy("kseg.format.internal_topics.decode")  # an import runs it, as it is compiled

if TYPE_CHECKING:
    from kseg.extras.serialization.decoding import DecodedValue
    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.sidefiles.registry import SideFile


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
        transaction, place = self.transaction, (self.file, *topic_partition(self.file))
        return (self.chunk.record(i, transaction=transaction, place=place) for i in self.kept)

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
        found = decode.decoded_record(self.topic, self.chunk, i) if self.topic else None
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


def damaged_bytes(
    file: str, begin: int, end: int, findings: Iterable[Finding], framing: str = ""
) -> Iterator[DamagedBytes]:
    """Yield the bytes between two batches, frames or messages, if there are any, with their ``findings``."""
    if end > begin:
        inside = tuple(one for one in findings if one.position is not None and begin <= one.position < end)
        yield DamagedBytes(file, begin, end, inside, framing)


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
