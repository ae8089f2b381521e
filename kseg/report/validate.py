"""Output of ``kseg validate`` as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TextIO

from kseg.findings import Severity, Verdict
from kseg.report.tables import TableColumn, print_cells, print_note, print_text
from kseg.report.wording import advice, summary_text
from kseg.results import FileResult, Summary
from kseg.text import count_of, escape_controls

_STYLES = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red", Severity.FATAL: "bold red"}


# What an empty file lacks; the default is for streams.
_NOTHING = {None: "no batch yet", "message-set": "no batch", "message": "no message", "wide-crc": "no message"}


def write_table(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write a table for each file with findings, a line for each other segment, and a line for the whole run."""
    for result in results:
        if any(not verdict.known for verdict in result.verdicts):
            _write_findings(replace(result, verdicts=tuple(v for v in result.verdicts if not v.known)), out)
        elif result.verdicts:
            known = count_of(len(result.verdicts), "known finding")
            out.write(f"{escape_controls(result.file)}: {result.summary.verdict} ({known})\n")
        elif result.summary.files and not result.unread:
            out.write(f"{escape_controls(result.file)}: {result.summary.verdict}{_limits_of_verdict(result)}\n")
    print_text(out, summary_text(total), indent=2)


def _limits_of_verdict(result: FileResult) -> str:
    """Return the restrictions of the verdict of a file without listed findings, in parentheses; empty if none."""
    summary = result.summary
    limits = [] if summary.bytes else [f"empty: {_NOTHING.get(result.framing, 'no frame')}"]
    if summary.unchecked:
        limits.append("not everything was checked" if result.framing else "CRCs were not checked")
    if summary.lost_bytes:
        limits.append(f"{count_of(summary.lost_bytes, 'byte')} lost")
    return f" ({', '.join(limits)})" if limits else ""


def _write_findings(result: FileResult, out: TextIO) -> None:
    rows = [(_cells(verdict), _STYLES[verdict.severity]) for verdict in result.verdicts]
    columns = [
        TableColumn("severity"),
        TableColumn("rule"),
        TableColumn("bytes", priority=1),
        TableColumn("offsets"),
        TableColumn("message", text="wrap"),
    ]
    print_cells(out, columns, rows, title=escape_controls(result.file))
    reported = {verdict.rule.name: verdict for verdict in result.verdicts if verdict.severity >= Severity.WARNING}
    for name, verdict in reported.items():
        more = result.summary.rules[name] - sum(verdict.rule.name == name for verdict in result.verdicts)
        lines = advice(verdict)
        if more or lines:
            print_note(out, f"{name}{f' ({more:,} more, not listed)' if more else ''}", indent=2)
        for line in lines:
            print_note(out, line, indent=4)
    if reported:
        out.write("\n")


def _cells(verdict: Verdict) -> tuple[str, ...]:
    finding = verdict.finding
    return (
        verdict.severity.label,
        f"{verdict.rule.code} {finding.rule}",
        _span(finding.position, finding.end),
        # A header with a wrong CRC may be what is damaged.
        _span(finding.offset, finding.last_offset) + ("?" if finding.rule == "crc-mismatch" else ""),
        escape_controls(verdict.message),
    )


def _span(first: int | None, last: int | None) -> str:
    if first is None and last is None:
        return "-"
    return f"{'?' if first is None else first}..{'?' if last is None else last}"
