"""Plan a read: find the files and byte ranges that can contain requested rows, and pack them into tasks of similar size."""

from __future__ import annotations

import glob
import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

from kseg.commands.dump.dumped_rows import byte_range
from kseg.errors import ReportUnread, UnreadableError, UsageError, raise_unread
from kseg.extras.serialization import record_decoder, schema_sources
from kseg.extras.views.planned_transactions import PlannedTransactions, transactions_of_log
from kseg.extras.views.view_table import ALL, BATCHES, FILE, FOLDER, VIEWS
from kseg.extras.views.zone_maps import ZoneMap, ZoneMaps, byte_runs
from kseg.format.record.layout import INT64_MAX, READ_COMMITTED, READ_UNCOMMITTED
from kseg.format.segment.framed_files import framed_files
from kseg.format.segment.row_filter import BatchTransactions, RowFilter
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.last_stable_offset import open_at, stable_offset
from kseg.format.storage import local_files, remote_files
from kseg.format.storage.naming import base_offset_of, is_snapshot, is_url
from kseg.format.storage.segment_files import (
    SegmentFile,
    by_folder,
    find_in_use,
    find_segments,
    in_order,
    is_folder,
    measured,
    once_each,
    segments_in,
)
from kseg.format.storage.source import STDIN, open_source, stored_size, topic_partition
from kseg.schema import Column

#: The cost of opening a file, in bytes of reading: without it, a split of tiny files would have thousands of files.
FILE_COST = 256 * 1024
#: The largest and the smallest size of a split in bytes. Lost tasks of this size are repeated soon. Smaller ones cost more:
#: a task takes 10 to 60 ms (81 MB of LZ4 in splits of 8, 16 and 64 MiB: 1.3, 1.0 and 0.9 s of processor time). Between the
#: limits a read has about SPLITS splits, so that a few slots end at about the same time.
SPLIT_BYTES = 64 * 1024 * 1024
LEAST_SPLIT_BYTES = 16 * 1024 * 1024
#: Spark's driver holds all tasks of a job. Splits are at least half as large as wanted: there are at most 20,000.
MOST_SPLITS = 10_000
SPLITS = 16


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The batches of a file that begin in bytes ``start`` to ``end`` (None: the end of the file).

    ``stable_offset`` is the last stable offset of the log, None for the log end or if the query doesn't need it.
    ``committed`` has the transactions of a log whose segments are in several folders. ``offsets``, for a stream, are those
    of the batches: the first one, and the end. The bytes were looked up in the version of the file with its stamp.
    """

    file: SegmentFile
    start: int = 0
    end: int | None = None
    committed: BatchTransactions | None = None
    stable_offset: int | None = None
    offsets: tuple[int, int] | None = None

    @property
    def bytes(self) -> int:
        """The number of bytes to read; 0 if it is unknown."""
        return (self.file.bytes if self.end is None else self.end) - self.start if self.file.size is not None else 0


_of_file = attrgetter(*(field.name for field in fields(SegmentFile)))
_of_range: attrgetter[tuple[Any, ...]] = attrgetter(*(field.name for field in fields(SegmentRange)[1:]))


class Split:
    """The ranges that one task reads, or those of a folder, in 10 to 30 bytes for each: a plan can have millions."""

    __slots__ = ("_length", "_rows")

    def __init__(self, pieces: Iterable[SegmentRange] = ()) -> None:
        rows = [(_of_file(piece.file), _of_range(piece)) for piece in pieces]
        self._length = len(rows)
        self._rows = zlib.compress(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL), 1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[SegmentRange]:
        for of_file, of_range in pickle.loads(zlib.decompress(self._rows)):
            yield SegmentRange(SegmentFile(*of_file), *of_range)


def stored_bytes(files: Iterable[SegmentFile]) -> int:
    """Return the cost of reading files, in bytes."""
    return sum(FILE_COST + (SPLIT_BYTES if file.size is None else file.size) for file in files)


def split_size(stored: int, wanted: int | None = None) -> int:
    """Return the size in bytes of the splits for this cost. ``wanted`` is the size that was asked for."""
    return max(wanted or min(max(stored // SPLITS, LEAST_SPLIT_BYTES), SPLIT_BYTES), stored // MOST_SPLITS)


def pack_splits(units: Iterable[Sequence[SegmentRange]], split_bytes: int) -> Iterator[Split]:
    """Pack neighbouring units into splits of about one size. A unit of unknown size counts as SPLIT_BYTES.

    The pieces of a unit stay together.
    """
    held: list[SegmentRange] = []
    cost = 0
    for unit in units:
        size = sum(SPLIT_BYTES if piece.file.size is None else piece.bytes for piece in unit)
        if held and cost + size + FILE_COST > split_bytes * 3 // 2:
            yield Split(held)
            held, cost = [], 0
        held += unit
        cost += size + FILE_COST * len(unit)
    if held:
        yield Split(held)


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. ``columns`` are the requested columns of the view in order.

    ``decode_as`` is the argument of ``internal_topic``; ``decoding`` has the deserializers of keys and values, for the
    columns of CONTENT_COLUMNS. ``decoder`` is theirs in this process; without it each split makes its own. ``mode`` is
    what damage becomes: a row (permissive), nothing (dropmalformed) or an error (failfast). ``control`` True is only
    control records, False none of them, None both. ``split_bytes`` None adapts to the input. ``inventory`` is the path of
    zone maps, which a view of BATCHES uses.
    """

    paths: tuple[str, ...]
    view: str = "records"
    columns: tuple[Column, ...] = ()
    decode_as: str | None = None
    decoding: record_decoder.DecodeSettings | None = None
    decoder: record_decoder.RecordDecoder | None = field(default=None, compare=False)
    framing: str | None = None
    requests: str | None = None
    mode: str = "permissive"
    isolation: str = READ_UNCOMMITTED
    limits: RowFilter = field(default_factory=RowFilter)
    control: bool | None = None
    verify_crc: bool = True
    split_bytes: int | None = None
    inventory: str | None = None


def check_paths(request: Request) -> None:
    """Raise UnreadableError or UsageError for the first path without a readable file, also among those of schemas."""
    _check_inventory(request)
    if request.inventory is not None:
        ZoneMaps(request.inventory, events=reads_committed(request))
    for given in request.decoding.schema_files if request.decoding else ():
        open_source(schema_sources.named_file(given)[1]).close()
    for path in request.decoding.schemas if request.decoding else ():
        open_source(next(find_segments(path)).path).close()
    find = VIEWS[request.view].find
    for path in request.paths:
        if path == STDIN and not is_folder(path):  # an archive is a folder
            raise UsageError("standard input can be read only once: give files, folders or URLs")
        if request.framing:
            for file in framed_files([path], [request.framing]):
                open_source(file.path, listed=True).close()
            continue
        if next(find(path)).path == path:
            with open_source(path, listed=True):
                pass
            if stored_size(path) == 0:
                with open_source(path) as source:
                    source.check_not_empty()


def _check_inventory(request: Request) -> None:
    if request.inventory is not None and VIEWS[request.view].unit != BATCHES:
        raise UsageError(f"inventory: view {request.view} reads whole files")


def matching(pattern: str) -> list[str]:
    """Return the files and folders that a pattern matches, or the path itself. Raises UnreadableError if there is none."""
    if not glob.has_magic(pattern) or os.path.lexists(pattern):
        return [pattern]
    found = remote_files.matches(pattern) if is_url(pattern) else sorted(glob.glob(pattern))
    if not found:
        raise UnreadableError(f"{pattern}: no file or folder matches")
    return found


def topics_in(paths: Iterable[str]) -> set[str]:
    """Return the topics of the segments in the paths. Raises UnreadableError."""
    names = (topic_partition(file.path)[0] for path in paths for file in find_in_use(path))
    return {name for name in names if name is not None}


def plan(request: Request, limits: RowFilter, unread: ReportUnread = raise_unread) -> list[Split]:
    """Return the splits of a read. Raises KsegError if a path can't be listed.

    The unit of the view decides which files one task reads. ``unread`` gets the error of a file that
    read_committed needs. If it returns, the rows are those before this file's.
    """
    _check_inventory(request)
    if request.framing:
        files = framed_files(request.paths, [request.framing])
        alone = ([SegmentRange(measured(replace(file, requests=request.requests)))] for file in files)
        return _units_packed(alone, request.split_bytes or LEAST_SPLIT_BYTES)
    view = VIEWS[request.view]
    if view.unit == ALL:
        found = once_each(chain.from_iterable(map(view.find, request.paths)))
        return [Split(SegmentRange(measured(file)) for file in found)]
    if view.unit == FOLDER:
        units = ([*map(SegmentRange, files)] for _, files in _accepted(request.paths, limits, view.find))
        return _units_packed(units, request.split_bytes or SPLIT_BYTES)
    logs, stored = _wanted_logs(request, limits)
    split_bytes = split_size(stored, request.split_bytes)
    pieces = chain.from_iterable(log.ranges(request, limits, split_bytes, unread) for log in logs)
    return list(pack_splits(([piece] for piece in pieces), split_bytes))


def _units_packed(units: Iterable[Sequence[SegmentRange]], wanted: int) -> list[Split]:
    """Return the splits of units that are read whole."""
    held, stored = [], 0
    for unit in units:
        held.append(Split(unit))
        stored += stored_bytes(piece.file for piece in unit)
    return list(pack_splits(map(list, held), split_size(stored, wanted)))


@dataclass(frozen=True, slots=True)
class _WantedLog:
    """The segments of a folder that can have requested rows. ``whole`` are all its segments, if their transactions matter.

    ``planned`` are the transactions of its segments, and ``zones`` their zone maps, as far as an inventory has them.
    """

    folder: str
    segments: Split
    whole: Split | None = None
    planned: Mapping[str, PlannedTransactions] = field(default_factory=dict)
    zones: Mapping[str, ZoneMap] = field(default_factory=dict)

    def ranges(
        self, request: Request, limits: RowFilter, split_bytes: int, unread: ReportUnread
    ) -> Iterator[SegmentRange]:
        """Yield the ranges to read, none larger than a split if its batches can be found by an index."""
        if VIEWS[request.view].unit == FILE:
            yield from self.segments
            return
        # A row of batches is selected by its header, which does not have the oldest timestamp of its records.
        of_zones = limits if request.view == "records" else replace(limits, end_offset=None, until=None)
        stable = None
        if self.whole is not None and not self.planned:
            try:
                stable = _stable_offset(limits, self.folder, [one.file for one in self.whole], unread)
            except UnreadableError as error:
                unread(error)
                stable = 0
        for segment in (one.file for one in self.segments):
            whole = SegmentRange(segment, committed=self.planned.get(segment.path), stable_offset=stable)
            if segment.size is None:
                yield whole
                continue
            zones = self.zones.get(segment.path)
            runs = [(0, segment.size)] if zones is None else [*byte_runs(zones, of_zones, segment.size)]
            if runs:  # else the indexes are not read
                start, end = byte_range(segment.path, segment.size, limits, sealed=segment.end_offset < INT64_MAX)
                for begin, stop in runs:
                    yield from pieces_of(whole, max(start, begin), min(end, stop), split_bytes)


def _wanted_logs(request: Request, limits: RowFilter) -> tuple[list[_WantedLog], int]:
    """Return the logs with requested rows, and what their segments cost to read (``stored_bytes``)."""
    found: Iterable[tuple[str, list[SegmentFile]]] = folders(request.paths, limits)
    committed = reads_committed(request)
    inventory, zones = None, dict[str, ZoneMap]()
    if request.inventory is not None and (limits.has_ranges or committed):
        inventory = ZoneMaps(request.inventory, events=committed)
        found = list(found)
        zones = inventory.of([one for _, folder in found for one in folder])
    logs, stored = [], 0
    for path, folder in found:
        whole = VIEWS[request.view].unit == FILE
        wanted = folder if whole else _with_rows(folder, limits, zones)
        planned = _planned(folder, inventory) if inventory and committed else {}
        log = Split(map(SegmentRange, folder)) if committed else None
        logs.append(_WantedLog(path, Split(map(SegmentRange, wanted)), log, planned, zones))
        stored += stored_bytes(wanted)
    return logs, stored


def _planned(segments: Sequence[SegmentFile], inventory: ZoneMaps) -> Mapping[str, PlannedTransactions]:
    """Return the transactions of each segment of a listed folder; none if only the log shows them for certain."""
    log = [one for one in segments if not is_snapshot(one.path)]
    if not all(one.listed and base_offset_of(one.path) is not None for one in log):
        return {}
    found = transactions_of_log([one.path for one in log], inventory.events_of(log))
    if found is None:
        return {}
    near = found.of_segments([one.base_offset for one in log])
    return {one.path: part for one, part in zip(log, near, strict=True)}


def _stable_offset(limits: RowFilter, folder: str, segments: Sequence[SegmentFile], unread: ReportUnread) -> int | None:
    """Return the last stable offset of a folder's whole log, also if only some of its segments are read.

    Raises UsageError for a read_committed query of segments by name, if a transaction began before them: records from its
    start on are in earlier segments, and a read of these did not return them, because the transaction was open.
    """
    given = [segment.path for segment in segments]
    if all(segment.listed for segment in segments):
        return stable_offset(given, unread)
    log = [file.path for file in segments_in(folder, local_files.names_in(folder))]
    by_name = {os.path.basename(path): path for path in (*log, *given) if not is_snapshot(path)}
    names, named = sorted(by_name), {os.path.basename(path) for path in given}
    for at, name in enumerate(names):
        first = base_offset_of(name) or 0
        alone = name in named and (not at or names[at - 1] not in named)
        if alone and (limits.first_offset or 0) < first:
            begun = min(open_at(by_name[name], [by_name[other] for other in names[:at]]).values(), default=first)
            if begun < first:
                raise UsageError(
                    f"{by_name[name]}: a transaction is open where this segment begins: read_committed needs the records "
                    f"from offset {begun} on: load the folder with option offsets={begun}:"
                )
    return stable_offset([by_name[name] for name in names], unread)


def reads_committed(request: Request) -> bool:
    """Return whether the query returns only records of committed transactions."""
    return request.isolation == READ_COMMITTED and request.view == "records"


def folders(paths: Sequence[str], limits: RowFilter) -> Iterator[tuple[str, list[SegmentFile]]]:
    return ((folder, in_order(files)) for folder, files in _accepted(paths, limits, find_in_use))


def _accepted(
    paths: Sequence[str], limits: RowFilter, find: Callable[[str], Iterator[SegmentFile]]
) -> Iterator[tuple[str, list[SegmentFile]]]:
    """Yield the files of each folder of a requested partition. A file that several paths contain is returned once."""
    for folder, files in by_folder(paths, find):
        found = list(files)
        if limits.accepts_file(*topic_partition(found[0].path)):
            yield folder, [*map(measured, found)]


def _with_rows(folder: Sequence[SegmentFile], limits: RowFilter, zones: Mapping[str, ZoneMap]) -> list[SegmentFile]:
    """Return the files that can contain rows within the limits, by file names and the time indexes of sealed segments.

    Time indexes are used from the first segment on that begins with a v2 batch. Where a zone map shows the times, the time
    index is not read.
    """
    found, modern = [], False
    for one in folder:
        if not limits.accepts_offsets(base_offset_of(one.path), one.end_offset):
            continue
        if limits.since is not None and one.end_offset < INT64_MAX and one.path not in zones:
            newest = index_reader.newest_timestamp(one.path)
            if newest is not None and newest < limits.since and (modern or index_reader.begins_with_v2(one.path)):
                modern = True
                continue
        found.append(one)
    return found


def pieces_of(whole: SegmentRange, start: int, end: int, split_bytes: int) -> Iterator[SegmentRange]:
    """Return bytes ``start`` to ``end`` of a segment of known size, in pieces of about ``split_bytes``."""
    path, size = whole.file.path, whole.file.bytes
    if start >= end:
        return
    starts = index_reader.boundaries(path, start, end, size, split_bytes) if end - start >= 2 * split_bytes else [start]
    for begin, following in pairwise([*starts, end]):
        yield replace(whole, start=begin, end=None if following == size else following)
