"""The tables of ``kseg sql``, and a statement over them: its checks, and its errors as one line with a position.

The tables are the views of logs, with keys, values and header values as text. DuckDB is imported at its first use.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.engine import lazy, without_pip
from kseg.errors import UsageError
from kseg.extras.views.view_table import FIRST_OFFSET, OF_CONTENTS, VIEWS, as_text
from kseg.report.arrow_table import pa
from kseg.schema import Column
from kseg.text import unknown_name

if TYPE_CHECKING:
    import duckdb as duckdb
else:
    duckdb = lazy("duckdb", needed="kseg sql needs DuckDB: pip install 'kseg[sql]', which has duckdb")


def import_libraries(use: str = "kseg sql") -> None:
    """Import DuckDB and pyarrow. Raises UsageError, which says what to install, if one is missing.

    ``use`` is what needs them. pyarrow then uses the memory of the system, unless the environment says otherwise: its own
    pool holds up to 30 MB more.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for library, name in ((duckdb, "DuckDB"), (pa, "pyarrow")):
        try:
            library.__version__  # noqa: B018 - imports it
        except UsageError:
            raise UsageError(
                without_pip(f"{use} needs {name}: pip install 'kseg[sql]', which has duckdb and pyarrow")
            ) from None


RECORDS, MARKERS, BATCHES = "records", "markers", "batches"
#: Table -> its columns. The rows of ``records`` are data, those of ``markers`` control records.
TABLES: Mapping[str, tuple[Column, ...]] = {
    **{name: as_text(view.columns) for name, view in VIEWS.items()},
    RECORDS: as_text((*VIEWS[RECORDS].columns, *OF_CONTENTS, schema.DECODED)),
    MARKERS: as_text((*VIEWS[RECORDS].columns, *OF_CONTENTS)),
    BATCHES: as_text((*VIEWS[BATCHES].columns, FIRST_OFFSET)),
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
    "bytes": "BLOB",
    "headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
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


#: A reserved word that is also a column, and what follows it where it is the clause of LIMIT. ``::`` is a cast.
_OFFSET = re.compile(rb"offset\b", re.IGNORECASE)
_ROWS_TO_SKIP = re.compile(rb"[0-9($?]")
#: MULTI is a PIVOT without the list of its columns, which DuckDB selects first.
_READING = ("SELECT", "EXPLAIN", "MULTI")
#: What follows a message of DuckDB: a copy of the line, or the traceback of an error in the reader of a table.
_MORE = re.compile(r"\n\nLINE \d|\n+Possible solutions|\. Detail: Python exception")
#: What precedes the message of an error that ends the reader of a table.
_IN_READER = re.compile(r"^reading the stream registered as '\w+' failed: (Unknown error: )?")
_TABLE, _COLUMN = "MISSING_ENTRY", "COLUMN_NOT_FOUND"


class StatementError(UsageError):
    """A statement that DuckDB rejects, or that fails while it runs."""


class OutOfMemory(StatementError):
    """A statement that needs more memory than DuckDB may use."""


class Statement:
    """One reading statement. ``sql`` is its text for DuckDB.

    ``offset`` is quoted where it is a column: DuckDB reserves the word, and Kafka's records have the column. Raises
    StatementError for wrong syntax, for several statements, and for statements that don't read.
    """

    def __init__(self, connection: Any, text: str) -> None:
        self._text = text.encode()
        self._quoted = list(_offset_columns(text))
        self.sql = _quote(self._text, self._quoted).decode()
        try:
            found = connection.extract_statements(self.sql)
        except duckdb.Error as error:
            raise self.error(error) from None
        if len(found) != 1:
            raise StatementError(f"expected one statement, got {len(found)}")
        if found[0].type.name not in _READING:
            raise StatementError(
                f"expected SELECT, WITH, PIVOT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW, got {found[0].type.name}"
            )

    def error(self, error: Exception) -> StatementError:
        """Return an error of DuckDB as one line: the place in the statement, the reason, and the nearest name."""
        facts = _facts(error)
        message = error_line(error)
        name, subtype = facts.get("name", ""), facts.get("error_subtype")
        if subtype == _TABLE and facts.get("type") == "Table":
            message = unknown_name("table", name, TABLES)
        elif subtype == _COLUMN:
            known = [column.name for table in tables_in(self.sql) or TABLES for column in TABLES[table]]
            known += str(facts.get("candidates", "")).split(",")
            message = unknown_name("column", name, dict.fromkeys(known), "kseg sql --tables lists the columns")
        elif facts.get("exception_type") == "Out of Memory":
            return OutOfMemory(f"{message}: allow more with --memory")
        position = facts.get("position")
        return StatementError(message if position is None else f"{self._place(int(position))}: {message}")

    def _place(self, position: int) -> str:
        """Return the line and the column of a byte of ``sql`` in the given text; both count from 1."""
        quotes = sum(2 for n, at in enumerate(self._quoted) if at + 2 * n < position)
        before = self._text[: position - quotes].decode(errors="replace")
        return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _offset_columns(text: str) -> Iterator[int]:
    """Yield the byte positions at which the word ``offset`` is a column."""
    source = text.encode()
    starts = [at for at, _ in duckdb.tokenize(text)]
    for at, following in zip(starts, [*starts[1:], len(source)], strict=True):
        if _OFFSET.match(source, at) and not _ROWS_TO_SKIP.match(source, following):
            yield at


def _quote(source: bytes, positions: list[int]) -> bytes:
    for at in reversed(positions):
        end = at + len(b"offset")
        source = source[:at] + b'"' + source[at:end] + b'"' + source[end:]
    return source


def error_line(error: Exception) -> str:
    """Return the message of an error of DuckDB as one line."""
    message = " ".join(_MORE.split(str(_facts(error).get("exception_message", error)))[0].split())
    return _IN_READER.sub("", message)


def _facts(error: Exception) -> dict[str, Any]:
    """Return the fields of an error of DuckDB, which it writes as JSON with ``errors_as_json``."""
    _, brace, fields = str(error).partition("{")
    try:
        found: dict[str, Any] = json.loads(brace + fields)
    except ValueError:
        return {}
    return found
