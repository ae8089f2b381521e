"""Output of ``kseg dump`` for side files: the entries of files of one kind.

The text format is kafka-dump-log's for the files that it supports. For others it is the content of the file, or one
value per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, TextIO

from kseg.commands.dump.dump_items import EmptyFile, FileStart, Item, SideFileItem
from kseg.commands.dump.dump_log_lines import header_lines
from kseg.errors import UsageError
from kseg.format.sidefiles.registry import COMMON, recognise
from kseg.report.formats import DUMP, SIDE_FILES, View, check_format, write
from kseg.report.row_formats import NUMBERS, RowSet, cell, pages
from kseg.report.tables import TableColumn, print_cells
from kseg.text import escape_controls, to_json

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
    found = (item for item in dumped if isinstance(item, SideFileItem))
    return RowSet((dict(zip(names, _values(item), strict=True)) for item in found), columns, names)


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


def _values(item: SideFileItem) -> tuple[Any, ...]:
    return (item.side.kind, item.file, item.position, *item.entry)


def write_text(dumped: Items, out: TextIO, view: View) -> None:
    for item in dumped:
        for line in _text_lines(item):
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def write_table(dumped: Items, out: TextIO, view: View) -> None:
    for page in pages(rows(dumped, view).rows):
        known = recognise(page[0]["file"])
        assert known
        title = f"{cell(page[0]['file'])}: {known.side.title}" + (f", {known.state}" if known.state else "")
        columns = [
            TableColumn(column.name, column.type in NUMBERS, "" if column.type in NUMBERS else "wrap")
            for column in (COMMON[2], *known.side.columns)
        ]
        print_cells(
            out,
            columns,
            [([cell(row[column.name], column.name) for column in columns], "") for row in page],
            title=title,
        )


def _text_lines(item: FileStart | SideFileItem | EmptyFile) -> Iterator[str]:
    if isinstance(item, FileStart):
        yield from header_lines(item.file, None)
    elif isinstance(item, SideFileItem):
        line = item.side.line
        yield line(item.entry) if line else " ".join("-" if value is None else str(value) for value in item.entry)
    elif item.side.reports_empty_file:
        yield f"{item.file} is empty."
