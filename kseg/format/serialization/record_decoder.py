"""The decoder of records, made from settings: which deserializers, and where schemas come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kseg.format.segment.records_chunk import Chunk
from kseg.format.serialization.decoding import AUTO, NOT_DECODED, Decoded, Decoder, FieldDecoder
from kseg.format.serialization.schema_files import schemas_of_files
from kseg.format.serialization.schemas import SchemaSet, SchemaSource, SchemaSources
from kseg.format.serialization.schemas_topic import read_schemas_topic
from kseg.lazy import lazy
from kseg.schema import CONTENT_COLUMNS, Row

if TYPE_CHECKING:
    from kseg.format.serialization import registry
else:
    registry = lazy("kseg.format.serialization.registry")


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """How keys and values are decoded. The fields are the options of the command line.

    ``key_as`` and ``value_as`` are names of ``decoding.NAMES``. ``schema_files`` are given to ``schemas_of_file``, and
    ``schemas`` are paths with segments of the topic ``_schemas``. ``registry`` is a URL, and ``registry_ca`` a file with
    certificates for it. Sources are asked in this order. If a source of schemas is given, both sides are AUTO
    unless they are named.
    """

    key_as: str | None = None
    value_as: str | None = None
    schema_files: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    registry: str | None = None
    registry_ca: str | None = None

    @property
    def has_schemas(self) -> bool:
        """Return whether a source of schemas is given."""
        return bool(self.schema_files or self.schemas or self.registry)


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
        if chunk.control(i) is not None:
            return NOT_DECODED, NOT_DECODED
        headers = tuple(chunk.header_fields(i)) if chunk.lists.header_count[i] else ()
        return (
            self.key.decode(topic, chunk.key(i), headers) if self.key else NOT_DECODED,
            self.value.decode(topic, chunk.value(i), headers) if self.value else NOT_DECODED,
        )

    def fields(self, topic: str | None, chunk: Chunk, i: int) -> Row:
        """Return the columns of CONTENT_COLUMNS of record ``i`` of a chunk. Raises as ``of_record`` does."""
        row: Row = {}
        for side, found in zip(("key", "value"), self.of_record(topic, chunk, i), strict=True):
            if side in self.sides:
                names = (column.name for column in CONTENT_COLUMNS[side])
                row.update(zip(names, (found.value, found.kind, found.schema_id, found.error), strict=True))
        return row


def record_decoder(settings: DecodeSettings) -> RecordDecoder | None:
    """Return the decoder of records, None if the settings name none. Raises UsageError and UnreadableError."""
    if not (settings.key_as or settings.value_as or settings.has_schemas):
        return None
    source = SchemaSources(_sources(settings))
    both = AUTO if settings.has_schemas else None
    named = {"key": settings.key_as or both, "value": settings.value_as or both}
    decoders = {side: FieldDecoder(side, name, source) for side, name in named.items() if name}
    return RecordDecoder(decoders.get("key"), decoders.get("value"))


def _sources(settings: DecodeSettings) -> Iterator[SchemaSource]:
    if settings.schema_files:
        yield SchemaSet(schemas_of_files(settings.schema_files))
    if settings.schemas:
        yield SchemaSet(read_schemas_topic(settings.schemas).all())
    if settings.registry:
        yield registry.Registry(settings.registry, settings.registry_ca)
