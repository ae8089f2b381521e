"""Batches in hexadecimal: header fields with their names, then the payload, sixteen bytes per line."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.commands.dump.rows import BatchItem, RecordsItem
from kseg.format.record.layout import MESSAGE_V0, MESSAGE_V1, RECORD_BATCH_OVERHEAD

# (bytes, Kafka's name) of each header field in order; ``record.layout`` has the layouts.
_MESSAGE = ((8, "offset"), (4, "size"), (4, "crc"), (1, "magic"), (1, "attributes"))
_FIELDS = {
    0: _MESSAGE,
    1: (*_MESSAGE, (8, "timestamp")),
    2: (
        (8, "baseOffset"), (4, "batchLength"), (4, "partitionLeaderEpoch"), (1, "magic"), (4, "crc"), (2, "attributes"),
        (4, "lastOffsetDelta"), (8, "baseTimestamp"), (8, "maxTimestamp"), (8, "producerId"), (2, "producerEpoch"),
        (4, "baseSequence"), (4, "recordCount"),
    ),
}  # fmt: skip
assert [sum(size for size, _ in _FIELDS[magic]) for magic in (0, 1, 2)] == [
    MESSAGE_V0.size,
    MESSAGE_V1.size,
    RECORD_BATCH_OVERHEAD,
]


def batch_lines(entry: BatchItem) -> Iterator[str]:
    """Yield the lines of a batch as it is stored."""
    yield f"entry at {entry.batch.position}, {entry.batch.size} bytes, last offset {entry.batch.last_offset}"
    stored, position, at = entry.stored, entry.batch.position, 0
    for size, name in _FIELDS[min(entry.batch.magic, 2)]:
        field = stored[at : at + size]
        yield f"{position + at:10d}  {field.hex(' '):<48} {name} {int.from_bytes(field, 'big', signed=name != 'crc')}"
        at += size
    yield from hex_lines(stored[at:], position + at)


def run_lines(run: RecordsItem) -> Iterator[str]:
    """Yield the lines of records: key, value and headers after decompression."""
    for record in run.records():
        yield f"record {record.offset}, entry at {record.position}"
        for name, data in (("key", record.key), ("value", record.value)):
            yield f"  {name}: {_size(data)}"
            yield from hex_lines(data or b"", 0)
        for header in record.headers:
            yield f"  header {header.key!a}: {_size(header.value)}"
            yield from hex_lines(header.value or b"", 0)


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"


def hex_lines(data: bytes | memoryview, position: int) -> Iterator[str]:
    """Yield lines of sixteen bytes: position, hexadecimal, printable ASCII."""
    for at in range(0, len(data), 16):
        piece = bytes(data[at : at + 16])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{position + at:10d}  {piece.hex(' '):<48} {text}"
