"""Check a file of requests, responses or record sets (``--as``)."""

from __future__ import annotations

from kseg.errors import NotASegmentError
from kseg.findings import Finding
from kseg.format.checks.record_set_checks import RecordSetChecks
from kseg.format.checks.run_checks import new_collector, run_checks
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import SegmentFile, Source
from kseg.format.wire.framings import framing
from kseg.format.wire.record_sets import LOSING, UNDECODED, ReadSettings, RecordSet
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

    for part in framing(file.framing).walk(source, report, ReadSettings(settings.verify_crc, file.requests)):
        if isinstance(part, RecordSet):
            _check_record_set(part, new_collector(file, settings), settings, collector)
        elif part["kind"] == "record":
            summary.batches += 1
            summary.records += 1
        progress(source.position - done)
        done = source.position
    source.check_not_empty()
    progress(source.position - done)
    summary.files, summary.bytes, summary.unchecked = 1, source.position, int(not (settings.verify_crc and decoded))


def _check_record_set(part: RecordSet, own: FindingCollector, settings: Settings, collector: FindingCollector) -> None:
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
