"""The topic of a schema registry, ``_schemas``: its log is the registry's database, so an offline copy is enough.

The records are JSON in the form of Confluent's registry. Karapace orders the fields of keys in another way, and Redpanda
adds ``seq`` and ``node`` to keys. Source: ``io.confluent.kafka.schemaregistry.storage.KafkaStoreMessageHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kseg.errors import UnreadableError
from kseg.extras.serialization.json_values import parse_json
from kseg.extras.serialization.schema_set import Schema, field_of, one_line, schema_of
from kseg.findings import Finding, Report, do_nothing
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.segment_files import find_segments
from kseg.format.storage.source import open_source, topic_partition

#: The name of the topic, unless the registry's setting ``kafkastore.topic`` says otherwise.
TOPIC = "_schemas"
_MOST_DELETED, _MOST_UNREAD = 100_000, 5


@dataclass(slots=True)
class RegistryState:
    """The state of a registry after the records of its topic.

    ``configs`` and ``modes`` are the settings by subject, None for the global one. ``gone`` are the hard-deleted and
    replaced schemas whose records the log still has. ``unread`` describes the first records that are not a registry's, and
    ``unread_count`` counts all of them. ``lost`` is the first damage where schemas may be lost, empty without any.
    """

    schemas: dict[tuple[str, int], Schema] = field(default_factory=dict)
    gone: list[Schema] = field(default_factory=list)
    configs: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    unread_count: int = 0
    lost: str = ""

    def all(self) -> Iterator[Schema]:
        """Yield all schemas, also the deleted ones, by subject and version."""
        known = (*self.schemas.values(), *self.gone)
        yield from sorted(known, key=lambda schema: (schema.subject or "", schema.version or 0))

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Apply a record of the topic. Return whether a registry does the same."""
        try:
            name, stored = _object(key), _object(value)
            if name is None:
                raise ValueError("the key is null")
            kind = str(name.get("keytype"))
            if kind not in _APPLY:
                raise ValueError(f"the key type {kind!r} is not known")
            if stored is not None and name.get("seq", offset) != offset:
                return False  # Redpanda: another broker wrote first, and the writer tries again with the next offset
            _APPLY[kind](self, name, stored)
            return True
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else one_line(error)
            self.unread_count += 1
            if len(self.unread) < _MOST_UNREAD:
                self.unread.append(f"offset {offset}: {reason}")
            return False

    def delete(self, place: tuple[str, int], why: str = "hard") -> None:
        """Delete a version for good."""
        if schema := self.schemas.pop(place, None):
            self.gone.append(replace(schema, deleted=why))
            del self.gone[:-_MOST_DELETED]


def _object(data: bytes | None) -> dict[str, Any] | None:
    """Return a JSON object, None for null. Some writers have an empty value or the JSON null instead."""
    found = parse_json(data) if data else None
    if found is not None and not isinstance(found, dict):
        raise ValueError("the record is not a JSON object")
    return found


def _schema(state: RegistryState, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    place = field_of(key, "subject", str), field_of(key, "version", int)
    if value is None:
        state.delete(place)
        return
    new = replace(schema_of(value), subject=place[0], version=place[1])
    old = state.schemas.get(place)
    if old is not None and (old.id, old.text) != (new.id, new.text):
        state.delete(place, "replaced")
    state.schemas[place] = new


def _delete_subject(state: RegistryState, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    """Mark the versions of a subject as deleted, up to the version in the record."""
    if value is None:
        return
    subject, last = field_of(value, "subject", str), value.get("version")
    for place, schema in state.schemas.items():
        if place[0] == subject and not schema.deleted and (last is None or place[1] <= last):
            state.schemas[place] = replace(schema, deleted="soft")


def _clear_subject(state: RegistryState, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    """Delete the soft-deleted versions of a subject for good."""
    if value is not None:
        subject = field_of(value, "subject", str)
        for place in [place for place, schema in state.schemas.items() if place[0] == subject and schema.deleted]:
            state.delete(place)


def _set(settings: dict[str | None, Any], key: Mapping[str, Any], value: Any) -> None:
    if value is None:
        settings.pop(key.get("subject"), None)
    else:
        settings[key.get("subject")] = value


#: What to do with a record, by the type in its key.
_APPLY: Mapping[str, Callable[[RegistryState, Mapping[str, Any], Mapping[str, Any] | None], None]] = {
    "SCHEMA": _schema,
    "DELETE_SUBJECT": _delete_subject,
    "CLEAR_SUBJECT": _clear_subject,
    "CONFIG": lambda state, key, value: _set(state.configs, key, value),
    "MODE": lambda state, key, value: _set(state.modes, key, None if value is None else field_of(value, "mode", str)),
    **dict.fromkeys(("NOOP", "CONTEXT", "ASSOC"), do_nothing),  # they say nothing about schemas
}


def read_schemas_topic(
    paths: Iterable[str], report: Callable[[str], Report] = lambda path: do_nothing
) -> RegistryState:
    """Return the state of a registry from the segments of its topic, as ``applied_records`` reads them."""
    state = RegistryState()

    def watching(path: str) -> Report:
        tell = report(path)

        def watch(finding: Finding) -> None:
            if not state.lost and finding.is_error:
                state.lost = f"{path}: {finding.rule} at byte {finding.position}, where a schema may be lost"
            tell(finding)

        return watch

    for _ in applied_records(paths, state, watching):
        pass
    return state


def applied_records(
    paths: Iterable[str], state: RegistryState, report: Callable[[str], Report] = lambda path: do_nothing
) -> Iterator[tuple[bytes, bytes | None]]:
    """Apply the records of a registry's topic to a state; yield key and value of each that a registry applies, too.

    A path is a segment, a partition folder, or a log directory, of which the folders of the topic are read. ``report``
    returns the report callback for a path. Raises UnreadableError and NotASegmentError.
    """
    for path in _segments(paths):
        for chunk in chunks_of(open_source(path), report(path)):
            for i in range(chunk.records.count):
                key, value = chunk.key(i), chunk.value(i)
                if chunk.control(i) is None and state.apply(chunk.lists.offset[i], key, value):
                    yield key or b"", value


def _segments(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        found = [file.path for file in find_segments(path)]
        topics = {topic_partition(file)[0] for file in found}
        if TOPIC in topics:
            found = [file for file in found if topic_partition(file)[0] == TOPIC]
        elif len(topics) > 1:
            raise UnreadableError(
                f"{path}: no folder of the topic {TOPIC}; if the topic has another name, give its folder"
            )
        yield from found
