"""The outputs of ``kseg validate`` for other programs: GitHub, JUnit, SARIF and Markdown.

Results are a lazy iterator that is read once. Those of GitHub, JUnit and SARIF are written as they are read: a report on
a log dir with thousands of segments takes no more memory than the findings of one folder. ``total`` is complete
after the last result. In Markdown the worst files come first, and equal findings of a file are one row.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote
from xml.etree import ElementTree

from kseg import __version__
from kseg.commands.validate.known_findings import fingerprint
from kseg.findings import RULES, Consequence, Rule, Severity, Verdict, consequence_of
from kseg.report.partition_damage import COLUMNS as DAMAGE_COLUMNS
from kseg.report.partition_damage import DamagedPartitions, folder_of
from kseg.report.rules_report import message_of
from kseg.report.wording import advice, grouped, message_and_place, omitted_findings, place, printable, summary_text
from kseg.results import COUNTS, FileResult, Summary
from kseg.text import count_of, iso_time, stored_bytes

if TYPE_CHECKING:
    from kseg.report.formats import Run

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
        write_line = _command if left[command] >= 0 else _log_line
        out.write(write_line(command, file, title, message))

    for result in results:
        if result.unlisted_error is not None:
            annotate("error", result.file, "could not be read", printable(result.unlisted_error))
        for verdict in sorted(result.verdicts, key=lambda verdict: -verdict.severity):
            if not verdict.known:
                title = f"{verdict.rule.code} {verdict.rule.name}"
                message = "\n".join((message_and_place(verdict), *advice(verdict)))
                annotate(_COMMANDS[verdict.severity.label], result.file, title, message)
        for rule, count in omitted_findings(result):
            out.write(_log_line("notice", result.file, f"{rule.code} {rule.name}", f"{count:,} more, not listed"))
    out.write(f"kseg: {summary_text(total)}\n")


def _log_line(command: str, file: str, title: str, message: str) -> str:
    """Return a line that is not a command, whatever the names in it are."""
    return f"{command}: {printable(file)}: {title}: {message.splitlines()[0] if message else ''}\n"


def _command(command: str, file: str, title: str, message: str) -> str:
    properties = f"file={printable(file).translate(_PROPERTY)},title={title.translate(_PROPERTY)}"
    return f"::{command} {properties}::{message.translate(_DATA)}\n"


def write_junit(results: Iterable[FileResult], total: Summary, out: TextIO, *, run: Run | None = None) -> None:
    """Write JUnit XML as Jenkins reads it (junit-10.xsd of its xunit plugin): a suite per partition, a test per file.

    A test has the name of its file, so a CI server can follow it from run to run. Errors make it fail; an unreadable file is
    a test with an error; warnings, infos and known findings are its output. Its time is that of the checks. The text is
    ASCII with character references, so it is correct in every encoding of ``out``.
    """
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="kseg validate">\n')
    for folder, files in groupby(results, lambda result: folder_of(result.file)):
        suite = _suite(folder or ".", list(files), run)
        ElementTree.indent(suite)
        out.write(ElementTree.tostring(suite, "us-ascii").decode("ascii"))
        out.write("\n")
    out.write("</testsuites>\n")


def _suite(folder: str, files: Sequence[FileResult], run: Run | None) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", {"name": printable(folder), "tests": str(len(files))})
    counts = Summary()
    for result in files:
        counts.add(result.summary)
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in _facts_of(counts).items():
        ElementTree.SubElement(properties, "property", name=key, value=str(value))
    cases = [_case(suite, result) for result in files]
    for name, kind in (("failures", "failure"), ("errors", "error")):
        suite.set(name, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("skipped", "0")
    suite.set("time", _seconds(files))
    if run is not None:
        suite.set("timestamp", iso_time(run.started))
    return suite


def _facts_of(summary: Summary) -> dict[str, Any]:
    return {**{name: getattr(summary, name) for name in COUNTS}, "verdict": summary.verdict}


def _seconds(files: Iterable[FileResult]) -> str:
    return f"{sum(result.seconds for result in files):.3f}"


def _case(suite: ElementTree.Element, result: FileResult) -> ElementTree.Element:
    """Add the test of a file to the suite, and return it."""
    errors = [verdict for verdict in result.verdicts if verdict.is_error]
    failing = [verdict for verdict in errors if not verdict.known]
    case = ElementTree.SubElement(
        suite, "testcase", classname="kseg.validate", name=printable(result.file), time=_seconds([result])
    )
    text = "\n\n".join(map(_failure_text, failing))
    if result.unread is not None:
        why = printable(result.unread)
        error = ElementTree.SubElement(case, "error", type="unreadable", message=why)
        error.text = "\n\n".join(filter(None, (why, text)))
    elif failing or (result.summary.errors and not errors):  # a damaged file fails even if no finding is listed
        summary = count_of(result.summary.errors, "error")
        rules = ", ".join(dict.fromkeys(f"{verdict.rule.code} {verdict.rule.name}" for verdict in failing))
        message = f"{summary}: {rules}" if rules else f"{summary}, none of them listed"
        ElementTree.SubElement(case, "failure", type="damaged", message=message).text = text or message
    notes = list(_notes(result))
    if notes:
        ElementTree.SubElement(case, "system-out").text = "\n".join(notes)
    return case


def _failure_text(verdict: Verdict) -> str:
    rule, finding = verdict.rule, verdict.finding
    known = {
        "position": finding.position,
        "end": finding.end,
        "offset": finding.offset,
        "last_offset": finding.last_offset,
    }
    stated = {**known, **finding.facts}.items()
    facts = "\n".join(f"{key}: {printable(str(value))}" for key, value in stated if value not in (None, ""))
    heading = " ".join(filter(None, (rule.code, rule.name, place(finding))))
    return "\n".join((heading, printable(verdict.message), facts, *advice(verdict)))


def _notes(result: FileResult) -> Iterator[str]:
    for verdict in result.verdicts:
        if not verdict.is_error or verdict.known:
            rule = verdict.rule
            known = "known " if verdict.known else ""
            yield f"{known}{verdict.severity.label}: {rule.code} {rule.name}: {message_and_place(verdict)}"
    for rule, count in omitted_findings(result):
        yield f"{count:,} more of {rule.code} {rule.name}, not listed"


_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"info": "note", "warning": "warning", "error": "error"}
#: The most results of a run that GitHub's code scanning accepts; all findings are counted in the run's properties.
MAX_RESULTS = 25_000
_RULE_INDEX = {name: index for index, name in enumerate(RULES)}


def write_sarif(results: Iterable[FileResult], total: Summary, out: TextIO, *, run: Run | None = None) -> None:
    """Write SARIF 2.1.0 (OASIS): one run, the whole rule table, one result per finding, located by its bytes.

    Unreadable files are notifications of an unsuccessful run (§3.20.14). The ``properties`` of the run have the counts
    of all findings; the results are the first few of each rule. The file is written in pieces, so the results come before
    the invocation, which depends on them.
    """
    driver = {"name": "kseg", "version": __version__, "semanticVersion": __version__}
    tool = {"driver": {**driver, "rules": [_rule(rule, run.help_uri if run else None) for rule in RULES.values()]}}
    out.write(f'{{"$schema": {json.dumps(_SCHEMA)}, "version": "2.1.0", "runs": [{{"tool": {json.dumps(tool)},\n')
    out.write('"results": [')
    unread: list[dict[str, Any]] = []
    separator, left = "\n", MAX_RESULTS
    for result in results:
        if result.unread is not None:
            text = {"text": _text(result.unread)}
            unread.append({"level": "error", "message": text, "locations": [_location(result.file)]})
        for verdict in result.verdicts[:left]:
            out.write(separator + json.dumps(_result(verdict)))
            separator = ",\n"
        left -= min(left, len(result.verdicts))
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    properties = {**_facts_of(total), "rules": dict(sorted(total.rules.items()))}
    out.write(f'],\n"invocations": [{json.dumps(invocation)}],\n"properties": {json.dumps(properties)}}}]}}\n')


def _rule(rule: Rule, help_uri: str | None) -> dict[str, Any]:
    about = message_of(rule, ("[", "]"))  # SARIF has braces for placeholders
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": _title(rule)},
        "fullDescription": {"text": f"{about}. What a broker does: {rule.broker}"},
        "help": {"text": rule.remedy},
        **({"helpUri": help_uri.replace("{code}", rule.code).replace("{name}", rule.name)} if help_uri else {}),
        "defaultConfiguration": {"level": _LEVELS[rule.severity.label]},
    }


_WRITTEN = {"crc": "CRC", "txn": "transaction", "kraft": "KRaft", "api": "API"}


def _title(rule: Rule) -> str:
    """Return the name of a rule as words, such as ``CRC mismatch``: GitHub lists alerts by it."""
    title = " ".join(_WRITTEN.get(word, word) for word in rule.name.split("-"))
    return title[0].upper() + title[1:]


def _result(verdict: Verdict) -> dict[str, Any]:
    finding, rule = verdict.finding, verdict.rule
    location = _location(verdict.file)
    # GitHub requires a line for each result. A segment has none, so it is the first.
    region = {"startLine": 1}
    location["physicalLocation"]["region"] = region
    if finding.position is not None:
        region["byteOffset"] = finding.position
        if finding.end is not None and finding.end >= finding.position:
            region["byteLength"] = finding.end - finding.position
    return {
        "ruleId": rule.code,
        "ruleIndex": _RULE_INDEX[rule.name],
        "level": _LEVELS[verdict.severity.label],
        "message": {"text": _text(verdict.message)},
        "locations": [location],
        # GitHub matches old and new alerts by this value; it cannot compute it for a file without lines.
        "partialFingerprints": {"primaryLocationLineHash": fingerprint(verdict)},
        **({"baselineState": "unchanged"} if verdict.known else {}),
        "properties": {
            "offset": finding.offset,
            "last_offset": finding.last_offset,
            "facts": _plain(finding.facts),
        },
    }


def _location(file: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": file_uri(file)}}}


def file_uri(path: str) -> str:
    """Return a path as a percent-encoded URI reference: a relative path, ``file://`` plus an absolute one, or a URL.

    The bytes of the name are encoded, also if they are not UTF-8. Object stores treat a ``%`` in a key literally.
    """
    scheme = _URL.match(path)
    if scheme:
        safe = "/%?&=:@[]!$'()*+,;~#" if _HTTP.match(path) else "/@"
        return scheme[0] + quote(stored_bytes(path[scheme.end() :]), safe)
    pure = PurePath(path)
    uri = quote(stored_bytes(pure.as_posix()), "/")
    return f"file://{'' if uri.startswith('/') else '/'}{uri}" if pure.is_absolute() else uri


def _text(text: str) -> str:
    """Escape a plain text message: ``{`` begins a placeholder (§3.11.5), ``[…](…)`` is a link (§3.11.6)."""
    return printable(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _plain(value: Any) -> Any:
    """Return facts as JSON that strict readers accept: without lone surrogates, which are not Unicode text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else printable(str(value))


#: The most files whose findings are listed. A job summary of GitHub may have 1 MiB.
MAX_FILES = 100
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~@&])")


def write_markdown(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write the verdict, the worst partitions, a table of the worst files' findings, and what to do about each rule."""
    worst: list[tuple[tuple[int, ...], int, FileResult]] = []
    with_findings = 0
    damaged = DamagedPartitions()
    for number, result in enumerate(results):
        damaged.add(result)
        if result.unread is None and not any(not verdict.known for verdict in result.verdicts):
            continue
        with_findings += 1
        summary = result.summary
        rank = (_consequence(result), summary.errors + (result.unread is not None), summary.warnings, summary.infos)
        push = heapq.heappush if len(worst) < MAX_FILES else heapq.heappushpop
        push(worst, (rank, -number, result))
    out.write(f"# kseg validate: {total.verdict}\n\n{_escaped(summary_text(total))}\n")
    if not worst:
        return
    if damaged.by_folder:
        out.write(f"\n{_escaped(damaged.answer())}\n\n| {' | '.join(column.name for column in DAMAGE_COLUMNS)} |\n")
        out.write(f"|{'|'.join('--:' if column.right else '---' for column in DAMAGE_COLUMNS)}|\n")
        out.writelines(f"| {' | '.join(map(_escaped, cells))} |\n" for cells, _ in damaged.rows())
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
            row = f"| {rule.code} {rule.name} | {rule.broker} | {rule.remedy} |"
            out.write(row.replace("\n", " ") + "\n")


def _consequence(result: FileResult) -> Consequence:
    found = [consequence_of(one.finding, one.severity) for one in result.verdicts if not one.known]
    return max([*found, *([Consequence.NEEDS_ATTENTION] if result.unread else [])], default=Consequence.INFORMATION)


def _write_rows(result: FileResult, rules: dict[str, Rule], out: TextIO) -> None:
    file = _escaped(result.file)
    if result.unlisted_error is not None:
        out.write(f"| {file} | unread | could not be read | 1 | {_escaped(result.unlisted_error)} |\n")
    by_rule = grouped((one for one in result.verdicts if not one.known), lambda verdict: verdict.rule.name)
    omitted = {rule.name: count for rule, count in omitted_findings(result)}
    for name, (verdict, *others) in sorted(by_rule.items(), key=lambda item: -item[1][0].severity):
        rule, count = verdict.rule, 1 + len(others) + omitted.get(name, 0)
        if verdict.severity >= Severity.WARNING:
            rules[name] = rule
        cells = (verdict.severity.label, f"{rule.code} {name}", f"{count:,}", message_and_place(verdict))
        out.write(f"| {file} | {' | '.join(map(_escaped, cells))} |\n")


def _escaped(text: str) -> str:
    """Escape Markdown and line breaks: content of files is data."""
    return _MARKUP.sub(r"\\\1", printable(text)).replace("\n", " ")
