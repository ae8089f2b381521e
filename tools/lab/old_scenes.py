"""The scenes for brokers of the ZooKeeper era: each fills one topic."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from tools.lab.old_brokers import OldBroker

FIRST_TIMESTAMP = 1_600_000_000_000
STEP_MS = 250
# More than the segment.ms of COMPACTED: a record this much later begins a new segment.
HOUR_MS = 3_600_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}
# Without timestamps in the records it is the wall clock that rolls.
COMPACTED_V0 = COMPACTED | {"segment.ms": "2000"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A record to produce; the timestamp in epoch milliseconds, None to leave it to the client."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Batch = list[Sample]

HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", b"\x01\x02"), ("trace", b"again")),
    (("null", None), ("", b"an empty name"), ("empty", b"")),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A topic to fill: on which broker, with which codec, and the magic in which the broker will write it."""

    broker: OldBroker
    topic: str
    codec: str
    magic: int

    def batches(self) -> list[Batch]:
        """The assorted records, with what this magic can hold: timestamps from 1 on, headers from 2 on."""
        return [[_for_magic(sample, self.magic) for sample in batch] for batch in assorted_batches()]


def assorted_batches() -> list[Batch]:
    """38 records in batches of 1 to 12: JSON, text, bytes that are not UTF-8, null and empty keys and values."""
    odd: Batch = [
        Sample(None, b"a null key"),
        Sample(b"", b"an empty key"),
        Sample(b"a null value", None),
        Sample(b"an empty value", b""),
        Sample(None, None),
        Sample(b"", b""),
        Sample(b"\x00\xff\xfe key", bytes(range(256))),
        Sample("schlüssel".encode(), "zürich 東京 \u202e".encode()),
    ]
    events: Batch = [Sample(b"user-%d" % (i % 7), b'{"event":%d,"page":"/item/%d"}' % (i, i * i)) for i in range(26)]
    long = [Sample(b"long", b"0123456789abcdef" * 40), Sample(b"longer", b"the same again; " * 150)]
    single = [Sample(b"alone", b"in its batch")]
    return _dressed([single, events[:12], odd, long, events[12:20], events[20:], [Sample(None, b"the last")]])


def superseded_batches() -> list[Batch]:
    """48 records in batches of 8, most of them superseded by later ones; two tombstones are the last of their keys."""
    flat = [Sample(b"key-%d" % (i * i % 13), b"version %d" % i) for i in range(48)]
    # Keys of their own, in the middle and at the edges of early batches.
    for i in (0, 3, 12, 21, 31):
        flat[i] = Sample(b"only-%d" % i, b"kept " * 5)
    for i in (5, 16, 25, 44):
        flat[i] = Sample(flat[i].key, None)
    flat[38] = Sample(b"only-12", None)
    return _dressed([flat[i : i + 8] for i in range(0, 48, 8)])


def _dressed(batches: Iterable[Batch]) -> list[Batch]:
    number = 0
    dressed = []
    for batch in batches:
        dressed.append([_nth(sample, number + i) for i, sample in enumerate(batch)])
        number += len(batch)
    return dressed


def _nth(sample: Sample, number: int) -> Sample:
    # Every fourth is late, some of them last in their batch, whose largest timestamp is then an earlier record's.
    late = 2000 if number % 4 == 0 and number > 8 else 0
    return replace(sample, timestamp=FIRST_TIMESTAMP + number * STEP_MS - late, headers=HEADERS[number % len(HEADERS)])


def _for_magic(sample: Sample, magic: int) -> Sample:
    return replace(
        sample, timestamp=sample.timestamp if magic >= 1 else None, headers=sample.headers if magic >= 2 else ()
    )


# --- Scripts for OldProducer.java


def opened(codec: str, **config: str) -> str:
    """The script line that opens a producer; dots in names of ``config`` are written as underscores."""
    settings = {"compression.type": codec} | {name.replace("_", "."): value for name, value in config.items()}
    return "\t".join(["producer", *(f"{name}={value}" for name, value in settings.items())])


def sends(topic: str, batches: Iterable[Batch]) -> Iterator[str]:
    """Script lines that produce each batch as one batch."""
    for batch in batches:
        for sample in batch:
            stamp = "-" if sample.timestamp is None else str(sample.timestamp)
            headers = [f"{name}={_hex(value)}" for name, value in sample.headers]
            yield "\t".join(["send", topic, stamp, _hex(sample.key), _hex(sample.value), *headers])
        yield "flush"


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


# --- Scenes


def assorted(scene: Scene) -> None:
    """Every batch by the broker's own generation of producer."""
    scene.broker.produce([opened(scene.codec), *sends(scene.topic, scene.batches())])


def by_0_9_producer(scene: Scene) -> None:
    """By a producer that knows magic 0 only: the broker converts up, with timestamp -1."""
    bare = [[_for_magic(sample, 0) for sample in batch] for batch in scene.batches()]
    scene.broker.produce([opened(scene.codec), *sends(scene.topic, bare)], client="0.9.0.1")


def by_librdkafka(scene: Scene) -> None:
    """By librdkafka, which frames snappy as one raw block. Raises RuntimeError when a record isn't delivered."""
    producer = Producer(
        {"bootstrap.servers": scene.broker.bootstrap, "compression.type": scene.codec, "linger.ms": 500, "log_level": 2}
    )
    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for batch in scene.batches():
        for sample in batch:
            stamp = sample.timestamp or 0
            producer.produce(scene.topic, sample.value, sample.key, 0, on_delivery=delivered, timestamp=stamp)
        # Not flush(), which sends at once what linger.ms would gather.
        while len(producer):
            producer.poll(0.1)
    if failed:
        raise RuntimeError(f"librdkafka: {failed[0]}")


def idempotent(scene: Scene) -> None:
    """By an idempotent producer (KIP-98)."""
    scene.broker.produce([opened(scene.codec, enable_idempotence="true"), *sends(scene.topic, scene.batches())])


def transactional(scene: Scene) -> None:
    """Commit, abort, commit, a plain record, then another producer that aborts and commits."""
    plain, *batches = scene.batches()
    script = [opened(scene.codec, transactional_id="first"), "initTransactions"]
    for batch, end in zip(batches[:3], ["commitTransaction", "abortTransaction", "commitTransaction"], strict=True):
        script += ["beginTransaction", *sends(scene.topic, [batch]), end]
    script += [opened(scene.codec), *sends(scene.topic, [plain])]
    script += [opened("gzip", transactional_id="second"), "initTransactions"]
    script += ["beginTransaction", *sends(scene.topic, batches[3:5]), "abortTransaction"]
    script += ["beginTransaction", *sends(scene.topic, batches[5:]), "commitTransaction"]
    scene.broker.produce(script)


def compacted(scene: Scene) -> None:
    """Superseded records, one more that begins the segment the cleaner leaves alone, and a wait for the cleaner."""
    batches = [[_for_magic(sample, scene.magic) for sample in batch] for batch in superseded_batches()]
    active = Sample(b"active", b"segment", FIRST_TIMESTAMP + HOUR_MS if scene.magic >= 1 else None)
    pause = [] if scene.magic >= 1 else ["sleep\t2500"]
    scene.broker.produce([opened(scene.codec), *sends(scene.topic, batches), *pause, *sends(scene.topic, [[active]])])
    scene.broker.wait_cleaned(scene.topic, sum(map(len, batches)))


def many_holes(scene: Scene) -> None:
    """Some hundred records whose keys come back more or less often, and a wait until the cleaner has nothing to do."""
    rng = random.Random(7)
    numbers = iter(range(1000))
    batches: list[Batch] = [
        [_of_a_frequent_key(rng, next(numbers)) for _ in range(rng.randint(1, 8))] for _ in range(90)
    ]
    scene.broker.produce([opened(scene.codec), *sends(scene.topic, batches)])
    scene.broker.wait_unchanged(scene.topic)


def _of_a_frequent_key(rng: random.Random, number: int) -> Sample:
    key = min(int(rng.expovariate(0.02)), 399)
    return Sample(b"key-%03d" % key, b"value %d %d" % (number, rng.getrandbits(40)))
