"""The decoder of records, made from settings: which deserializers, and where schemas come from.

``--decoder``: a function of the user's own decodes keys and values.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kseg.errors import UsageError
from kseg.extras.serialization import schema_sources, struct_types, struct_values
from kseg.extras.serialization.decoding import (
    AUTO,
    NOT_DECODED,
    STRUCT,
    DecodedValue,
    Decoder,
    FieldDecoder,
    Headers,
    check_schema,
    needs_schemas,
)
from kseg.extras.serialization.envelopes import unwrapped
from kseg.extras.serialization.json_values import json_value
from kseg.extras.serialization.schema_set import (
    AVRO,
    RegistryError,
    Schema,
    SchemaError,
    SchemaSet,
    SchemaSource,
    SchemaSources,
    one_line,
)
from kseg.extras.serialization.schema_sources import schemas_of_file
from kseg.extras.serialization.schemas_topic import read_schemas_topic
from kseg.findings import Report, do_nothing
from kseg.format.record.layout import CONTROL
from kseg.format.segment.records_chunk import Chunk
from kseg.schema import CONTENT_COLUMNS, Column, Row


class FunctionDecoder:
    """Calls ``decode(topic, side, data, headers)`` for each value that is not null; the result is its value as JSON.

    ``place`` is "module:function" or "file.py:function". ``side`` is "key" or "value", ``data`` are bytes, and ``headers`` a
    list of (text, bytes or None). An exception, also SystemExit, is the reason why a value was not decoded. Raises
    UsageError if the function cannot be imported.
    """

    def __init__(self, side: str, place: str) -> None:
        self._side = side
        self._place = place
        self._function = _imported(place)

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        if data is None:
            return NOT_DECODED
        shown = [
            (name if isinstance(name, str) else str(name, "utf-8", "replace"), None if value is None else bytes(value))
            for name, value in headers
        ]
        try:
            return DecodedValue(self._place, json_value(self._function(topic, self._side, data, shown)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the user's function can raise anything, and can call sys.exit
            return DecodedValue(self._place, error=reason_of(error))


def reason_of(error: BaseException) -> str:
    """Return an exception of other people's code as one line."""
    try:
        return f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    except Exception:  # its __str__ fails
        return type(error).__name__


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.rpartition(":")
    if not module or not name:
        raise UsageError(f"--decoder: expected module:function or file.py:function, got {place!r}")
    try:
        found = _module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's module can raise anything, and can call sys.exit
        raise UsageError(f"--decoder {place}: {reason_of(error)}") from None
    function = getattr(found, name, None)
    if not callable(function):
        raise UsageError(f"--decoder {place}: there is no function {name!r}")
    return function  # type: ignore[no-any-return]


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_NAMES = {side: tuple(column.name for column in columns) for side, columns in CONTENT_COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How keys and values are decoded. The fields are the options of the command line.

    ``key_as`` and ``value_as`` are names of ``decoding.NAMES``. ``schema_files`` are given to ``schemas_of_file``, and
    ``schemas`` are paths with segments of the topic ``_schemas``. ``registry`` is a URL, and ``registry_ca`` a file with
    certificates for it. Sources are asked in this order. A side that is not named is decoded with ``function`` (that of
    FunctionDecoder), or as AUTO if a source of schemas is given. With ``unwrap`` the content of ENVELOPES is the value.

    ``key_type`` and ``value_type`` are the columns of keys and values that are decoded as STRUCT (see ``with_types``).
    Raises UsageError for a deserializer that decodes nothing without a source of schemas.
    """

    key_as: str | None = None
    value_as: str | None = None
    schema_files: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    registry: str | None = None
    registry_ca: str | None = None
    function: str | None = None
    unwrap: bool = False
    key_type: Column | None = None
    value_type: Column | None = None

    def __post_init__(self) -> None:
        for side, name in self.named.items():
            if name is not None and needs_schemas(name) and not self.has_schemas:
                raise UsageError(f"--{side}-as {name} needs --schemas, --schema-file or --registry")

    @property
    def named(self) -> dict[str, str | None]:
        return {"key": self.key_as, "value": self.value_as}

    @property
    def types(self) -> dict[str, Column | None]:
        """The columns of keys and values that are decoded as STRUCT, by side."""
        return {"key": self.key_type, "value": self.value_type}

    @property
    def columns(self) -> tuple[Column, ...]:
        return _columns(self.sides, self.types)

    @property
    def has_schemas(self) -> bool:
        return bool(self.schema_files or self.schemas or self.registry is not None)

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the sides that are decoded: of "key" and "value"."""
        both = self.has_schemas or self.function is not None
        return tuple(side for side, name in self.named.items() if both or name is not None)


def _columns(sides: Iterable[str], types: Mapping[str, Column | None]) -> tuple[Column, ...]:
    """Return the columns of decoded sides, with those of ``types`` for the contents."""
    found: list[Column] = []
    for side in sides:
        content, *others = CONTENT_COLUMNS[side]
        found += [types.get(side) or content, *others]
    return tuple(found)


#: Called with each key and value whose ``unread`` is not None.
Unread = Callable[[DecodedValue], object]


def raise_unread(found: DecodedValue) -> None:
    """Raise RegistryError: a registry that gives no answer does not say that a value cannot be decoded."""
    raise RegistryError(found.error)


class RecordDecoder:
    """Decodes the keys and the values of records. ``key`` or ``value`` is None if that side is not decoded.

    ``columns`` are those of the rows. ``schemas`` has the schemas of the sources. If ``unread`` returns, the error of such
    a key or value is in its row.
    """

    def __init__(
        self,
        key: Decoder | None,
        value: Decoder | None,
        schemas: SchemaSource | None = None,
        *,
        unwrap: bool = False,
        unread: Unread = raise_unread,
    ) -> None:
        self.key = key
        self.value = value
        self._unwrap = unwrap
        self._unread = unread
        self.schemas = schemas or SchemaSources(())
        decoders = {side: one for side, one in (("key", key), ("value", value)) if one}
        self.sides = tuple(decoders)
        typed = {side: one.column for side, one in decoders.items() if isinstance(one, struct_values.TypedDecoder)}
        self.columns = _columns(self.sides, typed)

    def of_record(self, topic: str | None, chunk: Chunk, i: int) -> tuple[DecodedValue, DecodedValue]:
        """Return the decoded key and the decoded value of record ``i`` of a chunk. Control records are not decoded.

        Raises UsageError if a library is missing, and what ``unread`` raises.
        """
        return next(self.of_records(topic, chunk, chunk.records.batch[i], (i,)))

    def of_records(
        self, topic: str | None, chunk: Chunk, row: int, kept: Iterable[int]
    ) -> Iterator[tuple[DecodedValue, DecodedValue]]:
        """Yield what ``of_record`` returns for some records of batch ``row``."""
        if chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL:
            for _ in kept:
                yield NOT_DECODED, NOT_DECODED
            return
        lists, data = chunk.lists, chunk.payload(row)
        for i in kept:
            headers = tuple(chunk.header_fields(i)) if lists.header_count[i] else ()
            key = _decoded(self.key, topic, data, lists.key_at[i], lists.key_size[i], headers)
            value = _decoded(self.value, topic, data, lists.value_at[i], lists.value_size[i], headers)
            for found in (key, value):
                if found.unread is not None:
                    self._unread(found)
            if self._unwrap:
                key, value = (found._replace(value=unwrapped(found.value)) for found in (key, value))
            yield key, value

    def by_side(self, both: tuple[DecodedValue, DecodedValue]) -> list[tuple[str, DecodedValue]]:
        """Return the sides that are decoded, each with its key or value."""
        return [(side, found) for side, found in zip(("key", "value"), both, strict=True) if side in self.sides]

    def fields(self, topic: str | None, chunk: Chunk, i: int) -> Row:
        """Return the columns of CONTENT_COLUMNS of record ``i`` of a chunk. Raises as ``of_record`` does."""
        return self.row_of(self.of_record(topic, chunk, i))

    def row_of(self, both: tuple[DecodedValue, DecodedValue]) -> Row:
        """Return the columns of CONTENT_COLUMNS of a decoded key and a decoded value."""
        row: Row = {}
        for side, found in self.by_side(both):
            decoded, kind, schema_id, error = _NAMES[side]
            row[decoded], row[kind] = found.value, found.kind
            row[schema_id], row[error] = found.schema_id, found.error
        return row


def _decoded(
    decoder: Decoder | None, topic: str | None, data: memoryview, at: int, size: int, headers: Headers
) -> DecodedValue:
    if decoder is None or size < 0:
        return NOT_DECODED
    return decoder.decode(topic, bytes(data[at : at + size]), headers)


def record_decoder(
    settings: DecodeSettings,
    report: Callable[[str], Report] = lambda path: do_nothing,
    unread: Unread = raise_unread,
) -> RecordDecoder | None:
    """Return the decoder of records, None if the settings name none.

    ``report`` returns the report callback for a segment of the topic with schemas. ``unread`` is that of RecordDecoder.
    Raises UsageError and UnreadableError.
    """
    return _decoder(settings, _sources(settings, report), unread)


def typed_decoder(
    settings: DecodeSettings, topics: Callable[[], Iterable[str]], unread: Unread = raise_unread
) -> tuple[DecodeSettings, RecordDecoder | None]:
    """Return what ``with_types`` returns, and the decoder with these types. The sources are read once. Raises as both."""
    source = _sources(settings)
    typed = _typed(settings, lambda: source, topics)
    return typed, _decoder(typed, source, unread)


def _decoder(settings: DecodeSettings, source: SchemaSource, unread: Unread) -> RecordDecoder | None:
    decoders: dict[str, Decoder] = {}
    for side in settings.sides:
        name, column = settings.named[side], settings.types[side]
        if name is None and settings.function is not None:
            decoders[side] = FunctionDecoder(side, settings.function)
        else:
            decoders[side] = FieldDecoder(side, AUTO if name is None else name, source)
        if column:
            decoders[side] = struct_values.TypedDecoder(decoders[side], column)
    key, value = decoders.get("key"), decoders.get("value")
    return RecordDecoder(key, value, source, unwrap=settings.unwrap, unread=unread) if decoders else None


def with_types(settings: DecodeSettings, topics: Callable[[], Iterable[str]]) -> DecodeSettings:
    """Return the settings with the columns of the sides that are decoded as STRUCT, from all versions of their schemas.

    ``topics`` returns the topics that are read. Raises UsageError without a schema of them, or with different ones.
    """
    return _typed(settings, lambda: _sources(settings), topics)


def _typed(
    settings: DecodeSettings, source: Callable[[], SchemaSource], topics: Callable[[], Iterable[str]]
) -> DecodeSettings:
    types: dict[str, Any] = {}
    for side, name in settings.named.items():
        kind, _, argument = (name or "").partition(":")
        if kind == STRUCT:
            if settings.unwrap:
                raise UsageError(f"--unwrap: the columns of --{side}-as {STRUCT} are those of the whole value")
            types[f"{side}_type"] = _type_of(side, argument, source(), topics)
    return replace(settings, **types)


def _type_of(side: str, argument: str, source: SchemaSource, topics: Callable[[], Iterable[str]]) -> Column:
    option = f"--{side}-as {STRUCT}"
    named = list(source.versions(argument)) if argument else []
    subjects = [argument] if named else [f"{topic}-{side}" for topic in sorted(set(topics()))]
    try:
        found: dict[str, Column] = {}
        for subject in subjects:
            versions = named or list(source.versions(subject)) or [one for one in source.all() if one.subject is None]
            if versions:
                message = argument if not named else ""
                found[subject] = struct_types.column_of(f"{side}_decoded", versions, source, message)
    except SchemaError as error:
        raise UsageError(f"{option}: {error}") from None
    if not found:
        raise UsageError(
            f"{option}: no schema of {', '.join(subjects) or 'a topic'}: expected a source of schemas with it"
        )
    if len(set(found.values())) > 1:
        raise UsageError(f"{option}: {', '.join(found)} have different schemas: read one topic at a time")
    (column, *_) = found.values()
    return column._replace(meaning=f"the decoded {side}, in typed columns")


def _sources(settings: DecodeSettings, report: Callable[[str], Report] = lambda path: do_nothing) -> SchemaSources:
    found: list[SchemaSource] = [SchemaSet(_of_files(settings.schema_files))] if settings.schema_files else []
    lost = ""
    if settings.schemas:
        state = read_schemas_topic(settings.schemas, report)
        if not (known := list(state.all())):
            reason = f"; {state.unread[0]}" if state.unread else ""
            raise UsageError(f"--schemas {', '.join(settings.schemas)}: there are no schemas{reason}")
        found.append(SchemaSet(known))
        lost = state.lost
    if settings.registry is not None:
        found.append(schema_sources.Registry(settings.registry, settings.registry_ca))
        lost = ""  # what the registry does not know was not lost
    elif settings.registry_ca is not None:
        raise UsageError("--registry-ca needs --registry")
    return SchemaSources(found, lost)


def _of_files(names: Iterable[str]) -> Iterator[Schema]:
    """Yield the schemas of files. Raises UnreadableError, and UsageError for files that cannot be used."""
    unnamed: dict[str, str] = {}
    places: dict[int | str, str] = {}
    for name in names:
        found = list(schemas_of_file(name))
        own = found[0]
        try:
            check_schema(own, SchemaSet(found))
        except SchemaError as error:
            raise UsageError(f"--schema-file {name}: {error}") from None
        if own.is_unnamed and own.type != AVRO:  # Avro's can be found by their fingerprints
            if own.type in unnamed:
                raise UsageError(
                    f"--schema-file {unnamed[own.type]} and {name}: give each as ID=FILE, UUID=FILE or SUBJECT=FILE"
                )
            unnamed[own.type] = name
        place = own.subject or own.guid if own.id is None else own.id
        if place is not None and places.setdefault(place, name) != name:
            raise UsageError(f"--schema-file {places[place]} and {name}: give each id, UUID and subject once")
        yield from found
