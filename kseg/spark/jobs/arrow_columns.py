"""Arrow record batches as columns of the encoder, without an object per record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kseg.errors import UsageError
from kseg.format.record.columns import RecordColumns
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.writer.records_builder import with_length
from kseg.report.arrow_table import pa, pc

# Approximate bytes of a record besides key, value and headers: lengths, deltas, attributes.
_RECORD_OVERHEAD = 21
_NULL = -1


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one partition. ``ends`` has the approximate encoded bytes up to and including each row."""

    topic: str | None
    partition: int | None
    data: bytearray
    records: RecordColumns
    offsets: Sequence[int]
    ends: Sequence[int]


def rows_of(batch: pa.RecordBatch) -> Iterator[Rows]:
    """Yield the rows of a batch (topic, partition, offset, timestamp_ms, key, value, headers), one run per partition.

    Raises UsageError for a row without an offset, or with a header without a key.
    """

    if not batch.num_rows:
        return
    topic, partition = batch.column("topic"), batch.column("partition")
    parts = [pc.fill_null(pc.not_equal(column[1:], column[:-1]), True) for column in (topic, partition)]
    starts = [0, *(at + 1 for at in pc.indices_nonzero(pc.or_(*parts)).to_pylist())]
    for first, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield _rows(topic[first].as_py(), partition[first].as_py(), batch.slice(first, stop - first))


def _rows(topic: str | None, partition: int | None, batch: pa.RecordBatch) -> Rows:

    count = batch.num_rows
    offset, stamp = batch.column("offset"), batch.column("timestamp_ms")
    if offset.null_count:
        raise UsageError(f"{topic}-{partition}: a row has no offset")
    records, data = RecordColumns(count), bytearray()
    records.count = count
    _fill(records.offset, offset)
    _fill(records.timestamp, pc.fill_null(stamp, NO_TIMESTAMP))
    weights = pa.array([_RECORD_OVERHEAD] * count, pa.int64())
    for name, at, size in (("key", records.key_at, records.key_size), ("value", records.value_at, records.value_size)):
        column = batch.column(name)
        _fill(at, _places(column, data))
        sizes = pc.fill_null(pc.binary_length(column).cast(pa.int64()), _NULL)
        _fill(size, sizes)
        weights = pc.add(weights, sizes)
    headers = batch.column("headers")
    if headers.null_count < count:
        weights = pc.add(weights, pa.array(_headers(headers.to_pylist(), records, data), pa.int64()))
    return Rows(topic, partition, data, records, _view(offset), _view(pc.cumulative_sum(weights)))


def _places(column: pa.Array, data: bytearray) -> pa.Array:
    """Append the values of a binary column to ``data``; return their positions in it."""

    _, ends, values = column.buffers()
    starts = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, ends], offset=column.offset)
    first, last = starts[0].as_py(), starts[-1].as_py()
    shift = len(data) - first
    if values is not None:
        data += memoryview(values)[first:last]
    return pc.add(starts[:-1].cast(pa.int64()), shift)


def _headers(found: list[list[dict[str, Any]] | None], records: RecordColumns, data: bytearray) -> list[int]:
    """Append the encoded headers of each record to ``data``; return their sizes in bytes."""
    sizes = []
    for i, pairs in enumerate(found):
        records.headers_at[i], records.header_count[i] = len(data), len(pairs or ())
        for pair in pairs or ():
            if pair["key"] is None:
                raise UsageError("a header has no key")
            data += with_length(pair["key"].encode("utf-8", "surrogateescape"))
            data += with_length(pair["value"])
        sizes.append(len(data) - records.headers_at[i])
    return sizes


def _fill(column: Any, values: pa.Array) -> None:
    memoryview(column)[: len(values)] = _view(values)


def _view(values: pa.Array) -> memoryview:
    """Return an int64 array without nulls as a memory view, without a copy."""
    return memoryview(values.buffers()[1]).cast("B").cast("q")[values.offset : values.offset + len(values)]
