"""Output of ``kseg dump --format hex``: each field next to its bytes.

A line has the position, the bytes, and the field. In a batch that is compressed, positions of its records count from the
first decompressed byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, groupby
from textwrap import wrap
from typing import TextIO

from kseg.commands.dump.dump_items import (
    BatchItem,
    DamagedBytes,
    EmptyFile,
    FileStart,
    RecordsItem,
    SegmentItem,
    SideFileItem,
    WireRow,
)
from kseg.engine import imported
from kseg.errors import KsegError
from kseg.format.compress import codecs
from kseg.format.record import layout
from kseg.format.record.fields import (
    StoredField,
    StoredFieldReader,
    batch_fields,
    describe_time,
    message_set_fields,
    record_fields,
)
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT
from kseg.format.segment.framed_files import framing
from kseg.format.sidefiles.producer_snapshot import STORED_FIELDS, StoredFields
from kseg.format.storage.source import Source, open_range, open_source
from kseg.report.formats import View
from kseg.report.tables import may_colour, print_text
from kseg.schema import Column
from kseg.text import count_of, escape_controls, iso_time

#: The bytes of a field on one line; of data, next to its text.
FIELD_WIDTH, DATA_WIDTH = 8, 16
#: The width of a field's description: a line has at most 80 columns.
LABEL_WIDTH = 43
#: The most bytes of damage, and of a compressed payload, that are shown.
MAX_SHOWN = 4096
#: The colours of neighbouring fields: cyan, green, yellow, magenta, blue. Bytes and name of a field have the same.
_COLOURS = (36, 32, 33, 35, 34)


def write_hex(dumped: Iterable[SegmentItem], out: TextIO, view: View) -> None:
    """Write batches, with ``view.deep`` their records, and damaged bytes."""
    colours = colours_of(view)
    records: _Records | None = None
    for item in dumped:
        if isinstance(item, RecordsItem):
            if records is not None:
                for title, fields in records.upto(item):
                    print_text(out, f"  {title}", indent=4)
                    out.writelines(field_lines(fields, records.data, records.shift, colours))
            continue
        if isinstance(item, FileStart):
            print_text(out, f"file {item.file}", indent=0)
        elif isinstance(item, DamagedBytes):
            out.writelines(_damaged_lines(item, colours))
        elif isinstance(item, BatchItem):
            records = _Records(item) if view.deep else None
            print_text(out, _batch_title(item))
            out.writelines(_batch_lines(item, records, colours))


def colours_of(view: View) -> Iterator[int]:
    """Return the colours of successive fields; none unless the output is a terminal that may have colours."""
    return cycle(_COLOURS) if view.terminal and may_colour() else iter(())


def _batch_title(item: BatchItem) -> str:
    batch = item.batch
    compressed = batch.magic < 2 and batch.compression != "none" and not _is_plain(item)
    what = "compressed message set" if compressed else "batch"
    records_count = "" if batch.record_count is None else f", {count_of(batch.record_count, 'record')}"
    first = "" if batch.base_offset in (None, batch.last_offset) else f"{batch.base_offset} to "
    return f"{what} at {batch.position}, {batch.size} bytes: offset {first}{batch.last_offset}{records_count}"


def _payload(item: BatchItem) -> tuple[int, memoryview, int]:
    """Return the codec of the attributes, the bytes that it applies to, and the version, at most 2."""
    magic, stored = min(item.batch.magic, 2), item.stored
    if magic == 2:
        return stored[layout.ATTRIBUTES_AT + 1] & layout.CODEC_MASK, stored[layout.RECORD_BATCH_OVERHEAD :], magic
    value = batch_fields(stored)[-1]
    return stored[layout.LEGACY_ATTRIBUTES_AT] & layout.CODEC_MASK, stored[value.at : value.at + value.size], magic


def _is_plain(item: BatchItem) -> bool:
    """Return whether the payload of a batch is not compressed although the attributes name a codec."""
    codec, payload, magic = _payload(item)
    return codecs.is_plain(codec, payload, magic=magic)


def _batch_lines(item: BatchItem, records: _Records | None, colours: Iterator[int]) -> Iterator[str]:
    batch, stored = item.batch, item.stored
    fields = batch_fields(stored)
    yield from field_lines(fields, stored, batch.position, colours)
    end = max((field.at + field.size for field in fields), default=0)
    if end < len(stored):
        applied = "not compressed" if _is_plain(item) else "compressed"
        compressed = "" if batch.compression == "none" else f", {applied} with {batch.compression}"
        meaning = f"{count_of(len(stored) - end, 'byte')}{compressed}"
        if records is None or compressed or batch.crc_valid is False:
            shown = min(len(stored) - end, MAX_SHOWN)
            yield from field_lines([StoredField(end, shown, "records", meaning, True)], stored, batch.position, colours)
            yield from _more_line(len(stored) - end - shown)
        if records is not None and batch.crc_valid is False:
            yield "  The records are not decoded, because the CRC is wrong. --no-crc decodes them.\n"


class _Records:
    """The fields of a batch's records. ``data`` are the bytes, ``shift`` the position of their first byte."""

    def __init__(self, item: BatchItem) -> None:
        self._item = item
        self._walk: Iterator[list[StoredField]] | None = None
        self._next = 0
        self._place = "" if item.batch.compression == "none" else ", decompressed"
        self.data: bytes | memoryview = b""
        self.shift = 0

    def upto(self, item: RecordsItem) -> Iterator[tuple[str, list[StoredField]]]:
        """Yield the title and the fields of each kept record, and of undecodable bytes after the last record."""
        if self._walk is None:
            self._walk = self._begin()
        batches, row = item.chunk.batches, item.row
        first = item.chunk.index - batches.first_record[row]
        for i in item.kept:
            for fields in self._walk:
                self._next += 1
                if self._next > first + i:
                    yield self._title(item, i), fields
                    break
        if self._next == batches.record_sum[row] and len(item.kept):
            for fields in self._walk:
                yield "after the last record", fields

    def _begin(self) -> Iterator[list[StoredField]]:
        batch, stored = self._item.batch, self._item.stored
        plain = batch.compression == "none"
        if batch.magic < 2:
            if plain:
                return iter(([],))  # the batch is the message, whose fields are shown
            try:
                self.data = self._decompressed()
            except codecs.CodecError:
                self._place = ", whose value is not compressed"
                return iter(([],))
            return message_set_fields(self.data)
        self.data, self.shift = (stored, batch.position) if plain else (self._decompressed(), 0)
        at = layout.RECORD_BATCH_OVERHEAD if plain else 0
        control = bool(batch.control)
        return record_fields(self.data, at, batch.base_offset or 0, _base_timestamp(stored), control=control)

    def _decompressed(self) -> memoryview:
        codec, payload, magic = _payload(self._item)
        return memoryview(codecs.decompress(codec, payload, limit=DECOMPRESSION_LIMIT, magic=magic))

    def _title(self, item: RecordsItem, i: int) -> str:
        lists = item.chunk.lists
        timestamp = lists.timestamp[i]
        time = "" if timestamp == layout.NO_TIMESTAMP else f", {iso_time(timestamp)}"
        return f"record {lists.offset[i]}{time}{self._place}"


def _base_timestamp(stored: bytes | memoryview) -> int:
    return int.from_bytes(stored[layout.BASE_TIMESTAMP_AT :][:8], "big", signed=True)


def _more_line(size: int) -> Iterator[str]:
    """Yield a line about bytes that are not shown, if there are any."""
    if size:
        yield f"{'':12}... {count_of(size, 'more byte')}\n"


_NOT_LOCAL = "  The bytes are shown of local files only.\n"


def _damaged_lines(item: DamagedBytes, colours: Iterator[int]) -> Iterator[str]:
    size = item.end - item.position
    yield f"{count_of(size, 'byte')} at {item.position} that {'is' if size == 1 else 'are'} not in a batch\n"
    for finding in item.findings:
        yield f"  {escape_controls(finding.message)}\n"
    try:
        stored = _read(item.file, item.position, min(size, MAX_SHOWN))
    except (KsegError, OSError):
        yield _NOT_LOCAL
        return
    if any(finding.rule == "truncated-tail" for finding in item.findings) and len(stored) > layout.MAGIC_AT:
        for fields in _incomplete_batch(stored):
            yield from field_lines(fields, stored, item.position, colours)
    else:
        yield from hex_lines([stored], item.position)
    yield from _more_line(max(size - MAX_SHOWN, 0))


def _incomplete_batch(stored: bytes) -> Iterator[list[StoredField]]:
    fields = batch_fields(stored)
    yield fields
    at = layout.RECORD_BATCH_OVERHEAD
    if stored[layout.MAGIC_AT] < 2 or len(stored) <= at or fields[-1].content:
        return
    attributes = int.from_bytes(stored[layout.ATTRIBUTES_AT :][:2], "big")
    if attributes & layout.CODEC_MASK:
        yield [StoredField(at, len(stored) - at, "records", "compressed and incomplete", True)]
        return
    base_offset, control = int.from_bytes(stored[:8], "big", signed=True), bool(attributes & layout.CONTROL)
    yield from record_fields(stored, at, base_offset, _base_timestamp(stored), control=control)


def field_lines(
    fields: Sequence[StoredField],
    data: bytes | memoryview,
    shift: int,
    colours: Iterator[int],
    width: int = LABEL_WIDTH,
    most: int | None = None,
) -> Iterator[str]:
    """Yield the lines of fields. ``shift`` is the position of ``data[0]``; ``colours`` are taken from, if there are any.

    ``width`` is that of a description. At most ``most`` bytes of a field are shown, None for all.
    """
    for field in fields:
        stored = memoryview(data)[field.at : field.at + field.size]
        label = escape_controls(f"{field.name} {field.meaning}".strip())
        colour = next(colours, 0)
        begin, end = (f"\x1b[{colour}m", "\x1b[0m") if colour else ("", "")
        position = f"{shift + field.at:10d}  "
        if field.size <= FIELD_WIDTH:
            text = f"{f'{label}: ' if label else ''}{ascii_text(stored)}" if field.content else label
            lines = wrap(text, width, subsequent_indent="  ") or [""]
            yield f"{position}{begin}{stored.hex(' '):<{3 * FIELD_WIDTH}} {lines[0]}{end}\n"
            yield from (f"{'':12}{'':{3 * FIELD_WIDTH}} {begin}{line}{end}\n" for line in lines[1:])
        else:
            yield from (f"{'':12}{'':{3 * FIELD_WIDTH}} {begin}{line}{end}\n" for line in wrap(label, width))
            yield from (f"{begin}{line[:-1]}{end}\n" for line in hex_lines([stored[:most]], shift + field.at))
            yield from _more_line(0 if most is None else max(field.size - most, 0))


def write_side_files(dumped: Iterable[FileStart | SideFileItem | EmptyFile], out: TextIO, view: View) -> None:
    """Write the entries of side files: the fields of binary entries next to their bytes, text below its fields."""
    colours = colours_of(view)
    for file, items in groupby(dumped, key=lambda item: item.file):
        print_text(out, f"file {file}", indent=0)
        with open_source(file, listed=True) as source:
            for item in items:
                if isinstance(item, SideFileItem):
                    known = STORED_FIELDS.get(item.side.kind, StoredFields((), ()))
                    _write_fields(source, known.header, item.position, out, colours)
                    values = zip(item.side.columns, item.entry, strict=True)
                    shown = [f" {column.name} {'-' if value is None else value}" for column, value in values]
                    shown = shown[:2] if known.entry else shown  # the fields follow
                    print_text(out, f"entry at {item.position}:{','.join(shown)}")
                    size = sum(size for size, _ in known.entry)
                    _write_fields(source, known.entry, item.position + size, out, colours)
            out.writelines(hex_lines(_rest(source), source.position))


def _write_fields(
    source: Source, known: Sequence[tuple[int, str]], end: int, out: TextIO, colours: Iterator[int]
) -> None:
    """Write the bytes of a side file up to position ``end``: those of the known fields, and all others as data."""
    begin = source.position
    buffer = memoryview(bytearray(max(end - begin, 0)))
    reader = StoredFieldReader(bytes(buffer[: source.readinto(buffer)]), 0, len(buffer))
    for size, name in known if len(reader.data) >= sum(size for size, _ in known) else ():
        reader.integer(size, name, describe_time if name == "timestamp" else str, signed=name != "crc")
    reader.end = len(reader.data)
    reader.rest("")
    out.writelines(field_lines(reader.fields, reader.data, begin, colours))


def _rest(source: Source) -> Iterator[bytes]:
    """Yield the bytes after the last entry in blocks."""
    buffer = memoryview(bytearray(MAX_SHOWN))
    while count := source.readinto(buffer):
        yield bytes(buffer[:count])


def hex_lines(blocks: Iterable[bytes | memoryview], position: int) -> Iterator[str]:
    """Yield lines of sixteen bytes: position, hexadecimal, printable ASCII. Zeros are one line, however many."""

    def zeros_line(end: int) -> str:
        return f"{end - zeros:10d}  {count_of(zeros, 'byte')} of zeros\n"

    zeros = 0
    for block in blocks:
        for at in range(0, len(block), DATA_WIDTH) if any(block) else ():
            piece = bytes(block[at : at + DATA_WIDTH])
            if not any(piece):
                zeros += len(piece)
                continue
            if zeros:
                yield zeros_line(position + at)
                zeros = 0
            yield f"{position + at:10d}  {piece.hex(' '):<{3 * DATA_WIDTH}} {ascii_text(piece)}\n"
        zeros += 0 if any(block) else len(block)
        position += len(block)
    if zeros:
        yield zeros_line(position)


_PRINTABLE = bytes(byte if 32 <= byte < 127 else ord(".") for byte in range(256))


def ascii_text(data: bytes | memoryview) -> str:
    """Return printable ASCII, and a dot for each other byte."""
    return bytes(data).translate(_PRINTABLE).decode("ascii")


#: Findings of bytes that begin as a frame or a message does.
_CUT = ("frame-cut", "frame-size", "truncated-tail", "invalid-size")


def write_frames(
    dumped: Iterable[FileStart | WireRow | DamagedBytes], columns: Sequence[Column], out: TextIO, view: View
) -> None:
    """Write frames or messages, and the bytes between them, as far as they can be decoded."""
    colours = colours_of(view)
    for item in dumped:
        if isinstance(item, FileStart):
            print_text(out, f"file {item.file}", indent=0)
            continue
        kind = framing(item.framing)
        if isinstance(item, WireRow):
            row, position = item.row, item.row["position"]
            size = kind.size_field + row["size"]
            print_text(out, f"{_title(row)} at {position}, {count_of(size, 'byte')}")
        else:
            row, position, size = None, item.position, item.end - item.position
            print_text(out, f"{count_of(size, 'byte')} at {position} that cannot be read", indent=0)
            for finding in item.findings:
                print_text(out, f"  {finding.message}", indent=4)
        shown = size if row else min(size, MAX_SHOWN)
        try:
            stored = _read(item.file, position, shown)
        except (KsegError, OSError):
            out.write(_NOT_LOCAL)
            continue
        if isinstance(item, DamagedBytes) and not any(finding.rule in _CUT for finding in item.findings):
            out.writelines(hex_lines([stored], position))
            continue
        for part in imported(kind.parts)(memoryview(stored), position, row):
            if part.title:
                print_text(out, f"  {part.title}", indent=4)
            out.writelines(field_lines(part.fields, part.data, part.shift, colours))
        out.writelines(_more_line(size - shown))


def _title(row: dict[str, object]) -> str:
    if row["kind"] not in ("request", "response"):
        return "message"
    api = f" {row['api_name']} version {row['api_version']}" if row["api_name"] else " of an unknown API"
    return f"{row['kind']}{api}, correlation id {row['correlation_id']},"


def _read(file: str, position: int, size: int) -> bytes:
    """Return bytes of a file. Raises KsegError or OSError."""
    with open_range(file, position, position + size) as source:
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: source.readinto(buffer)])
