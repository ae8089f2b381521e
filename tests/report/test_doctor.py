"""`kseg doctor`: will the broker start, what is lost, what to do next; and the commands that it prints, carried out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kseg.findings import Consequence
from kseg.format.log_loader.plan import NOTHING_LOST
from kseg.format.log_loader.start_harm import Harm
from kseg.report.doctor_report import Diagnosis
from kseg.results import Summary
from tests.support.cli import carry_out
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg
from tests.support.damage import entries, flip
from tests.support.fixtures import SEGMENTS
from tests.support.read_faults import local_faults
from tools.docs import sandbox
from tools.docs.terminal import Terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The files of the documentation: a damaged log directory, and the backup of three brokers."""
    return sandbox.make(tmp_path / "home")


def diagnosis(*arguments: str, cwd: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kseg("doctor", "--format", "jsonl", *arguments, cwd=cwd).stdout.splitlines()]


def readable_records(home: Path) -> set[tuple[str, int, str]]:
    """Return the partition, offset and value of each record that a dump reads."""
    rows = kseg("dump", "--deep", "--format", "jsonl", "kafka-logs", cwd=home).stdout.splitlines()
    records = [row for row in map(json.loads, rows) if row["kind"] == "record"]
    return {(os.path.dirname(row["file"]), row["offset"], str(row["value"])) for row in records}


@pytest.mark.parametrize("place", ["kafka-logs", ".", "with space/kafka logs", "disks/kafka-1"])
def test_the_commands_bring_the_broker_back(home: Path, place: str) -> None:
    """Carried out as printed, from any folder: the broker starts, loses no readable record, and nothing else changed."""
    if "/" in place:
        (home / place).parent.mkdir()
        (home / "kafka-logs").rename(home / place)
        (home / "kafka-logs").symlink_to(place)
        (home / "kafka-logs.backup").symlink_to(f"{place}.backup")
    cwd = home if place != "." else home / "kafka-logs"
    *_, summary = diagnosis(place, cwd=cwd)
    assert summary["needing_attention"] == {"stops the broker": 1, "loses records": 2}
    untouched = {path: path.read_bytes() for path in (home / "kafka-logs" / "__consumer_offsets-3").iterdir()}
    before = readable_records(home)
    carry_out(summary["commands"], cwd.parent, cwd=cwd)
    answers = {row["subject"]: row["text"] for row in diagnosis(place, cwd=cwd) if row["kind"] == "answer"}
    assert not answers["start"].startswith("no")
    assert answers["loss"].startswith("0 readable records")
    assert all(path.read_bytes() == content for path, content in untouched.items())
    assert readable_records(home) == before
    assert (home / "kafka-logs.backup" / "orders-0").is_dir()


def test_without_a_result_of_the_repair_nothing_changes(home: Path, tmp_path: Path) -> None:
    """Pasted where `kseg` is not found: no partition leaves the log directory, and no recovery truncates the damage."""
    shutil.copytree(home / "kafka-logs" / "orders-0", home / "kafka-logs" / "orders-1")
    segment = max((home / "kafka-logs" / "orders-1").glob("*.log"))
    os.truncate(segment, segment.stat().st_size - 1)
    (home / "kafka-logs" / ".kafka_cleanshutdown").write_text("")
    *_, summary = diagnosis("kafka-logs", cwd=home)
    assert sum("mv kafka-logs.repaired/" in line for line in summary["commands"]) == 2
    files = {path: path.read_bytes() for path in (home / "kafka-logs").rglob("*") if path.is_file()}
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mkdir", "cp", "mv", "rm"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    script = "\n".join(summary["commands"])
    done = subprocess.run(["/bin/sh"], input=script, cwd=home, env={"PATH": str(tools)}, capture_output=True, text=True)
    assert "kseg: not found" in done.stderr or "kseg: command not found" in done.stderr
    assert {path: path.read_bytes() for path in (home / "kafka-logs").rglob("*") if path.is_file()} == files


def test_the_answer_is_one_screen(home: Path) -> None:
    """24 lines of 80 columns: no scrolling at night."""
    with Terminal() as terminal:
        text = terminal.run("kseg doctor kafka-logs", home, width=80).text
    lines = text.splitlines()
    assert len(lines) <= 24, text
    assert max(map(len, lines)) <= 80
    assert "clicks-2/leader-epoch-checkpoint stops it" in lines[0]


def test_each_broker_has_its_own_folders(home: Path) -> None:
    """What is repaired stays on the disk of its log directory, and is never put into another one."""
    *_, summary = diagnosis("backup", cwd=home)
    for command in summary["commands"]:
        words = {part for word in command.split() for part in word.split("/") if part.startswith("broker-")}
        if command.startswith(("test -d ", "kseg repair ")):
            assert len({word.partition(".")[0] for word in words}) == 1, command


def test_a_stray_partition_gets_the_topic_id_of_its_topic(tmp_path: Path) -> None:
    """Without partition.metadata a broker takes the folder for a stray one; another partition of the topic has the id."""
    log_dir = tmp_path / "logs"
    for number in range(2):
        source = SEGMENTS / "4.3.0-v2-none-segments"
        shutil.copytree(source, log_dir / f"orders-{number}", ignore=shutil.ignore_patterns("ORIGIN", "*.jsonl"))
    (log_dir / "orders-1" / "partition.metadata").unlink()
    *_, summary = diagnosis("logs", cwd=tmp_path)
    assert "cp logs/orders-0/partition.metadata logs/orders-1/partition.metadata" in summary["commands"]
    carry_out(summary["commands"], tmp_path)
    assert diagnosis("logs", cwd=tmp_path)[-1]["needing_attention"] == {}


def test_log_directories_of_several_brokers(tmp_path: Path) -> None:
    """Their partitions are replicas, of which none must go: the answer is to give those of one broker at a time."""
    for node in (1, 2):
        folder = tmp_path / f"kafka-{node}"
        for number in range(3):
            shutil.copytree(
                SEGMENTS / "4.3.0-v2-none-segments", folder / f"orders-{number}",
                ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"),
            )  # fmt: skip
        identity = f"version=1\nnode.id={node}\ncluster.id=a3NlZy1sYWItMDAwMDAwMQ\n"
        (folder / "meta.properties").write_text(identity)
    done = kseg("doctor", "-v", "kafka-1", "kafka-2", cwd=tmp_path)
    assert "keep one" not in done.stdout
    assert "orders-" not in done.stdout
    assert "# before the start: kafka-2: the log directories are those of several brokers" in done.stdout


def test_a_partition_without_a_batch_is_not_replaced(tmp_path: Path) -> None:
    """The result of its repair would have no segment."""
    log_dir = tmp_path / "logs"
    folder = log_dir / "orders-0"
    shutil.copytree(
        SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl")
    )
    for path in sorted(folder.glob("*.log"))[1:]:
        path.unlink()
    log = folder / f"{0:020}.log"
    data = log.read_bytes()
    for place in entries(data):
        data = flip(data, place.end - 1)
    log.write_bytes(data)
    done = kseg("doctor", "-v", "logs", cwd=tmp_path)
    assert "kseg repair logs" not in done.stdout
    assert "no batch in it can be read" in " ".join(done.stdout.split())


def test_nothing_is_wrong(tmp_path: Path) -> None:
    """A healthy directory has exit code 0 and no commands."""
    ignored = shutil.ignore_patterns("ORIGIN", "*.jsonl")
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "logs" / "orders-0", ignore=ignored)
    done = kseg("doctor", "logs", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("start         yes, without a loss\n")
    assert "next steps" not in done.stdout


def test_a_page_beside_the_screen(home: Path) -> None:
    """--html writes the page for the incident, and the screen stays."""
    done = kseg("doctor", "kafka-logs", "--html", "incident.html", cwd=home)
    assert done.stdout.startswith("start         no: ")
    assert "3 of 5 partitions need attention" in (home / "incident.html").read_text()


def log_dir_of(home: Path, partitions: int = 2) -> Path:
    """Make a log directory with partitions of six segments of one topic."""
    ignored = shutil.ignore_patterns("ORIGIN", "*.jsonl")
    for number in range(partitions):
        shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", home / "logs" / f"orders-{number}", ignore=ignored)
    return home / "logs"


def test_a_broker_goes_on_without_a_log_directory_that_is_not_its_last(tmp_path: Path) -> None:
    """Observed with 4.3.0: a checkpoint that cannot be read takes its log directory offline, and the other one serves."""
    logs = log_dir_of(tmp_path)
    more = tmp_path / "more"
    more.mkdir()
    (logs / "orders-1").rename(more / "orders-1")
    (more / "orders-1" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n" + bytes(4))
    answers = [kseg("doctor", *paths, cwd=tmp_path).stdout.splitlines()[0] for paths in (("logs", "more"), ("more",))]
    assert "yes, without more: more/orders-1/leader-epoch-checkpoint takes it offline" in answers[0]
    assert "no: more/orders-1/leader-epoch-checkpoint stops it" in answers[1]
    (more / "__cluster_metadata-0").mkdir()
    assert "no: more/orders-1" in kseg("doctor", "logs", "more", cwd=tmp_path).stdout


@pytest.mark.parametrize("paths", [("new/node-1/d1", "new/node-1/d2"), ("new/node-1",), ("new",)])
def test_the_topics_of_a_new_cluster_are_in_a_log_directory_without_partitions(
    tmp_path: Path, paths: tuple[str, ...]
) -> None:
    """kseg adopt writes them into the first log directory of each node."""
    for number in (1, 2):
        (tmp_path / f"d{number}").mkdir()
        ids = f"node.id=1\nversion=1\ncluster.id=abcdefghijklmnopqrstuv\ndirectory.id={'A' * 20}{number}w\n"
        (tmp_path / f"d{number}" / "meta.properties").write_text(ids)
    log_dir_of(tmp_path, 1).joinpath("orders-0").rename(tmp_path / "d2" / "orders-0")
    assert kseg("adopt", "-o", "new", "d1", "d2", cwd=tmp_path).returncode == 0
    assert (tmp_path / "new" / "node-1" / "d1" / "bootstrap.checkpoint").exists()
    assert kseg("recovery", *paths, cwd=tmp_path).returncode == 0
    assert kseg("doctor", *paths, cwd=tmp_path).stdout.startswith("start         yes, without a loss")


def lost_records(cwd: Path) -> int:
    """Return the records that a start without .kafka_cleanshutdown would lose."""
    *_, summary = kseg("recovery", "--unclean", "--format", "jsonl", "logs", cwd=cwd).stdout.splitlines()
    return int(json.loads(summary)["lost_records"])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["torn", "zeros", "stray"])
def test_the_commands_lose_nothing_that_can_be_read(tmp_path: Path, kind: str, clean: bool) -> None:
    """An older segment with an incomplete end or only zeros, and two damages in one partition."""
    log_dir = log_dir_of(tmp_path)
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_text("")
    segment = log_dir / "orders-1" / "00000000000000000024.log"
    data = segment.read_bytes()
    changed = {"torn": data[:-20], "zeros": bytes(len(data)), "stray": data[:100] + b"x" + data[101:]}[kind]
    segment.write_bytes(changed)
    if kind == "stray":
        (log_dir / "orders-1" / "partition.metadata").unlink()
    before = kseg("dump", "--deep", "--format", "jsonl", "logs", cwd=tmp_path).stdout.count('"kind":"record"')
    *_, summary = diagnosis("logs", cwd=tmp_path)
    carry_out(summary["commands"], tmp_path)
    assert kseg("dump", "--deep", "--format", "jsonl", "logs", cwd=tmp_path).stdout.count('"kind":"record"') == before
    assert lost_records(tmp_path) == 0
    assert (log_dir / "orders-1" / "partition.metadata").exists()


@pytest.mark.parametrize("other", ["", "finding", "folder"])
def test_no_start_while_something_is_left(home: Path, other: str) -> None:
    """Recovery at a start truncates what was not repaired: the start is the last of all commands.

    Of a log directory without its metadata log the first step says so, also if something else is wrong with it.
    """
    shutil.rmtree(home / "kafka-logs" / "__cluster_metadata-0")
    if other == "finding":
        (home / "kafka-logs" / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 900\n")
    elif other == "folder":
        (home / "kafka-logs" / "backup").mkdir()
    *_, summary = diagnosis("kafka-logs", cwd=home)
    assert "# start the broker" not in summary["commands"]
    shown = kseg("doctor", "kafka-logs", cwd=home).stdout
    assert "# start the broker" not in shown
    assert "# before the start: kafka-logs: Do not start the broker before you know where its metadata log is" in shown


def test_places_that_are_no_path(home: Path) -> None:
    """A partition that is the current folder has commands with whole paths; standard input has none."""
    folder = home / "kafka-logs" / "orders-0"
    *_, summary = diagnosis(".", cwd=folder)
    assert any(f" && mv {folder} {home / 'kafka-logs.backup' / 'orders-0'} && " in line for line in summary["commands"])
    data = (folder / "00000000000000000048.log").read_bytes()
    *_, summary = map(
        json.loads, kseg_process("doctor", "--format", "jsonl", "-", stdin=data, cwd=home).stdout.splitlines()
    )
    assert summary["commands"] == []


def test_a_folder_is_listed_once_and_log_directories_without_a_finding_come_last() -> None:
    """A log directory that is below a folder and is given, too, is planned twice."""
    found = Diagnosis(Summary(), log_dirs={"logs/old"})
    for folder in ("logs/old", "logs/a-0", "logs/old"):
        found.harms.append(Harm(Consequence.STOPS_THE_BROKER, folder, "", NOTHING_LOST, "", frozenset(), (), False))
    assert [one.folder for one in found.folders] == ["logs/a-0", "logs/old"]


@pytest.mark.parametrize("kind", ["v2", "v1", "empty", "empty later"])
def test_leader_epochs_of_zeros_do_not_keep_a_broker_down(tmp_path: Path, kind: str) -> None:
    """A power failure zeroes the checkpoint, also of partitions whose batches have no epochs, or that have no batch."""
    log_dir = log_dir_of(tmp_path)
    folder = log_dir / "orders-1"
    if kind != "v2":
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        name = f"{500 if kind == 'empty later' else 0:020}"
        log = SEGMENTS / "0.10.2.2-v1-none" / f"{0:020}.log"
        (folder / f"{name}.log").write_bytes(log.read_bytes() if kind == "v1" else b"")
    (folder / "leader-epoch-checkpoint").write_bytes(bytes(12))
    before = [row for row in diagnosis("logs", cwd=tmp_path) if row["kind"] == "answer"]
    assert "orders-1/leader-epoch-checkpoint stops it" in before[0]["text"]
    *_, summary = diagnosis("logs", cwd=tmp_path)
    carry_out(summary["commands"], tmp_path)
    assert kseg("doctor", "logs", cwd=tmp_path).stdout.startswith("start         yes, without a loss\n")


@pytest.mark.parametrize("number", range(6))
def test_a_copy_of_another_segment_is_taken_out(tmp_path: Path, number: int) -> None:
    """`cp` over the wrong file, and its indexes: the broker starts after the commands, and has each record once."""
    log_dir = log_dir_of(tmp_path)
    (log_dir / ".kafka_cleanshutdown").write_text("")
    logs = sorted((log_dir / "orders-1").glob("*.log"))
    shutil.copy(logs[number - 1 if number else 1], logs[number])
    *_, summary = diagnosis("logs", cwd=tmp_path)
    assert "would change nothing" not in kseg("doctor", "-v", "logs", cwd=tmp_path).stdout
    before = readable_records_of(tmp_path)
    carry_out(summary["commands"], tmp_path)
    assert kseg("doctor", "logs", cwd=tmp_path).stdout.startswith("start         yes, without a ")
    rows = readable_records_of(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == set(before)


def readable_records_of(home: Path) -> list[tuple[str, int]]:
    """Return the folder and the offset of each record in the log directory, in the order of the files."""
    rows = map(json.loads, kseg("dump", "--deep", "--format", "jsonl", "logs", cwd=home).stdout.splitlines())
    return [(os.path.dirname(row["file"]), row["offset"]) for row in rows if row["kind"] == "record"]


def test_a_folder_that_cannot_be_listed_is_the_reason_for_no_prediction(tmp_path: Path) -> None:
    """The log directory was given: to ask for it would send the reader on a wrong way."""
    log_dir = tmp_path / "kafka-logs"
    for number in range(2):
        shutil.copytree(SEGMENTS / "4.3.0-v2-none", log_dir / f"orders-{number}")
    with local_faults(log_dir / "orders-1", "EACCES", range(1 << 30)):
        done = kseg("doctor", str(log_dir), cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, "start         not predicted: 1 path unreadable")


def test_the_first_task_is_that_of_the_folder_that_stops_the_broker(tmp_path: Path) -> None:
    """The first line names it. A task of another log directory stood before it, and hid it."""
    for name in ("disk-1", "disk-2"):
        shutil.copytree(SEGMENTS / "4.3.0-v2-none", tmp_path / name / "orders-0")
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\n")
    lines = kseg("doctor", "disk-1", "disk-2", cwd=tmp_path).stdout.splitlines()
    place = lines[0].removeprefix("start         no: ").removesuffix(" stops it")
    assert place in ("disk-1/orders-0", "disk-2/orders-0")
    assert next(line for line in lines if "# before the start" in line).startswith(f"  # before the start: {place}: ")
