"""The contents of the modern fixtures: one function for each kind, with the same bytes in every run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tools.lab.kraft import KraftBroker
from tools.lab.oracle import run_java

# 2023-11-14T22:13:20Z: explicit, so that only the broker's own values differ between runs.
T0 = 1_700_000_000_000
MINUTE = 60_000

Pair = tuple[bytes | None, bytes | None]
Headers = Sequence[tuple[str, str | bytes | None]]


class Writer:
    """A producer that decides where a batch ends: each call of `batch` makes exactly one."""

    def __init__(self, broker: KraftBroker, topic: str, **settings: str | int | bool) -> None:
        self.topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "kseg-lab",
                "linger.ms": 10_000,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def batch(self, pairs: Iterable[Pair], start: int = T0, step: int = 10) -> None:
        """One batch of records, `step` milliseconds apart. Raises RuntimeError when the broker refuses it."""
        for number, (key, value) in enumerate(pairs):
            self.produce(key, value, start + number * step)
        self.flush()

    def produce(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
        """Adds one record to the batch."""
        self.producer.produce(
            self.topic, value, key, timestamp=timestamp, headers=list(headers), on_delivery=_delivered
        )

    def flush(self) -> None:
        """Ends the batch and waits until it is written."""
        if self.producer.flush(30):
            raise RuntimeError("not delivered")


def _delivered(error: KafkaError | None, _: object) -> None:
    if error is not None:
        raise RuntimeError(str(error))


def mixed(broker: KraftBroker, topic: str, **settings: str | int | bool) -> None:
    """Five batches, 44 records: every mix of null, empty, text and binary; timestamps out of order; one record alone."""
    writer = Writer(broker, topic, **settings)
    noise = random.Random(topic)
    writer.batch((_pair(number) for number in range(12)), T0)
    writer.batch(((b"alone", b"one record in its batch " * 8),), T0 + MINUTE)
    writer.batch((_pair(number) for number in range(12, 24)), T0 + 3 * MINUTE, step=-1000)
    writer.batch(((noise.randbytes(8), noise.randbytes(40) + bytes(80)) for _ in range(12)), T0 + 2 * MINUTE)
    writer.batch(((b"long", f"{number:05}".encode() * 300) for number in range(7)), T0 + 4 * MINUTE)


def _pair(number: int) -> Pair:
    keys = (None, b"", f"key-{number % 5}".encode(), "schlüssel-☃".encode())
    text = f'{{"id":{number},"event":"page_view","path":"/products/{number % 7}","user":"user-{number % 3}"}}'
    values = (text.encode(), b"", None)
    return keys[number % len(keys)], values[number % len(values)]


def large(broker: KraftBroker, topic: str) -> None:
    """One batch of 72 KB before compression: more than a block of snappy-java's framing (32 KiB) or LZ4's (64 KiB)."""
    noise = random.Random(topic)
    words = [noise.randbytes(6).hex() for _ in range(60)]
    values = (" ".join(noise.choices(words, k=690)).encode() for _ in range(8))
    Writer(broker, topic).batch((b"%d" % number, value) for number, value in enumerate(values))


def headers(broker: KraftBroker, topic: str) -> None:
    """Headers with null and empty values, an empty, a non-ASCII and a doubled key; and records without."""
    writer = Writer(broker, topic)
    shapes: list[Headers] = [
        [],
        [("trace", b"00-4bf92f3577b34da6-01")],
        [("null", None), ("empty", b"")],
        [("", b"an empty key")],
        [("größe-☃", b"\x00\xff\xfe"), ("日本", "語".encode())],
        [("twice", b"first"), ("twice", b"second"), ("twice", None)],
        [(f"h{number}", bytes([number])) for number in range(70)],
    ]
    for start in (0, 1):
        for number, shape in enumerate(shapes[start:] * 2):
            key = None if number % 3 == 0 else b"k%d" % number
            writer.produce(key, b"value %d" % number, T0 + start * MINUTE + number, shape)
        writer.flush()


def segments(broker: KraftBroker, topic: str) -> None:
    """Five segments: each step in time is more than the topic's segment.ms."""
    writer = Writer(broker, topic)
    for hour in range(5):
        for part in range(3):
            writer.batch((_pair(number) for number in range(8)), T0 + hour * 60 * MINUTE + part * 1000)


def idempotent(broker: KraftBroker, topic: str) -> None:
    """Two idempotent producers take turns, with a plain batch between them."""
    writers = [Writer(broker, topic, enable_idempotence=True) for _ in range(2)]
    for turn in range(6):
        writers[turn % 2].batch((_pair(number) for number in range(4 + turn)), T0 + turn * MINUTE)
    Writer(broker, topic).batch(((b"plain", b"no producer id"),), T0 + 6 * MINUTE)
    writers[0].batch((_pair(number) for number in range(3)), T0 + 7 * MINUTE)


def transactions(broker: KraftBroker, topic: str) -> list[Writer]:
    """Committed, aborted, overlapping and empty-handed transactions, and one left open. Returns who must stay alive."""
    one, two, three = (_transactional(broker, topic, name) for name in ("one", "two", "three"))
    plain = Writer(broker, topic)
    plain.batch((_pair(number) for number in range(5)), T0)
    one.producer.begin_transaction()
    one.batch(((b"committed", b"1-%d" % number) for number in range(6)), T0 + 1)
    one.producer.commit_transaction()
    two.producer.begin_transaction()
    two.batch(((b"aborted", b"2-%d" % number) for number in range(6)), T0 + 2)
    two.batch(((b"aborted", b"3-%d" % number) for number in range(4)), T0 + 3)
    two.producer.abort_transaction()
    # Overlap: at two's marker the last stable offset is held back by one's first record.
    one.producer.begin_transaction()
    one.batch(((b"committed", b"4-%d" % number) for number in range(3)), T0 + 4)
    two.producer.begin_transaction()
    two.batch(((b"aborted", b"5-%d" % number) for number in range(5)), T0 + 5)
    plain.batch((_pair(number) for number in range(12)), T0 + 6)
    two.producer.abort_transaction()
    one.batch(((b"committed", b"6-%d" % number) for number in range(3)), T0 + 7)
    one.producer.commit_transaction()
    for turn in range(6):
        one.producer.begin_transaction()
        one.batch(((b"turn %d" % turn, b"%d" % number * 30) for number in range(4)), T0 + 10 + turn)
        (one.producer.abort_transaction if turn % 3 == 1 else one.producer.commit_transaction)()
    three.producer.begin_transaction()
    three.batch(((b"open", b"7-%d" % number) for number in range(4)), T0 + 30)
    plain.batch((_pair(number) for number in range(6)), T0 + 31)
    return [three]


def transactions_v2(broker: KraftBroker, topic: str) -> None:
    """By Kafka's own client, since librdkafka knows no transactions of version 2 (KIP-890): each marker bumps the epoch."""
    run_java(broker.version, str(Path(__file__).with_name("TransactionsV2.java")), [broker.bootstrap, topic])


def _transactional(broker: KraftBroker, topic: str, name: str) -> Writer:
    # The longest timeout a broker allows: an open transaction must outlive a restart of the broker.
    writer = Writer(broker, topic, transactional_id=f"{topic}-{name}", transaction_timeout_ms=900_000)
    writer.producer.init_transactions(30)
    return writer


def superseded(broker: KraftBroker, topic: str) -> None:
    """For a compacted topic: keys written again and again, tombstones, a producer whose only batch is superseded whole."""
    once = Writer(broker, topic, enable_idempotence=True)
    again = Writer(broker, topic, enable_idempotence=True)
    once.batch(((b"k%d" % number, b"old " * 8) for number in range(5)), T0)
    again.batch(((b"k%d" % number, b"new " * 8) for number in range(8)), T0 + 1000)
    again.batch(((b"only-%d" % number, b"kept " * 8) for number in range(6)), T0 + 2000)
    again.batch(((b"only-%d" % number, None if number % 2 else b"newer") for number in range(4)), T0 + 3000)
    again.batch(((b"k%d" % number, b"newest " * 8) for number in range(0, 12, 2)), T0 + 4000)
    again.batch(((b"gone-%d" % number, b"") for number in range(3)), T0 + 5000)
    again.batch(((b"gone-%d" % number, None) for number in range(3)), T0 + 6000)
    # A cleaner never touches the active segment: the step in time rolls it.
    again.batch(((b"last", b"in the active segment"),), T0 + 120 * MINUTE)


def superseded_transactions(broker: KraftBroker, topic: str) -> None:
    """For a compacted topic: markers whose data is removed. The life of a marker takes three rounds of the cleaner.

    In the first its data is removed, in the second it gets a delete horizon, in the third it is removed, or emptied
    if it is the last batch of its producer.
    """
    one, two, three = (_transactional(broker, topic, name) for name in ("one", "two", "three"))
    plain = Writer(broker, topic)
    one.producer.begin_transaction()
    one.batch(((b"k%d" % number, b"one") for number in range(4)), T0)
    one.producer.commit_transaction()
    two.producer.begin_transaction()
    two.batch(((b"a%d" % number, b"aborted") for number in range(4)), T0)
    # A second client of the same id fences the first: its marker has a higher epoch than the data it aborts.
    fencing = _transactional(broker, topic, "two")
    for _ in range(2):
        one.producer.begin_transaction()
        one.batch(((b"k%d" % number, b"two") for number in range(4)), T0)
        one.producer.commit_transaction()
    plain.batch(((b"k%d" % number, b"three") for number in range(4)), T0)
    for turn in range(3):
        if turn == 1:
            three.producer.begin_transaction()
            three.batch(((b"k%d" % number, b"four") for number in range(2)), T0)
            three.producer.commit_transaction()
            three.producer.begin_transaction()
            three.batch(((b"k%d" % number, b"five") for number in range(3)), T0)
            three.producer.commit_transaction()
        # Markers are written after the commit has been answered.
        time.sleep(0.5)
        # As large as a segment, so it rolls the one before it: a cleaner never touches the active one.
        plain.batch(((b"filler", bytes(1400)),), T0)
        wait_for_cleaner(broker, topic)
        # Past delete.retention.ms of the topic.
        time.sleep(2)
    del fencing


def wait_for_cleaner(broker: KraftBroker, topic: str) -> None:
    """Waits until the cleaner has been through everything but the active segment. Raises TimeoutError."""
    active = max(int(file.stem) for file in broker.partition(topic).glob("*.log"))

    def cleaned() -> bool:
        lines = (broker.log_dir / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        entries = [line.split() for line in lines]
        return any(name == topic and int(offset) >= active for name, _, offset in entries)

    wait_for(cleaned, f"the cleaner to go through {topic}")


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Asks ten times a second. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def groups(broker: KraftBroker, topic: str) -> None:
    """Fills `__consumer_offsets`: both group protocols, plain and transactional commits, a deleted group."""
    for protocol in ("classic", "consumer"):
        consumer = _consumer(broker, f"kseg-{protocol}", protocol)
        consumer.subscribe([topic])
        for _ in range(3):
            consumer.consume(10, timeout=10)
            consumer.commit(asynchronous=False)
        consumer.close()
    positions = [TopicPartition(topic, 0, 7, metadata="set by hand"), TopicPartition(topic, 1, 8)]
    admin: AdminClient = broker.admin()
    for group in ("kseg-admin", "kseg-gone"):
        requested = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions[:1])])
        for answer in requested.values():
            answer.result(30)
    for answer in admin.delete_consumer_groups(["kseg-gone"]).values():
        answer.result(30)
    consumer = _consumer(broker, "kseg-transactional", "classic")
    consumer.subscribe([topic])
    consumer.consume(1, timeout=10)
    writer = _transactional(broker, topic, "groups")
    for finish in (writer.producer.commit_transaction, writer.producer.abort_transaction):
        writer.producer.begin_transaction()
        writer.producer.send_offsets_to_transaction(positions[:1], consumer.consumer_group_metadata())
        finish()
    consumer.close()


def open_commit(broker: KraftBroker, topic: str) -> object:
    """A group's offset in a transaction that is left open. Returns who must stay alive."""
    consumer = _consumer(broker, "kseg-open", "classic")
    consumer.subscribe([topic])
    consumer.consume(1, timeout=10)
    writer = _transactional(broker, topic, "open")
    writer.producer.begin_transaction()
    writer.producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], consumer.consumer_group_metadata())
    return consumer, writer


def committed_offsets(broker: KraftBroker) -> list[dict[str, object]]:
    """Return the broker's committed offsets of all groups: one row for each group, topic and partition."""
    admin: AdminClient = broker.admin()
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    found = []
    for group in sorted(groups):
        requested = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        for place in requested[group].result(30).topic_partitions:
            found.append({"group": group, "topic": place.topic, "partition": place.partition, "offset": place.offset})
    return found


def _consumer(broker: KraftBroker, group: str, protocol: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "kseg-lab",
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
