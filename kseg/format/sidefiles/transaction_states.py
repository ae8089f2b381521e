"""The state of each record's transaction, and the transactional ids of producers.

The next marker of a producer in the log ends the transaction of its records (KIP-98), whatever its epoch is: under
transactions v2 (KIP-890) a marker's epoch can be larger than its data's. So the state needs no batch before the record and
no index: a ``.txnindex`` can be missing from a copy. Kafka's cleaner keeps a marker as long as data of its transaction are
in the log (``Cleaner.CleanedTransactionMetadata``).

A record is ``open`` if the log ends without a marker of its producer. It is ``unknown`` if bytes or a segment between the
record and the marker are lost or cannot be read, or if the record is in a single file whose log continues elsewhere.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property

from kseg.errors import NotASegmentError, ReportUnread, UnreadableError, VanishedError, each_once, raise_unread
from kseg.findings import do_nothing
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import (
    ABORTED,
    COMMITTED,
    CONTROL,
    INT64_MAX,
    OPEN,
    TRANSACTIONAL,
    UNKNOWN,
)
from kseg.format.segment import segment_chunks, transaction_events
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import checkpoints, last_stable_offset
from kseg.format.storage.local_files import entries, names_in
from kseg.format.storage.naming import (
    LOG_STARTS,
    TRANSACTION_STATE,
    base_offset_of,
    is_missing,
    is_snapshot,
    partition_of,
)
from kseg.format.storage.segment_files import is_unfinished, path_in, segments_in, walk_folders
from kseg.format.storage.source import STDIN, open_source, open_split, stored_size

# A place in a log is one number: the number of the segment in the high bits, the position of a batch in the low ones.
_SEGMENT_BITS = 40


class TransactionLogs:
    """The transactions of the logs that a run reads, one log at a time. Workers get a copy without the markers.

    ``stable_offsets`` has the last stable offset of each folder, None for the log end, for ``accepts`` of segments.
    ``unread`` gets each error of reading once; in workers it is raised.
    """

    def __init__(
        self, stable_offsets: Mapping[str, int | None] | None = None, unread: ReportUnread = raise_unread
    ) -> None:
        self._stable_offsets = {} if stable_offsets is None else stable_offsets
        #: Reports an error of reading. Raises it in workers, and if nobody gets it.
        self.unread = each_once(unread)
        self._log: TransactionLog | None = None
        self._ids: tuple[str, TransactionalIds] | None = None

    @classmethod
    def at_stable_offsets(cls, paths: Sequence[str], unread: ReportUnread = raise_unread) -> TransactionLogs:
        """Return the logs of segments with the last stable offsets of now, as far as they are certain."""
        offsets: dict[str, int | None] = {}
        logs = cls(offsets, unread)
        for folder, path in {_folder_of(path): path for path in reversed(paths)}.items():
            offsets[folder] = 0  # if it is unknown, no record is certain
            with logs.kept():
                offsets[folder] = last_stable_offset.stable_offset(paths_of_log(path), logs.unread)
        return logs

    def of(self, path: str, *, listed: bool = False) -> SegmentTransactions:
        """Return the transactions of a segment. ``listed``: it was found in a folder, so that the folder has its log."""
        folder = _folder_of(path)
        log = self._log
        if log is None or log.folder != folder or not log.has(path):
            log = self._log = TransactionLog(folder, path, listed, self.unread)
        log_dir = os.path.dirname(os.path.abspath(folder)) if "://" not in folder else folder.rpartition("/")[0]
        if self._ids is None or self._ids[0] != log_dir:
            self._ids = log_dir, TransactionalIds(log_dir, self.kept)
        return SegmentTransactions(log, path, self._stable_offsets.get(folder, INT64_MAX), self._ids[1])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Report the error of reading that ends the block."""
        try:
            yield
        except UnreadableError as error:
            self.unread(error)

    def forget(self) -> None:
        """Forget the markers that were read: a log was truncated, or its segments were replaced."""
        self._log = None

    def __repr__(self) -> str:
        return f"TransactionLogs({dict(self._stable_offsets)})"

    def __reduce__(self) -> tuple[type[TransactionLogs], tuple[Mapping[str, int | None]]]:
        return TransactionLogs, (self._stable_offsets,)


class SegmentTransactions:
    """The transactions of the batches of one segment. ``stable_offset`` None is the log end."""

    def __init__(self, log: TransactionLog, path: str, stable_offset: int | None, ids: TransactionalIds) -> None:
        self._log = log
        self._path = path
        self._stable_offset = INT64_MAX if stable_offset is None else stable_offset
        self._ids = ids

    def state(self, batches: BatchColumns, row: int) -> str | None:
        """Return the state of a batch's transaction, one of TRANSACTION_STATES; None outside transactions."""
        if batches.magic[row] < 2 or not batches.attributes[row] & TRANSACTIONAL:
            return None
        producer_id = batches.producer_id[row]
        if batches.crc_state[row] == CRC_BAD or producer_id < 0:
            return UNKNOWN
        return self._log.state(self._path, batches.position[row], producer_id)

    def transactional_id(self, batches: BatchColumns, row: int) -> str | None:
        """Return the transactional id of a transactional batch's producer; None if it is unknown."""
        if batches.magic[row] < 2 or not batches.attributes[row] & TRANSACTIONAL:
            return None
        return self._ids.of_producer(batches.producer_id[row])

    @property
    def log_start(self) -> int:
        """The first offset that clients can read by the log directory's checkpoint. Raises UnreadableError."""
        return self._log.log_start

    def accepts(self, batches: BatchColumns, row: int) -> bool:
        """Return whether a consumer with read_committed gets the records of a batch.

        Not if a segment that can have the marker cannot be read.
        """
        if batches.base_offset[row] >= self._stable_offset:
            return False
        if batches.magic[row] < 2 or not batches.attributes[row] & (CONTROL | TRANSACTIONAL):
            return True
        if batches.attributes[row] & CONTROL:
            return False
        return self.state(batches, row) == COMMITTED


class TransactionLog:
    """The markers of one log, read as far as the states of the requested records need them."""

    def __init__(self, folder: str, path: str, listed: bool, unread: ReportUnread) -> None:
        self.folder = folder
        self._unread = unread
        self._paths: Sequence[str] = ()
        self._path = path
        # Whether the log ends where the last file ends.
        name = os.path.basename(os.path.abspath(folder))
        self._ends_here = path != STDIN and (listed or partition_of(name) is not None)
        self._numbers: dict[str, int] = {}
        #: Producer id -> the places of its markers, twice, plus 1 for an aborted transaction. In order.
        self._of_producer: dict[int, array[int]] = {}
        #: The places of the first batches after bytes or segments that are lost.
        self._losses: array[int] = array("q")
        self._lost = False
        #: The place after the last missing offsets between two segments.
        self._after_gap = -1
        self._begin: int | None = None
        self._end = 0
        self._ended = False
        self._next_offset: int | None = None
        #: The offsets of the producer snapshots before the log was read, and the result of open_after_end.
        self._snapshots: Sequence[int] = ()
        self._later: tuple[int, Mapping[int, int]] | None = None
        self._markers: Iterator[int] = iter(())

    @cached_property
    def log_start(self) -> int:
        """The log start offset of the log directory's checkpoint, 0 without one. Raises UnreadableError."""
        return 0 if self._path == STDIN else checkpoints.checkpoint_offset(self.folder, LOG_STARTS) or 0

    def has(self, path: str) -> bool:
        """Return whether the segment belongs to the log, as far as the log was needed."""
        return path in self._numbers

    def state(self, path: str, position: int, producer_id: int) -> str:
        """Return the state of the transaction of a producer's batch at a position of a segment."""
        if not self._paths:
            self._list(self._segments(self._path))
        place = self._numbers[path] << _SEGMENT_BITS | position
        if self._begin is None or place < self._begin:
            self._begin_at(place)
        elif place >= self._end and self._ended:
            self._read_on()
        while True:
            ends = self._of_producer.get(producer_id)
            if ends is not None and ends[-1] >= 2 * place:
                end = ends[bisect_left(ends, 2 * place)]
                if self._is_lost(place, end >> 1):
                    return UNKNOWN
                return ABORTED if end & 1 else COMMITTED
            if next(self._markers, None) is None:
                if not self._ended:
                    self._end_log()
                # No log cleaner removes records after an open transaction began (LogCleanerManager.cleanableOffsets).
                lost = self._lost or self._is_lost(place, INT64_MAX) or self._after_gap > place
                lost = lost or self._is_ended_later(producer_id)
                return OPEN if self._ends_here and not lost else UNKNOWN

    def _end_log(self) -> None:
        """Note that all segments are read."""
        self._ended = True
        try:
            self._later = last_stable_offset.open_after_end(self.folder, self._next_offset or 0, self._snapshots)
        except UnreadableError as error:
            self._lost = True
            self._unread(error)

    def _is_ended_later(self, producer_id: int) -> bool:
        """Return whether a snapshot after the log end lacks the transaction that is open at the end: its marker is lost."""
        end = self._next_offset or 0
        return self._later is not None and self._later[1].get(producer_id, end) >= end

    def _segments(self, path: str) -> list[str]:
        try:
            return paths_of_log(path)
        except UnreadableError as error:  # which segment has the next markers is not known
            self._ends_here = False
            self._unread(error)
        return [path]

    def _list(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._numbers = {path: number for number, path in enumerate(paths)}

    def _begin_at(self, place: int) -> None:
        """Forget all markers, and read from a place on."""
        self._of_producer = {}
        self._losses = array("q")
        self._lost = self._ended = False
        self._after_gap = -1
        self._begin = self._end = place
        self._next_offset = self._later = None
        self._snapshots = last_stable_offset.snapshot_offsets(self.folder)
        self._markers = self._read(place)

    def _is_lost(self, place: int, end: int) -> bool:
        """Return whether something between two places is lost."""
        at = bisect_right(self._losses, place)
        return at < len(self._losses) and self._losses[at] <= end

    def _read_on(self) -> None:
        """Continue after the end that the log had: a broker has appended batches since."""
        now = self._segments(self._paths[-1])
        self._list([*self._paths, *(path for path in now if path not in self._numbers)])
        self._ended = False
        self._markers = self._read(self._end)

    def _read(self, begin: int) -> Iterator[int]:
        """Read the segments from a place on; yield after each window."""
        number, position = begin >> _SEGMENT_BITS, begin & (1 << _SEGMENT_BITS) - 1
        while number < len(self._paths):
            path = self._paths[number]
            try:
                self._lost = self._follows_gap(number) or self._lost
                yield from self._read_segment(path, number << _SEGMENT_BITS, position)
            except (NotASegmentError, VanishedError):
                self._lost = True
            except UnreadableError as error:  # no damage, but the markers of this segment are not known either
                self._lost = True
                self._unread(error)
            number, position = number + 1, 0

    def _read_segment(self, path: str, first: int, start: int) -> Iterator[int]:
        size = stored_size(path)
        if size is not None and size <= start:
            return
        opener = DeepIterator()
        source = open_source(path, listed=True) if size is None else open_split(path, start, size)
        with SegmentReader(source) as reader:
            lost_bytes = 0
            for window in reader.windows():
                self._lost |= reader.damaged and reader.lost_bytes > lost_bytes
                lost_bytes = reader.lost_bytes
                self._update(window, first, opener)
                self._end = first + reader.position
                yield self._end
            self._lost |= reader.damaged and reader.lost_bytes > lost_bytes
            self._end = max(self._end, first + reader.position)

    def _update(self, window: Window, first: int, opener: DeepIterator) -> None:
        """Add the markers of a window."""
        batches = window.batches
        if batches.crc_state[0] == CRC_BAD:
            self._lost = True
            return
        if self._lost:
            self._losses.append(first + batches.position[0])
            self._lost = False
        for row, _, marker in transaction_events.transaction_events(window, opener, with_data=False):
            if marker is not None:
                place = 2 * (first + batches.position[row]) + (marker.type == "ABORT")
                self._of_producer.setdefault(batches.producer_id[row], array("q")).append(place)
        self._next_offset = batches.last_offset[batches.count - 1] + 1

    def _follows_gap(self, number: int) -> bool:
        """Return whether a segment is missing before this one: offsets are, and the log is not compacted."""
        base, expected = base_offset_of(self._paths[number]), self._next_offset
        if base is None or expected is None or base <= expected:
            return False
        self._after_gap = number << _SEGMENT_BITS
        # The loss before can be the gap: its segment, which may be unreadable, is not read again.
        return self._lost or not last_stable_offset.are_compacted(self.folder, self._paths[number - 1 : number + 1])


def paths_of_log(path: str) -> list[str]:
    """Return the segments of the log that a segment belongs to, in offset order: those of its folder.

    Of a file with another name, and of a KRaft snapshot, it is the file alone. What an archive lacks is the last one.
    """
    if path == STDIN or base_offset_of(path) is None or is_snapshot(path):
        return [path]
    folder = _folder_of(path)
    try:
        if is_unfinished(folder):
            _, names = next(walk_folders(folder, do_nothing))
        else:
            names = [name for name, kind in entries(folder) if kind != "folder"]
    except VanishedError:
        return [path]
    found = [file.path for file in segments_in(folder, names) if not is_snapshot(file.path)]
    return sorted(found, key=lambda one: (is_missing(one), base_offset_of(one) or 0)) if path in found else [path]


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] if "://" in path else os.path.dirname(path)


#: The beginning of a key and of a value of ``__transaction_state``, in both versions.
_KEY = struct.Struct(">hH")
_VALUE = struct.Struct(">hq")
_VERSIONS = (0, 1)


class TransactionalIds:
    """The transactional ids of a log directory's producers, from its partitions of ``__transaction_state``.

    They are read at the first question. A log directory of one broker has only some of these partitions.
    """

    def __init__(self, log_dir: str, kept: Callable[[], AbstractContextManager[None]]) -> None:
        self._log_dir = log_dir
        self._kept = kept
        self._by_producer: dict[int, str] | None = None

    def of_producer(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer; None if no partition has it that can be read."""
        if self._by_producer is None:
            found: dict[int, str] = {}
            with self._kept():
                for path in self._segments():
                    with self._kept():
                        found.update(_ids_in(path))
            self._by_producer = found
        return self._by_producer.get(producer_id)

    def _segments(self) -> Iterator[str]:
        for name in sorted(names_in(self._log_dir)):
            partition = partition_of(name)
            if partition and partition.topic == TRANSACTION_STATE:
                folder = path_in(self._log_dir, name)
                yield from (file.path for file in segments_in(folder, names_in(folder)))


def _ids_in(path: str) -> Iterator[tuple[int, str]]:
    """Yield the producer ids of a segment of ``__transaction_state``, each with its transactional id."""
    with suppress(VanishedError, NotASegmentError):
        for chunk in segment_chunks.chunks_of(open_source(path, listed=True)):
            for i in range(chunk.records.count):
                if found := _producer_of(*chunk.key_and_value(i)):
                    yield found


def _producer_of(key: bytes | None, value: bytes | None) -> tuple[int, str] | None:
    """Return the producer id and the transactional id of a record of ``__transaction_state``; None for a tombstone."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    kind, size = _KEY.unpack_from(key)
    version, producer_id = _VALUE.unpack_from(value)
    if kind or version not in _VERSIONS or producer_id < 0 or len(key) < _KEY.size + size:
        return None
    return producer_id, key[_KEY.size : _KEY.size + size].decode("utf-8", "replace")
