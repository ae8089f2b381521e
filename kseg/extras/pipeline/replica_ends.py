"""Where the replicas of a partition leave its history: a former leader has records that no consumer got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.source_listing import SourceReplica
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.checkpoints import stored_leader_epochs


def without_former_leaders(
    replicas: Sequence[SourceReplica], checked: Mapping[str, CheckedSegment]
) -> Mapping[str, CheckedSegment]:
    """Return the results of a partition's segments without the offsets that a replica would truncate as a follower.

    The leader is the replica with the latest leader epoch in its ``leader-epoch-checkpoint``. A replica without one is not
    limited, as in logs of v0 and v1. Nor does the end of the leader limit another one of the same epoch: its last segment
    can be damaged, or too young to be read.
    """
    if len(replicas) < 2:
        return checked
    epochs = {one.folder: LeaderEpochCache(stored_leader_epochs(one.folder) or (), INT64_MAX) for one in replicas}
    leader = max(epochs.values(), key=lambda one: one.latest)
    found = dict(checked)
    for replica in replicas:
        end = truncation_offset(epochs[replica.folder], leader)
        for segment in replica.segments:
            one = found.get(segment.path)
            if end is None or one is None or one.next_offset <= end:
                continue
            if segment.base_offset < end:
                found[segment.path] = replace(one, next_offset=end)
            else:
                del found[segment.path]
    return found
