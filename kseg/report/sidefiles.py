"""Output of ``kseg dump`` for side files: one writer per format, over the entries of files of one kind.

The text format is kafka-dump-log's for the files that it supports. For others it is the content of the file, or one
value per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING, TextIO

from kseg.commands.dump.kafka_text import header_lines
from kseg.commands.dump.rows import EmptyFile, FileStart, Item, SideFileItem
from kseg.errors import UsageError
from kseg.format.sidefiles.registry import COMMON, SideFile, recognise, side_row
from kseg.lazy import lazy
from kseg.report.dump import cell, csv_cell, pages
from kseg.report.formats import DUMP_FORMATS, SIDE_FORMATS, View, check_format, writer
from kseg.report.rich_parts import Table, Text, box, console
from kseg.schema import Column, Row
from kseg.text import escape_controls, to_json

if TYPE_CHECKING:
    from kseg.report import parquet
else:
    parquet = lazy("kseg.report.parquet")

Items = Iterable[FileStart | SideFileItem | EmptyFile]


def write_mixed(name: str, dumped: Iterable[Item], out: TextIO, view: View) -> None:
    """Write segments and side files in the named format, consecutive files of one kind together."""
    for side, items in groupby(dumped, key=lambda item: item.side):
        writer(SIDE_FORMATS if side else DUMP_FORMATS, name)(items, out, view)


def refuse_for_side_files(paths: Iterable[str], name: str, *, filtered: bool) -> None:
    """Raise UsageError if side files are among the paths and the options apply to segments only."""
    kinds = {known.side if (known := recognise(path)) else None for path in paths}
    titles = ", ".join(sorted(side.title for side in kinds if side))
    check_format(SIDE_FORMATS, name, "side files")
    if filtered:
        raise UsageError(f"--offsets and its like choose from segments; {titles}: give it without")
    if name in ("csv", "parquet") and len(kinds) > 1:
        raise UsageError(f"--format {name} has one set of columns: give files of one kind")


def write_jsonl(dumped: Items, out: TextIO, view: View) -> None:
    # The constant part of a row is formatted once per file: an index has a million entries.
    template = ""
    for item in dumped:
        if isinstance(item, SideFileItem):
            values = (value if type(value) is int else to_json(value) for value in item.entry)
            out.write(template % (item.position, *values))
        elif isinstance(item, FileStart) and item.side:
            shared = to_json({"kind": item.side.kind, "file": item.file})[1:-1].replace("%", "%%")
            own = (f'"{column.name}":%s' for column in (COMMON[2], *item.side.columns))
            template = "{" + ",".join((shared, *own)) + "}\n"


def write_csv(dumped: Items, out: TextIO, view: View) -> None:
    names: list[str] = []
    for item in dumped:
        if not names:
            names = [column.name for column in _columns(item.side)]
            out.write(",".join(names) + "\n")
        for row in _rows([item]):
            out.write(",".join(csv_cell(row[name], view) for name in names) + "\n")


def write_parquet(dumped: Items, out: TextIO, view: View) -> None:
    """Write Parquet. Raises UsageError for a terminal or if pyarrow is missing."""
    # The first item is a file, which determines the columns; its entries follow, if it has any.
    first = next(iter(dumped := iter(dumped)), None)
    found = _rows(chain([first] if first else [], dumped))
    parquet.write_rows(found, _columns(first.side if first else None), out, view)


def write_text(dumped: Items, out: TextIO, view: View) -> None:
    for item in dumped:
        for line in _text_lines(item):
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def write_table(dumped: Items, out: TextIO, view: View) -> None:
    shown_on = console(out)
    for page in pages(_rows(dumped)):
        known = recognise(page[0]["file"])
        assert known
        title = f"{cell(page[0]['file'])}: {known.side.title}" + (f", {known.state}" if known.state else "")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        columns = (COMMON[2], *known.side.columns)
        for column in columns:
            table.add_column(column.name, justify="right" if column.type in _NUMBERS else "left")
        for row in page:
            table.add_row(*(Text(cell(row[column.name])) for column in columns))
        shown_on.print(Text(title), table)  # a title of the table would be wrapped to its width


_NUMBERS = ("int", "int32", "ms")


def _columns(side: SideFile | None) -> tuple[Column, ...]:
    return (*COMMON, *(side.columns if side else ()))


def _rows(dumped: Items) -> Iterator[Row]:
    for item in dumped:
        if isinstance(item, SideFileItem):
            yield side_row(item.file, item.side, item.position, item.entry)


def _text_lines(item: FileStart | SideFileItem | EmptyFile) -> Iterator[str]:
    if isinstance(item, FileStart):
        yield from header_lines(item.file, None)
    elif isinstance(item, SideFileItem):
        line = item.side.line
        yield line(item.entry) if line else " ".join("-" if value is None else str(value) for value in item.entry)
    elif item.side.reports_empty_file:
        yield f"{item.file} is empty."
