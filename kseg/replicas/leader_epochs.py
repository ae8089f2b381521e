"""Where a follower truncates its log, from the leader epochs of both (KIP-101, KIP-279), as brokers reckon it.

Sources: ``LeaderEpochFileCache.endOffsetFor``, ``AbstractFetcherThread.getOffsetTruncationState``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kseg.beside.checkpoint_files import LeaderEpoch, walk_leader_epochs
from kseg.files.storage import open_source
from kseg.findings import Report

CHECKPOINT = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Who led a log and from where on: entries in the order of their epochs, and the log's end offset (exclusive)."""

    entries: Sequence[LeaderEpoch]
    end_offset: int

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        """The largest known epoch up to that one, and where it ended; None when there is none, as OffsetsForLeaderEpoch."""
        known = [entry for entry in self.entries if entry.epoch <= epoch]
        if not known:
            return None
        later = [entry.start_offset for entry in self.entries if entry.epoch > epoch]
        return known[-1].epoch, min(later, default=self.end_offset)

    def truncated(self, offset: int) -> Lineage:
        """What is left below that offset."""
        return Lineage([entry for entry in self.entries if entry.start_offset < offset], min(offset, self.end_offset))


def truncation_offset(follower: Lineage, leader: Lineage) -> int | None:
    """The offset that a follower would truncate its log to, under that leader.

    None where epochs don't tell, as in logs of v0 and v1: it goes to its high watermark then.
    """
    while follower.entries:
        latest = follower.entries[-1].epoch
        found = leader.end_offset_for(latest)
        if found is None:
            return None
        epoch, end = found
        own = follower.end_offset_for(epoch)
        if own is None:
            return min(end, follower.end_offset)
        own_epoch, own_end = own
        if own_epoch == epoch:
            return min(own_end, end, follower.end_offset)
        # It does not know the epoch the leader answered with: it truncates to its own smaller one, and asks again.
        shorter = follower.truncated(own_end)
        if len(shorter.entries) == len(follower.entries):
            return None
        follower = shorter
    return None


def read_checkpoint(folder: str, report: Report) -> list[LeaderEpoch]:
    """The entries of a partition folder's ``leader-epoch-checkpoint``, none where it is not there."""
    path = os.path.join(folder, CHECKPOINT)
    if not os.path.isfile(path):
        return []
    with open_source(path) as source:
        return [entry for _, entry in walk_leader_epochs(source, report)]
