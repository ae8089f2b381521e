"""Output of ``kseg schemas``: rows or a table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import TextIO

from kseg.commands.schemas.listing import SCHEMA_COLUMNS, Total
from kseg.report.rows import RowSet, cell
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Row
from kseg.text import count_of

_COLUMNS = (
    TableColumn("subject", text="wrap"),
    TableColumn("version", right=True),
    TableColumn("id", right=True),
    TableColumn("type", priority=2),
    TableColumn("state"),
    TableColumn("references", text="wrap", priority=3),
    TableColumn("used by", text="wrap", priority=1),
    TableColumn("registry", text="wrap"),
)


def rows(found: Iterable[Row], total: Total) -> RowSet:
    """Return the rows of ``listed``."""
    return RowSet(found, SCHEMA_COLUMNS, [column.name for column in SCHEMA_COLUMNS])


def write_table(found: Iterable[Row], total: Total, out: TextIO) -> None:
    """Write what is missing or conflicting, and a table of the schemas."""
    listed = list(found)
    examined = any(row["used_by"] is not None for row in listed)
    compared = any(row["registry"] is not None for row in listed)
    shown = [True] * (len(_COLUMNS) - 2) + [examined, compared]
    columns = list(compress(_COLUMNS, shown))
    cells = [(list(compress(_cells(row), shown)), "" if _is_fine(row) else "yellow") for row in listed]
    if total.missing or total.conflicts or total.differing:
        print_text(out, _problems(total))
        out.write("\n")
    print_cells(out, columns, cells)


def _is_fine(row: Row) -> bool:
    return row["state"] == "active" and row["registry"] in (None, "same")


def _problems(total: Total) -> str:
    parts = []
    if total.missing:
        parts.append(f"{count_of(total.missing, 'id')} in the data without a schema")
    if total.conflicts:
        parts.append(f"{count_of(total.conflicts, 'version')} whose id has another schema, too")
    if total.differing:
        parts.append(
            f"{count_of(total.differing, 'version')} that the registry does not have, has in another way, or only it has"
        )
    return "; ".join(parts)


def _cells(row: Row) -> list[str]:
    users = row["used_by"] or ()
    return [
        cell(row["guid"] if row["kind"] == "missing" else row["subject"]),
        cell(row["version"]),
        cell(row["id"]),
        cell(row["type"]),
        row["state"] + (", conflict" if row["conflict"] else ""),
        cell(", ".join(f"{one['subject']} {one['version']}" for one in row["references"] or ()) or None),
        cell(", ".join(f"{one['topic'] or '-'} {one['side']} ({one['records']:,})" for one in users) or None),
        cell(row["registry"]),
    ]
