"""The selection of rows by partition, offset, time, key, producer and kind, for all commands, views and the library.

``rows_with`` finds the records of a chunk that contain given bytes: a search of the payloads leaves few to examine.
Each condition on the content of records is a ``RecordCondition``, and all of those of a filter must hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol, TypeVar

from kseg.format.record import columns
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME
from kseg.format.record.memory import ByteClasses, Needle, records_with
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.records_chunk import Chunk


class BatchTransactions(Protocol):
    """The transactions of a segment's batches: ``SegmentTransactions``. ``log_start``: the first offset not deleted."""

    @property
    def log_start(self) -> int: ...

    def state(self, batches: BatchColumns, row: int) -> str | None: ...

    def transactional_id(self, batches: BatchColumns, row: int) -> str | None: ...

    def accepts(self, batches: BatchColumns, row: int) -> bool: ...


class RecordCondition(ABC):
    """A condition on the content of records, which is evaluated for a whole chunk."""

    __slots__ = ()

    @abstractmethod
    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        """Return those of the rows ``among``, which are in order, whose records fulfil the condition."""

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        """Yield the name of the field and the text of each match in record ``i``, if the condition is about fields."""
        return iter(())

    def matched_fields(self, chunk: Chunk, i: int) -> Sequence[str]:
        """Return the names of the fields of record ``i`` that fulfil it."""
        return list(dict.fromkeys(name for name, _ in self.matches(chunk, i)))

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match in the text of a field."""
        return iter(())

    def of_segment(self, path: str, transactions: BatchTransactions | None, decoder: Any) -> RecordCondition:
        """Return the condition on the records of one segment, whose ``decoder`` is a RecordDecoder or None."""
        return self


def rows_with(chunk: Chunk, needles: Iterable[Needle | ByteClasses]) -> list[int]:
    """Return the rows of records that can contain one of the needles, in their order.

    Other records don't contain any of them. A needle that is found can reach over the border between two fields: the
    caller examines the fields.
    """
    found: list[int] = []
    count = 0
    for needle in needles:
        count += 1
        for first, stop, payload, end in _searched_ranges(chunk):
            records_with(payload, end, needle, chunk.records, first, stop, found)
    return found if count == 1 else sorted(set(found))


def _searched_ranges(chunk: Chunk) -> Iterator[tuple[int, int, memoryview, int]]:
    """Yield first row, row after the last, buffer and its end: one range for consecutive batches of one buffer."""
    batches, payloads = chunk.batches, chunk.payloads
    first_record, record_total = batches.first_record, batches.record_total
    if not payloads:
        last = chunk.stop - 1
        yield 0, chunk.records.count, chunk.window.view, batches.at[last] + batches.size[last]
        return
    for compressed, group in groupby(range(chunk.first, chunk.stop), payloads.__contains__):
        filled = [row for row in group if record_total[row]]
        if compressed:
            for row in filled:
                first, payload = first_record[row], payloads[row]
                yield first, first + record_total[row], payload, len(payload)
        elif filled:
            last = filled[-1]
            stop = first_record[last] + record_total[last]
            yield first_record[filled[0]], stop, chunk.window.view, batches.at[last] + batches.size[last]


def among_rows(found: Sequence[int], chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
    """Return the rows that are in both sequences, which are in order."""
    if len(among) == chunk.records.count:
        return found
    wanted = set(among)
    return [i for i in found if i in wanted]


def by_batch(chunk: Chunk, rows: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield each batch that has some of these records, with the rows of these records."""
    batch = chunk.records.batch
    for row, found in groupby(rows, batch.__getitem__):
        yield row, list(found)


@dataclass(frozen=True, slots=True)
class KeyIsOneOf(RecordCondition):
    """The condition that the key is one of ``keys``; None is null."""

    keys: tuple[bytes | None, ...]

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        found = [rows_with_key(chunk, key) for key in self.keys]
        return among_rows(found[0] if len(found) == 1 else sorted({i for rows in found for i in rows}), chunk, among)

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        yield "key", (chunk.key(i) or b"").decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class ValueIsNull(RecordCondition):
    """The condition that the value is null."""

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        sizes = chunk.lists.value_size
        return [i for i in among if sizes[i] < 0]

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        yield "value", ""


@dataclass(frozen=True, slots=True)
class HasHeader(RecordCondition):
    """The condition that one of the headers has this name and this value."""

    name: bytes
    value: bytes

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        wanted = self.name, self.value
        found = among_rows(rows_with(chunk, (Needle(max(wanted, key=len)),)), chunk, among) if any(wanted) else among
        counts = chunk.lists.header_count
        return [i for i in found if counts[i] and any(_same(header, wanted) for header in chunk.header_fields(i))]

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        yield "header-value", self.value.decode("utf-8", "surrogateescape")


def _same(header: tuple[memoryview, memoryview | None], wanted: tuple[bytes, bytes]) -> bool:
    return header[1] is not None and (bytes(header[0]), bytes(header[1])) == wanted


def rows_with_key(chunk: Chunk, key: bytes | None) -> list[int]:
    """Return the rows of the records with exactly this key, None for null, in their order."""
    if key:
        found = rows_with(chunk, (Needle(key),))
        sizes = chunk.lists.key_size if found else []
        return [i for i in found if sizes[i] == len(key) and chunk.key(i) == key]
    size = -1 if key is None else 0
    return [i for i, key_size in enumerate(chunk.lists.key_size) if key_size == size]


_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selects rows. Ranges are half-open, ``begin`` <= x < ``end``; None means unbounded.

    Timestamps are epoch milliseconds; rows without one fail a time filter. ``control`` True keeps only control
    rows, False none of them. Only records that fulfil all ``conditions`` are kept. ``search`` is the last of them, and shows
    where it is fulfilled. ``topics``, ``partitions`` and ``files``, a condition on both, select files by the names
    of their folders. ``committed``: only records that a consumer with read_committed gets. ``transactions`` are those of
    the segment that is read.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None
    conditions: tuple[RecordCondition, ...] = ()
    producer_id: int | None = None
    control: bool | None = None
    search: RecordCondition | None = None
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    files: Callable[[str | None, int | None], bool] | None = None
    committed: bool = False
    transactions: BatchTransactions | None = field(default=None, compare=False)

    def both(self, other: RowFilter) -> RowFilter:
        """Return this filter, limited to the topics, the partitions and the ranges of another one, too."""
        return replace(
            self,
            first_offset=_narrower(max, self.first_offset, other.first_offset),
            end_offset=_narrower(min, self.end_offset, other.end_offset),
            since=_narrower(max, self.since, other.since),
            until=_narrower(min, self.until, other.until),
            topics=_narrower(frozenset.intersection, self.topics, other.topics),
            partitions=_narrower(frozenset.intersection, self.partitions, other.partitions),
        )

    def with_conditions(
        self, conditions: Sequence[RecordCondition], where: tuple[RecordCondition, RowFilter] | None = None
    ) -> RowFilter:
        """Return this filter with conditions on records, also that of ``where`` with the limits that it implies."""
        if where is None:
            return replace(self, conditions=tuple(conditions))
        condition, implied = where
        return replace(self.both(implied), files=implied.files, conditions=(*conditions, condition))

    def of_segment(self, path: str, transactions: BatchTransactions | None, decoder: Any = None) -> RowFilter:
        """Return the filter with the transactions of one segment and the ``decoder`` of its records.

        With ``committed`` it begins at the log start: consumers get no record before it.
        """
        conditions = tuple(one.of_segment(path, transactions, decoder) for one in self.conditions)
        first = self.first_offset
        if self.committed and transactions is not None and transactions.log_start:
            first = max(first or 0, transactions.log_start)
        return replace(self, first_offset=first, transactions=transactions, conditions=conditions)

    @property
    def of_rows(self) -> RowFilter:
        """The filter without the conditions on files."""
        return replace(self, topics=None, partitions=None, files=None)

    def accepts_file(self, topic: str | None, partition: int | None) -> bool:
        """Return whether files of the partition can contain accepted rows."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and (self.files is None or self.files(topic, partition))
        )

    def accepts_offsets(self, first: int | None, end: int | None) -> bool:
        """Return whether a segment with offsets from ``first`` to before ``end`` can contain accepted rows."""
        return not (
            (first is not None and self.end_offset is not None and first >= self.end_offset)
            or (end is not None and self.first_offset is not None and end <= self.first_offset)
        )

    def accepts_batch(self, batches: BatchColumns, row: int, *, opened: bool = False) -> bool:
        """Return whether the batch can have an accepted row, by its header. The base offset of a wrapper is unknown.

        If it is ``opened``, or will be, a v1 wrapper at offset 0 can have later messages: early versions of librdkafka sent
        such ones. And its records can be newer than the header says.
        """
        since = self.since
        older = since is not None and batches.max_timestamp[row] < since
        if since is not None and older and not (opened and self._may_be_from(batches, row, since)):
            return False
        first, wrapper = self.first_offset, is_wrapper(batches, row)
        is_relative = opened and wrapper and batches.magic[row] == 1 and not batches.last_offset[row]
        known = batches.crc_state[row] != columns.CRC_BAD and not is_relative
        if first is not None and batches.last_offset[row] < first and known:
            return False
        if self.end_offset is not None and not wrapper and batches.base_offset[row] >= self.end_offset:
            return False
        if self.until is not None and not self._may_be_before(batches, row, self.until):
            return False
        if self.producer_id is not None and not self._is_from(batches, row):
            return False
        if self.control is not None:
            control = batches.magic[row] >= 2 and bool(batches.attributes[row] & CONTROL)
            if control is not self.control:
                return False
        return not self.committed or self.transactions is None or self.transactions.accepts(batches, row)

    def accepted_records(self, chunk: Chunk) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the row of each batch with accepted records, and the rows of these records."""
        since, newest = self.since, chunk.batches.largest_timestamp
        for row, rows in self._found_records(chunk):
            if since is not None and newest[row] < since:
                continue  # most batches, if the time is recent
            if self.accepts_batch(chunk.batches, row, opened=True) and (kept := self._within_ranges(chunk, rows)):
                yield row, kept

    @property
    def has_ranges(self) -> bool:
        """Whether the filter has a range of offsets or times."""
        return (self.first_offset, self.end_offset, self.since, self.until) != (None, None, None, None)

    @property
    def selects_records(self) -> bool:
        """Return whether the filter has a condition on the content of records."""
        return bool(self.conditions) or self.search is not None

    def _found_records(self, chunk: Chunk) -> Iterable[tuple[int, Sequence[int]]]:
        """Return each batch with its records that fulfil the condition on content."""
        if self.selects_records:
            rows: Sequence[int] = range(chunk.records.count)
            for condition in (*self.conditions, *([self.search] if self.search else ())):
                rows = condition.rows(chunk, rows) if rows else rows
            return by_batch(chunk, rows)
        totals = chunk.batches.record_total
        return ((row, chunk.rows(row)) for row in range(chunk.first, chunk.stop) if totals[row])

    def _within_ranges(self, chunk: Chunk, kept: Sequence[int]) -> Sequence[int]:
        """Return the records within the ranges of offsets and times."""
        if not self.has_ranges:
            return kept  # without reading the columns, which would make a list of each
        offset, timestamp = chunk.lists.offset, chunk.lists.timestamp
        if (first := self.first_offset) is not None:
            kept = [i for i in kept if offset[i] >= first]
        if (end := self.end_offset) is not None:
            kept = [i for i in kept if offset[i] < end]
        if (since := self.since) is not None:
            kept = [i for i in kept if timestamp[i] != -1 and timestamp[i] >= since]
        if (until := self.until) is not None:
            kept = [i for i in kept if timestamp[i] != -1 and timestamp[i] < until]
        return kept

    def _is_from(self, batches: BatchColumns, row: int) -> bool:
        return batches.magic[row] >= 2 and batches.producer_id[row] == self.producer_id

    @staticmethod
    def _may_be_from(batches: BatchColumns, row: int, since: int) -> bool:
        """Return whether a record can be from ``since`` or later, although the header's largest timestamp is older.

        The records show it if they are decoded. Otherwise the header of a v2 batch is trusted, unless its largest timestamp
        is missing, or before its base timestamp. That of a wrapper is not: brokers before 0.11 wrote wrong ones when
        they converted messages.
        """
        if batches.record_total[row]:
            return batches.largest_timestamp[row] >= since
        attributes, newest = batches.attributes, batches.max_timestamp[row]
        if batches.magic[row] < 2:
            return is_wrapper(batches, row) and not attributes[row] & LOG_APPEND_TIME
        return newest < 0 or (
            newest < batches.base_timestamp[row] and not attributes[row] & (LOG_APPEND_TIME | DELETE_HORIZON)
        )

    @staticmethod
    def _may_be_before(batches: BatchColumns, row: int, until: int) -> bool:
        """Return whether a timestamp can be before ``until``; False is certain only for equal timestamps or one message."""
        single = batches.magic[row] == 1 and not batches.attributes[row] & CODEC_MASK
        if single or batches.attributes[row] & LOG_APPEND_TIME:
            return batches.max_timestamp[row] < until
        return True


def _narrower(choose: Callable[[_Value, _Value], _Value], a: _Value | None, b: _Value | None) -> _Value | None:
    """Return what ``choose`` returns for two limits; None is unbounded."""
    return b if a is None else a if b is None else choose(a, b)
