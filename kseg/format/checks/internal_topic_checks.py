"""Check that coordinators, controllers and brokers can decode the records of internal topics."""

from __future__ import annotations

from kseg.findings import Report
from kseg.format.checks.record_checks import record_finding
from kseg.format.internal_topics.recognise import decoded_record
from kseg.format.internal_topics.record_json import record_json
from kseg.format.segment.records_chunk import Chunk


def check_internal_records(topic: str, chunk: Chunk, report: Report) -> None:
    """Report ``internal-record`` for each record that cannot be decoded.

    Unknown types, versions and tags are valid: a newer version of Kafka wrote them.
    """
    writer = record_json(topic)
    for row in range(chunk.first, chunk.stop):
        rows = chunk.rows(row) if chunk.batches.record_total[row] else range(0)
        i = rows.start
        while i < rows.stop:
            # The writer accepts only valid records.
            i = writer.first_unwritten(chunk, row, i, rows.stop) if writer else i
            decoded = decoded_record(topic, chunk, i) if i < rows.stop else None
            if decoded and decoded.fault:
                report(record_finding("internal-record", chunk, i, topic=topic, why=decoded.fault))
            i += 1
