"""Logs that lost their end, while their indexes have entries for it."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.records import NOW

COUNT, KEPT = 20, 10
STEM = f"{0:020}"
#: The size of the indexes of a broker that has not trimmed them.
PREALLOCATED = {".index": 800, ".timeindex": 804}


def write_log(folder: Path) -> bytes:
    """Write a log of two offsets per batch with its indexes, without a producer snapshot."""
    folder.mkdir(parents=True)
    pairs = [range(2 * n, 2 * n + 2) for n in range(COUNT)]
    batches = [build_batch([PlainRecord(at, b"k", b"v" * 50, NOW + at) for at in pair]) for pair in pairs]
    log = folder / f"{STEM}.log"
    log.write_bytes(b"".join(batches))
    offsets, times = io.BytesIO(), io.BytesIO()
    builder = IndexBuilder(0, offsets, times, interval=100)
    with SegmentReader(open_source(str(log))) as reader:
        for window in reader.windows():
            builder.add(window.batches, 0, window.batches.count)
    builder.finish()
    log.with_suffix(".index").write_bytes(offsets.getvalue())
    log.with_suffix(".timeindex").write_bytes(times.getvalue())
    return b"".join(batches[:KEPT])


def preallocate(folder: Path) -> None:
    for suffix, size in PREALLOCATED.items():
        path = folder / f"{STEM}{suffix}"
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))


def lose_end(folder: Path, kept: bytes, *, zeros: bool) -> None:
    log = folder / f"{STEM}.log"
    log.write_bytes(kept + bytes(log.stat().st_size - len(kept)) if zeros else kept)


def reported(command: str, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    done = invoke(command, "--format", "jsonl", *arguments)
    assert done.exit_code in (0, 1), done.stderr
    return done.exit_code, [
        row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] in ("lost", "finding")
    ]


@pytest.mark.parametrize("single", [False, True], ids=["folder", "segment"])
@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "cut"])
def test_entries_of_indexes_prove_a_lost_end(zeros: bool, single: bool, tmp_path: Path) -> None:
    """A statement about loss is proved: a broker appends a batch before its index entries."""
    folder = tmp_path / "orders-0"
    lose_end(folder, write_log(folder), zeros=zeros)
    source = folder / f"{STEM}.log" if single else folder
    code, rows = reported("repair", "--dry-run", source)
    assert (code, [(row["offset"], row["last_offset"]) for row in rows]) == (1, [(2 * KEPT, 2 * COUNT - 1)])
    assert "its indexes show that the log reached offset 39" in rows[0]["why"]
    code, rows = reported("validate", folder)
    assert code == 1
    assert {row["rule"] for row in rows} >= {"index-mismatch", "time-index-mismatch"}


@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "cut"])
def test_a_preallocated_index_proves_only_what_zeros_confirm(zeros: bool, tmp_path: Path) -> None:
    """A broker that truncates its log leaves stale entries in a preallocated index, but no zeros in their place."""
    folder = tmp_path / "orders-0"
    kept = write_log(folder)
    preallocate(folder)
    lose_end(folder, kept, zeros=zeros)
    code, rows = reported("repair", "--dry-run", folder)
    assert (code, [row["offset"] for row in rows]) == ((1, [2 * KEPT]) if zeros else (0, []))
    code, rows = reported("validate", folder)
    assert code == zeros
    assert ("index-mismatch" in {row["rule"] for row in rows}) == zeros


def test_a_last_entry_of_the_time_index_proves_lost_zeros(tmp_path: Path) -> None:
    """The time index gets its last entry when the segment is closed, for batches after the last offset index entry."""
    folder = tmp_path / "orders-0"
    kept = write_log(folder)
    (folder / f"{STEM}.index").write_bytes(b"")
    lose_end(folder, kept, zeros=True)
    code, rows = reported("repair", "--dry-run", folder)
    assert (code, [(row["offset"], row["last_offset"]) for row in rows]) == (1, [(20, 39)])
    code, rows = reported("validate", folder)
    assert code == 1
    assert "time-index-mismatch" in {row["rule"] for row in rows}


@pytest.mark.slow
def test_a_damaged_index_is_no_loss_of_records(tmp_path: Path) -> None:
    """No offset is invented: whichever bit of an index is wrong, a sound log has lost nothing."""
    folder, dice = tmp_path / "orders-0", random.Random("indexes")
    write_log(folder)
    for suffix in (".index", ".timeindex"):
        path = folder / f"{STEM}{suffix}"
        data = path.read_bytes()
        last = range(8 * (len(data) - 12), 8 * len(data))
        for bit in [*last, *dice.sample(range(last.start), 40)]:
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            assert reported("repair", "--dry-run", folder) == (0, []), (suffix, bit)
        path.write_bytes(data)


def test_an_index_of_another_log_proves_nothing(tmp_path: Path) -> None:
    """Indexes that were left next to another log say nothing about its end."""
    folder = tmp_path / "orders-0"
    write_log(folder)
    records = [PlainRecord(at, b"k", b"another", NOW) for at in range(9)]
    (folder / f"{STEM}.log").write_bytes(b"".join(build_batch([record]) for record in records))
    assert reported("repair", "--dry-run", folder) == (0, [])
