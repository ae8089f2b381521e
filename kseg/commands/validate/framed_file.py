"""Check a file of requests, responses or record sets (``--as``)."""

from __future__ import annotations

import time

from kseg.findings import Finding
from kseg.format.checks.record_set_checks import check_record_set
from kseg.format.checks.run_checks import new_collector
from kseg.format.record.layout import DEFAULT_MAX_MESSAGE_BYTES
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import SegmentFile, Source
from kseg.format.wire.framings import framing
from kseg.format.wire.produce_verdict import PRODUCE_KIND
from kseg.format.wire.record_sets import (
    LOSING,
    UNDECODED,
    ReadSettings,
    RecordSet,
)
from kseg.format.wire.set_validation import TopicSettings
from kseg.results import FindingCollector, Settings


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

    reading = ReadSettings(settings.verify_crc, file.requests, _topic_settings(settings))
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


def _topic_settings(settings: Settings) -> TopicSettings | None:
    """Return the settings of the topic for verdicts on requests; None if the run does not read records or CRCs."""
    if not (settings.deep and settings.verify_crc):
        return None
    return TopicSettings(
        now=time.time_ns() // 1_000_000,
        max_message_bytes=settings.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES,
        compression_type=settings.compression_type,
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
        compacted=settings.compacted,
    )
