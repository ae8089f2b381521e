"""What follows from a finding or from a broker's start: reports rank by it, the worst first."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping

from kseg.findings import RULES, STARTS, Finding, Severity


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
