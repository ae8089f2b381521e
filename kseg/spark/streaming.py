"""Streams: the reader that Spark calls, and the progress through growing logs.

Spark guarantees exactly-once processing if the source returns the same rows for the same pair of offsets.

A stream's position is the first unread offset of each partition, always between two batches. Segments can be rolled,
deleted and compacted, and a log dir can be moved, because byte positions are looked up at each trigger.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.extras.views.planning import (
    SegmentRange,
    Split,
    folders,
    pack_splits,
    pieces_of,
    reads_committed,
    split_size,
    stored_bytes,
)
from kseg.extras.views.split_rows import Task, read
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.segment_reader import batch_at
from kseg.format.sidefiles.last_stable_offset import stable_offset
from kseg.format.sidefiles.log_end import LogEnd, last_valid_batch
from kseg.format.storage import remote_files
from kseg.format.storage.naming import is_snapshot, is_url, partition_of
from kseg.format.storage.resting_logs import is_at_rest
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import stamp_of, stored_size
from kseg.spark.options import Options
from kseg.text import inclusive_range

#: Partition (``orders-3``) -> first unread offset. Files outside partition folders have their folder path as key.
Offsets = Mapping[str, int]
#: The current segments of a partition in offset order.
Log = Sequence[SegmentFile]


class DataLost(KsegError):
    """A log does not have the next offset of a stream."""


#: How often, and how many seconds apart, folders are listed until their files do not change meanwhile.
_LISTINGS, _PAUSE = 40, 0.05


def logs(options: Options) -> dict[str, Log]:
    """Return the logs of the requested partitions, each with the files that it had at one time.

    Raises UsageError and UnreadableError.
    """
    for _ in range(_LISTINGS):
        found = _listed(options)
        if not any(map(_is_changing, found.values())):
            break
        time.sleep(_PAUSE)
    for log in found.values():
        if any(segment.size is None for segment in log):
            raise UsageError(f"{log[0].path}: a stream needs files of a known size, not compressed ones")
    return found


def _listed(options: Options) -> dict[str, Log]:
    found: dict[str, Log] = {}
    for folder, segments in folders(options.paths, options.limits):
        log = [segment for segment in segments if not is_snapshot(segment.path)]
        partition = partition_of(os.path.basename(folder))
        if not log or (partition and partition.state):
            continue  # being moved to or from another disk, or being deleted
        name = os.path.basename(folder) if partition else folder
        if name in found:
            raise UsageError(f"{name} is in several folders: stream one replica of a partition")
        found[name] = log
    return found


def _is_changing(log: Log) -> bool:
    paths = [segment.path for segment in log]
    return all(segment.listed for segment in log) and not is_at_rest(os.path.dirname(paths[0]), paths)


class LogEnds:
    """Finds log ends. Remembers how far the last segment of each log was valid, for logs without an index."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._marks: dict[str, LogEnd] = {}

    def now(self, start: Offsets) -> dict[str, int]:
        """Return the end offset (exclusive) of each log; for a deleted log the offset in ``start``.

        Raises DataLost, unless failOnDataLoss is false.
        """
        return {**start, **{name: self._end(name, log, start.get(name)) for name, log in logs(self._options).items()}}

    def _end(self, name: str, log: Log, start: int | None) -> int:
        path, size = log[-1].path, log[-1].bytes
        known = self._marks.get(path)
        if known and known.position > size:
            known = None  # the log was truncated
        mark = self._marks[path] = last_valid_batch(path, size, known=known)
        if self._options.fail_on_data_loss and start is not None:
            _check_loss(name, log, start, mark.offset)
        end = mark.offset
        if end > (start or 0) and reads_committed(self._options):
            stable = stable_offset([segment.path for segment in log])
            end = end if stable is None else min(end, stable)
        return max(end, start or 0)


def _check_loss(name: str, log: Log, start: int, end: int) -> None:
    first = log[0].base_offset
    if first > start:
        raise DataLost(
            f"{name}: deleted before it was read: {inclusive_range('offset', start, first - 1)}; "
            "failOnDataLoss=false continues after them"
        )
    if end < start:
        raise DataLost(
            f"{name}: the log ends at offset {end}, but was read to {start}: it was truncated, or the topic was "
            "created again; failOnDataLoss=false waits for that offset"
        )


def _check_range(name: str, log: Log, start: int | None, stop: int) -> None:
    """Raise DataLost if a log lacks offsets of a planned range: a follower can have truncated it since."""
    if start is not None:
        _check_loss(name, log, start, INT64_MAX)
    last = log[-1]
    if last.base_offset >= stop or _is_object(last):
        return
    end = last_valid_batch(last.path, last.bytes).offset
    if end < stop:
        raise DataLost(
            f"{name}: offsets from {end} on were deleted before they were read: the log was truncated; "
            "failOnDataLoss=false continues without them"
        )


def limited(options: Options, start: Offsets, end: Offsets, *, rows: int | None, size: int | None) -> dict[str, int]:
    """Return an end between ``start`` and ``end`` that is about ``rows`` offsets or ``size`` bytes of files away.

    Each log gets a share of at least one batch, in whole batches.
    """
    there = {name: log for name, log in logs(options).items() if end.get(name, 0) > start.get(name, 0)}
    begun = {name: start.get(name, 0) for name in there}
    waiting = {name: _new_bytes(log, begun[name], end[name], bytes_too=size is not None) for name, log in there.items()}
    total = max(sum(waiting.values()), 1)
    found = dict(end)
    for name, log in there.items():
        share = max((size if rows is None else rows) or 0, 1) * waiting[name] // total
        reach = _bytes_further if rows is None else _offsets_further
        found[name] = min(reach(log, begun[name], max(share, 1)) or end[name], end[name])
    return found


def _new_bytes(log: Log, start: int, end: int, *, bytes_too: bool) -> int:
    if not bytes_too:
        return end - max(start, log[0].base_offset)
    return sum(segment.bytes - _position(segment, start) for segment in _from(log, start))


def _from(log: Log, start: int) -> Iterator[SegmentFile]:
    return (segment for segment in log if segment.end_offset > start)


def _offsets_further(log: Log, start: int, share: int) -> int | None:
    """Return the offset about ``share`` offsets after ``start``; None for the log end."""
    start = max(start, log[0].base_offset)
    for segment in _from(log, start):
        if segment.end_offset <= start + share:
            continue
        mark = last_valid_batch(segment.path, segment.bytes, below=start + share, beyond=start)
        return mark.offset if mark.offset > start else segment.end_offset
    return None


def _bytes_further(log: Log, start: int, share: int) -> int | None:
    """Return the offset about ``share`` bytes after ``start``; None for the log end."""
    start = max(start, log[0].base_offset)
    beyond = start
    for segment in _from(log, start):
        size, begin = segment.bytes, _position(segment, start)
        if segment.end_offset < INT64_MAX and size - begin <= share:
            share -= size - begin
            beyond = -1  # a first batch is already included
            continue
        known = LogEnd(max(start, segment.base_offset), begin)
        mark = last_valid_batch(segment.path, size, before=begin + share, beyond=beyond, known=known)
        return mark.offset if mark.offset > start else segment.end_offset
    return None


def _position(segment: SegmentFile, offset: int) -> int:
    """Return the position of ``offset`` in a segment: the end of the last batch before it."""
    if offset <= segment.base_offset:
        return 0
    return last_valid_batch(segment.path, segment.bytes, below=offset).position


def splits(options: Options, start: Offsets, end: Offsets) -> list[Split]:
    """Return the splits from ``start`` to ``end``: each batch once, and the damage between them."""
    pieces: list[SegmentRange] = []
    there = logs(options)
    stored = stored_bytes(chain.from_iterable(there.values()))
    split_bytes = split_size(stored, options.split_bytes)
    for name, log in there.items():
        begun, stop = start.get(name), end.get(name, 0)
        if stop > (begun or 0):
            if options.fail_on_data_loss:
                _check_range(name, log, begun, stop)
            pieces += _pieces(options, log, begun or 0, stop, split_bytes)
    return list(pack_splits(([piece] for piece in pieces), split_bytes))


def _pieces(options: Options, log: Log, begun: int, stop: int, split_bytes: int) -> Iterator[SegmentRange]:
    """Yield the parts of a log's files with the batches from ``begun`` to ``stop``."""
    stable = stable_offset([segment.path for segment in log]) if reads_committed(options) else None
    for segment in _from(log, begun):
        if segment.base_offset >= stop:
            break
        whole = SegmentRange(segment, stable_offset=stable)
        first = _position(segment, begun)
        last = segment.bytes if segment.end_offset <= stop else _position(segment, stop)
        if _is_object(segment):
            if not _is_gone(segment, fail=options.fail_on_data_loss):  # its positions would be 0
                yield from pieces_of(whole, first, last, split_bytes)
            continue
        found = list(pieces_of(whole, first, last, split_bytes))
        starts = [batch_at(segment.path, piece.start, segment.bytes) for piece in found[1:]]
        if None in starts:
            found, starts = [replace(found[0], end=found[-1].end)], []
        if not found and stamp_of(segment.path) != segment.stamp:
            found = [whole]  # another file: the task looks the offsets up again
        offsets = [max(begun, segment.base_offset), *(batch.base_offset[0] for batch in starts if batch)]
        for piece, (offset, until) in zip(found, pairwise([*offsets, min(segment.end_offset, stop)]), strict=False):
            yield replace(piece, offsets=(offset, until))


def _is_object(segment: SegmentFile) -> bool:
    """Return whether a segment is an object: nothing replaces its batches, and one that has grown has the same."""
    return is_url(segment.path) or segment.stamp is None


def as_it_is_now(options: Options, piece: SegmentRange) -> Iterable[SegmentRange]:
    """Return the parts of files that have the offsets of a piece now.

    A log cleaner can have replaced files since they were planned, and a broker can have deleted or truncated them.
    Raises DataLost for offsets that are no longer there, if failOnDataLoss is true.
    """
    if _is_object(piece.file):
        return () if _is_gone(piece.file, fail=options.fail_on_data_loss) else (piece,)
    return (piece,) if stamp_of(piece.file.path) == piece.file.stamp else _planned_again(options, piece)


def _planned_again(options: Options, piece: SegmentRange) -> Iterator[SegmentRange]:
    """Yield the parts of the files that have the offsets of a piece now."""
    assert piece.offsets is not None  # local files have them
    begun, stop = piece.offsets
    path = piece.file.path
    folder = os.path.dirname(path)
    name = os.path.basename(folder) if partition_of(os.path.basename(folder)) else folder
    try:
        log = logs(replace(options, paths=(folder if piece.file.listed else path,)))[name]
    except (UnreadableError, KeyError):  # moved to another log dir, or deleted
        moved = logs(options).get(name)
        if moved is None:
            if options.fail_on_data_loss:
                raise DataLost(f"{path}: deleted before it was read") from None
            return
        log = moved
    if options.fail_on_data_loss:
        _check_range(name, log, begun, stop)
    yield from _pieces(options, log, begun, stop, sys.maxsize)


def _is_gone(segment: SegmentFile, *, fail: bool) -> bool:
    """Return whether an object is smaller than it was; with ``fail``, raise DataLost for it."""
    gone = (stored_size(segment.path) or 0) < segment.bytes
    if gone and fail:
        raise DataLost(f"{segment.path}: deleted or compacted before it was read: start the query again")
    return gone


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2 every trigger reads all available data
    HAS_LIMITS = False
else:
    HAS_LIMITS = True


class KsegStreamReader(DataSourceStreamReader):
    """Follows the partitions of a log dir. Raises UsageError for options that streams do not support."""

    def __init__(self, options: Options) -> None:
        if options.view not in ("records", "batches"):
            raise UsageError(f"view {options.view} cannot be streamed: use records or batches")
        if options.framing:
            raise UsageError("option as cannot be streamed: a stream reads logs")
        if options.inventory is not None:
            raise UsageError("option inventory cannot be streamed: a stream reads new segments, which no inventory has")
        if options.keys:
            raise UsageError("option kek cannot be streamed: set KSEG_KEK for the driver and the executors")
        limits = (options.max_offsets, options.max_bytes)
        if None not in limits:
            raise UsageError("give maxOffsetsPerTrigger or maxBytesPerTrigger, not both")
        if limits != (None, None) and not HAS_LIMITS:
            raise UsageError("limits of a trigger need Spark 4.2 or newer")
        self.options = options
        self._ends = LogEnds(options)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start of a query without a checkpoint; a missing partition means the beginning of its log."""
        return self._ends.now({}) if self.options.starting == "latest" else {}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the next trigger. Spark before 4.2 passes neither start nor limit. Raises DataLost."""
        begun = start or {}
        end = self._ends.now(begun)
        if self._target is not None:
            target = self._target
            end = {
                name: max(begun.get(name, 0), min(offset, target.get(name, 0)))
                for name, offset in end.items()
                if name in begun or name in target
            }
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
            end = limited(self.options, begun, end, rows=rows, size=size)
        return dict(sorted(end.items()))  # Spark compares offsets as text

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        return ReadAllAvailable() if self.options.max_bytes is None else ReadMaxBytes(self.options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this query: later data belongs to the next query."""
        self._target = self._ends.now({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(split) for split in splits(self.options, start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a split as Arrow record batches. Raises DataLost if a log has no longer its offsets."""
        remote_files.forget()
        with self.options.file_access():
            current = partial(as_it_is_now, self.options)
            task = Task(self.options, self.options.limits, self.options.notices, current)
            yield from read(task, partition.value or Split())


if HAS_LIMITS:
    SupportsTriggerAvailableNow.register(KsegStreamReader)
