"""The row schema: one list of columns for every output, from tables to Spark, and how bytes are written as text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kseg.findings import Verdict
from kseg.log.records import Header, Record, RecordBatch

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """``type`` is int, int32, ms, bool, text, texts, ints, bytes, headers or object; all but ``kind`` may be null.

    ``ms`` are epoch milliseconds: an integer in text formats. Columnar ones have a timestamp under the column's name,
    and the stored integer as ``NAME_ms`` beside it.
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

#: Of records of internal topics: the last of their columns, where they are decoded.
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

# What Parquet and Spark have beyond a line of JSON: there a column costs next to nothing.
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

_BATCH_NAMES = tuple(column.name for column in BATCH_COLUMNS[2:])

#: A writer of bytes: (text, encoding to note beside it or None).
Encoder = Callable[[bytes], tuple[Any, str | None]]


def _auto(data: bytes) -> tuple[str, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


ENCODERS: Mapping[str, Encoder] = {
    "auto": _auto,
    "utf8": lambda data: (data.decode("utf-8", "replace"), None),
    "hex": lambda data: (data.hex(), None),
    "base64": lambda data: (base64.b64encode(data).decode(), None),
}


def as_it_is(data: bytes) -> tuple[bytes, None]:
    """The encoder of a row that keeps its bytes; ``encoded`` writes them later."""
    return data, None


def encoded(row: Row, encode: Encoder) -> Row:
    """A row with its bytes written."""
    found: Row = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            _put(found, name, value, encode)
        else:
            found[name] = [encoded(header, encode) for header in value] if name == "headers" and value else value
    return found


def batch_row(file: str, batch: RecordBatch) -> Row:
    """An entry as a row of BATCH_COLUMNS."""
    return {"kind": "batch", "file": file, **{name: getattr(batch, name) for name in _BATCH_NAMES}}


def record_row(file: str, record: Record, encode: Encoder) -> Row:
    """A record as a row of RECORD_COLUMNS; ``key_encoding`` and ``value_encoding`` are added where they need saying."""
    row: Row = {
        "kind": "record",
        "file": file,
        "position": record.position,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "sequence": record.sequence,
    }
    _put(row, "key", record.key, encode)
    _put(row, "value", record.value, encode)
    row["headers"] = header_rows(record.headers, encode)
    row["control"] = record.control.as_dict() if record.control else None
    return row


def header_rows(headers: Iterable[Header], encode: Encoder) -> list[Row]:
    """Headers as a row holds them."""
    found: list[Row] = []
    for header in headers:
        # Kafka replaces what is no UTF-8 in a header key; the check reports it.
        entry: Row = {"key": header.key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")}
        _put(entry, "value", header.value, encode)
        found.append(entry)
    return found


def _put(row: Row, name: str, data: bytes | None, encode: Encoder) -> None:
    if data is None:
        row[name] = None
        return
    row[name], encoding = encode(data)
    if encoding:
        row[f"{name}_encoding"] = encoding


def finding_row(verdict: Verdict) -> Row:
    """A weighed finding as a row."""
    finding = verdict.finding
    return {
        "kind": "finding",
        "rule": finding.rule,
        "code": verdict.rule.code,
        "severity": verdict.severity.label,
        "file": verdict.file,
        "position": finding.position,
        "end": finding.end,
        "offset": finding.offset,
        "last_offset": finding.last_offset,
        "message": verdict.message,
        "facts": dict(finding.facts),
    }
