"""Output formats: one table for dumps, one for validation, a writer each.

Rows go to stdout or a file and nothing else does; notes go to stderr. What comes from a file is data: before a
terminal sees it, control characters and markup are escaped.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from kseg import dump_text, hexdump, record_lines, rows
from kseg.dump import Beginning, Entry, Run
from kseg.errors import UnreadableError
from kseg.findings import Severity
from kseg.record_lines import escape_controls, to_json
from kseg.validate import COUNTS, FileResult, Summary

Rows = Iterable[Beginning | Entry | Run]
DumpWriter = Callable[[Rows, TextIO, "View"], None]
ReportWriter = Callable[[Iterable[FileResult], Summary, TextIO], None]

_TABLE_PAGE = 500


@dataclass(frozen=True, slots=True)
class View:
    """How rows are to be seen. ``encoding`` names one of ``rows.ENCODERS``; ``terminal``: a person is looking."""

    deep: bool
    encoding: str
    terminal: bool


def _dump_jsonl(dumped: Rows, out: TextIO, view: View) -> None:
    for item in dumped:
        if isinstance(item, Run):
            out.write("".join(record_lines.json_lines(item, view.encoding)))
        elif isinstance(item, Entry):
            out.write(to_json(rows.batch_row(item.file, item.batch)) + "\n")


def _plain_rows(dumped: Rows, view: View) -> Iterator[rows.Row]:
    """Everything as rows, for formats that aren't made for millions of them."""
    encode = rows.ENCODERS[view.encoding]
    for item in dumped:
        if isinstance(item, Run):
            for record in item.records():
                yield rows.record_row(item.file, record, encode)
        elif isinstance(item, Entry):
            yield rows.batch_row(item.file, item.batch)


def _dump_csv(dumped: Rows, out: TextIO, view: View) -> None:
    columns = [column.name for column in (rows.RECORD_COLUMNS if view.deep else rows.BATCH_COLUMNS)]
    if view.deep:
        columns[columns.index("headers") : columns.index("headers")] = ["key_encoding", "value_encoding"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in _plain_rows(dumped, view):
        writer.writerow([_csv_cell(row.get(name), view) for name in columns])


def _csv_cell(value: Any, view: View) -> Any:
    if isinstance(value, (dict, list)):
        return to_json(value)
    if isinstance(value, bool):
        return str(value).lower()
    return escape_controls(value) if view.terminal and isinstance(value, str) else value


def _dump_text(dumped: Rows, out: TextIO, view: View) -> None:
    for item in dumped:
        if isinstance(item, Beginning):
            lines = [line + "\n" for line in dump_text.header_lines(item.file, item.first_offset)]
        elif isinstance(item, Run):
            lines = record_lines.text_lines(item)
        else:
            lines = [dump_text.batch_line(item.batch) + "\n"]
        text = "".join(lines)
        out.write(escape_controls(text) if view.terminal else text)


def _dump_hex(dumped: Rows, out: TextIO, view: View) -> None:
    for item in dumped:
        if isinstance(item, Beginning):
            continue
        for line in hexdump.run_lines(item) if isinstance(item, Run) else hexdump.entry_lines(item):
            out.write(line + "\n")


def _dump_table(dumped: Rows, out: TextIO, view: View) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console(out)
    columns = _RECORD_TABLE if view.deep else _BATCH_TABLE
    found = _plain_rows(dumped, view)
    shown = False
    while page := list(islice(found, _TABLE_PAGE)):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(_cell(page[0]["file"])), title_justify="left")
        for name, align in columns:
            table.add_column(name, justify=align, overflow="ellipsis", no_wrap=align == "right")
        for row in page:
            table.add_row(*(Text(_cell(row.get(name))) for name, _ in columns))
        console.print(table)
        shown = True
    if not shown:
        print("no rows", file=sys.stderr)


_RECORD_TABLE: tuple[tuple[str, Any], ...] = (
    ("offset", "right"), ("timestamp", "right"), ("sequence", "right"), ("key", "left"), ("value", "left"),
    ("headers", "left"), ("control", "left"),
)  # fmt: skip
_BATCH_TABLE: tuple[tuple[str, Any], ...] = (
    ("position", "right"), ("size", "right"), ("magic", "right"), ("base_offset", "right"), ("last_offset", "right"),
    ("record_count", "right"), ("compression", "left"), ("max_timestamp", "right"), ("producer_id", "right"),
    ("base_sequence", "right"), ("partition_leader_epoch", "right"), ("crc_valid", "left"), ("flags", "left"),
)  # fmt: skip


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return escape_controls(text.replace("\n", "\\n").replace("\t", "\\t"))


def _console(out: TextIO) -> Any:
    from rich.console import Console

    # A pipe has no width: lines are left whole there.
    return Console(file=out, highlight=False, markup=False, emoji=False, width=None if out.isatty() else 400)


def summary_row(total: Summary) -> rows.Row:
    """The last line of a validation in JSON Lines."""
    return {"kind": "summary", **{name: getattr(total, name) for name in COUNTS}, "verdict": total.verdict}


def _report_jsonl(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    for result in results:
        for verdict in result.verdicts:
            out.write(to_json(rows.finding_row(verdict)) + "\n")
    out.write(to_json(summary_row(total)) + "\n")


_STYLES = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red", Severity.FATAL: "bold red"}


def _report_table(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console(out)
    for result in results:
        if result.unread:
            continue
        if result.verdicts:
            table = Table(
                box=box.SIMPLE_HEAD, title=Text(escape_controls(result.file)), title_justify="left", pad_edge=False
            )
            for name in ("severity", "rule", "bytes", "offsets", "message"):
                table.add_column(name, no_wrap=name in ("severity", "rule", "bytes"))
            for verdict in result.verdicts:
                finding = verdict.finding
                table.add_row(
                    Text(verdict.severity.label, _STYLES[verdict.severity]),
                    Text(f"{verdict.rule.code} {finding.rule}"),
                    Text(_span(finding.position, finding.end)),
                    Text(_span(finding.offset, finding.last_offset)),
                    Text(escape_controls(verdict.message)),
                )
            console.print(table)
            _print_advice(result, console)
        elif total.files <= 20:
            console.print(Text(escape_controls(result.file)), Text("sound", "green"))
    console.print(Text(summary_line(total)))


def _print_advice(result: FileResult, console: Any) -> None:
    from rich.text import Text

    told = {verdict.rule.name: verdict for verdict in result.verdicts if verdict.severity >= Severity.WARNING}
    for name, verdict in told.items():
        more = result.summary.rules[name] - sum(verdict.rule.name == name for verdict in result.verdicts)
        console.print(Text(f"  {name}: {f'{more} more. ' if more else ''}A broker: {verdict.rule.broker}", "dim"))


def summary_line(total: Summary) -> str:
    """One line for a person."""
    unread = f" {total.unread} unread," if total.unread else ""
    return (
        f"{total.verdict}: {total.files} files,{unread} {total.batches} batches, {total.records} records, "
        f"{total.bytes} bytes; {total.errors} errors, {total.warnings} warnings, {total.infos} notes; "
        f"{total.lost_bytes} bytes lost"
    )


def _span(first: int | None, last: int | None) -> str:
    if first is None and last is None:
        return "-"
    return f"{'?' if first is None else first}..{'?' if last is None else last}"


def _lazily(module: str, function: str) -> ReportWriter:
    def write(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
        getattr(import_module(module), function)(results, total, out)

    return write


DUMP_FORMATS: Mapping[str, DumpWriter] = {
    "table": _dump_table,
    "jsonl": _dump_jsonl,
    "csv": _dump_csv,
    "text": _dump_text,
    "hex": _dump_hex,
}

REPORT_FORMATS: Mapping[str, ReportWriter] = {
    "table": _report_table,
    "jsonl": _report_jsonl,
    "junit": _lazily("kseg.reports", "write_junit"),
    "sarif": _lazily("kseg.reports", "write_sarif"),
    "github": _lazily("kseg.reports", "write_github"),
    "html": _lazily("kseg.report_html", "write_html"),
}


@contextmanager
def destination(path: str | None) -> Iterator[TextIO]:
    """Where results go: stdout, or a file that appears whole under its name, or not at all."""
    if path is None:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
