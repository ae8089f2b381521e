"""Validation by several processes or machines: by file, and in a large file by ranges of whole batches.

The start of a range is found by a search for a batch, and each range is checked on its own. The results of the ranges are
joined if every range ends where the next begins, no range has damage or disorder, and the states of the checks agree at
the boundaries. Otherwise the whole file is validated again by one process, with the same result as without ranges. The
choice depends on the facts that were found, never on the policy.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kseg.commands.validate import result_store
from kseg.commands.validate.validate import SegmentWithIndexes, validate_segment, with_record_facts
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.checks.batch_checks import CheckState
from kseg.format.checks.offset_checks import check_offsets
from kseg.format.checks.run_checks import (
    DISORDER,
    boundary_findings,
    check_settings,
    new_collector,
    run_checks,
)
from kseg.format.segment import outline, several_processes
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile, size_of
from kseg.format.storage.source import Stamp, internal_topic, open_source, open_split
from kseg.results import FileResult, Settings

if TYPE_CHECKING:
    from kseg.commands.validate.result_store import ResultStore
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


class _Part(NamedTuple):
    """Bytes ``start`` to ``end`` of a file, a whole file with ``end`` None, or its indexes if the two are equal.

    ``stamps`` are those of the file before it was read.
    """

    file: SegmentFile
    settings: Settings
    start: int = 0
    end: int | None = None
    stamps: tuple[Stamp, ...] = ()


class _RangeResult(NamedTuple):
    """The result of one range, and the state of the checks at its end. ``whole``: the range can be joined to others."""

    result: FileResult
    history: CheckState
    whole: bool


def _results(
    listed: list[SegmentFile], settings: Settings, jobs: int, progress: Progress, pool: Pool | None
) -> Iterator[FileResult]:
    sizes = [size_of(file) for file in listed]
    if pool is None and (jobs == 1 or sum(size or 0 for size in sizes) < several_processes.RANGE_SIZE // 8):
        for file in listed:  # for a few bytes, the module is not loaded
            yield validate_segment(file, settings, progress)
        return
    left = sum(size or 0 for size in sizes)

    def plan(file: SegmentFile, size: int | None, processes: Pool) -> Iterator[_Part]:
        nonlocal left
        # A pool with many submitted files is busy without ranges, and does not wait for the search of their starts.
        split = processes.ahead <= 4 * processes.jobs or len(listed) < 2 * processes.jobs
        left -= size or 0
        stamps = result_store.stamps_of(file)
        if size is None or file.framing or not split:
            starts = [0]
        else:
            starts = several_processes.range_starts(file.path, size, processes.jobs, left)
        if len(starts) == 1:
            yield _Part(file, settings)
            return
        for first, last in pairwise([*starts, size]):
            yield _Part(file, settings, first or 0, last, stamps)
        if file.indexes is not None:
            yield _Part(file, settings, 0, 0)

    job: several_processes.Job[SegmentFile, _Part, FileResult | _RangeResult] = several_processes.Job(
        plan,
        _work,
        lambda file, meter: validate_segment(file, settings, meter.progress, meter.watch),
        2 * several_processes.RANGE_SIZE,
    )
    with several_processes.parts_of_files(listed, sizes, jobs, job, pool=pool) as by_file:
        for file, parts in by_file:
            yield _joined(file, parts, settings, progress) or validate_segment(file, settings, progress)


def _work(part: _Part) -> FileResult | _RangeResult:
    if part.end is None:
        return validate_segment(part.file, part.settings)
    if part.start == part.end:
        return _validate_indexes(part.file, part.settings)
    return _validate_range(part.file, part.start, part.end, part.settings)


def _joined(
    file: SegmentFile,
    results: several_processes.Parts[_Part, FileResult | _RangeResult],
    settings: Settings,
    progress: Progress,
) -> FileResult | None:
    """Return the result of a file from those of its parts; None if this process must validate the file."""
    ranges: list[tuple[_Part, _RangeResult]] = []
    indexes: FileResult | None = None
    for part, result in results:
        if isinstance(result, _RangeResult):
            if not (part and result.whole):
                break
            ranges.append((part, result))
            progress(result.result.summary.bytes)
        elif ranges:
            indexes = result
        else:
            progress(result.summary.bytes if part else 0)
            return result
    else:
        joined = _joined_ranges(file, ranges, indexes, settings)
        if joined and not (file.listed and joined.suspicious and not result_store.unchanged(file, ranges[0][0].stamps)):
            return joined
    results.close()
    progress(-sum(result.result.summary.bytes for _, result in ranges))
    return None


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
    started = time.perf_counter()
    collector = new_collector(file, settings)
    try:
        with open_split(file.path, start, end) as source:
            checked = run_checks(source, settings, collector, topic=internal_topic(file.path))
    except KsegError:
        return _RangeResult(collector.result(), CheckState(), False)
    whole = collector.summary.bytes == end - start and not checked.damaged and DISORDER.isdisjoint(collector.found)
    result = replace(collector.result(), outline=checked.outline, seconds=time.perf_counter() - started)
    return _RangeResult(result, checked.history, whole)


def _joined_ranges(
    file: SegmentFile, ranges: list[tuple[_Part, _RangeResult]], index_result: FileResult | None, settings: Settings
) -> FileResult | None:
    """Return the joined result of all ranges, or None if the states of two neighbours do not agree."""
    collector = new_collector(file, settings)
    if index_result:
        index_result.summary.bytes = 0
        collector.merge(index_result)
    before: CheckState | None = None
    limits = check_settings(file.path, settings)
    for part, (result, history, _) in ranges:
        if before is not None:
            between = boundary_findings(file.path, part.start, before, history, limits)
            if between is None:
                return None
            for finding in between:
                collector(finding)
        collector.merge(result)
        before = history
    outlines = [one.result.outline for _, one in ranges if one.result.outline]
    joined = replace(
        collector.result(),
        outline=outline.joined(outlines) if outlines else None,
        seconds=sum(one.result.seconds for _, one in ranges),
    )
    if not index_result:
        return joined
    histories = [one.history for _, one in ranges]
    facts = index_result.facts and with_record_facts(index_result.facts, histories, opened=settings.deep)
    return replace(joined, indexes=index_result.indexes, facts=facts)
