"""The damage of a partition, with which the reports of `kseg validate` begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kseg.findings import RULES, Finding, Severity
from kseg.results import FileResult

#: The most separate ranges of offsets of a partition that are kept.
_MOST_RANGES = 100_000


def new_errors(result: FileResult) -> int:
    """Return the number of errors that are not in the baseline."""
    return result.summary.errors - sum(one.known and one.severity >= Severity.ERROR for one in result.verdicts)


class Damage:
    """The damage of one partition: counts, the names of the rules, and the offsets of its errors."""

    def __init__(self) -> None:
        self.errors = self.lost_bytes = self.unread = 0
        self.rules: dict[str, None] = {}
        self._ranges: list[tuple[int, int]] = []
        self._unlisted: list[tuple[int, int]] = []

    def add(self, result: FileResult) -> None:
        """Add the result of a file of the partition."""
        self.errors += new_errors(result)
        self.lost_bytes += result.summary.lost_bytes
        self.unread += result.unread is not None
        severities = {verdict.finding.rule: verdict.severity for verdict in result.verdicts}
        for verdict in result.verdicts:
            if verdict.severity >= Severity.ERROR and not verdict.known:
                self.rules[verdict.finding.rule] = None
                self._ranges += _offsets(verdict.finding)
        for rule, others in result.unlisted.items():
            if severities.get(rule, RULES[rule].severity) >= Severity.ERROR:
                self.rules[rule] = None
                self._unlisted += _offsets(others)
        if len(self._ranges) > _MOST_RANGES:
            self._ranges, left = self.ranges()[:_MOST_RANGES], self.ranges()[_MOST_RANGES:]
            self._unlisted += left
        if self._unlisted:
            self._unlisted = [around(self._unlisted)]

    def causes(self) -> list[str]:
        """Return the names of the rules, and whether a file could not be read."""
        return [*self.rules, *(["could not be read"] if self.unread else [])]

    def span(self) -> str:
        """Return the first and the last offset of the errors as ``5..7``; ``-`` without offsets."""
        every = [*self._ranges, *self._unlisted]
        return "{}..{}".format(*around(every)) if every else "-"

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of offsets of the listed errors, in order and without overlaps. Both ends are inclusive."""
        return list(_joined(sorted(self._ranges)))

    def unlisted(self) -> tuple[int, int] | None:
        """Return the first and the last offset of the errors that are not listed; None without such errors."""
        return self._unlisted[0] if self._unlisted else None


def _offsets(finding: Finding) -> list[tuple[int, int]]:
    known = [at for at in (finding.offset, finding.last_offset) if at is not None]
    return [(min(known), max(known))] if known else []


def around(ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the smallest and the largest offset of some ranges. Both are inclusive."""
    firsts, lasts = zip(*ranges, strict=True)
    return min(firsts), max(lasts)


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    before: tuple[int, int] | None = None
    for first, last in ranges:
        if before is None:
            before = first, last
        elif first <= before[1] + 1:
            before = before[0], max(before[1], last)
        else:
            yield before
            before = first, last
    if before is not None:
        yield before
