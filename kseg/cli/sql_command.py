"""``kseg sql``: options and exit codes.

1: damage was skipped, or a recipe found a problem. 2: the statement is wrong, or a file could not be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import click

from kseg.cli import common
from kseg.cli import spark_session as spark_runs
from kseg.cli.messages import note, note_after, until_reader_closes
from kseg.cli.outcome import FindingNotes, segments_text
from kseg.cli.record_options import DecodeOptions
from kseg.cli.typed_command import FileOptions, SparkOptions, command
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder
from kseg.extras.sql.recipes import RECIPES, recipe_rows
from kseg.extras.sql.statement import MARKERS, RECORDS, TABLES, import_libraries, run_statement, table_rows, tables_in
from kseg.extras.views import planning, scan, split_rows
from kseg.extras.views.view_table import BATCHES, VIEWS
from kseg.findings import Finding
from kseg.format.record.layout import READ_UNCOMMITTED
from kseg.format.storage import local_files
from kseg.format.storage.naming import is_url
from kseg.format.storage.segment_files import SegmentFile, find_segments, unless_deleted, without_unused
from kseg.format.storage.source import BY_FOLDER, STDIN
from kseg.report.formats import SQL, SQL_LISTS, destination, write
from kseg.spark import sql as spark_sql
from kseg.spark.jobs import pool as spark_jobs

_USAGE = "expected kseg sql STATEMENT PATH..."


@dataclass(frozen=True, kw_only=True)
class SqlOptions(SparkOptions, DecodeOptions, FileOptions):
    arguments: tuple[str, ...]
    statement_file: str | None
    recipe: str | None
    recipes: bool
    isolation: str
    tables: bool
    format: str
    memory: int | None
    no_crc: bool
    inventory: str | None


@command(
    SqlOptions,
    results=SQL,
    arguments=(click.Argument(["arguments"], metavar="[STATEMENT] PATH...", nargs=-1, type=common.PathText()),),
    examples=(
        "kseg sql 'select topic, count(*) from records group by all' kafka-logs",
        "kseg sql --recipe top-keys kafka-logs",
        "kseg sql --format parquet -o rows.parquet 'select * from batches' kafka-logs",
    ),
)
def sql(asked: SqlOptions) -> int:
    """Query segments with SQL.

    The tables are records, markers, batches, segments, transactions, findings, groups, topics, schemas and files. Keys and
    values are text: UTF-8 as it is, other bytes in base64. Bytes, sizes, and decoded keys and values are further columns.
    Without STATEMENT it is read from standard input. Only the tables, columns and bytes are read that the statement needs.
    The statement cannot access other files.

    Exit codes: 0 success, 1 damage was skipped or a recipe found a problem, 2 the statement is wrong or a file could not
    be read.
    """
    if asked.tables or asked.recipes:
        common.check_outputs()
        listed = table_rows() if asked.tables else recipe_rows(statements=asked.format != "table")
        with until_reader_closes(), destination(asked.output, to_the_end=False) as out:
            write(SQL_LISTS, asked.format, out, listed)
        return 0
    statement, paths = _statement(asked)
    common.check_outputs(*paths)
    outcome = _Outcome(asked.recipe, paths)
    if asked.spark:
        found = _on_spark(asked, statement, paths, outcome)
    else:
        import_libraries()
        scans = _scans(asked, statement, paths, outcome)
        found = run_statement(statement, scans, asked.memory and asked.memory << 20)
    with found as (kind, batches), until_reader_closes(), destination(asked.output, to_the_end=False) as out:
        write(SQL, asked.format, out, kind, outcome.counted(batches))
    outcome.end_undecoded(failed=True)
    outcome.note_encoded()
    return outcome.exit_code()


def _statement(asked: SqlOptions) -> tuple[str, list[str]]:
    """Return the statement and the paths. A first argument that is a path means that no statement is given."""
    arguments = asked.arguments
    first = arguments[0] if arguments else ""
    if asked.recipe is not None:
        text, paths = RECIPES[asked.recipe].statement, list(arguments)
    elif asked.statement_file is not None:
        text, paths = _read(asked.statement_file), list(arguments)
    elif first and (first == STDIN or is_url(first) or os.path.exists(first)):
        text, paths = _read(STDIN), list(arguments[first == STDIN :])
    else:
        text, paths = first, list(arguments[1:])
    if not paths:
        raise UsageError(f"no PATH: {_USAGE}")
    if not text.strip():
        raise UsageError(f"the statement is empty: {_USAGE}")
    return text, without_unused(paths)


def _read(file: str) -> str:
    if file == STDIN and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(f"no statement: {_USAGE}, or give it with --file or on standard input")
    try:
        return local_files.read_text(file)
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte {error.start} is not UTF-8: expected a statement of SQL") from error


def _scans(given: SqlOptions, statement: str, paths: list[str], outcome: _Outcome) -> dict[str, scan.Scan]:
    """Return the tables. Raises UnreadableError for a path without files for a named one, UsageError for stdin."""
    notices = split_rows.Notices(outcome.finding, outcome.unread, outcome.encoded.add, unless_deleted)
    settings, decoder = given.decoding, None
    if settings:  # names and sources that are wrong end the run here
        settings, decoder = record_decoder.typed_decoder(settings, lambda: planning.topics_in(paths), outcome.undecoded)
    decoded = settings.columns if settings else ()
    asked = {
        name: planning.Request(
            tuple(paths),
            RECORDS if name == MARKERS else name,
            (*columns, *decoded) if name == RECORDS else columns,
            decode_as=BY_FOLDER,
            decoding=settings,
            decoder=decoder,
            mode="dropmalformed",
            isolation=READ_UNCOMMITTED if name == MARKERS else given.isolation,
            control=name == MARKERS,
            verify_crc=not given.no_crc,
            inventory=given.inventory if VIEWS.get(name, VIEWS[RECORDS]).unit == BATCHES else None,
        )
        for name, columns in TABLES.items()
    }
    named = tables_in(statement) or [RECORDS]
    if given.inventory and not any(asked[name].inventory for name in named):
        raise UsageError("--inventory: it skips parts of records and batches: omit it for other tables")
    for name in named:
        planning.check_paths(asked[name])
    return {name: scan.Scan(one, notices) for name, one in asked.items()}


@contextmanager
def _on_spark(asked: SqlOptions, statement: str, paths: list[str], outcome: _Outcome) -> Iterator[tuple[Any, Any]]:
    with spark_runs.spark_session(asked, paths) as session:
        options = {"verifyCrc": str(not asked.no_crc).lower(), "isolation": asked.isolation}
        if asked.kek:
            options["kek"] = ",".join(asked.kek)
        if asked.max_rate:
            options["maxRate"] = f"{max(asked.max_rate / spark_jobs.slots(session), 1):.0f}"
        yield spark_sql.run_on_spark(session, statement, paths, options, outcome.damage, outcome.fail)


class _Outcome(FindingNotes):
    """The outcome of a statement: prints findings once, though a table can be read twice, and has the exit code."""

    def __init__(self, recipe: str | None, paths: list[str]) -> None:
        super().__init__()
        self.recipe = recipe
        self.paths = paths
        self.found = 0
        self.damaged = False
        self.encoded: set[str] = set()
        self._seen: set[tuple[str, str, int | None]] = set()

    def finding(self, file: SegmentFile, finding: Finding) -> None:
        place = (file.path, finding.rule, finding.position)
        if place in self._seen:
            return
        if len(self._seen) < _MOST_SEEN:
            self._seen.add(place)
        self.weigh([file])
        self(file.path, finding)

    def damage(self, line: str) -> None:
        """Print a line about damage that Spark skipped."""
        self.damaged = True
        note(line)

    def counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for part in self._without_unread(batch) if self.recipe == "gaps" and self.failures else [batch]:
                self.found += part.num_rows
                yield part
        if self.recipe and not self.found:
            files = chain.from_iterable(map(find_segments, self.paths))
            read = "what could be read" if self.failures else segments_text(files)
            note_after(f"{self.recipe}: none in {read}")

    def _without_unread(self, batch: Any) -> Iterator[Any]:
        """Yield the gaps but those that an unread segment can fill: one of the two next to the gap, or one between."""
        for i, row in enumerate(batch.to_pylist()):
            if not any(row["file"] < reason < f"{row['next_file']};" for reason in self.failures):
                yield batch.slice(i, 1)

    def note_encoded(self) -> None:
        """Print which text columns have base64 in some rows."""
        for name in sorted(self.encoded):
            says = f"{name}_bytes has the bytes"
            says = says if name == "headers" else f"{name}_encoding says which, {says}"
            note_after(f"column {name}: some of it is not UTF-8, and is base64: {says}")

    def exit_code(self, found: object = None) -> int:
        problems = self.recipe and RECIPES[self.recipe].problem and self.found
        return super().exit_code(found or self.damaged or problems)


#: Findings that are remembered; more of them can be printed twice.
_MOST_SEEN = 100_000
