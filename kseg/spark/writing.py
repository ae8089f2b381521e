"""Write a DataFrame as segments: sealed v2 logs with their indexes in one folder per partition, as a broker has them.

    write_segments(df, "/data/replay")    # /data/replay/orders-3/00000000000000000000.log, .index, .timeindex

Tasks write to a hidden folder next to the partitions. At the end all partitions get their names, or none does.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import lt
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kseg.errors import KsegError, UsageError
from kseg.findings import (
    RULES,
    Finding,
    Severity,
    Verdict,
)
from kseg.format.compress.codecs import compress
from kseg.format.record import encoder
from kseg.format.record.layout import FIRST_LEADER_EPOCH, INT32_MAX, RECORD_BATCH_OVERHEAD
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.atomic_write import check_absent, mark_results, sync_folder, writing
from kseg.format.storage.naming import is_topic_name
from kseg.format.storage.source import open_source
from kseg.format.writer import written_side_files
from kseg.format.writer.output_guards import check_earlier_result, index_paths
from kseg.format.writer.output_rule import check_not_of_broker
from kseg.format.writer.records_builder import OutputBuffer, codec_id
from kseg.report.arrow_table import pa
from kseg.spark.jobs import commit_journal
from kseg.spark.jobs.arrow_columns import Rows, rows_of
from kseg.spark.jobs.pool import one_line_errors
from kseg.spark.jobs.row_kinds import KIND, check_kinds, check_source, kind_column, refuse_other_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Kafka's default of ``segment.bytes``, and about the default of the largest batch that producers send.
SEGMENT_BYTES = 1024 * 1024 * 1024
BATCH_BYTES = 16 * 1024

_FORMAT = "kseg-segments"
_OVERWRITE = "overwrite=True"
_HEADERS = "array<struct<key:string,value:binary>>"
# A Windows drive has one letter.
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")


def write_segments(
    df: DataFrame,
    path: str,
    *,
    compression: str = "none",
    segment_bytes: int = SEGMENT_BYTES,
    batch_bytes: int = BATCH_BYTES,
    overwrite: bool = False,
    drop: Collection[str] = (),
    as_data: Collection[str] = (),
) -> None:
    """Write rows of topic, partition, offset, key and value (optional: timestamp or timestamp_ms, headers) as segments.

    Rows are grouped by partition and sorted by offset. Offsets may have gaps but no duplicates. A batch has about
    ``batch_bytes`` before compression. ``path`` is a local folder, or its ``file:`` URL. Existing partitions are
    refused or, with ``overwrite``, replaced when all new ones are written. If an earlier run was killed while its
    partitions got their names, this one first finishes that.

    Rows that are not records are refused (``row_kinds.KINDS``), unless their kind is in ``drop``, which leaves them
    out, or in ``as_data``, which writes them as plain records. Raises UsageError for invalid columns and options,
    KsegError for invalid rows. No partition is written then.
    """
    codec_id(compression)
    check_kinds(drop, as_data)
    check_source(df, as_data)
    folder = local_folder(path)
    check_not_of_broker(Path(os.path.realpath(folder)), folder)
    if not 0 < batch_bytes <= segment_bytes <= INT32_MAX:
        raise UsageError("expected 0 < batch_bytes <= segment_bytes < 2 GiB")
    commit_journal.finish_interrupted(folder)
    rows = df.select(*_columns(df), kind_column(df, as_data))
    if drop:
        rows = rows.where(f.col(KIND).isNull() | ~f.col(KIND).isin(*drop))
    rows = rows.repartition("topic", "partition")
    options = {"compression": compression, "segmentbytes": str(segment_bytes), "batchbytes": str(batch_bytes)}
    df.sparkSession.dataSource.register(_SegmentSink)
    with one_line_errors():
        (
            rows.sortWithinPartitions("topic", "partition", "offset")
            .write.format(_FORMAT)
            .options(**options)
            .mode("overwrite" if overwrite else "append")
            .save(str(folder))
        )


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a path or a ``file:`` URL. Raises UsageError for other URLs."""
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(os.path.abspath(text))
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise UsageError(f"{text}: expected a local folder: copy the segments from there")
    return Path(os.path.abspath(unquote(parts.path)))


def _columns(df: DataFrame) -> Iterator[Column]:
    """Return the columns for the tasks. Times are milliseconds: a writer gets timestamps in the session's time zone."""
    for name in ("topic", "partition", "offset", "key", "value"):
        if name not in df.columns:
            raise UsageError(f"column {name} is missing: segments need topic, partition, offset, key, value")
    stamp = f.lit(None)
    if "timestamp_ms" in df.columns:
        stamp = f.col("timestamp_ms")
    elif "timestamp" in df.columns:
        stamp = f.unix_millis("timestamp") if dict(df.dtypes)["timestamp"] == "timestamp" else f.col("timestamp")
    yield f.col("topic").cast("string").alias("topic")
    yield f.col("partition").cast("int").alias("partition")
    yield f.col("offset").cast("bigint").alias("offset")
    yield stamp.cast("bigint").alias("timestamp_ms")
    yield f.col("key").cast("binary").alias("key")
    yield f.col("value").cast("binary").alias("value")
    headers = f.col("headers") if "headers" in df.columns else f.lit(None)
    yield headers.cast(_HEADERS).alias("headers")


class _SegmentSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = self.options
        shape = _Shape(options["compression"], int(options["segmentbytes"]), int(options["batchbytes"]))
        return _SegmentWriter(Path(options["path"]), shape, overwrite)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of batches and segments, and how they are compressed."""

    compression: str
    segment_bytes: int
    batch_bytes: int


@dataclass
class _Written(WriterCommitMessage):
    """The partition folders that a task has filled."""

    folders: Sequence[Path]


class _SegmentWriter(DataSourceArrowWriter):
    def __init__(self, target: Path, shape: _Shape, overwrite: bool) -> None:
        self._target = target
        self._staging = target / f".{uuid.uuid4().hex}.spark.tmp"
        self._shape = shape
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of a task. A repeated or duplicate task gets another folder."""
        own = self._staging / uuid.uuid4().hex
        folders: list[Path] = []
        with writing(self._target), ExitStack() as stack:
            partition: _Partition | None = None
            for rows in chain.from_iterable(map(_records_of, iterator)):
                if partition is None or partition.place != (rows.topic, rows.partition):
                    if partition is not None:
                        partition.finish()
                    stack.close()
                    partition = stack.enter_context(closing(_Partition(own, (rows.topic, rows.partition), self._shape)))
                    folders.append(partition.folder)
                partition.append(rows)
            if partition is not None:
                partition.finish()
        return _Written(folders)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        folders = [folder for message in messages if isinstance(message, _Written) for folder in message.folders]
        names = {folder.name for folder in folders}
        if len(names) < len(folders):
            raise UsageError("several tasks have rows of the same partition")
        moves = [(folder, self._target / folder.name) for folder in folders]
        try:
            with writing(self._target):
                for folder, target in moves:
                    check_earlier_result(target)
                    mark_results(folder)
                if not self._overwrite:
                    check_absent([target for _, target in moves], option=_OVERWRITE)
                if moves:
                    commit_journal.commit(
                        self._target, self._staging, moves, replace=self._overwrite, option=_OVERWRITE
                    )
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):
            self._target.rmdir()  # nothing came to be in it


def _records_of(batch: pa.RecordBatch) -> Iterator[Rows]:
    refuse_other_rows(batch)
    return rows_of(batch)


class _Partition:
    """Writes the segments of a partition, and begins a new one if the next batch doesn't fit."""

    def __init__(self, home: Path, place: tuple[str | None, int | None], shape: _Shape) -> None:
        _check_place(*place)
        self.place = place
        self.folder = home / "{}-{}".format(*place)
        if self.folder.exists():
            raise UsageError(f"rows of {self.folder.name} are not contiguous")
        self.folder.mkdir(parents=True)
        self._shape = shape
        self._codec = codec_id(shape.compression)
        self._buffer = OutputBuffer()
        self._log: IO[bytes] | None = None
        self._base = self._position = 0
        self._last = -1
        self._first: int | None = None

    def append(self, rows: Rows) -> None:
        """Write rows in batches. A batch ends at the end of the rows that Spark passes at a time."""
        self._check_order(rows.offsets)
        first, count, limit = 0, len(rows.offsets), self._shape.batch_bytes
        while first < count:
            before = rows.ends[first - 1] if first else 0
            stop = max(bisect_right(rows.ends, before + limit, first, count), first + 1)
            stop = bisect_right(rows.offsets, rows.offsets[first] + INT32_MAX, first, stop)
            size = rows.ends[stop - 1] - before + (stop - first) * encoder.ROOM_PER_RECORD
            self._write(self._batch(rows, first, stop, size), rows.offsets[first], rows.offsets[stop - 1])
            first = stop

    def _check_order(self, offsets: Sequence[int]) -> None:
        if offsets[0] <= self._last or not all(map(lt, offsets, offsets[1:])):
            before = [self._last, *offsets]
            last, offset = next(pair for pair in pairwise(before) if pair[1] <= pair[0])
            place = self.folder.name
            raise UsageError(f"{place}: offset {offset} after {last}: offsets must increase")
        self._last = offsets[-1]

    def _batch(self, rows: Rows, first: int, stop: int, size: int) -> memoryview:
        out, records = self._buffer.reserve(RECORD_BATCH_OVERHEAD + size), rows.records
        base, stamp = rows.offsets[first], records.timestamp[first]
        end = encoder.encode_records(rows.data, records, first, stop, base, stamp, out, RECORD_BATCH_OVERHEAD)
        view = self._buffer.view[:end]
        if self._codec:
            view = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + compress(self._codec, view[RECORD_BATCH_OVERHEAD:]))
        encoder.finish_batch(
            view, 0, len(view), base, rows.offsets[stop - 1], stop - first, self._codec,
            stamp, encoder.largest_timestamp(records, first, stop), -1, -1, -1, FIRST_LEADER_EPOCH,
        )  # fmt: skip
        return view

    def _write(self, batch: memoryview, first: int, last: int) -> None:
        if self._position + len(batch) > self._shape.segment_bytes or last - self._base > INT32_MAX:
            self._seal()
        if self._log is None:
            self._base, self._position = first, 0
            self._first = first if self._first is None else self._first
            self._log = (self.folder / f"{first:020}.log").open("xb")
        self._log.write(batch)
        self._position += len(batch)

    def _seal(self) -> None:
        if self._log is not None:
            _seal(self._log)
            self._log = None

    def finish(self) -> None:
        """Complete the last segment: all rows are written."""
        self._seal()
        if self._first is not None:
            entries = [LeaderEpoch(FIRST_LEADER_EPOCH, self._first)]
            written_side_files.write(self.folder, entries)
        sync_folder(self.folder)

    def close(self) -> None:
        """Close the open files, whether the partition is complete or not."""
        if self._log is not None:
            self._log.close()


def _check_place(topic: str | None, partition: int | None) -> None:
    if topic is None or not is_topic_name(topic):
        raise UsageError(f"{topic!r} is not a valid topic name")
    if partition is None or partition < 0:
        raise UsageError(f"{topic}: {partition} is not a valid partition number")


def _seal(log: IO[bytes]) -> None:
    """Sync a segment to disk, and write its indexes, which are built from a read of the segment."""
    log.flush()
    os.fsync(log.fileno())
    log.close()
    path = Path(log.name)

    def wrong(finding: Finding) -> None:
        rule = RULES[finding.rule]
        if rule.severity >= Severity.ERROR:
            raise KsegError(
                f"{path}: after reading back: {rule.name}: {Verdict(str(path), rule.severity, finding).message}"
            )

    offsets, times = index_paths(path)
    with (
        SegmentReader(open_source(path), report=wrong) as reader,
        offsets.open("xb") as first,
        times.open("xb") as second,
    ):
        builder = IndexBuilder(int(path.stem), first, second)
        for window in reader.windows():
            builder.add(window.batches, 0, window.batches.count)
        builder.finish()
        for index in (first, second):
            index.flush()
            os.fsync(index.fileno())
