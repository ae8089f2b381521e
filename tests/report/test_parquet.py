"""Parquet dumps hold the rows of JSON Lines: the same values in columns, of every fixture."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kseg import schema
from kseg.format.record.layout import LAST_MILLISECOND
from kseg.format.segment.records_chunk import Header
from kseg.format.segment.row_filter import KeyIsOneOf, RowFilter
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.reading import open_segment
from kseg.report import arrow_rows, arrow_table
from kseg.report.formats import View
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import FOLDERS, SEGMENTS, dump_segment, dumped, expected
from tests.support.parquet import _text, as_json

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

HEADERS = SEGMENTS / "4.3.0-v2-none-headers" / "00000000000000000000.log"
#: Columns that only columnar tables have.
EXTRA = {column.name for column in schema.RECORD_TABLE} - {column.name for column in schema.RECORD_COLUMNS}


def written(path: Path, deep: bool, **request: Any) -> Any:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw)
    from kseg.report.parquet import write_parquet

    write_parquet(dump_segment(str(path), deep=deep, **request), out, View(deep, "auto", terminal=False))
    out.detach()
    return parquet.read_table(io.BytesIO(raw.getvalue()))


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_parquet_rows_equal_json_rows(folder: Path) -> None:
    """Parquet has the values of JSON Lines, for every fixture."""
    for name in expected(folder):
        assert list(as_json(written(folder / name, deep=True), "record")) == dumped(folder / name, deep=True)
        assert list(as_json(written(folder / name, deep=False), "batch")) == dumped(folder / name, deep=False)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_columns_of_the_batch_are_in_record_rows(folder: Path) -> None:
    """Producer and transaction of a record are those of its batch; null in v0 and v1."""
    for name in expected(folder):
        by_position = {row["position"]: row for row in dumped(folder / name, deep=False)}
        for row in written(folder / name, deep=True).to_pylist():
            entry = by_position[row["position"]]
            assert {key: row[key] for key in EXTRA - {"topic", "partition"}} == {
                key: entry[key] for key in EXTRA - {"topic", "partition"}
            }


def test_a_filter_that_leaves_gaps_keeps_the_right_rows() -> None:
    """The kept rows of a batch can have gaps: their bytes are gathered range by range."""
    keep = RowFilter(conditions=(KeyIsOneOf((b"k1",)),))
    wanted = [row for row in dumped(HEADERS, deep=True) if row["key"] == _text(b"k1")]
    assert wanted
    assert list(as_json(written(HEADERS, deep=True, keep=keep), "record")) == wanted


def test_batches_end_by_rows_and_by_bytes() -> None:
    """Spark needs Arrow batches that are not large;

    rows are kept at their boundaries, and a column that is left out costs no time.
    """
    path = SEGMENTS / "4.3.0-v2-lz4-large" / "00000000000000000000.log"
    whole = written(path, deep=True).to_pylist()
    columns = arrow_table.widened(schema.RECORD_TABLE)
    for bounds in ((1, 1 << 20), (7, 1 << 20), (1000, 1), (1000, 5000)):
        gathered = arrow_rows.RecordRows(columns, *bounds)
        found: list[Any] = []
        with open_segment(path) as segment:
            for chunk in segment.chunks():
                for data, first, stop in arrow_rows.payload_runs(chunk):
                    found += gathered.add(arrow_table.ColumnPlace.of(str(path)), chunk, data, first, stop)
        found += gathered.finish()
        assert [row for batch in found for row in batch.to_pylist()] == whole
        assert max(batch.num_rows for batch in found) <= bounds[0]
        assert len(found) > 1


def test_times_and_texts_outside_of_arrows_types(tmp_path: Path) -> None:
    """Timestamps outside the years 1 to 9999 are null (the stored number is kept), bytes that are not UTF-8 are
    replaced.
    """
    records = [
        PlainRecord(offset=0, timestamp=-1, key=None, value=b""),
        PlainRecord(offset=1, timestamp=LAST_MILLISECOND, key=b"", value=None),
        PlainRecord(offset=2, timestamp=LAST_MILLISECOND + 1, key=b"k", value=b"v", headers=(Header("\udcff", None),)),
        PlainRecord(offset=3, timestamp=-62_135_596_800_000, key=b"\xff", value=b"\0", headers=(Header("a", b""),)),
    ]
    path = tmp_path / "orders-7" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch(records, base_offset=0))
    found = written(path, deep=True).to_pylist()
    assert [row["timestamp"] and row["timestamp"].year for row in found] == [None, 9999, None, 1]
    assert [row["timestamp_ms"] for row in found] == [
        None, LAST_MILLISECOND, LAST_MILLISECOND + 1, -62_135_596_800_000,
    ]  # fmt: skip
    assert [(row["key"], row["value"]) for row in found] == [(None, b""), (b"", None), (b"k", b"v"), (b"\xff", b"\0")]
    assert [row["headers"] for row in found[2:]] == [[{"key": "�", "value": None}], [{"key": "a", "value": b""}]]
    assert {(row["topic"], row["partition"]) for row in found} == {("orders", 7)}


@pytest.mark.slow
def test_a_terminal_is_refused_and_a_pipe_is_not(tmp_path: Path) -> None:
    """Binary data on a terminal is useless; a failed dump leaves no file."""
    piped = subprocess.run(
        [sys.executable, "-m", "kseg", "dump", "--deep", "--format", "parquet", str(HEADERS)],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert parquet.read_table(io.BytesIO(piped)).num_rows == len(dumped(HEADERS, deep=True))
    terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    command = [
        sys.executable,
        "-c",
        terminal,
        sys.executable,
        "-m",
        "kseg",
        "dump",
        "--format",
        "parquet",
        str(HEADERS),
    ]
    refused = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert refused.returncode == 2
    assert refused.stdout.strip() == b"kseg: Parquet is binary: give -o FILE, or redirect stdout to a file or a pipe"
    target = tmp_path / "missing.parquet"
    assert kseg("dump", "--format", "parquet", "-o", target, tmp_path / "missing.log").returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_thread_writes_the_same_groups(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """While a group is encoded, the records of the next one are gathered: they must not share memory."""
    from kseg.report import parquet as report

    raw = io.BytesIO()
    out = io.TextIOWrapper(raw)
    monkeypatch.setattr(report, "GROUP_ROWS", 3)
    report.write_parquet(dump_segment(str(HEADERS), deep=True), out, View(deep=True, jobs=jobs))
    out.detach()
    found = parquet.ParquetFile(io.BytesIO(raw.getvalue()))
    assert found.num_row_groups > 1
    assert list(as_json(found.read(), "record")) == dumped(HEADERS, deep=True)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_ends_a_dump(jobs: str) -> None:
    """The error of the thread that writes is one line, as that of the only thread."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kseg", "dump", "--deep", "--format", "parquet", "--jobs", jobs, str(HEADERS)],
            stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, b"kseg: standard output: No space left on device\n")


@pytest.mark.parametrize("options", [("-C", "1", "key-1"), ("--no-crc", "-v", "key-1")])
def test_found_records_have_the_columns_of_json_lines(options: tuple[str, ...], tmp_path: Path) -> None:
    """A record of a batch with a wrong CRC is known by ``crc_valid``, and a neighbour of a match by ``matched``."""
    path, target = SEGMENTS.parent / "findings" / "crc-mismatch" / HEADERS.name, tmp_path / "found.parquet"
    rows = list(map(json.loads, kseg("grep", "--format", "jsonl", *options, path).stdout.splitlines()))
    assert kseg("grep", "--format", "parquet", "-o", target, *options, path).returncode == 0
    names = ["offset", "crc_valid", "matched"]
    assert [{name: row[name] for name in names} for row in rows] == parquet.read_table(
        target, columns=names
    ).to_pylist()
    assert len({str(row["matched"]) for row in rows}) == (2 if "-C" in options else 1)
