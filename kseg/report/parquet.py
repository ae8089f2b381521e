"""``kseg dump --format parquet``: the rows of JSON Lines as typed columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from kseg import schema
from kseg.commands.dump.dump_items import BatchItem, RecordsItem, SegmentItem
from kseg.engine import lazy
from kseg.errors import UsageError
from kseg.format.segment import records_chunk
from kseg.format.writer.batch_runs import payload_of
from kseg.report import arrow_rows, arrow_table
from kseg.report.arrow_table import ParquetWriter, pa
from kseg.report.formats import View
from kseg.report.row_formats import RowSet

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")

#: A row group: its maximum rows, and its maximum bytes of keys, values and headers. malloc returns large buffers to the
#: system and requests them again: groups of 64 MiB took 1.4 times as long to gather and 80 MB more memory.
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 16 * 1024 * 1024
#: Columns with few distinct values; for others a dictionary costs time without benefit.
FEW_VALUES = ("topic", "partition", "file", "timestamp_type", "compression", "producer_id", "producer_epoch")
#: Columns without minimum and maximum: pyarrow holds several copies of large values for them, and readers can't use those of
#: values in no order.
WITHOUT_STATISTICS = ("key", "value", "headers")


def write_parquet(dumped: Iterable[SegmentItem], out: TextIO, view: View) -> None:
    """Write batches or records. Raises UsageError as write_arrow does."""
    table = schema.RECORD_TABLE if view.deep else schema.BATCH_TABLE
    if view.deep:
        table = (*table, *(schema.DECODED,) * view.decoded)
        table = (*table, *view.contents, *schema.SEARCH_COLUMNS * view.searched)
    columns = [column for column in arrow_table.widened(table) if column.name not in view.without]
    write_arrow(_segment_batches(dumped, columns, deep=view.deep), arrow_table.arrow_schema(columns), out, view)


def arrow_reader(dumped: Iterable[SegmentItem], *, deep: bool) -> pa.RecordBatchReader:
    """Return the rows as Arrow batches, made when they are requested. Raises UsageError if pyarrow is not installed."""
    columns = arrow_table.widened(schema.RECORD_TABLE if deep else schema.BATCH_TABLE)
    batches = _segment_batches(dumped, columns, deep=deep)
    return pa.RecordBatchReader.from_batches(arrow_table.arrow_schema(columns), batches)


def _segment_batches(
    dumped: Iterable[SegmentItem], columns: Sequence[schema.Column], *, deep: bool
) -> Iterator[pa.RecordBatch]:
    if deep:
        return _record_batches(dumped, columns)
    batches = (item for item in dumped if isinstance(item, BatchItem))
    return _row_batches((records_chunk.batch_row(item.file, item.batch) for item in batches), columns)


def write_rows(found: RowSet, out: TextIO, view: View) -> None:
    """Write rows of any kind; bytes stay bytes. Raises UsageError as write_arrow does."""
    columns = arrow_table.widened(found.columns)
    write_arrow(_row_batches(iter(found.rows), columns), arrow_table.arrow_schema(columns), out, view)


def write_arrow(batches: Iterable[pa.RecordBatch], kind: pa.Schema, out: TextIO, view: View) -> None:
    """Write Arrow batches to the binary stream under ``out``. Raises UsageError for a terminal or if pyarrow is missing."""
    if view.terminal:
        raise UsageError("Parquet is binary: give -o FILE, or redirect stdout to a file or a pipe")

    few = [name for name in kind.names if name in FEW_VALUES]
    measured = [name for name in kind.names if name not in WITHOUT_STATISTICS]
    raw: Any = out.buffer
    with ParquetWriter(raw, kind, use_dictionary=few, write_statistics=measured) as writer:
        if view.jobs > 1:
            _write_by_thread(writer, batches)
        else:
            for batch in batches:
                writer.write_batch(batch)
    raw.flush()


def _write_by_thread(writer: ParquetWriter, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches with another thread, each while this one makes the next: encoding takes half of the time."""
    with futures.ThreadPoolExecutor(1) as thread:
        written: futures.Future[None] | None = None
        for batch in batches:
            if written:
                written.result()
            written = thread.submit(writer.write_batch, batch)
        if written:
            written.result()


def _record_batches(dumped: Iterable[SegmentItem], columns: Sequence[schema.Column]) -> Iterator[pa.RecordBatch]:
    gathered = arrow_rows.RecordRows(columns, GROUP_ROWS, GROUP_BYTES)
    place = arrow_table.ColumnPlace("", None, None)
    for item in dumped:
        if not isinstance(item, RecordsItem):
            continue
        if place.file != item.file:
            place = arrow_table.ColumnPlace.of(item.file, item.topic, item.decoder)
            place = replace(place, transactions=item.transactions)
        data = payload_of(item.chunk, item.row)
        for first, stop in item.ranges():
            yield from gathered.add(place, item.chunk, data, first, stop, item.search_row if item.searched else None)
    yield from gathered.finish()


def _row_batches(found: Iterator[schema.Row], columns: Sequence[schema.Column]) -> Iterator[pa.RecordBatch]:
    while group := list(islice(found, arrow_table.BATCH_ROWS)):
        yield arrow_table.from_rows(columns, group)
