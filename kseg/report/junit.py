"""``kseg validate --format junit``, for CI servers.

The results are a lazy iterator that is read once and written as it is read: a report on a log dir with thousands of
segments takes no more memory than the findings of one file. ``total`` is complete after the last result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO
from xml.etree import ElementTree

from kseg.findings import Severity, Verdict
from kseg.report.wording import (
    advice,
    facts_of,
    message_and_place,
    omitted_findings,
    place,
    printable,
    range_of,
)
from kseg.results import FileResult, Summary
from kseg.text import count_of


def write_junit(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write JUnit XML as Jenkins reads it (junit-10.xsd of its xunit plugin): one suite per file.

    An error is a failed test; an unreadable file is a test with an error; warnings and infos are the suite's output. The
    text is ASCII with character references, so it is correct in every encoding of ``out``.
    """
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="kseg validate">\n')
    for result in results:
        suite = _suite(result)
        ElementTree.indent(suite)
        out.write(ElementTree.tostring(suite, "us-ascii").decode("ascii"))
        out.write("\n")
    out.write("</testsuites>\n")


def _suite(result: FileResult) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=printable(result.file))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts_of(result.summary).items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    cases = [_failing_case(verdict) for verdict in result.verdicts if verdict.severity >= Severity.ERROR]
    if result.summary.errors and not cases:
        # A damaged file must fail even if none of its findings is listed.
        unseen = f"{count_of(result.summary.errors, 'error')}, none of them listed"
        cases.append(_case("damaged", "kseg", "failure", "damaged", unseen))
    failures = len(cases)
    if result.unread is not None:
        cases.append(_case("readable", "kseg", "error", "unreadable", printable(result.unread)))
    suite.set("tests", str(max(1, len(cases))))
    suite.set("failures", str(failures))
    suite.set("errors", str(len(cases) - failures))
    suite.set("skipped", "0")
    suite.extend(cases or [ElementTree.Element("testcase", classname="kseg", name=result.summary.verdict)])
    notes = list(_notes(result))
    if notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(notes)
    return suite


def _failing_case(verdict: Verdict) -> ElementTree.Element:
    rule, where = verdict.rule, place(verdict.finding)
    name = f"{rule.code} {where}".strip()
    message = printable(verdict.message)
    facts = "\n".join(
        f"{key}: {printable(str(value))}" for key, value in range_of(verdict.finding).items() if value is not None
    )
    return _case(name, rule.name, "failure", rule.code, message, "\n".join((message, facts, *advice(verdict))))


def _case(name: str, classname: str, outcome: str, kind: str, message: str, text: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=classname, name=name)
    ElementTree.SubElement(case, outcome, type=kind, message=message).text = text or message
    return case


def _notes(result: FileResult) -> Iterator[str]:
    for verdict in result.verdicts:
        if verdict.severity < Severity.ERROR:
            rule = verdict.rule
            yield f"{verdict.severity.label}: {rule.code} {rule.name}: {message_and_place(verdict)}"
    for rule, count in omitted_findings(result):
        yield f"{count:,} more of {rule.code} {rule.name}, not listed"
