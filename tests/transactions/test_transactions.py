"""The state of each transaction agrees with the indexes and snapshots that brokers wrote."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.validate_command import files_of
from kseg.commands.transactions import end_without_transactions, items_of
from kseg.commands.validate.validate_ranges import validate_files
from kseg.findings import do_nothing
from kseg.format.sidefiles.producer_snapshot import packed, read_snapshot
from kseg.format.storage.naming import base_offset_of
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support import damage
from tests.support.cli import invoke
from tests.support.index_entries import read_txn_index

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
FINDINGS = SEGMENTS.parent / "findings"
REGRESSIONS = Path(__file__).parents[1] / "regressions"
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
FOLDERS = sorted(path for path in SEGMENTS.iterdir() if "transaction" in path.name or "idempotent" in path.name)


def kseg(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kseg", "transactions", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def rows(*arguments: object) -> list[dict[str, Any]]:
    done = kseg("--format", "jsonl", *arguments)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def of(found: list[dict[str, Any]], *states: str) -> list[dict[str, Any]]:
    return [row for row in found if row["kind"] == "transaction" and row["state"] in states]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_what_the_broker_kept_of_them(folder: Path) -> None:
    """The aborted are those of its transaction indexes, the open those of its last producer snapshot."""
    found = rows(folder)
    indexes = b"".join(path.read_bytes() for path in sorted(folder.glob("*.txnindex")))
    kept = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in read_txn_index(indexes)]
    aborted = [(row["producer_id"], row["first_offset"], row["last_offset"]) for row in of(found, "aborted")]
    # Kafka deletes the empty index of a cleaned segment, and with it aborted transactions that can't be read any more.
    assert aborted == kept or "compacted" in folder.name
    snapshots = sorted(folder.glob("*.snapshot"))
    if snapshots:
        producers = read_snapshot(snapshots[-1].read_bytes()) or []
        first = {producer.producer_id: producer.current_txn_first_offset for producer in producers}
        wanted = {producer_id: offset for producer_id, offset in first.items() if offset is not None}
        assert {row["producer_id"]: row["first_offset"] for row in of(found, "open", "hanging")} == wanted
        assert found[-2]["last_stable_offset"] == min(wanted.values(), default=found[-2]["log_end"])


@pytest.mark.slow
def test_a_validation_says_which_segments_need_not_be_read() -> None:
    """``kseg doctor`` reads each log once: without the segments that have no transaction, the answer is the same."""
    skipped = 0
    for folder in sorted(path for root in (SEGMENTS, FINDINGS) for path in root.iterdir() if path.is_dir()):
        files = [file for file in files_of((str(folder),))[0] if base_offset_of(file.path) is not None]
        results = validate_files(files, Settings(deep=False))
        known = {result.file: end for result in results if (end := end_without_transactions(result)) is not None}
        read, fewer = (list(items_of(files, 2**62, 900, do_nothing, do_nothing, ends)) for ends in ({}, known))
        assert fewer == read, folder
        skipped += len(known)
    assert skipped > 100


def test_a_hanging_transaction_is_reported_with_its_remedy(tmp_path: Path) -> None:
    """The printed command is the one that ends the transaction."""
    folder = tmp_path / "orders-3"
    shutil.copytree(TRANSACTIONS, folder)
    done = kseg(folder)
    assert done.returncode == 1
    assert "abort --topic orders --partition 3 --start-offset 78\n" in done.stdout
    assert "last stable offset 78, producer 4 blocks it" in done.stdout
    assert "\ncommitted " not in done.stdout
    (hanging,) = of(rows(folder), "hanging")
    assert hanging["records"] == 4
    assert hanging["age_ms"] > 0
    done = kseg("--max-age", 10**10, folder)
    assert (done.returncode, "hanging in" in done.stdout) == (0, False)
    assert len(of(rows("--state", "committed", folder), "committed")) == 6


@pytest.mark.slow
@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_a_transaction_of_a_folder_that_is_not_in_use_blocks_nobody(state: str, tmp_path: Path) -> None:
    """A topic of this name can have been created again: the command that aborts would end a transaction of it."""
    unused = tmp_path / f"orders-3.{'0' * 32}-{state}"
    for folder in (tmp_path / "orders-4", unused):
        shutil.copytree(TRANSACTIONS, folder)
    done = kseg(tmp_path)
    assert (str(unused) in done.stdout, f"skipped 1 folder not in use: {unused}" in done.stderr) == (False, True)
    done, found = kseg(unused), rows(unused)
    assert (of(found, "hanging"), {row["abort"] for row in of(found, "open")}) == ([], {None})
    assert (done.returncode, "kafka-transactions" in done.stdout, "clients cannot read this folder" in done.stdout) == (
        0,
        False,
        True,
    )


def test_what_began_before_the_first_segment_is_known_by_its_snapshot(tmp_path: Path) -> None:
    """Retention has deleted where a transaction began: its marker still ends it."""
    folder = tmp_path / "orders-3"
    shutil.copytree(TRANSACTIONS, folder)
    for path in folder.glob(f"{0:020}.*"):
        path.unlink()
    first, *others = of(rows(folder), "aborted")
    kept = ("producer_id", "first_offset", "last_offset", "records", "start_timestamp")
    assert [first[name] for name in kept] == [3, 11, 22, 4, None]
    wanted = of(rows(TRANSACTIONS), "aborted")[1:]
    assert others == [{**row, "folder": str(folder), "topic": "orders", "partition": 3} for row in wanted]


def test_a_transaction_without_records_is_known_by_the_newest_snapshot(tmp_path: Path) -> None:
    """The cleaner removed its records, and an unclean election its marker: a broker holds the last stable offset back.

    An election can leave a deleted segment above the log end.
    """
    folder = tmp_path / "orders-0"
    shutil.copytree(REGRESSIONS / "reader-world-4" / "orders-0", folder)
    (folder / f"{999:020}.log.deleted").touch()
    (one,) = of(rows(folder), "hanging")
    assert [one[name] for name in ("producer_id", "first_offset", "last_offset", "records")] == [1000, 30, 31, 0]
    (partition,) = (row for row in rows(folder) if row["kind"] == "partition")
    assert partition["last_stable_offset"] == 30
    # A later snapshot without it shows that its marker is lost.
    (folder / f"{999:020}.snapshot").write_bytes(packed(()))
    assert [row["first_offset"] for row in of(rows(folder), "unknown")] == [30]


def test_damage_is_skipped_and_reported(tmp_path: Path) -> None:
    log = tmp_path / f"{17:020}.log"
    data = (TRANSACTIONS / log.name).read_bytes()
    log.write_bytes(damage.flip(data, damage.entries(data)[2].end - 1))  # the first abort's marker
    done = kseg("--format", "jsonl", log)
    assert done.returncode == 1
    assert "crc-mismatch" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    # The next marker of the producer is that of another transaction.
    assert [row["first_offset"] for row in of(found, "unknown")] == [18]
    assert 18 not in [row["first_offset"] for row in of(found, "aborted")]
    for unreadable in (tmp_path / "missing", TRANSACTIONS / f"{17:020}.index"):
        done = kseg(unreadable)
        assert (done.returncode, done.stdout) == (2, "no transactions in 0 partitions\n")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.kafka
def test_kafka_finds_the_same_ones_hanging_and_aborts_them_by_our_line(tmp_path: Path) -> None:
    """A transaction that the coordinator does not know:

    both find the same producers, and the printed command aborts it.
    """
    from tools.lab.kraft import KraftBroker
    from tools.lab.modern_fixtures import create_topic
    from tools.lab.oracle import VERSION, run_java
    from tools.lab.serve import put

    tool = "org.apache.kafka.tools.TransactionsCommand"
    broker = KraftBroker(VERSION, tmp_path / "broker", {})
    with broker:
        create_topic(broker, "orders", {})
        broker.stop()
        put(TRANSACTIONS, broker.partition("orders"), side_files=True)
        broker.start()
        server = ["--bootstrap-server", broker.bootstrap]
        found = run_java(VERSION, tool, [*server, "find-hanging", "--broker-id", "1"]).splitlines()
        names, *lines = (line.split() for line in found)
        (theirs,) = (dict(zip(names, line, strict=True)) for line in lines)
        (ours,) = of(rows(broker.partition("orders")), "hanging")
        assert {
            "Topic": ours["topic"],
            "Partition": str(ours["partition"]),
            "ProducerId": str(ours["producer_id"]),
            "ProducerEpoch": str(ours["producer_epoch"]),
            "StartOffset": str(ours["first_offset"]),
            "LastTimestamp": str(ours["last_timestamp"]),
        }.items() <= theirs.items(), (theirs, ours)
        script, _, host, *rest = shlex.split(ours["abort"])
        assert (script, host) == ("kafka-transactions.sh", "HOST:9092")
        run_java(VERSION, tool, [*server, *rest])
        broker.stop()
        after = rows(broker.partition("orders"))
    assert of(after, "open", "hanging") == []
    assert (78, 4) in [(row["first_offset"], row["producer_id"]) for row in of(after, "aborted")]


@pytest.mark.slow
def test_hanging_transactions_come_first(tmp_path: Path) -> None:
    """The first table has what blocks consumers, then the commands; aborted transactions are one row, which -v unfolds."""
    for name in ("orders-3", "orders-4"):
        shutil.copytree(TRANSACTIONS, tmp_path / name)
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", tmp_path / "plain-0")
    shown = kseg(tmp_path).stdout
    answer, _, head, _, *hanging = shown.splitlines()[:6]
    assert answer == "2 hanging transactions in 2 partitions"
    assert head.split()[:2] == ["hanging", "in"]
    assert [line.split()[0].rpartition("/")[2] for line in hanging] == ["orders-3", "orders-4"]
    assert all(line.endswith(" 78..87") for line in hanging)
    assert shown.index("--partition 4 --start-offset 78") < shown.index("aborted ×4 ")
    assert "plain-0" not in shown
    verbose = kseg("-v", tmp_path).stdout
    assert verbose.count("\n aborted ") == 8
    assert "plain-0: no transactions" in verbose
    assert "aborted ×4" not in kseg("-q", tmp_path).stdout
    assert "plain-0: no transactions; last stable offset" in kseg(tmp_path / "plain-0").stdout


def test_a_delete_horizon_is_no_time_of_a_transaction(tmp_path: Path) -> None:
    """A cleaned batch has it in the place of its first timestamp (KAFKA-8522): in the transaction, and in a carved run."""
    header: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0}
    records = [PlainRecord(0, b"k", None, 1_500_000_000_000), PlainRecord(1, b"j", b"v", 1_500_000_000_005)]
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(
        build_batch(records, base_sequence=0, delete_horizon=1_502_592_000_000, **header)
        + build_batch([PlainRecord(2, b"\0\0\0\1", bytes(6), 1_500_000_000_009)], control=True, **header)
    )
    (found,) = of(rows("--state", "committed", log.parent), "committed")
    assert (found["start_timestamp"], found["last_timestamp"]) == (None, 1_500_000_000_005)
    run, *_ = (json.loads(line) for line in invoke("carve", "--format", "jsonl", log).stdout.splitlines())
    assert (run["first_timestamp"], run["last_timestamp"]) == (None, 1_500_000_000_009)
