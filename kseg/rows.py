"""The row schema: one list of columns for tables, JSON Lines and CSV alike, and how bytes are written as text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kseg.findings import Verdict
from kseg.records import Header, Record, RecordBatch

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """``type`` is int, bool, text, bytes, headers or object; all but ``kind`` and ``file`` may be null."""

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
    Column("base_timestamp", "int", "epoch ms; with a delete horizon that is what stands here"),
    Column("max_timestamp", "int", "epoch ms"),
    Column("crc", "int", "as stored, unsigned"),
    Column("crc_valid", "bool", "whether it holds; null when not checked"),
    Column("producer_id", "int", "-1 is none"),
    Column("producer_epoch", "int", "-1 is none"),
    Column("base_sequence", "int", "-1 is none"),
    Column("partition_leader_epoch", "int", "-1 is none"),
    Column("transactional", "bool", "part of a transaction"),
    Column("control", "bool", "holds control records"),
    Column("delete_horizon", "int", "epoch ms (KIP-534)"),
)

RECORD_COLUMNS = (
    Column("kind", "text", "record"),
    Column("file", "text", "the path as it was given"),
    Column("position", "int", "first byte of the entry that holds it"),
    Column("offset", "int", "the record's offset"),
    Column("timestamp", "int", "epoch ms"),
    Column("timestamp_type", "text", "CreateTime or LogAppendTime"),
    Column("sequence", "int", "-1 is none"),
    Column("key", "bytes", "as --bytes says"),
    Column("value", "bytes", "as --bytes says"),
    Column("headers", "headers", "list of key and value"),
    Column("control", "object", "the decoded marker of a control record"),
)

_BATCH_NAMES = tuple(column.name for column in BATCH_COLUMNS[2:])

#: A writer of bytes: (text, encoding to note beside it or None).
Encoder = Callable[[bytes], tuple[str, str | None]]


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
