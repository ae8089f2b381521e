"""Output of ``kseg audit``: a table, JSON Lines or CSV, with the columns of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from kseg.format.segment import rows
from kseg.report.dump import cell, csv_cell
from kseg.report.formats import View
from kseg.report.rich_parts import Table, Text, box, console
from kseg.text import to_json

Found = Iterable[Mapping[str, Any]]


def write_jsonl(columns: Sequence[str], found: Found, out: TextIO) -> None:
    for row in found:
        out.write(to_json(_plain(row)) + "\n")


def write_csv(columns: Sequence[str], found: Found, out: TextIO) -> None:
    view = View(deep=False, encoding="auto", terminal=out.isatty())
    out.write(",".join(columns) + "\n")
    for row in map(_plain, found):
        out.write(",".join(csv_cell(row[name], view) for name in columns) + "\n")


def write_table(columns: Sequence[str], found: Found, out: TextIO) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in map(_plain, found):
        table.add_row(*(Text(cell(row[name])) for name in columns))
    console(out).print(table)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with bytes as text, or as base64 if they are not UTF-8."""
    encode = rows.ENCODERS["auto"]
    return {
        name: encode(bytes(value))[0] if isinstance(value, (bytes, bytearray)) else value for name, value in row.items()
    }
