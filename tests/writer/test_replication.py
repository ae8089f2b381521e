"""The partitions that kseg writes replicate: three real brokers, new replicas, elections, a crash, a consumer group."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan as RepairPlan
from tests.support.damage import entries, put
from tests.support.replicated import NAME, NOW, SECOND, fill, logs, negative
from tests.support.transactional_logs import RandomLog, write_log
from tools.make_findings import findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tools.lab.cluster import KraftCluster

pytestmark = pytest.mark.kafka

SEEN = ("offset", "timestamp", "key", "value")
#: With a leader epoch of -1 in its batches: followers reject it. It shows that the test would detect the fault.
BROKEN = "negative-epochs"


@dataclass(frozen=True, slots=True)
class Case:
    """A partition folder that a broker is to serve."""

    topic: str
    folder: Path


def cases(work: Path) -> Iterator[Case]:
    """Return originals, converted ones, and repaired ones: wrong epochs, negative epochs, and a lost batch."""
    made = logs(highest=2)
    for each in ("converted", "repaired"):
        (work / each).mkdir()
    for name, files in made.items():
        original = fill(work / "originals" / name / f"{name}-0", files)
        yield Case(f"original-{name}", original)
        for codec in ("keep", "zstd") if name == "v1" else ("keep",):
            target = work / "converted" / f"{name}-{codec}-0"
            convert(str(original), str(target), ConversionPlan.of("any-to-v2", compression=codec), jobs=1)
            yield Case(f"converted-{name}-{codec}", target)
    for name, damaged in damages(made["plain"]).items():
        source = fill(work / "damaged" / f"{name}-0", damaged)
        target = work / "repaired" / f"{name}-0"
        repair(str(source), str(target), RepairPlan())
        yield Case(f"repaired-{name}", target)
    yield Case(BROKEN, fill(work / "broken" / f"{BROKEN}-0", {NAME: negative(made["plain"][NAME])}))


def damages(files: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    first, second = files[NAME], files[SECOND]
    places = entries(first)
    wrong = put(first, places[3].at, partition_leader_epoch=2**30)
    wrong = put(wrong, places[12].at, partition_leader_epoch=0)
    lost = bytearray(first)
    lost[places[5].at + 70] ^= 1
    return {
        "wrong-epochs": {**files, NAME: put(wrong, places[0].at, partition_leader_epoch=-(2**31))},
        "all-negative": {NAME: negative(first), SECOND: negative(second)},
        "lost-batch": {**files, NAME: bytes(lost)},
        "last-epoch": {**files, NAME: put(first, places[-1].at, partition_leader_epoch=2**30)},
    }


def test_what_kseg_writes_replicates(tmp_path: Path) -> None:
    """Converted and repaired partitions under one broker: new replicas join, lead, crash, and serve every record."""
    served = list(cases(tmp_path))
    expected = replicate(tmp_path / "cluster", served)
    for topic, found in expected.items():
        if topic.startswith("converted-"):
            assert found == expected["original-" + topic.split("-")[1]], topic


@pytest.mark.spark
def test_what_spark_writes_replicates(tmp_path: Path, spark: SparkSession) -> None:
    """The same for `write_segments`: from v2 and v1, in small segments, with holes, with a first offset above 0.

    With `same_log` consumers that read committed get the records of committed transactions only, from every broker.
    """
    from pyspark.sql.functions import lit

    from kseg.spark.writing import write_segments

    made = logs(highest=2)
    originals = {
        name: fill(tmp_path / "originals" / name / f"original-{name}-0", made[name]) for name in ("plain", "v1")
    }
    chosen: dict[str, tuple[str, str, dict[str, Any]]] = {
        "plain": ("plain", "true", {"compression": "zstd"}),
        "v1": ("v1", "true", {}),
        "small": ("plain", "true", {"segment_bytes": 2000, "batch_bytes": 300, "compression": "lz4"}),
        "holes": ("plain", "offset % 7 not in (0, 3)", {"batch_bytes": 500}),
        "late": ("plain", "offset >= 57", {"segment_bytes": 5000, "batch_bytes": 1000}),
    }
    served = [Case(f"original-{name}", folder) for name, folder in originals.items()]
    for name, (source, condition, options) in chosen.items():
        rows = spark.read.format("kseg").option("mode", "failfast").load(str(originals[source])).where(condition)
        rows = rows.withColumn("topic", lit(f"spark-{name}")).withColumn("partition", lit(0))
        write_segments(rows, str(tmp_path / "written"), **options)
        served.append(Case(f"spark-{name}", tmp_path / "written" / f"spark-{name}-0"))
    truth = whole_transactions(tmp_path / "logs" / "original-transactions-0")
    served.append(Case("original-transactions", tmp_path / "logs" / "original-transactions-0"))
    rows = spark.read.format("kseg").option("splitBytes", "2000").load(str(tmp_path / "logs"))
    rows = rows.withColumn("topic", lit("spark-transactions"))
    write_segments(
        rows, str(tmp_path / "written"), same_log=True, compression="lz4", segment_bytes=2000, batch_bytes=500
    )
    served.append(Case("spark-transactions", tmp_path / "written" / "spark-transactions-0"))
    broken = fill(tmp_path / "broken" / f"{BROKEN}-0", {NAME: negative(made["plain"][NAME])})
    expected = replicate(tmp_path / "cluster", [*served, Case(BROKEN, broken)])
    plain = expected["original-plain"]
    assert expected["spark-plain"] == expected["spark-small"] == plain
    assert expected["spark-v1"] == expected["original-v1"]
    assert expected["spark-holes"] == [row for row in plain if row["offset"] % 7 not in (0, 3)]
    assert expected["spark-late"] == plain[57:]
    assert expected["spark-transactions"] == expected["original-transactions"]
    assert [row["offset"] for row in expected["spark-transactions"]] == truth.committed


def whole_transactions(folder: Path) -> RandomLog:
    """Write a random log whose transactions have all ended, and in which some were aborted."""
    for seed in range(1000):
        made = write_log(folder, random.Random(seed), steps=100)
        states = {one.state for one in made.records}
        known = max(one.leader_epoch for one in made.records) <= 2  # as in ``logs``
        if known and made.stable is None and not made.compacted and {"aborted", "committed"} <= states:
            return made
        shutil.rmtree(folder)
    raise AssertionError("no such log")


def replicate(folder: Path, served: Sequence[Case]) -> dict[str, list[dict[str, Any]]]:
    """Run partitions under three brokers through elections and a crash;

    return the records of each topic except BROKEN.
    """
    from tools.lab import cluster as lab
    from tools.lab import serve

    sound = [case for case in served if case.topic != BROKEN]
    for case in sound:
        found = faults(case.folder, case, "error")
        assert found == [] or case.topic.startswith("original-"), case.topic
    with lab.KraftCluster("4.3.0", folder, {"log.index.interval.bytes": "4096"}) as cluster:
        for case in served:
            cluster.create_topic(case.topic, [(1,)], {})
        first = cluster.brokers[1]
        # A stop and a start of the only replica raise the leader epoch from 0 to 2, the highest in the logs.
        cluster.stop()
        for case in served:
            install(case.folder, first.partition(case.topic))
        cluster.start()
        expected = {case.topic: rows(serve.consume(first, case.topic, "read_committed")) for case in sound}
        cluster.reassign({(case.topic, 0): (2, 3, 1) for case in served})
        late = out_of_sync(cluster, sound, 120)
        assert late == [], f"no in-sync replicas: {late}"
        assert cluster.isr(BROKEN) == {1}, "the test would not notice a follower that fails"
        cluster.elect([(case.topic, 0) for case in sound])
        lab.wait_until(lambda: all(cluster.leader(case.topic) == 2 for case in sound), "broker 2 leads")
        check(cluster, expected, "led by broker 2")
        cluster.brokers[2].kill()
        lab.wait_until(lambda: all(cluster.leader(case.topic) in (1, 3) for case in sound), "another leads")
        produce(cluster, [case.topic for case in sound])
        cluster.brokers[2].start()
        late = out_of_sync(cluster, sound, 120)
        assert late == [], f"not in sync after the crash: {late}"
        cluster.elect([(case.topic, 0) for case in sound])
        lab.wait_until(lambda: all(cluster.leader(case.topic) == 2 for case in sound), "broker 2 leads again")
        check(cluster, expected, "after a crash", spare=1)
        cluster.stop()
    for number, broker in cluster.brokers.items():
        for case in sound:
            found = faults(broker.partition(case.topic), case, "error", "warning")
            assert found == [] or case.topic.startswith("original-"), (number, case.topic)
    shutil.rmtree(folder)
    return expected


def faults(folder: Path, case: Case, *severities: str) -> list[dict[str, Any]]:
    """Return the findings of a folder, without the gap that the repair of a lost batch left in it and in its replicas."""
    found = [row for row in findings(folder, {}) if row.get("severity") in severities]
    return [row for row in found if row["rule"] != "missing-batches" or not case.topic.endswith("-lost-batch")]


def install(source: Path, target: Path) -> None:
    """Copy the files of a partition folder to a stopped broker's folder, with the broker's own metadata."""
    for file in target.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in source.iterdir():
        if file.name != "partition.metadata":
            shutil.copyfile(file, target / file.name)


def rows(consumed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SEEN} for row in consumed]


def out_of_sync(cluster: KraftCluster, served: list[Case], seconds: float) -> list[str]:
    """Return the topics that don't have all three replicas in sync in time."""
    until = time.monotonic() + seconds
    left = [case.topic for case in served]
    while left and time.monotonic() < until:
        left = [topic for topic in left if cluster.isr(topic) != {1, 2, 3}]
        time.sleep(0.5)
    return left


def produce(cluster: KraftCluster, topics: list[str]) -> None:
    """Produce one more record to each topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for topic in topics:
        producer.produce(topic, b"new", b"after the crash", timestamp=NOW + 10**6)
    assert producer.flush(60) == 0


def check(cluster: KraftCluster, expected: dict[str, list[dict[str, Any]]], when: str, spare: int = 0) -> None:
    """Read every topic to its end with a consumer group, from whichever broker leads."""
    from confluent_kafka import Consumer, KafkaError

    from tools.lab import serve

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"group {when}",
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in expected}
    ended: set[str] = set()
    try:
        consumer.subscribe(list(expected))
        until = time.monotonic() + 120
        while len(ended) < len(expected) and time.monotonic() < until:
            for message in consumer.consume(1000, timeout=1):
                error = message.error()
                if error is None:
                    found[str(message.topic())].append(serve.row_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(str(message.topic()))
        assert ended == set(expected), f"{when}: no end of {set(expected) - ended}"
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    for topic, wanted in expected.items():
        got = rows(found[topic])
        assert got[: len(got) - spare] == wanted, f"{when}: {topic}"
