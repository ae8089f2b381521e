"""``kseg sql``: options and exit codes. 1: damage was skipped. 2: the statement is wrong, or a file could not be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import common
from kseg.cli import spark as spark_runs
from kseg.cli.decoding import decode_options, decode_settings
from kseg.cli.finding_notes import FindingNotes
from kseg.cli.messages import FAILED, FOUND, fail, until_reader_closes
from kseg.errors import UnreadableError, UsageError
from kseg.findings import Finding
from kseg.format.checks.run_checks import policy_for
from kseg.format.serialization import record_decoder
from kseg.format.storage.source import STDIN, SegmentFile, is_url
from kseg.report import sql as results
from kseg.report.formats import SQL, destination, write
from kseg.results import Settings
from kseg.schema import CONTENT_COLUMNS
from kseg.spark import sql as spark_sql
from kseg.sql import library, run
from kseg.sql.tables import RECORDS, TABLES, table_rows, tables_in
from kseg.views import planning, reading, request, scan

if TYPE_CHECKING:
    from kseg.format.serialization.record_decoder import DecodeSettings

_USAGE = "expected kseg sql STATEMENT PATH..."


@click.command()
@click.argument("arguments", metavar="[STATEMENT] PATH...", nargs=-1, type=common.PathText())
@click.option("--file", "statement_file", metavar="FILE", type=common.InputPath(), help="Read the statement from FILE.")
@click.option("--schema", is_flag=True, help="Show the tables and their columns.")
@common.output_format(SQL)
@common.output
@click.option("--memory", type=common.WholeNumber(min=16), metavar="MIB",
              help="Limit the memory of DuckDB. Default: 32, then 128 MiB.")  # fmt: skip
@decode_options
@common.no_crc
@common.max_rate
@common.spark
def sql(
    arguments: tuple[str, ...],
    statement_file: str | None,
    schema: bool,
    format_name: str,
    output: str | None,
    memory: int | None,
    no_crc: bool,
    spark: str | None,
    **decoding: Any,
) -> int:
    """Query segments with SQL.

    The tables are records, batches, findings, segments and transactions. Keys and values are text: UTF-8 as it is, other
    bytes in base64. Decoded keys and values are further columns. Without STATEMENT it is read from standard input. Only the
    tables, columns and bytes are read that the statement needs. The statement cannot access other files.

    Exit codes: 0 success, 1 damage was skipped, 2 the statement is wrong or a file could not be read.
    """
    if schema:
        common.check_outputs()
        with until_reader_closes(), destination(output, to_the_end=False) as out:
            write(SQL, format_name, out, *results.as_results(table_rows()))
        return 0
    statement, paths = _statement(arguments, statement_file)
    common.check_outputs(*paths)
    outcome = _Outcome()
    settings = decode_settings(decoding)
    if spark and settings:
        raise UsageError("--spark cannot be combined with options that decode keys and values")
    if spark:
        found = _on_spark(spark, statement, paths, not no_crc)
    else:
        library.import_libraries()
        scans = _scans(paths, not no_crc, settings, outcome)
        found = run.run_statement(statement, scans, memory and memory << 20)
    with found as (kind, batches), until_reader_closes(), destination(output, to_the_end=False) as out:
        write(SQL, format_name, out, kind, batches)
    return outcome.exit_code()


def _statement(arguments: tuple[str, ...], file: str | None) -> tuple[str, list[str]]:
    """Return the statement and the paths. A first argument that is a path means that no statement is given."""
    first = arguments[0] if arguments else ""
    if file is not None:
        text, paths = _read(file), list(arguments)
    elif first and (first == STDIN or is_url(first) or os.path.exists(first)):
        text, paths = _read(STDIN), list(arguments[first == STDIN :])
    else:
        text, paths = first, list(arguments[1:])
    if not paths:
        raise UsageError(f"no PATH: {_USAGE}")
    if not text.strip():
        raise UsageError(f"the statement is empty: {_USAGE}")
    return text, paths


def _read(file: str) -> str:
    if file == STDIN and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(f"no statement: {_USAGE}, or give it with --file or on standard input")
    try:
        return (sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()).decode()
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte {error.start} is not UTF-8: expected a statement of SQL") from error


def _scans(
    paths: list[str], verify_crc: bool, settings: DecodeSettings | None, outcome: _Outcome
) -> dict[str, scan.Scan]:
    """Return the tables. Raises UnreadableError for a path that is missing, and UsageError for standard input."""
    notices = reading.Notices(outcome.finding, outcome.unread)
    decoder = record_decoder.record_decoder(settings) if settings else None
    decoded = tuple(column for side in (decoder.sides if decoder else ()) for column in CONTENT_COLUMNS[side])
    given: dict[str, Any] = {"mode": "dropmalformed", "verify_crc": verify_crc, "decoding": settings}
    asked = [
        request.Request(tuple(paths), name, (*columns, *decoded) if name == RECORDS else columns, **given)
        for name, columns in TABLES.items()
    ]
    planning.check_paths(asked[0])
    return {one.view: scan.Scan(one, notices) for one in asked}


@contextmanager
def _on_spark(master: str, statement: str, paths: list[str], verify_crc: bool) -> Iterator[tuple[Any, Any]]:
    with spark_runs.spark_session(master, paths) as session:
        yield spark_sql.run_on_spark(session, statement, tables_in(statement), paths, verify_crc)


class _Outcome:
    """The outcome of a statement: prints findings once, though a table can be read twice, and has the exit code."""

    def __init__(self) -> None:
        self._notes = FindingNotes()
        self._seen: set[tuple[str, str, int | None]] = set()
        self._unread: set[str] = set()

    def finding(self, file: SegmentFile, finding: Finding) -> None:
        place = (file.path, finding.rule, finding.position)
        if place in self._seen:
            return
        if len(self._seen) < _MOST_SEEN:
            self._seen.add(place)
        self._notes.policy = policy_for(file, Settings())
        self._notes(file.path, finding)

    def unread(self, reason: str) -> None:
        if reason not in self._unread:
            self._unread.add(reason)
            fail(reason)

    def exit_code(self) -> int:
        return FAILED if self._unread else FOUND if self._notes.errors else 0


#: Findings that are remembered; more of them can be printed twice.
_MOST_SEEN = 100_000
