"""Deep dumps with several processes: small files, and ranges of whole batches of large files.

Each worker writes the lines of a range into memory that it shares with this process, which prints them in the order of the
files. A range can be printed if it lacks damage and findings that are reported, and if the states of the checks agree with
those of the range before. At the first range that can't, this process dumps the rest of the file. So output and findings are
the same for any number of processes.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any, cast

from kseg.commands.dump.dump_items import FileStart, Item, from_position, row_count
from kseg.commands.dump.dumped_rows import DumpRequest, byte_range, checks_of
from kseg.errors import KsegError, UsageError
from kseg.findings import Finding, Report, is_noted
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.run_checks import boundary_findings, check_settings, policy_for
from kseg.format.segment import several_processes
from kseg.format.segment.input_buffer import borrowed
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.several_processes import Job, Parts, parts_of_files, sampled_jobs
from kseg.format.storage import process_pool
from kseg.format.storage.naming import is_snapshot
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Stamp, check_same, local_size, open_split, stamp_of
from kseg.results import Settings

if TYPE_CHECKING:
    from kseg.format.storage.process_pool import Pool


#: Write items to a stream of text with a binary ``buffer``.
Write = Callable[[Iterable[Item], Any], None]

#: The memory for the output of all ranges, and the least and the most for one range.
ALL_OUTPUT = 256 * 1024 * 1024
MIN_OUTPUT, MAX_OUTPUT = 4 * 1024 * 1024, 16 * 1024 * 1024
#: ``kseg dump`` lacks options for findings.
SETTINGS = Settings()


#: The bytes of output that a range should have. It waits in memory until the ranges before are printed.
WANTED_OUTPUT = 5 * 1024 * 1024
#: The most ranges whose output waits: the memory for it is limited.
MOST_WAITING = 64
#: The bytes of a range. The first ranges can decompress to many times their size.
FIRST_RANGE = 256 * 1024
SMALLEST_RANGE, LARGEST_RANGE = 64 * 1024, 8 * 1024 * 1024
# The bytes of the first sample that is measured.
_SAMPLE = 64 * 1024
# The processor time of workers, as a multiple of that of one process alone: the output of each range is copied twice.
_COPYING = 1.25


def can_share_memory() -> bool:
    """Return whether workers have the memory of this process at their start, as forked processes do."""
    return process_pool.context().get_start_method() == "fork"


@contextmanager
def dumped_files(
    files: Sequence[SegmentFile], request: DumpRequest, write: Write, jobs: int
) -> Iterator[tuple[ParallelDump, Iterator[tuple[SegmentFile, Parts[Range, Output]]]]]:
    """Yield a dump by at most ``jobs`` processes, and the files in their order with the output of their ranges.

    ``write`` writes rows without anything before them, such as the names of columns. Raises KsegError if a process was
    killed, and the UsageError of a worker.
    """
    with shared_output(request, write, min(2 * jobs, MOST_WAITING) + 1) as slots:
        dump = ParallelDump(request, slots)
        sizes = [local_size(file.path) for file in files]

        def sample(file: SegmentFile, end: int) -> Output:
            return format_range(Range(file, 0, end))

        known = [size or 0 for size in sizes]
        best = sampled_jobs(files, known, min(jobs, MOST_WAITING), sample, _SAMPLE, _COPYING)
        job = Job(dump.plan, format_range, ahead=len(slots) - 1)
        with parts_of_files(files, known, best, job) as by_file:
            yield dump, by_file


class ParallelDump:
    """Divides files into ranges, whose sizes follow from the output of earlier ones, and joins their output."""

    def __init__(self, request: DumpRequest, slots: Sequence[memoryview]) -> None:
        self._slots = slots
        self._request = request
        self._next_slots = cycle(range(len(slots)))  # the outputs that wait are fewer, and are printed in order
        # The output of a range can be larger than expected.
        self._wanted = min(WANTED_OUTPUT, len(slots[0]) // 3)
        self._range_size: float = FIRST_RANGE

    def plan(self, file: SegmentFile, size: int | None, pool: Pool) -> Iterator[Range]:
        """Yield the ranges of a file; none if its size is unknown."""
        if not size:
            return
        stamp = stamp_of(file.path)
        begin, stop = self._wanted_bytes(file.path, size)
        # The checks of a KRaft snapshot's end need its beginning.
        divided = stop - begin >= 2 * self._range_size and not is_snapshot(file.path)
        start = begin
        while start < stop:
            end = self._end_of_range(file.path, start, stop) if divided else stop
            yield Range(file, start, end, first=start == begin, slot=next(self._next_slots), stamp=stamp)
            start = end

    def show(self, parts: Parts[Range, Output], show: Callable[[Output, memoryview], None]) -> tuple[int, Stamp] | None:
        """Call ``show`` with the output of each range of a file and its lines, which are valid until it returns.

        Returns the byte from which this process must dump the rest of the file with the stamp of the ranges before it, None
        at the end.
        """
        before: CheckState | None = None
        rest: tuple[int, Stamp] | None = (0, None)
        for part, output in parts:
            assert part
            if not self._follows(part, output, before):
                parts.close()
                return (0, None) if part.first else (part.start, part.stamp)
            show(output, self._slots[part.slot][: output.size])
            before, rest = output.history, None
        return rest

    def rest(self, file: SegmentFile, rest: tuple[int, Stamp], report: Report) -> Iterator[Item]:
        """Yield the items of a file from a byte on, which ``show`` has returned. Raises KsegError."""
        start, stamp = rest
        check_same(file.path, stamp)
        yield from from_position(self._request.items(file, report), start)

    def _follows(self, part: Range, output: Output, before: CheckState | None) -> bool:
        """Return whether the output of a range follows that of the range before, which ended with the state ``before``."""
        if output.size < 0:
            return False
        if output.size:
            fitting = (part.end - part.start) * self._wanted / output.size
            self._range_size = min(max(fitting, SMALLEST_RANGE), LARGEST_RANGE)
        if part.first:
            return True
        assert before
        assert output.history
        path = part.file.path
        found = boundary_findings(path, part.start, before, output.history, check_settings(path, SETTINGS))
        policy = policy_for(part.file, SETTINGS)
        return found is not None and not any(is_noted(finding, policy) for finding in found)

    def _end_of_range(self, path: str, start: int, stop: int) -> int:
        at = start + int(self._range_size)
        try:
            while at + SMALLEST_RANGE < stop and at < start + 2 * LARGEST_RANGE:
                found = several_processes.batch_near(path, at, stop)
                if found is not None:
                    return found
                at += several_processes.SEARCH_REACH
        except KsegError:
            pass  # the reader of the range reports it
        return stop

    def _wanted_bytes(self, path: str, size: int) -> tuple[int, int]:
        """Return the bytes that can have rows, half-open."""
        try:
            return byte_range(path, size, self._request.keep)
        except KsegError:
            return 0, size  # the reader of the file reports it


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes ``start`` to ``end`` of a file.

    ``first``: it is the first range of the file. ``slot`` is the number of the memory for its output, ``stamp`` that of the
    file when it was divided.
    """

    file: SegmentFile
    start: int
    end: int
    first: bool = True
    slot: int = 0
    stamp: Stamp = None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a range. ``size`` is in bytes in the memory of its slot.

    It is -1 if one process must dump the rest of the file.
    """

    size: int
    rows: int = 0
    shown: bool = False
    history: CheckState | None = None


class _NotPrintedError(Exception):
    """The output of a range does not fit into its memory, or it has a finding that is reported.

    The place of the finding among others is known when one process reads the file.
    """


class _Slot(io.BufferedIOBase):
    """A binary output into a piece of memory."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self.used = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        if size > len(self._memory) - self.used:
            raise _NotPrintedError
        self._memory[self.used : self.used + size] = data
        self.used += size
        return size


@dataclass(slots=True)
class _Counted:
    """Counts the rows of items that pass."""

    items: Iterable[Item]
    rows: int = 0
    shown: bool = False

    def __iter__(self) -> Iterator[Item]:
        for item in self.items:
            self.rows += row_count(item)
            self.shown |= not isinstance(item, FileStart)
            yield item


# What forked workers have from this process: what to dump, how to write it, and where to.
_shared: tuple[DumpRequest, Write, list[memoryview]] | None = None


@contextmanager
def shared_output(request: DumpRequest, write: Write, count: int) -> Iterator[list[memoryview]]:
    """Share memory for the output of ``count`` ranges with workers that start in this block."""
    global _shared
    size = min(MAX_OUTPUT, max(MIN_OUTPUT, ALL_OUTPUT // count))
    memory = memoryview(mmap.mmap(-1, count * size))  # a page takes memory once it is used
    slots = [memory[n * size : (n + 1) * size] for n in range(count)]
    before, _shared = _shared, (request, write, slots)
    try:
        yield slots
    finally:
        _shared = before


def format_range(part: Range) -> Output:
    """Write the lines of a range into its slot. Raises UsageError, as for a missing library."""
    assert _shared
    request, write, slots = _shared
    path, policy, lines = part.file.path, policy_for(part.file, SETTINGS), _Slot(slots[part.slot])
    out: Any = io.TextIOWrapper(cast(Any, lines), "utf-8", errors="backslashreplace", newline="", write_through=True)

    def report(finding: Finding) -> None:
        if is_noted(finding, policy):
            raise _NotPrintedError

    try:
        with (
            borrowed() as buffers,
            SegmentReader(
                open_split(path, part.start, part.end), report=report, verify_crc=request.verify_crc, buffers=buffers
            ) as reader,
        ):
            checks = checks_of(path, reader, report, deep=True)
            items = request.items_of_reader(part.file, reader, report, checks=checks, buffers=buffers)
            found = _Counted(chain((FileStart(path, reader.name_offset),), items) if part.first else items)
            write(found, out)
            whole = not reader.damaged and reader.position == part.end
            return Output(lines.used if whole else -1, found.rows, found.shown, checks.history)
    except UsageError:
        raise
    except (_NotPrintedError, KsegError):
        return Output(-1)  # the process that dumps the rest of the file reports the error
    finally:
        out.detach()
