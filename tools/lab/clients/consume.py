"""Print what a client library reads of partition 0 of topics: ``consume.py CLIENT HOST:PORT TOPIC...``.

Each topic is a line of JSON: the number of records, the SHA-256 of their rows, and ``error``, the class of the error that
ended the reading. A row is ``offset``, ``timestamp`` (-1 for none), ``key``, ``value`` and ``headers``, separated by tabs;
bytes are hexadecimal, null is ``-``, and headers are ``key=value`` with commas between. Clients have their own defaults.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, cast

PATIENCE = 3.0  # seconds without progress
CHECKS = 15  # and as many waits for records, as a pause of the machine is none of them
Add = Callable[[int, int | None, bytes | None, bytes | None, Iterable[tuple[str, bytes | None]]], None]


class NoProgressError(Exception):
    """The client has no more records, and its position is not at the end."""


def row(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> bytes:
    """Return the row of a record."""
    pairs = ",".join(f"{name.encode().hex()}={_hex(data)}" for name, data in headers)
    when = -1 if timestamp is None else timestamp
    return f"{offset}\t{when}\t{_hex(key)}\t{_hex(value)}\t{pairs}\n".encode("ascii")


def _hex(data: bytes | None) -> str:
    return "-" if data is None else bytes(data).hex()


class Patience:
    """Raise NoProgressError if a position does not grow for some seconds and checks."""

    def __init__(self) -> None:
        self._position, self._since, self._checks = -1, time.monotonic(), 0

    def check(self, position: int | None) -> None:
        """Note the position of a consumer."""
        if position is not None and position > self._position:
            self._position, self._since, self._checks = position, time.monotonic(), 0
        self._checks += 1
        if self._checks > CHECKS and time.monotonic() - self._since > PATIENCE:
            raise NoProgressError


def confluent(bootstrap: str, topic: str, add: Add, **settings: bool) -> None:
    """librdkafka, by confluent-kafka."""
    from confluent_kafka import (
        OFFSET_BEGINNING,
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

    fixed = {"group.id": "corpus", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    # The broker must not hide open and aborted transactions: the default is read_committed.
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_uncommitted", **fixed, **settings})
    patience = Patience()
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        position = 0
        while True:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    kind, timestamp = message.timestamp()
                    when = None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
                    # The stubs allow more shapes than the library gives.
                    offset = cast("int", message.offset())
                    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                    add(offset, when, message.key(), message.value(), headers)
                    position = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise KafkaException(error)
            patience.check(position)
    finally:
        consumer.close()


def kafka_python(bootstrap: str, topic: str, add: Add) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    patience, partition = Patience(), TopicPartition(topic, 0)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for record in consumer.poll(200).get(partition, []):
                add(record.offset, record.timestamp, record.key, record.value, record.headers)
            patience.check(consumer.position(partition))
    finally:
        consumer.close()


def aiokafka(bootstrap: str, topic: str, add: Add) -> None:
    """aiokafka."""
    asyncio.run(_aiokafka(bootstrap, topic, add))


async def _aiokafka(bootstrap: str, topic: str, add: Add) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    patience, partition = Patience(), TopicPartition(topic, 0)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found = await consumer.getmany(partition, timeout_ms=200)
            for record in found.get(partition, []):
                add(record.offset, record.timestamp, record.key, record.value, record.headers)
            patience.check(await consumer.position(partition))
    finally:
        await consumer.stop()


def confluent_with_crcs(bootstrap: str, topic: str, add: Add) -> None:
    """librdkafka with ``check.crcs=true``, which is not its default."""
    confluent(bootstrap, topic, add, **{"check.crcs": True})


CLIENTS: dict[str, Callable[[str, str, Add], None]] = {
    "librdkafka": confluent,
    "librdkafka check.crcs": confluent_with_crcs,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def read(client: str, bootstrap: str, topic: str) -> dict[str, Any]:
    """Return the result of one topic."""
    rows, records = sha256(), 0

    def add(*fields: Any) -> None:
        nonlocal records
        rows.update(row(*fields))
        records += 1

    found: dict[str, Any] = {}
    try:
        CLIENTS[client](bootstrap, topic, add)
    except Exception as error:
        found["error"] = type(error).__name__
        if client.startswith("librdkafka") and error.args and hasattr(error.args[0], "name"):
            found["error"] += f": {error.args[0].name()}"
    return {"topic": topic, "records": records, "sha256": rows.hexdigest(), **found}


if __name__ == "__main__":
    for one in sys.argv[3:]:
        print(json.dumps(read(sys.argv[1], sys.argv[2], one)), flush=True)
