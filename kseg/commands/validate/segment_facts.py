"""Follow a segment while it is validated: the few facts that concern its neighbours, and its indexes in step with it.

One more loop over the columns, compiled like the others. What it keeps does not grow with the segment, but with its
leader epochs and producers, of which the last are remembered.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from kseg.format.record.bounded_map import LIMIT, BoundedMap
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, DELETE_HORIZON, INT64_MAX, NO_TIMESTAMP, TRANSACTIONAL

# C globals when compiled (see the .pxd).
BAD = CRC_BAD
CODEC = CODEC_MASK
CONTROL_BIT = CONTROL
TRANSACTIONAL_BIT = TRANSACTIONAL
HORIZON_BIT = DELETE_HORIZON
NEVER = INT64_MAX
NONE = NO_TIMESTAMP
NOTHING = array("q")
MOST = LIMIT

#: Runs of one leader epoch that are kept: real logs have a few, damage could make one of every batch.
MAX_EPOCHS = 10_000

#: Gaps between batches that are kept with their place; all are counted.
MAX_GAPS = 1000

#: (epoch, first offset, last offset) of batches of one leader epoch in a row.
EpochRun = tuple[int, int, int]
#: (epoch, base sequence, base offset) of a producer's batch of data, or (epoch, last sequence, last offset).
BatchOfProducer = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What is known of a segment once it was read; offsets are None where it has no sound batch.

    ``first_offset`` of a compressed v0 or v1 entry is its last: a wrapper names no other. ``whole_start``: no bytes
    before the first sound batch are lost. ``holes``: offsets are missing between entries, ``gaps`` times, of which
    ``missing`` has the first: (byte of the log, first offset, last offset) of those that no damage explains; ``tail``
    is the last sound batch: (byte of the log, -1 of a wrapper; first offset, last offset, largest offset before it or
    -1). ``thinned``: holes are within entries, or a v2 batch has a delete horizon, as only the cleaner leaves them.
    ``keyless``: a record has no key, which the cleaner would drop. ``wrapped``: there are compressed v0 or v1 messages,
    of which ``opened`` says whether they were looked into: their headers do not show what is missing. ``timed``: a
    batch has a timestamp. ``damaged``: bytes are lost. ``disorder``: offsets go back, so that ``last_offset`` means
    little. ``first_batches`` and ``producers`` have each producer's first and last batch of data. ``open`` are the
    first offsets of transactions that don't end here, ``ended`` the producers whose do. ``unindexed`` are aborts, by
    producers without data here before them, that the transaction index does not have: their markers' offsets.
    ``carried`` are the index's entries of transactions that began in an earlier segment: (byte of the index, producer,
    first offset, last offset). ``crowded``: there are too many producers to remember them all. Then only what is known
    counts.
    """

    first_offset: int | None = None
    last_offset: int | None = None
    whole_start: bool = False
    holes: bool = False
    gaps: int = 0
    missing: tuple[tuple[int, int, int], ...] = ()
    tail: tuple[int, int, int, int] = (-1, -1, -1, -1)
    thinned: bool = False
    keyless: bool = False
    wrapped: bool = False
    opened: bool = False
    timed: bool = False
    damaged: bool = False
    disorder: bool = False
    epochs: tuple[EpochRun, ...] = ()
    first_batches: dict[int, BatchOfProducer] = field(default_factory=dict)
    producers: dict[int, BatchOfProducer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()
    unindexed: dict[int, int] = field(default_factory=dict)
    carried: tuple[tuple[int, int, int, int], ...] = ()
    crowded: bool = False


class FactsCollector:
    """Takes the windows of one segment. ``offsets`` and ``times`` are its indexes, walked along (index_checks)."""

    def __init__(self, offsets: Any, times: Any) -> None:
        self._offsets = offsets
        self._times = times
        self._offset_column: Any = NOTHING
        self._position_column: Any = NOTHING
        self._timestamp_column: Any = NOTHING
        self._time_offset_column: Any = NOTHING
        # The entries that come next, and the byte and the offset at which they are due.
        self.offset_row = 0
        self.time_row = 0
        self._offset_rows = 0
        self._time_rows = 0
        self._offset_due = NEVER
        self._time_due = NEVER
        self._next_offset_entries()
        self._next_time_entries()
        self.begun = False
        self.first_offset = -1
        self.last_offset = -1
        self.largest_timestamp = NONE
        # The largest timestamp of the batch that holds the offset of the time index's last entry so far.
        self.indexed_timestamp = NONE
        self.end = 0
        self.gaps = 0
        self.missing: list[tuple[int, int, int]] = []
        # Whether the bytes right before the batch are those of a sound one, or of none.
        self._joined = True
        self.whole_start = False
        # Of the last sound batch: its byte, its first and last offset, and the largest offset before it.
        self._tail_position = -1
        self._tail_first = -1
        self._tail_last = -1
        self._tail_before = -1
        self.thinned = False
        self.wrapped = False
        # v0 messages have no time, also where the broker indexed when it appended them (LogAppendTime).
        self.untimed = False
        self.disorder = False
        self.damaged = False
        self.transactional = False
        self.epochs: list[EpochRun] = []
        self._epoch = -1
        self._epoch_first = -1
        self._epoch_last = -1
        self.first_batches: dict[int, BatchOfProducer] = {}
        self.producers = BoundedMap()
        # The producer at hand: it mostly wrote the next batch, too.
        self._producer_id = -1
        self._producer_epoch = -1
        self._last_sequence = -1
        self._producer_last = -1
        self.open: dict[int, int] = {}
        self.ended: set[int] = set()
        self.crowded = False

    def update(self, batches: BatchColumns, misplaced: set[int]) -> bool:
        """The next entries; True where one of them has to do with a transaction.

        ``misplaced`` are the positions of entries whose base offset is known to be wrong.
        """
        self.transactional = False
        for row in range(batches.count):
            position = batches.position[row]
            end = position + batches.size[row]
            if position != self.end:
                self.damaged = True
                self._joined = False
            self.end = end
            if self._offset_due < end:
                self._match_offset_index(position, end)
            if batches.crc_state[row] == BAD or (misplaced and position in misplaced):
                self.damaged = True
                self._joined = False
                continue
            last = batches.last_offset[row]
            self._update_order(batches, row, last)
            self._joined = True
            if not batches.magic[row]:
                self.untimed = True
            if last >= self._time_due:
                self._match_time_index(last, batches.max_timestamp[row])
            if batches.max_timestamp[row] > self.largest_timestamp:
                self.largest_timestamp = batches.max_timestamp[row]
            if batches.magic[row] < 2:
                continue
            self._update_epoch(batches.partition_leader_epoch[row], batches.base_offset[row], last)
            if batches.producer_id[row] >= 0:
                self._update_producer(batches, row, last)
        return self.transactional

    def _match_offset_index(self, position: int, end: int) -> None:
        highest = -1 if self.disorder else self.last_offset
        while self._offset_due < end:
            if self._offset_due != position or highest >= self._offset_column[self.offset_row]:
                self._offsets.check(self.offset_row, position, end, highest)
            self.offset_row += 1
            if self.offset_row == self._offset_rows:
                self._next_offset_entries()
            else:
                self._offset_due = self._position_column[self.offset_row]

    def _next_offset_entries(self) -> None:
        columns = self._offsets.more()
        self.offset_row = 0
        self._offset_due = NEVER
        if columns is not None:
            self._offset_column, self._position_column = columns
            self._offset_rows = len(columns[0])
            self._offset_due = self._position_column[0]

    def _match_time_index(self, last: int, timestamp: int) -> None:
        before = self.largest_timestamp
        latest = timestamp if timestamp > before else before
        # A damaged base offset can reach NEVER itself.
        while self.time_row < self._time_rows and last >= self._time_due:
            stored = self._timestamp_column[self.time_row]
            if self._time_due < self.first_offset and not (self.wrapped or self.damaged):
                self._times.check_position(self.time_row, self.first_offset)
            elif before > stored or (latest < stored and not (self.damaged or self.disorder or self.untimed)):
                self._times.check(self.time_row, before, latest)
            self.indexed_timestamp = timestamp
            self.time_row += 1
            if self.time_row == self._time_rows:
                self._next_time_entries()
            else:
                self._time_due = self._time_offset_column[self.time_row]

    def _next_time_entries(self) -> None:
        columns = self._times.more()
        self.time_row = self._time_rows = 0
        self._time_due = NEVER
        if columns is not None:
            self._timestamp_column, self._time_offset_column = columns
            self._time_rows = len(columns[0])
            self._time_due = self._time_offset_column[0]

    def _update_order(self, batches: BatchColumns, row: int, last: int) -> None:
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC
        first = last if batches.magic[row] < 2 else batches.base_offset[row]
        self._tail_position = -1 if wrapper else batches.position[row]
        self._tail_first = first
        self._tail_last = last
        self._tail_before = self.last_offset
        if wrapper:
            self.wrapped = True
        if not self.begun:
            self.begun = True
            self.whole_start = self._joined
            self.first_offset = first
        elif first <= self.last_offset:
            self.disorder = True
        elif first != self.last_offset + 1 and not wrapper:
            self.gaps += 1
            if self._joined and len(self.missing) < MAX_GAPS:
                self.missing.append((batches.position[row], self.last_offset + 1, first - 1))
        if last < first:
            self.disorder = True
        elif batches.magic[row] >= 2 and (
            0 <= batches.record_count[row] <= last - first or batches.attributes[row] & HORIZON_BIT
        ):
            self.thinned = True
        if last > self.last_offset:
            self.last_offset = last

    def _update_epoch(self, epoch: int, first: int, last: int) -> None:
        if epoch != self._epoch:
            self._end_epoch()
            self._epoch = epoch
            self._epoch_first = first
        self._epoch_last = last

    def _end_epoch(self) -> None:
        if self._epoch >= 0 and len(self.epochs) < MAX_EPOCHS:
            self.epochs.append((self._epoch, self._epoch_first, self._epoch_last))

    def _update_producer(self, batches: BatchColumns, row: int, last: int) -> None:
        producer_id = batches.producer_id[row]
        attributes = batches.attributes[row]
        if attributes & TRANSACTIONAL_BIT:
            self.transactional = True
            if attributes & CONTROL_BIT:
                self.open.pop(producer_id, None)
                if len(self.ended) < MOST:
                    self.ended.add(producer_id)
                elif producer_id not in self.ended:
                    self.crowded = True
            elif producer_id not in self.open:
                if len(self.open) < MOST:
                    self.open[producer_id] = batches.base_offset[row]
                else:
                    self.crowded = True
        if attributes & CONTROL_BIT:
            return
        sequence = batches.base_sequence[row]
        if producer_id != self._producer_id:
            self._end_producer()
            self._producer_id = producer_id
            if producer_id not in self.first_batches and len(self.first_batches) < MOST:
                self.first_batches[producer_id] = (batches.producer_epoch[row], sequence, batches.base_offset[row])
        self._producer_epoch = batches.producer_epoch[row]
        self._last_sequence = increment_sequence(sequence, last - clamped(batches.base_offset[row]))
        self._producer_last = last

    def _end_producer(self) -> None:
        if self._producer_id >= 0:
            self.producers.put(self._producer_id, (self._producer_epoch, self._last_sequence, self._producer_last))

    def facts(self) -> SegmentFacts:
        """What was seen; nothing may be taken after that."""
        self._end_epoch()
        self._end_producer()
        return SegmentFacts(
            first_offset=self.first_offset if self.begun else None,
            last_offset=self.last_offset if self.begun else None,
            whole_start=self.whole_start,
            holes=self.gaps > 0,
            gaps=self.gaps,
            missing=tuple(self.missing),
            tail=(self._tail_position, self._tail_first, self._tail_last, self._tail_before),
            wrapped=self.wrapped,
            timed=self.largest_timestamp > NONE,
            thinned=self.thinned,
            damaged=self.damaged,
            disorder=self.disorder,
            epochs=tuple(self.epochs),
            first_batches=self.first_batches,
            producers=self.producers.all(),
            open=self.open,
            ended=frozenset(self.ended),
            crowded=self.crowded or self.producers.forgot,
        )
