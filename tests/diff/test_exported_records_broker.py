"""Records that an unclean election of a real broker lost come back from the old leader's disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Producer

from tools.lab import maven
from tools.lab.cluster import KraftCluster, freeze, thaw, wait_until

pytestmark = pytest.mark.kafka
TOPIC = "orders"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare-replicas.md"


def _commands() -> str:
    """Return the lines of the page that produce the records again."""
    text = PAGE.read_text()
    (dump,) = re.findall(r"^\$ (kseg dump .*> records.txt\n)", text, re.MULTILINE)
    (produce,) = re.findall(r"^```sh\n(kafka-console-producer.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return f"{dump}{produce}"


def _produce(bootstrap: str, word: str, count: int, acks: str = "1") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "batch.num.messages": 7, "log_level": 0})
    for n in range(count):
        producer.produce(TOPIC, f"{word} {n}", key=f"key {n}", partition=0)
    assert producer.flush(60) == 0


def test_what_an_unclean_election_lost_comes_back(tmp_path: Path) -> None:
    """50 records that only the old leader has: the export has them, and a console producer sends them to the new one."""
    with KraftCluster("4.3.0", tmp_path / "cluster") as cluster:
        cluster.create_topic(TOPIC, [[2, 3]], {"min.insync.replicas": "1"})
        _produce(cluster.bootstrap, "both", 100, "all")
        wait_until(lambda: cluster.isr(TOPIC) == {2, 3}, "both replicas")
        old, new = (cluster.brokers[node].partition(TOPIC) for node in (2, 3))
        freeze(cluster.brokers[3])
        _produce(cluster.brokers[2].bootstrap, "answer", 1)  # it is in the answer to a fetch that the follower has sent
        _produce(cluster.brokers[2].bootstrap, "lost", 50)
        cluster.brokers[2].kill()
        kept = tmp_path / "old-leader" / old.name
        shutil.copytree(old, kept)
        thaw(cluster.brokers[3])
        cluster.elect([(TOPIC, 0)], unclean=True)
        wait_until(lambda: cluster.leader(TOPIC) == 3, "the new leader")
        _produce(cluster.brokers[3].bootstrap, "new", 20)
        shutil.copytree(new, tmp_path / "new-leader" / new.name)
        done = kseg("diff", "--export", tmp_path / "lost", kept, tmp_path / "new-leader" / new.name)
        assert done.returncode == 1, done.stderr
        assert re.search(r"\b5[01] records of A that B lacks", done.stderr), done.stderr
        commands = _commands()
        program = f'java {" ".join(maven.JVM)} -cp "{maven.libs("4.3.0")}/*" org.apache.kafka.tools.ConsoleProducer'
        (tmp_path / "kafka-console-producer.sh").write_text(f'#!/bin/sh\nexec {program} "$@"')
        (tmp_path / "kafka-console-producer.sh").chmod(0o755)
        subprocess.run(
            ["bash", "-ec", commands], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "BROKER": cluster.brokers[3].bootstrap, "LC_ALL": "C.UTF-8",
                 "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        values = kseg("dump", new, "--deep", "--template", "%k=%v").stdout.split("\n")
    assert values[-51:-1] == [f"key {n}=lost {n}" for n in range(50)]
    assert sum("both" in value for value in values) == 100
    assert sum("new" in value for value in values) == 20
