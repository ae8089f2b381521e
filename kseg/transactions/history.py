"""``kseg transactions`` as a library: every transaction of a partition, how it ended, and what holds the last stable offset.

A transaction begins with a producer's first transactional batch and ends with its marker (KIP-98). Under transactions
v2 (KIP-890) a marker's epoch may be larger than its data's, so the producer id alone tells whose it is. What is open for
longer than a transaction may take is called hanging, as ``kafka-transactions.sh find-hanging`` does (KIP-664), which
also asks the coordinator: a file can't.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from kseg.beside.producer_snapshot import walk_snapshot
from kseg.beside.side_reading import entries_of
from kseg.beside.txn_index import has_markers
from kseg.errors import KsegError
from kseg.files.storage import SegmentFile, base_offset_of, open_source, partition_of
from kseg.findings import Finding
from kseg.format.control_records import ControlRecord
from kseg.format.kernel import CRC_BAD, BatchColumns
from kseg.log.deep_iteration import DeepIterator
from kseg.log.markers import transactional
from kseg.log.segment import SegmentReader

#: transaction.max.timeout.ms, as brokers default to it: what find-hanging goes by, too.
MAX_TRANSACTION_MS = 15 * 60 * 1000
STATES = ("hanging", "open", "aborted", "committed")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction. Times are epoch milliseconds of its first and last batch of data, None where these are gone.

    ``last_offset`` is its marker's, or of its last batch so far. ``producer_epoch`` is the data's. ``batches`` and
    ``records`` are those of the log, without what came before its first segment.
    """

    folder: str
    topic: str | None
    partition: int | None
    state: str
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    start_timestamp: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None = None

    @property
    def abort(self) -> str | None:
        """The command that ends it, None where it has ended or the partition is not known."""
        if self.state not in ("hanging", "open") or self.topic is None:
            return None
        return (
            "kafka-transactions.sh --bootstrap-server HOST:9092 abort"
            f" --topic {shlex.quote(self.topic)} --partition {self.partition} --start-offset {self.first_offset}"
        )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition behind its transactions. ``last_stable_offset`` is the log's end where nothing holds it.

    ``held_by`` is the producer whose open transaction does. Both offsets are exclusive, None without a batch. A high
    watermark below may hold it, too: that is no matter of the log.
    """

    folder: str
    topic: str | None
    partition: int | None
    log_end: int | None
    last_stable_offset: int | None
    held_by: int | None
    states: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Open:
    epoch: int
    first_offset: int
    last_offset: int
    start: int | None
    last: int | None
    batches: int = 0
    records: int = 0

    def add(self, batches: BatchColumns, row: int) -> None:
        self.epoch = batches.producer_epoch[row]
        self.last_offset = batches.last_offset[row]
        self.last = batches.max_timestamp[row]
        self.batches += 1
        self.records += batches.record_count[row]


#: Told of what is wrong, with the file's path; and of files that can't be read.
Told = Callable[[str, Finding], None]
Unread = Callable[[str], None]


def transactions_of(
    folder: str, files: Iterable[SegmentFile], now: int, max_age: int, told: Told, unread: Unread
) -> Iterator[Transaction | PartitionState]:
    """A partition's transactions in the order of their ends, those that are open behind them, its state last.

    Of one that can't be read at all there is nothing.

    ``files`` are its segments in order, ``now`` epoch milliseconds, ``max_age`` milliseconds.
    """
    history = _History(folder, now, max_age)
    readable = False
    for file in files:
        history.begin(file.path)
        try:
            with SegmentReader(open_source(file.path), report=partial(told, file.path)) as reader:
                for window in reader.windows():
                    history.see_end(window.batches)
                    if has_markers(window.batches):
                        for row, offset, marker in transactional(window, history.opener):
                            yield from history.take(window.batches, row, offset, marker)
            readable = True
        except KsegError as error:
            unread(str(error))
    if readable or history.met:
        yield from history.finish()


class _History:
    """One partition on its way."""

    def __init__(self, folder: str, now: int, max_age: int) -> None:
        self.opener = DeepIterator()
        self._folder = folder
        partition = partition_of(os.path.basename(os.path.abspath(folder)))
        self._topic = partition.topic if partition else None
        self._partition = partition.partition if partition else None
        self._now = now
        self._max_age = max_age
        self._begun = False
        self._end: int | None = None
        self._open: dict[int, _Open] = {}
        self._states: Counter[str] = Counter()

    def begin(self, path: str) -> None:
        """The next segment. Before the first one its producer snapshot tells what was open then."""
        base = base_offset_of(path)
        if base is not None:
            self._end = max(base, self._end or 0)
        if self._begun or base is None:
            return
        self._begun = True
        try:
            producers = entries_of(os.path.join(self._folder, f"{base:020}.snapshot"), walk_snapshot)
        except (KsegError, ValueError):
            return
        for producer in producers:
            first = producer.current_txn_first_offset
            if first is not None:
                last = max(first, producer.last_offset)
                self._open[producer.producer_id] = _Open(producer.producer_epoch, first, last, None, producer.timestamp)

    @property
    def met(self) -> bool:
        """Whether there was any transaction."""
        return bool(self._open or self._states)

    def see_end(self, batches: BatchColumns) -> None:
        for row in range(batches.count - 1, -1, -1):
            if batches.crc_state[row] != CRC_BAD:
                self._end = max(self._end or 0, batches.last_offset[row] + 1)
                return

    def take(self, batches: BatchColumns, row: int, offset: int, marker: ControlRecord | None) -> Iterator[Transaction]:
        producer_id = batches.producer_id[row]
        if marker is None:
            if producer_id not in self._open:
                timestamp = batches.base_timestamp[row]
                self._open[producer_id] = _Open(batches.producer_epoch[row], offset, offset, timestamp, timestamp)
            self._open[producer_id].add(batches, row)
            return
        # A marker without data, as coordinators also write them, ends nothing.
        ended = self._open.pop(producer_id, None)
        if ended is not None:
            ended.last_offset = offset
            epoch = marker.fields.get("coordinator_epoch")
            state = "aborted" if marker.type == "ABORT" else "committed"
            yield self._transaction(producer_id, ended, state, epoch if isinstance(epoch, int) else None)

    def _transaction(self, producer_id: int, one: _Open, state: str, coordinator_epoch: int | None) -> Transaction:
        self._states[state] += 1
        return Transaction(
            self._folder, self._topic, self._partition, state, producer_id, one.epoch, one.first_offset,
            one.last_offset, one.batches, one.records, one.start, one.last, coordinator_epoch,
        )  # fmt: skip

    def finish(self) -> Iterator[Transaction | PartitionState]:
        first: tuple[int, int] | None = None
        for producer_id, one in sorted(self._open.items(), key=lambda item: item[1].first_offset):
            first = first or (one.first_offset, producer_id)
            hanging = one.last is not None and self._now - one.last > self._max_age
            yield self._transaction(producer_id, one, "hanging" if hanging else "open", None)
        stable, held_by = first or (self._end, None)
        yield PartitionState(self._folder, self._topic, self._partition, self._end, stable, held_by, self._states)
