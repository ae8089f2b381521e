"""The row schema: one list of columns for every output, from tables to Spark."""

from __future__ import annotations

from typing import Any, NamedTuple

Row = dict[str, Any]


class Column(NamedTuple):
    """``type`` is int, int32, ms, bool, text, texts, ints, bytes, headers or object; all but ``kind`` may be null.

    Columnar tables also have timestamp, and text_headers for headers whose values are text.

    ``ms`` are epoch milliseconds: an integer in text formats. Columnar ones have a timestamp under the column's name,
    and the stored integer in the column ``NAME_ms``.
    """

    name: str
    type: str
    meaning: str


BATCH_COLUMNS = (
    Column("kind", "text", "batch"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte of the batch in the file"),
    Column("size", "int", "size of the batch in bytes"),
    Column("magic", "int", "0, 1 or 2"),
    Column("base_offset", "int", "first offset; null for a compressed v0 or v1 message"),
    Column("last_offset", "int", "last offset"),
    Column("record_count", "int", "number of records in the v2 header"),
    Column("compression", "text", "none, gzip, snappy, lz4, zstd"),
    Column("timestamp_type", "text", "CreateTime or LogAppendTime"),
    Column("base_timestamp", "ms", "epoch ms; with a delete horizon, the stored value is the horizon"),
    Column("max_timestamp", "ms", "epoch ms"),
    Column("crc", "int", "the stored CRC, unsigned"),
    Column("crc_valid", "bool", "whether the CRC is correct; null if it was not checked"),
    Column("producer_id", "int", "-1 is none"),
    Column("producer_epoch", "int", "-1 is none"),
    Column("base_sequence", "int", "-1 is none"),
    Column("partition_leader_epoch", "int", "-1 is none"),
    Column("transactional", "bool", "part of a transaction"),
    Column("control", "bool", "contains control records"),
    Column("delete_horizon", "ms", "epoch ms (KIP-534)"),
)


RECORD_COLUMNS = (
    Column("kind", "text", "record"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte of the batch that contains the record"),
    Column("offset", "int", "the record's offset"),
    Column("timestamp", "ms", "epoch ms"),
    Column("timestamp_type", "text", "CreateTime or LogAppendTime"),
    Column("sequence", "int", "-1 is none"),
    Column("key", "bytes", "encoded as `--bytes` sets it"),
    Column("value", "bytes", "encoded as `--bytes` sets it"),
    Column("headers", "headers", "list of key and value"),
    Column("control", "object", "the decoded marker of a control record"),
)


#: The last column of decoded records of internal topics.
DECODED = Column("decoded", "object", "the decoded key and value; internal topics only")


#: The columns of decoded keys and values: with ``--key-as`` and ``--value-as``, or with a source of schemas.
CONTENT_COLUMNS: dict[str, tuple[Column, ...]] = {
    side: (
        Column(f"{side}_decoded", "object", f"the decoded {side}; null if it was not decoded"),
        Column(f"{side}_kind", "text", "the deserializer, such as avro; null if none was used"),
        Column(f"{side}_schema_id", "int", "the schema's id in the registry"),
        Column(f"{side}_error", "text", f"why the {side} was not decoded"),
    )
    for side in ("key", "value")
}


#: The last columns of records that a search found.
SEARCH_COLUMNS = (
    Column("crc_valid", "bool", "whether the CRC of the batch is correct; null if it was not checked"),
    Column(
        "matched", "texts", "the matching fields: key, value, header-key, header-value; null for a neighbour of a match"
    ),
)


FINDING_COLUMNS = (
    Column("kind", "text", "finding"),
    Column("rule", "text", "name of the rule"),
    Column("code", "text", "code of the rule"),
    Column("severity", "text", "error, warning or info"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte concerned"),
    Column("end", "int", "first byte after the finding"),
    Column("offset", "int", "first offset concerned"),
    Column("last_offset", "int", "last offset concerned"),
    Column("message", "text", "the message for people"),
    Column("facts", "object", "the numbers and texts of the message"),
)


# The additional columns of Parquet and Spark, where a column costs hardly anything.
PLACE_COLUMNS = (
    Column("topic", "text", "from the name of the folder; null if that is not a partition's"),
    Column("partition", "int32", "from the name of the folder"),
)


PRODUCER_COLUMNS = (
    Column("producer_id", "int", "-1 is none"),
    Column("producer_epoch", "int", "-1 is none"),
    Column("transactional", "bool", "part of a transaction"),
)


RECORD_TABLE = (*PLACE_COLUMNS, *RECORD_COLUMNS[1:], *PRODUCER_COLUMNS)


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
)


TRANSACTION_TABLE = (
    *PLACE_COLUMNS,
    Column("folder", "text", "the folder of the partition"),
    Column("state", "text", "hanging, open, aborted or committed"),
    Column("producer_id", "int", "the producer of the transaction"),
    Column("producer_epoch", "int", "the epoch of its data"),
    Column("first_offset", "int", "offset of its first record"),
    Column("last_offset", "int", "offset of its marker, or of its last record"),
    Column("batches", "int", "number of its data batches in the log"),
    Column("records", "int", "number of its data records in the log"),
    Column("start_timestamp", "ms", "epoch ms of its first batch; null if that was deleted"),
    Column("last_timestamp", "ms", "epoch ms of its last batch; null if that was deleted"),
    Column("coordinator_epoch", "int", "the epoch in its marker; null without a marker"),
)
