"""One engine for work on files by several processes: whole files, and ranges of whole batches of large files.

All commands with ``--jobs`` work alike, and their results do not depend on the number of processes:

1. One process begins, and others start if that ends the work earlier. The time per byte differs by a factor of 100 between
   codecs, kinds of records and machines, so it is measured: in the first files (``Job.alone``), or in a sample
   (``sampled_jobs``) if results are shown while they are made.
2. ``Job.plan`` divides each file into parts: a small file is one part, a large one has ranges of whole batches
   (``range_starts``). Workers call ``Job.work`` for the parts.
3. The command reads the results in the order of the files, and joins each to the one before it. At the first one that does
   not join, such as that of a range with damage, it gives up: it closes the iterator of the file's parts, which cancels
   the others, and this process does the rest of the file.
4. If the block of ``parts_of_files`` ends with an exception, such as Ctrl-C, the workers are killed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

from kseg.engine import lazy
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.record import framing
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.segment import batch_evidence
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.segment_reader import MAX_ENTRY_SIZE
from kseg.format.storage import process_pool
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import is_snapshot
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_range

if TYPE_CHECKING:
    from concurrent import futures
    from concurrent.futures import Future

    from kseg.format.segment.records_chunk import Chunk
    from kseg.format.storage.process_pool import Pool
else:
    futures = lazy("concurrent.futures")

_File = TypeVar("_File")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

#: False starts the processes at once. Tests and benchmarks set it.
BEGIN_ALONE = True
# The costs of other processes, as shares of the processor time in which Python and kseg started: both import modules.
_COST_OF_POOL = 0.8
_COST_OF_PROCESS = 0.03
# Seconds of the start that are assumed at least and at most. Windows' clock has steps of 0.016 s, and a program that uses
# kseg as a library did other work before.
_SHORTEST_START, _LONGEST_START = 0.016, 0.2
# The time per byte is measured in intervals of at least this many seconds.
_INTERVAL = 0.004
# The fastest of this number of intervals counts. The first ones contain imports and the first use of memory, others the
# reading of a window of which few batches are decoded yet.
_INTERVALS = 3
# The bytes of the first sample.
_SAMPLE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Job(Generic[_File, _Part, _Result]):
    """The work of a command on a file.

    ``plan`` divides a file of a size in bytes into parts for the workers of a pool, each when a worker will soon need it.
    ``work`` is called in workers: part and result are pickled. ``alone`` does a whole file in this process and reports to
    the meter; without it other processes start at once. A file with at least ``least`` bytes can be divided, none if it
    is None. ``ahead`` replaces that of the pool.
    """

    plan: Callable[[_File, int | None, Pool], Iterable[_Part]]
    work: Callable[[_Part], _Result]
    alone: Callable[[_File, Meter], _Result] | None = None
    least: int | None = None
    ahead: int | None = None


#: The parts of a file with their results. The part of ``Job.alone`` is None. No part: this process must do the file.
Parts = Generator[tuple[_Part | None, _Result]]


@contextmanager
def parts_of_files(
    files: Sequence[_File],
    sizes: Sequence[int | None],
    jobs: int,
    job: Job[_File, _Part, _Result],
    progress: Progress = do_nothing,
    pool: Pool | None = None,
) -> Iterator[Iterator[tuple[_File, Parts[_Part, _Result]]]]:
    """Yield an iterator over the files with the results of their parts, made by ``pool`` or at most ``jobs`` processes.

    ``sizes`` are those of the files in bytes, None for an unknown one. ``progress`` is that of ``process_pool``.
    """
    meter = Meter(sizes, jobs, job.least, progress)

    def by_file() -> Iterator[tuple[_File, Parts[_Part, _Result]]]:
        done, used = 0, pool
        while not used and done < len(files):
            alone: list[tuple[_Part | None, _Result]] = []
            try:
                meter.begin(done, measuring=job.alone is not None)
                if job.alone:
                    alone.append((None, job.alone(files[done], meter)))
            except _EnoughMeasured as measured:
                progress(-meter.read)
                used = stack.enter_context(process_pool.process_pool(measured.jobs, progress))
            else:
                yield files[done], (each for each in alone)
                done += 1
        if used:
            used.ahead = job.ahead or used.ahead
            submitted = _Submitted(used, zip(files[done:], sizes[done:], strict=True), job)
            stack.callback(submitted.give_up, len(files))
            for number, file in enumerate(files[done:]):
                yield file, submitted.parts_of(number)
                submitted.give_up(number)

    with ExitStack() as stack:
        yield by_file()


class _Submitted(Generic[_File, _Part, _Result]):
    """The parts of files in a pool, at most one more than ``pool.ahead``. Ask for the parts of the files in their order."""

    def __init__(self, pool: Pool, files: Iterable[tuple[_File, int | None]], job: Job[_File, _Part, _Result]) -> None:
        self._pool = pool
        self._job = job
        self._ended = -1
        self._planned = self._plan(files)
        self._waiting: deque[tuple[int, _Part, Future[_Result]]] = deque()

    def parts_of(self, number: int) -> Parts[_Part, _Result]:
        """Yield the parts of a file with their results. Closing the generator cancels the other parts of the file."""
        while self._waiting and self._waiting[0][0] < number:
            future = self._waiting.popleft()[2]
            if not future.cancelled():
                futures.wait((future,))  # it may write where another part will write
        try:
            self._submit()
            while self._waiting and self._waiting[0][0] == number:
                _, part, future = self._waiting[0]
                yield part, self._pool.result(future)
                self._waiting.popleft()
                self._submit()
        finally:
            self.give_up(number)

    def give_up(self, number: int) -> None:
        """Cancel what no worker has begun of a file and of those before it."""
        self._ended = max(self._ended, number)
        for of_file, _, future in self._waiting:
            if of_file <= number:
                future.cancel()

    def _submit(self) -> None:
        while len(self._waiting) <= self._pool.ahead and (planned := next(self._planned, None)):
            self._waiting.append((*planned, self._pool.submit(self._job.work, planned[1])))

    def _plan(self, files: Iterable[tuple[_File, int | None]]) -> Iterator[tuple[int, _Part]]:
        for number, (file, size) in enumerate(files):
            for part in self._job.plan(file, size, self._pool):
                if number <= self._ended:
                    break
                yield number, part


class _EnoughMeasured(Exception):
    """``jobs`` processes end the work earlier. They read the current file again."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.jobs = jobs


class Meter:
    """Measures the time per byte of this process. Its methods end the current file if other processes save time.

    It is processor time: more processes do not shorten the time in which a disk or ``--max-rate`` lets them wait.
    """

    def __init__(self, sizes: Sequence[int | None], jobs: int, least: int | None, progress: Progress) -> None:
        self.jobs = 1 if None in sizes else jobs
        self._progress = progress
        known = [size or 0 for size in sizes]
        parts = known if least is None else [min(size, least) for size in known]
        self._largest = list(accumulate(reversed(parts), max))[::-1]
        self._left = list(accumulate(reversed(known)))[::-1]
        self._start = start_seconds()
        self._seconds, self._bytes = 0.0, 0  # of the current interval
        self._per_byte: deque[float] = deque(maxlen=_INTERVALS)

    def begin(self, number: int, *, measuring: bool) -> None:
        """Begin a file."""
        self._number, self.read, self._at = number, 0, 0
        self._since = time.process_time()
        if self.jobs > 1 and not (measuring and BEGIN_ALONE):
            raise _EnoughMeasured(self.jobs)

    def progress(self, count: int) -> None:
        """Report that ``count`` more bytes of the file are done."""
        self.read += count
        self._progress(count)
        self._update(self.read)

    def watch(self, chunk: Chunk) -> None:
        """Report that the batches of the chunk are done: windows of compressed batches take long."""
        self._update(chunk.batches.position[chunk.stop - 1])

    def _update(self, position: int) -> None:
        now = time.process_time()
        self._seconds += now - self._since
        self._bytes += position - self._at
        self._since, self._at = now, position
        if self._seconds < _INTERVAL or self._bytes <= 0:
            return
        self._per_byte.append(self._seconds / self._bytes)
        self._seconds, self._bytes = 0.0, 0
        if len(self._per_byte) == _INTERVALS:
            per_byte, left = min(self._per_byte), self._left[self._number]
            largest = self._largest[self._number] * per_byte
            jobs = best_jobs((left - position) * per_byte, left * per_byte, largest, self.jobs, self._start)
            if jobs > 1:
                raise _EnoughMeasured(jobs)


def sampled_jobs(
    files: Sequence[SegmentFile],
    sizes: Sequence[int],
    jobs: int,
    sample: Callable[[SegmentFile, int], object],
    size: int = _SAMPLE,
    overhead: float = 1.0,
) -> int:
    """Return how many processes end the work on files first: 1 if this process alone does.

    ``sample`` does the work on a file up to a byte. It is measured with the largest file, up to about byte ``size`` and four
    times that. ``overhead`` is the processor time of all workers as a multiple of that of one process. Raises the errors of
    ``sample``.
    """
    if jobs == 1 or not BEGIN_ALONE:
        return jobs
    start = start_seconds()
    number = max(range(len(files)), key=sizes.__getitem__)
    file, whole = files[number], sizes[number]
    times: list[tuple[int, float]] = []
    # The first time does not count: modules are imported, and memory is used for the first time.
    for count in (4 * size, size, 4 * size):
        end = min(whole, count)
        with suppress(KsegError):  # the reader reports it
            end = batch_near(file.path, end, whole) or end
        begin = time.thread_time()  # the clock of the process has steps of 4 ms while it has a timer
        sample(file, end)
        times.append((end, time.thread_time() - begin))
    (low, less), (high, more) = times[1:]
    # The start of a file takes time, too.
    per_byte = (more - less) / (high - low) if high > low else more / max(high, 1)
    alone = sum(sizes) * per_byte
    return best_jobs(alone, alone * overhead, 0, jobs, start)


def start_seconds() -> float:
    """Return the processor time in which Python and kseg started. Call it before other work."""
    return min(max(time.process_time(), _SHORTEST_START), _LONGEST_START)


def best_jobs(alone: float, work: float, largest: float, jobs: int, start: float) -> int:
    """Return how many processes, at most ``jobs``, end some work first: 1 if this process alone does.

    ``alone`` are the seconds that it takes, ``work`` those of all others together, ``largest`` those of the largest part
    that cannot be divided. ``start`` is the result of ``start_seconds``.
    """
    if alone <= 0 or work <= 0:
        return 1  # the newest segment of a log is often empty, and a log that is written to grows while it is read
    # n processes take n times the cost of one, and the work divided by n: the sum is the least at the square root.
    best = math.ceil(math.sqrt(work / (_COST_OF_PROCESS * start)))
    parts = math.ceil(work / largest) if largest else jobs
    several = min(jobs, parts, best)
    costs = start * (_COST_OF_POOL + several * _COST_OF_PROCESS)
    return several if costs + max(work / several, largest) < alone else 1


#: The smallest range in bytes. A range costs 0.4 ms: it is searched, and its result is joined to that of the one before.
RANGE_SIZE = 8 * 1024 * 1024
#: The largest range: progress is reported by range.
LARGEST_RANGE = 128 * 1024 * 1024
#: The first batch of a range is searched in this many bytes. It is accepted if it begins a chain of CHAIN valid batches.
SEARCH_REACH = 4 * 1024 * 1024
CHAIN = 3


def range_starts(path: str, size: int, jobs: int, after: int = 0) -> list[int]:
    """Return the positions at which to split a file for ``jobs`` processes: starts of batches, the first of them 0.

    ``after`` is the number of bytes in the files after this one. Each range is a part of all bytes after the previous one:
    large ranges and whole files are few, and small ones at the end let all processes end at about the same time. The result
    is [0] if the file is smaller than two ranges.
    """
    starts = [0]
    # The checks of a KRaft snapshot's end need its beginning.
    if jobs < 2 or is_snapshot(path):
        return starts
    at = 0
    try:
        while size - at >= 2 * (part := _part_of(size - at + after, jobs)):
            at += part
            with open_range(path, at, size) as source:
                at += source.skip_hole(at, None)
            start = batch_near(path, at, size)
            if start is not None and start > starts[-1]:
                starts.append(start)
    except KsegError:
        return [0]
    return starts


def _part_of(left: int, jobs: int) -> int:
    """Return the size of the next range of ``left`` bytes."""
    return max(RANGE_SIZE, min(left // (4 * jobs), LARGEST_RANGE))


def batch_near(path: str, position: int, size: int) -> int | None:
    """Return the first position from ``position`` on where a chain of batches begins, None if there is none nearby."""
    for reach in (SEARCH_REACH // 32, SEARCH_REACH):  # a short read suffices for small batches
        with open_range(path, position, min(size, position + reach)) as source:
            buffer = InputBuffer(source, reach, do_nothing)
            buffer.fill(reach)
            at = 0
            while at < buffer.available:
                at = framing.find_signature(buffer.data, at, buffer.end, MAX_ENTRY_SIZE)
                if at < buffer.end and _begins_chain(buffer, at):
                    return position + at
                at += 1
    return None


def _begins_chain(buffer: InputBuffer, at: int) -> bool:
    for _ in range(CHAIN):
        if buffer.end - at < RECORD_BATCH_OVERHEAD or not framing.plausible(
            buffer.data, at, buffer.end, MAX_ENTRY_SIZE
        ):
            return False
        size = LOG_OVERHEAD + framing.read_int32(buffer.data, at + SIZE_AT)
        if size > buffer.end - at or not batch_evidence.is_valid_batch(buffer, at, size, buffer.data[at + 16]):
            return False
        at += size
    return True
