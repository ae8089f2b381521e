"""``kseg validate --format github``: GitHub's workflow commands.

The results are a lazy iterator that is read once and written as it is read: a report on a log dir with thousands of
segments takes no more memory than the findings of one file. ``total`` is complete after the last result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from kseg.report.wording import advice, message_and_place, omitted_findings, printable, summary_text
from kseg.results import FileResult, Summary

_COMMANDS = {"info": "notice", "warning": "warning", "error": "error"}
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def write_github(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write workflow commands, which become annotations: ``::error file=…,title=K201 crc-mismatch::…``.

    No line number is given, since segments are binary. The last line is the summary, for readers of the job log.
    """
    for result in results:
        for verdict in result.verdicts:
            rule = verdict.rule
            command = _COMMANDS[verdict.severity.label]
            message = "\n".join((message_and_place(verdict), *advice(verdict)))
            out.write(_command(command, result.file, f"{rule.code} {rule.name}", message))
        for rule, count in omitted_findings(result):
            out.write(_command("notice", result.file, f"{rule.code} {rule.name}", f"{count:,} more, not listed"))
        if result.unread is not None:
            out.write(_command("error", result.file, "could not be read", printable(result.unread)))
    out.write(f"kseg: {summary_text(total)}\n")


def _command(command: str, file: str, title: str, message: str) -> str:
    properties = f"file={printable(file).translate(_PROPERTY)},title={title.translate(_PROPERTY)}"
    return f"::{command} {properties}::{message.translate(_DATA)}\n"
