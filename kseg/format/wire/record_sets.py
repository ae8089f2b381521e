"""What bytes that are no log are made of: rows of their own, and sets of records as they stand in segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kseg.findings import Finding, Report
from kseg.format.record.layout import V0_MIN_SIZE
from kseg.format.storage.source import STDIN, Source
from kseg.schema import Column, Row

#: Of what is no record set, the findings that tell of bytes which no one can use: all that they span.
LOSING = frozenset({"truncated-tail", "invalid-size", "lost-bytes", "crc-mismatch", "frame-size", "frame-cut"})
#: Those behind which a body is left that was not decoded, though it may be sound.
UNDECODED = frozenset({"unknown-api", "unmatched-response", "unread-bodies"})
# What a leader assigns, append times included: in a set that is sent to it, these say nothing.
_ASSIGNED = frozenset(
    {
        "non-monotonic-offset",
        "record-offset-mismatch",
        "wrapper-offset-mismatch",
        "offset-gap",
        "append-time-regression",
    }
)


class SetReport:
    """A report that knows of record sets. Whoever fetches is given what there is room for, also half an entry.

    ``partial`` are the bytes of such an entry: they are not lost, the next fetch begins there.
    """

    def __init__(self, report: Report, sent: bool) -> None:
        self.partial = 0
        self._report = report
        self._sent = sent
        self._cut = False

    def __call__(self, finding: Finding) -> None:
        rule, size = finding.rule, finding.facts.get("size")
        if rule == "zero-tail" and not self._cut:
            self._report(_undersized(finding, 0))
        elif rule == "truncated-tail" and size is not None and size < V0_MIN_SIZE:
            self._cut = True
            self._report(_undersized(finding, size))
        elif rule == "truncated-tail":
            self._cut = True
            if not self._sent:
                self.partial = (finding.end or 0) - (finding.position or 0)
                finding = replace(finding, rule="partial-entry")
            self._report(finding)
        elif not self._is_of_a_producer(finding):
            self._report(finding)

    def _is_of_a_producer(self, finding: Finding) -> bool:
        """Whether the finding is about offsets that a leader replaces. Of a set that may be a leader's, only 0 is such."""
        rule, facts = finding.rule, finding.facts
        if self._sent:
            # A v1 wrapper's offset below its last inner one is rejected.
            return rule in _ASSIGNED and not (rule == "wrapper-offset-mismatch" and facts["magic"] == 1)
        if rule == "non-monotonic-offset":
            return bool(facts["offset"] == facts["previous"] == 0)
        if rule == "record-offset-mismatch":
            return bool(facts["why"] == f"does not follow {facts['offset']}" and facts["offset"] == 0)
        # 0.8.2 leaves 0 inside, librdkafka 0 outside.
        return rule == "wrapper-offset-mismatch" and 0 in (facts["offset"], facts["inner"])


def _undersized(finding: Finding, size: int) -> Finding:
    """What is left is no cut entry: its size is there, and none has that (``ByteBufferLogInputStream``)."""
    return replace(finding, rule="invalid-size", facts={"size": size, "why": f"an entry has at least {V0_MIN_SIZE}"})


class BytesSource:
    """Bytes in memory as a file in which they begin at byte ``begin``."""

    def __init__(self, data: memoryview, begin: int) -> None:
        self._data = data
        self._begin = begin
        self._at = 0

    def seek(self, position: int) -> None:
        """Go to that byte of the file."""
        self._at = position - self._begin

    def readinto(self, view: memoryview) -> int:
        """Fill the front of ``view``; return how many bytes there were."""
        piece = self._data[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Entries as in a segment, to be read from ``source``, whose bytes have their places in the file.

    ``place`` is what rows say of where they were found. ``sent`` sets are on the way to a leader, others come from one,
    or may do so. ``added`` are bytes of the source that the file does not have.
    """

    source: Source
    place: Row = field(default_factory=dict)
    sent: bool = False
    added: int = 0

    def report_for(self, report: Report) -> SetReport:
        """A report for what is found in the set."""
        return SetReport(report, self.sent)

    def placed_row(self, row: Row) -> Row:
        """Return a row of the set with its place."""
        return {**row, **self.place}

    def lost_bytes(self, count: int) -> int:
        """Return how many of ``count`` lost bytes of the source are in the file."""
        return min(count, (self.source.size or 0) - self.source.start - self.added) if self.added else count

    @property
    def without_batches(self) -> Finding:
        """What is said of a set in which not one entry could be found."""
        start, end = self.source.start, self.source.size or 0
        return Finding("lost-bytes", start, end, facts={"bytes": end - start, "why": "no entry is among them"})


#: A row has bytes as they are; whoever writes them chooses how.
WirePart = RecordSet | Row


@dataclass(frozen=True, slots=True)
class Framing:
    """A way to read a file that is no log.

    ``columns`` are those of its rows with their records, () where these are a segment's; ``shallow_columns`` without.
    """

    walk: Callable[[Source, Report, ReadSettings], Iterator[WirePart]]
    columns: tuple[Column, ...] = ()
    shallow_columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a file is to be read. ``requests`` is the file of what was asked, for one of responses."""

    verify_crc: bool = True
    requests: str | None = None


def _record_set(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    if source.name != STDIN:
        source.name += " (message-set)"  # whatever it is called, no offset is to be seen in it
    yield RecordSet(source)


#: The bytes of a record set with no file around them, as produce requests and fetch responses have them.
MESSAGE_SET = Framing(_record_set)
