"""Write `fixtures/carve/twins.tar.xz`: the partition folders of two topics of a 4.3.0 broker, whose offsets are equal.

Both topics have three partitions with the same batches of two idempotent producers, one after the other; each topic has
producers of its own. So two partitions of a number have equal offsets, sizes and times, but not equal producers. Segments
roll by the times of records.
"""

from __future__ import annotations

import random
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tools.lab.kraft import KraftBroker

TARGET = Path(__file__).parents[2] / "fixtures" / "carve" / "twins.tar.xz"
TOPICS = ("orders", "copied")
PARTITIONS = 3
HOUR = 3_600_000
BEGIN = 1_700_000_000_000


def batches(topic: str, phase: int) -> Iterator[tuple[int, list[tuple[bytes, bytes, int]]]]:
    """Yield what one producer writes: the partition of a batch, and key, value and timestamp of its records."""
    chance = random.Random(phase)
    for number in range(120):
        partition = chance.randrange(PARTITIONS)
        stamp = BEGIN + (phase * 120 + number) * HOUR // 24
        records = []
        for _ in range(chance.randrange(1, 12)):
            value = f"{topic} {chance.randrange(1000):03} " * chance.randrange(5, 60)
            records.append((str(number).encode(), value.encode(), stamp))
        yield partition, records


def _write(bootstrap: str, topic: str, phase: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50, "log_level": 0})
    for partition, records in batches(topic, phase):
        for key, value, stamp in records:
            producer.produce(topic, value, key=key, partition=partition, timestamp=stamp)
        producer.flush(30)


def main() -> None:
    """Start a broker, write both topics, and pack the segments, indexes and checkpoints of their partitions."""
    with tempfile.TemporaryDirectory() as folder, KraftBroker("4.3.0", Path(folder)) as broker:
        settings = {"segment.ms": str(2 * HOUR)}
        admin = broker.admin()
        made = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings) for topic in TOPICS])
        for one in made.values():
            one.result(30)
        time.sleep(1)
        for topic in TOPICS:
            for phase in range(2):
                _write(broker.bootstrap, topic, phase)
        broker.stop()
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(TARGET, "w:xz") as out:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    path = broker.partition(topic, partition)
                    out.add(path, path.name)


if __name__ == "__main__":
    main()
