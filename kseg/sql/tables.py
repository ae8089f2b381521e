"""The tables of ``kseg sql``: the views of logs, with keys, values and header values as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kseg import schema
from kseg.schema import Column
from kseg.views.view_table import DAMAGE, VIEWS, as_text

RECORDS = "records"
#: Table -> its columns.
TABLES: Mapping[str, tuple[Column, ...]] = {
    name: as_text(column for column in view.columns if column is not DAMAGE) for name, view in VIEWS.items()
}
#: The types of columns in DuckDB.
TYPES: Mapping[str, str] = {
    "int": "BIGINT",
    "int32": "INTEGER",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "ints": "BIGINT[]",
    "text_headers": 'STRUCT("key" VARCHAR, "value" VARCHAR)[]',
    "object": "VARCHAR",
}
_WORD = re.compile(r"\w+")


def tables_in(statement: str) -> list[str]:
    """Return the tables whose names occur in a statement."""
    words = {word.lower() for word in _WORD.findall(statement)}
    return [name for name in TABLES if name in words]


def table_rows() -> list[schema.Row]:
    """Return a row for each column of each table."""
    return [
        {
            "table": name,
            "column": column.name,
            "type": TYPES[column.type],
            "meaning": column.meaning + (", as JSON" if column.type == "object" else ""),
        }
        for name, columns in TABLES.items()
        for column in columns
    ]
