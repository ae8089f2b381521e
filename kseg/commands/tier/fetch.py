"""``kseg tier fetch``: partitions of tiered storage as folders that a broker loads.

The producer snapshot and the leader epochs of a remote segment are those of its end (``RemoteLogManager.copyLogSegment``):
they get the names that a broker gives them, and the epochs of the last segment are those of the partition.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from kseg.commands.tier.remote_segments import LOG, RemoteSegment, remote_segments
from kseg.errors import UnreadableError, UsageError
from kseg.extras import archive, tiered_view
from kseg.findings import do_nothing
from kseg.format.sidefiles.checkpoints import REMOTE_LEADER_EPOCHS
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.storage import file_access, local_files
from kseg.format.storage.atomic_write import NewFile, sync_folder, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import INDEX_SUFFIXES, LEADER_EPOCHS, PARTITION_METADATA
from kseg.format.storage.source import stored_size

_PIECE = 1 << 20
#: Why a log is left out: nothing of it can be read.
NO_BATCH = "it has no valid batch"
_REPEATED = "other segments have its offsets"
_SNAPSHOT = ".snapshot"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A segment with the offset after its last record, and the bytes of its log."""

    segment: RemoteSegment
    end: int
    size: int


@dataclass(slots=True)
class FetchedPartition:
    """A partition as it is written: ``uploads`` in the order of their offsets.

    ``holes`` are ranges of offsets between them, both inclusive. ``left_out`` are objects that another segment makes
    superfluous, or without a batch, with the reason.
    """

    topic: str
    topic_id: str
    partition: int
    uploads: list[Uploaded]
    holes: list[tuple[int, int]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_incomplete(self) -> bool:
        """Whether a segment could not be used, and no other one has its offsets."""
        return any(why != _REPEATED for _, why in self.left_out)

    @property
    def size(self) -> int:
        """The bytes of its logs."""
        return sum(one.size for one in self.uploads)


def plan_fetch(source: str, wanted: Sequence[str] = ()) -> list[FetchedPartition]:
    """Return the partitions of a bucket, or the ``wanted`` ones (``topic-0``), with the segments to write.

    Raises UsageError for a wanted partition that is missing, and if two topic ids have one name. Raises UnreadableError.
    """
    found = sorted(
        (one for one in remote_segments(source, decoded=True) if not wanted or one.name in wanted),
        key=lambda one: (one.topic, one.partition, one.topic_id, one.base),
    )
    if missing := [name for name in wanted if name not in {one.name for one in found}]:
        raise UsageError(f"--partition {missing[0]}: {source} has no segment of it")
    if not found:
        raise UnreadableError(f"{source}: no segment of tiered storage found")
    by_id = groupby(found, key=lambda one: (one.topic, one.topic_id, one.partition))
    plans = [_plan(*key, list(segments)) for key, segments in by_id]
    for one, other in pairwise(plans):
        if one.name == other.name:
            raise UsageError(
                f"{source} has {one.name} of two topics, {one.topic_id} and {other.topic_id}: give the folder of one of them"
            )
    return plans


def _plan(topic: str, topic_id: str, partition: int, segments: Sequence[RemoteSegment]) -> FetchedPartition:
    found = FetchedPartition(topic, topic_id, partition, [])
    uploads = []
    for segment in segments:
        if LOG not in segment.files:
            found.left_out.append((f"{segment.folder}/{min(segment.files.values())}", "its log is missing"))
            continue
        path = segment.path(LOG)
        size = stored_size(path) or 0
        end = last_valid_batch(path, size).offset
        if end > segment.base:
            uploads.append(Uploaded(segment, end, size))
        else:
            found.left_out.append((path, NO_BATCH))
    found.uploads = _without_overlaps(uploads)
    chosen = {one.segment.segment_id for one in found.uploads}
    found.left_out += [(one.segment.path(LOG), _REPEATED) for one in uploads if one.segment.segment_id not in chosen]
    for one, following in pairwise(found.uploads):
        if one.end < following.segment.base:
            found.holes.append((one.end, following.segment.base - 1))
    return found


def _without_overlaps(uploads: Sequence[Uploaded]) -> list[Uploaded]:
    """Return the segments that together have the most offsets, each of them once.

    Two leaders upload their own segments of the same offsets (KAFKA-15168). This is the scheduling of weighted intervals.
    """
    ordered = sorted(uploads, key=lambda one: one.end)
    ends = [one.end for one in ordered]
    # For the first n segments: the most offsets, and whether the last one of them is used.
    most, used = [0], [False]
    before = [bisect_left(ends, one.segment.base + 1) for one in ordered]
    for n, one in enumerate(ordered):
        with_it = most[before[n]] + one.end - one.segment.base
        used.append(with_it > most[n])
        most.append(max(with_it, most[n]))
    chosen, n = [], len(ordered)
    while n:
        if used[n]:
            chosen.append(ordered[n - 1])
            n = before[n - 1]
        else:
            n -= 1
    return chosen[::-1]


def write_partitions(
    plans: Sequence[FetchedPartition], target: Path, progress: Progress = do_nothing, *, skip_damaged: bool = False
) -> int:
    """Write partition folders into the new folder ``target``, all or nothing; return the number of damaged chunks.

    ``progress`` is called with bytes of logs. Raises KsegError if the folder exists or cannot be written, for an object that
    cannot be read, and for a chunk that cannot be decoded, unless ``skip_damaged``: its bytes are then 0xff.
    """
    damaged = 0
    with whole_folder(target, replace=False) as folder, writing(target):
        for plan in plans:
            home = folder / plan.name
            home.mkdir()
            for upload in plan.uploads:
                for source, name in _files_of(upload):
                    damaged += _copy(source, home / name, strict=not skip_damaged)
                progress(upload.size)
            epochs = [one for one in plan.uploads if REMOTE_LEADER_EPOCHS in one.segment.files]
            if epochs:
                source = epochs[-1].segment.path(REMOTE_LEADER_EPOCHS)
                damaged += _copy(source, home / LEADER_EPOCHS, strict=not skip_damaged)
            with NewFile(home / PARTITION_METADATA) as out:
                out.file.write(f"version: 0\ntopic_id: {plan.topic_id}".encode())
                out.sync()
            sync_folder(home)
    return damaged


def _files_of(upload: Uploaded) -> Iterator[tuple[str, str]]:
    """Yield the files of a segment and their names in a partition folder."""
    segment = upload.segment
    for suffix in (LOG, *INDEX_SUFFIXES):
        if suffix in segment.files:
            yield segment.path(suffix), f"{segment.base:020}{suffix}"
    if _SNAPSHOT in segment.files:
        yield segment.path(_SNAPSHOT), f"{upload.end:020}{_SNAPSHOT}"


def _copy(source: str, target: Path, *, strict: bool) -> int:
    """Copy a file or a decoded file to a new, synced file; return the number of damaged chunks. Raises KsegError."""
    member = archive.member_at(source)
    opened: Any = member.open(strict=strict) if isinstance(member, tiered_view.DecodedMember) else None
    with writing(target), opened or local_files.open_file(source, named=False) as file, NewFile(target) as out:
        while data := _read(file, source):
            out.file.write(data)
        out.sync()
    return opened.damaged if opened else 0


def _read(file: Any, source: str) -> bytes:
    """Read a piece. An error of the source must not be taken for one of the target."""
    try:
        data: bytes = file.read(_PIECE)
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from error
    file_access.current().limit.wait_for(len(data))
    return data


def target_of(plan: FetchedPartition, target: str | None) -> str:
    """Return the folder of a partition in the result."""
    return os.path.join(target or "", plan.name)
