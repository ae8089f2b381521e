"""A real broker writes, rolls and aborts; kseg returns from its files the same as its consumers get."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.following import following, offsets

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.support.streaming import ALL, reader, rows
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.spark]  # Spark's stream, read without a session.
VERSION = "4.3.0"
TOPIC = "orders"
ROUNDS = 12


def test_a_brokers_log_is_followed_while_it_writes(tmp_path: Path) -> None:
    """A stream of committed reads with 200 offsets per trigger, and ``dump --follow``, with the broker's own indexes."""
    chance = random.Random(3)
    with KraftBroker(VERSION, tmp_path / "broker") as broker:
        create_topic(broker, TOPIC, {"segment.bytes": str(1 << 20)})
        servers = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = Producer({**servers, "transactional.id": "t", "compression.type": "lz4", "linger.ms": 1})
        producer.init_transactions(60)
        given: list[tuple[Any, Any]] = []
        start: dict[str, int] = {}
        folder = broker.partition(TOPIC)

        def follow() -> None:
            nonlocal start
            while True:
                stream = reader(folder, isolation="read_committed")
                end = stream.latestOffset(start, ReadMaxRows(200))
                for row in rows(stream, start, end):
                    assert row["damage"] is None
                    given.append((row["offset"], row["value"]))
                if end == start:
                    return
                start = end

        with following("--deep", "--format", "jsonl", folder) as (running, lines):
            for number in range(ROUNDS):
                producer.begin_transaction()
                for i in range(300):
                    producer.produce(TOPIC, chance.randbytes(800), str(i).encode())
                    if i % 100 == 50:
                        producer.flush()
                        follow()
                if number % 3 == 2:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                follow()
            # A producer's transaction ends before its marker is in the log.
            until = time.monotonic() + 300
            while reader(folder).latestOffset({}, ALL) != start and time.monotonic() < until:
                time.sleep(0.1)
                follow()
            # Uncommitted, every offset has a row: records of all transactions, and their markers.
            end = start[f"{TOPIC}-0"]
            assert offsets(lines, end) == list(range(end))
            running.send_signal(signal.SIGINT)
            assert running.wait(300) == 0
        until = time.monotonic() + 300
        consumer = Consumer({**servers, "group.id": "g", "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        wanted: list[tuple[Any, Any]] = []
        while len(wanted) < ROUNDS * 2 // 3 * 300 and time.monotonic() < until:
            wanted += [(message.offset(), message.value()) for message in consumer.consume(500, 1)]
        consumer.close()
        assert given == wanted
        assert start == reader(folder).latestOffset({}, ALL)
        assert start[f"{TOPIC}-0"] > len(given)
        assert len(list(folder.glob("*.log"))) > 1


def test_a_log_that_a_broker_compacts_is_followed(tmp_path: Path) -> None:
    """Its cleaner merges segments between plan and read: each record that a consumer gets comes once, without damage."""
    properties = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "100"}
    with KraftBroker(VERSION, tmp_path / "broker", properties) as broker:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "300"}
        create_topic(broker, TOPIC, {**config, "internal.segment.bytes": "20000", "delete.retention.ms": "100"})
        servers = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = Producer({**servers, "linger.ms": 1})
        folder, chance = broker.partition(TOPIC), random.Random(5)
        start: dict[str, int] = {}
        streamed: list[int] = []
        inodes: set[int] = set()
        with following("--deep", "--format", "jsonl", folder) as (running, lines):
            begin = time.monotonic()
            # On a busy machine the broker's cleaner starts late.
            while (passed := time.monotonic() - begin) < 15 or (len(inodes) < 2 and passed < 120):
                for _ in range(200):
                    producer.produce(TOPIC, chance.randbytes(chance.randrange(300)), b"%d" % chance.randrange(30))
                producer.flush(30)
                stream = reader(folder)
                end = stream.latestOffset(start, ALL)
                planned = stream.partitions(start, end)
                time.sleep(0.4)
                found = [row for split in planned for batch in stream.read(split) for row in batch.to_pylist()]
                assert [row["damage"] for row in found if row["damage"]] == []
                streamed += [row["offset"] for row in found]
                start = end
                inodes |= {path.stat().st_ino for path in folder.glob(f"{0:020d}.log")}
            followed = offsets(lines, 1)
            while not lines.empty():
                followed += offsets(lines, 1)
            running.send_signal(signal.SIGINT)
            assert running.wait(300) == 0
        consumer = Consumer({**servers, "group.id": "g", "enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        kept = []
        while (message := consumer.poll(30)) is not None and not message.error():
            kept.append(message.offset())
        consumer.close()
    assert len(inodes) > 1, "the cleaner has not run"
    assert len(streamed) == len(set(streamed))
    assert set(kept) <= set(streamed)
    assert len(followed) == len(set(followed))
    assert set(kept) <= set(followed)
