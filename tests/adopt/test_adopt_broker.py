"""A cluster that ``kseg adopt`` made of log directories alone starts, and has what the old one had.

The old brokers are killed, and their metadata is deleted. What consumers read before is compared with what they read
after: records with headers, timestamps and offsets, and the offsets of groups.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kseg.cli.main import main
from tools.lab.cluster import KraftCluster, wait_until
from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka

CODECS = ("gzip", "snappy", "lz4", "zstd")
GROUP = "billing"
#: (topic, partition, offset, key, value, headers, timestamp)
Seen = tuple[str | None, int | None, int | None, bytes | None, bytes | None, Any, int]


def adopt(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["adopt", *map(str, arguments)])


def create(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    for created in admin.create_topics([*topics]).values():
        created.result(30)


def produce(bootstrap: str, topic: str, count: int, codec: str = "none", idempotent: bool = False) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "compression.type": codec,
            "linger.ms": 5,
            "enable.idempotence": idempotent,
        }
    )
    for number in range(count):
        key, value = b"key %d" % (number % 7), b"%s %d" % (topic.encode(), number) * 200
        producer.produce(
            topic, value, key, headers=[("n", b"%d" % number), ("n", None)], timestamp=1_700_000_000_000 + number
        )
        producer.poll(0)
    assert not producer.flush(60)


def partitions(bootstrap: str) -> list[TopicPartition]:
    listed = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).topics
    return [TopicPartition(name, n) for name in sorted(listed) for n in listed[name].partitions if name[:2] != "__"]


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first and the end offset. The client gives up early if a broker has just left."""
    for _ in range(5):
        with suppress(KafkaException):
            found: tuple[int, int] = consumer.get_watermark_offsets(place, 30)
            return found
        time.sleep(1)
    raise TimeoutError(f"no offsets of {place}")


def read_all(bootstrap: str, isolation: str = "read_uncommitted") -> set[Seen]:
    """Return all records that a consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "oracle",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: set[Seen] = set()
    try:
        for place in partitions(bootstrap):
            low, high = watermarks(consumer, place)
            if low == high:
                continue
            consumer.assign([TopicPartition(place.topic, place.partition, low)])
            while message := consumer.poll(30):
                if message.error():
                    break
                found.add(
                    (
                        message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                        tuple(message.headers() or ()), message.timestamp()[1],
                    )
                )  # fmt: skip
            assert message is not None, f"{place}: no end within 30 s"
    finally:
        consumer.close()
    return found


def commit(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": GROUP})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], 30)[0].offset)
    finally:
        consumer.close()


def tree(folder: Path) -> str:
    """Return a hash of all names, sizes, times and bytes in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found.update(repr((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns)).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def strays(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*-stray")]


@pytest.fixture(scope="module", params=["4.3.0", "3.9.1"])
def lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Any]]:
    """Return a release, the log directory of a killed broker whose metadata is gone, and what consumers had read."""
    release = str(request.param)
    with KraftBroker(release, tmp_path_factory.mktemp("old")) as broker:
        settings = {"segment.bytes": "1048576"}
        topics = [NewTopic(codec, 2, 1, config=settings) for codec in CODECS]
        topics.append(NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact", **settings}))
        topics += [NewTopic(name, 1, 1) for name in ("payments", "deleted")]
        create(broker.admin(), topics)
        for codec in CODECS:
            produce(broker.bootstrap, codec, 500, codec)
        produce(broker.bootstrap, "compacted", 300)
        produce(broker.bootstrap, "deleted", 40)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "transactional.id": "till"})
        producer.init_transactions(30)
        for number in range(3):
            producer.begin_transaction()
            producer.produce("payments", b"payment %d" % number)
            producer.flush(30)
            if number == 1:
                producer.abort_transaction(30)
            elif number == 0:
                producer.commit_transaction(30)
        commit(broker.bootstrap, "gzip", 123)
        before = [read_all(broker.bootstrap, isolation) for isolation in ("read_uncommitted", "read_committed")]
        broker.kill()
        shutil.rmtree(broker.log_dir / "__cluster_metadata-0")
        for name in ("meta.properties", "bootstrap.checkpoint"):
            (broker.log_dir / name).unlink(missing_ok=True)
        yield release, broker.log_dir, before


def test_one_node_has_all_records_and_groups_again(lost: tuple[str, Path, Any], tmp_path: Path) -> None:
    """Ids, offsets, headers, times, commits, open transactions: what the disks have, the new cluster has."""
    release, log_dir, (uncommitted, read_committed) = lost
    source = tree(log_dir)
    done = adopt("--node", f"1={log_dir}", "--release", release[:3], "-o", tmp_path / "new")
    assert done.exit_code == 0, done.output
    assert tree(log_dir) == source
    with KraftBroker(release, tmp_path / "new" / "node-1") as broker:
        assert read_all(broker.bootstrap, "read_committed") == read_committed
        assert read_all(broker.bootstrap) == uncommitted
        assert committed(broker.bootstrap, "gzip") == 123
        produce(broker.bootstrap, "gzip", 50, idempotent=True)
        # The transaction that was open ends when its producer comes back.
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "transactional.id": "till"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("payments", b"after")
        producer.commit_transaction(60)
        values = [seen[4] for seen in read_all(broker.bootstrap, "read_committed") if seen[0] == "payments"]
        assert sorted(filter(None, values)) == [b"after", b"payment 0"]
        assert not strays(broker.log_dir)


def test_deleted_topics_come_back(lost: tuple[str, Path, Any], tmp_path: Path) -> None:
    """A folder that a broker was about to delete is a topic again, under a second name if the first one is in use."""
    release, log_dir, (uncommitted, _) = lost
    home = tmp_path / "logs"
    shutil.copytree(log_dir, home)
    (home / "deleted-0").rename(home / f"deleted-0.{'a' * 32}-delete")
    shutil.copytree(home / f"deleted-0.{'a' * 32}-delete", home / f"lz4-0.{'b' * 32}-stray")
    other = home / f"lz4-0.{'b' * 32}-stray" / "partition.metadata"
    other.write_text("version: 0\ntopic_id: otherTopicId-12345678A\n")
    plan = adopt("--node", f"1={home}")
    assert plan.exit_code == 1
    assert plan.stdout.count("--deleted brings it back") == 2
    done = adopt("--node", f"1={home}", "--deleted", "--release", release[:3], "-o", tmp_path / "new")
    assert done.exit_code == 0, done.output
    with KraftBroker(release, tmp_path / "new" / "node-1") as broker:
        found = read_all(broker.bootstrap)
        assert {seen for seen in found if seen[0] != "lz4.otherTop"} == uncommitted
        assert {("deleted", *seen[1:]) for seen in found if seen[0] == "lz4.otherTop"} == {
            seen for seen in uncommitted if seen[0] == "deleted"
        }
        assert not strays(broker.log_dir)


def test_three_nodes_agree_again(tmp_path: Path) -> None:
    """Replicas that a kill left at different ends have one history, that of the leader that the plan names."""
    properties = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with KraftCluster("4.3.0", tmp_path / "old", properties) as cluster:
        cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], {})
        produce(cluster.bootstrap, "orders", 3000, "zstd", idempotent=True)
        commit(cluster.bootstrap, "orders", 77)
        cluster.elect([("orders", 0)])
        cluster.brokers[3].kill()
        produce(cluster.bootstrap, "orders", 900, "lz4", idempotent=True)
        before = read_all(cluster.bootstrap)
        cluster.kill()
    homes = [broker.log_dir for broker in cluster.brokers.values()]
    for home in homes:
        shutil.rmtree(home / "__cluster_metadata-0")
        for name in ("meta.properties", "bootstrap.checkpoint"):
            (home / name).unlink(missing_ok=True)
    nodes = [part for n, home in enumerate(homes, 1) for part in ("--node", f"{n}={home}")]
    done = adopt(*nodes, "-o", tmp_path / "new", "--release", "4.3")
    assert done.exit_code == 0, done.output
    again = KraftCluster("4.3.0", tmp_path / "new", properties)
    for node in again.brokers:
        (tmp_path / "new" / f"node-{node}").rename(tmp_path / "new" / str(node))
    with again:
        wait_until(lambda: all(again.isr("orders", n) == {1, 2, 3} for n in range(3)), "all replicas in sync")
        assert read_all(again.bootstrap) == before
        assert committed(again.bootstrap, "orders") == 77
        produce(again.bootstrap, "orders", 30, idempotent=True)
        assert len(read_all(again.bootstrap)) == len(before) + 30
        assert not strays(tmp_path / "new")


def test_configurations_come_from_the_metadata_of_a_broker(tmp_path: Path) -> None:
    """Brokers have a copy of the metadata log: with all controllers gone, topics keep their configurations."""
    with KraftBroker("4.3.0", tmp_path / "old") as broker:
        create(
            broker.admin(),
            [NewTopic("orders", 3, 1, config={"retention.ms": "777000", "cleanup.policy": "compact,delete"})],
        )
        produce(broker.bootstrap, "orders", 100)
        before = read_all(broker.bootstrap)
        broker.kill()
    done = adopt(broker.log_dir, "-o", tmp_path / "new", "--format", "jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    topic = next(row for row in rows if row["kind"] == "topic" and row["topic"] == "orders")
    assert topic["configs_from"] == "old metadata"
    assert topic["configs"] == {"retention.ms": "777000", "cleanup.policy": "compact,delete"}
    with KraftBroker("4.3.0", tmp_path / "new" / "node-1") as again:
        assert read_all(again.bootstrap) == before
        described = CliRunner().invoke(
            main, ["dump", "--effective", "--format", "jsonl", str(again.log_dir / "__cluster_metadata-0")]
        )
        assert "777000" in described.stdout
