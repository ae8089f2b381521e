"""The leader epochs of a partition: a model of ``LeaderEpochFileCache``."""

from __future__ import annotations

from collections.abc import Sequence

from kseg.format.log_loader.refusals import RefusedError
from kseg.format.sidefiles.checkpoints import LEADER_EPOCHS, LeaderEpoch


class LeaderEpochCache:
    """Leader epochs in order. A checkpoint's entries are added one by one; a later line replaces contradictory earlier
    ones.

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

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a recovered batch if it is later than all others. Raises RefusedError."""
        if epoch > self.latest:
            self._assign(LeaderEpoch(epoch, start_offset))

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        """Return the largest known epoch <= ``epoch`` and its end offset, or None, as OffsetsForLeaderEpoch does."""
        known = [entry for entry in self.entries if entry.epoch <= epoch]
        later = [entry.start_offset for entry in self.entries if entry.epoch > epoch]
        return (known[-1].epoch, min(later, default=self.log_end)) if known else None

    def truncate_from_end(self, log_start: int, log_end: int) -> None:
        """Remove epochs that begin at the log's end or after it. The last epoch before the log's start now begins
        there.
        """
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
