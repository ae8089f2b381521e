"""Stale entries that Kafka leaves in the indexes of an active segment after a truncation are distinguished from
damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kseg.findings import Finding
from kseg.format.sidefiles.index_reader import first_offset_since, newest_timestamp
from kseg.format.sidefiles.index_walks import walk_offset_index
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.fixtures import SEGMENTS
from tools.make_findings import findings

STEM = f"{0:020}"
PREALLOCATED = 4000
# Its index has five entries.
SOURCE = SEGMENTS / "0.8.2.2-v0-none"
TIMED = SEGMENTS / "4.3.0-v2-lz4-large"


def partition(tmp_path: Path, source: Path, name: str = STEM) -> Path:
    """A folder with the log and the indexes of a segment, these without zeros at their ends."""
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for suffix, size in ((".log", 0), (".index", 8), (".timeindex", 12)):
        file = (source / name).with_suffix(suffix)
        if file.exists():
            data = file.read_bytes()
            if size:
                used = len(data.rstrip(b"\0"))
                data = data[: used + -used % size]
            (folder / file.name).write_bytes(data)
    return folder


def rules(folder: Path) -> list[tuple[str, str]]:
    return [(row["rule"], row["severity"]) for row in findings(folder, {}) if row["kind"] == "finding"]


def append(index: Path, layout: struct.Struct, entries: Iterable[tuple[int, int]], *, zeros: int = PREALLOCATED) -> int:
    """Write entries after the last one and preallocated zeros after them; return the position of the first."""
    data = index.read_bytes()
    index.write_bytes(data + b"".join(layout.pack(*entry) for entry in entries) + bytes(zeros))
    return len(data)


def last(index: Path, layout: struct.Struct) -> tuple[Any, ...]:
    return layout.unpack(index.read_bytes()[-layout.size :])


def stale_cases(offset: int, position: int, size: int) -> dict[str, list[tuple[int, int]]]:
    return {
        "beyond the end of the log": [(offset + 1000, size + 10), (offset + 1010, size + 5000)],
        "at the end of the log": [(offset + 1000, size)],
        "back to a lower offset": [(offset - 1, position + 9)],
        "back to a lower position": [(offset + 1000, position - 3)],
        "in order, but within a batch": [(offset + 1, position + 1)],
        "of a batch that was copied again": [(offset, position)],
        "of several truncations": [(offset + 9, size + 9), (offset + 2, size + 1), (offset - 1, position - 5)],
    }


@pytest.mark.parametrize("case", stale_cases(9, 9, 9))
def test_stale_entries_of_an_offset_index_are_an_info(tmp_path: Path, case: str) -> None:
    """Entries that a truncation leaves after the valid entries of a preallocated index are not an error."""
    folder = partition(tmp_path, SOURCE)
    index, size = folder / f"{STEM}.index", (folder / f"{STEM}.log").stat().st_size
    offset, position = last(index, OFFSET_ENTRY)
    entries = stale_cases(offset, position, size)[case]
    at = append(index, OFFSET_ENTRY, entries)
    (row,) = (row for row in findings(folder, {}) if row["kind"] == "finding")
    assert (row["rule"], row["severity"], row["position"]) == ("stale-index-entries", "info", at)
    assert row["end"] == at + 8 * len(entries)


def test_a_time_index_has_stale_entries_too(tmp_path: Path) -> None:
    """Older times, and offsets after the end of the log."""
    folder = partition(tmp_path, TIMED)
    index = folder / f"{STEM}.timeindex"
    timestamp, offset = last(index, TIME_ENTRY)
    append(index, TIME_ENTRY, [(timestamp - 5, offset + 5000), (timestamp + 5, offset + 6000)])
    assert rules(folder) == [("stale-index-entries", "info")]


def flipped_offset(data: bytes) -> bytes:
    middle = len(data) // 16 * 8
    return data[:middle] + struct.pack(">i", 2**30) + data[middle + 4 :]


def lowered_offset(data: bytes) -> bytes:
    middle = len(data) // 16 * 8
    return data[:middle] + struct.pack(">i", 1) + data[middle + 4 :]


def moved_position(data: bytes) -> bytes:
    middle = len(data) // 16 * 8
    (position,) = struct.unpack_from(">i", data, middle + 4)
    return data[: middle + 4] + struct.pack(">i", position + 1) + data[middle + 8 :]


def noise(data: bytes) -> bytes:
    return data[:-16] + b"\xff\x01" * 8


@pytest.mark.parametrize("damage", [flipped_offset, lowered_offset, moved_position, noise])
def test_damage_in_a_preallocated_index_stays_an_error(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Entries that agree with the log follow the damage, or Kafka never writes such bytes."""
    folder = partition(tmp_path, SOURCE)
    index = folder / f"{STEM}.index"
    assert len(index.read_bytes()) >= 5 * 8
    index.write_bytes(damage(index.read_bytes()) + bytes(PREALLOCATED))
    found = rules(folder)
    assert any(severity == "error" for _, severity in found)
    assert ("stale-index-entries", "info") not in found


def test_entries_after_the_end_of_a_trimmed_index_are_an_error(tmp_path: Path) -> None:
    """A broker trims the index when the segment rolls and when it stops: then no stale entries are left."""
    folder = partition(tmp_path, SOURCE)
    append(folder / f"{STEM}.index", OFFSET_ENTRY, [(10**6, 10**8)], zeros=0)
    assert ("index-mismatch", "error") in rules(folder)


def test_only_the_newest_segment_has_stale_entries(tmp_path: Path) -> None:
    """An older segment with such entries is damaged, also by itself."""
    folder = partition(tmp_path, SOURCE)
    index = folder / f"{STEM}.index"
    offset, position = last(index, OFFSET_ENTRY)
    append(index, OFFSET_ENTRY, [(offset - 1, position + 9)])
    (folder / f"{10**9:020}.log").write_bytes(b"")
    assert ("index-not-increasing", "error") in rules(folder)
    found: list[Finding] = []
    with open_source(str(index)) as source:
        list(walk_offset_index(source, 0, found.append))
    assert [finding.rule for finding in found] == ["index-not-increasing"]


@pytest.mark.parametrize("with_log", [True, False])
def test_an_index_read_alone_ends_at_the_first_decreasing_entry(tmp_path: Path, with_log: bool) -> None:
    """``dump`` and ``validate`` of one index: the valid entries and one info."""
    folder = partition(tmp_path, SOURCE)
    index = folder / f"{STEM}.index"
    valid = len(index.read_bytes()) // 8
    offset, position = last(index, OFFSET_ENTRY)
    append(index, OFFSET_ENTRY, [(offset - 1, position + 9), (offset + 7, position + 99)])
    if not with_log:
        (folder / f"{STEM}.log").unlink()
    found: list[Finding] = []
    with open_source(str(index)) as source:
        entries = list(walk_offset_index(source, 0, found.append))
    assert len(entries) == valid
    assert [(finding.rule, finding.facts["entries"]) for finding in found] == [("stale-index-entries", 2)]


def test_a_stale_time_entry_hides_no_records(tmp_path: Path) -> None:
    """A stale entry in order claims that records up to its offset are old."""
    folder = partition(tmp_path, TIMED)
    log, index = folder / f"{STEM}.log", folder / f"{STEM}.timeindex"
    timestamp, offset = last(index, TIME_ENTRY)
    honest = first_offset_since(str(log), log.stat().st_size, timestamp + 100)
    append(index, TIME_ENTRY, [(timestamp + 1, offset + 1)])
    assert first_offset_since(str(log), log.stat().st_size, timestamp + 100) == honest == offset + 1


def test_the_last_time_entry_must_agree_with_the_log(tmp_path: Path) -> None:
    """A time index that is damaged, or lacks its end, must not hide the records of a sealed segment."""
    log = tmp_path / f"{0:020}.log"
    times = [1000, 5000, 3000, 9000]
    log.write_bytes(b"".join(build_batch([PlainRecord(n, b"k", b"v", time)]) for n, time in enumerate(times)))
    for entries, newest in (
        ([(9000, 3)], 9000),
        ([(5000, 1), (9000, 3)], 9000),
        ([(5000, 1)], None),
        ([(900, 3)], None),
    ):
        log.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
        assert newest_timestamp(str(log)) == newest, entries
