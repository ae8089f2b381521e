"""Offset, time and transaction indexes: layouts, reading, building, and stale entries.

``.index`` is n x (relativeOffset:int32 position:int32), ``.timeindex`` n x (timestamp:int64 relativeOffset:int32), both
relative to the base offset in the segment's name (``OffsetIndex``, ``TimeIndex``). The indexes of an active segment are
preallocated and end in zeros.

``.txnindex`` is n x (version:int16 producerId:int64 firstOffset:int64 lastOffset:int64 lastStableOffset:int64), one
entry per transaction whose ABORT marker is in the segment (``AbortedTxn``, ``TransactionIndex``, KIP-98).

Kafka maps the index of the active segment into memory at its full size. When a follower truncates its log, Kafka lowers
the count of valid entries (``OffsetIndex.truncateTo``, ``TimeIndex.truncateTo``) and leaves the bytes after them. New
entries overwrite them one by one. The stale entries disappear when the segment rolls or after a clean shutdown, because
Kafka then trims the file (``AbstractIndex.trimToValidSize``).
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import IO, NamedTuple

from kseg.errors import KsegError, LimitError, UnreadableError, VanishedError
from kseg.findings import Finding, Report, do_nothing, fail_on_read_error
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX, NO_TIMESTAMP
from kseg.format.segment.segment_reader import batch_at
from kseg.format.segment.transaction_events import Event
from kseg.format.sidefiles import producer_snapshot, side_file_reading
from kseg.format.sidefiles.index_columns import MaxTimestamp, next_index_entry
from kseg.format.storage.segment_files import is_newest
from kseg.format.storage.source import open_range, stored_size

OFFSET_ENTRY = struct.Struct(">ii")  # relativeOffset, position
TIME_ENTRY = struct.Struct(">qi")  # timestamp, relativeOffset

#: The default of the broker setting ``index.interval.bytes``.
INDEX_INTERVAL_BYTES = 4096


class OffsetEntry(NamedTuple):
    """An entry of an offset index: ``offset`` is the (absolute) last one of the batch at byte ``log_position``."""

    offset: int
    log_position: int


class TimeEntry(NamedTuple):
    """An entry of a time index: the largest ``timestamp`` (epoch ms) so far, and the (absolute) ``offset`` of its batch."""

    timestamp: int
    offset: int


class IndexBuilder:
    """Writes both indexes of one segment, batch by batch, like ``LogSegment.recover``.

    Each index gets an entry before the first batch that begins more than ``interval`` bytes after the batch of the last
    entry. The time index gets the largest timestamp once more at the end.
    """

    def __init__(
        self, base_offset: int, offsets: IO[bytes], times: IO[bytes], interval: int = INDEX_INTERVAL_BYTES
    ) -> None:
        self._base_offset = base_offset
        self._offsets = offsets
        self._times = times
        self._interval = interval
        self._last_entry = 0
        self._peak = MaxTimestamp()
        self._last_timestamp = NO_TIMESTAMP

    def add(self, batches: BatchColumns, first: int, stop: int) -> None:
        """Add the next batches, rows ``first`` to ``stop`` (exclusive).

        Raises KsegError if an offset or a position does not fit an index entry.
        """
        row = first
        while (row := next_index_entry(batches, row, stop, self._last_entry + self._interval, self._peak)) < stop:
            position = batches.position[row]
            relative = self._relative(batches.last_offset[row])
            self._offsets.write(OFFSET_ENTRY.pack(relative, _checked(position, "position")))
            self._add_time()
            self._last_entry = position
            row += 1

    def finish(self) -> None:
        """Write the last entry of the time index."""
        self._add_time()

    def _add_time(self) -> None:
        if self._peak.timestamp > self._last_timestamp:
            self._times.write(TIME_ENTRY.pack(self._peak.timestamp, self._relative(self._peak.offset)))
            self._last_timestamp = self._peak.timestamp

    def _relative(self, offset: int) -> int:
        return _checked(offset - self._base_offset, "relative offset")


def _checked(value: int, what: str) -> int:
    if not 0 <= value <= INT32_MAX:
        raise KsegError(f"a {what} of {value} does not fit an index entry: the segment would have to be split")
    return value


ABORTED_TXN = struct.Struct(">hqqqq")  # version, producerId, firstOffset, lastOffset, lastStableOffset
VERSION = 0
#: The most open transactions that are followed. A broker has a few.
MAX_OPEN = 500_000


class AbortedTxn(NamedTuple):
    """An aborted transaction: ``first_offset`` is the first of its first batch, ``last_offset`` is its marker's.

    ``last_stable_offset`` is where the earliest transaction then open began, or the offset after the marker. A follower
    appends several batches at once, and then counts the transactions of all of them as open
    (``UnifiedLog.append`` updates the producers before it completes the transactions).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = VERSION

    @property
    def is_ahead(self) -> bool:
        """Whether the last stable offset is one that only a follower writes: later than the offset after the marker."""
        return self.last_stable_offset > self.last_offset + 1

    def pack(self) -> bytes:
        return ABORTED_TXN.pack(self.version, *self[:-1])


class AbortedTransactions:
    """Follows transactions through the segments of a partition, like ProducerStateManager during recovery.

    ``open`` maps each producer with an open transaction to its first offset. None is forgotten: with more than
    MAX_OPEN, ``add_open``, ``begin`` and ``update`` raise LimitError. ``ended`` is called with each transaction that ends:
    its producer id, its first offset, the offset of its marker, and whether it is aborted.
    """

    def __init__(self, ended: Callable[[int, int, int, bool], object] = do_nothing) -> None:
        self.open: dict[int, int] = {}
        self._ended = ended
        # A heap of (first offset, producer) of the open transactions and of some that have ended.
        self._earliest: list[tuple[int, int]] = []

    def add_open(self, snapshot: bytes) -> None:
        """Start with the open transactions of a producer snapshot. A damaged snapshot is ignored."""
        for producer in producer_snapshot.read_snapshot(snapshot) or ():
            if producer.current_txn_first_offset is not None:
                self.begin(producer.producer_id, producer.current_txn_first_offset)

    def begin(self, producer_id: int, first: int) -> None:
        """Add the open transaction of a producer that has none. Raises LimitError."""
        if len(self.open) >= MAX_OPEN:
            raise LimitError(f"more than {MAX_OPEN:,} transactions are open at once")
        self.open[producer_id] = first
        if len(self._earliest) > 2 * len(self.open):
            self._earliest = [(offset, producer) for producer, offset in self.open.items()]
            heapify(self._earliest)
        else:
            heappush(self._earliest, (first, producer_id))

    def update(self, batches: BatchColumns, events: Iterable[Event]) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions that end with the events of a window or chunk."""
        for row, offset, marker in events:
            producer_id = batches.producer_id[row]
            if marker is not None:
                yield from self._end(producer_id, offset, marker.type == "ABORT")
            elif producer_id not in self.open:
                self.begin(producer_id, offset)

    def _end(self, producer_id: int, offset: int, aborted: bool) -> Iterator[AbortedTxn]:
        # Coordinators also write markers without data: these end no transaction.
        first = self.open.pop(producer_id, None)
        if first is not None:
            self._ended(producer_id, first, offset, aborted)
        if first is not None and aborted:
            while self._earliest and self.open.get(self._earliest[0][1]) != self._earliest[0][0]:
                heappop(self._earliest)
            stable = self._earliest[0][0] if self._earliest else offset + 1
            yield AbortedTxn(producer_id, first, offset, stable)


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
        size = stored_size(index)
        self._size = size or 0
        self._readable = size is not None
        self._damaged = False
        # The position of the first stale entry, and the number of stale entries.
        self._begin: int | None = None
        self._count = 0

    def stale_from(self, at: int) -> bool:
        """Return whether the entries from byte ``at`` on are stale. After the first False the result stays False.

        A read error is not damage: it raises UnreadableError, so the index counts as unread. One that a broker has deleted
        meanwhile has no entries.
        """
        if self._begin is not None and at >= self._begin:
            return True
        if self._damaged or not self._readable:
            return not self._damaged
        try:
            self._damaged = not self._are_stale(at)
        except VanishedError:
            return True
        except UnreadableError:
            raise
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
        if any(min(fields) < 0 for fields in sample):
            return False
        if self._log is not None and self._agrees(self._log, self._appended(self._log, at, sample)):
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
            entry = side_file_reading.read_small_file(source, fail_on_read_error(self._index)) or b""
            if len(entry) == size and not any(entry):
                return True
        # Without a free entry: a broker rounds one setting down to whole entries of both kinds.
        stem, suffix = os.path.splitext(self._index)
        other = stored_size(stem + (".timeindex" if suffix == ".index" else ".index")) or 0
        return self._size > _FEW * size and abs(self._size - other) < TIME_ENTRY.size

    def _suspects(self, at: int) -> tuple[list[tuple[int, ...]], int]:
        """Return the first and last entries from byte ``at`` to the zeros at the end, and the number of all of them."""
        size, count = self._layout.size, 0
        first: list[tuple[int, ...]] = []
        last: deque[tuple[int, ...]] = deque(maxlen=_SAMPLE)
        with open_range(self._index, at, self._size) as source:
            for _, block in side_file_reading.fixed_runs(
                source, size, fail_on_read_error(self._index), preallocated=True
            ):
                count += len(block) // size
                if len(first) < _SAMPLE:
                    first += self._layout.iter_unpack(block[: _SAMPLE * size])
                last.extend(self._layout.iter_unpack(block[-_SAMPLE * size :]))
        return [*first, *last], count

    def _appended(self, log: str, at: int, sample: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        """Return the entries of a sample that a broker can have appended to the entry before byte ``at``.

        A log that is truncated and copied again has the same batches, with entries for other ones of them. If the entry
        before agrees with the log, those that do not have a larger offset are stale, although they agree, too.
        """
        size, field = self._layout.size, 1 if self._layout is TIME_ENTRY else 0
        if at < size:
            return sample
        with open_range(self._index, at - size, at) as source:
            found = side_file_reading.read_small_file(source, fail_on_read_error(self._index))
        before = self._layout.unpack(found or bytes(size))
        if not self._agrees(log, [before]):
            return sample
        return [entry for entry in sample if entry[field] > before[field]]

    def _agrees(self, log: str, sample: Sequence[tuple[int, ...]]) -> bool:
        """Return whether one of the entries is the one that Kafka writes for the batch at its position."""
        size = stored_size(log) or 0
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
        with open_range(path, 0, stored_size(path) or 0) as source:
            size, report = OFFSET_ENTRY.size, fail_on_read_error(self._index)
            for _, block in side_file_reading.fixed_runs(source, size, report, preallocated=True):
                for entry in OFFSET_ENTRY.iter_unpack(block):
                    if entry[0] <= before[0] or entry[1] <= before[1]:
                        return
                    yield self._base_offset + entry[0], entry[1]
                    before = entry


def of_single_index(path: str, layout: struct.Struct, base_offset: int) -> StaleEntries | None:
    """Return the StaleEntries of an index that is read alone, None if its segment is not the newest of its folder."""
    log = os.path.splitext(path)[0] + ".log"
    if not stored_size(path) or not is_newest(log):
        return None
    return StaleEntries(path, log if stored_size(log) else None, layout, base_offset)
