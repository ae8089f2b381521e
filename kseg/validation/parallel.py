"""Validation on several cores, or machines: by file, and within a big file by ranges of whole entries.

A range's first entry is found by searching for it, and the ranges are checked independently. Their results are joined if
every range ends exactly where the next begins, no range met damage or disorder, and the state of the checks fits at the
seams. Otherwise the file is read again from end to end: slower, with the same result. Which of the two happens depends
on what was found, never on what the policy makes of it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from kseg.errors import KsegError
from kseg.files.processes import process_pool
from kseg.files.storage import SegmentFile, is_snapshot, open_range, open_source, open_split, size_of
from kseg.findings import Finding, ignore
from kseg.format import kernel
from kseg.format.log_format import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LEGACY_ATTRIBUTES_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.log.segment import MAX_ENTRY_SIZE, SegmentReader
from kseg.log.tape import Tape
from kseg.validation.checks import History, check_offsets, follows
from kseg.validation.file_stamps import Stamp, stamps_of, unchanged
from kseg.validation.internal_checks import with_internal_records
from kseg.validation.validate import (
    FileResult,
    Progress,
    Settings,
    Tally,
    Together,
    limits_of,
    look_away,
    new_tally,
    no_progress,
    run_checks,
    validate_segment,
    with_opened,
)

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from kseg.validation.sweep_state import SweepState

#: A file is split into ranges of at least this many bytes: below, a process costs more than it saves.
RANGE_SIZE = 16 * 1024 * 1024
# Where nothing is inflated a byte takes a sixth of the time (0.5 ms a MB beside 3 of LZ4), and processes 0.05 s as ever.
PLAIN_SHARE = 6
# How far to look for a range's first entry, and how many must follow it for it to be believed.
SEARCH_REACH = 4 * 1024 * 1024
CHAIN = 3
_DISORDER = "non-monotonic-offset"


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool(Protocol):
    """What calls are handed to, as processes; ``ahead`` is how many may wait there before a result is asked for."""

    jobs: int
    ahead: int

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]: ...


def validate_files(
    files: Iterable[SegmentFile],
    settings: Settings,
    jobs: int = 1,
    progress: Progress = no_progress,
    pool: Pool | None = None,
    state: SweepState | None = None,
) -> Iterator[FileResult]:
    """Validate files, results in their order, each segment's indexes behind it.

    In a pool, or with ``jobs`` processes at most. What ``state`` knows is not read again.
    """
    listed = list(files)
    unknown = [file for file in listed if not state.knows(file)] if state else listed
    results = _results(unknown, settings, jobs, progress, pool)
    for result in _with_known(listed, unknown, results, progress, state) if state else results:
        yield result
        yield from result.beside


def _with_known(
    listed: list[SegmentFile],
    unknown: list[SegmentFile],
    results: Iterator[FileResult],
    progress: Progress,
    state: SweepState,
) -> Iterator[FileResult]:
    """The results of all, those of the ``unknown`` files kept."""
    ahead = deque(unknown)
    for file in listed:
        if ahead and file is ahead[0]:
            ahead.popleft()
            result = next(results)
            state.keep(file, result)
        else:
            result = state.result(file)
            progress(result.summary.bytes)
        yield result


def _results(
    listed: list[SegmentFile], settings: Settings, jobs: int, progress: Progress, pool: Pool | None
) -> Iterator[FileResult]:
    sizes = [size_of(file) for file in listed]
    if pool is not None:
        yield from _through(pool, listed, sizes, settings, progress)
        return
    if jobs > 1 and None not in sizes and _worth_processes(listed, [size or 0 for size in sizes], settings):
        with process_pool(jobs) as executor:
            yield from _through(_Processes(executor, jobs), listed, sizes, settings, progress)
        return
    for file in listed:
        yield validate_segment(file, settings, progress)


def _worth_processes(files: list[SegmentFile], sizes: list[int], settings: Settings) -> bool:
    """Whether there is so much to do that more processes save more time than they cost."""
    if sum(sizes) < 2 * RANGE_SIZE:
        return False
    weight = 0
    for file, size in zip(files, sizes, strict=True):
        weight += size if settings.deep and _begins_compressed(file.path) else size // PLAIN_SHARE
        if weight >= 2 * RANGE_SIZE:
            return True
    return False


def _begins_compressed(path: str) -> bool:
    head = bytearray(RECORD_BATCH_OVERHEAD)
    try:
        with open_range(path, 0, len(head)) as source:
            source.readinto(memoryview(head))
    except (KsegError, OSError):
        return False  # told by whoever reads it
    attributes = head[ATTRIBUTES_AT + 1] if head[MAGIC_AT] >= 2 else head[LEGACY_ATTRIBUTES_AT]
    return bool(attributes & CODEC_MASK)


@dataclass(frozen=True, slots=True)
class _Part:
    """The result of one range, and where the checks stood at its end. ``whole`` if it ended where it should."""

    result: FileResult
    history: History
    whole: bool


class _Processes:
    """Processes as a pool."""

    def __init__(self, executor: ProcessPoolExecutor, jobs: int) -> None:
        self.jobs = jobs
        self.ahead = 4 * jobs
        self._executor = executor

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._executor.submit(work, *args)


def _through(
    pool: Pool, files: list[SegmentFile], sizes: list[int | None], settings: Settings, progress: Progress
) -> Iterator[FileResult]:
    # A pool that waits for many files at a time has enough to do with whole ones, and is not kept waiting for ranges
    # of all of them to be found.
    range_jobs = pool.jobs if pool.ahead <= 4 * pool.jobs or len(files) < 2 * pool.jobs else 1
    waiting: deque[_HandedOut] = deque()
    for file, size in zip(files, sizes, strict=True):
        stamps = stamps_of(file)
        starts = [0] if size is None or file.framing else range_starts(file.path, size, range_jobs)
        if len(starts) == 1:
            futures = [pool.submit(validate_segment, file, settings)]
        else:
            bounds = pairwise([*starts, size])
            futures = [pool.submit(_validate_range, file, first, last, settings) for first, last in bounds]
            if file.beside is not None:
                futures.append(pool.submit(_validate_beside, file, settings))
        waiting.append(_HandedOut(file, size or 0, stamps, starts, futures))
        while len(waiting) > pool.ahead:
            yield _collect(waiting.popleft(), settings, progress)
    while waiting:
        yield _collect(waiting.popleft(), settings, progress)


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """A file, what it was when it was handed to the pool, and the results of its ranges, its indexes' behind them."""

    file: SegmentFile
    size: int
    stamps: tuple[Stamp, ...]
    starts: list[int]
    futures: list[Future[Any]]


def _collect(handed: _HandedOut, settings: Settings, progress: Progress) -> FileResult:
    file, starts, futures = handed.file, handed.starts, handed.futures
    if len(futures) == 1:
        result: FileResult = futures[0].result()
        progress(handed.size)
        return result
    parts: list[_Part] = []
    joined, done = None, 0
    for future in futures[: len(starts)]:
        parts.append(future.result())
        if not parts[-1].whole:
            break
        progress(parts[-1].result.summary.bytes)
        done += parts[-1].result.summary.bytes
    else:
        beside: FileResult | None = futures[-1].result() if len(futures) > len(starts) else None
        joined = _join(file, starts, parts, beside, settings)
    if joined is None:
        for future in futures[len(parts) :]:
            future.cancel()
        progress(handed.size - done)
    if joined is None or (file.listed and joined.doubtful and not unchanged(file, handed.stamps)):
        return validate_segment(file, settings)
    return joined


def _validate_beside(file: SegmentFile, settings: Settings) -> FileResult:
    """What a segment's indexes are found to be along its whole length, with nothing of itself: its ranges tell that."""
    tally = new_tally(file, settings)
    together = Together(file, settings, tally)
    history, limits = History(), limits_of(file.path, settings)
    try:
        with SegmentReader(open_source(file.path, listed=True), verify_crc=False) as reader:
            for window in reader.windows():
                check_offsets(window.batches, limits, history, ignore)
                together.take(window, history)
            tally.summary.bytes = reader.position
    except KsegError:
        pass  # its ranges tell
    return together.join(tally.result())


def _validate_range(file: SegmentFile, start: int, end: int, settings: Settings) -> _Part:
    tally = new_tally(file, settings)
    try:
        with open_split(file.path, start, end) as source:
            watch = with_internal_records(file.path, tally, look_away)
            checked = run_checks(source, settings, tally, watch=watch)
    except KsegError:
        return _Part(tally.result(), History(), False)
    # Which of two entries in disorder is misplaced depends on what is around them, also behind a seam.
    whole = tally.summary.bytes == end - start and not checked.damaged and _DISORDER not in tally.found
    return _Part(tally.result(), checked.history, whole)


def _join(
    file: SegmentFile, starts: list[int], parts: list[_Part], beside: FileResult | None, settings: Settings
) -> FileResult | None:
    """The results of whole parts as one, or None where their seams don't fit."""
    tally = new_tally(file, settings)
    if beside:
        beside.summary.bytes = 0
        tally.absorb(beside)
    before: History | None = None
    for start, part in zip(starts, parts, strict=True):
        if before is not None and not _fits(file.path, start, before, part.history, tally, settings):
            return None
        tally.absorb(part.result)
        if before is not None:
            # Sequences are compared by who wrote last: earlier producers are still to be reckoned with.
            part.history.producers.young = {**before.producers.young, **part.history.producers.young}
        before = part.history
    result = tally.result()
    if not beside:
        return result
    facts = beside.facts and with_opened(beside.facts, [part.history for part in parts], opened=settings.deep)
    return replace(result, beside=beside.beside, facts=facts)


def _fits(path: str, start: int, before: History, after: History, tally: Tally, settings: Settings) -> bool:
    """Whether the part that begins at ``start`` continues the one before; a gap at the seam is reported."""
    first = kernel.BatchColumns(1)
    head = bytearray(RECORD_BATCH_OVERHEAD)
    try:
        with open_range(path, start, start + RECORD_BATCH_OVERHEAD) as source:
            if source.readinto(memoryview(head)) < RECORD_BATCH_OVERHEAD:
                return False
    except KsegError:
        return False
    kernel.read_header(head, 0, kernel.read_int32(head, SIZE_AT), head[16], first, 0)
    first.position[0] = start
    first.count = 1
    if first.magic[0] < before.magic or not follows(before, after):
        return False
    found: list[Finding] = []
    check_offsets(first, limits_of(path, settings), before, found.append)
    if any(finding.rule == _DISORDER for finding in found):
        return False
    for finding in found:  # a gap, like those within the parts
        tally(finding)
    return True


def range_starts(path: str, size: int, jobs: int) -> list[int]:
    """Where to split a file: bytes at which entries begin, 0 the first. Only 0 where it isn't worth it."""
    count = min(jobs * 8, size // RANGE_SIZE)  # so many that none is waited for long at the end
    starts = [0]
    # The end of a snapshot is judged by its beginning, too.
    if jobs < 2 or count < 2 or is_snapshot(path):
        return starts
    try:
        for i in range(1, count):
            start = _entry_near(path, size * i // count, size)
            if start is not None and start > starts[-1]:
                starts.append(start)
    except KsegError:
        return [0]
    return starts


def _entry_near(path: str, position: int, size: int) -> int | None:
    """The first byte from ``position`` on where an entry seems to begin, and others follow; None if it isn't near."""
    for reach in (SEARCH_REACH // 32, SEARCH_REACH):  # small entries are found in a little
        with open_range(path, position, min(size, position + reach)) as source:
            tape = Tape(source, reach, lambda finding: None)
            tape.fill(reach)
            at = 0
            while at < tape.available:
                at = kernel.find_plausible(tape.data, at, tape.end, MAX_ENTRY_SIZE)
                if at < tape.end and _chains(tape, at):
                    return position + at
                at += 1
    return None


def _chains(tape: Tape, at: int) -> bool:
    from kseg.log.search import holds

    for _ in range(CHAIN):
        if tape.end - at < RECORD_BATCH_OVERHEAD or not kernel.plausible(tape.data, at, tape.end, MAX_ENTRY_SIZE):
            return False
        size = LOG_OVERHEAD + kernel.read_int32(tape.data, at + SIZE_AT)
        if size > tape.end - at or not holds(tape, at, size, tape.data[at + 16]):
            return False
        at += size
    return True
