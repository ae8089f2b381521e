"""`kseg lag` has the numbers of `kafka-consumer-groups --describe` of a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import kseg

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.support.consumer_groups import described
from tools.lab import scenes
from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"


def test_numbers_of_kafkas_own_tool(tmp_path: Path) -> None:
    """Classic, consumer and transactional groups, deleted groups and offsets, an open transaction, two log directories."""
    dirs = [tmp_path / "logs", tmp_path / "more-logs"]
    settings = {"log.dirs": ",".join(map(str, dirs)), "offsets.topic.num.partitions": "5"}
    with KraftBroker(VERSION, tmp_path, settings) as broker:
        for topic in ("plain", "other", "deleted"):
            create_topic(broker, topic, {})
            scenes.mixed(broker, topic)
        scenes.groups(broker, "plain")
        admin = broker.admin()
        for number in range(6):
            places = [TopicPartition(topic, 0, number * 7) for topic in ("plain", "other", "deleted")]
            requested = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group ☃ {number}", places)])
            for answer in requested.values():
                answer.result(30)
        admin.delete_topics(["deleted"])["deleted"].result(30)
        alive = scenes.open_commit(broker, "plain")
        scenes.wait_for(lambda: not any(row.topic == "deleted" for row in described(VERSION, broker)), "its offsets")
        expected = described(VERSION, broker)
        live = kseg("lag", "--format", "jsonl", *dirs)
    del alive
    stopped = kseg("lag", "--format", "jsonl", *dirs)
    assert len(expected) > 12
    for run in (live, stopped):
        assert run.returncode == 0, run.stderr
        rows = [json.loads(line) for line in run.stdout.splitlines()]
        names = ("group", "topic", "partition", "committed_offset", "log_end_offset", "lag")
        assert sorted(tuple(row[name] for name in names) for row in rows) == sorted(expected)
        assert {row["status"] for row in rows} == {"ok"}
