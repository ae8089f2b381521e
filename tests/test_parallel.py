"""Several processes say what one says, of sound files and of damaged ones, whatever the ranges are."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from kseg.files.storage import SegmentFile, open_range
from kseg.log.segment import SegmentReader
from kseg.rewriting.records_builder import PlainRecord, build_batch
from kseg.validation import parallel
from kseg.validation.validate import FileResult, Settings

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
    """Real ranges are of megabytes; these let a small file have several."""
    monkeypatch.setattr(parallel, "RANGE_SIZE", 10_000)
    monkeypatch.setattr(parallel, "SEARCH_REACH", 8_000)


def both(path: Path) -> tuple[FileResult, FileResult]:
    file = SegmentFile(str(path))
    (one,) = parallel.validate_files([file], Settings(), 1)
    (two,) = parallel.validate_files([file], Settings(), 2)
    return one, two


def write(folder: Path, batches: list[bytes]) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return path


def test_a_file_is_split_where_entries_begin(tmp_path: Path) -> None:
    batches = [batch(number) for number in range(BATCHES)]
    path = write(tmp_path, batches)
    starts = parallel.range_starts(str(path), path.stat().st_size, 2)
    boundaries = {sum(map(len, islice(batches, count))) for count in range(BATCHES)}
    assert len(starts) > 3
    assert set(starts) <= boundaries


@pytest.mark.parametrize(
    "fault", ["none", "gap", "flip", "cut", "sequence", "epoch", "disorder", "insert", "gaps", "everywhere"]
)
def test_the_same_findings_and_counts(tmp_path: Path, fault: str) -> None:
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


@pytest.mark.parametrize(("codec", "worth"), [("none", False), ("lz4", True)])
def test_processes_only_where_they_save_time(tmp_path: Path, codec: str, worth: bool) -> None:
    """A pool costs 0.05 s: by default all cores are used, and that must not be slower than one of them."""
    record = PlainRecord(offset=0, timestamp=1700000000000, key=None, value=bytes(range(256)) * 100)
    entry = build_batch([record], base_offset=0, compression=codec)
    path = write(tmp_path, [entry] * (4 * parallel.RANGE_SIZE // len(entry) + 1))
    size = path.stat().st_size
    assert parallel._worth_processes([SegmentFile(str(path))], [size], Settings()) is worth
    assert not parallel._worth_processes([SegmentFile(str(path))], [size], Settings(deep=False))


def test_a_range_ends_where_it_ends_whatever_the_file_holds_behind(tmp_path: Path) -> None:
    """A torn tail makes a reader look whether its file has grown: of a range, it would go on into the next."""
    path = write(tmp_path, [batch(number) for number in range(8)])
    end = len(batch(0)) * 3 + 7
    source = open_range(str(path), 0, end)
    with SegmentReader(source) as reader:
        assert sum(window.batches.count for window in reader.windows()) == 3
        assert (reader.position, source.size) == (end, end)
