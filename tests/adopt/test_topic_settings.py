"""What ``kseg adopt`` says about a topic that its folders do not: its configuration, and how many partitions it has."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from kseg.commands.adopt import topic_settings
from kseg.commands.adopt.old_metadata import MetadataRecord, encoded_record
from kseg.errors import UnreadableError
from kseg.format.storage.naming import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import ROOT, rows_of
from tests.support.commits import commit_key
from tests.support.metadata_logs import Change, folder_for, partition, topic, uuid, write_log

TIERED_LOGS = ROOT / "fixtures" / "tiered" / "reference" / "logs"
plan = partial(rows_of, "adopt", code=None)


def adopt(*arguments: object) -> str:
    """Return what the command writes to stdout, in one line."""
    done = CliRunner().invoke(main, ["adopt", *map(str, arguments)], env={"COLUMNS": "200"})
    return " ".join(done.stdout.split())


def folder(home: Path, name: str, keys: Sequence[bytes] = (b"key",), topic_id: str = uuid(1)) -> Path:
    """Write a partition with a record of each key."""
    found = home / name
    found.mkdir(parents=True)
    records = [PlainRecord(n, key, b"value", 1_700_000_000_000) for n, key in enumerate(keys)]
    (found / f"{0:020}.log").write_bytes(build_batch(records, partition_leader_epoch=0) if records else b"")
    (found / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return found


def topics(*arguments: object) -> dict[str, Any]:
    rows = plan(*map(str, arguments))
    return {row["topic"]: row for row in rows if row["kind"] == "topic"}


KEEP = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
TIERED_KEEP = {**KEEP, "remote.storage.enable": "true"}


def test_no_configuration_that_deletes_is_guessed(tmp_path: Path) -> None:
    """Whatever the new server.properties say: records would expire, or be compacted in a topic that no longer is.

    Kafka never removes the entry of a topic from the cleaner's checkpoint.
    """
    for number, name in enumerate(("orders", "compacted", CONSUMER_OFFSETS, SHARE_GROUP_STATE)):
        folder(tmp_path, f"{name}-0", topic_id=uuid(number))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\ncompacted 0 3\n")
    found = topics("--node", f"1={tmp_path}")
    assert found["orders"]["configs"] == found["compacted"]["configs"] == KEEP
    assert "it was compacted: set cleanup.policy=compact if it still is" in found["compacted"]["configs_from"]
    assert found[CONSUMER_OFFSETS]["configs"]["cleanup.policy"] == "compact"
    assert found[SHARE_GROUP_STATE]["configs"].items() >= KEEP.items()


def test_a_rescued_topic_does_not_get_the_configuration_of_its_successor(tmp_path: Path) -> None:
    """The topic that has the name now can have a retention of a minute: it would delete all that was rescued."""
    folder(tmp_path, "orders-0", topic_id=uuid(2))
    folder(tmp_path, f"orders-0.{'a' * 32}-delete")
    config = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "60000"}
    changes: list[Change] = [topic("orders", 1), partition(1, [1]), ("RemoveTopic", 0, {"topicId": uuid(1)})]
    changes += [topic("orders", 2), partition(2, [1]), ("Config", 0, config)]
    write_log(folder_for(tmp_path) / f"{0:020}.log", changes)
    found = topics("--deleted", "--node", f"1={tmp_path}")
    rescued = found.pop(f"orders.{uuid(1)[:8]}")
    assert (rescued["configs"], rescued["configs_from"].split(":")[0]) == (KEEP, "guess")
    assert found["orders"]["configs"] == {"retention.ms": "60000"}
    # Without a folder of the new topic the old one has the name.
    shutil.rmtree(tmp_path / "orders-0")
    assert topics("--deleted", "--node", f"1={tmp_path}")["orders"]["configs"] == KEEP


@pytest.mark.parametrize("proof", ["log start", "metadata of tiered storage"])
def test_a_tiered_topic_stays_one(proof: str, tmp_path: Path) -> None:
    """Without the setting its log begins at the first local segment; set later, the broker deletes the objects before it."""
    logs = tmp_path / "logs"
    shutil.copytree(TIERED_LOGS, logs)
    shutil.rmtree(folder_for(logs))
    if proof == "log start":
        shutil.rmtree(logs / "__remote_log_metadata-0")
        # A log can begin before its first segment without any tier: the broker died right after it deleted one.
        assert topics(logs)["tiered"]["configs"] == KEEP
        (logs / "remote-log-index-cache").mkdir()
    else:
        (logs / "log-start-offset-checkpoint").unlink()
    folder(logs, "orders-0", topic_id=uuid(2))
    found = topics(logs)
    assert found["tiered"]["configs"] == TIERED_KEEP
    assert found["orders"]["configs"] == KEEP
    assert "keep remote.log.*, rsm.* and rlmm.*: segments of 1 topic (tiered)" in adopt(logs, "-o", tmp_path / "new")


def test_unread_metadata_of_tiered_storage_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose segments are not known to be there would lose them."""
    logs = tmp_path / "logs"
    shutil.copytree(TIERED_LOGS, logs)
    shutil.rmtree(folder_for(logs))
    unread = logs / "__remote_log_metadata-0"

    def failing(*_: object) -> None:
        raise UnreadableError(f"{unread / 'x.log'}: Input/output error")

    monkeypatch.setattr(topic_settings, "effective", failing)
    (blocked,) = (row for row in plan(str(logs)) if row["kind"] == "blocked")
    why = "x.log: Input/output error: run again, or leave its folder out"
    assert (blocked["folder"], blocked["why"]) == (str(unread), why)


def test_damaged_metadata_of_tiered_storage_is_named(tmp_path: Path) -> None:
    """What it lost can be that a topic is tiered; what is left of it counts."""
    logs = tmp_path / "logs"
    shutil.copytree(TIERED_LOGS, logs)
    shutil.rmtree(folder_for(logs))
    (logs / "log-start-offset-checkpoint").unlink()
    segment = next((logs / "__remote_log_metadata-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    rows = plan(str(logs))
    assert [row["configs"] for row in rows if row.get("topic") == "tiered" and row["kind"] == "topic"] == [TIERED_KEEP]
    (damaged,) = (row for row in rows if row["kind"] == "left_out")
    assert damaged["folder"] == str(logs / "__remote_log_metadata-0")
    assert damaged["why"].startswith(f"{segment.name}: crc-mismatch at byte ")


def test_the_cache_of_tiered_storage_is_no_data(tmp_path: Path) -> None:
    """Each broker with tiered storage has the folder, and makes it again."""
    logs = tmp_path / "logs"
    shutil.copytree(TIERED_LOGS, logs)
    (logs / "remote-log-index-cache").mkdir()
    assert not [row for row in plan(str(logs)) if row["kind"] == "left_out"]


def java_hash(text: str) -> int:
    """Return ``Utils.abs(text.hashCode())``."""
    number = 0
    for character in text.encode():
        number = (31 * number + character) & 0xFFFFFFFF
    return 0 if number == 1 << 31 else min(number, (1 << 32) - number)


def key_of(topic: str, name: str) -> bytes:
    """Return the key of a record of a group or transactional id."""
    if topic == CONSUMER_OFFSETS:
        return commit_key(name, "orders", 0)
    rest = bytes(16 + 4) if topic == SHARE_GROUP_STATE else b""  # the id of a topic, and a partition
    return struct.pack(">hh", 0, len(name)) + name.encode() + rest


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
@pytest.mark.parametrize(("partitions", "lost", "expected"), [(50, 49, 50), (7, 6, 7), (60, 59, 60), (1, None, 1)])
def test_a_coordinator_finds_its_groups(
    name: str, partitions: int, lost: int | None, expected: int, tmp_path: Path
) -> None:
    """It looks in the partition that is the hash modulo their number. Without the last one all groups began anew."""
    groups = [f"group-{n}" for n in range(40)]
    suffix = f":{'A' * 22}:0" if name == SHARE_GROUP_STATE else ""
    for number in set(range(partitions)) - {lost}:
        here = [key_of(name, one) for one in groups if java_hash(one + suffix) % partitions == number]
        folder(tmp_path, f"{name}-{number}", here)
    rows = plan("--node", f"1={tmp_path}")
    (found,) = (row for row in rows if row["kind"] == "topic")
    assert found["partitions"] == expected
    assert [row["partition"] for row in rows if row["kind"] == "partition" and row["leader"] is None] == [
        *([] if lost is None else [lost])
    ]


def test_tiered_storage_finds_its_metadata(tmp_path: Path) -> None:
    """Its manager fails if the topic has another number of partitions.

    A broker with 23 wrote the records of this topic to partition 3.
    """
    for number in range(22):
        found = folder(tmp_path, f"__remote_log_metadata-{number}", ())
        if number == 3:
            place = {"name": "tiered", "id": "hEE15iy8Tfme1R-WoR6tXQ", "partition": 0}
            data = {"topicIdPartition": place, "brokerId": 1, "eventTimestampMs": 5, "remotePartitionDeleteState": 0}
            value = encoded_record(MetadataRecord("RemotePartitionDeleteMetadataRecord", 0, data))
            batch = build_batch([PlainRecord(0, None, value, 1_700_000_000_000)], partition_leader_epoch=0)
            (found / f"{0:020}.log").write_bytes(batch)
    assert topics("--node", f"1={tmp_path}")["__remote_log_metadata"]["partitions"] == 23


def test_without_names_a_coordinator_has_the_default(tmp_path: Path) -> None:
    """Commits can have been in the partition that is lost: exit code 0 would say that all of them are there."""
    for number in range(49):
        folder(tmp_path, f"{CONSUMER_OFFSETS}-{number}", ())
    assert topics("--node", f"1={tmp_path}")[CONSUMER_OFFSETS]["partitions"] == 50
    assert "not with all data empty: __consumer_offsets-49: no disk has a folder of it" in adopt(
        "--node", f"1={tmp_path}"
    )


def test_names_that_contradict_each_other_add_no_partitions(tmp_path: Path) -> None:
    """Partitions were added: older commits are where no coordinator looks, whatever the number is."""
    for number in range(3):
        folder(tmp_path, f"{CONSUMER_OFFSETS}-{number}", [commit_key("one", "orders", 0)])
    assert topics("--node", f"1={tmp_path}")[CONSUMER_OFFSETS]["partitions"] == 3


def test_topics_that_expire_by_the_settings_of_brokers_are_named(tmp_path: Path) -> None:
    """The retention of such a topic is in no metadata: with a server.properties without it, records expire in 7 days."""
    for number, name in enumerate(("plain", "kept", "compacted"), 1):
        folder(tmp_path / "old", f"{name}-0", topic_id=uuid(number))
    configs = [("kept", "retention.ms", "-1"), ("compacted", "cleanup.policy", "compact")]
    changes = [topic(name, number) for number, name in enumerate(("plain", "kept", "compacted"), 1)]
    changes += [
        ("Config", 0, {"resourceType": 2, "resourceName": name, "name": key, "value": value})
        for name, key, value in configs
    ]
    write_log(folder_for(tmp_path / "old") / f"{0:020}.log", changes)
    written = adopt("--node", f"1={tmp_path / 'old'}", "-o", tmp_path / "new")
    assert "keep log.retention.* and log.cleanup.policy: they decide what is deleted of 1 topic (plain)" in written


@pytest.mark.parametrize("known", [False, True], ids=["guess", "metadata"])
def test_what_tiered_storage_has_is_not_lost(known: bool, tmp_path: Path) -> None:
    """Brokers delete the local segments of a tiered topic at different times; its log begins before them."""
    first, second = tmp_path / "1", tmp_path / "2"
    for home in (first, second):
        shutil.copytree(TIERED_LOGS, home)
        (home / "meta.properties").unlink()
    for home in (first, second)[known:]:
        shutil.rmtree(folder_for(home))
    (second / "tiered-0" / f"{10:020}.log").unlink()
    rows = plan("--node", f"1={first}", "--node", f"2={second}")
    (found,) = (row for row in rows if row["kind"] == "partition" and row["topic"] == "tiered")
    assert (found["leader"], found["lost"]) == (1, [])
    # Here the one with the later start leads.
    (second / "tiered-0" / "leader-epoch-checkpoint").write_text("0\n1\n9 19\n")
    rows = plan("--node", f"1={first}", "--node", f"2={second}")
    (found,) = (row for row in rows if row["kind"] == "partition" and row["topic"] == "tiered")
    assert found["leader"] == 2
    assert not [one for one in found["lost"] if "deletes" in one]
