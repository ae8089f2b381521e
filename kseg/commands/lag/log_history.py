"""The end of a partition's log over time, and the timestamps of the records at committed offsets.

The log end at a time is the offset after the last batch with an earlier timestamp. Timestamps of producers can go back: a
batch counts at the latest time of a batch before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from kseg.commands.lag.committed_offsets import PartitionReplica
from kseg.commands.lag.group_events import PartitionRead, Timeline
from kseg.findings import Report
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import CONTROL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import Window
from kseg.format.storage.naming import base_offset_of


@dataclass(slots=True)
class LogHistory(PartitionRead):
    """The log ends of a partition over time; counts are appended offsets. ``times`` has timestamps by committed offset.

    A time is that of the first record at or after the offset.
    """

    ends: Timeline[int] = field(default_factory=Timeline)
    times: dict[int, int] = field(default_factory=dict)
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class LogRequest:
    """The log of a partition to read: the committed ``offsets`` in order, and the times as in ``group_history``."""

    replica: PartitionReplica
    offsets: Sequence[int]
    start: int
    until: int
    now: int
    most: int


def read_log(asked: LogRequest) -> LogHistory:
    """Read the log ends of a partition over time, and the timestamps of the records at committed offsets."""
    found = LogHistory(asked.replica.folder)
    reading = _LogReader(found, asked)

    def look(window: Window, opener: DeepIterator, report: Report) -> None:
        reading.update(window.batches)
        if reading.select(window.batches):
            for chunk in opener.chunks(window):
                reading.find_times(chunk.lists.offset, chunk.lists.timestamp)

    found.read(asked.replica, look)
    reading.reach(base_offset_of(asked.replica.segments[-1]) or 0)
    return found


class _LogReader:
    def __init__(self, found: LogHistory, asked: LogRequest) -> None:
        self._found = found
        self._asked = asked
        self._latest = -1
        self._resolved = 0

    def update(self, batches: BatchColumns) -> None:
        """Add the log ends after the batches of a window."""
        found = self._found
        for row in range(batches.count):
            if batches.crc_state[row] == CRC_BAD:
                continue
            if found.log_end is None:
                found.log_end = batches.base_offset[row]
            if batches.max_timestamp[row] <= self._asked.now:  # a clock in the future would move all later batches
                self._latest = max(self._latest, batches.max_timestamp[row])
            self._add(batches.last_offset[row] + 1)

    def reach(self, end: int) -> None:
        """Add the log end ``end`` if no batch reaches it: the batches before it may be deleted or removed by the cleaner."""
        if self._found.log_end is None or self._found.log_end < end:
            self._found.log_end = end if self._found.log_end is None else self._found.log_end
            self._add(end)

    def _add(self, end: int) -> None:
        found, asked = self._found, self._asked
        known = found.log_end or 0
        found.log_end = max(end, known)
        if asked.start <= self._latest < asked.until:
            found.ends.add(self._latest, found.log_end, found.log_end - known)
            if len(found.ends.slots) > asked.most:
                found.ends.widen(2 * found.ends.width)
        elif self._latest < asked.start:
            found.ends.before = found.log_end

    def select(self, batches: BatchColumns) -> int:
        """Select the batches in which records at committed offsets can be; return their number."""
        offsets, selected = self._asked.offsets, 0
        at = self._resolved
        for row in range(batches.count):
            last, magic = batches.last_offset[row], batches.magic[row]
            is_data = not (magic >= 2 and batches.attributes[row] & CONTROL)
            wanted = bool(is_data and batches.selected[row] and at < len(offsets) and offsets[at] <= last)
            batches.selected[row] = wanted
            selected += wanted
            if wanted and magic >= 2 and batches.record_count[row] == last - batches.base_offset[row] + 1:
                at = bisect_left(offsets, last + 1, at)  # a batch with holes may lack the record
        return selected

    def find_times(self, offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Note the timestamps of the first records at or after committed offsets."""
        wanted = self._asked.offsets
        while self._resolved < len(wanted) and offsets:
            at = bisect_left(offsets, wanted[self._resolved])
            if at == len(offsets):
                return
            self._found.times[wanted[self._resolved]] = timestamps[at]
            self._resolved += 1
