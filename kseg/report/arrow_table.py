"""The columns and types of Arrow tables, rows and batches as tables, and the parts of pyarrow that kseg uses.

pyarrow is imported at its first use: all but Parquet, Arrow and Spark works without it.

The types are exactly those that Spark accepts: all columns nullable, timestamps in microseconds UTC, no dictionaries, no
large or view types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.engine import lazy
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
from kseg.format.storage.source import topic_partition
from kseg.schema import Column
from kseg.text import stored_bytes, to_unicode_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import dataset, parquet
    from pyarrow.dataset import InMemoryDataset
    from pyarrow.parquet import ParquetWriter

    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.segment.row_filter import BatchTransactions
else:
    _NEEDED = "Parquet and Arrow need pyarrow: pip install 'kseg[parquet]', which has pyarrow"
    pa = lazy("pyarrow", needed=_NEEDED)
    pc = lazy("pyarrow.compute", needed=_NEEDED)
    dataset = lazy("pyarrow.dataset", needed=_NEEDED)
    InMemoryDataset = lazy("pyarrow.dataset", "InMemoryDataset", needed=_NEEDED)
    parquet = lazy("pyarrow.parquet", needed=_NEEDED)
    ParquetWriter = lazy("pyarrow.parquet", "ParquetWriter", needed=_NEEDED)

__all__ = ["InMemoryDataset", "ParquetWriter", "dataset", "pa", "parquet", "pc"]


#: Maximum rows of an Arrow record batch, as Spark recommends.
BATCH_ROWS = 8 * 1024
_MILLISECONDS = "_ms"


def widened(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of a columnar table: each time as a timestamp and as raw milliseconds."""
    found: list[Column] = []
    for column in columns:
        if column.type == "ms":
            found.append(Column(column.name, "timestamp", "null where there is none, or outside the years 1 to 9999"))
            found.append(Column(column.name + _MILLISECONDS, "int", "epoch ms as stored, -1 as null"))
        else:
            found.append(column)
    return tuple(found)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([arrow_field(column) for column in columns])


def arrow_field(column: Column) -> Any:
    kind = column.type
    if kind == "struct":
        return pa.field(column.name, pa.struct(list(map(arrow_field, column.of))))
    if kind == "list_of":
        return pa.field(column.name, pa.list_(arrow_field(column.of[0])))
    if kind == "map_of":
        return pa.field(column.name, pa.map_(*(arrow_field(one).type for one in column.of)))
    if kind.startswith("decimal("):
        return pa.field(column.name, pa.decimal128(*map(int, kind[8:-1].split(","))))
    return pa.field(column.name, arrow_types()[kind])


@cache
def arrow_types() -> dict[str, Any]:

    def headers(value: Any) -> Any:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", value)])
        return pa.list_(pa.field("element", header))

    return {
        "int": pa.int64(),
        "int32": pa.int32(),
        "float": pa.float64(),
        "float32": pa.float32(),
        "date": pa.date32(),
        "timestamp_ntz": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "bool": pa.bool_(),
        "text": pa.string(),
        "texts": pa.list_(pa.field("element", pa.string())),
        "ints": pa.list_(pa.field("element", pa.int64())),
        "bytes": pa.binary(),
        "headers": headers(pa.binary()),
        "text_headers": headers(pa.string()),
        "object": pa.string(),  # JSON: the fields differ from row to row
    }


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """The file that rows come from, with its topic and partition.

    ``decode`` is the internal topic whose format the column ``decoded`` uses. ``transactions`` are those
    of the segment, if their columns are requested. ``decoder`` decodes keys and values.
    """

    file: str
    topic: str | None
    partition: int | None
    decode: str | None = None
    transactions: BatchTransactions | None = None
    decoder: RecordDecoder | None = None

    @classmethod
    def of(cls, file: str, decode: str | None = None, decoder: RecordDecoder | None = None) -> ColumnPlace:
        return cls(file, *topic_partition(file), decode, decoder=decoder).escaped()

    def escaped(self) -> ColumnPlace:
        """Return the place with names as Arrow accepts them."""
        return replace(self, file=_text(self.file), topic=self.topic and _text(self.topic))


def from_rows(columns: Sequence[Column], found: Sequence[schema.Row]) -> pa.RecordBatch:
    """Return rows as one Arrow batch, for row kinds that are few.

    Columns of PLACE_COLUMNS come from the row's ``file``, unless the rows have them.
    """
    types = arrow_types()
    placed = {column.name for column in schema.PLACE_COLUMNS}
    if not placed.isdisjoint(column.name for column in columns) and found and "topic" not in found[0]:
        places = {file: ColumnPlace.of(file) for file in {row["file"] for row in found if "file" in row}}
        found = [
            {"topic": places[row["file"]].topic, "partition": places[row["file"]].partition, **row}
            if "file" in row
            else row  # damage in a view without files
            for row in found
        ]
    arrays = [pa.array([arrow_value(column, row) for row in found], types[column.type]) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _text(text: str) -> str:
    """Escape a file name that is not UTF-8, as JSON Lines do: Arrow rejects surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def arrow_value(column: Column, row: schema.Row) -> Any:
    if column.type == "timestamp":
        stored: int | None = row.get(column.name)
        if stored is None:
            return None
        return stored * 1000 if FIRST_MILLISECOND <= stored <= LAST_MILLISECOND else None
    if column.name.endswith(_MILLISECONDS):
        return row.get(column.name.removesuffix(_MILLISECONDS))
    value = row.get(column.name)
    if column.type == "object" and value is not None:
        return to_unicode_json(value)
    if column.name == "headers" and value:
        return [{**one, "key": stored_bytes(one["key"]).decode("utf-8", "replace")} for one in value]  # as Kafka
    return _text(value) if type(value) is str else value


class _Headers:
    """The headers of the batches of a window as Arrow arrays of int64; ``rows`` are the wanted ones, None for all.

    One batch as an object takes 60 µs of processor time, and a log can have a million batches of one record.
    """

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
