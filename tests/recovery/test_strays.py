"""Which folders a broker does not take for its own: what the metadata log of its disks says, and when that is not enough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kseg import recovery, validate
from kseg.commands.adopt.old_metadata import control_batch
from kseg.format.internal_topics.metadata_loading import replayed
from kseg.format.log_loader.plan import STRAYS
from tests.support.cli import carry_out
from tests.support.cli import kseg_here as kseg
from tests.support.damage import entries, flip
from tests.support.fixtures import SEGMENTS
from tests.support.metadata_logs import (
    FEATURE,
    Change,
    appended,
    broker,
    controller,
    folder_for,
    place_folders,
    placements,
    topic,
    uuid,
    write_log,
)
from tests.support.metadata_logs import partition as partition_record

IDS = "version=1\ncluster.id=a3NlZy1sYWItMDAwMDAwMQ\nnode.id=1\ndirectory.id={}\n"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory with two partitions, which its metadata log places on the broker."""
    folder = _log_dir(tmp_path / "logs", 1)
    for number in range(2):
        _copy(folder, number)
    place_folders(folder)
    return folder


def _log_dir(folder: Path, directory: int) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text(IDS.format(uuid(directory)))
    return folder


def _copy(log_dir: Path, number: int) -> Path:
    target = log_dir / f"orders-{number}"
    return Path(shutil.copytree(SEGMENTS / "4.3.0-v2-none", target, ignore=shutil.ignore_patterns("ORIGIN", "*.jsonl")))


def _write_voters(log_dir: Path, nodes: Iterable[int]) -> None:
    """Write the vote of a node in a static quorum."""
    voters = [{"voterId": node} for node in nodes]
    state = {"leaderId": 1, "leaderEpoch": 1, "votedId": -1, "appliedOffset": 0, "currentVoters": voters}
    (folder_for(log_dir) / "quorum-state").write_text(json.dumps({"clusterId": "", **state, "data_version": 0}))


def _give(folder: Path, number: int) -> None:
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(number)}")


def _strays(*log_dirs: Path) -> set[str]:
    """The folders that recovery names, which are those that validate names: but for a log that lacks its end."""
    steps = {(Path(plan.folder).name, step.action) for plan in recovery(log_dirs) for step in plan.steps}
    forgotten = {name for name, action in steps if action == "mark-forgotten"}
    predicted = {name for name, action in steps if action in ("mark-unplaced", "mark-damaged-id")}
    found = [one for each in log_dirs for one in validate(each).findings if one.rule.name == "stray-folder"]
    if len(log_dirs) == 1:
        assert {Path(one.file).parent.name for one in found} == predicted
    return predicted | forgotten


def test_a_topic_that_was_created_again_and_a_partition_that_does_not_exist(log_dir: Path) -> None:
    assert _strays(log_dir) == set()
    _give(log_dir / "orders-1", 7)
    _copy(log_dir, 9)
    assert _strays(log_dir) == {"orders-1", "orders-9"}


@pytest.mark.slow
def test_folders_of_another_log_directory_and_names_before_that_of_the_metadata(log_dir: Path, tmp_path: Path) -> None:
    """validate finds them if it checks both log directories; a page without names does not show them."""
    more = _log_dir(tmp_path / "more", 2)
    _give(_copy(more, 5), 7)
    _copy(log_dir, 3).rename(log_dir / "Orders-3")
    _give(log_dir / "Orders-3", 7)
    assert _strays(log_dir, more) == {"orders-5", "Orders-3"}
    shown = kseg("validate", log_dir, more)
    assert shown.stdout.count("K703 stray-folder") == 2
    page = kseg("doctor", "--redact", "--format", "html", log_dir, more).stdout
    assert "K703" in page
    assert "The files have no errors, but a start of the broker harms its data" in page
    assert "rders" not in page


def test_a_broker_that_the_log_does_not_know_says_nothing(log_dir: Path) -> None:
    """Its metadata log is a copy of another cluster's."""
    _give(log_dir / "orders-1", 7)
    text = (log_dir / "meta.properties").read_text()
    (log_dir / "meta.properties").write_text(text.replace("node.id=1", "node.id=4"))
    assert _strays(log_dir) == set()


#: What damage leaves of the bytes of a log, from a batch on.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped bit": lambda rest: rest[:70] + bytes([rest[70] ^ 1]) + rest[71:],
    "cut in a batch": lambda rest: rest[:30],
    "zeros": lambda rest: bytes(200),
    "garbage": lambda rest: bytes(range(1, 120)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "damage"), [("registration", "flipped bit"), *(("quorum-state", damage) for damage in DAMAGES)]
)
@pytest.mark.parametrize(("others", "strays"), [((), {"orders-0", "orders-1"}), ((2,), set())])
def test_a_damaged_log_counts_only_if_no_other_controller_has_the_rest(
    log_dir: Path, others: tuple[int, ...], strays: set[str], by: str, damage: str
) -> None:
    """Observed with a node that is the only controller (4.3.0): it starts with what is before the damage."""
    nodes = (1, *others)
    registered = map(controller, nodes) if by == "registration" else ()
    changes: list[Change] = [FEATURE, broker(1, 1), *registered, *placements(log_dir, 1)]
    log = write_log(folder_for(log_dir) / f"{0:020}.log", changes, per_batch=1)
    if by == "quorum-state":
        _write_voters(log_dir, nodes)
    (log_dir / ".kafka_cleanshutdown").touch()
    assert _strays(log_dir) == set()
    data = log.read_bytes()
    at = next(one.at for one in entries(data) if b"orders" in data[one.at : one.end])
    log.write_bytes(data[:at] + DAMAGES[damage](data[at:]))
    assert _strays(log_dir) == strays
    for command in (("validate",), ("doctor", "-v"), ("recovery",)):  # the topics were not deleted
        shown = kseg(*command, log_dir).stdout
        assert "--for-another-cluster" not in shown
        assert "kseg repair PARTITION" not in shown
    if damage != "zeros":
        assert "controllers cannot load it" in kseg("repair", log.parent, log_dir.parent / "new").stderr
    if strays:
        assert "mark-forgotten" in shown
        assert "Restore the metadata log from a backup before you start" in shown
        assert "Nothing for folders" not in shown
    summary = json.loads(kseg("doctor", "--format", "jsonl", log_dir).stdout.splitlines()[-1])
    assert summary["commands"] == []


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_ends_before_the_registration_of_its_only_voter_has_lost_its_end(log_dir: Path, left: int) -> None:
    """A cut at the end of a batch is no damage that the bytes show; the empty log of a file of garbage is one."""
    _write_voters(log_dir, (1,))
    log = folder_for(log_dir) / f"{0:020}.log"
    data = write_log(log, (FEATURE, broker(1, 1), *placements(log_dir, 1)), per_batch=1).read_bytes()
    log.write_bytes(data[: entries(data)[0].end] if left else bytes(range(1, 120)))
    assert _strays(log_dir) == {"orders-0", "orders-1"}
    shown = kseg("doctor", "-v", log_dir).stdout
    assert "yes, with a loss" in shown
    assert "Restore the metadata log from a backup before you start" in shown


@pytest.mark.slow
@pytest.mark.parametrize("vote", ["", "{", "[]", "\n{}", '{"data_version":9}'])
def test_a_vote_that_cannot_be_read_stops_the_node(log_dir: Path, vote: str) -> None:
    """The remedy is about the vote: the log next to it has no damage."""
    (folder_for(log_dir) / "quorum-state").write_text(vote)
    assert "stop at its start because of quorum-state" in " ".join(kseg("recovery", log_dir).stdout.split())
    *_, step, summary = map(json.loads, kseg("doctor", "--format", "jsonl", log_dir).stdout.splitlines())
    assert "delete the file: the node writes it again" in step["text"]
    assert "metadata log" not in step["text"]
    assert summary["commands"] == []


@pytest.mark.slow
def test_an_incomplete_batch_at_the_end_of_a_metadata_log_needs_no_command(log_dir: Path) -> None:
    """A node truncates it at each start. Without lost partitions this is what a crash leaves."""
    _write_voters(log_dir, (1,))
    _give(folder_for(log_dir), 1)
    (log_dir / ".kafka_cleanshutdown").touch()
    with (folder_for(log_dir) / f"{0:020}.log").open("ab") as log:
        log.write(appended(Path(log.name).read_bytes(), ("NoOp", 0, {}))[log.tell() :][:40])
    assert _strays(log_dir) == set()
    *_, step, summary = map(json.loads, kseg("doctor", "--format", "jsonl", log_dir).stdout.splitlines())
    assert (step["left"], step["text"]) == (["truncated-tail: the start corrects it"], "")
    assert summary["commands"] == []


def test_the_remedy_of_a_damaged_topic_id_is_the_id_of_the_topic(log_dir: Path, tmp_path: Path) -> None:
    """Another id is that of a topic that was created again. One that differs in a character is no other topic's."""
    file = log_dir / "orders-1" / "partition.metadata"
    whole = file.read_text()
    file.write_text(whole[:-3] + ("x" if whole[-3] != "x" else "y") + whole[-2:])
    assert _strays(log_dir) == {"orders-1"}
    assert f"is damaged: topic orders has {whole.split()[-1]}" in kseg("validate", log_dir).stdout
    steps = json.loads(kseg("doctor", "--format", "jsonl", "logs", cwd=tmp_path).stdout.splitlines()[-1])["commands"]
    assert "cp logs/orders-0/partition.metadata logs/orders-1/partition.metadata" in steps
    carry_out(steps, tmp_path)
    assert _strays(log_dir) == set()


def test_the_id_of_another_topic_of_the_broker_takes_a_partition_offline(log_dir: Path, tmp_path: Path) -> None:
    """Observed with 4.3.0: InconsistentTopicIdException. The folder keeps its name, for its id has a partition here."""
    shutil.copytree(log_dir / "orders-0", log_dir / "others-0")
    _give(log_dir / "others-0", 7)
    place_folders(log_dir)
    assert _strays(log_dir) == set()
    whole = (log_dir / "orders-0" / "partition.metadata").read_bytes()
    _give(log_dir / "orders-0", 7)
    steps = {
        Path(plan.folder).name: step.why for plan in recovery(log_dir) for step in plan.steps if step.action in STRAYS
    }
    assert {*steps} == {"orders-0"}
    assert "is that of topic others" in steps["orders-0"]
    assert [one.finding.facts["folder"] for one in validate(log_dir).findings if one.rule.name == "stray-folder"] == [
        *steps
    ]
    done = kseg("doctor", "--format", "jsonl", "logs", cwd=tmp_path).stdout.splitlines()
    assert {"kind": "answer", "subject": "start", "text": "yes, with a loss"} in map(json.loads, done)
    carry_out(json.loads(done[-1])["commands"], tmp_path)
    assert (log_dir / "orders-0" / "partition.metadata").read_bytes() == whole
    assert kseg("recovery", log_dir).returncode == 0


def test_a_snapshot_without_its_end_is_what_a_node_loads(log_dir: Path) -> None:
    """A node does not notice that the footer is missing, and loses the topics after the cut (observed with 4.3.0)."""
    metadata = folder_for(log_dir)
    changes = [FEATURE, broker(1, 1), *placements(log_dir, 1)]
    whole = write_log(metadata / f"{0:020}.log", changes, per_batch=2)
    end = len(changes)
    snapshot = metadata / f"{end:020}-{1:010}.checkpoint"
    snapshot.write_bytes(whole.read_bytes()[: whole.read_bytes().index(b"orders")])
    whole.rename(metadata / f"{end:020}.log").write_bytes(b"")
    assert _strays(log_dir) == {"orders-0", "orders-1"}


#: Changes of the bytes of bootstrap.checkpoint, with the action for the second partition; None: the node does not start.
BOOTSTRAPS: dict[str, tuple[Callable[[bytes, int], bytes], str | None]] = {
    "whole": (lambda data, at: data, ""),
    "cut in the record of the second partition": (lambda data, at: data[: at + 30], "mark-forgotten"),
    "without that record": (lambda data, at: data[:at] + data[entries(data)[-1].at :], "mark-unplaced"),
    "wrong CRC": (lambda data, at: flip(data, at + 17), ""),
    "zeros": (lambda data, at: data[:at] + bytes(90), None),
    "without metadata.version": (lambda data, at: data[: entries(data)[1].at - 1], None),
    "empty": (lambda data, at: b"", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOOTSTRAPS)
def test_the_records_that_an_empty_log_begins_with_place_partitions(log_dir: Path, kind: str) -> None:
    """As BootstrapDirectory.read of 4.3.0 reads these files: it computes no CRC, and misses no end."""
    change, action = BOOTSTRAPS[kind]
    shutil.rmtree(folder_for(log_dir))
    file = log_dir / "bootstrap.checkpoint"
    changes = [FEATURE, *placements(log_dir, 1)]
    data = write_log(file, changes, per_batch=1).read_bytes()
    data += control_batch((4, "SnapshotFooterRecord"), {"version": 0}, len(changes), 0)
    file.write_bytes(change(data, entries(data)[-2].at))
    steps = {Path(plan.folder).name: {step.action for step in plan.steps} for plan in recovery(log_dir)}
    if action is None:
        assert "refuse" in steps["logs"]
        shown = " ".join(kseg("doctor", "-v", log_dir).stdout.split())
        assert f"no: {file} stops it" in shown
        assert "delete the file: a node uses it only for an empty log" in shown
    else:
        assert not steps["logs"] & {"refuse", "lose-metadata"}
        assert {name: steps[name] & STRAYS for name in ("orders-0", "orders-1")} == {
            "orders-0": set(),
            "orders-1": {action} - {""},
        }


def test_the_last_replica_is_eligible_but_no_longer_in_sync(tmp_path: Path) -> None:
    """With KIP-966 the set in sync is empty, and the last replica is in the list of those that can lead."""
    running = broker(1, 1)
    lost = {"partitionId": 0, "topicId": uuid(5), "isr": [], "leader": -1, "eligibleLeaderReplicas": [2]}
    changes: list[Change] = [
        FEATURE, (running[0], running[1], {**running[2], "fenced": False}), broker(2, 2),
        topic("orders", 5), partition_record(5, [2]), ("PartitionChange", 2, lost),
    ]  # fmt: skip
    image = replayed([str(write_log(folder_for(tmp_path) / f"{0:020}.log", changes))]).image
    assert image is not None
    assert image.last_replicas() == {2: 1}


def test_a_folder_that_is_being_deleted_has_no_findings_of_its_checkpoint(log_dir: Path) -> None:
    """A broker empties it when it starts to delete the partition."""
    deleted = log_dir / f"orders-1.{'0' * 32}-delete"
    (log_dir / "orders-1").rename(deleted)
    (deleted / "leader-epoch-checkpoint").write_text("0\n0\n")
    (log_dir / ".kafka_cleanshutdown").touch()
    assert [one.rule.name for one in validate(log_dir).findings if str(deleted) in one.file] == []
