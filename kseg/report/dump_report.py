"""Output of ``kseg dump``: one writer per format, over batches and runs of records.

The marks of a template are those of kcat where kcat has the thing, and ``%v`` for the value. ``%{NAME}`` is a field of the
record: its name is that in JSON, in columns and in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from typing import TextIO

from kseg import schema
from kseg.commands.dump import dump_log_lines, record_lines
from kseg.commands.dump.dump_items import BatchItem, FileStart, Item, RecordsItem, SegmentItem
from kseg.commands.dump.dump_log_lines import actual_encoding, json_header_pieces, text_pieces
from kseg.commands.dump.line_writer import CAPACITY, CELLS, MARK, MODERN_CELLS, Escapes, Layout, LineBuffer
from kseg.errors import UsageError
from kseg.format.record import control_records
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.segment.records_chunk import (
    ENCODERS,
    Record,
    batch_row,
    header_rows,
    record_row,
    timestamp_type,
    unchanged,
)
from kseg.format.storage.source import topic_partition
from kseg.report import row_formats as report_rows
from kseg.report.formats import View, binary
from kseg.report.row_formats import Pieces, RowSet
from kseg.text import encoded, escape_controls, iso_time, to_json, unknown_name

Rows = Iterable[SegmentItem]


def write_jsonl(dumped: Rows, out: TextIO, view: View) -> None:
    with _line_buffer(out) as lines:
        for item in dumped:
            if isinstance(item, RecordsItem):
                record_lines.write_json(item, view.encoding, lines)
            elif isinstance(item, BatchItem):
                lines.put(encoded(to_json(batch_row(item.file, item.batch)) + "\n"))
            lines.flush()


_spare: list[bytearray] = []


@contextmanager
def _line_buffer(out: TextIO) -> Iterator[LineBuffer]:
    """Lend a buffer for the lines of an output. The allocation takes a tenth of the time of a range of a file."""
    data = _spare.pop() if _spare else bytearray(CAPACITY)
    yield LineBuffer(binary(out), data=data)
    _spare.append(data)


#: Fields of the file, which are columns if they are asked for.
PLACE_NAMES = schema.names_of(schema.PLACE_COLUMNS)


def column_names(view: View) -> list[str]:
    """Return the names of the fields of the rows, in order: all that JSON Lines have, and that can be columns."""
    if not view.deep:
        return [column.name for column in schema.BATCH_COLUMNS]
    names = [column.name for column in schema.RECORD_COLUMNS]
    names[names.index("headers") : names.index("headers")] = ["key_encoding", "value_encoding"]
    names += [schema.DECODED.name] * view.decoded
    names += [column.name for column in view.contents]
    return names + [column.name for column in schema.SEARCH_COLUMNS] * view.searched


def rows(dumped: Rows, view: View) -> RowSet:
    """Return batches, or records, as rows. Large fields are in pieces, in the encoding of the view."""
    names = column_names(view)
    for name in view.columns:
        if name not in (*names, *PLACE_NAMES):
            raise UsageError(unknown_name("column", name, [*names, *PLACE_NAMES]))
    columns = (*(schema.RECORD_COLUMNS if view.deep else schema.BATCH_COLUMNS), *schema.PLACE_COLUMNS)
    return RowSet(_rows(dumped, view), columns, list(view.columns) or names)


def place_row(file: str, columns: Sequence[str]) -> schema.Row:
    """Return topic and partition of a file, if one of them is among the columns."""
    wanted = any(name in columns for name in PLACE_NAMES)
    return dict(zip(PLACE_NAMES, topic_partition(file), strict=True)) if wanted else {}


def _rows(dumped: Rows, view: View) -> Iterator[schema.Row]:
    for item in dumped:
        if isinstance(item, BatchItem):
            yield batch_row(item.file, item.batch) | place_row(item.file, view.columns)
        if isinstance(item, RecordsItem):
            yield from record_rows(item, item.kept, view)


def record_rows(item: RecordsItem, kept: Sequence[int], view: View) -> Iterator[schema.Row]:
    transaction, place = item.transaction, place_row(item.file, view.columns)
    for i in kept:
        large = item.topic is None and record_lines.is_large(item, i)
        row = record_row(item.file, item.chunk.record(i, contents=not large, transaction=transaction), unchanged)
        if large:
            _set_large_fields(row, item, i, view.encoding)
        if item.topic:
            row[schema.DECODED.name] = item.decoded(i)
        row |= item.content_fields(i) | place
        if item.searched:
            row.update(item.search_row(i))
        yield row


def write_csv(dumped: Rows, out: TextIO, view: View) -> None:
    """Write the names of the columns, unless the rows continue others, and one line per batch or record."""
    found = rows(dumped, view)
    if not view.deep or view.terminal:
        report_rows.write_csv(found, out, view)
        return
    names = tuple(found.names)
    last = tuple(name for name in names if name in _LAST_NAMES)
    with _line_buffer(out) as lines:
        if not view.continued:
            lines.put(encoded(",".join(names) + "\n"))
        for item in dumped:
            if not isinstance(item, RecordsItem):
                continue

            def other(kept: Sequence[int], item: RecordsItem = item) -> Iterator[str]:
                return report_rows.csv_lines(RowSet(record_rows(item, kept, view), found.columns, names), view)

            more = _more_cells(item, last, view) if last else None
            layout = None
            if names[len(names) - len(last) :] == last:
                batches = item.chunk.batches
                magic = batches.magic[item.row]
                stamped = timestamp_type(magic, batches.attributes[item.row])
                first = names[: len(names) - len(last)]
                layout = csv_layout(item.file, stamped, magic >= 2, view.encoding, first, item.transaction)
            record_lines.write_csv(item, layout, lines, other, more)
            lines.flush()


#: The columns after those that the layout of a line has.
_LAST_NAMES = frozenset(
    column.name
    for column in (
        schema.DECODED,
        *schema.CONTENT_COLUMNS["key"],
        *schema.CONTENT_COLUMNS["value"],
        *schema.SEARCH_COLUMNS,
    )
)


def _more_cells(item: RecordsItem, names: Sequence[str], view: View) -> Iterator[str]:
    """Yield the cells of these columns of each record, each with a comma before it."""
    for i, contents in zip(item.kept, item.all_contents(item.kept), strict=True):
        row = item.decoder.row_of(contents) if item.decoder and contents else {}
        if item.topic:
            row[schema.DECODED.name] = item.decoded(i)
        if item.searched:
            row.update(item.search_row(i))
        yield "".join(["," + report_rows.csv_cell(row.get(name), view) for name in names])


@lru_cache(maxsize=256)
def csv_layout(
    file: str,
    stamped: str | None,
    modern: bool,
    encoding: str,
    names: tuple[str, ...],
    transaction: tuple[str | None, str | None] = (None, None),
) -> Layout:
    """Return the layout of a data record's line; ``stamped`` is its timestamp type, ``modern`` is True for v2.

    ``transaction`` has its state and the transactional id.
    """
    state, transactional_id = transaction
    constants: dict[str, object] = {"kind": "record", "file": file, "timestamp_type": stamped}
    constants |= {"transaction_state": state, "transactional_id": transactional_id}
    constants |= place_row(file, names)
    cells = [name for name in names if name in CELLS and (modern or name not in MODERN_CELLS)]
    texts = [MARK if name in cells else report_rows.csv_cell(constants.get(name), View()) for name in names]
    return Layout(",".join(texts) + "\n", cells, encoding, Escapes({}, ()), header=MARK)


def _set_large_fields(row: schema.Row, run: RecordsItem, i: int, encoding: str) -> None:
    """Set key, value and headers of a large record, with the encodings of key and value."""
    chunk, lists = run.chunk, run.chunk.lists
    data = chunk.payload(run.row)
    places = (("key", lists.key_at[i], lists.key_size[i]), ("value", lists.value_at[i], lists.value_size[i]))
    for name, at, size in places:
        content = record_lines.field(data, at, size)
        if content is not None:
            actual = actual_encoding(content, encoding)
            if encoding == "auto" and actual == "base64":
                row[f"{name}_encoding"] = actual
            row[name] = Pieces(partial(text_pieces, content, actual))
    if lists.header_count[i]:
        row["headers"] = Pieces(
            lambda: chain("[", json_header_pieces(islice(chunk.header_fields(i), MAX_HEADERS), encoding), "]")
        )


def write_text(dumped: Rows, out: TextIO, view: View) -> None:
    with _line_buffer(out) as lines:
        for item in dumped:
            if isinstance(item, RecordsItem) and not view.terminal:
                record_lines.write_text(item, lines)
                lines.flush()
                continue
            if isinstance(item, FileStart):
                found = [line + "\n" for line in dump_log_lines.header_lines(item.file, item.first_offset)]
            elif isinstance(item, RecordsItem):
                found = record_lines.text_lines(item, item.kept)
            elif isinstance(item, BatchItem):
                found = [dump_log_lines.batch_line(item.batch) + "\n"]
            else:
                continue
            if view.terminal:
                found = [escape_controls(line[:-1]) + "\n" for line in found]
            lines.put(encoded("".join(found)))


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
    fields |= {column.name: _field(column.name) for column in schema.RECORD_COLUMNS[1:] if column.name not in fields}
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
        if isinstance(value, control_records.ControlRecord):
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
