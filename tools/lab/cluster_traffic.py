"""Load on a cluster whose brokers fail: plain, idempotent and transactional producers that never give up."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Producer

#: Topics with three partitions each, and their settings. Every broker leads one partition of each.
TOPICS: Mapping[str, Mapping[str, str]] = {
    "rolled": {"internal.segment.bytes": "150000"},
    "unclean": {"unclean.leader.election.enable": "true"},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
        "segment.ms": "3000",
    },
    "deleted": {"cleanup.policy": "delete", "retention.bytes": "300000", "internal.segment.bytes": "100000"},
    "preallocated": {"preallocate": "true", "segment.bytes": "1048576"},
    "transactions": {"internal.segment.bytes": "200000", "unclean.leader.election.enable": "true"},
}
PARTITIONS = 3
#: The client library has 0.4 GB more each minute. Killed clients also leave what others must finish, as in production.
LIFE_SECONDS = 150
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def run(bootstrap: str, seed: int) -> None:
    """Write to TOPICS until this process is killed; after LIFE_SECONDS it starts itself again."""
    common: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "log_level": 0,
        "message.timeout.ms": 20_000,
        "socket.timeout.ms": 6_000,
        "reconnect.backoff.max.ms": 1_000,
    }
    threads = [
        threading.Thread(target=_plain, args=({**common, "acks": 1, "compression.type": codec}, seed + number))
        for number, codec in enumerate(CODECS)
    ]
    threads.append(threading.Thread(target=_plain, args=({**common, "enable.idempotence": True}, seed + 10)))
    threads += [threading.Thread(target=_transactions, args=(common, name, seed + 20)) for name in ("first", "second")]
    threads.append(threading.Thread(target=_consume, args=(common,)))
    threads += [threading.Thread(target=_interleaved, args=(common, number)) for number in range(2)]
    for thread in threads:
        thread.daemon = True
        thread.start()
    time.sleep(LIFE_SECONDS)
    os.execv(sys.executable, [sys.executable, "-m", "tools.lab.cluster_traffic", bootstrap, str(seed + 100)])


def _consume(settings: Mapping[str, str | int | bool]) -> None:
    """A group that commits what it reads."""
    names = ("bootstrap.servers", "log_level", "reconnect.backoff.max.ms")
    consumer = Consumer(
        {**{name: settings[name] for name in names}, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(list(TOPICS))
    while True:
        with contextlib.suppress(KafkaException):
            consumer.poll(1)


def _plain(settings: Mapping[str, str | int | bool], seed: int) -> None:
    noise = random.Random(seed)
    while True:
        producer = Producer(dict(settings))
        # A new one after a while, and after a fatal error.
        until = time.monotonic() + noise.uniform(5, 40)
        with contextlib.suppress(KafkaException, BufferError):
            while time.monotonic() < until:
                topic = noise.choice(tuple(TOPICS))
                _produce(producer, topic, noise, noise.randrange(1, 30))
                producer.poll(0.02)
                time.sleep(noise.uniform(0, 0.2))
            producer.flush(10)


def _transactions(settings: Mapping[str, str | int | bool], name: str, seed: int) -> None:
    noise = random.Random(f"{name}{seed}")
    number = 0
    while True:
        number += 1
        # An id used again fences its forerunner and aborts what that left open; a new one leaves it open.
        identity = f"{name}-{number // 3}"
        with contextlib.suppress(KafkaException, BufferError):
            producer = Producer({**settings, "transactional.id": identity, "transaction.timeout.ms": 15_000})
            producer.init_transactions(20)
            for _ in range(noise.randrange(5, 60)):
                producer.begin_transaction()
                for topic in noise.sample(tuple(TOPICS), noise.randrange(1, len(TOPICS))):
                    _produce(producer, topic, noise, noise.randrange(1, 12))
                producer.flush(10)
                time.sleep(noise.uniform(0, 0.5))
                if noise.randrange(10) == 0:
                    break  # left open
                if noise.randrange(3):
                    producer.commit_transaction(20)
                else:
                    producer.abort_transaction(20)


def _interleaved(settings: Mapping[str, str | int | bool], number: int) -> None:
    """Two producers whose short transactions alternate in one partition: a follower appends several of them at once."""
    noise = random.Random(number)
    while True:
        with contextlib.suppress(KafkaException, BufferError):
            pair = [
                Producer({**settings, "linger.ms": 0, "transactional.id": f"interleaved-{number}-{side}"})
                for side in "ab"
            ]
            for producer in pair:
                producer.init_transactions(20)
            for _ in range(400):
                for producer in noise.choices(pair, k=3):
                    producer.begin_transaction()
                    producer.produce("transactions", b"value", partition=number)
                    producer.flush(10)
                    producer.abort_transaction(20) if noise.randrange(3) else producer.commit_transaction(20)


def _produce(producer: Producer, topic: str, noise: random.Random, count: int) -> None:
    for _ in range(count):
        key, value = b"key %d" % noise.randrange(40), noise.randbytes(noise.randrange(900))
        producer.produce(topic, value, key, partition=noise.randrange(PARTITIONS))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
