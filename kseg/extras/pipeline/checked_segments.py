"""Check segments in one pass: the findings of ``validate``, the offsets, and the transactions that begin and end in them.

The results are kept in the inventory, one row per version of a segment, so that an unchanged segment is read once.
"""

from __future__ import annotations

import io
import json
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, NamedTuple

import kseg
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError, UsageError
from kseg.extras.pipeline.pipeline_state import INVENTORY, PipelineState, new_file, read_if_exists
from kseg.extras.views.planned_transactions import EventCollector, ProducerEvent
from kseg.findings import SERVED, do_nothing
from kseg.format.checks.batch_checks import EPOCH_RULES
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import read_header
from kseg.format.record.layout import CONTROL, DELETE_HORIZON, INT64_MAX, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kseg.format.record.offset_evidence import is_wrapper, span_of
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import read_range
from kseg.format.storage import remote_files
from kseg.format.storage.process_pool import Pool, map_ordered
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import local_size, stamp_text
from kseg.report.arrow_table import ParquetWriter, pa, parquet, pc
from kseg.results import Settings

#: Seconds between two saves of the inventory during the checks.
_SAVE_SECONDS = 20
_TRIES = 3
#: Errors that cost no row: the records of such a batch are loaded, and none is set aside. ``kseg validate`` lists them.
_LOADED = SERVED | {*EPOCH_RULES, "max-timestamp-mismatch"}
#: Findings of one rule and segment that are kept.
_PER_RULE = 1000
#: Holes of one segment that are kept apart. Later ones become one with the last, so the list never lacks a hole.
MOST_HOLES = 10_000
#: Rows of the inventory that are Python objects at once.
_CHUNK = 10_000


class LastBatch(NamedTuple):
    """A batch of a segment, which these fields identify. ``leader_epoch`` is -1 for none."""

    position: int
    size: int
    magic: int
    last_offset: int
    crc: int
    leader_epoch: int

    @classmethod
    def of_row(cls, batches: BatchColumns, row: int) -> LastBatch:
        """Return a batch of columns."""
        return cls(*(getattr(batches, name)[row] for name in _LAST_BATCH))

    def is_in(self, path: str) -> bool:
        """Return whether a file has the batch. Its stored size and magic can be damaged, where the CRC proved others."""
        try:
            data = read_range(path, self.position, self.position + min(self.size, RECORD_BATCH_OVERHEAD))
        except (KsegError, OSError):
            return False
        size = local_size(path)  # None if it is not known, as of a compressed file
        if len(data) < min(self.size, RECORD_BATCH_OVERHEAD) or (size is not None and size < self.position + self.size):
            return False
        found = BatchColumns(1)
        read_header(data, 0, self.size - LOG_OVERHEAD, self.magic, found, 0)
        found.position[0] = self.position
        return self.of_row(found, 0) == self


_LAST_BATCH = ("position", "size", "magic", "last_offset", "crc", "partition_leader_epoch")


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The result of the check of a segment, as it was listed.

    ``next_offset`` follows the last valid batch (the base offset without one), which ends at byte ``valid_end``. ``damage``
    has the errors that cost rows. ``unread``: why it could not be read; it is then neither sound nor damaged. ``events``
    are those of its producers (see ``EventCollector``). ``excluded`` are byte ranges of batches without a proven offset.
    ``holes`` are ranges (first, end) of offsets, ascending, that the damage before a valid batch can have had.
    ``thinned``: only a log cleaner leaves such batches. ``gaps``: how often offsets are missing where no damage explains it.
    ``last_batch`` is the last valid batch, None without one.
    """

    file: SegmentFile
    next_offset: int
    valid_end: int
    bytes: int
    batches: int
    records: int
    lost_bytes: int
    damage: Sequence[Mapping[str, Any]] = ()
    unread: str | None = None
    events: Sequence[ProducerEvent] = ()
    excluded: Sequence[tuple[int, int]] = ()
    thinned: bool = False
    holes: Sequence[tuple[int, int]] = ()
    gaps: int = 0
    last_batch: LastBatch | None = None

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def stamp(self) -> str:
        return stamp_text(self.file.stamp) or ""

    @property
    def base_offset(self) -> int:
        return self.file.base_offset

    @property
    def is_sound(self) -> bool:
        """Whether all of its batches can be read."""
        return not self.damage and self.unread is None

    def holes_from(self, offset: int) -> Sequence[tuple[int, int]]:
        """Return the holes that end after an offset."""
        return self.holes[bisect_right(self.holes, offset, key=itemgetter(1)) :]

    def next_known(self, offset: int) -> int:
        """Return the first offset from ``offset`` on that the segment can have; INT64_MAX if it ends before."""
        offset = max(offset, self.base_offset)
        for first, end in self.holes_from(offset)[:1]:
            offset = end if first <= offset else offset
        return offset if offset < self.next_offset and self.unread is None else INT64_MAX

    def known_until(self, offset: int) -> int:
        """Return the end of the offsets from ``offset`` on that the segment has without a hole."""
        return min((first for first, _ in self.holes_from(offset)[:1]), default=self.next_offset)

    @property
    def has_lost_end(self) -> bool:
        """Whether bytes after the last valid batch are damaged."""
        return not self.is_sound and self.valid_end < self.file.bytes

    def claimed_end(self) -> int | None:
        """Return the offset after the lost bytes at the end of the segment, by the headers in them.

        None if they do not show it. Bytes after the batch of a torn header can have been others.
        """
        position, end = self.valid_end, self.next_offset
        whole = (
            one for one in self.damage if one.get("rule") != "truncated-tail" and one.get("last_offset") is not None
        )
        for found in sorted(whole, key=lambda one: one.get("position") or 0):
            if found.get("position") == position and found.get("end"):
                position, end = found["end"], found["last_offset"] + 1
        return end if position == self.file.bytes else None


class _Watch:
    """Collects the facts of a segment's valid batches, chunk by chunk."""

    def __init__(self, name: str, base_offset: int) -> None:
        self._name, self._base_offset = name, base_offset
        self._restart()

    def _restart(self) -> None:
        self.next_offset = self._base_offset
        self.valid_end = 0
        self.last_batch: LastBatch | None = None
        self._last = 0  # the row of the last valid batch of a chunk
        self.thinned = False
        self.gaps = 0
        self.events = EventCollector()
        self.excluded: list[tuple[int, int]] = []
        self.holes: list[tuple[int, int]] = []
        self._claims = ClaimedOffsets(self._name, do_nothing)
        self._claimed: set[int] = set()

    def __call__(self, chunk: Chunk) -> None:
        if self.valid_end and not chunk.resumed and chunk.batches.position[chunk.first] == 0:
            self._restart()  # the file has changed meanwhile, and is read again
        if not chunk.first and not chunk.resumed:
            self._claimed = set(self._claims.update(chunk.batches))
        before = self.valid_end
        for row in range(chunk.first, chunk.stop):
            if chunk.batches.selected[row] and chunk.batches.crc_state[row] != CRC_BAD:
                self._update(chunk.batches, row)
        if self.valid_end > before:
            self.last_batch = LastBatch.of_row(chunk.batches, self._last)
        self.events.add_chunk(chunk, chunk.batches.selected, self._claimed)

    def _update(self, batches: BatchColumns, row: int) -> None:
        position, end = batches.position[row], batches.position[row] + batches.size[row]
        if position in self._claimed:
            if (position, end) not in self.excluded:
                self.excluded.append((position, end))
            return
        first, last = _first_offset(batches, row), batches.last_offset[row]
        if position > self.valid_end and first > self.next_offset:
            self.events.add_loss(self.next_offset, first)
            self._add_hole(self.next_offset, first)
        if batches.magic[row] >= 2:
            self.gaps += first > self.next_offset and position == self.valid_end
            fewer = batches.record_count[row] < last - first + 1 and not batches.attributes[row] & CONTROL
            self.thinned |= bool(fewer or batches.attributes[row] & DELETE_HORIZON)
        self.next_offset = max(self.next_offset, last + 1)
        if end > self.valid_end:
            self.valid_end, self._last = end, row

    def _add_hole(self, first: int, end: int) -> None:
        if len(self.holes) == MOST_HOLES:
            first, _ = self.holes.pop()
        self.holes.append((first, end))


def _first_offset(batches: BatchColumns, row: int) -> int:
    """Return the first offset that a batch has for sure. The header of a v0 or v1 wrapper lacks it, its messages have it.

    If they cannot be read, the offset of the wrapper is uncertain: this is the offset after its last one.
    """
    if not is_wrapper(batches, row):
        return batches.base_offset[row]
    span = span_of(batches, row, opened=True)
    return batches.last_offset[row] - span if span >= 0 else batches.last_offset[row] + 1


def _version(listed: SegmentFile) -> tuple[str, str]:
    """Return path and stamp of a segment, as the inventory has them."""
    return listed.path, stamp_text(listed.stamp) or ""


def check_segment(listed: SegmentFile) -> CheckedSegment:
    """Check one segment. A read error is tried again, and is then ``unread``; it is never damage."""
    file = replace(listed, indexes=None)
    for _ in range(_TRIES):
        if file.stored:
            remote_files.remember(file.path, file.stored)
        watch = _Watch(listed.path, listed.base_offset)
        result = validate_segment(file, Settings(max_per_rule=_PER_RULE), watch=watch)
        if not result.read_error:
            break
    errors = (verdict.as_row() for verdict in result.verdicts if verdict.is_error)
    damage = [row for row in errors if row["rule"] not in _LOADED]
    if result.foreign and listed.bytes and not damage:
        damage.append({"rule": "no-batch", "message": result.unread})
    wanted = ("rule", "code", "position", "end", "offset", "last_offset", "message", "facts")
    return CheckedSegment(
        listed,
        watch.next_offset,
        watch.valid_end,
        result.summary.bytes,
        result.summary.batches,
        result.summary.records,
        result.summary.lost_bytes,
        [] if result.read_error else [{name: row.get(name) for name in wanted} for row in damage],
        result.read_error,
        watch.events.events(),
        watch.excluded,
        watch.thinned,
        watch.holes if damage and not result.read_error else [],
        watch.gaps,
        watch.last_batch,
    )


def unread_segment(listed: SegmentFile) -> CheckedSegment:
    """Return the result for a segment that could not be listed."""
    return CheckedSegment(listed, listed.base_offset, 0, 0, 0, 0, 0, unread=listed.unread)


class Inventory:
    """The checked versions of segments, by path and stamp. Those of earlier runs stay in Arrow: a million take 0.3 GB."""

    def __init__(self, state: PipelineState) -> None:
        self._state = state
        self._table = _read(state)
        #: The row of each version, by the hash of its path and its stamp.
        self._index = {hash(key): row for row, key in enumerate(_keys(self._table))}
        self._rows: dict[tuple[str, str], CheckedSegment] = {}  # those of this run
        self._saved = time.monotonic()
        self._changed = False

    def is_known(self, listed: SegmentFile) -> bool:
        return _version(listed) in self._rows or self._row_of(listed) is not None

    def _row_of(self, listed: SegmentFile) -> int | None:
        row = self._index.get(hash(_version(listed)))
        if row is None:
            return None
        found = (self._table.column("path")[row].as_py(), self._table.column("stamp")[row].as_py())
        return row if found == _version(listed) else None

    def known(self, listed: Iterable[SegmentFile]) -> dict[str, CheckedSegment]:
        """Return the results of segments by path, of those whose version was checked."""
        found, stored = {}, []
        for one in listed:
            if (checked := self._rows.get(_version(one))) is not None:
                found[one.path] = checked
            elif (row := self._row_of(one)) is not None:
                stored.append((row, one))
        for first in range(0, len(stored), _CHUNK):
            rows, files = zip(*stored[first : first + _CHUNK], strict=True)
            taken = self._table.take(rows).to_pylist()
            found |= {file.path: _of_row(file, row, self._state) for file, row in zip(files, taken, strict=True)}
        return found

    def check(self, listed: Sequence[SegmentFile], pool: Pool | None) -> dict[str, CheckedSegment]:
        """Return the results of segments by path. Those of unknown versions are checked."""
        found = self.known(listed) | {one.path: unread_segment(one) for one in listed if one.unread}
        unknown = [one for one in listed if one.path not in found]
        for checked in map_ordered(pool, check_segment, unknown):
            found[checked.path] = checked
            if checked.unread is None:
                self._add(checked)
        self.save()
        return found

    def _add(self, checked: CheckedSegment) -> None:
        self._rows[checked.path, checked.stamp] = checked
        self._changed = True
        if time.monotonic() - self._saved > _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the inventory atomically. Of each path it has the newest version."""
        if not self._changed:
            return
        newest = {path: one for (path, _), one in self._rows.items()}
        rows = [{name: getattr(one, name) for name in self._table.schema.names[:-1]} for one in newest.values()]
        for row in rows:
            row |= {name: json.dumps(row[name], separators=(",", ":")) for name in _LISTS} | {"kseg": kseg.__version__}
        other = pc.invert(pc.is_in(self._table.column("path"), pa.array(list(newest), pa.string())))
        with (
            new_file(self._state.path(INVENTORY)) as out,
            ParquetWriter(out, self._table.schema) as writer,
        ):
            writer.write_table(self._table.filter(other))
            writer.write_table(pa.Table.from_pylist(rows, self._table.schema))
        self._saved, self._changed = time.monotonic(), False


#: The columns of the inventory with lists, as JSON.
_LISTS = ("damage", "events", "excluded", "holes", "last_batch")


def _schema() -> Any:
    kinds = {"int": pa.int64(), "bool": pa.bool_(), "str": pa.string(), "str | None": pa.string()}
    columns = [(one.name, kinds.get(str(one.type), pa.string())) for one in fields(CheckedSegment)[1:]]
    of_file = [("path", pa.string()), ("stamp", pa.string()), ("base_offset", pa.int64())]
    return pa.schema([*of_file, *columns, ("kseg", pa.string())])


def _read(state: PipelineState) -> Any:
    """Return the stored rows of this version of kseg as an Arrow table. Raises UsageError if the file is damaged."""
    data = read_if_exists(state.path(INVENTORY))
    if data is None:
        return _schema().empty_table()
    try:
        table = parquet.read_table(io.BytesIO(data), use_threads=False)
        if "kseg" in table.column_names and not {*_schema().names} <= {*table.column_names}:
            return _schema().empty_table()  # of an older kseg
        table = table.select(_schema().names).cast(_schema())
    except (pa.ArrowInvalid, KeyError, ValueError, OSError):
        raise _damaged(state) from None
    own = pc.equal(table.column("kseg"), kseg.__version__)
    return table if pc.all(own).as_py() in (True, None) else table.filter(own)  # each copy takes 0.2 GB


def _keys(table: Any) -> Iterator[tuple[str, str]]:
    for batch in table.select(["path", "stamp"]).to_batches(max_chunksize=_CHUNK):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _of_row(listed: SegmentFile, row: dict[str, Any], state: PipelineState) -> CheckedSegment:
    try:
        values = {name: json.loads(row[name]) for name in _LISTS}
    except (ValueError, TypeError):
        raise _damaged(state) from None
    values |= {name: [tuple(one) for one in values[name]] for name in ("events", "excluded", "holes")}
    values["last_batch"] = values["last_batch"] and LastBatch(*values["last_batch"])
    return CheckedSegment(listed, **{one.name: {**row, **values}[one.name] for one in fields(CheckedSegment)[1:]})


def _damaged(state: PipelineState) -> UsageError:
    return UsageError(f"{state.path(INVENTORY)} is damaged: delete it to check all segments again")
