"""Plan a read: find the files and byte ranges that can contain requested rows, and pack them into tasks of similar
size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise

from kseg.commands.dump.dumped_rows import byte_range
from kseg.errors import UsageError
from kseg.extras.serialization import record_decoder, schema_sources
from kseg.extras.views.planned_transactions import PlannedTransactions, transactions_of_log
from kseg.extras.views.splits import (
    LEAST_SPLIT_BYTES,
    SPLIT_BYTES,
    Packed,
    PlannedSegment,
    SegmentRange,
    Split,
    pack_splits,
    split_size,
    stored_bytes,
)
from kseg.extras.views.view_table import ALL, BATCHES, FILE, FOLDER, VIEWS
from kseg.extras.views.zone_maps import ZoneMaps, byte_runs
from kseg.format.record.layout import READ_COMMITTED, READ_UNCOMMITTED
from kseg.format.segment.framed_files import framed_files
from kseg.format.segment.row_filter import RowFilter
from kseg.format.sidefiles import index_reader
from kseg.format.sidefiles.last_stable_offset import open_at, stable_offset
from kseg.format.storage import local_files
from kseg.format.storage.naming import base_offset_of, end_offsets, is_snapshot, is_url
from kseg.format.storage.segment_files import (
    SegmentFile,
    by_folder,
    find_in_use,
    find_segments,
    is_folder,
    once_each,
    segments_in,
)
from kseg.format.storage.source import STDIN, Stamp, open_source, stamp_of, stored_size, topic_partition
from kseg.schema import Column


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


def topics_in(paths: Iterable[str]) -> set[str]:
    """Return the topics of the segments in the paths. Raises UnreadableError."""
    names = (topic_partition(file.path)[0] for path in paths for file in find_in_use(path))
    return {name for name in names if name is not None}


def plan(request: Request, limits: RowFilter) -> list[Split]:
    """Return the splits of a read. Raises KsegError if a path can't be listed.

    The unit of the view decides which files one task reads.
    """
    _check_inventory(request)
    if request.framing:
        files = framed_files(request.paths, [request.framing])
        alone = ([SegmentRange(replace(file, requests=request.requests), stored_size(file.path))] for file in files)
        return _units_packed(alone, request.split_bytes or LEAST_SPLIT_BYTES)
    view = VIEWS[request.view]
    if view.unit == ALL:
        found = once_each(chain.from_iterable(map(view.find, request.paths)))
        return [Split(SegmentRange(file, stored_size(file.path)) for file in found)]
    if view.unit == FOLDER:
        return _units_packed(_folder_units(request.paths, limits, view.find), request.split_bytes or SPLIT_BYTES)
    logs, stored = _wanted_logs(request, limits)
    split_bytes = split_size(stored, request.split_bytes)
    pieces = chain.from_iterable(log.ranges(request, limits, split_bytes) for log in logs)
    return list(pack_splits(([piece] for piece in pieces), split_bytes))


def _units_packed(units: Iterable[Sequence[SegmentRange]], wanted: int) -> list[Split]:
    """Return the splits of units that are read whole."""
    held, stored = [], 0
    for unit in units:
        held.append(Packed(SegmentRange, unit))
        stored += stored_bytes(piece.size for piece in unit)
    return list(pack_splits(map(list, held), split_size(stored, wanted)))


@dataclass(frozen=True, slots=True)
class _WantedLog:
    """The segments of a folder that can have requested rows. ``whole`` are all its segments, if their transactions matter.

    ``planned`` are the transactions of its segments, as far as an inventory has them.
    """

    folder: str
    segments: Packed[PlannedSegment]
    whole: Packed[PlannedSegment] | None = None
    planned: Mapping[str, PlannedTransactions] = field(default_factory=dict)

    def ranges(self, request: Request, limits: RowFilter, split_bytes: int) -> Iterator[SegmentRange]:
        """Yield the ranges to read, none larger than a split if its batches can be found by an index."""
        if VIEWS[request.view].unit == FILE:
            for segment in self.segments:
                yield SegmentRange(segment.file, segment.size)
            return
        # A row of batches is selected by its header, which does not have the oldest timestamp of its records.
        of_zones = limits if request.view == "records" else replace(limits, end_offset=None, until=None)
        stable = None
        if self.whole is not None and not self.planned:
            stable = _stable_offset(limits, self.folder, list(self.whole))
        for segment in self.segments:
            committed = self.planned.get(segment.file.path)
            for piece in _pieces(segment, limits, of_zones, split_bytes, stable):
                yield replace(piece, committed=committed) if committed else piece


def _wanted_logs(request: Request, limits: RowFilter) -> tuple[list[_WantedLog], int]:
    """Return the logs with requested rows, and what their segments cost to read (``stored_bytes``)."""
    found = folders(request.paths, limits)
    committed = reads_committed(request)
    inventory = None
    if request.inventory is not None and (limits.has_ranges or committed):
        inventory = ZoneMaps(request.inventory, events=committed)
        found = _with_zones(dict(found), inventory)
    logs, stored = [], 0
    for path, folder in found:
        whole = VIEWS[request.view].unit == FILE
        wanted = folder if whole else [segment for segment in folder if _can_hold(segment, limits)]
        planned = _planned(folder, inventory) if inventory and committed else {}
        log = Packed(PlannedSegment, folder) if committed else None
        logs.append(_WantedLog(path, Packed(PlannedSegment, wanted), log, planned))
        stored += stored_bytes(segment.size for segment in wanted)
    return logs, stored


def _planned(segments: Sequence[PlannedSegment], inventory: ZoneMaps) -> Mapping[str, PlannedTransactions]:
    """Return the transactions of each segment of a listed folder; none if only the log shows them for certain."""
    log = [one for one in segments if not is_snapshot(one.file.path)]
    if not all(one.file.listed and one.base_offset is not None for one in log):
        return {}
    known = inventory.events_of(_stamps(log))
    found = transactions_of_log([one.file.path for one in log], known)
    if found is None:
        return {}
    near = found.of_segments([one.base_offset or 0 for one in log])
    return {one.file.path: part for one, part in zip(log, near, strict=True)}


def _stamps(segments: Iterable[PlannedSegment]) -> dict[str, Stamp]:
    return {one.file.path: one.stamp or stamp_of(one.file.path) for one in segments}


def _stable_offset(limits: RowFilter, folder: str, segments: Sequence[PlannedSegment]) -> int | None:
    """Return the last stable offset of a folder's whole log, also if only some of its segments are read.

    Raises UsageError for a read_committed query of segments by name, if a transaction began before them: records from its
    start on are in earlier segments, and a read of these did not return them, because the transaction was open.
    """
    given = [segment.file.path for segment in segments]
    if all(segment.file.listed for segment in segments):
        return stable_offset(given)
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
    return stable_offset([by_name[name] for name in names])


def _folder_units(
    paths: Sequence[str], limits: RowFilter, find: Callable[[str], Iterator[SegmentFile]]
) -> Iterator[list[SegmentRange]]:
    """Yield the files of each folder. A file given as a path is alone."""
    seen: set[str] = set()
    for path in paths:
        accepted = (file for file in find(path) if limits.accepts_file(*topic_partition(file.path)))
        for _, files in groupby(accepted, key=lambda file: os.path.dirname(file.path)):
            new = [file for file in files if file.path not in seen]
            if len(paths) > 1:
                seen.update(file.path for file in new)
            if new:
                yield [SegmentRange(file, stored_size(file.path)) for file in new]


def reads_committed(request: Request) -> bool:
    """Return whether the query returns only records of committed transactions."""
    return request.isolation == READ_COMMITTED and request.view == "records"


def folders(paths: Sequence[str], limits: RowFilter) -> Iterator[tuple[str, list[PlannedSegment]]]:
    """Yield the requested segments by folder, in order. A segment that several paths contain is returned once."""
    for folder, found in by_folder(paths, find_in_use):
        files = list(found)
        if limits.accepts_file(*topic_partition(files[0].path)):
            yield folder, list(_segments(files))


def _segments(files: list[SegmentFile]) -> Iterator[PlannedSegment]:
    # KRaft snapshots come last: they are not part of the log.
    ordered = sorted(files, key=lambda file: (is_snapshot(file.path), base_offset_of(file.path) or 0))
    for file, end in zip(ordered, end_offsets([file.path for file in ordered]), strict=True):
        size = file.stored.size if file.stored else stored_size(file.path)
        stamp = None if size is None or is_url(file.path) else stamp_of(file.path)
        yield PlannedSegment(file, stamp[0] if stamp else size, end, stamp)


def _with_zones(
    logs: Mapping[str, list[PlannedSegment]], inventory: ZoneMaps
) -> Iterator[tuple[str, list[PlannedSegment]]]:
    """Yield the folders, their segments with their zone maps."""
    maps = inventory.of(_stamps(chain.from_iterable(logs.values())))
    for path, folder in logs.items():
        yield path, [replace(segment, zones=maps.get(segment.file.path)) for segment in folder]


def _can_hold(segment: PlannedSegment, limits: RowFilter) -> bool:
    """Return whether a file can contain rows within the limits, by file names and the time index of a sealed segment."""
    if not limits.accepts_offsets(segment.base_offset, segment.end_offset):
        return False
    if limits.since is None or segment.end_offset is None or segment.zones is not None:
        return True
    newest = index_reader.newest_timestamp(segment.file.path)
    return newest is None or newest >= limits.since


def _pieces(
    segment: PlannedSegment, limits: RowFilter, of_zones: RowFilter, split_bytes: int, stable: int | None
) -> Iterator[SegmentRange]:
    """Yield the pieces of a segment. ``of_zones`` are the limits that zone maps are compared with."""
    path, size = segment.file.path, segment.size
    if size is None:
        yield SegmentRange(segment.file, None, stable_offset=stable)
        return
    runs = [(0, size)] if segment.zones is None else [*byte_runs(segment.zones, of_zones, size)]
    if runs:  # else the indexes are not read
        start, end = byte_range(path, size, limits, sealed=segment.end_offset is not None)
        for begin, stop in runs:
            yield from pieces_of(segment, max(start, begin), min(end, stop), split_bytes, stable)


def pieces_of(
    segment: PlannedSegment, start: int, end: int, split_bytes: int, stable: int | None
) -> Iterator[SegmentRange]:
    """Return bytes ``start`` to ``end`` of a segment of known size, in pieces of about ``split_bytes``."""
    path, size = segment.file.path, segment.size
    if start >= end or size is None:
        return
    starts = index_reader.boundaries(path, start, end, size, split_bytes) if end - start >= 2 * split_bytes else [start]
    for begin, following in pairwise([*starts, end]):
        stop = None if following == size else following
        yield SegmentRange(segment.file, size, begin, stop, stable_offset=stable, stamp=segment.stamp)
