"""``kseg.scan``: readers of Arrow get the rows of the segments, and only requested columns and bytes are read."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.commands.transactions import Transaction, items_of
from kseg.errors import UnreadableError
from kseg.extras.views import planning
from kseg.extras.views.planning import Request, Split, plan
from kseg.extras.views.split_rows import Notices, Task, read
from kseg.extras.views.view_table import VIEWS
from kseg.findings import Finding
from kseg.format.storage.segment_files import find_segments
from kseg.format.storage.source import stored_size
from kseg.report import arrow_rows
from tests.support.cleaned_log import CleanedLog
from tests.support.cli import invoke
from tests.support.fixtures import FOLDERS, SEGMENTS
from tests.support.interrupted import failing_disk

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
ds = pytest.importorskip("pyarrow.dataset")

ROLLED = SEGMENTS / "4.3.0-v2-none-segments"
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
DAMAGED = SEGMENTS.parent / "findings" / "crc-mismatch"
LOGS = {"orders-0": ROLLED, "orders-1": SEGMENTS / "2.8.2-v0v1v2-mixed", "clicks-0": TRANSACTIONS}


def table(scan: Any) -> Any:
    """Return all rows, read through the PyCapsule interface."""
    return pa.RecordBatchReader.from_stream(scan).read_all()


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The columns that each reader of records has collected."""
    found: list[set[str]] = []
    original = arrow_rows.RecordRows.__init__

    def init(self: Any, columns: Any, *bounds: int) -> None:
        found.append({column.name for column in columns})
        original(self, columns, *bounds)

    monkeypatch.setattr(arrow_rows.RecordRows, "__init__", init)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rows_are_those_of_the_library(folder: Path) -> None:
    """A scan and ``to_arrow`` read the same records and batches of every fixture."""
    for path in sorted(folder.glob("*.log")):
        with kseg.open_segment(path) as segment:
            for view, deep in (("records", True), ("batches", False)):
                rows = table(kseg.scan(path, view, control=None))
                known = segment.to_arrow(deep=deep).read_all()
                assert rows.select(known.column_names).to_pylist() == known.to_pylist()


def test_findings_segments_and_transactions_are_those_of_the_commands() -> None:
    """The other views have the rows that ``validate`` and ``transactions`` return."""
    result = kseg.validate(DAMAGED)
    rows = table(kseg.scan(DAMAGED, "findings")).to_pylist()
    assert [(row["rule"], row["position"]) for row in rows] == [
        (one.rule.name, one.position) for one in result.findings
    ]
    (segment,) = table(kseg.scan(DAMAGED, "segments")).to_pylist()
    assert (segment["batches"], segment["errors"]) == (result.summary.batches, result.summary.errors)
    files = find_segments(str(TRANSACTIONS))
    known = items_of(files, 2**62, 0, lambda *_: None, lambda *_: None)
    ended = [(one.producer_id, one.first_offset) for one in known if isinstance(one, Transaction)]
    rows = table(kseg.scan(TRANSACTIONS, "transactions")).to_pylist()
    assert ended
    assert [(row["producer_id"], row["first_offset"]) for row in rows] == ended


@pytest.mark.parametrize("view", ["records", "batches", "findings", "segments", "transactions"])
def test_the_schema_is_that_of_the_rows(view: str) -> None:
    """A reader plans with the schema before it has rows."""
    scan = kseg.scan(SEGMENTS, view)
    assert table(scan).schema == scan.schema


def test_a_scan_is_lazy_and_starts_anew(tmp_path: Path) -> None:
    """Each stream reads the file as it is at the first pull."""
    path = tmp_path / "00000000000000000000.log"
    shutil.copy(ROLLED / path.name, path)
    scan = kseg.scan(path)
    reader = pa.RecordBatchReader.from_stream(scan)
    path.write_bytes(path.read_bytes() * 2)
    assert reader.read_all().num_rows == table(scan).num_rows == 2 * table(kseg.scan(ROLLED / path.name)).num_rows


def test_only_requested_columns_are_collected(collected: list[set[str]]) -> None:
    """Keys, values and headers of records that a query doesn't use are not copied; a count copies nothing."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    scan = kseg.scan(ROLLED)
    total = table(scan).num_rows
    collected.clear()
    with duckdb.connect() as connection:
        connection.register("records", scan)
        assert connection.execute("select count(*) from records").fetchall() == [(total,)]
        assert scan.count_rows() == total
        assert collected == []
        connection.execute('select "offset", key from records where timestamp_ms > 0').fetchall()
    assert collected == [{"offset", "key", "timestamp_ms"}]
    assert table(kseg.scan(ROLLED, columns=["key", "offset"])).column_names == ["key", "offset"]
    assert collected[1:] == [{"key", "offset"}]


CONDITIONS: dict[str, Callable[[Any, int, datetime], Any]] = {
    "from": lambda field, middle, time: field("offset") >= middle,
    "before": lambda field, middle, time: field("offset") < middle,
    "one": lambda field, middle, time: field("offset") == middle,
    "set": lambda field, middle, time: field("offset").isin([middle, middle + 2]),
    "either": lambda field, middle, time: (field("offset") < 3) | (field("offset") > middle),
    "not": lambda field, middle, time: ~(field("offset") >= middle),
    "null or": lambda field, middle, time: field("timestamp").is_null() | (field("timestamp") >= time),
    "time": lambda field, middle, time: field("timestamp") >= time,
    "sub-millisecond": lambda field, middle, time: field("timestamp") > time - timedelta(microseconds=1),
    "time before": lambda field, middle, time: field("timestamp") < time,
    "milliseconds": lambda field, middle, time: field("timestamp_ms") <= int(time.timestamp() * 1000),
    "topic": lambda field, middle, time: field("topic") == "orders",
    "no topic": lambda field, middle, time: field("topic").is_null(),
    "partition": lambda field, middle, time: field("partition") > 0,
    "key": lambda field, middle, time: (field("key") == b"(offset < 3)") | (field("offset") > middle),
    "none": lambda field, middle, time: (field("offset") < 0) & (field("offset") >= middle),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_filter_returns_the_matching_rows(tmp_path: Path, name: str) -> None:
    """The limits that a filter implies never exclude a row that matches it."""
    for partition, folder in LOGS.items():
        shutil.copytree(folder, tmp_path / partition)
    scan = kseg.scan([tmp_path, TRANSACTIONS])
    rows = table(scan)
    offsets = sorted(rows.column("offset").to_pylist())
    times = sorted(time for time in rows.column("timestamp").to_pylist() if time) or [datetime.now(UTC)]
    condition = CONDITIONS[name](ds.field, offsets[len(offsets) // 2], times[len(times) // 2])
    assert scan.to_table(filter=condition).to_pylist() == rows.filter(condition).to_pylist()


def test_a_filter_limits_the_bytes_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up of one offset or topic reads the parts of the files that can hold it."""
    pieces: list[Any] = []

    def planned(*arguments: Any) -> Any:
        found = plan(*arguments)
        pieces.append([piece for split in found for piece in split])
        return found

    plan = planning.plan
    monkeypatch.setattr("kseg.extras.views.scan.plan", planned)
    scan = kseg.scan(ROLLED)
    table(scan)
    for condition in (ds.field("offset") == 20, ds.field("topic") == "other"):
        scan.to_table(filter=condition)
    everything, one, none = pieces
    assert len(everything) > 1
    assert len(one) == 1
    assert none == []


def test_ranges_are_those_of_dump() -> None:
    """``offsets``, ``since`` and ``until`` can be given as values or as the command line writes them."""
    rows = table(kseg.scan(ROLLED))
    time = rows.column("timestamp")[20].as_py()
    newer = rows.filter(ds.field("timestamp") >= time).num_rows
    for since in (time, time.isoformat(), int(time.timestamp() * 1000)):
        assert table(kseg.scan(ROLLED, since=since)).num_rows == newer
        assert table(kseg.scan(ROLLED, until=since)).num_rows == rows.num_rows - newer
    for offsets in ("5:8", (5, 8)):
        assert table(kseg.scan(ROLLED, columns=["offset"], offsets=offsets)).to_pydict() == {"offset": [5, 6, 7]}


def test_polars_reads_and_filters(collected: list[set[str]]) -> None:
    """Polars reads a stream, and requests columns and rows of a dataset."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    scan = kseg.scan(ROLLED)
    assert polars.DataFrame(scan).height == scan.count_rows()
    collected.clear()
    lazy = polars.scan_pyarrow_dataset(scan)
    found = lazy.filter(polars.col("offset") < 3).select("offset", "key").collect()
    assert found["offset"].to_list() == [0, 1, 2]
    assert collected == [{"offset", "key"}]


def test_reading_continues_after_damage(tmp_path: Path) -> None:
    """Findings go to ``report``. A file that cannot be read goes to ``unread``, and without it ends the stream."""
    findings: list[tuple[str, kseg.Finding]] = []
    scan = kseg.scan(DAMAGED, report=lambda path, finding: findings.append((path, finding)))
    with kseg.open_segment(DAMAGED / "00000000000000000000.log") as segment:
        assert scan.count_rows() == sum(1 for _ in segment.records())
    assert [(Path(path).parent, finding.rule) for path, finding in findings] == [(DAMAGED, "crc-mismatch")]
    shutil.copytree(ROLLED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "00000000000000000099.log").write_bytes(b"not a segment " * 20)
    lines: list[str] = []
    assert kseg.scan(tmp_path, unread=lines.append).count_rows() == kseg.scan(ROLLED).count_rows()
    assert "00000000000000000099.log" in lines[0]
    with pytest.raises(kseg.UnreadableError, match=r"00000000000000000099\.log"):
        kseg.scan(tmp_path).count_rows()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without FIFOs")
def test_a_scan_keeps_the_file_access_of_its_caller(tmp_path: Path) -> None:
    """Engines pull batches in their own threads, in which the caller's warnings and rate limit must hold."""
    shutil.copytree(ROLLED, tmp_path, dirs_exist_ok=True)
    lines: list[str] = []
    with kseg.file_access(warn=lines.append):
        scan = kseg.scan(tmp_path)
    os.mkfifo(tmp_path / "00000000000000000099.log")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(scan.count_rows).result()
    assert len(lines) == 1
    assert "1 special file" in lines[0]


def test_standard_input_can_be_an_archive_only() -> None:
    """Each stream starts at the beginning, and standard input can be read once."""
    code = "import sys, kseg\ntry:\n    kseg.scan('-')\nexcept kseg.UsageError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"no archive", capture_output=True, timeout=300, check=True
    )
    assert done.stdout.startswith(b"standard input can be read only once")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"view": "recods"}, "unknown view 'recods': did you mean records?"),
        ({"view": ["offset"]}, "view: expected a text, got "),
        ({"columns": ["kye"]}, "view records: unknown column 'kye': did you mean key?"),
        ({"offsets": "9-"}, "offsets: expected A:B"),
        ({"since": "soon"}, "since: expected ISO 8601"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    """Mistakes appear at the call, not in the middle of a query."""
    with pytest.raises(kseg.UsageError, match=message.replace("?", r"\?")):
        kseg.scan(ROLLED, **arguments)
    with pytest.raises(kseg.UnreadableError):
        kseg.scan(ROLLED / "missing")


@pytest.mark.slow
@pytest.mark.parametrize("view", ["records", "batches", "segments", "findings", "transactions"])
def test_a_read_error_in_the_middle_of_a_file_is_never_fewer_rows(view: str, tmp_path: Path) -> None:
    """The stream ends with an error, or tells which file was not read to its end; ``kseg sql`` has exit code 2."""
    source = tmp_path / "orders-0"
    shutil.copytree(ROLLED, source)
    failing_disk(600, 0)
    url = f"failing://{source}"
    with pytest.raises(UnreadableError, match="Input/output error"):
        kseg.scan(url, view).scanner().to_table()
    unread: list[str] = []
    kseg.scan(url, view, unread=unread.append).scanner().to_table()
    assert unread
    assert all(line.endswith(".log: Input/output error") for line in unread)
    done = invoke("sql", f"select count(*) from {view}", url)
    assert done.exit_code == 2
    assert ".log: Input/output error" in done.stderr


def test_a_segment_that_was_replaced_after_the_plan_is_no_damage(tmp_path: Path) -> None:
    """The bytes of a plan are those of one file. In another one, batches begin elsewhere: it is unread, not damaged."""
    log = CleanedLog(tmp_path / "logs" / "orders-0", random.Random(8))
    log.append(4)
    request = Request((str(tmp_path / "logs"),), columns=tuple(VIEWS["records"].columns), split_bytes=700)
    pieces = tuple(piece for split in plan(request, request.limits) for piece in split)
    found: list[Finding] = []
    notices = Notices(finding=lambda file, finding: found.append(finding))

    def offsets() -> list[int]:
        return [
            row["offset"]
            for rows in read(Task(request, request.limits, notices), Split(pieces))
            for row in rows.to_pylist()
        ]

    expected = log.offsets()
    assert offsets() == expected
    for path in (tmp_path / "logs" / "orders-0").iterdir():
        shutil.copy2(path, tmp_path / path.name)
        os.replace(tmp_path / path.name, path)  # as on another machine: another inode
    assert offsets() == expected
    log.append(1)
    assert offsets() == expected
    middle = next(piece for piece in pieces if piece.start)
    while stored_size(middle.file.path) == middle.file.size:
        log.clean()
    with pytest.raises(UnreadableError, match=r"replaced meanwhile: run again|No such file"):
        offsets()
    assert found == []
