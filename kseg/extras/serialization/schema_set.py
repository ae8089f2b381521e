"""Schemas, and a set of schemas that is searched by id, GUID, subject and fingerprint."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from kseg.errors import UnreadableError

#: The schema types of registries. A record of a schema without a type is Avro's.
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
#: The start of a subject in a context, ``:.NAME:subject``. Subjects of the default context lack it.
_CONTEXT = ":."
_Kind = TypeVar("_Kind", str, int)
#: The characters of a reason that comes from a library, from a program or from data.
_MOST_REASON = 300


def one_line(error: object) -> str:
    """Return the text of an error, which can contain parts of hostile data, as one line of limited length."""
    return " ".join(str(error).split())[:_MOST_REASON] or type(error).__name__


class SchemaError(Exception):
    """A schema that is missing, cannot be read or cannot be used. ``str(error)`` is the reason in one line."""


class RegistryError(UnreadableError):
    """A registry that gave no answer to a request: another time it may have the schema. It is not bound to a file."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports: as ``name``, from a version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, and where it is registered. ``deleted`` is "", "soft", "hard", or "replaced" by another for the version.

    ``descriptors`` is a serialized FileDescriptorSet, which replaces the text of a Protobuf schema. ``settings`` are the
    metadata and the rules that a registry keeps with the schema.
    """

    type: str
    text: str
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None
    references: tuple[Reference, ...] = ()
    deleted: str = ""
    descriptors: bytes = b""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """The context of the subject, "" for the default context."""
        subject = self.subject or ""
        return subject[1:].partition(":")[0] if subject.startswith(_CONTEXT) else ""

    @property
    def is_unnamed(self) -> bool:
        """Return whether it is a file that was given without a name: without an id, a GUID and a subject."""
        return self.id is None and self.guid is None and self.subject is None

    @property
    def is_gone(self) -> bool:
        """Return whether the registry no longer has it: it is hard-deleted or replaced."""
        return self.deleted in ("hard", "replaced")

    @property
    def label(self) -> str:
        """Return how messages name the schema."""
        if self.id is not None:
            return f"schema {self.id}"
        if self.subject:
            return f"the schema of {self.subject}"
        return f"schema {self.guid}" if self.guid else "the schema"


#: Decode bytes. The second argument are the bytes with message indexes from a header, None if the value begins with them.
Read = Callable[[bytes, bytes | None], Any]
#: The largest value that is decoded by a schema: a byte can become hundred bytes of Python objects.
MOST_BYTES = 16 << 20


class SchemaSource(Protocol):
    """A place to get schemas from. The methods raise RegistryError if the place cannot be read."""

    def by_id(self, number: int, subject: str) -> Schema | None:
        """Return the schema with an id; ``subject`` is the probable subject, which decides between contexts."""

    def by_guid(self, guid: str) -> Schema | None:
        """Return the schema with a GUID (lower case, with hyphens)."""

    def by_subject(self, subject: str, version: int | None = None) -> Schema | None:
        """Return a version of a subject, or its latest one."""

    def versions(self, subject: str) -> Iterable[Schema]:
        """Return the versions of a subject in their order, also the deleted ones: a log can have their records."""

    def all(self) -> Iterable[Schema]:
        """Return the schemas that are known without asking anyone."""


def guid_of(text: str, references: Iterable[Reference]) -> str:
    """Return the GUID that Confluent's registry derives from a schema without metadata and rules.

    Source: ``io.confluent.kafka.schemaregistry.client.rest.entities.Schema.updateHash``.
    """
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in references:
        digest.update((reference.name + reference.subject).encode("utf-8", "surrogatepass"))
        digest.update((reference.version & 0xFFFFFFFF).to_bytes(4, "big"))
    return str(uuid.UUID(bytes=digest.digest()))


def schema_of(stored: Mapping[str, Any]) -> Schema:
    """Return the schema of a registry's JSON: of its topic, or of its HTTP interface.

    Raises ValueError, KeyError and TypeError for other JSON.
    """
    text = field_of(stored, "schema", str)
    references = tuple(
        Reference(
            field_of(reference, "name", str), field_of(reference, "subject", str), field_of(reference, "version", int)
        )
        for reference in stored.get("references") or ()
    )
    settings = {name: stored[name] for name in ("metadata", "ruleSet") if stored.get(name)}
    guid = stored.get("guid")
    if digest := stored.get("md5"):
        guid = str(uuid.UUID(bytes=base64.b64decode(digest)))
    return Schema(
        type=str(stored.get("schemaType") or AVRO).upper(),
        text=text,
        id=field_of(stored, "id", int) if stored.get("id") is not None else None,
        guid=str(guid) if guid else None if settings else guid_of(text, references),
        subject=stored.get("subject"),
        version=stored.get("version"),
        references=references,
        deleted="soft" if stored.get("deleted") else "",
        settings=settings,
    )


def field_of(record: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind:
    """Return a field that is a text or a whole number. Raises KeyError and ValueError."""
    found = record[name]
    if type(found) is not kind:
        raise ValueError(f"{name} is not a {'text' if kind is str else 'number'}")
    return found


class SchemaSet:
    """Schemas in memory: those of files, or of a topic of a registry."""

    def __init__(self, schemas: Iterable[Schema] = ()) -> None:
        self._schemas: list[Schema] = []
        self._by_id: defaultdict[int, list[Schema]] = defaultdict(list)
        self._by_guid: dict[str, Schema] = {}
        self._by_subject: defaultdict[str, list[Schema]] = defaultdict(list)
        for schema in schemas:
            self.add(schema)

    def add(self, schema: Schema) -> None:
        """Add a schema; of several with the same id or GUID, one that is not deleted is preferred."""
        self._schemas.append(schema)
        if schema.id is not None:
            self._by_id[schema.id].append(schema)
        if schema.guid and (schema.guid not in self._by_guid or not schema.deleted):
            self._by_guid[schema.guid] = schema
        if schema.subject is not None:
            self._by_subject[schema.subject].append(schema)

    def by_id(self, number: int, subject: str) -> Schema | None:
        """Return the schema with an id: of the subject, else of the default context, else of another context."""
        return min(
            self._by_id.get(number, ()),
            key=lambda schema: (_unqualified(schema.subject) != subject, schema.context, bool(schema.deleted)),
            default=None,
        )

    def by_guid(self, guid: str) -> Schema | None:
        return self._by_guid.get(guid)

    def by_subject(self, subject: str, version: int | None = None) -> Schema | None:
        found = self._by_subject.get(subject, ())
        if version is not None:
            return next((schema for schema in found if schema.version == version), None)
        return max(found, key=lambda schema: (not schema.deleted, schema.version or 0), default=None)

    def versions(self, subject: str) -> list[Schema]:
        return sorted(self._by_subject.get(subject, ()), key=lambda schema: schema.version or 0)

    def all(self) -> Iterator[Schema]:
        return iter(self._schemas)


class SchemaSources:
    """Several sources: the first that has a schema returns it.

    ``lost`` is the damage of a source where schemas may be lost, empty without any.
    """

    def __init__(self, sources: Iterable[SchemaSource], lost: str = "") -> None:
        self._sources = tuple(sources)
        self.lost = lost

    def by_id(self, number: int, subject: str) -> Schema | None:
        return self._first(lambda source: source.by_id(number, subject))

    def by_guid(self, guid: str) -> Schema | None:
        return self._first(lambda source: source.by_guid(guid))

    def by_subject(self, subject: str, version: int | None = None) -> Schema | None:
        return self._first(lambda source: source.by_subject(subject, version))

    def versions(self, subject: str) -> list[Schema]:
        return next((found for source in self._sources if (found := list(source.versions(subject)))), [])

    def all(self) -> Iterator[Schema]:
        for source in self._sources:
            yield from source.all()

    def _first(self, get: Callable[[SchemaSource], Schema | None]) -> Schema | None:
        return next((schema for source in self._sources if (schema := get(source)) is not None), None)


#: The most ids that are lost after the highest known one. Other numbers at the start of a value are content.
_MOST_LOST = 10_000


def why_lost(source: SchemaSource, number: int | None = None) -> str:
    """Return the damage where a schema that no source has may be lost, empty if there is none.

    Args:
        source: The sources.
        number: The id of the schema, None if it is another name. A registry counts the ids from 1 on.
    """
    lost = source.lost if isinstance(source, SchemaSources) else ""
    if not lost or number is None:
        return lost
    last = max((one.id or 0 for one in source.all()), default=0) + _MOST_LOST
    return lost if 0 < number <= last else ""


def _unqualified(subject: str | None) -> str:
    if subject and subject.startswith(_CONTEXT):
        return subject[1:].partition(":")[2]
    return subject or ""


#: The most schemas that one schema can refer to, directly and through others.
_MOST_REFERENCES = 1000


def referenced(schema: Schema, source: SchemaSource) -> list[tuple[str, Schema]]:
    """Return the schemas that a schema needs, with the names it uses for them, each after those that it needs itself.

    Raises SchemaError if one is missing, or if schemas refer to each other in a circle, and RegistryError if one is missing
    that may be lost.
    """
    found: dict[str, Schema] = {}
    open_names: set[str] = set()

    def visit(current: Schema, depth: int) -> None:
        for reference in current.references:
            if reference.name in found:
                continue
            if reference.name in open_names:
                raise SchemaError(f"{schema.label}: its references form a circle at {reference.name!r}")
            if len(found) + depth > _MOST_REFERENCES or depth > 100:
                raise SchemaError(f"{schema.label} refers to more than {_MOST_REFERENCES} schemas")
            other = source.by_subject(reference.subject, reference.version) or _in_context(current, reference, source)
            if other is None and (why := why_lost(source)):
                raise RegistryError(why)
            if other is None:
                where = f"version {reference.version} of {reference.subject}"
                raise SchemaError(f"{schema.label} refers to {reference.name!r}, and {where} is not known")
            open_names.add(reference.name)
            visit(other, depth + 1)
            open_names.discard(reference.name)
            found[reference.name] = other

    visit(schema, 0)
    return list(found.items())


def _in_context(schema: Schema, reference: Reference, source: SchemaSource) -> Schema | None:
    """Return the referenced schema of the same context: a reference can leave the context out."""
    if not schema.context or reference.subject.startswith(_CONTEXT):
        return None
    return source.by_subject(f":{schema.context}:{reference.subject}", reference.version)
