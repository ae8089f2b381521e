"""Run a statement over the views of logs with DuckDB, in bounded memory and without access to other files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kseg.report.arrow_parts import pa
from kseg.sql.library import duckdb
from kseg.sql.statement import Statement
from kseg.views.scan import Scan

#: The memory in bytes that DuckDB may use. Sorting, grouping and joining larger data uses temporary files.
MEMORY = 128 << 20
#: The bytes of temporary files.
TEMPORARY = 16 << 30
#: Threads of DuckDB. Reading segments takes longer than the usual statement, and only one thread can read. A second one took
#: 10 to 40 MB of memory.
THREADS = 1


@contextmanager
def run_statement(
    text: str, tables: Mapping[str, Scan], memory: int = MEMORY
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield the schema and the rows of one statement.

    ``tables`` has a scan by the name of each table; only used ones are read. ``memory`` is in bytes. Raises StatementError
    for a wrong statement, also while the rows are read. Temporary files are deleted at the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kseg-sql-") as folder,
        duckdb.connect(":memory:", config=_settings(folder, memory)) as connection,
        ThreadPoolExecutor(1) as worker,
    ):
        for setting in ("enable_external_access = false", "errors_as_json = true", "timezone = 'UTC'"):
            connection.execute(f"set {setting}")
        for name, scan in tables.items():
            connection.register(name, scan)
        connection.execute("set lock_configuration = true")
        statement = Statement(connection, text)

        def call(function: Callable[..., Any], *arguments: Any) -> Any:
            """Call a function in the other thread: DuckDB does not react to Ctrl-C, but this thread does."""
            running = worker.submit(function, *arguments)
            try:
                return running.result()
            except KeyboardInterrupt:
                connection.interrupt()
                raise
            except (duckdb.Error, pa.ArrowException) as error:
                raise statement.error(error) from error

        def start() -> Any:
            try:
                return pa.RecordBatchReader.from_stream(connection.sql(statement.sql))
            except (duckdb.BinderException, duckdb.CatalogException):
                connection.execute(statement.sql)  # raises the same error, with its position in the statement
                raise

        rows = call(start)

        def batches() -> Iterator[pa.RecordBatch]:
            while (batch := call(next, rows, None)) is not None:
                yield batch

        yield rows.schema, batches()


def _settings(folder: str, memory: int) -> dict[str, Any]:
    return {
        "memory_limit": f"{memory}B",
        "threads": THREADS,
        "temp_directory": folder,
        "max_temp_directory_size": f"{TEMPORARY}B",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }
