"""Deep dumps with several processes: small files, and ranges of whole batches of large files.

Each worker writes the lines of a range into memory that it shares with this process, which prints them in the order of the
files. A range can be printed if it lacks damage and findings that are reported, and if the states of the checks agree with
those of the range before. At the first range that can't, this process dumps the rest of the file. So output and findings are
the same for any number of processes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kseg.commands.dump.range_output import SETTINGS, Output, Range, Write, format_range, shared_output
from kseg.commands.dump.request import DumpRequest
from kseg.commands.dump.rows import byte_range
from kseg.errors import KsegError
from kseg.findings import Finding, is_noted
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.range_join import boundary_findings
from kseg.format.checks.run_checks import check_settings, policy_for
from kseg.format.segment import several_processes, split_points
from kseg.format.storage import process_pool
from kseg.format.storage.naming import is_snapshot
from kseg.format.storage.source import SegmentFile, local_size
from kseg.lazy import lazy

if TYPE_CHECKING:
    from concurrent import futures
    from concurrent.futures import Future

    from kseg.format.storage.process_pool import Pool
else:
    futures = lazy("concurrent.futures")

#: The bytes of output that a range should have. It waits in memory until the ranges before are printed.
WANTED_OUTPUT = 5 * 1024 * 1024
#: The most ranges whose output waits: the memory for it is limited.
MOST_WAITING = 64
#: The bytes of a range. The first ranges can decompress to many times their size.
FIRST_RANGE = 256 * 1024
SMALLEST_RANGE, LARGEST_RANGE = 64 * 1024, 8 * 1024 * 1024
# The processor time of workers, as a multiple of that of one process alone: the output of each range is copied twice.
_COPYING = 1.25


@dataclass(frozen=True, slots=True)
class DumpedPart:
    """The next part of a file: the output of a range, or, with ``lines`` None, the rest of the file from byte ``start``.

    ``lines`` are valid until the next part. ``findings`` and ``error`` are those of a whole file. ``rows`` is the number of
    rows, ``shown`` is whether there is anything but the file's start.
    """

    file: SegmentFile
    start: int
    lines: memoryview | None = None
    rows: int = 0
    shown: bool = False
    findings: Sequence[Finding] = ()
    error: KsegError | None = None


def can_share_memory() -> bool:
    """Return whether workers have the memory of this process at their start, as forked processes do."""
    return process_pool.context().get_start_method() == "fork"


def dump_parts(files: Sequence[SegmentFile], request: DumpRequest, write: Write, jobs: int) -> Generator[DumpedPart]:
    """Yield the parts of files in their order, made by at most ``jobs`` processes. Close the iterator to end the processes.

    ``write`` writes rows without anything before them, such as the names of columns. This process begins: others start once
    its speed shows that they save time. Raises KsegError if a process was killed, and the UsageError of a worker.
    """
    with shared_output(request, write, min(2 * jobs, MOST_WAITING) + 1) as slots:
        planner = _Planner(request, files, len(slots[0]) // 3)
        ranges = planner.ranges()
        for part in ranges:
            begin = time.process_time()
            output = None if part.alone else format_range(part, 0)
            planner.measure(part, time.process_time() - begin)
            yield planner.dumped(part, output, slots[0])
            if (best := planner.best_jobs(min(jobs, MOST_WAITING))) > 1:
                break
        else:
            return
        with process_pool.process_pool(best) as pool:
            yield from _in_pool(pool, planner, ranges, slots)


def _in_pool(
    pool: Pool, planner: _Planner, ranges: Iterator[Range], slots: Sequence[memoryview]
) -> Iterator[DumpedPart]:
    pool.ahead = len(slots) - 1
    free = deque(range(len(slots)))

    def submit(part: Range) -> tuple[Range, int, Future[Output] | None]:
        slot = free.popleft()
        return part, slot, None if part.alone else pool.submit(format_range, part, slot)

    for part, slot, future in process_pool.submit_ordered(pool, submit, ranges):
        if part.file is not planner.given_up:
            output = pool.result(future) if future else None
            yield planner.dumped(part, output, slots[slot])
        elif future and not future.cancel():
            futures.wait((future,))  # it writes into the slot
        free.append(slot)


class _Planner:
    """Divides files into ranges while they are dumped, and joins their output.

    ``wanted`` is the most output in bytes that a range should have: the output of others is larger than expected.
    ``given_up`` is the file whose rest one process dumps.
    """

    def __init__(self, request: DumpRequest, files: Sequence[SegmentFile], wanted: int) -> None:
        self._wanted = min(WANTED_OUTPUT, wanted)
        self.given_up: SegmentFile | None = None
        self._request = request
        self._files = files
        self._range_size: float = FIRST_RANGE
        self._before: CheckState | None = None
        # The bytes that are not dumped yet, and the time of those that this process dumped, without the first ones.
        self._left = sum(local_size(file.path) or 0 for file in files)
        self._start = several_processes.start_seconds()
        self._measured = -1.0
        self._bytes = 0

    def ranges(self) -> Iterator[Range]:
        """Yield the ranges of all files. Their sizes follow from the output of earlier ones."""
        for file in self._files:
            size = local_size(file.path)
            if size is None:
                yield Range(file, alone=True)
                continue
            start, end = self._wanted_bytes(file.path, size)
            # The checks of a KRaft snapshot's end need its beginning.
            if end - start < 2 * self._range_size or is_snapshot(file.path):
                yield Range(file)
            else:
                yield from self._of_file(file, start, end)

    def measure(self, part: Range, seconds: float) -> None:
        """Record the time in which this process dumped a range. The first one imports modules."""
        size = (local_size(part.file.path) or 0) if part.end is None else part.end - part.start
        self._left -= size
        if self._measured < 0:
            self._measured = 0.0
        elif not part.alone:
            self._measured += seconds
            self._bytes += size

    def best_jobs(self, most: int) -> int:
        """Return how many processes, at most ``most``, end the dump first: 1 if this process alone does."""
        if not several_processes.BEGIN_ALONE:
            return most
        if self._measured < 2 * several_processes.INTERVAL or not self._bytes:
            return 1
        alone = self._left * self._measured / self._bytes
        return several_processes.best_jobs(alone, _COPYING * alone, 0, most, self._start)

    def dumped(self, part: Range, output: Output | None, memory: memoryview) -> DumpedPart:
        """Return the next part: the output of a range if it follows that of the one before, else the rest of the file."""
        if part.file is not self.given_up and output and self._follows(part, output):
            self._before = output.history
            lines = memory[: output.size]
            return DumpedPart(part.file, part.start, lines, output.rows, output.shown, output.findings, output.error)
        self.given_up = part.file
        return DumpedPart(part.file, 0 if part.first else part.start)

    def _follows(self, part: Range, output: Output) -> bool:
        if output.size < 0:
            return False
        if part.end is None:
            return True
        if output.size:
            fitting = (part.end - part.start) * self._wanted / output.size
            self._range_size = min(max(fitting, SMALLEST_RANGE), LARGEST_RANGE)
        if part.first:
            return True
        assert self._before
        assert output.history
        path = part.file.path
        limits = check_settings(path, SETTINGS)
        found = boundary_findings(path, part.start, self._before, output.history, limits)
        policy = policy_for(part.file, SETTINGS)
        return found is not None and not any(is_noted(finding, policy) for finding in found)

    def _of_file(self, file: SegmentFile, begin: int, stop: int) -> Iterator[Range]:
        start = begin
        while start < stop and self.given_up is not file:
            end = self._end_of_range(file.path, start, stop)
            yield Range(file, start, end, first=start == begin)
            start = end

    def _end_of_range(self, path: str, start: int, stop: int) -> int:
        at = start + int(self._range_size)
        try:
            while at + SMALLEST_RANGE < stop and at < start + 2 * LARGEST_RANGE:
                found = split_points.batch_near(path, at, stop)
                if found is not None:
                    return found
                at += split_points.SEARCH_REACH
        except KsegError:
            pass  # the reader of the range reports it
        return stop

    def _wanted_bytes(self, path: str, size: int) -> tuple[int, int]:
        """Return the bytes that can have rows, half-open."""
        try:
            return byte_range(path, size, self._request.keep)
        except KsegError:
            return 0, size  # the reader of the file reports it
