"""Output formats: a table for dumps, a table for validation, each naming its writer; and where results go.

Results go to stdout or a file and nothing else does; notes go to stderr. What comes from a file is data: before a
terminal sees it, control characters and markup are escaped.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO, cast

from kseg.errors import KsegError

# format -> "module:function" of its writer, imported when the format is asked for.
# Of a dump: (rows, out, view). Of a validation: (results, total, out), with `total` complete once results are used up.
DUMP_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.dump:write_table",
    "jsonl": "kseg.output.dump:write_jsonl",
    "csv": "kseg.output.dump:write_csv",
    "text": "kseg.output.dump:write_text",
    "hex": "kseg.output.dump:write_hex",
    "parquet": "kseg.output.parquet:write_parquet",
}
# Of files beside the log: (items, out, view).
SIDE_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.side:write_table",
    "jsonl": "kseg.output.side:write_jsonl",
    "csv": "kseg.output.side:write_csv",
    "text": "kseg.output.side:write_text",
    "hex": "kseg.output.side:write_hex",
    "parquet": "kseg.output.side:write_parquet",
}
# Of files that are no log: (items, out, view, columns).
FRAMED_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.framed:write_table",
    "jsonl": "kseg.output.framed:write_jsonl",
    "csv": "kseg.output.framed:write_csv",
    "text": "kseg.output.framed:write_text",
    "parquet": "kseg.output.framed:write_parquet",
}
REPORT_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.report:write_table",
    "jsonl": "kseg.output.report:write_jsonl",
    "junit": "kseg.output.junit:write_junit",
    "sarif": "kseg.output.sarif:write_sarif",
    "github": "kseg.output.github:write_github",
    "html": "kseg.output.html:write_html",
}
# Of internal topics' effective state: (partitions, out).
EFFECTIVE_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.effective:write_table",
    "jsonl": "kseg.output.effective:write_jsonl",
}
# Of statistics: (levels, out, top).
STATS_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.stats:write_table",
    "jsonl": "kseg.output.stats:write_jsonl",
}
# Of a comparison: a class of (out), told of differences as they are met, and finished with the outcome.
DIFF_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.diff:TableWriter",
    "jsonl": "kseg.output.diff:JsonLinesWriter",
}
# Of a recovery: (plans, total, out).
PLAN_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.recovery:write_table",
    "jsonl": "kseg.output.recovery:write_jsonl",
}
# Of transactions: (items, total, out, states, now).
TRANSACTION_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.transactions:write_table",
    "jsonl": "kseg.output.transactions:write_jsonl",
}
# Of an audit: (columns, rows, out).
AUDIT_FORMATS: Mapping[str, str] = {
    "table": "kseg.output.audit:write_table",
    "jsonl": "kseg.output.audit:write_jsonl",
    "csv": "kseg.output.audit:write_csv",
}


def writer(formats: Mapping[str, str], name: str) -> Callable[..., Any]:
    """The writer of a format."""
    module, _, function = formats[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


@dataclass(frozen=True, slots=True)
class View:
    """How rows are to be seen. ``encoding`` names one of ``rows.ENCODERS``; ``terminal``: a person is looking.

    ``continued``: they follow others of the same kind. ``decoded``: there is a column for what internal topics say.
    """

    deep: bool
    encoding: str
    terminal: bool
    continued: bool = False
    decoded: bool = False


def console(out: TextIO) -> Any:
    """A rich console that takes text as it is."""
    from rich.console import Console

    # A pipe has no width: lines are left whole there.
    shown: Any = Console(file=out, highlight=False, markup=False, emoji=False, width=None if out.isatty() else 400)
    shown.on_broken_pipe = _broken_pipe
    return shown


def _broken_pipe() -> NoReturn:
    """rich would end the process with 1."""
    raise BrokenPipeError


def binary(out: TextIO) -> BinaryIO:
    """What takes the bytes of ``out``; whoever writes there writes all the rest there."""
    out.flush()
    return out.buffer


class _Outlet(io.RawIOBase):
    """A file descriptor that takes whatever comes: once its reader has gone, for nobody."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._gone = False

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._gone:
            try:
                return os.write(self._descriptor, data)
            except BrokenPipeError:
                self._gone = True
        return memoryview(data).nbytes


def _never_gone(stream: TextIO) -> TextIO:
    stream.flush()
    try:
        outlet = _Outlet(stream.fileno())
    except OSError:
        return stream  # no file of the system's, so no pipe either
    buffer = io.BufferedWriter(outlet)
    return io.TextIOWrapper(buffer, "utf-8", errors="backslashreplace", line_buffering=stream.isatty())


@contextmanager
def destination(path: str | None, *, to_the_end: bool = True) -> Iterator[TextIO]:
    """Where results go: stdout (None or ``-``), or a file that appears whole under its name, or not at all.

    A reader of stdout that goes, as ``head`` does, changes no verdict, so the work goes on. Without ``to_the_end``, where
    rows are all that it is about, a write then raises BrokenPipeError.
    """
    if path in (None, "-"):
        if sys.stdout is None:
            raise KsegError("standard output is closed")
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        out: TextIO = _never_gone(sys.stdout) if to_the_end else sys.stdout
        yield out
        out.flush()
        return
    # A link stays a link: what it leads to is replaced. A device or a pipe can only be written to.
    target = Path(str(path))
    if target.exists() and not target.is_file():
        try:
            with target.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
                yield out
        except OSError as error:
            raise KsegError(f"{path}: {error.strerror or error}") from error
        return
    from kseg.files.safe_output import whole_file

    with whole_file(target.resolve()) as raw:
        out = io.TextIOWrapper(cast(BinaryIO, raw), encoding="utf-8", errors="backslashreplace", newline="")
        yield out
        out.flush()
        out.detach()
