"""The tables of output formats, each naming its writer; and the destination of results.

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
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO, cast

from kseg.engine import imported
from kseg.errors import KsegError, UsageError
from kseg.format.storage import atomic_write, remote_files, remote_outputs
from kseg.format.storage.naming import is_url
from kseg.report import tables
from kseg.report.terminal import screen
from kseg.schema import Column
from kseg.text import one_of

if TYPE_CHECKING:
    from kseg.report.spool import Run

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


# (items, view)
DUMP = ResultKind(
    "batches and records",
    "kseg.report.dump_report:rows",
    {
        "table": "kseg.report.dump_table:write_table",
        "jsonl": "kseg.report.dump_report:write_jsonl",
        "csv": "kseg.report.dump_report:write_csv",
        "text": "kseg.report.dump_report:write_text",
        "hex": "kseg.report.hex:write_hex",
        "parquet": "kseg.report.parquet:write_parquet",
    },
)
# (items, view)
MATCHES = ResultKind(
    "records that a search found",
    "kseg.report.dump_report:rows",
    {
        "text": "kseg.report.grep_report:write_text",
        "table": "kseg.report.dump_table:write_table",
        "jsonl": "kseg.report.dump_report:write_jsonl",
        "csv": CSV,
        "parquet": "kseg.report.parquet:write_parquet",
    },
)
# (items, view)
SIDE_FILES = ResultKind(
    "side files",
    "kseg.report.side_files_report:rows",
    {
        "table": "kseg.report.side_files_report:write_table",
        "jsonl": "kseg.report.side_files_report:write_jsonl",
        "csv": CSV,
        "text": "kseg.report.side_files_report:write_text",
        "hex": "kseg.report.hex:write_side_files",
        "parquet": PARQUET,
    },
)
# Files read with --as: (items, columns, view)
FRAMED = ResultKind(
    "requests, responses and single messages",
    "kseg.report.framed_report:rows",
    {
        "table": "kseg.report.framed_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "text": "kseg.report.framed_report:write_text",
        "hex": "kseg.report.hex:write_frames",
        "parquet": PARQUET,
    },
)
# (lesson, view)
LESSON = ResultKind("explanations", "", {"text": "kseg.report.explain_report:write_lesson"})
# (path, kinds, view)
FOLDER = ResultKind("explanations of folders", "", {"text": "kseg.report.explain_report:write_folder"})
# (results, total): ``total`` is complete after the last result
VALIDATION = ResultKind(
    "findings",
    "kseg.report.row_formats:finding_rows",
    {
        "table": "kseg.report.validate_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "junit": "kseg.report.ci_formats:write_junit",
        "sarif": "kseg.report.ci_formats:write_sarif",
        "github": "kseg.report.ci_formats:write_github",
        "html": "kseg.extras.html.validation_page:write_html",
        "markdown": "kseg.report.ci_formats:write_markdown",
        "prometheus": "kseg.report.prometheus:write_prometheus",
    },
)
# (partitions)
EFFECTIVE = ResultKind(
    "the effective state",
    "kseg.report.effective_report:rows",
    {"table": "kseg.report.effective_report:write_table", "jsonl": JSON_LINES},
)
# (levels, top)
STATS = ResultKind(
    "statistics",
    "kseg.report.stats_rows:rows",
    {
        "table": "kseg.report.stats_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "html": "kseg.extras.html.stats_page:write_html",
    },
)
# (plans, total)
RECOVERY = ResultKind(
    "recovery plans",
    "kseg.report.recovery_report:rows",
    {
        "table": "kseg.report.recovery_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "html": "kseg.extras.html.recovery_page:write_html",
    },
)
# (diagnosis)
DOCTOR = ResultKind(
    "diagnoses",
    "kseg.report.doctor_report:rows",
    {
        "table": "kseg.report.doctor_report:write_table",
        "jsonl": JSON_LINES,
        "html": "kseg.extras.html.incident:write_html",
    },
)
# (items, total, states)
TRANSACTIONS = ResultKind(
    "transactions",
    "kseg.report.transactions_report:rows",
    {
        "table": "kseg.report.transactions_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "html": "kseg.extras.html.transactions_page:write_html",
    },
)
# (rows, total)
SCHEMAS = ResultKind(
    "schemas",
    "kseg.report.schemas_report:rows",
    {"table": "kseg.report.schemas_report:write_table", "jsonl": JSON_LINES, "csv": CSV},
)
# (schema, batches)
SQL = ResultKind(
    "the rows of a statement",
    "kseg.report.sql_report:rows",
    {
        "table": "kseg.report.sql_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "parquet": "kseg.report.sql_report:write_parquet",
    },
)
# (result)
CONVERSION = ResultKind(
    "conversions",
    "kseg.report.convert_report:rows",
    {"text": "kseg.report.convert_report:write_text", "jsonl": JSON_LINES},
)
# (an Adoption)
ADOPTION = ResultKind(
    "adopted clusters",
    "kseg.report.adopt_report:rows",
    {"table": "kseg.report.adopt_report:write_table", "jsonl": JSON_LINES},
)
# (a Fetched)
TIER_FETCH = ResultKind(
    "fetched partitions",
    "kseg.report.tier_report:fetched_rows",
    {"table": "kseg.report.tier_report:write_fetched", "jsonl": JSON_LINES, "csv": CSV},
)
# (a TierCheck)
TIER_CHECK = ResultKind(
    "problems of tiered storage",
    "kseg.report.tier_report:check_rows",
    {"table": "kseg.report.tier_report:write_check", "jsonl": JSON_LINES, "csv": CSV},
)
# (a CarveResult)
CARVING = ResultKind(
    "carved images",
    "kseg.report.carve_report:rows",
    {"table": "kseg.report.carve_report:write_table", "jsonl": JSON_LINES},
)
# (name of a rule, or None for all)
RULES = ResultKind(
    "rules",
    "kseg.report.rules_report:rows",
    {"text": "kseg.report.rules_report:write_text", "jsonl": JSON_LINES, "csv": CSV},
)
# Written while they are found, with a class of (out, detail).
DIFF = ResultKind(
    "differences",
    "",
    {
        "table": "kseg.report.diff_report:DiffTable",
        "jsonl": "kseg.report.diff_report:DiffJsonLines",
        "csv": "kseg.report.diff_report:DiffRows",
    },
)
# (found, total)
LAG = ResultKind(
    "lags",
    "kseg.report.lag_report:rows",
    {
        "table": "kseg.report.lag_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "html": "kseg.extras.html.lag_page:write_html",
        "reset-csv": "kseg.report.lag_report:write_reset",
    },
)
# (history)
LAG_HISTORY = ResultKind(
    "histories of groups",
    "kseg.report.lag_history_report:rows",
    {
        "table": "kseg.report.lag_history_report:write_table",
        "jsonl": JSON_LINES,
        "csv": CSV,
        "html": "kseg.extras.html.lag_page:write_history",
    },
)
# (outcomes, total)
LOG_DIR_DIFF = ResultKind(
    "differences of log directories",
    "kseg.report.diff_log_dirs:rows",
    {"table": "kseg.report.diff_log_dirs:write_table", "jsonl": JSON_LINES, "csv": CSV},
)
# (comparisons, total)
KEY_DIFF = ResultKind(
    "differences of keys",
    "kseg.report.diff_keys_report:rows",
    {"table": "kseg.report.diff_keys_report:write_table", "jsonl": JSON_LINES, "csv": CSV},
)
METADATA_DIFF = ResultKind(
    "differences of metadata",
    "kseg.report.diff_metadata_report:rows",
    {"table": "kseg.report.diff_metadata_report:write_table", "jsonl": JSON_LINES, "csv": CSV},
)
# (partitions, lines)
PIPELINE = ResultKind(
    "runs of a pipeline",
    "kseg.report.pipeline_report:rows",
    {"table": "kseg.report.pipeline_report:write_table", "jsonl": JSON_LINES, "csv": CSV},
)
# Written while they are found, with a class of (out).
REPAIR = ResultKind(
    "repairs",
    "",
    {"text": "kseg.report.repair_report:RepairText", "jsonl": "kseg.report.repair_report:RepairJsonLines"},
)


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
    ``detail`` is for the table only: 1 also lists valid parts, -1 lists only the answer. ``run`` returns the
    description of the run; it is for the formats that show it.
    """
    if columns:
        selected = imported("kseg.report.row_formats:chosen")
        view = View(terminal=out.isatty(), columns=columns)
        found = selected(imported(kind.rows)(*results), view)
        imported(COLUMNS if name == "table" else kind.writers[name])(found, out, view)
        return
    write_in = writer(kind, name)
    if run is not None and name in _WITH_RUN:
        write_in = partial(write_in, run=run())
    if detail is not None and name == "table":
        write_in = partial(write_in, detail=detail)
    views = () if view is None else (view,)
    if kind.writers[name] in _ROW_WRITERS:
        write_in(imported(kind.rows)(*results, *views), out, view or View(terminal=out.isatty()))
    else:
        write_in(*results, out, *views)


def writer(kind: ResultKind, name: str) -> Callable[..., Any]:
    """Import and return the writer of a format. Raises UsageError if the kind does not have the format."""
    check_format(kind, name)
    found: Callable[..., Any] = imported(kind.writers[name])
    return found


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
    """A file descriptor that discards writes after its reader has closed the pipe."""

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
                with screen.writing(data):
                    return os.write(self._descriptor, data)
            except BrokenPipeError:
                self._gone = True
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


@contextmanager
def destination(path: str | None, *, to_the_end: bool = True) -> Iterator[TextIO]:
    """Open the destination of results: stdout (None or ``-``), or a file or an object that is written atomically.

    If the reader of stdout exits early, as ``head`` does, the work continues to its verdict. Without ``to_the_end``,
    for commands that only write rows, the next write raises BrokenPipeError instead.
    """
    if path in (None, "-"):
        if sys.stdout is None:
            raise KsegError("standard output is closed")
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        # Ctrl-C between a write of _Output and its return would repeat the rows. Python's own stream counts its bytes.
        out = _ignore_closed_pipe(sys.stdout) if to_the_end or sys.stdout.isatty() else sys.stdout
        with _naming_stdout():
            with tables.legend(out):
                yield out
            out.flush()
        return
    name = remote_files.without_file_scheme(str(path))
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
