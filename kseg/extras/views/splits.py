"""The tasks of a read: ranges of segments, packed into splits of similar size and kept in little memory."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from kseg.extras.views.zone_maps import ZoneMap
from kseg.format.segment.row_filter import BatchTransactions
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Stamp

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
class PlannedSegment:
    """A segment of a folder. ``size`` is in bytes, None if only reading shows it. ``stamp`` is that of a local file.

    Its offsets are below ``end_offset``, the base offset of the next segment; None for the last one. ``zones`` is None
    without a zone map.
    """

    file: SegmentFile
    size: int | None
    end_offset: int | None
    stamp: Stamp = None
    zones: ZoneMap | None = None

    @property
    def base_offset(self) -> int | None:
        return base_offset_of(self.file.path)


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The batches of a file that begin in bytes ``start`` to ``end`` (None: the end of the file).

    ``stable_offset`` is the last stable offset of the log, None for the log end or if the query doesn't need it.
    ``committed`` has the transactions of a log whose segments are in several folders. ``stamp`` is that of a local file in
    which the bytes were looked up; ``offsets``, for a stream, are those of the batches: the first one, and the end.
    """

    file: SegmentFile
    size: int | None
    start: int = 0
    end: int | None = None
    committed: BatchTransactions | None = None
    stable_offset: int | None = None
    stamp: Stamp = None
    offsets: tuple[int, int] | None = None

    @property
    def bytes(self) -> int:
        """The number of bytes to read; 0 if it is unknown."""
        return (self.size if self.end is None else self.end) - self.start if self.size is not None else 0


_Part = TypeVar("_Part", PlannedSegment, SegmentRange)


class Packed(Generic[_Part]):
    """Planned segments or ranges, in 10 to 30 bytes for each: a plan can have millions, and a task has its own."""

    __slots__ = ("_kind", "_length", "_rows")

    def __init__(self, kind: type[_Part], parts: Iterable[_Part]) -> None:
        of_file, of_part = _values(SegmentFile), _values(kind, after="file")
        rows = [(of_file(part.file), of_part(part)) for part in parts]
        self._kind: type[_Part] = kind
        self._length = len(rows)
        self._rows = zlib.compress(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL), 1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[_Part]:
        for of_file, of_part in pickle.loads(zlib.decompress(self._rows)):
            yield self._kind(SegmentFile(*of_file), *of_part)


def _values(kind: type, after: str = "") -> attrgetter[tuple[Any, ...]]:
    """Return a function that returns the values of the fields of a dataclass, without the first field ``after``."""
    return attrgetter(*(field.name for field in fields(kind) if field.name != after))


class Split:
    """The ranges that one task reads."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Iterable[SegmentRange] = ()) -> None:
        self.pieces = Packed(SegmentRange, pieces)


def stored_bytes(sizes: Iterable[int | None]) -> int:
    """Return the cost of reading files of these sizes, in bytes."""
    return sum(FILE_COST + (SPLIT_BYTES if size is None else size) for size in sizes)


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
        size = sum(SPLIT_BYTES if piece.size is None else piece.bytes for piece in unit)
        if held and cost + size + FILE_COST > split_bytes * 3 // 2:
            yield Split(held)
            held, cost = [], 0
        held += unit
        cost += size + FILE_COST * len(unit)
    if held:
        yield Split(held)
