"""``kseg lag --format reset-csv`` brings the committed offsets of groups back, with Kafka's own tool."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.support.cli import kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.support.consumer_groups import PROGRAM, described
from tools.lab import scenes
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic
from tools.lab.oracle import run_java

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"
GROUPS = ("billing", "group, with ☃", 'a "quoted" one')


def _commit(broker: KraftBroker, group: str, offset: int) -> None:
    admin = broker.admin()

    def is_committed() -> bool:
        # The first answers can be those of a coordinator that is still loading.
        places = [TopicPartition("plain", 0, offset)]
        answers = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        return all(place.error is None for one in answers.values() for place in one.result(30).topic_partitions)

    scenes.wait_for(is_committed, f"a commit of {group}")


def _reset(broker: KraftBroker, file: Path) -> None:
    options = ["--bootstrap-server", broker.bootstrap, "--reset-offsets", "--from-file", str(file), "--execute"]
    run_java(VERSION, PROGRAM, [*options, *(word for group in GROUPS for word in ("--group", group))])


def test_kafkas_tool_reads_the_offsets_of_now_and_of_a_time(tmp_path: Path) -> None:
    """A group that was deleted, one that went on, and one with a name that CSV has to quote; then all as at a time."""
    with KraftBroker(VERSION, tmp_path / "node") as broker:
        admin = broker.admin()
        create_topic(broker, "plain", {})
        scenes.mixed(broker, "plain")
        for number, group in enumerate(GROUPS):
            _commit(broker, group, 3 + number)
        time.sleep(0.05)
        then = int(time.time() * 1000)
        time.sleep(0.05)
        for number, group in enumerate(GROUPS):
            _commit(broker, group, 9 + number)
        saved = tmp_path / "saved"
        shutil.copytree(tmp_path / "node" / "logs", saved)
        expected = {row.group: row.committed for row in described(VERSION, broker)}
        for offsets, at in (({}, ()), ({"billing": 3, GROUPS[1]: 4, GROUPS[2]: 5}, ("--at", then))):
            for deleted in admin.delete_consumer_groups(list(GROUPS[:2])).values():
                deleted.result(30)
            file = tmp_path / f"{len(at)}.csv"
            run = kseg("lag", "--format", "reset-csv", *at, "-o", file, saved)
            assert run.returncode == 0, run.stderr
            _reset(broker, file)
            assert {row.group: row.committed for row in described(VERSION, broker)} == (offsets or expected)


def test_offsets_of_another_cluster(tmp_path: Path) -> None:
    """A map with holes: an offset in a hole is that of the next record, one after the last record the end."""
    from kseg.commands.lag.log_history import read_offset_map

    rows = [(0, 9, 0), (20, 29, 10), (40, 40, 20)]
    file = tmp_path / "map.jsonl"
    names = ("src_first", "src_last", "dst_first")
    file.write_text(
        "".join(json.dumps({"topic": "t", "partition": 1, **dict(zip(names, row, strict=True))}) + "\n" for row in rows)
    )
    offsets = read_offset_map(str(file))
    assert [offsets.target("t", 1, at) for at in (0, 9, 10, 19, 20, 29, 30, 40, 41, 99)] == [
        0, 9, 10, 10, 10, 19, 20, 20, 21, 21,
    ]  # fmt: skip
    assert offsets.target("t", 0, 5) is None
