"""Corpora like production's: the log directory of a Kafka 4.3 broker that real clients filled, made once.

Each topic is a corpus: the folder of its only partition, with indexes and snapshots. The broker writes the transaction
markers, the append times, and the segments with holes and delete horizons; librdkafka writes the batches.
"""

from __future__ import annotations

import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.programs.own_corpora import event
from tools.lab import scenes
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

KAFKA = "4.3.0"
TIME = 1_700_000_000_000
PRODUCERS = 5_000
#: Values are drawn from this many: a new one for each record would take minutes.
POOL = 20_000
PER_BATCH = 25

BROKER = {
    "log.index.size.max.bytes": str(10 << 20),
    "log.index.interval.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": str(64 << 20),
    # Cleaned segments are deleted before the broker stops.
    "log.segment.delete.delay.ms": "100",
    "message.max.bytes": str(8 << 20),
    "log.message.timestamp.before.max.ms": str((1 << 63) - 1),
}

Headers = list[tuple[str, bytes | str | None]]
#: One record: key, value and headers.
Row = tuple[bytes | None, bytes | None, Headers]
Write = Callable[[KraftBroker, str, int], None]


@dataclass(frozen=True, slots=True)
class Topic:
    """One corpus. ``write`` fills the topic with ``records`` records; ``config`` has the topic's settings."""

    write: Write
    records: int
    config: dict[str, str] = field(default_factory=dict)
    finish: Callable[[KraftBroker, str], None] = lambda broker, topic: None


def _events(chance: random.Random) -> list[bytes]:
    return [event(TIME + number, chance).encode() for number in range(POOL)]


def _plain(chance: random.Random) -> Iterator[Row]:
    values = _events(chance)
    while True:
        yield b"user-%d" % chance.randrange(50_000), chance.choice(values), []


def _with_headers(chance: random.Random) -> Iterator[Row]:
    """Yield records with 1 to 8 headers: tracing ids as text and as bytes, a null value, keys that are not ASCII."""
    values = _events(chance)

    def headers() -> Headers:
        some: Headers = [
            ("traceparent", f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01"),
            ("correlation-id", chance.randbytes(16)),
            ("content-type", "application/json"),
            ("größe", str(chance.randrange(10_000))),
            ("retries", struct.pack(">i", chance.randrange(5))),
            ("追跡", chance.randbytes(8)),
            ("tenant", f"tenant-{chance.randrange(500)}"),
            ("schema", None),
        ]
        return some[: chance.randint(1, 8)]

    pool = [headers() for _ in range(POOL)]
    while True:
        yield b"user-%d" % chance.randrange(50_000), chance.choice(values), chance.choice(pool)


def _tombstones(chance: random.Random) -> Iterator[Row]:
    values = _events(chance)
    while True:
        key = b"user-%d" % chance.randrange(50_000)
        kind = chance.randrange(10)
        yield (None if kind < 2 else key), (None if kind > 6 else chance.choice(values)), []


def _avro(chance: random.Random) -> Iterator[Row]:
    """Yield values as a serializer with a schema registry writes them: a zero byte, the id of the schema, Avro."""

    def number(value: int) -> bytes:
        raw, out = value << 1 ^ value >> 63, bytearray()
        while raw > 127:
            out.append(raw & 127 | 128)
            raw >>= 7
        return bytes([*out, raw])

    def text(of: bytes) -> bytes:
        return number(len(of)) + of

    def order() -> bytes:
        fields = (
            number(chance.getrandbits(40)), text(b"customer-%d" % chance.randrange(50_000)), number(chance.randrange(9)),
            struct.pack("<d", chance.random() * 1000), number(TIME + chance.randrange(1 << 30)), chance.randbytes(16),
            text(chance.choice((b"EUR", b"USD", b"BRL"))), number(chance.randrange(2)),
        )  # fmt: skip
        return b"\0\0\0\0\7" + b"".join(fields)

    values = [order() for _ in range(5 * POOL)]
    while True:
        yield b"%d" % chance.getrandbits(32), chance.choice(values), []


def _sized(size: int) -> Callable[[random.Random], Iterator[Row]]:
    def rows(chance: random.Random) -> Iterator[Row]:
        """Yield JSON of about ``size`` bytes."""
        long = b",".join(_events(chance))
        while True:
            at = chance.randrange(len(long) - size)
            yield b"%d" % chance.getrandbits(32), long[at : at + size], []

    return rows


def _updates(chance: random.Random) -> Iterator[Row]:
    """Yield updates of 400,000 keys; one in ten deletes its key."""
    values = _events(chance)
    while True:
        value = None if chance.randrange(10) == 0 else chance.choice(values)
        yield b"account-%d" % chance.randrange(400_000), value, []


def _produce(rows: Callable[[random.Random], Iterator[Row]], per_batch: int = PER_BATCH, **settings: Any) -> Write:
    """Return a function that writes rows in batches of ``per_batch`` records; of 1 to 10,000 if it is 0."""

    def write(broker: KraftBroker, topic: str, records: int) -> None:
        chance = random.Random(topic)
        most = per_batch or 10_000
        limits = {"batch_num_messages": most, "batch_size": 8_000_000, "message_max_bytes": 8_000_000}
        queue = {"queue_buffering_max_messages": 500_000, "queue_buffering_max_kbytes": 1 << 20}
        linger = 20 if per_batch else 10_000
        writer = scenes.Writer(broker, topic, **{"linger_ms": linger, **limits, **queue, **settings})
        left = 0
        for number, (key, value, headers) in zip(range(records), rows(chance), strict=False):
            left -= 1
            if left < 0:
                # Sizes of all magnitudes are as frequent as each other.
                left = int(10 ** (chance.random() * 4)) if not per_batch else 1_000
                writer.flush() if not per_batch else writer.producer.poll(0)
            while True:
                try:
                    writer.produce(key, value, TIME + number, headers)
                    break
                except BufferError:
                    writer.producer.poll(0.1)
        writer.flush()

    return write


def _transactions(broker: KraftBroker, topic: str, records: int) -> None:
    """Write one transaction for each of PRODUCERS producers, eight at a time; one in ten is aborted."""
    failed: list[BaseException] = []

    def some(first: int) -> None:
        chance = random.Random(first)
        rows = _plain(chance)
        try:
            for number in range(first, PRODUCERS, 8):
                settings: dict[str, Any] = {
                    "batch_num_messages": PER_BATCH,
                    "linger_ms": 5,
                }
                writer = scenes.Writer(broker, topic, transactional_id=f"app-{number}", **settings)
                writer.producer.init_transactions(30)
                writer.producer.begin_transaction()
                for i in range(records // PRODUCERS):
                    key, value, _ = next(rows)
                    writer.produce(key, value, TIME + i)
                end = writer.producer.commit_transaction if number % 10 else writer.producer.abort_transaction
                writer.flush()
                end(30)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=some, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _cleaned(broker: KraftBroker, topic: str) -> None:
    """Wait until the cleaner is done and the segments that it has replaced are deleted."""
    scenes.wait_for_cleaner(broker, topic)
    folder = broker.partition(topic)
    scenes.wait_for(lambda: not list(folder.glob("*.deleted")), f"the deletion of segments of {topic}")


COMPACT = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(16 << 20),
    "delete.retention.ms": "86400000",
}  # fmt: skip
TOPICS = {
    "headers-none": Topic(_produce(_with_headers), 190_000),
    "headers-gzip": Topic(_produce(_with_headers, compression_type="gzip"), 510_000),
    "headers-lz4": Topic(_produce(_with_headers, compression_type="lz4"), 370_000),
    "headers-zstd": Topic(_produce(_with_headers, compression_type="zstd"), 540_000),
    "idempotent": Topic(_produce(_plain, enable_idempotence=True), 280_000),
    "transactions": Topic(_transactions, 280_000),
    "tombstones": Topic(_produce(_tombstones), 400_000),
    "avro": Topic(_produce(_avro, compression_type="lz4"), 1_050_000),
    "records-100b": Topic(_produce(_sized(100), 1_000), 600_000),
    "records-100kb": Topic(_produce(_sized(100_000), 10, compression_type="lz4"), 2_500),
    "batches-1-to-10000": Topic(_produce(_sized(100), 0, compression_type="zstd"), 2_100_000),
    "log-append-time": Topic(
        _produce(_plain, compression_type="lz4"), 700_000, {"message.timestamp.type": "LogAppendTime"}
    ),
    "compacted": Topic(_produce(_updates, 100), 1_600_000, COMPACT, _cleaned),
}


def make(folder: Path) -> None:
    """Run a broker, fill its topics, and leave its log directory in ``folder``; complete, or not there.

    Raises RuntimeError if the broker fails.
    """
    work = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    with KraftBroker(KAFKA, work, BROKER, heap="1g") as broker:
        for name, topic in TOPICS.items():
            create_topic(broker, name, topic.config)
            topic.write(broker, name, topic.records)
        for name, topic in TOPICS.items():
            topic.finish(broker, name)
    broker.log_dir.rename(folder)
    shutil.rmtree(work)


def counts(folder: Path) -> tuple[int, int, int]:
    """Return the batches, records and bytes of a partition's log, by the headers of its v2 batches."""
    batches = records = size = 0
    for path in folder.glob("*.log"):
        size += path.stat().st_size
        with path.open("rb") as log:
            while header := log.read(61):
                batches += 1
                records += int.from_bytes(header[57:], "big")
                log.seek(int.from_bytes(header[8:12], "big") - 49, 1)
    return batches, records, size
