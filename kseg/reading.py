"""Open a segment, a partition or a log directory, and iterate over its batches and records."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from weakref import WeakSet

from kseg.commands.dump.dump_items import BatchItem, RecordsItem, SegmentItem
from kseg.commands.dump.dumped_rows import DumpRequest, byte_range
from kseg.errors import UnreadableError, UsageError
from kseg.findings import Report, do_nothing
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT, DeepIterator
from kseg.format.segment.records_chunk import Chunk, Record, RecordBatch
from kseg.format.segment.row_filter import KeyIsOneOf, RowFilter
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles.transaction_states import TransactionLogs
from kseg.format.storage.naming import base_offset_of, end_offsets, is_snapshot, is_url
from kseg.format.storage.segment_files import SegmentFile, check_exists, find_segments, unless_deleted
from kseg.format.storage.source import Source, local_size, open_range, open_source, topic_partition
from kseg.report import parquet
from kseg.report.arrow_table import pa
from kseg.text import Time, as_bytes, check_number, epoch_time


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """The options of ``open_segment``, ``open_partition`` and ``open_log_dir``."""

    report: Report
    verify_crc: bool
    decompression_limit: int

    def __post_init__(self) -> None:
        check_number("decompression_limit", self.decompression_limit, 0)


class Log(ABC):
    """Batches and records of one or more segments: the base of ``Segment``, ``PartitionLog`` and ``LogDir``.

    Ranges are half-open, and None leaves a side open: ``first_offset <= offset < end_offset`` in record offsets,
    ``since <= timestamp < until``. Times are epoch milliseconds, datetimes (UTC without a zone), ISO 8601 or text such as
    ``"yesterday"``. Batches and records without a timestamp are outside of every time range. Of local files, only the bytes
    are read that can hold the range according to the indexes next to the segment; an index entry is used only where the log
    confirms it.
    """

    def batches(
        self,
        *,
        first_offset: int | None = None,
        end_offset: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
    ) -> Iterator[RecordBatch]:
        """Iterate over the batches that can hold records of the range by their headers; no batch is decompressed.

        Batches with a wrong CRC are included (``crc_valid`` is False). Raises UnreadableError if reading fails, and
        NotASegmentError if a file contains no batch.
        """
        for item in self._items(_limits(first_offset, end_offset, since, until), deep=False):
            if isinstance(item, BatchItem):
                yield item.batch

    def records(
        self,
        *,
        first_offset: int | None = None,
        end_offset: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        key: bytes | str | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records of the range, or over those with this ``key``.

        Records of batches with a wrong CRC are left out, unless the log was opened with ``verify_crc=False``. Raises
        UnreadableError if reading fails, and NotASegmentError if a file contains no batch.
        """
        for item in self._items(_limits(first_offset, end_offset, since, until, key), deep=True):
            if isinstance(item, RecordsItem):
                yield from item.records()

    def to_arrow(
        self,
        *,
        deep: bool = True,
        first_offset: int | None = None,
        end_offset: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        key: bytes | str | None = None,
    ) -> pa.RecordBatchReader:
        """Return the records as a ``pyarrow.RecordBatchReader``, or with ``deep=False`` the batches.

        The columns are those of ``kseg dump --format parquet``. The reader holds one Arrow batch at a time;
        ``read_all()`` makes a table. Raises UsageError if pyarrow is not installed.
        """
        items = self._items(_limits(first_offset, end_offset, since, until, key), deep=deep)
        return parquet.arrow_reader(items, deep=deep)

    @abstractmethod
    def _items(self, wanted: RowFilter, *, deep: bool) -> Iterator[SegmentItem]:
        """Yield the items of a dump that the filter accepts."""


class Segment(Log):
    """An open segment. A context manager.

    Findings go to ``report`` when they are found; reading continues after damage. A regular local file can be iterated
    any number of times. A pipe, a URL or a file object can be read once.
    """

    def __init__(
        self,
        path: str | BinaryIO,
        options: _ReadOptions,
        *,
        listed: bool = False,
        logs: TransactionLogs | None = None,
    ) -> None:
        self._path = path
        self._options = options
        self._unread: Source | None = open_source(path, listed=listed)
        self._open = WeakSet([self._unread])
        self._listed = listed
        self._logs = logs or TransactionLogs()
        self.name = self._unread.name

    def windows(self) -> Iterator[Window]:
        """Iterate over the batches in columns. A window is valid until the next one is requested.

        Raises UsageError if the source was read before and cannot be read again, UnreadableError and NotASegmentError.
        """
        with self._reader(RowFilter()) as reader:
            yield from reader.windows()

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over the records in columns. A chunk is valid until the next one is requested. Raises as ``windows``."""
        opener = DeepIterator(self._options.report, limit=self._options.decompression_limit)
        for window in self.windows():
            yield from opener.chunks(window)

    def close(self) -> None:
        """Close the file; iterations that were not finished end with UsageError."""
        for source in self._open:
            source.close()
        self._unread = None

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _items(self, wanted: RowFilter, *, deep: bool) -> Iterator[SegmentItem]:
        report, limit = self._options.report, self._options.decompression_limit
        if not wanted.accepts_offsets(wanted.first_offset, None):
            return  # an empty range, which can be within a batch
        request, file = DumpRequest(deep, wanted, logs=self._logs), SegmentFile(self.name, listed=self._listed)
        with self._reader(wanted) as reader:
            yield from request.items_of_reader(file, reader, report, decompression_limit=limit)

    def _reader(self, wanted: RowFilter) -> SegmentReader:
        """Return a reader of the bytes that can hold the wanted rows."""
        source, self._unread = self._unread, None
        size = local_size(self._path) if isinstance(self._path, str) else None
        part = None if size is None else byte_range(self.name, size, wanted)
        if size is not None and part != (0, size) and part is not None:
            if source is not None:
                source.close()
            source = open_range(self.name, *part)
        elif source is None and size is not None:
            source = open_source(self.name)
        if source is None:
            raise UsageError(f"{self.name}: this source can be read only once: open it again")
        self._open.add(source)
        return SegmentReader(source, report=self._options.report, verify_crc=self._options.verify_crc)


class PartitionLog(Log):
    """The log of one partition: the segments of its folder, by offset.

    ``topic`` and ``partition`` are from the folder's name, None if it is not ``TOPIC-NUMBER``. ``files`` are the paths of
    the segments. Segments that the offsets in the file names exclude are not opened.
    """

    def __init__(self, folder: str, files: tuple[str, ...], options: _ReadOptions, *, listed: bool) -> None:
        self.name = folder
        self.files = files
        self.topic, self.partition = topic_partition(files[0])
        self._options = options
        self._listed = listed

    def segments(self) -> Iterator[Segment]:
        """Iterate over the open segments; each is closed when the next one is requested.

        Segments that a broker has deleted since, the oldest ones, are left out. Raises UnreadableError.
        """
        return self._segments(RowFilter())

    def _segments(self, wanted: RowFilter) -> Iterator[Segment]:
        logs = TransactionLogs()
        for path, end in zip(self.files, end_offsets(self.files), strict=True):
            if not wanted.accepts_offsets(base_offset_of(path), end):
                continue
            try:
                segment = Segment(path, self._options, listed=self._listed, logs=logs)
            except UnreadableError as error:
                if reported := unless_deleted(error, SegmentFile(path, listed=self._listed)):
                    raise reported from None
                continue
            with segment:
                yield segment

    def _items(self, wanted: RowFilter, *, deep: bool) -> Iterator[SegmentItem]:
        for segment in self._segments(wanted):
            yield from segment._items(wanted, deep=deep)


class LogDir(Log):
    """All partitions of a log directory, or of any folder that has partition folders in it, by path."""

    def __init__(self, path: str, partitions: tuple[PartitionLog, ...]) -> None:
        self.name = path
        self.partitions = partitions

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition. Raises UnreadableError if the log directory does not have it."""
        for log in self.partitions:
            if (log.topic, log.partition) == (topic, partition):
                return log
        raise UnreadableError(f"{self.name}: it does not contain partition {topic}-{partition}")

    def _items(self, wanted: RowFilter, *, deep: bool) -> Iterator[SegmentItem]:
        for log in self.partitions:
            yield from log._items(wanted, deep=deep)


def _limits(
    first: int | None, end: int | None, since: Time | None, until: Time | None, key: bytes | str | None = None
) -> RowFilter:
    check_number("first_offset", first)
    check_number("end_offset", end)
    keys = () if key is None else (KeyIsOneOf((as_bytes("key", key),)),)
    return RowFilter(first, end, epoch_time("since", since), epoch_time("until", until), keys)


def open_segment(
    path: str | os.PathLike[str] | BinaryIO,
    *,
    report: Report = do_nothing,
    verify_crc: bool = True,
    decompression_limit: int = DECOMPRESSION_LIMIT,
) -> Segment:
    """Open a segment: a local path, ``-`` for standard input, an fsspec URL, or a binary file object.

    ``report`` is called with each Finding. ``verify_crc=False`` computes no CRCs, like a consumer with
    ``check.crcs=false``. ``decompression_limit`` is the maximum size of one decompressed batch in bytes; above its
    default, a batch may have more than 4 records per compressed byte, and records of more than 64 MiB. Raises
    UnreadableError if the path cannot be opened.
    """
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    return Segment(name, _ReadOptions(report, verify_crc, decompression_limit))


def open_partition(
    path: str | os.PathLike[str],
    *,
    report: Report = do_nothing,
    verify_crc: bool = True,
    decompression_limit: int = DECOMPRESSION_LIMIT,
) -> PartitionLog:
    """Open the log of a partition: a local folder or an fsspec URL with segments in it.

    The other parameters are those of ``open_segment``. Raises UnreadableError if the folder cannot be listed or has no
    segment, and UsageError if it has partition folders in it: ``open_log_dir`` opens those.
    """
    found = open_log_dir(path, report=report, verify_crc=verify_crc, decompression_limit=decompression_limit)
    if len(found.partitions) > 1:
        raise UsageError(f"{found.name}: it has {len(found.partitions)} partition folders: use open_log_dir")
    return found.partitions[0]


def open_log_dir(
    path: str | os.PathLike[str],
    *,
    report: Report = do_nothing,
    verify_crc: bool = True,
    decompression_limit: int = DECOMPRESSION_LIMIT,
) -> LogDir:
    """Open all partitions below a folder: a local folder or an fsspec URL.

    Snapshots of KRaft are not part of a log and are left out. The other parameters are those of ``open_segment``. Raises
    UnreadableError if a folder cannot be listed or if no segment is found.
    """
    options = _ReadOptions(report, verify_crc, decompression_limit)
    name = os.fspath(path)
    if not is_url(name):
        check_exists(name)
    folders: dict[str, list[SegmentFile]] = {}
    for file in find_segments(name):
        if not is_snapshot(file.path):
            folders.setdefault(os.path.dirname(file.path), []).append(file)
    if not folders:
        raise UnreadableError(f"{name}: no segment found (a .log file named by 20 digits)")
    logs = (
        PartitionLog(folder, tuple(file.path for file in files), options, listed=files[0].listed)
        for folder, files in folders.items()
    )
    return LogDir(name, tuple(logs))
