"""Real replicas of one partition on two brokers:

equal, then diverged by an election, then equal again by replication.
"""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.commands.diff.comparison import compare
from kseg.commands.diff.differences import Comparison
from kseg.commands.diff.replica import Replica
from kseg.report.diff_report import rows
from kseg.report.row_formats import write_jsonl

if TYPE_CHECKING:
    from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"
TOPIC = "replicated"
WAIT_SECONDS = 60.0
SHARED, ONLY_OLD_LEADER, ONLY_NEW_LEADER = 300, 40, 25


def outcome(a: Path, b: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out, result = io.StringIO(), Comparison()
    left, right = (Replica(str(path), lambda file, finding: None) for path in (a, b))
    write_jsonl(rows(compare(left, right, result), result, left, right), out)
    *found, last = map(json.loads, out.getvalue().splitlines())
    return found, last


def produce(bootstrap: str, count: int, text: str, acks: str) -> None:
    from confluent_kafka import Producer

    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0})
    for number in range(count):
        value = f"{text} {number} ".encode() * 20
        producer.produce(TOPIC, key=b"%d" % number, value=value, on_delivery=lambda error, _: failed.append(error))
        if number % 10 == 9:
            producer.flush(WAIT_SECONDS)
    assert producer.flush(WAIT_SECONDS) == 0
    assert [error for error in failed if error] == []


def until(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[KraftBroker, KraftBroker]]:
    """Broker 1 is the controller, too; broker 2 will lead the partition, and continues to lead without broker 1."""
    from tools.lab.kraft import KraftBroker
    from tools.lab.ports import free_port

    common = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
              "replica.lag.time.max.ms": "60000", "log.segment.bytes": "1048576"}  # fmt: skip
    first = KraftBroker(VERSION, tmp_path / "1", common)
    port = free_port()
    joined = {"process.roles": "broker", "node.id": "2", "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    second = KraftBroker(VERSION, tmp_path / "2", {**common, **joined, "controller.quorum.voters": first.quorum}, port)
    with ExitStack() as stack:
        for broker in (first, second):
            stack.enter_context(broker)
            stack.callback(broker.kill)
        yield first, second


def test_real_replicas(brokers: tuple[KraftBroker, KraftBroker], tmp_path: Path) -> None:
    """The outcome of each stage is what the brokers did."""
    from confluent_kafka.cimpl import NewTopic

    first, second = brokers
    until("both brokers", lambda: len(first.admin().list_topics(timeout=5).brokers) == 2)
    topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 1]], config={"unclean.leader.election.enable": "true"})
    admin = first.admin()
    admin.create_topics([topic])[TOPIC].result(WAIT_SECONDS)
    until("a leader", lambda: leader(second) == 2)
    produce(second.bootstrap, SHARED, "shared", "all")

    # The leader continues without its controller; then the follower is elected, which has not seen those records.
    first.kill()
    produce(second.bootstrap, ONLY_OLD_LEADER, "old leader", "1")
    second.kill()
    behind = copies(brokers, tmp_path / "behind")
    rows, last = outcome(*behind)
    assert [(row["difference"], row["lacking"], row["first_offset"]) for row in rows] == [("ends-earlier", "a", SHARED)]
    assert (last["verdict"], last["last_common_offset"]) == ("consistent", SHARED - 1)

    first.start()
    until("an election", lambda: leader(first) == 1)
    produce(first.bootstrap, ONLY_NEW_LEADER, "new leader", "1")
    first.stop()
    rows, last = outcome(*copies(brokers, tmp_path / "diverged"))
    assert [(row["difference"], row["first_offset"], row["last_offset"]) for row in rows] == [
        ("content", SHARED, SHARED + ONLY_NEW_LEADER - 1),
        ("ends-earlier", SHARED + ONLY_NEW_LEADER, SHARED + ONLY_OLD_LEADER - 1),
    ]
    assert (last["verdict"], last["first_difference"], last["last_common_offset"]) == ("diverged", SHARED, SHARED - 1)
    assert rows[0]["a"]["leader_epoch"] > rows[0]["b"]["leader_epoch"]
    assert last["truncation_offset"]["b"] == SHARED

    # The follower truncates to the offset that it was given, and fetches the later records.
    first.start()
    second.start()
    until("replication", lambda: in_sync(first))
    first.stop()
    second.kill()
    rows, last = outcome(*copies(brokers, tmp_path / "mended"))
    assert (rows, last["verdict"]) == ([], "identical")
    assert last["last_common_offset"] == SHARED + ONLY_NEW_LEADER - 1


def leader(broker: KraftBroker) -> int:
    partitions = broker.admin().list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    return int(partitions[0].leader) if partitions else -1


def in_sync(broker: KraftBroker) -> bool:
    return sorted(broker.admin().list_topics(TOPIC, timeout=5).topics[TOPIC].partitions[0].isrs) == [1, 2]


def copies(brokers: tuple[KraftBroker, KraftBroker], target: Path) -> tuple[Path, Path]:
    """Copy both replicas, so that each stage of a failed test can be examined."""
    for number, broker in enumerate(brokers, 1):
        shutil.copytree(broker.partition(TOPIC), target / str(number))
    return target / "1", target / "2"
