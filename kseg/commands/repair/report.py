"""What a repair tells: what is lost, mended or salvaged, what became of a segment, and findings kept by their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kseg.errors import UnreadableError
from kseg.findings import RULES, Finding, Policy, Severity, Verdict

#: Errors of an entry that do not cost it: the right value is known, or of no consequence.
PROVED = frozenset({"invalid-size", "unknown-magic"})
_CORRECTABLE = PROVED | {"max-timestamp-mismatch"}
# Bytes that begin with a readable header, and can hold more batches after the first.
_SEVERAL = frozenset({"lost-bytes", "truncated-tail"})
#: Faults in an entry's records that leave those before them as they were. What they are found in does not open whole.
SALVAGEABLE = frozenset({"malformed-record", "record-count-mismatch", "truncated-wrapper"})


@dataclass(frozen=True, slots=True)
class LostRange:
    """A stretch of the source that is not in the result: bytes ``position`` to ``end`` (exclusive).

    ``offset`` and ``last_offset`` (inclusive) are those it held, as far as known; None where its header is no witness.
    """

    kind: ClassVar[str] = "lost"

    file: str
    position: int
    end: int
    offset: int | None
    last_offset: int | None
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class CorrectedBatch(LostRange):
    """A stretch of the source that is in the result, but put right."""

    kind: ClassVar[str] = "mended"


@dataclass(frozen=True, slots=True)
class PartialBatch(LostRange):
    """An entry of which the records before a fault are in the result, packed anew; what is lost is behind them.

    ``records`` were kept, from ``kept_offset`` to ``last_kept_offset``; ``offset`` is None where none is known lost.
    """

    kind: ClassVar[str] = "salvaged"

    records: int
    kept_offset: int
    last_kept_offset: int


@dataclass(frozen=True, slots=True)
class MissingOffsets(LostRange):
    """Offsets between a segment of a partition and the next one; nothing of the source was left out for it."""

    kind: ClassVar[str] = "missing"


#: Told of each lost or mended stretch, in the order of the file (a leader epoch may be told one entry late).
ReportLine = Callable[[LostRange], None]


@dataclass(slots=True)
class SegmentRepair:
    """What became of one segment. Sizes are bytes; ``kept`` and ``dropped`` count entries, ``records`` those kept.

    Of the kept entries ``mended`` were put right, of ``salvaged`` only records before a fault are there.

    ``first_lost_offset`` is the offset from which on the log is no longer what it was, None if nothing was lost.
    ``first_offset`` and ``last_offset`` are those of the kept entries. ``zeros`` are bytes of a preallocated tail,
    ``lost_to`` is the source's byte behind the last lost stretch, ``misfits`` are entries whose offsets lie past the
    segment's end. ``epochs_mended`` batches got another leader epoch, ``last_epoch`` is the last one, and
    ``leader_epochs`` are [epoch, first offset, last offset] of the kept batches.
    """

    source: str
    target: str
    kept: int = 0
    dropped: int = 0
    records: int = 0
    mended: int = 0
    salvaged: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0
    lost_ranges: int = 0
    zeros: int = 0
    lost_to: int = 0
    misfits: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_lost_offset: int | None = None
    epochs_mended: int = 0
    last_epoch: int = -1
    leader_epochs: list[list[int]] = field(default_factory=list)


def _is_proved(finding: Finding) -> bool:
    """Whether the right value was put into the entry when the finding was made."""
    return finding.rule in PROVED or (finding.rule == "non-monotonic-offset" and "expected" in finding.facts)


def _is_correctable(finding: Finding) -> bool:
    return finding.rule in _CORRECTABLE or _is_proved(finding)


class BatchFindings:
    """Findings by the byte they are about, until the reading is past them. Raises UnreadableError for fatal ones."""

    def __init__(self, file: str, policy: Policy) -> None:
        self.at: dict[int, list[Finding]] = {}
        # What the policy calls less than an error: an entry that can't be read is left out all the same.
        self._spared: dict[int, Finding] = {}
        self._file = file
        self.policy = policy

    def __call__(self, finding: Finding) -> None:
        severity = self.policy.severity(RULES[finding.rule])
        if severity is Severity.FATAL:
            raise UnreadableError(f"{self._file}: {Verdict(self._file, severity, finding).message}")
        # A rule that was lowered spares its entry; a proved field must be written right all the same.
        if severity >= Severity.ERROR or _is_proved(finding) or finding.rule == "zero-tail":
            self.at.setdefault(finding.position or 0, []).append(finding)
        elif RULES[finding.rule].severity >= Severity.ERROR:
            self._spared.setdefault(finding.position or 0, finding)

    def cost(self, position: int) -> bool:
        """Whether the entry at that byte, which opened as far as need be, has an error that can't be mended."""
        return not all(_is_correctable(finding) or finding.rule in SALVAGEABLE for finding in self.at.get(position, ()))

    def spares_some(self, position: int) -> bool:
        """Whether the entry at that byte has no other error than one that leaves the records before it.

        What can be corrected does not count: the largest timestamp is that of the records that are left.
        """
        others = [finding for finding in self.at.get(position, ()) if not _is_correctable(finding)]
        return bool(others) and all(finding.rule in SALVAGEABLE for finding in others)

    def pop(self, begin: int, end: int) -> list[Finding]:
        """The first finding of each place from byte ``begin`` to ``end``; they are forgotten."""
        taken = {position: self.at.pop(position) for position in list(self.at) if begin <= position < end}
        for position, finding in self._spared.items():
            if begin <= position < end:
                taken.setdefault(position, [finding])
        self.forget(end)
        return [next((f for f in taken[at] if not _is_correctable(f)), taken[at][0]) for at in sorted(taken)]

    def forget(self, end: int) -> None:
        """Reading is past that byte: what was spared up to it is of no more use."""
        while self._spared and (first := next(iter(self._spared))) < end:
            del self._spared[first]


def is_about_a_batch(finding: Finding) -> bool:
    """Return whether a finding is about bytes that could be left out: a gap between two batches is not."""
    return finding.position is None or finding.end != finding.position


class Errors:
    """Keeps the findings that cost an entry."""

    def __init__(self, findings: BatchFindings) -> None:
        self.found: list[Finding] = []
        self.policy = findings.policy

    def __call__(self, finding: Finding) -> None:
        if is_about_a_batch(finding) and self.policy.severity(RULES[finding.rule]) >= Severity.ERROR:
            self.found.append(finding)


def lost_offsets(findings: Sequence[Finding], low: int, high: int | None) -> list[tuple[int | None, int | None]]:
    """Return the first and the last offset that was lost with each of adjacent stretches of a file.

    The kept batches around them leave room for ``low`` to ``high`` (None: not known). A header is believed if its offsets
    lie in that room. Stretches without such a header share what the others leave: each of them has that range. Both are
    None where no offset is left, or where it is not known how many there are.
    """
    believed: list[tuple[int, int] | None] = []
    begin = low
    for finding in findings:
        first, last = finding.offset, finding.last_offset
        fits = last is not None and begin <= last and (high is None or last <= high)
        if last is not None and fits and (first is None or begin <= first <= last):
            believed.append((begin if first is None else first, last))
            begin = last + 1
        else:
            believed.append(None)
    if findings and high is not None and findings[-1].rule in _SEVERAL and (known := believed[-1]) is not None:
        believed[-1] = known[0], high
    lost: list[tuple[int | None, int | None]] = []
    begin = low
    for n, known in enumerate(believed):
        if known is not None:
            begin = known[1] + 1
            lost.append(known)
            continue
        end = next((one[0] - 1 for one in believed[n:] if one is not None), high)
        lost.append((begin, end) if end is not None and begin <= end else (None, None))
    return lost


def message(finding: Finding) -> str:
    rule = RULES[finding.rule]
    return Verdict("", rule.severity, finding).message
