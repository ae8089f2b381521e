"""``kseg stats`` as a library: count segments, and add them up to partitions, log directories and a total.

Shallow counts come from headers alone; numbers that headers do not have are None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from kseg.commands.stats.counted_file import SegmentStats, segment_stats
from kseg.commands.stats.totals import Stats
from kseg.findings import do_nothing
from kseg.format.segment.several_processes import Job, parts_of_files
from kseg.format.storage import file_access
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import partition_of
from kseg.format.storage.segment_files import SegmentFile, size_of
from kseg.format.storage.source import STDIN
from kseg.results import Settings


def stats_of(
    files: Iterable[SegmentFile], settings: Settings, jobs: int = 1, progress: Progress = do_nothing
) -> Iterator[SegmentStats]:
    """Count files with at most ``jobs`` processes, in their order. Files that have vanished are skipped."""
    listed = list(files)
    job: Job[SegmentFile, tuple[SegmentFile, Settings], SegmentStats] = Job(
        lambda file, size, pool: [(file, settings)],
        _work,
        lambda file, meter: segment_stats(file, settings, meter.progress),
    )
    with parts_of_files(listed, [size_of(file) for file in listed], jobs, job) as by_file:
        for _, parts in by_file:
            for part, counted in parts:
                progress(counted.stats.sums["file_bytes"] if part else 0)
                if counted.result.vanished:
                    file_access.current().deleted(counted.result.file)
                else:
                    yield counted


def _work(part: tuple[SegmentFile, Settings]) -> SegmentStats:
    return segment_stats(*part)


@dataclass(frozen=True, slots=True)
class Level:
    """Counts of one level: ``level`` is segment (a file, also one that is read with ``--as``), partition, log_dir or
    total; ``path`` is None for the total.

    ``parts`` is the number of segments in a partition, of partitions in a log directory, or of log directories and single
    files in the total.
    """

    level: str
    path: str | None
    parts: int
    stats: Stats


def sorted_by_folder(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    """Return the files grouped by partition and log directory, in the order of their first file."""
    rank: dict[str | None, int] = {}

    def place(file: SegmentFile) -> tuple[int, int]:
        log_dir, partition = folders_of(file.path)
        return rank.setdefault(log_dir, len(rank)), rank.setdefault(partition, len(rank))

    return sorted(files, key=place)


def folders_of(path: str) -> tuple[str | None, str | None]:
    """Return the log directory and the partition folder of a segment; None if the names do not show one."""
    if path == STDIN:
        return None, None
    partition = os.path.dirname(path) or "."
    is_partition = partition_of(os.path.basename(partition)) is not None
    return (os.path.dirname(partition) or ".") if is_partition else None, partition


def _folders(one: SegmentStats) -> tuple[str | None, str | None]:
    """Return ``folders_of`` the file; None for a file that is not a log."""
    return (None, None) if one.result.framing else folders_of(one.result.file)


def levels(counted: Iterable[SegmentStats], deep: bool) -> Iterator[Level]:
    """Yield each segment, each partition after its segments, each log directory after its partitions, the total last."""
    total, parts = Stats(deep), 0
    by_log_dir = groupby(counted, key=lambda one: _folders(one)[0])
    for log_dir, in_log_dir in by_log_dir:
        of_log_dir, partitions = Stats(deep), 0
        for partition, segments in groupby(in_log_dir, key=lambda one: _folders(one)[1]):
            of_partition, count = Stats(deep, partitions=1), 0
            for one in segments:
                yield Level("segment", one.result.file, 1, one.stats)
                of_partition.add(one.stats, same_partition=True)
                count += 1
            if partition is not None:
                yield Level("partition", partition, count, of_partition)
            of_log_dir.add(of_partition, same_partition=False)
            partitions += 1
        if log_dir is not None:
            yield Level("log_dir", log_dir, partitions, of_log_dir)
        total.add(of_log_dir, same_partition=False)
        parts += partitions if log_dir is None else 1
    yield Level("total", None, parts, total)
