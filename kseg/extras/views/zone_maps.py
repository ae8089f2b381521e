"""Zone maps: the offsets and times of each part of a segment, kept in the view ``segments``, and read by later plans.

An inventory is that view as Parquet. A plan that has one skips the zones without wanted records, also where a segment has
no indexes. A zone map applies to the version of a segment that it was made of: the one with the same stamp.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from kseg.errors import UsageError
from kseg.extras.views.planned_transactions import SegmentEvents
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import LOG_APPEND_TIME, NO_TIMESTAMP
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.row_filter import RowFilter
from kseg.format.storage import local_files
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import stamp_text
from kseg.report.arrow_table import pa, parquet, pc
from kseg.schema import Row

#: A zone begins with the first batch that is this number of bytes after the start of the zone before.
ZONE_BYTES = 64 * 1024 * 1024
#: The file in the folder of ``kseg validate --inventory``.
SEGMENTS = "segments.parquet"
_NUMBERS = ("zone_positions", "zone_offsets", "zone_min_timestamps", "zone_max_timestamps")
#: The events of transactions, as in ``SegmentEvents``.
EVENT_COLUMNS = ("event_producer_ids", "event_offsets", "event_kinds")


@dataclass(frozen=True, slots=True)
class Zone:
    """A part of a segment, from a byte to the next zone.

    Its offsets begin at ``offset`` or later. The timestamps of its records are not before ``min_timestamp``, and these and
    those in the headers of its batches not after ``max_timestamp``; both are in epoch milliseconds, and -1 without one.
    """

    position: int
    offset: int
    min_timestamp: int
    max_timestamp: int

    def can_hold(self, limits: RowFilter, following: Zone | None) -> bool:
        """Return whether the zone, which is before the zone ``following``, can have records within the limits."""
        return (
            limits.accepts_offsets(self.offset, following.offset if following else None)
            and (limits.since is None or self.max_timestamp >= limits.since)
            and (limits.until is None or self.min_timestamp < limits.until)
        )


ZoneMap = Sequence[Zone]


def byte_runs(zones: ZoneMap, limits: RowFilter, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bytes, half-open, of neighbouring zones that can have records within the limits."""
    begin: int | None = None
    for zone, following in zip_longest(zones, zones[1:]):
        if not zone.can_hold(limits, following):
            if begin is not None:
                yield begin, zone.position
            begin = None
        elif begin is None:
            begin = zone.position
    if begin is not None:
        yield begin, size


@dataclass(slots=True)
class ZoneCollector:
    """Collects the zone map of a segment, chunk by chunk.

    ``certain`` becomes False if some records cannot be read, or if offsets do not increase: then the segment gets no map.
    """

    zones: list[list[int]] = field(default_factory=list)
    certain: bool = True
    _next_offset: int = 0

    def __call__(self, chunk: Chunk) -> None:
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            if not batches.selected[row]:
                self.certain = False
                continue
            if not (chunk.resumed and row == chunk.first):
                self._begin_batch(batches, row)
            self._add_times(chunk, row)

    def _begin_batch(self, batches: BatchColumns, row: int) -> None:
        position, last = batches.position[row], batches.last_offset[row]
        wrapper = is_wrapper(batches, row)
        first = self._next_offset if wrapper else batches.base_offset[row]  # that of a wrapper is in its payload
        self.certain &= self._next_offset <= first <= last
        if not self.zones or position >= self.zones[-1][0] + ZONE_BYTES:
            self.zones.append([position, first, NO_TIMESTAMP, NO_TIMESTAMP])
        self._next_offset = last + 1

    def _add_times(self, chunk: Chunk, row: int) -> None:
        batches, zone = chunk.batches, self.zones[-1]
        newest = batches.max_timestamp[row]
        zone[3] = max(zone[3], newest, batches.largest_timestamp[row] if batches.record_total[row] else NO_TIMESTAMP)
        times = [newest]
        if not (batches.magic[row] and batches.attributes[row] & LOG_APPEND_TIME):
            first, count = batches.first_record[row], batches.record_total[row]
            times = memoryview(chunk.records.timestamp)[first : first + count].tolist()
            self.certain &= count > 0 or (batches.magic[row] >= 2 and not batches.record_count[row])
        oldest = min(times, default=NO_TIMESTAMP)
        if oldest == NO_TIMESTAMP:  # of some records, or of all
            oldest = min((time for time in times if time != NO_TIMESTAMP), default=NO_TIMESTAMP)
        if oldest != NO_TIMESTAMP:
            zone[2] = oldest if zone[2] == NO_TIMESTAMP else min(zone[2], oldest)

    def columns(self) -> Row:
        """Return the map as columns of the view ``segments``, null without one."""
        if not self.certain:
            return dict.fromkeys(_NUMBERS)
        return {name: [zone[at] for zone in self.zones] for at, name in enumerate(_NUMBERS)}


class ZoneMaps:
    """The zone maps of an inventory, and with ``events`` the events of transactions.

    Raises UnreadableError, and UsageError for other files, when it is made.
    """

    def __init__(self, path: str, *, events: bool = False) -> None:
        lists = (*_NUMBERS, *EVENT_COLUMNS) if events else _NUMBERS
        types = {"file": pa.string(), "stamp": pa.string(), "last_offset": pa.int64()}
        types |= dict.fromkeys(lists, pa.list_(pa.int64()))
        self._table = pa.concat_tables([_table(file, types) for file in _files(path)])
        self._keys = _keys(self._table.column("file"), self._table.column("stamp")).combine_chunks()

    def of(self, files: Sequence[SegmentFile]) -> dict[str, ZoneMap]:
        """Return the zone maps of files by path, of those whose version with its stamp has one."""
        return {
            path: tuple(Zone(*values) for values in zip(*numbers, strict=True))
            for path, numbers in self._rows(files, _NUMBERS)
            if _are_complete(numbers)
        }

    def events_of(self, files: Sequence[SegmentFile]) -> dict[str, SegmentEvents]:
        return {
            path: SegmentEvents(list(zip(*numbers, strict=True)), None if last is None else last + 1)
            for path, (last, *numbers) in self._rows(files, ("last_offset", *EVENT_COLUMNS))
            if _are_complete(numbers)
        }

    def _rows(self, files: Sequence[SegmentFile], names: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
        paths = pa.array([one.path for one in files], pa.string())
        keys = _keys(paths, pa.array([stamp_text(one.stamp) for one in files], pa.string()))
        rows = pc.index_in(keys, value_set=self._keys, skip_nulls=True)
        found = {one.path: row for one, row in zip(files, rows.to_pylist(), strict=True) if row is not None}
        taken = self._table.select(names).take(pa.array(found.values(), pa.int64()))
        for path, *values in zip(found, *(column.to_pylist() for column in taken.columns), strict=True):
            yield path, values


def _are_complete(lists: Sequence[list[int] | None]) -> bool:
    """Return whether lists of numbers are there, without nulls, and of one length."""
    lengths = {len(one) if one is not None and None not in one else -1 for one in lists}
    return len(lengths) == 1 and -1 not in lengths


def _keys(paths: Any, stamps: Any) -> Any:
    """Return a key of each version of a segment, null without a stamp, for Arrow arrays of paths and stamps.

    It is the same for each way to write the path of its folder. A million keys are not objects of Python.
    """
    return pc.binary_join_element_wise(pc.replace_substring_regex(paths, r"^.*/([^/]*/[^/]*)$", r"\1"), stamps, "/")


def _files(path: str) -> list[str]:
    """Return the Parquet files at a path: a file, or a folder of ``kseg validate --inventory`` or of Spark."""
    if not local_files.is_folder(path):
        return [path]
    found = sorted(name for name in local_files.names_in(path) if name.endswith(".parquet") and name[0] not in "._")
    if not found:
        raise UsageError(f"{path}: no inventory: expected {SEGMENTS} of kseg validate --inventory")
    return [f"{path.rstrip('/')}/{name}" for name in ([SEGMENTS] if SEGMENTS in found else found)]


def _table(path: str, types: Mapping[str, Any]) -> Any:
    try:
        data = io.BytesIO(local_files.read_file(path))
        return (
            parquet.read_table(data, columns=list(types), use_threads=False).select(list(types)).cast(pa.schema(types))
        )
    except (pa.ArrowException, KeyError) as error:
        raise UsageError(f"{path}: no inventory: expected the view segments as Parquet") from error
