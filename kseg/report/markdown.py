"""``kseg validate --format markdown``: for the summary of a CI job, a ticket, or a chat.

The worst files come first, and equal findings of a file are one row.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from typing import TextIO

from kseg.findings import Rule, Severity, Verdict
from kseg.report.wording import message_and_place, omitted_findings, printable, summary_text
from kseg.results import FileResult, Summary
from kseg.text import count_of

#: The most files whose findings are listed. A job summary of GitHub may have 1 MiB.
MAX_FILES = 100
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~@&])")


def write_markdown(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write the verdict, a table of the worst files' findings, and what to do about each rule."""
    worst: list[tuple[tuple[int, int, int], int, FileResult]] = []
    with_findings = 0
    for number, result in enumerate(results):
        if result.unread is None and not any(not verdict.known for verdict in result.verdicts):
            continue
        with_findings += 1
        summary = result.summary
        rank = (summary.errors + (result.unread is not None), summary.warnings, summary.infos)
        push = heapq.heappush if len(worst) < MAX_FILES else heapq.heappushpop
        push(worst, (rank, -number, result))
    out.write(f"# kseg validate: {total.verdict}\n\n{_escaped(summary_text(total))}\n")
    if not worst:
        return
    shown = [result for _, _, result in sorted(worst, key=lambda item: item[:2], reverse=True)]
    out.write("\n## Findings\n\n| file | severity | rule | findings | first |\n|---|---|---|--:|---|\n")
    rules: dict[str, Rule] = {}
    for result in shown:
        _write_rows(result, rules, out)
    if with_findings > len(shown):
        out.write(f"\n{count_of(with_findings - len(shown), 'more file')} with findings are not listed.\n")
    if rules:
        out.write("\n## What to do\n\n| rule | what a broker does | what to do |\n|---|---|---|\n")
        for rule in rules.values():
            out.write(
                f"| {rule.code} {rule.name} | {rule.broker} | {rule.remedy} |\n".replace("\n", " ").strip() + "\n"
            )


def _write_rows(result: FileResult, rules: dict[str, Rule], out: TextIO) -> None:
    file = _escaped(result.file)
    if result.unread is not None:
        out.write(f"| {file} | error | could not be read | 1 | {_escaped(result.unread)} |\n")
    first: dict[str, Verdict] = {}
    count: dict[str, int] = {}
    for verdict in result.verdicts:
        if not verdict.known:
            first.setdefault(verdict.rule.name, verdict)
            count[verdict.rule.name] = count.get(verdict.rule.name, 0) + 1
    for rule, more in omitted_findings(result):
        if rule.name in count:
            count[rule.name] += more
    for name, verdict in sorted(first.items(), key=lambda item: -item[1].severity):
        rule = verdict.rule
        if verdict.severity >= Severity.WARNING:
            rules[name] = rule
        cells = (verdict.severity.label, f"{rule.code} {name}", f"{count[name]:,}", message_and_place(verdict))
        out.write(f"| {file} | {' | '.join(map(_escaped, cells))} |\n")


def _escaped(text: str) -> str:
    """Escape Markdown and line breaks: content of files is data."""
    return _MARKUP.sub(r"\\\1", printable(text)).replace("\n", " ")
