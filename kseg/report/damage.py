"""The damage of a partition, with which the reports of `kseg validate` begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kseg.findings import Severity
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

    def add(self, result: FileResult) -> None:
        """Add the result of a file of the partition."""
        self.errors += new_errors(result)
        self.lost_bytes += result.summary.lost_bytes
        self.unread += result.unread is not None
        for verdict in result.verdicts:
            if verdict.severity >= Severity.ERROR and not verdict.known:
                finding = verdict.finding
                self.rules[finding.rule] = None
                known = [at for at in (finding.offset, finding.last_offset) if at is not None]
                if known:
                    self._ranges.append((min(known), max(known)))
        if len(self._ranges) > _MOST_RANGES:
            self._ranges = self.ranges()[:_MOST_RANGES]

    def causes(self) -> list[str]:
        """Return the names of the rules, and whether a file could not be read."""
        return [*self.rules, *(["could not be read"] if self.unread else [])]

    def span(self) -> str:
        """Return the first and the last offset of the errors as ``5..7``; ``-`` without offsets."""
        return f"{min(self._ranges)[0]}..{max(last for _, last in self._ranges)}" if self._ranges else "-"

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of offsets of the errors, in order and without overlaps. Both ends are inclusive."""
        return list(_joined(sorted(self._ranges)))


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
