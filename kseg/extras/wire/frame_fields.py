"""Every field of a request, a response or a single message: its bytes, Kafka's name for it, and its meaning.

``kseg dump --as NAME --format hex`` shows them. The bytes are decoded field by field, apart from the fast readers.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kseg.extras.wire.apis import Api, header_versions
from kseg.format.compress.codecs import CodecError, codec_name, decompress, is_plain
from kseg.format.messages.definitions import APIS, MessageField, definition
from kseg.format.record import fields as record_fields
from kseg.format.record import layout
from kseg.format.record.fields import (
    Describe,
    StoredFieldReader,
    UnexpectedBytesError,
    describe_attributes,
    describe_size,
    describe_time,
    payload_meaning,
    value_meaning,
)
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT
from kseg.schema import Row
from kseg.text import count_of

_INTEGERS = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
_UUID_SIZE = 16
#: The most parts of an array, and the most batches of a record set, that are shown.
MAX_PARTS = 1000


class FramePart(NamedTuple):
    """Fields with a title. Their positions count from ``data[0]``, which is byte ``shift`` of the file."""

    title: str
    fields: list[record_fields.StoredField]
    data: bytes | memoryview
    shift: int


def _frame_parts(kind: str, stored: memoryview, position: int, row: Row | None) -> Iterator[FramePart]:
    """Yield the parts of a request or a response with its size.

    ``row`` is None for bytes that may not be one, and has the API of a response, if that is known.
    """
    reader = StoredFieldReader(stored, 0, len(stored))
    records: list[tuple[str, int, int]] = []
    try:
        reader.integer(4, "size", lambda size: f"{size}: bytes after this field")
        api = _header(kind, reader, row)
        body = None if api is None else api.definition(kind)
        if api is not None and body is not None:
            _Walk(reader, api.version, api.version in body.flexible, records).structure(body.fields, kind.lower())
            reader.rest("not decoded: bytes after the body")
    except UnexpectedBytesError as error:
        reader.rest(f"not decoded: {error}")
    reader.rest("body, not decoded: the API or its version is unknown")
    yield FramePart("", reader.fields, stored, position)
    for name, at, size in records:
        yield from set_parts(f"{name}: ", stored[at : at + size], position + at)


request_parts, response_parts = partial(_frame_parts, "Request"), partial(_frame_parts, "Response")


def _header(kind: str, reader: StoredFieldReader, row: Row | None) -> Api | None:
    """Read the header; return the API of the body, None if it is unknown."""
    if kind == "Request":
        key, version = (
            int.from_bytes(reader.data[at : at + 2], "big", signed=True) for at in (reader.at, reader.at + 2)
        )
        api: Api | None = Api(key, version)
    else:
        known = row is not None and row["api_key"] is not None
        api = Api(row["api_key"], row["api_version"]) if known and row is not None else None
    version = header_versions(api)[kind == "Response"] if api is not None else 0
    header = definition(APIS, f"{kind}Header", version)
    assert header
    _Walk(reader, version, version in header.flexible, []).structure(header.fields, "header")
    return api


class _Walk:
    """Reads the fields of a message in one version. Collects the places of record sets in ``records``."""

    def __init__(
        self, reader: StoredFieldReader, version: int, flexible: bool, records: list[tuple[str, int, int]]
    ) -> None:
        self._reader = reader
        self._version = version
        self._flexible = flexible
        self._records = records

    def structure(self, fields: tuple[MessageField, ...], path: str) -> None:
        """Read a structure; ``path`` is its name, which begins the names of its fields."""
        version = self._version
        present = [field for field in fields if version in field.versions]
        for field in present:
            if version not in field.tagged:
                self._field(field, f"{path}.{field.name}")
        if self._flexible:
            self._tags({field.tag: field for field in present if version in field.tagged}, path)

    def _tags(self, known: dict[int, MessageField], path: str) -> None:
        for _ in range(self._uvarint(f"{path}.numTaggedFields")):
            tag = self._uvarint(f"{path}.tag")
            size = self._uvarint(f"{path}.taggedFieldSize")
            reader = self._reader
            end, reader.end = reader.end, min(reader.at + size, reader.end)
            if tag in known:
                self._field(known[tag], f"{path}.{known[tag].name}")
            reader.rest("" if tag not in known else "not decoded: bytes after the tagged field")
            reader.end = end

    def _field(self, field: MessageField, name: str) -> None:
        flexible = self._flexible if field.flexible is None else self._version in field.flexible
        item = field.type.removeprefix("[]")
        if item != field.type:
            count = self._length(f"{_short(name)} count", 4, flexible)
            for n in range(min(count, MAX_PARTS)):
                self._value(field, item, f"{name.rpartition('.')[2]}[{n}]", flexible)
            if count > MAX_PARTS:
                raise UnexpectedBytesError(f"{name}: {count_of(count - MAX_PARTS, 'more item')} not shown")
        elif item not in _SIMPLE and self._version in field.nullable:
            tagged = self._version in field.tagged
            if self._uvarint(name) if tagged else self._reader.integer(1, _short(name), _presence) >= 0:
                self.structure(field.fields, name.rpartition(".")[2])
        else:
            self._value(field, item, name, flexible)

    def _value(self, field: MessageField, item: str, name: str, flexible: bool) -> None:
        reader, short = self._reader, _short(name)
        if item in _INTEGERS:
            describe = _api_name if name == "header.requestApiKey" else str
            reader.integer(_INTEGERS[item], short, describe, signed=not item.startswith("u"))
        elif item == "bool":
            reader.integer(1, short, lambda value: "true" if value else "false")
        elif item == "float64":
            reader.integer(8, short, lambda bits: str(struct.unpack(">d", bits.to_bytes(8, "big"))[0]), signed=False)
        elif item == "uuid":
            stored = bytes(reader.data[reader.at : reader.at + _UUID_SIZE])
            reader.content(_UUID_SIZE, short, base64.urlsafe_b64encode(stored).rstrip(b"=").decode())
        elif item in ("string", "bytes", "records"):
            size = self._length(f"{short} length", 2 if item == "string" else 4, flexible)
            if item == "records" and size > 0:
                self._records.append((short, reader.at, min(size, reader.end - reader.at)))
            reader.content(size, short, f"{count_of(size, 'byte')} of records, below" if item == "records" else "")
        else:
            self.structure(field.fields, name.rpartition(".")[2])

    def _length(self, name: str, size: int, flexible: bool) -> int:
        """Read a length or a count and return it, -1 for null."""
        if flexible:
            return self._uvarint(name, lambda value: str(value - 1) if value else "0: null") - 1
        return self._reader.integer(size, name, lambda value: "-1: null" if value == -1 else str(value))

    def _uvarint(self, name: str, describe: Describe = str) -> int:
        return self._reader.uvarint(_short(name), describe)


_SIMPLE = {*_INTEGERS, "bool", "float64", "uuid", "string", "bytes", "records"}


def _short(path: str) -> str:
    """Return the last two parts of a path of names."""
    return ".".join(path.split(".")[-2:])


def _presence(value: int) -> str:
    return "-1: null" if value < 0 else f"{value}: present"


def _api_name(key: int) -> str:
    return f"{key}: {Api(key, 0).name or 'unknown'}"


def message_parts(stored: memoryview, position: int, row: Row | None) -> Iterator[FramePart]:
    """Yield the parts of a message without offset and size."""
    reader = StoredFieldReader(stored, 0, len(stored))
    try:
        reader.integer(4, "crc", lambda crc: _crc(crc, zlib.crc32(stored[4:]), "CRC-32", row), signed=False)
        magic = reader.integer(1, "magic", lambda magic: f"{magic}: v{magic}")
        attributes = reader.integer(1, "attributes", lambda bits: describe_attributes(bits, min(magic, 1)))
        if magic == 1:
            reader.integer(8, "timestamp", describe_time)
        value = _key_and_value(reader, attributes, magic)
    except UnexpectedBytesError as error:
        reader.rest(f"not decoded: {error}")
        value = None
    yield FramePart("", reader.fields, stored, position)
    if value is not None:
        yield from _inner_parts(value, attributes, magic)


def wide_parts(stored: memoryview, position: int, row: Row | None) -> Iterator[FramePart]:
    """Yield the fields of a message of the tutorial's format, whose CRC has 64 bits and covers the value only."""
    reader = StoredFieldReader(stored, 0, len(stored))
    try:
        at = 14 + max(int.from_bytes(stored[10:14], "big", signed=True), 0) + 4
        reader.integer(8, "crc", lambda crc: _crc(crc, zlib.crc32(stored[at:]), "CRC-32 of the value", row))
        reader.integer(1, "magic")
        attributes = reader.integer(1, "attributes", lambda bits: f"compression {codec_name(bits & layout.CODEC_MASK)}")
        _key_and_value(reader, attributes, 0)
    except UnexpectedBytesError as error:
        reader.rest(f"not decoded: {error}")
    yield FramePart("", reader.fields, stored, position)


def _key_and_value(reader: StoredFieldReader, attributes: int, magic: int) -> memoryview | None:
    """Read key and value; return the value if it is a compressed message set."""
    reader.content(reader.integer(4, "keySize", describe_size), "key")
    size = reader.integer(4, "valueSize", describe_size)
    at, codec = reader.at, attributes & layout.CODEC_MASK
    reader.content(size, "value", value_meaning(reader, size, codec, magic))
    reader.rest("not decoded: bytes after the value")
    value = memoryview(reader.data)[at : at + size] if codec and size > 0 else None
    return None if value is None or is_plain(codec, value, magic=magic) else value


def _crc(stored: int, computed: int, kind: str, row: Row | None) -> str:
    """Return a stored CRC and whether it is right; of bytes that are not a message (no row) it is not checked."""
    if row is None:
        return f"0x{stored & 0xFFFFFFFF:08x}, not checked: the message is incomplete"
    state = f"valid {kind}" if stored == computed else f"WRONG: computed 0x{computed:08x}, {kind}"
    return f"0x{stored % (1 << 64):08x}, {state}"


def set_parts(title: str, stored: memoryview, position: int) -> Iterator[FramePart]:
    at = count = 0
    while at < len(stored) and count < MAX_PARTS:
        declared = int.from_bytes(stored[at + layout.SIZE_AT :][:4], "big", signed=True)
        size = layout.LOG_OVERHEAD + max(declared, 0) if len(stored) - at >= layout.LOG_OVERHEAD else len(stored)
        batch = stored[at : at + size]
        header = record_fields.batch_fields(batch)
        yield FramePart(f"{title}batch at {position + at}", header, batch, position + at)
        yield from _record_parts(batch, header, position + at)
        at += size
        count += 1
    if at < len(stored):
        yield FramePart(f"{title}{count_of(len(stored) - at, 'more byte')} not shown", [], b"", 0)


def _record_parts(batch: memoryview, header: list[record_fields.StoredField], position: int) -> Iterator[FramePart]:
    if len(batch) <= layout.LEGACY_ATTRIBUTES_AT or not header or header[-1].name == "":
        return  # incomplete
    magic = batch[layout.MAGIC_AT]
    if magic < 2:
        attributes, value = batch[layout.LEGACY_ATTRIBUTES_AT], header[-1]
        if attributes & layout.CODEC_MASK and value.name == "value":
            yield from _inner_parts(batch[value.at : value.at + value.size], attributes, magic)
        return
    attributes = int.from_bytes(batch[layout.ATTRIBUTES_AT :][:2], "big")
    data, shift, at = batch, position, layout.RECORD_BATCH_OVERHEAD
    if codec := attributes & layout.CODEC_MASK:
        payload = record_fields.StoredField(at, len(batch) - at, "records", payload_meaning(batch[at:], codec, 2), True)
        yield FramePart("", [payload], batch, position)
        inflated = _inflated(batch[at:], codec, 2)
        if isinstance(inflated, str):
            yield FramePart(inflated, [], b"", 0)
            return
        data, shift, at = inflated, 0, 0
    base_offset = int.from_bytes(batch[:8], "big", signed=True)
    base_timestamp = int.from_bytes(batch[layout.BASE_TIMESTAMP_AT :][:8], "big", signed=True)
    control = bool(attributes & layout.CONTROL)
    for n, found in enumerate(record_fields.record_fields(data, at, base_offset, base_timestamp, control=control)):
        yield FramePart(f"record {n}{', decompressed' if codec else ''}", found, data, shift)


def _inner_parts(value: memoryview, attributes: int, magic: int) -> Iterator[FramePart]:
    """Yield the messages in a compressed v0 or v1 message."""
    inflated = _inflated(value, attributes & layout.CODEC_MASK, magic)
    if isinstance(inflated, str):
        yield FramePart(inflated, [], b"", 0)
        return
    for n, found in enumerate(record_fields.message_set_fields(inflated)):
        yield FramePart(f"message {n}, decompressed", found, inflated, 0)


def _inflated(payload: memoryview, codec: int, magic: int) -> memoryview | str:
    """Return the decompressed bytes, or why they cannot be decompressed."""
    try:
        return memoryview(decompress(codec, payload, limit=DECOMPRESSION_LIMIT, magic=magic))
    except CodecError as error:
        return f"not decoded: {error}"
