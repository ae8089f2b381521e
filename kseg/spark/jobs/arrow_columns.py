"""Arrow record batches as columns of the encoder, without an object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from kseg.errors import UsageError
from kseg.format.record.columns import RecordColumns
from kseg.format.record.layout import CONTROL, FIRST_LEADER_EPOCH, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL
from kseg.format.writer.records_builder import with_length
from kseg.report.arrow_table import pa, pc

# Approximate bytes of a record besides key, value and headers: lengths, deltas, attributes.
_RECORD_OVERHEAD = 21
_NULL = -1

#: The columns of records that every write needs.
NEEDED = ("topic", "partition", "offset", "key", "value")
#: The columns of the records view that hold the rest of a log, besides ``timestamp_ms`` and ``headers``.
OF_LOG = (
    "producer_id", "producer_epoch", "sequence", "timestamp_type", "partition_leader_epoch", "transactional", "control",
)  # fmt: skip
#: If both are there, batches are those of the source.
OF_PLACE = ("file", "position")


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The batch fields of rows, and ``cuts``: the rows that begin a batch. With ``placed``, these are the source's."""

    attributes: Sequence[int]
    producer_id: Sequence[int]
    producer_epoch: Sequence[int]
    sequence: Sequence[int]
    leader_epoch: Sequence[int]
    cuts: Sequence[int]
    placed: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one partition. ``ends`` has the approximate encoded bytes up to and including each row.

    ``facts`` is None for rows that are written as plain records.
    """

    topic: str | None
    partition: int | None
    data: bytearray
    records: RecordColumns
    offsets: Sequence[int]
    ends: Sequence[int]
    facts: LogFacts | None = None


def check_schema(names: Iterable[str], same_log: bool) -> None:
    """Raise UsageError for the first column that is missing. ``same_log``: all fields of the log are written."""
    there = set(names)
    for name in NEEDED:
        if name not in there:
            raise UsageError(f"column {name} is missing: segments need {', '.join(NEEDED)}")
    for name in (*OF_LOG, "headers") if same_log else ():
        if name not in there:
            raise UsageError(f"column {name} is missing: the same log needs {', '.join((*OF_LOG, 'headers'))}")
    if same_log and there.isdisjoint(("timestamp_ms", "timestamp")):
        raise UsageError("column timestamp_ms is missing: the same log needs it")


@cache
def _types() -> dict[str, pa.DataType]:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
    return {**dict(zip(NEEDED, kinds, strict=True)), "headers": pa.list_(header)}


def rows_of(batch: pa.RecordBatch, same_log: bool = False) -> Iterator[Rows]:
    """Yield the rows of a batch, one run per partition up to a lower offset, with the facts of the log if ``same_log``.

    Raises UsageError for a row without an offset, with a header without a key, or of a type that does not fit.
    """
    if not batch.num_rows:
        return
    columns = {name: _cast(batch, name, kind) for name, kind in _types().items() if name in batch.schema.names}
    columns["timestamp_ms"] = _timestamps(batch)
    if same_log:
        columns |= {name: batch.column(name) for name in (*OF_LOG, *OF_PLACE) if name in batch.schema.names}
    plain = pa.RecordBatch.from_pydict(columns)
    topic, partition = plain.column("topic"), plain.column("partition")
    changes = [pc.fill_null(_changes(column), True) for column in (topic, partition)]
    offset = plain.column("offset")
    changes.append(pc.fill_null(pc.less(offset[1:], offset[:-1]), False))
    starts = [0, *_cuts(changes)]
    for first, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield _rows(topic[first].as_py(), partition[first].as_py(), plain.slice(first, stop - first), same_log)


def _cast(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    column = batch.column(name)
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UsageError(f"column {name} does not fit {kind}: {' '.join(str(error).split())}") from None


def _timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Return the milliseconds since 1970 of each row; NO_TIMESTAMP for null."""
    name = next((name for name in ("timestamp_ms", "timestamp") if name in batch.schema.names), None)
    if name is None:
        return pa.array([NO_TIMESTAMP] * batch.num_rows, pa.int64())
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            raise UsageError(f"column {name} has no time zone: cast it to timestamp, or give timestamp_ms")
        exact = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        column = pc.divide(exact, 1000)
        # Arrow rounds to zero, and Kafka's times are rounded down.
        column = pc.subtract(column, pc.greater(pc.multiply(column, 1000), exact).cast(pa.int64()))
    elif column.type != pa.int64():
        column = _cast(batch, name, pa.int64())
    return pc.fill_null(column, NO_TIMESTAMP)


def _rows(topic: str | None, partition: int | None, batch: pa.RecordBatch, same_log: bool) -> Rows:
    count = batch.num_rows
    offset = batch.column("offset")
    if offset.null_count:
        raise UsageError(f"{topic}-{partition}: a row has no offset")
    records, data = RecordColumns(count), bytearray()
    records.count = count
    _fill(records.offset, offset)
    _fill(records.timestamp, batch.column("timestamp_ms"))
    weights = pa.array([_RECORD_OVERHEAD] * count, pa.int64())
    for name, at, size in (("key", records.key_at, records.key_size), ("value", records.value_at, records.value_size)):
        column = batch.column(name)
        _fill(at, _places(column, data))
        sizes = pc.fill_null(pc.binary_length(column).cast(pa.int64()), _NULL)
        _fill(size, sizes)
        weights = pc.add(weights, sizes)
    headers = batch.column("headers") if "headers" in batch.schema.names else None
    if headers is not None and headers.null_count < count:
        weights = pc.add(weights, pa.array(_headers(headers.to_pylist(), records, data), pa.int64()))
    facts = _facts(batch) if same_log else None
    return Rows(topic, partition, data, records, _view(offset), _view(pc.cumulative_sum(weights)), facts)


def _facts(batch: pa.RecordBatch) -> LogFacts:
    """Return the batch fields of rows. Rows of v0 and v1 batches have neither producer nor epoch."""

    def number(name: str, default: int) -> pa.Array:
        return pc.fill_null(_cast(batch, name, pa.int64()), default)

    appended = pc.fill_null(pc.equal(batch.column("timestamp_type").cast(pa.string()), "LogAppendTime"), False)
    transactional = pc.fill_null(_cast(batch, "transactional", pa.bool_()), False)
    control = batch.column("control").is_valid()
    bits = ((appended, LOG_APPEND_TIME), (transactional, TRANSACTIONAL), (control, CONTROL))
    attributes = reduce(pc.add, (pc.multiply(flag.cast(pa.int64()), bit) for flag, bit in bits))
    producer, epoch, sequence = (number(name, -1) for name in ("producer_id", "producer_epoch", "sequence"))
    leader = pc.max_element_wise(number("partition_leader_epoch", FIRST_LEADER_EPOCH), FIRST_LEADER_EPOCH)
    # The sequences of a batch increase with its offsets, also where records were compacted away.
    steps = pc.if_else(pc.less(sequence, 0), -1, pc.subtract(batch.column("offset"), sequence))
    changes = [_changes(column) for column in (attributes, producer, epoch, leader, steps)]
    changes.append(control[1:])  # a marker is alone in its batch, and an attribute changes after it or the next is one
    changes.append(pc.and_(appended[1:], _changes(batch.column("timestamp_ms"))))
    placed = set(OF_PLACE) <= set(batch.schema.names)
    if placed:
        changes += [pc.fill_null(_changes(batch.column(name)), True) for name in OF_PLACE]
    return LogFacts(
        _view(attributes), _view(producer), _view(epoch), _view(sequence), _view(leader), _cuts(changes), placed
    )


def _changes(column: pa.Array) -> pa.Array:
    """Return for each row but the first whether it differs from the row before."""
    return pc.not_equal(column[1:], column[:-1])


def _cuts(changes: Sequence[pa.Array]) -> list[int]:
    """Return the rows but the first where one of the columns changes."""
    return [at + 1 for at in pc.indices_nonzero(reduce(pc.or_, changes)).to_pylist()]


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
