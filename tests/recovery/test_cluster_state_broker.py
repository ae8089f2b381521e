"""What kseg says of a cluster's state at the end of its metadata log is what real nodes do with it (Kafka 4.3.0)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kseg import recovery, validate
from kseg.format.log_loader.plan import PartitionPlan
from tests.support.cli import kseg
from tests.support.damage import entries
from tests.support.metadata_logs import Change, appended, controller

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tools.lab import maven
from tools.lab.kraft import KraftBroker
from tools.lab.recovery_broker import consumer_of, watermarks

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"


def _create(node: KraftBroker, *names: str) -> None:
    admin = node.admin()
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(30)


def _produce(node: KraftBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(50):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def _records(node: KraftBroker, topic: str) -> int:
    consumer = consumer_of(node)
    try:
        first, end = watermarks(consumer, topic, 0)
    finally:
        consumer.close()
    return end - first


def _strays(log_dir: Path, action: str = "mark-unplaced") -> dict[str, str]:
    """The partition folders that kseg expects to become strays, with the reason."""
    return {
        Path(plan.folder).name: step.why
        for plan in recovery(log_dir)
        if isinstance(plan, PartitionPlan)
        for step in plan.steps
        if step.action == action
    }


def test_strays_are_predicted_and_the_remedy_brings_their_records_back(tmp_path: Path) -> None:
    """A topic created again, one deleted, and a partition that the topic does not have; sound folders stay."""
    if why := maven.missing():
        pytest.skip(why)
    node, kept = KraftBroker(VERSION, tmp_path / "node"), tmp_path / "backup"
    with node:
        _create(node, "orders", "gone", "sound")
        for topic in ("orders", "gone", "sound"):
            _produce(node, topic)
    assert _strays(node.log_dir) == {}
    for topic in ("orders", "gone", "sound"):
        shutil.copytree(node.partition(topic), kept / f"{topic}-0")
    with node:
        admin = node.admin()
        for deleted in admin.delete_topics(["orders", "gone"]).values():
            deleted.result(30)
        _create(node, "orders")
    assert _strays(node.log_dir) == {}

    shutil.rmtree(node.partition("orders"))
    shutil.copytree(kept / "orders-0", node.partition("orders"))
    shutil.copytree(kept / "gone-0", node.partition("gone"))
    shutil.copytree(kept / "sound-0", node.partition("sound", 7))
    expected = _strays(node.log_dir)
    assert {*expected} == {"orders-0", "gone-0", "sound-7"}
    assert {
        one.finding.facts["folder"] for one in validate(node.log_dir).findings if one.rule.name == "stray-folder"
    } == {*expected}
    doctor = kseg("doctor", node.log_dir)
    assert doctor.returncode == 1
    assert "stray" in doctor.stdout

    with node:
        assert {_renamed(path) for path in node.log_dir.glob("*-stray")} == {*expected}
        assert (_records(node, "orders"), _records(node, "sound")) == (0, 50)

    converted = tmp_path / "orders-0"
    done = kseg("convert", "any-to-v2", "--for-another-cluster", kept / "orders-0", converted)
    assert done.returncode == 0, done.stderr
    shutil.copy(node.partition("orders") / "partition.metadata", converted)
    shutil.rmtree(node.partition("orders"))
    shutil.copytree(converted, node.partition("orders"))
    assert _strays(node.log_dir) == {}
    with node:
        assert _records(node, "orders") == 50


def _renamed(stray: Path) -> str:
    """``orders-0.<32 hex digits>-stray`` -> ``orders-0``."""
    return stray.name.rpartition(".")[0]


def test_what_the_only_controller_loses_of_its_metadata_becomes_stray(tmp_path: Path) -> None:
    """It replays a torn log up to the damage after a clean stop, and starts without the vote that it could not read."""
    if why := maven.missing():
        pytest.skip(why)
    node = KraftBroker(VERSION, tmp_path / "node")
    with node:
        for topic in ("kept", "lost", "last"):
            _create(node, topic)
            _produce(node, topic)
    assert (node.log_dir / ".kafka_cleanshutdown").exists()
    log = max((node.log_dir / "__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    torn = next(one.at for one in entries(data) if b"lost" in data[one.at : one.end])
    log.write_bytes(data[: torn + 30])
    assert {*(expected := _strays(node.log_dir, "mark-forgotten"))} == {"lost-0", "last-0"}
    vote = log.with_name("quorum-state")
    vote.write_text("")
    assert "stop at its start because of quorum-state" in " ".join(kseg("recovery", node.log_dir).stdout.split())
    vote.unlink()
    with node:
        assert {_renamed(path) for path in node.log_dir.glob("*-stray")} == {*expected}
        assert _records(node, "kept") == 50


def _append(node: KraftBroker, change: Change) -> None:
    log = max((node.log_dir / "__cluster_metadata-0").glob("*.log"))
    log.write_bytes(appended(log.read_bytes(), change))


def test_a_controller_that_blocks_an_upgrade_is_named_as_by_kafka(tmp_path: Path) -> None:
    """A controller that is gone keeps metadata.version down. kseg says at which level, and that it is no voter."""
    if why := maven.missing():
        pytest.skip(why)
    node = KraftBroker(VERSION, tmp_path / "node", standalone=True, release="4.1-IV1")
    with node:
        _create(node, "orders")
    metadata = node.log_dir / "__cluster_metadata-0"
    assert [one.rule.code for one in validate(metadata).findings if one.rule.code.startswith("K7")] == []
    _append(node, controller(9, metadata_version=28))

    found = {one.rule.name: one.finding.facts for one in validate(metadata).findings}
    assert found["ghost-controller"]["node"] == 9
    assert (found["upgrade-blocked"]["node"], found["upgrade-blocked"]["what"]) == (
        "controller 9",
        "metadata.version 28 of 30",
    )
    with node:
        refused = _raise_metadata_version(node, 30)
        assert "Controller 9 only supports versions 7-28" in refused, refused
        assert "was upgraded to 28" in (done := _raise_metadata_version(node, 28)), done


def _raise_metadata_version(node: KraftBroker, level: int) -> str:
    """The output of Kafka's own tool."""
    jars = f"{maven.libs(VERSION)}/*"
    words = ("--bootstrap-server", node.bootstrap, "upgrade", "--feature", f"metadata.version={level}")
    done = subprocess.run(
        ["java", *maven.JVM, "-cp", jars, "org.apache.kafka.tools.FeatureCommand", *words],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
    )
    return done.stdout
