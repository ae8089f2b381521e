"""A run of ``kseg grep``: the files one after the other, by one process or several, with messages about each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kseg.cli import grep_jobs
from kseg.cli.dump_outcome import DumpOutcome
from kseg.cli.grep_request import GrepRequest, count_of_item
from kseg.cli.messages import note
from kseg.commands.dump.neighbours import first_found
from kseg.commands.dump.rows import RecordsItem
from kseg.commands.grep.search import RecordGrep
from kseg.commands.grep.time_limit import MatchClock, limited
from kseg.format.segment import several_processes, split_points
from kseg.format.storage import process_pool
from kseg.format.storage.source import SegmentFile, local_size
from kseg.text import count_of

if TYPE_CHECKING:
    from kseg.cli.grep_jobs import ParallelSearch


@dataclass(frozen=True, slots=True)
class GrepRun:
    """The search of a request. ``most`` is the largest number of matches per file, None for all of them."""

    request: GrepRequest
    outcome: DumpOutcome
    clock: MatchClock
    most: int | None
    parallel: ParallelSearch | None = None

    def items(self, files: Sequence[SegmentFile]) -> Iterator[Any]:
        """Yield the items of the records that match, and of their neighbours."""
        source = self.parallel or self.request
        for file in files:
            search = self._begin(file)
            items = self.outcome.attempt(source.items(file, search, self.outcome), listed=file.listed)
            for item in first_found(items, self.most, self.request.after):
                self.outcome.rows |= isinstance(item, RecordsItem)
                yield item
            _note_unread(file, search)

    def counts(self, files: Sequence[SegmentFile]) -> Iterator[tuple[str, int]]:
        """Yield each file with matches, and their number."""
        for file in files:
            search = self._begin(file)
            total = 0
            for count in self.outcome.attempt(self._counts(file, search), listed=file.listed):
                total += count
                if self.most is not None and total >= self.most:
                    total = self.most
                    break
            _note_unread(file, search)
            if total:
                self.outcome.rows = True
                yield file.path, total

    def _counts(self, file: SegmentFile, search: RecordGrep) -> Iterator[int]:
        if self.parallel:
            return self.parallel.counts(file, search, self.outcome)
        return map(count_of_item, self.request.items(file, search, self.outcome))

    def _begin(self, file: SegmentFile) -> RecordGrep:
        self.outcome.begin(file)
        return self.request.search_in(file, self.clock)


@contextmanager
def grep_run(
    files: Sequence[SegmentFile], request: GrepRequest, outcome: DumpOutcome, most: int | None, jobs: int
) -> Iterator[GrepRun]:
    """Yield a run for files, by at most ``jobs`` processes."""
    clock = MatchClock()
    best = _best_jobs(files, request, jobs)
    with limited(clock):
        if best == 1:
            yield GrepRun(request, outcome, clock, most)
            return
        with process_pool.process_pool(best) as pool:
            searcher = grep_jobs.ParallelSearch(pool, request, files)
            yield GrepRun(request, outcome, clock, most, searcher)
            searcher.cancel()


def _best_jobs(files: Sequence[SegmentFile], request: GrepRequest, jobs: int) -> int:
    """Return how many processes, at most ``jobs``, end the search first. Only one asks a registry or a program."""
    decoding = request.decoding
    if jobs == 1 or (decoding and (decoding.registry or decoding.function or decoding.command)):
        return 1
    sizes = [local_size(file.path) or 0 for file in files]
    if sum(sizes) < 2 * split_points.RANGE_SIZE or (request.has_neighbours and len(files) == 1):
        return 1
    if not several_processes.BEGIN_ALONE:
        return jobs
    start = several_processes.start_seconds()
    largest = max(range(len(files)), key=sizes.__getitem__)
    work = sum(sizes) * grep_jobs.seconds_per_byte(request, files[largest])
    return several_processes.best_jobs(work, work, 0, jobs, start)


def _note_unread(file: SegmentFile, search: RecordGrep) -> None:
    if search.unread:
        note(
            f"{file.path}: --json-path cannot read the JSON of {count_of(search.unread, 'record')}, the first at offset "
            f"{search.first_unread}: it is nested too deeply, or a number has more than "
            f"{sys.get_int_max_str_digits():,} digits"
        )
