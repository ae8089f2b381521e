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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kseg.errors import UnreadableError, VanishedError
from kseg.findings import STARTS, Finding, Report, do_nothing
from kseg.format.record.layout import INT32_MAX
from kseg.format.sidefiles.side_file_reading import read_small_file
from kseg.format.storage import file_access, java_text
from kseg.format.storage.naming import PARTITION_METADATA
from kseg.format.storage.source import Source, open_source
from kseg.text import excerpt

_Entry = TypeVar("_Entry")


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


_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_ZERO_UUID = "A" * 22
_SEPARATOR = re.compile(f":{java_text.WHITE_SPACE.pattern}")


def read_partition_metadata(data: bytes) -> PartitionMetadata:
    """Return the content as a broker reads it: it does not look at the names of the fields.

    Raises the FileFault of ``PartitionMetadataReadBuffer``.
    """
    java_text.decoded(data)
    read = (line.decode() for _, line in java_text.lines_of(data))
    value = _next_value(read)
    version = java_text.number(value, INT32_MAX)
    if version is None or version < 0:
        raise java_text.FileFault(f"its version is {excerpt(value)}")
    value = _next_value(read)
    if not _UUID.fullmatch(value):
        raise java_text.UncheckedFault(f"topic_id is {excerpt(value)}, expected an id of 22 characters")
    if (topic_id := _uuid(value, "topic_id")) == _ZERO_UUID:
        raise java_text.FileFault("its topic id is zero")
    return PartitionMetadata(version, topic_id)


def _next_value(read: Iterator[str]) -> str:
    """Return the part of the next line after its colon."""
    line = next(read, None)
    if line is None:
        raise java_text.UncheckedFault("expected 2 lines")
    fields = java_text.split(_SEPARATOR, line)
    if len(fields) != 2:
        raise java_text.FileFault(f"the line {excerpt(line)} is not a name and a value")
    return fields[1]


def walk_partition_metadata(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, PartitionMetadata]]:
    """Yield the content. Other names of its fields are reported, too: bytes of the file were changed."""

    def parse(data: bytes) -> PartitionMetadata:
        found = read_partition_metadata(data)
        for (_, line), name in zip(java_text.lines_of(data), ("version", "topic_id"), strict=False):
            if not line.startswith(f"{name}:".encode()):
                why = f"{excerpt(line.decode())} is not a line with {name}, but the broker reads its value"
                report(Finding("metadata-malformed", 0, len(data), facts={"why": why, STARTS: True}))
        return found

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

    def parse(data: bytes) -> MetaProperties:
        values = java_text.properties(data.decode("latin-1"))
        if needs_node and not values:
            raise java_text.FileFault("the file has no properties")
        version = _integer(java_text.trimmed(values.get("version", "0")), "version")
        if version not in (0, 1):
            raise java_text.FileFault(f"version {version}")
        node = "broker.id" if version == 0 else "node.id"
        cluster = values.get("cluster.id") if version == 0 else _required(values, "cluster.id")
        if needs_node and "version" not in values and node not in values:
            raise java_text.FileFault("version is missing, and so is broker.id, which version 0 needs")
        if needs_node or version == 1:
            _required(values, node)
        node_id = _integer(values[node], node) if node in values else None
        if needs_node and node_id is not None and node_id < 0:
            raise java_text.FileFault(f"{node} is {node_id}, expected a number from 0 on")
        directory = _uuid(values["directory.id"], "directory.id") if "directory.id" in values else None
        return MetaProperties(version, cluster, node_id, directory)

    yield from _walk(source, parse, report)


def walk_quorum_state(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, QuorumState]]:
    """Yield the state as Kafka reads it: from the JSON object at the start of the first line; what follows is ignored."""

    def parse(data: bytes) -> QuorumState:
        values = _json_object(java_text.LINE_END.split(java_text.decoded(data))[0], only=False)
        if "data_version" not in values:
            raise java_text.FileFault("data_version is missing")
        # JsonNode.shortValue: 0 for all that is not a number.
        found = values["data_version"]
        version = (found + 2**15) % 2**16 - 2**15 if isinstance(found, int) and not isinstance(found, bool) else 0
        if version not in (0, 1):
            raise java_text.FileFault(f"data_version {version}")
        voters = None
        if version == 0:
            _field(values, "clusterId", str)
            voters = _field(values, "currentVoters", list)
            if not all(isinstance(voter, dict) for voter in voters):
                raise java_text.FileFault("a voter is not an object")
            voters = [_int_field(voter, "voterId") for voter in voters]
        return QuorumState(
            version,
            _int_field(values, "leaderId"),
            _int_field(values, "leaderEpoch"),
            _int_field(values, "votedId"),
            _uuid(_field(values, "votedDirectoryId", str), "votedDirectoryId") if version else None,
            None if version else _field(values, "appliedOffset", int),
            voters,
        )

    yield from _walk(source, parse, report)


def walk_clean_shutdown(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, CleanShutdown]]:
    def parse(data: bytes) -> CleanShutdown:
        if not data:
            return CleanShutdown(None, None)
        values = _json_object(java_text.decoded(data))
        return CleanShutdown(_field(values, "version", int), _field(values, "brokerEpoch", int))

    # Any file counts as a clean shutdown.
    yield from _walk(source, parse, report, {STARTS: True})


def _walk(
    source: Source, parse: Callable[[bytes], _Entry], report: Report, facts: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[tuple[int, _Entry]]:
    data = read_small_file(source, report)
    try:
        if data is None:
            raise java_text.FileFault("the file is far too long")
        yield 0, parse(data)
    except java_text.FileFault as fault:
        report(Finding("metadata-malformed", 0, len(data or b""), facts={"why": str(fault), **facts}))


def _json_object(text: str, *, only: bool = True) -> Mapping[str, Any]:
    """Return the object of a text of JSON; with ``only=False`` other text can follow."""
    try:
        values = json.loads(text) if only else json.JSONDecoder().raw_decode(text.lstrip(" \t"))[0]
    except (ValueError, RecursionError):
        raise java_text.FileFault("the file is not JSON") from None
    if not isinstance(values, dict):
        raise java_text.FileFault("the file is not a JSON object")
    return values


def _field(values: Mapping[str, Any], name: str, kind: type) -> Any:
    value = values.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = value if isinstance(value, str) else json.dumps(value)
        raise java_text.FileFault(f"{name} is {'missing' if value is None else excerpt(found)}")
    return value


def _int_field(values: Mapping[str, Any], name: str) -> int:
    value: int = _field(values, name, int)
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise java_text.FileFault(f"{name} is {value}, which has more than 32 bits")
    return value


def _required(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise java_text.FileFault(f"{name} is missing")
    return values[name]


def _integer(text: str, name: str) -> int:
    value = java_text.number(text, INT32_MAX)
    if value is None:
        raise java_text.FileFault(f"{name} is {excerpt(text)}, expected a number")
    return value


def _uuid(text: str, name: str) -> str:
    """Return an id as Kafka's Uuid prints it, without padding."""
    if not _UUID.fullmatch(text):
        raise java_text.FileFault(f"{name} is {excerpt(text)}, expected an id of 22 characters")
    # The last character has unused bits, which Kafka drops.
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(text[:22] + "==")).decode()[:22]
