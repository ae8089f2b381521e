"""`kseg lag` combines the offsets of groups with the log ends of their partitions."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kseg import lag as kseg_lag
from kseg.format.internal_topics.effective_state import effective
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage, group_logs
from tests.support.cli import ROOT, SEGMENTS
from tests.support.cli import kseg_here as kseg
from tests.support.commits import Commits, commit_key, commit_value, write_commits
from tests.support.group_histories import MINUTE, START, Simulated


def write_log(folder: Path, first: int, end: int) -> Path:
    """Write a partition with the offsets ``first`` to ``end`` (exclusive), the last ones in a segment of their own."""
    folder.mkdir(parents=True)
    middle = (first + end) // 2
    for start, stop in ((first, middle), (middle, end)):
        records = [PlainRecord(offset, b"k", b"v", 1_000) for offset in range(start, stop)]
        (folder / f"{start:020}.log").write_bytes(build_batch(records, base_offset=start) if records else b"")
    return folder


def lag(*arguments: object, code: int = 0) -> dict[tuple[str, str, int], dict[str, Any]]:
    run = kseg("lag", "--format", "jsonl", *arguments)
    assert run.returncode == code, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return {(row["group"], row["topic"], row["partition"]): row for row in rows}


def test_the_last_commit_counts_and_tombstones_remove(tmp_path: Path) -> None:
    """As after loading the coordinator: earlier commits and deleted groups do not appear."""
    write_log(tmp_path / "orders-0", 0, 10)
    write_commits(
        tmp_path / "__consumer_offsets-0",
        {("g", "orders", 0): commit_value(1), ("gone", "orders", 0): commit_value(2)},
        {("g", "orders", 0): commit_value(4, "by hand", committed=5_000), ("gone", "orders", 0): None},
    )
    (row,) = lag(tmp_path).values()
    assert (row["committed_offset"], row["log_end_offset"], row["lag"], row["status"]) == (4, 10, 6, "ok")
    assert (row["metadata"], row["commit_timestamp"], row["high_watermark"]) == ("by hand", 5_000, None)


def test_a_commit_of_an_unknown_version_is_not_missing_without_a_word(tmp_path: Path) -> None:
    """A newer broker can write one. The other groups are listed, and the exit code is 1, also where offsets are reset."""
    write_log(tmp_path / "orders-0", 0, 10)
    newer = (77).to_bytes(2) + commit_value(1)[2:]
    write_commits(
        tmp_path / "__consumer_offsets-0", {("g", "orders", 0): commit_value(1), ("newer", "orders", 0): newer}
    )
    assert list(lag(tmp_path, code=1)) == [("g", "orders", 0)]
    for form in ("table", "reset-csv"):
        run = kseg("lag", "--format", form, tmp_path)
        assert run.returncode == 1
        assert "group newer: the commit of orders-0 is left out: version 77 is unknown to Kafka 4.3" in run.stderr


@pytest.mark.slow
def test_commits_that_kafka_cannot_load_are_not_missing_without_a_word(tmp_path: Path) -> None:
    """Bytes after a key or a value are no reason to leave out a commit: brokers ignore them. A cut key is reported."""
    write_log(tmp_path / "orders-0", 0, 10)
    folder = write_commits(tmp_path / "__consumer_offsets-0", {})
    key, value = commit_key("g", "orders", 0), commit_value(4)
    log = folder / f"{0:020}.log"
    for pair in ((key + b"more", value), (key, value + b"more")):
        log.write_bytes(build_batch([PlainRecord(0, *pair, 1_000)], base_offset=0))
        (row,) = lag(tmp_path).values()
        assert (row["committed_offset"], row["lag"]) == (4, 6)
    log.write_bytes(build_batch([PlainRecord(0, key[:-1], value, 1_000)], base_offset=0))
    run = kseg("lag", "--format", "jsonl", tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    assert "internal-record at byte 0" in run.stderr
    reported: list[object] = []
    for damaged in (value[:-3], b""):
        log.write_bytes(build_batch([PlainRecord(0, key, damaged, 1_000)], base_offset=0))
        run = kseg("lag", "--format", "jsonl", tmp_path)
        assert (run.returncode, run.stdout) == (1, "")
        assert "group g: the commit of orders-0 is left out: " in run.stderr
        assert not list(kseg_lag(tmp_path, report=lambda file, finding: reported.append(file)))
    assert reported == [str(log)] * 2


@pytest.mark.slow
def test_commits_of_both_versions_of_a_key(tmp_path: Path) -> None:
    """The offset of a group that last committed to Kafka before 0.9 is not missing, and has no second row."""
    write_log(tmp_path / "orders-0", 0, 10)
    folder = write_commits(tmp_path / "__consumer_offsets-0", {})
    log = folder / f"{0:020}.log"
    old = PlainRecord(0, group_logs.commit_key("g", "orders", 0, version=0), group_logs.commit_value(0, 3), 1_000)
    log.write_bytes(build_batch([old], base_offset=0))
    assert [row["committed_offset"] for row in lag(tmp_path).values()] == [3]
    new = PlainRecord(1, commit_key("g", "orders", 0), commit_value(9), 1_000)
    log.write_bytes(build_batch([old, new], base_offset=0))
    assert kseg("lag", "--format", "jsonl", tmp_path).stdout.count('"committed_offset":9') == 1
    assert [row["committed_offset"] for row in lag(tmp_path).values()] == [9]


@pytest.mark.slow
def test_the_latest_leader_epoch_decides_which_replica_is_used(tmp_path: Path) -> None:
    """A former leader truncates the records that only it has. Epochs are those of batches, or of the checkpoint."""
    commits: list[Commits] = [{("g", "orders", 0): commit_value(offset)} for offset in (1, 5, 99, 98)]
    write_commits(tmp_path / "old" / "__consumer_offsets-0", *commits)
    write_log(tmp_path / "old" / "orders-0", 0, 20)
    write_commits(tmp_path / "new" / "__consumer_offsets-0", *commits[:1])
    with (tmp_path / "new" / "__consumer_offsets-0" / f"{0:020}.log").open("ab") as log:
        record = PlainRecord(1, commit_key("g", "orders", 0), commit_value(5), 1_000)
        log.write(build_batch([record], base_offset=1, partition_leader_epoch=1))
    led = write_log(tmp_path / "new" / "orders-0", 0, 10)
    (led / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 10\n")  # its leader has not written yet
    for dirs in (("old", "new"), ("new", "old")):
        (row,) = lag(*(tmp_path / name for name in dirs)).values()
        assert (row["committed_offset"], row["log_end_offset"], row["status"]) == (5, 10, "ok")
        assert row["replica"] == str(led)
        done = kseg("lag", "--history", "g", "--format", "jsonl", *(tmp_path / name for name in dirs))
        (end,) = (row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "lag-partition")
        assert (end["committed_offset"], end["log_end_offset"], end["status"]) == (5, 10, "ok")


def test_an_empty_newest_segment_hides_no_leader_epoch(tmp_path: Path) -> None:
    """A leader rolls its log without a record after it. Without a checkpoint the segments before have the epoch."""
    write_commits(tmp_path / "b" / "__consumer_offsets-0", {("g", "orders", 0): commit_value(5)})
    write_log(tmp_path / "a" / "orders-0", 0, 20)
    led = tmp_path / "b" / "orders-0"
    led.mkdir()
    records = [PlainRecord(offset, b"k", b"v", 1_000) for offset in range(10)]
    (led / f"{0:020}.log").write_bytes(build_batch(records, base_offset=0, partition_leader_epoch=3))
    (led / f"{10:020}.log").touch()
    (row,) = lag(tmp_path / "a", tmp_path / "b").values()
    assert (row["log_end_offset"], row["replica"]) == (10, str(led))


@pytest.mark.slow
def test_an_expired_commit_is_one_at_that_time(tmp_path: Path) -> None:
    """--at before the expiry: it is in the lines for a reset. After it: it is not, also if its partition is missing."""
    write_log(tmp_path / "orders-0", 0, 10)
    expiring = commit_value(4, committed=1_000, expires=3_000)
    write_commits(tmp_path / "__consumer_offsets-0", {("g", "orders", 0): expiring, ("g", "absent", 0): expiring})

    def statuses(*arguments: object) -> list[str]:
        return [row["status"] for row in lag(*arguments, tmp_path).values()]

    def reset(*arguments: object) -> str:
        return kseg("lag", "--format", "reset-csv", *arguments, tmp_path).stdout

    assert statuses() == statuses("--at", "1970-01-01T00:00:03Z") == ["expired"] * 2
    assert statuses("--at", "1970-01-01T00:00:02Z") == ["missing-partition", "ok"]
    at = datetime.fromtimestamp(2, UTC)
    assert [one.status for one in kseg_lag(tmp_path, at=at)] == ["missing-partition", "ok"]
    assert reset() == ""
    assert reset("--at", "1970-01-01T00:00:02Z") == "g,absent,0,4\ng,orders,0,4\n"
    assert "left out because of their status: 2 expired" in kseg("lag", "--format", "reset-csv", tmp_path).stderr
    history = ("lag", "--history", "g", "--format", "jsonl", tmp_path, "--until")
    for until, status in (("1970-01-01T00:00:02Z", "ok"), ("1970-01-01T00:00:04Z", "expired")):
        rows = [json.loads(line) for line in kseg(*history, until).stdout.splitlines()]
        assert [row["status"] for row in rows if row["kind"] == "lag-partition" and row["topic"] == "orders"] == [
            status
        ]


def test_a_lag_at_a_time_is_that_of_the_log_of_that_time(tmp_path: Path) -> None:
    """Records that came later are no lag, as in a history until then. A log that has lost its end has an unknown one."""
    one = Simulated(tmp_path)
    for minute in range(6):
        one.append(minute * MINUTE, 10)
        one.append(minute * MINUTE, 10, 1)
        one.append(minute * MINUTE, 10, 2)
        one.commit(minute * MINUTE + 1_000, 7 * minute)
        one.commit(minute * MINUTE + 1_000, 10 * minute + 12, 1)
        one.commit(minute * MINUTE + 1_000, 99, 2)
    one.write()

    def found(at: int) -> dict[int, tuple[int | None, int | None]]:
        rows = lag("--at", START + at, tmp_path, code=1)
        return {partition: (row["log_end_offset"], row["lag"]) for (_, _, partition), row in rows.items()}

    for minute in range(6):
        end, committed = 10 * (minute + 1), min(10 * minute + 12, 62)
        known = None if committed > 60 else committed
        assert found(minute * MINUTE + 2_000) == {
            0: (end, end - 7 * minute), 1: (known, known and 0), 2: (None, None)
        }  # fmt: skip
        run = kseg("lag", "--history", "g", "--until", START + minute * MINUTE + 2_000, "--format", "jsonl", tmp_path)
        ends = {row["partition"]: row["lag"] for row in map(json.loads, run.stdout.splitlines()) if "status" in row}
        assert ends == {partition: lag for partition, (_, lag) in found(minute * MINUTE + 1_999).items()}
    log = tmp_path / "orders-0" / f"{0:020}.log"
    records = [PlainRecord(offset, b"k", b"v", START + 4 * MINUTE) for offset in range(40, 50)]
    log.with_name(f"{40:020}.log").write_bytes(build_batch(records, base_offset=40))
    log.unlink()  # retention has deleted the records of the first minutes
    assert found(2 * MINUTE + 2_000)[0] == (None, None)
    assert found(4 * MINUTE + 2_000)[0] == (50, 22)


@pytest.mark.slow
def test_a_commit_that_may_be_of_another_time_is_not_reset(tmp_path: Path) -> None:
    """The cleaner may have removed the commit of that time: the status says so, also if the partition is missing."""
    write_log(tmp_path / "orders-0", 0, 10)
    folder = write_commits(tmp_path / "__consumer_offsets-0", {})
    commits = ((1_000, 4), (3_000, 7))
    (folder / f"{0:020}.log").write_bytes(
        b"".join(
            build_batch(
                [PlainRecord(2 * i + partition, commit_key("g", "orders", partition), commit_value(offset), time)]
            )
            for i, (time, offset) in enumerate(commits)
            for partition in range(2)
        )
    )
    assert [row["status"] for row in lag("--at", "1970-01-01T00:00:02Z", tmp_path).values()] == [
        "ok",
        "missing-partition",
    ]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 4\n")
    found = lag("--at", "1970-01-01T00:00:02Z", tmp_path, code=1)
    assert [row["status"] for row in found.values()] == ["compacted", "compacted"]
    run = kseg("lag", "--format", "reset-csv", "--at", "1970-01-01T00:00:02Z", tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    assert "left out because of their status: 2 compacted" in run.stderr


def test_a_group_whose_earlier_commit_the_cleaner_removed_is_not_missing(tmp_path: Path) -> None:
    """Of a cleaned log only the later commit is left: the offset of that time is unknown, and the exit code says so."""
    write_log(tmp_path / "orders-0", 0, 10)
    folder = write_commits(tmp_path / "__consumer_offsets-0", {})
    late = [(commit_key("g", "orders", 0), commit_value(7)), (commit_key("dropped", "orders", 0), None)]
    late.append((commit_key("new", "orders", 0), commit_value(9)))
    (folder / f"{0:020}.log").write_bytes(
        b"".join(build_batch([PlainRecord(at, *pair, 3_000)], base_offset=at) for at, pair in enumerate(late, 5))
    )
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 7\n")
    at = ("--at", "1970-01-01T00:00:02Z", tmp_path)
    found = lag(*at, code=1)
    assert [group for group, *_ in found] == ["dropped", "g"]
    assert {(row["status"], row["committed_offset"], row["lag"]) for row in found.values()} == {
        ("compacted", None, None)
    }
    target = tmp_path / "map.jsonl"
    target.write_text('{"topic":"orders","partition":0,"src_first":0,"src_last":9,"dst_first":100}')
    for options in ((), ("--offset-map", target)):
        run = kseg("lag", "--format", "reset-csv", *options, *at)
        assert (run.returncode, run.stdout) == (1, "")
        assert run.stderr == "kseg: left out because of their status: 2 compacted\n"
    assert [(one.commit.offset, one.lag) for one in kseg_lag(tmp_path, at=datetime.fromtimestamp(2, UTC))] == [
        (None, None)
    ] * 2


def meanwhile(monkeypatch: pytest.MonkeyPatch, broker: Callable[[], object]) -> None:
    """Let a broker change the log directory after the segments were listed, and before the commits are read."""

    def read_late(topic: str, *arguments: Any, **options: Any) -> Any:
        if topic == "__consumer_offsets":
            broker()
        return effective(topic, *arguments, **options)

    monkeypatch.setattr("kseg.commands.lag.committed_offsets.effective", read_late)


def write_times(folder: Path, first: int) -> tuple[Path, bytes]:
    """Write commits of seconds 1 and 3 and, in a newer segment, 4. Return the first segment, and what a cleaner leaves."""
    folder.mkdir()
    batches = [
        build_batch([PlainRecord(first + i, commit_key(group, "orders", 0), commit_value(offset), time)])
        for i, (group, offset, time) in enumerate((("g", 4, 1_000), ("g", 7, 3_000), ("other", 8, 4_000)))
    ]
    (folder / f"{first:020}.log").write_bytes(batches[0] + batches[1])
    (folder / f"{first + 2:020}.log").write_bytes(batches[2])
    return folder / f"{first:020}.log", batches[1]


@pytest.mark.parametrize("trace", ["cleaner-offset-checkpoint", "0.log.deleted", "2.log.cleaned", "2.log.swap"])
def test_a_group_whose_earlier_commit_is_removed_meanwhile_is_not_missing(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner replaces segments before it writes its checkpoint. Until then its files show that it is at work."""
    write_log(tmp_path / "orders-0", 0, 10)
    log, left = write_times(tmp_path / "__consumer_offsets-0", 0)

    def clean() -> None:
        log.with_suffix(".log.cleaned").write_bytes(left)
        log.with_suffix(".log.cleaned").rename(log)
        if trace == "cleaner-offset-checkpoint":
            (tmp_path / trace).write_text("0\n1\n__consumer_offsets 0 2\n")
        else:
            log.with_name(trace.rjust(len(trace) + 19, "0")).touch()

    meanwhile(monkeypatch, clean)
    (one,) = kseg_lag(tmp_path, at=datetime.fromtimestamp(2, UTC))
    assert (one.commit.group, one.commit.offset, one.status) == ("g", None, "compacted")


def test_a_segment_that_retention_deletes_is_no_sign_of_a_cleaner(tmp_path: Path) -> None:
    """It is before the first one: the commit of that time is known, and the exit code is 0."""
    write_log(tmp_path / "orders-0", 0, 10)
    log, _ = write_times(tmp_path / "__consumer_offsets-0", 20)
    log.with_name(f"{10:020}.log.deleted").touch()
    (row,) = lag("--at", "1970-01-01T00:00:02Z", tmp_path).values()
    assert (row["committed_offset"], row["status"]) == (4, "ok")


def test_a_log_that_rolls_before_the_commits_are_read_has_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is not reported as reset, nor with too small a lag, because its log was listed before it committed."""
    log = write_log(tmp_path / "orders-0", 0, 10)
    commits = write_commits(tmp_path / "__consumer_offsets-0", {("g", "orders", 0): commit_value(9)})
    write_log(tmp_path / "gone-0", 0, 10)

    def roll() -> None:
        records = [PlainRecord(offset, b"k", b"v", 1_000) for offset in range(10, 20)]
        (log / f"{10:020}.log").write_bytes(build_batch(records, base_offset=10))
        (log / f"{0:020}.log").unlink()
        (tmp_path / "gone-0").rename(tmp_path / f"gone-0.{'0' * 32}-delete")
        places = [("g", "orders", 0), ("late", "orders", 0), ("g", "gone", 0)]
        records = [
            PlainRecord(1 + i, commit_key(*place), commit_value(15 - 6 * i), 1_000) for i, place in enumerate(places)
        ]
        with (commits / f"{0:020}.log").open("ab") as out:
            out.write(build_batch(records, base_offset=1))

    meanwhile(monkeypatch, roll)
    found = {(one.commit.group, one.commit.topic): one for one in kseg_lag(tmp_path)}
    assert [(one.lag, one.log.log_start, one.status) for one in found.values() if one.log] == [
        (5, 5, "ok"),
        (11, 5, "ok"),
    ]
    assert found["g", "gone"].status == "missing-partition"


def test_of_equal_leader_epochs_the_highest_end_is_used(tmp_path: Path) -> None:
    """Brokers have different partitions and followers that lag; one of them has the newest commits."""
    for broker, end in (("a", 8), ("b", 10), ("c", 9)):
        write_log(tmp_path / broker / "orders-0", 0, end)
    old, new = {("g", "orders", 0): commit_value(3)}, {("g", "orders", 0): commit_value(7)}
    write_commits(tmp_path / "a" / "__consumer_offsets-3", old, new)
    write_commits(tmp_path / "b" / "__consumer_offsets-3", old)
    write_commits(tmp_path / "c" / "__consumer_offsets-4", {("h", "orders", 0): commit_value(9)})
    (tmp_path / "b" / "replication-offset-checkpoint").write_text("0\n1\norders 0 9\n", encoding="utf-8")
    found = lag(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert {place[0]: row["lag"] for place, row in found.items()} == {"g": 3, "h": 1}
    row = found["g", "orders", 0]
    assert (row["replica"], row["high_watermark"]) == (str(tmp_path / "b" / "orders-0"), 9)


def test_of_many_partitions_the_faults_and_the_largest_lags_are_listed(tmp_path: Path) -> None:
    """Neither hides the other: half of the rows are for each, or what the other half leaves."""
    commits = {}
    for number in range(80):
        write_log(tmp_path / f"orders-{number}", 0, 60)
        commits["g", "orders", number] = commit_value(100 if number < 40 else number - 40)
    write_commits(tmp_path / "__consumer_offsets-0", commits)
    lines = [line.split() for line in kseg("lag", tmp_path).stdout.splitlines() if "orders-" in line]
    assert [line[5] for line in lines] == ["after-log-end"] * 8 + ["ok"] * 8
    assert [int(line[4]) for line in lines[8:]] == [*range(60, 52, -1)]
    for number in range(2, 40):
        commits["g", "orders", number] = commit_value(60)
    shutil.rmtree(tmp_path / "__consumer_offsets-0")
    write_commits(tmp_path / "__consumer_offsets-0", commits)
    done = kseg("lag", tmp_path)
    lines = [line.split() for line in done.stdout.splitlines() if "orders-" in line]
    assert [line[5] for line in lines] == ["after-log-end"] * 2 + ["ok"] * 14
    assert "64 more partitions: -v lists them" in done.stdout


def test_offsets_that_have_no_place_in_a_log(tmp_path: Path) -> None:
    """The status names the reason, and offsets outside of a log set the exit code."""
    write_log(tmp_path / "orders-0", 10, 20)
    write_log(tmp_path / "moved-0", 0, 5)
    write_log(tmp_path / "dropped-0.0123456789abcdef0123456789abcdef-delete", 0, 5)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nmoved 0 4\n", encoding="utf-8")
    expected = {
        ("g", "orders", 0): ("ok", commit_value(20)),
        ("early", "orders", 0): ("before-log-start", commit_value(9)),
        ("early", "moved", 0): ("before-log-start", commit_value(3)),
        ("late", "orders", 0): ("after-log-end", commit_value(21)),
        ("old", "orders", 0): ("expired", commit_value(15, expires=2_000)),
        ("g", "absent", 0): ("missing-partition", commit_value(1)),
        ("g", "dropped", 0): ("deleted-topic", commit_value(1)),
    }
    write_commits(tmp_path / "__consumer_offsets-0", {place: value for place, (_, value) in expected.items()})
    found = lag(tmp_path, code=1)
    assert {place: row["status"] for place, row in found.items()} == {
        place: status for place, (status, _) in expected.items()
    }
    assert (found["late", "orders", 0]["lag"], found["g", "absent", 0]["lag"]) == (-1, None)
    assert lag(tmp_path, "--group", "g")


def test_an_offset_in_tiered_storage_is_in_its_log(tmp_path: Path) -> None:
    """A broker of 4.3 has the log start before its first local segment in the checkpoint, and leader epochs from there."""
    shutil.copytree(ROOT / "fixtures" / "tiered" / "reference" / "logs", tmp_path, dirs_exist_ok=True)
    write_commits(tmp_path / "__consumer_offsets-0", {("g", "tiered", 0): commit_value(5, committed=START)})
    row = lag(tmp_path)["g", "tiered", 0]
    assert (row["log_start_offset"], row["log_end_offset"], row["lag"], row["status"]) == (0, 28, 23, "ok")
    run = kseg("lag", "--history", "g", "--format", "jsonl", tmp_path)
    (end,) = (one for one in map(json.loads, run.stdout.splitlines()) if one["kind"] == "lag-partition")
    assert (end["lag"], end["lag_ms"], end["status"]) == (23, None, "ok")
    epochs = tmp_path / "tiered-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 10\n2 14\n")  # segments were deleted, then the broker was killed
    assert lag(tmp_path, code=1)["g", "tiered", 0]["status"] == "before-log-start"
    epochs.unlink()
    assert lag(tmp_path, code=1)["g", "tiered", 0]["log_start_offset"] == 10


def test_the_cluster_metadata_tells_deleted_from_missing(tmp_path: Path) -> None:
    """A partition on a broker that was not given is missing; a topic that the controller does not know was deleted."""
    source = SEGMENTS / "4.3.0-v2-none-internal-cluster-metadata"
    shutil.copytree(source, tmp_path / "__cluster_metadata-0")
    commits = {("g", "plain", 7): commit_value(1), ("g", "tiered", 0): commit_value(1)}
    write_commits(tmp_path / "__consumer_offsets-0", commits)
    found = lag(tmp_path)
    assert found["g", "plain", 7]["status"] == "missing-partition"
    assert found["g", "tiered", 0]["status"] == "deleted-topic"


@pytest.mark.parametrize("lost", ["start", "batch"])
def test_a_topic_that_a_part_of_the_metadata_lacks_was_not_deleted(lost: str, tmp_path: Path) -> None:
    """Its record can be among the lost ones: the offset is given back, and the exit code and a line name the damage."""
    folder = tmp_path / "__cluster_metadata-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-internal-cluster-metadata", folder)
    log, (snapshot,) = folder / f"{0:020}.log", folder.glob("*.checkpoint")
    data = log.read_bytes()
    if lost == "batch":
        log.write_bytes(damage.flip(data, len(data) - 10))
    else:
        snapshot.unlink()
        first = damage.entries(data)[20].at
        log.rename(log.with_name(f"{damage.get(data, first, 'base_offset'):020}.log")).write_bytes(data[first:])
    write_commits(tmp_path / "__consumer_offsets-0", {("g", "tiered", 0): commit_value(1)})
    rule = {"start": "metadata-snapshot-missing", "batch": "crc-mismatch"}[lost]
    run = kseg("lag", "--format", "reset-csv", tmp_path)
    assert (run.returncode, run.stdout, rule in run.stderr) == (1, "g,tiered,0,1\n", True), run.stderr
    assert "lag needs the log directories of all brokers: these lack the partitions of 1 commit" in run.stderr
    assert "__consumer_offsets is damaged" not in run.stderr
    assert lag(tmp_path, code=1)["g", "tiered", 0]["status"] == "missing-partition"
    reported: list[str] = []
    (found,) = kseg_lag(tmp_path, report=lambda path, finding: reported.append(finding.rule))
    assert (found.status, reported) == ("missing-partition", [rule])


def test_a_topic_created_again_is_another_topic(tmp_path: Path) -> None:
    """Kafka 4 stores the topic id with the offset; the log of a later topic with that name has other offsets."""
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets", tmp_path / "__consumer_offsets-0")
    write_log(tmp_path / "plain-0", 0, 44)
    metadata = tmp_path / "plain-0" / "partition.metadata"
    for topic_id, statuses in (
        ("9tTEN1jcSP2qiuuJ4LB3xg", {"ok"}),
        ("aaaaaaaaaaaaaaaaaaaaaw", {"ok", "other-topic-id"}),
    ):
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}\n", encoding="utf-8")
        rows = [row for (_, topic, _), row in lag(tmp_path).items() if topic == "plain"]
        assert {row["status"] for row in rows} == statuses  # the transactional commit lacks a topic id
    answers = json.loads((SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets" / "committed-offsets.json").read_text())
    committed = {
        (row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in lag(tmp_path).values()
    }
    for answer in answers:
        assert committed[answer["group"], answer["topic"], answer["partition"]] == answer["offset"]


def test_a_replica_of_a_deleted_topic_does_not_lead_the_topic_of_its_name(tmp_path: Path) -> None:
    """Leader epochs begin again with a topic. The cluster metadata has its id; without it kseg says that it guesses."""
    new = write_log(tmp_path / "a" / "plain-0", 0, 40)
    (new / "partition.metadata").write_text("version: 0\ntopic_id: 9tTEN1jcSP2qiuuJ4LB3xg\n")
    former = write_log(tmp_path / "b" / "plain-0", 0, 1_000)
    (former / "partition.metadata").write_text("version: 0\ntopic_id: aaaaaaaaaaaaaaaaaaaaaw\n")
    (former / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    write_commits(tmp_path / "a" / "__consumer_offsets-0", {("g", "plain", 0): commit_value(30)})
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-internal-cluster-metadata", tmp_path / "c" / "__cluster_metadata-0")

    def found(*names: str) -> tuple[int | None, int | None, str]:
        dirs = [tmp_path / name for name in names]
        (row,) = lag(*dirs).values()
        run = kseg("lag", "--history", "g", "--format", "jsonl", *dirs)
        (end,) = (one for one in map(json.loads, run.stdout.splitlines()) if one["kind"] == "lag-partition")
        assert [row[name] for name in ("log_end_offset", "lag", "status")] == [
            end[name] for name in ("log_end_offset", "lag", "status")
        ]
        return row["log_end_offset"], row["lag"], row["status"]

    assert found("a", "b", "c") == found("c", "b", "a") == (40, 10, "ok")
    for last, end in ((new, 40), (former, 1_000)):
        for number, folder in enumerate((former, new)):
            for path in folder.glob("*.log"):
                os.utime(path, (number, number + 10 * (folder == last)))
        assert found("a", "b") == (end, end - 30, "ok")
    assert "topic plain: its folders have the ids 9tTEN1jcSP2qiuuJ4LB3xg, aaaaaaaaaaaaaaaaaaaaaw" in (
        kseg("lag", tmp_path / "a", tmp_path / "b").stderr
    )
    shutil.rmtree(new)
    assert found("a", "b", "c") == (None, None, "missing-partition")


def test_damage_is_reported_and_the_rest_is_used(tmp_path: Path) -> None:
    """A lost commit changes the answer, so the exit code is 1."""
    write_log(tmp_path / "orders-0", 0, 10)
    folder = write_commits(
        tmp_path / "__consumer_offsets-0", {("g", "orders", 0): commit_value(1)}, {("g", "orders", 0): commit_value(4)}
    )
    path = folder / f"{0:020}.log"
    path.write_bytes(damage.flip(path.read_bytes(), path.stat().st_size - 2))
    assert lag(tmp_path, code=1)["g", "orders", 0]["committed_offset"] == 1


@pytest.mark.parametrize("format_name", ["table", "csv"])
def test_tables_and_csv(format_name: str, tmp_path: Path) -> None:
    """A row is one line in a pipe, and control characters of groups are escaped."""
    write_log(tmp_path / "orders-0", 0, 10)
    write_commits(tmp_path / "__consumer_offsets-0", {("g\x1b[31m", "orders", 0): commit_value(4)})
    out = kseg("lag", "--format", format_name, tmp_path).stdout
    (line,) = [line for line in out.splitlines() if "orders" in line]
    assert "\x1b" not in line or format_name == "csv"
    assert ("6" in line.split()) if format_name == "table" else line.startswith("lag,g")


def test_wrong_arguments(tmp_path: Path) -> None:
    """One line names the missing file or option."""
    write_log(tmp_path / "orders-0", 0, 10)
    assert "no partition of __consumer_offsets" in kseg("lag", tmp_path).stderr
    assert "No such file" in kseg("lag", tmp_path / "absent").stderr
    write_commits(tmp_path / "__consumer_offsets-0", {("g", "orders", 0): commit_value(4)})
    run = kseg("lag", "--group", "other", tmp_path)
    assert (run.returncode, run.stderr) == (2, "kseg: group other: no committed offset found\n")
