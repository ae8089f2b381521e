"""The row schema: one list of columns for every output, from tables to Spark, and how bytes are written as text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kseg.findings import Verdict
from kseg.format.segment.objects import Header, Record, RecordBatch
from kseg.schema import BATCH_COLUMNS, Row

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


def unchanged(data: bytes) -> tuple[bytes, None]:
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
