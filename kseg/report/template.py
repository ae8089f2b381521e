"""Output of ``kseg dump --template``: a line of the user's own for each record.

The marks are those of kcat where kcat has the thing, and ``%v`` for the value. ``%{NAME}`` is a field of the record: its
name is that in JSON, in columns and in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from kseg.commands.dump.dump_items import Item, RecordsItem
from kseg.errors import UsageError
from kseg.format.record.control_records import ControlRecord
from kseg.format.segment.records_chunk import ENCODERS, Record, header_rows
from kseg.format.storage.source import topic_partition
from kseg.report.formats import View, binary
from kseg.schema import RECORD_COLUMNS
from kseg.text import encoded, escape_controls, iso_time, to_json, unknown_name

#: Mark -> meaning, for the help text and the documentation.
MARKS = {
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%T": "timestamp in milliseconds",
    "%i": "timestamp in ISO 8601",
    "%k": "key",
    "%v": "value",
    "%K": "size of the key, -1 for null",
    "%S": "size of the value, -1 for null",
    "%h": "headers as JSON",
    "%f": "file",
    "%b": "position of the batch",
    "%{NAME}": "the field with this name, such as %{transaction_state}",
    "%%": "%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%\{([^}]+)\}|%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)

_Part = Callable[[Record, str], bytes]


def write_template(dumped: Iterable[Item], out: TextIO, view: View) -> None:
    """Write each record in the template of the view, and a line feed unless the template ends with an escape.

    Keys and values are written as their bytes; on a terminal control characters are escaped. Raises UsageError.
    """
    parts = parse(view.template, view)
    raw = binary(out)
    for item in dumped:
        if isinstance(item, RecordsItem):
            raw.writelines(b"".join([part(record, item.file) for part in parts]) for record in item.records())
    raw.flush()


def parse(template: str, view: View) -> Sequence[_Part]:
    """Return the parts of a template. Raises UsageError for an unknown mark."""
    shown = _shown_bytes(view)
    encode = ENCODERS[view.encoding]
    fields: dict[str, _Part] = {
        "t": lambda record, file: _text(topic_partition(file)[0]),
        "p": lambda record, file: _text(topic_partition(file)[1]),
        "o": lambda record, file: _text(record.offset),
        "T": lambda record, file: _text(-1 if record.timestamp is None else record.timestamp),
        "i": lambda record, file: b"" if record.timestamp is None else iso_time(record.timestamp).encode(),
        "k": lambda record, file: shown(record.key),
        "v": lambda record, file: shown(record.value),
        "K": lambda record, file: _size(record.key),
        "S": lambda record, file: _size(record.value),
        "h": lambda record, file: encoded(to_json(header_rows(record.headers, encode))),
        "f": lambda record, file: encoded(escape_controls(file)),
        "b": lambda record, file: _text(record.position),
        "%": lambda record, file: b"%",
    }
    fields |= {name: fields[mark] for name, mark in _NAMED.items()}
    fields |= {column.name: _field(column.name) for column in RECORD_COLUMNS[1:] if column.name not in fields}
    parts: list[_Part] = []
    for name, mark, escape, text, lone in _TOKEN.findall(template):
        if len(name) > 1 and name in fields:
            parts.append(fields[name])
            continue
        if name:
            names = [known for known in fields if len(known) > 1]
            raise UsageError(f"--template: {unknown_name('field', name, names)}")
        if mark and mark not in fields:
            raise UsageError(f"--template: unknown mark %{mark}: expected one of {' '.join(MARKS)}")
        if escape and escape not in _ESCAPES:
            raise UsageError(rf"--template: unknown escape \{escape}: expected one of \n \t \r \0 \\")
        if lone:
            raise UsageError(f"--template: {lone!r} at the end: write {lone * 2}")
        parts.append(fields[mark] if mark else _constant(_ESCAPES[escape] if escape else text.encode()))
    if not template.endswith(("\\n", "\\0", "\\r")):
        parts.append(_constant(b"\n"))
    return parts


#: The names of the fields that have marks.
_NAMED = {"topic": "t", "partition": "p", "offset": "o", "timestamp": "T", "key": "k", "value": "v", "headers": "h",
          "file": "f", "position": "b", "key_size": "K", "value_size": "S"}  # fmt: skip


def _field(name: str) -> _Part:
    """Return a field of the record as text; an object as JSON, and nothing for null."""

    def part(record: Record, file: str) -> bytes:
        value = getattr(record, name)
        if isinstance(value, ControlRecord):
            value = to_json(value.as_dict())
        return b"" if value is None else encoded(escape_controls(str(value)))

    return part


def _constant(text: bytes) -> _Part:
    return lambda record, file: text


def _text(value: object) -> bytes:
    return b"" if value is None else str(value).encode()


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _shown_bytes(view: View) -> Callable[[bytes | None], bytes]:
    if view.encoding in ("hex", "base64"):
        encode = ENCODERS[view.encoding]
        return lambda data: b"" if data is None else str(encode(data)[0]).encode()
    if view.terminal:
        return lambda data: b"" if data is None else encoded(escape_controls(data.decode("utf-8", "backslashreplace")))
    return lambda data: data or b""
