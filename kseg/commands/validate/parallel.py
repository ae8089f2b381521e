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

from kseg.commands.validate.file_stamps import Stamp, stamps_of, unchanged
from kseg.commands.validate.validate import SegmentWithIndexes, validate_segment, with_record_facts
from kseg.errors import KsegError
from kseg.findings import Finding, ignore_finding
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.internal_topic_checks import with_internal_record_checks
from kseg.format.checks.offset_checks import check_offsets
from kseg.format.checks.run_checks import check_settings, ignore_chunk, new_collector, run_checks
from kseg.format.checks.table import states_join
from kseg.format.record import columns, framing
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LEGACY_ATTRIBUTES_AT,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import split_points
from kseg.format.segment.reader import SegmentReader
from kseg.format.storage.process_pool import process_pool
from kseg.format.storage.progress import Progress, no_progress
from kseg.format.storage.source import SegmentFile, open_range, open_source, open_split, size_of
from kseg.results import FileResult, FindingCollector, Settings

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from kseg.commands.validate.state_file import ResultStore

# Where nothing is inflated a byte takes a sixth of the time (0.5 ms a MB beside 3 of LZ4), and processes 0.05 s as ever.
PLAIN_SHARE = 6
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
    state: ResultStore | None = None,
) -> Iterator[FileResult]:
    """Validate files, results in their order, each segment's indexes behind it.

    In a pool, or with ``jobs`` processes at most. What ``state`` knows is not read again.
    """
    listed = list(files)
    unknown = [file for file in listed if not state.knows(file)] if state else listed
    results = _results(unknown, settings, jobs, progress, pool)
    for result in _with_state(listed, unknown, results, progress, state) if state else results:
        yield result
        yield from result.indexes


def _with_state(
    listed: list[SegmentFile],
    unknown: list[SegmentFile],
    results: Iterator[FileResult],
    progress: Progress,
    state: ResultStore,
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
        yield from _in_pool(pool, listed, sizes, settings, progress)
        return
    if jobs > 1 and None not in sizes and _worth_processes(listed, [size or 0 for size in sizes], settings):
        with process_pool(jobs) as executor:
            yield from _in_pool(_Processes(executor, jobs), listed, sizes, settings, progress)
        return
    for file in listed:
        yield validate_segment(file, settings, progress)


def _worth_processes(files: list[SegmentFile], sizes: list[int], settings: Settings) -> bool:
    """Whether there is so much to do that more processes save more time than they cost."""
    if sum(sizes) < 2 * split_points.RANGE_SIZE:
        return False
    weight = 0
    for file, size in zip(files, sizes, strict=True):
        weight += size if settings.deep and _begins_compressed(file.path) else size // PLAIN_SHARE
        if weight >= 2 * split_points.RANGE_SIZE:
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
    history: CheckState
    whole: bool


class _Processes:
    """Processes as a pool."""

    def __init__(self, executor: ProcessPoolExecutor, jobs: int) -> None:
        self.jobs = jobs
        self.ahead = 4 * jobs
        self._executor = executor

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._executor.submit(work, *args)


def _in_pool(
    pool: Pool, files: list[SegmentFile], sizes: list[int | None], settings: Settings, progress: Progress
) -> Iterator[FileResult]:
    # A pool that waits for many files at a time has enough to do with whole ones, and is not kept waiting for ranges
    # of all of them to be found.
    range_jobs = pool.jobs if pool.ahead <= 4 * pool.jobs or len(files) < 2 * pool.jobs else 1
    waiting: deque[_SubmittedFile] = deque()
    for file, size in zip(files, sizes, strict=True):
        stamps = stamps_of(file)
        starts = [0] if size is None or file.framing else split_points.range_starts(file.path, size, range_jobs)
        if len(starts) == 1:
            futures = [pool.submit(validate_segment, file, settings)]
        else:
            bounds = pairwise([*starts, size])
            futures = [pool.submit(_validate_range, file, first, last, settings) for first, last in bounds]
            if file.indexes is not None:
                futures.append(pool.submit(_validate_indexes, file, settings))
        waiting.append(_SubmittedFile(file, size or 0, stamps, starts, futures))
        while len(waiting) > pool.ahead:
            yield _collect(waiting.popleft(), settings, progress)
    while waiting:
        yield _collect(waiting.popleft(), settings, progress)


@dataclass(frozen=True, slots=True)
class _SubmittedFile:
    """A file, what it was when it was handed to the pool, and the results of its ranges, its indexes' behind them."""

    file: SegmentFile
    size: int
    stamps: tuple[Stamp, ...]
    starts: list[int]
    futures: list[Future[Any]]


def _collect(handed: _SubmittedFile, settings: Settings, progress: Progress) -> FileResult:
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
        joined = _joined_ranges(file, starts, parts, beside, settings)
    if joined is None:
        for future in futures[len(parts) :]:
            future.cancel()
        progress(handed.size - done)
    if joined is None or (file.listed and joined.suspicious and not unchanged(file, handed.stamps)):
        return validate_segment(file, settings)
    return joined


def _validate_indexes(file: SegmentFile, settings: Settings) -> FileResult:
    """What a segment's indexes are found to be along its whole length, with nothing of itself: its ranges tell that."""
    tally = new_collector(file, settings)
    together = SegmentWithIndexes(file, settings, tally)
    history, limits = CheckState(), check_settings(file.path, settings)
    try:
        with SegmentReader(open_source(file.path, listed=True), verify_crc=False) as reader:
            for window in reader.windows():
                check_offsets(window.batches, limits, history, ignore_finding)
                together.check_window(window, history)
            tally.summary.bytes = reader.position
    except KsegError:
        pass  # its ranges tell
    return together.joined(tally.result())


def _validate_range(file: SegmentFile, start: int, end: int, settings: Settings) -> _Part:
    tally = new_collector(file, settings)
    try:
        with open_split(file.path, start, end) as source:
            watch = with_internal_record_checks(file.path, tally, ignore_chunk)
            checked = run_checks(source, settings, tally, watch=watch)
    except KsegError:
        return _Part(tally.result(), CheckState(), False)
    # Which of two entries in disorder is misplaced depends on what is around them, also behind a seam.
    whole = tally.summary.bytes == end - start and not checked.damaged and _DISORDER not in tally.found
    return _Part(tally.result(), checked.history, whole)


def _joined_ranges(
    file: SegmentFile, starts: list[int], parts: list[_Part], beside: FileResult | None, settings: Settings
) -> FileResult | None:
    """The results of whole parts as one, or None where their seams don't fit."""
    tally = new_collector(file, settings)
    if beside:
        beside.summary.bytes = 0
        tally.merge(beside)
    before: CheckState | None = None
    for start, part in zip(starts, parts, strict=True):
        if before is not None and not _ranges_join(file.path, start, before, part.history, tally, settings):
            return None
        tally.merge(part.result)
        if before is not None:
            # Sequences are compared by who wrote last: earlier producers are still to be reckoned with.
            part.history.producers.young = {**before.producers.young, **part.history.producers.young}
        before = part.history
    result = tally.result()
    if not beside:
        return result
    facts = beside.facts and with_record_facts(beside.facts, [part.history for part in parts], opened=settings.deep)
    return replace(result, indexes=beside.indexes, facts=facts)


def _ranges_join(
    path: str, start: int, before: CheckState, after: CheckState, tally: FindingCollector, settings: Settings
) -> bool:
    """Whether the part that begins at ``start`` continues the one before; a gap at the seam is reported."""
    first = columns.BatchColumns(1)
    head = bytearray(RECORD_BATCH_OVERHEAD)
    try:
        with open_range(path, start, start + RECORD_BATCH_OVERHEAD) as source:
            if source.readinto(memoryview(head)) < RECORD_BATCH_OVERHEAD:
                return False
    except KsegError:
        return False
    framing.read_header(head, 0, framing.read_int32(head, SIZE_AT), head[16], first, 0)
    first.position[0] = start
    first.count = 1
    if not states_join(before, after):
        return False
    found: list[Finding] = []
    check_offsets(first, check_settings(path, settings), before, found.append)
    if any(finding.rule == _DISORDER for finding in found):
        return False
    for finding in found:  # a gap, like those within the parts
        tally(finding)
    return True
