"""Output of ``kseg dump --as``: rows of several kinds, as tables and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from kseg.commands.dump.dump_items import Item, WireRow
from kseg.format.segment.records_chunk import ENCODERS, encoded
from kseg.report.dump_table import CellContent, content_text
from kseg.report.formats import View
from kseg.report.row_formats import NUMBERS, RowSet, cell, pages
from kseg.report.tables import TableColumn, print_cells
from kseg.schema import Column, Row
from kseg.text import escape_controls, text_or_json

Items = Iterable[Item]
Columns = Sequence[Column]

# The priorities of columns that a narrow terminal does not hide (0), or hides last. If a page has records, their values are
# shown rather than the bodies of the frames.
_PRIORITIES = {
    "kind": 0, "api_name": 0, "correlation_id": 0, "offset": 0, "value": 1, "key": 2, "body": 3, "position": 4,
}  # fmt: skip
# Columns in which null and empty differ.
_SIZED = ("key", "value")


def rows(dumped: Items, columns: Columns, view: View) -> RowSet:
    """Return the rows of files of one kind; each column of bytes in CSV is followed by one with their encoding."""
    names: list[str] = []
    for column in columns:
        names += [column.name, f"{column.name}_encoding"] if column.type == "bytes" else [column.name]
    return RowSet((item.row for item in dumped if isinstance(item, WireRow)), columns, names)


def write_text(dumped: Items, columns: Columns, out: TextIO, view: View) -> None:
    """Write one row per line with the names of its fields, as kafka-dump-log prints an index; null has the size -1."""
    encode = ENCODERS[view.encoding]
    for item in dumped:
        if isinstance(item, WireRow):
            reported = (f" {name}: {text_or_json(value)}" for name, value in _line(item.row, encoded(item.row, encode)))
            line = item.row["kind"] + "".join(reported)
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def _line(row: Row, shown: Row) -> Iterator[tuple[str, Any]]:
    for name, value in shown.items():
        if name in _SIZED:
            yield f"{name}Size", -1 if row[name] is None else len(row[name])
        if name != "kind" and value not in (None, []):
            yield name, value


def write_table(dumped: Items, columns: Columns, out: TextIO, view: View) -> None:
    encode = ENCODERS[view.encoding]
    for stored in pages(rows(dumped, columns, view).rows):
        page = [encoded(row, encode) for row in stored]
        shown = [column for column in columns[2:] if any(_has(row, column.name) for row in page)]
        kinds = {row["kind"] for row in page}
        if len(kinds) > 1:
            shown.insert(0, columns[0])
        columns_shown = [
            TableColumn(
                column.name,
                column.type in NUMBERS,
                "" if column.type in NUMBERS else "cut",
                _PRIORITIES.get(column.name, n),
            )
            for n, column in enumerate(shown, len(_PRIORITIES))
        ]
        by_name = [_cells(page, stored, column.name, view) for column in shown]
        cells = [([*row], "") for row in zip(*by_name, strict=True)]
        print_cells(out, columns_shown, cells, title=cell(page[0]["file"]))


def _cells(page: Sequence[Row], stored: Sequence[Row], name: str, view: View) -> Sequence[str]:
    """Return the cells of a column. One that a row kind lacks is empty; keys and values are shown as in a segment."""
    if name in _SIZED:
        contents = [None if row.get(name) is None else CellContent(row[name], len(row[name])) for row in stored]
        texts = [content_text(content, view.encoding) for content in contents]
        return [text if name in row else "" for row, text in zip(page, texts, strict=True)]
    return [cell(row[name], name) if name in row else "" for row in page]


def _has(row: Row, name: str) -> bool:
    return row.get(name) not in (None, []) or (name in _SIZED and name in row)
