"""Checks of a record set as a whole: whether a leader accepts it in a produce request (``LogValidator``)."""

from __future__ import annotations

from kseg.errors import NotASegmentError
from kseg.findings import Finding, Report
from kseg.format.checks.run_checks import new_collector, run_checks
from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import CODEC_MASK, DEFAULT_MAX_MESSAGE_BYTES
from kseg.format.segment.framed_files import LOSING, PRODUCE_KIND, UNDECODED, ReadSettings, RecordSet, framing
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Source
from kseg.results import FindingCollector, Settings


class RecordSetChecks:
    """The checks of one record set. ``sent`` is whether it is on the way to a leader, which takes ``max_message_bytes``.

    A leader accepts one v2 or compressed batch.
    """

    def __init__(self, *, sent: bool, max_message_bytes: int | None = None) -> None:
        self._limit = max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES
        self._sent = sent
        self._bytes = 0
        self._source_codec = 0
        self._batches = 0
        self._start: int | None = None
        self._second: int | None = None
        self._magics: set[int] = set()
        self._codecs: set[int] = set()

    def check_batches(self, batches: BatchColumns) -> None:
        """Record the next batches of the set."""
        for row in range(batches.count):
            self._batches += 1
            if self._start is None:
                self._start = batches.position[row]
            elif self._second is None:
                self._second = batches.position[row]
            self._bytes += batches.size[row]
            if batches.crc_state[row] != CRC_BAD:
                codec = batches.attributes[row] & CODEC_MASK
                self._magics.add(batches.magic[row])
                self._codecs.add(codec)
                self._source_codec = codec or self._source_codec  # UnifiedLog.analyzeAndValidateRecords

    def check_records(self, chunk: Chunk, report: Report) -> None:
        """Report ``relative-offset-mismatch`` for v1 wrappers whose inner offsets do not count from 0."""
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop) if self._sent else ():
            wrapper = batches.magic[row] == 1 and batches.attributes[row] & CODEC_MASK
            if not wrapper or not batches.record_total[row] or not batches.intact[row]:
                continue
            first = batches.first_record[row]
            offsets = chunk.records.offset
            wrong = next((i for i in range(batches.record_total[row]) if offsets[first + i] != i), None)
            if wrong is not None:
                place = (batches.position[row], batches.position[row] + batches.size[row])
                facts = {"index": wrong, "offset": offsets[first + wrong]}
                report(Finding("relative-offset-mismatch", *place, last_offset=batches.last_offset[row], facts=facts))

    def finish(self, report: Report) -> None:
        """Report the findings about the whole set."""
        if self._sent and self._batches > 1 and (why := self._rejected()):
            note = f", above max.message.bytes {self._limit:,}" if self._bytes > self._limit else ""
            facts = {"batches": self._batches, "why": why, "bytes": self._bytes, "note": note}
            report(Finding("several-batches", self._second, facts=facts))
        if len(self._codecs) > 1:
            codecs = ", ".join(codec_name(codec) for codec in sorted(self._codecs))
            facts = {"codecs": codecs, "source": codec_name(self._source_codec)}
            report(Finding("mixed-codecs", self._start, facts=facts))

    def _rejected(self) -> str:
        if max(self._magics, default=0) >= 2:
            return "a leader accepts only one v2 batch"
        if self._codecs - {0}:
            return "a leader accepts only one compressed message set, without other messages (KAFKA-1718)"
        return "a leader accepts only messages of one version" if len(self._magics) > 1 else ""


def check_record_set(part: RecordSet, own: FindingCollector, settings: Settings, collector: FindingCollector) -> None:
    """Run every check on a record set in a file that is not a log, and add its result to ``collector``.

    ``own`` is an empty collector for the set. Raises NotASegmentError if a set that is the whole file has no batch.
    """
    report = part.report_for(own)
    try:
        checks = RecordSetChecks(sent=part.sent, max_message_bytes=settings.max_message_bytes)
        run_checks(part.source, settings, own, report=report, record_set=checks)
    except NotASegmentError:
        if not part.place:
            raise
        report(part.without_batches)
    own.summary.lost_bytes = part.lost_bytes(own.summary.lost_bytes - report.partial)
    collector.merge(own.result())


def check_framed_file(
    source: Source, file: SegmentFile, settings: Settings, collector: FindingCollector, progress: Progress
) -> None:
    """Run every check on a file of requests, responses or record sets, according to its framing."""
    assert file.framing
    summary, done, decoded = collector.summary, 0, True

    def report(finding: Finding) -> None:
        nonlocal decoded
        summary.lost_bytes += (finding.end or 0) - (finding.position or 0) if finding.rule in LOSING else 0
        decoded = decoded and finding.rule not in UNDECODED
        collector(finding)

    # A verdict needs records and CRCs.
    reading = ReadSettings(
        settings.verify_crc, file.requests, settings if settings.deep and settings.verify_crc else None
    )
    for part in framing(file.framing).walk(source, report, reading):
        if isinstance(part, RecordSet):
            check_record_set(part, new_collector(file, settings), settings, collector)
        elif part["kind"] == PRODUCE_KIND:
            collector.add_produced({name: value for name, value in part.items() if name != "kind"})
        elif part["kind"] == "record":
            summary.batches += 1
            summary.records += 1
        progress(source.position - done)
        done = source.position
    source.check_not_empty()
    progress(source.position - done)
    summary.files, summary.bytes, summary.unchecked = 1, source.position, int(not (settings.verify_crc and decoded))
