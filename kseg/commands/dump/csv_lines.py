"""Write records as lines of CSV, from the columns into a reused buffer. Compiled, like ``line_writer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kseg import text as texts
from kseg.commands.dump.line_writer import (
    CELLS,
    ENCODINGS,
    Layout,
    LineBuffer,
    number_of,
    put_base64,
    put_headers,
    put_hex,
    put_piece,
    room_of,
)
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.record.memory import copy_bytes, is_ascii, is_utf8, put_number
from kseg.text import AFTER_MINUS, AFTER_PLUS, FORMULA_STARTS

# C constants when compiled.
TIMESTAMP, KEY, VALUE, HEADERS, NOTHING, KEY_ENCODING, VALUE_ENCODING = map(
    CELLS.index, ("timestamp", "key", "value", "headers", "nothing", "key_encoding", "value_encoding")
)
UTF8, AUTO, HEX = map(ENCODINGS.index, ("utf8", "auto", "hex"))
# Bytes that a cell has quotes for: quotes, commas, CR and LF.
SPECIAL = bytes(byte in b'",\r\n' for byte in range(256))
_FIRST_BYTES = {start.encode()[0] for start in FORMULA_STARTS}
IS_START, IS_AFTER_PLUS, IS_AFTER_MINUS = (
    bytes(byte in allowed for byte in range(256))
    for allowed in (_FIRST_BYTES, AFTER_PLUS.encode(), AFTER_MINUS.encode())
)
NOTE = b"base64"
QUOTE, APOSTROPHE, PLUS, MINUS = 34, 39, 43, 45
# The bytes of a header's template that need two quotes.
DOUBLED = 16


def write_csv_lines(
    lines: LineBuffer, layout: Layout, json: Layout, batches: BatchColumns, row: int, records: RecordColumns, data: Any,
    first: int, stop: int, other: Callable[[int], Iterable[bytes]],
) -> None:  # fmt: skip
    """Write the lines of the records ``first`` to ``stop`` (exclusive) of batch ``row``, whose bytes are in ``data``.

    ``layout`` has the template of the line, ``json`` that of headers. ``other`` is that of ``line_writer.write_lines``.
    """
    out = lines.data
    for i in range(first, stop):
        count = records.header_count[i]
        room = room_of(layout, records, i, data) + count * (json.header_room + DOUBLED)
        if room > lines.capacity - lines.at:
            lines.flush()
        at = -1
        if room <= lines.capacity and count <= MAX_HEADERS:
            at = put_csv_line(out, lines.at, layout, json, batches, row, records, i, data)
        if at < 0:
            for piece in other(i):
                lines.put(piece)
        else:
            lines.at = at


def put_csv_line(
    out: Any, at: int, layout: Layout, json: Layout, batches: BatchColumns, row: int, records: RecordColumns, i: int,
    data: Any,
) -> int:  # fmt: skip
    """Write the line of record ``i`` at ``out[at]``, which has enough room; return the position after it, or -1."""
    for n in range(layout.count):
        cell = layout.cells[n]
        at = put_piece(out, at, layout, n)
        if cell == HEADERS:
            at = put_json_headers(out, at, json, data, records.headers_at[i], records.header_count[i])
        elif cell in (KEY, KEY_ENCODING):
            at = put_content(out, at, layout, data, records.key_at[i], records.key_size[i], cell == KEY)
        elif cell in (VALUE, VALUE_ENCODING):
            at = put_content(out, at, layout, data, records.value_at[i], records.value_size[i], cell == VALUE)
        elif cell != NOTHING and not (cell == TIMESTAMP and records.timestamp[i] == NO_TIMESTAMP):
            at = put_number(out, at, number_of(cell, batches, row, records, i))
        if at < 0:
            return -1
    return at


def put_content(out: Any, at: int, layout: Layout, data: Any, first: int, size: int, content: bool) -> int:
    """Write a key or a value or, without ``content``, the note on its encoding. Return the position after it, or -1."""
    if size < 0:
        return at
    text = layout.encoding == UTF8 or layout.encoding == AUTO
    if text and not (is_ascii(data, first, size) or is_utf8(data, first, size)):
        if layout.encoding == UTF8:
            return -1
        return put_base64(out, at, layout, data, first, first + size) if content else copy_bytes(out, at, NOTE, 0, 6)
    if not content:
        return at
    if text or not size:
        return put_cell(out, at, data, first, size)
    if layout.encoding == HEX:
        return put_hex(out, at, layout, data, first, first + size)
    return put_base64(out, at, layout, data, first, first + size)


def put_cell(out: Any, at: int, data: Any, first: int, size: int) -> int:
    """Write text as a cell: in quotes if it is empty or has a special character. Return the position after it.

    A formula gets an apostrophe. There is room for it, because the first byte of a formula is not a quote.
    """
    begin = at
    formula = is_formula(data, first, size)
    out[at] = QUOTE
    if formula:
        out[at + 1] = APOSTROPHE
    at += 1 + formula
    special = 0
    for i in range(first, first + size):
        byte = data[i]
        special |= SPECIAL[byte]
        out[at] = byte
        out[at + 1] = QUOTE  # overwritten, unless the byte is a quote
        at += 1 + (byte == QUOTE)
    if size and not special:
        if formula:
            out[begin] = APOSTROPHE
        return copy_bytes(out, begin + formula, data, first, size)
    out[at] = QUOTE
    return at + 1


def is_formula(data: Any, first: int, size: int) -> bool:
    """Return what ``kseg.text.is_formula`` returns for ``data[first : first + size]`` as text."""
    if size < 2 or not IS_START[data[first]]:
        return False
    if data[first] >= 0x80:  # rare: a sign of two or three bytes, and the next character of up to four
        return texts.is_formula((bytes(data[first : first + min(size, 7)]).decode("utf-8", "ignore"),))
    allowed = IS_AFTER_PLUS if data[first] == PLUS else IS_AFTER_MINUS
    if data[first] not in (PLUS, MINUS):
        return True
    for i in range(first + 1, first + size):  # noqa: SIM110 - a generator is not compiled into a loop
        if not allowed[data[i]]:
            return True
    return False


def put_json_headers(out: Any, at: int, json: Layout, data: Any, first: int, count: int) -> int:
    """Write headers as a cell with a JSON array; return the position after it, or -1."""
    quoted = count > 0
    if quoted:
        out[at] = QUOTE
        at += 1
    begin = at
    out[at] = 91  # an opening bracket
    end = put_headers(out, at + 1, json, data, first, count)
    if end < 0:
        return -1
    out[end] = 93
    end += 1
    if not quoted:
        return end
    quotes = 0
    for i in range(begin, end):
        quotes += out[i] == QUOTE
    after = at = end + quotes
    while at > end:
        end -= 1
        at -= 1
        out[at] = out[end]
        if out[end] == QUOTE:
            at -= 1
            out[at] = QUOTE
    out[after] = QUOTE
    return after + 1
