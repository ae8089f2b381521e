"""What bytes that are no log are made of: rows of their own, and sets of records as they stand in segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kseg.files.storage import STDIN, Source
from kseg.findings import Finding, Report
from kseg.log.rows import Column, Row

#: Of what is no record set, the findings that tell of bytes which no one can use: all that they span.
LOSING = frozenset({"truncated-tail", "invalid-size", "lost-bytes", "crc-mismatch", "frame-size", "frame-cut"})
#: Those behind which a body is left that was not decoded, though it may be sound.
UNDECODED = frozenset({"unknown-api", "unmatched-response", "unread-bodies"})
# What a leader assigns: in a set that is sent to it, these say nothing.
_ASSIGNED = frozenset({"non-monotonic-offset", "record-offset-mismatch", "wrapper-offset-mismatch", "offset-gap"})


class SetReport:
    """A report that knows of record sets. Whoever fetches is given what there is room for, also half an entry.

    ``partial`` are the bytes of such an entry: they are not lost, the next fetch begins there.
    """

    def __init__(self, report: Report, sent: bool) -> None:
        self.partial = 0
        self._report = report
        self._sent = sent

    def __call__(self, finding: Finding) -> None:
        if self._sent:
            if finding.rule not in _ASSIGNED:
                self._report(finding)
        elif finding.rule == "truncated-tail":
            self.partial = (finding.end or 0) - (finding.position or 0)
            self._report(replace(finding, rule="partial-entry"))
        else:
            self._report(finding)


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Entries as in a segment, to be read from ``source``, whose bytes have their places in the file.

    ``place`` is what rows say of where they were found. ``sent`` sets are on the way to a leader, others come from one,
    or may do so.
    """

    source: Source
    place: Row = field(default_factory=dict)
    sent: bool = False

    def judge(self, report: Report) -> SetReport:
        """A report for what is found in the set."""
        return SetReport(report, self.sent)

    @property
    def not_one_entry(self) -> Finding:
        """What is said of a set in which not one entry could be found."""
        start, end = self.source.start, self.source.size or 0
        return Finding("lost-bytes", start, end, facts={"bytes": end - start, "why": "no entry is among them"})


#: A row has bytes as they are; whoever writes them chooses how.
Part = RecordSet | Row


@dataclass(frozen=True, slots=True)
class Framing:
    """A way to read a file that is no log.

    ``columns`` are those of its rows with their records, () where these are a segment's; ``shallow_columns`` without.
    """

    walk: Callable[[Source, Report, Reading], Iterator[Part]]
    columns: tuple[Column, ...] = ()
    shallow_columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is to be read. ``requests`` is the file of what was asked, for one of responses."""

    verify_crc: bool = True
    requests: str | None = None


def _record_set(source: Source, report: Report, reading: Reading) -> Iterator[Part]:
    if source.name != STDIN:
        source.name += " (message-set)"  # whatever it is called, no offset is to be seen in it
    yield RecordSet(source)


#: The bytes of a record set with no file around them, as produce requests and fetch responses have them.
MESSAGE_SET = Framing(_record_set)
