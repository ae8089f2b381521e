"""Index layouts: real ones are read as their broker wrote them, generated ones follow LogSegment.recover."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kseg.errors import KsegError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.sidefiles.log_end import log_end_at
from kseg.format.storage.naming import base_offset_of
from tests.support.cli import ROOT
from tests.support.fixtures import FOLDERS
from tests.support.index_entries import read_offset_index, read_time_index
from tests.support.records import read


def real(pattern: str) -> list[Path]:
    """Return the indexes of closed segments: active ones are preallocated."""
    folders = [folder for folder in FOLDERS if "live" not in folder.name]
    return sorted(path for folder in folders for path in folder.glob(pattern) if path.stat().st_size)


INDEXES = real("*.index")
TIME_INDEXES = real("*.timeindex")


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem.lstrip('0') or 0}"


def test_there_are_real_indexes() -> None:
    """A glob without matches would let the tests below pass."""
    assert len(INDEXES) >= 5
    assert len(TIME_INDEXES) >= 5


def test_the_log_end_at_a_time_is_found_without_reading_the_log() -> None:
    """`kseg lag --at` shows the lag of that time: time indexes give the end that reading all batches gives."""
    paths = sorted((ROOT / "fixtures" / "tiered" / "reference" / "before" / "tiered-0").glob("*.log"))
    batches = [batch for path in paths for batch in read(path.read_bytes())[0]]
    known = [(batch.max_timestamp or 0, batch.base_offset or 0, batch.last_offset) for batch in batches]
    for time in {time + more for time, *_ in known for more in (-1, 0, 1)}:
        end = min((first for its, first, _ in known if its > time), default=known[-1][2] + 1)
        assert log_end_at([*map(str, paths)], time, INT64_MAX) == end
        left = None if end <= 10 else end
        assert log_end_at([*map(str, paths[1:])], time, INT64_MAX) == left


@pytest.mark.parametrize("path", INDEXES, ids=label)
def test_real_entries_point_at_batches(path: Path) -> None:
    """A position is a batch's first byte, and all batches before it end before the entry's offset, as a look-up needs.

    Which of the batch's offsets an entry has differs between versions.
    """
    base = base_offset_of(path.with_suffix(".log").name)
    assert base is not None
    batches = {batch.position: batch for batch in read(path.with_suffix(".log").read_bytes())[0]}
    offsets = list(read_offset_index(path.read_bytes(), base))
    for entry in offsets:
        assert entry.log_position in batches
        assert all(batch.last_offset < entry.offset for at, batch in batches.items() if at < entry.log_position)
    assert offsets == sorted(set(offsets))


def test_real_time_entries_are_of_batches() -> None:
    """Each time index entry belongs to a batch with this timestamp."""
    for path in TIME_INDEXES:
        base = base_offset_of(path.with_suffix(".log").name)
        assert base is not None, path
        batches = read(path.with_suffix(".log").read_bytes())[0]
        times = list(read_time_index(path.read_bytes(), base))
        assert {entry.timestamp for entry in times} <= {batch.max_timestamp for batch in batches}, path
        assert [entry.timestamp for entry in times] == sorted({entry.timestamp for entry in times}), path
        assert all(base <= entry.offset <= batches[-1].last_offset for entry in times), path


def built(batches: list[tuple[int, int, int]], base_offset: int = 100, interval: int = 10) -> tuple[bytes, bytes]:
    offsets, times = io.BytesIO(), io.BytesIO()
    builder = IndexBuilder(base_offset, offsets, times, interval)
    columns = BatchColumns(max(len(batches), 1))
    for row, (position, last_offset, timestamp) in enumerate(batches):
        columns.position[row], columns.last_offset[row], columns.max_timestamp[row] = position, last_offset, timestamp
    builder.add(columns, 0, len(batches))
    builder.finish()
    return offsets.getvalue(), times.getvalue()


def test_entries_come_when_more_than_the_interval_has_passed() -> None:
    """The interval is Kafka's log.index.interval.bytes."""
    offsets, times = built([(0, 100, 7), (10, 101, 9), (11, 105, 8), (21, 106, -1), (22, 109, 9), (40, 110, 12)])
    assert list(read_offset_index(offsets, 100)) == [(105, 11), (109, 22), (110, 40)]
    # Only a larger timestamp gets an entry, with the batch that has it.
    assert list(read_time_index(times, 100)) == [(9, 101), (12, 110)]


def test_the_largest_timestamp_is_there_at_the_end() -> None:
    """Kafka appends this entry when it closes a segment."""
    assert built([(0, 100, 7), (5, 101, 9)])[1] == (9).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert built([]) == (b"", b"")
    assert built([(0, 100, -1), (99, 101, -1)])[1] == b""


@pytest.mark.parametrize("batch", [(11, 100 + 2**31, -1), (11, 99, -1), (2**31, 100, -1)])
def test_positions_over_32_bits_are_rejected(batch: tuple[int, int, int]) -> None:
    """The broker splits such a segment (LogSegmentOffsetOverflowException)."""
    with pytest.raises(KsegError, match="does not fit"):
        built([batch])
