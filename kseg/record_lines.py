"""Records as lines, entry by entry: what ``dump --deep`` writes as JSON Lines and as kafka-dump-log's text.

A record here costs a microsecond, since nothing is made of it but its line: what all records of an entry share is
put together once. The columns are those of ``rows``, the text that of ``dump_text``; tests hold the two ways equal.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from json import dumps
from json.encoder import encode_basestring

from kseg import dump_text, rows
from kseg.dump import Run
from kseg.escapes import escape_json
from kseg.kernel import increment_sequence
from kseg.log_format import CODEC_MASK, CONTROL
from kseg.records import timestamp_type


def to_json(row: object) -> str:
    """One line of JSON."""
    return escape_json(dumps(row, ensure_ascii=False, separators=(",", ":")))


#: Bytes as a JSON value; what needs saying of their encoding follows under the name given.
JsonWriter = Callable[[memoryview, str], str]


def _json_auto(data: memoryview, name: str) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f'"{base64.b64encode(data).decode()}","{name}_encoding":"base64"'
    quoted = encode_basestring(text)
    return quoted if text.isascii() and "\x7f" not in text else escape_json(quoted)


JSON_WRITERS: Mapping[str, JsonWriter] = {
    "auto": _json_auto,
    "utf8": lambda data, name: escape_json(encode_basestring(str(data, "utf-8", "replace"))),
    "hex": lambda data, name: f'"{data.hex()}"',
    "base64": lambda data, name: f'"{base64.b64encode(data).decode()}"',
}

# The columns in which the records of an entry differ; the others are put in once for all.
_OWN = ("offset", "timestamp", "sequence", "key", "value", "headers", "control")


def json_lines(run: Run, encoding: str) -> list[str]:
    """A line of JSON for each record, as ``rows.record_row`` would have it."""
    chunk, row = run.chunk, run.row
    batches, lists, data = chunk.batches, chunk.lists, chunk.payload(run.row)
    write = JSON_WRITERS[encoding]
    magic, attributes = batches.magic[row], batches.attributes[row]
    shared = {
        "kind": "record",
        "file": run.file,
        "position": batches.position[row],
        "timestamp_type": timestamp_type(magic, attributes),
    }
    line = _template(shared)
    control = magic >= 2 and attributes & CONTROL
    base_sequence, base_offset = batches.base_sequence[row], batches.base_offset[row]
    sequence: int | str = "null" if magic < 2 else base_sequence
    numbered = magic >= 2 and base_sequence >= 0
    lines = []
    for i in run.kept:
        offset, timestamp, key_size, value_size = (
            lists.offset[i],
            lists.timestamp[i],
            lists.key_size[i],
            lists.value_size[i],
        )
        if numbered:
            sequence = increment_sequence(base_sequence, offset - base_offset)
        key_at, value_at = lists.key_at[i], lists.value_at[i]
        lines.append(
            line
            % (
                offset,
                timestamp if timestamp != -1 else "null",
                sequence,
                write(data[key_at : key_at + key_size], "key") if key_size >= 0 else "null",
                write(data[value_at : value_at + value_size], "value") if value_size >= 0 else "null",
                _json_headers(run, i, encoding) if lists.header_count[i] else "[]",
                _json_control(run, i) if control else "null",
            )
        )
    return lines


def _template(shared: dict[str, object]) -> str:
    cells = [
        f'"{column.name}":' + ("%s" if column.name in _OWN else to_json(shared[column.name]).replace("%", "%%"))
        for column in rows.RECORD_COLUMNS
    ]
    return "{" + ",".join(cells) + "}\n"


def _json_headers(run: Run, i: int, encoding: str) -> str:
    return to_json(rows.header_rows(run.chunk.headers(i), rows.ENCODERS[encoding]))


def _json_control(run: Run, i: int) -> str:
    control = run.chunk.control(i)
    return to_json(control.as_dict()) if control else "null"


def text_lines(run: Run) -> list[str]:
    """The line that kafka-dump-log --print-data-log prints of each record."""
    chunk, batch = run.chunk, run.batch
    lists, data = chunk.lists, chunk.payload(run.row)
    if batch.control or batch.magic < 2:
        wrapped = batch.magic < 2 and chunk.batches.attributes[run.row] & CODEC_MASK
        return [
            dump_text.record_line(
                chunk.record(i), batch, print_data=True, inner_crc=_inner_crc(run, i, data) if wrapped else None
            )
            + "\n"
            for i in run.kept
        ]
    kind = batch.timestamp_type or dump_text.NO_TIMESTAMP_TYPE
    lines = []
    for i in run.kept:
        if lists.header_count[i]:
            lines.append(dump_text.record_line(chunk.record(i), batch, print_data=True) + "\n")
            continue
        key_at, key_size, value_at, value_size = (
            lists.key_at[i],
            lists.key_size[i],
            lists.value_at[i],
            lists.value_size[i],
        )
        line = dump_text.compose(
            kind,
            lists.offset[i],
            lists.timestamp[i],
            data[key_at : key_at + key_size] if key_size >= 0 else None,
            data[value_at : value_at + value_size] if value_size >= 0 else None,
            f" sequence: {chunk.sequence(i, run.row)} headerKeys: []",
            True,
        )
        lines.append(line + "\n")
    return lines


def _inner_crc(run: Run, i: int, data: memoryview) -> tuple[int, bool]:
    lists = run.chunk.lists
    value_end = lists.value_at[i] + max(lists.value_size[i], 0)
    return dump_text.message_crc(data, run.batch.magic, lists.key_at[i], value_end)
