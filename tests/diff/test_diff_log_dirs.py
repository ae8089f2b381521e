"""`kseg diff` of log directories has the verdicts of `kseg diff` of their partitions."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kseg.format.segment import several_processes
from tests.support import fleet
from tests.support.cli import invoke
from tests.support.cli import kseg_here as kseg
from tests.support.folders import copied, held_lock
from tests.support.read_faults import local_faults

TOPIC_IDS = "version: 0\ntopic_id: {}\n"


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    return fleet.make(tmp_path)


def diff(a: Path, b: Path, *options: object) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Return exit code, the outcome rows by partition, and the summary."""
    run = invoke("diff", "--format", "jsonl", *(*options, a, b))
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    outcomes = {f"{row['topic']}-{row['partition']}": row for row in rows if row["kind"] == "diff"}
    return run.exit_code, outcomes, rows[-1]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_partitions_have_the_verdicts_of_single_comparisons(
    jobs: int, brokers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of log directories adds the matching of partitions and nothing else."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 1)
    for other in brokers[1:]:
        code, outcomes, summary = diff(brokers[0], other, "--jobs", jobs)
        for name, row in outcomes.items():
            run = kseg("diff", "--format", "jsonl", brokers[0] / name, other / name)
            single = json.loads(run.stdout.splitlines()[-1])
            assert {key: row[key] for key in single} == single
        assert (code, summary["partitions"]) == (1, 3)
    assert diff(brokers[0], brokers[0])[0] == 0


def test_a_missing_partition_is_a_difference_unless_allowed(brokers: list[Path]) -> None:
    """Two brokers rarely have the same partitions; a missing replica must still be named."""
    a, b = brokers[0], brokers[2]
    shutil.rmtree(b / "clicks-2")
    shutil.rmtree(a / "payments-1")
    code, outcomes, summary = diff(a, b)
    assert (code, outcomes["clicks-2"]["verdict"], outcomes["payments-1"]["verdict"]) == (
        1,
        "missing-in-b",
        "missing-in-a",
    )
    assert (outcomes["clicks-2"]["a"], outcomes["clicks-2"]["b"]) == ({"path": str(a / "clicks-2")}, None)
    assert summary["verdicts"] == {"identical": 1, "missing-in-a": 1, "missing-in-b": 1}
    assert diff(a, b, "--allow", "missing-partition")[0] == 0


def several(*log_dirs: Path, jobs: int = 1) -> tuple[int, list[tuple[str, str, str, str]], dict[str, Any]]:
    """Return exit code, partition, brokers and verdict of each pair, and the summary."""
    run = invoke("diff", "--format", "jsonl", "--jobs", jobs, *log_dirs)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    pairs = [row for row in rows if row["kind"] == "diff"]
    names = [[row[name] and Path(row[name]["path"]).parent.name for name in "ab"] for row in pairs]
    found = [
        (f"{row['topic']}-{row['partition']}", *both, row["verdict"]) for row, both in zip(pairs, names, strict=True)
    ]
    return run.exit_code, found, rows[-1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_several_log_directories(jobs: int, brokers: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replica is compared until one with the same content is found, whichever is damaged or stale."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 1)
    one, two, three = brokers
    shutil.rmtree(two / "clicks-2")
    shutil.copytree(one / "clicks-2", two / "alone-0")
    code, pairs, summary = several(two, three, one, jobs=jobs)
    assert pairs == [
        ("alone-0", "broker-2", None, "missing-elsewhere"),
        ("clicks-2", "broker-3", "broker-1", "diverged"),
        ("orders-0", "broker-2", "broker-3", "damaged"),
        ("orders-0", "broker-2", "broker-1", "damaged"),
        ("orders-0", "broker-3", "broker-1", "identical"),
        ("payments-1", "broker-2", "broker-3", "damaged"),
        ("payments-1", "broker-2", "broker-1", "damaged"),
        ("payments-1", "broker-3", "broker-1", "identical"),
    ]
    assert (code, summary["partitions"]) == (1, 4)
    assert summary["verdicts"] == {"missing-elsewhere": 1, "diverged": 1, "damaged": 2}


def test_the_stale_replica_is_named(brokers: list[Path]) -> None:
    """As after an unclean election: the older leader epoch at the first difference is that of the former leader."""
    one, _, three = brokers
    for pair, stale in ((brokers[::2], "b"), ([three, one], "a")):
        _, outcomes, _ = diff(*pair)
        row = outcomes["clicks-2"]
        assert (row["stale"], row["first_difference"], row["truncation_offset"][stale]) == (stale, 30, 30)
        assert sorted(row["leader_epochs"].values()) == [1, 2]
    assert "b is stale: leader epoch 1 instead of 2" in kseg("diff", one / "clicks-2", three / "clicks-2").stdout
    lines = kseg("diff", *brokers).stdout.splitlines()
    assert "b is stale: leader epoch 1 instead of 2" in next(line for line in lines if "clicks-2" in line)
    assert [line.split()[2] for line in lines[2:5]] == [str(brokers[i]) for i in (2, 1, 1)]
    assert lines[-1] == "3 partitions: 2 damaged, 1 diverged; the worst: clicks-2"


def test_a_finding_of_a_replica_is_printed_once(brokers: list[Path]) -> None:
    """A damaged replica is compared with each other one."""
    lines = kseg("diff", brokers[1], brokers[0], brokers[2]).stderr.splitlines()
    assert len(lines) == len(set(lines)) == 2


def test_topics_with_one_name_and_two_ids_are_not_compared(brokers: list[Path]) -> None:
    """A topic that was deleted and created again has other records at the same offsets."""
    for broker, topic_id in zip(brokers, ("T6xSBAi6Q_CtzYWGz-Oqzg", "aaaaaaaaaaaaaaaaaaaaaw"), strict=False):
        (broker / "orders-0" / "partition.metadata").write_text(TOPIC_IDS.format(topic_id), encoding="utf-8")
    code, outcomes, _ = diff(brokers[0], brokers[1], "--allow", "missing-partition")
    assert (code, outcomes["orders-0"]["verdict"]) == (1, "other-topic-id")
    single = diff(brokers[0] / "orders-0", brokers[1] / "orders-0")
    assert single[:2] == (1, {"orders-0": outcomes["orders-0"]})
    (brokers[1] / "orders-0" / "partition.metadata").write_bytes(b"")
    assert diff(brokers[0], brokers[1])[1]["orders-0"]["verdict"] == "damaged"


def test_an_unreadable_topic_id_is_no_unknown_one(brokers: list[Path]) -> None:
    """The records of two topics with one name would be compared: each would seem lost."""
    for broker in brokers[:2]:
        (broker / "orders-0" / "partition.metadata").write_text(TOPIC_IDS.format("a" * 21 + "w"), encoding="utf-8")
    with local_faults(brokers[0] / "orders-0" / "partition.metadata", failing=range(99)):
        code, outcomes, _ = diff(brokers[0], brokers[1])
    assert (code, outcomes["orders-0"]["verdict"]) == (2, "unread")


def test_a_partition_that_cannot_be_read_does_not_end_the_comparison(brokers: list[Path]) -> None:
    """The other partitions are compared, and the exit code says that the comparison is incomplete."""
    (brokers[0] / "orders-0" / "00000000000000000000.log").write_bytes(b"not a segment" * 100)
    code, outcomes, _ = diff(brokers[0], brokers[2])
    assert (code, outcomes["clicks-2"]["verdict"]) == (2, "diverged")
    assert outcomes["orders-0"]["verdict"] == "unread"
    assert "not a" in outcomes["orders-0"]["reason"] or "no batch" in outcomes["orders-0"]["reason"]


def test_folders_not_in_use_are_skipped(brokers: list[Path]) -> None:
    """A deleted partition can still be on the disk for a minute."""
    (brokers[0] / "clicks-2").rename(brokers[0] / "clicks-2.0123456789abcdef-delete")
    shutil.rmtree(brokers[2] / "clicks-2")
    run = kseg("diff", brokers[0], brokers[2])
    assert run.returncode == 0
    assert "1 folder not in use" in run.stderr


def test_the_table_lists_only_partitions_that_differ(brokers: list[Path]) -> None:
    """Thousands of equal partitions are one number."""
    first, *lines = kseg("diff", brokers[0], brokers[2]).stdout.splitlines()
    assert first == f"a: {brokers[0]}, b: {brokers[2]}"
    assert [line.split()[0] for line in lines if line.startswith(" ")] == [
        "partition",
        "─" * len(lines[1].strip()),
        "clicks-2",
    ]
    assert lines[-1] == "3 partitions: 2 identical, 1 diverged"


def test_several_folders_of_one_partition(brokers: list[Path]) -> None:
    """Three replicas of one partition are compared as those of three log directories are."""
    code, pairs, summary = several(*(one / "clicks-2" for one in brokers))
    _, known, _ = several(*brokers)
    assert code == 1
    assert pairs == [pair for pair in known if "clicks-2" in pair]
    assert summary["partitions"] == 1


@pytest.mark.slow
def test_wrong_arguments(brokers: list[Path], tmp_path: Path) -> None:
    """A log directory and a partition cannot be compared, and a folder of several log directories is ambiguous."""
    assert "two partitions or log directories" in kseg("diff", brokers[0], brokers[0] / "orders-0").stderr
    assert "got one" in kseg("diff", brokers[0]).stderr
    other = kseg("diff", brokers[0] / "orders-0", brokers[1] / "orders-0", brokers[2] / "clicks-2")
    assert (other.returncode, "folders with one name TOPIC-PARTITION" in other.stderr) == (2, True)
    assert "give one log directory" in kseg("diff", tmp_path, brokers[0]).stderr
    (tmp_path / "empty").mkdir()
    run = kseg("diff", tmp_path / "empty", brokers[0])
    assert (run.returncode, "no segment found" in run.stderr) == (2, True)


@pytest.mark.skipif(sys.platform != "linux", reason="a running broker is detected on Linux only")
def test_a_running_broker_is_named(tmp_path: Path) -> None:
    """The replicas are read one after the other: a difference at the end can be what was written meanwhile."""
    for name in ("a", "b"):
        copied("4.3.0-v2-none", tmp_path / name)
    with held_lock(tmp_path / "a"):
        for place in ("", "orders-0"):
            done = invoke("diff", tmp_path / "a" / place, tmp_path / "b" / place)
            assert done.exit_code == 0
            assert done.stderr.count("a broker runs there") == 1, done.stderr
