"""What reports share: the wording of findings, places and summaries, and long tables of ranked rows.

In such a table the worst rows are the first, and equal ones are folded, so that the answer fits on a screen.

All text from a file or its name passes through ``printable``: other programs open a report, and it must not contain
control characters or markup from a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from kseg.findings import RULES, Finding, Rule, Severity, Verdict
from kseg.results import FileResult, Summary
from kseg.text import count_of

# Characters that XML 1.0 forbids (most of C0, surrogates, U+FFFE and U+FFFF), that control a terminal (C0, C1), break a
# line (U+2028, U+2029) or change the reading direction (CVE-2021-42574).
_ILLEGIBLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


#: The style of a row of a table by the severity of its finding.
STYLES = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red", Severity.FATAL: "bold red"}


class Prose(str):
    """A sentence of kseg itself in which `code` is marked: a page sets it as code."""

    __slots__ = ()


def printable(text: str) -> str:
    """Return the text on one line, with each forbidden character written as ``\\xNN`` or ``\\uNNNN``.

    A byte of a file name that is not UTF-8 (a surrogate after ``os.fsdecode``) is shown as that byte.
    """
    return text if text.isprintable() else re.sub(_ILLEGIBLE, _escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def place(finding: Finding) -> str:
    """Return the place of a finding, such as ``byte 61 (100 bytes), offsets 3..5``; empty if it is unknown."""
    return ", ".join(places(finding))


def places(finding: Finding) -> list[str]:
    """Return the known parts of the place of a finding: its bytes and its offsets."""
    parts = []
    if finding.position is not None:
        size = (finding.end or 0) - finding.position
        parts.append(f"byte {finding.position}" + (f" ({count_of(size, 'byte')})" if size > 0 else ""))
    first, last = finding.offset, finding.last_offset
    if first is not None and last is not None and first != last:
        parts.append(f"offsets {first}..{last}")
    elif first is not None:
        parts.append(f"offset {first}")
    elif last is not None:
        # The header of a compressed message set has only its last offset.
        parts.append(f"offsets up to {last}")
    if finding.rule == "crc-mismatch" and (first is not None or last is not None):
        parts[-1] += " (if the header is right)"  # the CRC covers the header, too
    return parts


def omitted_findings(result: FileResult) -> Iterator[tuple[Rule, int]]:
    """Yield the rules with more findings than the result lists, and the number of unlisted ones."""
    listed: dict[str, int] = {}
    for verdict in result.verdicts:
        listed[verdict.finding.rule] = listed.get(verdict.finding.rule, 0) + 1
    for name, count in sorted(result.summary.rules.items()):
        if count > listed.get(name, 0):
            yield RULES[name], count - listed.get(name, 0)


def summary_text(summary: Summary) -> str:
    """Return a summary as one line that begins with the verdict."""
    files = [count_of(summary.files, "file")]
    if summary.side_files:
        files.append(count_of(summary.side_files, "side file"))
    if summary.unread and summary.side_files:
        files.append(f"{count_of(summary.unread, 'path')} unreadable")
    elif summary.unread:
        nothing = f"nothing read in {count_of(summary.unread, 'path')}"
        files[-1] += f" ({f'{summary.unread:,} unreadable' if summary.files else nothing})"
    records = "records not counted" if summary.shallow else count_of(summary.records, "record")
    content = (count_of(summary.batches, "batch"), records, count_of(summary.bytes, "byte"))
    unchecked = "; CRCs or bodies of frames were not checked" if summary.unchecked else ""
    return (
        f"{summary.verdict}: {', '.join((*files, *content))}; {severities_text(summary)}; "
        f"{count_of(summary.lost_bytes, 'byte')} lost{unchecked}"
    )


def severities_text(summary: Summary) -> str:
    counts = ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "info"))
    return ", ".join(count_of(count, noun) for count, noun in counts)


def produced_text(summary: Summary) -> str:
    """Return the number of record sets of produce requests by the verdict of a leader."""
    counts = (f"{count:,} {outcome}" for outcome, count in sorted(summary.produced.items()))
    return f"produce requests: {count_of(summary.produced.total(), 'record set')}: {', '.join(counts)}"


def message_and_place(verdict: Verdict) -> str:
    return "; ".join((printable(verdict.message), *places(verdict.finding)))


def advice(verdict: Verdict) -> list[str]:
    """Return a line about the reaction of a broker, and a line about what to do; none if the rule has no reaction."""
    return [f"Broker: {verdict.broker}", f"What to do: {verdict.remedy}"] if verdict.broker else []


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

#: The number of ranked items up to which each has its own row, and the most rows of groups.
MOST_ROWS = 12
MOST_GROUPS = 8
#: The most names of a list in a cell.
MOST_NAMES = 5


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order in which the keys occur."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def fold(
    items: Sequence[Item], key: Callable[[Item], tuple[Hashable, ...]], *, whole: bool = False, most: int = MOST_ROWS
) -> list[list[Item]]:
    """Return ranked items as groups, one per row.

    At most ``most`` items, or with ``whole`` all, are a group each. Of many, those with an equal ``key`` are one group.
    The first value of a key is the rank: groups after the first ``MOST_GROUPS`` are joined with those of their rank only.
    """
    if whole or len(items) <= most:
        return [[item] for item in items]
    equal = grouped(items, key)
    keys = list(equal)
    alone, ranks = len(keys), set[Hashable]()
    while alone and alone + len(ranks) > MOST_GROUPS:
        alone -= 1
        ranks.add(keys[alone][0])
    joined: dict[tuple[Hashable, ...], list[Item]] = {}
    for n, one in enumerate(keys):
        joined.setdefault(one if n < alone else one[:1], []).extend(equal[one])
    return list(joined.values())


def times(text: str, count: int) -> str:
    """Return the cell of ``count`` equal things in one row."""
    return text + (f" ×{count:,}" if count > 1 else "")


def first_text(text: str, count: int) -> str:
    """Return the text of the first of ``count`` things in one row."""
    return f"the first: {text}" if text and count > 1 else text


def names_text(names: Iterable[str]) -> str:
    """Return the first of some names of files or folders, and the number of the others; empty without names."""
    first, *others = [*names] or [""]
    return first + (f" and {len(others):,} more" if others else "")


def some_text(names: Sequence[str]) -> str:
    """Return the first ``MOST_NAMES`` of some names with commas, and the number of the others."""
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more < 2 else f"{', '.join(names[:MOST_NAMES])} and {more:,} more"


def common_text(texts: Iterable[str]) -> str:
    """Return the different ones of some texts, or ``several`` if they are many."""
    different = dict.fromkeys(texts)
    return ", ".join(different) if len(different) <= 2 else "several"
