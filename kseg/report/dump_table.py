"""The tables of ``kseg dump``: batches and records in a form for people, with times, flags and readable contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TextIO

from kseg.commands.dump.dump_items import BatchItem, RecordsItem, SegmentItem
from kseg.commands.dump.record_lines import field
from kseg.errors import UsageError
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.layout import (
    ABORTED,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OPEN,
    TIMESTAMP_TYPES,
    UNKNOWN,
)
from kseg.format.segment.records_chunk import Record, RecordBatch, batch_row
from kseg.report.dump_report import PLACE_NAMES, column_names, place_row, record_rows
from kseg.report.formats import View
from kseg.report.row_formats import CellContent, RowSet, cell, cell_text, content_cells, content_text, text_rows
from kseg.report.tables import PAGE_ROWS, TableColumn, number_column, print_cells
from kseg.schema import BATCH_COLUMNS, PLACE_COLUMNS, RECORD_COLUMNS, Row
from kseg.text import to_json, unknown_name

if TYPE_CHECKING:
    from kseg.extras.serialization.decoding import DecodedValue

_BATCH_COLUMNS = (
    TableColumn("position", right=True),
    TableColumn("size", right=True, priority=2),
    TableColumn("magic", right=True, priority=4),
    TableColumn("base_offset", right=True),
    TableColumn("last_offset", right=True),
    TableColumn("record_count", right=True, priority=1, cell=lambda batch: _records_in(batch)),
    TableColumn("compression", priority=3),
    TableColumn("max_timestamp", priority=5, cell=lambda batch: _known(batch.max_timestamp, NO_TIMESTAMP)),
    TableColumn("producer_id", right=True, priority=6, cell=lambda batch: _known(batch.producer_id, NO_PRODUCER_ID)),
    TableColumn("base_sequence", right=True, priority=8, cell=lambda batch: _known(batch.base_sequence, NO_SEQUENCE)),
    TableColumn("partition_leader_epoch", right=True, priority=9),
    TableColumn("crc_valid"),
    TableColumn("flags", priority=7, cell=lambda batch: " ".join(_flags(batch)) or None),
)
_RECORD_COLUMNS = (
    TableColumn("offset", right=True, cell=lambda row: row.record.offset),
    TableColumn("timestamp", priority=1, cell=lambda row: _known(row.record.timestamp, NO_TIMESTAMP)),
    TableColumn("sequence", right=True, priority=4, cell=lambda row: _known(row.record.sequence, NO_SEQUENCE)),
    TableColumn("key", text="cut"),
    TableColumn("value", text="cut"),
    TableColumn("headers", text="cut", priority=3),
    TableColumn("control", text="wrap", priority=2, cell=lambda row: _control(row)),
    TableColumn("transaction_state", priority=1, cell=lambda row: row.record.transaction_state),
)
#: This column is hidden without transactions; rows with one of these states are red.
_NOT_COMMITTED = (ABORTED, OPEN, UNKNOWN)
_TRANSACTION = "transaction_state"
#: The type of timestamps that the broker set: a table names it, and not the usual CreateTime.
_LOG_APPEND = TIMESTAMP_TYPES[1]
#: The columns of numbers, which are on the right.
_NUMBERS = {
    column.name for column in (*BATCH_COLUMNS, *RECORD_COLUMNS, *PLACE_COLUMNS) if column.type in ("int", "int32")
}
#: The first rows of a file are shown at once; later pages are larger, so that columns keep their width for longer.
_FIRST_PAGE = 20
#: The bytes of a key, a value or a header's value that are shown on a terminal, and in a pipe.
_MOST_BYTES, MOST_PIPED_BYTES = 10_000, 1 << 20
#: The bytes of keys and values of one page.
_PAGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _ShownRecord:
    """A record with as much of its contents as is shown."""

    record: Record
    batch: RecordBatch
    decoded: dict[str, Any] | None
    contents: tuple[DecodedValue, DecodedValue] | None
    key: CellContent | None
    value: CellContent | None
    headers: tuple[tuple[str, CellContent | None], ...]
    #: The fields of its row, if columns are wanted that the table does not have by default.
    row: Row

    @property
    def is_uncommitted(self) -> bool:
        return not self.record.control and self.record.transaction_state in _NOT_COMMITTED

    @property
    def size(self) -> int:
        contents = (self.key, self.value, *(value for _, value in self.headers))
        return sum(len(content.data) for content in contents if content)


_Shown = RecordBatch | _ShownRecord


def write_table(dumped: Iterable[SegmentItem], out: TextIO, view: View) -> None:
    """Write a table per file, in pages of some hundred rows. Raises UsageError for an unknown column of the view."""
    known = [column.name for column in (_RECORD_COLUMNS if view.deep else _BATCH_COLUMNS)]
    others = [name for name in view.columns if name not in known]
    fields = [*column_names(view), *PLACE_NAMES]
    for name in others:
        if name not in fields:
            raise UsageError(unknown_name("column", name, dict.fromkeys([*known, *fields])))
    for file, of_file in groupby(_rows(dumped, view, bool(others)), key=itemgetter(0)):
        for page in _pages(row for _, row in of_file):
            columns, cells = (_record_cells if view.deep else _batch_cells)(page, view)
            columns = [*columns, *(number_column(name, name in _NUMBERS) for name in others)]
            for texts, shown in zip(cells, page, strict=True):
                row = (
                    shown.row
                    if isinstance(shown, _ShownRecord)
                    else batch_row(file, shown) | place_row(file, view.columns)
                )
                texts += [cell(row.get(name), name) for name in others]
            styles = ["red" if isinstance(one, _ShownRecord) and one.is_uncommitted else "" for one in page]
            print_cells(out, *_chosen(columns, cells, styles, view), title=file)


def _chosen(
    columns: Sequence[TableColumn], cells: list[list[str]], styles: Sequence[str], view: View
) -> tuple[Sequence[TableColumn], list[tuple[list[str], str]]]:
    """Return the columns and cells that the view wants; columns that were asked for are not hidden."""
    if view.full:
        columns = [column._replace(text="wrap" if column.text else "") for column in columns]
    places: Sequence[int] = range(len(columns))
    known = [column.name for column in columns]
    if view.columns:
        names = [column.name.partition(" ")[0] for column in columns]
        places = [names.index(name) for name in view.columns]
        columns = [column._replace(priority=0) for column in columns]
    elif view.deep and all(row[known.index(_TRANSACTION)] == "-" for row in cells):
        places = [n for n in places if columns[n].name != _TRANSACTION]
    shown = zip(cells, styles, strict=True)
    return [columns[n] for n in places], [([row[n] for n in places], style) for row, style in shown]


def _pages(rows: Iterable[_Shown]) -> Iterator[list[_Shown]]:
    page: list[_Shown] = []
    most, size = _FIRST_PAGE, 0
    for row in rows:
        page.append(row)
        size += row.size
        if len(page) >= most or size > _PAGE_BYTES:
            yield page
            page, most, size = [], PAGE_ROWS, 0
    if page:
        yield page


def _rows(dumped: Iterable[SegmentItem], view: View, with_rows: bool) -> Iterator[tuple[str, _Shown]]:
    most = _MOST_BYTES if view.terminal and not view.full else MOST_PIPED_BYTES
    for item in dumped:
        if isinstance(item, BatchItem):
            yield item.file, item.batch
        elif isinstance(item, RecordsItem):
            batch, chunk, lists = item.batch, item.chunk, item.chunk.lists
            data, transaction = chunk.payload(item.row), item.transaction
            for i in item.kept:
                fields = islice(chunk.header_fields(i), MAX_HEADERS) if lists.header_count[i] else ()
                yield (
                    item.file,
                    _ShownRecord(
                        chunk.record(i, contents=False, transaction=transaction),
                        batch,
                        item.decoded(i) if item.topic else None,
                        item.contents(i),
                        _content_of(field(data, lists.key_at[i], lists.key_size[i]), most),
                        _content_of(field(data, lists.value_at[i], lists.value_size[i]), most),
                        tuple((str(key[:most], "utf-8", "replace"), _content_of(value, most)) for key, value in fields),
                        _field_row(item, i, view) if with_rows else {},
                    ),
                )


def _field_row(item: RecordsItem, i: int, view: View) -> Row:
    """Return a record's row without its contents, which the table shows in its own way."""
    (row,) = text_rows(RowSet(record_rows(item, [i], view), RECORD_COLUMNS, ()), view)
    return {name: value for name, value in row.items() if name not in ("key", "value", "headers")}


def _content_of(data: memoryview | None, most: int) -> CellContent | None:
    return None if data is None else CellContent(bytes(data[:most]), len(data))


def _known(value: int | None, nothing: int) -> int | None:
    return None if value == nothing else value


def _cell(column: TableColumn, row: object) -> str:
    return cell(column.cell(row) if column.cell else getattr(row, column.name), column.name)


def _batch_cells(page: Sequence[_Shown], view: View) -> tuple[Sequence[TableColumn], list[list[str]]]:
    return _BATCH_COLUMNS, [[_cell(column, row) for column in _BATCH_COLUMNS] for row in page]


def _flags(batch: RecordBatch) -> Iterator[str]:
    for name in ("transactional", "control", "delete_horizon"):
        if getattr(batch, name) not in (None, False):
            yield name
    if batch.timestamp_type == _LOG_APPEND:
        yield _LOG_APPEND


def _records_in(batch: RecordBatch) -> int | None:
    """Return the number of records; only decompression shows that of a compressed message set."""
    return 1 if batch.magic < 2 and batch.compression == "none" else batch.record_count


def _record_cells(page: Sequence[_Shown], view: View) -> tuple[Sequence[TableColumn], list[list[str]]]:
    rows = [row for row in page if isinstance(row, _ShownRecord)]
    found = {column.name: [_cell(column, row) for row in rows if column.cell] for column in _RECORD_COLUMNS}
    found["headers"] = [_headers(row, view.encoding) for row in rows]
    titles = {}
    types = {row.record.timestamp_type for row in rows}
    if types == {_LOG_APPEND}:
        titles["timestamp"] = f"timestamp ({_LOG_APPEND})"
    elif _LOG_APPEND in types:
        found["timestamp"] = [
            text + f" {_LOG_APPEND}" * (row.record.timestamp_type == _LOG_APPEND)
            for row, text in zip(rows, found["timestamp"], strict=True)
        ]
    for name in ("key", "value"):
        kind, found[name] = _key_or_value_cells(rows, name, view.encoding)
        titles[name] = f"{name} ({kind})" if kind else name
    columns = [column._replace(name=titles.get(column.name, column.name)) for column in _RECORD_COLUMNS]
    return columns, [list(row) for row in zip(*found.values(), strict=True)]


def _key_or_value_cells(rows: Sequence[_ShownRecord], name: str, encoding: str) -> tuple[str, list[str]]:
    """Return the notation and the cells of the column of keys or of values, as ``content_cells`` does."""
    decoded = [row.contents[name == "value"] if row.contents else None for row in rows]
    stored = [getattr(row, name) for row in rows]
    kind, texts = content_cells(
        [
            None if row.record.control or (one and one.kind) else content
            for row, one, content in zip(rows, decoded, stored, strict=True)
        ],
        encoding,
    )
    for n, (row, one) in enumerate(zip(rows, decoded, strict=True)):
        if row.record.control:
            texts[n] = "-"
        elif row.decoded is not None and row.decoded.get(name) is not None:
            texts[n] = cell(row.decoded[name])
        elif one is not None and one.error is not None:
            bytes_text = cell_text(stored[n], "", encoding) if one.kind else texts[n]
            texts[n] = f"[{one.error}] {bytes_text}"
        elif one is not None and one.kind is not None:
            schema = "" if one.schema_id is None else f"schema {one.schema_id} "
            texts[n] = f"{schema}{one.kind} {cell(one.value)}"
    return kind, texts


def _headers(row: _ShownRecord, encoding: str) -> str:
    return ", ".join(f"{key}={content_text(value, encoding)}" for key, value in row.headers) or "-"


def _control(row: _ShownRecord) -> str | None:
    """Return a marker as ``COMMIT producer 1001 epoch 0``, and other control records as their fields."""
    control = row.record.control
    if control is None:
        return None
    if control.type in ("ABORT", "COMMIT"):
        version = f", key version {control.version}" if control.version else ""
        return f"{control.type} producer {row.batch.producer_id} epoch {row.batch.producer_epoch}{version}"
    return f"{control.type} {to_json(control.fields)}" if control.fields else control.type
