"""Each entry of a producer snapshot is compared with the log, without an alarm for what brokers write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kseg.format.sidefiles.producer_snapshot import ProducerState, packed, read_snapshot
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.folders import FOLDERS, copied, marker, rules, transactional

TIME = 1_700_000_000_000
#: Producer 7 ends a transaction at offset 4, then 1 batch has no producer, then producer 8 writes.
LAST = ProducerState(7, 0, 3, 3, 1, TIME, 0, None)
PLAIN = build_batch([PlainRecord(5 + n, b"k", b"v", TIME) for n in range(3)])
IDEMPOTENT = build_batch([PlainRecord(8 + n, b"k", b"v", TIME) for n in range(2)], producer_id=8, producer_epoch=0,
                         base_sequence=0)  # fmt: skip
BATCHES = [transactional(0, 2, 7, 0), transactional(2, 2, 7, 2), marker(4, 7, abort=False), PLAIN, IDEMPOTENT]
OTHER = ProducerState(8, 0, 1, 9, 1, TIME, -1, None)


def written(folder: Path, batches: Iterable[bytes], producers: Iterable[ProducerState], base: int = 0) -> Path:
    folder.mkdir()
    (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    (folder / f"{10:020}.snapshot").write_bytes(packed(producers))
    return folder


@pytest.mark.parametrize(
    "wrong",
    [
        LAST._replace(producer_epoch=1),  # the marker of a new epoch forgets the batch of the old one
        LAST._replace(offset_delta=2),
        LAST._replace(offset_delta=-1),
        LAST._replace(last_sequence=4),
        LAST._replace(last_offset=2),
        LAST._replace(last_offset=4),
        LAST._replace(last_offset=5, offset_delta=0),
        LAST._replace(last_offset=-1),  # a broker would take the sequence for unknown
        LAST._replace(producer_id=9),
        LAST._replace(coordinator_epoch=1),  # a leader rejects the next markers of coordinator epoch 0
        LAST._replace(coordinator_epoch=-1),
        ProducerState(9, 0, 0, 7, 0, TIME, -1, None),
        ProducerState(9, 0, 0, 0, 0, TIME, -1, None),
    ],
)
def test_an_entry_that_contradicts_the_batch_at_its_last_offset_is_reported(
    tmp_path: Path, wrong: ProducerState
) -> None:
    """A broker trusts the entry: it rejects valid batches of the producer, or accepts duplicates."""
    folder = written(tmp_path / "orders-0", BATCHES, [wrong, OTHER])
    assert rules(folder) == {f"{10:020}.snapshot": ["snapshot-mismatch"]}


@pytest.mark.parametrize(
    ("dropped", "entry"),
    [
        (0, LAST),
        (0, LAST._replace(producer_epoch=1, last_sequence=-1, last_offset=-1, offset_delta=0)),  # forgotten by a marker
        # Kafka 0.11 writes the marker as the last batch, and then keeps the sequence, or forgets it with the epoch.
        (0, LAST._replace(last_offset=4, offset_delta=0)),
        (0, LAST._replace(producer_epoch=1, last_sequence=-1, last_offset=4, offset_delta=0)),
        (2, LAST._replace(last_offset=4, offset_delta=0)),
        (3, LAST),  # deleted by retention
        (3, LAST._replace(producer_id=9)),
    ],
)
def test_entries_that_brokers_write_are_valid(tmp_path: Path, dropped: int, entry: ProducerState) -> None:
    """Entries of markers in each version of Kafka, and of batches that the log no longer has."""
    base = (0, 2, 4, 5)[dropped]
    folder = written(tmp_path / "orders-0", BATCHES[dropped:], [entry, OTHER], base)
    assert rules(folder) == {}


@pytest.mark.parametrize(("dropped", "found"), [(2, ["snapshot-mismatch"]), (3, [])])
def test_a_transaction_from_before_the_log_ends_with_its_marker(tmp_path: Path, dropped: int, found: list[str]) -> None:
    """An entry that keeps it open stops the last stable offset. Without the marker it may be open."""
    entry = LAST._replace(current_txn_first_offset=0)
    folder = written(tmp_path / "orders-0", BATCHES[dropped:], [entry, OTHER], dropped + 2)
    assert rules(folder).get(f"{10:020}.snapshot", []) == found


@pytest.mark.parametrize("first", [None, 2])
def test_an_open_transaction_of_the_log_is_open_in_the_snapshot(tmp_path: Path, first: int | None) -> None:
    """A broker that takes it for ended does not stop the last stable offset: consumers get records that may be aborted."""
    batches = [*BATCHES[:2], *BATCHES[3:]]
    batches[2] = build_batch([PlainRecord(4 + n, b"k", b"v", TIME) for n in range(4)])
    entry = LAST._replace(coordinator_epoch=-1)
    valid = written(tmp_path / "orders-0", batches, [entry._replace(current_txn_first_offset=0), OTHER])
    wrong = written(tmp_path / "orders-1", batches, [entry._replace(current_txn_first_offset=first), OTHER])
    assert rules(valid) == {}
    assert rules(wrong) == {f"{10:020}.snapshot": ["snapshot-mismatch"]}


def test_a_producer_that_had_expired_has_no_coordinator_epoch(tmp_path: Path) -> None:
    """A broker drops a producer after a day without a batch. The log still has its last marker."""
    again = build_batch([PlainRecord(10, b"k", b"v", TIME)], producer_id=7, producer_epoch=0, base_sequence=0)
    entry = LAST._replace(last_sequence=0, last_offset=10, offset_delta=0, coordinator_epoch=-1)
    folder = written(tmp_path / "orders-0", [*BATCHES, again], [])
    (folder / f"{10:020}.snapshot").rename(folder / f"{11:020}.snapshot").write_bytes(packed([entry, OTHER]))
    assert rules(folder) == {}


def test_a_batch_that_may_have_been_removed_proves_nothing(tmp_path: Path) -> None:
    """The cleaner removes the last batch of an expired producer, a repair leaves a damaged one out: offsets are missing."""
    entry = ProducerState(9, 0, 0, 4, 0, TIME, -1, None)
    folder = written(tmp_path / "orders-0", [*BATCHES[:2], *BATCHES[3:]], [LAST, entry, OTHER])
    assert f"{10:020}.snapshot" not in rules(folder)


@pytest.mark.parametrize("name", [folder.name for folder in FOLDERS if folder.name.endswith("-none-transactions")])
def test_entries_of_real_brokers_with_one_changed_field(tmp_path: Path, name: str) -> None:
    """Each entry of the newest snapshot with another epoch, or with the id of a producer that the log does not have."""
    folder = copied(name, tmp_path)
    path = max(folder.glob("*.snapshot"))
    producers = read_snapshot(path.read_bytes()) or []
    found = []
    for at, entry in enumerate(producers):
        if entry.last_offset < 0:
            continue
        for wrong in (entry._replace(producer_epoch=entry.producer_epoch + 1), entry._replace(producer_id=987_654_321)):
            path.write_bytes(packed([*producers[:at], wrong, *producers[at + 1 :]]))
            found.append(rules(folder).get(path.name, []))
    assert found
    assert all("snapshot-mismatch" in each for each in found)
