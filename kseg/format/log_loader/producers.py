"""The producers of a log, their open transactions and snapshots while a broker loads it.

A model of ``ProducerStateManager`` of Kafka 4.3 and of ``ProducerAppendInfo`` with origin REPLICATION, which only warns
about epochs and sequences. Producers do not expire: a broker drops those that were idle for a day when it reads a snapshot.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice

from kseg.format.log_loader import recovered_rows
from kseg.format.log_loader.broker_reader import BrokerReader
from kseg.format.log_loader.end_markers import CorruptRecord, EndMarker, end_marker
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.partition_files import SNAPSHOT_SUFFIX, File, Files, file_name
from kseg.format.record import framing, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import timestamp_or_none
from kseg.format.sidefiles.producer_snapshot import CRC_BEGINS_AT, ENTRY, HEADER, VERSION, ProducerState, decoded

#: The most open transactions that are kept. A broker has a few, but damage can create one per batch.
MAX_OPEN = 100_000
#: The most producers without an open transaction that are kept: those that wrote last.
MAX_PRODUCERS = 100_000


class Producers:
    """The state of one manager. Producers are known up to offset ``end``; ``snapshot`` is the latest snapshot's offset.

    ``states`` are the producers by id, those that wrote last at the end, and ``open_transactions`` the first offsets of
    their open transactions. ``snapshots`` are the files in the folder when the manager was created, and those that it
    wrote. Raises RefusedError for a snapshot without an offset in its name.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.end = 0
        self.snapshot = 0
        self.snapshots = files.snapshots()
        self.states: dict[int, ProducerState] = {}
        self.open_transactions: dict[int, int] = {}
        self._ongoing: set[int] = set()  # the offsets alone: two of one offset are one
        self._unreplicated: int | None = None  # the first of those whose end is not known to be replicated

    @property
    def first_unstable(self) -> int | None:
        """The first offset of a transaction that is open, or whose end may not be replicated yet."""
        ended = () if self._unreplicated is None else (self._unreplicated,)
        return min(chain(self._ongoing, ended), default=None)

    # --- batches ---

    def recover(self, log: File, batches: BatchColumns, row: int, aborted: Callable[[int], None]) -> None:
        """Add a batch like ``LogSegment.recover``. ``aborted`` is called with the last offset of an aborted transaction.

        Raises CorruptRecord, RefusedError.
        """
        producer_id, offset = batches.producer_id[row], batches.base_offset[row]
        first = self.open_transactions.get(producer_id)
        if not batches.attributes[row] & layout.CONTROL:
            if self._begins_transaction(first, batches, row):
                self._begin(producer_id, offset)
            self.add_data(batches, row, row + 1)
            return
        marker = self._add_marker(log, batches, row)
        if marker is None or first is None:
            return
        if not marker.commit:
            aborted(offset)
        self._complete(first)

    def replay(self, log: File, start: int, end: int) -> None:
        """Add a range of a log like ``UnifiedLog.loadProducersFromRecords``. Raises RefusedError."""
        # Offsets of transactions that begin and of those that end, as there may be millions.
        begun, completed = array("q"), array("q")
        reader = BrokerReader(log, start, end, verify=False)
        before = dict(self.states)
        for batches in reader.windows():
            row = -1
            while True:
                plain = row + 1
                row = recovered_rows.end_without_transactions(batches, plain, self.open_transactions)
                self.add_data(batches, plain, row)
                if row == batches.count:
                    break
                if not batches.intact[row]:
                    raise RefusedError(f"the header of the batch at byte {batches.position[row]} is incomplete")
                producer_id = batches.producer_id[row]
                first = self.open_transactions.get(producer_id)
                if not batches.attributes[row] & layout.CONTROL:
                    if self._begins_transaction(first, batches, row) and len(self.open_transactions) < MAX_OPEN:
                        self.open_transactions[producer_id] = batches.base_offset[row]
                        begun.append(batches.base_offset[row])
                    self.add_data(batches, row, row + 1)
                    continue
                try:
                    marker = self._add_marker(log, batches, row)
                except CorruptRecord as error:
                    raise RefusedError(str(error)) from error
                if marker is not None and first is not None:
                    completed.append(first)
        if reader.corrupt:
            raise RefusedError(f"its producers cannot be read: {reader.why}")
        self._restore_batches(before)
        self._ongoing.update(begun)
        for first in completed:
            self._complete(first)

    def add_data(self, batches: BatchColumns, row: int, stop: int) -> None:
        """Add the producers of the batches ``row`` to ``stop`` (exclusive), which are data (``appendDataBatch``)."""
        if row == stop:
            return
        last: dict[int, int] = {}
        recovered_rows.last_rows(batches, row, stop, last)
        for producer_id, row in last.items():
            known = self.states.pop(producer_id, None)
            delta = batches.last_offset[row] - batches.base_offset[row]
            sequence = batches.base_sequence[row]
            self.states[producer_id] = ProducerState(
                producer_id,
                batches.producer_epoch[row],
                -1 if sequence == -1 else framing.increment_sequence(sequence, delta),
                batches.last_offset[row],
                (delta + (1 << 31)) % (1 << 32) - (1 << 31),
                timestamp_or_none(batches.max_timestamp[row]),
                known.coordinator_epoch if known else -1,
                self.open_transactions.get(producer_id),
            )
        if len(self.states) > 2 * MAX_PRODUCERS:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the producers that wrote first and have no open transaction."""
        idle = [id_ for id_, state in self.states.items() if state.current_txn_first_offset is None]
        for producer_id in islice(idle, max(0, len(idle) - MAX_PRODUCERS)):
            del self.states[producer_id]

    def _add_marker(self, log: File, batches: BatchColumns, row: int) -> EndMarker | None:
        """End the transaction of a producer (``appendEndTxnMarker``). An empty batch only adds an unknown one, returns None.

        Raises CorruptRecord, RefusedError.
        """
        producer_id = batches.producer_id[row]
        marker = end_marker(log, batches, row)
        known = self.states.get(producer_id) or ProducerState(producer_id, -1, -1, -1, 0, None, -1, None)
        if marker is not None:
            known = _of_epoch(known, batches.producer_epoch[row])._replace(
                timestamp=timestamp_or_none(marker.timestamp),
                coordinator_epoch=marker.coordinator_epoch,
                current_txn_first_offset=None,
            )
            self.states.pop(producer_id, None)
            self.open_transactions.pop(producer_id, None)
        self.states[producer_id] = known
        return marker

    def _restore_batches(self, before: dict[int, ProducerState]) -> None:
        """Add the last batches that producers had before a range of the log in which they wrote none.

        Kafka collects the state of a range alone and adds it at its end, so an epoch that returns to the one before keeps
        its last batch.
        """
        for producer_id, old in before.items():
            new = self.states.get(producer_id)
            if new is not None and new.last_offset < 0 <= old.last_offset and new.producer_epoch == old.producer_epoch:
                self.states[producer_id] = new._replace(
                    last_sequence=old.last_sequence, last_offset=old.last_offset, offset_delta=old.offset_delta
                )

    def _begins_transaction(self, first: int | None, batches: BatchColumns, row: int) -> bool:
        """Return whether a batch of data begins a transaction. Raises RefusedError if it has to be inside one."""
        if batches.attributes[row] & layout.TRANSACTIONAL:
            return first is None
        if first is not None:
            raise RefusedError(
                f"producer {batches.producer_id[row]} has an open transaction from offset {first}, and writes outside "
                f"it at offset {batches.base_offset[row]}"
            )
        return False

    def _begin(self, producer_id: int, offset: int) -> None:
        if len(self.open_transactions) < MAX_OPEN:
            self.open_transactions[producer_id] = offset
            self._ongoing.add(offset)

    def _complete(self, first: int) -> None:
        if first not in self._ongoing:
            raise RefusedError(f"two transactions start at offset {first}, and both end")
        self._ongoing.remove(first)
        self._unreplicated = first if self._unreplicated is None else min(first, self._unreplicated)

    # --- snapshots ---

    def take_snapshot(self) -> None:
        """Write a snapshot if the state has changed since the last one."""
        if self.end > self.snapshot:
            name = file_name(self.end, SNAPSHOT_SUFFIX)
            self._files[name] = File(producers=list(self.states.values()))
            self.snapshots[self.end] = name
            self.snapshot = self.end

    def truncate_and_reload(self, log_start: int, log_end: int) -> None:
        """Keep the snapshots from ``log_start`` to ``log_end``, and load the latest readable one."""
        self._delete(self.snapshots.outside(log_start, log_end))
        if log_end == self.end:
            self.end = max(self.end, log_start)
            self.snapshot = self.snapshots.order[-1] if self.snapshots else log_start
            return
        self.states.clear()
        self.open_transactions.clear()
        self._ongoing.clear()
        self._unreplicated = None
        while self.snapshots:
            latest = self.snapshots.order[-1]
            found = _read_snapshot(self._files.get(self.snapshots[latest]))
            if found is not None:
                self.load(found)
                self.end = self.snapshot = latest
                return
            self._delete([latest])
        self.end = self.snapshot = log_start

    def load(self, producers: Iterable[ProducerState]) -> None:
        """Add the producers of a snapshot."""
        for state in producers:
            self.states[state.producer_id] = state
            if state.current_txn_first_offset is not None:
                self._begin(state.producer_id, state.current_txn_first_offset)

    def truncate_fully(self, offset: int) -> None:
        """Delete all snapshots, and start at an offset."""
        self._delete(list(self.snapshots))
        self.snapshot, self.end = 0, offset

    def mark_deleted(self, offsets: Iterable[int]) -> None:
        """Delete the snapshots at base offsets of deleted segments, if they existed when the manager was created."""
        self._delete([offset for offset in offsets if offset in self.snapshots])

    def remove_strays(self, bases: Iterable[int]) -> None:
        """Delete the ``stray_snapshots`` (``removeStraySnapshots``)."""
        self.snapshots = self._files.snapshots()
        self._delete(stray_snapshots(self.snapshots, bases))

    def _delete(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            name = self.snapshots[offset]
            del self.snapshots[offset]
            self._files.remove(name)


def stray_snapshots(offsets: Iterable[int], bases: Iterable[int]) -> list[int]:
    """Return the snapshots that belong to no segment, except the latest one at or after the last segment."""
    known = set(bases)
    strays = sorted(offset for offset in offsets if offset not in known)
    if strays and strays[-1] >= max(known, default=strays[-1]):
        strays.pop()
    return strays


def _of_epoch(state: ProducerState, epoch: int) -> ProducerState:
    """Return the state of a producer in an epoch: another epoch has no batch yet (``maybeUpdateProducerEpoch``)."""
    if state.producer_epoch == epoch:
        return state
    return state._replace(producer_epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)


def _read_snapshot(file: File | None) -> Sequence[ProducerState] | None:
    """Return the producers of a snapshot, None if it can't be read (``readSnapshot``)."""
    if file is None:
        raise RefusedError("a snapshot that the broker needs no longer exists")
    if file.producers is not None:
        return file.producers
    head = file.read(0, HEADER.size)
    if len(head) < HEADER.size:
        return None
    version, crc, count = HEADER.unpack(head)
    if version != VERSION or not 0 <= count * ENTRY.size <= file.size - HEADER.size:
        return None
    found: list[ProducerState] = []
    computed = crc32c(head[CRC_BEGINS_AT:])
    at = HEADER.size
    stop = HEADER.size + count * ENTRY.size
    while block := file.read(at, ENTRY.size << 10):
        computed = crc32c(block, computed)
        entries = block[: max(0, stop - at)]
        for fields in ENTRY.iter_unpack(entries[: len(entries) - len(entries) % ENTRY.size]):
            if len(found) < MAX_PRODUCERS or (fields[-1] >= 0 and len(found) < 2 * MAX_PRODUCERS):
                state = decoded(fields)
                without_batch = {"last_sequence": -1, "last_offset": -1, "offset_delta": 0}
                found.append(state if state.last_offset >= 0 else state._replace(**without_batch))
        at += len(block)
    return found if computed == crc else None
