"""The end of a partition's log over time, the timestamps of the records at committed offsets, and maps of offsets.

The log end at a time is the offset after the last batch with an earlier timestamp. Timestamps of producers can go back: a
batch counts at the latest time of a batch before it.

A map has the offsets of records in another cluster: ``kseg lag --offset-map`` reads it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kseg.commands.lag.committed_offsets import PartitionReplica
from kseg.commands.lag.group_events import PartitionRead, Timeline
from kseg.errors import UsageError
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


_MAP_FIELDS = ("partition", "src_first", "src_last", "dst_first")


class MappedRun(NamedTuple):
    """Records without a hole: ``src_first`` to ``src_last`` of the source, from ``dst_first`` on in the other cluster."""

    src_first: int
    src_last: int
    dst_first: int


class OffsetMap:
    """The runs of records by topic and partition."""

    def __init__(self, runs: Mapping[tuple[str, int], Iterable[MappedRun]]) -> None:
        self._runs = {place: sorted(found) for place, found in runs.items()}

    def target(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the offset of the first record at or after ``offset``, the end after the last one; None without a run."""
        runs = self._runs.get((topic, partition))
        if not runs:
            return None
        found = bisect_right(runs, offset, key=lambda run: run.src_first) - 1
        if found >= 0 and offset <= runs[found].src_last:
            return runs[found].dst_first + offset - runs[found].src_first
        if found + 1 < len(runs):
            return runs[found + 1].dst_first
        return runs[-1].dst_first + runs[-1].src_last - runs[-1].src_first + 1


#: The characters of a line of a map of offsets, at most: a topic's name has 249.
_LONGEST_LINE = 10_000


def read_offset_map(path: str) -> OffsetMap:
    """Read a map: one JSON object per line, with ``topic``, ``partition``, ``src_first``, ``src_last`` and ``dst_first``.

    Raises UsageError with the line that is not one.
    """
    runs: dict[tuple[str, int], list[MappedRun]] = defaultdict(list)
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, _LONGEST_LINE), ""), 1):
                if line.strip():
                    topic, partition, run = _parsed(f"{path}, line {number}", line)
                    runs[topic, partition].append(run)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
    return OffsetMap(runs)


def _parsed(place: str, line: str) -> tuple[str, int, MappedRun]:
    try:
        row = json.loads(line)
        topic, numbers = row["topic"], [row[name] for name in _MAP_FIELDS]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{place}: expected a JSON object with topic, {', '.join(_MAP_FIELDS)}") from error
    if not isinstance(topic, str) or not all(type(number) is int and number >= 0 for number in numbers):
        raise UsageError(f"{place}: expected a text as topic, and numbers from 0 on")
    run = MappedRun(*numbers[1:])
    if run.src_last < run.src_first:
        raise UsageError(f"{place}: src_last is below src_first")
    return topic, numbers[0], run
