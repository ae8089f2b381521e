"""The decoder of records, made from settings: which deserializers, and where schemas come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from kseg.errors import UsageError
from kseg.findings import Report, do_nothing
from kseg.format.record.layout import CONTROL
from kseg.format.segment.records_chunk import Chunk
from kseg.format.serialization import command_decoder, function_decoder, registry
from kseg.format.serialization.decoding import (
    AUTO,
    NOT_DECODED,
    Decoded,
    Decoder,
    FieldDecoder,
    Headers,
    check_schema,
)
from kseg.format.serialization.schema_files import schemas_of_file
from kseg.format.serialization.schemas import AVRO, Schema, SchemaError, SchemaSet, SchemaSource, SchemaSources
from kseg.format.serialization.schemas_topic import read_schemas_topic
from kseg.schema import CONTENT_COLUMNS, Row

_NAMES = {side: tuple(column.name for column in columns) for side, columns in CONTENT_COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How keys and values are decoded. The fields are the options of the command line.

    ``key_as`` and ``value_as`` are names of ``decoding.NAMES``. ``schema_files`` are given to ``schemas_of_file``, and
    ``schemas`` are paths with segments of the topic ``_schemas``. ``registry`` is a URL, and ``registry_ca`` a file with
    certificates for it. Sources are asked in this order. A side that is not named is decoded with ``function`` (that of
    FunctionDecoder), with ``command`` (that of CommandDecoder), or as AUTO if a source of schemas is given.
    """

    key_as: str | None = None
    value_as: str | None = None
    schema_files: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    registry: str | None = None
    registry_ca: str | None = None
    function: str | None = None
    command: str | None = None

    @property
    def has_schemas(self) -> bool:
        """Return whether a source of schemas is given."""
        return bool(self.schema_files or self.schemas or self.registry is not None)

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the sides that are decoded: of "key" and "value"."""
        both = self.has_schemas or self.function is not None or self.command is not None
        return tuple(
            side for side, name in (("key", self.key_as), ("value", self.value_as)) if both or name is not None
        )


class RecordDecoder:
    """Decodes the keys and the values of records. ``key`` or ``value`` is None if that side is not decoded."""

    def __init__(self, key: Decoder | None, value: Decoder | None) -> None:
        self.key = key
        self.value = value
        self.sides = tuple(side for side, decoder in (("key", key), ("value", value)) if decoder)

    def of_record(self, topic: str | None, chunk: Chunk, i: int) -> tuple[Decoded, Decoded]:
        """Return the decoded key and the decoded value of record ``i`` of a chunk. Control records are not decoded.

        Raises UsageError if a library is missing.
        """
        return next(self.of_records(topic, chunk, chunk.records.batch[i], (i,)))

    def of_records(
        self, topic: str | None, chunk: Chunk, row: int, kept: Iterable[int]
    ) -> Iterator[tuple[Decoded, Decoded]]:
        """Yield what ``of_record`` returns for some records of batch ``row``."""
        if chunk.batches.magic[row] >= 2 and chunk.batches.attributes[row] & CONTROL:
            for _ in kept:
                yield NOT_DECODED, NOT_DECODED
            return
        lists, data = chunk.lists, chunk.payload(row)
        for i in kept:
            headers = tuple(chunk.header_fields(i)) if lists.header_count[i] else ()
            yield (
                _decoded(self.key, topic, data, lists.key_at[i], lists.key_size[i], headers),
                _decoded(self.value, topic, data, lists.value_at[i], lists.value_size[i], headers),
            )

    def by_side(self, both: tuple[Decoded, Decoded]) -> list[tuple[str, Decoded]]:
        """Return the sides that are decoded, each with its key or value."""
        return [(side, found) for side, found in zip(("key", "value"), both, strict=True) if side in self.sides]

    def fields(self, topic: str | None, chunk: Chunk, i: int) -> Row:
        """Return the columns of CONTENT_COLUMNS of record ``i`` of a chunk. Raises as ``of_record`` does."""
        return self.row_of(self.of_record(topic, chunk, i))

    def row_of(self, both: tuple[Decoded, Decoded]) -> Row:
        """Return the columns of CONTENT_COLUMNS of a decoded key and a decoded value."""
        row: Row = {}
        for side, found in self.by_side(both):
            decoded, kind, schema_id, error = _NAMES[side]
            row[decoded], row[kind] = found.value, found.kind
            row[schema_id], row[error] = found.schema_id, found.error
        return row


def _decoded(
    decoder: Decoder | None, topic: str | None, data: memoryview, at: int, size: int, headers: Headers
) -> Decoded:
    if decoder is None or size < 0:
        return NOT_DECODED
    return decoder.decode(topic, bytes(data[at : at + size]), headers)


def record_decoder(
    settings: DecodeSettings, report: Callable[[str], Report] = lambda path: do_nothing
) -> RecordDecoder | None:
    """Return the decoder of records, None if the settings name none.

    ``report`` returns the report callback for a segment of the topic with schemas. Raises UsageError and UnreadableError.
    """
    source = SchemaSources(_sources(settings, report))
    others = _others(settings, source)
    key, value = (
        FieldDecoder(side, name, source) if name is not None else others(side) if others else None
        for side, name in (("key", settings.key_as), ("value", settings.value_as))
    )
    return RecordDecoder(key, value) if key or value else None


def _others(settings: DecodeSettings, source: SchemaSource) -> Callable[[str], Decoder] | None:
    """Return what makes the decoder of a side that ``key_as`` or ``value_as`` does not name."""
    if settings.function is not None and settings.command is not None:
        raise UsageError("--decoder and --decode-with exclude each other")
    if settings.function is not None:
        return partial(function_decoder.FunctionDecoder, place=settings.function)
    if settings.command is not None:
        return partial(command_decoder.CommandDecoder, program=command_decoder.Program(settings.command))
    return partial(FieldDecoder, name=AUTO, schemas=source) if settings.has_schemas else None


def _sources(settings: DecodeSettings, report: Callable[[str], Report]) -> Iterator[SchemaSource]:
    if settings.schema_files:
        yield SchemaSet(_of_files(settings.schema_files))
    if settings.schemas:
        state = read_schemas_topic(settings.schemas, report)
        found = SchemaSet(state.all())
        if not any(found.all()):
            reason = f"; {state.unread[0]}" if state.unread else ""
            raise UsageError(f"--schemas {', '.join(settings.schemas)}: there are no schemas{reason}")
        yield found
    if settings.registry is not None:
        yield registry.Registry(settings.registry, settings.registry_ca)
    elif settings.registry_ca is not None:
        raise UsageError("--registry-ca needs --registry")


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
        if own.id is None and own.subject is None and own.type != AVRO:  # Avro's can be found by their fingerprints
            if own.type in unnamed:
                raise UsageError(f"--schema-file {unnamed[own.type]} and {name}: give each as ID=FILE or SUBJECT=FILE")
            unnamed[own.type] = name
        place = own.subject if own.id is None else own.id
        if place is not None and places.setdefault(place, name) != name:
            raise UsageError(f"--schema-file {places[place]} and {name}: give each id and each subject once")
        yield from found
