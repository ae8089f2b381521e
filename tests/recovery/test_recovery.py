"""``kseg recovery`` predicts the actions of a real broker at its start, and changes no file."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kseg import recovery
from kseg.format.log_loader.plan import (
    ACTIONS,
    EMPTIED,
    FAILURES,
    FORGET,
    LEAVE_UNSERVED,
    LOSE_METADATA,
    MARK_DAMAGED_ID,
    MARK_FORGOTTEN,
    MARK_UNPLACED,
    REJECT_ID,
    STOP_CLEANER,
    WITH_ZEROS,
    PartitionPlan,
)
from kseg.format.log_loader.recovered_rows import count_records
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.segment import several_processes
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.producer_snapshot import packed
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import PLAIN, invoke
from tests.support.fixtures import SEGMENTS
from tests.support.metadata_logs import FEATURE, broker, controller, folder_for, place_folders, placements, write_log
from tools.lab.recovery_scenes import INDEX_INTERVAL, OFFLINE, REFUSED, SCENES, SOUND, TRANSACTIONS, Scene, log

RECORDED = Path(__file__).parents[2] / "fixtures" / "recovery" / "4.3.0.jsonl"
OUTCOMES: dict[tuple[str, bool], dict[str, Any]] = {
    (outcome["scene"], outcome["clean"]): outcome
    for outcome in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
}
METADATA = "partition.metadata"
METADATA_LOG = "__cluster_metadata-0"


def name(scene: Scene) -> str:
    return f"{scene.name}-{'clean' if scene.clean else 'unclean'}"


def placed(scene: Scene, tmp_path: Path) -> Path:
    """Copy a scene as a partition's folder."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    shutil.copyfile(SOUND / METADATA, folder / METADATA)
    scene.put(folder)
    return folder


def run(*args: object) -> Result:
    return invoke("recovery", *args)


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--format", "jsonl", *args).stdout.splitlines()]


def assert_predicted(plan: PartitionPlan, outcome: dict[str, Any]) -> None:
    """Compare the plan with the broker's actions. The new leader's epoch at the log's end can't be predicted."""
    if outcome["stray"]:
        # An empty log replaced the one that was renamed.
        assert [step.action for step in plan.steps] == ["mark-stray"]
        return
    assert not plan.fails
    assert plan.log_end is not None
    assert (plan.log_start, plan.log_end) == (outcome["log_start"], outcome["log_end"])
    assert [list(segment) for segment in plan.segments] == [list(segment) for segment in outcome["segments"]]
    assert list(plan.snapshots) == list(outcome["snapshots"])
    epochs = [list(epoch) for epoch in plan.epochs if epoch[1] < plan.log_end]
    assert epochs == [list(epoch) for epoch in outcome["epochs"]]
    indexes = {f"{base:020d}.{ending}" for base, _ in plan.segments for ending in ("index", "timeindex")}
    left = {file for file in outcome["files"] if not file.endswith(".txnindex")}
    assert left == indexes


@pytest.mark.parametrize("scene", SCENES, ids=name)
def test_the_plan_is_what_a_broker_did(scene: Scene, tmp_path: Path) -> None:
    """The actions of a real broker were recorded, so this test runs without Kafka."""
    plan = plan_partition(str(placed(scene, tmp_path)), scene.start())
    assert_predicted(plan, OUTCOMES[scene.name, scene.clean])
    assert (plan.lost.bytes > 0) is scene.loses
    assert {step.action for step in plan.steps} <= set(ACTIONS)


@pytest.mark.parametrize("scene", REFUSED, ids=name)
def test_what_a_broker_dies_of_is_refused(scene: Scene, tmp_path: Path) -> None:
    """Each error that ends a real broker is predicted."""
    plan = plan_partition(str(placed(scene, tmp_path)), scene.start())
    assert [step.action for step in plan.steps if step.action in FAILURES] == ["refuse"]


def test_every_action_has_a_scene(tmp_path: Path) -> None:
    """Each action of the table occurs in a scene."""
    done: set[str] = set()
    for scene in (*SCENES, *REFUSED):
        folder = placed(scene, tmp_path)
        plan = plan_partition(str(folder), scene.start())
        shutil.rmtree(folder)
        done |= {step.action for step in plan.steps}
    others = {
        "offline",
        "delete-folder",
        "pass-over",
        "write-directory-id",
        LEAVE_UNSERVED,
        STOP_CLEANER,
        FORGET,
        LOSE_METADATA,
        EMPTIED,
        WITH_ZEROS,
        MARK_DAMAGED_ID,
        MARK_FORGOTTEN,
        MARK_UNPLACED,
        REJECT_ID,
    }
    assert set(ACTIONS) - done == others


@pytest.mark.parametrize(
    ("content", "side_file", "code", "answer"),
    [
        (b"", "", 0, "no data would be lost in 1 partition"),
        (b"", f"{86:020}.snapshot", 1, "1 partition had records, and lost all before the start"),
        (bytes(4096), f"{86:020}.snapshot", 1, "1 partition had records, and lost all before the start"),
        (bytes(4096), "", 2, "1 partition with only zeros in the log, and nothing shows whether it had records"),
    ],
)
def test_a_log_without_a_batch(content: bytes, side_file: str, code: int, answer: str, tmp_path: Path) -> None:
    """No loss is claimed or denied without proof: a producer snapshot shows that an emptied log had records."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(content)
    if side_file:
        (folder / side_file).write_bytes(b"")
    done = run(folder)
    assert done.exit_code == code
    assert answer in " ".join(done.stdout.split())


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_without_snapshots_forgets_producers(clean: bool, tmp_path: Path) -> None:
    """After a clean shutdown only: otherwise a broker reads them from the log. The exit code shows it."""
    folder = tmp_path / "topic-0"
    shutil.copytree(TRANSACTIONS, folder, ignore=shutil.ignore_patterns("*.snapshot"))
    (step,) = [step for step in plan_partition(str(folder), BrokerStart(True)).steps if step.action == FORGET]
    assert "3 producers, 1 open transaction" in step.why
    done = run("--clean" if clean else "--unclean", folder, "--format", "jsonl")
    assert done.exit_code == clean
    assert json.loads(done.stdout.splitlines()[-1])["forgetting"] == clean


def test_a_damaged_segment_costs_all_later_ones(tmp_path: Path) -> None:
    """Bytes, records and offsets that are truncated and deleted, by a search after the damage."""
    scene = next(scene for scene in SCENES if scene.name == "bad-crc-second")
    plan = plan_partition(str(placed(scene, tmp_path)), scene.start())
    cut = next(step for step in plan.steps if step.action == "truncate-segment")
    assert (cut.file, cut.position, cut.offset) == (log(24), 357, 32)
    # Of three batches of 8 the second is damaged, and only the third can still be read.
    assert (cut.lost.bytes, cut.lost.records, cut.lost.first_offset, cut.lost.last_offset) == (714, 8, 40, 47)
    deleted = [step for step in plan.steps if step.action == "delete-segment"]
    assert [step.file for step in deleted] == [log(base) for base in (48, 72, 96, 120)]
    assert (plan.lost.bytes, plan.lost.records) == (714 + 3 * 1071 + 96, 8 + 3 * 24 + 1)
    assert (plan.lost.first_offset, plan.lost.last_offset) == (40, 120)


def test_old_messages_are_recovered_too(tmp_path: Path) -> None:
    """The log is truncated at the first damaged batch."""
    source = SEGMENTS / "2.8.2-v0v1v2-mixed"
    data = (source / log(0)).read_bytes()
    for folder, at in ((tmp_path / "a-0", 0), (tmp_path / "b-0", 3)):
        folder.mkdir()
        shutil.copyfile(SOUND / METADATA, folder / METADATA)
        place = damage.entries(data)[at]
        (folder / log(0)).write_bytes(damage.flip(data, place.end - 1))
        plan = plan_partition(str(folder), BrokerStart(clean=False))
        cut = next(step for step in plan.steps if step.action == "truncate-segment")
        assert cut.position == place.at
        assert cut.lost.bytes == len(data) - place.at


@pytest.mark.parametrize("folder", sorted(folder.name for folder in SEGMENTS.iterdir() if (folder / log(0)).exists()))
def test_logs_that_brokers_left_lose_nothing(folder: str, tmp_path: Path) -> None:
    """Every fixture after its broker's shutdown, taken as clean and as a crash; live ones are after a crash."""
    target = tmp_path / "topic-0"
    shutil.copytree(SEGMENTS / folder, target)
    shutil.copyfile(SOUND / METADATA, target / METADATA)
    live = "live" in folder
    for clean in (False,) if live else (False, True):
        plan = plan_partition(str(target), BrokerStart(clean, index_interval=INDEX_INTERVAL))
        assert not plan.lost.bytes, plan.steps
        assert not plan.fails


def test_the_metadata_log_is_recovered_at_every_start(tmp_path: Path) -> None:
    """KRaft's own log is not in the log dir's checkpoints: it is read from its first byte at each start."""
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-kraft-metadata", folder)
    plan = plan_partition(str(folder), BrokerStart(clean=True, recovery_point=1 << 40))
    assert [step.action for step in plan.steps][:1] == ["recover-segment"]
    assert not plan.lost.bytes


def make_log_dir(tmp_path: Path, *, clean: bool, metadata: bool = True) -> Path:
    log_dir = tmp_path / "logs"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-log-dir", log_dir)
    for file in ("ORIGIN", "expect.jsonl"):
        (log_dir / file).unlink()
    for number, source in enumerate((SOUND, TRANSACTIONS, SOUND)):
        shutil.copytree(source, log_dir / f"orders-{number}")
    if metadata:
        place_folders(log_dir)
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 100\norders 1 88\n")
    if clean:
        (log_dir / ".kafka_cleanshutdown").touch()
    else:
        (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return log_dir


def test_a_log_dir_is_loaded_by_its_checkpoints(tmp_path: Path) -> None:
    """Recovery points and log starts come from the log dir's checkpoints."""
    log_dir = make_log_dir(tmp_path, clean=False, metadata=False)
    recovered = [row for row in rows("--index-interval", 512, log_dir) if row.get("action") == "recover-segment"]
    first = {row["partition"]: row["file"] for row in reversed(recovered)}
    # The third is in none of the checkpoints: all of it counts as not flushed.
    assert first == {0: log(96), 1: log(77), 2: log(0)}
    (log_dir / ".kafka_cleanshutdown").touch()
    clean = rows("--index-interval", 512, log_dir)
    assert {row.get("action") for row in clean} & {"recover-segment"} == set()
    assert [row["clean"] for row in clean if row["kind"] == "log_dir"] == [True]
    overridden = rows("--unclean", "--index-interval", 512, log_dir)
    assert sum(row.get("action") == "recover-segment" for row in overridden) == 2 + 1 + 6


def test_a_partition_depends_on_its_log_dir(tmp_path: Path) -> None:
    """A single partition is planned with the files of the log dir above it."""
    log_dir = make_log_dir(tmp_path, clean=False)
    alone = rows("--index-interval", 512, log_dir / "orders-0")
    assert [row["file"] for row in alone if row.get("action") == "recover-segment"] == [log(96), log(120)]


def test_folders_of_log_dirs_are_searched_for_them(tmp_path: Path) -> None:
    """A backup of several brokers is planned broker by broker: its folders' names look like those of partitions."""
    for number in (1, 2):
        log_dir = make_log_dir(tmp_path / f"{number}", clean=False)
        text = (log_dir / "meta.properties").read_text()
        (log_dir / "meta.properties").write_text(re.sub("node.id=.*", f"node.id={number}", text))
        log_dir.rename(tmp_path / f"broker-{number}")
    last = tmp_path / "broker-2" / "orders-0" / log(96)
    last.write_bytes(last.read_bytes()[:100])
    found = rows("--unclean", tmp_path)
    assert [row["folder"] for row in found if row["kind"] == "log_dir"] == [
        str(tmp_path / "broker-1"),
        str(tmp_path / "broker-2"),
    ]
    assert found[-1]["partitions"] == 8
    assert found[-1]["losing"] == found[-1]["log_dirs"] - 1 == 1
    assert not found[-1]["failing"]
    assert run(tmp_path).exit_code == 1


def test_a_folder_without_segments_is_not_a_partition(tmp_path: Path) -> None:
    """It is named, not counted; alone it is a failure, because nothing is known of its data."""
    log_dir = make_log_dir(tmp_path, clean=True)
    (log_dir / "broker-1").mkdir()
    result = run(log_dir)
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert f"in 4 partitions; not counted, because no segment is in it: {log_dir / 'broker-1'}" in said
    alone = run(log_dir / "broker-1")
    assert alone.exit_code == 2
    assert "no partition was read" in alone.stdout
    (tmp_path / "parent" / "broker-1").mkdir(parents=True)
    assert run(tmp_path / "parent").exit_code == 2


def test_exit_codes(tmp_path: Path) -> None:
    """0, 1 and 2 mean no loss, losses, and a failed command."""
    log_dir = make_log_dir(tmp_path, clean=True)
    assert run(log_dir).exit_code == 0
    last = log_dir / "orders-0" / log(120)
    last.write_bytes(damage.flip(last.read_bytes(), 40))
    assert run(log_dir).exit_code == 0
    result = run("--unclean", log_dir)
    assert result.exit_code == 1
    assert "96 bytes, 0 records" in result.stdout
    assert run(tmp_path / "nowhere").exit_code == 2
    assert run(last).exit_code == 2
    beside = run("--unclean", tmp_path / "nowhere", log_dir)
    assert beside.exit_code == 2
    assert "96 bytes, 0 records" in beside.stdout
    (log_dir / "lost+found").mkdir()
    assert run(log_dir).exit_code == 1


@pytest.mark.parametrize("what", OFFLINE)
def test_errors_that_make_a_log_dir_go_offline(what: str, tmp_path: Path) -> None:
    """Errors of one log dir leave the others online."""
    log_dir = make_log_dir(tmp_path, clean=True, metadata=False)
    OFFLINE[what](log_dir)
    actions = [row["action"] for row in rows(log_dir) if row["kind"] == "step"]
    assert actions.count("offline") == 1
    assert run(log_dir).exit_code == 1


def steps_of(*log_dirs: Path) -> set[tuple[str, str | None]]:
    """Return (action, file) of each step that keeps data from being read or served."""
    found = {(row["action"], row["file"]) for row in rows(*log_dirs) if row["kind"] == "step"}
    return {step for step in found if step[0] in (*FAILURES, STOP_CLEANER, "pass-over", "write-directory-id")}


#: Checkpoints -> what a broker of Kafka 4.3.0 did after a RuntimeException and after an OutOfMemoryError of their reader.
AFTER_EXCEPTIONS = {
    "recovery-point-offset-checkpoint": ("pass-over", "refuse"),
    "log-start-offset-checkpoint": ("pass-over", "refuse"),
    "replication-offset-checkpoint": (LEAVE_UNSERVED, LEAVE_UNSERVED),
    "cleaner-offset-checkpoint": (STOP_CLEANER, STOP_CLEANER),
}


@pytest.mark.parametrize("name", AFTER_EXCEPTIONS)
@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("0\n1\norders 0 x\n", 0),
        ("0\n-1\n", 0),
        (f"0\n{2**31 - 1}\n", 1),
        ("0\nx\n", None),
        ("0\n9\norders 0 0\n", None),
    ],
)
def test_the_kind_of_checkpoint_error_decides(name: str, text: str, exception: int | None, tmp_path: Path) -> None:
    """recovery, doctor and validate say the same of each exception; an IOException makes the log dir go offline."""
    log_dir = make_log_dir(tmp_path, clean=True)
    (log_dir / name).write_text(text)
    action = "offline" if exception is None else AFTER_EXCEPTIONS[name][exception]
    assert steps_of(log_dir) == {(action, name)}
    doctor = map(json.loads, invoke("doctor", "--format", "jsonl", log_dir).stdout.splitlines())
    answers = {row["subject"]: row["text"] for row in doctor if row["kind"] == "answer"}
    assert answers["start"].startswith(
        "yes, but" if action == LEAVE_UNSERVED else "no: " if action in FAILURES else "yes, w"
    )
    assert ("stops the broker" in answers["damage"]) == (action in FAILURES)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("", "refuse"),
        ("version=1\nnode.id=1\n", "offline"),
        ("version=0\ncluster.id=x\n", "refuse"),
        ("junk", "refuse"),
        ("node.id=1\ncluster.id=x\n", "refuse"),
        ("version=7\n", "offline"),
        ("version=1\ncluster.id=x\nnode.id=1\n", "write-directory-id"),
    ],
)
def test_a_log_dir_names_its_cluster_and_node(text: str, action: str, tmp_path: Path) -> None:
    """An unreadable file fails the log dir; a readable one without the names ends the broker."""
    log_dir = make_log_dir(tmp_path, clean=True, metadata=False)
    (log_dir / "meta.properties").write_text(text)
    assert steps_of(log_dir) == {(action, "meta.properties")}
    (log_dir / "meta.properties").unlink()
    assert steps_of(log_dir) == {("refuse", "meta.properties")}


#: Changes to the log directory that has the metadata log, with what a broker of Kafka 4.3.0 did: it ended, or took the
#: log directory of the file offline.
OF_KRAFT: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "identity": (lambda log_dir: (log_dir / "meta.properties").write_text("version=7\n"), "refuse", "meta.properties"),
    "unassigned": (lambda log_dir: _with_id(log_dir, "A" * 22), "refuse", "meta.properties"),
    "lost": (lambda log_dir: _with_id(log_dir, "A" * 21 + "Q"), "refuse", "meta.properties"),
    "index-folder": (lambda log_dir: _folder_for(log_dir, ".index"), "offline", log(0)[:20] + ".index"),
    "timeindex-folder": (lambda log_dir: _folder_for(log_dir, ".timeindex"), "offline", log(0)[:20] + ".timeindex"),
    "txnindex-folder": (lambda log_dir: _folder_for(log_dir, ".txnindex"), "offline", log(0)[:20] + ".txnindex"),
    "snapshot-flipped": (
        lambda log_dir: _snapshot(log_dir, lambda data: damage.flip(data, len(data) - 20)),
        "refuse",
        "",
    ),
    "snapshot-empty": (lambda log_dir: _snapshot(log_dir, lambda data: b""), "refuse", ""),
    "snapshot-cut": (lambda log_dir: _snapshot(log_dir, lambda data: data[:-30]), "", ""),
    "snapshot": (lambda log_dir: _snapshot(log_dir, lambda data: data), "", ""),
}


def _with_id(log_dir: Path, directory: str) -> None:
    meta = log_dir / "meta.properties"
    meta.write_text(re.sub("directory.id=.*", f"directory.id={directory}", meta.read_text()))


def _folder_for(log_dir: Path, suffix: str) -> None:
    path = log_dir / "orders-0" / log(0).replace(".log", suffix)
    path.unlink(missing_ok=True)
    path.mkdir()


def _snapshot(log_dir: Path, change: Callable[[bytes], bytes]) -> None:
    source = next((SEGMENTS / "4.3.0-v2-none-kraft-metadata").glob("*.checkpoint"))
    (log_dir / METADATA_LOG / f"{10**6:020d}-0000000009.checkpoint").write_bytes(change(source.read_bytes()))


@pytest.mark.parametrize("name", OF_KRAFT)
def test_what_the_metadata_log_needs(name: str, tmp_path: Path) -> None:
    """A broker ends without the identity of its metadata log, and without the newest snapshot of the metadata."""
    change, action, file = OF_KRAFT[name]
    log_dir = make_log_dir(tmp_path, clean=True)
    change(log_dir)
    found = {step for step in steps_of(log_dir) if step[0] in FAILURES}
    expected = {(action, file or f"{10**6:020d}-0000000009.checkpoint")} if action else set()
    assert found == expected


def test_log_dirs_of_one_broker_share_nothing(tmp_path: Path) -> None:
    """A partition in two of them, a copied directory.id, another cluster: the broker does not start."""
    one = make_log_dir(tmp_path, clean=True, metadata=False)
    other = tmp_path / "more"
    shutil.copytree(one, other)
    assert steps_of(one) == steps_of(other) == set()
    assert steps_of(one, other) == {("refuse", "meta.properties"), ("refuse", None)}
    assert [plan.folder for plan in recovery([one, other]) if plan.fails][1:] == [
        str(other / f"orders-{number}") for number in range(3)
    ]
    for number in range(3):
        shutil.rmtree(other / f"orders-{number}")
    assert steps_of(one, other) == {("refuse", "meta.properties")}


def test_a_folder_without_segments_had_records(tmp_path: Path) -> None:
    """The high watermark shows that the log had records: a broker makes an empty log, and warns nobody."""
    log_dir = make_log_dir(tmp_path, clean=True, metadata=False)
    for path in (log_dir / "orders-0").glob("0*"):
        path.unlink()
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 0 26\n")
    assert {row["action"] for row in rows(log_dir) if row["kind"] == "step"} >= {"create-segment", "start-emptied"}
    assert f"{log_dir}/orders-0: Do not start the broker as a leader" in " ".join(
        invoke("doctor", "-v", log_dir).stdout.split()
    )
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    assert "start-emptied" not in {row["action"] for row in rows(log_dir) if row["kind"] == "step"}


def test_one_log_dir_has_the_metadata_log(tmp_path: Path) -> None:
    """A broker ends if two of them have it (``KafkaRaftServer.initializeLogDirs``)."""
    one, other = make_log_dir(tmp_path, clean=True), tmp_path / "more"
    other.mkdir()
    text = (one / "meta.properties").read_text()
    (other / "meta.properties").write_text(re.sub("directory.id=.*", "directory.id=" + "B" * 22, text))
    assert steps_of(one, other) == set()
    shutil.copytree(one / METADATA_LOG, other / METADATA_LOG)
    assert ("refuse", METADATA_LOG) in steps_of(one, other) & steps_of(other, one)


@pytest.mark.parametrize(
    ("controllers", "identified", "ends"),
    [((), True, True), ((1, 2), True, True), ((2,), True, False), ((2,), False, True)],
)
def test_a_record_that_ends_only_controllers_ends_no_broker(
    controllers: tuple[int, ...], identified: bool, ends: bool, tmp_path: Path
) -> None:
    """Node 1 starts if other nodes are the controllers; without its id, or the registrations, it may be one."""
    log_dir = make_log_dir(tmp_path, clean=True, metadata=False)
    gone = ("UnregisterBroker", 0, {"brokerId": 9, "brokerEpoch": 1})
    changes = (FEATURE, broker(1, 1), *map(controller, controllers), *placements(log_dir, 1), gone)
    write_log(folder_for(log_dir) / f"{0:020}.log", changes)
    if not identified:
        (log_dir / "meta.properties").unlink()
    stopped = [row["why"] for row in rows(log_dir) if row["kind"] == "step" and row["action"] == "refuse"]
    assert any("controllers end at the UnregisterBroker record" in why for why in stopped) == ends
    assert any("brokers end" in why for why in stopped) is False


def metadata_losses(*paths: Path) -> list[tuple[str, str]]:
    """Return (folder, why) of each log directory that can lose its topics; the exit code and the summary agree."""
    done = run(*paths, "--format", "jsonl")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    losses = [(row["folder"], row["why"]) for row in found if row.get("action") == LOSE_METADATA]
    assert done.exit_code == bool(losses)
    assert found[-1]["without_metadata"] == len(losses)
    return losses


@pytest.mark.parametrize("content", [None, (), ("0" * 20 + ".log",)], ids=["deleted", "empty", "empty-log"])
def test_a_broker_without_its_metadata_log_can_lose_all_topics(content: tuple[str, ...] | None, tmp_path: Path) -> None:
    """A combined broker and controller of Kafka 4.3.0 started with 0 topics, and renamed all folders to -stray."""
    log_dir = make_log_dir(tmp_path, clean=True)
    shutil.copytree(log_dir / METADATA_LOG, tmp_path / METADATA_LOG)
    assert metadata_losses(log_dir) == []
    shutil.rmtree(log_dir / METADATA_LOG)
    if content is not None:
        (log_dir / METADATA_LOG).mkdir()
        for name in content:
            (log_dir / METADATA_LOG / name).touch()
    ((folder, why),) = metadata_losses(log_dir)
    assert folder == str(log_dir)
    assert "renames 3 partition folders to -stray" in why
    shown = " ".join(run(log_dir).stdout.split())
    assert "the metadata log is missing: 1 log directory can lose all topics" in shown
    assert "What to do: Do not start the broker" in shown
    assert metadata_losses(log_dir / "orders-0") == []
    shutil.rmtree(log_dir / METADATA_LOG, ignore_errors=True)
    # It is in another log directory of the broker, whatever the order.
    other = tmp_path / "other"
    other.mkdir()
    text = (log_dir / "meta.properties").read_text()
    (other / "meta.properties").write_text(re.sub("directory.id=.*", "directory.id=" + "B" * 22, text))
    (tmp_path / METADATA_LOG).rename(other / METADATA_LOG)
    assert metadata_losses(log_dir, other) == metadata_losses(other, log_dir) == []
    (tmp_path / "disks").mkdir()
    for moved in (log_dir, other):
        moved.rename(tmp_path / "disks" / moved.name)
    assert metadata_losses(tmp_path / "disks") == []


def test_a_log_dir_of_zookeeper_needs_no_metadata_log(tmp_path: Path) -> None:
    """Nor does a copy of some partitions, without a log directory's files."""
    log_dir = make_log_dir(tmp_path, clean=True)
    shutil.rmtree(log_dir / METADATA_LOG)
    (log_dir / "meta.properties").write_text("version=0\ncluster.id=x\nbroker.id=1\n")
    assert metadata_losses(log_dir) == []
    for file in (*log_dir.glob("*-checkpoint"), *log_dir.glob("*.properties"), log_dir / ".kafka_cleanshutdown"):
        file.unlink()
    assert metadata_losses(log_dir) == []


def test_a_log_dir_of_nobody_is_not_loaded(tmp_path: Path) -> None:
    """Its partitions don't end a broker, and are not lost."""
    log_dir = make_log_dir(tmp_path, clean=False)
    (log_dir / "orders-0" / "notes.log").touch()
    assert steps_of(log_dir) == {("refuse", "notes.log")}
    (log_dir / "meta.properties").write_text("version=7\n")
    assert [row["kind"] for row in rows(log_dir)] == ["step", "log_dir", "summary"]


def test_folders_to_be_deleted_or_moved(tmp_path: Path) -> None:
    """Kafka's names for folders in transition; only the one to be deleted loses its files."""
    log_dir = make_log_dir(tmp_path, clean=True)
    for state in ("delete", "stray", "future"):
        (log_dir / "orders-2").rename(log_dir / f"orders-2.{'ab' * 16}-{state}")
        shutil.copytree(log_dir / "orders-0", log_dir / "orders-2")
    found = {
        row["folder"].rpartition("-")[2]: row["action"]
        for row in rows(log_dir)
        if row.get("partition") == 2 and row["kind"] == "step"
    }
    assert found == {"2": "nothing", "delete": "delete-folder", "stray": "nothing", "future": "nothing"}


def test_processes_make_the_same_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes plan partitions in parallel and return them in order."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 1)
    for number, scene in enumerate(SCENES[:12]):
        folder = tmp_path / f"topic-{number}"
        folder.mkdir()
        shutil.copyfile(SOUND / METADATA, folder / METADATA)
        scene.put(folder)
    one, two = (run("--unclean", "--jobs", jobs, "--format", "jsonl", tmp_path) for jobs in (1, 2))
    assert (one.stdout, one.exit_code) == (two.stdout, two.exit_code)
    assert len(one.stdout.splitlines()) > 12


def test_a_url_is_refused_in_one_line() -> None:
    """Recovery needs local files."""
    done = run("s3://bucket/kafka-logs")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "local log directories only" in done.stderr
    done = run("-")
    assert done.exit_code == 2
    assert done.stderr == "kseg: recovery cannot read standard input: give a folder\n"


def test_nothing_is_changed(tmp_path: Path) -> None:
    """Planning opens all files read-only."""
    log_dir = make_log_dir(tmp_path, clean=False)
    (log_dir / "orders-0" / f"{24:020d}.index").unlink()
    (log_dir / "orders-0" / f"{48:020d}.log.deleted").touch()

    def seen() -> list[tuple[str, int, bytes]]:
        files = sorted(path for path in log_dir.rglob("*") if path.is_file())
        return [(str(file), os.stat(file).st_mtime_ns, file.read_bytes()) for file in files]

    before = seen()
    run(log_dir)
    run("--clean", log_dir)
    assert seen() == before


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_no_byte_is_trusted(clean: bool, tmp_path: Path) -> None:
    """Every byte of a log, its indexes and its other side files is flipped: the result is a plan, never an exception."""
    folder = tmp_path / "topic-0"
    shutil.copytree(TRANSACTIONS, folder)
    for base in (0, 17, 48, 52):
        for file in folder.glob(f"{base:020d}.*"):
            file.unlink()
    (folder / "ORIGIN").unlink()
    (folder / "expect.jsonl").unlink()
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        for at in range(clean, len(data), 2 if file.suffix == ".log" else 1):
            file.write_bytes(damage.flip(data, at))
            plan = plan_partition(str(folder), BrokerStart(clean, index_interval=128))
            assert plan.steps
            assert plan.fails or plan.log_end is not None
        for size in range(0, len(data), 7):
            file.write_bytes(data[:size])
            assert plan_partition(str(folder), BrokerStart(clean, index_interval=128)).steps
        file.write_bytes(data)


@pytest.mark.kafka
def test_a_broker_does_what_was_predicted() -> None:
    """Sixty damaged partitions under a real broker, planned before its start and compared afterwards."""
    from dataclasses import asdict

    from tools.lab.recovery_broker import observe

    plans: dict[tuple[str, bool], PartitionPlan] = {}

    def see(scene: Scene, folder: Path) -> None:
        plans[scene.name, scene.clean] = plan_partition(str(folder), scene.start())

    outcomes = observe(see=see)
    assert len(outcomes) == len(SCENES)
    for outcome in outcomes:
        now = json.loads(json.dumps(asdict(outcome)))
        assert_predicted(plans[outcome.scene, outcome.clean], now)
        assert now == OUTCOMES[outcome.scene, outcome.clean]


@pytest.mark.kafka
def test_a_broker_dies_where_predicted() -> None:
    """A real broker ends at the predicted partition."""
    from tools.lab.recovery_broker import refused

    failing: list[str] = []

    def see(scene: Scene, folder: Path) -> None:
        if plan_partition(str(folder), scene.start()).fails:
            failing.append(scene.name)

    assert refused(REFUSED, see) == failing == [scene.name for scene in REFUSED]


@pytest.mark.kafka
def test_a_broker_drops_the_log_dirs_as_predicted() -> None:
    """A real broker takes the predicted log dirs offline."""
    from tools.lab.recovery_broker import offline

    failing: list[str] = []

    def see(name: str, log_dir: Path) -> None:
        if any(row.get("action") == "offline" for row in rows(log_dir)):
            failing.append(name)

    assert offline(OFFLINE, see) == failing == list(OFFLINE)


def test_the_losses_come_first(tmp_path: Path) -> None:
    """The first table has the partitions that lose data, the step that causes it, and what to do; -v lists the others."""
    for number in range(3):
        shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / f"orders-{number}")
    first = tmp_path / "orders-1" / log(0)
    first.write_bytes(first.read_bytes()[:-1])
    shown = run("--unclean", tmp_path).stdout
    answer, head, _, lost, advice = list(filter(str.strip, shown.splitlines()))[:5]
    assert answer.startswith(
        "partitions that a start would harm: 1 (loses records 1); `kseg doctor` also counts damage"
    )
    assert head.split() == ["folder", "consequence", "lost", "the", "broker", "would"]
    assert re.search(
        rf"orders-1 .* truncate segment {log(0)} at byte 714: .*; delete segment {log(24)} and 4 more", lost
    )
    assert advice.startswith("What to do: Before you start the broker")
    assert re.search(rf"^ delete-segment +{log(24)} and 4 more .* 97 records, offsets 24\.\.120 ", shown, re.MULTILINE)
    assert "orders-0" not in shown
    assert "2 other folders would change without a loss: -v lists the steps" in shown
    verbose = run("--unclean", "-v", tmp_path).stdout
    assert len(re.findall("^ delete-segment ", verbose, re.MULTILINE)) == 5
    assert "orders-0: loses nothing" in verbose
    assert "delete-segment" not in run("--unclean", "-q", tmp_path).stdout


def test_a_batch_without_records_loses_none(tmp_path: Path) -> None:
    """A log cleaner keeps the header of the last batch of a producer: it counts no record, and its offsets count."""
    path = tmp_path / f"{0:020}.log"
    empty = damage.batch(PLAIN.read_bytes(), b"", 1, base_offset=4, record_count=0, last_offset_delta=3)
    one = damage.batch(PLAIN.read_bytes(), damage.record(), 1, base_offset=9)
    path.write_bytes(empty + one)
    with SegmentReader(open_source(str(path))) as reader:
        batches = next(reader.windows()).batches
    assert count_records(batches) == (1, 4, 9)


def test_the_advice_for_a_file_is_its_folder_only_if_it_is_one_of_kafka(tmp_path: Path) -> None:
    """The folder of another file is not a log directory."""
    for name, advice in (
        ("notes.txt", "give a log directory"),
        ("leader-epoch-checkpoint", f"kseg recovery {tmp_path}"),
    ):
        (tmp_path / name).write_text("0\n0\n")
        done = invoke("recovery", tmp_path / name)
        assert done.exit_code == 2
        assert advice in done.stderr


def partition_of_ten(log_dir: Path, log_start: int, broken: int) -> Path:
    """Write a log with offsets 0 to 9, one per batch, of which one is damaged, and a log start offset."""
    folder = log_dir / "pay-0"
    folder.mkdir(parents=True)
    batches = [build_batch([PlainRecord(at, value=b"value")], base_offset=at) for at in range(10)]
    batches[broken] = damage.flip(batches[broken], len(batches[broken]) - 1)
    (folder / log(0)).write_bytes(b"".join(batches))
    shutil.copyfile(SOUND / METADATA, folder / METADATA)
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\npay 0 {log_start}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("log_start", "records", "first"), [(0, 9, 0), (5, 5, 5), (10, 0, None), (1000, 9, 0)], ids=str
)
def test_deleted_records_are_not_lost(log_start: int, records: int, first: int | None, tmp_path: Path) -> None:
    """A start loses what consumers could read. If the log does not reach the log start, a wrong checkpoint costs all."""
    folder = partition_of_ten(tmp_path, log_start, 2)
    (row,) = (row for row in rows(folder) if row["kind"] == "partition")
    kept = 2 if log_start == 0 else 0
    assert (row["lost_records"], row["first_lost_offset"]) == (records - kept, 3 if kept else first)


def test_a_deleted_snapshot_has_its_reason(tmp_path: Path) -> None:
    """A person who compares the plan with the folder sees why: at the log start, after the log end, or neither."""
    folder = partition_of_ten(tmp_path, 0, 9)
    (folder / log(0)).rename(folder / log(5))
    data = b"".join(build_batch([PlainRecord(at, value=b"value")], base_offset=at) for at in range(5, 10))
    (folder / log(5)).write_bytes(data)
    (folder / log(10)).touch()
    for offset in (5, 8, 20):
        (folder / f"{offset:020}.snapshot").write_bytes(packed(()))
    steps = [row for row in rows("--unclean", folder) if row.get("action") == "delete-snapshot"]
    assert {row["offset"]: row["why"] for row in steps} == {
        5: "its offset is not above the log start 5",
        20: "its offset is above the log end 10",
        8: "no segment starts there, or the file cannot be read",
    }


def test_a_number_that_is_no_offset_is_refused_in_the_plan(tmp_path: Path) -> None:
    """The plan has the reason, instead of an error: a broker stops at a name with a number above 64 bits."""
    folder = partition_of_ten(tmp_path, 5, 2)
    (folder / "18446744073709551616.log").touch()
    assert any(row.get("action") in FAILURES for row in rows(folder))
