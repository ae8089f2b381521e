"""A lost marker changes which records consumers with read_committed get: a repair names these transactions."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.damage import flip
from tests.support.transactional_logs import CONTROL, TRANSACTIONAL, RandomLog, batch, write_log


def data(first: int, count: int, producer: int, sequence: int) -> bytes:
    records = [(first + n, b"key", b"value") for n in range(count)]
    return batch(first, first + count - 1, records, TRANSACTIONAL, producer, 0, sequence)


def marker(offset: int, producer: int, *, commits: bool) -> bytes:
    content = [(offset, struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 0))]
    return batch(offset, offset, content, TRANSACTIONAL | CONTROL, producer, 0, -1)


def repaired(folder: Path, *batches: bytes, index: bytes = b"") -> str:
    """Repair a log, and return what the command says. A dry run says the same of transactions."""
    source = folder / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(b"".join(batches))
    if index:
        (source / f"{0:020}.txnindex").write_bytes(index)
    dry = invoke("repair", "--dry-run", source, folder / "new")
    done = invoke("repair", source, folder / "new")
    assert done.exit_code == dry.exit_code == 1
    assert [line for line in dry.stderr.splitlines() if "producer" in line] == [
        line for line in done.stderr.splitlines() if "producer" in line
    ]
    return " ".join(done.stderr.split())


def damaged(data: bytes) -> bytes:
    return flip(data, len(data) - 1)


def test_records_that_count_as_committed_now_are_named(tmp_path: Path) -> None:
    """The ABORT marker is lost, and the COMMIT marker of the next transaction ends both. Without an index it is possible."""
    log = data(0, 3, 5, 0), damaged(marker(3, 5, commits=False)), data(4, 2, 5, 3), marker(6, 5, commits=True)
    told = repaired(tmp_path, *log)
    assert "producer 5: the records of offsets 0..5 are committed now: a marker" in told
    assert "can be at the lost offset 3" in told


def test_the_transaction_index_of_the_source_proves_it(tmp_path: Path) -> None:
    log = data(0, 3, 5, 0), damaged(marker(3, 5, commits=False)), data(4, 2, 5, 3), marker(6, 5, commits=True)
    told = repaired(tmp_path, *log, index=struct.pack(">hqqqq", 0, 5, 0, 3, 4))
    assert (
        "committed now, and the transaction index has offsets 0..3 as aborted: read_committed consumers get them"
        in told
    )


def test_committed_records_that_count_as_aborted_now_are_named(tmp_path: Path) -> None:
    log = data(0, 3, 5, 0), damaged(marker(3, 5, commits=True)), data(4, 2, 5, 3), marker(6, 5, commits=False)
    assert "producer 5: the records of offsets 0..5 are aborted now" in repaired(tmp_path, *log)


def test_a_conversion_that_skips_a_marker_names_the_command(tmp_path: Path) -> None:
    """What it names tells the transactions."""
    source = tmp_path / "orders-0"
    source.mkdir()
    log = data(0, 3, 5, 0), damaged(marker(3, 5, commits=False)), data(4, 2, 5, 3), marker(6, 5, commits=True)
    (source / f"{0:020}.log").write_bytes(b"".join(log))
    done = invoke("convert", "any-to-v2", "--compression", "gzip", "--skip-damaged", source, tmp_path / "new")
    assert (done.exit_code, f"`kseg repair {source} NEW`" in done.stderr) == (1, True)
    told = invoke("repair", source, tmp_path / "repaired")
    assert "offsets 0..5 are committed now" in told.stderr


def test_a_loss_outside_of_transactions_is_silent(tmp_path: Path) -> None:
    """Neither before the first record of a transaction nor after its marker."""
    plain = batch(0, 0, [(0, b"key", b"value")])
    between = batch(5, 5, [(5, b"key", b"value")])
    log = damaged(plain), data(1, 3, 5, 0), marker(4, 5, commits=True), damaged(between), data(6, 1, 5, 3)
    assert "now" not in repaired(tmp_path, *log, marker(7, 5, commits=True))


@pytest.mark.slow
def test_each_record_whose_outcome_changes_is_in_a_transaction_that_is_named(tmp_path: Path) -> None:
    """120 random logs, each with one damaged batch: what read_committed returns before and after, by an own oracle."""
    changed = 0
    for seed in range(120):
        dice = random.Random(seed)
        source = tmp_path / str(seed) / "orders-0"
        truth = write_log(source, dice)
        path = dice.choice(sorted(source.glob("*.log")))
        path.write_bytes(flip(path.read_bytes(), dice.randrange(61, path.stat().st_size)))
        target = tmp_path / str(seed) / "new" / "orders-0"
        target.parent.mkdir()
        done = invoke("repair", "-v", source, target)
        wrong = wrongly_visible(target, truth)
        named = [line for line in done.stderr.splitlines() if " now" in line]
        spans = [tuple(map(int, line.split("offsets ")[1].split(" ")[0].split(".."))) for line in named]
        assert all(any(first <= offset <= last for first, last in spans) for offset in wrong), (seed, wrong, named)
        changed += bool(wrong)
    assert changed > 3


def wrongly_visible(folder: Path, truth: RandomLog) -> list[int]:
    """Return the offsets of aborted records that consumers get, and of committed ones that they do not get."""
    found = invoke("dump", "--deep", "--format", "csv", "--columns", "offset,transaction_state", folder).stdout
    states = {int(row[0]): row[1] for row in (line.split(",") for line in found.splitlines()[1:])}
    return [
        one.offset
        for one in truth.records
        if not one.control
        and one.state in ("aborted", "committed")
        and states.get(one.offset, one.state) != one.state
        and states[one.offset] in ("aborted", "committed")
    ]
