"""Run a statement over the views of logs with DuckDB, in bounded memory and without access to other files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any

from kseg.extras.sql.statement import OutOfMemory, Statement, duckdb
from kseg.extras.views.scan import Scan
from kseg.format.storage import interrupts
from kseg.report.arrow_table import BATCH_ROWS, pa

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
