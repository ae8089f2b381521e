"""The offset to which a follower truncates its log, from the leader epochs of both replicas (KIP-101, KIP-279).

Sources: ``LeaderEpochFileCache.endOffsetFor``, ``AbstractFetcherThread.getOffsetTruncationState``.
"""

from __future__ import annotations

import os

from kseg.findings import Report
from kseg.format.log_loader.leader_epochs import LeaderEpochCache
from kseg.format.sidefiles.checkpoints import LEADER_EPOCHS, LeaderEpoch, walk_leader_epochs
from kseg.format.storage import local_files
from kseg.format.storage.source import open_source


def truncation_offset(follower: LeaderEpochCache, leader: LeaderEpochCache) -> int | None:
    """Return the offset to which ``follower`` would truncate its log under ``leader``.

    None if the leader epochs do not decide it, as in logs of v0 and v1: the follower then truncates to its high watermark.
    """
    while follower.entries:
        latest = follower.entries[-1].epoch
        found = leader.end_offset_for(latest)
        if found is None:
            return None
        epoch, end = found
        own = follower.end_offset_for(epoch)
        if own is None:
            return min(end, follower.log_end)
        own_epoch, own_end = own
        if own_epoch == epoch:
            return min(own_end, end, follower.log_end)
        # The follower does not know the epoch of the answer: it truncates to its own smaller epoch and asks again.
        shorter = LeaderEpochCache(follower.entries, min(own_end, follower.log_end))
        shorter.truncate_from_end(0, own_end)
        if len(shorter.entries) == len(follower.entries):
            return None
        follower = shorter
    return None


def read_checkpoint(folder: str, report: Report) -> list[LeaderEpoch]:
    """Return the entries of a partition folder's ``leader-epoch-checkpoint``; none if the file does not exist."""
    path = os.path.join(folder, LEADER_EPOCHS)
    if not local_files.is_file(path):
        return []
    with open_source(path, listed=True) as source:
        return [entry for _, entry in walk_leader_epochs(source, report)]
