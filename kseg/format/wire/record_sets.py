"""The content of files other than logs: rows of the file, and sets of records in the format of segments.

The batches of a record set are found as a leader finds them (``ByteBufferLogInputStream``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kseg.findings import Finding, Report
from kseg.format.compress.codecs import CODECS
from kseg.format.record.framing import read_int32
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CODEC_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
    TRANSACTIONAL,
    V0_MIN_SIZE,
)
from kseg.format.storage.source import STDIN, Source
from kseg.format.wire.leader_records import (
    CORRUPT_MESSAGE,
    UNKNOWN_SERVER_ERROR,
    RejectedSetError,
)
from kseg.schema import Column, Row

if TYPE_CHECKING:
    from kseg.format.wire.set_validation import TopicSettings


#: Findings that make all their bytes unusable, in a file other than a record set.
LOSING = frozenset({"truncated-tail", "invalid-size", "lost-bytes", "crc-mismatch", "frame-size", "frame-cut"})
#: Findings after which a body is not decoded, although it may be valid.
UNDECODED = frozenset({"unknown-api", "unmatched-response", "unread-bodies"})
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

    With ``topic``, each record set of a produce request has a row with the verdict of a leader of such a topic.
    """

    verify_crc: bool = True
    requests: str | None = None
    topic: TopicSettings | None = None


def _record_set(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    if source.name != STDIN:
        source.name += " (message-set)"  # so that its name is not read as an offset
    yield RecordSet(source)


#: A record set alone, as in produce requests and fetch responses.
MESSAGE_SET = Framing(_record_set)


class BatchHeader(NamedTuple):
    """The fields of ``layout.BATCH_HEADER``."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class SentBatch(NamedTuple):
    """One batch of a set. ``header`` is None for versions 0 and 1, and for a batch that ends within its header."""

    data: memoryview
    magic: int
    header: BatchHeader | None

    @property
    def attributes(self) -> int:
        """The attributes; Kafka ignores the higher byte of version 2."""
        return self.data[ATTRIBUTES_AT + 1] if self.magic >= 2 else self.data[MAGIC_AT + 1]

    @property
    def codec(self) -> int:
        """The codec, of which the numbers above zstd are unknown."""
        return self.attributes & CODEC_MASK

    @property
    def transactional(self) -> bool:
        """Whether the batch is transactional."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def append_time(self) -> bool:
        """Whether the batch has LogAppendTime."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def batches_of(data: memoryview) -> Iterator[SentBatch]:
    """Yield the complete batches of a set (``ByteBufferLogInputStream``). Raises RejectedSetError for a damaged header."""
    at = 0
    while len(data) - at >= LOG_OVERHEAD:
        size = read_int32(data, at + SIZE_AT)
        if size < V0_MIN_SIZE:
            raise RejectedSetError(CORRUPT_MESSAGE, f"the size of a batch is {size}, but the minimum is {V0_MIN_SIZE}")
        if len(data) - at < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = data[at + MAGIC_AT]
        if magic > 2:
            raise RejectedSetError(CORRUPT_MESSAGE, f"the magic of a batch is {magic}, but the highest is 2")
        end = at + LOG_OVERHEAD + size
        if size > INT32_MAX - LOG_OVERHEAD:  # the sum overflows in Kafka
            raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"the size of a batch is {size:,}")
        if end > len(data):
            return
        batch = data[at:end]
        complete = magic == 2 and len(batch) >= RECORD_BATCH_OVERHEAD
        header = BatchHeader(*BATCH_HEADER.unpack_from(batch)) if complete else None
        yield SentBatch(batch, magic, header)
        at = end


def check_codec(batch: SentBatch) -> None:
    """Raise RejectedSetError for an unknown codec."""
    if batch.codec not in CODECS:
        raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"the codec {batch.codec} is unknown")
