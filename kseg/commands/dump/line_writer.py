"""The hot loop of deep dumps: write records as lines of bytes, from the columns into a reused buffer.

Plain Python that Cython compiles. Without compiling it is slower than Python's strings, so the plain engine does not use
it. A Layout defines the format of a line: a template, and tables of escapes. Records that need more than a scan of their
bytes are left to the caller.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, BinaryIO

from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS, header_field
from kseg.format.record.encoder import headers_end
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import NO_TIMESTAMP
from kseg.format.record.memory import copy_bytes, decode_point, is_ascii, put_number

COMPILED = not __file__.endswith(".py")


#: The cells that a template's marks can be.
CELLS = (
    "position", "offset", "timestamp", "sequence", "key_size", "value_size", "producer_id", "producer_epoch",
    "partition_leader_epoch", "key", "value", "headers", "nothing",
    "key_encoding", "value_encoding",  # only in ``csv_lines``
)  # fmt: skip
POSITION, OFFSET, TIMESTAMP, SEQUENCE, KEY_SIZE, VALUE_SIZE = range(6)
PRODUCER_ID, PRODUCER_EPOCH, LEADER_EPOCH, KEY, VALUE, HEADERS, NOTHING = range(6, 13)
#: The cells of numbers that v0 and v1 lack.
MODERN_CELLS = ("sequence", "producer_id", "producer_epoch", "partition_leader_epoch")

#: The mark of a cell in a template.
MARK = "\0"

# How bytes are written. utf8: as text or not at all; auto: as text, otherwise in base64 with a note; hex and base64: always.
ENCODINGS = ("utf8", "auto", "hex", "base64")
UTF8, AUTO, HEX, BASE64 = range(len(ENCODINGS))
_HEX_DIGITS = b"0123456789abcdef"
_BASE64_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

# A byte of a key becomes at most six (\u001f), an int64 at most twenty.
GROWTH = 6
NUMBER = 20
# Larger records are written by the caller. The buffer should stay in the processor's cache.
CAPACITY = 512 * 1024
# For shorter texts a call costs more than it saves.
_LONG = 12


class Escapes:
    r"""How text is escaped: ``short`` has a pair of characters for some ASCII characters; the others are unchanged.

    ``marks`` are the code points below ``STEERING_END`` that are written as ``\uNNNN``.
    """

    def __init__(self, short: Mapping[str, str], marks: Iterable[int]) -> None:
        self.verbatim = not short and not marks
        # For each byte: the bytes to write in the two low bytes, their number above; 0 needs the slow path. So quotes
        # take the same path as letters: a branch for each took a third of the time for JSON within JSON.
        codes = [byte | 1 << 16 for byte in range(128)] + [0] * 128
        for character, escape in short.items():
            codes[ord(character)] = ord(escape[0]) | ord(escape[1]) << 8 | 2 << 16
        marked = bytearray(STEERING_END)
        for point in marks:
            marked[point] = 1
            if point < 128:
                codes[point] = 0
        self.codes = codes
        self.marked = marked


#: All code points that control a terminal are lower: the last is U+2069.
STEERING_END = 0x2070


class Layout:
    """The format of a line: ``template`` has a MARK for each of ``cells``, which are names in CELLS.

    ``encoding`` (one of ENCODINGS), ``escapes`` and ``quote`` define how keys and values are written. A null key or value,
    or a timestamp of -1, is written as ``null``; if that is empty, a null is dropped with the text before it. ``header`` is
    the template of a header with the MARK of its key and optionally of its value; headers are joined with commas.
    ``notes`` follow a key, a value, or a header's value that ``auto`` wrote in base64.
    """

    def __init__(
        self, template: str, cells: Sequence[str], encoding: str, escapes: Escapes, *, header: str,
        quote: str = "", null: str = "", notes: Sequence[str] = ("", "", ""),
    ) -> None:  # fmt: skip
        pieces = template.split(MARK)
        in_header = [*header.split(MARK), ""][:3]
        every = [piece.encode("utf-8", "backslashreplace") for piece in (*pieces, *in_header, *notes, null)]
        self.text = b"".join(every)
        self.ends = array("q", [0, *accumulate(map(len, every))])
        self.cells = array("q", [*map(CELLS.index, cells), NOTHING])
        self.count = len(pieces)
        self.header_values = header.count(MARK) == 2
        self.header_at = len(pieces)
        self.notes_at = self.header_at + 3
        self.null_at = self.notes_at + 3
        self.leaves_out = not null
        self.encoding = ENCODINGS.index(encoding)
        self.codes = escapes.codes
        self.marked = escapes.marked
        self.verbatim = escapes.verbatim and not quote
        self.quote = ord(quote) if quote else 0
        # The size of a record without headers, and of each header, without the bytes of keys and values.
        self.room = len(self.text) + NUMBER * len(cells) + 2 * len(null) + 16
        self.header_room = sum(map(len, every[self.header_at :])) + 8


class LineBuffer:
    """A reused output buffer for ``sink`` with ``at`` pending bytes. ``data`` is used instead of a new buffer."""

    def __init__(self, sink: BinaryIO, capacity: int = CAPACITY, data: bytearray | None = None) -> None:
        self.sink = sink
        self.at = 0
        self.data = bytearray(capacity) if data is None else data
        self.capacity = len(self.data)

    def flush(self) -> None:
        """Write the pending bytes to the sink."""
        if self.at:
            self.sink.write(memoryview(self.data)[: self.at])
            self.at = 0

    def extend_line(self, text: bytes, end: bytes) -> None:
        """Insert ``text`` before the ``end`` of the last line, which is pending."""
        self.at -= len(end)
        if len(text) + len(end) > self.capacity - self.at:
            self.put(text)
        else:
            self.at = copy_bytes(self.data, self.at, text, 0, len(text))
        self.at = copy_bytes(self.data, self.at, end, 0, len(end))

    def put(self, text: bytes) -> None:
        """Add bytes of any size."""
        self.flush()
        self.sink.write(text)


def write_lines(
    lines: LineBuffer, layout: Layout, batches: BatchColumns, row: int, records: RecordColumns, data: Any,
    first: int, stop: int, other: Callable[[int], Iterable[bytes]],
) -> None:  # fmt: skip
    """Write the lines of the records ``first`` to ``stop`` (exclusive) of batch ``row``, whose bytes are in ``data``.

    ``other`` returns the line, in pieces, of a record that can't be written here: its text is not UTF-8 and the layout has
    no encoding for it, or it is larger than the buffer.
    """
    out = lines.data
    for i in range(first, stop):
        header_count = records.header_count[i]
        room = room_of(layout, records, i, data) + header_count * layout.header_room
        if room > lines.capacity - lines.at:
            lines.flush()
        at = -1
        if room <= lines.capacity and header_count <= MAX_HEADERS:
            at = put_line(out, lines.at, layout, batches, row, records, i, data)
        if at < 0:
            for piece in other(i):
                lines.put(piece)
        else:
            lines.at = at


def room_of(layout: Layout, records: RecordColumns, i: int, data: Any) -> int:
    """Return the most bytes of the line of record ``i``, without the layout's text around headers."""
    key_size = records.key_size[i]
    value_size = records.value_size[i]
    bytes_of = (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
    if records.header_count[i]:
        bytes_of += headers_end(data, records.headers_at[i], records.header_count[i]) - records.headers_at[i]
    return layout.room + GROWTH * bytes_of


def put_line(
    out: Any, at: int, layout: Layout, batches: BatchColumns, row: int, records: RecordColumns, i: int, data: Any
) -> int:
    """Write the line of record ``i`` at ``out[at]``, which has enough room; return the position after it, or -1."""
    for n in range(layout.count):
        cell = layout.cells[n]
        size = records.key_size[i] if cell == KEY else records.value_size[i]
        if size < 0 and layout.leaves_out and (cell in (KEY, VALUE)):
            continue
        at = put_piece(out, at, layout, n)
        if cell == TIMESTAMP and records.timestamp[i] == NO_TIMESTAMP and not layout.leaves_out:
            at = put_piece(out, at, layout, layout.null_at)
        elif cell < KEY:
            at = put_number(out, at, number_of(cell, batches, row, records, i))
        elif cell == HEADERS:
            at = put_headers(out, at, layout, data, records.headers_at[i], records.header_count[i])
        elif cell != NOTHING:
            first = records.key_at[i] if cell == KEY else records.value_at[i]
            at = put_bytes(out, at, layout, data, first, size, cell - KEY)
        if at < 0:
            return -1
    return at


def number_of(cell: int, batches: BatchColumns, row: int, records: RecordColumns, i: int) -> int:
    """Return the value of a cell that is a number."""
    if cell == OFFSET:
        return records.offset[i]
    if cell == TIMESTAMP:
        return records.timestamp[i]
    if cell == POSITION:
        return batches.position[row]
    if cell == KEY_SIZE:
        return records.key_size[i]
    if cell == VALUE_SIZE:
        return records.value_size[i]
    if cell == PRODUCER_ID:
        return batches.producer_id[row]
    if cell == PRODUCER_EPOCH:
        return batches.producer_epoch[row]
    if cell == LEADER_EPOCH:
        return batches.partition_leader_epoch[row]
    sequence = batches.base_sequence[row]
    if sequence < 0:
        return sequence
    return increment_sequence(sequence, records.offset[i] - batches.base_offset[row])


def put_headers(out: Any, at: int, layout: Layout, data: Any, first: int, count: int) -> int:
    """Write headers with the layout's template and commas between them; return the position after them, or -1."""
    piece = layout.header_at
    for n in range(count):
        if n:
            out[at] = 44  # a comma
            at += 1
        at = put_piece(out, at, layout, piece)
        # The reader has checked sizes and ends.
        size, first = header_field(data, first, len(data))
        at = put_text(out, at, layout, data, first, first + size)
        if at < 0:
            return -1
        at = put_piece(out, at, layout, piece + 1)
        size, first = header_field(data, first + size, len(data))
        if layout.header_values:
            at = put_bytes(out, at, layout, data, first, size, 2)
            if at < 0:
                return -1
            at = put_piece(out, at, layout, piece + 2)
        if size > 0:
            first += size
    return at


def put_piece(out: Any, at: int, layout: Layout, piece: int) -> int:
    """Write a piece of the layout's text."""
    first = layout.ends[piece]
    size = layout.ends[piece + 1] - first
    if size >= _LONG:
        return copy_bytes(out, at, layout.text, first, size)
    for k in range(size):
        out[at + k] = layout.text[first + k]
    return at + size


def put_bytes(out: Any, at: int, layout: Layout, data: Any, first: int, size: int, note: int) -> int:
    """Write a key (``note`` 0), a value (1) or a header's value (2); return the position after it, or -1."""
    if size < 0:
        return put_piece(out, at, layout, layout.null_at)
    if layout.encoding == HEX:
        return put_hex(out, at, layout, data, first, first + size)
    if layout.encoding == BASE64:
        return put_base64(out, at, layout, data, first, first + size)
    end = put_text(out, at, layout, data, first, first + size)
    if end < 0 and layout.encoding == AUTO:
        end = put_base64(out, at, layout, data, first, first + size)
        return put_piece(out, end, layout, layout.notes_at + note)
    return end


def put_text(out: Any, at: int, layout: Layout, data: Any, i: int, end: int) -> int:
    """Write UTF-8 with the layout's escapes; return the position after it, or -1 if it is not UTF-8."""
    if layout.verbatim and is_ascii(data, i, end - i):
        return copy_bytes(out, at, data, i, end - i)
    if layout.quote:
        out[at] = layout.quote
        at += 1
    while i < end:
        byte = data[i]
        code = layout.codes[byte]
        if code:
            out[at] = code & 255
            out[at + 1] = code >> 8 & 255  # 0, or the escaped character
            at += code >> 16
            i += 1
            continue
        point = byte if byte < 128 else decode_point(data, i, end)
        if point < 0:
            return -1
        size = 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4
        if point < len(layout.marked) and layout.marked[point]:
            at = put_escape(out, at, point)
        else:
            for k in range(i, i + size):
                out[at] = data[k]
                at += 1
        i += size
    if layout.quote:
        out[at] = layout.quote
        at += 1
    return at


def put_escape(out: Any, at: int, point: int) -> int:
    r"""Write a code point with four hexadecimal digits as ``\uNNNN``."""
    out[at] = 92  # a backslash
    out[at + 1] = 117  # u
    for k in range(4):
        out[at + 2 + k] = _HEX_DIGITS[point >> (12 - 4 * k) & 15]
    return at + 6


def put_hex(out: Any, at: int, layout: Layout, data: Any, i: int, end: int) -> int:
    """Write bytes in hexadecimal."""
    if layout.quote:
        out[at] = layout.quote
        at += 1
    while i < end:
        out[at] = _HEX_DIGITS[data[i] >> 4]
        out[at + 1] = _HEX_DIGITS[data[i] & 15]
        at += 2
        i += 1
    if layout.quote:
        out[at] = layout.quote
        at += 1
    return at


def put_base64(out: Any, at: int, layout: Layout, data: Any, i: int, end: int) -> int:
    """Write bytes in base64, padded (RFC 4648)."""
    if layout.quote:
        out[at] = layout.quote
        at += 1
    while i < end:
        left = end - i
        bits = data[i] << 16
        if left > 1:
            bits |= data[i + 1] << 8
        if left > 2:
            bits |= data[i + 2]
        out[at] = _BASE64_DIGITS[bits >> 18]
        out[at + 1] = _BASE64_DIGITS[bits >> 12 & 63]
        out[at + 2] = _BASE64_DIGITS[bits >> 6 & 63] if left > 1 else 61  # an equals sign
        out[at + 3] = _BASE64_DIGITS[bits & 63] if left > 2 else 61
        at += 4
        i += 3
    if layout.quote:
        out[at] = layout.quote
        at += 1
    return at
