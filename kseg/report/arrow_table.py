"""The columns and types of Arrow tables, and the parts of pyarrow that kseg uses.

pyarrow is imported at its first use: all but Parquet, Arrow and Spark works without it.

The types are exactly those that Spark accepts: all columns nullable, timestamps in microseconds UTC, no dictionaries, no
large or view types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from kseg import schema
from kseg.engine import lazy
from kseg.format.record.layout import FIRST_MILLISECOND, LAST_MILLISECOND
from kseg.format.storage.source import topic_partition
from kseg.schema import Column
from kseg.text import to_unicode_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import dataset, parquet
    from pyarrow.dataset import InMemoryDataset
    from pyarrow.parquet import ParquetWriter

    from kseg.extras.serialization.record_decoder import RecordDecoder
    from kseg.format.segment.row_filter import BatchTransactions
else:
    _NEEDED = "Parquet and Arrow need pyarrow: pip install pyarrow"
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
    """Return the Arrow schema of widened columns."""
    return pa.schema([arrow_field(column) for column in columns])


def arrow_field(column: Column) -> Any:
    """Return the Arrow field of a column, with those in it."""
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
    """Return the Arrow type of each type of columns."""

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
        """Return the place of a file."""
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
    """Escape a file name that is not UTF-8, as in JSON Lines: Arrow rejects surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def arrow_value(column: Column, row: schema.Row) -> Any:
    """Return the value of a widened column in a row."""
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
    return _text(value) if type(value) is str else value
