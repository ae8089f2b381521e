"""Output of ``kseg audit``: rows or a table with the columns of the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from kseg.format.segment.rows import ENCODERS
from kseg.report.rows import RowSet, cell, is_time
from kseg.report.tables import TableColumn, print_cells

Found = Iterable[Mapping[str, Any]]


def rows(columns: Sequence[str], found: Found) -> RowSet:
    """Return the findings of an audit as rows."""
    return RowSet(map(_plain, found), names=columns)


def write_table(columns: Sequence[str], found: Found, out: TextIO) -> None:
    rows = [*map(_plain, found)]
    numbers = {name for name in columns if all(isinstance(row[name], (int, float, type(None))) for row in rows)}
    shown = [
        TableColumn(name, name in numbers and not is_time(name), "" if name in numbers else "wrap", n if n > 3 else 0)
        for n, name in enumerate(columns, 1)
    ]
    print_cells(out, shown, [([cell(row[name], name) for name in columns], "") for row in rows])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with bytes as text, or as base64 if they are not UTF-8."""
    encode = ENCODERS["auto"]
    return {
        name: encode(bytes(value))[0] if isinstance(value, (bytes, bytearray)) else value for name, value in row.items()
    }
