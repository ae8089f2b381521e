"""From paths to splits: which files and byte ranges can hold the rows that are wanted, in tasks of about one size."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise, zip_longest

from kseg.commands.transactions.aborted import CommittedOffsets, committed
from kseg.errors import UsageError
from kseg.format.sidefiles import index_lookup
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.naming import base_offset_of, is_snapshot
from kseg.format.storage.source import (
    STDIN,
    SegmentFile,
    find_segments,
    is_folder,
    local_size,
    open_source,
    topic_partition,
)
from kseg.format.wire.framings import framed_files
from kseg.spark.source.options import Options, RowLimits
from kseg.spark.source.views import FINDINGS, TRANSACTION_STATE

#: What opening one more file costs, in bytes of reading: a split of tiny files does not become one of thousands.
FILE_COST = 256 * 1024
#: A split's bytes, about: no more, so that tasks that are lost are soon done again; no less, since a task costs 10 to 60
#: ms (81 MB of LZ4 in splits of 8, 16 and 64 MiB: 1.3, 1.0 and 0.9 s of processor time); and between these so many
#: splits that a handful of slots end together.
SPLIT_BYTES = 64 * 1024 * 1024
LEAST_SPLIT_BYTES = 16 * 1024 * 1024
SPLITS = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment among those of its folder. ``size`` is None where it can't be known without reading.

    Its offsets are below ``end_offset``, the first of the next segment; None for the last.
    """

    file: SegmentFile
    size: int | None
    end_offset: int | None

    @property
    def base_offset(self) -> int | None:
        return base_offset_of(self.file.path)


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Entries of a file that begin at the bytes ``start`` to ``end``; ``end`` None is the file's. ``committed`` is None
    where nobody asks what became of transactions.
    """

    file: SegmentFile
    size: int | None
    start: int = 0
    end: int | None = None
    committed: CommittedOffsets | None = None

    @property
    def bytes(self) -> int:
        """Bytes to be read; 0 where that isn't known."""
        return (self.size if self.end is None else self.end) - self.start if self.size is not None else 0


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads."""

    pieces: tuple[SegmentRange, ...] = field(default=())


def check_paths(options: Options) -> None:
    """Raises UnreadableError or UsageError for the first path that holds nothing to read."""
    for path in options.paths:
        if path == STDIN:
            raise UsageError("standard input can't be read by Spark: load() takes files, folders and URLs")
        if options.framing:
            for file in framed_files([path], [options.framing]):
                open_source(file.path, listed=True).close()
            continue
        if next(_judged_files(path) if options.view == FINDINGS else find_segments(path)).path == path:
            open_source(path, listed=True).close()


def _judged_files(path: str) -> Iterator[SegmentFile]:
    """What ``validate`` looks at. A file that is none of Kafka's is none of a table's either."""
    return find_files(path, lambda name: None) if is_folder(path) else find_segments(path)


def plan(options: Options, limits: RowLimits) -> list[Split]:
    """The splits of a read. Raises KsegError where a path can't be listed.

    The segments view is split by file only, the findings view by folder: a check needs what stands before, and beside.
    """
    if options.framing:
        files = framed_files(options.paths, [options.framing])
        alone = ([SegmentRange(replace(file, requests=options.requests), local_size(file.path))] for file in files)
        return list(pack_splits(alone, options.split_bytes or LEAST_SPLIT_BYTES))
    if options.view == FINDINGS:
        units = list(_whole_folders(options.paths, limits))
        return list(pack_splits(units, options.split_bytes or SPLIT_BYTES))
    by_folder = folders(options.paths, limits)
    split_bytes = options.split_bytes or split_size(chain.from_iterable(by_folder.values()))
    pieces: list[SegmentRange] = []
    for folder in by_folder.values():
        seen = committed([segment.file.path for segment in folder]) if folder_findings(options) else None
        for segment in folder:
            if options.view == "segments":
                pieces.append(SegmentRange(segment.file, segment.size))
            elif _can_hold(segment, limits):
                pieces += _pieces(segment, limits, split_bytes, seen)
    return list(pack_splits(([piece] for piece in pieces), split_bytes))


def _whole_folders(paths: Sequence[str], limits: RowLimits) -> Iterator[list[SegmentRange]]:
    """The files of each folder, those beside the logs included; one that is named alone is alone."""
    seen: set[str] = set()
    for path in paths:
        taken = (file for file in _judged_files(path) if limits.accepts_file(*topic_partition(file.path)))
        for _, files in groupby(taken, key=lambda file: os.path.dirname(file.path)):
            new = [file for file in files if file.path not in seen]
            seen.update(file.path for file in new)
            if new:
                yield [SegmentRange(file, local_size(file.path)) for file in new]


def split_size(segments: Iterable[Segment]) -> int:
    """What a split of these is to have, in bytes."""
    size = sum(FILE_COST + (SPLIT_BYTES if segment.size is None else segment.size) for segment in segments)
    return min(max(size // SPLITS, LEAST_SPLIT_BYTES), SPLIT_BYTES)


def separate_partitions(options: Options) -> bool:
    """Whether transactions decide of rows."""
    return options.isolation == "read_committed" and options.view == "records"


def folder_findings(options: Options) -> bool:
    """Whether it must be known what became of transactions."""
    return separate_partitions(options) or any(column is TRANSACTION_STATE for column in options.columns)


def folders(paths: Sequence[str], limits: RowLimits) -> Mapping[str, list[Segment]]:
    """The segments of the wanted partitions by folder, in order; one that several paths name comes once."""
    files = dict.fromkeys(chain.from_iterable(map(find_segments, paths)))
    by_folder: dict[str, list[SegmentFile]] = defaultdict(list)
    for file in files:
        if limits.accepts_file(*topic_partition(file.path)):
            by_folder[os.path.dirname(file.path)].append(file)
    return {folder: list(_segments(found)) for folder, found in by_folder.items()}


def _segments(files: list[SegmentFile]) -> Iterator[Segment]:
    # Snapshots of KRaft come last: they are beside the log.
    ordered = sorted(files, key=lambda file: (is_snapshot(file.path), base_offset_of(file.path) or 0))
    for file, behind in zip_longest(ordered, ordered[1:]):
        end = base_offset_of(behind.path) if behind else None
        yield Segment(file, local_size(file.path), end if base_offset_of(file.path) is not None else None)


def _can_hold(segment: Segment, limits: RowLimits) -> bool:
    """Whether by the names of the files, and the time index of a sealed one, it can have rows within the limits."""
    base = segment.base_offset
    if base is not None and limits.end_offset is not None and base >= limits.end_offset:
        return False
    if segment.end_offset is not None and limits.first_offset is not None and segment.end_offset <= limits.first_offset:
        return False
    if limits.since is None or segment.end_offset is None:
        return True
    newest = index_lookup.newest_timestamp(segment.file.path)
    return newest is None or newest >= limits.since


def _pieces(
    segment: Segment, limits: RowLimits, split_bytes: int, seen: CommittedOffsets | None
) -> Iterator[SegmentRange]:
    path, size = segment.file.path, segment.size
    if size is None:
        yield SegmentRange(segment.file, None, committed=seen)
        return
    first = limits.first_offset
    if limits.since is not None:
        older = index_lookup.first_offset_since(path, limits.since)
        first = older if first is None else max(first, older or first)
    start, end = index_lookup.byte_range(path, size, first, limits.end_offset)
    yield from pieces_of(segment, start, end, split_bytes, seen)


def pieces_of(
    segment: Segment, start: int, end: int, split_bytes: int, seen: CommittedOffsets | None
) -> Iterator[SegmentRange]:
    """The bytes ``start`` to ``end`` of a segment whose size is known, in pieces of about ``split_bytes``."""
    path, size = segment.file.path, segment.size
    if start >= end or size is None:
        return
    near = seen.within(segment.base_offset or 0, segment.end_offset) if seen else None
    starts = index_lookup.boundaries(path, start, end, size, split_bytes) if end - start >= 2 * split_bytes else [start]
    for begin, behind in pairwise([*starts, end]):
        yield SegmentRange(segment.file, size, begin, None if behind == size else behind, near)


def pack_splits(units: Iterable[Sequence[SegmentRange]], split_bytes: int) -> Iterator[Split]:
    """Neighbours together as long as they are about one split; one whose size isn't known may be as large as any.

    What is in a unit stays together.
    """
    held: list[SegmentRange] = []
    cost = 0
    for unit in units:
        size = sum(split_bytes if piece.size is None else piece.bytes for piece in unit)
        if held and cost + size + FILE_COST > split_bytes * 3 // 2:
            yield Split(tuple(held))
            held, cost = [], 0
        held += unit
        cost += size + FILE_COST * len(unit)
    if held:
        yield Split(tuple(held))
