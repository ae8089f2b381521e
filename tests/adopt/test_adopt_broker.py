"""A cluster that ``kseg adopt`` made of log directories alone starts, and has what the old one had.

The old brokers are killed, and their metadata is deleted. What consumers read before is compared with what they read
after: records with headers, timestamps and offsets, and the offsets of groups.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from kseg.cli.main import main
from tests.support.cluster_content import commit, committed, produce, read_all, strays
from tools.lab.cluster import KraftCluster, wait_until
from tools.lab.kraft import KraftBroker

pytestmark = pytest.mark.kafka

CODECS = ("gzip", "snappy", "lz4", "zstd")


def adopt(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["adopt", *map(str, arguments)])


def create(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    for created in admin.create_topics([*topics]).values():
        created.result(30)


def tree(folder: Path) -> str:
    """Return a hash of all names, sizes, times and bytes in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found.update(repr((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns)).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


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


def test_what_the_metadata_of_a_broker_says_is_kept(tmp_path: Path) -> None:
    """Brokers have a copy of the metadata log: configurations, users and two log directories, started by a newer release."""
    homes = [tmp_path / "old" / name for name in ("logs", "logs2")]
    with KraftBroker("4.3.0", tmp_path / "old", {"log.dirs": ",".join(map(str, homes))}) as broker:
        config = {"retention.ms": "7770000000000", "cleanup.policy": "compact,delete"}
        create(broker.admin(), [NewTopic("orders", 6, 1, config=config)])
        produce(broker.bootstrap, "orders", 100)
        admin = broker.admin()
        user = UserScramCredentialUpsertion(
            "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"salt"
        )
        admin.alter_user_scram_credentials([user])["ann"].result(30)
        before = read_all(broker.bootstrap)
        broker.kill()
    done = adopt(*homes, "-o", tmp_path / "new", "--format", "jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    topic = next(row for row in rows if row["kind"] == "topic" and row["topic"] == "orders")
    assert (topic["configs"], topic["configs_from"]) == (config, "old metadata")
    node = tmp_path / "new" / "node-1"
    with KraftBroker("4.4.0", node, {"log.dirs": f"{node}/logs,{node}/logs2"}) as again:
        assert read_all(again.bootstrap) == before
        place = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        admin = again.admin()
        described = admin.describe_configs([place])[place].result(30)
        assert {name: described[name].value for name in config} == config
        users = admin.describe_user_scram_credentials(["ann"])
        assert isinstance(users, dict)
        found = users["ann"].result(30)
        assert [one.mechanism for one in found.scram_credential_infos] == [ScramMechanism.SCRAM_SHA_256]
