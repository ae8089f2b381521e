"""Repair from several log directories: each partition has what one of its replicas has, and what fails harms no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kseg.format.storage.naming import LOG_STARTS
from tests.support import damage
from tests.support.cli import invoke
from tests.support.fleet import BROKERS, make, make_many
from tests.support.repairing import digests


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    """Return the log directories of three brokers, two of them damaged, and one with a stale leader's end."""
    return make(tmp_path)


def test_each_partition_has_what_one_replica_has(tmp_path: Path, brokers: list[Path]) -> None:
    """The result has the records of the valid broker, although its partitions are damaged as the others' are, elsewhere."""
    whole = tmp_path / "before"
    shutil.copytree(brokers[0], whole)
    log = brokers[0] / "orders-0" / f"{72:020}.log"
    log.write_bytes(damage.flip(log.read_bytes(), 100))
    before = [digests(one) for one in brokers]
    done = invoke("repair", "--format", "jsonl", *brokers, tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {Path(row["file"]).name for row in rows if row["kind"] == "taken"} == {"orders-0", "payments-1", "clicks-2"}
    assert [row["offset"] for row in rows if row["kind"] == "truncated"] == [30]
    assert invoke("diff", whole, tmp_path / "new").exit_code == 0
    assert invoke("validate", "-q", tmp_path / "new").exit_code == 0
    assert [digests(one) for one in brokers] == before


def test_partitions_are_in_some_log_dirs_only(tmp_path: Path, brokers: list[Path]) -> None:
    """The second log directory of a broker has other partitions; a partition that only one has is repaired from it."""
    other = tmp_path / "second-log-dir"
    other.mkdir()
    (brokers[0] / "orders-0").rename(other / "orders-0")
    shutil.rmtree(brokers[2] / "payments-1")
    for one in brokers[1:]:
        shutil.rmtree(one / "clicks-2")
    done = invoke("repair", brokers[0], other, *brokers[1:], tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == ["clicks-2", "orders-0", "payments-1"]
    assert invoke("validate", "-q", tmp_path / "new").exit_code == 0


def test_a_replica_without_a_valid_batch_adds_nothing(tmp_path: Path, brokers: list[Path]) -> None:
    """A log of which a part of one batch is left does not keep the others from being put together."""
    log = brokers[1] / "clicks-2" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:100])
    done = invoke("repair", *brokers, tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    assert invoke("diff", brokers[0] / "clicks-2", tmp_path / "new" / "clicks-2").exit_code == 0


def test_the_lost_history_is_named_without_details(tmp_path: Path, brokers: list[Path]) -> None:
    """-q leaves out where batches are from, not that records of a replica are left out; another cluster gives a warning."""
    for number, one in enumerate(brokers):
        (one / "meta.properties").write_text(f"version=1\ncluster.id=cluster{number // 2}\nnode.id={number}\n")
    done = invoke("repair", "-q", *brokers, tmp_path / "new")
    assert "from offset 30 on it has another history" in done.stdout
    assert "offsets 0..29" not in done.stdout
    assert "of different clusters" in done.stderr


@pytest.mark.slow
def test_a_diverged_partition_does_not_stop_the_others(tmp_path: Path, brokers: list[Path]) -> None:
    """Replicas with one epoch and other records: a line, exit code 2; one log directory can be preferred."""
    stale, log = brokers[2] / "clicks-2" / f"{0:020}.log", brokers[0] / "clicks-2" / f"{0:020}.log"
    data = bytearray(stale.read_bytes())
    epochs = log.read_bytes()
    for at in (12, 13, 14, 15):  # that of its last batch, which no CRC covers
        data[_last_batch(bytes(data)) + at] = epochs[_last_batch(epochs) + at]
    stale.write_bytes(data)
    for one in (stale.parent, log.parent):
        (one / "leader-epoch-checkpoint").unlink(missing_ok=True)
    failed = invoke("repair", *brokers, tmp_path / "new")
    assert failed.exit_code == 2
    assert "clicks-2: " in failed.stderr
    assert "name the SRC that counts with --prefer" in failed.stderr
    assert failed.stdout.startswith("1 partition not repaired; in the others no data lost")
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == ["orders-0", "payments-1"]
    chosen = invoke("repair", "--prefer", brokers[2], *brokers, tmp_path / "other")
    assert chosen.exit_code == 0, chosen.stderr
    assert invoke("diff", brokers[2] / "clicks-2", tmp_path / "other" / "clicks-2").exit_code == 0


def _last_batch(data: bytes) -> int:
    at = last = 0
    while at < len(data):
        at, last = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big"), at
    return last


def test_deleted_records_stay_deleted(tmp_path: Path, brokers: list[Path]) -> None:
    """A follower learns the log start last: the result has the highest of the checkpoints."""
    for one, start in zip(brokers, (5, 30, 7), strict=True):
        (one / LOG_STARTS).write_text(f"0\n1\norders 0 {start}\n")
    assert invoke("repair", *brokers, tmp_path / "new").exit_code == 0
    assert (tmp_path / "new" / LOG_STARTS).read_text() == "0\n1\norders 0 30\n"


def test_metadata_logs_are_left_out(tmp_path: Path, brokers: list[Path]) -> None:
    """Controllers delete their logs by themselves: a mixture of their copies could be one that none of them had."""
    for one in brokers:
        shutil.copytree(brokers[0] / "orders-0", one / "__cluster_metadata-0")
    done = invoke("repair", *brokers, tmp_path / "new")
    assert done.exit_code == 0
    assert "__cluster_metadata-0 (a metadata log is not made from several copies" in done.stderr
    assert not (tmp_path / "new" / "__cluster_metadata-0").exists()
    alone = invoke("repair", *(one / "__cluster_metadata-0" for one in brokers), tmp_path / "copy")
    assert alone.exit_code == 2
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_the_report_of_many_partitions_is_short(tmp_path: Path) -> None:
    """With 60 partitions of two brokers the report counts by log directory."""
    home = [tmp_path / name for name in BROKERS[:2]]
    for one in home:
        make_many(one, 60, 0)
    done = invoke("repair", "--dry-run", *home, tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) < 8
    assert f"from {home[0]} (-v lists them)" in done.stdout.replace("\n  ", " ")


def test_what_is_no_set_of_log_dirs_is_refused(tmp_path: Path, brokers: list[Path]) -> None:
    """A partition among log directories, a log directory twice, and DST in one of them."""
    for sources, why in (
        ((brokers[0], brokers[1] / "orders-0", tmp_path / "new"), "is no partition folder"),
        ((brokers[0], brokers[0], tmp_path / "new"), "twice"),
        ((*brokers, brokers[0], tmp_path / "new"), "twice"),
        ((*brokers[:2], brokers[0] / "new"), ""),
        ((brokers[0], tmp_path / "absent", tmp_path / "new"), "absent"),
        ((brokers[0] / "orders-0", brokers[0] / "payments-1", tmp_path / "new"), "(payments-1)"),
    ):
        done = invoke("repair", *sources)
        assert done.exit_code == 2, sources
        assert why in done.stderr
    assert not (tmp_path / "new").exists()
