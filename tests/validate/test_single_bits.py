"""Each bit of real partition folders: ``validate`` finds its flip, or the flip changes no result of a read.

Whether a flip is harmless is computed from the folder, as brokers and consumers read its files: each look-up in an
index must lead to the same batches, each consumer that reads committed must get the same records. A value that other
files of the folder don't contain, such as the topic's id, can't be contradicted by the folder alone.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.sidefiles.checkpoints import LeaderEpoch, walk_leader_epochs
from kseg.format.sidefiles.indexes import AbortedTxn, OffsetEntry, TimeEntry
from kseg.format.sidefiles.metadata_files import PartitionMetadata, walk_partition_metadata
from kseg.format.sidefiles.side_file_reading import entries_of
from tests.support.damage import entries, get
from tests.support.fuzzing import cases
from tests.support.index_entries import read_offset_index, read_time_index, read_txn_index
from tools.make_findings import SEGMENTS, findings

FOLDERS = ("4.3.0-v2-none", "3.9.1-v2-none-transactions")
CHUNKS = 8
#: Bytes of a side file in which each bit is flipped; the files of these folders have up to 148.
WINDOW = 96
BATCH_HEADER = 61


class Flip(NamedTuple):
    """A flipped bit; ``bit`` counts from the file's first."""

    folder: str
    file: str
    bit: int

    @property
    def kind(self) -> str:
        return self.file.lstrip("0123456789")


class Batch(NamedTuple):
    at: int
    first: int
    last: int
    max_timestamp: int
    epoch: int
    producer_id: int
    attributes: int


def windows(folder: str) -> Iterator[tuple[str, int, int]]:
    """Return three headers of the first log, one with the begin of its records, and the begin of each other file."""
    files = sorted(path for path in (SEGMENTS / folder).iterdir() if path.name not in ("ORIGIN", "expect.jsonl"))
    log = next(path for path in files if path.suffix == ".log")
    found = entries(log.read_bytes())
    yield log.name, found[0].at, found[0].at + BATCH_HEADER
    middle = found[len(found) // 2].at
    yield log.name, middle, middle + BATCH_HEADER + 15
    yield log.name, found[-1].at, found[-1].at + BATCH_HEADER
    for path in files:
        if path.suffix != ".log":
            yield path.name, 0, min(path.stat().st_size, WINDOW)


@cache
def flips() -> list[Flip]:
    """Return every bit of every window, shuffled, so that a sample has some of each."""
    found = {
        Flip(folder, name, bit)
        for folder in FOLDERS
        for name, begin, end in windows(folder)
        for bit in range(8 * begin, 8 * end)
    }
    shuffled = sorted(found)
    random.Random(1).shuffle(shuffled)
    return shuffled


@cache
def batches(folder: str) -> dict[int, list[Batch]]:
    """Return the batches of each segment, by its base offset."""
    found = {}
    for path in sorted((SEGMENTS / folder).glob("*.log")):
        data = path.read_bytes()
        found[int(path.stem)] = [
            Batch(
                place.at,
                get(data, place.at, "base_offset"),
                get(data, place.at, "base_offset") + get(data, place.at, "last_offset_delta"),
                get(data, place.at, "max_timestamp"),
                get(data, place.at, "partition_leader_epoch"),
                get(data, place.at, "producer_id"),
                get(data, place.at, "attributes"),
            )
            for place in entries(data)
        ]
    return found


def offsets_are_found(index: list[OffsetEntry], log: list[Batch]) -> bool:
    """Return whether each look-up of an offset (``OffsetIndex.lookup``) begins at or before the offset's batch.

    ``fetchUpperBoundOffset`` uses an entry's offset as the end of the batches before it: none may reach it.
    """
    ends = {batch.at: log[i - 1].last if i else log[0].first - 1 for i, batch in enumerate(log)}
    offsets = [entry.offset for entry in index]
    if offsets != sorted(set(offsets)) or any(
        entry.log_position not in ends or not ends[entry.log_position] < entry.offset <= log[-1].last for entry in index
    ):
        return False
    for offset in range(log[0].first, log[-1].last + 1):
        at = bisect_right(offsets, offset)
        begin = index[at - 1].log_position if at else 0
        if next(batch for batch in log if batch.at >= begin and batch.last >= offset).first > offset:
            return False
    return True


def times_are_found(times: list[TimeEntry], offsets: list[OffsetEntry], log: list[Batch]) -> bool:
    """Return whether each look-up of a time (``LogSegment.findOffsetByTimestamp``) finds the first batch of that time
    or later.
    """
    near = {batch.max_timestamp for batch in log} | {entry.timestamp for entry in times}
    for target in {time + by for time in near for by in (-1, 0, 1)}:
        offset = max((entry.offset for entry in times if entry.timestamp <= target), default=log[0].first)
        begin = max((entry.log_position for entry in offsets if entry.offset <= offset), default=0)
        late = [batch.at for batch in log if batch.max_timestamp >= target]
        if late and late[0] < begin:
            return False
    return True


def ends_with_the_latest(times: list[TimeEntry], log: list[Batch]) -> bool:
    """Return whether the last entry has the log's latest timestamp, and an offset of a batch with it.

    Retention, and the choice of the segment for a time, use it.
    """
    latest, last = max(batch.max_timestamp for batch in log), times[-1]
    places = [batch for batch in log if batch.max_timestamp == latest]
    return last.timestamp == latest and any(batch.first <= last.offset <= batch.last for batch in places)


def aborted_batches(index: list[AbortedTxn], log: list[Batch], first: int, end: int) -> list[int]:
    """Return the batches that a consumer with read_committed skips, of a fetch of offsets ``first`` to ``end``.

    As in ``TransactionIndex.collectAbortedTxns`` and the consumer's ``CompletedFetch``.
    """
    found: list[AbortedTxn] = []
    for txn in index:
        if txn.last_offset >= first and txn.first_offset < end:
            found.append(txn)
        if txn.last_stable_offset >= end:
            break
    waiting = sorted(found, key=lambda txn: txn.first_offset)
    markers = {txn.last_offset for txn in index}
    aborting: set[int] = set()
    passed = []
    for batch in log:
        if batch.last < first or batch.first >= end:
            continue
        while waiting and waiting[0].first_offset <= batch.last:
            aborting.add(waiting.pop(0).producer_id)
        if batch.attributes & CONTROL:
            if batch.first in markers:
                aborting.discard(batch.producer_id)
        elif batch.attributes & TRANSACTIONAL and batch.producer_id in aborting:
            passed.append(batch.first)
    return passed


def same_for_consumers(before: list[AbortedTxn], after: list[AbortedTxn], log: list[Batch]) -> bool:
    firsts, ends = [batch.first for batch in log], [batch.last + 1 for batch in log]
    return all(
        aborted_batches(before, log, first, end) == aborted_batches(after, log, first, end)
        for first in firsts
        for end in ends
        if first < end
    )


def contradicts(epochs: list[LeaderEpoch], log: list[Batch]) -> bool:
    """Return whether a batch at or after the first entry's start is in another epoch's range, or after the log's end.

    A broker leaves a first entry that begins within its epoch's batches when the log's start increases; an epoch
    without batches is that of a leader without writes. Other files of a partition folder don't have these facts.
    """
    starts = [epoch.start_offset for epoch in epochs]
    if starts != sorted(set(starts)) or starts[-1] > log[-1].last + 1:
        return True
    reported = {epoch.epoch for epoch in epochs}
    for batch in log:
        at = bisect_right(starts, batch.last)
        if at and epochs[at - 1].epoch != batch.epoch:
            return True
    return any(batch.epoch not in reported for batch in log if batch.last >= starts[0])


def outcome(flip: Flip, folder: Path) -> str:
    """Return the class of a flip without a finding.

    ``harmless``, ``untold`` if no file of the folder contradicts it, or ``missed``.
    """
    path, segments = folder / flip.file, batches(flip.folder)
    whole = [batch for log in segments.values() for batch in log]
    if flip.kind == ".index":
        base = int(path.stem)
        return _harmless(offsets_are_found(list(read_offset_index(path.read_bytes(), base)), segments[base]))
    if flip.kind == ".timeindex":
        base = int(path.stem)
        offsets = list(read_offset_index(path.with_suffix(".index").read_bytes(), base))
        times = list(read_time_index(path.read_bytes(), base))
        found = times_are_found(times, offsets, segments[base])
        return _harmless(found and ends_with_the_latest(times, segments[base]))
    if flip.kind == ".txnindex":
        names = sorted(folder.glob("*.txnindex"))
        before, after = (
            [txn for name in names for txn in read_txn_index((at / name.name).read_bytes())]
            for at in (SEGMENTS / flip.folder, folder)
        )
        return _harmless(same_for_consumers(before, after, whole))
    if flip.kind == "leader-epoch-checkpoint":
        epochs: list[LeaderEpoch] = entries_of(str(path), walk_leader_epochs)
        same = epochs == entries_of(str(SEGMENTS / flip.folder / flip.file), walk_leader_epochs)
        return "harmless" if same else "missed" if contradicts(epochs, whole) else "untold"
    if flip.kind == "partition.metadata":
        # A broker accepts any version from 0 on; only the cluster metadata has a topic's id.
        (metadata,) = entries_of(str(path), walk_partition_metadata)
        assert isinstance(metadata, PartitionMetadata)
        assert re.fullmatch("[A-Za-z0-9_-]{22}", metadata.topic_id)
        same = f"topic_id: {metadata.topic_id}" in (SEGMENTS / flip.folder / flip.file).read_text()
        return "harmless" if same else "untold"
    return "missed"


def _harmless(is_harmless: bool) -> str:
    return "harmless" if is_harmless else "missed"


def findings_of(folder: Path) -> set[str]:
    """Return the findings of a folder with all their facts."""
    return {str(row) for row in findings(folder, {}) if row["kind"] == "finding"}


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_flipped_bit_is_found_or_harmless(chunk: int, tmp_path: Path) -> None:
    """Of a sample; with KSEG_FUZZ_CASES of at least the number of flips, of every bit."""
    known: dict[str, set[str]] = {}
    for name in FOLDERS:
        kept = shutil.ignore_patterns("ORIGIN", "expect.jsonl")
        shutil.copytree(SEGMENTS / name, tmp_path / name / "topic-0", ignore=kept)
        known[name] = findings_of(tmp_path / name / "topic-0")
    outcomes: Counter[tuple[str, str]] = Counter()
    missed = []
    for flip in flips()[: cases(160)][chunk::CHUNKS]:
        folder = tmp_path / flip.folder / "topic-0"
        path = folder / flip.file
        data, status = path.read_bytes(), path.stat()
        flipped = bytearray(data)
        flipped[flip.bit // 8] ^= 1 << flip.bit % 8
        path.write_bytes(flipped)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        reported = "found" if findings_of(folder) - known[flip.folder] else outcome(flip, folder)
        outcomes[flip.kind, reported] += 1
        if reported == "missed":
            missed.append(flip)
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert missed == []
    print(sorted(outcomes.items()))  # shown with pytest -rP
