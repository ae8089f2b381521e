"""Validation by several processes or machines: by file, and in a large file by ranges of whole batches.

The start of a range is found by a search for a batch, and each range is checked on its own. The results of the ranges are
joined if every range ends where the next begins, no range has damage or disorder, and the states of the checks agree at
the boundaries. Otherwise the whole file is validated again by one process, with the same result as without ranges. The
choice depends on the facts that were found, never on the policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kseg.commands.validate import file_stamps
from kseg.commands.validate.validate import SegmentWithIndexes, validate_segment, with_record_facts
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.checks import range_join
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.offset_checks import check_offsets
from kseg.format.checks.run_checks import check_settings, internal_topic_of, new_collector, run_checks
from kseg.format.segment import outline, several_processes, split_points
from kseg.format.segment.reader import SegmentReader
from kseg.format.storage import process_pool
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import SegmentFile, open_source, open_split, size_of
from kseg.results import FileResult, Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kseg.commands.validate.state_file import ResultStore
    from kseg.format.storage.process_pool import Pool


def validate_files(
    files: Iterable[SegmentFile],
    settings: Settings,
    jobs: int = 1,
    progress: Progress = do_nothing,
    pool: Pool | None = None,
    state: ResultStore | None = None,
) -> Iterator[FileResult]:
    """Validate files, and yield the results in their order, the results of a segment's indexes after it.

    The work is done by ``pool`` if given, else by up to ``jobs`` processes. Files with a current result in ``state`` are
    not read again. ``progress`` is called with numbers of bytes.
    """
    listed = list(files)
    unknown = [file for file in listed if not state.is_current(file)] if state else listed
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
    """Yield the results of all files, and store those of the ``unknown`` files."""
    ahead = deque(unknown)
    for file in listed:
        if ahead and file is ahead[0]:
            ahead.popleft()
            result = next(results)
            state.store(file, result)
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
    # The size of a stream is not known. For a few bytes, the module is not loaded.
    known = [size for size in sizes if size is not None]
    if jobs == 1 or len(known) < len(sizes) or sum(known) < split_points.RANGE_SIZE // 8:
        for file in listed:
            yield validate_segment(file, settings, progress)
        return
    done, jobs = yield from several_processes.first_alone(
        listed,
        known,
        jobs,
        2 * split_points.RANGE_SIZE,
        progress,
        lambda file, meter: validate_segment(file, settings, meter.progress, meter.watch),
    )
    if done < len(listed):
        with process_pool.process_pool(jobs) as processes:
            yield from _in_pool(processes, listed[done:], sizes[done:], settings, progress)


class _RangeResult(NamedTuple):
    """The result of one range, and the state of the checks at its end. ``whole``: the range can be joined to others."""

    result: FileResult
    history: CheckState
    whole: bool


def _in_pool(
    pool: Pool, files: list[SegmentFile], sizes: list[int | None], settings: Settings, progress: Progress
) -> Iterator[FileResult]:
    # A pool with many submitted files is busy without ranges, and does not wait for the search of their starts.
    range_jobs = pool.jobs if pool.ahead <= 4 * pool.jobs or len(files) < 2 * pool.jobs else 1
    left = sum(size or 0 for size in sizes)

    def submit(file: SegmentFile, size: int | None) -> _SubmittedFile:
        nonlocal left
        left -= size or 0
        stamps = file_stamps.stamps_of(file)
        starts = [0] if size is None or file.framing else split_points.range_starts(file.path, size, range_jobs, left)
        if len(starts) == 1:
            futures = [pool.submit(validate_segment, file, settings)]
        else:
            bounds = pairwise([*starts, size])
            futures = [pool.submit(_validate_range, file, first, last, settings) for first, last in bounds]
            if file.indexes is not None:
                futures.append(pool.submit(_validate_indexes, file, settings))
        return _SubmittedFile(file, size or 0, stamps, starts, futures)

    for submitted in process_pool.submit_ordered(pool, submit, files, sizes):
        yield _collect(submitted, settings, progress)


class _SubmittedFile(NamedTuple):
    """A submitted file, its stamps at that time, and the results of its ranges followed by that of its indexes."""

    file: SegmentFile
    size: int
    stamps: tuple[file_stamps.Stamp, ...]
    starts: list[int]
    futures: list[Future[Any]]


def _collect(submitted: _SubmittedFile, settings: Settings, progress: Progress) -> FileResult:
    file, starts, futures = submitted.file, submitted.starts, submitted.futures
    if len(futures) == 1:
        result: FileResult = futures[0].result()
        progress(submitted.size)
        return result
    parts: list[_RangeResult] = []
    joined, done = None, 0
    for future in futures[: len(starts)]:
        parts.append(future.result())
        if not parts[-1].whole:
            break
        progress(parts[-1].result.summary.bytes)
        done += parts[-1].result.summary.bytes
    else:
        index_result: FileResult | None = futures[-1].result() if len(futures) > len(starts) else None
        joined = _joined_ranges(file, starts, parts, index_result, settings)
    if joined is None:
        for future in futures[len(parts) :]:
            future.cancel()
        progress(submitted.size - done)
    if joined is None or (file.listed and joined.suspicious and not file_stamps.unchanged(file, submitted.stamps)):
        return validate_segment(file, settings)
    return joined


def _validate_indexes(file: SegmentFile, settings: Settings) -> FileResult:
    """Return the results of a segment's indexes and its facts, without the findings of the segment itself."""
    collector = new_collector(file, settings)
    with_indexes = SegmentWithIndexes(file, settings, collector)
    history, limits = CheckState(), check_settings(file.path, settings)
    try:
        with SegmentReader(open_source(file.path, listed=True), verify_crc=False) as reader:
            for window in reader.windows():
                check_offsets(window.batches, limits, history, do_nothing)
                with_indexes.check_window(window, history)
            collector.summary.bytes = reader.position
    except KsegError:
        pass  # the ranges report it
    return with_indexes.joined(collector.result())


def _validate_range(file: SegmentFile, start: int, end: int, settings: Settings) -> _RangeResult:
    collector = new_collector(file, settings)
    try:
        with open_split(file.path, start, end) as source:
            checked = run_checks(source, settings, collector, topic=internal_topic_of(file.path))
    except KsegError:
        return _RangeResult(collector.result(), CheckState(), False)
    whole = (
        collector.summary.bytes == end - start
        and not checked.damaged
        and range_join.DISORDER.isdisjoint(collector.found)
    )
    return _RangeResult(replace(collector.result(), outline=checked.outline), checked.history, whole)


def _joined_ranges(
    file: SegmentFile, starts: list[int], parts: list[_RangeResult], index_result: FileResult | None, settings: Settings
) -> FileResult | None:
    """Return the joined result of all ranges, or None if the states of two neighbours do not agree."""
    collector = new_collector(file, settings)
    if index_result:
        index_result.summary.bytes = 0
        collector.merge(index_result)
    before: CheckState | None = None
    limits = check_settings(file.path, settings)
    for start, part in zip(starts, parts, strict=True):
        if before is not None:
            between = range_join.boundary_findings(file.path, start, before, part.history, limits)
            if between is None:
                return None
            for finding in between:
                collector(finding)
        collector.merge(part.result)
        before = part.history
    outlines = [part.result.outline for part in parts if part.result.outline]
    result = replace(collector.result(), outline=outline.joined(outlines) if outlines else None)
    if not index_result:
        return result
    facts = index_result.facts and with_record_facts(
        index_result.facts, [part.history for part in parts], opened=settings.deep
    )
    return replace(result, indexes=index_result.indexes, facts=facts)
