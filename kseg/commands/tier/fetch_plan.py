"""Which offsets of which remote segments make a partition again.

Two leaders upload their own segments of the same offsets (KAFKA-15168). A broker finds one by leader epoch and offset, and
skips the batches before the offset that it needs (``RemoteLogManager.read``). Here segments are cut instead: each offset is
in one piece, and all pieces are of the history with the newest leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from kseg.commands.tier.remote_segments import (
    LOG,
    EpochStart,
    RemoteSegment,
    epochs_within,
    newest_lineage,
    ranges_in,
    remote_segments,
)
from kseg.errors import UnreadableError, UsageError
from kseg.format.record.columns import CRC_BAD
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import HARMLESS, REMOTE_LEADER_EPOCHS, walk_leader_epochs
from kseg.format.sidefiles.log_end import last_valid_batch
from kseg.format.sidefiles.side_file_reading import entries_of
from kseg.format.storage.source import open_range, stored_size
from kseg.format.writer.written_side_files import EpochRun, append_runs

#: Why a log is left out: it cannot be read at all.
NO_BATCH = "it has no valid batch"
_REPEATED = "other segments have its offsets"
_NO_EPOCHS = "it is damaged: the leader epochs are those of the batches"
# The leader epoch of batches that have none, v0 and v1.
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A segment with the offset after its last record, the bytes of its log, and the lineage of its log up to its end."""

    segment: RemoteSegment
    log_end: int
    size: int
    lineage: tuple[EpochStart, ...]

    def epochs(self, first: int) -> list[EpochStart]:
        """Return the leader epochs from offset ``first`` to the end.

        The first one reaches back to any offset: a broker moves its start when it deletes the records before it.
        """
        last = self.log_end - 1
        (epoch, _), *later = epochs_within(self.lineage, first, last) or self.lineage[:1]
        return [(epoch, first), *later]


@dataclass(frozen=True, slots=True)
class UploadPiece:
    """Offsets ``first`` to ``end`` (exclusive) of an upload, and the bytes ``begin`` to ``stop`` of its log."""

    upload: Uploaded
    first: int
    end: int
    begin: int
    stop: int

    @property
    def segment(self) -> RemoteSegment:
        """The segment of the upload."""
        return self.upload.segment

    @property
    def size(self) -> int:
        """The bytes of the piece."""
        return self.stop - self.begin

    @property
    def has_end(self) -> bool:
        """Whether the piece has the end of the segment, which its producer snapshot describes."""
        return self.end == self.upload.log_end

    @property
    def is_whole(self) -> bool:
        """Whether the piece is the whole segment."""
        return self.has_end and not self.begin and self.first == self.segment.base


class LeftOut(NamedTuple):
    """An object, or a part of it, that is not written. ``is_damage``: records can be missing because of it."""

    path: str
    why: str
    is_damage: bool = False


@dataclass(slots=True)
class FetchedPartition:
    """A partition as it is written: ``pieces`` in the order of their offsets, and the lineage of their history.

    ``holes`` are ranges of offsets between the pieces, both inclusive.
    """

    topic: str
    topic_id: str
    partition: int
    pieces: list[UploadPiece] = field(default_factory=list)
    lineage: list[EpochStart] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_incomplete(self) -> bool:
        """Whether records of the history can be missing."""
        return bool(self.holes) or any(one.is_damage for one in self.left_out)

    @property
    def size(self) -> int:
        """The bytes of its logs."""
        return sum(one.size for one in self.pieces)


def plan_fetch(source: str, wanted: Sequence[str] = ()) -> list[FetchedPartition]:
    """Return the partitions of a bucket, or the ``wanted`` ones (``topic-0``), with the pieces to write.

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
    plans = [_plan(FetchedPartition(*key), list(segments)) for key, segments in by_id]
    for one, other in pairwise(plans):
        if one.name == other.name:
            raise UsageError(
                f"{source} has {one.name} of two topics, {one.topic_id} and {other.topic_id}: give the folder of one of them"
            )
    return plans


def _plan(found: FetchedPartition, segments: Sequence[RemoteSegment]) -> FetchedPartition:
    uploads = list(_uploads(segments, found.left_out))
    found.lineage = newest_lineage((one.lineage, one.log_end) for one in uploads)
    parts = [_part_of_history(one, found.lineage) for one in uploads]
    found.pieces = list(_without_overlaps([part for part in parts if part.end > part.first]))
    used = {one.segment.segment_id for one in found.pieces}
    for part in parts:
        if not part.has_end:
            found.left_out.append(LeftOut(part.segment.path(LOG), _other_history(part, found.lineage)))
        elif part.segment.segment_id not in used:
            found.left_out.append(LeftOut(part.segment.path(LOG), _REPEATED))
    for one, following in pairwise(found.pieces):
        if one.end < following.first:
            found.holes.append((one.end, following.first - 1))
    return found


def _uploads(segments: Sequence[RemoteSegment], left_out: list[LeftOut]) -> Iterator[Uploaded]:
    for segment in segments:
        if LOG not in segment.files:
            left_out.append(LeftOut(f"{segment.folder}/{min(segment.files.values())}", "its log is missing", True))
            continue
        path = segment.path(LOG)
        size = stored_size(path) or 0
        end = last_valid_batch(path, size).offset
        if end > segment.base:
            yield Uploaded(segment, end, size, tuple(_leader_epochs(segment, size, left_out)))
        else:
            left_out.append(LeftOut(path, NO_BATCH, True))


def _leader_epochs(segment: RemoteSegment, size: int, left_out: list[LeftOut]) -> list[EpochStart]:
    """Return the lineage of a segment's partition up to its end: from its object, or from its batches."""
    if REMOTE_LEADER_EPOCHS in segment.files:
        path = segment.path(REMOTE_LEADER_EPOCHS)
        try:
            return [*entries_of(path, walk_leader_epochs, HARMLESS)] or [(_NO_EPOCH, segment.base)]
        except ValueError:
            left_out.append(LeftOut(path, _NO_EPOCHS, True))
    runs: list[EpochRun] = []
    log = segment.path(LOG)
    with SegmentReader(open_range(log, 0, size)) as reader:
        for window in reader.windows():
            for row in range(window.batches.count):
                if window.batches.crc_state[row] != CRC_BAD:
                    append_runs(runs, window.batches, row, row + 1)
    return [(epoch, first) for epoch, first, _ in runs] or [(_NO_EPOCH, segment.base)]


def _end_of_history(upload: Uploaded, lineage: Sequence[EpochStart]) -> int:
    """Return the first offset of an upload that a leader of another history wrote, its log end without one."""
    end = base = upload.segment.base
    (oldest, _), *later = lineage
    for begin, stop in ranges_in(upload.epochs(base), upload.log_end - 1, [(oldest, 0), *later]):
        if begin > end:
            break
        end = stop + 1
    return end


def _part_of_history(upload: Uploaded, lineage: Sequence[EpochStart]) -> UploadPiece:
    """Return the start of an upload, up to the first offset that a leader of another history wrote."""
    base, end = upload.segment.base, _end_of_history(upload, lineage)
    if end == upload.log_end:
        return UploadPiece(upload, base, end, 0, upload.size)
    # A damaged batch can contain the offset: the piece ends at the last batch before it.
    cut = last_valid_batch(upload.segment.path(LOG), upload.size, below=end)
    return UploadPiece(upload, base, cut.offset, 0, cut.position)


def _other_history(part: UploadPiece, lineage: Sequence[EpochStart]) -> str:
    """Return why the end of an upload is left out."""
    last = part.upload.log_end - 1
    begins = _end_of_history(part.upload, lineage)
    old, _ = part.upload.epochs(begins)[0]
    new, start = max(one for one in lineage if one[1] <= begins or one == lineage[0])
    inside = f", which begins at offset {begins:,} inside a batch" if begins > part.end else ""
    return (
        f"offsets {part.end:,} to {last:,} belong to another history{inside}: of leader epoch {old}, "
        f"while the newest history has leader epoch {new} from offset {start:,}"
    )


def _without_overlaps(parts: Sequence[UploadPiece]) -> Iterator[UploadPiece]:
    """Yield pieces that have each offset once: of the parts with the next offset, the one that reaches farthest."""
    ordered = sorted(parts, key=lambda one: one.first)
    best: UploadPiece | None = None
    at = n = 0
    while True:
        while n < len(ordered) and ordered[n].first <= at:
            # Of two parts with one end, the later one needs to be cut less.
            if best is None or ordered[n].end >= best.end:
                best = ordered[n]
            n += 1
        if best is not None and best.end > at:
            yield _from(best, at)
            at = best.end
        elif n < len(ordered):
            at = ordered[n].first
        else:
            return


def _from(part: UploadPiece, first: int) -> UploadPiece:
    """Return the piece without the batches before an offset."""
    if first == part.first:
        return part
    begin = last_valid_batch(part.segment.path(LOG), part.upload.size, below=first).position
    return UploadPiece(part.upload, first, part.end, begin, part.stop)
