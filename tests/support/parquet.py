"""Parquet rows as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kseg import schema


def as_json(table: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Return rows of a columnar table as those of ``--format jsonl --bytes base64``, with the base name as file."""
    columns = schema.RECORD_COLUMNS if kind == "record" else schema.BATCH_COLUMNS
    for row in table.to_pylist():
        plain: dict[str, Any] = {"kind": kind}
        for column in columns[1:]:
            value = row[f"{column.name}_ms" if column.type == "ms" else column.name]
            if column.type == "headers":
                value = [{"key": header["key"], "value": _text(header["value"])} for header in value]
            elif column.type == "object":
                value = value and json.loads(value)
            plain[column.name] = _text(value) if column.type == "bytes" else value
        yield {**plain, "file": Path(row["file"]).name}


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
