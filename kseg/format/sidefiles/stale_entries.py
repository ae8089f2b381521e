"""Decide whether entries of an active segment's offset or time index are stale or damaged.

Kafka maps the index of the active segment into memory at its full size. When a follower truncates its log, Kafka lowers
the count of valid entries (``OffsetIndex.truncateTo``, ``TimeIndex.truncateTo``) and leaves the bytes after them. New
entries overwrite them one by one. The stale entries disappear when the segment rolls or after a clean shutdown, because
Kafka then trims the file (``AbstractIndex.trimToValidSize``).
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence

from kseg.errors import KsegError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.segment.single_batch import batch_at
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY
from kseg.format.sidefiles.reading import fixed_runs
from kseg.format.storage.source import is_newest, local_size, open_range

#: The number of entries compared with the log, from the first suspect on and before the end. Valid entries follow damage in
#: the middle of an index, but not stale entries.
_SAMPLE = 16
#: The most batches that are read to find one offset. Between two index entries there are fewer.
_MAX_STEPS = 2000
# Indexes of one or two entries have nearly the same size without being preallocated.
_FEW = 8


class StaleEntries:
    """Decides for one index whether its entries from a given byte on are stale.

    ``index`` is its path, ``log`` the path of its segment, None where the segment is unknown. ``layout`` is OFFSET_ENTRY
    or TIME_ENTRY. The answer is yes when the file is preallocated and no later entry agrees with the log.
    """

    def __init__(self, index: str, log: str | None, layout: struct.Struct, base_offset: int) -> None:
        self._index = index
        self._log = log
        self._layout = layout
        self._base_offset = base_offset
        self._size = local_size(index) or 0
        self._damaged = False
        # The position of the first stale entry, and the number of stale entries.
        self._begin: int | None = None
        self._count = 0

    def stale_from(self, at: int) -> bool:
        """Return whether the entries from byte ``at`` on are stale. After the first False the result stays False."""
        if self._begin is not None and at >= self._begin:
            return True
        if self._damaged:
            return False
        try:
            self._damaged = not self._are_stale(at)
        except KsegError:
            self._damaged = True
        return not self._damaged

    def report(self, report: Report) -> None:
        """Report ``stale-index-entries`` if there are any."""
        if self._begin is not None:
            end = self._begin + self._count * self._layout.size
            report(Finding("stale-index-entries", self._begin, end, facts={"entries": self._count}))

    def _are_stale(self, at: int) -> bool:
        if not self.is_preallocated():
            return False
        sample, count = self._suspects(at)
        if any(min(fields) < 0 for fields in sample) or (self._log is not None and self._agrees(self._log, sample)):
            return False
        self._begin, self._count = at, count
        return True

    def is_preallocated(self) -> bool:
        """Return whether the broker has not trimmed the file yet.

        Its bytes decide, because the size is a setting of the broker (segment.index.bytes).
        """
        size = self._layout.size
        last = self._size - self._size % size
        if not last:
            return False
        with open_range(self._index, last - size, last) as source:
            entry = bytearray(size)
            if source.readinto(memoryview(entry)) == size and not any(entry):
                return True
        # Without a free entry: a broker rounds one setting down to whole entries of both kinds.
        stem, suffix = os.path.splitext(self._index)
        other = local_size(stem + (".timeindex" if suffix == ".index" else ".index")) or 0
        return self._size > _FEW * size and abs(self._size - other) < TIME_ENTRY.size

    def _suspects(self, at: int) -> tuple[list[tuple[int, ...]], int]:
        """Return the first and last entries from byte ``at`` to the zeros at the end, and the number of all of them."""
        size, count = self._layout.size, 0
        first: list[tuple[int, ...]] = []
        last: deque[tuple[int, ...]] = deque(maxlen=_SAMPLE)
        with open_range(self._index, at, self._size) as source:
            for _, block in fixed_runs(source, size, do_nothing, preallocated=True):
                count += len(block) // size
                if len(first) < _SAMPLE:
                    first += self._layout.iter_unpack(block[: _SAMPLE * size])
                last.extend(self._layout.iter_unpack(block[-_SAMPLE * size :]))
        return [*first, *last], count

    def _agrees(self, log: str, sample: Sequence[tuple[int, ...]]) -> bool:
        """Return whether one of the entries is the one that Kafka writes for the batch at its position."""
        size = local_size(log) or 0
        if self._layout is TIME_ENTRY:
            return any(self._timestamps_agree(log, size, sample))
        for relative, position in sample:
            batch = batch_at(log, position, size)
            if batch is not None and batch.last_offset[0] == self._base_offset + relative:
                return True
        return False

    def _timestamps_agree(self, log: str, size: int, sample: Sequence[tuple[int, ...]]) -> Iterator[bool]:
        wanted = sorted({(self._base_offset + relative, timestamp) for timestamp, relative in sample})
        position = 0
        for (offset, timestamp), start in zip(wanted, self._positions([offset for offset, _ in wanted]), strict=True):
            position = max(position, start)
            for _ in range(_MAX_STEPS):
                batch = batch_at(log, position, size)
                if batch is None:
                    return  # at the log's end, or at damage
                if batch.last_offset[0] >= offset:
                    yield bool(batch.max_timestamp[0] == timestamp)
                    break
                position += batch.size[0]

    def _positions(self, offsets: Sequence[int]) -> Iterator[int]:
        """Yield for each offset, in ascending order, a log position at or before its batch, from the offset index."""
        position, done = 0, 0
        for offset, found in self._offset_entries():
            while done < len(offsets) and offset > offsets[done]:
                yield position
                done += 1
            position = found
        for _ in offsets[done:]:
            yield position

    def _offset_entries(self) -> Iterator[tuple[int, int]]:
        """Yield (offset, position) of the offset index next to the time index, as long as both increase."""
        path = os.path.splitext(self._index)[0] + ".index"
        before = (-1, -1)
        with open_range(path, 0, local_size(path) or 0) as source:
            for _, block in fixed_runs(source, OFFSET_ENTRY.size, do_nothing, preallocated=True):
                for entry in OFFSET_ENTRY.iter_unpack(block):
                    if entry[0] <= before[0] or entry[1] <= before[1]:
                        return
                    yield self._base_offset + entry[0], entry[1]
                    before = entry


def of_single_index(path: str, layout: struct.Struct, base_offset: int) -> StaleEntries | None:
    """Return the StaleEntries of an index that is read alone, None if its segment is not the newest of its folder."""
    log = os.path.splitext(path)[0] + ".log"
    if not local_size(path) or not is_newest(log):
        return None
    return StaleEntries(path, log if local_size(log) else None, layout, base_offset)
