"""Streams over growing logs return every record once, with rolls, deletions, compaction, incomplete writes and
restarts.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, UsageError
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cleaned_log import CleanedLog
from tests.support.fixtures import SEGMENTS, dumped
from tests.support.growing_logs import batch, write
from tests.support.writer import Writer

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

from kseg.spark.options import parse
from kseg.spark.streaming import KsegStreamReader
from tests.support.streaming import ALL, reader, rows

pytestmark = pytest.mark.spark


def offsets(stream: KsegStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    return [row["offset"] for row in rows(stream, start, end)]


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(30), ReadMaxBytes(5000)], ids=["all", "rows", "bytes"])
def test_every_record_comes_once(tmp_path: Path, limit: Any) -> None:
    """A writer writes incomplete batches and rolls segments between two reads; each read uses a new reader."""
    chance = random.Random(7)
    writers = [Writer(tmp_path / f"orders-{i}", segment_batches=7 + i) for i in range(3)]
    for writer in writers:
        writer.append(1)
    found: dict[str, list[int]] = {f"orders-{i}": [] for i in range(3)}
    start: dict[str, int] = reader(tmp_path).initialOffset()
    for step in range(400):
        if step < 40:
            chance.choice(writers).append(chance.randrange(6), torn=chance.random() < 0.5)
        elif step == 40:
            for writer in writers:
                writer.append(1)
        stream = reader(tmp_path)
        end = stream.latestOffset(start, limit)
        taken = rows(stream, start, end)
        assert rows(reader(tmp_path, splitbytes=2000), start, end) == taken
        if isinstance(limit, ReadMaxRows):
            assert len(taken) <= 30 + 3 * 4
        elif isinstance(limit, ReadMaxBytes):
            assert sum({(row["file"], row["position"]): 430 for row in taken}.values()) <= 5000 + 3 * 430
        for row in taken:
            assert row["damage"] is None
            found[f"{row['topic']}-{row['partition']}"].append(row["offset"])
        if step > 40 and end == start:
            break
        start = end
    assert start == {f"orders-{i}": writer.offset for i, writer in enumerate(writers)}
    assert found == {f"orders-{i}": list(range(writer.offset)) for i, writer in enumerate(writers)}


def test_an_index_saves_reading_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    """Of a log of gigabytes only the last few kilobytes are read to find its end."""
    batches = [batch(number) for number in range(400)]
    path = write(tmp_path / "orders-3", batches)
    assert reader(tmp_path).latestOffset({}, ALL) == {"orders-3": 1600}
    data = bytearray(path.read_bytes())
    at = len(b"".join(batches[:10])) + 100
    data[at] ^= 0xFF  # far before the last entry of the index: found by reading, not by the search from the end
    path.write_bytes(data)
    stream = reader(tmp_path)
    assert stream.latestOffset({}, ALL) == {"orders-3": 1600}
    reported = [row for row in rows(stream, {"orders-3": 20}, {"orders-3": 1600}) if row["damage"]]
    assert [row["offset"] for row in reported] == [40]
    index = path.with_suffix(".index")
    index.write_bytes(bytes(len(index.read_bytes())))
    assert reader(tmp_path).latestOffset({"orders-3": 1596}, ALL) == {"orders-3": 1600}
    assert offsets(stream, {"orders-3": 1592}, {"orders-3": 1600}) == list(range(1592, 1600))


def test_deleted_segments_are_no_loss_once_they_were_read(tmp_path: Path) -> None:
    """Retention continues during a stream. Segments that it deletes before they were read are reported or skipped."""
    writer = Writer(tmp_path / "orders-3", segment_batches=5)
    writer.append(20)
    stream = reader(tmp_path)
    (tmp_path / "orders-3" / f"{0:020d}.log").unlink()
    assert stream.latestOffset({"orders-3": 20}, ALL) == {"orders-3": 80}
    assert offsets(stream, {"orders-3": 20}, {"orders-3": 80}) == list(range(20, 80))
    with pytest.raises(KsegError, match=r"orders-3: deleted before it was read: offsets 10\.\.19"):
        stream.latestOffset({"orders-3": 10}, ALL)
    with pytest.raises(KsegError, match=r"deleted before it was read: offsets 10\.\.19"):
        stream.partitions({"orders-3": 10}, {"orders-3": 80})
    lenient = reader(tmp_path, failOnDataLoss=False)
    end = lenient.latestOffset({"orders-3": 10}, ReadMaxRows(8))
    assert offsets(lenient, {"orders-3": 10}, end) == list(range(20, 28))
    with pytest.raises(KsegError, match="the log ends at offset 80, but was read to 96: it was truncated"):
        stream.latestOffset({"orders-3": 96}, ALL)
    assert lenient.latestOffset({"orders-3": 96}, ALL) == {"orders-3": 96}


def test_a_file_deleted_between_plan_and_task_is_an_error(tmp_path: Path) -> None:
    """A task that finds its file deleted or cut says so: an empty result would be taken for the whole."""
    writer = Writer(tmp_path / "orders-3", segment_batches=5)
    writer.append(10)
    stream = reader(tmp_path)
    (split,) = stream.partitions({}, {"orders-3": 40})
    first = tmp_path / "orders-3" / f"{0:020d}.log"
    os.truncate(first, 500)
    found = [row for batch in stream.read(split) for row in batch.to_pylist()]
    assert [row["offset"] for row in found if row["damage"] is None] == [0, 1, 2, 3, *range(20, 40)]
    assert [row["damage"].split(":")[0] for row in found if row["damage"]] == ["truncated-tail"]
    first.unlink()
    with pytest.raises(KsegError, match=r"deleted before it was read: offsets 0\.\.19"):
        list(stream.read(split))
    for path in (tmp_path / "orders-3").iterdir():
        path.unlink()
    with pytest.raises(KsegError, match="no segment found"):
        list(stream.read(split))
    Writer(tmp_path / "orders-4").append(1)
    with pytest.raises(KsegError, match=r"orders-3/0{20}\.log: deleted before it was read"):
        list(stream.read(split))
    lenient = reader(tmp_path, failOnDataLoss=False)
    assert list(lenient.read(split)) == []


def test_a_log_truncated_between_the_end_of_a_trigger_and_its_plan_is_an_error(tmp_path: Path) -> None:
    """The checkpoint has the end, also after a restart: rows that were truncated before the plan are no silent loss."""
    batches = [batch(number) for number in range(6)]
    path = write(tmp_path / "orders-3", batches[:4], index=False)
    end = reader(tmp_path).latestOffset({}, ALL)
    later = [PlainRecord(8, b"k", b"later leader" * 200)]
    path.write_bytes(b"".join(batches[:2]) + build_batch(later, base_offset=8, partition_leader_epoch=1))
    for start in ({}, {"orders-3": 4}):
        with pytest.raises(KsegError, match="orders-3: offsets from 9 on were deleted before they were read"):
            reader(tmp_path).partitions(start, end)
    assert offsets(reader(tmp_path, failOnDataLoss=False), {}, end) == list(range(9))
    path.write_bytes(b"".join(batches))
    assert offsets(reader(tmp_path), {}, end) == list(range(16))


def test_a_task_reads_its_offsets_from_the_files_that_a_cleaner_leaves(tmp_path: Path) -> None:
    """Segments are merged, truncated and appended between plan and task: each record once, and no damage is invented."""
    for seed in range(60):
        chance = random.Random(seed)
        log = CleanedLog(tmp_path / str(seed) / "orders-0", chance)
        log.append(8)
        start, end = sorted(chance.sample(range(0, max(log.offsets()) + 5, 4), 2))
        options = {"splitbytes": 700} if seed % 2 else {}
        planned = reader(tmp_path / str(seed), **options).partitions({"orders-0": start}, {"orders-0": end})
        for change in chance.choices((log.clean, log.truncate, partial(log.append, 1)), k=chance.randrange(1, 4)):
            change()
        task = reader(tmp_path / str(seed))
        found = [row for split in planned for rows in task.read(split) for row in rows.to_pylist()]
        assert [row["damage"] for row in found if row["damage"]] == [], seed
        assert sorted(row["offset"] for row in found) == [one for one in log.offsets() if start <= one < end], seed


def test_the_moment_of_a_replacement_is_no_loss(tmp_path: Path) -> None:
    """A cleaner renames the old files before the new ones: for a moment no file has the offsets, and none is lost."""
    log = CleanedLog(tmp_path / "logs" / "orders-0", random.Random(3))
    log.append(8)
    end = max(log.offsets()) + 1
    for _ in range(5):
        cleaner = threading.Thread(target=log.clean, args=(lambda: time.sleep(0.2),))
        cleaner.start()
        while cleaner.is_alive():
            assert reader(tmp_path / "logs").latestOffset({"orders-0": 0}, ALL) == {"orders-0": end}
        cleaner.join()
        assert offsets(reader(tmp_path / "logs"), {"orders-0": 0}, {"orders-0": end}) == log.offsets()


def test_compaction_moves_bytes_and_not_the_stream(tmp_path: Path) -> None:
    """The cleaner merges segments and leaves gaps: a stream continues at an offset, not at a byte."""
    folder = tmp_path / "orders-3"
    write(folder, [batch(number) for number in (0, 1, 5, 6, 9)])
    write(folder, [batch(number) for number in range(10, 12)], first=10)
    stream = reader(tmp_path)
    assert offsets(stream, {"orders-3": 16}, {"orders-3": 48}) == [*range(20, 28), *range(36, 48)]
    start, given = {"orders-3": 0}, []
    while (end := reader(tmp_path).latestOffset(start, ReadMaxRows(1))) != start:
        given += offsets(stream, start, end)
        start = end
    assert given == [offset for number in (0, 1, 5, 6, 9, 10, 11) for offset in range(number * 4, number * 4 + 4)]


def test_damage_comes_once_and_not_before_it_is_sure(tmp_path: Path) -> None:
    """A tail may be incomplete: the stream waits until a valid batch follows it or the segment is rolled."""
    batches = [batch(number) for number in range(4)]
    broken = bytearray(batches[1])
    broken[-3] ^= 0xFF
    path = write(tmp_path / "orders-3", [batches[0], bytes(broken)], index=False)
    stream = reader(tmp_path)
    end = stream.latestOffset({}, ALL)
    assert end == {"orders-3": 4}
    assert offsets(stream, {}, end) == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes() + batches[2])
    then = stream.latestOffset(end, ALL)
    assert [(row["offset"], bool(row["damage"])) for row in rows(stream, end, then)] == [
        (4, True), *((offset, False) for offset in range(8, 12))
    ]  # fmt: skip
    path.write_bytes(path.read_bytes() + batches[3][:-9])
    assert stream.latestOffset(then, ALL) == then
    write(tmp_path / "orders-3", [batch(4)], first=4)
    last = stream.latestOffset(then, ALL)
    found = [(row["offset"], (row["damage"] or "").split(":")[0]) for row in rows(stream, then, last)]
    assert found == [(None, "truncated-tail"), *((offset, "") for offset in range(16, 20))]


def test_a_query_of_the_present_records_ends(tmp_path: Path) -> None:
    """availableNow: records that arrive after its start are left to the next run, including new partitions."""
    writer = Writer(tmp_path / "orders-3")
    writer.append(3)
    stream = reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    writer.append(3)
    Writer(tmp_path / "orders-4").append(1)
    end = stream.latestOffset({}, ReadMaxRows(8))
    assert end == {"orders-3": 8}
    assert stream.latestOffset(end, ReadMaxRows(8)) == {"orders-3": 12} == stream.latestOffset({"orders-3": 12}, ALL)
    assert stream.latestOffset({"orders-3": 20}, ALL) == {"orders-3": 20}
    assert reader(tmp_path, startingOffsets="latest").initialOffset() == {"orders-3": 24, "orders-4": 4}


@pytest.mark.parametrize("step", [ALL, ReadMaxRows(3)], ids=["all", "rows"])
def test_a_committed_stream_gives_what_a_committed_read_gives(tmp_path: Path, step: Any) -> None:
    """It waits at the first open transaction, and leaves out aborted records, batch by batch."""
    source = SEGMENTS / "4.3.0-v2-none-transactions"
    folder = tmp_path / "orders-0"
    folder.mkdir()
    given: list[int] = []
    start: dict[str, int] = {}

    def follow() -> None:
        nonlocal start
        while True:
            stream = reader(tmp_path, isolation="read_committed")
            end = stream.latestOffset(start, step)
            given.extend(offsets(stream, start, end))
            if end == start:
                return
            start = end

    for path in sorted(source.glob("*.log")):
        data = path.read_bytes()
        ends = [*[row["position"] for row in dumped(path, deep=False)][1:], len(data)]
        for end in ends:
            (folder / path.name).write_bytes(data[:end])
            follow()
    assert given == sorted(set(given))
    whole = reader(tmp_path, isolation="read_committed")
    assert given == offsets(whole, {}, whole.latestOffset({}, ALL))
    assert 0 < len(given) < len(offsets(reader(tmp_path), {}, whole.latestOffset({}, ALL)))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"view": "segments"}, "view segments cannot be streamed: use records or batches"),
        (
            {"inventory": "i"},
            "option inventory cannot be streamed: a stream reads new segments, which no inventory has",
        ),
        (
            {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"},
            "give maxOffsetsPerTrigger or maxBytesPerTrigger, not both",
        ),
        ({"maxBytesPerTrigger": "0"}, "option maxbytespertrigger: expected at least 1, got 0"),
        ({"startingOffsets": "now"}, "option startingoffsets: unknown value 'now': expected earliest or latest"),
    ],
)
def test_options_are_checked(tmp_path: Path, given: dict[str, str], line: str) -> None:
    """Before the query begins, with the remedy."""
    with pytest.raises(UsageError, match=re.escape(line)):
        KsegStreamReader(parse({"path": str(tmp_path), **given}))


def test_two_replicas_are_not_one_log(tmp_path: Path) -> None:
    """Offsets are kept by partition: of two folders with one name one would be skipped silently."""
    for broker in ("broker-1", "broker-2"):
        Writer(tmp_path / broker / "orders-3").append(1)
    with pytest.raises(UsageError, match="orders-3 is in several folders: stream one replica"):
        reader(tmp_path).latestOffset({}, ALL)
    os.rename(tmp_path / "broker-2" / "orders-3", tmp_path / "broker-2" / "orders-3.0c1d-future")
    assert reader(tmp_path).latestOffset({}, ALL) == {"orders-3": 4}


def test_a_restarted_query_writes_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """Stopped in the middle while a writer writes, and started again from its checkpoint: rows = source rows."""
    writer = Writer(tmp_path / "logs" / "orders-3", segment_batches=20)
    writer.append(40)

    def query(**trigger: Any) -> Any:
        source = spark.readStream.format("kseg").option("columns", "topic,partition,offset,damage")
        stream = source.option("maxOffsetsPerTrigger", "30").load(str(tmp_path / "logs"))
        sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return sink.trigger(**trigger).start(str(tmp_path / "table"))

    def write_on() -> None:
        for i in range(60):
            writer.append(1, torn=i < 59)
            pause.wait(0.05)

    pause = threading.Event()
    thread = threading.Thread(target=write_on)
    thread.start()
    running = query(processingTime="50 milliseconds")
    while sum(progress.numInputRows for progress in running.recentProgress) < 60:
        assert running.isActive, running.exception()
        pause.wait(0.1)
    running.stop()
    early = {row.offset for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert 0 < len(early) < 400
    thread.join()
    again = query(availableNow=True)
    assert again.awaitTermination(120)
    assert again.exception() is None
    assert max(progress.numInputRows for progress in again.recentProgress) <= 30
    found = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [tuple(row) for row in found] == [("orders", 3, offset, None) for offset in range(400)]
    assert again.lastProgress["sources"][0]["endOffset"] == '{"orders-3": 400}'
