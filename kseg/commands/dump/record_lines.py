"""Records as lines, batch by batch: ``dump --deep`` as JSON Lines and as kafka-dump-log's text.

A template has the text that all records of a batch share. The compiled engine fills it in ``line_writer``. Records that it
can't write, and all records of the plain engine, are formatted here with Python's strings. The columns are those of
``records_chunk``, the text that of ``dump_log_lines``; tests compare all ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING

from kseg import schema
from kseg.commands.dump import csv_lines, dump_log_lines, line_writer
from kseg.commands.dump.dump_items import RecordsItem
from kseg.commands.dump.dump_log_lines import JSON_WRITERS, PIECE_BYTES, json_header_pieces, json_pieces
from kseg.commands.dump.line_writer import MARK, STEERING_END, Escapes, Layout, LineBuffer, write_lines
from kseg.engine import lazy
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.encoder import headers_end
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment import records_chunk
from kseg.format.segment.records_chunk import timestamp_type
from kseg.text import encoded, to_json, to_unicode_json

if TYPE_CHECKING:
    from kseg.format.internal_topics import decode as decode
else:
    decode = lazy("kseg.format.internal_topics.decode")  # an import runs it, as it is compiled

if TYPE_CHECKING:
    from kseg.extras.serialization.decoding import DecodedValue

#: A record with more bytes of key, value and headers is written in pieces.
_LARGE_RECORD = PIECE_BYTES
#: The number of characters of short lines that are written together.
_WRITTEN_AT_ONCE = 256 * 1024
_DECODED = f',"{schema.DECODED.name}":'
_OF_TRANSACTION = ("transaction_state", "transactional_id")


def write_json(run: RecordsItem, encoding: str, lines: LineBuffer) -> None:
    """Write a line of JSON per record, equal to ``records_chunk.record_row``; ``encoding`` is one of JSON_WRITERS."""
    magic, attributes = run.chunk.batches.magic[run.row], run.chunk.batches.attributes[run.row]
    write = more = None
    if line_writer.COMPILED and not (magic >= 2 and attributes & CONTROL):
        layout = json_layout(run.file, timestamp_type(magic, attributes), magic >= 2, encoding, run.transaction)
        write = partial(write_lines, lines, layout)
        more = _more_members(run, run.kept) if run.topic or run.decoder or run.searched else None
    _write(run, lines, write, lambda kept: _json_lines(run, encoding, kept), more, b"}\n")


def _more_members(run: RecordsItem, kept: Sequence[int]) -> Iterator[str]:
    """Yield the decoded record, the decoded key and value, and the matching fields as members of a JSON object.

    A comma is before each.
    """
    records, searched = run.chunk.records, run.searched
    decoder = decode.records_decoder(run.topic, run.chunk, run.row) if run.topic else None
    for i, contents in zip(kept, run.all_contents(kept), strict=True):
        text = _DECODED + (decoder.decode(records, i).as_json() if decoder else "null") if run.topic else ""
        if run.decoder and contents:
            text += "".join(_content_members(side, content) for side, content in run.decoder.by_side(contents))
        yield f"{text},{to_json(run.search_row(i))[1:-1]}" if searched else text


def _content_members(side: str, content: DecodedValue) -> str:
    """Return a decoded key or value as the members of a JSON object that ``schema.CONTENT_COLUMNS`` names."""
    decoded = "null" if content.value is None else to_unicode_json(content.value)
    return f',"{side}_decoded":{decoded}{_facts_of_content(side, content.kind, content.schema_id, content.error)}'


@lru_cache(maxsize=256)
def _facts_of_content(side: str, *facts: str | int | None) -> str:
    """Return the members after the first; many records have the same ones."""
    names = [column.name for column in schema.CONTENT_COLUMNS[side][1:]]
    return "".join(f',"{name}":{to_json(fact)}' for name, fact in zip(names, facts, strict=True))


def write_text(run: RecordsItem, lines: LineBuffer) -> None:
    """Write the line that kafka-dump-log --print-data-log prints for each record."""
    magic, attributes = run.chunk.batches.magic[run.row], run.chunk.batches.attributes[run.row]
    write = None
    if line_writer.COMPILED and not (run.topic or run.decoder or magic < 2 or attributes & CONTROL):
        write = partial(write_lines, lines, text_layout(timestamp_type(magic, attributes)))
    _write(run, lines, write, lambda kept: _text_pieces(run, kept))


def write_csv(
    run: RecordsItem,
    layout: Layout | None,
    lines: LineBuffer,
    other: Callable[[Sequence[int]], Iterable[str]],
    more: Iterator[str] | None = None,
) -> None:
    """Write a line of CSV per record. ``other`` returns the lines of some records as ``row_formats`` writes them.

    Without a ``layout`` it writes all lines. ``more`` are the last cells of each record, each with a comma before it, that
    the layout does not have.
    """
    batches, row = run.chunk.batches, run.row
    write = None
    if (
        line_writer.COMPILED
        and layout is not None
        and not (batches.magic[row] >= 2 and batches.attributes[row] & CONTROL)
    ):
        json = json_layout("", None, True, line_writer.ENCODINGS[layout.encoding])
        write = partial(csv_lines.write_csv_lines, lines, layout, json)
    _write(run, lines, write, other, more, b"\n")


def _write(
    run: RecordsItem,
    lines: LineBuffer,
    write: Callable[..., None] | None,
    other: Callable[[Sequence[int]], Iterable[str]],
    more: Iterator[str] | None = None,
    end: bytes = b"",
) -> None:
    """Write the lines of a batch with a function of the compiled engine, those that it can't write with ``other``.

    Without ``write`` the other one writes all. ``more`` has the text to add before the ``end`` of each line.
    """
    chunk, row = run.chunk, run.row
    if write is None:
        for text in _joined(other(run.kept)):
            lines.put(text)
        return
    columns = chunk.batches, row, chunk.records, chunk.payload(row)

    def others(i: int) -> Iterator[bytes]:
        return _joined(other((i,)))

    if more is None:
        for first, stop in run.ranges():
            write(*columns, first, stop, others)
        return
    for i, added in zip(run.kept, more, strict=True):
        write(*columns, i, i + 1, others)
        if lines.at:  # not after a line of ``others``, which is complete
            lines.extend_line(encoded(added), end)


def _joined(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield the bytes of texts, short ones together."""
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= _WRITTEN_AT_ONCE:
            yield encoded("".join(waiting))
            waiting.clear()
            size = 0
    if waiting:
        yield encoded("".join(waiting))


#: The state and the transactional id of records outside transactions.
_NO_TRANSACTION = (None, None)


@lru_cache(maxsize=256)
def json_layout(
    file: str,
    stamped: str | None,
    modern: bool,
    encoding: str,
    transaction: tuple[str | None, str | None] = _NO_TRANSACTION,
) -> Layout:
    """Return the layout of a data record; ``stamped`` is its timestamp type, ``modern`` is True for v2.

    ``transaction`` has its state and the transactional id.
    """
    constants = {"kind": "record", "file": file, "timestamp_type": stamped, "control": None}
    constants.update(zip(_OF_TRANSACTION, transaction, strict=True))
    if not modern:
        constants.update(dict.fromkeys(line_writer.MODERN_CELLS))
    return Layout(
        _json_template(constants),
        [column.name for column in schema.RECORD_COLUMNS if column.name not in constants],
        encoding,
        _json_escapes(),
        header=f'{{"key":{MARK},"value":{MARK}}}',
        quote='"',
        null="null",
        notes=[f',"{name}_encoding":"base64"' for name in ("key", "value", "value")],
    )


@lru_cache(maxsize=4)
def text_layout(stamped: str | None) -> Layout:
    """Return the layout of a v2 data record with the timestamp type ``stamped``."""
    template = dump_log_lines.record_template(stamped or dump_log_lines.NO_TIMESTAMP_TYPE, MARK)
    return Layout(template, dump_log_lines.TEMPLATE_CELLS, "utf8", Escapes({}, ()), header=MARK)


@cache
def _json_escapes() -> Escapes:
    """Return the escapes of ``to_json``, from its output for every character."""
    written = {character: to_json(character)[1:-1] for character in map(chr, range(128))}
    marks = re.findall(r"\\u(....)", to_json("".join(map(chr, range(STEERING_END)))))
    return Escapes({c: text for c, text in written.items() if len(text) == 2}, [int(mark, 16) for mark in marks])


def _json_template(constants: Mapping[str, object]) -> str:
    """Return a line with a MARK for each column that is not in ``constants``."""
    cells = {column.name: f"[{MARK}]" if column.type == "headers" else MARK for column in schema.RECORD_COLUMNS}
    cells.update((name, to_json(value)) for name, value in constants.items())
    return "{" + ",".join(f'"{name}":{text}' for name, text in cells.items()) + "}\n"


def _json_lines(run: RecordsItem, encoding: str, kept: Sequence[int]) -> Iterator[str]:
    """Yield the lines of some records; the line of a large record in pieces."""
    chunk, row = run.chunk, run.row
    batches, lists, data = chunk.batches, chunk.lists, chunk.payload(run.row)
    write = JSON_WRITERS[encoding]
    magic, attributes = batches.magic[row], batches.attributes[row]
    constants = {
        "kind": "record",
        "file": run.file,
        "position": batches.position[row],
        "timestamp_type": timestamp_type(magic, attributes),
        "producer_id": batches.producer_id[row] if magic >= 2 else None,
        "producer_epoch": batches.producer_epoch[row] if magic >= 2 else None,
        "partition_leader_epoch": batches.partition_leader_epoch[row] if magic >= 2 else None,
        **dict(zip(_OF_TRANSACTION, run.transaction, strict=True)),
    }
    line = _json_template(constants).replace("%", "%%").replace(MARK, "%s")
    control = magic >= 2 and attributes & CONTROL
    base_sequence, base_offset = batches.base_sequence[row], batches.base_offset[row]
    sequence: int | str = "null" if magic < 2 else base_sequence
    numbered = magic >= 2 and base_sequence >= 0
    extended = run.topic or run.decoder or run.searched
    for i, more in zip(kept, _more_members(run, kept) if extended else repeat(""), strict=False):
        offset, timestamp = lists.offset[i], lists.timestamp[i]
        if numbered:
            sequence = increment_sequence(base_sequence, offset - base_offset)
        key, value = (
            field(data, lists.key_at[i], lists.key_size[i]),
            field(data, lists.value_at[i], lists.value_size[i]),
        )
        large = is_large(run, i)
        text = line % (
            offset,
            timestamp if timestamp != -1 else "null",
            sequence,
            "null" if key is None else MARK if large else write(key, "key"),
            "null" if value is None else MARK if large else write(value, "value"),
            MARK if large else _json_headers(run, i, encoding) if lists.header_count[i] else "",
            _json_control(run, i) if control else "null",
        )
        if more:
            text = f"{text[:-2]}{more}}}\n"
        if not large:
            yield text
            continue
        contents = [
            json_pieces(field, name, encoding) for field, name in ((key, "key"), (value, "value")) if field is not None
        ]
        contents.append(json_header_pieces(islice(chunk.header_fields(i), MAX_HEADERS), encoding))
        yield from _filled(text, contents)


def _filled(text: str, contents: Sequence[Iterable[str]]) -> Iterator[str]:
    """Yield a line with ``contents`` in place of its MARKs."""
    for part, content in zip(text.split(MARK), (*contents, ()), strict=True):
        yield part
        yield from content


def field(data: memoryview, at: int, size: int) -> memoryview | None:
    """Return a key or a value, None for null."""
    return None if size < 0 else data[at : at + size]


def is_large(run: RecordsItem, i: int) -> bool:
    """Return whether record ``i`` is to be written in pieces."""
    lists, data = run.chunk.lists, run.chunk.payload(run.row)
    size = max(lists.key_size[i], 0) + max(lists.value_size[i], 0)
    if lists.header_count[i]:
        at = run.chunk.records.headers_at[i]
        size += headers_end(data, at, lists.header_count[i]) - at
    return size > _LARGE_RECORD


def _json_headers(run: RecordsItem, i: int, encoding: str) -> str:
    return to_json(records_chunk.header_rows(run.chunk.headers(i), records_chunk.ENCODERS[encoding]))[1:-1]


def _json_control(run: RecordsItem, i: int) -> str:
    control = run.chunk.control(i)
    return to_json(control.as_dict()) if control else "null"


def _text_pieces(run: RecordsItem, kept: Sequence[int]) -> Iterator[str]:
    """Yield the lines of some records; the line of a large data record in pieces."""
    chunk, batch = run.chunk, run.batch
    data, lists = chunk.payload(run.row), chunk.lists
    large = () if batch.control or run.topic or run.decoder else [i for i in kept if is_large(run, i)]
    if not large:
        yield from text_lines(run, kept)
        return
    for i in kept:
        if i not in large:
            yield from text_lines(run, (i,))
            continue
        if batch.magic >= 2:
            keys = (key for key, _ in islice(chunk.header_fields(i), MAX_HEADERS))
            middle: Iterable[str] = dump_log_lines.modern_middle_pieces(chunk.sequence(i, run.row), keys)
        else:
            wrapped = chunk.batches.attributes[run.row] & CODEC_MASK
            middle = (dump_log_lines.legacy_crc(batch, _inner_crc(run, i, data) if wrapped else None),)
        yield from dump_log_lines.compose_pieces(
            batch.timestamp_type or dump_log_lines.NO_TIMESTAMP_TYPE,
            lists.offset[i],
            lists.timestamp[i],
            field(data, lists.key_at[i], lists.key_size[i]),
            field(data, lists.value_at[i], lists.value_size[i]),
            middle,
        )


def text_lines(run: RecordsItem, kept: Sequence[int]) -> list[str]:
    chunk, batch = run.chunk, run.batch
    lists, data = chunk.lists, chunk.payload(run.row)
    if batch.control or batch.magic < 2 or run.topic or run.decoder:
        wrapped = is_wrapper(chunk.batches, run.row)
        return [
            dump_log_lines.record_line(
                chunk.record(i),
                batch,
                inner_crc=_inner_crc(run, i, data) if wrapped else None,
                topic=run.topic,
                contents=_text_contents(run, i),
            )
            + "\n"
            for i in kept
        ]
    kind = batch.timestamp_type or dump_log_lines.NO_TIMESTAMP_TYPE
    lines = []
    for i in kept:
        if lists.header_count[i]:
            lines.append(dump_log_lines.record_line(chunk.record(i), batch) + "\n")
            continue
        key_at, key_size, value_at, value_size = (
            lists.key_at[i],
            lists.key_size[i],
            lists.value_at[i],
            lists.value_size[i],
        )
        line = dump_log_lines.format_record_line(
            kind,
            lists.offset[i],
            lists.timestamp[i],
            data[key_at : key_at + key_size] if key_size >= 0 else None,
            data[value_at : value_at + value_size] if value_size >= 0 else None,
            dump_log_lines.v2_fields(chunk.sequence(i, run.row), ""),
            True,
        )
        lines.append(line + "\n")
    return lines


def _text_contents(run: RecordsItem, i: int) -> tuple[str | None, str | None] | None:
    """Return the text of a decoded key and value, None for those that are not decoded."""
    decoded = run.contents(i)
    if decoded is None:
        return None
    key, value = (_decoded_text(found) if found.kind and not found.error else None for found in decoded)
    return key, value


def _decoded_text(found: DecodedValue) -> str:
    return found.value if isinstance(found.value, str) else to_json(found.value)


def _inner_crc(run: RecordsItem, i: int, data: memoryview) -> tuple[int, bool]:
    lists = run.chunk.lists
    value_end = lists.value_at[i] + max(lists.value_size[i], 0)
    return dump_log_lines.message_crc(data, run.batch.magic, lists.key_at[i], value_end)
