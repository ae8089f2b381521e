"""`kseg lag --history` has the commits, appends and lags of a simulation, minute by minute."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.lag import group_events, log_history
from kseg.commands.lag import history as history_module
from kseg.commands.lag.committed_offsets import LogDirs, partitions_of
from kseg.findings import do_nothing
from kseg.format.storage.segment_files import find_segments
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.cli import SEGMENTS, invoke
from tests.support.cli import kseg_here as kseg
from tests.support.commits import commit_key, commit_value
from tests.support.group_histories import MINUTE, START, Simulated, generation_record


def history(*arguments: object, code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by kind."""
    run = invoke("lag", "--history", "g", "--format", "jsonl", *arguments)
    assert run.exit_code == code, run.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for row in map(json.loads, run.stdout.splitlines()):
        found.setdefault(row["kind"], []).append(row)
    return found


def minute_of(row: dict[str, Any]) -> int:
    return int((row["timestamp"] - START) // MINUTE)


@pytest.mark.parametrize("seed", range(3))
def test_each_minute_is_that_of_a_simulation(seed: int, tmp_path: Path) -> None:
    """Commits, appends, consumed offsets, lag, the age of the oldest unread record and generations: an independent count."""
    chance = random.Random(seed)
    one = Simulated(tmp_path)
    truth: list[dict[str, Any]] = []
    committed, generation = {0: 0, 1: 0}, 1
    one.record(0, *generation_record(generation, 2))
    for partition in committed:
        one.append(1, 3, partition)
        one.commit(2, 0, partition)
    for minute in range(40):
        base, counts = minute * MINUTE, {"commits": 2 * (not minute), "consumed": 0, "rebalances": 0, "appended": 0}
        before = {partition: len(one.logs[partition]) if minute else 0 for partition in committed}
        for step in range(chance.randint(1, 6)):
            at, partition = base + 5_000 * (step + 1), chance.randrange(2)
            one.append(at, chance.randint(1, 9), partition)
            if minute < 25 and chance.random() < 0.8:
                offset = chance.randint(committed[partition], len(one.logs[partition]))
                one.commit(at + 10, offset, partition)
                one.commit(at + 20, 10**6, partition, group="another")
                counts["commits"] += 1
                counts["consumed"] += offset - committed[partition]
                committed[partition] = offset
            if chance.random() < 0.1:
                generation += 1
                one.record(at + 30, *generation_record(generation, 1))
                counts["rebalances"] += 1
        counts["appended"] = sum(len(one.logs[partition]) - before[partition] for partition in committed)
        unread = [one.logs[partition][offset:] for partition, offset in committed.items()]
        ages = [base + MINUTE - 1 + START - int(records[0].timestamp or 0) for records in unread if records]
        last = {"lag": sum(map(len, unread)), "lag_ms": max(ages, default=0), "generation": generation, "unknown": 0}
        truth.append(counts | last)
    found = history(one.write())
    assert [minute_of(row) for row in found["lag-minute"]] == list(range(40))
    end = max(int(record.timestamp or 0) for records in (*one.logs.values(), one.commits) for record in records)
    truth[-1]["lag_ms"] -= START + 40 * MINUTE - 1 - end  # the history ends with the last event
    for minute, (row, expected) in enumerate(zip(found["lag-minute"], truth, strict=True)):
        assert {name: row[name] for name in expected} == expected, minute
    details = found["lag-partition-minute"]
    for name in ("commits", "consumed", "appended"):
        sums: defaultdict[int, int] = defaultdict(int)
        for row in details:
            sums[minute_of(row)] += row[name]
        assert [sums[minute] for minute in range(40)] == [row[name] for row in truth], name
    (summary,) = found["lag-history"]
    assert (summary["protocol"], summary["complete_since"], summary["width_ms"]) == ("classic", START, MINUTE)
    assert {row["partition"]: row["lag"] for row in found["lag-partition"]} == {
        partition: len(one.logs[partition]) - offset for partition, offset in committed.items()
    }


def test_the_minute_when_growth_began(tmp_path: Path) -> None:
    """Ten records per minute are read until minute 20; then 30 come, and the group still reads 10."""
    one = Simulated(tmp_path)
    for minute in range(40):
        one.append(minute * MINUTE, 10 if minute < 20 else 30)
        one.commit(minute * MINUTE + 1_000, 10 * (minute + 1))
    growth = history(one.write())["lag-history"][0]["growth"]
    assert (growth["began"], growth["lag"]) == (START + 20 * MINUTE, 0)
    assert (growth["peak"], growth["peak_lag"]) == (START + 39 * MINUTE, 400)
    assert (growth["appended_before"], growth["appended"], growth["consumed"]) == (10, 30, 10)
    table = invoke("lag", "--history", "g", tmp_path).stdout
    assert "it grows since 2023-11-14T22:34Z, from 0" in table
    assert "appended 10.0 before, 30.0 then; consumed 10.0 before, 10.0 then" in table
    assert max(len(line) for line in table.splitlines() if "│" in line) <= 80


def test_a_group_that_keeps_up_has_no_growth(tmp_path: Path) -> None:
    """No minute is named where nothing grows."""
    one = Simulated(tmp_path)
    for minute in range(5):
        one.append(minute * MINUTE, 10)
        one.commit(minute * MINUTE + 1_000, 10 * (minute + 1))
    found = history(one.write())
    assert found["lag-history"][0]["growth"] is None
    assert "grow" not in invoke("lag", "--history", "g", tmp_path).stdout.split("partition")[0]


def test_the_history_begins_after_what_the_cleaner_removed(tmp_path: Path) -> None:
    """Earlier commits are gone: the last of them is the state at the start, and no minute before it is invented."""
    one = Simulated(tmp_path)
    for minute in range(10):
        one.append(minute * MINUTE, 10)
        one.commit(minute * MINUTE + 1_000, 10 * minute)
    found = history(one.write(without={0, 1, 3}))
    assert [minute_of(row) for row in found["lag-minute"]] == [4, 5, 6, 7, 8, 9]
    assert found["lag-history"][0]["complete_since"] == START + 4 * MINUTE + 1_000
    assert [row["consumed"] for row in found["lag-minute"]] == [20, 10, 10, 10, 10, 10]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 7\n", encoding="utf-8")
    assert [minute_of(row) for row in history(tmp_path)["lag-minute"]] == [7, 8, 9]
    assert "the history is known since 2023-11-14T22:21Z" in invoke("lag", "--history", "g", tmp_path).stdout


def test_a_part_of_the_time(tmp_path: Path) -> None:
    """--since keeps the state from before, --until hides what came later."""
    one = Simulated(tmp_path)
    for minute in range(10):
        one.append(minute * MINUTE, 10)
        one.commit(minute * MINUTE + 1_000, 10 * minute)
    one.write()
    found = history("--since", START + 3 * MINUTE, "--until", START + 6 * MINUTE, tmp_path)
    assert [(minute_of(row), row["lag"], row["consumed"]) for row in found["lag-minute"]] == [
        (3, 10, 10), (4, 10, 10), (5, 10, 10)
    ]  # fmt: skip
    names = ("committed_offset", "log_end_offset", "lag")
    assert [[row[name] for name in names] for row in found["lag-partition"]] == [[50, 60, 10]]


def test_what_is_missing_is_null(tmp_path: Path) -> None:
    """A partition without a log, records that retention deleted, a log that lost its end, a deleted offset."""
    one = Simulated(tmp_path)
    for partition in range(3):
        one.append(0, 20, partition)
    one.commit(1_000, 4, 0)
    one.commit(1_000, 30, 1)
    one.commit(1_000, 12, 2)
    one.commit(1_000, 5, 7)
    one.record(MINUTE, commit_key("g", "orders", 2), None)
    found = history(one.write(first=8), code=1)
    ends = {row["partition"]: row for row in found["lag-partition"]}
    assert {number: (row["status"], row["lag"], row["lag_ms"]) for number, row in ends.items()} == {
        0: ("before-log-start", 16, None),
        1: ("after-log-end", None, None),
        2: ("no-offset", None, None),
        7: ("missing-partition", None, None),
    }
    assert [(row["lag"], row["unknown"]) for row in found["lag-minute"]] == [(24, 2), (16, 3)]
    assert "these lack 1 log, first orders-7" in kseg("lag", "--history", "g", tmp_path).stderr


def test_lags_are_known_again_after_a_commit_beyond_the_log_end(tmp_path: Path) -> None:
    """A log that lost its end has no lag until the group commits an offset that the log has."""
    one = Simulated(tmp_path)
    one.append(-MINUTE, 40)
    for minute, offset in enumerate((45, 50, 10, 20)):
        one.commit(minute * MINUTE, offset)
    found = history(one.write())
    assert [(row["lag"], row["unknown"]) for row in found["lag-minute"]] == [(None, 1), (None, 1), (30, 0), (20, 0)]
    assert [(row["status"], row["lag"]) for row in found["lag-partition"]] == [("ok", 20)]
    assert "g: lag 20 in 1 partition" in invoke("lag", "--history", "g", tmp_path).stdout


def test_the_end_of_a_partition_is_that_of_lag(tmp_path: Path) -> None:
    """Both have the same status, log end and committed offset, whatever keeps a consumer from continuing there."""
    one = Simulated(tmp_path)
    for partition in range(6):
        one.append(0, 20, partition)
        one.commit(1_000, 30 if partition == 1 else 4, partition)
    for partition, expires in ((4, START + 2_000), (8, START + 2_000), (5, START + 10**12)):
        one.record(1_000, commit_key("g", "orders", partition), commit_value(4, committed=START, expires=expires))
    for topic, partition, offset in (("orders", 6, 20), ("orders", 7, 3), ("orders", 9, 1), ("dropped", 0, 1)):
        one.record(1_000, commit_key("g", topic, partition), commit_value(offset, committed=START))
    commit = bytes.fromhex("00040000000000000001ffffffff01") + struct.pack(">q", START)
    one.record(1_000, commit_key("g", "orders", 3), commit + bytes.fromhex("010010") + b"\7" * 16)
    one.write()
    for folder in ("orders-6", "orders-7"):  # retention deleted all of their records
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{20:020}.log").touch()
    (tmp_path / "orders-3" / "partition.metadata").write_text("version: 0\ntopic_id: 9tTEN1jcSP2qiuuJ4LB3xg\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 2 6\n")
    shutil.copytree(tmp_path / "orders-0", tmp_path / "dropped-0.0123456789abcdef0123456789abcdef-delete")
    run = invoke("lag", "--format", "jsonl", tmp_path)
    names = ("committed_offset", "log_end_offset", "lag", "status")
    rows = {
        (row["topic"], row["partition"]): [row[name] for name in names]
        for row in map(json.loads, run.stdout.splitlines())
    }
    assert {place: status for place, (*_, status) in rows.items()} == {
        ("orders", 0): "ok", ("orders", 1): "after-log-end", ("orders", 2): "before-log-start",
        ("orders", 3): "other-topic-id", ("orders", 4): "expired", ("orders", 5): "ok", ("orders", 6): "ok",
        ("orders", 7): "before-log-start", ("orders", 8): "expired", ("orders", 9): "missing-partition",
        ("dropped", 0): "deleted-topic",
    }  # fmt: skip
    rows["orders", 1][2] = None  # in a history a lag is not negative
    found = history(tmp_path, code=1)["lag-partition"]
    assert {(row["topic"], row["partition"]): [row[name] for name in names] for row in found} == rows


def test_a_commit_that_kafka_cannot_load_is_a_finding(tmp_path: Path) -> None:
    """As of `kseg lag`: the line on stderr has the reason, and the exit code is 1. A type of a newer Kafka is no finding."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(1_000, 1)
    one.record(2_000, b"\0\x63" + commit_key("g", "orders", 0)[2:], b"newer")
    run = kseg("lag", "--history", "g", one.write())
    assert run.returncode == 0
    assert "left out, because Kafka 4.3 does not know their type: 1 record" in run.stderr
    one.record(3_000, commit_key("g", "orders", 0), commit_value(2)[:-3])
    run = kseg("lag", "--history", "g", one.write())
    assert (run.returncode, "g: lag 9 in 1 partition" in run.stdout) == (1, True)
    assert "internal-record at byte" in run.stderr
    assert "commitTimestamp: expected 8 bytes" in run.stderr


def test_an_age_is_the_same_in_the_text_and_in_the_plot(tmp_path: Path) -> None:
    """Both are full hours: 2 hours and 50 minutes are not 3 hours."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(170 * MINUTE, 1)
    table = invoke("lag", "--history", "g", one.write()).stdout
    assert "the oldest unread record is 2 hours old" in table.replace("\n  ", " ")
    assert " oldest unread      2 h │" in table


def test_commits_of_transactions_count_at_their_end(tmp_path: Path) -> None:
    """A commit takes effect with the marker; that of an aborted or open transaction never does."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(1_000, 1)
    one.write()
    path = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    offset, data = 1, path.read_bytes()
    for producer, minute, marker in ((1, 2, 1), (2, 3, 0), (3, 4, None)):
        record = PlainRecord(offset, commit_key("g", "orders", 0), commit_value(minute, committed=START), START)
        data += build_batch(
            [record], base_offset=offset, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0
        )
        offset += 1
        if marker is not None:
            key, value = struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0)
            end = PlainRecord(offset, key, value, START + minute * MINUTE)
            data += build_batch(
                [end], base_offset=offset, transactional=True, control=True, producer_id=producer, producer_epoch=0
            )
            offset += 1
    path.write_bytes(data)
    rows = [(minute_of(row), row["commits"], row["lag"]) for row in history(tmp_path)["lag-minute"]]
    assert rows == [(0, 1, 9), (1, 0, 9), (2, 1, 8)]


def test_a_later_commit_or_a_tombstone_wins_over_a_transaction_that_ends_after_it(tmp_path: Path) -> None:
    """As in a broker: the older offset of the transaction does not come back, neither does a deleted one."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(0, 1)
    one.write()
    log = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    key = commit_key("g", "orders", 0)
    # The minute of a record, its producer, and its value; True is the marker that commits.
    writes: tuple[tuple[int, int, bytes | bool | None], ...] = (
        (1, 7, commit_value(3)), (2, -1, commit_value(5, committed=START + 2 * MINUTE)), (3, 7, True),
        (3, 8, commit_value(7)), (4, -1, None), (5, 8, True),
    )  # fmt: skip
    data = log.read_bytes()
    for offset, (minute, producer, value) in enumerate(writes, 1):
        is_marker = value is True
        pair = (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)) if isinstance(value, bool) else (key, value)
        fields: dict[str, Any] = (
            {"producer_id": producer, "producer_epoch": 0, "transactional": True} if producer > 0 else {}
        )
        record = PlainRecord(offset, *pair, START + minute * MINUTE)
        data += build_batch([record], base_offset=offset, control=is_marker, **fields)
    log.write_bytes(data)
    found = history(tmp_path)
    rows = [(minute_of(row), row["committed_offset"], row["commits"]) for row in found["lag-partition-minute"]]
    assert rows == [(0, 1, 1), (2, 5, 1)]
    assert [row["committed_offset"] for row in found["lag-partition"]] == [None]


def test_timestamps_that_go_back_or_far_ahead_move_no_other_batch(tmp_path: Path) -> None:
    """A batch with an old time counts at the time before it; one of the year 2200 does not end the history there."""
    one = Simulated(tmp_path)
    one.append(0, 5)
    one.commit(1_000, 0)
    for at in (2 * MINUTE, -500 * MINUTE, 10**13, 3 * MINUTE):
        one.append(at, 5)
    assert [row["appended"] for row in history(one.write())["lag-minute"]] == [5, 0, 15, 5]


def test_the_last_commit_counts_if_the_clock_of_its_coordinator_is_behind(tmp_path: Path) -> None:
    """The order of the log decides, as in a broker: no minute has consumed less than nothing, and the end is that of lag."""
    one = Simulated(tmp_path)
    one.append(0, 50)
    one.record(0, *generation_record(1, 1))
    for at, offset in ((MINUTE, 10), (2 * MINUTE + 1_000, 20), (2 * MINUTE - 1_000, 50)):
        one.commit(at, offset)
    one.record(2 * MINUTE - 500, *generation_record(2, 1))
    found = history(one.write())
    rows = [(minute_of(row), row["consumed"], row["lag"], row["generation"]) for row in found["lag-minute"]]
    assert rows == [(0, 0, None, 1), (1, 0, 40, 1), (2, 40, 0, 2)]
    (end,) = found["lag-partition"]
    (row,) = map(json.loads, invoke("lag", "--format", "jsonl", tmp_path).stdout.splitlines())
    names = ("committed_offset", "commit_timestamp", "lag", "status")
    assert [end[name] for name in names] == [row[name] for name in names]
    assert (end["committed_offset"], end["lag"]) == (50, 0)
    until = history("--until", START + 2 * MINUTE, tmp_path)["lag-partition"]
    assert [row["committed_offset"] for row in until] == [10]


def test_a_damaged_commit_is_reported_and_begins_the_history_again(tmp_path: Path) -> None:
    """A commit that cannot be read may be one of the group: the minutes before are not known."""
    one = Simulated(tmp_path)
    for minute in range(6):
        one.append(minute * MINUTE, 10)
        one.commit(minute * MINUTE + 1_000, 10 * minute)
    one.write()
    path = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    data = path.read_bytes()
    path.write_bytes(damage.flip(data, len(data) // 2 - 2))
    assert [minute_of(row) for row in history(tmp_path, code=1)["lag-minute"]] == [3, 4, 5]


def test_a_long_history_of_many_partitions_has_wider_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: slots double their width, and the sums stay."""
    monkeypatch.setattr(group_events, "MOST_CELLS", 40)
    monkeypatch.setattr(history_module, "MOST_CELLS", 40)
    monkeypatch.setattr(history_module, "_FEWEST_SLOTS", 10)
    one = Simulated(tmp_path)
    for minute in range(100):
        for partition in range(2):
            one.append(minute * MINUTE, 1, partition)
            one.commit(minute * MINUTE + 1_000, minute, partition)
    found = LogDirs(find_segments(str(one.write())), do_nothing)
    (offsets,) = partitions_of(found, "__consumer_offsets")
    events = group_events.read_group(offsets, "__consumer_offsets", "g", None, {})
    assert sum(len(line.slots) for line in events.timelines()) <= 40
    replicas = {place: leader for place in events.commits if (leader := found.leader(place))}
    asked = history_module.log_requests(events, replicas, 0, 2**62, 2**62)
    logs = {place: log_history.read_log(request) for place, request in asked.items()}
    assert {len(log.ends.slots) <= 20 for log in logs.values()} == {True}
    result = history_module.group_history("g", events, logs, 0, found, 2**62)
    assert (result.width, len(result.minutes) <= 20, len(result.minutes) > 10) == (8 * MINUTE, True, True)
    assert sum(row.commits for row in result.minutes) == 200
    assert sum(row.appended for row in result.minutes) == 200
    assert result.minutes[-1].lag == 2


def test_the_groups_of_a_broker(tmp_path: Path) -> None:
    """Protocol, members, state and start offsets: classic, consumer, streams and share groups, as Kafka wrote them."""
    for topic, name in (("__consumer_offsets", "consumer-offsets"), ("__share_group_state", "share-group-state")):
        shutil.copytree(SEGMENTS / f"4.3.0-v2-none-internal-{name}", tmp_path / f"{topic}-0")
    expected = {
        "kseg-classic": ("classic", "Empty", 3, 30),
        "kseg-consumer": ("consumer", "Empty", 3, 30),
        "kseg-streams": ("streams", "Empty", 3, 44),
        "kseg-share": ("share", "Empty", 3, 0),
        "kseg-gone": ("classic", "Dead", 0, None),
    }
    for group, (protocol, state, commits, offset) in expected.items():
        run = invoke("lag", "--history", group, "--format", "jsonl", tmp_path)
        rows = [json.loads(line) for line in run.stdout.splitlines()]
        last = [row for row in rows if row["kind"] == "lag-minute"][-1]
        assert (rows[-1]["protocol"], last["state"], last["members"]) == (protocol, state, 0), group
        places = [row for row in rows if row["kind"] == "lag-partition"]
        assert offset in [row["committed_offset"] for row in places], group
        for row in places:
            assert row["status"] == ("no-offset" if row["committed_offset"] is None else "missing-partition"), group
        assert sum(row["commits"] for row in rows if row["kind"] == "lag-minute") == commits or group == "kseg-gone"


def test_a_share_group_has_the_names_of_topics_of_other_brokers(tmp_path: Path) -> None:
    """Its state has their ids only. Those of the cluster metadata are no deleted topics, although no log is given."""
    for topic in ("share-group-state", "cluster-metadata", "consumer-offsets"):
        shutil.copytree(SEGMENTS / f"4.3.0-v2-none-internal-{topic}", tmp_path / f"__{topic.replace('-', '_')}-0")
    run = invoke("lag", "--history", "kseg-share", "--format", "jsonl", tmp_path)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    places = {(row["topic"], row["status"]) for row in rows if row["kind"] == "lag-partition"}
    assert places == {("plain", "no-offset"), ("plain", "missing-partition")}, run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["table", "csv", "html"])
def test_other_formats(format_name: str, tmp_path: Path) -> None:
    """Names of groups are data, and a chosen column is that of the minutes."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(1_000, 1, group="<b>\x1b[31m")
    run = kseg("lag", "--history", "<b>\x1b[31m", "--format", format_name, one.write())
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout or format_name == "csv"
    assert "<b>" not in run.stdout or format_name != "html"
    if format_name != "html":
        chosen = kseg("lag", "--history", "<b>\x1b[31m", "--format", format_name, "--columns", "lag,commits", tmp_path)
        assert chosen.stdout.split()[-2:] in (["9", "1"], ["9,1"], ["lag,commits", "9,1"])


def test_wrong_arguments(tmp_path: Path) -> None:
    """One line says what is wrong."""
    one = Simulated(tmp_path)
    one.append(0, 10)
    one.commit(1_000, 1)
    one.write()
    run = kseg("lag", "--history", "absent", tmp_path)
    assert (run.returncode, run.stderr) == (
        2,
        "kseg: group absent: nothing found in 1 partition of __consumer_offsets\n",
    )
    assert "--since needs --history" in kseg("lag", "--since", "2h", tmp_path).stderr
    assert "cannot be combined" in kseg("lag", "--history", "g", "--at", "2h", tmp_path).stderr
