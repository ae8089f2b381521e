"""A DataFrame back to segments: sealed v2 logs with their indexes, a folder a partition, as a broker would have them.

    write_segments(df, "/data/replay")    # /data/replay/orders-3/00000000000000000000.log, .index, .timeindex

Tasks write to a hidden folder beside the partitions; at the end these get their names, or nothing does.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kseg.beside.indexes import IndexBuilder
from kseg.errors import KsegError, UsageError
from kseg.files.safe_output import refuse_existing, sync_folder, writing
from kseg.files.storage import open_source
from kseg.findings import RULES, Finding, Severity, Verdict
from kseg.format.log_format import INT32_MAX, NO_TIMESTAMP
from kseg.log.records import Header
from kseg.log.segment import SegmentReader
from kseg.rewriting.records_builder import PlainRecord, build_batch, codec_id
from kseg.rewriting.rewrite import index_paths
from kseg.spark.pool import told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

#: ``segment.bytes`` of a topic, and about the largest batch that producers send, as Kafka defaults to them.
SEGMENT_BYTES = 1024 * 1024 * 1024
BATCH_BYTES = 16 * 1024

_FORMAT = "kseg-segments"
_HEADERS = "array<struct<key:string,value:binary>>"
# Topic.validate: the name becomes a folder's.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Of a record beside its key and value: lengths, deltas, attributes.
_RECORD_OVERHEAD = 21


def write_segments(
    df: DataFrame,
    path: str,
    *,
    compression: str = "none",
    segment_bytes: int = SEGMENT_BYTES,
    batch_bytes: int = BATCH_BYTES,
    overwrite: bool = False,
) -> None:
    """Write rows of topic, partition, offset, key and value (optional: timestamp or timestamp_ms, headers) as segments.

    They are brought together by partition and sorted by offset; offsets may have holes, but none twice. A batch has
    about ``batch_bytes`` before compression. Partitions that are there already are refused, or replaced. Raises
    UsageError for columns and options that won't do, KsegError for rows that won't; then nothing is written.
    """
    codec_id(compression)
    if not 0 < batch_bytes <= segment_bytes <= INT32_MAX:
        raise UsageError("0 < batch_bytes <= segment_bytes < 2 GiB: positions in a segment are 32-bit")
    rows = df.select(*_columns(df)).repartition("topic", "partition")
    options = {"compression": compression, "segmentbytes": str(segment_bytes), "batchbytes": str(batch_bytes)}
    df.sparkSession.dataSource.register(_SegmentSink)
    with told():
        (
            rows.sortWithinPartitions("topic", "partition", "offset")
            .write.format(_FORMAT)
            .options(**options)
            .mode("overwrite" if overwrite else "append")
            .save(os.path.abspath(path))
        )


def _columns(df: DataFrame) -> Iterator[Column]:
    """The columns that tasks are given. Milliseconds, since timestamps come to a writer in the session's zone."""
    for name in ("topic", "partition", "offset", "key", "value"):
        if name not in df.columns:
            raise UsageError(f"there is no column {name}: segments are made of topic, partition, offset, key, value")
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
    """How records become batches and segments."""

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
        """A task's rows. A task that is tried again, or twice at a time, has a folder of its own each time."""
        own = self._staging / uuid.uuid4().hex
        folders = []
        for (topic, partition), rows in groupby(_rows(iterator), key=lambda row: (row["topic"], row["partition"])):
            _check_place(topic, partition)
            folder = own / f"{topic}-{partition}"
            if folder.exists():
                raise UsageError(f"rows of {folder.name} are not together")
            with writing(folder):
                folder.mkdir(parents=True)
                _write_partition(folder, _records(rows, folder.name), self._shape)
            folders.append(folder)
        return _Written(folders)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        folders = [folder for message in messages if isinstance(message, _Written) for folder in message.folders]
        names = {folder.name for folder in folders}
        if len(names) < len(folders):
            raise UsageError("rows of one partition came to several tasks")
        targets = [self._target / folder.name for folder in folders]
        try:
            if not self._overwrite:
                refuse_existing(targets)
            for folder, target in zip(folders, targets, strict=True):
                if target.exists():
                    os.rename(target, self._staging / f"{target.name}.old")
                os.rename(folder, target)
            if folders:
                sync_folder(self._target)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):
            self._target.rmdir()  # nothing came to be in it


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _check_place(topic: str | None, partition: int | None) -> None:
    if topic is None or topic in (".", "..") or not _TOPIC.fullmatch(topic):
        raise UsageError(f"{topic!r} is no name of a topic")
    if partition is None or partition < 0:
        raise UsageError(f"{topic}: {partition} is no partition")


def _records(rows: Iterator[dict[str, Any]], place: str) -> Iterator[PlainRecord]:
    last = -1
    for row in rows:
        offset = row["offset"]
        if offset is None or offset <= last:
            raise UsageError(f"{place}: offset {offset} comes after {last}: each must be larger than the one before")
        last = offset
        stamp = row["timestamp_ms"]
        headers = tuple(Header(pair["key"], pair["value"]) for pair in row["headers"] or ())
        yield PlainRecord(offset, row["key"], row["value"], NO_TIMESTAMP if stamp is None else stamp, headers)


def _write_partition(folder: Path, records: Iterator[PlainRecord], shape: _Shape) -> None:
    """Batches to segments, a new one where the next batch would be too much for the one before."""
    log: IO[bytes] | None = None
    base = position = 0
    try:
        for batch in _batches(records, shape.batch_bytes):
            data = build_batch(batch, compression=shape.compression)
            full = position + len(data) > shape.segment_bytes or batch[-1].offset - base > INT32_MAX
            if log is None or full:
                if log is not None:
                    _seal(log)
                base, position = batch[0].offset, 0
                log = (folder / f"{base:020}.log").open("xb")
            log.write(data)
            position += len(data)
        if log is not None:
            _seal(log)
    finally:
        if log is not None:
            log.close()
    sync_folder(folder)


def _batches(records: Iterator[PlainRecord], batch_bytes: int) -> Iterator[list[PlainRecord]]:
    held: list[PlainRecord] = []
    size = 0
    for record in records:
        weight = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        weight += sum(len(header.key) + len(header.value or b"") for header in record.headers)
        if held and (size + weight > batch_bytes or record.offset - held[0].offset > INT32_MAX):
            yield held
            held, size = [], 0
        held.append(record)
        size += weight
    if held:
        yield held


def _seal(log: IO[bytes]) -> None:
    """Have a segment on the disk, and its indexes, which are built from what is read back."""
    log.flush()
    os.fsync(log.fileno())
    log.close()
    path = Path(log.name)

    def wrong(finding: Finding) -> None:
        rule = RULES[finding.rule]
        if rule.severity >= Severity.ERROR:
            raise KsegError(f"{path}: read back, {rule.name}: {Verdict(str(path), rule.severity, finding).message}")

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
