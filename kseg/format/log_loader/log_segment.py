"""A segment while a broker loads a log, and the files of operations that the last stop interrupted.

The segment is ``LogSegment`` of Kafka 4.3, without its writing. A broker deletes or completes the files of interrupted
operations before it loads the log: ``LogLoader.removeTempFilesAndCollectSwapFiles`` and the passes of ``LogLoader.load``
over swap files.
"""

from __future__ import annotations

from typing import NamedTuple

from kseg.format.log_loader import recovered_rows
from kseg.format.log_loader.broker_reader import BrokerReader, base_offset_of, last_offset, position_of
from kseg.format.log_loader.end_markers import CorruptRecord
from kseg.format.log_loader.loaded_files import LeaderEpochCache, RefusedError
from kseg.format.log_loader.partition_files import (
    AddStep,
    File,
    Files,
    InvalidOffsetError,
    OffsetIndex,
    TimeIndex,
    file_name,
    fits,
    offset_of,
    offset_or_none,
    wrapped,
)
from kseg.format.log_loader.producers import Producers
from kseg.format.log_loader.recovered_rows import IndexProgress
from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX, INT64_MAX
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.storage.naming import INDEX_SUFFIXES
from kseg.text import inclusive_range

#: Kafka's default of segment.index.bytes.
INDEX_BYTES = 10 << 20
#: The ends of the names of a segment's files.
SEGMENT_FILES = (".log", *INDEX_SUFFIXES)
#: Bytes of an entry of a transaction index.
_ABORTED = 34


class OffsetOverflow(Exception):
    """An offset of the segment does not fit its indexes: Kafka's LogSegmentOffsetOverflowException."""

    def __init__(self, segment: LogSegment, offset: int) -> None:
        super().__init__(offset)
        self.segment = segment
        self.offset = offset


class Limits(NamedTuple):
    """A topic's index.interval.bytes and segment.index.bytes."""

    index_interval: int = INDEX_INTERVAL_BYTES
    index_bytes: int = INDEX_BYTES


DEFAULT_LIMITS = Limits()


class LogSegment:
    """The log of a base offset with its indexes, which are opened or created at their first use."""

    def __init__(self, files: Files, base_offset: int, limits: Limits, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.suffix = suffix
        self.log = files.open(self.name)
        if self.log.size > INT32_MAX:
            raise RefusedError(f"it has {self.log.size} bytes, the limit of a segment is {INT32_MAX}", self.name)
        self._files = files
        self._limits = limits
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._progress = IndexProgress(limits.index_interval, base_offset)
        #: The log's end offset that recovery or the last search found, and the byte of the log where it ended.
        self.end = base_offset
        self.stop = 0

    @property
    def name(self) -> str:
        """The log's file name."""
        return self._name(".log")

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return self.log.size

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, created if it is missing."""
        if self._offsets is None:
            name = self._name(".index")
            self._offsets = OffsetIndex(self._files, name, self.base_offset, self._limits.index_bytes)
        return self._offsets

    @property
    def time_index(self) -> TimeIndex:
        """The time index, created if it is missing."""
        if self._times is None:
            self._times = TimeIndex(self._files, self._name(".timeindex"), self._limits.index_bytes)
        return self._times

    def _name(self, kind: str) -> str:
        return file_name(self.base_offset, kind) + self.suffix

    def rename(self, suffix: str) -> None:
        """Give all its files another suffix."""
        old, self.suffix = self.suffix, suffix
        for kind in SEGMENT_FILES:
            name = file_name(self.base_offset, kind)
            if name + old in self._files:
                self._files.rename(name + old, name + suffix)

    def close(self) -> None:
        """Make the indexes as large as their entries."""
        for index in (self._offsets, self._times):
            if index is not None:
                index.trim()

    def forget(self) -> None:
        """Drop the entries of a rebuilt index, to bound memory: a look-up then begins at the log's first byte."""
        if self._offsets is not None and self._offsets.file.entries is not None:
            self._offsets.file.entries = []

    def resize_indexes(self) -> None:
        """Make room for appending. Raises RefusedError if an index is larger than the limit."""
        self.offset_index.resize()
        self.time_index.resize()

    def position_of(self, offset: int) -> int | None:
        """Return the position at which a read of an offset begins (``translateOffset``). Raises RefusedError."""
        return position_of(self.log, offset, self.offset_index.position_of(offset))

    def next_offset(self) -> int:
        """Return the log's end offset according to this segment (``readNextOffset``). Raises RefusedError."""
        position = self.position_of(self.offset_index.last_offset)
        self.end, self.stop = self.base_offset, 0
        if position is not None:
            last, self.stop = last_offset(self.log, position)
            self.end = self.base_offset if last is None else wrapped(last + 1)
        return self.end

    def recover(self, producers: Producers, epochs: LeaderEpochCache) -> tuple[int, str | None]:
        """Check all batches, rebuild the indexes, truncate invalid bytes. Returns the number of these, and the reason.

        Raises InvalidOffsetError if an index rejects an offset, OffsetOverflow, RefusedError.
        """
        self.offset_index.reset()
        self.time_index.reset()
        aborted = _AbortedTransactions(self._files, self._name(".txnindex"))
        aborted.empty()
        self._progress = IndexProgress(self._limits.index_interval, self.base_offset)
        self.end = self.base_offset
        reader = BrokerReader(self.log, verify=True)
        why: str | None = None
        try:
            for batches in reader.windows():
                self._recover_window(batches, producers, epochs, aborted)
            why = reader.why
        except CorruptRecord as error:
            why = str(error)
        cut = self.log.size - self._progress.valid
        self.log.truncated(self._progress.valid)
        self.offset_index.trim()
        self.time_index.append(self._progress.timestamp, self._progress.offset, last=True)
        self.time_index.trim()
        return cut, why

    def _recover_window(
        self, batches: BatchColumns, producers: Producers, epochs: LeaderEpochCache, aborted: _AbortedTransactions
    ) -> None:
        """Recover the batches of a window. Most change only the indexes."""
        row = 0
        while row < batches.count:
            stop = recovered_rows.end_of_plain(
                batches, row, self.base_offset, epochs.latest, producers.open_transactions
            )
            plain = stop > row
            stop = max(stop, row + 1)
            last = batches.last_offset[stop - 1]
            if not plain and not fits(last, self.base_offset):
                raise OffsetOverflow(self, last)
            self._append_to_indexes(batches, row, stop)
            self.end = wrapped(last + 1)
            if batches.magic[row] >= 2:
                if plain:
                    producers.add_data(batches, row, stop)
                else:
                    epochs.assign(batches.partition_leader_epoch[row], batches.base_offset[row])
                    if batches.producer_id[row] >= 0:
                        producers.recover(self.log, batches, row, aborted.append)
                producers.end = self.end
            row = stop

    def _append_to_indexes(self, batches: BatchColumns, row: int, stop: int) -> None:
        """Add the batches ``row`` to ``stop`` (exclusive) to the indexes. Raises InvalidOffsetError, RefusedError."""
        progress = self._progress
        while (row := progress.next_entry(batches, row, stop)) < stop:
            self.offset_index.append(batches.last_offset[row], progress.valid)
            self.time_index.append(progress.timestamp, progress.offset)
            progress.indexed = progress.valid

    def truncate(self) -> int:
        """Empty the segment like ``truncateTo`` with its base offset, and return the bytes removed. Raises RefusedError."""
        position = self.position_of(self.base_offset)
        for index in (self.offset_index, self.time_index):
            index.entries = 0
            index.resize()
        _AbortedTransactions(self._files, self._name(".txnindex")).empty()
        cut = 0
        if position is not None:
            cut = self.log.size - position
            self.log.truncated(position)
        if self._progress.timestamp >= 0 and self.log.size:
            last_offset(self.log, 0)  # the largest timestamp is searched in the remaining batches
        return cut

    # --- splitting ---

    def has_overflow(self) -> bool:
        """Return whether the log's end offset does not fit the indexes. Raises RefusedError."""
        end = self.next_offset()
        return end > self.base_offset and not fits(wrapped(end - 1), self.base_offset)

    def split(self, files: Files) -> list[LogSegment]:
        """Split it into segments whose offsets fit (``LocalLog.splitOverflowedSegment``). Raises RefusedError."""
        made: list[LogSegment] = []
        position = 0
        while position < self.log.size:
            reader = BrokerReader(self.log, position, verify=False)
            first = next(reader.windows(), None)
            if first is None:
                raise RefusedError(f"it cannot be split: {reader.why or 'its end is not a batch'}", self.name)
            base = base_offset_of(self.log, first, 0)
            for kind in SEGMENT_FILES:
                files.remove(file_name(base, kind) + ".cleaned")
            piece = LogSegment(files, base, self._limits, ".cleaned")
            made.append(piece)
            copied = piece.copy_from(self.log, position)
            if not copied:
                raise RefusedError("it cannot be split: a batch does not fit its own offset", self.name)
            position += copied
        for piece in made:
            piece.time_index.append(piece._progress.timestamp, piece._progress.offset, last=True)
            piece.offset_index.trim()
            piece.time_index.trim()
        return made

    def copy_from(self, source: File, start: int) -> int:
        """Copy the batches from byte ``start`` on whose offsets fit. Returns the number of bytes. Raises RefusedError."""
        self.log.path, self.log.begin = source.path, source.begin + start
        position = start
        reader = BrokerReader(source, start, verify=False)
        for batches in reader.windows():
            for row in range(batches.count):
                self._check_name(source, batches, row)
                if not fits(batches.last_offset[row], self.base_offset):
                    return position - start
                try:
                    self._append_to_indexes(batches, row, row + 1)
                except InvalidOffsetError as error:
                    raise RefusedError("it cannot be split: its offsets decrease, and an index rejects them") from error
                position += batches.size[row]
                self.log.size = self.log.stored = position - start
        if reader.corrupt:
            raise RefusedError(f"it cannot be split: {reader.why}")
        return position - start

    def _check_name(self, source: File, batches: BatchColumns, row: int) -> None:
        """Raise RefusedError like ``MemoryRecords``, which reads the copied bytes and rejects more than ``FileRecords``."""
        magic = source.read(batches.position[row] + layout.MAGIC_AT, 1)[0] if batches.count == 1 else 0
        if magic > 2 or (batches.size[row] < layout.RECORD_BATCH_OVERHEAD and batches.magic[row] == 2):
            raise RefusedError(f"it cannot be split: the bytes at {batches.position[row]} are not a batch")


class _AbortedTransactions:
    """The transaction index that recovery writes, created with its first entry."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._last: int | None = None

    def empty(self) -> None:
        """Remove all entries."""
        if self._name in self._files:
            self._files[self._name].truncated(0)

    def append(self, last: int) -> None:
        """Add an aborted transaction that ends at an offset. Raises RefusedError if it has no start below that offset."""
        if self._last is not None and self._last >= last:
            raise RefusedError(f"an aborted transaction ends at offset {last}, but the previous one at {self._last}")
        self._last = last
        file = self._files.open(self._name)
        file.truncated(file.size + _ABORTED)


def delete_unfinished(files: Files, add_step: AddStep) -> None:
    """Delete files that are marked for deletion and files of unfinished operations. Raises RefusedError."""
    first_cleaned = min((offset_of(name) for name in files if name.endswith(".cleaned")), default=INT64_MAX)
    for name in sorted(files):
        if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
            delete(files, name, "a deletion did not finish", add_step)
        elif name.endswith(".cleaned"):
            delete(files, name, "the cleaner did not finish", add_step)
        elif name.endswith(".swap") and offset_of(name) >= first_cleaned:
            why = f"the split of a segment did not finish: a .cleaned file of offset {first_cleaned} exists"
            delete(files, name, why, add_step)


def complete_swaps(files: Files, limits: Limits, add_step: AddStep) -> None:
    """Give each complete .swap file its name, and delete those that it replaces. Raises RefusedError, UnreadableError."""
    first, end = INT64_MAX, -INT64_MAX - 1
    for name in sorted(files):
        if name.endswith(".log.swap"):
            segment = LogSegment(files, offset_of(name), limits, ".swap")
            first, end = min(first, segment.base_offset), max(end, segment.next_offset())
    for name in sorted(files):
        offset = None if name.endswith(".swap") else offset_or_none(name)
        if offset is not None and first <= offset < end:
            delete(files, name, f"a .swap file has {inclusive_range('offset', first, end - 1)}", add_step)
    for name in sorted(name for name in files if name.endswith(".swap")):
        add_step("rename-swap", name, f"renamed to {name.removesuffix('.swap')}")
        files.rename(name, name.removesuffix(".swap"))


def delete(files: Files, name: str, why: str, add_step: AddStep) -> None:
    """Delete one file, and report it."""
    add_step("delete-segment" if name.endswith(".log") else "delete-file", name, why)
    del files[name]
