"""Fixture folders that real brokers of the ZooKeeper era write: magic 0, magic 1, and the first years of magic 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab import old_scenes
from tools.lab.modern_fixtures import write_origin
from tools.lab.old_brokers import OldBroker, ZooKeeper, copy_partition, scratch
from tools.lab.old_scenes import COMPACTED, COMPACTED_V0, Scene, opened, sends

FORMAT_0_9 = {"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.9.0"}
FORMAT_0_10 = {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": "0.10.0"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the folder made of it. Its name begins with the codec; `live` adds a copy from before the stop."""

    name: str
    what: str
    write: Callable[[Scene], None] = old_scenes.assorted
    config: Mapping[str, str] = field(default_factory=dict)
    live: bool = False

    @property
    def codec(self) -> str:
        return self.name.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Generation:
    """One broker version writing one magic, and the topics it fills."""

    version: str
    magic: int
    topics: list[Topic]
    properties: Mapping[str, str] = field(default_factory=dict)


ASSORTED = "null, empty and binary keys and values, batches of 1 to 12"
PLAIN = [Topic(codec, ASSORTED) for codec in ("none", "gzip", "snappy", "lz4")]
GZIP = Topic("gzip", f"{ASSORTED}; the live copy has its index preallocated", live=True)
APPEND_TIME = "message.timestamp.type=LogAppendTime: the wrapper's timestamp holds, not those inside"
CLEANED = "after the cleaner: holes within and between the wrappers, tombstones"
MANY_HOLES = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "2000"}
CLEANED_PLAIN = "after the cleaner: holes, tombstones"

GENERATIONS = (
    Generation(
        "2.8.2",
        0,
        [
            *PLAIN,
            Topic("none-compacted", CLEANED_PLAIN, old_scenes.compacted, COMPACTED_V0),
            Topic("snappy-compacted", CLEANED, old_scenes.compacted, COMPACTED_V0),
        ],
        FORMAT_0_9,
    ),
    Generation(
        "2.8.2",
        1,
        [
            *PLAIN,
            Topic("gzip-log-append-time", APPEND_TIME, config=LOG_APPEND_TIME),
            Topic("none-compacted", CLEANED_PLAIN, old_scenes.compacted, COMPACTED),
            Topic("lz4-compacted", CLEANED, old_scenes.compacted, COMPACTED),
        ],
        FORMAT_0_10,
    ),
    Generation(
        "0.8.2.2",
        0,
        [
            *(GZIP if topic.name == GZIP.name else topic for topic in PLAIN),
            Topic("gzip-compacted", "after the cleaner: many small holes", old_scenes.many_holes, MANY_HOLES),
        ],
    ),
    Generation(
        "0.10.2.2",
        1,
        [
            *PLAIN,
            Topic("none-log-append-time", "message.timestamp.type=LogAppendTime", config=LOG_APPEND_TIME),
            Topic("gzip-log-append-time", APPEND_TIME, config=LOG_APPEND_TIME),
            Topic("lz4-log-append-time", APPEND_TIME, config=LOG_APPEND_TIME),
            Topic("none-segments", "several segments", config={"segment.bytes": "3200"}, live=True),
            Topic("gzip-segments", "several segments of wrappers", config={"segment.bytes": "700"}),
            Topic(
                "none-preallocated",
                "preallocate=true: zeros behind the last message while the broker runs",
                config={"preallocate": "true", "segment.bytes": "12000"},
                live=True,
            ),
            Topic("snappy-from-v0-producer", "sent by a 0.9.0.1 producer: no timestamps", old_scenes.by_0_9_producer),
            Topic("snappy-librdkafka", "sent by librdkafka: raw snappy blocks", old_scenes.by_librdkafka),
            Topic("lz4-librdkafka", "sent by librdkafka", old_scenes.by_librdkafka),
            Topic("gzip-compacted", CLEANED, old_scenes.compacted, COMPACTED),
        ],
    ),
    Generation("0.9.0.1", 0, [*PLAIN, Topic("gzip-compacted", CLEANED, old_scenes.compacted, COMPACTED_V0)]),
    Generation("0.11.0.3", 2, [*PLAIN, Topic("lz4-idempotent", "an idempotent producer", old_scenes.idempotent)]),
    Generation(
        "1.1.1",
        2,
        [
            *PLAIN,
            Topic("none-transactions", "committed and aborted transactions, some gzip", old_scenes.transactional),
            Topic("snappy-compacted", CLEANED, old_scenes.compacted, COMPACTED),
        ],
    ),
    Generation("2.8.2", 2, [Topic("zstd", f"{ASSORTED}; the live copy has its indexes preallocated", live=True)]),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where fixtures go, where brokers may live, and the ZooKeeper they share."""

    out: Path
    temporary: Path
    zookeeper: ZooKeeper

    def broker(self, version: str, what: str, properties: Mapping[str, str]) -> OldBroker:
        return OldBroker(version, self.temporary / f"{version}-{what}", properties, self.zookeeper)

    def keep(self, broker: OldBroker, topic: str, name: str, what: str) -> None:
        """Copy the partition, as it is now, into the fixture folder, and say where it comes from."""
        target = self.out / f"{broker.version}-{name}"
        copy_partition(broker.partition(topic), target)
        settings = "".join(f", {key}={value}" for key, value in broker.properties.items())
        write_origin(target, [f"Kafka {broker.version} (ZooKeeper mode{settings}), {topic}-0", what])


def fill(bench: Bench, generation: Generation) -> None:
    """Run one generation's broker over its topics."""
    magic = f"v{generation.magic}"
    with bench.broker(generation.version, magic, generation.properties) as broker:
        for topic in generation.topics:
            # Created also without own settings: librdkafka doesn't wait for a topic that is just being created.
            broker.create_topic(topic.name, topic.config)
            topic.write(Scene(broker, topic.name, topic.codec, generation.magic))
        for topic in generation.topics:
            if topic.live:
                what = f"{topic.what}; copied from under the running broker"
                bench.keep(broker, topic.name, f"{magic}-{topic.name}-live", what)
    for topic in generation.topics:
        bench.keep(broker, topic.name, f"{magic}-{topic.name}", topic.what)


def upgraded(bench: Bench) -> None:
    """Three magics in one segment: the same broker with format 0.9, then 0.10, then its own."""
    topic = "mixed"
    for number, properties in enumerate([FORMAT_0_9, FORMAT_0_10, {}]):
        with bench.broker("2.8.2", topic, properties) as broker:
            _, plain, _, *rest = Scene(broker, topic, "none", 1).batches()
            script = [opened("none"), *sends(topic, [plain[number * 4 : number * 4 + 3]])]
            for codec, batch in zip(("gzip", "snappy", "lz4"), rest[:3], strict=True):
                script += [opened(codec), *sends(topic, [batch])]
            broker.produce([*script, opened("none"), *sends(topic, [plain[number * 4 + 3 : number * 4 + 4]])])
    bench.keep(broker, topic, "v0v1v2-mixed", "one segment, written with format 0.9.0, then 0.10.0, then 2.8")


def downgraded(bench: Bench) -> None:
    """Magic 2, 1, 0 and 2 again in one segment, by way of the topic's message.format.version."""
    topic = "downgraded"
    with bench.broker("2.8.2", topic, {}) as broker:
        broker.create_topic(topic)
        batches = Scene(broker, topic, "none", 1).batches()
        for wanted, codec in [("2.8", "gzip"), ("0.10.0", "lz4"), ("0.9.0", "snappy"), ("2.8", "zstd")]:
            broker.alter_topic(topic, {"message.format.version": wanted})
            # The broker learns of it through ZooKeeper, and doesn't report when it has.
            script = ["sleep\t1500", opened("none"), *sends(topic, batches[2:3])]
            broker.produce([*script, opened(codec), *sends(topic, batches[4:6])])
    bench.keep(broker, topic, "v2v1v0v2-downgraded", "message.format.version set to 2.8, 0.10.0, 0.9.0 and 2.8 again")


def make(out: Path) -> None:
    """Write every fixture folder of this module below `out`, replacing those of the same name; some three minutes."""
    out.mkdir(parents=True, exist_ok=True)
    with scratch() as temporary, ZooKeeper(Path(temporary) / "zookeeper") as zookeeper:
        bench = Bench(out, Path(temporary), zookeeper)
        for generation in GENERATIONS:
            fill(bench, generation)
        upgraded(bench)
        downgraded(bench)
