"""The schemas of a registry as rows: versions of subjects, ids that data use and nobody knows, and conflicts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from kseg.commands.schemas.used_ids import UsedIds
from kseg.format.serialization.schemas import Schema, SchemaError, SchemaSet, referenced
from kseg.schema import Column, Row

#: The columns of ``kseg schemas``.
SCHEMA_COLUMNS = (
    Column(
        "kind",
        "text",
        "schema; missing for an id that data use and the registry does not have; extra for a version that only the "
        "compared registry has",
    ),
    Column("subject", "text", "the subject, with its context"),
    Column("version", "int", "the version in the subject"),
    Column("id", "int", "the id in the context"),
    Column("guid", "text", "the GUID that serializers put into headers"),
    Column("type", "text", "AVRO, PROTOBUF or JSON"),
    Column("state", "text", "active, soft-deleted, hard-deleted, replaced or missing"),
    Column("conflict", "bool", "whether another schema of the context has the same id"),
    Column("references", "object", "the schemas that it imports: name, subject and version"),
    Column("used_by", "object", "the data with this id: topic, side (key or value) and records; null if not examined"),
    Column("schema", "text", "the schema"),
    Column(
        "registry",
        "text",
        "the same version in the compared registry: same, absent, or what differs; null if not compared",
    ),
)
#: The context and the id of a schema.
Place = tuple[str, int | None]
#: The records with an id, by topic and side.
Users = Counter[tuple[str | None, str]]
_SPACES = bytes.maketrans(b"\t\n\r", b"   ")
_STATES = {"": "active", "soft": "soft-deleted", "hard": "hard-deleted", "replaced": "replaced"}


@dataclass(slots=True)
class Total:
    """Counts of the listed rows, complete after the last row."""

    schemas: int = 0
    missing: int = 0
    conflicts: int = 0
    differing: int = 0


def listed(
    schemas: Iterable[Schema], used: Iterable[UsedIds] | None, total: Total, registered: Iterable[Schema] | None = None
) -> Iterator[Row]:
    """Yield a row for each schema, then one for each id that is missing. ``used`` is None if no data were examined.

    ``registered`` are the versions in a registry that is compared; last are rows for those that only it has.
    """
    known = list(schemas)
    texts: defaultdict[Place, set[str]] = defaultdict(set)
    for schema in known:
        texts[_place(schema)].add(schema.text)
    users, missing = _users(known, used or ())
    others = None if registered is None else {(one.subject, one.version): one for one in registered}
    for schema in known:
        place = _place(schema)
        conflict = schema.id is not None and len(texts[place]) > 1
        total.schemas += 1
        total.conflicts += conflict
        row = _row("schema", _STATES[schema.deleted], schema.id, None if used is None else users[place])
        differs = None
        if others is not None and not schema.is_gone:
            differs = _difference(schema, others.pop((schema.subject, schema.version), None))
            total.differing += differs != "same"
        yield row | _version(schema) | {"conflict": conflict, "registry": differs}
    for name, data in sorted(missing.items(), key=lambda item: (isinstance(item[0], str), item[0])):
        total.missing += 1
        number = name if isinstance(name, int) else None
        yield _row("missing", "missing", number, data) | {"guid": None if number else name}
    for schema in (others or {}).values():
        total.differing += 1
        yield _row("extra", _STATES[schema.deleted], schema.id, None) | _version(schema) | {"registry": "only there"}


def _version(schema: Schema) -> Row:
    return {
        "subject": schema.subject,
        "version": schema.version,
        "guid": schema.guid,
        "type": schema.type,
        "references": [asdict(reference) for reference in schema.references],
        "schema": schema.text,
    }


def _difference(schema: Schema, other: Schema | None) -> str:
    """Return how the version in a registry differs: "same", "absent", or the differences."""
    if other is None:
        return "absent"
    found = [f"id {other.id}"] if other.id != schema.id else []
    found += [_STATES[other.deleted]] if other.deleted != schema.deleted else []
    found += [f"type {other.type}"] if other.type != schema.type else []
    same = _canonical(other.text) == _canonical(schema.text) and set(other.references) == set(schema.references)
    return ", ".join(found if same else [*found, "another schema"]) or "same"


def _canonical(text: str) -> object:
    """Return the content of a schema: a registry can write its spaces in another way."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.split()


def _row(kind: str, state: str, number: int | None, users: Users | None) -> Row:
    nothing = dict.fromkeys(column.name for column in SCHEMA_COLUMNS)
    used_by = [
        {"topic": topic, "side": side, "records": records}
        for (topic, side), records in sorted((users or {}).items(), key=lambda item: (item[0][0] or "", item[0][1]))
    ]
    return nothing | {"kind": kind, "state": state, "id": number, "used_by": None if users is None else used_by}


def _place(schema: Schema) -> Place:
    return schema.context, schema.id


def _users(schemas: Iterable[Schema], used: Iterable[UsedIds]) -> tuple[dict[Place, Users], dict[int | str, Users]]:
    """Return what data use, by context and id, and by id or GUID what data use and no schema has.

    An unknown id counts only where most values have one, or one that is known: others begin with a zero by chance.
    """
    source = SchemaSet(schemas)
    users: defaultdict[Place, Users] = defaultdict(Counter)
    missing: defaultdict[int | str, Users] = defaultdict(Counter)
    for one in used:
        subject = f"{one.topic}-{one.side}"
        found = {
            name: source.by_id(name, subject) if isinstance(name, int) else source.by_guid(name) for name in one.ids
        }
        for name, records in one.ids.items():
            if schema := found[name]:
                users[_place(schema)][one.topic, one.side] += records
            elif one.mostly_ids or any(found.values()):
                missing[name][one.topic, one.side] += records
    return users, missing


def exported(schemas: Iterable[Schema]) -> Iterator[Row]:
    """Yield a row for each version that the registry has: a subject, and the body that registers it in IMPORT mode.

    Schemas come after those that they refer to. ``deleted``: delete the version after it is registered.
    """
    kept = sorted((schema for schema in schemas if not schema.is_gone), key=lambda schema: schema.id or 0)
    source = SchemaSet(kept)
    done: set[tuple[str | None, int | None]] = set()
    for schema in kept:
        needed: list[tuple[str, Schema]] = []
        with suppress(SchemaError):  # a reference that the topic does not have: the registry will say so
            needed = referenced(schema, source)
        for one in (*(other for _, other in needed), schema):
            if (one.subject, one.version) not in done:
                done.add((one.subject, one.version))
                yield {"subject": one.subject, "deleted": bool(one.deleted), "body": _body(one)}


def record_lines(records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
    """Yield a line for each record of the topic: key, tab, value; no value for null.

    Keys and values are JSON, where a tab or a line feed can only be between two tokens: a space means the same. Keys of
    Redpanda have the offset, which the record will not have in another topic: it is left out.
    """
    for key, value in records:
        if b'"seq"' in key:
            stored = json.loads(key)
            key = json.dumps({name: stored[name] for name in stored if name not in ("seq", "node")}).encode()
        yield b"\t".join(part.translate(_SPACES) for part in (key, value or b"")) + b"\n"


def _body(schema: Schema) -> Row:
    body: Row = {"version": schema.version, "id": schema.id, "schemaType": schema.type, "schema": schema.text}
    if schema.references:
        body["references"] = [asdict(reference) for reference in schema.references]
    return body | dict(schema.settings)
