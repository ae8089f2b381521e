"""The commands of `kseg doctor`, carried out as printed, end: the second run has no command that the first one had.

What is left then is named, with the reason why no command exists.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.recovery import plans_of
from kseg.findings import do_nothing
from kseg.format.log_loader.plan import EMPTIED, LogDirPlan
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.log_loader.start_harm import causes_of, is_affected
from kseg.format.storage.naming import partition_of
from tests.support import damage
from tests.support.cli import carry_out
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import SEGMENTS
from tests.support.fuzzing import cases
from tools.lab import load_cases

pytestmark = pytest.mark.slow

_ABOUT = ("ORIGIN", "expect.jsonl", "settings.json")
_IDENTITY = "cluster.id=abcdefghijklmnopqrstuv\nnode.id=1\nversion=1\ndirectory.id=AAAAAAAAAAAAAAAAAAABCg\n"
_TOPIC_ID = "version: 0\ntopic_id: ask2xr5IR-quz-SAaQsi7w"


def files_of(fixture: Path) -> list[Path]:
    return sorted(path for path in fixture.iterdir() if path.name not in _ABOUT)


FIXTURES = {path.name: files_of(path) for path in sorted((SEGMENTS.parent / "findings").iterdir())}
#: Those of log directories: with partition folders, or with checkpoints.
OF_LOG_DIRS = [
    name
    for name, files in FIXTURES.items()
    if any(one.is_dir() or one.name.endswith("-offset-checkpoint") for one in files)
]
#: Those of partitions: the names of the files begin with an offset, or a broker writes them into such a folder.
OF_PARTITIONS = [
    name
    for name, files in FIXTURES.items()
    if name not in OF_LOG_DIRS
    and all(one.name[:20].isdigit() or one.name in ("leader-epoch-checkpoint", "partition.metadata") for one in files)
]


def new_log_dir(home: Path) -> Path:
    """Make a log directory of a broker without damage: ids, a metadata log and a partition."""
    log_dir = home / "logs"
    for name, source in (
        ("__cluster_metadata-0", "4.3.0-v2-none-kraft-metadata"),
        ("valid-0", "4.3.0-v2-none-segments"),
    ):
        shutil.copytree(SEGMENTS / source, log_dir / name, ignore=shutil.ignore_patterns(*_ABOUT))
    (log_dir / "meta.properties").write_text(_IDENTITY)
    return log_dir


def add(files: list[Path], folder: Path) -> None:
    """Copy files into a folder; those that it has stay."""
    folder.mkdir(exist_ok=True)
    for path in files:
        if not (folder / path.name).exists():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)


def add_topic_ids(log_dir: Path) -> None:
    for folder in log_dir.iterdir():
        if partition_of(folder.name) and not (folder / "partition.metadata").exists():
            (folder / "partition.metadata").write_text(_TOPIC_ID)


def each_in_a_partition(log_dir: Path) -> None:
    for name in OF_PARTITIONS:
        add(FIXTURES[name], log_dir / f"{name}-0")


def logs_with_the_side_files_of_others(log_dir: Path) -> None:
    """Damaged logs in each of which is the damaged side file of another fixture."""
    with_log = [name for name in OF_PARTITIONS if any(one.suffix == ".log" for one in FIXTURES[name])]
    others = cycle(name for name in OF_PARTITIONS if name not in with_log)
    for name in with_log:
        add(FIXTURES[name] + FIXTURES[next(others)], log_dir / f"{name}-0")


def without_topic_ids(log_dir: Path) -> None:
    """Two damages in each partition: the one of the fixture, and no id of the topic."""
    each_in_a_partition(log_dir)
    for folder in log_dir.iterdir():
        if folder.is_dir() and folder.name != "__cluster_metadata-0":
            (folder / "partition.metadata").write_text(_TOPIC_ID)
    for name in OF_PARTITIONS:
        (log_dir / f"{name}-0").rename(log_dir / f"topic-{OF_PARTITIONS.index(name)}")
        (log_dir / f"topic-{OF_PARTITIONS.index(name)}" / "partition.metadata").unlink()


def all_checkpoints(log_dir: Path) -> None:
    for name in OF_LOG_DIRS:
        add(FIXTURES[name], log_dir)


def odd_entries(log_dir: Path) -> None:
    """What is in a log directory besides partitions: a foreign folder, one without files, a partition without any."""
    for name in ("backup of monday", "empty", "empty-0"):
        (log_dir / name).mkdir()
    (log_dir / "backup of monday" / "notes").write_text("x")


def a_folder_in_place_of_the_ids(log_dir: Path) -> None:
    (log_dir / "meta.properties").unlink()
    (log_dir / "meta.properties").mkdir()


def an_emptied_segment(log_dir: Path) -> None:
    """A segment in the middle without a byte, and the damaged index of aborted transactions of another one."""
    folder = log_dir / "emptied-0"
    add(files_of(SEGMENTS / "4.3.0-v2-none-transactions"), folder)
    (folder / f"{48:020}.log").write_bytes(b"")
    index = folder / f"{17:020}.txnindex"
    index.write_bytes(index.read_bytes() + b"xx")


def a_torn_metadata_log(log_dir: Path) -> None:
    """The commands for an incomplete batch after a clean shutdown are none of this log: each start truncates it."""
    log = max((log_dir / "__cluster_metadata-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-20])
    (log_dir / ".kafka_cleanshutdown").touch()


def a_torn_vote(log_dir: Path) -> None:
    vote = log_dir / "__cluster_metadata-0" / "quorum-state"
    vote.write_bytes(vote.read_bytes()[:40])


CASES: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (
        each_in_a_partition,
        logs_with_the_side_files_of_others,
        without_topic_ids,
        all_checkpoints,
        odd_entries,
        a_folder_in_place_of_the_ids,
        an_emptied_segment,
        a_torn_metadata_log,
        a_torn_vote,
    )
}


def diagnosis(home: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the steps by folder, and the summary."""
    done = kseg("doctor", "--format", "jsonl", "logs", cwd=home)
    *rows, summary = map(json.loads, done.stdout.splitlines())
    steps = {
        os.path.relpath(row["folder"], home if row["folder"][0] == "/" else "."): row
        for row in rows
        if row["kind"] == "step"
    }
    return steps, summary


def findings(home: Path) -> Iterator[tuple[str, str]]:
    """Yield the folder and the rule of each warning and error."""
    for line in kseg("validate", "--format", "jsonl", "logs", cwd=home).stdout.splitlines():
        row = json.loads(line)
        if row["kind"] == "finding" and row["severity"] != "info":
            yield os.path.normpath(os.path.dirname(row["file"])), row["rule"]


@pytest.mark.parametrize("case", CASES)
def test_the_commands_end(case: str, tmp_path: Path) -> None:
    """Each finding has a command or a reason in both runs; the second run has no command, and no decision without text."""
    log_dir = new_log_dir(tmp_path)
    CASES[case](log_dir)
    if case != "without_topic_ids":
        add_topic_ids(log_dir)
    steps, summary = diagnosis(tmp_path)
    check_each_finding_is_named(tmp_path, steps)
    carry_out(summary["commands"], tmp_path)
    steps, summary = diagnosis(tmp_path)
    check_each_finding_is_named(tmp_path, steps)
    assert summary["commands"] == []


#: Names of folders that a broker refuses, and of partitions as no broker makes them.
FOREIGN = ("old", "copy of valid-0", "valid-0.bak", "a\nb", "--old", "é\u202e", "bytes\udcff", "$(x)", "it's")
ODD = (
    "new\nline-0",
    "-dash-0",
    "bad\udcff\udcfe-0",
    "esc\x1b[31m-1",
    "rtl\u202ex-0",
    "sp ace-0",
    "quo'te\"-0",
    "back\\slash-0",
)


def _batches(home: Path) -> set[bytes]:
    """Return the batches with a right CRC of all segments."""
    found: set[bytes] = set()
    for path in home.rglob("*.log"):
        data = path.read_bytes()
        found |= {data[one.at : one.end] for one in damage.entries(data) if damage.fix_crc(data, one.at) == data}
    return found


def _damaged_partition(dice: random.Random, folder: Path) -> None:
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=shutil.ignore_patterns(*_ABOUT))
    (folder / "partition.metadata").write_text(_TOPIC_ID)
    if dice.random() < 0.8:
        log = dice.choice(sorted(folder.glob("*.log"))[:-1])
        data = bytearray(log.read_bytes())
        data[dice.randrange(61, len(data))] ^= 0xFF
        log.write_bytes(data)


@pytest.mark.parametrize("seed", range(cases(6)))
def test_no_command_adds_a_folder_that_stops_the_broker(seed: int, tmp_path: Path) -> None:
    """After the commands the broker starts, whatever the folders are named, and each valid batch is in some folder."""
    dice = random.Random(seed)
    log_dir = new_log_dir(tmp_path)
    if dice.random() < 0.5:  # a log directory without its own files
        (log_dir / "meta.properties").unlink()
        shutil.rmtree(log_dir / "__cluster_metadata-0")
        add_topic_ids(log_dir)
    for name in dice.sample(ODD, 2):
        _damaged_partition(dice, log_dir / name)
    for name in dice.sample(FOREIGN, dice.randint(1, 2)):
        folder = log_dir / name
        match dice.choice(["segments", "partition", "log dir", "nested"]):
            case "segments":
                _damaged_partition(dice, folder)
            case "partition":
                _damaged_partition(dice, folder / "valid-0")
            case "log dir":
                _damaged_partition(dice, folder / "valid-0")
                (folder / "meta.properties").write_text(_IDENTITY)
            case "nested":
                _damaged_partition(dice, folder / "deeper" / "valid-0")
    if dice.random() < 0.5:
        _damaged_partition(dice, log_dir / "parent-0")
        _damaged_partition(dice, log_dir / "parent-0" / dice.choice(["old", "inner-0"]))
    before = _batches(tmp_path)
    for _ in range(2):
        _, summary = diagnosis(tmp_path)
        carry_out(summary["commands"], tmp_path)
        partitions = [one.name for one in log_dir.iterdir() if one.is_dir()]
        assert all(map(partition_of, partitions)), partitions
    assert summary["commands"] == []
    assert kseg("doctor", "logs", cwd=tmp_path).stdout.startswith("start         yes")
    assert before <= _batches(tmp_path)


def check_each_finding_is_named(home: Path, steps: dict[str, dict[str, Any]]) -> None:
    for folder, rule in findings(home):
        assert folder in steps, f"{folder}: {rule}"
        step = steps[folder]
        named = any(rule in reason for reason in (step["text"], *step["left"])) or "metadata log" in step["text"]
        assert step["commands"] or named, f"{folder}: {rule}: {step}"
    for step in steps.values():
        assert step["commands"] or step["text"] or step["left"], step


#: A log that no repair changes: its batches have no fault, but a producer snapshot has a transaction that they lack.
WITHOUT_COMMAND = {"open-in-snapshot"}
LOSING = {
    "records": "Copy the folder before the start",
    EMPTIED: "Do not start the broker as a leader with this folder",
}


@pytest.mark.parametrize("clean", [True, False])
def test_each_harm_of_a_start_has_a_command_or_a_reason(clean: bool, tmp_path: Path) -> None:
    """`kseg recovery` sends people here for commands. What is lost is said, whatever findings the folder has, too."""
    log_dir = new_log_dir(tmp_path)
    shutil.rmtree(log_dir / "__cluster_metadata-0")  # it would not place these partitions here
    cases = {f"case{number}-0": (name, case) for number, (name, case) in enumerate(load_cases.cases())}
    for folder, (_, case) in cases.items():
        case.put(log_dir / folder)
    add_topic_ids(log_dir)
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_text("")
    steps, _ = diagnosis(tmp_path)
    without: set[str] = set()
    for plan in plans_of([str(log_dir)], BrokerStart(), do_nothing):
        if not is_affected(plan) or isinstance(plan, LogDirPlan):
            continue
        step = steps[os.path.relpath(plan.folder, tmp_path)]
        assert step["commands"] or step["text"], plan
        if "no command of kseg" in step["text"]:
            without.add(cases[os.path.basename(plan.folder)][0])
        for cause in causes_of(plan) & LOSING.keys():
            assert LOSING[cause] in step["text"] or any("kseg repair" in line for line in step["commands"]), plan
    assert without == WITHOUT_COMMAND
