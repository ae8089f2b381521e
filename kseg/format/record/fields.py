"""Every field of a batch, a message or a record: its bytes, Kafka's name for it, and its meaning.

This is for people: ``kseg dump --format hex`` and the documentation show it. It decodes the bytes on its own, field by field
and slowly; ``default_records`` and ``legacy_records`` are the fast loops.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kseg.format.compress.codecs import codec_name, is_plain
from kseg.format.record import layout
from kseg.format.record.control_records import MalformedControlRecord, decode
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.framing import batch_crc
from kseg.text import count_of, iso_time

#: A function that returns the meaning of a number.
Describe = Callable[[int], str]


class StoredField(NamedTuple):
    """``size`` bytes from index ``at`` of the data, Kafka's ``name`` for them, and their ``meaning`` in words.

    ``content`` marks bytes that are data of the user or were not decoded: they are shown with their text.
    """

    at: int
    size: int
    name: str
    meaning: str
    content: bool = False


class UnexpectedBytesError(Exception):
    """A field has a value that the format does not allow; ``str(error)`` has the expected and the found value."""


class StoredFieldReader:
    """Reads fields one after another from ``data[at:end]`` and collects them in ``fields``."""

    def __init__(self, data: bytes | memoryview, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.fields: list[StoredField] = []

    def take(self) -> list[StoredField]:
        """Return the fields since the last call."""
        taken, self.fields = self.fields, []
        return taken

    def integer(self, size: int, name: str, describe: Describe = lambda value: "", *, signed: bool = True) -> int:
        """Read a big-endian integer; ``describe`` returns what follows its name, by default the number."""
        if size > self.end - self.at:
            raise UnexpectedBytesError(f"{name}: expected {count_of(size, 'byte')}, found {self.end - self.at}")
        value = int.from_bytes(self.data[self.at : self.at + size], "big", signed=signed)
        self._add(size, name, describe(value) or str(value))
        return value

    def varint(self, name: str, describe: Describe = lambda value: "", *, most: int = 5) -> int:
        """Read a zig-zag varint of at most ``most`` bytes: 5 for an int32, 10 for an int64."""
        raw, size = self._varint(name, most)
        value = (raw >> 1) ^ -(raw & 1)
        self._add(size, name, describe(value) or str(value))
        return value

    def uvarint(self, name: str, describe: Describe = str) -> int:
        """Read an unsigned varint of at most 5 bytes."""
        value, size = self._varint(name, 5)
        self._add(size, name, describe(value))
        return value

    def _varint(self, name: str, most: int) -> tuple[int, int]:
        """Return the bits of the varint at the reader's place, and its size in bytes."""
        raw = size = 0
        while True:
            if size == most:
                raise UnexpectedBytesError(f"{name}: a varint of more than {most} bytes")
            if self.at + size >= self.end:
                raise UnexpectedBytesError(f"{name}: the varint has no last byte")
            byte = self.data[self.at + size]
            raw |= (byte & 127) << 7 * size
            size += 1
            if byte < 128:
                return raw, size

    def content(self, size: int, name: str, meaning: str = "") -> None:
        """Read ``size`` bytes of data; none if ``size`` is 0 or, for null, negative."""
        if size > self.end - self.at:
            raise UnexpectedBytesError(f"{name}: expected {count_of(size, 'byte')}, found {self.end - self.at:,}")
        if size > 0:
            meaning = meaning or describe_bytes(self.data[self.at : self.at + min(size, _DESCRIBED)], size)
            self._add(size, name, meaning, content=True)

    def rest(self, meaning: str) -> None:
        """Add all bytes that are left, which were not decoded."""
        if self.at < self.end:
            self._add(self.end - self.at, "", meaning, content=True)

    def _add(self, size: int, name: str, meaning: str, *, content: bool = False) -> None:
        self.fields.append(StoredField(self.at, size, name, meaning, content))
        self.at += size


#: The first bytes of a key or value, which show whether it is text.
_DESCRIBED = 64 * 1024


def describe_bytes(data: bytes | memoryview, size: int) -> str:
    """Return the size of a content and whether it is text, by its first bytes ``data``."""
    try:
        # The last character may be cut.
        text, _ = codecs.utf_8_decode(data, "strict", size == len(data))
    except UnicodeDecodeError:
        return f"{count_of(size, 'byte')}, binary"
    kind = "text" if text.isprintable() or not any(c < " " and c not in "\t\r\n" for c in text) else "binary"
    return f"{count_of(size, 'byte')}, {kind}"


def batch_fields(stored: bytes | memoryview) -> list[StoredField]:
    """Return the header fields of a batch of any version. ``stored`` are its bytes in the log, perhaps not all of them.

    Of a v2 batch the payload is left out. A v0 or v1 batch is a message, with its key and its value.
    """
    reader = StoredFieldReader(stored, 0, len(stored))
    try:
        if len(stored) <= layout.MAGIC_AT:
            raise UnexpectedBytesError("a batch has at least 17 bytes up to its magic byte")
        if stored[layout.MAGIC_AT] >= 2:
            _batch_header(reader)
        else:
            _message(reader)
    except UnexpectedBytesError as error:
        reader.rest(str(error))
    return reader.fields


def _batch_header(reader: StoredFieldReader) -> None:
    base_offset = reader.integer(8, "baseOffset")
    reader.integer(4, "batchLength", lambda size: f"{size}: bytes after this field")
    reader.integer(4, "partitionLeaderEpoch")
    reader.integer(1, "magic", _describe_magic)
    reader.integer(4, "crc", lambda stored: _crc(reader, 0, stored, 2), signed=False)
    attributes = reader.integer(2, "attributes", describe_attributes)
    reader.integer(4, "lastOffsetDelta", lambda delta: f"{delta}: last offset {base_offset + delta}")
    horizon = attributes & layout.DELETE_HORIZON
    reader.integer(8, "baseTimestamp", lambda time: ("delete horizon " if horizon else "") + describe_time(time))
    reader.integer(8, "maxTimestamp", describe_time)
    reader.integer(8, "producerId", _or_none)
    reader.integer(2, "producerEpoch", _or_none)
    reader.integer(4, "baseSequence", _or_none)
    reader.integer(4, "recordsCount")


def _message(reader: StoredFieldReader) -> None:
    """Read a v0 or v1 message: a batch, or a message of a compressed message set."""
    start = reader.at
    reader.integer(8, "offset")
    size = reader.integer(4, "messageSize", lambda size: f"{size}: bytes after this field")
    if size < layout.V0_MIN_SIZE:
        raise UnexpectedBytesError(f"messageSize: expected at least {layout.V0_MIN_SIZE} bytes, found {size}")
    end, reader.end = reader.end, min(reader.at + size, reader.end)
    try:
        reader.integer(4, "crc", lambda stored: _crc(reader, start, stored, 0), signed=False)
        magic = reader.integer(1, "magic", _describe_magic)
        if magic not in (0, 1):
            raise UnexpectedBytesError(f"magic: expected 0 or 1, found {magic}")
        attributes = reader.integer(1, "attributes", lambda bits: describe_attributes(bits, magic))
        if magic:
            reader.integer(8, "timestamp", describe_time)
        reader.content(reader.integer(4, "keySize", describe_size), "key")
        size = reader.integer(4, "valueSize", describe_size)
        reader.content(size, "value", value_meaning(reader, size, attributes & layout.CODEC_MASK, magic))
        reader.rest("not decoded: bytes after the value")
    finally:
        reader.end = end


def value_meaning(reader: StoredFieldReader, size: int, codec: int, magic: int) -> str:
    """Return the meaning of the value at the reader's place, empty for that of a message without a codec."""
    value = memoryview(reader.data)[reader.at : min(reader.at + max(size, 0), reader.end)]
    return payload_meaning(value, codec, magic) if codec and value else ""


def payload_meaning(payload: memoryview, codec: int, magic: int) -> str:
    """Return the size of a payload, and whether it is compressed with the codec that its attributes name."""
    if is_plain(codec, payload, magic=magic):
        return f"{describe_bytes(payload[:_DESCRIBED], len(payload))}, not compressed with {codec_name(codec)}"
    return f"{count_of(len(payload), 'byte')}, compressed with {codec_name(codec)}"


def message_set_fields(data: bytes | memoryview) -> Iterator[list[StoredField]]:
    """Yield the fields of each message of a decompressed message set."""
    reader = StoredFieldReader(data, 0, len(data))
    while reader.at < reader.end:
        try:
            _message(reader)
        except UnexpectedBytesError as error:
            reader.rest(f"not decoded: {error}")
        yield reader.take()


def record_fields(
    data: bytes | memoryview, at: int, base_offset: int, base_timestamp: int, *, control: bool
) -> Iterator[list[StoredField]]:
    """Yield the fields of each record of a v2 payload, which begins at ``data[at]`` and ends with ``data``.

    ``control``: the records are control records, whose keys and values have fields of their own. The last item has the
    bytes that can't be decoded, with the reason, if there are any.
    """
    reader = StoredFieldReader(data, at, len(data))
    end = reader.end
    while reader.at < end:
        try:
            _record(reader, end, base_offset, base_timestamp, control)
        except UnexpectedBytesError as error:
            reader.end = end
            reader.rest(f"not decoded: {error}")
        reader.end = end
        yield reader.take()


def _record(reader: StoredFieldReader, end: int, base_offset: int, base_timestamp: int, control: bool) -> None:
    length = reader.varint("length", lambda size: f"{size}: bytes after this field")
    if length < 0:
        raise UnexpectedBytesError(f"length: expected at least 0 bytes, found {length}")
    reader.end = min(reader.at + length, end)
    reader.integer(1, "attributes")
    reader.varint("timestampDelta", lambda delta: f"{delta}: {describe_time(base_timestamp + delta)}", most=10)
    reader.varint("offsetDelta", lambda delta: f"{delta}: offset {base_offset + delta}")
    reader.content(reader.varint("keyLength", describe_size), "key")
    reader.content(reader.varint("valueLength", describe_size), "value")
    if control:
        _describe_control(reader)
    count = reader.varint("headersCount")
    if not 0 <= count <= (reader.end - reader.at) // 2:
        raise UnexpectedBytesError(f"headersCount: expected 0 to {(reader.end - reader.at) // 2}, found {count}")
    for _ in range(min(count, MAX_HEADERS)):
        reader.content(reader.varint("headerKeyLength", describe_size), "headerKey")
        reader.content(reader.varint("headerValueLength", describe_size), "headerValue")
    more = count_of(count - MAX_HEADERS, "more header") if count > MAX_HEADERS else "bytes after the last header"
    reader.rest(f"not decoded: {more}")


def _describe_control(reader: StoredFieldReader) -> None:
    """Replace the key and the value of a control record, the last fields that were read, by their own fields."""
    stored = {
        field.name: bytes(reader.data[field.at : field.at + field.size]) for field in reader.fields if field.content
    }
    try:
        meaning = decode(stored.get("key", b""), stored.get("value", b"")).as_dict()
    except MalformedControlRecord as error:
        meaning = {"type": f"malformed: {error}"}
    marker = meaning["type"] in ("ABORT", "COMMIT")
    known = {"key": ((2, "version"), (2, "type")), "value": ((2, "version"), (4, "coordinatorEpoch"))[: 1 + marker]}
    found: list[StoredField] = []
    for field in reader.fields:
        parts = known.get(field.name)
        if parts is None or field.size < sum(size for size, _ in parts):
            found.append(field)
            continue
        nested = StoredFieldReader(reader.data, field.at, field.at + field.size)
        for size, name in parts:
            nested.integer(size, name, partial("{1}: {0}".format, meaning["type"]) if name == "type" else str)
        nested.rest(", ".join(f"{name} {value}" for name, value in meaning.items() if name not in ("type", "version")))
        found += nested.fields
    reader.fields = found


def _crc(reader: StoredFieldReader, start: int, stored: int, magic: int) -> str:
    """Return the stored CRC of the batch at ``start``, and whether it is that of the bytes."""
    declared = int.from_bytes(reader.data[start + layout.SIZE_AT :][:4], "big", signed=True)
    if start + layout.LOG_OVERHEAD + declared > reader.end:
        return f"0x{stored:08x}, not checked: the batch is incomplete"
    computed = batch_crc(memoryview(reader.data), start, reader.end, magic)
    kind = "CRC-32C" if magic else "CRC-32"
    return f"0x{stored:08x}, " + (f"valid {kind}" if computed == stored else f"WRONG: computed 0x{computed:08x}")


_FLAGS = {
    layout.TRANSACTIONAL: "transactional",
    layout.CONTROL: "control",
    layout.DELETE_HORIZON: "delete horizon",
}


def _describe_magic(magic: int) -> str:
    return f"{magic}: v{magic}" if magic in (0, 1, 2) else f"{magic}: not a record version"


def describe_attributes(bits: int, magic: int = 2) -> str:
    """Return the meaning of the attributes of a batch."""
    words = [f"compression {codec_name(bits & layout.CODEC_MASK)}"]
    if magic:
        words.append(layout.TIMESTAMP_TYPES[1 if bits & layout.LOG_APPEND_TIME else 0])
    if magic >= 2:
        words += [name for bit, name in _FLAGS.items() if bits & bit]
    reserved = bits & (layout.V2_RESERVED if magic >= 2 else layout.V1_RESERVED if magic == 1 else layout.V0_RESERVED)
    return ", ".join([*words, *([f"reserved bits 0x{reserved:x}"] if reserved else [])])


def describe_time(milliseconds: int) -> str:
    """Return the time of a timestamp."""
    return "-1: none" if milliseconds == layout.NO_TIMESTAMP else iso_time(milliseconds)


def describe_size(size: int) -> str:
    """Return the meaning of the length of a key, a value or a header."""
    return "-1: null" if size == -1 else str(size)


def _or_none(value: int) -> str:
    return "-1: none" if value == -1 else str(value)
