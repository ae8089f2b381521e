"""Batches as Arrow record batches: the columns of a window's headers at once, only the requested ones.

One batch as an object takes 60 µs of processor time, and a log can have a million batches of one record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from kseg.format.compress.codecs import codec_name
from kseg.format.record import columns as batch_columns
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    FIRST_MILLISECOND,
    LAST_MILLISECOND,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from kseg.format.segment.records_chunk import timestamp_type
from kseg.report.arrow_table import ColumnPlace, arrow_schema, arrow_types, pa, pc
from kseg.schema import Column


class _Headers:
    """The headers of the batches of a window as Arrow arrays of int64; ``rows`` are the wanted ones, None for all."""

    def __init__(self, place: ColumnPlace, batches: BatchColumns, rows: Sequence[int] | None) -> None:
        self.place = place
        self._batches = batches
        self._rows = None if rows is None else pa.array(rows, pa.int64())
        self.count = batches.count if rows is None else len(rows)

    def stored(self, name: str) -> Any:
        """Return a copy of a column of BatchColumns."""
        count = self._batches.count
        data = pa.py_buffer(bytes(memoryview(getattr(self._batches, name))[:count]))
        column = pa.Array.from_buffers(pa.int64(), count, [None, data])
        return column if self._rows is None else column.take(self._rows)

    def modern(self, name: str) -> Any:
        """Return a column that only version 2 has."""
        return self.where(self.is_modern, self.stored(name))

    def where(self, condition: Any, values: Any) -> Any:
        return pc.if_else(condition, values, pa.scalar(None, values.type))

    def has(self, bit: int) -> Any:
        return pc.not_equal(pc.bit_wise_and(self.attributes, bit), 0)

    @cached_property
    def magic(self) -> Any:
        return self.stored("magic")

    @cached_property
    def attributes(self) -> Any:
        return self.stored("attributes")

    @cached_property
    def is_modern(self) -> Any:
        return pc.greater_equal(self.magic, 2)

    @cached_property
    def codec(self) -> Any:
        return pc.bit_wise_and(self.attributes, CODEC_MASK)

    @cached_property
    def base_timestamp(self) -> Any:
        return self.timestamp(self.modern("base_timestamp"))

    def timestamp(self, stored: Any) -> Any:
        return self.where(pc.not_equal(stored, NO_TIMESTAMP), stored)

    def constant(self, value: Any, kind: Any) -> Any:
        return pa.repeat(pa.scalar(value, kind), self.count)

    def crc_valid(self) -> Any:
        state = self.stored("crc_state")
        return self.where(pc.not_equal(state, batch_columns.CRC_UNCHECKED), pc.equal(state, batch_columns.CRC_GOOD))

    def base_offset(self) -> Any:
        return self.where(pc.or_(self.is_modern, pc.equal(self.codec, 0)), self.stored("base_offset"))

    def first_offset(self) -> Any:
        """Return the first offsets, of compressed v0 and v1 messages those of their first records, which were read."""
        opened = self.where(pc.greater(self.stored("record_sum"), 0), self.stored("first_record_offset"))
        return pc.coalesce(self.base_offset(), opened)

    def timestamp_type(self) -> Any:
        names = pa.array([timestamp_type(magic, bit) for magic in range(3) for bit in (0, LOG_APPEND_TIME)])
        later = pc.cast(self.has(LOG_APPEND_TIME), pa.int64())
        return names.take(pc.add(pc.multiply(pc.min_element_wise(self.magic, 2), 2), later))


_NUMBERS = ("position", "size", "magic", "last_offset", "crc")
_OF_VERSION_2 = ("record_count", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
_COLUMNS: Mapping[str, Callable[[_Headers], Any]] = {
    "topic": lambda headers: headers.constant(headers.place.topic, pa.string()),
    "partition": lambda headers: headers.constant(headers.place.partition, pa.int32()),
    "file": lambda headers: headers.constant(headers.place.file, pa.string()),
    **{name: lambda headers, name=name: headers.stored(name) for name in _NUMBERS},  # type: ignore[misc]
    **{name: lambda headers, name=name: headers.modern(name) for name in _OF_VERSION_2},  # type: ignore[misc]
    "base_offset": _Headers.base_offset,
    "first_offset": _Headers.first_offset,
    "compression": lambda headers: pa.array([codec_name(codec) for codec in range(CODEC_MASK + 1)]).take(headers.codec),
    "timestamp_type": _Headers.timestamp_type,
    "base_timestamp": lambda headers: headers.base_timestamp,
    "max_timestamp": lambda headers: headers.timestamp(headers.stored("max_timestamp")),
    "crc_valid": _Headers.crc_valid,
    "transactional": lambda headers: headers.where(headers.is_modern, headers.has(TRANSACTIONAL)),
    "control": lambda headers: headers.where(headers.is_modern, headers.has(CONTROL)),
    "delete_horizon": lambda headers: headers.where(headers.has(DELETE_HORIZON), headers.base_timestamp),
    "damage": lambda headers: headers.constant(None, pa.string()),
}


def batch_rows(
    columns: Sequence[Column], place: ColumnPlace, batches: BatchColumns, rows: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return batches as an Arrow record batch of widened columns of BATCH_TABLE, and of those on request.

    ``damage`` is null. ``first_offset`` needs the records of compressed v0 and v1 messages. ``rows`` are those of the
    batches, None for all.
    """
    headers = _Headers(place, batches, rows)
    arrays = []
    for column in columns:
        values = _COLUMNS[column.name.removesuffix("_ms")](headers)
        if column.type == "timestamp":
            known = pc.and_(pc.greater_equal(values, FIRST_MILLISECOND), pc.less_equal(values, LAST_MILLISECOND))
            # Outside these years the multiplication can overflow.
            values = pc.multiply(headers.where(known, values), 1000)
        arrays.append(pc.cast(values, arrow_types()[column.type]))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
