"""``kseg stats`` as a library: count segments, and add them up to partitions, log directories and a total.

Shallow counts come from headers alone; numbers that headers do not have are None.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, repeat

from kseg.commands.stats import counting, overhead
from kseg.commands.stats.counting import FAR, Counts
from kseg.commands.stats.totals import GROUP_SUMS, SCALAR_SUMS, OffsetRange, RetentionPin, Stats, bound_epochs
from kseg.errors import KsegError, VanishedError
from kseg.findings import do_nothing
from kseg.format.checks.run_checks import new_collector
from kseg.format.compress.codecs import codec_name
from kseg.format.record.columns import RecordColumns
from kseg.format.record.layout import CODEC_MASK
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import SegmentReader
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.several_processes import first_alone
from kseg.format.storage.file_access import Progress
from kseg.format.storage.process_pool import map_ordered, process_pool
from kseg.format.storage.source import STDIN, SegmentFile, open_source, size_of
from kseg.results import FileResult, FindingCollector, Settings, Summary

_PARTITION_NAME = re.compile(r".+-\d+$")


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """The counts of one file, and the findings (``result``); counts are empty if the file can't be read."""

    stats: Stats
    result: FileResult


def segment_stats(file: SegmentFile, settings: Settings, progress: Progress = do_nothing) -> SegmentStats:
    """Count one segment. An unreadable file is a result, never an exception."""
    tally = new_collector(file, settings)
    stats = Stats(settings.deep, partitions=1)
    try:
        source = open_source(file.path, listed=file.listed)
        with SegmentReader(source, report=tally, verify_crc=settings.verify_crc) as reader:
            _count(reader, stats, file.path, tally, progress)
    except KsegError as error:
        if file.listed and isinstance(error, VanishedError):
            return SegmentStats(stats, FileResult(file.path, (), Summary(), vanished=True))
        stats.sums["unread"] = tally.summary.unread = 1
        return SegmentStats(stats, tally.result(str(error)))
    return SegmentStats(stats, tally.result())


def _count(reader: SegmentReader, stats: Stats, path: str, tally: FindingCollector, progress: Progress) -> None:
    counts = Counts()
    stats.producers.by_id, stats.leader_epochs = counts.producers, counts.leader_epochs
    opener = DeepIterator(tally)
    closed = RecordColumns(1)
    done = 0
    for window in reader.windows():
        if stats.deep:
            for chunk in opener.chunks(window):
                _count_chunk(chunk, counts, stats)
        else:
            counting.count_batches(window.batches, closed, 0, window.batches.count, False, counts)
        stats.producers.bound()
        stats.leader_epochs_dropped += bound_epochs(counts.leader_epochs)
        progress(reader.position - done)
        done = reader.position
    progress(reader.position - done)
    stats.sums.update(segments=1, file_bytes=reader.position, lost_bytes=reader.lost_bytes)
    _add_previous(counts, stats, path)


def _count_chunk(chunk: Chunk, counts: Counts, stats: Stats) -> None:
    batches = chunk.batches
    if not chunk.resumed:
        counting.count_batches(batches, chunk.records, chunk.first, chunk.stop, True, counts)
        for row, payload in chunk.payloads.items():
            if batches.attributes[row] & CODEC_MASK:
                size = len(payload) if chunk.payload_size is None else chunk.payload_size
                counting.count_payload(batches, row, size, counts)
    for magic, rows in groupby(range(chunk.first, chunk.stop), key=lambda row: min(batches.magic[row], 2)):
        first, *_, last = (*rows,) * 2
        before = counts.key_bytes + counts.value_bytes
        counting.count_records(batches, chunk.records, first, last + 1, counts)
        stats.contents[magic] += counts.key_bytes + counts.value_bytes - before
    overhead.add_sample(chunk, stats.sample)
    for row in counting.control_record_rows(batches, chunk.first, chunk.stop):
        for i in chunk.rows(row):
            marker = chunk.control(i)
            if marker:
                stats.control_types[marker.type] += 1


def _add_previous(counts: Counts, stats: Stats, path: str) -> None:
    """Convert the sums of the loops to ``Stats``."""
    for group in range(counting.GROUPS):
        if counts.batches[group]:
            magic, codec = divmod(group, counting.CODECS)
            sums = Counter({name: getattr(counts, name)[group] for name in GROUP_SUMS})
            stats.groups[magic, codec_name(codec)] = sums
    stats.sums.update({name: getattr(counts, name) for name in SCALAR_SUMS})
    stats.sums["legacy_segments"] = int(any(magic < 2 for magic, _ in stats.groups))
    stats.batch_size = _range(counts.smallest_batch, counts.largest_batch)
    stats.records_per_batch = _range(counts.fewest_records, counts.most_records)
    stats.offsets = _range(counts.first_offset if counts.first_offset >= 0 else FAR, counts.last_offset)
    stats.timestamps = _range(counts.smallest_timestamp, counts.largest_timestamp)
    stats.odd_timestamps.update(counts.odd_timestamps)
    if counts.pin_position >= 0:
        stats.pin = RetentionPin(
            counts.largest_timestamp, path, counts.pin_position, counts.pin_offset, counts.pin_producer
        )


def _range(smallest: int, largest: int) -> OffsetRange:
    return OffsetRange(None if smallest == FAR else smallest, None if largest < 0 else largest)


def stats_of(
    files: Iterable[SegmentFile], settings: Settings, jobs: int = 1, progress: Progress = do_nothing
) -> Iterator[SegmentStats]:
    """Count files with at most ``jobs`` processes, in their order. Files that have vanished are skipped."""
    counted = _stats_of(list(files), settings, jobs, progress)
    return (one for one in counted if not one.result.vanished)


def _stats_of(listed: list[SegmentFile], settings: Settings, jobs: int, progress: Progress) -> Iterator[SegmentStats]:
    sizes = [size_of(file) for file in listed]
    known = [size for size in sizes if size is not None]
    if jobs == 1 or len(known) < len(sizes):
        for file in listed:
            yield segment_stats(file, settings, progress)
        return
    done, jobs = yield from first_alone(
        listed,
        known,
        jobs,
        None,
        progress,
        lambda file, meter: segment_stats(file, settings, meter.progress),
    )
    if done < len(listed):
        with process_pool(jobs) as pool:
            for counted in map_ordered(pool, segment_stats, listed[done:], repeat(settings)):
                progress(counted.stats.sums["file_bytes"])
                yield counted


@dataclass(frozen=True, slots=True)
class Level:
    """Counts of one level: ``level`` is segment, partition, log_dir or total; ``path`` is None for the total.

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
    return (os.path.dirname(partition) or ".") if _PARTITION_NAME.match(partition) else None, partition


def levels(counted: Iterable[SegmentStats], deep: bool) -> Iterator[Level]:
    """Yield each segment, each partition after its segments, each log directory after its partitions, the total last."""
    total, parts = Stats(deep), 0
    by_log_dir = groupby(counted, key=lambda one: folders_of(one.result.file)[0])
    for log_dir, in_log_dir in by_log_dir:
        of_log_dir, partitions = Stats(deep), 0
        for partition, segments in groupby(in_log_dir, key=lambda one: folders_of(one.result.file)[1]):
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
