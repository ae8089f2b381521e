"""``--last N``: the last N rows of each partition, in every log and with every condition, read from the end."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kseg.commands.dump.dump_items import BatchItem, Item, RecordsItem
from kseg.commands.dump.dumped_rows import FIRST_REACH, GROWTH, DumpRequest, LastRows, last_rows
from kseg.findings import do_nothing
from kseg.format.segment.row_filter import KeyIsOneOf, RowFilter
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import kseg
from tests.support.damaged_cases import NOW, chunks, damaged, seeds, written
from tests.support.fixtures import FOLDERS, SEGMENTS
from tests.support.following import following, offsets
from tests.support.growing_logs import write
from tests.support.writer import Writer

ROOT = SEGMENTS.parent
DAMAGED = sorted({path.parent for path in (ROOT / "findings").glob("*/*.log")})
PARTITIONS = [*FOLDERS, *DAMAGED]


def rows_of(items: Iterator[Item]) -> list[tuple[int | None, ...]]:
    """Return (byte of the batch, offset) of records, and (byte, base offset) of batches."""
    found: list[tuple[int | None, ...]] = []
    for item in items:
        if isinstance(item, RecordsItem):
            found += [(item.batch.position, record.offset) for record in item.records()]
        elif isinstance(item, BatchItem):
            found.append((item.batch.position, item.batch.base_offset))
    return found


def shown(files: list[SegmentFile], request: DumpRequest, most: int | None) -> list[tuple[int | None, ...]]:
    """Return the rows of a request, or its last ones."""
    if most is None:
        return [row for file in files for row in rows_of(request.items(file, do_nothing))]
    found = last_rows(files, most, request.keep, request.counted_items)
    return [
        row for last in found for row in rows_of(last.of(request.items(last.file, do_nothing, last.start, last.end)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("folder", PARTITIONS, ids=lambda folder: folder.name)
def test_the_last_rows_are_the_end_of_all_rows(folder: Path) -> None:
    """Logs of all versions and codecs, compacted ones, transactions, several segments, and one for each kind of damage."""
    files = sorted((SegmentFile(str(path), listed=True) for path in folder.glob("*.log")), key=lambda file: file.path)
    for deep in (False, True):
        for keep in (RowFilter(), RowFilter(control=False), RowFilter(first_offset=3, end_offset=20)):
            request = DumpRequest(deep, keep)
            every = shown(files, request, None)
            for most in (1, 2, 7, len(every), len(every) + 1):
                assert shown(files, request, most or 1) == every[-(most or 1) :], (deep, keep, most)


def parts(files: list[SegmentFile], most: int, request: DumpRequest) -> list[LastRows]:
    return list(last_rows(files, most, request.keep, request.counted_items))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SegmentFile:
    """A segment of 3 MB in batches of 1 KiB, with an index, and with damage every 300 KB."""
    random = Random(7)
    batches = [
        build_batch([PlainRecord(n, b"key-%d" % (n % 977), random.randbytes(960), NOW + n)], base_offset=n)
        for n in range(3000)
    ]
    folder = tmp_path_factory.mktemp("large") / "orders-0"
    folder.mkdir()
    path = write(folder, batches)
    data = bytearray(path.read_bytes())
    for at in range(200_000, len(data), 300_000):
        data[at] ^= 0xFF
    path.write_bytes(data)
    return SegmentFile(str(path), listed=True)


@pytest.mark.slow
def test_only_the_end_of_a_log_is_read(large: SegmentFile) -> None:
    """The bytes that are read follow from the number of rows, not from the size of the log."""
    size, request = Path(large.path).stat().st_size, DumpRequest(True, RowFilter())
    every = shown([large], request, None)
    assert len(every) == 3000 - 10
    for most in (1, 10, 60, 500, 2989, 2990, 5000):
        assert shown([large], request, most) == every[-most:]
    (ten,), (more,) = parts([large], 10, request), parts([large], 500, request)
    assert size - FIRST_REACH - 5000 < ten.start <= size - FIRST_REACH
    assert size - GROWTH * FIRST_REACH - 5000 < more.start <= size - GROWTH * FIRST_REACH
    keyed = DumpRequest(True, RowFilter(conditions=(KeyIsOneOf((b"key-5",)),), until=NOW + 2500))
    assert shown([large], keyed, 2) == shown([large], keyed, None)[-2:]
    (bounded,) = parts([large], 10, DumpRequest(True, RowFilter(end_offset=1500)))
    assert bounded.end is not None
    assert bounded.end - bounded.start < 2 * FIRST_REACH


def test_without_a_usable_index_the_rows_are_the_same(large: SegmentFile, tmp_path: Path) -> None:
    """A missing index, one of zeros, and one of another log."""
    request = DumpRequest(True, RowFilter())
    expected = shown([large], request, 30)
    path = tmp_path / Path(large.path).name
    path.write_bytes(Path(large.path).read_bytes())
    for index in (None, bytes(1 << 20), Random(3).randbytes(8000)):
        if index is not None:
            path.with_suffix(".index").write_bytes(index)
        assert shown([SegmentFile(str(path))], request, 30) == expected


@pytest.mark.slow
@chunks
def test_damage_near_the_end(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of damage in all versions, with an index whose entries the log may no longer agree with."""
    monkeypatch.setattr("kseg.commands.dump.dumped_rows.FIRST_REACH", 700)
    monkeypatch.setattr("kseg.commands.dump.dumped_rows.GROWTH", 3)
    for seed in seeds(chunk, 80):
        file = SegmentFile(str(written(tmp_path / str(seed), damaged(seed))))
        for deep in (False, True):
            request = DumpRequest(deep, RowFilter())
            every = shown([file], request, None)
            for most in (1, 3, 20):
                assert shown([file], request, most) == every[-most:], (seed, deep, most)


def offsets_of(*arguments: object, **more: Any) -> list[int]:
    done = kseg(*arguments, "--format", "jsonl", **more)
    assert done.stderr == ""
    return [json.loads(line)["offset"] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_each_partition_has_its_own_last_rows(tmp_path: Path) -> None:
    """Also over several segments, by dump and grep, from compressed files, and for a search."""
    for name, batches in (("a-0", 3), ("a-1", 9)):
        Writer(tmp_path / name, segment_batches=2).append(batches)
    assert offsets_of("dump", "--deep", "--last", 3, tmp_path) == [9, 10, 11, 33, 34, 35]
    assert offsets_of("dump", "--deep", "--last", 10, tmp_path / "a-1") == list(range(26, 36))
    assert offsets_of("dump", "--key", "3", "--key", "35", "--last", 1, tmp_path) == [3, 35]
    assert offsets_of("grep", "--last", 2, "v", tmp_path) == [10, 11, 34, 35]
    assert offsets_of("grep", "--last", 2, "--limit", 1, "v", tmp_path) == [10]
    assert offsets_of("grep", "--last", 2, "--in", "key", "^.$", tmp_path / "a-1") == [8, 9]
    segment = tmp_path / "a-1" / f"{0:020d}.log"
    packed = tmp_path / f"{0:020d}.log.gz"
    packed.write_bytes(gzip.compress(segment.read_bytes()))
    assert offsets_of("dump", "--deep", "--last", 2, packed) == [6, 7]
    lines = kseg("dump", "--last", 2, "--format", "jsonl", tmp_path / "a-0").stdout.splitlines()
    assert [json.loads(line)["base_offset"] for line in lines] == [4, 8]


def test_the_heading_of_a_batch_stays_with_its_records(tmp_path: Path) -> None:
    """The text of kafka-dump-log has a line before the records of a batch."""
    Writer(tmp_path / "a-0").append(2)
    lines = kseg("dump", "--deep", "--last", 3, "--format", "text", tmp_path / "a-0").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["Dumping", "Log", "baseOffset:", "|", "|", "|"]
    assert "offset: 5 " in lines[3]


def test_following_begins_with_the_last_rows(tmp_path: Path) -> None:
    """As with tail -n and -f."""
    writer = Writer(tmp_path / "orders-3", segment_batches=3)
    writer.append(5)
    with following("--last", 6, "--deep", "--format", "jsonl", writer.folder) as (_, lines):
        assert offsets(lines, 6) == list(range(14, 20))
        writer.append(1)
        assert offsets(lines, 4) == list(range(20, 24))


def test_files_that_cannot_be_read_twice(tmp_path: Path) -> None:
    """A pipe is refused before anything is read; a file that cannot be read fails as without the option."""
    Writer(tmp_path / "a-0").append(1)
    data = next((tmp_path / "a-0").iterdir()).read_bytes()
    done = kseg("dump", "--last", 1, "-", stdin=data)
    assert (done.returncode, done.stderr) == (2, "kseg: -: --last reads a file twice: write the input to a file\n")
    shutil.rmtree(tmp_path / "a-0")
    (tmp_path / f"{4:020d}.log").write_bytes(b"nothing of Kafka" * 50)
    done = kseg("dump", "--last", 1, tmp_path / f"{4:020d}.log")
    assert (done.returncode, done.stdout) == (kseg("dump", tmp_path / f"{4:020d}.log").returncode, "")
