"""Output of ``kseg dump`` for side files, the entries of files of one kind, and for files that are read with ``--as``.

The text format is kafka-dump-log's for the files that it supports. For others it is the content of the file, or one
value per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TextIO

from kseg.commands.dump.dump_items import EmptyFile, FileStart, Item, SideFileItem, WireRow
from kseg.commands.dump.dump_log_lines import header_lines
from kseg.errors import UsageError
from kseg.format.segment.records_chunk import ENCODERS
from kseg.format.segment.records_chunk import encoded as encoded_row
from kseg.format.sidefiles.registry import COMMON, recognise
from kseg.report.formats import DUMP, SIDE_FILES, View, check_format, write
from kseg.report.row_formats import NUMBERS, CellContent, RowSet, cell, content_text, csv_names, pages
from kseg.report.tables import number_column, print_cells
from kseg.schema import Column, Row
from kseg.text import escape_controls, text_or_json, to_json

Items = Iterable[FileStart | SideFileItem | EmptyFile]


def write_mixed(name: str, dumped: Iterable[Item], out: TextIO, view: View) -> None:
    """Write segments and side files in the named format, consecutive files of one kind together."""
    for side, items in groupby(dumped, key=lambda item: item.side):
        write(SIDE_FILES if side else DUMP, name, out, items, view=view)


def refuse_for_side_files(paths: Iterable[str], name: str, *, filtered: bool) -> None:
    """Raise UsageError if side files are among the paths and the options apply to segments only."""
    kinds = {known.side if (known := recognise(path)) else None for path in paths}
    titles = ", ".join(sorted(side.title for side in kinds if side))
    check_format(SIDE_FILES, name)
    if filtered:
        raise UsageError(f"filters such as --offsets apply to segments only: omit them for {titles}")
    if name in ("csv", "parquet") and len(kinds) > 1:
        raise UsageError(f"--format {name} needs files of one kind: they have the same columns")


def rows(dumped: Items, view: View) -> RowSet:
    """Return the entries of files of one kind as rows."""
    # The first item is a file, which determines the columns; its entries follow, if it has any.
    first = next(iter(dumped := iter(dumped)), None)
    columns = (*COMMON, *first.side.columns) if first and first.side else ()
    names = [column.name for column in columns]
    found = (
        (item.side.kind, item.file, item.position, *item.entry) for item in dumped if isinstance(item, SideFileItem)
    )
    return RowSet((dict(zip(names, values, strict=True)) for values in found), columns, names)


def write_jsonl(dumped: Items, out: TextIO, view: View) -> None:
    """Write the rows as JSON Lines. The lines of a file differ only in their values."""
    file = line = ""
    for item in dumped:
        if isinstance(item, SideFileItem):
            if item.file != file:
                file, line = item.file, _json_template(item)
            values = [value if type(value) is int else to_json(value) for value in item.entry]
            out.write(line % (item.position, *values))


def _json_template(item: SideFileItem) -> str:
    """Return the line of an entry with ``%s`` for its position and for each of its values."""
    fixed = to_json({"kind": item.side.kind, "file": item.file})[:-1].replace("%", "%%")
    names = ["position", *(column.name for column in item.side.columns)]
    return fixed + "".join(f',"{name}":%s' for name in names) + "}\n"


def write_text(dumped: Items, out: TextIO, view: View) -> None:
    for item in dumped:
        for line in _text_lines(item):
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def write_table(dumped: Items, out: TextIO, view: View) -> None:
    for page in pages(rows(dumped, view).rows):
        known = recognise(page[0]["file"])
        assert known
        title = f"{cell(page[0]['file'])}: {known.side.title}" + (f", {known.state}" if known.state else "")
        columns = [number_column(one.name, one.type in NUMBERS) for one in (COMMON[2], *known.side.columns)]
        print_cells(
            out, columns, (([cell(row[one.name], one.name) for one in columns], "") for row in page), title=title
        )


def _text_lines(item: FileStart | SideFileItem | EmptyFile) -> Iterator[str]:
    if isinstance(item, FileStart):
        yield from header_lines(item.file, None)
    elif isinstance(item, SideFileItem):
        line = item.side.line
        yield line(item.entry) if line else " ".join("-" if value is None else str(value) for value in item.entry)
    elif item.side.reports_empty_file:
        yield f"{item.file} is empty."


# The priorities of columns that a narrow terminal does not hide (0), or hides last. If a page has records, their values are
# shown rather than the bodies of the frames.
_PRIORITIES = {
    "kind": 0, "api_name": 0, "correlation_id": 0, "offset": 0, "value": 1, "key": 2, "body": 3, "position": 4,
}  # fmt: skip
# Columns in which null and empty differ.
_SIZED = ("key", "value")


def frame_rows(dumped: Iterable[Item], columns: Sequence[Column], view: View) -> RowSet:
    """Return the rows of files of one kind."""
    return RowSet((item.row for item in dumped if isinstance(item, WireRow)), columns, csv_names(columns))


def write_frame_text(dumped: Iterable[Item], columns: Sequence[Column], out: TextIO, view: View) -> None:
    """Write one row per line with the names of its fields, as kafka-dump-log prints an index; null has the size -1."""
    encode = ENCODERS[view.encoding]
    for item in dumped:
        if isinstance(item, WireRow):
            reported = (
                f" {name}: {text_or_json(value)}" for name, value in _line(item.row, encoded_row(item.row, encode))
            )
            line = item.row["kind"] + "".join(reported)
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def _line(row: Row, shown: Row) -> Iterator[tuple[str, Any]]:
    for name, value in shown.items():
        if name in _SIZED:
            yield f"{name}Size", -1 if row[name] is None else len(row[name])
        if name != "kind" and value not in (None, []):
            yield name, value


def write_frame_table(dumped: Iterable[Item], columns: Sequence[Column], out: TextIO, view: View) -> None:
    encode = ENCODERS[view.encoding]
    for stored in pages(frame_rows(dumped, columns, view).rows):
        page = [encoded_row(row, encode) for row in stored]
        shown = [column for column in columns[2:] if any(_has(row, column.name) for row in page)]
        kinds = {row["kind"] for row in page}
        if len(kinds) > 1:
            shown.insert(0, columns[0])
        columns_shown = [
            number_column(column.name, column.type in NUMBERS, "cut", _PRIORITIES.get(column.name, n))
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
