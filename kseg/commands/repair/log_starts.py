"""Write the ``log-start-offset-checkpoint`` of a repaired log directory.

Without it, a broker starts each log at the base offset of its first segment: records that were deleted are readable again.
Source: ``LogManager.checkpointLogStartOffsetsInDir``, ``LeaderEpochFileCache.truncateFromStart`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kseg.commands.repair.report import RepairResult, SegmentRepair
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.segment.reader import SegmentReader
from kseg.format.sidefiles.checkpoints import VERSION, walk_offset_checkpoint
from kseg.format.sidefiles.log_dir_names import LOG_STARTS, META
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.naming import base_offset_of, partition_of
from kseg.format.storage.source import open_source
from kseg.format.writer import epoch_checkpoint
from kseg.text import count_of

_Key = tuple[str, int]


def write_log_starts(source: Path, target: Path, result: RepairResult) -> bool:
    """Write the log starts of the partitions in ``target``, and describe each in ``result``. Return whether there are any.

    A line is that of the source's checkpoint. Without a readable one it is the start that the leader epochs prove. Lines of
    other partitions that ``target`` has already are kept. Raises KsegError.
    """
    stored, whole = _read(source / LOG_STARTS)
    starts: dict[_Key, int] = {}
    unproved = 0
    for folder, segments in _by_folder(result.segments).items():
        partition = partition_of(folder.name)
        if partition is None or partition.state is not None or not folder.is_dir():
            continue
        key = partition.topic, partition.partition
        end = max(filter(None, map(_end_of, segments)), default=0)
        start, why = stored.get(key), f"from {LOG_STARTS}"
        if start is not None and start > end:
            result.log_starts.append(f"{folder.name}: {start} is not kept, because the log ends at {end}")
            start = None
        if start is None and not whole:
            start, why = _proved_start(source / folder.name, segments), "proved by the leader epochs"
        if start is None:
            unproved += not whole
        else:
            starts[key] = start
            result.log_starts.append(f"{folder.name}: {start} ({why})")
    if unproved and (source / META).exists():
        result.log_starts.append(
            f"nothing proves that of {count_of(unproved, 'partition')}: records that were deleted from the first segment "
            "can become readable again"
        )
    if not starts:
        return False
    others = _read(target / LOG_STARTS)[0]
    lines = [f"{topic} {number} {offset}" for (topic, number), offset in sorted({**others, **starts}.items())]
    with whole_file(target / LOG_STARTS) as out:
        out.write("".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode())
    return True


def _read(path: Path) -> tuple[dict[_Key, int], bool]:
    """Return the offsets in the readable lines of a checkpoint, and whether the file exists without an error."""
    found: list[Finding] = []
    offsets: dict[_Key, int] = {}
    if not os.path.isfile(path):
        return {}, False
    try:
        with open_source(str(path)) as source:
            for _, entry in walk_offset_checkpoint(source, found.append):
                offsets[entry.topic, entry.partition] = entry.offset
    except KsegError:
        return offsets, False
    return offsets, not found and path.stat().st_size > 0


def _by_folder(segments: Iterable[SegmentRepair]) -> dict[Path, list[SegmentRepair]]:
    found: dict[Path, list[SegmentRepair]] = {}
    for segment in segments:
        if segment.target:
            found.setdefault(Path(segment.target).parent, []).append(segment)
    return found


def _end_of(segment: SegmentRepair) -> int | None:
    return base_offset_of(segment.target) if segment.last_offset is None else segment.last_offset + 1


def _proved_start(source: Path, segments: Iterable[SegmentRepair]) -> int | None:
    """Return a log start that the source's leader epochs prove, None without a proof.

    The first epoch starts inside a batch only if records were deleted up to there: leaders and followers begin an epoch at
    the base offset of a batch. A start at the base offset of a later batch proves nothing, because a follower that lost
    its checkpoint begins a new one there.
    """
    entries = epoch_checkpoint.stored(source)
    if not entries:
        return None
    epoch, start = entries[0]
    for segment in segments:
        if segment.first_offset is None or not segment.first_offset < start <= (segment.last_offset or 0):
            continue
        with SegmentReader(open_source(segment.target)) as reader:
            for window in reader.windows():
                rows = window.batches
                for row in range(rows.count):
                    if rows.magic[row] >= 2 and rows.base_offset[row] < start <= rows.last_offset[row]:
                        return start if rows.partition_leader_epoch[row] == epoch else None
    return None
