"""Batches and records as rows of the row schema, and the text encodings of bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kseg.format.segment.objects import Header, Record, RecordBatch
from kseg.schema import BATCH_COLUMNS, Row

_BATCH_NAMES = tuple(column.name for column in BATCH_COLUMNS[2:])

#: Returns bytes as (text, name of the encoding to add to the row, or None).
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
    """Return the bytes themselves: the encoder of rows that ``encoded`` encodes later."""
    return data, None


def encoded(row: Row, encode: Encoder) -> Row:
    """Return a row with its bytes encoded as text."""
    found: Row = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            _put(found, name, value, encode)
        else:
            headers = name == "headers" and isinstance(value, list)
            found[name] = [encoded(header, encode) for header in value] if headers else value
    return found


def batch_row(file: str, batch: RecordBatch) -> Row:
    """Return a batch as a row of BATCH_COLUMNS."""
    return {"kind": "batch", "file": file, **{name: getattr(batch, name) for name in _BATCH_NAMES}}


def record_row(file: str, record: Record, encode: Encoder) -> Row:
    """Return a record as a row of RECORD_COLUMNS.

    ``key_encoding`` and ``value_encoding`` are added if the encoder names an encoding.
    """
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
    """Return headers as the list in a record's row."""
    found: list[Row] = []
    for header in headers:
        # Kafka replaces bytes of a header key that are not UTF-8; a check reports them.
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
