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
#: The annotations of each kind that GitHub shows for one step.
MAX_ANNOTATIONS = 10
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def write_github(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write workflow commands, which become annotations: ``::error file=…,title=K201 crc-mismatch::…``.

    GitHub shows the first MAX_ANNOTATIONS errors, warnings and notices of a step. Further findings are plain lines of the
    job log. No line number is given, since segments are binary. The last line is the summary.
    """
    left = dict.fromkeys(_COMMANDS.values(), MAX_ANNOTATIONS)

    def annotate(command: str, file: str, title: str, message: str) -> None:
        left[command] -= 1
        line = (
            _command(command, file, title, message) if left[command] >= 0 else _log_line(command, file, title, message)
        )
        out.write(line)

    for result in results:
        if result.unread is not None:
            annotate("error", result.file, "could not be read", printable(result.unread))
        for verdict in sorted(result.verdicts, key=lambda verdict: -verdict.severity):
            if not verdict.known:
                title = f"{verdict.rule.code} {verdict.rule.name}"
                message = "\n".join((message_and_place(verdict), *advice(verdict)))
                annotate(_COMMANDS[verdict.severity.label], result.file, title, message)
        for rule, count in omitted_findings(result):
            out.write(_log_line("notice", result.file, f"{rule.code} {rule.name}", f"{count:,} more, not listed"))
    out.write(f"kseg: {summary_text(total)}\n")


def _log_line(command: str, file: str, title: str, message: str) -> str:
    """Return a line that is no command, whatever the names in it are."""
    return f"{command}: {printable(file)}: {title}: {message.splitlines()[0] if message else ''}\n"


def _command(command: str, file: str, title: str, message: str) -> str:
    properties = f"file={printable(file).translate(_PROPERTY)},title={title.translate(_PROPERTY)}"
    return f"::{command} {properties}::{message.translate(_DATA)}\n"
