"""The tasks of a read: ranges of segments, packed into splits of similar size and kept in little memory."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from kseg.format.segment.row_filter import BatchTransactions
from kseg.format.storage.segment_files import SegmentFile

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
