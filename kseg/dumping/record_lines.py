"""Records as lines, entry by entry: what ``dump --deep`` writes as JSON Lines and as kafka-dump-log's text.

Nothing is made of a record but its line, by a template of what all records of an entry share. The compiled engine
fills it in ``line_writer``; what that can't write, and all with the plain engine, is made here of Python's strings.
The columns are those of ``rows``, the text that of ``dump_text``; tests hold the ways equal.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from json.encoder import encode_basestring

from kseg.dumping import dump_text, line_writer
from kseg.dumping.dump import Run
from kseg.dumping.line_writer import MARK, STEERING_END, Escapes, Layout, LineBuffer, write_lines
from kseg.format.kernel import increment_sequence
from kseg.format.log_format import CODEC_MASK, CONTROL
from kseg.log import rows
from kseg.log.records import timestamp_type
from kseg.text import encoded, escape_json, to_json

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


def write_json(run: Run, encoding: str, lines: LineBuffer) -> None:
    """A line of JSON for each record, as ``rows.record_row`` would have it; ``encoding`` is one of JSON_WRITERS."""
    batches, row = run.chunk.batches, run.row
    magic, attributes = batches.magic[row], batches.attributes[row]
    if not line_writer.COMPILED or run.topic or (magic >= 2 and attributes & CONTROL):
        lines.put(encoded("".join(_json_lines(run, encoding, run.kept))))
        return
    layout = json_layout(run.file, timestamp_type(magic, attributes), magic >= 2, encoding)
    _write(run, layout, lines, lambda i: _json_lines(run, encoding, (i,)))


def write_text(run: Run, lines: LineBuffer) -> None:
    """The line that kafka-dump-log --print-data-log prints of each record."""
    batches, row = run.chunk.batches, run.row
    magic, attributes = batches.magic[row], batches.attributes[row]
    if not line_writer.COMPILED or run.topic or magic < 2 or attributes & CONTROL:
        lines.put(encoded("".join(text_lines(run, run.kept))))
        return
    layout = text_layout(timestamp_type(magic, attributes))
    _write(run, layout, lines, lambda i: text_lines(run, (i,)))


def _write(run: Run, layout: Layout, lines: LineBuffer, other: Callable[[int], list[str]]) -> None:
    chunk, row = run.chunk, run.row
    data = chunk.payload(row)

    def others(i: int) -> bytes:
        return encoded(other(i)[0])

    for first, stop in _stretches(run.kept):
        write_lines(lines, layout, chunk.batches, row, chunk.records, data, first, stop, others)


def _stretches(kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The rows in stretches without a hole, each as its first and the one behind its last."""
    if isinstance(kept, range):
        yield kept.start, kept.stop
        return
    first = stop = kept[0]
    for i in kept:
        if i != stop:
            yield first, stop
            first = i
        stop = i + 1
    yield first, stop


@lru_cache(maxsize=64)
def json_layout(file: str, stamped: str | None, modern: bool, encoding: str) -> Layout:
    """The line of a data record; ``stamped`` is its timestamp type, ``modern`` says that it is v2."""
    constants = {"kind": "record", "file": file, "timestamp_type": stamped, "control": None}
    if not modern:
        constants["sequence"] = None
    return Layout(
        _json_template(constants),
        [column.name for column in rows.RECORD_COLUMNS if column.name not in constants],
        encoding,
        _json_escapes(),
        header=f'{{"key":{MARK},"value":{MARK}}}',
        quote='"',
        null="null",
        notes=[f',"{name}_encoding":"base64"' for name in ("key", "value", "value")],
    )


@lru_cache(maxsize=4)
def text_layout(stamped: str | None) -> Layout:
    """The line of a v2 data record whose timestamp type is ``stamped``."""
    template = dump_text.record_template(stamped or dump_text.NO_TIMESTAMP_TYPE, MARK)
    return Layout(template, dump_text.TEMPLATE_CELLS, "utf8", Escapes({}, ()), header=MARK)


@cache
def _json_escapes() -> Escapes:
    """What ``to_json`` escapes, found by asking it."""
    written = {character: to_json(character)[1:-1] for character in map(chr, range(128))}
    marks = re.findall(r"\\u(....)", to_json("".join(map(chr, range(STEERING_END)))))
    return Escapes({c: text for c, text in written.items() if len(text) == 2}, [int(mark, 16) for mark in marks])


def _json_template(constants: Mapping[str, object]) -> str:
    """A line with a MARK for each column that ``constants`` hasn't."""
    cells = {column.name: f"[{MARK}]" if column.type == "headers" else MARK for column in rows.RECORD_COLUMNS}
    cells.update((name, to_json(value)) for name, value in constants.items())
    return "{" + ",".join(f'"{name}":{text}' for name, text in cells.items()) + "}\n"


def _json_lines(run: Run, encoding: str, kept: Sequence[int]) -> list[str]:
    chunk, row = run.chunk, run.row
    batches, lists, data = chunk.batches, chunk.lists, chunk.payload(run.row)
    write = JSON_WRITERS[encoding]
    magic, attributes = batches.magic[row], batches.attributes[row]
    constants = {
        "kind": "record",
        "file": run.file,
        "position": batches.position[row],
        "timestamp_type": timestamp_type(magic, attributes),
    }
    line = _json_template(constants).replace("%", "%%").replace(MARK, "%s")
    control = magic >= 2 and attributes & CONTROL
    base_sequence, base_offset = batches.base_sequence[row], batches.base_offset[row]
    sequence: int | str = "null" if magic < 2 else base_sequence
    numbered = magic >= 2 and base_sequence >= 0
    lines = []
    for i in kept:
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
                _json_headers(run, i, encoding) if lists.header_count[i] else "",
                _json_control(run, i) if control else "null",
            )
        )
        if run.topic:
            lines[-1] = f'{lines[-1][:-2]},"{rows.DECODED.name}":{to_json(run.decoded(i))}}}\n'
    return lines


def _json_headers(run: Run, i: int, encoding: str) -> str:
    return to_json(rows.header_rows(run.chunk.headers(i), rows.ENCODERS[encoding]))[1:-1]


def _json_control(run: Run, i: int) -> str:
    control = run.chunk.control(i)
    return to_json(control.as_dict()) if control else "null"


def text_lines(run: Run, kept: Sequence[int]) -> list[str]:
    """The lines of some records, made of Python's strings."""
    chunk, batch = run.chunk, run.batch
    lists, data = chunk.lists, chunk.payload(run.row)
    if batch.control or batch.magic < 2 or run.topic:
        wrapped = batch.magic < 2 and chunk.batches.attributes[run.row] & CODEC_MASK
        return [
            dump_text.record_line(
                chunk.record(i),
                batch,
                print_data=True,
                inner_crc=_inner_crc(run, i, data) if wrapped else None,
                topic=run.topic,
            )
            + "\n"
            for i in kept
        ]
    kind = batch.timestamp_type or dump_text.NO_TIMESTAMP_TYPE
    lines = []
    for i in kept:
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
            dump_text.modern_middle(chunk.sequence(i, run.row), ""),
            True,
        )
        lines.append(line + "\n")
    return lines


def _inner_crc(run: Run, i: int, data: memoryview) -> tuple[int, bool]:
    lists = run.chunk.lists
    value_end = lists.value_at[i] + max(lists.value_size[i], 0)
    return dump_text.message_crc(data, run.batch.magic, lists.key_at[i], value_end)
