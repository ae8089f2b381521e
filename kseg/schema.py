"""The row schema: one list of columns for every output, from tables to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """``type`` is int, int32, ms, bool, text, texts, ints, bytes, headers or object; all but ``kind`` may be null.

    ``ms`` are epoch milliseconds: an integer in text formats. Columnar ones have a timestamp under the column's name,
    and the stored integer in the column ``NAME_ms``.
    """

    name: str
    type: str
    meaning: str


BATCH_COLUMNS = (
    Column("kind", "text", "batch"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "the entry's first byte in the file"),
    Column("size", "int", "bytes of the whole entry"),
    Column("magic", "int", "0, 1 or 2"),
    Column("base_offset", "int", "first offset; null for a compressed v0 or v1 entry"),
    Column("last_offset", "int", "last offset"),
    Column("record_count", "int", "records as the v2 header counts them"),
    Column("compression", "text", "none, gzip, snappy, lz4, zstd"),
    Column("timestamp_type", "text", "CreateTime or LogAppendTime"),
    Column("base_timestamp", "ms", "epoch ms; with a delete horizon that is what stands here"),
    Column("max_timestamp", "ms", "epoch ms"),
    Column("crc", "int", "as stored, unsigned"),
    Column("crc_valid", "bool", "whether it holds; null when not checked"),
    Column("producer_id", "int", "-1 is none"),
    Column("producer_epoch", "int", "-1 is none"),
    Column("base_sequence", "int", "-1 is none"),
    Column("partition_leader_epoch", "int", "-1 is none"),
    Column("transactional", "bool", "part of a transaction"),
    Column("control", "bool", "holds control records"),
    Column("delete_horizon", "ms", "epoch ms (KIP-534)"),
)


RECORD_COLUMNS = (
    Column("kind", "text", "record"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte of the entry that holds it"),
    Column("offset", "int", "the record's offset"),
    Column("timestamp", "ms", "epoch ms"),
    Column("timestamp_type", "text", "CreateTime or LogAppendTime"),
    Column("sequence", "int", "-1 is none"),
    Column("key", "bytes", "as --bytes says"),
    Column("value", "bytes", "as --bytes says"),
    Column("headers", "headers", "list of key and value"),
    Column("control", "object", "the decoded marker of a control record"),
)


#: The last column of decoded records of internal topics.
DECODED = Column("decoded", "object", "of internal topics only: what key and value say")


FINDING_COLUMNS = (
    Column("kind", "text", "finding"),
    Column("rule", "text", "its name"),
    Column("code", "text", "its code"),
    Column("severity", "text", "error, warning or info"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte concerned"),
    Column("end", "int", "the byte behind it"),
    Column("offset", "int", "first offset concerned"),
    Column("last_offset", "int", "last offset concerned"),
    Column("message", "text", "what is wrong"),
    Column("facts", "object", "what the message is made of"),
)


# The additional columns of Parquet and Spark, where a column costs hardly anything.
_PLACE = (
    Column("topic", "text", "by the name of the folder; null in others"),
    Column("partition", "int32", "by the name of the folder"),
)


PRODUCER_COLUMNS = (
    Column("producer_id", "int", "-1 is none"),
    Column("producer_epoch", "int", "-1 is none"),
    Column("transactional", "bool", "part of a transaction"),
)


RECORD_TABLE = (*_PLACE, *RECORD_COLUMNS[1:], *PRODUCER_COLUMNS)


BATCH_TABLE = (*_PLACE, *BATCH_COLUMNS[1:])


FINDING_TABLE = (*_PLACE, *FINDING_COLUMNS[1:])


SEGMENT_TABLE = (
    *_PLACE,
    Column("file", "text", "the path as it was given"),
    Column("size", "int", "bytes of the file"),
    Column("active", "bool", "the newest of its folder, where a broker may be writing"),
    Column("magics", "ints", "the record versions in it"),
    Column("compressions", "texts", "the codecs in it"),
    Column("batches", "int", "entries"),
    Column("records", "int", "records in those that can be opened"),
    Column("first_offset", "int", "of the first entry; null where that is a compressed v0 or v1 entry"),
    Column("last_offset", "int", "the largest"),
    Column("min_timestamp", "ms", "the smallest that a header shows"),
    Column("max_timestamp", "ms", "the largest that a header shows"),
    Column("errors", "int", "findings of that severity"),
    Column("warnings", "int", "findings of that severity"),
    Column("infos", "int", "findings of that severity"),
    Column("lost_bytes", "int", "bytes that are no entry"),
    Column("verdict", "text", "sound, damaged or undetermined"),
    Column("unread", "text", "why it could not be read; null where it was"),
)
