"""Files other than logs (``--as NAME``): what reads them, and the sets of records that are found in them.

Requests, responses and single messages are read in ``extras/wire``, which is imported by name when a file asks for it. A
reader yields rows, and record sets, whose batches are in the format of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kseg.engine import imported
from kseg.errors import UsageError
from kseg.findings import Finding, Report
from kseg.format.record.layout import V0_MIN_SIZE
from kseg.format.storage.segment_files import SegmentFile, is_folder
from kseg.format.storage.source import STDIN, Source
from kseg.results import Settings
from kseg.schema import Column, Row

#: Findings that make all their bytes unusable, in a file other than a record set.
LOSING = frozenset({"truncated-tail", "invalid-size", "lost-bytes", "crc-mismatch", "frame-size", "frame-cut"})
#: Findings after which a body is not decoded, although it may be valid.
UNDECODED = frozenset({"unknown-api", "unmatched-response", "unread-bodies"})
#: The kind of the rows that are verdicts on record sets.
PRODUCE_KIND = "produce"
# Rules about values that a leader assigns, including append times. In a set that is sent to it, they do not apply.
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
    """A report for the findings in a record set. A fetch returns bytes up to its limit, which may be within a batch.

    ``partial`` counts the bytes of such a batch. They are not lost, because the next fetch begins there.
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
                finding = finding._replace(rule="partial-entry")
            self._report(finding)
        elif not self._is_of_a_producer(finding):
            self._report(finding)

    def _is_of_a_producer(self, finding: Finding) -> bool:
        """Return whether the finding is about offsets that a leader replaces.

        If the set may come from a leader, this is true only for offset 0.
        """
        rule, facts = finding.rule, finding.facts
        if self._sent:
            # Leaders reject a v1 wrapper whose offset is below its last inner offset.
            return rule in _ASSIGNED and not (rule == "wrapper-offset-mismatch" and facts["magic"] == 1)
        if rule == "non-monotonic-offset":
            return bool(facts["offset"] == facts["previous"] == 0)
        if rule == "record-offset-mismatch":
            return bool(facts["why"] == f"is not above the previous offset {facts['offset']}" and facts["offset"] == 0)
        # Producers of 0.8.2 write 0 as inner offsets, librdkafka writes 0 as the outer offset.
        return rule == "wrapper-offset-mismatch" and 0 in (facts["offset"], facts["inner"])


def _undersized(finding: Finding, size: int) -> Finding:
    """Return the finding as ``invalid-size`` (``ByteBufferLogInputStream``).

    The size field of the last batch is complete and below the smallest size, so the batch is not cut off.
    """
    return finding._replace(
        rule="invalid-size", facts={"size": size, "why": f"the minimum of a batch is {V0_MIN_SIZE}"}
    )


class BytesSource:
    """Bytes in memory, read like a file in which they begin at position ``begin``."""

    def __init__(self, data: memoryview, begin: int) -> None:
        self._data = data
        self._begin = begin
        self._at = 0

    def seek(self, position: int) -> None:
        """Continue at that position of the file."""
        self._at = position - self._begin

    def readinto(self, view: memoryview) -> int:
        """Read into ``view`` and return the number of bytes."""
        piece = self._data[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Batches in the format of segments, to be read from ``source``, whose positions are those of the file.

    ``place`` are the columns that locate the set in its file. ``sent`` sets are on the way to a leader, others come, or
    may come, from one. ``added`` is the number of bytes in the source that the file does not contain.
    """

    source: Source
    place: Row = field(default_factory=dict)
    sent: bool = False
    added: int = 0

    def report_for(self, report: Report) -> SetReport:
        """Return the report for findings in the set."""
        return SetReport(report, self.sent)

    def placed_row(self, row: Row) -> Row:
        """Return a row of the set with the columns of ``place``."""
        return {**row, **self.place}

    def lost_bytes(self, count: int) -> int:
        """Return how many of ``count`` lost bytes of the source are in the file."""
        return min(count, (self.source.size or 0) - self.source.start - self.added) if self.added else count

    @property
    def without_batches(self) -> Finding:
        """Return the finding for a set in which kseg finds no batch."""
        start, end = self.source.start, self.source.size or 0
        return Finding("lost-bytes", start, end, facts={"bytes": end - start, "why": "they do not contain a batch"})


#: A row has bytes unchanged; the writer of the output encodes them.
WirePart = RecordSet | Row


@dataclass(frozen=True, slots=True)
class Framing:
    """A way to read a file other than a log.

    ``columns`` are the columns of its rows with their records, or () if they are those of a segment. ``shallow_columns``
    are those without records. ``parts`` is the "module:function" of the fields of a frame or message, empty if it has no
    rows of its own: ``(stored, position, row)`` returns Parts. ``size_field`` are the bytes before a
    frame that its size does not count.
    """

    walk: Callable[[Source, Report, ReadSettings], Iterator[WirePart]]
    columns: tuple[Column, ...] = ()
    shallow_columns: tuple[Column, ...] = ()
    parts: str = ""
    size_field: int = 0


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How to read a file. ``requests`` is the file of requests, for a file of responses.

    With ``topic``, each record set of a produce request has a row with the verdict of a leader of a topic with these
    settings.
    """

    verify_crc: bool = True
    requests: str | None = None
    topic: Settings | None = None


def _record_set(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    if source.name != STDIN:
        source.name += " (message-set)"  # so that its name is not read as an offset
    yield RecordSet(source)


#: A record set alone, as in produce requests and fetch responses.
MESSAGE_SET = Framing(_record_set)


# name -> "module:value" of its Framing, imported when it is needed: the core knows the extras by these names only.
FRAMINGS: Mapping[str, str] = {
    "message-set": "kseg.format.segment.framed_files:MESSAGE_SET",
    "message": "kseg.extras.wire.unframed:BARE",
    "wide-crc": "kseg.extras.wire.unframed:WIDE_CRC",
    "requests": "kseg.extras.wire.connections:REQUESTS",
    "responses": "kseg.extras.wire.connections:RESPONSES",
}


def framing(name: str) -> Framing:
    """Return the reader and the columns of one of FRAMINGS."""
    found: Framing = imported(FRAMINGS[name])
    return found


def framed_files(paths: Sequence[str], names: Sequence[str]) -> list[SegmentFile]:
    """Return the files to read, each with its framing: one name for all paths, or one name per path in their order.

    The first ``responses`` are the responses to the first ``requests``, and so on. Raises UsageError.
    """
    if len(names) not in (1, len(paths)):
        raise UsageError(f"--as: give it once, or once per PATH ({len(paths)}), got {len(names)}")
    for path in paths:
        if is_folder(path):
            raise UsageError(f"{path} is a folder: --as needs files")
    named = list(zip(paths, list(names) * len(paths) if len(names) == 1 else names, strict=True))
    requested = [path for path, name in named if name == "requests"]
    if requested and len(requested) != sum(name == "responses" for _, name in named) > 0:
        raise UsageError("each file of responses needs a file of requests, in the same order")
    if STDIN in requested and len(named) > len(requested):
        raise UsageError("requests for responses are read twice: give a file instead of standard input")
    questions = iter(requested)
    return [
        SegmentFile(path, framing=name, requests=next(questions, None) if name == "responses" else None)
        for path, name in named
    ]
