"""The replicas of a partition that are repaired together: the repaired copy of each, its leader epochs, and its history.

The history is that of the log that Kafka continues.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby, repeat
from pathlib import Path
from typing import NamedTuple

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import (
    CorrectedBatch,
    DuplicateBatch,
    LostOffsets,
    LostRange,
    OffsetGap,
    PartlyKeptBatch,
)
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.findings import joined_ranges
from kseg.format.checks.batch_checks import EPOCH_RULES
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.record.layout import CONTROL, DELETE_HORIZON, INT64_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles.checkpoints import LeaderEpoch, checkpoint_offset, stored_leader_epochs
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import CLEANER_OFFSETS, LEADER_EPOCHS, base_offset_of
from kseg.format.storage.source import open_source
from kseg.format.writer.increasing_offsets import wrapped_offsets
from kseg.format.writer.output_guards import PartitionFolder
from kseg.format.writer.written_side_files import EpochRun, append_run, merged


class ReplicaBatch(NamedTuple):
    """A batch of a repaired replica. ``crc`` covers all but its offset and its ``epoch``; v0 and v1 have none: -1.

    ``cleaned``: it has a delete horizon, or fewer ``records`` than offsets. Only the log cleaner causes that.
    ``wrapper``: it is a compressed message set of v0 or v1. The cleaner changes its last offset, too.
    """

    base_offset: int
    last_offset: int
    size: int
    crc: int
    epoch: int
    path: Path
    position: int
    records: int
    cleaned: bool
    wrapper: bool

    def is_same(self, other: ReplicaBatch) -> bool:
        """Return whether both are equal except for their leader epochs."""
        return self[:4] == other[:4]

    @property
    def has_all_offsets(self) -> bool:
        """Whether it has a record at each of its offsets."""
        return self.records > self.last_offset - self.base_offset


@dataclass(frozen=True, slots=True)
class LeftOutBatches(LostRange):
    """Valid batches of a replica that the result lacks."""


#: Ranges of offsets, both inclusive, in order and apart from each other.
OffsetRanges = Sequence[tuple[int, int]]


def last_overlap(ranges: OffsetRanges, first: int, last: int) -> int:
    """Return the last offset from ``first`` to ``last`` that is in one of the ranges, -1 if none is."""
    at = bisect_right(ranges, (last, INT64_MAX)) - 1
    return min(last, ranges[at][1]) if at >= 0 and ranges[at][1] >= first else -1


@dataclass(slots=True)
class DamagedReplica:
    """A replica: ``path`` as given, ``folder`` with its repaired copy, and the ``losses`` of its repair.

    - ``found``: losses whose batches another replica has.
    - ``left_out``: its valid batches that are not used. ``removed``: by file name, the bytes that its repaired copy lacks:
      where they were in that copy, and how many are lacking up to there. ``bases``: the base offsets of its segments.
    - ``doubtful``: the offsets of batches whose leader epochs were corrected. ``epoch_of``: the epoch that another replica
      proves for a batch. ``stored``: the epochs of its checkpoint, None if none can be read, which ``unreadable`` names.
    - ``starts``: by leader epoch, the offset after the last batch before it and that of its first batch. The epoch began
      in between. ``shared``: by path of another replica, the offset after the last batch that both had with the same epoch:
      up to there, they have one history. From ``history_end`` on, its batches are of another one.
    - ``start``, ``end``: its offsets. ``missing``: those between them that it lacks since an earlier loss, as for validate.
    - ``cleaned``: the offset that the log cleaner has reached, as its batches or the checkpoint of its log directory show,
      0 if nothing shows compaction.
    """

    path: str
    folder: Path
    losses: list[LostRange] = field(default_factory=list)
    doubtful: list[LostRange] = field(default_factory=list)
    epoch_of: dict[tuple[Path, int], int] = field(default_factory=dict)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    start: int = 0
    end: int = 0
    cleaned: int = 0
    missing: list[LostOffsets] = field(default_factory=list)
    starts: dict[int, tuple[int, int]] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    stored: Sequence[LeaderEpoch] | None = None
    left_out: list[LeftOutBatches] = field(default_factory=list)
    found: list[LostRange] = field(default_factory=list)
    removed: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    history_end: int | None = None
    unreadable: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[ReplicaBatch]:
        """Yield the batches of its history, in the order of their offsets."""
        for name in PartitionFolder(self.folder).logs:
            path = self.folder / name
            opener = DeepIterator()
            with SegmentReader(open_source(str(path)), verify_crc=False) as reader:
                for window in reader.windows():
                    for batch in _batches_in(window, path, opener):
                        if batch.last_offset >= self.end:
                            return
                        yield batch

    def has_records_without_key(self) -> bool:
        """Return whether a data record is without a key: the cleaner removes these, so the log is not compacted."""
        for name in PartitionFolder(self.folder).logs:
            for chunk in chunks_of(open_source(str(self.folder / name))):
                records, attributes = chunk.records, chunk.batches.attributes
                sizes = zip(records.key_size[: records.count], records.batch[: records.count], strict=True)
                if any(size < 0 and not attributes[row] & CONTROL for size, row in sizes):
                    return True
        return False

    def end_of_unknown_offsets(self) -> list[LostRange]:
        """Return its losses after its last batch whose last offsets nothing shows, none if that batch does not count."""
        rows = [loss for loss in self.losses if loss.last_offset is None and self.offsets_of(loss.file)[1] is None]
        if not rows or self.history_end is not None:
            return []
        last = deque(self.batches(), 1)
        end = (base_offset_of(last[0].path.name) or 0, self._source_position(last[0])) if last else (0, 0)
        return [row for row in rows if (base_offset_of(row.file) or 0, row.position) >= end]

    def is_other_history(self, loss: LostRange) -> bool:
        """Return whether a loss is of batches that do not count anyway."""
        if self.history_end is None or isinstance(loss, LeftOutBatches):
            return False
        return self.lost_offsets(loss)[0] >= self.history_end

    def lost_offsets(self, loss: LostRange) -> tuple[int, int | None]:
        """Return the first and the last offset that a loss can have had: those of its segment if its own are unknown."""
        low, high = self.offsets_of(loss.file)
        if loss.last_offset is not None:
            high = loss.last_offset
        return low if loss.offset is None else loss.offset, high

    def leave_out(self, batches: Iterable[ReplicaBatch], why: str) -> None:
        """Add a loss for each file of these batches, which are readable here, but are not in the result."""
        for _, group in groupby(batches, key=lambda batch: batch.path):
            own = [*group]
            self.left_out.append(LeftOutBatches(*self.place_of(own[0], own[-1]), "missing-batches", why))

    def place_of(self, first: ReplicaBatch, last: ReplicaBatch) -> tuple[str, int, int, int, int]:
        """Return file, first byte, byte after the end, first and last offset of batches of one file in the source."""
        begin, end = self._source_position(first), self._source_position(last) + last.size
        return os.path.join(self.path, first.path.name), begin, end, first.base_offset, last.last_offset

    def _source_position(self, batch: ReplicaBatch) -> int:
        """Return the position of a batch in the damaged file: the repaired one lacks the lost bytes before it."""
        removed = self.removed.get(batch.path.name, ())
        at = bisect_right(removed, (batch.position, INT64_MAX))
        return batch.position + (removed[at - 1][1] if at else 0)

    def offsets_of(self, file: str) -> tuple[int, int | None]:
        """Return the first offset of a segment, and the last one that it can have."""
        base = base_offset_of(file) or 0
        following = self.bases[bisect_right(self.bases, base) :][:1]
        return base, following[0] - 1 if following else None


def _batches_in(window: Window, path: Path, opener: DeepIterator) -> Iterator[ReplicaBatch]:
    rows = window.batches
    wrapped = wrapped_offsets(window, opener)
    for row in range(rows.count):
        modern, last, records = rows.magic[row] >= 2, rows.last_offset[row], 1
        first = rows.base_offset[row] if modern else last
        if modern:
            records = rows.record_count[row]
        elif row in wrapped:
            first, records = min(wrapped[row][0], last), rows.record_sum[row]
        cleaned = records <= last - first or (modern and bool(rows.attributes[row] & DELETE_HORIZON))
        epoch = rows.partition_leader_epoch[row] if modern else -1
        yield ReplicaBatch(
            first, last, rows.size[row], rows.crc[row], epoch, path, rows.position[row], records, cleaned, row in wrapped
        )  # fmt: skip


def repaired_replica(path: str, folder: Path, plan: RepairPlan, progress: Progress) -> DamagedReplica:
    """Repair a replica by itself. A correction or a duplicate is not a loss."""
    folder.parent.mkdir(parents=True)
    replica = DamagedReplica(path, folder)

    def keep(row: LostRange) -> None:
        if row.rule in EPOCH_RULES:
            replica.doubtful.append(row)
        elif isinstance(row, LostOffsets) and row.rule == "missing-batches":
            replica.missing.append(row)  # the repair of the result names what no replica has
            return
        elif not isinstance(row, (CorrectedBatch, DuplicateBatch, OffsetGap)):
            replica.losses.append(row)
        if not isinstance(row, (CorrectedBatch, PartlyKeptBatch, LostOffsets, OffsetGap)):
            replica.removed.setdefault(os.path.basename(row.file), []).append((row.position, row.end))

    done = repair(path, str(folder), replace(plan, dry_run=False), keep, progress)
    folder.mkdir(exist_ok=True)  # none of its batches is valid
    ends = [one.last_offset + 1 for one in done.segments if one.last_offset is not None]
    replica.end = max(ends, default=0)
    replica.bases = sorted(base_offset_of(name) or 0 for name in PartitionFolder(Path(path), finish=True).logs)
    replica.start = min(replica.bases, default=0)
    replica.unreadable = [os.path.join(path, line) for line in done.left_out if line.startswith(LEADER_EPOCHS)]
    for name, ranges in replica.removed.items():
        total = 0
        replica.removed[name] = [(begin - total, total := total + end - begin) for begin, end in sorted(ranges)]
    replica.stored = stored_leader_epochs(Path(path))
    replica.cleaned = min(checkpoint_offset(path, CLEANER_OFFSETS) or 0, replica.end)
    return replica


def settle_epochs(replicas: Sequence[DamagedReplica]) -> None:
    """Find the leader epochs of batches that replicas have with different ones, and those of each replica.

    No CRC covers an epoch, and a wrong one would decide which replica has the history that counts. The epoch of most
    replicas is right. Of two, it is the lower one: a damaged epoch that is lower than the one before is corrected already.
    The repair of one replica has replaced epochs below 0, which proves nothing about its history. Kafka 4 writes -1 where it
    converts v0 and v1.

    A broker removes entries of its checkpoint at or after the log end when it loads the log
    (``LeaderEpochFileCache.truncateFromEnd``). Here they stay: the broker had that epoch, and the log was cut later.
    """
    runs: list[list[EpochRun]] = [[] for _ in replicas]
    ends = [replica.start for replica in replicas]
    doubtful = [_offsets_of_rows(replica.doubtful) for replica in replicas]
    ordered = merge(*(_numbered(n, replica) for n, replica in enumerate(replicas)), key=lambda one: one[1].base_offset)
    for _, group in groupby(ordered, key=lambda one: one[1].base_offset):
        batches = [*group]
        certain = [(m, one) for m, one in batches if last_overlap(doubtful[m], one.base_offset, one.base_offset) < 0]
        _share(replicas, certain)
        for n, batch in batches:
            votes = Counter(other.epoch for _, other in certain if other.is_same(batch))
            epoch = min(votes, key=lambda one: (-votes[one], one), default=batch.epoch)
            if epoch != batch.epoch:
                replicas[n].epoch_of[batch.path, batch.position] = epoch
            replicas[n].cleaned = max(replicas[n].cleaned, batch.last_offset + 1 if batch.cleaned else 0)
            epoch = replicas[n].epoch_of.get((batch.path, batch.position), batch.epoch)
            if epoch > (runs[n][-1][0] if runs[n] else -1):
                replicas[n].starts[epoch] = min(ends[n], batch.base_offset), batch.base_offset
            ends[n] = batch.last_offset + 1
            if epoch >= 0:
                append_run(runs[n], [epoch, batch.base_offset, batch.last_offset])
    for replica, found in zip(replicas, runs, strict=True):
        entries = merged(replica.stored or (), found, None)
        replica.epochs = LeaderEpochCache(entries, replica.end)


def _share(replicas: Sequence[DamagedReplica], batches: Sequence[tuple[int, ReplicaBatch]]) -> None:
    """Add to ``shared`` those of the batches with one base offset that several replicas have with the same epoch."""
    for n, batch in batches:
        for m, other in batches:
            if n != m and batch.is_same(other) and batch.epoch == other.epoch >= 0:
                replicas[n].shared[replicas[m].path] = batch.last_offset + 1


def _numbered(n: int, replica: DamagedReplica) -> Iterator[tuple[int, ReplicaBatch]]:
    """Yield the batches of the n-th replica with their epochs, -1 for those that had none."""
    negative = _offsets_of_rows(row for row in replica.doubtful if row.rule == "negative-leader-epoch")
    for batch in replica.batches():
        has_none = last_overlap(negative, batch.base_offset, batch.base_offset) >= 0
        yield n, batch._replace(epoch=-1) if has_none else batch


def _offsets_of_rows(rows: Iterable[LostRange]) -> OffsetRanges:
    return joined_ranges((row.offset, row.last_offset or 0) for row in rows if row.offset is not None)


def end_other_histories(replicas: Sequence[DamagedReplica]) -> dict[str, int]:
    """End each replica where it would truncate under the first one; return these offsets of those with later batches.

    A replica without an epoch of the first one ends before it, also if lost batches hide where that epoch began: its
    batches there can be of another history, and are a loss. So are batches of a later epoch than the first one has: it
    is first because it is preferred. Batches of v0 and v1 have no epoch, so they prove nothing about the history.
    """
    leader, found = replicas[0], {}
    unknown = _settle_starts(replicas)
    # Where its log ends is not where its last epoch ends: a replica can have more of that epoch, or a later one.
    endless = LeaderEpochCache(leader.epochs.entries, INT64_MAX)
    for replica in replicas[1:]:
        offset = truncation_offset(replica.epochs, endless)
        later = replica.epochs.latest > leader.epochs.latest
        if offset is not None and offset < replica.end and not (later and offset >= leader.end):
            if later:
                why = f"{leader.path} is preferred, and has another history than leader epoch {replica.epochs.latest}"
                replica.leave_out((batch for batch in replica.batches() if batch.last_offset >= offset), why)
            found[replica.path] = replica.end = replica.history_end = offset
        for epoch, low, first in unknown:
            own = [one for one, (_, at) in replica.starts.items() if at < replica.end]  # it can have been cut above
            if low < replica.end and own and max(own) < epoch:
                why = (
                    f"leader epoch {epoch} of {leader.path} began between offsets {low} and {first}, and no batch and no "
                    f"checkpoint shows where: {replica.path} has no batch of it, so those there may be of another history"
                )
                replica.leave_out((batch for batch in replica.batches() if batch.last_offset >= low), why)
                replica.end = low
    return found


def _settle_starts(replicas: Sequence[DamagedReplica]) -> list[tuple[int, int, int]]:
    """Set the first offsets of the first replica's epochs by what all replicas show, and return those that stay unknown.

    Each is (epoch, lowest, highest possible first offset). A checkpoint shows the first offset, unless batches contradict
    it. Otherwise the epoch began after the last batch before it and not after its first batch, in each replica that has it.
    An epoch of which the first replica lost all batches is one of its epochs if another replica of its history has it.
    """
    leader = replicas[0]
    ends = _history_ends(replicas)
    own = dict(leader.epochs.entries)
    for replica, end in zip(replicas, ends, strict=True):
        own |= {epoch: first for epoch, (_, first) in replica.starts.items() if first < end and epoch not in own}
    unknown: list[tuple[int, int, int]] = []
    entries: list[LeaderEpoch] = []
    for epoch, start in sorted(own.items()):
        ranges = [replica.starts[epoch] for replica in replicas if epoch in replica.starts]
        low, first = max((low for low, _ in ranges), default=start), min((at for _, at in ranges), default=start)
        low = max(low, *map(_end_before, replicas, ends, repeat(epoch))) if ranges else low
        stored = [
            entry.start_offset
            for replica in replicas
            for entry in replica.stored or ()
            if entry.epoch == epoch and low <= entry.start_offset <= first
        ]
        if low < first and not stored:
            unknown.append((epoch, low, first))
        entries.append(LeaderEpoch(epoch, min(start, *stored, first)))
    leader.epochs = LeaderEpochCache(entries, leader.epochs.log_end)
    return unknown


def _history_ends(replicas: Sequence[DamagedReplica]) -> list[int]:
    """Return up to which offset the history of each replica is proved to be that of the first one.

    A leader epoch has one leader, so replicas that have a batch of it in common have the same batches before it.
    """
    ends = [replicas[0].end, *[0] * (len(replicas) - 1)]
    for _ in replicas[1:]:
        for n, replica in enumerate(replicas):
            shared = (min(replica.shared.get(other.path, 0), end) for other, end in zip(replicas, ends, strict=True))
            ends[n] = max(ends[n], *shared)
    return ends


def _end_before(replica: DamagedReplica, end: int, epoch: int) -> int:
    """Return the offset up to which the batches of a replica that are before ``end`` are older than a leader epoch."""
    later = [low for one, (low, first) in replica.starts.items() if one >= epoch and first < end]
    return min(later, default=end)
