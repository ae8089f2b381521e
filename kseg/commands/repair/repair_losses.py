"""The report of a repair: lost, corrected and partly kept batches, the result of a segment, and findings by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

from kseg.errors import UnreadableError
from kseg.findings import RULES, Finding, Policy, Severity
from kseg.format.checks.offset_checks import MAX_GAPS
from kseg.text import inclusive_range

#: Errors after which a batch is kept: the right value is known, or does not matter.
PROVED = frozenset({"invalid-size", "unknown-magic"})
#: Wrong fields that a CRC covers: the records show the right value, and the batch gets a new CRC.
REWRITTEN = frozenset({"max-timestamp-mismatch", "claimed-codec"})
_CORRECTABLE = PROVED | REWRITTEN
#: Rules of which some findings are proved: those with this fact.
_PROOFS = {"non-monotonic-offset": "expected", "last-offset-mismatch": "following"}
# Bytes that begin with a readable header, and can hold more batches after the first.
_SEVERAL = frozenset({"lost-bytes", "truncated-tail"})
#: Faults in the records of a batch that leave other records readable, see ``salvaged_records``.
SALVAGEABLE = frozenset({"inner-crc-mismatch", "malformed-record", "record-count-mismatch", "truncated-wrapper"})
_OF_RECORDS = SALVAGEABLE | {"record-offset-mismatch", "wrapper-offset-mismatch"}


@dataclass(frozen=True, slots=True)
class LostRange:
    """A byte range of the source that is not in the result: ``position`` to ``end`` (exclusive).

    ``offset`` and ``last_offset`` (inclusive) are its lost offsets, None if they are unknown.
    """

    kind: ClassVar[str] = "lost"
    unplaced: ClassVar[bool] = False

    file: str
    position: int
    end: int
    offset: int | None
    last_offset: int | None
    rule: str
    why: str

    @property
    def drops_readable(self) -> bool:
        """Whether records at these offsets can be read in the source, unlike lost bytes and those after a fault."""
        return self.unplaced or (self.rule == "inner-crc-mismatch" and self.offset is not None)

    @property
    def offsets_text(self) -> str:
        """The offsets as text."""
        if self.offset is None:
            return "offsets unknown" if self.last_offset is None else f"offsets ?..{self.last_offset}"
        if self.last_offset is None:
            return f"offsets from {self.offset} on"
        return inclusive_range("offset", self.offset, self.last_offset)


@dataclass(frozen=True, slots=True)
class CorrectedBatch(LostRange):
    """A byte range of the source that is corrected in the result."""

    kind: ClassVar[str] = "mended"


@dataclass(frozen=True, slots=True)
class UnplacedBatch(LostRange):
    """A batch with a right CRC that is not in the result, but in the file ``.unplaced`` next to it."""

    unplaced: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class DuplicateBatch(LostRange):
    """A second copy of a batch that is in the result. It loses no records, so its lost offsets are None."""

    kind: ClassVar[str] = "duplicate"


@dataclass(frozen=True, slots=True)
class PartlyKeptBatch(LostRange):
    """A batch whose records before a fault are in the result, in a new batch; the records after them are lost.

    ``records`` were kept, from ``kept_offset`` to ``last_kept_offset``; ``offset`` is None if no lost offset is known.
    """

    kind: ClassVar[str] = "salvaged"

    records: int
    kept_offset: int
    last_kept_offset: int


@dataclass(frozen=True, slots=True)
class LostOffsets(LostRange):
    """Offsets that the source does not have, between segments or, if they are lost, between batches.

    The rule is ``offset-gap`` if they were probably removed by the cleaner, as ``kseg validate`` has it.
    """

    kind: ClassVar[str] = "missing"


@dataclass(frozen=True, slots=True)
class OffsetGap(LostRange):
    """Offsets that the result lacks between two kept batches, if the lost ranges there don't name them all.

    With the lost ranges, ``kseg validate --baseline REPORT`` knows which missing offsets the repair caused.
    """

    kind: ClassVar[str] = "gap"


@dataclass(frozen=True, slots=True)
class UncertainRecords(LostRange):
    """Records of the result that may be deleted ones: of several replicas, none has the records that deleted them."""

    kind: ClassVar[str] = "uncertain"


#: Called with each lost or corrected range in file order (a leader epoch can be reported one batch later).
ReportLine = Callable[[LostRange], None]


@dataclass(slots=True)
class SegmentRepair:
    """The result of one segment. Sizes are in bytes; ``kept`` and ``dropped`` count batches, ``records`` the kept records.

    Of the kept batches, ``mended`` were corrected, and of ``salvaged`` only the records before a fault are kept. Of the
    dropped ones, ``unplaced`` are in the file of that name, and ``duplicates`` are copies of kept batches.

    ``begin`` is where it begins in ``source``, if that becomes several segments.
    ``first_lost_offset`` is the first offset at which the result differs from the log, None if nothing was lost.
    ``first_offset`` and ``last_offset`` are those of the kept batches. ``zeros`` are bytes of a preallocated tail,
    ``lost_to`` is the position after the last lost range in the source, ``lost_end`` the offset after it, ``misfits`` are
    batches with offsets after the segment's end. ``epochs_mended`` batches got another leader epoch, ``last_epoch`` is the
    last one, and ``leader_epochs`` are [epoch, first offset, last offset] of the kept batches. ``legacy``: some are v0 or
    v1, the last of them ends at ``last_legacy_offset``.

    ``gap_count`` times offsets are missing between batches that no lost bytes explain; ``gaps`` are (position, first, last
    offset) of the first of these. ``intact_start``: no bytes before the first kept batch are lost. ``keyless``: a
    record has no key. ``thinned`` is that of ``CompactionEvidence``.
    """

    source: str
    target: str
    kept: int = 0
    dropped: int = 0
    records: int = 0
    mended: int = 0
    salvaged: int = 0
    unplaced: int = 0
    duplicates: int = 0
    begin: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0
    lost_ranges: int = 0
    zeros: int = 0
    lost_to: int = 0
    lost_end: int = 0
    misfits: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_lost_offset: int | None = None
    epochs_mended: int = 0
    gap_count: int = 0
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    intact_start: bool = False
    keyless: bool = False
    thinned: bool = False
    last_epoch: int = -1
    leader_epochs: list[list[int]] = field(default_factory=list)
    legacy: bool = False
    last_legacy_offset: int = -1

    def add_gap(self, finding: Finding) -> None:
        """Add the gap of an ``offset-gap``."""
        self.gap_count += 1
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append((finding.position or 0, finding.facts["first"], finding.facts["last"]))


@dataclass(slots=True)
class TakenRange:
    """Offsets of the result that were taken from one replica, ``file``; ``also_in`` have the same batches."""

    kind: ClassVar[str] = "taken"

    file: str
    offset: int
    last_offset: int
    batches: int
    bytes: int
    also_in: tuple[str, ...]


@dataclass(slots=True)
class RepairResult:
    """The result of a repair.

    ``left_out`` are the files of a folder that were not copied, with a line per replica that has deleted batches.
    ``open_transactions`` are (partition folder, producer id, first offset) of transactions without an end. ``failed`` has
    one line per partition of a log directory that could not be repaired; these are not written. ``missing`` are offsets that
    the source does not have. ``log_starts`` has one line per log start of a log directory's partitions: the offset, and its
    source. ``rebuilt`` are the indexes of aborted transactions that the source lacks: a broker does not notice that.
    ``renamed`` segments had a wrong name, ``split_off`` ones begin within one of the source. ``unknown`` are segments of
    zeros, of which nothing shows whether they had records. ``uncertain_transactions`` has one line per transaction whose
    outcome a lost marker can have changed, ``unread`` one per replica that cannot be read. ``uncertain`` are records that
    may be deleted ones.

    Of several replicas, ``taken`` are the ranges of the result's batches in offset order. ``truncated`` are the replicas
    with the offset from which on their batches belong to another history and are not used.
    """

    segments: list[SegmentRepair] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    open_transactions: list[tuple[str, int, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    missing: list[LostOffsets] = field(default_factory=list)
    log_starts: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    renamed: int = 0
    split_off: int = 0
    unknown: list[str] = field(default_factory=list)
    uncertain_transactions: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    taken: list[TakenRange] = field(default_factory=list)
    truncated: list[tuple[str, int]] = field(default_factory=list)
    uncertain: list[UncertainRecords] = field(default_factory=list)

    def add(self, other: RepairResult) -> None:
        """Add the result of another partition."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def changes(self) -> bool:
        """Whether the result has other batches or names than the source."""
        counts = (one.dropped + one.mended + one.salvaged + one.lost_bytes + one.zeros for one in self.segments)
        return bool(self.renamed or self.split_off or any(counts))

    @property
    def lost_before(self) -> list[LostOffsets]:
        """The missing offsets that ``kseg validate`` reports as lost, too."""
        return [row for row in self.missing if row.rule != "offset-gap"]

    @property
    def lost(self) -> bool:
        """Whether data was lost, or may be lost or deleted. Nobody knows that of ``unknown`` segments."""
        if self.unread or self.lost_before or self.uncertain:
            return True
        known = (segment for segment in self.segments if segment.source not in self.unknown)
        return any(segment.lost_ranges or segment.salvaged for segment in known)


def _is_proved(finding: Finding) -> bool:
    """Return whether the reader corrected the batch when it made the finding."""
    return finding.rule in PROVED or _PROOFS.get(finding.rule) in finding.facts


def _is_correctable(finding: Finding) -> bool:
    return finding.rule in _CORRECTABLE or _is_proved(finding)


class BatchFindings:
    """Findings by position, until reading has passed them. Raises UnreadableError for fatal ones."""

    def __init__(self, file: str, policy: Policy) -> None:
        self.at: dict[int, list[Finding]] = {}
        # Findings below an error in the policy: a batch that can't be read is still dropped.
        self._lowered: dict[int, Finding] = {}
        self._file = file
        self.policy = policy

    def __call__(self, finding: Finding) -> None:
        severity = self.policy.severity(RULES[finding.rule])
        if severity is Severity.FATAL:
            raise UnreadableError(f"{self._file}: {finding.message}")
        # A batch is kept if the policy lowers its rule; a proved field must still be corrected.
        if severity >= Severity.ERROR or _is_proved(finding) or finding.rule == "zero-tail":
            self.at.setdefault(finding.position or 0, []).append(finding)
        elif finding.is_error:
            self._lowered.setdefault(finding.position or 0, finding)

    def drops_batch(self, position: int) -> bool:
        """Return whether the batch at that position has an error that can't be corrected."""
        return not all(_is_correctable(finding) or finding.rule in SALVAGEABLE for finding in self.at.get(position, ()))

    def leaves_readable_records(self, position: int) -> bool:
        """Return whether the only errors of the batch at that position leave some records readable.

        Correctable errors do not count: the largest timestamp becomes that of the kept records.
        """
        others = [finding for finding in self.at.get(position, ()) if not _is_correctable(finding)]
        return bool(others) and all(finding.rule in SALVAGEABLE for finding in others)

    def is_placed(self, position: int) -> bool:
        """Return whether the batch at that position has faults in its records only, so that its offsets are where it is."""
        return all(finding.rule in _OF_RECORDS for finding in self.at.get(position, ()))

    def pop(self, begin: int, end: int) -> list[Finding]:
        """Remove and return the first finding of each position from ``begin`` to ``end``."""
        removed = {position: self.at.pop(position) for position in list(self.at) if begin <= position < end}
        for position, finding in self._lowered.items():
            if begin <= position < end:
                removed.setdefault(position, [finding])
        self.forget(end)
        return [next((f for f in removed[at] if not _is_correctable(f)), removed[at][0]) for at in sorted(removed)]

    def forget(self, end: int) -> None:
        """Drop the findings before ``end``, which reading has passed."""
        while self._lowered and (first := next(iter(self._lowered))) < end:
            del self._lowered[first]


def is_about_a_batch(finding: Finding) -> bool:
    """Return whether a finding is about bytes that could be left out: a gap between two batches is not."""
    return finding.position is None or finding.end != finding.position


class Errors:
    """Keeps the findings because of which a batch is dropped, and the gaps between batches."""

    def __init__(self, findings: BatchFindings) -> None:
        self.found: list[Finding] = []
        self.gaps: list[Finding] = []
        self.policy = findings.policy

    def __call__(self, finding: Finding) -> None:
        if finding.rule == "offset-gap":
            self.gaps.append(finding)
        elif is_about_a_batch(finding) and self.policy.severity(RULES[finding.rule]) >= Severity.ERROR:
            self.found.append(finding)


def lost_offsets(findings: Sequence[Finding], low: int, high: int | None) -> list[tuple[int | None, int | None]]:
    """Return the first and the last lost offset of each of some adjacent ranges of a file.

    ``low`` to ``high`` (None: unknown) are the offsets between the kept batches around the ranges. The offsets of a header
    count if they are in this interval. Ranges without such a header share the remaining offsets: each has all of them. Both
    offsets are None if none remain, or if their number is unknown.
    """
    plausible: list[tuple[int, int] | None] = []
    begin = low
    for finding in findings:
        first, last = finding.offset, finding.last_offset
        fits = last is not None and begin <= last and (high is None or last <= high)
        if last is not None and fits and (first is None or begin <= first <= last):
            plausible.append((begin if first is None else first, last))
            begin = last + 1
        else:
            plausible.append(None)
    if findings and high is not None and findings[-1].rule in _SEVERAL and (known := plausible[-1]) is not None:
        plausible[-1] = known[0], high
    lost: list[tuple[int | None, int | None]] = []
    begin = low
    for n, known in enumerate(plausible):
        if known is not None:
            begin = known[1] + 1
            lost.append(known)
            continue
        end = next((one[0] - 1 for one in plausible[n:] if one is not None), high)
        lost.append((begin, end) if end is not None and begin <= end else (None, None))
    return lost


def no_batch(end: int) -> str:
    """Return why a segment without batches is lost: side files show that the log reached offset ``end``, exclusive."""
    return f"the file has no batch, but its indexes or a producer snapshot show that the log reached offset {end - 1}"


def reached(end: int, shown: str = "a producer snapshot shows") -> str:
    """Return the evidence for lost offsets before the log end ``end``."""
    return f"{shown} that the log reached offset {end - 1}"


def all_lost(source: Path, missing_range: tuple[int, int | None], why: str, report: ReportLine) -> SegmentRepair:
    """Report a segment without a single batch; ``missing_range`` is the range of missing offsets around it."""
    size = source.stat().st_size
    first, last = missing_range
    known = last is None or first <= last
    report(LostRange(str(source), 0, size, first if known else None, last if known else None, "lost-bytes", why))
    return SegmentRepair(
        str(source), "", bytes_before=size, lost_bytes=size, lost_ranges=1, lost_to=size,
        lost_end=last + 1 if last is not None and known else 0, first_lost_offset=first if known else None,
    )  # fmt: skip
