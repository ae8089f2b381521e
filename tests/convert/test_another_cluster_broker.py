"""A partition of one cluster is served, replicated and continued by the brokers of another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.lab.cluster import KraftCluster, wait_until
from tools.lab.kraft import KraftBroker
from tools.lab.recovery_broker import consumer_of, watermarks

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"
TOPIC = "orders"


def _producer(bootstrap: str, name: str = "") -> Producer:
    transactional = {"transactional.id": name, "transaction.timeout.ms": 600_000} if name else {}
    made = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **transactional})
    if name:
        made.init_transactions(60)
    return made


def _send(producer: Producer, word: str, count: int = 20) -> set[bytes]:
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        failed.extend([error] if error else [])

    values = {b"%s-%d" % (word.encode(), n) for n in range(count)}
    for value in sorted(values):
        producer.produce(TOPIC, value, key=word, partition=0, on_delivery=delivered)
    assert (producer.flush(60), failed) == (0, []), word
    return values


def _old_partition(broker: KraftBroker) -> set[bytes]:
    """Write a history of three leader epochs: idempotent, committed, aborted, and one transaction left open."""
    committed: set[bytes] = set()
    for life in range(3):
        with broker:
            if not life:
                admin = broker.admin()
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
            committed |= _send(_producer(broker.bootstrap), f"plain{life}")
            first, second = (_producer(broker.bootstrap, f"{name}{life}") for name in ("kept", "aborted"))
            first.begin_transaction()
            second.begin_transaction()
            committed |= _send(first, f"kept{life}")
            _send(second, f"aborted{life}")
            first.commit_transaction(60)
            second.abort_transaction(60)
            if life == 2:
                first.begin_transaction()
                _send(first, "open")
            committed |= _send(_producer(broker.bootstrap), f"later{life}")
    return committed


def _consumed(bootstrap: str, count: int) -> set[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed", "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, (len(found), count)
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    assert len({*found}) == len(found)
    return {*found}


def test_other_brokers_serve_it(tmp_path: Path) -> None:
    """Committed records at their offsets, ISR of three, also of a broker that begins empty; new producers can write."""
    old = KraftBroker(VERSION, tmp_path / "old")
    committed = _old_partition(old)
    source, converted = old.partition(TOPIC), tmp_path / "orders-0"
    done = kseg("convert", "any-to-v2", "--for-another-cluster", source, converted)
    assert done.returncode == 0, done.stderr
    with old:
        waiting = consumer_of(old)
        end = watermarks(waiting, TOPIC, 0)[1]
        waiting.close()
    with KraftCluster(VERSION, tmp_path / "new") as cluster:
        cluster.create_topic(TOPIC, [[1, 2, 3]], {})
        cluster.stop()
        for node in (1, 2):
            folder = cluster.brokers[node].partition(TOPIC)
            for path in folder.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            shutil.copytree(converted, folder, dirs_exist_ok=True)
        cluster.start()
        wait_until(lambda: cluster.isr(TOPIC) == {1, 2, 3}, "all replicas")
        consumer = consumer_of(cluster.brokers[1])
        assert watermarks(consumer, TOPIC, 0)[1] == end
        consumer.close()
        assert _consumed(cluster.bootstrap, len(committed)) == committed
        # Ids that the old cluster gave out, too: a producer with a sequence that the log does not continue would fail.
        for n in range(3):
            committed |= _send(_producer(cluster.bootstrap), f"new{n}")
            writer = _producer(cluster.bootstrap, f"new{n}")
            writer.begin_transaction()
            committed |= _send(writer, f"transaction{n}")
            writer.commit_transaction(60)
        assert _consumed(cluster.bootstrap, len(committed)) == committed
        replicas = [cluster.brokers[node].partition(TOPIC) for node in cluster.brokers]
        # A follower on a busy machine can have left the replicas in sync: it has the last records a moment later.
        wait_until(lambda: len({_log_size(replica) for replica in replicas}) == 1, "replicas of one size")
        cluster.stop()
        for other in replicas[1:]:
            # During the stop the next coordinator of a transaction may write its marker again, to those that still run.
            same = kseg("diff", "--allow", "ends-earlier", replicas[0], other)
            assert same.returncode == 0, same.stdout


def _log_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))
