"""`--group` and `--txn` read the partition that Kafka's coordinators choose, and no other records."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from kseg.format.internal_topics.effective_state import Owner
from kseg.format.storage.naming import CONSUMER_OFFSETS, TRANSACTION_STATE
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg_here as kseg
from tests.support.cli import rows_of
from tests.support.commits import commit_key, commit_value
from tests.support.internal_topics import placed

LOG = "00000000000000000000.log"
#: Their hash codes are positive, negative, -2,147,483,648 and of a surrogate pair.
NAMES = ("orders", "a-long-group-name", "polygenelubricants", "groupe-é-☃-😀", "", *(f"group-{n}" for n in range(30)))
PARTITIONS = 7


rows = partial(rows_of, "dump")


def write_commits(folder: Path, *groups: str) -> None:
    folder.mkdir(parents=True)
    records = [PlainRecord(i, commit_key(group, "orders", 0), commit_value(i), 1_000) for i, group in enumerate(groups)]
    (folder / LOG).write_bytes(build_batch(records))


def test_hash_codes_of_java() -> None:
    """Java's own values. Kafka uses the absolute value of a negative one, and 0 for the smallest, which has none."""
    values = {"hello": 99_162_322, "orders": -1_008_770_331, "groupe-é-☃-😀": 1_615_044_024, "": 0}
    for name, value in values.items():
        assert Owner(CONSUMER_OFFSETS, name).partition(2**31) == abs(value)
    assert Owner(CONSUMER_OFFSETS, "polygenelubricants").partition(50) == 0


@pytest.mark.slow
def test_one_group_of_many(tmp_path: Path) -> None:
    """Groups whose names begin alike, or are in other fields, are others."""
    write_commits(tmp_path / "__consumer_offsets-0", "g", "gg", "orders", "g")
    found = rows("--group", "g", tmp_path)
    assert [row["offset"] for row in found] == [0, 3]
    assert [row["offset"] for row in rows("--group", "orders", tmp_path)] == [2]
    state = rows("--effective", "--group", "g", tmp_path)
    assert [(row["kind"], row.get("owner") or row["key"]["group"]) for row in state] == [("state", "g"), ("space", "g")]
    assert rows("--group", "absent", tmp_path) == []


def test_a_group_is_found_in_a_broker_s_part_of_the_topic(tmp_path: Path) -> None:
    """A broker has some of the partitions: their number is not that of the folders, even without a gap."""
    assert Owner(CONSUMER_OFFSETS, "orders").partition(10) != 4
    for number in range(10):
        write_commits(tmp_path / f"{CONSUMER_OFFSETS}-{number}", *(["orders"] * (number == 4)), "another")
    assert [Path(row["file"]).parent.name for row in rows("--group", "orders", tmp_path)] == [f"{CONSUMER_OFFSETS}-4"]
    state = rows("--effective", "--group", "orders", tmp_path)
    assert {Path(row["folder"]).name for row in state} == {f"{CONSUMER_OFFSETS}-4"}


def test_only_the_partition_of_the_group_is_read(tmp_path: Path) -> None:
    """With the number of partitions; an absent partition is named, as is a number that the folders exceed."""
    owner = Owner(CONSUMER_OFFSETS, "orders")
    for number in range(3):
        write_commits(tmp_path / f"__consumer_offsets-{number}", "orders")
    run = kseg("dump", "--group", "orders", "--partitions", 3, "--format", "jsonl", tmp_path)
    (row,) = map(json.loads, run.stdout.splitlines())
    assert f"__consumer_offsets-{owner.partition(3)}/" in row["file"]
    assert f"reads only partition {owner.partition(3)} of 3" in run.stderr
    missing = next(n for n in range(4, 100) if owner.partition(n) > 2)
    run = kseg("dump", "--group", "orders", "--partitions", missing, tmp_path)
    assert (run.returncode, f"__consumer_offsets-{owner.partition(missing)} found" in run.stderr) == (2, True)
    run = kseg("dump", "--group", "orders", "--partitions", 2, tmp_path)
    assert (run.returncode, "has a partition 2" in run.stderr) == (2, True)


@pytest.mark.slow
def test_transactional_ids(tmp_path: Path) -> None:
    """The records of a broker."""
    folder = placed(TRANSACTION_STATE, tmp_path)
    names = {row["decoded"]["key"]["data"]["transactionalId"] for row in rows("--deep", folder) if row.get("decoded")}
    assert len(names) > 1
    for name in names:
        found = rows("--txn", name, folder)
        assert {row["decoded"]["key"]["data"]["transactionalId"] for row in found} == {name}


def test_contradicting_options(tmp_path: Path) -> None:
    """One line names the error."""
    write_commits(tmp_path / "__consumer_offsets-0", "g")
    for options, words in (
        (("--group", "g", "--txn", "t"), "cannot be combined with"),
        (("--group", "g", "--shallow"), "--shallow"),
        (("--partitions", "5"), "--partitions needs --group or --txn"),
        (("--txn", "t"), "no folder of __transaction_state"),
    ):
        run = kseg("dump", *options, tmp_path)
        assert (run.returncode, words in run.stderr) == (2, True), run.stderr


@pytest.mark.kafka
def test_the_partitions_that_a_broker_chooses(tmp_path: Path) -> None:
    """Each group and each transactional id is where the coordinator wrote it."""
    pytest.importorskip("confluent_kafka")
    from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

    from tools.lab.kraft import KraftBroker
    from tools.lab.modern_fixtures import create_topic
    from tools.lab.scenes import wait_for

    settings = {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "transaction.state.log.num.partitions": str(PARTITIONS),
    }
    with KraftBroker("4.3.0", tmp_path, settings) as broker:
        create_topic(broker, "plain", {})
        admin = broker.admin()

        def commit(group: str) -> bool:
            """Return whether the coordinator accepted the commit: after its start, it is not one yet."""
            wanted = ConsumerGroupTopicPartitions(group, [TopicPartition("plain", 0, 1)])
            (answer,) = admin.alter_consumer_group_offsets([wanted]).values()
            return not any(place.error for place in answer.result(30).topic_partitions)

        for name in filter(None, NAMES):
            wait_for(partial(commit, name), "the coordinator")
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
            producer.init_transactions(30)
    for option, topic in (("--group", CONSUMER_OFFSETS), ("--txn", TRANSACTION_STATE)):
        for name in filter(None, NAMES):
            found = rows(option, name, broker.log_dir)
            assert found, name
            assert rows(option, name, "--partitions", PARTITIONS, broker.log_dir) == found
            partition = Owner(topic, name).partition(PARTITIONS)
            assert {Path(row["file"]).parent.name for row in found} == {f"{topic}-{partition}"}
