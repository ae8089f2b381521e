"""Kafka requests that the client library lacks, or can't send to one broker of several."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kseg.format.messages.definitions import APIS, definition
from kseg.format.messages.message_reader import decode


# The client library lacks AlterPartitionReassignments (KIP-455), and its ElectLeaders fails in Python 3.11.
def alter_reassignments(port: int, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Ask for other replicas of partitions (KIP-455). Raises KafkaException."""
    topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
    for (topic, partition), nodes in replicas.items():
        topics.setdefault(topic, []).append((partition, nodes))
    body = struct.pack(">i", 30_000) + _length(len(topics))
    for topic, partitions in topics.items():
        body += _string(topic) + _length(len(partitions))
        for partition, nodes in partitions:
            body += struct.pack(">i", partition) + _int32s(nodes) + b"\0"
        body += b"\0"
    _request(port, 45, 0, body + b"\0")


def elect_leaders(port: int, places: Iterable[tuple[str, int]], unclean: bool) -> None:
    """Elect the preferred leaders of partitions, or with `unclean` any live replica. Raises KafkaException."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    body = struct.pack(">b", unclean) + _length(len(topics))
    for topic, partitions in topics.items():
        body += _string(topic) + _int32s(partitions) + b"\0"
    _request(port, 43, 2, body + struct.pack(">i", 30_000) + b"\0")


def _request(port: int, api_key: int, version: int, body: bytes) -> None:
    """Send one request of a flexible version whose response begins with throttle time and error code.

    Raises KafkaException for an error.
    """
    response = _exchange(port, api_key, version, b"\0" + body)
    # correlation id, tags, throttle time, error code
    (error,) = struct.unpack_from(">h", response, 4 + 1 + 4)
    if error:
        raise KafkaException(KafkaError(error))


# By one broker's answer: the client library may ask a frozen broker, and waits for it.
def leaders_of(port: int, topic: str) -> dict[int, tuple[int, set[int]]]:
    """Return (leader, in-sync replicas) of a topic's partitions, from a Metadata response in version 1."""
    answer = io.BytesIO(_exchange(port, 3, 1, struct.pack(">ih", 1, len(topic)) + topic.encode()))

    def read(layout: str) -> int:
        (value,) = struct.unpack(f">{layout}", answer.read(struct.calcsize(f">{layout}")))
        return int(value)

    def skip_string() -> None:
        answer.read(max(0, read("h")))

    def int32s() -> list[int]:
        return [read("i") for _ in range(read("i"))]

    read("i")  # correlation id
    for _ in range(read("i")):
        read("i")
        skip_string()
        read("i")
        skip_string()
    read("i")  # controller
    found = {}
    for _ in range(read("i")):
        read("h")
        skip_string()
        read("b")
        for _ in range(read("i")):
            read("h")
            number, leader = read("i"), read("i")
            int32s()
            found[number] = leader, set(int32s())
    return found


def produce(port: int, topic: str, batches: Mapping[int, bytes]) -> dict[int, int]:
    """Append a v2 batch to each of some partitions; return the error codes of those that failed."""
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + _string_v0(topic) + struct.pack(">i", len(batches))
    for partition, batch in batches.items():
        body += struct.pack(">ii", partition, len(batch)) + batch
    answer = exchanged("ProduceResponse", port, 0, 3, body)
    rows = answer["responses"][0]["partitionResponses"]
    return {row["index"]: row["errorCode"] for row in rows if row["errorCode"]}


def active_producers(port: int, topic: str, partitions: Sequence[int]) -> dict[int, dict[int, Mapping[str, int]]]:
    """Return the producers that the leader of each partition knows, by producer id (DescribeProducers, KIP-664)."""
    body = b"\0" + _length(1) + _string(topic) + _int32s(partitions) + b"\0\0"
    answer = _decoded("DescribeProducersResponse", 0, _exchange(port, 61, 0, body)[5:])
    return {
        row["partitionIndex"]: {producer["producerId"]: producer for producer in row["activeProducers"]}
        for row in answer["topics"][0]["partitions"]
        if not row["errorCode"]
    }


def abort_transactions(port: int, topic: str, partitions: Sequence[int], producer_id: int, epoch: int) -> None:
    """Write the abort marker of an open transaction to partitions, as the coordinator does (WriteTxnMarkers)."""
    topics = _length(1) + _string(topic) + _int32s(partitions) + b"\0"
    body = b"\0" + _length(1) + struct.pack(">qhb", producer_id, epoch, 0) + topics + struct.pack(">i", 0) + b"\0\0"
    answer = _decoded("WriteTxnMarkersResponse", 1, _exchange(port, 27, 1, body)[5:])
    for row in answer["markers"][0]["topics"][0]["partitions"]:
        if row["errorCode"]:
            raise KafkaException(KafkaError(row["errorCode"]))


def exchanged(name: str, port: int, api_key: int, version: int, body: bytes) -> Any:
    """Send one request of a version that is not flexible; return the response ``name``. Raises OSError."""
    return _decoded(name, version, _exchange(port, api_key, version, body)[4:])


def _decoded(name: str, version: int, data: bytes) -> Any:
    known = definition(APIS, name, version)
    assert known is not None
    return decode(known, version, data)


def _exchange(port: int, api_key: int, version: int, body: bytes) -> bytes:
    """Send one request; returns the response. Raises OSError."""
    client = b"kseg"
    request = struct.pack(">hhih", api_key, version, 1, len(client)) + client + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        return answer.read(size)


def _length(count: int) -> bytes:
    """A length of the flexible versions: an unsigned varint of one more."""
    out, rest = b"", count + 1
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def _string(text: str) -> bytes:
    return _length(len(text.encode())) + text.encode()


def _int32s(numbers: Sequence[int]) -> bytes:
    return _length(len(numbers)) + b"".join(struct.pack(">i", number) for number in numbers)


def _string_v0(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
