"""The machine formats of ``kseg validate``: JUnit for CI servers, SARIF for code scanning, GitHub's workflow commands.

Each writer takes the results as a lazy iterator, reads it once and writes as it goes, so that a report over a log dir
of thousands of segments costs no more memory than its largest file's findings. ``total`` is counted by whoever makes
the results and is only looked at behind the last of them.

Whatever comes from a file or its name passes through ``legible``: a report is opened by other programs, which must
find in it neither a control character nor markup that kseg didn't write.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, TextIO
from urllib.parse import quote
from xml.etree import ElementTree

from kseg.findings import RULES, Finding, Rule, Severity, Verdict
from kseg.validation.validate import COUNTS, FileResult, Summary

# What XML 1.0 forbids (most of C0, surrogates, U+FFFE and U+FFFF), what a terminal obeys (C0, C1), what breaks a line
# (U+2028, U+2029) and what turns the reading direction round (CVE-2021-42574).
_ILLEGIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_HTTP = re.compile(r"https?://", re.IGNORECASE)


def legible(text: str) -> str:
    """The text on one line, with every character that no report may hold written as ``\\xNN`` or ``\\uNNNN``.

    A byte of a file name that is no UTF-8 (``os.fsdecode`` makes a surrogate of it) is shown as that byte.
    """
    return _ILLEGIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def count_of(count: int, noun: str) -> str:
    """``1 error``, ``2,048 errors``; for nouns with a plain plural."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def place(finding: Finding) -> str:
    """Where a finding lies, for people: ``byte 61 (100 bytes), offsets 3 to 5``; empty where nothing is known."""
    return ", ".join(places(finding))


def places(finding: Finding) -> list[str]:
    """The same in its parts: the bytes, the offsets, as far as they are known."""
    parts = []
    if finding.position is not None:
        size = (finding.end or 0) - finding.position
        parts.append(f"byte {finding.position}" + (f" ({count_of(size, 'byte')})" if size > 0 else ""))
    first, last = finding.offset, finding.last_offset
    if first is not None and last is not None and first != last:
        parts.append(f"offsets {first} to {last}")
    elif first is not None:
        parts.append(f"offset {first}")
    elif last is not None:
        # A compressed v0 or v1 entry names only its last offset.
        parts.append(f"offsets up to {last}")
    return parts


def unlisted(result: FileResult) -> Iterator[tuple[Rule, int]]:
    """The rules of which more was found than the result lists, with how many more."""
    listed: dict[str, int] = {}
    for verdict in result.verdicts:
        listed[verdict.finding.rule] = listed.get(verdict.finding.rule, 0) + 1
    for name, count in sorted(result.summary.rules.items()):
        if count > listed.get(name, 0):
            yield RULES[name], count - listed.get(name, 0)


def sum_up(summary: Summary) -> str:
    """A summary on one line; its verdict, which can be the last word of a log, comes first."""
    counts = [
        count_of(summary.files, "file"),
        *([f"{summary.side_files:,} beside them"] if summary.side_files else []),
        f"{summary.batches:,} batch{'' if summary.batches == 1 else 'es'}",
        count_of(summary.records, "record"),
        count_of(summary.errors, "error"),
        count_of(summary.warnings, "warning"),
        count_of(summary.infos, "info"),
        f"{summary.lost_bytes:,} lost bytes",
    ]
    if summary.unread:
        counts.append(f"{summary.unread:,} could not be read")
    return f"{summary.verdict}: {', '.join(counts)}"


# -- JUnit


def write_junit(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """JUnit XML as Jenkins reads it (xunit-plugin's junit-10.xsd): a suite for each file.

    An error is a failing test, what could not be read an erroneous one; warnings and infos are the suite's output. The
    text is ASCII, with character references, so that the declared encoding holds in whatever ``out`` encodes.
    """
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="kseg validate">\n')
    for result in results:
        suite = _suite(result)
        ElementTree.indent(suite)
        out.write(ElementTree.tostring(suite, "us-ascii").decode("ascii"))
        out.write("\n")
    out.write("</testsuites>\n")


def _suite(result: FileResult) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=legible(result.file))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _facts_of(result.summary).items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    cases = [_failing_case(verdict) for verdict in result.verdicts if verdict.severity >= Severity.ERROR]
    if result.summary.errors and not cases:
        # With --max-per-rule 0 nothing is listed; a damaged file must not pass for that.
        unseen = f"{count_of(result.summary.errors, 'error')}, none of them listed"
        cases.append(_case("damaged", "kseg", "failure", "damaged", unseen))
    failures = len(cases)
    if result.unread is not None:
        cases.append(_case("readable", "kseg", "error", "unread", legible(result.unread)))
    suite.set("tests", str(max(1, len(cases))))
    suite.set("failures", str(failures))
    suite.set("errors", str(len(cases) - failures))
    suite.set("skipped", "0")
    suite.extend(cases or [ElementTree.Element("testcase", classname="kseg", name="sound")])
    notes = list(_notes(result))
    if notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(notes)
    return suite


def _failing_case(verdict: Verdict) -> ElementTree.Element:
    rule, where = verdict.rule, place(verdict.finding)
    name = f"{rule.code} {where}".strip()
    message = legible(verdict.message)
    facts = "\n".join(
        f"{key}: {legible(str(value))}" for key, value in _range(verdict.finding).items() if value is not None
    )
    return _case(name, rule.name, "failure", rule.code, message, f"{message}\n{facts}\nBroker: {rule.broker}")


def _case(name: str, classname: str, outcome: str, kind: str, message: str, text: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=classname, name=name)
    ElementTree.SubElement(case, outcome, type=kind, message=message).text = text or message
    return case


def _notes(result: FileResult) -> Iterator[str]:
    for verdict in result.verdicts:
        if verdict.severity < Severity.ERROR:
            rule = verdict.rule
            yield f"{verdict.severity.label}: {rule.code} {rule.name}: {_message_and_place(verdict)}"
    for rule, count in unlisted(result):
        yield f"{count:,} more of {rule.code} {rule.name}, not listed"


# -- SARIF

_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_SARIF_LEVELS = {"info": "note", "warning": "warning", "error": "error"}
_RULE_INDEX = {name: index for index, name in enumerate(RULES)}


def write_sarif(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """SARIF 2.1.0 (OASIS): one run, the whole rule table, a result for each finding, located by its bytes.

    What could not be read is a notification of a run that was not successful (§3.20.14). A run's ``properties`` hold
    the counts, of which the results are the first few of each rule. Written piece by piece, so the results come
    before the invocation that they decide.
    """
    tool = {"driver": {"name": "kseg", "rules": [_sarif_rule(rule) for rule in RULES.values()]}}
    out.write(f'{{"$schema": {json.dumps(_SARIF_SCHEMA)}, "version": "2.1.0", "runs": [{{"tool": {json.dumps(tool)},\n')
    out.write('"results": [')
    unread: list[dict[str, Any]] = []
    separator = "\n"
    for result in results:
        if result.unread is not None:
            unread.append(_notification(result.file, result.unread))
        for verdict in result.verdicts:
            out.write(separator + json.dumps(_sarif_result(verdict)))
            separator = ",\n"
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    properties = {**_facts_of(total), "rules": dict(sorted(total.rules.items()))}
    out.write(f'],\n"invocations": [{json.dumps(invocation)}],\n"properties": {json.dumps(properties)}}}]}}\n')


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    about = describe(rule)
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": about},
        "fullDescription": {"text": f"{about}. {rule.broker}"},
        "help": {"text": rule.broker},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity.label]},
    }


def describe(rule: Rule) -> str:
    """The rule's message with the names of its facts for their values: ``magic [magic]: [why]``."""
    return "".join(
        text + (f"[{name}]" if name is not None else "") for text, name, _, _ in string.Formatter().parse(rule.message)
    )


def _sarif_result(verdict: Verdict) -> dict[str, Any]:
    finding, rule = verdict.finding, verdict.rule
    location = _location(verdict.file)
    if finding.position is not None:
        region = {"byteOffset": finding.position}
        if finding.end is not None and finding.end >= finding.position:
            region["byteLength"] = finding.end - finding.position
        location["physicalLocation"]["region"] = region
    return {
        "ruleId": rule.code,
        "ruleIndex": _RULE_INDEX[rule.name],
        "level": _SARIF_LEVELS[verdict.severity.label],
        "message": {"text": _sarif_text(verdict.message)},
        "locations": [location],
        # GitHub tells an old alert from a new one by this; it can't hash the lines of a file that has none.
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(verdict)},
        "properties": {
            "offset": finding.offset,
            "last_offset": finding.last_offset,
            "facts": _plain(finding.facts),
        },
    }


def _notification(file: str, why: str) -> dict[str, Any]:
    return {"level": "error", "message": {"text": _sarif_text(why)}, "locations": [_location(file)]}


def _location(file: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": file_uri(file)}}}


def file_uri(path: str) -> str:
    """A path as a URI reference: relative as it is, absolute with ``file://``, a URL as a URL; percent-encoded.

    The name's own bytes are encoded, also those that are no UTF-8. Object stores take a ``%`` of a key literally.
    """
    scheme = _URL.match(path)
    if scheme:
        safe = "/%?&=:@[]!$'()*+,;~#" if _HTTP.match(path) else "/@"
        return scheme[0] + quote(_file_bytes(path[scheme.end() :]), safe)
    pure = PurePath(path)
    uri = quote(_file_bytes(pure.as_posix()), "/")
    return f"file://{'' if uri.startswith('/') else '/'}{uri}" if pure.is_absolute() else uri


def _file_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _fingerprint(verdict: Verdict) -> str:
    finding = verdict.finding
    what = (verdict.rule.code, verdict.file, finding.position, finding.offset, finding.last_offset, finding.facts)
    return hashlib.sha256(repr(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _sarif_text(text: str) -> str:
    """A plain text message: ``{`` begins a placeholder there (§3.11.5), ``[…](…)`` is a link (§3.11.6)."""
    return legible(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _plain(value: Any) -> Any:
    """Facts as JSON that strict readers take: a lone surrogate, which JSON can escape, is no Unicode text."""
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, Mapping):
        return {legible(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else legible(str(value))


# -- GitHub

_GITHUB_COMMANDS = {"info": "notice", "warning": "warning", "error": "error"}
_GITHUB_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_GITHUB_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def write_github(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Workflow commands, which GitHub Actions turns into annotations: ``::error file=…,title=K201 crc-mismatch::…``.

    A segment has no lines, so none is named. The last line is the summary, for who reads the job's log.
    """
    for result in results:
        for verdict in result.verdicts:
            rule = verdict.rule
            command = _GITHUB_COMMANDS[verdict.severity.label]
            message = f"{_message_and_place(verdict)}\nBroker: {rule.broker}"
            out.write(_command(command, result.file, f"{rule.code} {rule.name}", message))
        for rule, count in unlisted(result):
            out.write(_command("notice", result.file, f"{rule.code} {rule.name}", f"{count:,} more, not listed"))
        if result.unread is not None:
            out.write(_command("error", result.file, "could not be read", legible(result.unread)))
    out.write(f"kseg: {sum_up(total)}\n")


def _command(command: str, file: str, title: str, message: str) -> str:
    properties = f"file={legible(file).translate(_GITHUB_PROPERTY)},title={title.translate(_GITHUB_PROPERTY)}"
    return f"::{command} {properties}::{message.translate(_GITHUB_DATA)}\n"


# -- shared


def _message_and_place(verdict: Verdict) -> str:
    return "; ".join((legible(verdict.message), *places(verdict.finding)))


def _facts_of(summary: Summary) -> dict[str, Any]:
    return {**{name: getattr(summary, name) for name in COUNTS}, "verdict": summary.verdict}


def _range(finding: Finding) -> dict[str, Any]:
    return {
        "position": finding.position,
        "end": finding.end,
        "offset": finding.offset,
        "last_offset": finding.last_offset,
        **finding.facts,
    }
