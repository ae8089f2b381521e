"""The small files that a broker reads while it loads a partition, and the faults in them that end or limit it.

Some faults end the process, others take only the log dir offline. A malformed number of a checkpoint is a
NumberFormatException, a wrong count an IOException. Only the IOException is limited to the log dir. The leader epochs are
a model of ``LeaderEpochFileCache`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kseg.errors import NotASegmentError
from kseg.findings import Finding
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch, read_leader_epochs
from kseg.format.sidefiles.metadata_files import read_partition_metadata
from kseg.format.storage.java_text import FileFault, UncheckedFault
from kseg.format.storage.naming import LEADER_EPOCHS, PARTITION_METADATA, snapshot_id
from kseg.format.storage.source import open_source


class RefusedError(Exception):
    """A fault that ends the broker. ``why`` is the reason in one line; ``file`` is a name, None for the current file."""

    action = "refuse"

    def __init__(self, why: str, file: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.file = file


class OfflineError(RefusedError):
    """A fault that takes the log dir offline. Without another log dir the broker ends."""

    action = "offline"


def read_epochs(data: bytes) -> list[LeaderEpoch]:
    """Return the entries of a ``leader-epoch-checkpoint``. Raises OfflineError, RefusedError."""
    with _faults_of(LEADER_EPOCHS):
        return read_leader_epochs(data)


def check_topic_id(data: bytes) -> None:
    """Raise OfflineError or RefusedError unless a broker can read a topic id from the file."""
    with _faults_of(PARTITION_METADATA):
        read_partition_metadata(data)


@contextmanager
def _faults_of(name: str) -> Iterator[None]:
    try:
        yield
    except UncheckedFault as fault:
        raise RefusedError(str(fault), name) from fault
    except FileFault as fault:
        raise OfflineError(str(fault), name) from fault


def check_kraft_snapshot(folder: str, snapshots: Iterable[str], log_start: int) -> None:
    """Raise RefusedError unless a broker can start from the newest snapshot of ``__cluster_metadata``.

    An incomplete last batch is not noticed. ``log_start`` is the first offset of the log.
    """
    newest = max(snapshots, default=None)
    end = (snapshot_id(newest) or (0, 0))[0] if newest else 0
    if log_start > end:  # KafkaRaftLog.recoverSnapshots
        raise RefusedError(f"the log begins at offset {log_start}, and no snapshot has the records before it")
    if newest is None:
        return
    found: list[Finding] = []
    try:
        with SegmentReader(open_source(os.path.join(folder, newest)), report=found.append) as reader:
            batches = sum(window.batches.count for window in reader.windows())
    except NotASegmentError as error:
        raise RefusedError("the snapshot of the metadata is damaged", newest) from error
    if not batches or any(finding.rule != "truncated-tail" for finding in found):
        why = found[0].message if found else "no batch is in it"
        raise RefusedError(f"the snapshot of the metadata is damaged: {why}", newest)


class LeaderEpochCache:
    """Leader epochs in order. Of a checkpoint, a later line replaces contradictory earlier ones.

    ``log_end`` is the offset after the last record. Raises RefusedError for an epoch or an offset below 0.
    """

    def __init__(self, stored: Sequence[LeaderEpoch] = (), log_end: int = 0) -> None:
        self.entries: list[LeaderEpoch] = []
        self.log_end = log_end
        self._stored = stored
        for entry in stored:
            self._assign(entry)

    @property
    def changed(self) -> bool:
        """Whether the epochs differ from the stored ones."""
        return self.entries != list(self._stored)

    @property
    def latest(self) -> int:
        """The latest leader epoch, -1 without one."""
        return self.entries[-1].epoch if self.entries else -1

    @property
    def order(self) -> tuple[int, int]:
        """Replicas in the order in which they can lead: the latest leader epoch, then the log end (KIP-101)."""
        return self.latest, self.log_end

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a recovered batch if it is later than all others. Raises RefusedError."""
        if epoch > self.latest:
            self._assign(LeaderEpoch(epoch, start_offset))

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        """Return the largest known epoch <= ``epoch`` and its end offset, or None, as OffsetsForLeaderEpoch does.

        An epoch before all known ones ends where the first of these begins (``LeaderEpochFileCache.endOffsetFor``).
        """
        known = [entry for entry in self.entries if entry.epoch <= epoch]
        later = [entry.start_offset for entry in self.entries if entry.epoch > epoch]
        if not self.entries:
            return None
        return known[-1].epoch if known else epoch, min(later, default=self.log_end)

    def truncate_from_end(self, log_start: int, log_end: int) -> None:
        """Remove epochs that begin at the log's end or after it. The last epoch before the log's start begins there."""
        kept = [entry for entry in self.entries if entry.start_offset < log_end]
        below = [entry for entry in kept if entry.start_offset <= log_start]
        if below:
            kept[: len(below)] = [below[-1]._replace(start_offset=log_start)]
        self.entries = kept

    def _assign(self, entry: LeaderEpoch) -> None:
        entries = self.entries
        if entry.epoch < 0 or entry.start_offset < 0:
            raise RefusedError(f"leader epoch {entry.epoch} begins at offset {entry.start_offset}", LEADER_EPOCHS)
        if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
            return
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)


def truncation_offset(follower: LeaderEpochCache, leader: LeaderEpochCache) -> int | None:
    """Return the offset to which ``follower`` would truncate its log under ``leader``.

    None if the leader epochs do not decide it, as in logs of v0 and v1: the follower then truncates to its high watermark.

    Sources: KIP-101, KIP-279, ``LeaderEpochFileCache.endOffsetFor``, ``AbstractFetcherThread.getOffsetTruncationState``.
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
