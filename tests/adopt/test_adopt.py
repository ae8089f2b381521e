"""The plan of ``kseg adopt``: which replica leads, which topic has a name, what is left out; it writes all or nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.commands.adopt.old_metadata import MetadataRecord, write_snapshot
from kseg.format.messages.message_reader import jsonable
from kseg.format.storage.naming import CLUSTER_METADATA
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import rows_of
from tests.support.damage import flip
from tests.support.interrupted import EndedRuns
from tests.support.metadata_logs import FEATURE, Change, broker, folder_for, write_log
from tests.support.read_faults import local_faults

ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAXQ", "BBBBBBBBBBBBBBBBBBBBXQ"


def adopt(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["adopt", *map(str, arguments)])


plan = partial(rows_of, "adopt", code=None)


def replica(
    home: Path, name: str, records: int, epoch: int = 0, topic_id: str | None = ID, tag: str = "", producer_id: int = -1,
    at: int = 1_700_000_000_000,
) -> Path:  # fmt: skip
    """Write a partition folder whose batches are of this leader epoch, one record each."""
    folder = home / name
    folder.mkdir(parents=True)
    batches = [
        build_batch(
            [PlainRecord(n, b"key", f"{tag}{n}".encode(), at)],
            partition_leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=n if producer_id >= 0 else -1,
        )
        for n in range(records)
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    if topic_id:
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return folder


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"disk{n}" for n in (1, 2, 3)]


def nodes(disks: list[Path]) -> list[str]:
    return [part for n, disk in enumerate(disks, 1) for part in ("--node", f"{n}={disk}")]


def test_the_latest_epoch_leads_and_then_the_longest_log(disks: list[Path]) -> None:
    """A longer log of an older epoch is what an unclean election left behind: it truncates, and the plan says so."""
    replica(disks[0], "orders-0", 20, epoch=3)
    replica(disks[1], "orders-0", 25, epoch=4)
    replica(disks[2], "orders-0", 30, epoch=3)
    done = adopt(*nodes(disks))
    assert done.exit_code == 1
    assert "node 3 truncates offsets 0..29: they are of leader epoch 3, and node 2 has epoch 4" in done.stdout
    (partition,) = of_kind(plan(*nodes(disks)), "partition")
    assert (partition["leader"], partition["leader_epoch"], partition["log_end"]) == (2, 105, 25)
    assert partition["replicas"] == [1, 2, 3]
    # A shorter log can have records of its own, too: those after the end of its epoch at the leader.
    (disks[1] / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n4 12\n")
    assert "node 1 truncates offsets 12..19" in adopt(*nodes(disks)).stdout
    replica(disks[0], "orders-1", 20, epoch=3)
    replica(disks[2], "orders-1", 21, epoch=3)
    partitions = of_kind(plan(*nodes(disks)), "partition")
    assert (partitions[1]["leader"], partitions[1]["lost"]) == (3, [])


def test_no_folder_becomes_two_of_one_broker(tmp_path: Path, disks: list[Path]) -> None:
    """A broker with a partition in two of its log directories does not start."""
    replica(disks[0], "orders-0", 5)
    replica(disks[1], "orders-0", 9)
    arguments = ("--node", f"1={disks[0]},{disks[1]}", "-o", tmp_path / "new")
    rows = plan(*arguments)
    assert [row["folder"] for row in of_kind(rows, "left_out")] == [str(disks[0] / "orders-0")]
    assert [path.parent.name for path in (tmp_path / "new").rglob("orders-0")] == ["disk2"]


def test_two_topics_of_one_name(disks: list[Path]) -> None:
    """A topic was deleted and created again while a broker was away: the newer one has the name."""
    old = replica(disks[0], "orders-0", 5, topic_id=OTHER_ID)
    replica(disks[1], "orders-0", 9)
    os.utime(old, (1, 1))
    rows = plan(*nodes(disks[:2]))
    assert [(row["topic"], row["topic_id"]) for row in of_kind(rows, "topic")] == [("orders", ID)]
    (left_out,) = of_kind(rows, "left_out")
    assert left_out["folder"] == str(old)


@pytest.mark.parametrize("late", [1_800_000_000_000_000, None], ids=["wrong clock", "right clock"])
def test_a_copy_of_an_old_folder_is_not_a_newer_topic(late: int | None, disks: list[Path]) -> None:
    """A copy of a folder is as old as the copy: the last record says which topic was in use last."""
    replica(disks[0], "orders-0", 9, at=1_700_000_001_000)
    old = replica(disks[1], "orders-0", 12, topic_id=OTHER_ID)
    if late:  # one client's clock
        replica(disks[1], "orders-1", 2, topic_id=OTHER_ID, at=late)
    os.utime(disks[0] / "orders-0", (1, 1))
    rows = plan(*nodes(disks[:2]))
    assert {(row["topic"], row["topic_id"]) for row in of_kind(rows, "topic")} == {("orders", ID)}
    why = f"another topic of this name has the id {ID}, and its last record is newer, of 2023-11-14T22:13:21.000Z"
    assert (row := of_kind(rows, "left_out")[0])["folder"] == str(old)
    assert row["why"] == why


def test_a_topic_without_timestamps_is_that_of_more_nodes(disks: list[Path]) -> None:
    """Records without a time, or none at all: one broker was away while the topic was made again."""
    for disk, topic_id in zip(disks, (ID, OTHER_ID, ID), strict=True):
        replica(disk, "orders-0", 0, topic_id=topic_id)
        os.utime(disk / "orders-0", (1, 1) if topic_id == ID else None)
    (left_out,) = of_kind(plan(*nodes(disks)), "left_out")
    assert left_out == {
        "kind": "left_out",
        "folder": str(disks[1] / "orders-0"),
        "why": f"another topic of this name has the id {ID}, and is on more nodes",
    }


def test_disks_of_different_clusters_are_named(tmp_path: Path, disks: list[Path]) -> None:
    """Two clusters become one: that is never done without a word, and is no success."""
    for disk, cluster in zip(disks, "AAB", strict=True):
        replica(disk, "orders-0", 5)
        (disk / "meta.properties").write_text(f"version=1\nnode.id={disk.name[-1]}\ncluster.id={cluster * 22}\n")
    assert adopt(*disks[:2]).exit_code == 0
    done = adopt(*disks, "-o", tmp_path / "new")
    assert done.exit_code == 1
    places = f'{disks[0]} ("{"A" * 22}"), {disks[2]} ("{"B" * 22}")'
    assert f"kseg: the log directories are of different clusters: {places}: topics of one name" in done.stderr
    assert (tmp_path / "new").is_dir()


def test_a_replica_without_an_id_gets_that_of_the_others(tmp_path: Path, disks: list[Path]) -> None:
    """Without partition.metadata a broker renames the folder to -stray."""
    replica(disks[0], "orders-0", 5, topic_id=None)
    replica(disks[1], "orders-0", 5)
    assert adopt(*nodes(disks[:2]), "-o", tmp_path / "new").exit_code == 0
    written = {path.read_text() for path in (tmp_path / "new").rglob("partition.metadata")}
    assert written == {f"version: 0\ntopic_id: {ID}\n"}


def test_a_new_topic_id_is_named(disks: list[Path]) -> None:
    """No folder has a readable id: the plan says that the topic gets another one, which brokers elsewhere do not know."""
    replica(disks[0], "orders-0", 5)
    (disks[0] / "orders-0" / "partition.metadata").write_bytes(b"\0garbage")
    done = adopt(*nodes(disks[:1]))
    assert done.exit_code == 0
    assert "1 topic without a readable partition.metadata: a new topic id for orders" in done.stderr


def test_deleted_and_stray_folders_wait_to_be_asked_for(disks: list[Path]) -> None:
    replica(disks[0], "orders-0", 5)
    replica(disks[0], f"orders-0.{'a' * 32}-delete", 7, topic_id=OTHER_ID)
    replica(disks[0], f"clicks-0.{'b' * 32}-stray", 8, topic_id="CCCCCCCCCCCCCCCCCCCCXQ")
    replica(disks[0], f"clicks-1.{'b' * 32}-future", 8)
    rows = plan(*nodes(disks[:1]))
    assert [row["topic"] for row in of_kind(rows, "topic")] == ["orders"]
    assert len(of_kind(rows, "left_out")) == 3
    rows = plan(*nodes(disks[:1]), "--deleted")
    assert [row["topic"] for row in of_kind(rows, "topic")] == ["clicks", "orders", "orders.BBBBBBBB"]
    assert [row["log_end"] for row in of_kind(rows, "partition") if row["leader"]] == [8, 5, 7]


@pytest.mark.parametrize("state", ["delete", "stray"])
@pytest.mark.parametrize("named", [True, False], ids=["id", "no id"])
def test_a_deleted_folder_without_an_id_is_no_replica_of_the_topic_in_use(
    named: bool, state: str, tmp_path: Path, disks: list[Path]
) -> None:
    """It would lead: its records would take the place of those of the topic that has the name now."""
    for disk in disks[:2]:
        replica(disk, "orders-0", 5, topic_id=ID if named else None)
    gone = replica(disks[2], f"orders-0.{'a' * 32}-{state}", 9, topic_id=None)
    metadata: list[Change] = [FEATURE, ("Topic", 0, {"name": "orders", "topicId": ID})]
    write_log(folder_for(disks[0]) / f"{0:020}.log", metadata)
    done = adopt(*nodes(disks), "--deleted", "-o", tmp_path / "new")
    assert done.exit_code == 0
    rows = plan(*nodes(disks), "--deleted")
    live, deleted = of_kind(rows, "partition")
    assert (live["topic"], live["topic_id"], live["replicas"], live["log_end"]) == ("orders", ID, [1, 2], 5)
    assert (deleted["folders"], deleted["log_end"]) == ([str(gone)], 9)
    assert deleted["topic"] == f"orders.{deleted['topic_id'][:8]}"
    assert "a new topic id for orders." in " ".join(done.stderr.split())


def test_a_deleted_folder_without_an_id_is_not_the_topic_of_the_metadata(disks: list[Path]) -> None:
    """The metadata has a topic of the name that was made after the deletion, and no disk a folder of that one."""
    replica(disks[0], f"orders-0.{'a' * 32}-delete", 9, topic_id=None)
    replica(disks[0], f"orders-0.{'b' * 32}-delete", 7, topic_id=OTHER_ID)
    write_log(folder_for(disks[0]) / f"{0:020}.log", [FEATURE, ("Topic", 0, {"name": "orders", "topicId": ID})])
    rows = plan(*nodes(disks[:1]), "--deleted")
    found = {row["log_end"]: row["topic_id"] for row in of_kind(rows, "partition")}
    assert found.keys() == {7, 9}
    assert found[7] == OTHER_ID
    assert found[9] not in (ID, OTHER_ID)


def test_the_name_of_a_deleted_topic_is_legal(disks: list[Path]) -> None:
    """A second topic of a long name gets a name that a broker accepts."""
    topic = "t" * 217
    replica(disks[0], f"{topic}-0", 5)
    replica(disks[0], f"{topic}-0.{'a' * 32}-delete"[-255:], 7, topic_id=OTHER_ID)
    names = [row["topic"] for row in of_kind(plan(*nodes(disks[:1]), "--deleted"), "topic")]
    assert len(set(names)) == 2
    assert all(len(name) <= 249 for name in names)


def test_old_metadata_names_configurations_and_missing_partitions(tmp_path: Path, disks: list[Path]) -> None:
    replica(disks[0], "orders-1", 3)
    disks[1].mkdir()
    partitions: list[Change] = [
        ("Partition", 1, {"partitionId": n, "topicId": ID, "replicas": [2, 1, 9], "leader": 1}) for n in range(3)
    ]
    config = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "5"}
    changes: list[Change] = [("Topic", 0, {"name": "orders", "topicId": ID}), *partitions, ("Config", 0, config)]
    changes.append(("Topic", 0, {"name": "gone", "topicId": OTHER_ID}))
    log = write_log(folder_for(tmp_path) / f"{0:020}.log", changes)
    rows = plan(*nodes(disks[:2]), "--metadata", log.parent)
    (topic,) = of_kind(rows, "topic")
    assert (topic["partitions"], topic["configs"], topic["configs_from"]) == (3, {"retention.ms": "5"}, "old metadata")
    assert [row["leader"] for row in of_kind(rows, "partition")] == [None, 1, None]
    # Node 9 is not given. Node 2 has no folder any more, and gets one from the leader.
    assert [row["replicas"] for row in of_kind(rows, "partition")] == [[2, 1]] * 3
    (left_out,) = of_kind(rows, "left_out")
    assert (left_out["folder"], left_out["why"].split(",")[0]) == ("gone", "the old metadata has this topic")
    text = adopt(*nodes(disks[:2]), "--metadata", log.parent).stdout
    assert "empty: orders-0 and 1 more: no disk has a folder of it" in text


def config(value: str) -> Change:
    return "Config", 0, {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": value}


def test_the_leader_epoch_is_after_all_that_clients_know(disks: list[Path]) -> None:
    """A client that lives through the outage ignores a leader of an older epoch, also of one that has no records."""
    for disk in disks[:2]:
        replica(disk, "orders-0", 5, epoch=3)
    (disks[1] / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n500 5\n")
    (partition,) = of_kind(plan(*nodes(disks[:2])), "partition")
    assert (partition["leader_epoch"] > 500, partition["lost"]) == (True, [])
    data = {"topicId": ID, "replicas": [1, 2], "leader": 1, "leaderEpoch": 900}
    changes: list[Change] = [FEATURE, ("Topic", 0, {"name": "orders", "topicId": ID})]
    changes += [("Partition", 1, {**data, "partitionId": number}) for number in (0, 1)]
    write_log(folder_for(disks[0]) / f"{0:020}.log", changes)
    (first, empty) = of_kind(plan(*nodes(disks[:2])), "partition")
    assert (first["leader_epoch"] > 900, empty["leader_epoch"] > 900, empty["leader"]) == (True, True, None)


@pytest.mark.parametrize("epochs", ["0\n1\n2147483647 0\n", "0\n1\n2147483600 5\n"], ids=["last", "nearly"])
def test_there_is_no_leader_epoch_after_the_last_one(epochs: str, tmp_path: Path, disks: list[Path]) -> None:
    """No CRC covers the leader epoch of a batch."""
    replica(disks[0], "orders-0", 5)
    (disks[0] / "orders-0" / "leader-epoch-checkpoint").write_text(epochs)
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0
    (record,) = [one["data"] for one in snapshot_records(tmp_path / "new") if one["name"] == "Partition"]
    assert record["leaderEpoch"] == 2147483647


@pytest.mark.parametrize("newest", [0, 1])
def test_the_newest_metadata_is_that_of_the_last_offset(newest: int, disks: list[Path]) -> None:
    """A broker that died after it had made a snapshot has the later file name, and the older configurations."""
    older, newer = disks[1 - newest], disks[newest]
    changes = [FEATURE, ("Topic", 0, {"name": "orders", "topicId": ID}), config("5")]
    log = write_log(folder_for(older) / f"{0:020}.log", changes)
    with (log.parent / f"{3:020}-0000000001.checkpoint").open("wb") as out:
        write_snapshot([MetadataRecord(f"{name}Record", version, data) for name, version, data in changes], out)
    write_log(folder_for(newer) / f"{0:020}.log", [*changes, config("-1")])
    for disk in disks[:2]:
        replica(disk, "orders-0", 3)
    (topic,) = of_kind(plan(*nodes(disks[:2])), "topic")
    assert (topic["configs"], topic["configs_from"]) == ({"retention.ms": "-1"}, "old metadata")
    assert f"configurations are from {folder_for(newer)}" in " ".join(adopt(*nodes(disks[:2])).stderr.split())


def snapshot_records(new: Path) -> list[dict[str, Any]]:
    """Return the records of the new metadata, decoded."""
    (snapshot,) = new.rglob("bootstrap.checkpoint")
    dump = ["dump", "--deep", "--format", "jsonl", "--decode", CLUSTER_METADATA, str(snapshot)]
    rows = [json.loads(line) for line in CliRunner().invoke(main, dump).stdout.splitlines()]
    return [row["decoded"]["value"] for row in rows if row.get("decoded")]


def test_users_quotas_and_access_rules_are_kept(tmp_path: Path, disks: list[Path]) -> None:
    """Bytes, numbers with a fraction and nested fields are what they were; nodes and features for a new start are not."""
    replica(disks[0], "orders-0", 3)
    kept: list[Change] = [
        ("UserScramCredential", 0, {
            "name": "ann", "mechanism": 1, "salt": b"\0\xff", "storedKey": b"s", "serverKey": b"k", "iterations": 4096,
        }),
        ("ClientQuota", 0, {
            "entity": [{"entityType": "user", "entityName": None}], "key": "producer_byte_rate", "value": 10.5,
        }),
        ("AccessControlEntry", 0, {
            "id": "A" * 21 + "g", "resourceType": 2, "resourceName": "orders", "patternType": 3, "principal": "User:ann",
            "host": "*", "operation": 4, "permissionType": 3,
        }),
        ("Config", 0, {"resourceType": 4, "resourceName": "", "name": "log.cleaner.threads", "value": "2"}),
    ]  # fmt: skip
    features: list[Change] = [
        ("FeatureLevel", 0, {"name": name, "featureLevel": level})
        for name, level in (("metadata.version", 27), ("eligible.leader.replicas.version", 1), ("group.version", 1))
    ]
    write_log(folder_for(disks[0]) / f"{0:020}.log", [*features, broker(1, 5), *kept])
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0
    found = snapshot_records(tmp_path / "new")
    for name, _, data in kept:
        wanted = {field: jsonable(value) for field, value in data.items()}
        assert [one for one in found if one["name"] == name and {**one["data"], **wanted} == one["data"]], name
    levels = {one["data"]["name"]: one["data"]["featureLevel"] for one in found if one["name"] == "FeatureLevel"}
    assert levels == {"metadata.version": 27, "group.version": 1}
    assert not [one for one in found if one["name"] == "RegisterBroker"]


def test_a_number_that_no_topic_has_makes_no_partitions(disks: list[Path]) -> None:
    """A name of ten digits would make two thousand million empty partitions before its own."""
    replica(disks[0], "orders-0", 3)
    replica(disks[0], "orders-2147483647", 3)
    replica(disks[0], "invoices-2147483647", 3, topic_id=OTHER_ID)
    rows = plan(*nodes(disks[:1]))
    assert len(of_kind(rows, "partition")) == 1
    assert [row["why"] for row in of_kind(rows, "left_out")] == ["no topic has 200,000 partitions"] * 2


def test_producer_ids_are_not_given_out_twice(tmp_path: Path, disks: list[Path]) -> None:
    """A new producer with an old id would be refused: its sequence is out of order."""
    replica(disks[0], "orders-0", 3, producer_id=123_456)
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0
    (ids,) = [one["data"] for one in snapshot_records(tmp_path / "new") if one["name"] == "ProducerIds"]
    assert ids["nextProducerId"] > 123_456


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the log directories of all brokers"),
        (("{disk}",), "no broker starts with its meta.properties (it does not exist: the log directory is not"),
        (("--node", "x={disk}"), "expected ID=DIR or ID=DIR,DIR"),
        (("--node", "1={disk},"), "expected ID=DIR or ID=DIR,DIR"),
        (("--node", "1={disk}/nothing"), "No such file or directory"),
        (("--node", "1={disk}", "-o", "{disk}/new"), "inputs are never changed"),
        (("--node", "1={disk}", "-o", "{disk}"), "exists"),
        (("--node", "1={disk}", "--cluster-id", "short"), "expected 22 characters"),
        (("s3://bucket/logs",), "adopt reads local log directories only"),
        (("--node", "1={disk}/orders-0"), "is a folder of a log directory: give that one"),
        (("--node", "1={disk}", "--node", "2={disk}"), "is given twice"),
        (("--node", "1={disk}", "--controller", "99999999999"), "a whole number from 0 to 2147483647"),
        (("--node", "1={disk}", "--metadata", "{disk}", "--no-metadata"), "cannot be combined"),
        (("--node", "1={disk}", "--metadata", "{disk}/orders-0"), "no record of a cluster's metadata found"),
    ],
)
def test_a_wrong_argument_has_one_line(arguments: tuple[str, ...], message: str, disks: list[Path]) -> None:
    replica(disks[0], "orders-0", 3)
    done = adopt(*(one.format(disk=disks[0]) for one in arguments))
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("node.id=-1", "node.id is -1"),
        ("directory.id=xyz", 'directory.id is "xyz"'),
        ("directory.id=AAAAAAAAAAAAAAAAAAAAAQ", "is reserved"),
        ("version=7", "version 7"),
    ],
)
def test_ids_with_which_no_broker_starts_are_not_adopted(
    line: str, why: str, tmp_path: Path, disks: list[Path]
) -> None:
    """The reason names what is wrong; the node of the command line is used instead."""
    replica(disks[0], "orders-0", 3)
    (disks[0] / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id=x\n{line}\n")
    done = adopt(str(disks[0]), "-o", tmp_path / "new")
    assert done.exit_code == 2
    assert why in (text := " ".join(done.stderr.split()))
    assert "write --node ID=" in text
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0


def test_folders_of_log_directories_are_no_topics(tmp_path: Path, disks: list[Path]) -> None:
    """A folder with the log directories kafka-1 and kafka-2 would become the topic kafka."""
    for number, disk in enumerate(disks[:2]):
        replica(disk, "orders-0", 3)
        shutil.copytree(disk, tmp_path / "all" / f"kafka-{number}")
    for options in ((tmp_path / "all",), ("--node", f"1={tmp_path / 'all'}")):
        done = adopt(*map(str, options))
        assert (done.exit_code, "holds log directories" in done.stderr) == (2, True)


def test_what_no_broker_loads_is_not_written(tmp_path: Path, disks: list[Path]) -> None:
    """One folder that a broker refuses keeps the whole node from starting."""
    replica(disks[0], "orders-0", 3)
    (disks[0] / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\nzeros\n")
    done = adopt(*nodes(disks[:1]), "-o", tmp_path / "new")
    assert done.exit_code == 2
    assert "kseg repair it first" in done.stderr
    assert not (tmp_path / "new").exists()
    replica(disks[1], "orders-0", 2)
    rows = plan(*nodes(disks[:2]), "-o", tmp_path / "new")
    assert [row["leader"] for row in of_kind(rows, "partition")] == [2]
    assert len(of_kind(rows, "left_out")) == 1


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_replica_with_a_read_error_is_not_left_out(name: str, tmp_path: Path, disks: list[Path]) -> None:
    """It can be the one that must lead, and without its topic id it would become another topic."""
    for disk in disks[:2]:
        folder = replica(disk, "orders-0", 3)
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    with local_faults(disks[0] / "orders-0" / name, "EIO", range(10**6)):
        done = adopt(*nodes(disks[:2]), "-o", tmp_path / "new")
        assert (done.exit_code, "orders-0: Input/output error: run again" in done.stderr) == (2, True), done.output
        planned = adopt(*nodes(disks[:2]), "--format", "jsonl")
    assert planned.exit_code == 2
    (blocked,) = of_kind([json.loads(line) for line in planned.stdout.splitlines()], "blocked")
    assert blocked["folder"] == str(disks[0] / "orders-0")
    assert not (tmp_path / "new").exists()
    assert adopt(*nodes(disks[:2]), "-o", tmp_path / "new").exit_code == 0


def test_two_names_of_one_topic_id_are_no_cluster(tmp_path: Path, disks: list[Path]) -> None:
    """Someone copied a folder under another name: a controller would take one of them for the other."""
    replica(disks[0], "orders-0", 3)
    replica(disks[0], "copied-0", 3)
    done = adopt(*nodes(disks[:1]), "-o", tmp_path / "new")
    assert done.exit_code == 2
    assert "its topic id is that of copied: correct partition.metadata" in " ".join(done.stderr.split())
    assert not (tmp_path / "new").exists()


def test_each_folder_that_stays_out_is_named(disks: list[Path]) -> None:
    """Exit code 0 means that all data is in the new cluster."""
    replica(disks[0], "orders-0", 3)
    for name in ("clicks", "clicks-99999999999", "my clicks-0", "lost+found", ".trash"):
        (disks[0] / name).mkdir()
    left_out = of_kind(plan(*nodes(disks[:1])), "left_out")
    assert {Path(row["folder"]).name for row in left_out} == {"clicks", "clicks-99999999999", "my clicks-0"}
    assert adopt(*nodes(disks[:1])).exit_code == 1


@pytest.mark.slow
def test_a_kill_leaves_nothing_that_starts(tmp_path: Path, disks: list[Path]) -> None:
    """Half a cluster would elect leaders and truncate. Four kills at random moments."""
    for n in range(30):
        replica(disks[0], f"orders-{n}", 20)
    command = [sys.executable, "-m", "kseg", "adopt", *nodes(disks[:1]), "-o", str(tmp_path / "new")]
    runs = EndedRuns(command)
    assert runs.whole() == 0
    whole = sorted(path.name for path in (tmp_path / "new").rglob("*"))
    shutil.rmtree(tmp_path / "new")
    while runs.ended < 4:
        runs.again()
        if (tmp_path / "new").exists():
            assert sorted(path.name for path in (tmp_path / "new").rglob("*")) == whole
            shutil.rmtree(tmp_path / "new")


def test_holes_of_preallocated_indexes_stay_holes(tmp_path: Path, disks: list[Path]) -> None:
    """After a kill each partition has 20 MiB of indexes that hold nothing: 10,000 partitions would fill a disk."""
    folder = replica(disks[0], "orders-0", 3)
    with (folder / f"{0:020}.index").open("wb") as index:
        index.truncate(10 << 20)
    if (folder / f"{0:020}.index").stat().st_blocks:
        pytest.skip("the file system has no holes")
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0
    copy = next((tmp_path / "new").rglob("*.index")).stat()
    assert (copy.st_size, copy.st_blocks) == (10 << 20, 0)


def test_the_prediction_knows_where_the_topics_are(tmp_path: Path, disks: list[Path]) -> None:
    """A controller takes the topics from bootstrap.checkpoint, so no folder becomes stray. One without topics saves none."""
    replica(disks[0], "orders-0", 3)
    assert adopt(*nodes(disks[:1]), "-o", tmp_path / "new").exit_code == 0
    (bootstrap,) = (tmp_path / "new").rglob("bootstrap.checkpoint")
    predicted = CliRunner().invoke(main, ["recovery", str(bootstrap.parent)])
    assert (predicted.exit_code, "metadata log is missing" in predicted.stdout) == (0, False)
    feature = MetadataRecord("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 21})
    with bootstrap.open("wb") as out:
        write_snapshot([feature], out)
    assert "metadata log is missing" in CliRunner().invoke(main, ["recovery", str(bootstrap.parent)]).stdout


def pieces(home: Path, *ranges: tuple[int, int], epoch: int = 0) -> Path:
    """Write a partition of segments with these offsets, half-open, one batch each."""
    folder = home / "orders-0"
    folder.mkdir(parents=True)
    for first, end in ranges:
        records = [PlainRecord(n, b"key", b"%d" % n, 1_700_000_000_000) for n in range(first, end)]
        (folder / f"{first:020}.log").write_bytes(build_batch(records, partition_leader_epoch=epoch))
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}\n")
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} {ranges[0][0]}\n")
    return folder


@pytest.mark.parametrize("fewer", [((40, 60),), ((0, 20), (40, 60))], ids=["late start", "hole"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_replica_with_the_most_offsets_leads(
    fewer: tuple[tuple[int, int], ...], turned: bool, disks: list[Path]
) -> None:
    """Of one epoch and log end. Under the other one, its followers would delete or never get what only they have."""
    whole = disks[1 - turned]
    pieces(disks[turned], *fewer)
    pieces(whole, (0, 20), (20, 40), (40, 60))
    done = plan(*nodes(disks[:2]))
    partition = of_kind(done, "partition")[0]
    assert partition["leader"] == (1 if turned else 2)
    assert not partition["lost"]
    assert adopt(*nodes(disks[:2])).exit_code == 0


@pytest.mark.parametrize(
    ("leader", "lost"), [(((40, 61),), "0..39"), (((0, 20), (40, 61)), "20..39")], ids=["late start", "hole"]
)
def test_what_the_leader_does_not_have_is_lost(
    leader: tuple[tuple[int, int], ...], lost: str, disks: list[Path]
) -> None:
    """A later epoch or log end decides who leads. What only the other one has is named, with the repair that keeps it."""
    first, second = pieces(disks[0], *leader), pieces(disks[1], (0, 20), (20, 40), (40, 60))
    done = adopt(*nodes(disks[:2]))
    assert done.exit_code == 1
    told = " ".join(done.stdout.split())
    assert f"node 2 has offsets {lost}, and node 1 leads" in told
    assert f"kseg repair {first} {second} DST first" in told
    (disks[0] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    assert adopt(*nodes(disks[:2])).exit_code == (0 if lost == "20..39" else 1)  # the cleaner keeps where a log begins


def test_what_only_a_second_folder_of_a_node_has_is_lost(disks: list[Path]) -> None:
    """It is left out, as no broker starts with both: its records are named, with the repair that keeps them."""
    kept, spare = pieces(disks[0], (40, 61)), pieces(disks[1], (0, 20), (20, 40), (40, 60))
    arguments = ("--node", f"1={disks[0]},{disks[1]}")
    (partition,) = of_kind(plan(*arguments), "partition")
    assert partition["lost"] == [
        f"{spare} has offsets 0..39, and node 1 leads: the leader lacks them: kseg repair {kept} {spare} DST first"
    ]
    assert [row["folder"] for row in of_kind(plan(*arguments), "left_out")] == [str(spare)]
    shutil.rmtree(kept)
    replica(disks[0], "orders-0", 55, epoch=7)
    (partition,) = of_kind(plan(*arguments), "partition")
    assert partition["lost"] == [
        f"{spare} is left out with offsets 0..59: they are of leader epoch 0, and node 1 has epoch 7"
    ]
    shutil.rmtree(kept)
    pieces(disks[0], (0, 20), (20, 40), (40, 61))
    (partition,) = of_kind(plan(*arguments), "partition")
    assert partition["lost"] == []


def with_unreadable_end(folder: Path) -> Path:
    """Give the last batch a wrong CRC, after a clean shutdown and with indexes: the start does not read the segments."""
    logs = sorted(folder.glob("*.log"))
    for log in logs:
        log.with_suffix(".index").touch()
    logs[-1].write_bytes(flip(logs[-1].read_bytes(), logs[-1].stat().st_size - 1))
    (folder.parent / ".kafka_cleanshutdown").touch()
    return folder


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("other", [None, (0, 40), (0, 60)], ids=["alone", "shorter", "whole"])
def test_a_last_batch_that_nobody_can_read_is_no_reason_to_lead(
    other: tuple[int, int] | None, turned: bool, disks: list[Path]
) -> None:
    """A start after a clean shutdown keeps it as the log end, and consumers cannot read on."""
    damaged = with_unreadable_end(pieces(disks[turned], (0, 20), (20, 40), (40, 60)))
    disks = [disks[turned]]
    if other:
        disks = [disks[0].with_name("other"), *disks] if turned else [*disks, disks[0].with_name("other")]
        pieces(damaged.parent.with_name("other"), (0, 20), (20, 40), *([(40, 60)] if other[1] == 60 else []))
    done = adopt(*nodes(disks))
    (partition,) = of_kind(plan(*nodes(disks)), "partition")
    assert partition["log_end"] == (other[1] if other else 60)
    if other:
        assert disks[partition["leader"] - 1].name == "other"
        assert (done.exit_code, partition["lost"]) == (0, [])
    else:
        assert done.exit_code == 1
        assert (
            f"offsets 40..59 at the end of its log cannot be read: kseg repair {damaged} first" in partition["lost"][0]
        )
