"""Requests and responses from their bytes: header and body, by the definitions of their API and version.

    request  := header body          response := header body
    header   := api_key int16        header   := correlation_id int32
                api_version int16                tags             -- in flexible versions, but never of ApiVersions
                correlation_id int32
                client_id string     -- never in the compact encoding
                tags                 -- in flexible versions

Sources: KIP-482, KIP-511, and ``RequestHeader`` and ``ResponseHeader`` of Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kseg.format.messages.definitions import APIS, Definition, definition, named
from kseg.format.messages.message_reader import ByteRange, Cursor, MalformedMessage, jsonable, read
from kseg.schema import Row

#: The first fields of every request (API key, API version, correlation id) and of every response.
REQUEST_HEAD = struct.Struct(">hhi")
RESPONSE_HEAD = struct.Struct(">i")
_METADATA = 3
_NO_ID = "A" * 22  # as Kafka prints sixteen zeros
_API_VERSIONS = 18
_ERROR = struct.Struct(">h")
_UNSUPPORTED_VERSION = 35
# The fields that name the topic and partition of records, in requests and responses of all versions.
_PLACES = {
    "topic": "topic",
    "name": "topic",
    "topicId": "topic_id",
    "partitionIndex": "partition",
    "index": "partition",
}


class Api(NamedTuple):
    """An API in one version."""

    key: int
    version: int

    @property
    def name(self) -> str | None:
        """Return Kafka's name, such as ``Produce``, or None for an unknown number."""
        name = named(APIS, "request").get(self.key)
        return name.removesuffix("Request") if name else None

    def definition(self, kind: str) -> Definition | None:
        """Return the definition of the ``Request`` or ``Response``, or None if it is unknown."""
        return definition(APIS, f"{self.name}{kind}", self.version)


#: The only request without a client id in its header.
CONTROLLED_SHUTDOWN = Api(7, 0)


@dataclass(frozen=True, slots=True)
class Message:
    """The content of a frame. If ``body`` is None, it could not be decoded; it begins at byte ``body_at``.

    ``fault`` is a rule, and the facts of its finding. ``read_to`` is the byte at which the decoding ended.
    """

    correlation_id: int
    api: Api | None
    client_id: str | None
    body: dict[str, Any] | None
    body_at: int
    fault: tuple[str, Row] | None = None
    read_to: int = 0


def read_request(data: memoryview) -> Message:
    """Return the request in ``data``, which has at least REQUEST_HEAD bytes."""
    key, version, correlation_id = REQUEST_HEAD.unpack_from(data)
    return _read("Request", correlation_id, Api(key, version), data, REQUEST_HEAD.size)


def read_response(data: memoryview, api: Api | None) -> Message:
    """Return the response in ``data``, which has at least RESPONSE_HEAD bytes.

    ``api`` is the API of its request, or None if that is unknown.
    """
    (correlation_id,) = RESPONSE_HEAD.unpack_from(data)
    if api is None:
        return Message(correlation_id, None, None, None, RESPONSE_HEAD.size)
    if api.key == _API_VERSIONS and len(data) >= 6 and _ERROR.unpack_from(data, 4)[0] == _UNSUPPORTED_VERSION:
        api = Api(api.key, 0)  # clients must be able to read version 0, whatever they requested (KIP-511)
    return _read("Response", correlation_id, api, data, RESPONSE_HEAD.size)


def header_versions(api: Api) -> tuple[int, int]:
    """Return the versions of the headers of a request and of its response."""
    if api == CONTROLLED_SHUTDOWN:
        return 0, 0
    flexible = [
        body is not None and api.version in body.flexible for body in map(api.definition, ("Request", "Response"))
    ]
    # The header of a response to ApiVersions is never flexible, so that every client can read it (KIP-511).
    return 1 + flexible[0], int(flexible[1] and api.key != _API_VERSIONS)


def _read(kind: str, correlation_id: int, api: Api, data: memoryview, head_size: int) -> Message:
    cursor, known, version = Cursor(data, in_place=True), api.definition(kind), header_versions(api)[kind == "Response"]
    header = definition(APIS, f"{kind}Header", version)
    assert header
    try:
        client_id = read(header, version, cursor).get("clientId")
    except MalformedMessage as error:
        # The header of an unknown API or version is unknown, too.
        why = _malformed(api, f"{kind} header", error) if known else _unknown(api)
        return Message(correlation_id, api, None, None, head_size, why)
    body_at, body, fault = cursor.at, None, None
    if known is None:
        fault = _unknown(api)
    else:
        try:
            body = read(known, api.version, cursor)
            if cursor.remaining:
                facts = {"what": f"{api.name}{kind}", "api_version": api.version, "bytes": cursor.remaining}
                fault = "body-left-over", facts
        except MalformedMessage as error:
            fault = _malformed(api, kind, error)
    return Message(correlation_id, api, client_id, body, body_at, fault, cursor.at)


def _unknown(api: Api) -> tuple[str, Row]:
    why = f"unknown version of {api.name}" if api.name else "unknown key"
    return "unknown-api", {"api_key": api.key, "api_version": api.version, "why": why}


def _malformed(api: Api, what: str, why: object) -> tuple[str, Row]:
    return "malformed-body", {"what": f"{api.name}{what}", "api_version": api.version, "why": str(why)}


def record_sets(node: Any, place: Row | None = None) -> Iterator[tuple[Row, ByteRange]]:
    """Yield the records in a body with their topic, topic id and partition, as far as the version contains them."""
    if isinstance(node, list):
        for item in node:
            yield from record_sets(item, place)
    elif isinstance(node, dict):
        own = {column: node[name] for name, column in _PLACES.items() if isinstance(node.get(name), (str, int))}
        place = {**(place or {}), **own}
        for name, value in node.items():
            if isinstance(value, ByteRange):
                # A response can contain any part of a KRaft snapshot. It may begin within a batch.
                if name == "records" and value.size:
                    yield place, value
            else:
                yield from record_sets(value, place)


def topic_names(message: Message) -> Iterator[tuple[str, str]]:
    """Yield (id, name) of the topics in a Metadata response."""
    if message.api is not None and message.api.key == _METADATA and message.body is not None:
        for topic in message.body["topics"]:
            if topic.get("topicId", _NO_ID) != _NO_ID and topic["name"]:
                yield topic["topicId"], topic["name"]


def displayed_value(node: Any) -> Any:
    """Return a body as JSON values, with the sizes of records instead of their bytes, as Kafka's converters do."""
    if isinstance(node, dict):
        return {
            (f"{name}SizeInBytes" if isinstance(value, ByteRange) else name): displayed_value(value)
            for name, value in node.items()
        }
    if isinstance(node, ByteRange):
        return node.size
    return [displayed_value(item) for item in node] if isinstance(node, list) else jsonable(node)
