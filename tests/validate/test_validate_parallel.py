"""Several processes return the results of one, for valid and damaged files, with any ranges."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from kseg.commands.validate import validate_ranges
from kseg.findings import Finding, Policy
from kseg.format.segment import several_processes
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_range, open_split
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import FileResult, Settings

BATCHES = 400


def batch(number: int, sequence: int | None = None) -> bytes:
    records = [
        PlainRecord(offset=number * 4 + i, timestamp=1700000000000 + number, key=b"k", value=bytes([number % 251]) * 90)
        for i in range(4)
    ]
    return build_batch(
        records, base_offset=number * 4, producer_id=7, producer_epoch=0, base_sequence=sequence or number * 4
    )


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges have megabytes; smaller ones let a small file have several."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 10_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 8_000)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)


def both(path: Path, *rules: str) -> tuple[FileResult, FileResult]:
    file, settings = SegmentFile(str(path)), Settings(policy=Policy.parse(rules))
    (one,) = validate_ranges.validate_files([file], settings, 1)
    (two,) = validate_ranges.validate_files([file], settings, 2)
    return one, two


def write(folder: Path, batches: list[bytes]) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return path


def test_a_file_is_split_where_entries_begin(tmp_path: Path) -> None:
    """A split point inside a batch would lose it."""
    batches = [batch(number) for number in range(BATCHES)]
    path = write(tmp_path, batches)
    starts = several_processes.range_starts(str(path), path.stat().st_size, 2)
    boundaries = {sum(map(len, islice(batches, count))) for count in range(BATCHES)}
    assert len(starts) > 3
    assert set(starts) <= boundaries


def test_ranges_become_smaller_towards_the_end(tmp_path: Path) -> None:
    """Processes that end at different times wait for each other. Files with many bytes after them need no ranges."""
    path = write(tmp_path, [batch(number) for number in range(BATCHES)])
    size = path.stat().st_size
    starts = several_processes.range_starts(str(path), size, 2)
    ranges = [last - first for first, last in pairwise([*starts, size])]
    assert ranges[0] > 2 * ranges[-2]
    assert min(ranges) > several_processes.RANGE_SIZE * 0.9
    assert len(several_processes.range_starts(str(path), size, 2, size)) < len(starts)
    assert several_processes.range_starts(str(path), size, 2, 20 * size) == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["none", "gap", "flip", "cut", "sequence", "epoch", "disorder", "insert", "gaps", "everywhere"]
)
def test_the_same_findings_and_counts(tmp_path: Path, fault: str) -> None:
    """The results do not depend on the number of processes."""
    batches = [batch(number) for number in range(BATCHES)]
    if fault == "gap":
        del batches[200]
    elif fault == "gaps":
        del batches[::3]
    elif fault == "flip":
        batches[210] = batches[210][:100] + b"\0" + batches[210][101:]
    elif fault == "everywhere":
        batches = [entry[:100] + b"\0" + entry[101:] for entry in batches]
    elif fault == "cut":
        batches[-1] = batches[-1][:-5]
    elif fault == "sequence":
        batches[150:] = [batch(number, number * 4 + 3) for number in range(150, BATCHES)]
    elif fault == "epoch":
        batches[100:] = [entry[:12] + b"\0\0\0\5" + entry[16:] for entry in batches[100:]]
        batches[300:] = [entry[:12] + b"\0\0\0\4" + entry[16:] for entry in batches[300:]]
    elif fault == "disorder":
        batches[150], batches[320] = batches[320], batches[150]
    elif fault == "insert":
        batches.insert(180, b"garbage " * 50)
    one, two = both(write(tmp_path, batches))
    assert (one.verdicts == ()) is (fault == "none")
    assert two == one


def zeros_before_a_split(folder: Path) -> tuple[Path, int, int]:
    """Return a segment with zeros in place of the batches before a split point, and their range."""
    batches = [batch(number) for number in range(BATCHES)]
    path = write(folder, batches)
    seam = several_processes.range_starts(str(path), path.stat().st_size, 2)[2]
    begin = sum(map(len, batches[: next(n for n in range(BATCHES) if sum(map(len, batches[:n])) == seam) - 5]))
    data = bytearray(path.read_bytes())
    data[begin:seam] = bytes(seam - begin)
    path.write_bytes(data)
    assert seam in several_processes.range_starts(str(path), path.stat().st_size, 2)
    return path, begin, seam


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", [(), ("zero-tail=ignore",), ("lost-bytes=ignore",), ("zero-tail=ignore", "lost-bytes=info")]
)
def test_the_end_of_a_range_is_not_the_end_of_the_file(tmp_path: Path, rules: tuple[str, ...]) -> None:
    """Zeros before a split point lie in the middle of the file, whatever severity zeros at its end have."""
    path, begin, seam = zeros_before_a_split(tmp_path)
    one, two = both(path, *rules)
    assert two == one
    assert one.summary.lost_bytes == seam - begin
    assert one.found == {"lost-bytes"}


def test_a_split_reports_its_end_as_the_file_does(tmp_path: Path) -> None:
    """A reader of a split reads past its end before it reports damage there, and yields no batch from there."""
    path, begin, seam = zeros_before_a_split(tmp_path)
    found: list[Finding] = []
    with SegmentReader(open_split(str(path), 0, seam), report=found.append) as reader:
        ends = [window.batches.position[window.batches.count - 1] for window in reader.windows()]
    assert max(ends) < begin
    assert [(finding.rule, finding.position, finding.end) for finding in found] == [("lost-bytes", begin, seam)]
    assert (reader.position, reader.damaged, reader.lost_bytes) == (seam, True, seam - begin)
    with SegmentReader(open_split(str(path), seam, path.stat().st_size), report=found.append) as reader:
        assert sum(window.batches.count for window in reader.windows())
    assert (reader.position, reader.damaged) == (path.stat().st_size, False)


def test_a_range_ends_at_its_end_whatever_follows_in_the_file(tmp_path: Path) -> None:
    """An incomplete tail makes a reader check whether its file has grown:

    in a range, it would continue into the next.
    """
    path = write(tmp_path, [batch(number) for number in range(8)])
    end = len(batch(0)) * 3 + 7
    source = open_range(str(path), 0, end)
    with SegmentReader(source) as reader:
        assert sum(window.batches.count for window in reader.windows()) == 3
        assert (reader.position, source.size) == (end, end)
