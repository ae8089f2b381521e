"""Which producer snapshots a broker keeps, deletes and writes while it loads a log.

A model of ``ProducerStateManager`` and ``UnifiedLog.rebuildProducerState`` over offsets alone: what stands in a
snapshot does not matter, but whether it can be read does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Reload:
    """The state of one manager: up to where producers are known, and the offset of its latest snapshot."""

    end: int = 0
    snapshot: int = 0


class Snapshots:
    """The offsets of the snapshots in a folder. ``sound`` tells whether one that was there can be read.

    ``read`` is called with (base offset, from, to) for each segment that has to be read because no snapshot has the
    state at hand; it may raise.
    """

    def __init__(self, offsets: set[int], sound: Callable[[int], bool], read: Callable[[int, int], None]) -> None:
        self.offsets = set(offsets)
        self.before = frozenset(offsets)
        self._written: set[int] = set()
        self._sound = sound
        self._read = read

    def rebuild(self, bases: Sequence[int], log_start: int, last_offset: int, *, clean: bool, end: int = 0) -> Reload:
        """``rebuildProducerState`` by a manager whose state goes to ``end``, over segments of these base offsets."""
        kept = {*bases[-2:], last_offset}
        if not self.offsets and clean:
            state = Reload()
            for offset in (*bases[-2:], last_offset):
                state.end = offset
                self.take(state)
            return state
        empty = end >= last_offset
        state = self._truncate_and_reload(log_start, last_offset, end)
        if last_offset > state.end and not empty:
            first = max(bisect_right(bases, state.end) - 1, 0)
            for base in [base for base in bases[first:] if base < last_offset]:
                state.end = max(base, state.end, log_start)
                if base in kept:
                    self.take(state)
                self._read(base, state.end)
        state.end = last_offset
        self.take(state)
        return state

    def take(self, state: Reload) -> None:
        """``takeSnapshot``: only where the state went on since the last."""
        if state.end > state.snapshot:
            self.offsets.add(state.end)
            self._written.add(state.end)
            state.snapshot = state.end

    def drop(self, offsets: Sequence[int]) -> None:
        """Those of deleted segments, as far as they were there when the log was opened."""
        self.offsets -= set(offsets) & self.before

    def drop_strays(self, bases: Sequence[int]) -> None:
        """``removeStraySnapshots``: what belongs to no segment goes, but for the latest behind the last segment."""
        strays = sorted(self.offsets - set(bases))
        if strays and strays[-1] >= max(bases, default=0):
            strays.pop()
        self.offsets -= set(strays)

    def _truncate_and_reload(self, log_start: int, last_offset: int, end: int) -> Reload:
        self.offsets = {offset for offset in self.offsets if log_start < offset <= last_offset}
        if last_offset == end:
            return Reload(max(end, log_start), max(self.offsets, default=log_start))
        while self.offsets:
            latest = max(self.offsets)
            if latest in self._written or self._sound(latest):
                return Reload(latest, latest)
            self.offsets.remove(latest)
        return Reload(log_start, log_start)
