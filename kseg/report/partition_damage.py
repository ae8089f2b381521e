"""The damage of partitions: ranked by consequence, equal ones folded. Reports of ``kseg validate`` begin with it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kseg.findings import RULES, Consequence, Finding, Severity, attention_text, consequence_of, joined_ranges
from kseg.format.storage.naming import OF_LOG_DIRS, partition_of
from kseg.format.storage.source import STDIN
from kseg.report.tables import Row, TableColumn, cell_rows
from kseg.report.wording import common_text, fold, names_text, some_text
from kseg.results import FileResult
from kseg.text import span

#: The most separate ranges of offsets of a partition that are kept.
_MOST_RANGES = 100_000
#: The most pairs of a rule and a file that are kept for a partition.
_MOST_FILES = 100


def folder_of(file: str) -> str:
    """Return the folder of a file; that of standard input is itself."""
    return os.path.dirname(file) if file != STDIN else STDIN


class Damage:
    """The damage of one partition: counts, the names of the rules, the offsets of its errors, and its worst finding.

    ``files`` are the first pairs of a rule and a file, with their consequences. ``why_unread`` is the reason of the first
    of ``unread`` files.
    """

    def __init__(self) -> None:
        self.errors = self.lost_bytes = self.unread = 0
        self.rules: dict[str, None] = {}
        self.files: dict[tuple[str, str], Consequence] = {}
        self.consequence = Consequence.INFORMATION
        self.worst = self.why_unread = ""
        self._ranges: list[tuple[int, int]] = []
        self._unlisted: list[tuple[int, int]] = []

    def add(self, result: FileResult) -> None:
        known = sum(one.known and one.is_error for one in result.verdicts)
        self.errors += result.summary.errors - known
        self.lost_bytes += result.summary.lost_bytes
        if result.unread is not None:
            self.unread += 1
            self.why_unread = self.why_unread or result.unread
            self._rank(Consequence.NEEDS_ATTENTION, f"{result.file} (could not be read)")
        severities = {verdict.finding.rule: verdict.severity for verdict in result.verdicts}
        # A broker deletes an index without its log, and does not read it.
        most = Consequence.NEEDS_ATTENTION if "orphaned-index" in severities else max(Consequence)
        for verdict in result.verdicts:
            if not verdict.known:
                self._add(result.file, verdict.finding, verdict.severity, most)
                if verdict.is_error:
                    self._ranges += _offsets(verdict.finding)
        for rule, others in result.unlisted.items():
            severity = severities.get(rule, RULES[rule].severity)
            self._add(result.file, others, severity, most)
            if severity >= Severity.ERROR:
                self._unlisted += _offsets(others)
        if len(self._ranges) > _MOST_RANGES:
            self._ranges, left = self.ranges()[:_MOST_RANGES], self.ranges()[_MOST_RANGES:]
            self._unlisted += left
        if self._unlisted:
            self._unlisted = [around(self._unlisted)]

    def _add(self, file: str, finding: Finding, severity: Severity, most: Consequence) -> None:
        if severity >= Severity.WARNING:
            rule = finding.rule
            self.rules[rule] = None
            consequence = min(consequence_of(finding, severity), most)
            if len(self.files) < _MOST_FILES:
                self.files[rule, file] = max(consequence, self.files.get((rule, file), consequence))
            self._rank(consequence, f"{file} ({rule})")

    def _rank(self, consequence: Consequence, place: str) -> None:
        if consequence > self.consequence:
            self.consequence, self.worst = consequence, place

    @property
    def is_of_log_dir(self) -> bool:
        """Whether only files of a log directory itself are damaged, and no file of a partition."""
        return bool(self.files) and all(os.path.basename(file) in OF_LOG_DIRS for _, file in self.files)

    def causes(self) -> list[str]:
        """Return the names of the rules, and whether a file could not be read."""
        return [*self.rules, *(["could not be read"] if self.unread else [])]

    def codes(self) -> list[str]:
        """Return the codes of the rules, and whether a file could not be read."""
        return [*(RULES[rule].code for rule in self.rules), *(["unread"] if self.unread else [])]

    def span(self) -> str:
        """Return the first and the last offset of the errors as ``5..7``; ``-`` without offsets.

        ``5..7?`` if a header claims them whose CRC is wrong: it may itself be damaged.
        """
        every = [*self._ranges, *self._unlisted]
        return span(*around(every)) + ("?" if "crc-mismatch" in self.rules else "") if every else "-"

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of offsets of the listed errors, in order and without overlaps. Both ends are inclusive."""
        return joined_ranges(self._ranges)

    def unlisted(self) -> tuple[int, int] | None:
        """Return the first and the last offset of the errors that are not listed; None without such errors."""
        return self._unlisted[0] if self._unlisted else None


class DamagedPartitions:
    """The damage of each partition of a run, by its folder."""

    def __init__(self) -> None:
        self.by_folder: dict[str, Damage] = {}

    def add(self, result: FileResult) -> None:
        """Add the result of a file, if it has a new warning or error, or could not be read."""
        if not (result.unread or result.summary.errors or result.summary.warnings):
            return
        folder = folder_of(result.file)
        if result.unread and partition_of(os.path.basename(folder)) is None:
            return  # the path may be outside of any partition
        damage = self.by_folder.get(folder) or Damage()
        damage.add(result)
        if damage.consequence:
            self.by_folder[folder] = damage

    def counts(self, *, log_dirs: bool = False) -> Counter[Consequence]:
        """Return the numbers of partitions, or of log directories, by consequence."""
        return Counter(one.consequence for one in self.by_folder.values() if one.is_of_log_dir is log_dirs)

    def answer(self) -> str:
        """Return how many partitions need attention, by consequence."""
        return attention_text(self.counts(), self.counts(log_dirs=True))

    def worst(self) -> str:
        """Return the worst partition with its file and rule; empty without one."""
        ranked = self.ranked()
        return f"the worst: {ranked[0][1].worst}" if ranked else ""

    def ranked(self) -> list[tuple[str, Damage]]:
        """Return folders and their damage, the worst first."""
        return sorted(self.by_folder.items(), key=lambda item: (-item[1].consequence, -item[1].lost_bytes, item[0]))

    def rows(self, *, whole: bool = False) -> Iterator[Row]:
        """Yield the rows of the table, the worst first; without ``whole`` many of them folded."""
        groups = fold(self.ranked(), lambda one: (one[1].consequence, *one[1].causes()), whole=whole)
        return cell_rows(COLUMNS, groups, "red")


def _span(group: Sequence[tuple[str, Damage]]) -> str:
    spans = {damage.span() for _, damage in group}
    return spans.pop() if len(spans) == 1 else "-"


#: The columns of a partition, or of several with equal damage.
COLUMNS = (
    TableColumn("needs attention", text="wrap", least=18, cell=lambda group: names_text(one[0] or "." for one in group)),
    TableColumn("consequence", cell=lambda group: common_text(damage.consequence.label for _, damage in group)),
    TableColumn("lost bytes", right=True, cell=lambda group: sum(damage.lost_bytes for _, damage in group) or None),
    TableColumn("offsets", cell=_span),
    TableColumn("rules", text="wrap", least=11, cell=lambda group: some_text(
        [*dict.fromkeys(cause for _, damage in group for cause in damage.codes())])),
)  # fmt: skip


def _offsets(finding: Finding) -> list[tuple[int, int]]:
    known = [at for at in (finding.offset, finding.last_offset) if at is not None and at >= 0]
    return [(min(known), max(known))] if known else []


def around(ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the smallest and the largest offset of some ranges. Both are inclusive."""
    firsts, lasts = zip(*ranges, strict=True)
    return min(firsts), max(lasts)
