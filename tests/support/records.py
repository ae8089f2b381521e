"""Records for generated batches, and reading them back."""

from __future__ import annotations

import io

from hypothesis import strategies as st

from kseg.findings import Finding
from kseg.format.segment import deep_reader
from kseg.format.segment.records_chunk import Header, Record, RecordBatch, record_batch
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = CODECS[1:4]
NOW = 1_600_000_000_000
octets = st.none() | st.binary(max_size=200)
# Without the line ends that only Python knows, so that the oracle's lines stay complete.
header_keys = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12)
headers = st.lists(st.builds(Header, header_keys, octets), max_size=3).map(tuple)
# Also deltas of more than 64 bits: Java's sums overflow.
stamps = st.just(-1) | st.integers(0, NOW * 2) | st.sampled_from([2**62, 2**63 - 1, -(2**62), -(2**63)])


@st.composite
def record_lists(draw: st.DrawFn, magic: int = 2, max_size: int = 8) -> list[PlainRecord]:
    """Records with increasing offsets, with gaps, that a batch of that version can hold."""
    offset = draw(st.sampled_from([0, 1, 17, 2**31, 2**40]))
    records = []
    for _ in range(draw(st.integers(1, max_size))):
        offset += draw(st.just(0) | st.integers(0, 300))
        timestamp = draw(stamps) if magic else -1
        extra = draw(headers) if magic == 2 else ()
        records.append(PlainRecord(offset, draw(octets), draw(octets), timestamp, extra))
        offset += 1
    return records


# Neither is damage: an unusual but legal stream, and a preallocated tail.
HARMLESS = ("codec-quirk", "zero-tail")


def read(data: bytes) -> tuple[list[RecordBatch], list[Record]]:
    """Return the batches and records of a log; any finding of damage fails."""
    found: list[Finding] = []
    batches: list[RecordBatch] = []
    records: list[Record] = []
    with SegmentReader(open_source(io.BytesIO(data)), report=found.append) as reader:
        opener = deep_reader.DeepIterator(found.append)
        for window in reader.windows():
            batches += [record_batch(window.batches, row) for row in range(window.batches.count)]
            for chunk in opener.chunks(window):
                records += [chunk.record(i) for i in range(chunk.records.count)]
    assert [finding for finding in found if finding.rule not in HARMLESS] == []
    return batches, records


def plain(record: Record) -> PlainRecord:
    timestamp = -1 if record.timestamp is None else record.timestamp
    return PlainRecord(record.offset, record.key, record.value, timestamp, record.headers)
