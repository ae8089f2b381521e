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
    """Write JUnit XML as Jenkins reads it (junit-10.xsd of its xunit plugin): one suite with one test per file.

    A test has the name of its file, so a CI server can follow it from run to run. Errors make it fail; an unreadable file is
    a test with an error; warnings, infos and known findings are the suite's output. The text is ASCII with character
    references, so it is correct in every encoding of ``out``.
    """
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="kseg validate">\n')
    for result in results:
        suite = _suite(result)
        ElementTree.indent(suite)
        out.write(ElementTree.tostring(suite, "us-ascii").decode("ascii"))
        out.write("\n")
    out.write("</testsuites>\n")


def _suite(result: FileResult) -> ElementTree.Element:
    name = printable(result.file)
    errors = [verdict for verdict in result.verdicts if verdict.severity >= Severity.ERROR]
    failing = [verdict for verdict in errors if not verdict.known]
    # A damaged file must fail even if none of its findings is listed.
    unlisted = bool(result.summary.errors and not errors)
    unread = result.unread is not None
    failed = not unread and bool(failing or unlisted)
    counts = {"tests": "1", "failures": str(int(failed)), "errors": str(int(unread)), "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": name, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in facts_of(result.summary).items():
        ElementTree.SubElement(properties, "property", name=key, value=str(value))
    case = ElementTree.SubElement(suite, "testcase", classname="kseg.validate", name=name)
    text = "\n\n".join(map(_failure_text, failing))
    if unread:
        why = printable(result.unread or "")
        ElementTree.SubElement(case, "error", type="unreadable", message=why).text = "\n\n".join(
            filter(None, (why, text))
        )
    elif failed:
        summary = count_of(result.summary.errors, "error")
        rules = ", ".join(dict.fromkeys(f"{verdict.rule.code} {verdict.rule.name}" for verdict in failing))
        message = f"{summary}: {rules}" if rules else f"{summary}, none of them listed"
        ElementTree.SubElement(case, "failure", type="damaged", message=message).text = text or message
    notes = list(_notes(result))
    if notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(notes)
    return suite


def _failure_text(verdict: Verdict) -> str:
    rule = verdict.rule
    facts = "\n".join(
        f"{key}: {printable(str(value))}" for key, value in range_of(verdict.finding).items() if value not in (None, "")
    )
    heading = " ".join(filter(None, (rule.code, rule.name, place(verdict.finding))))
    return "\n".join((heading, printable(verdict.message), facts, *advice(verdict)))


def _notes(result: FileResult) -> Iterator[str]:
    for verdict in result.verdicts:
        if verdict.severity < Severity.ERROR or verdict.known:
            rule = verdict.rule
            known = "known " if verdict.known else ""
            yield f"{known}{verdict.severity.label}: {rule.code} {rule.name}: {message_and_place(verdict)}"
    for rule, count in omitted_findings(result):
        yield f"{count:,} more of {rule.code} {rule.name}, not listed"
