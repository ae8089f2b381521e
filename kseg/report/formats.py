"""The tables of output formats, each naming its writer; the description of the run; and the destination of results.

Only results go to stdout or the output file; messages go to stderr. Content of files is data: control characters and
markup are escaped before they reach a terminal.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

from kseg.engine import imported
from kseg.errors import KsegError, UsageError
from kseg.format.storage import atomic_write, remote_outputs
from kseg.format.storage.naming import is_url, without_file_scheme
from kseg.report import tables, terminal
from kseg.schema import Column
from kseg.text import one_of

# The writers of rows of any kind: (row set, out, view).
JSON_LINES = "kseg.report.row_formats:write_jsonl"
CSV = "kseg.report.row_formats:write_csv"
PARQUET = "kseg.report.parquet:write_rows"
#: A table with the columns that the user chose.
COLUMNS = "kseg.report.row_formats:write_columns"
_ROW_WRITERS = {JSON_LINES, CSV, PARQUET}
#: The formats that show the run.
_WITH_RUN = {"html", "junit", "sarif", "prometheus"}


class ResultKind(NamedTuple):
    """A kind of results. ``writers`` has "module:function" by format, imported when the format is requested.

    ``rows`` names the function that returns the results as rows (for JSON Lines only) or as a RowSet, for the writers of
    any rows. Its parameters are the results; the other writers have ``out`` after them. Results with a View have it as
    their last parameter.
    """

    title: str
    rows: str
    writers: dict[str, str]


def _kind(title: str, module: str, *, rows: str = "rows", **writers: str) -> ResultKind:
    """Return a kind of results; functions are those of ``module`` below ``kseg.report``, or of "another:function"."""

    def place(name: str) -> str:
        if not name or name.startswith("kseg."):
            return name
        if name.startswith("html."):
            return f"kseg.extras.{name}"
        return f"kseg.report.{name}" if ":" in name else f"kseg.report.{module}:{name}"

    return ResultKind(title, place(rows), {form: place(name) for form, name in writers.items()})


def _rows(title: str, module: str, *, rows: str = "rows", table: str = "write_table", **writers: str) -> ResultKind:
    """Return a kind of results that is a table, JSON Lines and CSV, and has other writers."""
    return _kind(title, module, rows=rows, table=table, jsonl=JSON_LINES, csv=CSV, **writers)


# (items, view)
DUMP = _kind(
    "batches and records", "dump_report", table="dump_table:write_table", jsonl="write_jsonl", csv="write_csv",
    text="write_text", hex="hex:write_hex", parquet="parquet:write_parquet",
)  # fmt: skip
# (items, view)
MATCHES = _kind(
    "records that a search found", "dump_report", text="grep_report:write_text", table="dump_table:write_table",
    jsonl="write_jsonl", csv=CSV, parquet="parquet:write_parquet",
)  # fmt: skip
# (items, view)
SIDE_FILES = _kind(
    "side files", "dump_other_files", table="write_table", jsonl="write_jsonl", csv=CSV, text="write_text",
    hex="hex:write_side_files", parquet=PARQUET,
)  # fmt: skip
# Files read with --as: (items, columns, view)
FRAMED = _kind(
    "requests, responses and single messages", "dump_other_files", rows="frame_rows", table="write_frame_table",
    jsonl=JSON_LINES, csv=CSV, text="write_frame_text", hex="hex:write_frames", parquet=PARQUET,
)  # fmt: skip
# (lesson, view)
LESSON = _kind("explanations", "explain_report", rows="", text="write_lesson")
# (path, kinds, view)
FOLDER = _kind("explanations of folders", "explain_report", rows="", text="write_folder")
# (results, total): ``total`` is complete after the last result
VALIDATION = _kind(
    "findings", "ci_formats", rows="row_formats:finding_rows", table="validate_report:write_table", jsonl=JSON_LINES,
    csv=CSV, junit="write_junit", sarif="write_sarif", github="write_github",
    html="html.validation_page:write_html", markdown="write_markdown",
    prometheus="prometheus:write_prometheus",
)  # fmt: skip
# (partitions)
EFFECTIVE = _kind("the effective state", "effective_report", table="write_table", jsonl=JSON_LINES)
# (levels, top)
STATS = _rows("statistics", "stats_rows", table="stats_report:write_table", html="html.command_pages:write_stats")
# (plans, total)
RECOVERY = _rows("recovery plans", "recovery_report", html="html.command_pages:write_recovery")
# (diagnosis)
DOCTOR = _kind(
    "diagnoses", "doctor_report", table="write_table", jsonl=JSON_LINES, html="html.validation_page:write_incident",
)  # fmt: skip
# (items, total, states)
TRANSACTIONS = _rows("transactions", "transactions_report", html="html.command_pages:write_transactions")
# (rows, total)
SCHEMAS = _rows("schemas", "schemas_report")
# (schema, batches)
SQL = _kind(
    "the rows of a statement", "sql_report", table="write_table", jsonl="write_jsonl", csv=CSV, parquet="write_parquet",
)  # fmt: skip
# (rows)
SQL_LISTS = _rows("the lists of kseg sql", "sql_report", rows="list_rows", table="write_list", parquet=PARQUET)
# (result)
CONVERSION = _kind("conversions", "convert_report", text="write_text", jsonl=JSON_LINES)
# (an Adoption)
ADOPTION = _kind("adopted clusters", "adopt_report", table="write_table", jsonl=JSON_LINES)
# (partitions, target)
TIER_FETCH = _rows("fetched partitions", "tier_report", rows="fetched_rows", table="write_fetched")
# (a TierCheck)
TIER_CHECK = _rows("problems of tiered storage", "tier_report", rows="check_rows", table="write_check")
# (a Carving, target): ``target`` is None if nothing was written
CARVING = _kind("carved images", "carve_report", table="write_table", jsonl=JSON_LINES)
# (name of a rule, or None for all)
RULES = _kind("rules", "rules_report", text="write_text", jsonl=JSON_LINES, csv=CSV)
# (differences, result, a, b): ``result`` is complete after the last difference
DIFF = _rows("differences", "diff_report")
# (found, total)
LAG = _rows("lags", "lag_report", html="html.command_pages:write_lag", **{"reset-csv": "write_reset"})
# (history)
LAG_HISTORY = _rows(
    "histories of groups", "lag_report", rows="history_rows", table="write_history",
    html="html.command_pages:write_lag_history",
)  # fmt: skip
# (outcomes, total)
LOG_DIR_DIFF = _rows("differences of log directories", "diff_log_dirs")
# (comparisons, total)
KEY_DIFF = _rows("differences of keys", "diff_keys_report")
# (copies, differences)
METADATA_DIFF = _rows("differences of metadata", "diff_metadata_report")
# (partitions, lines)
PIPELINE = _rows("runs of a pipeline", "pipeline_report", prometheus="prometheus:write_pipeline")
# (changes, result, plan)
REPAIR = _kind("repairs", "repair_report", text="write_text", jsonl=JSON_LINES)


def check_format(kind: ResultKind, name: str) -> None:
    """Raise UsageError with the possible formats if this kind of results cannot be written in the format."""
    if name not in kind.writers:
        raise UsageError(f"--format {name} cannot write {kind.title}: expected {one_of(list(kind.writers))}")


def write(
    kind: ResultKind,
    name: str,
    out: TextIO,
    *results: Any,
    view: View | None = None,
    detail: int | None = None,
    run: Callable[[], Run] | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Write results in a format. Raises UsageError if the kind does not have the format.

    ``columns`` are fields of the rows for a table or CSV instead of the columns of the kind.
    ``detail`` is for tables and texts: 1 also lists valid parts, -1 lists only the answer. ``run`` returns the
    description of the run; it is for the formats that show it.
    """
    if columns:
        selected = imported("kseg.report.row_formats:chosen")
        view = View(terminal=out.isatty(), columns=columns)
        found = selected(imported(kind.rows)(*results), view)
        imported(COLUMNS if name == "table" else kind.writers[name])(found, out, view)
        return
    check_format(kind, name)
    write_in: Callable[..., Any] = imported(kind.writers[name])
    if run is not None and name in _WITH_RUN:
        write_in = partial(write_in, run=run())
    if detail is not None and name in ("table", "text"):
        write_in = partial(write_in, detail=detail)
    views = () if view is None else (view,)
    if kind.writers[name] in _ROW_WRITERS:
        write_in(imported(kind.rows)(*results, *views), out, view or View(terminal=out.isatty()))
    else:
        write_in(*results, out, *views)


@dataclass(frozen=True, slots=True)
class Run:
    """The run that made a report: its command line, its ``paths``, the host, and the version of kseg.

    ``started`` is in epoch milliseconds. ``settings`` are options that a settings file gave. ``labels`` of
    metrics are ``NAME=VALUE``. ``help_uri`` is the address of the page of a rule, with ``{code}`` or ``{name}``.
    """

    command: str
    paths: tuple[str, ...]
    host: str
    started: int
    version: str
    settings: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    help_uri: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """How rows are written. ``encoding`` is a name of ``records_chunk.ENCODERS``; ``terminal``: the output is a terminal.

    ``continued``: the rows follow others of the same kind. ``decoded``: records of internal topics have a column for
    their decoded content. ``contents`` are the columns of decoded keys and values. ``without`` are columns of Parquet
    that are not written. ``columns`` are those of a table or of CSV, none for all; with ``full`` a terminal shows whole
    texts. ``template`` is that of ``kseg dump --template``.
    ``searched``: a search found the records, which adds the columns SEARCH_COLUMNS. With more than one of ``jobs`` another
    thread encodes Parquet.
    """

    deep: bool = False
    encoding: str = "auto"
    terminal: bool = False
    continued: bool = False
    decoded: bool = False
    contents: Sequence[Column] = ()
    without: Collection[str] = ()
    columns: Sequence[str] = ()
    full: bool = False
    template: str = ""
    searched: bool = False
    jobs: int = 1


def binary(out: TextIO) -> BinaryIO:
    """Return the binary stream under ``out``. After this call, write only to it."""
    out.flush()
    return out.buffer


#: The name of standard output in messages.
STDOUT_NAME = "standard output"


class _Output(io.RawIOBase):
    """A file descriptor that discards writes after its reader has closed the pipe, or after an error was raised.

    The buffer above it writes its rest once more when it is dropped, and Python 3.14 prints what that raises.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._gone = False
        self._terminal = os.isatty(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return self._terminal

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._gone:
            try:
                if not self._terminal:
                    return os.write(self._descriptor, data)
                with terminal.screen.writing(data):
                    return os.write(self._descriptor, data)
            except BrokenPipeError:
                self._gone = True
            except OSError:
                self._gone = True
                raise
        return memoryview(data).nbytes


@contextmanager
def _naming_stdout() -> Iterator[None]:
    """Name standard output in errors of writing to it: they have no file name."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, STDOUT_NAME) from error


def _ignore_closed_pipe(stream: TextIO) -> TextIO:
    stream.flush()
    try:
        outlet = _Output(stream.fileno())
    except OSError:
        return stream  # not a system file, so not a pipe
    buffer = io.BufferedWriter(outlet)
    return io.TextIOWrapper(buffer, "utf-8", errors="backslashreplace", line_buffering=stream.isatty())


#: The standard output of results while ``sys.stdout`` is another stream, the innermost last.
_REPLACED: list[TextIO | None] = []


def stdout_of_results() -> TextIO | None:
    """Return the standard output, also while ``sys.stdout`` is stderr; None if it is closed."""
    return _REPLACED[-1] if _REPLACED else sys.stdout


@contextmanager
def print_to_stderr() -> Iterator[None]:
    """Let ``print`` write to stderr: rows on stdout that a program reads would be cut by it."""
    _REPLACED.append(sys.stdout)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = _REPLACED.pop()


@contextmanager
def destination(path: str | None, *, to_the_end: bool = True) -> Iterator[TextIO]:
    """Open the destination of results: stdout (None or ``-``), or a file or an object that is written atomically.

    If the reader of stdout exits early, as ``head`` does, the work continues to its verdict. Without ``to_the_end``,
    for commands that only write rows, the next write raises BrokenPipeError instead.
    """
    if path in (None, "-"):
        stdout = stdout_of_results()
        if stdout is None:
            raise KsegError(f"{STDOUT_NAME} is closed")
        reconfigure = getattr(stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        # Ctrl-C between a write of _Output and its return would repeat the rows. Python's own stream counts its bytes.
        out = _ignore_closed_pipe(stdout) if to_the_end or stdout.isatty() else stdout
        with _naming_stdout():
            with tables.legend(out):
                yield out
            out.flush()
        return
    name = without_file_scheme(str(path))
    if is_url(name):
        with remote_outputs.whole_object(name) as raw, _text(raw) as out:
            yield out
        return
    # A symbolic link stays: its target is replaced. A device or a pipe is written directly.
    target = Path(name)
    if target.exists() and not target.is_file():
        try:
            with target.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
                yield out
        except OSError as error:
            raise KsegError(f"{path}: {error.strerror or error}") from error
        return
    with atomic_write.whole_file(target.resolve()) as file, _text(file) as out:
        yield out


@contextmanager
def _text(raw: Any) -> Iterator[TextIO]:
    """Yield a binary file as text; the file stays open."""
    out = io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8", errors="backslashreplace", newline="")
    yield out
    out.flush()
    out.detach()
