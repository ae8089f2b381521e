"""Output of ``kseg audit``: rows or a table with the columns of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from kseg.format.segment.rows import ENCODERS
from kseg.report.rows import RowSet, cell
from kseg.report.tables import TableColumn, print_cells

Found = Iterable[Mapping[str, Any]]


def rows(columns: Sequence[str], found: Found) -> RowSet:
    """Return the findings of an audit as rows."""
    return RowSet(map(_plain, found), names=columns)


def write_table(columns: Sequence[str], found: Found, out: TextIO) -> None:
    cells = [([cell(row[name], name) for name in columns], "") for row in map(_plain, found)]
    print_cells(out, [TableColumn(name, text="wrap") for name in columns], cells)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with bytes as text, or as base64 if they are not UTF-8."""
    encode = ENCODERS["auto"]
    return {
        name: encode(bytes(value))[0] if isinstance(value, (bytes, bytearray)) else value for name, value in row.items()
    }
