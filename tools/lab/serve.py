"""Puts segments under a real broker and reads them back with a real consumer: the last proof of a converted partition."""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic
from tools.lab.oracle import VERSION, Row

TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
SIDE_FILES = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")
# Without these the broker takes its last stop for a crash, and recovers every partition from its first byte.
PROOFS_OF_A_CLEAN_STOP = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")
CONSUME_SECONDS = 60.0


def serve_and_consume(
    partition_files: Path, topic: str, *, trusted: bool = False, version: str = VERSION, keep: Path | None = None
) -> list[Row]:
    """Return the records that a consumer gets, by offset, of the `.log` files in `partition_files` under a broker's
    topic.

    The broker recovers the segments and builds their side files itself; with `trusted` the side files of
    `partition_files` are copied and the broker, after a clean shutdown, uses them unchanged. `keep` names a folder
    for the broker's files after its stop. The rows are the oracle's record rows as far as a consumer sees them:
    offset, timestamp, timestamp_type, key, value, headers; without control records, with aborted ones.

    Raises TimeoutError when the end of the partition isn't reached.
    """
    kept = None if keep is None else {topic: keep}
    return serve_several({topic: partition_files}, trusted=trusted, version=version, keep=kept)[topic]


def serve_several(
    partitions: Mapping[str, Path],
    *,
    trusted: bool = False,
    crashed: bool = False,
    version: str = VERSION,
    keep: Mapping[str, Path] | None = None,
) -> dict[str, list[Row]]:
    """As serve_and_consume, for the files of several topics under one broker; folders and rows by topic.

    With `crashed` the side files go along, too, but the broker takes its last stop for a crash.
    """
    limits = {"max.message.bytes": str(1 << 27)}
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        broker = KraftBroker(version, Path(work), limits)
        with broker:
            for topic in partitions:
                create_topic(broker, topic, limits)
            broker.stop()
            for topic, files in partitions.items():
                put(files, broker.partition(topic), side_files=trusted or crashed)
            if not trusted:
                forget_clean_stop(broker)
            broker.start()
            rows = {topic: consume(broker, topic) for topic in partitions}
        for topic, folder in (keep or {}).items():
            shutil.copytree(broker.partition(topic), folder, copy_function=shutil.copyfile)
        return rows


def forget_clean_stop(broker: KraftBroker) -> None:
    """Have the stopped broker recover every partition from its first byte."""
    for name in PROOFS_OF_A_CLEAN_STOP:
        (broker.log_dir / name).unlink(missing_ok=True)


def put(source: Path, target: Path, *, side_files: bool) -> None:
    """Have the segments of `source` in a stopped broker's partition folder, and nothing else."""
    for pattern in ("*.log", *SIDE_FILES):
        for file in target.glob(pattern):
            file.unlink()
    for pattern in ("*.log", *(SIDE_FILES if side_files else ())):
        for file in source.glob(pattern):
            shutil.copyfile(file, target / file.name)


def consume(broker: KraftBroker, topic: str, isolation: str = "read_uncommitted") -> list[Row]:
    """Every record of partition 0 that a consumer gets in this isolation. Raises TimeoutError, RuntimeError."""
    consumer = _consumer(broker, isolation)
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + CONSUME_SECONDS
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=1):
                error = message.error()
                if error is None:
                    rows.append(row_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return rows
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise RuntimeError(f"at offset {message.offset()}: {error}")
        raise TimeoutError(f"{topic}: no end after {len(rows)} records")
    finally:
        consumer.close()


def seek(broker: KraftBroker, topic: str, offsets: Sequence[int]) -> list[int | None]:
    """The offset of the first record that a consumer gets from each of `offsets` on; None at the end."""
    consumer = _consumer(broker)
    found: list[int | None] = []
    try:
        for offset in offsets:
            consumer.assign([TopicPartition(topic, 0, offset)])
            message = consumer.poll(CONSUME_SECONDS)
            if message is None:
                raise TimeoutError(f"{topic}: nothing came from offset {offset} on")
            found.append(None if message.error() else message.offset())
    finally:
        consumer.close()
    return found


def find(broker: KraftBroker, topic: str, timestamps: Sequence[int]) -> list[int | None]:
    """Return the results of a consumer's offsetsForTimes by timestamp; None without such a record."""
    consumer = _consumer(broker)
    try:
        answers = [
            consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=CONSUME_SECONDS)[0]
            for timestamp in timestamps
        ]
    finally:
        consumer.close()
    return [None if answer.offset < 0 else answer.offset for answer in answers]


def _consumer(broker: KraftBroker, isolation: str = "read_uncommitted") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "kseg-lab",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def row_of(message: Message) -> Row:
    """Return a consumed record as a row of the oracle."""
    kind, timestamp = message.timestamp()
    # The stubs allow more shapes than the library gives.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    # Without a timestamp the type is not set either, and the number then depends on the format's version.
    return {
        "offset": message.offset(),
        "timestamp": timestamp if kind in TIMESTAMP_TYPES and timestamp != -1 else None,
        "timestamp_type": TIMESTAMP_TYPES.get(kind),
        "key": _base64(message.key()),
        "value": _base64(message.value()),
        "headers": [{"key": key, "value": _base64(value)} for key, value in headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
