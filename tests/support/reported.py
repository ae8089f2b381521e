"""Results of a validation that are made up for tests of reports, with every rule and with hostile texts."""

from __future__ import annotations

import io
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from kseg.findings import READ_ERROR, RULES, Finding, Policy, Rule
from kseg.results import MAX_PER_RULE, FileResult, FindingCollector, Summary
from kseg.rule_table import RANGES

Writer = Callable[[Iterable[FileResult], Summary, TextIO], None]

TEXT_FACTS = {"why", "note", "where", "unit", "ahead", "codec", "wrapper"}
HOSTILE = (
    "a\x00b\x1b[31mred\x07\x85\x9b",
    "</script><script>alert(1)</script><!-- ]]> --> & \"quoted\" 'too'",
    "line\r\n::error file=x::forged\n##[error]forged",
    "[click](https://example.org) {0} {{why}} %s %0A $x ${x}",
    "\udcff\ud800\ufffe\uffff\u2028\u202egnp.exe\u2066",
    "été 日本 \U0001f600, 100%: done",
)
WORST = "/".join(HOSTILE)


def facts_for(rule: Rule, text: str = "because") -> dict[str, Any]:
    names = [name for _, name, _, _ in string.Formatter().parse(rule.message) if name is not None]
    names += ("first", "last") if set(RANGES) & set(names) else ()
    names += ("errno",) if rule.name == READ_ERROR else ()
    return {name: text if name in TEXT_FACTS else 7 for name in names}


def finding_for(rule: Rule, text: str = "because", at: int = 0) -> Finding:
    return Finding(rule.name, position=at, end=at + 61, offset=at, last_offset=at + 4, facts=facts_for(rule, text))


def result_of(file: str, findings: Iterable[Finding], size: int = 4096, **more: Any) -> FileResult:
    """Return a result as the validator makes it, with its own collector."""
    tally = FindingCollector(file, more.get("policy", Policy()), more.get("limit", MAX_PER_RULE))
    for finding in findings:
        tally(finding)
    tally.summary.bytes = size
    tally.summary.batches = 3
    tally.summary.unread = int(more.get("unread") is not None)
    return FileResult(file, tuple(tally.verdicts), tally.summary, more.get("unread"), unlisted=tally.result().unlisted)


def every_rule(file: str = "t-0/00000000000000000000.log", text: str = "because") -> FileResult:
    return result_of(file, [finding_for(rule, text, 61 * i) for i, rule in enumerate(RULES.values())])


def written(writer: Writer, *results: FileResult) -> str:
    """Return the report of results that arrive one by one and are counted as they arrive, as in the command line."""
    total = Summary()

    def counting() -> Iterator[FileResult]:
        for result in results:
            total.add(result.summary)
            yield result

    out = io.StringIO()
    writer(counting(), total, out)
    return out.getvalue()


SOUND = result_of("t-0/00000000000000000100.log", [])
UNREAD = result_of("t-0/00000000000000000200.log", [], size=0, unread="no permission")
