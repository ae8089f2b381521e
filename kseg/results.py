"""Settings of a validation, its results, and the collector of findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kseg.errors import KsegError, UsageError
from kseg.findings import READ_ERROR, RULES, Finding, Policy, Severity, Verdict, range_of_all, read_error, unreadable
from kseg.text import check_number

if TYPE_CHECKING:
    from kseg.commands.validate.segment_facts import SegmentFacts
    from kseg.format.segment.outline import Outline
    from kseg.schema import Row


#: The number of findings per rule and file that are kept; all are counted.
MAX_PER_RULE = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a validation. ``max_message_bytes`` None is Kafka's default limit, with a warning.

    ``timestamp_before_max_ms`` and ``timestamp_after_max_ms`` are the topic's limits of timestamps around now, in
    milliseconds; None does not limit the past, and warns one hour into the future. ``compression_type`` is the topic's
    codec, for the verdicts on produce requests.
    With ``outline`` the results of segments have their outlines, for plots; with ``keys`` counts have those of keys.
    Raises UsageError for ``compacted`` and ``timestamp_before_max_ms`` without ``deep``: only records have keys and
    timestamps. Raises UsageError for ``max_message_bytes`` below 1, and for negative limits of timestamps and of findings.
    """

    deep: bool = True
    verify_crc: bool = True
    max_message_bytes: int | None = None
    compacted: bool = False
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None
    compression_type: str = "producer"
    policy: Policy = field(default_factory=Policy)
    max_per_rule: int = MAX_PER_RULE
    outline: bool = False
    keys: bool = False

    def __post_init__(self) -> None:
        least = {"max_message_bytes": 1, "timestamp_before_max_ms": 0, "timestamp_after_max_ms": 0, "max_per_rule": 0}
        for name, smallest in least.items():
            check_number(name, getattr(self, name), smallest)
        if not isinstance(self.policy, Policy):
            raise UsageError(
                f"policy: expected a Policy, such as Policy.parse(['crc-mismatch=warning']), got {self.policy!r}"
            )
        if self.compacted and not self.deep:
            raise UsageError("--compacted checks the keys of records, which --shallow does not read: omit one of them")
        if self.timestamp_before_max_ms is not None and not self.deep:
            raise UsageError(
                "--timestamp-before-max-ms checks the timestamps of records, which --shallow does not read: omit one of them"
            )


#: The counts in the row of a summary, each with its meaning.
COUNTS = {
    "files": "segments",
    "side_files": "indexes, snapshots and other side files",
    "unread": "files that could not be read",
    "unchecked": "files whose CRCs were not computed, or in which bodies of frames were not decoded",
    "shallow": "files whose batches were not decoded, so that their records are not counted",
    "batches": "batches in the segments",
    "records": "records in the segments; null if a file is shallow",
    "bytes": "bytes of the segments",
    "errors": "findings of that severity",
    "warnings": "findings of that severity",
    "infos": "findings of that severity",
    "lost_bytes": "bytes that no reader can use",
}


@dataclass(slots=True)
class Summary:
    """Counts over one file or many (see COUNTS); ``rules`` are findings by rule.

    ``produced`` are the verdicts on the record sets of produce requests, by outcome.
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    lost_bytes: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    unchecked: int = 0
    shallow: int = 0
    side_files: int = 0
    produced: Counter[str] = field(default_factory=Counter)

    @property
    def verdict(self) -> str:
        """Return ``damaged`` with an error; ``undetermined`` if data was unread, unchecked or lost; otherwise ``sound``."""
        if self.errors:
            return "damaged"
        unknown = self.unread or self.lost_bytes or self.unchecked or self.rules["zero-segment"]
        return "undetermined" if unknown or not (self.files or self.side_files) else "sound"

    def at_least(self, severity: Severity) -> bool:
        """Return whether there are findings of that severity or a higher one."""
        counts = ((Severity.ERROR, self.errors), (Severity.WARNING, self.warnings), (Severity.INFO, self.infos))
        return any(count for level, count in counts if level >= severity)

    def count(self, rule: str, severity: Severity, count: int) -> None:
        """Add ``count`` findings of a rule."""
        if severity >= Severity.ERROR:
            self.errors += count
        elif severity is Severity.WARNING:
            self.warnings += count
        else:
            self.infos += count
        self.rules[rule] += count

    def retract(self, rule: str, severity: Severity, count: int) -> None:
        """Subtract ``count`` findings of a rule, because another finding replaces them."""
        if count:
            self.count(rule, severity, -count)
            if not self.rules[rule]:
                del self.rules[rule]

    def add(self, other: Summary) -> None:
        """Add the counts of another summary."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rules.update(other.rules)
        self.produced.update(other.produced)


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file: its findings (the first few of each rule) and counts, or why it could not be read.

    ``unlisted`` has the range of the findings of a rule that are not among them (see ``range_of_all``), by rule.
    ``indexes`` are the results of a segment's indexes if they were checked with it, ``facts`` are needed for the checks of
    adjacent segments. ``found`` are the rules of all findings, also of those that the policy ignores: code that needs to
    know whether a rule was found uses it, never the counts. ``vanished``: the file has been deleted and is not counted.
    ``framing`` is the file's framing, None for a log. ``outline`` is that of a segment, if the settings ask for it.
    ``produced`` are the verdicts on the record sets of produce requests, at most ``MAX_PRODUCED`` of each outcome.
    ``foreign``: the file is ``unread`` because it is not one of Kafka's, not because of an error of the storage.
    ``seconds`` is the time of the checks, 0 for a stored result.
    """

    file: str
    verdicts: tuple[Verdict, ...]
    summary: Summary
    unread: str | None = None
    indexes: tuple[FileResult, ...] = ()
    facts: SegmentFacts | None = None
    found: frozenset[str] = frozenset()
    vanished: bool = False
    framing: str | None = None
    outline: Outline | None = None
    unlisted: Mapping[str, Finding] = field(default_factory=dict)
    produced: tuple[Row, ...] = ()
    foreign: bool = False
    seconds: float = field(default=0.0, compare=False, repr=False)

    @property
    def read_error(self) -> str | None:
        """Why bytes of the file could not be read; None if they could, whatever they are."""
        if self.vanished:
            return f"{self.file}: was deleted before it was read"
        return None if self.foreign else self.unread

    @property
    def unlisted_error(self) -> str | None:
        """Why the file could not be read, if that is not among its findings."""
        return None if any(one.finding.rule == READ_ERROR for one in self.verdicts) else self.unread

    @property
    def suspicious(self) -> bool:
        """Return whether the file or its indexes have a finding or are unread, whatever the policy is."""
        return any(one.unread or any(map(_is_suspicious, one.found)) for one in (self, *self.indexes))


def _is_suspicious(rule: str) -> bool:
    return RULES[rule].severity >= Severity.WARNING or rule == "zero-tail"


def in_file(verdict: Verdict) -> tuple[int, str]:
    """Return the sort key for the order of findings in a file."""
    return verdict.finding.position or 0, verdict.rule.code


class VerdictList:
    """The first ``limit`` findings of each rule in one file, and for each rule the range of its other findings."""

    def __init__(
        self, limit: int, verdicts: Iterable[Verdict] = (), unlisted: Mapping[str, Finding] | None = None
    ) -> None:
        self.verdicts = list(verdicts)
        #: The range of the findings that are not listed, by rule.
        self.unlisted = dict(unlisted or {})
        self._limit = limit
        self._listed = Counter(verdict.finding.rule for verdict in self.verdicts)

    def has_room(self, rule: str) -> bool:
        """Return whether the list takes another finding of the rule."""
        return self._listed[rule] < self._limit

    def add(self, verdict: Verdict) -> None:
        """Add a finding: to the list, or to the range."""
        rule = verdict.finding.rule
        if self.has_room(rule):
            self._listed[rule] += 1
            self.verdicts.append(verdict)
        else:
            self.add_unlisted(rule, [verdict.finding])

    def add_unlisted(self, rule: str, findings: Iterable[Finding]) -> None:
        """Add findings, or ranges of several, to the range of their rule."""
        before = self.unlisted.get(rule)
        self.unlisted[rule] = range_of_all([*findings, before] if before else findings)


#: The findings of a rule that are counted at once when its list is full.
_COUNTED_AT_ONCE = 256


#: The verdicts on record sets of produce requests that are kept for each file and outcome, and in a row; all are counted.
MAX_PRODUCED = 10_000


class BoundedFindings:
    """Collects the findings of another process, at most MAX_PER_RULE per file and rule; ``placed`` has their files, too."""

    def __init__(self) -> None:
        self.placed: list[tuple[str, Finding]] = []
        self._seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: str, finding: Finding) -> None:
        self._seen[path, finding.rule] += 1
        if self._seen[path, finding.rule] <= MAX_PER_RULE:
            self.placed.append((path, finding))

    @property
    def kept(self) -> list[Finding]:
        """The findings without the file."""
        return [finding for _, finding in self.placed]


class FindingCollector:
    """Collects the findings of one file with their severities, counts them, and keeps the first few of each rule.

    ``found`` has the rules of all findings, also of those that the policy ignores. The counts of ``summary`` are complete
    after ``result``.
    """

    def __init__(
        self, file: str, policy: Policy, limit: int, *, side: bool = False, framing: str | None = None
    ) -> None:
        self.summary = Summary(files=int(not side), side_files=int(side))
        self.found: set[str] = set()
        self._file = file
        self._policy = policy
        self._limit = limit
        self._list = VerdictList(limit)
        # By rule with a full list: findings that are not counted yet. A file can have one for each of its batches.
        self._waiting: dict[str, list[Finding]] = {}
        self._framing = framing
        self._produced: list[Row] = []
        self._unread: str | None = None

    @property
    def verdicts(self) -> list[Verdict]:
        """The listed findings, in the order in which they were found."""
        return self._list.verdicts

    def __call__(self, finding: Finding) -> None:
        waiting = self._waiting.get(finding.rule)
        if waiting is None:
            self._add(finding)
            return
        waiting.append(finding)
        if len(waiting) == _COUNTED_AT_ONCE:
            self._count_waiting(finding.rule, waiting)

    def fail(self, error: KsegError) -> None:
        """Record why the file could not be opened or read. The error of a disk is a finding, too."""
        self._unread = self._unread or str(error)
        self.summary.unread = 1
        if "errno" in (finding := read_error(self._file, error)).facts:
            self(finding)

    def _add(self, finding: Finding) -> None:
        rule = RULES[finding.rule]
        self.found.add(rule.name)
        severity = self._policy.severity(rule)
        if finding.rule == READ_ERROR:
            self._unread = self._unread or str(unreadable(self._file, finding))
            self.summary.unread = 1
            if "errno" not in finding.facts:  # not an error that a broker has
                return
        if severity is Severity.IGNORE:
            return
        self._list.add(Verdict(self._file, severity, finding, self._framing is not None))
        if finding.rule == READ_ERROR:  # not damage: the file is unread
            self.summary.rules[rule.name] += 1
            return
        self.summary.count(rule.name, severity, 1)
        if not self._list.has_room(rule.name):
            self._waiting[rule.name] = []

    def _count_waiting(self, rule: str, waiting: list[Finding]) -> None:
        if waiting:
            self.summary.count(rule, self._policy.severity(RULES[rule]), len(waiting))
            self._list.add_unlisted(rule, waiting)
            waiting.clear()

    def add_produced(self, row: Row) -> None:
        """Add the verdict on a record set of a produce request, a row with VERDICT_COLUMNS."""
        outcomes = self.summary.produced
        outcomes[row["outcome"]] += 1
        if outcomes[row["outcome"]] <= MAX_PRODUCED:
            self._produced.append(row)

    def merge(self, later: FileResult) -> None:
        """Add the result of the next part of the same file."""
        for verdict in later.verdicts:
            self._list.add(verdict)
        for rule, others in later.unlisted.items():
            self._list.add_unlisted(rule, [others])
        self.found |= later.found
        self._unread = self._unread or later.unread
        self.summary.add(later.summary)
        self.summary.files = 1
        self.summary.unread = min(self.summary.unread, 1)
        self.summary.unchecked = later.summary.unchecked
        self.summary.shallow = later.summary.shallow

    def extended(self, result: FileResult, found: Iterable[Finding]) -> FileResult:
        """Return the result of a file with later findings."""
        self.summary, self.found = result.summary, set(result.found)
        self._list = VerdictList(self._limit, result.verdicts, result.unlisted)
        self._waiting.clear()
        for finding in found:
            self(finding)
        every = self.result()
        return replace(
            result,
            unread=result.unread or every.unread,
            verdicts=every.verdicts,
            found=every.found,
            unlisted=every.unlisted,
        )

    def result(self) -> FileResult:
        """Return the result, with findings in the order of the file."""
        for rule, waiting in self._waiting.items():
            self._count_waiting(rule, waiting)
        verdicts = sorted(self.verdicts, key=in_file)
        return FileResult(
            self._file,
            tuple(verdicts),
            self.summary,
            self._unread,
            found=frozenset(self.found),
            framing=self._framing,
            unlisted=self._list.unlisted,
            produced=tuple(self._produced),
        )


def result_rows(results: Iterable[FileResult], total: Summary) -> Iterator[Row]:
    """Yield a row per finding, and one with the summary, which is complete after the last result.

    A file that was not read has a row of ``read-error``, which is not counted as an error. The row of the summary has the
    verdicts on produce requests, so that every other row is a finding.
    """
    produced: list[Row] = []
    for result in results:
        yield from (verdict.as_row() for verdict in result.verdicts)
        if result.unlisted_error is not None:
            why = result.unlisted_error.removeprefix(f"{result.file}: ")
            yield Verdict(result.file, Severity.FATAL, Finding(READ_ERROR, facts={"why": why})).as_row()
        produced += result.produced[: MAX_PRODUCED - len(produced)]
    row: Row = {"kind": "summary", **{name: getattr(total, name) for name in COUNTS}, "verdict": total.verdict}
    if total.shallow:
        row["records"] = None
    # All findings of each rule, including those beyond --limit.
    row["rules"] = dict(sorted(total.rules.items()))
    if total.produced:
        row["produce_outcomes"] = dict(sorted(total.produced.items()))
        row["produce_verdicts"] = produced
    yield row
