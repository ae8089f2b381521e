"""Reports must parse, count correctly, and escape hostile content of files."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.extras.html import validation_page as html
from kseg.findings import RULES, Finding, Policy, Severity, Verdict
from kseg.report import ci_formats, prometheus, wording
from kseg.report.tables import TableColumn, print_cells, print_note
from kseg.report.validate_report import write_table
from kseg.results import MAX_PER_RULE, FileResult, Summary
from tests.support.reported import (
    HOSTILE,
    SOUND,
    UNREAD,
    WORST,
    Writer,
    every_rule,
    facts_for,
    finding_for,
    result_of,
    written,
)

WRITERS: dict[str, Writer] = {
    "junit": ci_formats.write_junit,
    "sarif": ci_formats.write_sarif,
    "github": ci_formats.write_github,
    "html": html.write_html,
    "markdown": ci_formats.write_markdown,
    "prometheus": prometheus.write_prometheus,
}


def test_every_rule_has_a_message_for_its_facts() -> None:
    """A template whose facts are missing would be a traceback at the moment of damage."""
    for rule in RULES.values():
        verdict = Verdict("f", rule.severity, finding_for(rule))
        assert "{" not in verdict.message, rule.name
        for writer in WRITERS.values():
            assert rule.code in written(writer, result_of("f", [finding_for(rule)])), rule.name


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("hostile", [*HOSTILE, WORST])
def test_no_report_holds_a_control_character(writer: Writer, hostile: str) -> None:
    """Files and their names are data: they must not control a terminal, forge a line or break an encoder."""
    unread = result_of(hostile, [], size=0, unread=hostile)
    text = written(writer, every_rule(hostile, hostile), unread)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", text)
    assert text.encode("utf-8")
    if writer not in (ci_formats.write_github, ci_formats.write_markdown):
        assert text.isascii(), "or the declared encoding would be wrong on an odd terminal"


@pytest.mark.slow
@given(st.text(st.characters(codec=None)))
def test_legible_text_is_fit_for_xml(text: str) -> None:
    """XML 1.0 can't contain most control characters, and one of them makes a CI server reject the whole report."""
    root = ElementTree.fromstring(f"<a>{wording.printable(text).replace('&', '').replace('<', '')}</a>")
    assert wording.printable(root.text or "") == (root.text or "")


def test_a_byte_of_a_name_that_is_no_utf8_is_shown_as_that_byte() -> None:
    """File names can have any bytes."""
    assert wording.printable("caf\udce9\n\x1b\u202e") == r"caf\xe9\n\x1b\u202e"


# -- JUnit


def suites(*results: FileResult) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(written(ci_formats.write_junit, *results))
    assert root.tag == "testsuites"
    return list(root)


def test_junit_has_a_passing_test_for_a_sound_file() -> None:
    """CI servers show valid files, too."""
    sound, unread = suites(replace(SOUND, file="t-0/f"), replace(UNREAD, file="t-1/f"))
    assert (sound.get("name"), sound.get("tests"), sound.get("failures"), sound.get("errors")) == (
        "t-0", "1", "0", "0",
    )  # fmt: skip
    (case,) = sound.findall("testcase")
    assert len(case) == 0
    assert (unread.get("tests"), unread.get("failures"), unread.get("errors")) == ("1", "0", "1")
    error = unread.find("testcase/error")
    assert error is not None
    assert error.get("message") == "no permission"


def test_junit_has_a_suite_for_each_partition_with_the_times_of_its_files() -> None:
    """A CI server shows a partition as one line, with its failures and its time."""
    damaged = replace(result_of("orders-0/1.log", [finding_for(RULES["crc-mismatch"])]), seconds=0.25)
    files = [replace(result_of("orders-0/0.log", []), seconds=1.5), damaged, result_of("orders-1/0.log", [])]
    first, second = suites(*files)
    assert (first.get("name"), first.get("tests"), first.get("failures")) == ("orders-0", "2", "1")
    assert (second.get("name"), second.get("tests"), second.get("failures")) == ("orders-1", "1", "0")
    assert [case.get("time") for case in first.findall("testcase")] == ["1.500", "0.250"]
    assert first.get("time") == "1.750"


def test_junit_fails_the_test_of_a_damaged_file_and_lists_other_findings() -> None:
    """Only errors fail a build, and a file is one test with the same name in every run."""
    result = every_rule()
    (suite,) = suites(result)
    (case,) = suite.findall("testcase")
    assert case.get("name") == result.file
    failure = case.find("failure")
    assert failure is not None
    output = case.findtext("system-out") or ""
    for rule in RULES.values():
        error = rule.severity >= Severity.ERROR
        assert (f"{rule.code} {rule.name}" in (failure.text or "")) == error
        assert (f"{rule.severity.label}: {rule.code} " in output) == (not error)
    assert [one.find("testcase").get("name") for one in suites(SOUND)] == [SOUND.file]  # type: ignore[union-attr]


def test_junit_never_passes_a_damaged_file() -> None:
    """With --limit 0 the report has a count of errors and no single finding."""
    (suite,) = suites(result_of("f", [finding_for(RULES["crc-mismatch"])], limit=0))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert suite.find("testcase/failure") is not None


def test_junit_weighs_as_the_policy_does() -> None:
    """The report uses the severities of the policy."""
    finding = finding_for(RULES["crc-mismatch"])
    (suite,) = suites(result_of("f", [finding], policy=Policy({"crc-mismatch": Severity.WARNING})))
    assert suite.get("failures") == "0"
    assert "warning: K201" in (suite.findtext("testcase/system-out") or "")


def test_junit_counts_the_findings_that_it_leaves_out() -> None:
    """Findings beyond the limit are counted."""
    (suite,) = suites(result_of("f", [finding_for(RULES["zero-tail"])] * (MAX_PER_RULE + 1234)))
    assert "1,234 more of K102 zero-tail" in (suite.findtext("testcase/system-out") or "")


# -- SARIF


def sarif_run(*results: FileResult) -> dict[str, Any]:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    log = json.loads(written(ci_formats.write_sarif, *results), parse_constant=no_constant)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def test_sarif_holds_the_rule_table() -> None:
    """Each rule has its description and severity."""
    rules = sarif_run()["tool"]["driver"]["rules"]
    assert [(rule["id"], rule["name"]) for rule in rules] == [(rule.code, rule.name) for rule in RULES.values()]
    for rule, row in zip(rules, RULES.values(), strict=True):
        assert rule["help"]["text"] == row.remedy
        assert rule["fullDescription"]["text"].endswith(row.broker)
        assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
        assert not set("{}") & set(rule["shortDescription"]["text"])
        assert "](" not in rule["shortDescription"]["text"], "that would be a link"


def test_sarif_locates_each_finding_by_its_bytes() -> None:
    """A finding's region is its range of bytes."""
    result = every_rule()
    run = sarif_run(result, SOUND)
    assert len(run["results"]) == len(RULES)
    for found, verdict in zip(run["results"], result.verdicts, strict=True):
        rule = run["tool"]["driver"]["rules"][found["ruleIndex"]]
        assert rule["id"] == found["ruleId"] == verdict.rule.code
        assert found["level"] == {"info": "note"}.get(verdict.severity.label, verdict.severity.label)
        assert found["message"]["text"] == verdict.message
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == result.file
        assert place["region"] == {"startLine": 1, "byteOffset": verdict.finding.position, "byteLength": 61}
        assert found["properties"]["offset"] == verdict.finding.offset
        assert found["properties"]["facts"] == verdict.finding.facts
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_sarif_fingerprints_are_distinct_and_stable() -> None:
    """GitHub closes and opens alerts by the fingerprint."""
    prints = [found["partialFingerprints"]["primaryLocationLineHash"] for found in sarif_run(every_rule())["results"]]
    assert len(set(prints)) == len(RULES)
    assert prints == [
        found["partialFingerprints"]["primaryLocationLineHash"] for found in sarif_run(SOUND, every_rule())["results"]
    ]


def test_sarif_distinguishes_two_findings_of_one_rule() -> None:
    """Two findings have two fingerprints."""
    rule = RULES["crc-mismatch"]
    same_place = Finding(rule.name, position=0, end=61, offset=0, last_offset=4, facts={**facts_for(rule), "stored": 8})
    findings = [finding_for(rule), finding_for(rule, at=61), same_place]
    results = sarif_run(result_of("a", findings), result_of("b", findings))["results"]
    assert len({found["partialFingerprints"]["primaryLocationLineHash"] for found in results}) == 6


def test_sarif_has_no_bytes_of_a_finding_without_a_position() -> None:
    """An invented position would be wrong. GitHub requires a line."""
    bare = Finding("read-error", facts={"why": "gone", "errno": 5})
    (found,) = sarif_run(result_of("f", [bare]))["results"]
    assert found["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert found["level"] == "error"


def test_sarif_reports_what_could_not_be_read_as_a_failure_of_the_run() -> None:
    """An unread file is not a passed check."""
    run = sarif_run(UNREAD, SOUND)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == "no permission"
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == UNREAD.file
    assert run["properties"]["verdict"] == "undetermined"
    assert run["properties"]["files"] == 2


def test_sarif_messages_hold_neither_links_nor_placeholders() -> None:
    """Content of files must not become markup."""
    (found,) = sarif_run(result_of("f", [finding_for(RULES["lost-bytes"], HOSTILE[3])]))["results"]
    assert "](" not in found["message"]["text"]
    assert "{{0}}" in found["message"]["text"]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("t-0/00000000000000000000.log", "t-0/00000000000000000000.log"),
        ("./a b/c:d#e?f%.log", "a%20b/c%3Ad%23e%3Ff%25.log"),
        ("/var/lib/é.log", "file:///var/lib/%C3%A9.log"),
        ("caf\udce9.log", "caf%E9.log"),
        ("s3://bucket/a b%20c#1", "s3://bucket/a%20b%2520c%231"),
        ("https://host/a%20b?x=1&y=2", "https://host/a%20b?x=1&y=2"),
        ("-", "-"),
    ],
)
def test_file_uris(path: str, uri: str) -> None:
    """Paths become valid file URIs."""
    assert ci_formats.file_uri(path) == uri


@given(st.text(st.characters(codec=None)))
def test_a_file_uri_is_one_of_any_name(name: str) -> None:
    """A name must not end the report with an encoding error, or add a query or a fragment."""
    assert re.fullmatch(r"(?:[A-Za-z0-9_.~/-]|%[0-9A-F]{2})*", ci_formats.file_uri("d/" + name))


# -- GitHub


def unescape_property(text: str) -> str:
    """Decode a property as actions/runner does."""
    for escaped, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escaped, char)
    return text


def github_parts(*results: FileResult) -> list[tuple[str, dict[str, str], str]]:
    *lines, last = written(ci_formats.write_github, *results).splitlines()
    assert not last.startswith("::")
    commands = []
    for line in lines:
        match = re.fullmatch(r"::(error|warning|notice) ((?:(?!::).)*)::(.*)", line)
        if re.match("(error|warning|notice): ", line):
            continue  # a line of the log
        assert match, line
        pairs = (pair.split("=", 1) for pair in match[2].split(","))
        commands.append((match[1], {name: unescape_property(value) for name, value in pairs}, match[3]))
    return commands


def test_github_gets_the_worst_findings_as_annotations() -> None:
    """GitHub shows ten annotations of a kind; the other findings are lines of the log, so the limit hides none."""
    commands = github_parts(every_rule(), SOUND)
    kinds = Counter(command for command, _, _ in commands)
    labels = [{"info": "notice"}.get(rule.severity.label, rule.severity.label) for rule in RULES.values()]
    assert kinds == {kind: min(ci_formats.MAX_ANNOTATIONS, count) for kind, count in Counter(labels).items()}
    assert [command for command, _, _ in commands] == sorted(kinds.elements(), key=["error", "warning", "notice"].index)
    for _, properties, message in commands:
        rule = RULES[properties["title"].split()[1]]
        assert properties["file"] == "t-0/00000000000000000000.log"
        assert message.endswith(f"Broker: {rule.broker}%0AWhat to do: {rule.remedy}")
    text = written(ci_formats.write_github, every_rule())
    assert all(f"{rule.code} {rule.name}" in text for rule in RULES.values())


def test_github_can_be_given_no_command_by_a_file() -> None:
    """A line feed in a message would begin a new command; a comma or a colon in a name would end the property."""
    hostile = result_of(WORST, [finding_for(RULES["lost-bytes"], WORST)], unread=WORST)
    (lost, unread) = github_parts(hostile)
    assert lost[1]["file"] == unread[1]["file"] == wording.printable(WORST)
    assert "100%25: done" in lost[2]


def test_a_table_has_the_range_of_all_findings_of_a_rule() -> None:
    """The number in a row is that of all findings, so its range is, too, also in the table of damaged partitions."""
    text = written(
        write_table, result_of("t-0/a", [finding_for(RULES["crc-mismatch"], at=100 * i) for i in range(30)]), SOUND
    )
    assert re.search(r"crc-mismatch ×30 .*0\.\.2960 .*0\.\.2904\?", text)
    assert re.search(r"t-0 +loses records +- +0\.\.2904\? +K201", text)


def test_what_is_unreadable_is_not_counted_as_a_side_file() -> None:
    """It can be a segment, or a folder that cannot be listed."""
    assert wording.summary_text(Summary(files=2, side_files=5, unread=1)).startswith(
        "undetermined: 2 files, 5 side files, 1 path unreadable, 0 batches"
    )


def test_github_counts_what_it_leaves_out_and_sums_up() -> None:
    """Findings beyond the limit are counted."""
    result = result_of("f", [finding_for(RULES["crc-mismatch"])] * (MAX_PER_RULE + 5))
    assert "notice: f: K201 crc-mismatch: 5 more, not listed" in written(ci_formats.write_github, result)
    assert written(ci_formats.write_github, result, UNREAD).splitlines()[-1] == (
        "kseg: damaged: 2 files (1 unreadable), 6 batches, 0 records, 4,096 bytes; "
        "21 errors, 0 warnings, 0 infos; 0 bytes lost"
    )


# -- all


@pytest.mark.parametrize("writer", [ci_formats.write_junit, ci_formats.write_sarif, ci_formats.write_github])
def test_writers_write_during_the_run(writer: Writer) -> None:
    """The memory for a report must not grow with the number of files."""
    out = io.StringIO()
    lengths = []

    def watching() -> Iterator[FileResult]:
        for folder in range(4):
            yield replace(every_rule(), file=f"t-{folder}/f")
            lengths.append(out.tell())

    writer(watching(), Summary(), out)
    assert lengths == sorted(set(lengths)), "each folder is out before the next but one is asked for"


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_no_results_are_a_report_too(writer: Writer) -> None:
    """A run without files still gives a valid report."""
    text = written(writer)
    assert text.endswith("\n")
    if writer is ci_formats.write_junit:
        assert len(ElementTree.fromstring(text)) == 0
    if writer is ci_formats.write_sarif:
        assert json.loads(text)["runs"][0]["results"] == []


def test_reports_are_imported_only_when_asked_for() -> None:
    """XML, HTML and hashing cost start-up time that a dump must not pay."""
    code = "import sys, kseg.commands.validate.validate; print([m for m in sys.modules if m.startswith('kseg.report')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_uri_keeps_the_bytes_of_the_name() -> None:
    """Decoding the URI gives the file's name."""
    assert unquote_to_bytes(ci_formats.file_uri("d/caf\udce9 %41")) == b"d/caf\xe9 %41"


def test_a_pipe_gets_the_table_that_a_terminal_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers lay it out: rich for a terminal, and a fast one for pipes with thousands of tables."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = [(("error", "K201 crc-mismatch", "0..61", "it is wrong"), "red"), (("", "K999", "-", "[red]x[/red]"), "")]
    columns = [TableColumn(name) for name in ("severity", "rule", "bytes", "message")]
    seen = [Terminal(), io.StringIO()]
    for out in seen:
        print_cells(out, columns, rows, title="some/file")
        print_note(out, "and so on", indent=2)
    terminal, pipe = (out.getvalue() for out in seen)
    assert "\x1b[31m" in terminal
    assert "\x1b" not in pipe
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal).splitlines()]
    assert [line.replace("─", "") for line in plain] == [line.replace("─", "") for line in pipe.splitlines()]
