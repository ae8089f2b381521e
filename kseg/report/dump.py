"""Output of ``kseg dump``: one writer per format, over batches and runs of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, TextIO

from kseg import schema
from kseg.commands.dump import kafka_text, record_lines
from kseg.commands.dump.line_writer import LineBuffer
from kseg.commands.dump.rows import BatchItem, FileStart, RecordsItem, SegmentItem
from kseg.commands.dump.text_pieces import actual_encoding, json_header_pieces, text_pieces
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.segment.rows import batch_row, record_row, unchanged
from kseg.report.formats import View, binary
from kseg.report.rich_parts import console
from kseg.report.rows import Pieces, RowSet, cell, pages, text_rows
from kseg.report.tables import print_cells
from kseg.text import encoded, escape_controls, to_json

Rows = Iterable[SegmentItem]


def write_jsonl(dumped: Rows, out: TextIO, view: View) -> None:
    lines = LineBuffer(binary(out))
    for item in dumped:
        if isinstance(item, RecordsItem):
            record_lines.write_json(item, view.encoding, lines)
        elif isinstance(item, BatchItem):
            lines.put(encoded(to_json(batch_row(item.file, item.batch)) + "\n"))
        lines.flush()


def rows(dumped: Rows, view: View) -> RowSet:
    """Return batches, or records, as rows. Large fields are in pieces, in the encoding of the view."""
    columns = schema.RECORD_COLUMNS if view.deep else schema.BATCH_COLUMNS
    names = [column.name for column in columns]
    if view.deep:
        names[names.index("headers") : names.index("headers")] = ["key_encoding", "value_encoding"]
        names += [schema.DECODED.name] * view.decoded
    return RowSet(_rows(dumped, view), columns, names)


def _rows(dumped: Rows, view: View) -> Iterator[schema.Row]:
    for item in dumped:
        if isinstance(item, BatchItem):
            yield batch_row(item.file, item.batch)
        if not isinstance(item, RecordsItem):
            continue
        for i in item.kept:
            large = item.topic is None and record_lines.is_large(item, i)
            row = record_row(item.file, item.chunk.record(i, contents=not large), unchanged)
            if large:
                _set_large_fields(row, item, i, view.encoding)
            if item.topic:
                row[schema.DECODED.name] = item.decoded(i)
            yield row


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
    lines = LineBuffer(binary(out))
    for item in dumped:
        if isinstance(item, RecordsItem) and not view.terminal:
            record_lines.write_text(item, lines)
            lines.flush()
            continue
        if isinstance(item, FileStart):
            found = [line + "\n" for line in kafka_text.header_lines(item.file, item.first_offset)]
        elif isinstance(item, RecordsItem):
            found = record_lines.text_lines(item, item.kept)
        elif isinstance(item, BatchItem):
            found = [kafka_text.batch_line(item.batch) + "\n"]
        else:
            continue
        if view.terminal:
            found = [escape_controls(line[:-1]) + "\n" for line in found]
        lines.put(encoded("".join(found)))


def write_table(dumped: Rows, out: TextIO, view: View) -> None:
    columns = _RECORD_TABLE if view.deep else _BATCH_TABLE
    if view.terminal and console(out).width < _WIDE:
        columns = _RECORD_TABLE_NARROW if view.deep else _BATCH_TABLE_NARROW
    options = {name: {"justify": align, "overflow": "ellipsis", "no_wrap": align == "right"} for name, align in columns}
    # Rows become cells before a page is collected: a page of large values would take gigabytes.
    shown = map(_shown, text_rows(rows(dumped, view), view))
    found = ({name: cell(row.get(name), name) for name in ("file", *options)} for row in shown)
    for page in pages(found):
        print_cells(out, options, [([row[name] for name in options], "") for row in page], heading=page[0]["file"])


_RECORD_TABLE: tuple[tuple[str, Any], ...] = (
    ("offset", "right"), ("timestamp", "right"), ("sequence", "right"), ("key", "left"), ("value", "left"),
    ("headers", "left"), ("control", "left"),
)  # fmt: skip
_BATCH_TABLE: tuple[tuple[str, Any], ...] = (
    ("position", "right"), ("size", "right"), ("magic", "right"), ("base_offset", "right"), ("last_offset", "right"),
    ("record_count", "right"), ("compression", "left"), ("max_timestamp", "right"), ("producer_id", "right"),
    ("base_sequence", "right"), ("partition_leader_epoch", "right"), ("crc_valid", "left"), ("flags", "left"),
)  # fmt: skip


# Below this width the wide tables would cut numbers; the narrow ones fit 80 columns.
_WIDE = 160
_RECORD_TABLE_NARROW = tuple(column for column in _RECORD_TABLE if column[0] in ("offset", "timestamp", "key", "value"))
_BATCH_TABLE_NARROW = tuple(
    column
    for column in _BATCH_TABLE
    if column[0] in ("position", "size", "base_offset", "last_offset", "compression", "crc_valid")
)


def _shown(row: schema.Row) -> schema.Row:
    """Return a row for a table: the flags of a batch in one cell, a decoded key and value in separate cells."""
    if row["kind"] == "batch":
        flags = ("transactional", "control", "delete_horizon")
        return {**row, "flags": " ".join(name for name in flags if row[name]) or None}
    return {**row, **(row.get(schema.DECODED.name) or {})}
