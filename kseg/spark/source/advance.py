"""The progress of a stream through growing logs: current log ends, the end of a trigger, and its byte ranges.

A stream's position is the first unread offset of each partition, always between two batches. Segments can be rolled,
deleted and compacted, and a log dir can be moved, because byte positions are looked up at each trigger.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kseg.commands.transactions.aborted import CommittedOffsets, committed
from kseg.errors import KsegError, UsageError
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.log_end import LogEnd, last_valid_batch
from kseg.format.storage.naming import is_snapshot, partition_of
from kseg.format.storage.source import local_size
from kseg.spark.source.options import Options
from kseg.text import inclusive_range
from kseg.views.planning import (
    Segment,
    SegmentRange,
    Split,
    folders,
    needs_outcomes,
    pack_splits,
    pieces_of,
    reads_committed,
    split_size,
)

#: Partition (``orders-3``) -> first unread offset. Files outside partition folders have their folder path as key.
Offsets = Mapping[str, int]


class DataLost(KsegError):
    """A log does not have the next offset of a stream."""


@dataclass(frozen=True, slots=True)
class Log:
    """The current segments of a partition in offset order."""

    name: str
    segments: tuple[Segment, ...]

    @property
    def first_offset(self) -> int:
        """The first offset of the log, by its first file name."""
        return self.segments[0].base_offset or 0

    def committed(self) -> CommittedOffsets:
        """The transactions of the partition."""
        return committed([segment.file.path for segment in self.segments])


def logs(options: Options) -> dict[str, Log]:
    """Return the logs of the requested partitions. Raises UsageError and UnreadableError."""
    found: dict[str, Log] = {}
    for folder, segments in folders(options.paths, options.limits).items():
        logs = tuple(segment for segment in segments if not is_snapshot(segment.file.path))
        partition = partition_of(os.path.basename(folder))
        if not logs or (partition and partition.state):
            continue  # being moved to or from another disk, or being deleted
        if any(segment.size is None for segment in logs):
            raise UsageError(f"{logs[0].file.path}: a stream needs local files")
        name = os.path.basename(folder) if partition else folder
        if name in found:
            raise UsageError(f"{name} is in several folders: stream one replica of a partition")
        found[name] = Log(name, logs)
    return found


class LogEnds:
    """Finds log ends. Remembers how far the last segment of each log was valid, for logs without an index."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._marks: dict[str, LogEnd] = {}

    def now(self, start: Offsets) -> dict[str, int]:
        """Return the end offset (exclusive) of each log; for a deleted log the offset in ``start``.

        Raises DataLost, unless failOnDataLoss is false.
        """
        return {**start, **{log.name: self._end(log, start.get(log.name)) for log in logs(self._options).values()}}

    def _end(self, log: Log, start: int | None) -> int:
        last = log.segments[-1]
        path = last.file.path
        known = self._marks.get(path)
        if known and known.position > (last.size or 0):
            known = None  # the log was truncated
        mark = self._marks[path] = last_valid_batch(path, last.size or 0, known=known)
        if self._options.stream.fail_on_data_loss and start is not None:
            _check_loss(log, start, mark.offset)
        end = mark.offset
        if end > (start or 0) and reads_committed(self._options):
            stable = log.committed().stable_offset
            end = end if stable is None else min(end, stable)
        return max(end, start or 0)


def _check_loss(log: Log, start: int, end: int) -> None:
    first = log.first_offset
    if first > start:
        raise DataLost(
            f"{log.name}: deleted before it was read: {inclusive_range('offset', start, first - 1)}; "
            "failOnDataLoss=false continues after them"
        )
    if end < start:
        raise DataLost(
            f"{log.name}: the log ends at offset {end}, but was read to {start}: it was truncated, or the topic was "
            "created again; failOnDataLoss=false waits for that offset"
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
        return end - max(start, log.first_offset)
    return sum((segment.size or 0) - _position(segment, start) for segment in _from(log, start))


def _from(log: Log, start: int) -> Iterator[Segment]:
    return (segment for segment in log.segments if segment.end_offset is None or segment.end_offset > start)


def _offsets_further(log: Log, start: int, share: int) -> int | None:
    """Return the offset about ``share`` offsets after ``start``; None for the log end."""
    start = max(start, log.first_offset)
    for segment in _from(log, start):
        if segment.end_offset is not None and segment.end_offset <= start + share:
            continue
        mark = last_valid_batch(segment.file.path, segment.size or 0, below=start + share, beyond=start)
        return mark.offset if mark.offset > start else segment.end_offset
    return None


def _bytes_further(log: Log, start: int, share: int) -> int | None:
    """Return the offset about ``share`` bytes after ``start``; None for the log end."""
    start = max(start, log.first_offset)
    beyond = start
    for segment in _from(log, start):
        size, begin = segment.size or 0, _position(segment, start)
        if segment.end_offset is not None and size - begin <= share:
            share -= size - begin
            beyond = -1  # a first batch is already included
            continue
        known = LogEnd(max(start, segment.base_offset or 0), begin)
        mark = last_valid_batch(segment.file.path, size, before=begin + share, beyond=beyond, known=known)
        return mark.offset if mark.offset > start else segment.end_offset
    return None


def _position(segment: Segment, offset: int) -> int:
    """Return the position of ``offset`` in a segment: the end of the last batch before it."""
    if offset <= (segment.base_offset or 0):
        return 0
    return last_valid_batch(segment.file.path, segment.size or 0, below=offset).position


def splits(options: Options, start: Offsets, end: Offsets) -> list[Split]:
    """Return the splits from ``start`` to ``end``: each batch once, and the damage between them."""
    pieces: list[SegmentRange] = []
    there = logs(options)
    split_bytes = options.split_bytes or split_size(segment for log in there.values() for segment in log.segments)
    for name, log in there.items():
        begun, stop = start.get(name), end.get(name, 0)
        if stop <= (begun or 0):
            continue
        if options.stream.fail_on_data_loss and begun is not None:
            _check_loss(log, begun, INT64_MAX)
        seen = log.committed() if needs_outcomes(options) else None
        for segment in _from(log, begun or 0):
            if (segment.base_offset or 0) >= stop:
                break
            whole = segment.end_offset is not None and segment.end_offset <= stop
            last = (segment.size or 0) if whole else _position(segment, stop)
            pieces += pieces_of(segment, _position(segment, begun or 0), last, split_bytes, seen)
    return list(pack_splits(([piece] for piece in pieces), split_bytes))


def check_there(split: Split) -> None:
    """Raise DataLost for a file deleted or compacted since planning. A restarted query plans again."""
    for piece in split.pieces:
        path = piece.file.path
        if (local_size(path) or 0) < (piece.size or 0):
            raise DataLost(f"{path}: deleted or compacted before it was read: start the query again")
