"""The keys that real clients sent to a real broker are found, and where their partitioner says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.commands.grep.partitioners import PARTITIONERS
from tests.support.cli import kseg

if TYPE_CHECKING:
    from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka
#: librdkafka's partitioner, or Kafka's own client -> the partitioner of ``kseg grep`` that is the same.
CLIENTS = {
    "java": "murmur2",
    "murmur2": "murmur2",
    "murmur2_random": "murmur2",
    "consistent": "crc32",
    "consistent_random": "crc32",
    "fnv1a": "fnv1a",
    "fnv1a_random": "fnv1a",
}
PARTITIONS, MORE_PARTITIONS = 12, 17
KEYS = [f"order-{n * n}" for n in range(118)] + ["é-☃-😀", "a key of more than thirty-two bytes, of any text"]
LATER = [f"later-{n}" for n in range(60)]


def send(broker: KraftBroker, client: str, keys: Sequence[str]) -> None:
    """Send a record for each key to the topic of a client."""
    from confluent_kafka import Producer

    from tools.lab import maven

    if client == "java":
        command = ["java", *maven.JVM, "-Xmx200m", "-cp", f"{maven.libs('4.3.0')}/*",
                   "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", broker.bootstrap, "--topic", client,
                   "--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]  # fmt: skip
        lines = "".join(f"{key}|value\n" for key in keys)
        subprocess.run(command, input=lines.encode(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": client, "log_level": 0})
    for key in keys:
        producer.produce(client, b"value", key.encode())
    assert producer.flush(60) == 0


def places(log_dir: Path, topic: str, *options: object) -> dict[str, int]:
    """Return the partition of each key that ``kseg grep`` finds."""
    folders = sorted(log_dir.glob(f"{topic}-[0-9]*"))
    run = kseg("grep", *options, "--format", "jsonl", *folders)
    assert (run.returncode, run.stderr.count("no match")) == (0, 0), run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return {row["key"]: int(Path(row["file"]).parent.name.rpartition("-")[2]) for row in rows}


def test_the_keys_of_real_clients_are_found(tmp_path: Path) -> None:
    """Also those from before partitions were added; and each partitioner is that of the client."""
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    from tools.lab.kraft import KraftBroker

    named = [text for key in [*KEYS, *LATER] for text in ("--key", key)]
    with KraftBroker("4.3.0", tmp_path / "broker") as broker:
        admin = broker.admin()
        for created in admin.create_topics([NewTopic(client, PARTITIONS, 1) for client in CLIENTS]).values():
            created.result(60)
        for client in CLIENTS:
            send(broker, client, KEYS)
        before = {client: places(broker.log_dir, client, *named) for client in CLIENTS}
        for added in admin.create_partitions([NewPartitions(client, MORE_PARTITIONS) for client in CLIENTS]).values():
            added.result(60)
        for client in CLIENTS:
            send(broker, client, LATER)
    for client, partitioner in CLIENTS.items():
        numbers = {key: PARTITIONERS[partitioner](key.encode()) or 0 for key in [*KEYS, *LATER]}
        assert before[client] == {key: numbers[key] % PARTITIONS for key in KEYS}, client
        after = places(broker.log_dir, client, *named)
        later = {key: numbers[key] % MORE_PARTITIONS for key in LATER}
        assert after == {**before[client], **later}, client
        for key in LATER[:2]:
            assert places(broker.log_dir, client, "--partitioner", partitioner, "--key", key) == {key: later[key]}
