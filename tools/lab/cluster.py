"""Several Kafka brokers of one KRaft cluster on 127.0.0.1: elections, truncation, reassignment, killed processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.lab.kafka_requests import alter_reassignments, elect_leaders, leaders_of
from tools.lab.kraft import KraftBroker
from tools.lab.ports import free_port

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
            return leaders_of(self.brokers[1].port, topic).get(partition, (-1, set()))
        except OSError:
            return -1, set()

    def elect(self, partitions: Iterable[tuple[str, int]], *, unclean: bool = False) -> None:
        """Make the preferred replicas leaders, or with `unclean` any live replica, as far as possible.

        Returns when the controller has answered; a partition that keeps its leader does not raise.
        """
        elect_leaders(self.brokers[1].port, partitions, unclean)

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Ask for other replicas of partitions, the first of each the preferred leader; returns at once.

        Raises KafkaException when the controller rejects it.
        """
        alter_reassignments(self.brokers[1].port, replicas)


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
