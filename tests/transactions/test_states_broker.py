"""The states of records are those that a real consumer with read_committed shows, beside a live broker."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kseg as library
from tests.support.cli import rows_of as rows
from tests.support.fuzzing import cases
from tests.support.transactional_logs import write_log

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.lab import scenes
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

pytestmark = pytest.mark.kafka
COMPACTED = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000",
    "delete.retention.ms": "1000",
}  # fmt: skip


def consumed(broker: KraftBroker, topic: str, isolation: str, partitions: int = 1) -> dict[int, list[int]]:
    """Return the offsets that a consumer gets from each partition, up to the end that the broker shows to it."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": isolation,
        "isolation.level": isolation,
        "log_level": 0,
    }
    # A compacted log can begin after offset 0.
    of_log = {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **of_log})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[int]] = {number: [] for number in range(partitions)}
    ended: set[int | None] = set()
    silent = 0  # seconds: after a gap of compaction before the last stable offset, librdkafka reports no end
    while len(ended) < partitions and silent < 20:
        message = consumer.poll(1)
        silent = 0 if message else silent + 1
        if message and (error := message.error()):
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        elif message:
            found[message.partition() or 0].append(message.offset() or 0)
    consumer.close()
    return found


def write(broker: KraftBroker, topic: str, chance: random.Random, rounds: int) -> list[Producer]:
    """Write interleaved transactions of three producers; that of the last one stays open."""
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "log_level": 0,
        "transaction.timeout.ms": 600_000,
    }
    producers = [Producer({**settings, "transactional.id": f"{topic}-{n}", "linger.ms": 1}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(rounds):
        producer = chance.choice(producers)
        for i in range(chance.randint(1, 5)):
            producer.produce(topic, b"value %d" % number, b"key %d" % chance.randrange(20))
            if i % 2:
                producer.flush(30)
        producer.flush(30)
        if chance.random() < 0.5:
            (producer.abort_transaction if chance.random() < 0.5 else producer.commit_transaction)(60)
            producer.begin_transaction()
    for producer in producers[:2]:
        producer.commit_transaction(60)
    producers[2].produce(topic, b"of an open transaction", b"open")
    producers[2].flush(30)
    return producers


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftBroker]:
    with KraftBroker("4.3.0", tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize("config", [{"segment.bytes": str(1 << 20)}, COMPACTED], ids=["deleted", "compacted"])
def test_states_are_those_of_a_real_consumer(config: dict[str, str], broker: KraftBroker) -> None:
    """Interleaved transactions, also compacted, and one that is open: without a difference in dump, grep, sql and scan."""
    topic = "compacted" if config is COMPACTED else "deleted"
    create_topic(broker, topic, config)
    folder = broker.partition(topic)
    producers = write(broker, topic, random.Random(4), 60)
    if config is COMPACTED:
        time.sleep(1.5)
        producers[0].begin_transaction()
        producers[0].produce(topic, b"last", b"last")  # rolls the segment, so that the others can be cleaned
        producers[0].commit_transaction(60)
        producers[2].commit_transaction(60)  # nothing is cleaned from the last stable offset on
        producers[2].begin_transaction()
        producers[2].produce(topic, b"of an open transaction", b"open")
        producers[2].flush(30)
        checkpoint = folder.parent / "cleaner-offset-checkpoint"
        scenes.wait_for(lambda: checkpoint.exists() and topic in checkpoint.read_text(), "the cleaner")
        time.sleep(3)
    wanted = consumed(broker, topic, "read_committed")[0]
    every = consumed(broker, topic, "read_uncommitted")[0]
    option = ("--isolation", "read_committed")
    assert [row["offset"] for row in rows("dump", "--deep", *option, folder)] == wanted
    assert [row["offset"] for row in rows("grep", *option, "-e", ".", folder)] == wanted
    statement = "select offset from records order by offset"
    assert [row["offset"] for row in rows("sql", *option, statement, folder)] == wanted
    data = rows("dump", "--deep", "--no-control", folder)
    assert [row["offset"] for row in data] == every
    states = {row["transaction_state"] for row in data}
    assert {"committed", "open"} <= states <= {"committed", "aborted", "open"}
    stable = min(row["offset"] for row in data if row["transaction_state"] == "open")
    below = [row["offset"] for row in data if row["transaction_state"] == "committed" and row["offset"] < stable]
    assert below == wanted
    ids = {row["transactional_id"] for row in data}
    assert ids <= {f"{topic}-{n}" for n in range(3)}
    assert f"{topic}-2" in ids


def test_random_logs_are_read_as_a_real_consumer_reads_them(broker: KraftBroker, tmp_path: Path) -> None:
    """A broker serves random logs, also compacted ones and open transactions: dump, grep, sql and scan differ nowhere."""
    total = cases(10)
    admin = broker.admin()
    admin.create_topics([NewTopic("t", total, 1)])["t"].result(30)
    folders = [broker.partition("t", number) for number in range(total)]
    scenes.wait_for(lambda: all(folder.exists() for folder in folders), "the partitions")
    broker.stop()
    known = []
    for number, folder in enumerate(folders):
        known.append(write_log(tmp_path / f"written-{number}", random.Random(number)))
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (tmp_path / f"written-{number}").iterdir():
            shutil.copy(path, folder)
    broker.start()
    wanted = {n: offsets for n, offsets in consumed(broker, "t", "read_committed", total).items() if offsets}
    every = {n: offsets for n, offsets in consumed(broker, "t", "read_uncommitted", total).items() if offsets}
    assert wanted != every
    # The broker agrees with the truth of the generator, too.
    assert wanted == {n: log.committed for n, log in enumerate(known) if log.committed}
    statement = "select topic, partition, offset, file from records order by partition, offset"
    committed = ("--isolation", "read_committed")
    for arguments in (
        ("dump", "--deep", *committed),
        ("grep", *committed, "-e", "."),
        ("grep", *committed, "--where", "offset >= 0"),
        ("sql", *committed, statement),
    ):
        assert by_partition(rows(*arguments, *folders)) == wanted, arguments
    assert by_partition(rows("dump", "--deep", "--no-control", *folders)) == every
    for isolation, offsets in (("read_committed", wanted), ("read_uncommitted", every)):
        scanned = library.scan(folders, isolation=isolation, columns=["file", "offset"])
        assert by_partition(scanned.scanner().to_table().to_pylist()) == offsets


def by_partition(found: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Return the offsets of rows by the partition of their file."""
    grouped: dict[int, list[int]] = {}
    for row in found:
        grouped.setdefault(int(Path(row["file"]).parent.name.rpartition("-")[2]), []).append(row["offset"])
    return grouped
