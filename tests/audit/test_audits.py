"""The audits of a fleet: each finds the planted fault at its place, and none in logs that brokers wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.audit_table import AUDITS
from kseg.format.segment import split_points
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import fleet
from tests.support.cli import MIXED, SEGMENTS, kseg
from tests.support.spark_jobs import run


def audit(name: str, *paths: object, code: int = 0) -> list[dict[str, Any]]:
    done = run("audit", name, "--format", "jsonl", *paths)
    assert done.exit_code == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def batch(offset: int, count: int, timestamp: int = 1_000, value: bytes = b"v", **header: Any) -> bytes:
    records = [PlainRecord(offset + i, b"k%d" % (offset + i), value, timestamp) for i in range(count)]
    return build_batch(records, **header)


def segment(folder: Path, offset: int, batches: Sequence[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path


def test_replicas_show_where_they_diverge_and_which_is_stale(tmp_path: Path) -> None:
    """As two brokers after an unclean election; the verdicts are those of ``kseg diff``."""
    common = batch(0, 5, partition_leader_epoch=1)
    a = segment(tmp_path / "a" / "orders-0", 0, [common, batch(5, 3, value=b"old", partition_leader_epoch=1)])
    b = segment(tmp_path / "b" / "orders-0", 0, [common, batch(5, 3, value=b"new", partition_leader_epoch=2)])
    for name in "ab":
        segment(tmp_path / name / "same-1", 0, [common])
    segment(tmp_path / "a" / "alone-0", 0, [common])
    parted, same = audit("replicas", tmp_path / "a", tmp_path / "b", code=1)
    assert (parted["topic"], parted["verdict"], parted["first_offset"]) == ("orders", "diverged", 5)
    assert (parted["a_epoch"], parted["b_epoch"], parted["stale"], parted["a_truncates_to"]) == (1, 2, "a", 5)
    assert (same["topic"], same["partition"], same["verdict"]) == ("same", 1, "identical")
    reported = json.loads(kseg("diff", "--format", "jsonl", a.parent, b.parent).stdout.splitlines()[-1])
    assert reported["verdict"] == parted["verdict"]


def test_gaps_and_overlaps(tmp_path: Path) -> None:
    """Planted gaps and overlaps are found, and no others."""
    first = segment(tmp_path / "orders-0", 0, [batch(0, 10)])
    segment(tmp_path / "orders-0", 20, [batch(20, 10)])
    segment(tmp_path / "orders-0", 25, [batch(25, 10)])
    segment(tmp_path / "other-0", 35, [batch(35, 1)])
    gap, overlap = audit("gaps", tmp_path, code=1)
    assert (gap["kind"], gap["first_offset"], gap["last_offset"], gap["file"]) == ("gap", 10, 19, str(first))
    assert (overlap["kind"], overlap["first_offset"], overlap["last_offset"]) == ("overlap", 25, 29)
    assert audit("gaps", SEGMENTS / "4.3.0-v2-none-segments") == []


def test_duplicates_of_offsets_and_of_sequences(tmp_path: Path) -> None:
    """Within one folder only: another replica has all the same offsets."""
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    batches = [batch(0, 2, base_sequence=0, **producer), batch(2, 2, base_sequence=0, **producer), batch(3, 2)]
    segment(tmp_path / "a" / "orders-0", 0, batches)
    segment(tmp_path / "b" / "orders-0", 0, batches[:1])
    sequence, offset = audit("duplicates", tmp_path, code=1)
    assert (sequence["kind"], sequence["first_offset"], sequence["earlier_offset"]) == ("sequence", 2, 1)
    assert (offset["kind"], offset["first_offset"], offset["earlier_offset"]) == ("offset", 3, 3)
    assert audit("duplicates", SEGMENTS / "4.3.0-v2-none-transactions", SEGMENTS / "4.3.0-v2-none-segments") == []


def test_offset_commits_of_transactions_are_no_duplicates(tmp_path: Path) -> None:
    """A group coordinator begins the commits of each transaction at sequence 0, for the producer of the transaction."""
    commits = [
        SEGMENTS / name for name in ("4.3.0-v2-none-consumer-offsets", "4.3.0-v2-none-internal-consumer-offsets")
    ]
    assert audit("duplicates", *commits) == []
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    marker = build_batch([PlainRecord(2, b"\0\0\0\1", bytes(6))], control=True, **producer)
    batches = [batch(0, 2, base_sequence=0, **producer), marker, batch(3, 2, base_sequence=0, **producer)]
    again = batch(5, 2, base_sequence=0, **producer)
    segment(tmp_path / "orders-0", 0, batches)
    assert audit("duplicates", tmp_path) == []
    # In a topic of clients, a batch without a marker before it is one that was written again.
    segment(tmp_path / "orders-0", 0, [*batches, again])
    segment(tmp_path / "__consumer_offsets-0", 0, [*batches, again])
    (found,) = audit("duplicates", tmp_path, code=1)
    assert (found["topic"], found["first_offset"], found["earlier_offset"]) == ("orders", 5, 1)


def test_old_versions_are_counted(tmp_path: Path) -> None:
    """The audit counts batches and bytes of v0 and v1."""
    found = {row["magic"]: row for row in audit("legacy", MIXED, SEGMENTS / "4.3.0-v2-none")}
    reported = [json.loads(line) for line in kseg("dump", "--format", "jsonl", MIXED).stdout.splitlines()]
    for magic in (0, 1):
        own = [row for row in reported if row["magic"] == magic]
        assert (found[magic]["batches"], found[magic]["bytes"]) == (len(own), sum(row["size"] for row in own))
    assert set(found) == {0, 1}


def test_the_largest_producers_and_keys(tmp_path: Path) -> None:
    """Producers and keys are listed by the bytes that they use."""
    batches = [
        batch(0, 3, value=bytes(100), producer_id=1, producer_epoch=0, base_sequence=0),
        batch(3, 3, producer_id=2, producer_epoch=0, base_sequence=0),
        build_batch([PlainRecord(6, b"k0", bytes(50)), PlainRecord(7, b"k0", None)]),
    ]
    segment(tmp_path / "orders-0", 0, batches)
    producers = audit("top-producers", tmp_path)
    assert [(row["producer_id"], row["bytes"], row["records"]) for row in producers] == [
        (1, len(batches[0]), 3),
        (2, len(batches[1]), 3),
    ]
    keys = audit("top-keys", tmp_path)
    assert (keys[0]["key"], keys[0]["bytes"], keys[0]["records"], keys[0]["tombstones"]) == ("k0", 156, 3, 1)
    assert sum(row["records"] for row in keys) == 8


def test_retention_blockers(tmp_path: Path) -> None:
    """A timestamp in the future, and one that is larger than the following ones, with its batch."""
    late = 4_102_444_800_000
    segment(tmp_path / "orders-0", 0, [batch(0, 2, 1_000), batch(2, 2, late), batch(4, 2, 1_001)])
    behind = segment(tmp_path / "orders-0", 6, [batch(6, 2, 2_000)])
    segment(tmp_path / "calm-0", 0, [batch(0, 2, 1_000)])
    segment(tmp_path / "calm-0", 2, [batch(2, 2, 2_000)])
    (pin,) = audit("retention-pins", tmp_path, code=1)
    assert (pin["offset"], pin["position"], pin["timestamp_ms"], pin["future"]) == (3, len(batch(0, 2)), late, True)
    assert (pin["held_segments"], pin["held_bytes"]) == (1, behind.stat().st_size)


def test_formats_and_refusals(tmp_path: Path) -> None:
    """A table for people, CSV for a spreadsheet; an empty result is stated."""
    shutil.copy(MIXED, tmp_path / MIXED.name)
    table = run("audit", "legacy", tmp_path)
    assert "max_timestamp_ms" in table.stdout
    lines = run("audit", "legacy", "--format", "csv", tmp_path).stdout.splitlines()
    assert lines[0].startswith("topic,partition,file,magic")
    assert len(lines) == 3
    assert run("audit", "legacy", SEGMENTS / "4.3.0-v2-none").stderr.endswith("no rows found\n")
    assert run("audit", "gaps", tmp_path / "missing").exit_code == 2


def test_sequences_that_restart_are_no_duplicates(tmp_path: Path) -> None:
    """After 2,147,483,647 records a producer's sequences begin again at 0; only equal ones are duplicates."""
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    sequences = [5, 2_147_483_600, 0, 3, 5, 9]
    batches = [batch(i, 1, base_sequence=sequence, **producer) for i, sequence in enumerate(sequences)]
    segment(tmp_path / "orders-0", 0, batches)
    (found,) = audit("duplicates", tmp_path, code=1)
    assert (found["base_sequence"], found["first_offset"], found["earlier_offset"]) == (5, 4, 0)


@pytest.mark.parametrize("most_runs", [2, 64])
def test_more_keys_than_fit_in_memory(most_runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of keys are written to temporary files, and the result is the same."""
    for partition in range(3):
        records = [PlainRecord(i, b"k%d" % (i % 50 + partition), bytes(i % 7), 0) for i in range(200)]
        segment(tmp_path / f"orders-{partition}", 0, [build_batch(records)])
    expected = audit("top-keys", tmp_path)
    monkeypatch.setattr("kseg.commands.audit.keys.MOST_BYTES", 2_000)
    monkeypatch.setattr("kseg.commands.audit.keys.MOST_RUNS", most_runs)
    assert audit("top-keys", tmp_path) == expected
    assert len(expected) == 20


def test_a_file_that_cannot_be_read_fails_the_audit(tmp_path: Path) -> None:
    """The rows of the other files are printed, and the exit code says that the audit is incomplete."""
    segment(tmp_path / "orders-0", 0, [batch(0, 10)])
    segment(tmp_path / "orders-0", 5, [batch(5, 10)])
    wrong = tmp_path / "noise"
    wrong.write_bytes(b"not a segment " * 100)
    for name in ("gaps", "legacy", "duplicates", "top-keys"):
        done = run("audit", name, "--format", "jsonl", tmp_path, wrong)
        assert (done.exit_code, str(wrong) in done.stderr) == (2, True), name


@pytest.mark.parametrize("name", AUDITS)
def test_one_process_or_many(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of processes does not change the rows."""
    brokers = fleet.make(tmp_path)
    one = run("audit", name, "--format", "jsonl", "--jobs", 1, *brokers)
    monkeypatch.setattr(split_points, "RANGE_SIZE", 1)
    many = run("audit", name, "--format", "jsonl", "--jobs", 2, *brokers)
    assert (one.exit_code, one.stdout) == (many.exit_code, many.stdout)
