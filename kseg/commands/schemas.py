"""``kseg schemas`` as a library: versions of subjects, conflicts, ids in data without a schema, and the export."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from kseg.extras.serialization.envelopes import GLUE_END, SchemaId, header_of, read_header_id, read_schema_id
from kseg.extras.serialization.schema_set import Schema, SchemaError, SchemaSet, referenced
from kseg.findings import Report
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.source import open_source
from kseg.schema import Row

#: The different ids that are counted for the keys or values of a topic. Random bytes have millions.
_MOST_IDS = 10_000
_INT64 = 8


@dataclass(slots=True)
class UsedIds:
    """The ids in the keys or values of a topic.

    ``others`` counts values without an id, except nulls; ``int64s`` those with an id and the size of an int64.
    """

    topic: str | None
    side: str
    ids: Counter[int | str] = field(default_factory=Counter)
    others: int = 0
    int64s: int = 0

    def add(self, found: SchemaId | None, size: int) -> None:
        """Count a value of ``size`` bytes, with the id that it begins with."""
        name = (found.number or found.guid) if found else None
        if name is None or (name not in self.ids and len(self.ids) >= _MOST_IDS):
            self.others += 1
        else:
            self.ids[name] += 1
            self.int64s += size == _INT64

    @property
    def mostly_ids(self) -> bool:
        """Return whether most values begin with an id and are not as long as an int64, which can begin in the same way."""
        return self.ids.total() - self.int64s > self.others + self.int64s


class IdCounter:
    """Counts the schema ids of records, by topic and side."""

    def __init__(self) -> None:
        self._used: dict[tuple[str | None, str], UsedIds] = {}

    def __iter__(self) -> Iterator[UsedIds]:
        return iter(self._used.values())

    def read(self, path: str, topic: str | None, report: Report) -> None:
        """Count the ids of a segment. Raises UnreadableError and NotASegmentError."""
        key, value = (self._used.setdefault((topic, side), UsedIds(topic, side)) for side in ("key", "value"))
        for chunk in chunks_of(open_source(path), report):
            _count(chunk, key, value)


def _count(chunk: Chunk, key: UsedIds, value: UsedIds) -> None:
    lists = chunk.lists
    for row in range(chunk.first, chunk.stop):
        data = chunk.payload(row)
        for i in chunk.rows(row):
            if chunk.control(i) is not None:
                continue
            sides = ((key, lists.key_at[i], lists.key_size[i]), (value, lists.value_at[i], lists.value_size[i]))
            for used, at, size in sides:
                if size < 0:
                    continue
                stored = header_of(used.side, chunk.header_fields(i)) if lists.header_count[i] else None
                start = bytes(data[at : at + min(size, GLUE_END)])
                used.add(read_header_id(stored) if stored is not None else read_schema_id(start), size)


#: The context and the id of a schema.
Place = tuple[str, int | None]
#: The records with an id, by topic and side.
Users = Counter[tuple[str | None, str]]
_SPACES = bytes.maketrans(b"\t\n\r", b"   ")
_STATES = {"": "active", "soft": "soft-deleted", "hard": "hard-deleted", "replaced": "replaced"}


@dataclass(slots=True)
class SchemasTotal:
    """Counts of the listed rows, complete after the last row."""

    schemas: int = 0
    missing: int = 0
    conflicts: int = 0
    differing: int = 0


def listed(
    schemas: Iterable[Schema],
    used: Iterable[UsedIds] | None,
    total: SchemasTotal,
    registered: Iterable[Schema] | None = None,
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
    used_by = [
        {"topic": topic, "side": side, "records": records}
        for (topic, side), records in sorted((users or {}).items(), key=lambda item: (item[0][0] or "", item[0][1]))
    ]
    nothing = dict.fromkeys(("subject", "version", "guid", "type", "conflict", "references", "schema", "registry"))
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
