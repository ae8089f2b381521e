"""The small files that describe a folder, and the names of a log directory's files.

    partition.metadata    -- "version: 0" and "topic_id: <uuid>" (KIP-516)
    meta.properties       -- a Java properties file: version 0 (broker.id) or 1 (node.id, cluster.id)
    quorum-state          -- JSON, data_version 0 or 1 (KIP-595, KIP-853)
    .kafka_cleanshutdown  -- JSON with the broker's epoch (KIP-966); empty before 3.8

Sources: ``PartitionMetadataFile``, ``MetaProperties``, ``FileQuorumStateStore``, ``CleanShutdownFileHandler``. Each
``walk`` function yields (0, value), or reports ``metadata-malformed`` and yields nothing.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kseg.errors import UnreadableError, VanishedError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.sidefiles.side_file_reading import read_small_file
from kseg.format.storage import file_access
from kseg.format.storage.naming import PARTITION_METADATA
from kseg.format.storage.source import Source, open_source
from kseg.text import excerpt


class PartitionMetadata(NamedTuple):
    """The content of ``partition.metadata``. ``topic_id`` has 22 characters, as Kafka prints it."""

    version: int
    topic_id: str


class MetaProperties(NamedTuple):
    """The cluster and node that a log dir belongs to. ``node_id`` is ``broker.id`` in version 0."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


class QuorumState(NamedTuple):
    """The persistent state of a KRaft voter. An id of -1 means none. Fields that a data version lacks are None."""

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None
    applied_offset: int | None
    current_voters: list[int] | None


class CleanShutdown(NamedTuple):
    """The mark of a clean shutdown, with the broker's epoch if the file contains it."""

    version: int | None
    broker_epoch: int | None


class _MalformedError(Exception):
    """A file that can't be read. ``str(error)`` is the reason."""


_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ZERO_UUID = "A" * 22


def walk_partition_metadata(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, PartitionMetadata]]:
    def parse(text: str) -> PartitionMetadata:
        lines = [*_LINE_END.split(text), ""][:2]
        fields = []
        for line, name in zip(lines, ("version", "topic_id"), strict=True):
            key, _, value = line.partition(": ")
            if key != name or not value:
                raise _MalformedError(f"{excerpt(line)} is not a line with {name}")
            fields.append(value.strip())
        version = _integer(fields[0], "version")
        if version < 0:
            raise _MalformedError(f"version {version}")
        topic_id = _uuid(fields[1], "topic_id")
        if topic_id == _ZERO_UUID:
            raise _MalformedError("topic_id is zero")
        return PartitionMetadata(version, topic_id)

    yield from _walk(source, parse, report)


def stored_topic_id(folder: str) -> str | None:
    """Return the topic id of a partition folder, None without a valid ``partition.metadata``, and of a segment.

    Raises UnreadableError.
    """
    try:
        with suppress(VanishedError), open_source(os.path.join(folder, PARTITION_METADATA), listed=True) as source:
            return next((found.topic_id.rstrip("=") for _, found in walk_partition_metadata(source)), None)
    except UnreadableError as error:
        if not isinstance(error.__cause__, NotADirectoryError):
            raise
    return None


def topic_id_of(folder: str) -> str | None:
    """Return the topic id of a partition folder; a ``partition.metadata`` that cannot be read is a warning, and None."""
    try:
        return stored_topic_id(folder)
    except UnreadableError as error:
        file_access.current().warn(f"{error}: the topic id is unknown")
        return None


def walk_meta_properties(
    source: Source, report: Report = do_nothing, *, needs_node: bool = True
) -> Iterator[tuple[int, MetaProperties]]:
    """Yield the properties. ``needs_node=False`` accepts a version 0 without ``broker.id``, like the class that reads it.

    No broker starts with such a file, so it is malformed otherwise. A missing version is version 0.
    """

    def parse(text: str) -> MetaProperties:
        values = properties(text)
        if needs_node and not values:
            raise _MalformedError("the file has no properties")
        version = _integer(values.get("version", "0"), "version")
        if version not in (0, 1):
            raise _MalformedError(f"version {version}")
        node = "broker.id" if version == 0 else "node.id"
        cluster = values.get("cluster.id") if version == 0 else _required(values, "cluster.id")
        if needs_node and "version" not in values and node not in values:
            raise _MalformedError("version is missing, and so is broker.id, which version 0 needs")
        if needs_node or version == 1:
            _required(values, node)
        node_id = _integer(values[node], node) if node in values else None
        directory = _uuid(values["directory.id"], "directory.id") if "directory.id" in values else None
        return MetaProperties(version, cluster, node_id, directory)

    # As java.util.Properties loads bytes.
    yield from _walk(source, parse, report, encoding="latin-1")


def walk_quorum_state(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, QuorumState]]:
    def parse(text: str) -> QuorumState:
        values = _json_object(text)
        version = _field(values, "data_version", int)
        if version not in (0, 1):
            raise _MalformedError(f"data_version {version}")
        voters = None
        if version == 0:
            voters = _field(values, "currentVoters", list)
            if not all(isinstance(voter, dict) for voter in voters):
                raise _MalformedError("a voter is not an object")
            voters = [_field(voter, "voterId", int) for voter in voters]
        return QuorumState(
            version,
            _field(values, "leaderId", int),
            _field(values, "leaderEpoch", int),
            _field(values, "votedId", int),
            _uuid(_field(values, "votedDirectoryId", str), "votedDirectoryId") if version else None,
            None if version else _field(values, "appliedOffset", int),
            voters,
        )

    yield from _walk(source, parse, report)


def walk_clean_shutdown(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, CleanShutdown]]:
    def parse(text: str) -> CleanShutdown:
        if not text:
            return CleanShutdown(None, None)
        values = _json_object(text)
        return CleanShutdown(_field(values, "version", int), _field(values, "brokerEpoch", int))

    yield from _walk(source, parse, report)


def _walk(source: Source, parse: Any, report: Report, encoding: str = "utf-8") -> Iterator[tuple[int, Any]]:
    data = read_small_file(source, report)
    try:
        if data is None:
            raise _MalformedError("the file is far too long")
        value = parse(data.decode(encoding))
    except UnicodeDecodeError:
        why = "the file is not text"
    except _MalformedError as error:
        why = str(error)
    else:
        yield 0, value
        return
    report(Finding("metadata-malformed", 0, len(data or b""), facts={"why": why}))


_PROPERTY = re.compile(r"\s*((?:\\.|[^\s:=\\])+)\s*[:=]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties(text: str) -> dict[str, str]:
    """Return the entries of a Java properties file. Continuation lines, which Kafka never writes, are not supported."""
    values = {}
    for line in _LINE_END.split(text):
        match = _PROPERTY.fullmatch(line)
        if match and match[1][0] not in "#!":
            values[_unescaped(match[1])] = _unescaped(match[2])
    return values


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda at: chr(int(at[1], 16)) if at[1] else _CONTROLS.get(at[2], at[2]), text)


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise _MalformedError("the file is not JSON") from None
    if not isinstance(values, dict):
        raise _MalformedError("the file is not a JSON object")
    return values


def _field(values: Mapping[str, Any], name: str, kind: type) -> Any:
    value = values.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = value if isinstance(value, str) else json.dumps(value)
        raise _MalformedError(f"{name} is {'missing' if value is None else excerpt(found)}")
    return value


def _required(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise _MalformedError(f"{name} is missing")
    return values[name]


def _integer(text: str, name: str) -> int:
    number = text.strip(" \t\f\r\n")  # other white space is no end of a number for Java, nor for int()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", number):
        raise _MalformedError(f"{name} is {excerpt(text)}, expected a number")
    return int(number)


def _uuid(text: str, name: str) -> str:
    """Return an id as Kafka's Uuid prints it, without padding."""
    if not _UUID.fullmatch(text):
        raise _MalformedError(f"{name} is {excerpt(text)}, expected an id of 22 characters")
    # The last character has unused bits, which Kafka drops.
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(text[:22] + "==")).decode()[:22]
