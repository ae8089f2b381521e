"""A repaired or converted partition has the producer snapshots that a broker needs to know its producers after a start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed, read_snapshot
from tests.support import damage
from tests.support.cli import invoke
from tests.support.folders import marker, transactional
from tests.support.fuzzing import cases

SOURCE = Path(__file__).parents[2] / "fixtures" / "segments" / "4.3.0-v2-none-transactions"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "topic-0"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    return folder


def _snapshots(folder: Path) -> dict[int, list[ProducerState]]:
    read = {int(path.stem): read_snapshot(path.read_bytes()) for path in sorted(folder.glob("*.snapshot"))}
    return {offset: sorted(producers or ()) for offset, producers in read.items()}


def _known_by_a_broker(folder: Path) -> dict[int, list[ProducerState]]:
    """The snapshots of a broker that reads the log after an unclean shutdown: Kafka's oracle proves this model."""
    found: dict[int, list[ProducerState]] = {}
    copy = folder.with_name("read-again-0")
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.snapshot"))
    plan_partition(str(copy), BrokerStart(False), lambda offset, states: found.update({offset: sorted(states)}))
    return found


def test_snapshots_that_a_broker_wrote_are_written_again(partition: Path, tmp_path: Path) -> None:
    """Without any snapshot, those at the last two segments and at the log end get the producers that the broker knew."""
    original = _snapshots(partition)
    for path in partition.glob("*.snapshot"):
        path.unlink()
    repair(str(partition), str(tmp_path / "new-0"), RepairPlan())
    assert _snapshots(tmp_path / "new-0") == {offset: original[offset] for offset in (73, 77, 88)}


def test_empty_snapshots_are_corrected(partition: Path, tmp_path: Path) -> None:
    """A start without snapshots writes empty ones. Copied, they would hide the open transaction for ever."""
    original = _snapshots(partition)
    for path in partition.glob("*.snapshot"):
        path.write_bytes(bytes.fromhex("0001 48674bc7 00000000"))
    assert not any(_snapshots(partition).values())
    repair(str(partition), str(tmp_path / "new-0"), RepairPlan())
    assert _snapshots(tmp_path / "new-0") == original


@pytest.mark.parametrize("first", [None, 1])
def test_a_snapshot_keeps_what_was_before_the_log_start(tmp_path: Path, first: int | None) -> None:
    """The log has only a later batch or the marker of it: without its last sequence a broker rejects the next batch."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    later = marker(5, 7, abort=False) if first is None else transactional(5, 1, 7, 3)
    (folder / f"{5:020}.log").write_bytes(later)
    batch = (2, 3, 1) if first is None else (3, 5, 0)
    known = ProducerState(7, 0, *batch, 1_700_000_000_000, 9 if first is None else -1, first)
    (folder / f"{6:020}.snapshot").write_bytes(packed([known]))
    repair(str(folder), str(tmp_path / "new-0"), RepairPlan())
    coordinator = 0 if first is None else -1  # as in the marker
    assert _snapshots(tmp_path / "new-0")[6] == [known._replace(coordinator_epoch=coordinator)]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_damage_anywhere(partition: Path, tmp_path: Path, number: int) -> None:
    """The snapshots of a repaired log describe its batches, wherever others were lost."""
    logs = [log for log in sorted(partition.glob("*.log")) if log.stat().st_size]
    log = logs[number % len(logs)]
    place = damage.entries(log.read_bytes())[number % 2]
    log.write_bytes(damage.flip(log.read_bytes(), place.end - 1))
    repair(str(partition), str(tmp_path / "new-0"), RepairPlan())
    known = _known_by_a_broker(tmp_path / "new-0")
    written = _snapshots(tmp_path / "new-0")
    assert max(written) == max(known)
    assert written == {offset: known[offset] for offset in written}


def test_converted_with_damaged_batches_skipped(partition: Path, tmp_path: Path) -> None:
    """The snapshots of a converted log do not describe the skipped batches."""
    log = partition / "00000000000000000017.log"
    place = damage.entries(log.read_bytes())[1]
    log.write_bytes(damage.flip(log.read_bytes(), place.end - 1))
    plan = ConversionPlan.of("any-to-v2", skip_damaged=True)
    convert(str(partition), str(tmp_path / "new-0"), plan)
    known = _known_by_a_broker(tmp_path / "new-0")
    written = _snapshots(tmp_path / "new-0")
    assert max(written) == max(known)
    assert written == {offset: known[offset] for offset in written}


@pytest.mark.kafka
@pytest.mark.fuzz
def test_kafka_writes_the_same_producers() -> None:
    """Random logs with transactions, epochs and damage: kseg's snapshots have what Kafka's loader reads from the result."""
    from tools.lab.snapshot_oracle import disagreements

    assert not list(disagreements(range(cases(200))))


def test_a_missing_index_of_aborted_transactions_is_named(tmp_path: Path) -> None:
    """A broker does not notice that a .txnindex is missing: repair writes it and says so, validate reports an error."""
    source, target = tmp_path / "topic-0", tmp_path / "out" / "topic-0"
    target.parent.mkdir()
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("*.txnindex", "ORIGIN", "expect.jsonl"))
    done = invoke("repair", source, target)
    missing = sorted(path.name for path in target.glob("*.txnindex"))
    assert missing
    assert all(f"topic-0/{name} is written from the log: the source lacks it" in done.stderr for name in missing)
    assert "txn-index-mismatch" in invoke("validate", source).stdout
