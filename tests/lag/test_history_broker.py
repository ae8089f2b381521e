"""``kseg lag --history`` equals what scripted consumers did on a broker, minute by minute."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import rows_of

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition

from tools.lab.kraft import KraftBroker
from tools.lab.modern_fixtures import create_topic
from tools.lab.scenes import wait_for

pytestmark = pytest.mark.kafka
VERSION = "4.3.0"
MINUTE = 60_000
#: The script works in this part of a minute, so that a step is in one minute unless the machine is very slow.
QUIET = 4.0
TOPIC = "orders"


@dataclass
class Script:
    """What was done, by minute; minutes that a step crossed are in ``doubtful``."""

    commits: defaultdict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    appends: list[int] = field(default_factory=list)
    doubtful: set[int] = field(default_factory=set)

    def step(self, work: Callable[[], object]) -> int:
        """Do something, and return the minute in which it was done."""
        before = _now() // MINUTE
        work()
        after = _now() // MINUTE
        if before != after:
            self.doubtful |= {before, after}
        return before


def _now() -> int:
    return time.time_ns() // 1_000_000


def _consumer(broker: KraftBroker, group: str) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{group}", "group.protocol": group}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    wait_for(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), f"partitions of {group}")
    return consumer


def test_commits_and_appends_by_minute(tmp_path: Path) -> None:
    """Two groups, of the classic and of the consumer protocol; each reads only a part of what is appended."""
    script = Script()
    with KraftBroker(VERSION, tmp_path) as broker:
        create_topic(broker, TOPIC, {})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        consumers = {group: _consumer(broker, group) for group in ("classic", "consumer")}
        committed = dict.fromkeys(consumers, 0)
        deadline = time.monotonic() + 600

        def append() -> None:
            timestamp = _now()
            for number in range(3):
                producer.produce(TOPIC, key=str(number), value="v", partition=0, timestamp=timestamp)
            assert producer.flush(60) == 0
            script.appends.extend([timestamp] * 3)

        def commit(group: str) -> None:
            place = TopicPartition(TOPIC, 0, committed[group])
            (answer,) = consumers[group].commit(offsets=[place], asynchronous=False)
            assert answer.error is None

        def certain() -> set[int]:
            """Return the minutes with commits of all groups that no step crossed, but the last one, which goes on."""
            shared = set.intersection(*({at for name, at in script.commits if name == group} for group in consumers))
            return set(range(min(shared, default=0), max(shared, default=0))) - script.doubtful

        while len(certain()) < 2 and time.monotonic() < deadline:
            for group, consumer in consumers.items():
                consumer.poll(0)
                if not QUIET < time.time() % 60 < 60 - QUIET:
                    continue
                script.step(append)
                committed[group] += 1 if group == "classic" else 2
                minute = script.step(lambda group=group: commit(group))  # type: ignore[misc]
                script.commits[group, minute].append(committed[group])
            time.sleep(1)
        admin = broker.admin()  # its futures end with it
        asked = {group: admin.describe_consumer_groups([f"g-{group}"])[f"g-{group}"] for group in consumers}
        states = {group: answer.result(60) for group, answer in asked.items()}
        histories = {group: _history(broker.log_dir, f"g-{group}") for group in consumers}
    for group, rows in histories.items():
        minutes = {row["timestamp"] // MINUTE: row for row in rows if row["kind"] == "lag-minute"}
        assert len(certain()) >= 2
        for minute in certain():
            end = (minute + 1) * MINUTE
            last = max(
                max(offsets, default=0)
                for (name, at), offsets in script.commits.items()
                if name == group and at <= minute
            )
            # A group's first commit follows none.
            first_here = min(script.commits[group, minute], default=last)
            before = max(
                (max(o) for (name, at), o in script.commits.items() if name == group and at < minute),
                default=first_here,
            )
            ended = sum(timestamp < end for timestamp in script.appends)
            expected = {
                "commits": len(script.commits[group, minute]),
                "consumed": last - before,
                "appended": sum(timestamp // MINUTE == minute for timestamp in script.appends),
                "lag": ended - last,
                "lag_ms": end - 1 - script.appends[last] if last < ended else 0,
                "members": 1,
                "state": "Stable",
            }
            assert {name: minutes[minute][name] for name in expected} == expected, (group, minute)
        summary = rows[-1]
        assert summary["protocol"] == group
        assert summary["growth"]["peak_lag"] == len(script.appends) - committed[group] or script.doubtful
        described = states[group]
        final = minutes[max(minutes)]
        assert (final["state"].upper(), final["members"]) == (described.state.name, len(described.members))


def _history(log_dir: Path, group: str) -> list[dict[str, Any]]:
    return rows_of("lag", "--history", group, log_dir)
