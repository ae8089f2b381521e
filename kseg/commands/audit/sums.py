"""Audits that sum the batches of segments: by old version, and by producer. Only headers are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kseg.audit_table import TOP
from kseg.commands.audit.segments import columns, windows
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.storage.source import SegmentFile, topic_partition
from kseg.schema import Row


def legacy_sums(file: SegmentFile) -> list[Row]:
    """Return the sums of the batches of v0 and of v1 of a segment."""
    topic, partition = topic_partition(file.path)
    found: dict[int, Row] = {}
    for window in windows(file):
        for magic, size, last, timestamp in columns(window, "magic", "size", "last_offset", "max_timestamp"):
            if magic >= 2:
                continue
            if magic not in found:
                found[magic] = {
                    "topic": topic, "partition": partition, "file": file.path, "magic": magic, "batches": 0, "bytes": 0,
                    "last_offset": last, "max_timestamp_ms": None,
                }  # fmt: skip
            row = found[magic]
            row["batches"] += 1
            row["bytes"] += size
            row["last_offset"] = max(row["last_offset"], last)
            if timestamp != NO_TIMESTAMP:
                known = row["max_timestamp_ms"]
                row["max_timestamp_ms"] = timestamp if known is None else max(known, timestamp)
    return [found[magic] for magic in sorted(found)]


def legacy(files: Iterable[list[Row]]) -> Iterator[Row]:
    """Yield segments with batches of v0 or v1, which newer brokers do not write: the segments to convert."""
    return (row for of_file in files for row in of_file)


@dataclass(slots=True)
class ProducerSum:
    """The batches of a producer id in one topic."""

    bytes: int = 0
    batches: int = 0
    records: int = 0
    partitions: set[int | None] = field(default_factory=set)

    def add(self, other: ProducerSum) -> None:
        self.bytes += other.bytes
        self.batches += other.batches
        self.records += other.records
        self.partitions |= other.partitions


_Producers = dict[tuple[str | None, int], ProducerSum]


def producer_sums(file: SegmentFile) -> _Producers:
    """Return the sums of a segment by topic and producer id."""
    topic, partition = topic_partition(file.path)
    found: _Producers = {}
    for window in windows(file):
        for magic, producer, size, count in columns(window, "magic", "producer_id", "size", "record_count"):
            if magic >= 2 and producer >= 0:
                one = found.setdefault((topic, producer), ProducerSum(partitions={partition}))
                # A damaged count may be negative.
                one.add(ProducerSum(size, 1, max(count, 0)))
    return found


def top_producers(files: Iterable[_Producers], top: int = TOP) -> Iterator[Row]:
    """Yield the producer ids with the most bytes in batches, by topic."""
    total: _Producers = {}
    for of_file in files:
        for key, one in of_file.items():
            total.setdefault(key, ProducerSum()).add(one)
    largest = sorted(total.items(), key=lambda item: (-item[1].bytes, item[0][0] or "", item[0][1]))[:top]
    for (topic, producer), one in largest:
        yield {
            "topic": topic,
            "producer_id": producer,
            "bytes": one.bytes,
            "batches": one.batches,
            "records": one.records,
            "partitions": len(one.partitions - {None}),
        }
