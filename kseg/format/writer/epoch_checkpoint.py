"""Write a ``leader-epoch-checkpoint`` that agrees with the batches of a converted or repaired partition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from kseg.errors import KsegError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import LOG_OVERHEAD, PARTITION_LEADER_EPOCH_AT, SIZE_AT
from kseg.format.sidefiles.checkpoints import HARMLESS, LEADER_EPOCHS, VERSION, LeaderEpoch, walk_leader_epochs
from kseg.format.sidefiles.reading import entries_of

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
    for epoch, first, last in (run for segment in segments for run in segment):
        if runs and runs[-1][0] == epoch:
            runs[-1][2] = max(runs[-1][2], last)
        elif not runs or epoch > runs[-1][0]:
            runs.append([epoch, first, last])
    return runs


def stored(folder: Path) -> list[LeaderEpoch] | None:
    """Return the entries of a partition's checkpoint; None without a checkpoint that a broker can read."""
    try:
        return entries_of(str(folder / LEADER_EPOCHS), walk_leader_epochs, HARMLESS)
    except (KsegError, ValueError):
        return None


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
        found.append(LeaderEpoch(epoch, start))
    return found


def write(folder: Path, entries: Sequence[LeaderEpoch]) -> None:
    """Write the checkpoint of a new partition folder and fsync it."""
    lines = [str(VERSION), str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    with (folder / LEADER_EPOCHS).open("x", encoding="ascii", newline="\n") as out:
        out.write("".join(f"{line}\n" for line in lines))
        out.flush()
        os.fsync(out.fileno())


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
        os.fsync(out.fileno())
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
