"""What consumers read of a cluster, and what producers and groups write, for tests that compare a cluster with a copy."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

GROUP = "billing"
#: (topic, partition, offset, key, value, headers, timestamp)
Seen = tuple[str | None, int | None, int | None, bytes | None, bytes | None, Any, int]


def produce(bootstrap: str, topic: str, count: int, codec: str = "none", idempotent: bool = False) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "compression.type": codec,
            "linger.ms": 5,
            "enable.idempotence": idempotent,
        }
    )
    for number in range(count):
        key, value = b"key %d" % (number % 7), b"%s %d" % (topic.encode(), number) * 200
        producer.produce(
            topic, value, key, headers=[("n", b"%d" % number), ("n", None)], timestamp=1_700_000_000_000 + number
        )
        producer.poll(0)
    assert not producer.flush(60)


def partitions(bootstrap: str) -> list[TopicPartition]:
    listed = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).topics
    return [TopicPartition(name, n) for name in sorted(listed) for n in listed[name].partitions if name[:2] != "__"]


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first and the end offset. The client gives up early if a broker has just left."""
    for _ in range(5):
        with suppress(KafkaException):
            found: tuple[int, int] = consumer.get_watermark_offsets(place, 30)
            return found
        time.sleep(1)
    raise TimeoutError(f"no offsets of {place}")


def read_all(bootstrap: str, isolation: str = "read_uncommitted") -> set[Seen]:
    """Return all records that a consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: set[Seen] = set()
    try:
        for place in partitions(bootstrap):
            low, high = watermarks(consumer, place)
            if low == high:
                continue
            consumer.assign([TopicPartition(place.topic, place.partition, low)])
            while message := consumer.poll(30):
                if error := message.error():
                    if error.code() == KafkaError._PARTITION_EOF:
                        break
                    continue  # a broker that has just started may not lead its partitions yet
                found.add(
                    (
                        message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                        tuple(message.headers() or ()), message.timestamp()[1],
                    )
                )  # fmt: skip
            assert message is not None, f"{place}: no end within 30 s"
    finally:
        consumer.close()
    return found


def commit(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": GROUP})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], 30)[0].offset)
    finally:
        consumer.close()


def strays(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*-stray")]
