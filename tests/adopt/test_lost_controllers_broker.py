"""The tutorial of lost controllers, carried out on three brokers: its scripts are run as they are on the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer

from tests.support.cli import ROOT
from tests.support.cluster_content import GROUP, commit, committed, produce, read_all, strays
from tools.lab.cluster import KraftCluster, wait_until

pytestmark = pytest.mark.kafka

PAGE = ROOT / "docs" / "tutorials" / "controllers-are-lost.md"
REPLICATED = [[1, 2, 3]]


def scripts() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path) -> list[int]:
    """Run the commands of a script, and return the exit code of each ``kseg``."""
    counted = f'kseg() {{ "{sys.executable}" -m kseg "$@"; echo "exit $?" >&2; }}\n'
    done = subprocess.run(
        ["sh", "-c", counted + script],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return [int(code) for code in re.findall(r"^exit (\d+)$", done.stderr, re.MULTILINE)]


def zero(log: Path, part: int) -> None:
    """Zero a tenth of a log, at another place for each part."""
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(size * part // 5)
        file.write(bytes(size // 10))


def next_record(bootstrap: str, topic: str) -> int | None:
    """Return the offset of the first record that the group gets now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": GROUP, "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        return message.offset() if message is not None else None
    finally:
        consumer.close()


def test_the_cluster_of_the_tutorial_has_all_records(tmp_path: Path) -> None:
    """Lost controllers, a deleted topic and three damaged replicas: consumers continue at the next record."""
    properties = {"min.insync.replicas": "2", "log.segment.delete.delay.ms": "3600000"}
    with KraftCluster("4.3.0", tmp_path / "disks", properties) as cluster:
        for topic in ("orders", "invoices", "payments"):
            cluster.create_topic(topic, REPLICATED, {})
        for topic, codec in (("orders", "none"), ("invoices", "lz4"), ("payments", "zstd")):
            for _ in range(3):
                produce(cluster.bootstrap, topic, 300, codec, idempotent=True)
        commit(cluster.bootstrap, "orders", 444)
        before = read_all(cluster.bootstrap)
        cluster.admin.delete_topics(["invoices"])["invoices"].result(60)
        homes = [broker.log_dir for broker in cluster.brokers.values()]
        wait_until(lambda: all(list(home.glob("invoices-0.*-delete")) for home in homes), "the topic is deleted")
        cluster.kill()
    for part, home in enumerate(homes, 1):
        shutil.rmtree(home / "__cluster_metadata-0")
        zero(home / "orders-0" / f"{0:020}.log", part)
    look, repair, move, adopt = scripts()
    assert run(look, tmp_path) == [1, 1]
    assert run(repair, tmp_path) == [0, 0]
    assert run(move, tmp_path) == []
    assert run(adopt, tmp_path) == [0]
    again = KraftCluster("4.3.0", tmp_path / "new", properties)
    for node, broker in again.brokers.items():
        (tmp_path / "new" / f"node-{node}").rename(broker.folder)
        broker.change({"log.dirs": f"{broker.log_dir},{broker.log_dir}-2"})
    with again:
        topics = ("orders", "invoices", "payments")
        wait_until(lambda: all(again.isr(topic) == {1, 2, 3} for topic in topics), "all replicas in sync")
        assert read_all(again.bootstrap) == before
        assert committed(again.bootstrap, "orders") == 444
        assert next_record(again.bootstrap, "orders") == 444
        produce(again.bootstrap, "orders", 10, idempotent=True)
        assert not strays(tmp_path / "new")
