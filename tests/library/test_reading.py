"""``kseg.open_segment``, ``open_partition`` and ``open_log_dir``: iteration, ranges, indexes and errors."""

from __future__ import annotations

import io
import mmap
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
import zstandard

import kseg
from kseg.format.storage import source
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage
from tests.support.fixtures import FOLDERS, SEGMENTS

SEVERAL = SEGMENTS / "4.3.0-v2-none-segments"


def logs(folder: Path) -> list[Path]:
    """Return the segments of a folder in order."""
    return sorted(folder.glob("*.log"))


def log_dir_with(folder: Path, **partitions: Path) -> Path:
    """Return a log directory with copies of partition folders; ``_`` in a name means ``-``."""
    for name, original in partitions.items():
        shutil.copytree(original, folder / name.replace("_", "-"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if logs(folder)], ids=lambda folder: folder.name)
def test_a_range_is_what_a_full_read_has_of_it(folder: Path) -> None:
    """The indexes decide which bytes are read. They must not change which rows come back."""
    log = kseg.open_partition(folder)
    records, batches = list(log.records()), list(log.batches())
    offsets = sorted({record.offset for record in records})
    times = sorted({record.timestamp for record in records if record.timestamp is not None})
    for first, end in [(a, b) for a in offsets[:: len(offsets) // 4 + 1] for b in offsets[:: len(offsets) // 3 + 1]]:
        wanted = [record for record in records if first <= record.offset < end]
        assert list(log.records(first_offset=first, end_offset=end)) == wanted
        found = list(log.batches(first_offset=first, end_offset=end))
        # The base offset of a compressed v0 or v1 batch is unknown: such a batch after the range may come back or not.
        assert [batch for batch in found if batch.base_offset is not None] == [
            batch
            for batch in batches
            if batch.base_offset is not None and first < end and first <= batch.last_offset and batch.base_offset < end
        ]
        assert {record.position for record in wanted} <= {batch.position for batch in found}
    for since, until in [(a, b) for a in times[:: len(times) // 4 + 1] for b in times[:: len(times) // 3 + 1]]:
        assert list(log.records(since=since, until=until)) == [
            one for one in records if one.timestamp is not None and since <= one.timestamp < until
        ]


def test_each_record_has_its_sequence(tmp_path: Path) -> None:
    """Sequences begin at 0 and continue with 0 after 2^31 - 1. Without an idempotent producer they are -1 (KIP-98)."""
    path, batches, offset = tmp_path / f"{0:020}.log", [], 0
    for base_sequence in (0, 7, 2**31 - 2, -1):
        records = [PlainRecord(offset + n, None, b"v", 1_600_000_000_000) for n in range(3)]
        batches.append(build_batch(records, producer_id=base_sequence and 9, base_sequence=base_sequence))
        offset += 3
    path.write_bytes(b"".join(batches))
    found = [record.sequence for record in kseg.open_segment(path).records()]
    assert found == [0, 1, 2, 7, 8, 9, 2**31 - 2, 2**31 - 1, 0, -1, -1, -1]


def test_an_index_saves_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up by offset or time in a large segment reads a part of it."""
    path = tmp_path / "00000000000000000000.log"
    log, offset_index, time_index = b"", b"", b""
    for offset in range(200):
        batch = build_batch([PlainRecord(offset, None, b"v" * 1000, 1000 + offset)], base_offset=offset)
        if offset % 10 == 9:
            offset_index += struct.pack(">ii", offset, len(log))
            time_index += struct.pack(">qi", 1000 + offset, offset)
        log += batch
    path.write_bytes(log)
    path.with_suffix(".index").write_bytes(offset_index)
    path.with_suffix(".timeindex").write_bytes(time_index)
    read = 0
    readinto = source.Source.readinto

    def counting(self: source.Source, view: memoryview) -> int:
        nonlocal read
        count = readinto(self, view)
        read += count
        return count

    monkeypatch.setattr(source.Source, "readinto", counting)
    with kseg.open_segment(path) as segment:
        for wanted in (
            segment.records(first_offset=150, end_offset=152),
            segment.records(since=1150, end_offset=152),
            segment.records(first_offset=150, since=1140, end_offset=152),
        ):
            read = 0
            assert [record.offset for record in wanted] == [150, 151]
            assert 0 < read < len(log) / 4


def test_an_empty_range_has_neither_records_nor_batches() -> None:
    """A batch that holds both ends of the range has no record of it."""
    log = kseg.open_partition(SEVERAL)
    for first, end in ((5, 2), (5, 5)):
        assert list(log.records(first_offset=first, end_offset=end)) == []
        assert list(log.batches(first_offset=first, end_offset=end)) == []


def test_a_wrong_index_changes_nothing(tmp_path: Path) -> None:
    """An index that the log does not confirm is not used."""
    folder = log_dir_with(tmp_path, orders_0=SEVERAL) / "orders-0"
    log = kseg.open_partition(folder)
    expected = list(log.records(first_offset=20, end_offset=70))
    for path in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 4):
            data[at + 3] ^= 1
        path.write_bytes(data)
    assert list(log.records(first_offset=20, end_offset=70)) == expected


def test_segments_outside_of_the_range_are_not_opened(tmp_path: Path) -> None:
    """A look-up in a partition with thousands of segments opens one or two of them."""
    folder = log_dir_with(tmp_path, orders_0=SEVERAL) / "orders-0"
    log = kseg.open_partition(folder)
    assert (log.topic, log.partition, len(log.files)) == ("orders", 0, 6)
    for path in logs(folder):
        if path.name not in ("00000000000000000024.log", "00000000000000000048.log"):
            path.write_bytes(b"not readable as a log" * 100)
    found: list[kseg.Finding] = []
    log = kseg.open_partition(folder, report=found.append)
    assert [record.offset for record in log.records(first_offset=40, end_offset=60)] == list(range(40, 60))
    assert found == []


def test_a_log_dir_has_its_partitions(tmp_path: Path) -> None:
    """Partitions are found by their folders, and read one after the other."""
    found = kseg.open_log_dir(log_dir_with(tmp_path, orders_0=SEVERAL, orders_1=SEGMENTS / "4.3.0-v2-none"))
    assert [(log.topic, log.partition) for log in found.partitions] == [("orders", 0), ("orders", 1)]
    assert list(found.records()) == [record for log in found.partitions for record in log.records()]
    assert found.partition("orders", 1) is found.partitions[1]
    with pytest.raises(kseg.UnreadableError, match="does not contain partition orders-2"):
        found.partition("orders", 2)
    with pytest.raises(kseg.UsageError, match="2 partition folders: use open_log_dir"):
        kseg.open_partition(tmp_path)


def test_a_deleted_segment_is_left_out(tmp_path: Path) -> None:
    """Next to a live broker, segments disappear between listing and opening."""
    folder = log_dir_with(tmp_path, orders_0=SEVERAL) / "orders-0"
    log = kseg.open_partition(folder)
    (folder / "00000000000000000000.log").unlink()
    assert next(log.records()).offset == 24
    assert [len(list(segment.batches())) > 0 for segment in log.segments()] == [True] * 5


READERS: dict[str, Callable[[Path], object]] = {
    "records": lambda folder: kseg.open_log_dir(folder.parent).records(),
    "grep": lambda folder: kseg.grep(folder, ""),
    "stats": kseg.stats,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_segment_that_vanishes_after_older_ones_is_an_error(reader: str, tmp_path: Path) -> None:
    """Retention deletes the oldest segments: without another one, records are missing that the log still had."""
    folder = log_dir_with(tmp_path, orders_0=SEVERAL) / "orders-0"
    found = cast(Iterable[object], READERS[reader](folder))
    logs(folder)[2].unlink()
    with pytest.raises(kseg.UnreadableError, match=r"0048\.log: merged by the log cleaner or truncated"):
        list(found)


def test_a_file_can_be_read_again_and_a_stream_cannot() -> None:
    """A pipe that was read is empty: silence would look like an empty segment."""
    path = logs(SEVERAL)[0]
    with kseg.open_segment(path) as segment:
        assert list(segment.records()) == list(segment.records())
        assert [one.offset for one, _ in zip(segment.records(), segment.batches(), strict=False)]
    with kseg.open_segment(io.BytesIO(path.read_bytes())) as segment:
        assert len(list(segment.records(first_offset=10))) == 14
        with pytest.raises(kseg.UsageError, match="can be read only once"):
            list(segment.records())


def test_a_stream_without_a_name_is_read_like_another() -> None:
    """The name of a pipe is its descriptor, and that of a temporary file can be None: neither is a path."""
    path = logs(SEVERAL)[0]
    wanted = [record.offset for record in kseg.open_segment(path).records()]
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as running, tempfile.SpooledTemporaryFile() as file:
        file.write(path.read_bytes())
        file.seek(0)
        for stream in (running.stdout, file):
            with kseg.open_segment(cast(BinaryIO, stream)) as segment:
                assert (segment.name, [record.offset for record in segment.records()]) == ("<stream>", wanted)


def closed_while_it_is_read() -> None:
    """Read a file that another one closes."""
    with logs(SEVERAL)[0].open("rb") as file:
        segment = kseg.open_segment(file)
    list(segment.records())


MISTAKES: dict[str, Callable[[], object]] = {
    "expected bytes per second": lambda: kseg.file_access(max_rate=float("inf")).__enter__(),
    "decompression_limit: expected a whole number": lambda: kseg.open_segment("-", decompression_limit=1 << 80),
    "closed while it is read": closed_while_it_is_read,
    "binary file object, got b'a'": lambda: kseg.open_segment(cast(Any, b"a")),
    "binary file object, got <_io.StringIO": lambda: kseg.open_segment(cast(Any, io.StringIO("a"))),
    "policy: expected a Policy": lambda: kseg.Settings(policy=cast(Any, "x")),
    "expected RULE=SEVERITY": lambda: kseg.Policy.parse(cast(Any, [5])),
    "max_age: expected": lambda: kseg.transactions(SEVERAL, max_age=timedelta(-1)),
    "clean: expected": lambda: kseg.recovery(SEVERAL, clean=cast(Any, "x")),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_usage_errors(message: str) -> None:
    """A caller that handles KsegError gets no other exception, and reads what was expected."""
    with pytest.raises(kseg.UsageError, match=re.escape(message)):
        MISTAKES[message]()


def test_mapped_memory_is_read_like_a_file() -> None:
    """``mmap`` only has the method ``read``."""
    with logs(SEVERAL)[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert list(kseg.open_segment(cast(Any, mapped)).batches()) == list(kseg.open_segment(file).batches())


def test_errors_are_exceptions_of_kseg(tmp_path: Path) -> None:
    """A caller handles KsegError; damage does not raise. What does not exist can be told from what cannot be read."""
    functions: tuple[Callable[[Path], object], ...] = (
        kseg.open_segment, kseg.open_partition, kseg.open_log_dir, kseg.validate, kseg.scan, kseg.grep, kseg.lag,
        kseg.transactions, kseg.stats, kseg.recovery, lambda path: kseg.diff(path, SEVERAL),
    )  # fmt: skip
    for function in functions:
        with pytest.raises(kseg.VanishedError):
            function(tmp_path / "missing.log")
    with pytest.raises(kseg.UsageError):
        kseg.Settings(max_message_bytes=-1)
    with pytest.raises(kseg.UsageError):
        kseg.Settings(timestamp_after_max_ms=-1)
    for rate in (0, -1, 1e-9, float("nan")):
        with pytest.raises(kseg.UsageError), kseg.file_access(max_rate=rate):
            pass
    with pytest.raises(kseg.UnreadableError, match="no segment found"):
        kseg.open_log_dir(tmp_path)
    (tmp_path / "text.txt").write_bytes(b"some words " * 100)
    with kseg.open_segment(tmp_path / "text.txt") as segment, pytest.raises(kseg.NotASegmentError):
        list(segment.batches())


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (kseg.open_partition(SEVERAL).records, {"first_offset": "5"}, "first_offset: expected a whole number, got '5'"),
        (kseg.open_partition(SEVERAL).batches, {"end_offset": 5.5}, "end_offset: expected a whole number, got 5.5"),
        (kseg.open_partition(SEVERAL).records, {"key": 5}, "key: expected bytes or a text, got 5"),
        (partial(kseg.open_log_dir, SEVERAL), {"decompression_limit": -1}, "a whole number of at least 0, got -1"),
        (partial(kseg.validate, SEVERAL), {"jobs": 0}, "jobs: expected a whole number of at least 1, got 0"),
        (partial(kseg.stats, SEVERAL), {"jobs": -1}, "jobs: expected a whole number of at least 1, got -1"),
        (partial(kseg.diff, SEVERAL, SEVERAL), {"limit": -1}, "limit: expected a whole number of at least 0, got -1"),
        (
            kseg.Settings,
            {"max_message_bytes": "1"},
            "max_message_bytes: expected a whole number of at least 1, got '1'",
        ),
    ],
)
def test_arguments_that_are_not_allowed_are_named(
    function: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    """Not an error of Python from the middle of a read, and not another result."""
    with pytest.raises(kseg.UsageError, match=message):
        list(function(**arguments))


def test_a_key_can_be_a_text() -> None:
    """As in ``kseg.grep``."""
    log = kseg.open_partition(SEVERAL)
    record = next(one for one in log.records() if one.key)
    assert record.key
    assert list(log.records(key=record.key.decode())) == list(log.records(key=record.key))


def test_decompression_is_limited() -> None:
    """One batch must not fill the memory: a larger batch is a finding."""
    (path,) = logs(SEGMENTS / "4.3.0-v2-lz4")
    found: list[kseg.Finding] = []
    with kseg.open_segment(path, report=found.append, decompression_limit=64) as segment:
        list(segment.records())
    assert {finding.rule for finding in found} == {"decompression-limit"}
    assert "decompresses to more than 64 bytes" in found[0].message


@pytest.mark.slow
def test_a_large_record_of_few_bytes_is_named_as_such(tmp_path: Path) -> None:
    """A record is in memory as a whole. A valid one is not called a larger batch, and the library can read it."""
    for size, limit, rules in ((40, 1 << 28, set()), (70, 1 << 28, {"decompression-limit"}), (70, 1 << 30, set())):
        path = tmp_path / f"{size}.log"
        path.write_bytes(build_batch([PlainRecord(0, None, bytes(size << 20), 1)], compression="zstd"))
        found: list[kseg.Finding] = []
        with kseg.open_segment(path, report=found.append, decompression_limit=limit) as segment:
            values = [len(record.value or b"") for record in segment.records()]
        assert {finding.rule for finding in found} == rules
        assert values == ([] if rules else [size << 20])
        assert not rules or "has a record of more than 67,108,864 bytes" in found[0].message


def test_records_are_limited_by_their_compressed_bytes(tmp_path: Path) -> None:
    """Millions of records in a few bytes cost seconds in each batch. A count that lies is not a bomb: it is damage."""
    empty = bytes((12, 0, 0, 0, 1, 1, 0))
    sample = build_batch([PlainRecord(0, None, b"v", 1)], compression="zstd")
    (place,) = damage.entries(sample)
    for payload, rule in ((empty * 5_000, "decompression-limit"), (empty, "record-count-mismatch")):
        batch = damage.with_payload(sample, place, zstandard.compress(payload))
        path = tmp_path / f"{rule}.log"
        path.write_bytes(damage.alter(batch, 0, record_count=5_000, last_offset_delta=4_999))
        found: list[kseg.Finding] = []
        with kseg.open_segment(path, report=found.append) as segment:
            list(segment.records())
        assert rule in {finding.rule for finding in found}
        with kseg.open_segment(path, decompression_limit=1 << 30) as segment:
            assert len(list(segment.records())) == (5_000 if rule == "decompression-limit" else 1)


@pytest.mark.parametrize("deep", [True, False])
def test_arrow_has_the_same_rows(deep: bool) -> None:
    """The Arrow reader and the iterators return the same."""
    pytest.importorskip("pyarrow")
    log = kseg.open_partition(SEVERAL)
    reader = log.to_arrow(deep=deep, first_offset=20, end_offset=90)
    table = reader.read_all()
    if deep:
        expected = [record.offset for record in log.records(first_offset=20, end_offset=90)]
        assert table.column("offset").to_pylist() == expected
    else:
        assert table.column("base_offset").to_pylist() == [
            batch.base_offset for batch in log.batches(first_offset=20, end_offset=90)
        ]


def test_without_pyarrow_there_is_one_clear_line() -> None:
    """pyarrow is optional; its absence must not be a traceback of an import."""
    code = (
        "import sys; sys.modules['pyarrow'] = None; import kseg\n"
        f"try: kseg.open_partition({str(SEVERAL)!r}).to_arrow()\n"
        "except kseg.UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "Parquet and Arrow need pyarrow: pip install 'kseg[parquet]', which has pyarrow\n"
