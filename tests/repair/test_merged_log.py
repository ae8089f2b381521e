"""The segments that are written of batches of several replicas: their names, their bytes, and the times of their files."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from kseg.commands.repair import merged_log
from kseg.commands.repair.damaged_replicas import ReplicaBatch
from kseg.commands.repair.merged_log import MergedLog
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage


def batch(offset: int) -> bytes:
    return build_batch([PlainRecord(offset, b"k", b"v" * offset, 1)], partition_leader_epoch=3)


def replica(folder: Path, name: int, *offsets: int, modified: int = 1) -> list[ReplicaBatch]:
    """Write a segment, and return its batches."""
    folder.mkdir(exist_ok=True)
    path, found, position = folder / f"{name:020}.log", list[ReplicaBatch](), 0
    for offset in offsets:
        size = len(batch(offset))
        found.append(ReplicaBatch(offset, offset, size, 0, 3, path, position, 1, False, False))
        position += size
    path.write_bytes(b"".join(map(batch, offsets)))
    os.utime(path, (modified, modified))
    return found


def written(folder: Path, batches: list[tuple[ReplicaBatch, int | None]]) -> dict[int, bytes]:
    with closing(MergedLog(folder)) as log:
        for one, epoch in batches:
            log.append(one, epoch)
    return {int(path.stem): path.read_bytes() for path in sorted(folder.iterdir())}


def test_segments_begin_where_those_of_the_replicas_begin(tmp_path: Path) -> None:
    """A name below the first offset is kept, as after compaction, unless the offsets before it are taken."""
    first = replica(tmp_path / "a", 5, 7, 8)
    exact = replica(tmp_path / "b", 9, 12)
    taken = replica(tmp_path / "b", 12, 15, 16)
    out = written(tmp_path / "out", [(one, None) for one in (*first, *exact, *taken)])
    assert out == {5: batch(7) + batch(8), 9: batch(12), 15: batch(15) + batch(16)}


def test_a_batch_of_another_replica_continues_the_segment(tmp_path: Path) -> None:
    """The bytes of both are whole, also if batches between them are left out."""
    one, other = replica(tmp_path / "a", 0, 0, 1, 4, 5), replica(tmp_path / "b", 0, 0, 1, 2, 3, 4, 5, 6)
    order = [one[0], other[1], other[2], one[2], other[5], other[6]]
    out = written(tmp_path / "out", [(each, None) for each in order])
    assert out == {0: b"".join(batch(n) for n in (0, 1, 2, 4, 5, 6))}


def test_another_epoch_is_written_into_its_batch_alone(tmp_path: Path) -> None:
    """No CRC covers it."""
    batches = replica(tmp_path / "a", 0, 0, 1, 2, 3)
    out = written(tmp_path / "out", list(zip(batches, (None, 9, 2**31 - 1, None), strict=True)))
    expected = [batch(n) for n in range(4)]
    expected[1] = damage.put(expected[1], 0, partition_leader_epoch=9)
    expected[2] = damage.put(expected[2], 0, partition_leader_epoch=2**31 - 1)
    assert out == {0: b"".join(expected)}


def test_a_segment_has_the_time_of_the_newest_file_in_it(tmp_path: Path) -> None:
    """Retention uses it for batches without timestamps; the next segment has its own."""
    old, new = replica(tmp_path / "a", 0, 0, modified=100), replica(tmp_path / "b", 0, 0, 1, modified=300)
    last = replica(tmp_path / "c", 2, 2, modified=200)
    written(tmp_path / "out", [(one, None) for one in (*old, new[1], *last)])
    assert [path.stat().st_mtime for path in sorted((tmp_path / "out").iterdir())] == [300, 200]


def test_a_segment_ends_before_the_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's positions have 31 bits; the next segment is named by its first batch."""
    batches = replica(tmp_path / "a", 0, 0, 1, 2)
    both = len(batch(0)) + len(batch(1))
    for most, names in ((both, [0, 2]), (both - 1, [0, 1, 2]), (both + 1000, [0])):
        monkeypatch.setattr(merged_log, "INT32_MAX", most)
        out = written(tmp_path / f"out{most}", [(one, None) for one in batches])
        assert [*out] == names
        assert b"".join(out.values()) == batch(0) + batch(1) + batch(2)
