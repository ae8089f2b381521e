"""Collect the results of a validation for a page: counted, folded, and limited to a size that a browser opens at once.

The lists become the JSON of the page; ``data.js`` has the same names for their columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kseg.extras.html.page import RunContent
from kseg.findings import RULES, Consequence, Finding, Rule, Severity, consequence_of, range_of_all
from kseg.format.compress.codecs import codec_name
from kseg.format.segment.outline import Outline
from kseg.report.partition_damage import Damage
from kseg.report.wording import omitted_findings, printable
from kseg.results import FileResult

#: The most findings, and the most files of each state, that a page lists. All are counted.
MAX_FINDINGS = 20_000
MAX_FILES = 10_000
#: The most folded findings: each can be the only one of its file.
MAX_GROUPS = 20_000

#: The most segments whose outline the page has, those with findings first. An outline is up to 5 kB.
MAX_OUTLINES = 100
#: JavaScript rounds larger integers.
_SAFE_INTEGER = (1 << 53) - 1

#: The states of a file, from the best; ``data.js`` has the same.
VALID, INFO, WARNING, UNDETERMINED, DAMAGED = range(5)
LEVELS = ("valid", "info", "warning", "undetermined", "damaged")
_LEVEL_OF = {Severity.INFO: INFO, Severity.WARNING: WARNING, Severity.ERROR: DAMAGED, Severity.FATAL: DAMAGED}


@dataclass(slots=True)
class PartitionTotal:
    """The counts of a folder, which ends with its separator. ``unlisted`` are files that the page does not list."""

    folder: str
    segments: int = 0
    side_files: int = 0
    bytes: int = 0
    records: int = 0
    level: int = VALID
    unlisted: int = 0
    damage: Damage = field(default_factory=Damage)

    def add(self, result: FileResult, level: int) -> None:
        summary = result.summary
        self.segments += summary.files
        self.side_files += summary.side_files
        self.bytes += summary.bytes if summary.files else 0
        self.records += summary.records
        self.level = max(self.level, level)
        if level >= WARNING:
            self.damage.add(result)

    @property
    def name(self) -> str:
        return self.folder[:-1] or self.folder or "."

    def row(self) -> list[Any]:
        return [printable(self.folder), self.segments, self.side_files, self.bytes, self.records, self.unlisted]


@dataclass(slots=True)
class Group:
    """The findings of one rule in one file; ``place`` is its file's number.

    ``count`` includes those that are not listed, and ``unlisted`` is their range.
    """

    place: int
    file: str
    rule: Rule
    framed: bool
    severity: Severity
    known: bool = False
    count: int = 0
    findings: list[Finding] = field(default_factory=list)
    unlisted: Finding | None = None

    @property
    def consequence(self) -> Consequence:
        return max((consequence_of(one, self.severity) for one in self.all()), default=Consequence.INFORMATION)

    def all(self) -> list[Finding]:
        """Return the listed findings and the range of the others."""
        return [*self.findings, *([self.unlisted] if self.unlisted else [])]

    def limit(self, most: int) -> None:
        """Keep the first findings in the list."""
        if len(self.findings) > most:
            self.unlisted = range_of_all(self.all()[most:])
            del self.findings[most:]

    @property
    def broker(self) -> str:
        """The reaction of a broker; empty if it has none."""
        return self.rule.broker_for(framed=self.framed) or ""

    def row(self, rules: dict[tuple[str, bool], int]) -> list[Any]:
        """Return the columns for the script; ``rules`` numbers the rules."""
        rule = rules.setdefault((self.rule.name, self.framed), len(rules))
        found = [[*map(exact, _range(one)), printable(one.message)] for one in self.findings]
        others = self.unlisted and [*map(exact, _range(self.unlisted))]
        return [self.place, rule, _LEVEL_OF[self.severity], int(self.known), self.count, found, others]


class Collected:
    """The partitions, files and findings of a run. Memory is bounded by the constants of this module."""

    def __init__(self, results: Iterable[FileResult] = ()) -> None:
        """Read the results to their end."""
        self.partitions: dict[str, PartitionTotal] = {}
        self.files: list[list[Any]] = []
        self.unread: list[tuple[str, str]] = []
        self.framed = False
        self.content = RunContent()
        self._outlines: dict[bool, dict[int, Outline]] = {True: {}, False: {}}
        self._numbers: dict[str, int] = {}
        self._groups: dict[int, list[Group]] = {level: [] for level in (INFO, WARNING, DAMAGED)}
        self._listed = dict.fromkeys(self._groups, 0)
        self._files_of = [0] * len(LEVELS)
        for result in results:
            self.add(result)

    def add(self, result: FileResult) -> None:
        if result.vanished:
            return
        name = os.path.basename(result.file)
        folder = result.file.removesuffix(name)
        level = level_of(result)
        partition = self.partitions.setdefault(folder, PartitionTotal(folder))
        partition.add(result, level)
        self.framed = self.framed or result.framing is not None
        if result.outline:
            self.content.add(result.outline)
        if level == VALID and not result.summary.files:
            return  # side files without findings are only counted
        self._files_of[level] += 1
        if self._files_of[level] > MAX_FILES:
            partition.unlisted += 1
            return
        self._add_file(result, level, self._numbers.setdefault(folder, len(self._numbers)), name)

    def _add_file(self, result: FileResult, level: int, folder: int, name: str) -> None:
        summary = result.summary
        counts = (summary.bytes, summary.batches, None if summary.shallow else summary.records, summary.lost_bytes)
        row = [folder, printable(name), level, summary.side_files, *counts]
        if result.unread is not None:
            why = result.unread.removeprefix(f"{result.file}: ")
            self.unread.append((result.file, why))
            row.append(printable(why))
        number = len(self.files)
        self.files.append(row)
        outlines = self._outlines[level == VALID]
        if result.outline and len(outlines) < MAX_OUTLINES:
            outlines[number] = result.outline
        for group in _groups(result, number):
            self._add_group(group)

    def _add_group(self, group: Group) -> None:
        level = _LEVEL_OF[group.severity]
        kept = MAX_FINDINGS - self._listed[level]
        group.limit(max(kept, 1))
        if len(self._groups[level]) < MAX_GROUPS:
            self._listed[level] += len(group.findings)
            self._groups[level].append(group)

    def groups(self) -> list[Group]:
        """Return the folded findings, the worst first, without those beyond the limits."""
        found: list[Group] = []
        listed = 0
        for level in (DAMAGED, WARNING, INFO):
            for group in sorted(self._groups[level], key=lambda group: (group.known, -group.consequence)):
                listed += len(group.findings)
                if listed > MAX_FINDINGS or len(found) == MAX_GROUPS:
                    return found
                found.append(group)
        return found

    def damaged(self) -> list[PartitionTotal]:
        """Return the partitions that need attention, the worst first."""
        found = [one for one in self.partitions.values() if one.damage.consequence]
        return sorted(found, key=lambda one: (-one.damage.consequence, -one.damage.lost_bytes, one.folder))

    def data(self) -> dict[str, Any]:
        numbers: dict[tuple[str, bool], int] = {}
        groups = [group.row(numbers) for group in self.groups()]
        rules = [_rule_row(RULES[name], framed) for name, framed in numbers]
        # The partitions in the order of their numbers, then those without a listed file.
        ordered = [*self._numbers, *(folder for folder in self.partitions if folder not in self._numbers)]
        partitions = [self.partitions[folder].row() for folder in ordered]
        chosen = [*self._outlines[False].items(), *self._outlines[True].items()][:MAX_OUTLINES]
        outlines = {number: _outline_row(outline) for number, outline in chosen}
        return {
            "rules": rules, "partitions": partitions, "files": self.files, "groups": groups, "outlines": outlines,
            "codecs": [codec_name(codec) for codec in range(8)],
        }  # fmt: skip


def _range(finding: Finding) -> tuple[int | None, ...]:
    return finding.position, finding.end, finding.offset, finding.last_offset


def exact(value: int | None) -> int | str | None:
    """Return a number for the script, as text if JavaScript would round it."""
    return value if value is None or abs(value) <= _SAFE_INTEGER else str(value)


def level_of(result: FileResult) -> int:
    """Return the state of a file. Errors of the baseline count: they are damage, too."""
    summary = result.summary
    if summary.verdict == "damaged":
        return DAMAGED
    if result.unread is not None or summary.lost_bytes or summary.unchecked:
        return UNDETERMINED
    return WARNING if summary.warnings else INFO if summary.infos else VALID


def _outline_row(outline: Outline) -> dict[str, Any]:
    return {
        "width": outline.width,
        "codecs": [None if codec < 0 else codec for codec in outline.codecs],
        "largest": list(outline.largest),
        "records": list(outline.records),
        "times": list(outline.times),
        "offsets": [
            [None, None] if last < 0 else [exact(first), exact(last)]
            for first, last in zip(outline.first, outline.last, strict=True)
        ],
        "producers": outline.producers,
    }


def _rule_row(rule: Rule, framed: bool) -> list[str]:
    broker = rule.broker_for(framed=framed)
    return [rule.code, rule.name, printable(broker or ""), printable(rule.remedy) if broker else ""]


def _groups(result: FileResult, number: int) -> Iterator[Group]:
    """Return the findings of a file by rule, severity, and whether they are known."""
    groups: dict[tuple[str, bool], Group] = {}
    framed = result.framing is not None

    def group_of(rule: Rule, severity: Severity, known: bool) -> Group:
        return groups.setdefault((rule.name, known), Group(number, result.file, rule, framed, severity, known))

    for verdict in result.verdicts:
        group = group_of(verdict.rule, verdict.severity, verdict.known)
        group.findings.append(verdict.finding)
        group.count += 1
    for rule, more in omitted_findings(result):
        # Findings beyond --limit are new ones if any is.
        group = groups.get((rule.name, False)) or groups.get((rule.name, True)) or group_of(rule, rule.severity, False)
        group.count += more
        group.unlisted = result.unlisted.get(rule.name)
    return iter(groups.values())
