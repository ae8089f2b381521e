"""Ranges of offsets and times: the indexes choose the bytes that are read, and no row is missing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kseg.commands.dump import dumped_rows
from kseg.commands.dump.dump_items import RecordsItem
from kseg.findings import Finding
from kseg.format.segment.records_chunk import Record
from kseg.format.segment.row_filter import RowFilter
from tests.support.cli import kseg_here as kseg
from tests.support.damage import flip
from tests.support.damaged_cases import damaged, written
from tests.support.fixtures import dump_segment
from tests.support.fuzzing import cases
from tests.support.growing_logs import batch, write


@pytest.mark.slow
def test_the_rows_of_a_range_are_those_of_the_whole_file(tmp_path: Path) -> None:
    """With the indexes of a valid segment a range has the same records as without, and no findings that the file lacks."""
    found_by_index = 0
    for seed in range(cases(40)):
        path = str(written(tmp_path / str(seed), damaged(seed, acts=0)))
        size, complaints = Path(path).stat().st_size, list[Finding]()
        every = records(path, RowFilter(), complaints)
        random = Random(seed)
        for _ in range(4):
            first, other = sorted(random.sample(range(len(every)), 2))
            low, high = every[first].offset, every[other].offset
            times = sorted(record.timestamp or 0 for record in random.sample(every, 2))
            for keep in (
                RowFilter(first_offset=low, end_offset=high),
                RowFilter(first_offset=low),
                RowFilter(end_offset=high),
                RowFilter(since=times[0], until=times[1]),
            ):
                new: list[Finding] = []
                assert records(path, keep, new) == [record for record in every if in_range(record, keep)]
                assert {finding.rule for finding in new} <= {finding.rule for finding in complaints}
                found_by_index += dumped_rows.byte_range(path, size, keep) != (0, size)
    assert found_by_index > 100


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dump --deep", "grep value"])
def test_segments_that_cannot_have_the_offsets_are_not_read(tmp_path: Path, command: str) -> None:
    """The names show it. Damage of the others is not in the answer, and not in the exit code."""
    folder = tmp_path / "orders-0"
    for first in (0, 4, 8):
        write(folder, [batch(first + number) for number in range(4)], first=first)
    for first in (0, 8):
        path = folder / f"{first * 4:020}.log"
        path.write_bytes(flip(path.read_bytes(), 70))
    done = kseg(*command.split(), "--offsets", "16:20", folder)
    assert (done.returncode, "crc-mismatch" in done.stderr) == (int(command.startswith("grep")), False), done.stderr
    assert kseg(*command.split(), "--offsets", "16:", folder).stderr.count("crc-mismatch") == 1
    assert kseg(*command.split(), "--offsets", ":20", folder).stderr.count("crc-mismatch") == 1


def records(path: str, keep: RowFilter, findings: list[Finding]) -> list[Record]:
    """Return the records of a dump."""
    items = dump_segment(path, deep=True, keep=keep, report=findings.append, check=True)
    return [record for item in items if isinstance(item, RecordsItem) for record in item.records()]


def in_range(record: Record, keep: RowFilter) -> bool:
    """Return whether a record is in the ranges of the filter."""
    if keep.since is not None and keep.until is not None:
        return record.timestamp is not None and keep.since <= record.timestamp < keep.until
    first, end = keep.first_offset, keep.end_offset
    return (first is None or record.offset >= first) and (end is None or record.offset < end)
