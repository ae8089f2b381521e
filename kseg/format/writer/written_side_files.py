"""The side files of a new partition folder.

``write`` and ``write_snapshots`` write a ``leader-epoch-checkpoint`` that agrees with the batches of a converted or repaired
partition, and its producer snapshots, from its batches and the valid snapshots of its source. ``write_txn_index`` writes
the transactions of a log that were aborted.

Without any snapshot a broker takes a log for one of an old version after a clean shutdown, and forgets its producers and
open transactions (``UnifiedLog.rebuildProducerState``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.format.log_loader import broker_reader, partition_files
from kseg.format.log_loader import producers as producer_states
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import LOG_OVERHEAD, PARTITION_LEADER_EPOCH_AT, SIZE_AT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import Event, log_events
from kseg.format.sidefiles import checkpoints, producer_snapshot
from kseg.format.sidefiles.indexes import AbortedTransactions, AbortedTxn
from kseg.format.storage.atomic_write import NewFile, sync, whole_file, writing
from kseg.format.storage.local_files import read_file
from kseg.format.storage.naming import LEADER_EPOCHS, base_offset_of
from kseg.format.storage.source import open_source
from kseg.format.writer.output_guards import copy_file

if TYPE_CHECKING:
    from kseg.format.sidefiles.checkpoints import LeaderEpoch
    from kseg.format.sidefiles.producer_snapshot import ProducerState

#: The largest number of runs per segment. A real log has a few; in a damaged one each batch could be a run.
MAX_RUNS = 10_000

#: [epoch, first offset, last offset] of consecutive batches with one leader epoch; epochs increase.
EpochRun = list[int]


def append_runs(runs: list[EpochRun], batches: BatchColumns, first: int, stop: int) -> None:
    """Add the leader epochs of batches ``first`` to ``stop`` (exclusive) to ``runs``. Epochs that go back are skipped."""
    if not batches.count or (batches.magic[first] < 2 and batches.magic[stop - 1] < 2):
        return
    epochs = batches.partition_leader_epoch
    if runs and runs[-1][0] == epochs[first] == epochs[stop - 1]:
        runs[-1][2] = max(runs[-1][2], batches.last_offset[stop - 1])
        return
    for row in range(first, stop):
        epoch = epochs[row]
        if batches.magic[row] < 2 or epoch < 0 or (runs and epoch < runs[-1][0]):
            continue
        if runs and runs[-1][0] == epoch:
            runs[-1][2] = max(runs[-1][2], batches.last_offset[row])
        elif len(runs) < MAX_RUNS:
            runs.append([epoch, batches.base_offset[row], batches.last_offset[row]])


def merged_runs(segments: Iterable[Sequence[EpochRun]]) -> list[EpochRun]:
    """Return the runs of a partition from those of its segments in order."""
    runs: list[EpochRun] = []
    for segment in segments:
        for run in segment:
            append_run(runs, run)
    return runs


def append_run(runs: list[EpochRun], run: EpochRun) -> None:
    """Add a later run, unless its epoch goes back."""
    epoch, first, last = run
    if runs and runs[-1][0] == epoch:
        runs[-1][2] = max(runs[-1][2], last)
    elif not runs or epoch > runs[-1][0]:
        runs.append([epoch, first, last])


def merged(entries: Sequence[LeaderEpoch], runs: Sequence[EpochRun], end: int | None) -> list[LeaderEpoch]:
    """Return the entries of a checkpoint for batches with those ``runs``, in a log that ends before offset ``end``.

    An epoch starts at its offset in ``entries`` or with its first batch, whichever is lower. An epoch without batches is
    kept if it contradicts no batch. Epochs and start offsets both increase (``LeaderEpochFileCache``).
    """
    starts = {entry.epoch: entry.start_offset for entry in entries if end is None or entry.start_offset <= end}
    lasts = {epoch: last for epoch, _, last in runs}
    for epoch, first, _ in runs:
        starts[epoch] = min(first, starts.get(epoch, first))
    found: list[LeaderEpoch] = []
    written = -1  # the last offset of the batches so far
    firsts = [run[1] for run in runs]
    for epoch in sorted(starts):
        start = starts[epoch]
        if epoch in lasts:
            start = start if start > written else firsts[0]
            firsts.pop(0)
            while found and found[-1].start_offset >= start:
                found.pop()  # an epoch without batches
            written = max(written, lasts[epoch])
        elif start <= written or (found and start <= found[-1].start_offset) or (firsts and start > firsts[0]):
            continue
        found.append(checkpoints.LeaderEpoch(epoch, start))
    return found


def write(folder: Path, entries: Sequence[LeaderEpoch]) -> None:
    """Write the checkpoint of a new partition folder and fsync it."""
    lines = [str(checkpoints.VERSION), str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    with (folder / LEADER_EPOCHS).open("x", encoding="ascii", newline="\n") as out:
        out.write("".join(f"{line}\n" for line in lines))
        out.flush()
        sync(out.fileno())


def set_epoch(log: Path, end: int, epoch: int) -> None:
    """Write ``epoch`` into the v2 batches of a log up to byte ``end``. No CRC covers it. The file keeps its times."""
    status = log.stat()
    with log.open("r+b") as out:
        position = 0
        while position < end:
            out.seek(position + SIZE_AT)
            size = int.from_bytes(out.read(4), "big", signed=True)
            out.seek(position + PARTITION_LEADER_EPOCH_AT)
            out.write(epoch.to_bytes(4, "big"))
            position += LOG_OVERHEAD + size
        out.flush()
        sync(out.fileno())
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_snapshots(folder: Path, end: int, stored: Mapping[int, Path]) -> list[str]:
    """Write the snapshots that a broker keeps: at the starts of the last two segments, at the log end, and those ``stored``.

    ``end`` is the log end offset. ``stored`` are the source's valid snapshots by their offset. They describe only batches
    that the new log has, and those before its start. Returns the names of the written files: none for a log that never had
    a producer. Raises RefusedError if a broker cannot read the producers either, and KsegError.
    """
    snapshots = _Rebuilding(folder, end, stored).run()
    if not stored and not any(snapshots.values()):
        return []
    names = []
    for offset, producers in snapshots.items():
        name = partition_files.file_name(offset, ".snapshot")
        known = _read(stored[offset]) if offset in stored else None
        if known is not None and {*known} == {*producers}:
            copy_file(stored[offset], folder / name)
        else:
            with whole_file(folder / name, replace=False) as file:
                file.write(producer_snapshot.packed(producers))
        names.append(name)
    return names


def written_events(log: Path) -> Iterator[tuple[BatchColumns, Iterator[Event]]]:
    """Yield the batches of each window of a written log, and their events of transactions. Its CRCs were read back."""
    with SegmentReader(open_source(str(log)), verify_crc=False) as reader:
        yield from log_events(reader)


def aborted_transactions(log: Path, txns: AbortedTransactions) -> Iterator[AbortedTxn]:
    """Yield the aborted transactions that end in a written log. ``txns`` has those that are open before it."""
    return chain.from_iterable(txns.update(*window) for window in written_events(log))


def write_txn_index(path: Path, entries: Iterator[AbortedTxn]) -> None:
    """Write a transaction index. A broker creates the file with the first entry: without entries there is no file."""
    first = next(entries, None)
    if first is None:
        return
    with writing(path), NewFile(path) as new:
        for txn in chain((first,), entries):
            new.file.write(txn.pack())
        new.sync()


class _Rebuilding:
    """Reads the log of a folder once, from its first batch to its end."""

    def __init__(self, folder: Path, end: int, stored: Mapping[int, Path]) -> None:
        self._files = partition_files.Files(str(folder))
        self._end = end
        self._stored = stored
        self._bases = sorted(base for name in self._files if (base := base_offset_of(name)) is not None)
        self._producers = producer_states.Producers(self._files)
        self._found: dict[int, Sequence[ProducerState]] = {}

    def run(self) -> dict[int, Sequence[ProducerState]]:
        """Return the producers of each snapshot by its offset."""
        if not self._bases:
            return {}
        for base, following in zip(self._bases, [*self._bases[1:], None], strict=True):
            self._stop_at(base)
            self._replay(base, following)
        self._stop_at(self._end)
        return self._found

    def _replay(self, base: int, following: int | None) -> None:
        """Add the batches of a segment. The last segment can have a snapshot of an earlier shutdown within it."""
        log = self._files[partition_files.file_name(base)]
        inside = sorted(offset for offset in self._stored if following is None and base < offset < self._end)
        position = 0
        for offset in inside:
            stop = broker_reader.position_of(log, offset, position)
            if stop is not None:
                self._producers.replay(log, position, stop)
                self._stop_at(offset)
                position = stop
        self._producers.replay(log, position, log.size)

    def _stop_at(self, offset: int) -> None:
        """Add the snapshot at an offset, if a broker keeps one there."""
        start = self._bases[0]
        if offset in self._stored:
            self._add_stored(_read(self._stored[offset]))
        elif offset <= start or offset not in (*self._bases[-2:], self._end):
            return  # a broker deletes a snapshot at the log start
        self._found[offset] = list(self._producers.states.values())

    def _add_stored(self, producers: Sequence[ProducerState]) -> None:
        """Add the producers of a snapshot that the log does not have or does not contradict.

        Their batches may be before the log start, or compacted away. A later snapshot lacks expired producers: these stay.
        """
        start = self._bases[0]
        for state in producers:
            known = self._producers.states.get(state.producer_id)
            first = state.current_txn_first_offset
            if known is None:
                valid = first is None or first < start
            elif state.producer_epoch == known.producer_epoch:
                begun = known.current_txn_first_offset
                # Its last batch, or the first one of its transaction, can be before the log start.
                batch = state[2:5] == known[2:5] or (known.last_offset < 0 and state.last_offset < start)
                valid = batch and (first == begun or (first is not None and begun is not None and first < start))
                if known.coordinator_epoch >= 0:
                    state = state._replace(coordinator_epoch=known.coordinator_epoch)
            else:
                valid = state.producer_epoch > known.producer_epoch and first is known.current_txn_first_offset is None
            if valid:
                self._producers.load([state])


def _read(path: Path) -> Sequence[ProducerState]:
    return producer_snapshot.read_snapshot(read_file(str(path))) or ()
