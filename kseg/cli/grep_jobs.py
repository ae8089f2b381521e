"""Search with several processes: small files, and ranges of whole batches of large files.

Workers return where the matches are, and this process reads these batches again to show them. So the output does not
depend on the number of processes. At the first range of a file that has any finding, this process searches the rest of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kseg.cli.grep_request import GrepRequest, count_of_item
from kseg.commands.dump.rows import Item, RecordsItem, byte_range
from kseg.commands.grep.search import RecordGrep
from kseg.commands.grep.time_limit import MatchClock, limited
from kseg.errors import KsegError, UsageError
from kseg.findings import Finding, Report
from kseg.format.segment import split_points
from kseg.format.storage import process_pool
from kseg.format.storage.source import SegmentFile, local_size

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kseg.format.storage.process_pool import Pool

# Matches that are closer than this number of bytes are read again at once.
_NEAR = 64 * 1024
# If this share of the bytes must be read again, this process alone takes as long. It is known after _MEASURED bytes.
_MOST_AGAIN, _MEASURED = 0.5, 8 * 1024 * 1024
# The bytes whose search takes long enough to be measured.
_SAMPLE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundInRange:
    """The matches of a worker in a range: the number of records, and the bytes of their batches, as half-open ranges.

    ``joined`` is False for a range that this process must search, ``unread`` is that of RecordGrep.
    """

    joined: bool
    count: int = 0
    places: tuple[tuple[int, int], ...] = ()
    unread: int = 0
    first_unread: int | None = None


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes ``start`` to ``end`` of a file; ``stop`` is where the last range of the file ends."""

    file: SegmentFile
    start: int
    end: int
    stop: int


class _FindingError(Exception):
    """A range has a finding: its place among other findings is known when one process reads the file."""


def search_range(request: GrepRequest, file: SegmentFile, start: int, end: int) -> FoundInRange:
    """Search bytes ``start`` to ``end`` of a file, in a worker. Raises UsageError."""
    clock = MatchClock()
    search = request.search_in(file, clock)
    places: list[tuple[int, int]] = []
    count = 0

    def report(_: Finding) -> None:
        raise _FindingError

    try:
        with limited(clock), request.range_items(file, start, end, search, report) as (reader, items):
            for item in items:
                if not isinstance(item, RecordsItem):
                    continue
                count += len(item.kept)
                position, size = item.chunk.batches.position[item.row], item.chunk.batches.size[item.row]
                if places and position - places[-1][1] <= _NEAR:
                    places[-1] = places[-1][0], position + size
                else:
                    places.append((position, position + size))
            joined = not reader.damaged and reader.position == end
    except UsageError:
        raise
    except (KsegError, _FindingError):
        joined = False
    return FoundInRange(joined, count, tuple(places), search.unread, search.first_unread)


def seconds_per_byte(request: GrepRequest, file: SegmentFile) -> float:
    """Return the processor time of a search per byte, measured at the beginning of a file. Raises UsageError."""
    size = min(local_size(file.path) or 0, _SAMPLE)
    seconds = 0.0
    for _ in range(2):  # the first time, modules are imported and buffers allocated
        begin = time.process_time()
        search_range(request, file, 0, size)
        seconds = time.process_time() - begin
    return seconds / max(size, 1)


class ParallelSearch:
    """The search of ``request`` in files by the workers of a pool. Ask for the files in their order, each once."""

    def __init__(self, pool: Pool, request: GrepRequest, files: Sequence[SegmentFile]) -> None:
        self._pool = pool
        self._request = request
        self._searched = self._again = 0
        self._alone = False
        self._ended: SegmentFile | None = None
        self._futures: list[Future[FoundInRange]] = []
        sized = [(file, size) for file in files if (size := local_size(file.path))]
        self._files = {id(file) for file, _ in sized}
        self._submitted = process_pool.submit_ordered(pool, self._submit, self._ranges(sized))
        self._next = next(self._submitted, None)

    def items(self, file: SegmentFile, search: RecordGrep, report: Report) -> Iterator[Item]:
        """Yield the items of ``GrepRequest.items``. ``search`` is for one file, and counts what cannot be read."""
        if id(file) not in self._files or self._alone:
            yield from self._request.items(file, search, report)
            return
        shown = self._request.search_in(file, search.clock)  # its counts would repeat those of the workers
        for part, found in self._ranges_of(file):
            self._searched += part.end - part.start
            self._again += sum(end - start for start, end in found.places)
            if self._request.has_neighbours and (found.count or not found.joined):
                yield from self._request.items(file, search, report)
                break
            if not found.joined:
                yield from self._items_of_range(file, part.start, part.stop, search, report)
                break
            search.add_unread(found.unread, found.first_unread)
            for start, end in found.places:
                yield from self._items_of_range(file, start, end, shown, report)
            self._alone = self._searched > _MEASURED and self._again > _MOST_AGAIN * self._searched
            if self._alone:
                yield from self._items_of_range(file, part.end, part.stop, search, report)
                break
        self._ended = file

    def counts(self, file: SegmentFile, search: RecordGrep, report: Report) -> Iterator[int]:
        """Yield the numbers of matching records in the parts of a file."""
        if id(file) not in self._files:
            yield from map(count_of_item, self._request.items(file, search, report))
            return
        for part, found in self._ranges_of(file):
            if not found.joined:
                yield from map(count_of_item, self._items_of_range(file, part.start, part.stop, search, report))
                break
            search.add_unread(found.unread, found.first_unread)
            yield found.count
        self._ended = file

    def cancel(self) -> None:
        """Cancel what no worker has begun."""
        for future in self._futures:
            future.cancel()

    def _ranges_of(self, file: SegmentFile) -> Iterator[tuple[_Range, FoundInRange]]:
        """Yield the ranges of a file with the matches in them. Ranges of files before it are no longer needed."""
        while self._next and self._next[0].file is not file:
            self._next[1].cancel()
            self._next = next(self._submitted, None)
        while self._next and self._next[0].file is file:
            part, future = self._next
            yield part, self._pool.result(future)
            self._next = next(self._submitted, None)

    def _items_of_range(
        self, file: SegmentFile, start: int, end: int, search: RecordGrep, report: Report
    ) -> Iterator[Item]:
        with self._request.range_items(file, start, end, search, report) as (_, items):
            yield from items

    def _submit(self, part: _Range) -> tuple[_Range, Future[FoundInRange]]:
        future = self._pool.submit(search_range, self._request, part.file, part.start, part.end)
        self._futures = [earlier for earlier in self._futures if not earlier.done()] + [future]
        return part, future

    def _ranges(self, files: Sequence[tuple[SegmentFile, int]]) -> Iterator[_Range]:
        """Yield the ranges of files until this process searches alone."""
        for file, size in files:
            starts, stop = self._starts(file, size)
            for start, end in pairwise([*starts, stop]):
                if self._alone:
                    return
                if self._ended is not file:
                    yield _Range(file, start, end, stop)

    def _starts(self, file: SegmentFile, size: int) -> tuple[list[int], int]:
        """Return where the ranges of a file start, and where the last one ends."""
        if self._request.has_neighbours:
            return [0], size  # the records before and after a match can be in other ranges
        try:
            first, stop = byte_range(file.path, size, self._request.limits)
            starts = split_points.range_starts(file.path, size, self._pool.jobs)
        except KsegError:
            return [0], size  # the reader reports it
        return [first, *(start for start in starts if first < start < stop)], stop
