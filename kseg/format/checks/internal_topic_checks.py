"""Whether records of internal topics are what their coordinators, controllers and brokers can read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kseg.findings import Report
from kseg.format.checks.record_checks import record_finding
from kseg.format.internal_topics.recognise import decoded_record, internal_topic
from kseg.format.segment.records_chunk import Chunk

_Watch = Callable[[Chunk], None]


def with_internal_record_checks(path: str, report: Report, watch: _Watch) -> _Watch:
    """``watch``, and where the folder is an internal topic's the check below as well."""
    topic = internal_topic(path)
    return watch if topic is None else partial(_check_and_continue, topic, report, watch)


def _check_and_continue(topic: str, report: Report, watch: _Watch, chunk: Chunk) -> None:
    check_internal_records(topic, chunk, report)
    watch(chunk)


def check_internal_records(topic: str, chunk: Chunk, report: Report) -> None:
    """``internal-record``: each record decodes. Types, versions and tags that aren't known are a newer Kafka's."""
    for row in range(chunk.first, chunk.stop):
        for i in chunk.rows(row) if chunk.batches.record_total[row] else ():
            decoded = decoded_record(topic, chunk, i)
            if decoded and decoded.fault:
                report(record_finding("internal-record", chunk, i, topic=topic, why=decoded.fault))
