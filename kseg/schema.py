"""The row schema: one list of columns for every output, from tables to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Row = dict[str, Any]

#: The types of columns that differ from others only in JSON: type -> that of a column in Parquet and Spark.
_STORED = {"count": "int", "json": "object", "objects": "object", "map": "object"}


class Column(NamedTuple):
    """A field of a kind of results: its name and type in JSON, its meaning, and its column in tables.

    ``json`` is text, bool, bytes, texts, ints, headers, ``int`` (64 bits), ``int32``, ``count`` (from 0 on), ``float`` or
    ``ms``: epoch milliseconds, in columnar tables a timestamp under the column's name and the stored integer in the column
    ``NAME_ms``. Also ``object`` and the list ``objects`` with the fields ``of``, ``map`` from any names to such objects or
    to the values that its only field, without a name, describes, and ``json`` for any value. ``int?`` may be null,
    ``[int]`` may be missing. Columnar tables have timestamp and text_headers, too.

    ``value`` is the path of attributes to the value in a result, by default the name, or returns it. ``values`` are all
    possible ones; the only ``kind`` of a row is its meaning. ``shown`` is the column of a table (a TableColumn).

    Columns of decoded values (``serialization/struct_types``) have further types. ``default`` is the value, as JSON, of a
    field that a value lacks. ``aliases`` are its names in values of older versions.
    """

    name: str
    json: str
    meaning: str
    value: str | Callable[[Any], Any] = ""
    shown: Any = None
    values: tuple[str, ...] | range = ()
    of: tuple[Column, ...] = ()
    default: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The type in columnar tables, all of whose columns may be null."""
        base = self.json.strip("[?]")
        return _STORED.get(base, base)

    def of_item(self) -> Callable[[Any], Any]:
        """Return a function that returns the value in a result; None where a part of the path is None."""
        if callable(self.value):
            return self.value
        if self.name == "kind" and not self.value:
            return lambda item: self.meaning
        parts = (self.value or self.name).split(".")

        def found(item: Any) -> Any:
            for part in parts:
                item = None if item is None else item[part] if isinstance(item, dict) else getattr(item, part)
            return item

        return found


class RowKind(NamedTuple):
    """A kind of rows of a command: the declaration of their columns, from which they are made. ``text`` says which ones."""

    command: str
    title: str
    text: str = ""
    columns: tuple[Column, ...] = ()

    def of(self, kind: str | Column, *columns: Column) -> RowKind:
        """Return the kind with its columns. The first one is ``kind``, as its column if that has several values."""
        return self._replace(columns=(Column("kind", "text", kind) if isinstance(kind, str) else kind, *columns))

    def maker(self) -> Callable[[Any], Row]:
        """Return a function that returns a result as a row."""
        return row_maker(self.columns)

    def rows(self, results: Iterable[Any]) -> Iterator[Row]:
        """Return the rows of results."""
        return map(self.maker(), results)


def names_of(columns: Iterable[Column]) -> list[str]:
    """Return the names of columns."""
    return [column.name for column in columns]


def row_maker(columns: Iterable[Column]) -> Callable[[Any], Row]:
    """Return a function that returns a result as a row, with the rows of the objects in it.

    A field that can be missing is one of a dict.
    """
    values = [(column.name, _maker(column), column.json.startswith("[")) for column in columns]
    return lambda item: {name: value(item) for name, value, optional in values if not optional or name in item}


def _maker(column: Column) -> Callable[[Any], Any]:
    value, base = column.of_item(), column.json.strip("[?]")
    if not column.of or not column.of[0].name:
        return value
    inner = row_maker(column.of)

    def rows(found: Any) -> Any:
        if found is None:
            return None
        if base == "map":
            return {name: inner(one) for name, one in found.items()}
        return [inner(one) for one in found] if base == "objects" else inner(found)

    return lambda item: rows(value(item))


_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


BATCH_COLUMNS = (
    Column("kind", "text", "batch"),
    Column("file", "text", "the path as it was given"),
    Column("position", "count", "first byte of the batch in the file"),
    Column("size", "count", "size of the batch in bytes"),
    Column("magic", "int", "0, 1 or 2", values=range(3)),
    Column("base_offset", "int?", "first offset; null for a compressed v0 or v1 message"),
    Column("last_offset", "int", "last offset"),
    Column("record_count", "int?", "number of records in the v2 header"),
    Column("compression", "text", "none, gzip, snappy, lz4, zstd"),
    Column("timestamp_type", "text?", "CreateTime or LogAppendTime", values=_TIMESTAMP_TYPES),
    Column("base_timestamp", "ms?", "epoch ms; with a delete horizon, the stored value is the horizon"),
    Column("max_timestamp", "ms?", "epoch ms"),
    Column("crc", "int", "the stored CRC, unsigned", values=range(2**32)),
    Column("crc_valid", "bool?", "whether the CRC is correct; null if it was not checked"),
    Column("producer_id", "int?", "-1 is none"),
    Column("producer_epoch", "int?", "-1 is none"),
    Column("base_sequence", "int?", "-1 is none"),
    Column("partition_leader_epoch", "int?", "-1 is none"),
    Column("transactional", "bool?", "part of a transaction"),
    Column("control", "bool?", "contains control records"),
    Column("delete_horizon", "ms?", "epoch ms (KIP-534)"),
)


RECORD_COLUMNS = (
    Column("kind", "text", "record"),
    Column("file", "text", "the path as it was given"),
    Column("position", "count", "first byte of the batch that contains the record"),
    Column("offset", "int", "the record's offset"),
    Column("timestamp", "ms?", "epoch ms"),
    Column("timestamp_type", "text?", "CreateTime or LogAppendTime", values=_TIMESTAMP_TYPES),
    Column("sequence", "int?", "-1 is none"),
    Column("key", "bytes?", "encoded as `--bytes` sets it"),
    Column("value", "bytes?", "encoded as `--bytes` sets it"),
    Column("headers", "headers", "list of key and value"),
    Column("control", "object?", "the decoded marker of a control record"),
    Column("producer_id", "int?", "-1 is none"),
    Column("producer_epoch", "int?", "-1 is none"),
    Column("partition_leader_epoch", "int?", "-1 is none"),
    Column(
        "transaction_state",
        "text?",
        "committed, aborted, open or unknown; null outside transactions",
        values=("committed", "aborted", "open", "unknown"),
    ),
    Column("transactional_id", "text?", "the producer's, from `__transaction_state` in the same log directory"),
)


#: The last column of decoded records of internal topics.
DECODED = Column("decoded", "[json]", "the decoded key and value; internal topics only")


#: The columns of decoded keys and values: with ``--key-as`` and ``--value-as``, or with a source of schemas.
CONTENT_COLUMNS: dict[str, tuple[Column, ...]] = {
    side: (
        Column(f"{side}_decoded", "[json]", f"the decoded {side}; null if it was not decoded"),
        Column(f"{side}_kind", "[text?]", "the deserializer, such as avro; null if none was used"),
        Column(f"{side}_schema_id", "[int?]", "the schema's id in the registry"),
        Column(f"{side}_error", "[text?]", f"why the {side} was not decoded"),
    )
    for side in ("key", "value")
}


#: The last columns of records that a search found.
SEARCH_COLUMNS = (
    Column("crc_valid", "bool?", "whether the CRC of the batch is correct; null if it was not checked"),
    Column(
        "matched",
        "texts?",
        "the matching fields: key, value, header-key, header-value; null for a neighbour of a match",
    ),
)


FINDING_COLUMNS = (
    Column("kind", "text", "finding"),
    Column("rule", "text", "name of the rule"),
    Column("code", "text", "code of the rule"),
    Column("severity", "text", "error, warning or info", values=("error", "warning", "info")),
    Column("file", "text", "the path as it was given"),
    Column("position", "count?", "first byte concerned"),
    Column("end", "count?", "first byte after the finding"),
    Column("offset", "int?", "first offset concerned"),
    Column("last_offset", "int?", "last offset concerned"),
    Column("message", "text", "the message for people"),
    Column("facts", "object", "the numbers and texts of the message"),
)


# The additional columns of Parquet and Spark, where a column costs hardly anything, and of --columns on request.
PLACE_COLUMNS = (
    Column("topic", "text?", "from the name of the folder; null if that is not a partition's"),
    Column("partition", "int32?", "from the name of the folder"),
)


TRANSACTIONAL = Column("transactional", "bool?", "part of a transaction")


RECORD_TABLE = (*PLACE_COLUMNS, *RECORD_COLUMNS[1:], TRANSACTIONAL)


BATCH_TABLE = (*PLACE_COLUMNS, *BATCH_COLUMNS[1:])


FINDING_TABLE = (*PLACE_COLUMNS, *FINDING_COLUMNS[1:])


SEGMENT_TABLE = (
    *PLACE_COLUMNS,
    Column("file", "text", "the path as it was given"),
    Column("size", "int", "bytes of the file"),
    Column("active", "bool", "whether it is the newest of its folder: a broker may be writing to it"),
    Column("magics", "ints", "the record versions in it"),
    Column("compressions", "texts", "the codecs in it"),
    Column("batches", "int", "number of batches"),
    Column("records", "int", "number of records in the batches that can be opened"),
    Column("first_offset", "int", "first offset; null if the first batch is a compressed v0 or v1 message"),
    Column("last_offset", "int", "largest offset"),
    Column("min_timestamp", "ms", "smallest timestamp in a header"),
    Column("max_timestamp", "ms", "largest timestamp in a header"),
    Column("errors", "int", "findings of that severity"),
    Column("warnings", "int", "findings of that severity"),
    Column("infos", "int", "findings of that severity"),
    Column("lost_bytes", "int", "bytes that no reader can use"),
    Column("verdict", "text", "sound, damaged or undetermined"),
    Column("unread", "text", "why the file could not be read, or null"),
    Column("stamp", "text", "its version: size, time of the last write and inode, or size and ETag; null without"),
    Column("zone_positions", "ints", "where each zone of about 64 MiB begins; null without a certain zone map"),
    Column("zone_offsets", "ints", "the smallest offset that a record of each zone can have"),
    Column("zone_min_timestamps", "ints", "the smallest timestamp of a record in each zone, -1 without one"),
    Column("zone_max_timestamps", "ints", "the largest timestamp in each zone, -1 without one"),
    Column(
        "event_producer_ids", "ints", "producers of the events of transactions; null if damaged or more than a million"
    ),
    Column("event_offsets", "ints", "the offset of each event: a marker, or a producer's first data before it"),
    Column("event_kinds", "ints", "the kind of each event: 0 data, 1 COMMIT, 2 ABORT"),
)


TRANSACTION_TABLE = (
    *PLACE_COLUMNS,
    Column("folder", "text", "the folder of the partition"),
    Column(
        "state",
        "text",
        "hanging, open, aborted or committed; unknown if bytes before its marker are lost",
        values=("hanging", "open", "unknown", "aborted", "committed"),
    ),
    Column("producer_id", "int", "the producer of the transaction"),
    Column("producer_epoch", "int", "the epoch of its data"),
    Column("first_offset", "int?", "offset of its first record"),
    Column("last_offset", "int?", "offset of its marker, or of its last record"),
    Column("batches", "count", "number of its data batches in the log"),
    Column("records", "int", "number of its data records in the log"),
    Column("start_timestamp", "ms?", "epoch ms of its first batch; null if that was deleted, or has a delete horizon"),
    Column("last_timestamp", "ms?", "epoch ms of its last batch; null if that was deleted"),
    Column("coordinator_epoch", "int?", "the epoch in its marker; null without a marker"),
)
