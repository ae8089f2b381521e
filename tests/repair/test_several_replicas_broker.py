"""Three replicas that are damaged at three places: their brokers serve all records after one repair."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import damage
from tests.support.cli import kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition

from tools.lab.cluster import KraftCluster, wait_until

pytestmark = pytest.mark.kafka
TOPIC, RECORDS = "orders", 4000


def _read(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while len(found) < RECORDS:
        message = consumer.poll(60)
        assert message is not None, len(found)
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_brokers_serve_the_result(tmp_path: Path) -> None:
    """A flipped byte, a zeroed range and a torn tail after `kill -9`, each at another replica: nothing is lost."""
    with KraftCluster("4.3.0", tmp_path / "cluster") as cluster:
        cluster.create_topic(TOPIC, [[1, 2, 3]], {"segment.bytes": "1048576", "min.insync.replicas": "3"})
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 50, "log_level": 0}
        )
        values = [b"%d" % n * 100 for n in range(RECORDS)]
        for value in values:
            producer.produce(TOPIC, value, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        wait_until(lambda: cluster.isr(TOPIC) == {1, 2, 3}, "all replicas")
        cluster.kill()
        replicas = [broker.partition(TOPIC) for broker in cluster.brokers.values()]
        logs = [sorted(replica.glob("*.log")) for replica in replicas]
        assert all(len(each) > 1 for each in logs)
        flipped, zeroed, torn = logs[0][0], logs[1][0], logs[2][-1]
        flipped.write_bytes(damage.flip(flipped.read_bytes(), 5_000))
        data = zeroed.read_bytes()
        zeroed.write_bytes(data[:300_000] + bytes(200_000) + data[500_000:])
        torn.write_bytes(torn.read_bytes()[:-1_000])
        whole = tmp_path / "orders-0"
        done = kseg("repair", *replicas, whole)
        assert done.returncode == 0, done.stdout + done.stderr
        for replica in replicas:
            shutil.rmtree(replica)
            shutil.copytree(whole, replica)
        cluster.start()
        wait_until(lambda: cluster.isr(TOPIC) == {1, 2, 3}, "all replicas")
        assert _read(cluster.bootstrap) == values
        cluster.stop()
        assert kseg("diff", replicas[0], replicas[2]).returncode == 0
