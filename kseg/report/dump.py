"""Output of ``kseg dump``: one writer per format, over batches and runs of records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, TextIO

from kseg import schema
from kseg.commands.dump import kafka_text, record_lines
from kseg.commands.dump.line_writer import LineBuffer
from kseg.commands.dump.rows import BatchItem, FileStart, RecordsItem, SegmentItem
from kseg.commands.dump.text_pieces import actual_encoding, json_header_pieces, text_pieces
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.segment import rows
from kseg.report.formats import View, binary
from kseg.report.rich_parts import Table, Text, box, console
from kseg.text import encoded, escape_controls, to_json

Rows = Iterable[SegmentItem]

_TABLE_PAGE = 500
_CSV_SPECIAL = re.compile(r'[",\r\n]')


def write_jsonl(dumped: Rows, out: TextIO, view: View) -> None:
    lines = LineBuffer(binary(out))
    for item in dumped:
        if isinstance(item, RecordsItem):
            record_lines.write_json(item, view.encoding, lines)
        elif isinstance(item, BatchItem):
            lines.put(encoded(to_json(rows.batch_row(item.file, item.batch)) + "\n"))
        lines.flush()


#: The text of large fields by their names, in pieces, as often as it is asked for.
_Large = Mapping[str, Callable[[], Iterable[str]]]


def _rows(dumped: Rows, view: View) -> Iterator[tuple[schema.Row, _Large]]:
    """Yield everything as rows, for formats that are not meant for millions of them; large fields are not in the row."""
    encode = rows.ENCODERS[view.encoding]
    for item in dumped:
        if isinstance(item, BatchItem):
            yield rows.batch_row(item.file, item.batch), {}
        if not isinstance(item, RecordsItem):
            continue
        for i in item.kept:
            is_large = item.topic is None and record_lines.is_large(item, i)
            row = rows.record_row(item.file, item.chunk.record(i, contents=not is_large), encode)
            large = _large_fields(item, i, row, view.encoding) if is_large else {}
            if item.topic:
                row[schema.DECODED.name] = item.decoded(i)
            yield row, large


def _large_fields(run: RecordsItem, i: int, row: schema.Row, encoding: str) -> _Large:
    """Return key, value and headers of a large record. The encodings of key and value are added to the row."""
    found: dict[str, Callable[[], Iterable[str]]] = {}
    chunk, lists = run.chunk, run.chunk.lists
    data = chunk.payload(run.row)
    places = (("key", lists.key_at[i], lists.key_size[i]), ("value", lists.value_at[i], lists.value_size[i]))
    for name, at, size in places:
        content = record_lines.field(data, at, size)
        if content is not None:
            actual = actual_encoding(content, encoding)
            if encoding == "auto" and actual == "base64":
                row[f"{name}_encoding"] = actual
            found[name] = partial(text_pieces, content, actual)
    if lists.header_count[i]:
        found["headers"] = lambda: chain(
            "[", json_header_pieces(islice(chunk.header_fields(i), MAX_HEADERS), encoding), "]"
        )
    return found


def write_csv(dumped: Rows, out: TextIO, view: View) -> None:
    columns = [column.name for column in (schema.RECORD_COLUMNS if view.deep else schema.BATCH_COLUMNS)]
    if view.deep:
        columns[columns.index("headers") : columns.index("headers")] = ["key_encoding", "value_encoding"]
        columns += [schema.DECODED.name] * view.decoded
    if not view.continued:
        out.write(",".join(columns) + "\n")
    for row, large in _rows(dumped, view):
        if not large:
            out.write(",".join(csv_cell(row.get(name), view) for name in columns) + "\n")
            continue
        for name in columns:
            out.write("," if name != columns[0] else "")
            out.writelines(_csv_pieces(large[name], view) if name in large else (csv_cell(row.get(name), view),))
        out.write("\n")


def csv_cell(value: Any, view: View) -> str:
    """Return a CSV cell: null is empty, an empty text is ``""``. Python 3.11's csv module writes both alike."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = to_json(value) if isinstance(value, (dict, list)) else str(value)
    if view.terminal:
        text = escape_controls(text)
    if isinstance(value, int) or (text and not _CSV_SPECIAL.search(text)):
        return text
    return '"' + text.replace('"', '""') + '"'


def _csv_pieces(content: Callable[[], Iterable[str]], view: View) -> Iterator[str]:
    """Yield the CSV cell that csv_cell returns for a text, in pieces."""

    def texts() -> Iterable[str]:
        return map(escape_controls, content()) if view.terminal else content()

    plain = any(texts()) and not any(map(_CSV_SPECIAL.search, texts()))
    quote = "" if plain else '"'
    yield quote
    for text in texts():
        yield text.replace('"', '""')
    yield quote


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
    shown_on = console(out)
    columns = _RECORD_TABLE if view.deep else _BATCH_TABLE
    if view.terminal and shown_on.width < _WIDE:
        columns = _RECORD_TABLE_NARROW if view.deep else _BATCH_TABLE_NARROW
    names = [name for name, _ in columns]
    # Rows become cells before a page is collected: a page of large values would take gigabytes.
    for page in pages(_cells(row, large, names) for row, large in _rows(dumped, view)):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(page[0]["file"]), title_justify="left")
        for name, align in columns:
            table.add_column(name, justify=align, overflow="ellipsis", no_wrap=align == "right")
        for row in page:
            table.add_row(*(Text(row[name]) for name in names))
        shown_on.print(table)


def _cells(row: schema.Row, large: _Large, names: Sequence[str]) -> schema.Row:
    """Return the file of a row and its cells, by the names of their columns."""
    shown = _shown(row)
    cells = {name: cut(large[name]()) if name in large else cell(shown.get(name)) for name in names}
    return {"file": cell(row["file"]), **cells}


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
_WIDE = 150
_RECORD_TABLE_NARROW = tuple(column for column in _RECORD_TABLE if column[0] in ("offset", "timestamp", "key", "value"))
_BATCH_TABLE_NARROW = tuple(
    column
    for column in _BATCH_TABLE
    if column[0] in ("position", "size", "base_offset", "last_offset", "compression", "crc_valid")
)


def pages(found: Iterator[schema.Row]) -> Iterator[list[schema.Row]]:
    """Yield the rows of one table each: of one file, and few enough to lay out at once."""
    for _, of_file in groupby(found, key=lambda row: row["file"]):
        while page := list(islice(of_file, _TABLE_PAGE)):
            yield page


def _shown(row: schema.Row) -> schema.Row:
    """Return a row for a table: the flags of a batch in one cell, a decoded key and value in separate cells."""
    if row["kind"] == "batch":
        flags = ("transactional", "control", "delete_horizon")
        return {**row, "flags": " ".join(name for name in flags if row[name]) or None}
    return {**row, **(row.get(schema.DECODED.name) or {})}


#: Characters of a cell. Longer texts are cut: rich needs about 80 bytes of memory per character.
_CELL_LENGTH = 10_000


def cell(value: Any) -> str:
    """Return the text of a table cell: at most _CELL_LENGTH characters, followed by the whole length if it was cut."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return cut((to_json(value) if isinstance(value, (dict, list)) else str(value),))


def cut(texts: Iterable[str]) -> str:
    """Return the first _CELL_LENGTH characters of a text that comes in pieces, and its length if there are more."""
    first, length = "", 0
    for text in texts:
        first += text[: _CELL_LENGTH - len(first)]
        length += len(text)
    return escape_controls(first) + (f"… ({length:,} characters)" if length > _CELL_LENGTH else "")
