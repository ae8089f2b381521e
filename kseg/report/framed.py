"""Output of ``kseg dump --as``: one writer per format, over rows of several kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kseg.commands.dump.rows import Item, WireRow
from kseg.format.segment.rows import ENCODERS, encoded
from kseg.lazy import lazy
from kseg.report.dump import cell, csv_cell, pages
from kseg.report.formats import View
from kseg.report.rich_parts import Table, Text, box, console
from kseg.schema import Column, Row
from kseg.text import escape_controls, to_json

if TYPE_CHECKING:
    from kseg.report import parquet
else:
    parquet = lazy("kseg.report.parquet")

Items = Iterable[Item]
Columns = Sequence[Column]

# Decoded bodies and values can be longer than any terminal is wide.
_WIDEST = 48
# Columns in which null and empty differ.
_SIZED = ("key", "value")
_NUMBERS = ("int", "int32", "ms")


def _rows(dumped: Items, view: View) -> Iterator[Row]:
    encode = ENCODERS[view.encoding]
    return (encoded(item.row, encode) for item in dumped if isinstance(item, WireRow))


def write_jsonl(dumped: Items, out: TextIO, view: View, columns: Columns) -> None:
    for row in _rows(dumped, view):
        out.write(to_json(row) + "\n")


def write_csv(dumped: Items, out: TextIO, view: View, columns: Columns) -> None:
    names = []
    for column in columns:
        names += [column.name, f"{column.name}_encoding"] if column.type == "bytes" else [column.name]
    out.write(",".join(names) + "\n")
    for row in _rows(dumped, view):
        out.write(",".join(csv_cell(row.get(name), view) for name in names) + "\n")


def write_text(dumped: Items, out: TextIO, view: View, columns: Columns) -> None:
    """Write one row per line with the names of its fields, as kafka-dump-log prints an index; null has the size -1."""
    encode = ENCODERS[view.encoding]
    for item in dumped:
        if isinstance(item, WireRow):
            reported = (f" {name}: {_text(value)}" for name, value in _line(item.row, encoded(item.row, encode)))
            line = item.row["kind"] + "".join(reported)
            out.write((escape_controls(line) if view.terminal else line) + "\n")


def _line(row: Row, shown: Row) -> Iterator[tuple[str, Any]]:
    for name, value in shown.items():
        if name in _SIZED:
            yield f"{name}Size", -1 if row[name] is None else len(row[name])
        if name != "kind" and value not in (None, []):
            yield name, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def write_table(dumped: Items, out: TextIO, view: View, columns: Columns) -> None:
    shown_on = console(out)
    for page in pages(_rows(dumped, view)):
        shown = [column for column in columns[2:] if any(_has(row, column.name) for row in page)]
        kinds = {row["kind"] for row in page}
        if len(kinds) > 1:
            shown.insert(0, columns[0])
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in shown:
            number = column.type in _NUMBERS
            table.add_column(
                column.name, justify="right" if number else "left", no_wrap=True, max_width=None if number else _WIDEST
            )
        for row in page:
            # A column that a row kind lacks is empty, not null.
            table.add_row(*(Text(cell(row[column.name]) if column.name in row else "") for column in shown))
        shown_on.print(Text(cell(page[0]["file"])), table)


def _has(row: Row, name: str) -> bool:
    return row.get(name) not in (None, []) or (name in _SIZED and name in row)


def write_parquet(dumped: Items, out: TextIO, view: View, columns: Columns) -> None:
    """Write Parquet; bytes stay bytes. Raises UsageError for a terminal or if pyarrow is missing."""
    # Topics come from the records: the folder of a capture does not name them.
    found = ({"topic": None, "partition": None, **item.row} for item in dumped if isinstance(item, WireRow))
    parquet.write_rows(found, columns, out, view)
