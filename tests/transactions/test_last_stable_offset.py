"""The last stable offset and the first offset of open transactions, where the log no longer has their beginning."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

import kseg as library
from kseg.commands.transactions import PartitionTransactions, Transaction
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg_here as kseg
from tests.support.transactional_logs import ABORT, COMMIT, CONTROL, TRANSACTIONAL, batch

COMMITTED = ("--isolation", "read_committed", "--format", "jsonl")


def plain(offset: int) -> bytes:
    return batch(offset, offset, [(offset, b"key %d" % offset, b"value")])


def data(offset: int, producer: int = 7) -> bytes:
    return batch(offset, offset, [(offset, b"key", b"value")], TRANSACTIONAL, producer, 0, offset)


def marker(offset: int, kind: int, producer: int = 7) -> bytes:
    record = (offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch(offset, offset, [record], TRANSACTIONAL | CONTROL, producer, 0)


def snapshot(first: int | None, last: int) -> bytes:
    """Return a snapshot of producer 7, whose transaction began at ``first``."""
    return packed([ProducerState(7, 0, 1, last, 0, 1_700_000_000_000, 0, first)])


def write(folder: Path, segments: Mapping[int, list[bytes]], snapshots: Mapping[int, bytes] | None = None) -> Path:
    folder.mkdir(parents=True)
    for base, batches in segments.items():
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    for offset, content in (snapshots or {}).items():
        (folder / f"{offset:020}.snapshot").write_bytes(content)
    return folder


def of(folder: Path) -> tuple[list[Transaction], PartitionTransactions]:
    *transactions, partition = library.transactions(folder)
    assert isinstance(partition, PartitionTransactions)
    return [one for one in transactions if isinstance(one, Transaction)], partition


def committed(folder: Path) -> list[int]:
    """Return the offsets that dump, grep, SQL and scan show, which agree, with read_committed."""
    statement = 'select "offset" from records order by file, "offset"'
    found = [
        [json.loads(line)["offset"] for line in kseg(*command, folder).stdout.splitlines()]
        for command in (
            ("dump", "--deep", *COMMITTED),
            ("dump", "--deep", "--last", 1000, *COMMITTED),
            ("grep", *COMMITTED, "value"),
            ("sql", *COMMITTED, statement),
        )
    ]
    scanned = library.scan(folder, isolation="read_committed", columns=["offset"]).scanner().to_table()
    assert all(one == scanned.column("offset").to_pylist() for one in found), found
    return found[0]


@pytest.mark.parametrize("snapshots", [(10, 20, 21), (20, 21), (21,)], ids=["running", "restarted", "one segment"])
def test_a_transaction_begins_where_the_snapshots_say(snapshots: tuple[int, ...], tmp_path: Path) -> None:
    """The command that aborts names the first offset of the transaction: a restart deletes the snapshot at the log start."""
    log = {10: [plain(10), data(11), *map(plain, range(12, 20))], 20: [plain(20)]}
    folder = write(tmp_path / "pay-0", log, {at: snapshot(3, 11) for at in snapshots})
    (one,), partition = of(folder)
    assert (one.state, one.first_offset, one.last_offset, one.records) == ("hanging", 3, 11, 1)
    assert (one.abort or "").endswith(" --topic pay --partition 0 --start-offset 3")
    assert (partition.last_stable_offset, partition.held_by) == (10, 7)
    shown = kseg("transactions", folder).stdout
    assert "last stable offset 10, producer 7 blocks it: read_committed consumers do not see offsets 10..20" in shown
    assert committed(folder) == []


@pytest.mark.parametrize(("kind", "state"), [(ABORT, "aborted"), (COMMIT, "committed")])
def test_its_marker_ends_it(kind: int, state: str, tmp_path: Path) -> None:
    """A later transaction of the producer has its own first offset."""
    log = {10: [plain(10), data(11), *map(plain, range(12, 20))], 20: [marker(20, kind), data(21)]}
    folder = write(tmp_path / "pay-0", log, {20: snapshot(3, 11), 22: snapshot(21, 21)})
    (ended, hanging), partition = of(folder)
    assert (ended.state, ended.first_offset, ended.last_offset, ended.records) == (state, 3, 20, 1)
    assert (hanging.state, hanging.first_offset, partition.last_stable_offset) == ("hanging", 21, 21)
    assert committed(folder) == [10, *([11] if kind == COMMIT else []), *range(12, 20)]


def test_the_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    """Records were deleted up to offset 5: consumers get none before it, and the blocked ones begin there."""
    folder = write(tmp_path / "pay-0", {0: [plain(0), data(1), *map(plain, range(2, 10))]})
    assert (of(folder)[1].last_stable_offset, committed(folder)) == (1, [0])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\npay 0 5\n", encoding="utf-8")
    (one,), partition = of(folder)
    assert (one.first_offset, partition.last_stable_offset, committed(folder)) == (1, 5, [])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\npay 0 10\n", encoding="utf-8")
    shown = kseg("transactions", folder).stdout
    assert "last stable offset 10, producer 7 blocks it: read_committed consumers do not see the next records" in shown


def test_read_committed_begins_at_the_log_start_of_each_partition(tmp_path: Path) -> None:
    """A log can start in the middle of a batch."""
    for name in ("a-0", "b-0", "c-0"):
        write(tmp_path / name, {0: [batch(0, 5, [(at, b"key", b"value") for at in range(6)]), plain(6)]})
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\na 0 3\nc 0 6\n", encoding="utf-8")
    assert committed(tmp_path) == [3, 4, 5, 6, *range(7), 6]


def cleaned(first: int, last: int) -> bytes:
    """Return a batch that the log cleaner left with its first and last record."""
    return batch(first, last, [(at, b"key", b"value") for at in (first, last)])


@pytest.mark.parametrize("lost", ["segment", "batches"])
def test_missing_offsets_after_an_open_transaction_are_lost(lost: str, tmp_path: Path) -> None:
    """The cleaner stops at the first open transaction, so the marker can be lost: no command aborts what can have ended."""
    before, after = [cleaned(0, 2), data(3)], [cleaned(10, 12)]
    log = {0: before, 10: after} if lost == "segment" else {0: [*before, *after]}
    folder = write(tmp_path / "comp-0", log)
    (one,), _ = of(folder)
    assert (one.state, one.first_offset, one.age_ms, one.abort) == ("unknown", 3, None, None)
    assert kseg("transactions", folder).returncode == 0
    why = "lost, or compacted before the log was truncated, because the transaction of offset 3 has no marker"
    assert why in " ".join(kseg("validate", folder).stdout.split())
    if lost == "segment":
        shown = kseg("dump", "--deep", "--format", "jsonl", "--offsets", "3:4", folder).stdout
        assert json.loads(shown)["transaction_state"] == "unknown"
    # A snapshot after the missing offsets shows that it had not ended there.
    (folder / f"{13:020}.snapshot").write_bytes(snapshot(3, 3))
    (one,), partition = of(folder)
    assert (one.state, partition.last_stable_offset) == ("hanging", 3)


@pytest.mark.parametrize(("first", "state"), [(1, "hanging"), (None, "unknown"), (7, "unknown")])
def test_a_snapshot_after_the_log_end_shows_whether_its_marker_is_lost(
    first: int | None, state: str, tmp_path: Path
) -> None:
    """A log can lose its end at a batch or with a segment: no command aborts what had ended, or began anew."""
    folder = write(tmp_path / "pay-0", {0: [plain(0), data(1), plain(2)]})
    (folder / f"{8:020}.snapshot").write_bytes(snapshot(first, first or 1))
    (folder / f"{9:020}.snapshot").write_bytes(b"damaged")
    (one,), partition = of(folder)
    assert (one.state, one.abort is None, partition.last_stable_offset) == (state, state == "unknown", 1)
    shown = kseg("dump", "--deep", "--format", "jsonl", "--offsets", "1:2", folder).stdout
    assert json.loads(shown)["transaction_state"] == ("unknown" if state == "unknown" else "open")


def test_a_timestamp_in_the_future_has_no_age(tmp_path: Path) -> None:
    """A producer's clock can be wrong: the table says so, instead of a negative age."""
    later = build_batch(
        [PlainRecord(0, value=b"value", timestamp=4_000_000_000_000)],
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    folder = write(tmp_path / "pay-0", {0: [later]})
    assert "in the future" in kseg("transactions", folder).stdout


def test_missing_offsets_before_an_open_transaction_are_compaction(tmp_path: Path) -> None:
    """Also those in a transaction that has ended."""
    folder = write(tmp_path / "comp-0", {0: [cleaned(0, 2), data(4), marker(9, COMMIT)], 20: [data(20), plain(21)]})
    (ended, hanging), _ = of(folder)
    assert (ended.state, hanging.state, hanging.first_offset) == ("committed", "hanging", 20)
