"""The state of each record's transaction, in all commands and formats, against a truth that an independent encoder keeps."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import kseg as library
from kseg.commands.transactions import Transaction
from tests.support.cli import SEGMENTS
from tests.support.cli import kseg_here as kseg
from tests.support.cli import rows_of as rows
from tests.support.damage import entries, flip
from tests.support.transactional_logs import RandomLog, Truth, write_log

LOGS = 100
FIELDS = ("offset", "transaction_state", "producer_id", "producer_epoch", "sequence", "partition_leader_epoch")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, RandomLog]]:
    """A log directory of random logs, of which some are compacted, and some have open transactions."""
    log_dir = tmp_path_factory.mktemp("kafka-logs")
    known = {f"t-{n}": write_log(log_dir / f"t-{n}", random.Random(n)) for n in range(LOGS)}
    assert 5 < sum(log.stable is None for log in known.values()) < LOGS - 5
    assert 5 < sum(log.compacted for log in known.values()) < LOGS - 5
    clean = [f"t {name[2:]} 1" for name, log in known.items() if log.compacted]
    (log_dir / "cleaner-offset-checkpoint").write_text("\n".join(["0", str(len(clean)), *clean, ""]), encoding="utf-8")
    return log_dir, known


def by_log(found: list[dict[str, Any]], *names: str) -> dict[str, list[Any]]:
    """Return the fields of rows by the name of the folder."""
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    for row in found:
        values = [row[name] for name in names]
        grouped[os.path.basename(os.path.dirname(row["file"]))].append(values if len(names) > 1 else values[0])
    return dict(grouped)


def truth(known: dict[str, RandomLog], *, control: bool) -> dict[str, list[list[Any]]]:
    """Return FIELDS of all records, with or without markers."""
    return {
        name: [
            [one.offset, one.state, one.producer, one.epoch, one.sequence, one.leader_epoch]
            for one in log.records
            if control or not one.control
        ]
        for name, log in known.items()
    }


def committed(known: dict[str, RandomLog]) -> dict[str, list[int]]:
    return {name: log.committed for name, log in known.items() if log.committed}


@pytest.mark.slow
def test_each_record_has_its_state_in_dump_grep_sql_and_scan(logs: tuple[Path, dict[str, RandomLog]]) -> None:
    """An investigator sees whether a consumer got a record, and who wrote it, wherever the record is shown."""
    log_dir, known = logs
    data = truth(known, control=False)
    assert by_log(rows("dump", "--deep", log_dir), *FIELDS) == truth(known, control=True)
    assert by_log(rows("grep", "value", log_dir), *FIELDS) == data
    statement = f"select file, {', '.join(FIELDS)} from records order by file, offset"
    assert by_log(rows("sql", statement, log_dir), *FIELDS) == data
    found = library.scan(log_dir, columns=["file", *FIELDS]).scanner().to_table().to_pylist()
    assert by_log(found, *FIELDS) == data
    both = library.scan(log_dir, columns=["file", *FIELDS], control=None).scanner().to_table().to_pylist()
    assert by_log(both, *FIELDS) == truth(known, control=True)
    for name in list(known)[:20]:
        records = library.open_partition(log_dir / name).records()
        assert [[getattr(one, field) for field in FIELDS] for one in records] == truth(known, control=True)[name]


@pytest.mark.slow
def test_read_committed_is_what_a_consumer_gets(logs: tuple[Path, dict[str, RandomLog]]) -> None:
    """The records of committed transactions and those without one, up to the last stable offset."""
    log_dir, known = logs
    wanted = committed(known)
    option = ("--isolation", "read_committed")
    assert by_log(rows("dump", "--deep", *option, log_dir), "offset") == wanted
    assert by_log(rows("grep", *option, "value", log_dir), "offset") == wanted
    statement = "select file, offset from records order by file, offset"
    assert by_log(rows("sql", *option, statement, log_dir), "offset") == wanted
    scanned = library.scan(log_dir, isolation="read_committed", columns=["file", "offset"])
    assert by_log(scanned.scanner().to_table().to_pylist(), "offset") == wanted


@pytest.mark.slow
def test_csv_parquet_and_columns_have_the_fields(logs: tuple[Path, dict[str, RandomLog]], tmp_path: Path) -> None:
    """The names are the same in each format."""
    log_dir, known = logs
    parquet = pytest.importorskip("pyarrow.parquet")
    assert kseg("dump", "--deep", "--format", "parquet", "-o", tmp_path / "x", log_dir).returncode == 0
    found = parquet.read_table(tmp_path / "x").to_pylist()
    assert by_log(found, *FIELDS) == truth(known, control=True)
    done = kseg("dump", "--deep", "--format", "csv", "--columns", "file," + ",".join(FIELDS), log_dir)
    lines = [line.split(",") for line in done.stdout.splitlines()[1:]]
    expected = [["" if value is None else str(value) for value in row] for row in truth(known, control=True)["t-7"]]
    assert [line[1:] for line in lines if "/t-7/" in line[0]] == expected


@pytest.mark.parametrize("chance", range(10))
def test_a_range_has_the_states_of_the_whole_log(logs: tuple[Path, dict[str, RandomLog]], chance: int) -> None:
    """Reading begins in the middle of transactions, whose markers are after the range."""
    log_dir, known = logs
    name = f"t-{chance}"
    offsets = [one.offset for one in known[name].records]
    first, end = sorted(random.Random(chance).sample(offsets, 2))
    found = rows("dump", "--deep", "--offsets", f"{first}:{end}", log_dir / name)
    assert by_log(found, *FIELDS)[name] == [row for row in truth(known, control=True)[name] if first <= row[0] < end]


@pytest.mark.slow
def test_a_named_segment_has_the_states_of_its_log(logs: tuple[Path, dict[str, RandomLog]], tmp_path: Path) -> None:
    """In its folder the next segments have the markers. Alone, what they would say is unknown, and never guessed."""
    log_dir, known = logs
    for name in list(known)[:12]:
        wanted = {row[0]: row[1] for row in truth(known, control=True)[name]}
        for path in sorted((log_dir / name).glob("*.log")):
            beside = by_log(rows("dump", "--deep", path), "offset", "transaction_state")[name]
            assert beside == [[offset, wanted[offset]] for offset, _ in beside]
            alone = shutil.copy(path, tmp_path / path.name)
            found = rows("dump", "--deep", alone)
            assert all(row["transaction_state"] in (wanted[row["offset"]], "unknown") for row in found)
            os.remove(alone)


@pytest.mark.slow
def test_several_processes_write_the_same(tmp_path: Path) -> None:
    """Each worker finds the markers of its range, which can be in the next one."""
    log = write_log(tmp_path / "t-0", random.Random(5), steps=12_000, value_size=1_000)
    for options in (["--format", "jsonl"], ["--format", "csv"], ["--isolation", "read_committed", "--format", "jsonl"]):
        one, two = (kseg("dump", "--deep", "--jobs", jobs, *options, tmp_path / "t-0") for jobs in (1, 2))
        assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
        assert one.stdout == two.stdout
    assert [json.loads(line)["offset"] for line in two.stdout.splitlines()] == log.committed


def test_damage_and_a_missing_segment_make_states_unknown(tmp_path: Path) -> None:
    """A marker can have been in lost bytes: the next marker of the producer is then that of another transaction."""
    checked = 0
    for seed in range(40):
        folder = tmp_path / f"t-{seed}"
        log = write_log(folder, random.Random(1000 + seed))
        if log.compacted:
            continue
        wanted = {one.offset: one.state for one in log.records}
        chance = random.Random(seed)
        paths = sorted(folder.glob("*.log"))
        if len(paths) > 2 and seed % 2:
            os.remove(chance.choice(paths[1:-1]))
        else:
            path = chance.choice(paths)
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data))
            data[at : at + 200] = bytes(255 - byte for byte in data[at : at + 200])
            path.write_bytes(data)
        done = kseg("dump", "--deep", "--format", "jsonl", folder)
        for line in done.stdout.splitlines():
            row = json.loads(line)
            assert row["transaction_state"] in (wanted[row["offset"]], "unknown"), (seed, row)
            checked += row["transaction_state"] == "unknown"
    assert checked > 20


def test_an_unreadable_segment_hides_no_other_record(tmp_path: Path) -> None:
    """A read error is no damage, and no reason to stop: the other records are there, none of them with a wrong state."""
    known: dict[tuple[str, int], Truth] = {}
    hidden: set[tuple[str, int]] = set()
    unread = []
    for seed in range(3000, 3020):
        folder = tmp_path / "logs" / f"t-{seed}"
        log, chance = write_log(folder, random.Random(seed)), random.Random(seed)
        known |= {(folder.name, one.offset): one for one in log.records}
        stable = {(folder.name, offset) for offset in log.committed}
        hidden |= {(folder.name, one.offset) for one in log.records} - stable
        path = chance.choice(sorted(folder.glob("*.log")))
        lost = {row["offset"] for row in rows("dump", "--deep", path)}
        known = {place: one for place, one in known.items() if place[0] != folder.name or place[1] not in lost}
        path.unlink()
        path.symlink_to(path.name)
        unread.append(f"kseg: {path}: a symbolic link to itself")
    statement = "select file, offset, transaction_state from records"
    for command in (["dump", "--deep"], ["grep", "value"], ["sql", statement]):
        for isolation in ("read_uncommitted", "read_committed"):
            done = kseg(*command, "--isolation", isolation, "--format", "jsonl", tmp_path / "logs")
            assert (done.returncode, sorted(done.stderr.splitlines())) == (2, unread)
            found = {
                (os.path.basename(os.path.dirname(row["file"])), row["offset"]): row["transaction_state"]
                for row in map(json.loads, done.stdout.splitlines())
            }
            assert {state for place, state in found.items() if state != known[place].state} <= {"unknown"}
            if isolation == "read_committed":
                assert sorted(found.keys() & hidden) == []
                assert len(found) > len(known) / 10
            else:
                assert len(found) == sum(command[0] == "dump" or not one.control for one in known.values())
    for isolation in ("read_uncommitted", "read_committed"):
        count = len(
            kseg("grep", "value", "--isolation", isolation, "--format", "jsonl", tmp_path / "logs").stdout.splitlines()
        )
        lines: list[str] = []
        matches = library.grep(tmp_path / "logs", "value", isolation=isolation, unread=lines.append)
        assert (len(list(matches)), sorted(f"kseg: {line}" for line in lines)) == (count, unread)
        lines.clear()
        scanned = library.scan(tmp_path / "logs", isolation=isolation, unread=lines.append).scanner().to_table()
        assert (scanned.num_rows, sorted(f"kseg: {line}" for line in lines)) == (count, unread)
    for row in library.transactions(tmp_path / "logs", unread=lambda line: None):
        if isinstance(row, Transaction):
            first, last = row.first_offset or 0, row.last_offset or 0
            places = ((os.path.basename(row.folder), offset) for offset in range(first, last + 1))
            states = {known[at].state for at in places if at in known and known[at].producer == row.producer_id}
            assert row.state == "unknown" or states <= {row.state.replace("hanging", "open")}
        else:
            assert row.unread_segments == 1


@pytest.mark.parametrize("seed", range(2000, 2030))
def test_an_ended_transaction_has_only_records_of_its_state(seed: int, tmp_path: Path) -> None:
    """Beside damage and missing segments, the next marker of a producer can be that of another transaction."""
    chance = random.Random(seed)
    folder = tmp_path / "t-0"
    log = write_log(folder, chance)
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for place in entries(data):
            if chance.random() < 0.1:
                data = flip(data, place.end - 1)
        path.write_bytes(data)
    if not log.compacted and len(paths := sorted(folder.glob("*.log"))) > 2:
        paths[chance.randrange(1, len(paths) - 1)].unlink()
    for row in library.transactions(folder):
        if not isinstance(row, Transaction) or row.state not in ("committed", "aborted"):
            continue
        first, last = row.first_offset or 0, row.last_offset or 0
        states = {one.state for one in log.records if one.producer == row.producer_id and first <= one.offset <= last}
        assert states == {row.state}


def test_wrong_side_files_change_nothing(tmp_path: Path) -> None:
    """A copy without the index of aborted transactions, and one with a wrong index, have the same states."""
    source = SEGMENTS / "4.3.0-v2-none-transactions"
    names = ("offset", "transaction_state")
    known = [[row[name] for name in names] for row in rows("dump", "--deep", source)]
    assert {state for _, state in known} == {None, "committed", "aborted", "open"}
    folder = Path(shutil.copytree(source, tmp_path / "orders-0"))
    for path in folder.glob("*.txnindex"):
        path.write_bytes(bytes(34))
    assert [[row[name] for name in names] for row in rows("dump", "--deep", folder)] == known
    for path in (*folder.glob("*.txnindex"), *folder.glob("*.snapshot")):
        path.unlink()
    assert [[row[name] for name in names] for row in rows("dump", "--deep", folder)] == known


def test_texts_and_tables_mark_what_consumers_did_not_get(logs: tuple[Path, dict[str, RandomLog]]) -> None:
    """A person sees it without a column of JSON."""
    log_dir, known = logs
    name = next(name for name, log in known.items() if {"aborted", "open"} <= {one.state for one in log.records})
    data = [one for one in known[name].records if not one.control]
    lines = kseg("grep", "value", log_dir / name).stdout.splitlines()
    marks = {"aborted": " (aborted)", "open": " (open transaction)"}
    for line, one in zip(lines, data, strict=True):
        ends = [mark for mark in marks.values() if line.endswith(mark)]
        assert ends == [marks[state] for state in marks if state == one.state]
    table = kseg("dump", "--deep", log_dir / name).stdout
    for state in marks:
        count = sum(one.state == state for one in data)
        assert sum(f" {state}" in line for line in table.splitlines()) >= count


def test_counts_are_of_records_and_not_of_markers(logs: tuple[Path, dict[str, RandomLog]]) -> None:
    """``count(*)`` is the number of records that producers wrote; markers have a table of their own."""
    log_dir, known = logs
    every = [one for log in known.values() for one in log.records]
    (found,) = rows("sql", "select count(*) as n from records", log_dir)
    assert found["n"] == sum(not one.control for one in every)
    (found,) = rows("sql", "select count(*) as n from markers", log_dir)
    assert found["n"] == sum(one.control for one in every)


def test_a_producer_has_its_transactional_id(tmp_path: Path) -> None:
    """The id is in ``__transaction_state`` of the same log directory: a producer id alone names no application."""
    source = SEGMENTS / "4.3.0-v2-none-internal-transaction-state"
    shutil.copytree(source, tmp_path / "__transaction_state-7")
    known = {
        row["decoded"]["value"]["data"]["producerId"]: row["decoded"]["key"]["data"]["transactionalId"]
        for row in rows("dump", "--deep", tmp_path / "__transaction_state-7")
        if row["decoded"] and row["decoded"]["value"]
    }
    assert len(known) > 1
    log = write_log(tmp_path / "t-0", random.Random(3), producers=[*known, 987_654])
    wanted = {one.offset: known.get(one.producer) for one in log.records}
    assert len(set(wanted.values())) > 2
    found = rows("dump", "--deep", tmp_path / "t-0")
    assert {row["offset"]: row["transactional_id"] for row in found} == wanted
    statement = "select file, offset, transactional_id from records"
    found = rows("sql", statement, tmp_path / "t-0")
    assert {row["offset"]: row["transactional_id"] for row in found}.items() <= wanted.items()
