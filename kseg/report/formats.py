"""The tables of output formats, each naming its writer; and the destination of results.

Only results go to stdout or the output file; messages go to stderr. Content of files is data: control characters and
markup are escaped before they reach a terminal.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from kseg.errors import KsegError, UsageError
from kseg.lazy import imported, lazy
from kseg.report.terminal import screen

if TYPE_CHECKING:
    from kseg.format.storage import atomic_write
else:
    atomic_write = lazy("kseg.format.storage.atomic_write")

# Format -> "module:function" of its writer, imported when the format is requested.
# dump: (rows, out, view). validate: (results, total, out); `total` is complete after the last result.
DUMP_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.dump:write_table",
    "jsonl": "kseg.report.dump:write_jsonl",
    "csv": "kseg.report.dump:write_csv",
    "text": "kseg.report.dump:write_text",
    "hex": "kseg.report.hex:write_hex",
    "parquet": "kseg.report.parquet:write_parquet",
}
# Side files: (items, out, view).
SIDE_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.sidefiles:write_table",
    "jsonl": "kseg.report.sidefiles:write_jsonl",
    "csv": "kseg.report.sidefiles:write_csv",
    "text": "kseg.report.sidefiles:write_text",
    "hex": "kseg.report.hex:write_side_files",
    "parquet": "kseg.report.sidefiles:write_parquet",
}
# Files read with --as: (items, out, view, columns).
FRAMED_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.framed:write_table",
    "jsonl": "kseg.report.framed:write_jsonl",
    "csv": "kseg.report.framed:write_csv",
    "text": "kseg.report.framed:write_text",
    "parquet": "kseg.report.framed:write_parquet",
}
REPORT_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.validate:write_table",
    "jsonl": "kseg.report.validate:write_jsonl",
    "junit": "kseg.report.junit:write_junit",
    "sarif": "kseg.report.sarif:write_sarif",
    "github": "kseg.report.github:write_github",
    "html": "kseg.report.html:write_html",
    "markdown": "kseg.report.markdown:write_markdown",
    "prometheus": "kseg.report.prometheus:write_prometheus",
}
# Effective state of internal topics: (partitions, out).
EFFECTIVE_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.effective:write_table",
    "jsonl": "kseg.report.effective:write_jsonl",
}
# stats: (levels, out, top).
STATS_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.stats:write_table",
    "jsonl": "kseg.report.stats:write_jsonl",
}
# diff: a class of (out) with a method for each difference and one for the outcome.
DIFF_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.diff:TableWriter",
    "jsonl": "kseg.report.diff:JsonLinesWriter",
}
# recovery: (plans, total, out).
PLAN_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.recovery:write_table",
    "jsonl": "kseg.report.recovery:write_jsonl",
}
# transactions: (items, total, out, states, now).
TRANSACTION_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.transactions:write_table",
    "jsonl": "kseg.report.transactions:write_jsonl",
}
# audit: (columns, rows, out).
AUDIT_FORMATS: Mapping[str, str] = {
    "table": "kseg.report.audit:write_table",
    "jsonl": "kseg.report.audit:write_jsonl",
    "csv": "kseg.report.audit:write_csv",
}


def check_format(formats: Mapping[str, str], name: str, rows: str) -> None:
    """Raise UsageError with the possible formats if these rows cannot be written in the format."""
    if name not in formats:
        raise UsageError(f"--format {name} cannot write {rows}; possible formats: {', '.join(formats)}")


def writer(formats: Mapping[str, str], name: str) -> Callable[..., Any]:
    """Import and return the writer of a format. Raises UsageError if the table does not have the format."""
    check_format(formats, name, "these rows")
    found: Callable[..., Any] = imported(formats[name])
    return found


@dataclass(frozen=True, slots=True)
class View:
    """How rows are written. ``encoding`` is a name of ``rows.ENCODERS``; ``terminal``: the output is a terminal.

    ``continued``: the rows follow others of the same kind. ``decoded``: records of internal topics have a column for
    their decoded content.
    """

    deep: bool
    encoding: str
    terminal: bool
    continued: bool = False
    decoded: bool = False


def binary(out: TextIO) -> BinaryIO:
    """Return the binary stream under ``out``. After this call, write only to it."""
    out.flush()
    return out.buffer


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
    """Open the destination of results: stdout (None or ``-``), or a file that is written atomically.

    If the reader of stdout exits early, as ``head`` does, the work continues to its verdict. Without ``to_the_end``,
    for commands that only write rows, the next write raises BrokenPipeError instead.
    """
    if path in (None, "-"):
        if sys.stdout is None:
            raise KsegError("standard output is closed")
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        out: TextIO = _ignore_closed_pipe(sys.stdout) if to_the_end else sys.stdout
        yield out
        out.flush()
        return
    # A symbolic link stays: its target is replaced. A device or a pipe is written directly.
    target = Path(str(path))
    if target.exists() and not target.is_file():
        try:
            with target.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
                yield out
        except OSError as error:
            raise KsegError(f"{path}: {error.strerror or error}") from error
        return
    with atomic_write.whole_file(target.resolve()) as raw:
        out = io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8", errors="backslashreplace", newline="")
        yield out
        out.flush()
        out.detach()
