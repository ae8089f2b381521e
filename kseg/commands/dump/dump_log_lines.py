"""The lines that kafka-dump-log prints for a segment, byte for byte, for the scripts that parse them.

Shallow: ``header_lines`` and a ``batch_line`` for each batch, as ``kafka-dump-log --files F`` prints them. Deep: a
``record_line`` for each record after its batch's line, as with ``--print-data-log``. Source:
``org.apache.kafka.tools.DumpLogSegments`` of Kafka 4.3.0.

The text is not escaped, like in Kafka: a key with a line feed makes two lines. The caller must escape the text before it
goes to a terminal. If kafka-dump-log would end with a stack trace, the line lacks that part.

Keys, values and headers of large records are text in pieces, also for JSON and CSV: a piece takes a few hundred
kilobytes. JSON has up to six bytes per byte, and a string up to four per character, so copies of a whole value would take
many times its size.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kseg.engine import lazy
from kseg.format.internal_topics import topic_lines as internal_text
from kseg.format.record import control_records, layout
from kseg.format.segment.records_chunk import Record, RecordBatch
from kseg.format.storage.naming import BOOTSTRAP, snapshot_id
from kseg.text import escape_json

if TYPE_CHECKING:
    from kseg.format.internal_topics import decode as internal_decode
else:
    internal_decode = lazy("kseg.format.internal_topics.decode")  # an import runs it, as it is compiled

#: Write bytes as a JSON value. A note on their encoding, if one is needed, follows under the given name.
JsonWriter = Callable[[memoryview, str], str]
#: Maximum bytes of a piece; a multiple of 3, so that base64 has padding only at the end.
PIECE_BYTES = 192 * 1024


def _json_auto(data: memoryview, name: str) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f'"{base64.b64encode(data).decode()}"{_noted(name)}'
    return escape_json(encode_basestring(text))


JSON_WRITERS: Mapping[str, JsonWriter] = {
    "auto": _json_auto,
    "utf8": lambda data, name: escape_json(encode_basestring(str(data, "utf-8", "replace"))),
    "hex": lambda data, name: f'"{data.hex()}"',
    "base64": lambda data, name: f'"{base64.b64encode(data).decode()}"',
}


def json_pieces(data: memoryview, name: str, encoding: str) -> Iterator[str]:
    """Yield the JSON value that ``JSON_WRITERS[encoding]`` returns, in pieces."""
    actual = actual_encoding(data, encoding)
    yield '"'
    for text in text_pieces(data, actual):
        yield escape_json(encode_basestring(text))[1:-1]
    yield '"' + (_noted(name) if encoding == "auto" and actual == "base64" else "")


def json_header_pieces(headers: Iterable[tuple[memoryview, memoryview | None]], encoding: str) -> Iterator[str]:
    """Yield the members of the JSON array of headers, in pieces."""
    separator = ""
    for key, value in headers:
        yield separator + '{"key":'
        # Kafka replaces bytes of a header key that are not UTF-8.
        yield from json_pieces(key, "key", "utf8")
        yield ',"value":'
        yield from ("null",) if value is None else json_pieces(value, "value", encoding)
        yield "}"
        separator = ","


def actual_encoding(data: memoryview, encoding: str) -> str:
    """Return the encoding of these bytes: for ``auto``, ``utf8`` if they are UTF-8, otherwise ``base64``."""
    if encoding != "auto":
        return encoding
    try:
        for piece in utf8_slices(data):
            str(piece, "utf-8")
    except UnicodeDecodeError:
        return "base64"
    return "utf8"


def text_pieces(data: memoryview, encoding: str) -> Iterator[str]:
    """Yield the text of bytes in pieces. ``encoding`` is utf8 (invalid bytes are replaced), hex or base64."""
    if encoding == "utf8":
        for piece in utf8_slices(data):
            yield str(piece, "utf-8", "replace")
        return
    for at in range(0, len(data), PIECE_BYTES):
        piece = data[at : at + PIECE_BYTES]
        yield piece.hex() if encoding == "hex" else base64.b64encode(piece).decode()


def utf8_slices(data: memoryview) -> Iterator[memoryview]:
    """Yield consecutive slices of at most PIECE_BYTES that decode like the whole: none ends within a character."""
    first = 0
    while first < len(data):
        end = min(first + PIECE_BYTES, len(data))
        # A character has at most three continuation bytes. After more of them, none is within a character.
        back = next((n for n in range(4) if end == len(data) or data[end - n] & 0xC0 != 0x80), 0)
        end = end - back if end - back > first else end
        yield data[first:end]
        first = end


def _noted(name: str) -> str:
    return f',"{name}_encoding":"base64"'


_SLASHES = re.compile(r"/{2,}")
# A surrogate in UTF-8 becomes one U+FFFD in Java's String (measured with Java 17), two or three in Python.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
NO_TIMESTAMP_TYPE = "NoTimestampType"

# A record's line: offset, timestamp type, timestamp, key and value size, the fields of its version, key and value.
_RECORD = "| offset: %s %s: %s keySize: %s valueSize: %s%s"
_KEY, _PAYLOAD = " key: %s", " payload: %s"
_RECORD_WITH_DATA = _RECORD + _KEY + _PAYLOAD
# The fields of v2: sequence, header keys.
_MIDDLE = " sequence: %s headerKeys: [%s]"

Data = bytes | memoryview

# The label of a KRaft control record; only the first has a colon.
_KRAFT_LABELS = {
    "LEADER_CHANGE": "LeaderChange:",
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}


def header_lines(path: str, log_start_offset: int | None) -> Iterator[str]:
    """Yield the lines before the batches of a file. ``log_start_offset`` is the number in its name, None without one."""
    # java.io.File removes doubled slashes; a URL keeps them.
    yield f"Dumping {path if '://' in path else _SLASHES.sub('/', path)}"
    name = PurePosixPath(path).name
    checkpoint = snapshot_id(name)
    if checkpoint is not None:
        yield f"Snapshot end offset: {checkpoint[0]}, epoch: {checkpoint[1]}"
    elif name == BOOTSTRAP:
        yield "KRaft bootstrap snapshot"
    elif log_start_offset is not None:
        yield f"Log starting offset: {log_start_offset}"


def batch_line(batch: RecordBatch) -> str:
    """Return the line of a batch of any version. An unchecked CRC is ``isvalid: unchecked``; Kafka always checks."""
    if batch.magic >= 2:
        horizon = "OptionalLong.empty" if batch.delete_horizon is None else f"OptionalLong[{batch.delete_horizon}]"
        what = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count}"
            f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
            f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
            f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
            f" isTransactional: {_boolean(batch.transactional)} isControl: {_boolean(batch.control)}"
            f" deleteHorizonMs: {horizon}"
        )
    else:
        what = f"offset: {batch.last_offset}"
    return (
        f"{what} position: {batch.position} {_timestamp(batch, batch.max_timestamp)}"
        f" size: {batch.size} magic: {batch.magic} compresscodec: {batch.compression}"
        f" crc: {batch.crc} isvalid: {_boolean(batch.crc_valid)}"
    )


def record_line(
    record: Record,
    batch: RecordBatch,
    *,
    inner_crc: tuple[int, bool] | None = None,
    topic: str | None = None,
    contents: tuple[str | None, str | None] | None = None,
) -> str:
    """Return the line of a record with its key and value, except those of a control record.

    For v0 and v1 messages Kafka prints the CRC, too. For a message in a wrapper it is the inner message's, ``inner_crc``,
    which ``message_crc`` returns; without it, the line lacks the CRC. It can't be computed from the record, because
    LogAppendTime replaces the timestamp. With an internal ``topic``, key and value are printed by its decoder.
    ``contents`` are a decoded key and value, which are printed instead of the bytes; None for one that is not decoded.
    """
    if batch.magic >= 2:
        keys = ",".join(java_text(header.key.encode("utf-8", "surrogateescape")) for header in record.headers)
        middle = v2_fields(record.sequence, keys)
    else:
        middle = legacy_crc(batch, inner_crc)
    line = format_record_line(
        batch.timestamp_type or NO_TIMESTAMP_TYPE,
        record.offset,
        -1 if record.timestamp is None else record.timestamp,
        record.key,
        record.value,
        middle,
        not batch.control and topic is None and not contents,
    )
    if record.control:
        return line + control_text(record.control)
    if contents and topic is None:
        for label, decoded, data in zip((_KEY, _PAYLOAD), contents, (record.key, record.value), strict=True):
            if data is not None:
                line += label % (java_text(data) if decoded is None else decoded)
    if topic is not None:
        parts = internal_text.decoded_parts(
            topic, internal_decode.decode(topic, record.key, record.value), record.offset
        )
        line += "".join(label % part for label, part in zip((_KEY, _PAYLOAD), parts, strict=True) if part is not None)
    return line


def format_record_line(
    kind: str, offset: int, timestamp: int, key: Data | None, value: Data | None, middle: str, print_data: bool
) -> str:
    """Return a record's line from its parts; ``middle`` is between the sizes and the data."""
    # The most frequent case first: this runs once per record.
    if print_data and key is not None and value is not None:
        return _RECORD_WITH_DATA % (
            offset, kind, timestamp, len(key), len(value), middle, java_text(key), java_text(value)
        )  # fmt: skip
    sizes = [-1 if data is None else len(data) for data in (key, value)]
    line = _RECORD % (offset, kind, timestamp, *sizes, middle)
    if print_data and key is not None:
        line += _KEY % java_text(key)
    if print_data and value is not None:
        line += _PAYLOAD % java_text(value)
    return line


def compose_pieces(
    kind: str, offset: int, timestamp: int, key: memoryview | None, value: memoryview | None, middle: Iterable[str]
) -> Iterator[str]:
    """Yield the line, with its end, that ``format_record_line`` returns for a record with large data, in pieces."""
    yield format_record_line(kind, offset, timestamp, key, value, "", False)
    yield from middle
    for label, data in ((_KEY, key), (_PAYLOAD, value)):
        if data is not None:
            yield label % ""
            yield from map(java_text, utf8_slices(data))
    yield "\n"


def v2_fields(sequence: int | str | None, header_keys: str) -> str:
    """Return the part of a v2 record's line between sizes and data; ``header_keys`` are joined with commas."""
    return _MIDDLE % (sequence, header_keys)


def modern_middle_pieces(sequence: int | None, header_keys: Iterable[memoryview]) -> Iterator[str]:
    """Yield what ``v2_fields`` returns, in pieces."""
    before, after = (_MIDDLE % (sequence, "\n")).split("\n")
    yield before
    for n, key in enumerate(header_keys):
        yield "," if n else ""
        yield from map(java_text, utf8_slices(key))
    yield after


#: The cells that ``line_writer`` writes at the marks of ``record_template``. A null is dropped together with the text
#: before it, up to the mark ``nothing``.
TEMPLATE_CELLS = ("offset", "timestamp", "key_size", "value_size", "sequence", "headers", "nothing", "key", "value")


def record_template(kind: str, mark: str) -> str:
    """Return the line of a v2 record with data, as a template: ``kind`` is the timestamp type, marks are the cells."""
    middle = v2_fields(mark, mark) + mark
    return _RECORD_WITH_DATA % (mark, kind, mark, mark, mark, middle, mark, mark) + "\n"


def message_crc(payload: bytes | memoryview, magic: int, key_at: int, value_end: int) -> tuple[int, bool]:
    """Return the stored CRC of a message within a wrapper, and whether it is right.

    ``payload`` is the decompressed value of the wrapper, ``key_at`` the byte in it where the key begins, also for a null
    key, as in ``RecordColumns``, ``value_end`` the byte after the value.
    """
    at = key_at - 4 - (layout.V1_KEY_AT if magic == 1 else layout.V0_KEY_AT)
    stored = int.from_bytes(payload[at + layout.LEGACY_CRC_AT : at + layout.MAGIC_AT], "big")
    return stored, stored == zlib.crc32(payload[at + layout.MAGIC_AT : value_end])


def java_text(data: bytes | memoryview) -> str:
    """Decode UTF-8 like ``new String(bytes, UTF_8)``: invalid bytes become as many U+FFFD as in Java."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", bytes(data)).decode("utf-8", "replace")


def _timestamp(batch: RecordBatch, timestamp: int | None) -> str:
    # Kafka prints the timestamp type of the batch, even if the inner message has another.
    return f"{batch.timestamp_type or NO_TIMESTAMP_TYPE}: {-1 if timestamp is None else timestamp}"


def legacy_crc(batch: RecordBatch, inner_crc: tuple[int, bool] | None) -> str:
    """Return the part of a v0 or v1 message's line about its CRC."""
    if batch.compression == "none":
        return f" isValid: {_boolean(batch.crc_valid)} crc: {batch.crc}"
    return "" if inner_crc is None else f" isValid: {_boolean(inner_crc[1])} crc: {inner_crc[0]}"


def control_text(control: control_records.ControlRecord) -> str:
    """Return the end of a control record's line; nothing if Kafka would throw."""
    if control.type == "MALFORMED":
        return ""
    if control.type in ("ABORT", "COMMIT"):
        return f" endTxnMarker: {control.type} coordinatorEpoch: {control.fields['coordinator_epoch']}"
    label = _KRAFT_LABELS.get(control.type)
    if label is None:
        return f" controlType: UNKNOWN({control.type_id})"
    return f" {label} {internal_text.jackson(_camel_cased(control.fields))}"


def _camel_cased(node: object) -> object:
    if isinstance(node, dict):
        return {re.sub("_(.)", lambda part: part[1].upper(), name): _camel_cased(value) for name, value in node.items()}
    return [_camel_cased(item) for item in node] if isinstance(node, list) else node


def _boolean(value: bool | None) -> str:
    return "unchecked" if value is None else str(value).lower()
