"""The leader epochs of the replicas of a partition, and the history of the log that Kafka continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby

from kseg.commands.repair.damaged_replicas import DamagedReplica, ReplicaBatch
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.writer.written_side_files import EpochRun, append_run, merged


def settle_epochs(replicas: Sequence[DamagedReplica]) -> None:
    """Find the leader epochs of batches that replicas have with different ones, and those of each replica.

    No CRC covers an epoch, and a wrong one would decide which replica has the history that counts. The epoch of most
    replicas is right. Of two, it is the lower one: a damaged epoch that is lower than the one before is corrected already.

    A broker removes entries of its checkpoint at or after the log end when it loads the log
    (``LeaderEpochFileCache.truncateFromEnd``). Here they stay: the broker had that epoch, and the log was cut later.
    """
    runs: list[list[EpochRun]] = [[] for _ in replicas]
    ends = [replica.start for replica in replicas]
    ordered = merge(*(_numbered(n, replica) for n, replica in enumerate(replicas)), key=lambda one: one[1].base_offset)
    for _, group in groupby(ordered, key=lambda one: one[1].base_offset):
        batches = [*group]
        for n, batch in batches:
            votes: Counter[int] = Counter()
            for m, other in batches:
                votes[other.epoch] += other.is_same(batch) and not _is_doubtful(replicas[m], other)
            epoch = min(votes, key=lambda one: (-votes[one], one))
            if votes[epoch] and epoch != batch.epoch:
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


def _numbered(n: int, replica: DamagedReplica) -> Iterator[tuple[int, ReplicaBatch]]:
    return ((n, batch) for batch in replica.batches())


def _is_doubtful(replica: DamagedReplica, batch: ReplicaBatch) -> bool:
    return any(
        row.offset is not None and row.offset <= batch.base_offset <= (row.last_offset or 0) for row in replica.doubtful
    )


def end_other_histories(replicas: Sequence[DamagedReplica]) -> dict[str, int]:
    """End each replica where it would truncate under the first one; return these offsets of those with later batches.

    A replica without an epoch of the first one ends before it, also if lost batches hide where that epoch began: its
    batches there can be of another history, and are a loss. So are batches of a later epoch than the first one has: it
    is first because it is preferred.
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
            if low < replica.end and max(replica.starts, default=-1) < epoch:
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
    """
    leader = replicas[0]
    unknown: list[tuple[int, int, int]] = []
    entries: list[LeaderEpoch] = []
    for epoch, start in leader.epochs.entries:
        ranges = [replica.starts[epoch] for replica in replicas if epoch in replica.starts]
        low, first = max((low for low, _ in ranges), default=start), min((at for _, at in ranges), default=start)
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
