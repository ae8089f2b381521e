"""Collect the facts of a segment that the checks across segments need, and compare its indexes with its batches.

This is one more loop over the columns, compiled like the others. Its memory depends on the numbers of leader epochs and
producers, which are limited, not on the size of the segment.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from kseg.format.checks.offset_checks import MAX_GAPS
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, INT64_MAX, NO_TIMESTAMP, TRANSACTIONAL
from kseg.format.record.offset_evidence import LIMIT, BoundedMap, shows_compaction

NOTHING = array("q")

#: The most runs of leader epochs that are kept: real logs have a few, damage could cause one per batch.
MAX_EPOCHS = 10_000

#: (epoch, first offset, last offset) of consecutive batches of one leader epoch.
EpochRun = tuple[int, int, int]
#: (producer epoch, base sequence, base offset) of a data batch.
FirstBatch = tuple[int, int, int]
#: (producer epoch, last sequence, last offset, last offset minus base offset) of a data batch.
LastBatch = tuple[int, int, int, int]
#: An entry of a transaction index: its position, producer id, first and last offset; and the offsets of the producer's first
#: data of the transaction and of its last marker before, both in the segment, -1 if there is none.
CarriedEntry = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts of a segment that other checks of its partition need. All offsets are inclusive.

    - ``first_offset``, ``last_offset``: of the valid batches, None without one. The header of a compressed v0 or v1 message
      set has only its last offset, which counts as the first unless it was decompressed.
    - ``intact_start``, ``intact_end``: no bytes before the first and after the last valid batch are lost.
    - ``gaps``: how many times offsets are missing between batches where no damage explains it; ``holes``: they are.
    - ``missing``: (position in the log, first offset, last offset) of the first of these gaps.
    - ``tail``: (position in the log, first offset, last offset, largest offset before it or -1) of the last valid batch.
      The position is -1 for a compressed message set.
    - ``thinned``: a v2 batch has fewer records than offsets, or a delete horizon; only the log cleaner causes that.
    - ``keyless``: the key of a record is null. The cleaner removes such records.
    - ``wrapped``: the segment has compressed v0 or v1 messages, and its first offset may not be known; ``wrapped_start``:
      its first batch is such a set; ``opened``: they were decompressed.
    - ``timed``: a batch has a timestamp. ``damaged``: bytes are lost.
    - ``disorder``: offsets decrease, so ``last_offset`` is not reliable.
    - ``first_batches``, ``producers``: the first and the last data batch of each producer id.
    - ``open``: first offset by producer id of the transactions that do not end in this segment; ``ended``: the offset of
      the last marker by producer id.
    - ``coordinators``: the offset of the last marker and its coordinator epoch by producer id.
    - ``unindexed``: marker offset by producer id of aborts that the transaction index lacks, if the producer has no
      data before the marker in this segment.
    - ``carried``: the index entries of aborts whose transactions may have begun in an earlier segment.
    - ``crowded``: the segment has more producers than are remembered, so these collections are incomplete.
    """

    first_offset: int | None = None
    last_offset: int | None = None
    intact_start: bool = False
    intact_end: bool = False
    holes: bool = False
    gaps: int = 0
    missing: tuple[tuple[int, int, int], ...] = ()
    tail: tuple[int, int, int, int] = (-1, -1, -1, -1)
    thinned: bool = False
    keyless: bool = False
    wrapped: bool = False
    wrapped_start: bool = False
    opened: bool = False
    timed: bool = False
    damaged: bool = False
    disorder: bool = False
    epochs: tuple[EpochRun, ...] = ()
    first_batches: dict[int, FirstBatch] = field(default_factory=dict)
    producers: dict[int, LastBatch] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    coordinators: dict[int, tuple[int, int]] = field(default_factory=dict)
    unindexed: dict[int, int] = field(default_factory=dict)
    carried: tuple[CarriedEntry, ...] = ()
    crowded: bool = False


class FactsCollector:
    """Collects the facts of one segment, window by window.

    ``offsets`` and ``times`` are the ``OffsetIndexCheck`` and the ``TimeIndexCheck`` of its indexes.
    """

    def __init__(self, offsets: Any, times: Any) -> None:
        self._offsets = offsets
        self._times = times
        self._offset_column: Any = NOTHING
        self._position_column: Any = NOTHING
        self._timestamp_column: Any = NOTHING
        self._time_offset_column: Any = NOTHING
        # The rows of the next index entries, and the position and the offset that they refer to.
        self.offset_row = 0
        self.time_row = 0
        self._offset_rows = 0
        self._time_rows = 0
        self._offset_due = INT64_MAX
        self._time_due = INT64_MAX
        # The offsets of the last two valid entries of the offset index, and the largest timestamp before the batch of each.
        self._entry_offset = self._earlier_offset = INT64_MAX
        self._entry_largest = self._earlier_largest = NO_TIMESTAMP
        self._next_offset_entries()
        self._next_time_entries()
        self.has_batches = False
        self.first_offset = -1
        self.last_offset = -1
        self.largest_timestamp = NO_TIMESTAMP
        # The largest timestamp of the batch that holds the offset of the time index's last entry so far.
        self.indexed_timestamp = NO_TIMESTAMP
        self.end = 0
        self.gaps = 0
        self.missing: list[tuple[int, int, int]] = []
        # The offsets in the header of a damaged batch that is right after a valid one; -1 without one.
        self._claimed_first = -1
        self._claimed_last = -1
        # Whether the bytes right before the batch are a valid batch, or the start of the segment.
        self._joined = True
        self.intact_start = False
        # Of the last valid batch: its position, its first and last offset, and the largest offset before it.
        self._tail_position = -1
        self._tail_first = -1
        self._tail_last = -1
        self._tail_before = -1
        self.thinned = False
        self.wrapped = False
        self.wrapped_start = False
        # v0 messages lack timestamps, although the broker may have indexed its append time (LogAppendTime).
        self.untimed = False
        self.disorder = False
        self.damaged = False
        self.transactional = False
        self.epochs: list[EpochRun] = []
        self._epoch = -1
        self._epoch_first = -1
        self._epoch_last = -1
        self.first_batches: dict[int, FirstBatch] = {}
        self.producers = BoundedMap()
        # The producer of the last batch, which mostly wrote the next batch, too.
        self._producer_id = -1
        self._producer_epoch = -1
        self._last_sequence = -1
        self._producer_last = -1
        self._offset_delta = -1
        self.open: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.crowded = False

    def update(self, batches: BatchColumns, misplaced: set[int]) -> bool:
        """Add the next batches. Return whether one of them belongs to a transaction.

        ``misplaced`` are the positions of batches whose base offset is known to be wrong.
        """
        self.transactional = False
        for row in range(batches.count):
            position = batches.position[row]
            end = position + batches.size[row]
            if position != self.end:
                self.damaged = True
                self._joined = False
                self._claimed_first = -1
            self.end = end
            if self._offset_due < end:
                self._match_offset_index(position, end)
            if batches.crc_state[row] == CRC_BAD or (misplaced and position in misplaced):
                self.damaged = True
                if self._joined and batches.base_offset[row] > self.last_offset:
                    self._claimed_first, self._claimed_last = batches.base_offset[row], batches.last_offset[row]
                else:
                    self._claimed_first = -1
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
            else:
                self._earlier_offset, self._earlier_largest = self._entry_offset, self._entry_largest
                self._entry_offset = self._offset_column[self.offset_row]
                self._entry_largest = self.largest_timestamp
            self.offset_row += 1
            if self.offset_row == self._offset_rows:
                self._next_offset_entries()
            else:
                self._offset_due = self._position_column[self.offset_row]

    def _next_offset_entries(self) -> None:
        columns = self._offsets.next_columns()
        self.offset_row = 0
        self._offset_due = INT64_MAX
        if columns is not None:
            self._offset_column, self._position_column = columns
            self._offset_rows = len(columns[0])
            self._offset_due = self._position_column[0]

    def _match_time_index(self, last: int, timestamp: int) -> None:
        before = self.largest_timestamp
        latest = timestamp if timestamp > before else before
        # A damaged base offset can reach INT64_MAX itself.
        while self.time_row < self._time_rows and last >= self._time_due:
            stored = self._timestamp_column[self.time_row]
            if self._time_due < self.first_offset and not (self.wrapped or self.damaged):
                self._times.check_position(self.time_row, self.first_offset)
            elif before > stored or (latest < stored and not (self.damaged or self.disorder or self.untimed)):
                self._times.check(self.time_row, before, latest)
            elif before == stored and self._largest_skipped(self._time_due) == stored:
                self._times.check_skipped(self.time_row)
            self.indexed_timestamp = timestamp
            self.time_row += 1
            if self.time_row == self._time_rows:
                self._next_time_entries()
            else:
                self._time_due = self._time_offset_column[self.time_row]

    def _largest_skipped(self, offset: int) -> int:
        """Return the largest timestamp before the position from which a broker searches ``offset`` (``OffsetIndex.lookup``).

        The last entry can be that of an append which ends after the offset. The one before it is not.
        """
        if self._entry_offset <= offset:
            return self._entry_largest
        return self._earlier_largest if self._earlier_offset <= offset else NO_TIMESTAMP

    def _next_time_entries(self) -> None:
        columns = self._times.next_columns()
        self.time_row = self._time_rows = 0
        self._time_due = INT64_MAX
        if columns is not None:
            self._timestamp_column, self._time_offset_column = columns
            self._time_rows = len(columns[0])
            self._time_due = self._time_offset_column[0]

    def _update_order(self, batches: BatchColumns, row: int, last: int) -> None:
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        first = last if batches.magic[row] < 2 else batches.base_offset[row]
        self._tail_position = -1 if wrapper else batches.position[row]
        self._tail_first = first
        self._tail_last = last
        self._tail_before = self.last_offset
        if wrapper:
            self.wrapped = True
        if not self.has_batches:
            self.has_batches = True
            self.intact_start = self._joined
            self.wrapped_start = self.wrapped
            self.first_offset = first
        elif first <= self.last_offset:
            self.disorder = True
        elif first != self.last_offset + 1 and not wrapper and self._joined:
            self.gaps += 1
            if len(self.missing) < MAX_GAPS:
                self.missing.append((batches.position[row], self.last_offset + 1, first - 1))
        elif not (self._joined or wrapper) and self._claimed_first >= 0 and self._claimed_last < first:
            # The header of a damaged batch agrees with both neighbours: the undamaged log has the same gaps.
            self.gaps += (self._claimed_first > self.last_offset + 1) + (first > self._claimed_last + 1)
        self._claimed_first = -1
        if last < first:
            self.disorder = True
        elif batches.magic[row] >= 2 and shows_compaction(batches, row):
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
        if attributes & TRANSACTIONAL:
            self.transactional = True
            if attributes & CONTROL:
                self.open.pop(producer_id, None)
                if len(self.ended) < LIMIT or producer_id in self.ended:
                    self.ended[producer_id] = last
                else:
                    self.crowded = True
            elif producer_id not in self.open:
                if len(self.open) < LIMIT:
                    self.open[producer_id] = batches.base_offset[row]
                else:
                    self.crowded = True
        if attributes & CONTROL:
            return
        sequence = batches.base_sequence[row]
        if producer_id != self._producer_id:
            self._end_producer()
            self._producer_id = producer_id
            if producer_id not in self.first_batches and len(self.first_batches) < LIMIT:
                self.first_batches[producer_id] = (batches.producer_epoch[row], sequence, batches.base_offset[row])
        self._producer_epoch = batches.producer_epoch[row]
        self._offset_delta = last - clamped(batches.base_offset[row])
        self._last_sequence = increment_sequence(sequence, self._offset_delta)
        self._producer_last = last

    def _end_producer(self) -> None:
        if self._producer_id >= 0:
            last = self._producer_epoch, self._last_sequence, self._producer_last, self._offset_delta
            self.producers.put(self._producer_id, last)

    def facts(self, size: int) -> SegmentFacts:
        """Return the facts of a segment of ``size`` bytes. Do not call ``update`` afterwards."""
        self._end_epoch()
        self._end_producer()
        return SegmentFacts(
            first_offset=self.first_offset if self.has_batches else None,
            last_offset=self.last_offset if self.has_batches else None,
            intact_end=self._joined and self.end == size,
            holes=self.gaps > 0,
            missing=tuple(self.missing),
            tail=(self._tail_position, self._tail_first, self._tail_last, self._tail_before),
            timed=self.largest_timestamp > NO_TIMESTAMP,
            epochs=tuple(self.epochs),
            producers=self.producers.all(),
            crowded=self.crowded or self.producers.forgot,
            **{name: getattr(self, name) for name in _COLLECTED},
        )


# The facts that the collector has under their names.
_COLLECTED = (
    "intact_start", "gaps", "wrapped", "wrapped_start", "thinned", "damaged", "disorder", "first_batches", "open", "ended",
)  # fmt: skip
