"""Decode keys and values: with a deserializer that is named, or by the schema id that comes with the bytes."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from kseg.errors import UsageError
from kseg.extras.serialization import avro, binary_json, envelopes, protobuf
from kseg.extras.serialization.envelopes import WRAPPERS, Wrapper
from kseg.extras.serialization.json_values import parse_json, text_of_bytes
from kseg.extras.serialization.schema_set import (
    AVRO,
    JSON,
    MOST_BYTES,
    PROTOBUF,
    Read,
    RegistryError,
    Schema,
    SchemaError,
    SchemaSet,
    SchemaSource,
    one_line,
    referenced,
    why_lost,
)
from kseg.text import finite, one_of, unknown_name


def _number(layout: str) -> Callable[[bytes], Any]:
    reader = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != reader.size:
            raise ValueError(f"expected {reader.size} bytes, got {len(data):,}")
        return finite(reader.unpack(data)[0])

    return decode


def _uuid(data: bytes) -> str:
    text = text_of_bytes(data)
    if len(text) != 36:
        raise ValueError(f"expected a UUID as a text of 36 characters, got {len(text):,}")
    return str(uuid.UUID(text))


#: The deserializers without a schema, by their names in ``--key-as`` and ``--value-as``. Adding one is one row. They raise
#: ValueError with a reason in one line. Numbers are big endian or IEEE 754, as Kafka's serializers write them.
PLAIN: Mapping[str, Callable[[bytes], Any]] = {
    "string": text_of_bytes,
    "json": parse_json,
    "connect-json": envelopes.decode_connect,  # a payload with its schema (Connect's JsonConverter)
    "msgpack": binary_json.decode_msgpack,
    "cbor": binary_json.decode_cbor,
    "int16": _number(">h"),
    "int32": _number(">i"),
    "int64": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
    "uuid": _uuid,  # as text (UUIDSerializer)
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
}


#: Decode values with a schema id, and leave other bytes as they are.
AUTO = "auto"
#: Deserializers of values with or without a schema id; without it, they use the schema of the topic's subject.
_BY_SCHEMA = {"avro": AVRO, "protobuf": PROTOBUF, "json-schema": JSON}
#: Decode values with a schema id to typed columns; every other value has a reason.
STRUCT = "struct"
#: What ``--key-as`` and ``--value-as`` accept.
NAMES = (AUTO, STRUCT, *_BY_SCHEMA, *PLAIN, *WRAPPERS)

#: The first bytes of values with a schema: of an id, and of Avro's single-object encoding.
_FIRST_BYTES = (b"\0", envelopes.GLUE, envelopes.SINGLE_OBJECT[:1])
_INT64 = 8
#: In place of a schema id from a header without a valid one, and of the indexes after it.
_MALFORMED, _FIRST_MESSAGE = b"\xff", b"\0"
#: Registries count from 1, Confluent Cloud from 100,001.
_LARGEST_LIKELY_ID = 0xFFFFFF
#: The schemas whose readers are kept; data with random ids has many.
_MOST_READERS = 10_000


def needs_schemas(name: str) -> bool:
    """Return whether a deserializer of NAMES decodes nothing without a source of schemas, also in a wrapper."""
    kind, _, argument = name.partition(":")
    return needs_schemas(argument) if kind in WRAPPERS else kind == STRUCT or kind in _BY_SCHEMA


class DecodedValue(NamedTuple):
    """A decoded key or value. ``value`` is what JSON has; ``kind`` is the deserializer, None if nothing was decoded.

    ``error`` says why bytes were not decoded; then ``value`` is None. ``unread`` names the schema that a registry was asked
    for without an answer, which is then the reason: another time the bytes may be decoded.
    """

    kind: str | None = None
    value: Any = None
    schema_id: int | None = None
    error: str | None = None
    unread: str | None = None


#: Bytes that are left as they are without a reason: null, or bytes without a schema id.
NOT_DECODED = DecodedValue()
Headers = Iterable[tuple[Any, Any]]
_References = list[tuple[str, Schema]]
#: The schema id of the values, None for values without one.
_Found = envelopes.SchemaId | None


class Decoder(Protocol):
    """Decodes the keys or the values of topics."""

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        """Return a key or a value decoded; ``headers`` are those of its record, ``topic`` is None if it is not known."""


class _Reader(NamedTuple):
    """Reads the values of one schema from byte ``start``. ``read`` takes the bytes, and message indexes of a header.

    ``unread`` is that of DecodedValue. ``otherwise`` reads values that this reader cannot read. ``is_number`` is True if a
    value of eight bytes is more often a number than a value with this id, which no source has.
    """

    kind: str | None
    schema_id: int | None = None
    start: int = 0
    read: Read | None = None
    error: str | None = None
    unread: str | None = None
    otherwise: _Reader | None = None
    is_number: bool = False


class FieldDecoder:
    """Decodes keys or values with one of NAMES. ``side`` is "key" or "value".

    ``avro:SUBJECT``, ``struct:SUBJECT`` and ``protobuf:MESSAGE`` name the schema of bytes without a schema id,
    ``time-windowed:string`` the type of the bytes in a wrapper. Raises UsageError for an unknown name.
    """

    def __init__(self, side: str, name: str, schemas: SchemaSource | None = None) -> None:
        kind, _, self._argument = name.partition(":")
        self._wrapper = WRAPPERS.get(kind)
        if kind not in NAMES or (self._argument and kind not in (STRUCT, *_BY_SCHEMA) and not self._wrapper):
            raise UsageError(unknown_name("deserializer", name, NAMES))
        if self._wrapper and self._argument.partition(":")[0] in WRAPPERS:
            raise UsageError(f"{name!r}: a wrapper is not in another one")
        if self._wrapper:
            self._inner = FieldDecoder(side, self._argument or "string", schemas)
        self._side = side
        self._kind = kind
        self._plain = PLAIN.get(kind)
        self._schemas: SchemaSource = schemas or SchemaSet()
        self._readers: dict[tuple[str | None, bytes, bool], _Reader] = {}
        self._id_of_unnamed: envelopes.SchemaId | None = None

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        """Return a key or a value decoded. Raises UsageError if a library is missing."""
        if data is None:
            return NOT_DECODED
        if self._plain:
            try:
                return DecodedValue(self._kind, self._plain(data))
            except ValueError as error:
                return DecodedValue(self._kind, error=str(error))
        if self._wrapper:
            return self._unwrap(self._wrapper, topic, data, headers)
        if not headers:
            if self._kind == AUTO and data[:1] not in _FIRST_BYTES:
                return NOT_DECODED
            reader = self._readers.get((topic, data[: envelopes.ID_END], False))  # the most frequent case
            if reader and not reader.error and len(data) <= MOST_BYTES:
                return self._read(reader, data, None)
        prefix, indexes = _prefix(data), None
        if headers and (stored := envelopes.header_of(self._side, headers)) is not None:
            found = envelopes.read_header_id(stored)
            prefix, indexes = (stored[: found.end], stored[found.end :]) if found else (_MALFORMED, _FIRST_MESSAGE)
        place = topic, prefix, indexes is not None
        reader = self._readers.get(place) or self._keep(place)
        if reader.read is None:
            if reader.is_number and indexes is None and len(data) == _INT64:
                return NOT_DECODED
            return DecodedValue(reader.kind, None, reader.schema_id, reader.error, reader.unread)
        if len(data) > MOST_BYTES:
            return DecodedValue(reader.kind, None, reader.schema_id, f"larger than {MOST_BYTES:,} bytes")
        return self._read(reader, data, indexes)

    def _unwrap(self, wrapper: Wrapper, topic: str | None, data: bytes, headers: Headers) -> DecodedValue:
        """Return the content of a wrapper decoded, with the numbers of the wrapper."""
        try:
            inner, numbers = wrapper.split(data)
        except ValueError as error:
            return DecodedValue(self._kind, error=str(error))
        found = self._inner.decode(topic, inner, headers)
        if found.kind is None or found.error:
            reason = found.error or f"no schema id: name the type of the {wrapper.content}, as {self._kind}:string does"
            return DecodedValue(self._kind, None, found.schema_id, reason, found.unread)
        return DecodedValue(self._kind, {wrapper.content: found.value, **numbers}, found.schema_id)

    def _read(self, reader: _Reader, data: bytes, indexes: bytes | None) -> DecodedValue:
        assert reader.read
        try:
            return DecodedValue(reader.kind, reader.read(data[reader.start :], indexes), reader.schema_id)
        except (ValueError, SchemaError) as error:
            if reader.otherwise and (found := self._read(reader.otherwise, data, indexes)).error is None:
                return found
            return DecodedValue(reader.kind, None, reader.schema_id, one_line(error))

    def _keep(self, place: tuple[str | None, bytes, bool]) -> _Reader:
        if len(self._readers) >= _MOST_READERS:
            self._readers.clear()
        self._readers[place] = self._open(*place)
        return self._readers[place]

    def _open(self, topic: str | None, prefix: bytes, in_header: bool) -> _Reader:
        """Return the reader for bytes with a prefix, which is empty without a schema id."""
        if not prefix and self._kind == AUTO:
            return _Reader(None)
        subject = f"{topic}-{self._side}" if topic else ""
        found = envelopes.read_header_id(prefix)
        number = found.number if found else None
        start = 0 if in_header else len(prefix)
        try:
            registered = self._registered(found, prefix, subject) if prefix else None
            schema = registered or self._unregistered(subject)
            if schema and not registered and not in_header and _begins_by_chance(schema, number):
                prefix = b""
            if schema is None or (prefix and not registered and not self._reads_any_id(schema)):
                is_number = self._kind == AUTO and not self._schemas.by_subject(subject)
                # A key is often a number or another text that begins as an id does; a value with a schema seldom is.
                if (
                    found
                    and (self._side == "value" or not is_number)
                    and (why := why_lost(self._schemas, found.number))
                ):
                    raise RegistryError(why)
                return _Reader(None, number, error=self._missing(found, prefix, subject), is_number=is_number)
            if schema.type not in _TYPES:
                raise SchemaError(f"{schema.label} has the type {schema.type!r}: expected {one_of(list(_TYPES))}")
            kind, open_reads = _TYPES[schema.type]
            message = self._argument if self._kind == "protobuf" and not registered else ""
            with_id, bare = open_reads(schema, referenced(schema, self._schemas), message, found)
            whole = _Reader(kind, schema.id, 0, bare)
            if not prefix:
                return whole
            used = number if number or not registered else schema.id
            otherwise = whole if schema.id is None and not registered and not in_header else None
            return _Reader(kind, used, start, envelopes.decompressing(prefix, with_id), otherwise=otherwise)
        except SchemaError as error:
            return _Reader(None, number, error=one_line(error))
        except RegistryError as error:
            wanted = (number or found.guid) if found else self._argument or subject
            return _Reader(None, number, error=one_line(error), unread=str(wanted))

    def _registered(self, found: envelopes.SchemaId | None, prefix: bytes, subject: str) -> Schema | None:
        """Return the schema that the prefix names, by its id, its GUID or its fingerprint."""
        if found is None:
            return self._by_fingerprint.get(prefix[len(envelopes.SINGLE_OBJECT) :])
        known = self._schemas.by_guid(found.guid) if found.guid else self._schemas.by_id(found.number or 0, subject)
        return known or (self._unnamed_for(found) if self._kind in (AUTO, STRUCT) and self._side == "value" else None)

    def _unnamed(self) -> list[Schema]:
        """Return the schemas of files that were given without a name."""
        return [schema for schema in self._schemas.all() if schema.is_unnamed]

    def _unnamed_for(self, found: envelopes.SchemaId) -> Schema | None:
        """Return the only unnamed schema for the first id that no source has. Another id has another schema."""
        unnamed = self._unnamed()
        if len(unnamed) != 1:
            return None
        self._id_of_unnamed = self._id_of_unnamed or found
        return unnamed[0] if self._id_of_unnamed == found else None

    @cached_property
    def _by_fingerprint(self) -> dict[bytes, Schema]:
        found = {}
        for schema in self._schemas.all():
            if schema.type == AVRO:
                with suppress(SchemaError):
                    found[avro.fingerprint(schema)] = schema
        return found

    def _unregistered(self, subject: str) -> Schema | None:
        """Return the schema for bytes without a schema id: of the subject, or the only one of the type."""
        if self._kind in (AUTO, STRUCT):
            return self._schemas.by_subject(self._argument) if self._argument else None
        wanted = _BY_SCHEMA[self._kind]
        if self._kind == "avro" and self._argument:
            return self._schemas.by_subject(self._argument)
        schema = self._schemas.by_subject(subject)
        if schema is None or schema.type != wanted:
            others = [schema for schema in self._schemas.all() if schema.type == wanted]
            schema = others[0] if len(others) == 1 else None
        return schema

    def _reads_any_id(self, schema: Schema) -> bool:
        """Return whether values with an id that no source has are read with this schema.

        It is named, is a file without an id or a UUID, or is a JSON Schema, without which JSON is the same. Another schema,
        such as that of a subject, could decode a value to a wrong one.
        """
        return bool(self._argument) or (schema.id is None and schema.guid is None) or schema.type == JSON

    def _missing(self, found: envelopes.SchemaId | None, prefix: bytes, subject: str) -> str:
        if not prefix and self._kind == STRUCT and not self._argument:
            return "no schema id"
        if not prefix:
            return f"no schema id, and no schema of {self._argument or subject or 'its subject'}"
        if prefix == _MALFORMED:
            return "the header has no valid schema id"
        if found is None:
            return f"no schema with the fingerprint {prefix[len(envelopes.SINGLE_OBJECT) :].hex()}"
        hint = f": give --schema-file {found.number}=FILE" if found.number and self._unnamed() else ""
        return f"schema {found.number or found.guid} is not known{hint}"


def _prefix(data: bytes) -> bytes:
    """Return the bytes that name the schema at the start of a value."""
    if found := envelopes.read_schema_id(data):
        return data[: found.end]
    is_object = data[:2] == envelopes.SINGLE_OBJECT and len(data) >= envelopes.SINGLE_OBJECT_END
    return data[: envelopes.SINGLE_OBJECT_END] if is_object else b""


def _begins_by_chance(schema: Schema, number: int | None) -> bool:
    """Return whether an id that no source has is the beginning of a value without an id, such as an Avro union's 0."""
    return schema.type == AVRO and number is not None and number > _LARGEST_LIKELY_ID


def _avro(schema: Schema, references: _References, message: str, found: _Found) -> tuple[Read, Read]:
    decode = avro.avro_reader(schema, references)
    of_bytes = avro.bytes_reader(schema) if found and found.is_confluent else None
    decode_with_id = of_bytes or decode
    return lambda data, indexes: decode_with_id(data), lambda data, indexes: decode(data)


def _protobuf(schema: Schema, references: _References, message: str, found: _Found) -> tuple[Read, Read]:
    compiled = protobuf.ProtobufSchema(schema, references)
    bare = compiled.decoder(message) if message else None
    read_message = envelopes.read_message_number if found and found.is_glue else envelopes.read_message

    def with_id(data: bytes, indexes: bytes | None) -> Any:
        which, end = read_message(data if indexes is None else indexes)
        return (bare or compiled.decoder(which))(data[end:] if indexes is None else data)

    return with_id, lambda data, indexes: (bare or compiled.decoder((0,)))(data)


def _json(schema: Schema, references: _References, message: str, found: _Found) -> tuple[Read, Read]:
    def read(data: bytes, indexes: bytes | None) -> Any:
        return parse_json(data)

    return read, read


#: By the type of a schema: the kind that results have, and a function that returns the readers of values that had a schema
#: id, and of values that never had one. Adding a type is one row.
_TYPES: Mapping[str, tuple[str, Callable[[Schema, _References, str, _Found], tuple[Read, Read]]]] = {
    AVRO: ("avro", _avro),
    PROTOBUF: ("protobuf", _protobuf),
    JSON: ("json-schema", _json),
}


def check_schema(schema: Schema, schemas: SchemaSource) -> None:
    """Raise SchemaError if a schema cannot be used, and UsageError if a library for it is missing."""
    _TYPES[schema.type][1](schema, referenced(schema, schemas), "", None)
    if schema.type == JSON:
        try:
            found = parse_json(schema.text.encode())
        except ValueError as error:
            raise SchemaError(f"{schema.label} is {error}") from None
        if not isinstance(found, (dict, bool)):
            raise SchemaError(f"{schema.label} is not a JSON Schema: expected an object, true or false")
