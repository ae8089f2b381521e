"""The tables of ``kseg sql``, and a statement over them: its checks, and its errors as one line with a position.

The tables are the views of logs, with keys, values and header values as text. DuckDB is imported at its first use. It runs a
statement in bounded memory and without access to other files.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.engine import lazy, without_pip
from kseg.errors import UsageError
from kseg.extras.views.view_table import FIRST_OFFSET, OF_CONTENTS, VIEWS, as_text
from kseg.format.storage import interrupts
from kseg.report.arrow_table import BATCH_ROWS, pa
from kseg.schema import Column
from kseg.text import unknown_name

if TYPE_CHECKING:
    import duckdb as duckdb

    from kseg.extras.views.scan import Scan
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
    words = {word.lower() for word in _WORD.findall(statement)}
    return [name for name in TABLES if name in words]


def table_rows() -> list[schema.Row]:
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


#: The memory in bytes that DuckDB may use. A statement that needs more before its first row is run again with the next
#: limit. Grouping, joining and most sorting of larger data uses temporary files.
LIMITS = (32 << 20, 128 << 20)
#: The bytes of temporary files.
TEMPORARY = 16 << 30
#: Threads of DuckDB. Reading segments takes longer than the usual statement, and only one thread can read. A second one took
#: 10 to 40 MB of memory.
THREADS = 1


@contextmanager
def run_statement(
    text: str, tables: Mapping[str, Scan], memory: int | None = None
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield the schema and the rows of one statement.

    ``tables`` has a scan by the name of each table; only used ones are read. ``memory`` is in bytes, None for LIMITS. Raises
    StatementError for a wrong statement, also while the rows are read. Temporary files are deleted at the end.
    """
    limits = LIMITS if memory is None else (memory,)
    with tempfile.TemporaryDirectory(prefix="kseg-sql-") as folder, ExitStack() as opened:
        for limit in limits:
            connection = opened.enter_context(connected(settings_of(folder, limit), tables))
            worker = opened.enter_context(_worker(connection))
            running = _Running(connection, text, worker)
            try:
                schema, first = running.start()
            except OutOfMemory:
                if limit == limits[-1]:
                    raise
                opened.close()
            else:
                yield schema, running.batches(first)
                return


@contextmanager
def connected(settings: dict[str, Any], tables: Mapping[str, Scan]) -> Iterator[Any]:
    """Yield a connection to an empty database with the tables."""
    with duckdb.connect(":memory:", config=settings) as connection:
        for setting in ("enable_external_access = false", "errors_as_json = true", "timezone = 'UTC'"):
            connection.execute(f"set {setting}")
        for name, scan in tables.items():
            connection.register(name, scan)
        connection.execute("set lock_configuration = true")
        yield connection


@contextmanager
def _worker(connection: Any) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread that runs statements. It ends before the connection is closed: DuckDB refuses to close a busy one."""
    with ThreadPoolExecutor(1) as worker:
        try:
            yield worker
        finally:
            with interrupts.delayed():
                last = worker.submit(int)  # runs when a statement that was interrupted has ended
                while not last.done():
                    connection.interrupt()  # without effect on a statement that is about to begin
                    wait([last], timeout=0.1)


class _Running:
    """A statement that runs. Raises StatementError."""

    def __init__(self, connection: Any, text: str, worker: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._worker = worker
        self._statement = Statement(connection, text)
        self._rows: Any = None

    def start(self) -> tuple[pa.Schema, pa.RecordBatch | None]:
        """Return the schema and the first rows, None without rows."""
        self._rows = self._call(self._open)
        return self._rows.schema, self._call(next, self._rows, None)

    def batches(self, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, of which ``batch`` has the first."""
        while batch is not None:
            yield batch
            batch = self._call(next, self._rows, None)

    def _open(self) -> Any:
        try:
            found = self._connection.sql(self._statement.sql)
            return _with_texts(found).arrow(BATCH_ROWS)
        except (duckdb.BinderException, duckdb.CatalogException):
            self._connection.execute(self._statement.sql)  # raises the same error, with its position in the statement
            raise

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the other thread: DuckDB does not react to Ctrl-C, but this thread does."""
        with interrupts.delayed() as came:  # an exception within ``submit`` and ``wait`` can leave their locks closed
            running = self._worker.submit(function, *arguments)
            while not came and not wait([running], timeout=0.1).done:
                pass
        try:
            return running.result()
        # Arrow makes an ArrowException or an OSError of DuckDB's errors while rows are read.
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._statement.error(error) from error


#: Types without a type of Arrow that has the same values and that JSON, CSV and Parquet can have.
_SHOWN_AS_TEXT = frozenset({"bignum", "bit", "interval", "time with time zone", "uhugeint", "union", "varint"})


def _with_texts(relation: Any) -> Any:
    """Return a relation with text, as DuckDB prints it, in the place of values that Arrow cannot show."""
    types = [_shown_type(kind) for kind in relation.types]
    if types == [str(kind) for kind in relation.types]:
        return relation
    columns = zip(relation.columns, types, strict=True)
    return relation.project(
        ", ".join(f"cast(#{n} as {kind}) as {_quoted(name)}" for n, (name, kind) in enumerate(columns, 1))
    )


def _shown_type(kind: Any) -> str:
    """Return the type that a column is shown as: the type itself, or with ``varchar`` in it."""
    if kind.id in _SHOWN_AS_TEXT:
        return "VARCHAR"
    if kind.id not in ("struct", "list", "map", "array"):
        return str(kind)
    inner = [(name, child if name == "size" else _shown_type(child)) for name, child in kind.children]
    if [child for _, child in inner] == [str(child) for _, child in kind.children]:
        return str(kind)
    if kind.id == "struct":
        return f"STRUCT({', '.join(f'{_quoted(name)} {child}' for name, child in inner)})"
    if kind.id == "map":
        return f"MAP({inner[0][1]}, {inner[1][1]})"
    return f"{inner[0][1]}[{inner[1][1] if kind.id == 'array' else ''}]"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def settings_of(folder: str, memory: int) -> dict[str, Any]:
    """Return the settings of DuckDB for ``memory`` bytes, with temporary files in a folder; an empty name means none."""
    return {
        "memory_limit": f"{memory}B",
        "threads": THREADS,
        "temp_directory": folder,
        "max_temp_directory_size": f"{TEMPORARY}B",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }
