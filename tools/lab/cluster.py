"""Several Kafka brokers of one KRaft cluster on 127.0.0.1: elections, truncation, reassignment, killed processes."""

from __future__ import annotations

import io
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.lab.kraft import KraftBroker, free_port

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    # A broker that is away is noticed within seconds, instead of half a minute.
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "200",
    # Leaders change only when a test asks for it.
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
    # Small replica of what big clusters do in hours.
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
WAIT_SECONDS = 120.0


class KraftCluster:
    """`with KraftCluster("4.3.0", folder) as cluster:` starts broker 1, which is the controller too, and the others.

    `brokers` maps node ids (from 1) to KraftBroker; `properties` apply to all of them. Broker 1 must stay alive while
    leaders or replicas change. Raises RuntimeError as KraftBroker does.
    """

    def __init__(self, version: str, folder: Path, properties: Mapping[str, str] | None = None, count: int = 3) -> None:
        common = {**SETTINGS, **(properties or {})}
        first = KraftBroker(version, folder / "1", common, heap="256m")
        self.brokers = {1: first}
        for node in range(2, count + 1):
            port = free_port()
            own = {
                "process.roles": "broker",
                "node.id": str(node),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.quorum.voters": first.quorum,
            }
            self.brokers[node] = KraftBroker(version, folder / str(node), {**common, **own}, port, heap="256m")

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start all brokers, the controller first."""
        self.brokers[1].start()
        others = [broker for node, broker in self.brokers.items() if node > 1]
        for broker in others:
            broker.launch()
        for broker in others:
            broker.wait_until_it_answers()
        wait_until(lambda: len(self.admin.list_topics(timeout=10).brokers) == len(self.brokers), "all brokers")

    def stop(self) -> None:
        """Stop all brokers cleanly, the controller last."""
        for _, broker in sorted(self.brokers.items(), reverse=True):
            broker.stop()

    def kill(self) -> None:
        """Kill all brokers."""
        for broker in self.brokers.values():
            broker.kill()

    @cached_property
    def admin(self) -> AdminClient:
        """The admin client of this cluster."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def create_topic(self, topic: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        """Create a topic; `replicas` are the node ids of each partition, the first of which leads."""
        new = NewTopic(topic, len(replicas), replica_assignment=[list(each) for each in replicas], config=dict(config))
        self.admin.create_topics([new], request_timeout=30)[topic].result(60)
        wait_until(lambda: all(self.isr(topic, number) for number in range(len(replicas))), f"{topic} has leaders")

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        """Return the node ids of a partition's in-sync replicas; empty without a leader."""
        leader, isr = self._state(topic, partition)
        return isr if leader >= 0 else set()

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node id of a partition's leader, -1 for none."""
        return self._state(topic, partition)[0]

    def _state(self, topic: str, partition: int) -> tuple[int, set[int]]:
        try:
            return _partitions(self.brokers[1].port, topic).get(partition, (-1, set()))
        except OSError:
            return -1, set()

    def elect(self, partitions: Iterable[tuple[str, int]], *, unclean: bool = False) -> None:
        """Make the preferred replicas leaders, or with `unclean` any live replica, as far as possible.

        Returns when the controller has answered; a partition that keeps its leader does not raise.
        """
        _elect_leaders(self.brokers[1].port, partitions, unclean)

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Ask for other replicas of partitions, the first of each the preferred leader; returns at once.

        Raises KafkaException when the controller rejects it.
        """
        _alter_reassignments(self.brokers[1].port, replicas)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Return once `condition` holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def freeze(broker: KraftBroker) -> None:
    """Stop a broker's process without ending it: its peers take it for gone."""
    broker.signal(signal.SIGSTOP)


def thaw(broker: KraftBroker) -> None:
    """Let a frozen process run again."""
    broker.signal(signal.SIGCONT)


# The client library lacks AlterPartitionReassignments (KIP-455), and its ElectLeaders fails in Python 3.11.
def _alter_reassignments(port: int, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
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


def _elect_leaders(port: int, places: Iterable[tuple[str, int]], unclean: bool) -> None:
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
def _partitions(port: int, topic: str) -> dict[int, tuple[int, set[int]]]:
    """(leader, in-sync replicas) of a topic's partitions, by a Metadata request in version 1."""
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
