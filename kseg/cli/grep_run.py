"""A run of ``kseg grep``: the files one after the other, by one process or several, with messages about each.

Workers search small files and ranges of large ones, and return where the matches are; this process reads these batches again
to show them. So the output does not depend on the number of processes. At the first range of a file that has any finding,
this process searches the rest of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from kseg.cli.messages import note_after
from kseg.cli.outcome import DumpOutcome
from kseg.commands.dump.dump_items import Item, RecordsItem
from kseg.commands.dump.dumped_rows import byte_range, last_rows
from kseg.commands.dump.neighbours import first_found
from kseg.commands.grep.matches import RecordGrep
from kseg.commands.grep.text_patterns import MatchClock, limited
from kseg.errors import KsegError, UsageError
from kseg.extras.serialization import schema_set
from kseg.extras.views.grep_request import GrepRequest
from kseg.findings import Finding, Report, do_nothing
from kseg.format.segment import several_processes
from kseg.format.segment.several_processes import Job, Parts, parts_of_files, sampled_jobs
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Stamp, check_same, local_size, stamp_of
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.format.storage.process_pool import Pool


def count_of_item(item: Item) -> int:
    """Return the number of matching records of an item, without their neighbours."""
    return sum(i not in item.neighbours for i in item.kept) if isinstance(item, RecordsItem) else 0


# Matches that are closer than this number of bytes are read again at once.
_NEAR = 64 * 1024
# If this share of the bytes must be read again, this process alone takes as long. It is known after _MEASURED bytes.
_MOST_AGAIN, _MEASURED = 0.5, 8 * 1024 * 1024


class _Range(NamedTuple):
    """Bytes ``start`` to ``end`` of a file with this stamp; ``stop`` is where the last range of the file ends."""

    request: GrepRequest
    file: SegmentFile
    start: int
    end: int
    stop: int
    stamp: Stamp


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


class _FindingError(Exception):
    """A range has a finding: its place among other findings is known when one process reads the file."""


def search_range(part: _Range) -> FoundInRange:
    """Search a range, in a worker. Raises UsageError."""
    clock = MatchClock()
    search = part.request.search_in(part.file, clock)
    places: list[tuple[int, int]] = []
    count = 0

    def report(_: Finding) -> None:
        raise _FindingError

    try:
        items_of_range = part.request.range_items(part.file, part.start, part.end, search, report)
        with limited(clock), items_of_range as (reader, items):
            for item in items:
                if not isinstance(item, RecordsItem):
                    continue
                count += len(item.kept)
                position, size = item.chunk.batches.position[item.row], item.chunk.batches.size[item.row]
                if places and position - places[-1][1] <= _NEAR:
                    places[-1] = places[-1][0], position + size
                else:
                    places.append((position, position + size))
            joined = not reader.damaged and reader.position == part.end
    except UsageError:
        raise
    except (KsegError, _FindingError):
        joined = False
    return FoundInRange(joined, count, tuple(places), search.unread, search.first_unread)


@dataclass
class GrepRun:
    """The search of a request in ``by_file``. ``most`` is the largest number of matches per file, None for all of them.

    ``matches`` is the number of records that match so far, ``files`` that of the files that they are in.
    """

    request: GrepRequest
    outcome: DumpOutcome
    clock: MatchClock
    most: int | None
    by_file: Iterable[tuple[SegmentFile, Parts[_Range, FoundInRange]]] = ()
    matches: int = 0
    files: int = 0
    searched: int = 0  # bytes
    again: int = 0

    def items(self) -> Iterator[Item]:
        """Yield the items of the records that match, and of their neighbours."""
        for _, found in self._found_by_file(counting=False):
            before = self.matches
            items = cast("Iterator[Item]", found)  # numbers are only counted
            for item in first_found(items, self.most, self.request.dump.after):
                self.outcome.rows |= isinstance(item, RecordsItem)
                self.matches += count_of_item(item)
                yield item
            self.files += self.matches > before

    def counts(self) -> Iterator[tuple[str, int]]:
        for file, items in self._found_by_file(counting=True):
            total = 0
            for found in items:
                total += found if isinstance(found, int) else count_of_item(found)
                if self.most is not None and total >= self.most:
                    total = self.most
                    break
            self.matches += total
            self.files += total > 0
            if total:
                self.outcome.rows = True
                yield file.path, total

    def _found_by_file(self, *, counting: bool) -> Iterator[tuple[SegmentFile, Iterator[Item | int]]]:
        for file, parts in self.by_file:
            search, report = self.request.search_in(file, self.clock), self.outcome.begin(file)
            found = self._search(file, parts, search, report, counting=counting)
            yield file, self.outcome.attempt(found, file)
            _note_unread(file, search)

    def last_items(self, files: Sequence[SegmentFile], most: int) -> Iterator[Item]:
        """Yield the items of the last ``most`` matches of each partition. This process alone reads the files."""

        def counted(file: SegmentFile, start: int, end: int | None) -> Iterator[Item]:
            return self._part(file, start, end, self.request.search_in(file, self.clock), do_nothing)

        for last in last_rows(files, most, self.request.dump.keep, counted):
            search, report = self.request.search_in(last.file, self.clock), self.outcome.begin(last.file)
            found = self._part(last.file, last.start, last.end, search, report)
            for item in self.outcome.attempt(last.of(found), last.file):
                self.outcome.rows |= isinstance(item, RecordsItem)
                yield item
            _note_unread(last.file, search)

    def plan(self, file: SegmentFile, size: int | None, pool: Pool) -> Iterator[_Range]:
        """Yield the ranges of a file for the workers: none if this process searches alone."""
        if not size or self._rereads:
            return
        stamp, request = stamp_of(file.path), replace(self.request, own=None)
        first, stop, starts = 0, size, [0]
        if not self.request.has_neighbours:  # the records before and after a match can be in other ranges
            try:
                first, stop = byte_range(file.path, size, self.request.dump.keep)
                starts = several_processes.range_starts(file.path, size, pool.jobs)
            except KsegError:
                first, stop, starts = 0, size, [0]  # the reader reports it
        for start, end in pairwise([first, *(start for start in starts if first < start < stop), stop]):
            yield _Range(request, file, start, end, stop, stamp)

    @property
    def _rereads(self) -> bool:
        """Whether this process alone takes as long, since it reads most bytes again."""
        return self.searched > _MEASURED and self.again > _MOST_AGAIN * self.searched

    def _search(
        self,
        file: SegmentFile,
        parts: Parts[_Range, FoundInRange],
        search: RecordGrep,
        report: Report,
        *,
        counting: bool,
    ) -> Iterator[Item | int]:
        """Yield the items of a file, or with ``counting`` the numbers of matching records of the ranges of workers."""
        if self._rereads:
            parts.close()
        shown = self.request.search_in(file, self.clock)  # its counts would repeat those of the workers
        rest: tuple[int, int] | None = (0, 0)
        for part, found in parts:
            assert part
            check_same(file.path, part.stamp)
            rest = part.start, part.stop
            if not found.joined or (self.request.has_neighbours and found.count):
                break
            search.add_unread(found.unread, found.first_unread)
            if counting:
                yield found.count
            else:
                self.searched += part.end - part.start
                self.again += sum(end - start for start, end in found.places)
                for start, end in found.places:
                    yield from self._part(file, start, end, shown, report)
            rest = None if part.end == part.stop else (part.end, part.stop)
            if self._rereads:
                break
        parts.close()
        if rest == (0, 0) or (rest and self.request.has_neighbours):
            yield from self.request.items(file, search, report)
        elif rest:
            yield from self._part(file, *rest, search, report)

    def _part(
        self, file: SegmentFile, start: int, end: int | None, search: RecordGrep, report: Report
    ) -> Iterator[Item]:
        if end is None:
            yield from self.request.items(file, search, report)
            return
        with self.request.range_items(file, start, end, search, report) as (_, items):
            yield from items


@contextmanager
def grep_run(
    files: Sequence[SegmentFile], request: GrepRequest, outcome: DumpOutcome, most: int | None, jobs: int
) -> Iterator[GrepRun]:
    """Yield a run for files, by at most ``jobs`` processes."""
    clock = MatchClock()
    request = request.asking(outcome.undecoded)
    run = GrepRun(request, outcome, clock, most)
    sizes = [local_size(file.path) or 0 for file in files]
    best = _best_jobs(files, sizes, request, jobs)
    with limited(clock), parts_of_files(files, sizes, best, Job(run.plan, search_range)) as run.by_file:
        yield run


def _best_jobs(files: Sequence[SegmentFile], sizes: Sequence[int], request: GrepRequest, jobs: int) -> int:
    """Return how many processes, at most ``jobs``, end the search first.

    Only one asks a registry or a user's function, or says which schemas are lost.
    """
    decoding = request.decoding
    if decoding and (
        decoding.registry or decoding.function or (request.own and schema_set.why_lost(request.own.schemas))
    ):
        return 1
    if sum(sizes) < 2 * several_processes.RANGE_SIZE or (request.has_neighbours and len(files) == 1):
        return 1
    return sampled_jobs(files, sizes, jobs, lambda file, end: search_range(_Range(request, file, 0, end, end, None)))


def _note_unread(file: SegmentFile, search: RecordGrep) -> None:
    if search.unread:
        note_after(
            f"{file.path}: --json-path cannot read the JSON of {count_of(search.unread, 'record')}, the first at offset "
            f"{search.first_unread}: it is nested too deeply, or a number has more than "
            f"{sys.get_int_max_str_digits():,} digits"
        )
