"""``kseg validate --format sarif``, for code scanning.

The results are a lazy iterator that is read once and written as it is read: a report on a log dir with thousands of
segments takes no more memory than the findings of one file. ``total`` is complete after the last result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, TextIO
from urllib.parse import quote

from kseg import __version__
from kseg.commands.validate.baseline import fingerprint
from kseg.findings import RULES, Rule, Verdict
from kseg.report.rules import message_of
from kseg.report.wording import facts_of, printable
from kseg.results import FileResult, Summary

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"info": "note", "warning": "warning", "error": "error"}
#: The most results of a run that GitHub's code scanning accepts; all findings are counted in the run's properties.
MAX_RESULTS = 25_000
_RULE_INDEX = {name: index for index, name in enumerate(RULES)}


def write_sarif(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write SARIF 2.1.0 (OASIS): one run, the whole rule table, one result per finding, located by its bytes.

    Unreadable files are notifications of an unsuccessful run (§3.20.14). The ``properties`` of the run have the counts
    of all findings; the results are the first few of each rule. The file is written in pieces, so the results come before
    the invocation, which depends on them.
    """
    driver = {"name": "kseg", "version": __version__, "semanticVersion": __version__}
    tool = {"driver": {**driver, "rules": [_rule(rule) for rule in RULES.values()]}}
    out.write(f'{{"$schema": {json.dumps(_SCHEMA)}, "version": "2.1.0", "runs": [{{"tool": {json.dumps(tool)},\n')
    out.write('"results": [')
    unread: list[dict[str, Any]] = []
    separator, left = "\n", MAX_RESULTS
    for result in results:
        if result.unread is not None:
            unread.append(_notification(result.file, result.unread))
        for verdict in result.verdicts[:left]:
            out.write(separator + json.dumps(_result(verdict)))
            separator = ",\n"
        left -= min(left, len(result.verdicts))
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    properties = {**facts_of(total), "rules": dict(sorted(total.rules.items()))}
    out.write(f'],\n"invocations": [{json.dumps(invocation)}],\n"properties": {json.dumps(properties)}}}]}}\n')


def _rule(rule: Rule) -> dict[str, Any]:
    about = message_of(rule, ("[", "]"))  # SARIF has braces for placeholders
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": about},
        "fullDescription": {"text": f"{about}. What a broker does: {rule.broker}"},
        "help": {"text": rule.remedy},
        "defaultConfiguration": {"level": _LEVELS[rule.severity.label]},
    }


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


def _notification(file: str, why: str) -> dict[str, Any]:
    return {"level": "error", "message": {"text": _text(why)}, "locations": [_location(file)]}


def _location(file: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": file_uri(file)}}}


def file_uri(path: str) -> str:
    """Return a path as a percent-encoded URI reference: a relative path, ``file://`` plus an absolute one, or a URL.

    The bytes of the name are encoded, also if they are not UTF-8. Object stores treat a ``%`` in a key literally.
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
