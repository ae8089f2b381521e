"""The commands of `kseg doctor`, carried out on a log directory of a real broker, which then serves what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import carry_out, kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.lab.kafka_requests import produce
from tools.lab.kraft import KraftBroker
from tools.lab.recovery_broker import consumer_of, watermarks

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"
TOPIC, BATCHES, RECORDS = "orders", 12, 10
#: Partition -> the offsets that its damage destroys.
LOST = {0: range(0), 1: range(40, 50), 2: range(110, 120), 3: range(0), 4: range(0), 5: range(0)}


def test_the_broker_serves_what_the_commands_leave(tmp_path: Path) -> None:
    """A zeroed checkpoint, a flipped byte, a torn tail, no partition.metadata, a wrong index: nothing else is lost."""
    broker = KraftBroker(VERSION, tmp_path / "broker")
    with broker:
        admin = broker.admin()
        admin.create_topics([NewTopic(TOPIC, len(LOST), 1)])[TOPIC].result(30)
        waiting = consumer_of(broker)
        for number in LOST:
            watermarks(waiting, TOPIC, number)  # once it has a leader
        waiting.close()
        port = int(broker.bootstrap.rpartition(":")[2])
        for first in range(0, BATCHES * RECORDS, RECORDS):
            batch = build_batch([PlainRecord(n, b"k%d" % n, b"v%d" % n, 1_700_000_000_000 + n) for n in range(RECORDS)])
            answers = produce(port, TOPIC, dict.fromkeys(LOST, batch))
            assert not any(answers.values()), (first, answers)
        broker.kill()
    for number, change in enumerate((_zero_checkpoint, _flip, _tear, _remove_id, _wrong_index)):
        change(broker.partition(TOPIC, number))
    found = kseg("doctor", "--format", "jsonl", broker.log_dir)
    assert found.returncode == 1, found.stderr
    *rows, summary = map(json.loads, found.stdout.splitlines())
    assert rows[0]["text"].startswith("no: "), rows[0]
    carry_out(summary["commands"], tmp_path)
    with broker:
        consumer = consumer_of(broker)
        for number, lost in LOST.items():
            assert _served(consumer, number) == set(range(BATCHES * RECORDS)) - set(lost), number
        consumer.close()


def _log(folder: Path) -> Path:
    return folder / f"{0:020}.log"


def _zero_checkpoint(folder: Path) -> None:
    path = folder / "leader-epoch-checkpoint"
    path.write_bytes(bytes(path.stat().st_size))


def _flip(folder: Path) -> None:
    """Flip a byte of the records of the fifth of equal batches."""
    data = _log(folder).read_bytes()
    _log(folder).write_bytes(damage.flip(data, 4 * len(data) // BATCHES + 80))


def _tear(folder: Path) -> None:
    data = _log(folder).read_bytes()
    _log(folder).write_bytes(data[:-20])


def _remove_id(folder: Path) -> None:
    (folder / "partition.metadata").unlink()


def _wrong_index(folder: Path) -> None:
    _log(folder).with_suffix(".index").write_bytes(b"\xff" * 16)


def _served(consumer: Consumer, number: int) -> set[int]:
    """Return the offsets that a consumer reads of a partition."""
    first, end = watermarks(consumer, TOPIC, number)
    consumer.assign([TopicPartition(TOPIC, number, first)])
    offsets: set[int] = set()
    while not offsets or max(offsets) < end - 1:
        message = consumer.poll(30)
        assert message is not None, (number, sorted(offsets))
        assert message.error() is None, (number, message.error())
        offsets.add(message.offset() or 0)
    return offsets
