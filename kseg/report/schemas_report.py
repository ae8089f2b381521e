"""Output of ``kseg schemas``: rows or a table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import TextIO

from kseg.commands.schemas import SchemasTotal
from kseg.report.row_formats import RowSet, cell, table_of
from kseg.report.tables import TableColumn, cells_of, print_cells, print_text
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of

_STATES = ("active", "soft-deleted", "hard-deleted", "replaced", "missing")
FIELDS = RowKind("schemas", "Schemas").of(
    Column(
        "kind", "text", "schema; missing for an id that data use and the registry does not have; extra for a version that "
        "only the compared registry has", "kind", values=("schema", "missing", "extra"),
    ),
    Column(
        "subject", "text?", "the subject, with its context",
        shown=TableColumn("subject", text="wrap", least=16, cell=lambda row: cell(row["subject"] or row["guid"])),
    ),
    Column("version", "int32?", "the version in the subject", shown=TableColumn("version", right=True)),
    Column("id", "int32?", "the id in the context", shown=TableColumn("id", right=True)),
    Column("guid", "text?", "the GUID that serializers put into headers"),
    Column("type", "text?", "AVRO, PROTOBUF or JSON", shown=TableColumn("type", priority=2)),
    Column(
        "state", "text", "state of the version", values=_STATES,
        shown=TableColumn("state", cell=lambda row: row["state"] + (", conflict" if row["conflict"] else "")),
    ),
    Column("conflict", "bool?", "whether another schema of the context has the same id"),
    Column(
        "references", "objects?", "the schemas that it imports",
        shown=TableColumn("references", text="wrap", priority=3, cell=lambda row: cell(", ".join(
            f"{one['subject']} {one['version']}" for one in row["references"] or ()) or None)),
        of=(
            Column("name", "text", "the name in the schema"),
            Column("subject", "text", "the subject of the imported schema"),
            Column("version", "int32", "its version"),
        ),
    ),
    Column(
        "used_by", "objects?", "the data with this id; null if not examined",
        shown=TableColumn("used by", text="wrap", least=16, cell=lambda row: cell(", ".join(
            f"{one['topic'] or '-'} {one['side']} ({one['records']:,})" for one in row["used_by"] or ()) or None)),
        of=(
            Column("topic", "text?", "the topic of the data"),
            Column("side", "text", "the part of the records", values=("key", "value")),
            Column("records", "count", "number of records with the id"),
        ),
    ),
    Column("schema", "text?", "the schema"),
    Column(
        "registry", "text?", "the version in the compared registry: same, absent, or what differs; null if not compared",
        shown=TableColumn("registry", text="wrap"),
    ),
)  # fmt: skip
COLUMNS = table_of(FIELDS.columns)
ROW_KINDS = (FIELDS,)


def rows(found: Iterable[Row], total: SchemasTotal) -> RowSet:
    return RowSet.made(FIELDS.columns, found)


def write_table(found: Iterable[Row], total: SchemasTotal, out: TextIO) -> None:
    """Write the missing and the conflicting schemas, and a table of the schemas."""
    listed = list(found)
    examined = any(row["used_by"] is not None for row in listed)
    compared = any(row["registry"] is not None for row in listed)
    shown = [True] * (len(COLUMNS) - 2) + [examined, compared]
    fine = [row["state"] == "active" and row["registry"] in (None, "same") for row in listed]
    cells = [list(compress(cells_of(COLUMNS, row), shown)) for row in listed]
    if total.missing or total.conflicts or total.differing:
        print_text(out, _problems(total), indent=0)
        out.write("\n")
    print_cells(out, list(compress(COLUMNS, shown)), zip(cells, ("" if one else "yellow" for one in fine), strict=True))


def _problems(total: SchemasTotal) -> str:
    parts = (
        (total.missing, "id", "in the data without a schema"),
        (total.conflicts, "version", "whose id has another schema, too"),
        (total.differing, "version", "that the registry does not have, has in another way, or only it has"),
    )
    return "; ".join(f"{count_of(count, noun)} {text}" for count, noun, text in parts if count)
