"""The partition on which remedies are tried: producers, transactions, leader epochs and deleted records.

``make`` lets a broker write it and copies it into a log dir per case. All that a broker serves of it is compared with
``Oracle``, which was read before any damage.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.lab.cluster import freeze, thaw
from tools.lab.kafka_requests import active_producers, leaders_of
from tools.lab.kraft import KraftBroker
from tools.lab.oracle import VERSION
from tools.lab.scenes import wait_for

#: Segments of a few batches, and an index entry for nearly every batch.
TOPIC_CONFIG = {"internal.segment.bytes": "3400", "index.interval.bytes": "200"}
BROKER = {
    "transaction.max.timeout.ms": "3600000",
    # Deleted files keep their suffix as long as anyone looks.
    "log.segment.delete.delay.ms": "600000",
    # A kill is over sooner.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
MODEL, CASES = "model", "cases"
#: The segment that is damaged: the first one, with batches of the idempotent producer only. No snapshot is before it.
DAMAGED = 0
RECORDS_PER_BATCH = 6
#: The log starts inside the second batch of the first segment.
LOG_START = 9
READ_SECONDS = 30.0
#: The checkpoints of a log dir whose lines of the model are copied, too.
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")

#: Offset, timestamp, key and value.
Record = tuple[int, int, bytes | None, bytes | None]
Producers = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What consumers and tools see of the model: records, offsets, producers by id, and leader epochs."""

    log_start: int
    log_end: int
    records: Sequence[Record]
    committed: Sequence[Record]
    producers: Producers
    epochs: Sequence[tuple[int, int]]
    times: Sequence[tuple[int, int]]
    idempotent_id: int
    open_id: int
    aborted: frozenset[int]

    def without(self, lost: Collection[int]) -> Oracle:
        """Return the oracle without lost offsets."""
        records, committed = (
            [record for record in each if record[0] not in lost] for each in (self.records, self.committed)
        )
        times = [(timestamp, offset) for timestamp, offset in self.times if offset not in lost]
        return replace(self, records=records, committed=committed, times=times)


@dataclass(frozen=True, slots=True)
class Place:
    """The log dir of a case, its partition that is damaged, and one that is not."""

    log_dir: str
    number: int
    neighbour: int


@dataclass(frozen=True, slots=True)
class Base:
    """Copies of a broker's folder after a clean stop and after a kill, with a place per case."""

    stopped: Mapping[str, Path]
    places: Sequence[Place]
    oracle: Oracle


def properties(folder: Path, log_dirs: Sequence[str]) -> dict[str, str]:
    """Return the broker's settings for a copy of its folder."""
    return {**BROKER, "log.dirs": ",".join(str(folder / name) for name in ("logs", *log_dirs))}


def make(work: Path, cases: int) -> Base:
    """Let a broker write the model, and return its copies with ``cases`` places. Raises RuntimeError."""
    # Three log dirs have other partitions than those of cases.
    dirs = [f"d{number:02}" for number in range(cases + 2)]
    broker = KraftBroker(VERSION, work / "made", properties(work / "made", dirs))
    with broker:
        writer = _write_first_epoch(broker, 2 * (cases + 2))
        broker.stop()
        broker.start()
        wait_for(lambda: leaders_of(broker.port, MODEL).get(0, (-1, set()))[0] > 0, "a leader")
        writer.second_epoch()
        oracle = _oracle(broker, writer.hidden)
        # The files of a frozen process are those that a kill leaves.
        freeze(broker)
        shutil.copytree(broker.folder, work / "kill", copy_function=shutil.copyfile)
        thaw(broker)
        broker.stop()
    shutil.copytree(broker.folder, work / "clean", copy_function=shutil.copyfile)
    stopped = {"clean": work / "clean", "kill": work / "kill"}
    places: list[Place] = []
    for folder in stopped.values():
        places = list(_places(folder, dirs))[:cases]
        for place in places:
            fill(folder, place)
    if len(places) < cases:
        raise RuntimeError(f"{len(places)} log dirs have two partitions, expected {cases}")
    return Base(stopped, places, oracle)


def _places(folder: Path, dirs: Sequence[str]) -> Iterator[Place]:
    for name in dirs:
        numbers = sorted(int(each.name.rpartition("-")[2]) for each in (folder / name).glob(f"{CASES}-*"))
        if len(numbers) >= 2:
            yield Place(name, numbers[0], numbers[1])


def fill(folder: Path, place: Place) -> None:
    """Copy the model's files and checkpoint lines into both partitions of a place."""
    (model,) = folder.glob(f"*/{MODEL}-0")
    lines = {name: _line(model.parent / name) for name in CHECKPOINTS}
    for number in (place.number, place.neighbour):
        target = folder / place.log_dir / f"{CASES}-{number}"
        for file in target.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in model.iterdir():
            if file.name != "partition.metadata":
                shutil.copyfile(file, target / file.name)
    for name, offset in lines.items():
        path = folder / place.log_dir / name
        others = [line for line in _checkpoint(path) if not line.startswith(f"{CASES} ")]
        own = [] if offset is None else [f"{CASES} {each} {offset}" for each in (place.number, place.neighbour)]
        path.write_text("\n".join(["0", str(len(others) + len(own)), *others, *own]) + "\n")


def _line(path: Path) -> str | None:
    return next((line.split()[2] for line in _checkpoint(path) if line.startswith(f"{MODEL} 0 ")), None)


def _checkpoint(path: Path) -> list[str]:
    return path.read_text().splitlines()[2:] if path.exists() else []


# Seconds that only a hang uses up: after a start of the broker, a busy machine needed more than 60.
_PATIENCE = 300


class ModelWriter:
    """The producers of the model, which live as long as it is written: to each of some partitions the same."""

    def __init__(self, bootstrap: str, topic: str = MODEL, partitions: Sequence[int] = (0,)) -> None:
        self._topic, self._partitions = topic, partitions
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap, "linger.ms": 10_000, "log_level": 0,
        }  # fmt: skip
        self._idempotent = Producer({**settings, "enable.idempotence": True})
        self._transactional = [
            Producer({**settings, "transactional.id": name, "transaction.timeout.ms": 3_600_000})
            for name in ("finished", "open")
        ]
        self._number = 0
        #: The keys of records that are aborted, or in the open transaction.
        self.hidden: set[bytes] = set()

    def first_epoch(self) -> None:
        finished, _ = self._transactional
        finished.init_transactions(_PATIENCE)
        self._batches(20)
        self._transaction(finished, commit=False)
        self._batches(2)
        self._transaction(finished, commit=True)
        self._batches(3)

    def second_epoch(self) -> None:
        finished, unfinished = self._transactional
        self._batches(4)
        self._transaction(finished, commit=False)
        self._batches(3)
        unfinished.init_transactions(_PATIENCE)
        unfinished.begin_transaction()
        self.hidden |= self._batch(unfinished)
        self._batches(5)
        self._transaction(finished, commit=False)
        self._batches(9)

    def one_more(self) -> None:
        """Write one more batch of the idempotent producer."""
        self._batches(1)

    def _transaction(self, producer: Producer, *, commit: bool) -> None:
        producer.begin_transaction()
        keys = self._batch(producer)
        if commit:
            producer.commit_transaction(_PATIENCE)
        else:
            producer.abort_transaction(_PATIENCE)
            self.hidden |= keys

    def _batches(self, count: int) -> None:
        for _ in range(count):
            self._batch(self._idempotent)

    def _batch(self, producer: Producer) -> set[bytes]:
        """Write one batch; return its keys."""
        keys = {b"key %d" % (self._number + number) for number in range(RECORDS_PER_BATCH)}
        for key in sorted(keys, key=lambda key: int(key.split()[1])):
            for number in self._partitions:
                producer.produce(self._topic, b"value of " + key + b" " * 12, key, partition=number)
        self._number += RECORDS_PER_BATCH
        if producer.flush(_PATIENCE):
            raise RuntimeError("not delivered")
        # Each batch has another timestamp, which a look-up by time finds.
        time.sleep(0.003)
        return keys


def _write_first_epoch(broker: KraftBroker, partitions: int) -> ModelWriter:
    admin = broker.admin()
    admin.create_topics([NewTopic(MODEL, 1, 1, config=TOPIC_CONFIG)])[MODEL].result(30)
    writer = ModelWriter(broker.bootstrap)
    writer.first_epoch()
    admin.delete_records([TopicPartition(MODEL, 0, LOG_START)])[TopicPartition(MODEL, 0, LOG_START)].result(30)
    admin.create_topics([NewTopic(CASES, partitions, 1, config=TOPIC_CONFIG)])[CASES].result(60)
    wait_for(lambda: len(list(broker.folder.glob(f"*/{CASES}-*/partition.metadata"))) == partitions, CASES)
    return writer


def _oracle(broker: KraftBroker, hidden: Collection[bytes]) -> Oracle:
    records, committed = (read(broker, MODEL, [0], each)[0] for each in ("read_uncommitted", "read_committed"))
    if isinstance(records, str) or isinstance(committed, str):
        raise RuntimeError(f"{MODEL}: {records}, {committed}")
    (folder,) = broker.folder.glob(f"*/{MODEL}-0")
    producers = active_producers(broker.port, MODEL, [0])[0]
    (open_id,) = [number for number, row in producers.items() if row["currentTxnStartOffset"] >= 0]
    idempotent_id = max(producers, key=lambda number: producers[number]["lastSequence"])
    timestamps = [record[1] for record in records[:: 2 * RECORDS_PER_BATCH]]
    times = zip(timestamps, look_up_times(broker, MODEL, [0], timestamps)[0], strict=True)
    low, high = watermarks(broker, MODEL, [0])[0]
    return Oracle(
        low,
        high,
        records,
        committed,
        producers,
        epochs_of(folder),
        list(times),
        idempotent_id,
        open_id,
        frozenset(record[0] for record in records if record[2] in hidden),
    )


def watermarks(broker: KraftBroker, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the log start and the high watermark of partitions."""
    consumer = consumer_of(broker, "read_uncommitted")
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_SECONDS)
            for number in partitions
        }
    finally:
        consumer.close()


def epochs_of(partition: Path) -> list[tuple[int, int]]:
    """Return the lines of a partition's leader-epoch-checkpoint."""
    lines = (partition / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]


def consumer_of(broker: KraftBroker, isolation: str) -> Consumer:
    """Return a consumer that reports the end of each partition and is in no group."""
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


def read(broker: KraftBroker, topic: str, partitions: Sequence[int], isolation: str) -> dict[int, list[Record] | str]:
    """Return the records of partitions from their beginning, or why one could not be read to its end."""
    consumer = consumer_of(broker, isolation)
    rows: dict[int, list[Record]] = {number: [] for number in partitions}
    failed: dict[int, str] = {}
    waiting = set(partitions)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + READ_SECONDS
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(2000, timeout=0.5):
                number, error = message.partition(), message.error()
                if number not in waiting:
                    continue
                if error is None:
                    rows[number].append((message.offset() or 0, message.timestamp()[1], message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(number)
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    failed[number] = f"error at {message.offset()}: {error.str()}"
                    waiting.discard(number)
    finally:
        consumer.close()
    failed.update({number: f"no end after {len(rows[number])} records" for number in waiting})
    return {**rows, **failed}


def look_up_times(
    broker: KraftBroker, topic: str, partitions: Sequence[int], timestamps: Sequence[int]
) -> dict[int, list[int]]:
    """Return for each partition the offsets that look-ups by these timestamps find."""
    consumer = consumer_of(broker, "read_uncommitted")
    found: dict[int, list[int]] = {number: [] for number in partitions}
    try:
        for timestamp in timestamps:
            asked = [TopicPartition(topic, number, timestamp) for number in partitions]
            for answer in consumer.offsets_for_times(asked, timeout=READ_SECONDS):
                found[answer.partition].append(answer.offset)
    finally:
        consumer.close()
    return found
