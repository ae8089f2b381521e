"""Check a file of requests, responses or record sets (``--as``)."""

from __future__ import annotations

from kseg.findings import Finding
from kseg.format.checks.record_set_checks import check_record_set
from kseg.format.checks.run_checks import new_collector
from kseg.format.segment.framed_files import LOSING, PRODUCE_KIND, UNDECODED, ReadSettings, RecordSet, framing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import SegmentFile, Source
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
