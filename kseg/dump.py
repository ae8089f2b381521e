"""``kseg dump`` as a library: the rows of segments, shallow (an entry each) or deep (a record each), filtered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kseg import kernel
from kseg.deep_iteration import Chunk, DeepIterator
from kseg.errors import UsageError
from kseg.findings import Report, ignore
from kseg.kernel import BatchColumns
from kseg.log_format import CODEC_MASK, CONTROL, LOG_APPEND_TIME
from kseg.records import Record, RecordBatch, record_batch
from kseg.segment import SegmentReader, Window
from kseg.storage import open_source


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows to keep. Ranges are half-open, as ``begin`` <= x < ``end``; None is no bound.

    Timestamps are epoch milliseconds; rows without one fail a time filter. ``control`` True keeps only control
    rows, False none of them.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None
    key: bytes | None = None
    producer_id: int | None = None
    control: bool | None = None

    def takes_batch(self, batches: BatchColumns, row: int) -> bool:
        """Whether the entry can hold a row that passes: what the header shows decides, a wrapper's base is unknown."""
        if batches.crc_state[row] != kernel.CRC_BAD and self.first_offset is not None:
            if batches.last_offset[row] < self.first_offset:
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

    def takes_record(self, record: Record) -> bool:
        """Whether a record of an entry that passed does so itself."""
        if self.first_offset is not None and record.offset < self.first_offset:
            return False
        if self.end_offset is not None and record.offset >= self.end_offset:
            return False
        if self.since is not None and (record.timestamp is None or record.timestamp < self.since):
            return False
        if self.until is not None and (record.timestamp is None or record.timestamp >= self.until):
            return False
        return self.key is None or record.key == self.key

    def _is_from(self, batches: BatchColumns, row: int) -> bool:
        return batches.magic[row] >= 2 and batches.producer_id[row] == self.producer_id

    @staticmethod
    def _may_be_before(batches: BatchColumns, row: int, until: int) -> bool:
        """An entry's own smallest timestamp is known only where all are equal, or where it is a single message."""
        single = batches.magic[row] == 1 and not batches.attributes[row] & CODEC_MASK
        if single or batches.attributes[row] & LOG_APPEND_TIME:
            return batches.max_timestamp[row] < until
        return True


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a dump. ``record`` is None in a shallow one, where ``stored`` are the entry's bytes in the file.

    ``inner_crc`` is (stored, whether it holds) of a v0 or v1 message inside a wrapper. A
    ``heading`` is an entry that stands before its records in a deep dump.
    """

    file: str
    batch: RecordBatch
    record: Record | None = None
    stored: memoryview | None = None
    inner_crc: tuple[int, bool] | None = None
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """Comes before a file's rows. ``first_offset`` is the one in its name, None for other names."""

    file: str
    first_offset: int | None


def dump_segment(
    path: str,
    *,
    deep: bool = False,
    headings: bool = False,
    keep: Filter | None = None,
    verify_crc: bool = True,
    report: Report = ignore,
) -> Iterator[Beginning | Entry]:
    """The rows of one file, a Beginning first. Raises UnreadableError and NotASegmentError.

    Entries with a bad CRC are rows when shallow; their records are not shown, unless CRCs are not verified at all.
    With ``headings`` a deep dump has each entry before its records, too.
    """
    wanted = keep or Filter()
    if wanted.key is not None and not deep:
        raise UsageError("--key looks into records: it needs --deep")
    with SegmentReader(open_source(path), report=report, verify_crc=verify_crc) as reader:
        yield Beginning(path, reader.name_offset)
        opener = DeepIterator(report)
        for window in reader.windows():
            if not deep:
                yield from _shallow(path, window, wanted)
                continue
            for chunk in opener.chunks(window):
                yield from _deep(path, chunk, wanted, headings)


def _shallow(path: str, window: Window, wanted: Filter) -> Iterator[Entry]:
    batches = window.batches
    for row in range(batches.count):
        if wanted.takes_batch(batches, row):
            at = batches.at[row]
            yield Entry(path, record_batch(batches, row), stored=window.view[at : at + batches.size[row]])


def _deep(path: str, chunk: Chunk, wanted: Filter, headings: bool) -> Iterator[Entry]:
    records, batches = chunk.records, chunk.batches
    i = 0
    for row in range(chunk.first, chunk.stop):
        batch = record_batch(batches, row) if wanted.takes_batch(batches, row) else None
        if batch is not None and headings:
            yield Entry(path, batch, heading=True)
        while i < records.count and records.batch[i] == row:
            record = chunk.record(i) if batch is not None else None
            if batch is not None and record is not None and wanted.takes_record(record):
                wrapped = batch.magic < 2 and batch.compression != "none"
                yield Entry(path, batch, record, inner_crc=chunk.inner_crc(i) if wrapped else None)
            i += 1
