"""What the reports of ``kseg validate`` have in common: how a finding, a place and a summary are put into words.

Whatever comes from a file or its name passes through ``legible``: a report is opened by other programs, which must
find in it neither a control character nor markup that kseg didn't write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kseg.findings import RULES, Finding, Rule, Verdict
from kseg.validation.validate import COUNTS, FileResult, Summary

# What XML 1.0 forbids (most of C0, surrogates, U+FFFE and U+FFFF), what a terminal obeys (C0, C1), what breaks a line
# (U+2028, U+2029) and what turns the reading direction round (CVE-2021-42574).
_ILLEGIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


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


def message_and_place(verdict: Verdict) -> str:
    return "; ".join((legible(verdict.message), *places(verdict.finding)))


def broker_line(verdict: Verdict) -> str:
    """What a broker does, in a line of its own behind others; nothing where there is nothing to say."""
    return f"\nBroker: {verdict.broker}" if verdict.broker else ""


def facts_of(summary: Summary) -> dict[str, Any]:
    return {**{name: getattr(summary, name) for name in COUNTS}, "verdict": summary.verdict}


def range_of(finding: Finding) -> dict[str, Any]:
    return {
        "position": finding.position,
        "end": finding.end,
        "offset": finding.offset,
        "last_offset": finding.last_offset,
        **finding.facts,
    }
