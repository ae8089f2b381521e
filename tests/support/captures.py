"""Random captures of requests, as a client writes them, and captures that lost bytes."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from kseg.extras.wire.apis import Api, header_versions
from kseg.format.messages.definitions import APIS, Definition, MessageField, definition
from kseg.format.messages.message_writer import encode
from tests.support.replicated import batch, messages

_APIS = {
    0: "Produce",
    1: "Fetch",
    3: "Metadata",
    8: "OffsetCommit",
    10: "FindCoordinator",
    12: "Heartbeat",
    18: "ApiVersions",
}
_NEWEST_VERSION = 20
_NUMBERS = {"bool": 1, "int8": 7, "int16": 3, "uint16": 15, "int32": 31, "uint32": 31, "int64": 40}


def request(noise: Random, key: int, correlation_id: int, client: str | None) -> bytes:
    """Return a random request of an API, in a random version, with its size."""
    versions = [one for one in range(_NEWEST_VERSION) if Api(key, one).definition("Request")]
    version = noise.choice(versions)
    known = Api(key, version).definition("Request")
    assert known
    head = definition(APIS, "RequestHeader", header_versions(Api(key, version))[0])
    assert head
    fields = {"requestApiKey": key, "requestApiVersion": version, "correlationId": correlation_id, "clientId": client}
    body = _structure(noise, known.fields, known, version)
    data = encode(head, header_versions(Api(key, version))[0], fields) + encode(known, version, body)
    return struct.pack(">i", len(data)) + data


def _structure(noise: Random, fields: tuple[MessageField, ...], known: Definition, version: int) -> dict[str, Any]:
    present = [field for field in fields if version in field.versions and version not in field.tagged]
    return {field.name: _value(noise, field, known, version) for field in present}


def _value(noise: Random, field: MessageField, known: Definition, version: int) -> Any:
    item = field.type.removeprefix("[]")
    if item != field.type:
        return [
            _item(noise, field, item, known, version)
            for _ in range(noise.choice((1, 1, 2) if known.name == "ProduceRequest" else (0, 1, 1, 2)))
        ]
    return _item(noise, field, item, known, version)


def _item(noise: Random, field: MessageField, item: str, known: Definition, version: int) -> Any:
    if item in _NUMBERS:
        bits = _NUMBERS[item]
        return noise.choice((0, 1, -1 if item.startswith("i") else 0, noise.randrange(1 << bits)))
    if item == "string":
        return noise.choice(("orders", "t", "clicks.v1", "0123456789"))
    if item == "uuid":
        return "BwcHBwcHBwcHBwcHBwcHBw"
    if item == "records":
        return _records(noise, version)
    return noise.randbytes(noise.randrange(12)) if item == "bytes" else _structure(noise, field.fields, known, version)


def _records(noise: Random, version: int) -> bytes:
    codec = noise.choice(("none", "none", "gzip", "lz4"))
    count = noise.randint(1, 3)
    return batch(0, count, -1, codec) if version >= 3 else messages(0, count, noise.choice((0, 1)), codec)


def capture(noise: Random, count: int, clients: tuple[str | None, ...]) -> list[bytes]:
    """Return random requests of one connection or of several."""
    keys = noise.choices(list(_APIS), weights=[8, 2, 1, 1, 1, 1, 1], k=count)
    first = noise.choice((0, 100, 70_000))
    return [request(noise, key, first + n, noise.choice(clients)) for n, key in enumerate(keys)]
