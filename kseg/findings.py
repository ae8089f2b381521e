"""Findings, and the policy with their severities. ``kseg.rule_table`` is the table of rules.

Readers and checks call ``report(Finding(rule, position=…, offset=…, facts={…}))`` and continue. They never print and never
choose a severity: the policy does when the finding is reported. Each output formats the same facts.

What follows from a finding or from a broker's start: reports rank by it, the worst first.
"""

from __future__ import annotations

import enum
import errno
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kseg.errors import UnreadableError, UsageError
from kseg.rule_table import RANGES
from kseg.rule_table import RULES as RULES
from kseg.rule_table import SEVERITIES as SEVERITIES
from kseg.rule_table import Rule as Rule
from kseg.rule_table import Severity as Severity
from kseg.text import count_of, escape_controls, excerpt, inclusive_range, iso_time, unknown_name


class Finding(NamedTuple):
    """A problem that a reader or a check found.

    ``position`` and ``end`` are bytes of the file (end exclusive), ``offset`` and ``last_offset`` record offsets
    (inclusive); None where they don't apply. ``facts`` fill the rule's message and are plain JSON values.

    A tuple, because a file can have one finding per batch: a frozen dataclass takes three times as long to create.
    """

    rule: str
    position: int | None = None
    end: int | None = None
    offset: int | None = None
    last_offset: int | None = None
    facts: Mapping[str, Any] = {}

    @property
    def message(self) -> str:
        """Return the rule's message with the facts, one line of text. Control characters of files are escaped."""
        return message_of(RULES[self.rule], self.facts)

    @property
    def is_error(self) -> bool:
        """Return whether the rule is an error without a policy: readers without settings judge by it."""
        return RULES[self.rule].severity >= Severity.ERROR


def range_of_all(findings: Iterable[Finding]) -> Finding:
    """Return findings of one rule as one, without facts: from the first byte and offset of them to the last."""
    found = list(findings)
    positions = [at for one in found for at in (one.position, one.end) if at is not None]
    offsets = [at for one in found for at in (one.offset, one.last_offset) if at is not None]
    return Finding(
        found[0].rule,
        min(positions, default=None),
        max(positions, default=None),
        min(offsets, default=None),
        max(offsets, default=None),
    )


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of offsets in order; those that overlap or touch are one. Both ends are inclusive."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without_ranges(first: int, end: int, excluded: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range of offsets or bytes that are in none of the ``excluded`` ranges. All are half-open."""
    for start, stop in sorted(excluded):
        if first < min(start, end):
            yield first, min(start, end)
        first = max(first, stop)
    if first < end:
        yield first, end


#: The callback that readers and checks report findings to.
Report = Callable[[Finding], object]

#: The rule of bytes that could not be read. The rows that are missing then are not damaged.
READ_ERROR = "read-error"
#: The fact of a finding with which a broker starts, although other findings of its rule stop it.
STARTS = "starts"


def fail_on_read_error(path: str) -> Report:
    """Return a report that raises UnreadableError for a read error, and ignores all other findings."""

    def report(finding: Finding) -> None:
        if finding.rule == READ_ERROR:
            raise unreadable(path, finding)

    return report


#: Errors of a system call about the path, the rights of this process or its limits, not about a disk.
_NOT_OF_DISKS = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EACCES, errno.EPERM,
    errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip


def read_error(path: str, error: Exception, position: int = 0) -> Finding:
    """Return why the bytes of a file from ``position`` on could not be read.

    The fact ``errno`` is that of a local disk. Without it the finding is not listed: the file is only unread, since a broker
    knows nothing of the server of a URL, of the rights of kseg, or of an archive.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    why = str(error).removeprefix(f"{path}: ")
    facts: dict[str, object] = {"why": getattr(error, "strerror", None) or why or type(error).__name__}
    own = cause is error or str(error).startswith(f"{path}: ")
    if own and isinstance(cause, OSError) and cause.errno not in (None, *_NOT_OF_DISKS) and "://" not in path:
        facts["errno"] = cause.errno
    return Finding(READ_ERROR, position, facts=facts)


def unreadable(path: str, finding: Finding) -> UnreadableError:
    """Return the finding of a read error as an exception."""
    place = f"byte {finding.position}: {finding.message}" if finding.position else finding.facts["why"]
    return UnreadableError(f"{path}: {place}")


def do_nothing(*_: object) -> None:
    """Ignore all arguments: the default of ``Report`` and of other callbacks."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finding with its file and its severity under the policy.

    ``framed`` is set for a file other than a log, ``known`` for a finding of the baseline.
    """

    file: str
    severity: Severity
    finding: Finding
    framed: bool = False
    known: bool = False

    @property
    def rule(self) -> Rule:
        return RULES[self.finding.rule]

    @property
    def is_error(self) -> bool:
        """Whether the policy makes it an error."""
        return self.severity >= Severity.ERROR

    @property
    def message(self) -> str:
        """The message of the finding."""
        return self.finding.message

    @property
    def position(self) -> int | None:
        """The first byte of the file that the finding is about; None if it is not about bytes."""
        return self.finding.position

    @property
    def offset(self) -> int | None:
        """The first record offset that the finding is about; None if it is not about records."""
        return self.finding.offset

    @property
    def broker(self) -> str | None:
        """The broker's reaction to it; None without one."""
        return self.rule.broker_for(framed=self.framed)

    @property
    def remedy(self) -> str:
        """The action for the operator."""
        return self.rule.remedy_for(self.file).text

    def as_row(self) -> dict[str, Any]:
        """Return the finding with its severity as a row of JSON Lines."""
        finding = self.finding
        return {
            "kind": "finding",
            "rule": finding.rule,
            "code": self.rule.code,
            "severity": self.severity.label,
            "file": self.file,
            "position": finding.position,
            "end": finding.end,
            "offset": finding.offset,
            "last_offset": finding.last_offset,
            "message": self.message,
            "facts": dict(finding.facts),
            **({"known": True} if self.known else {}),
        }


@dataclass(frozen=True, slots=True)
class Policy:
    """Severities that differ from the table's, by rule name."""

    overrides: Mapping[str, Severity] = field(default_factory=dict)

    def severity(self, rule: Rule) -> Severity:
        """Return the severity of a rule; fatal rules stay fatal."""
        return rule.severity if rule.severity is Severity.FATAL else self.overrides.get(rule.name, rule.severity)

    def with_defaults(self, defaults: Mapping[str, Severity]) -> Policy:
        """Return this policy over other defaults; the settings of this policy take precedence."""
        return Policy({**defaults, **self.overrides})

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Policy:
        """Parse ``NAME=error|warning|info|ignore`` strings.

        Raises UsageError for unknown names, and for two severities of one rule.
        """
        overrides: dict[str, Severity] = {}
        for setting in settings:
            name, equals, level = setting.partition("=") if isinstance(setting, str) else ("", "", "")
            if not equals:
                raise UsageError(f"expected RULE=SEVERITY, such as crc-mismatch=warning, got {setting!r}")
            rule = known_rule(name)
            severity = parse_severity(level)
            if overrides.setdefault(rule.name, severity) is not severity:
                raise UsageError(f"{rule.name} has two severities, {overrides[rule.name].label} and {level}: give one")
        return cls(overrides)


#: Errors whose batches are read by brokers, followers and consumers: a command that writes a log keeps these batches.
SERVED = frozenset({"duplicate-sequence", "invalid-timestamp", "producer-epoch-regression"})


def is_noted(finding: Finding, policy: Policy | None = None) -> bool:
    """Return whether commands other than ``kseg validate`` report a finding: infos are visible in their rows, but one."""
    rule = RULES[finding.rule]
    severity = policy.severity(rule) if policy else rule.severity
    return severity >= Severity.WARNING or rule.name == "partial-entry"


def parse_severity(text: str) -> Severity:
    """Parse ``error``, ``warning``, ``info`` or ``ignore``. Raises UsageError."""
    if text not in SEVERITIES:
        raise UsageError(unknown_name("severity", text, reversed(SEVERITIES)))
    return SEVERITIES[text]


def known_rule(name: str) -> Rule:
    """Return the rule with that name or code. Raises UsageError with the nearest names."""
    for rule in RULES.values():
        if name.lower() in (rule.name, rule.code.lower()):
            return rule
    raise UsageError(unknown_name("rule", name, RULES, "`kseg rules` lists the rules"))


class _MessageFormatter(string.Formatter):
    """Formats the templates of the rules; ``kseg.rule_table`` describes their fields."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if key in RANGES:
            return inclusive_range(str(key)[:-1], kwargs["first"], kwargs["last"])
        return super().get_value(key, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "time":
            return iso_time(value)
        if format_spec == "excerpt":
            return excerpt(str(value))
        is_noun = format_spec.replace(" ", "").isalpha() and len(format_spec) > 1
        return count_of(value, format_spec) if is_noun else format(value, format_spec)


_formatter = _MessageFormatter()


def message_of(rule: Rule, facts: Mapping[str, Any]) -> str:
    """Return the message of a rule with the facts, one line of text. Control characters of files are escaped."""
    return escape_controls(_formatter.vformat(rule.message, (), facts))


class Consequence(enum.IntEnum):
    """The consequence for a partition, from the best to the worst."""

    INFORMATION = 0
    NEEDS_ATTENTION = 1
    LOSES_BYTES = 2
    LOSES_RECORDS = 3
    STOPS_THE_BROKER = 4

    @property
    def label(self) -> str:
        """Return the words in every output, such as ``loses records``."""
        return self.name.lower().replace("_", " ")


#: Rules whose consequence is more than their severity says. ``Rule.broker`` has the reaction in words. The start meant is
#: that after an unclean shutdown, which reads the whole log. After a clean one, an index that leads to no batch or zeros
#: at the end of the log can stop the broker, too: only ``kseg recovery`` and ``kseg doctor`` predict that.
_STOPPING = (
    "checkpoint-malformed", "checkpoint-count", "metadata-malformed", "txn-index-version", "read-error",
    "metadata-not-replayable", "metadata-snapshot-missing", "file-name-mismatch", "malformed-control-record",
    "unknown-control-record", "non-monotonic-offset",
)  # fmt: skip
# Consumers can't read the records, or recovery truncates them, or they are gone already.
_LOSING_RECORDS = (
    "invalid-size", "unknown-magic", "lost-bytes", "crc-mismatch", "record-count-mismatch", "malformed-record",
    "record-offset-mismatch", "wrapper-offset-mismatch", "nested-compression", "mixed-wrapper-codecs", "truncated-wrapper",
    "internal-record", "unknown-codec", "undecodable-payload", "claimed-codec",
    "kraft-snapshot-incomplete", "segment-gap", "log-start-behind-end", "missing-batches", "zero-segment",
    "snapshot-behind-log",
)  # fmt: skip
_LOSING_BYTES = ("truncated-tail",)

_BY_RULE = {
    rule: consequence
    for consequence, rules in (
        (Consequence.STOPS_THE_BROKER, _STOPPING),
        (Consequence.LOSES_RECORDS, _LOSING_RECORDS),
        (Consequence.LOSES_BYTES, _LOSING_BYTES),
    )
    for rule in rules
}


#: Rule -> whether a broker starts with a finding of it. Findings without facts stand for several.
_STARTS: Mapping[str, Callable[[Finding], bool]] = {
    # AbortedTxn.version has only the first of the two bytes, as a signed one.
    "txn-index-version": lambda one: not 0 < one.facts.get("version", 0x100) >> 8 < 0x80,
    # LogSegment.recover splits a segment for a last offset beyond its index, and cannot for one below its name.
    "file-name-mismatch": lambda one: one.facts.get("last", -1) >= one.facts.get("name", 0),
    "non-monotonic-offset": lambda one: "name" not in one.facts,
    # The messages of a v0 set have their own offsets, which brokers and consumers use (AbstractLegacyRecordBatch).
    "wrapper-offset-mismatch": lambda one: one.facts.get("magic") == 0,
}


def consequence_of(finding: Finding, severity: Severity) -> Consequence:
    """Return the consequence of a finding that a policy gave this severity."""
    if severity < Severity.WARNING:
        return Consequence.INFORMATION
    if finding.facts.get(STARTS) or (finding.rule in _STARTS and _STARTS[finding.rule](finding)):
        return Consequence.NEEDS_ATTENTION
    return _BY_RULE.get(RULES[finding.rule].name, Consequence.NEEDS_ATTENTION)


def attention_text(
    partitions: Counter[Consequence], log_dirs: Counter[Consequence], head: str = "partitions that need attention"
) -> str:
    """Return how many partitions need attention, with the number of each consequence but information.

    ``head`` says which partitions are counted. ``log_dirs`` are the consequences of the files of log directories
    themselves, such as checkpoints.
    """
    more = f"; log directories: {_counted(log_dirs)}" if any(log_dirs) else ""
    return f"{head}: {_counted(partitions)}{more}"


def _counted(counts: Counter[Consequence]) -> str:
    """Return the sum and the numbers by consequence, the worst first: ``3 (stops the broker 1, loses records 2)``."""
    shown = sorted(((kind, count) for kind, count in counts.items() if kind and count), reverse=True)
    parts = ", ".join(f"{kind.label} {count:,}" for kind, count in shown)
    return f"{sum(count for _, count in shown):,}" + (f" ({parts})" if parts else "")
