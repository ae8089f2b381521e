"""The selection of rows by partition, offset, time, key, producer and kind, for all commands, views and the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kseg.format.record import columns
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, CONTROL, LOG_APPEND_TIME
from kseg.format.segment.record_search import RecordSearch, by_batch, rows_with_keys
from kseg.format.segment.records_chunk import Chunk

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selects rows. Ranges are half-open, ``begin`` <= x < ``end``; None means unbounded.

    Timestamps are epoch milliseconds; rows without one fail a time filter. ``control`` True keeps only control
    rows, False none of them. If there are ``keys``, only records with one of them are kept. ``search`` is a condition on
    records in place of ``keys``. ``topics``, ``partitions`` and ``files``, a condition on both, select files by the names
    of their folders.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None
    keys: tuple[bytes, ...] = ()
    producer_id: int | None = None
    control: bool | None = None
    search: RecordSearch | None = None
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    files: Callable[[str | None, int | None], bool] | None = None

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

    def accepts_batch(self, batches: BatchColumns, row: int) -> bool:
        """Return whether the batch can have an accepted row, by its header. The base offset of a wrapper is unknown."""
        first = self.first_offset
        if first is not None and batches.last_offset[row] < first and batches.crc_state[row] != columns.CRC_BAD:
            return False
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        if self.end_offset is not None and not wrapper and batches.base_offset[row] >= self.end_offset:
            return False
        if self.since is not None and batches.max_timestamp[row] < self.since:
            return False
        if self.until is not None and not self._may_be_before(batches, row, self.until):
            return False
        if self.producer_id is not None and not self._is_from(batches, row):
            return False
        if self.control is not None:
            control = batches.magic[row] >= 2 and bool(batches.attributes[row] & CONTROL)
            return control is self.control
        return True

    def accepted_records(self, chunk: Chunk) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the row of each batch with accepted records, and the rows of these records."""
        for row, rows in self._found_records(chunk):
            if self.accepts_batch(chunk.batches, row) and (kept := self._within_ranges(chunk, rows)):
                yield row, kept

    @property
    def selects_records(self) -> bool:
        """Return whether the filter has a condition on the content of records."""
        return bool(self.keys) or self.search is not None

    def _found_records(self, chunk: Chunk) -> Iterable[tuple[int, Sequence[int]]]:
        """Return each batch with its records that fulfil the condition on content."""
        if self.keys:
            return by_batch(chunk, rows_with_keys(chunk, self.keys))
        if self.search is not None:
            return by_batch(chunk, self.search.rows(chunk))
        totals = chunk.batches.record_total
        return ((row, chunk.rows(row)) for row in range(chunk.first, chunk.stop) if totals[row])

    def _within_ranges(self, chunk: Chunk, kept: Sequence[int]) -> Sequence[int]:
        """Return the records within the ranges of offsets and times."""
        if (self.first_offset, self.end_offset, self.since, self.until) == (None, None, None, None):
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
    def _may_be_before(batches: BatchColumns, row: int, until: int) -> bool:
        """Return whether a timestamp can be before ``until``; False is certain only for equal timestamps or one message."""
        single = batches.magic[row] == 1 and not batches.attributes[row] & CODEC_MASK
        if single or batches.attributes[row] & LOG_APPEND_TIME:
            return batches.max_timestamp[row] < until
        return True


def _narrower(choose: Callable[[_Value, _Value], _Value], a: _Value | None, b: _Value | None) -> _Value | None:
    """Return what ``choose`` returns for two limits; None is unbounded."""
    return b if a is None else a if b is None else choose(a, b)
