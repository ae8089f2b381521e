"""The last stable offset of a log, and the transactions that are open at an offset, by producer snapshots and the log.

Kafka's consumer with isolation.level=read_committed returns committed records up to the last stable offset, which is the
first offset of the earliest open transaction. Missing offsets can have been those of a marker, except where a log cleaner
has left them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kseg.errors import NotASegmentError, ReportUnread, UnreadableError, VanishedError, raise_unread
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import DELETE_HORIZON
from kseg.format.record.offset_evidence import SEVERAL
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import log_events
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.sidefiles.indexes import AbortedTransactions
from kseg.format.sidefiles.producer_snapshot import ProducerState, read_snapshot
from kseg.format.storage.local_files import names_in, read_file
from kseg.format.storage.naming import CLEANER_OFFSETS, base_offset_of, producer_snapshot_offset
from kseg.format.storage.segment_files import path_in
from kseg.format.storage.source import open_source


def stable_offset(paths: Sequence[str], unread: ReportUnread = raise_unread) -> int | None:
    """Return the last stable offset of one log's segments, given in offset order; None if no transaction is open.

    Only the segments after the newest producer snapshot are read. If ``unread`` returns, it is the offset up to which all
    is known. Raises UnreadableError.
    """
    return min(_open_after(paths, paths, unread).values(), default=None)


def open_at(path: str, before: Sequence[str]) -> Mapping[int, int]:
    """Return the first offsets of the transactions that are open where a segment begins, by producer id.

    ``before`` are the segments before it, in offset order. They are read after the newest producer snapshot.
    """
    return _open_after(before, [*before, path])


def _open_after(
    paths: Sequence[str], with_snapshots: Sequence[str], unread: ReportUnread = raise_unread
) -> Mapping[int, int]:
    """Return the first offsets of the transactions that are open at the end of segments, by producer id.

    They are read after the newest producer snapshot of ``with_snapshots``. Deleted segments are skipped, and files that
    are not segments.
    """
    transactions = AbortedTransactions()
    newest, begun = open_in_newest_snapshot(with_snapshots)
    for producer_id, first in begun.items():
        transactions.begin(producer_id, first)
    end = base_offset_of(paths[newest]) or 0 if paths[newest:] else 0
    for path in paths[newest:]:
        try:
            with suppress(VanishedError, NotASegmentError), SegmentReader(open_source(path, listed=True)) as reader:
                for batches, events in log_events(reader):
                    for _ in transactions.update(batches, events):
                        pass
                    end = max(end, batches.last_offset[batches.count - 1] + 1)
        except UnreadableError as error:
            unread(error)
            transactions.begin(-1, end)  # all from here on can be open
            break
    return transactions.open


def open_in_newest_snapshot(paths: Sequence[str]) -> tuple[int, Mapping[int, int]]:
    """Return the index of the path that the newest producer snapshot of a log precedes, and the transactions open in it.

    They are first offsets by producer id. If no segment begins at a snapshot, they are those of ``open_before`` the first
    path. Raises UnreadableError.
    """
    for i in range(len(paths) - 1, -1, -1):
        base = base_offset_of(paths[i])
        producers = None if base is None else producers_at(os.path.dirname(paths[i]), base)
        if producers is not None:
            return i, first_offsets(producers)
    first = base_offset_of(paths[0]) if paths else None
    return 0, {} if first is None else first_offsets(open_before(os.path.dirname(paths[0]), first))


def first_offsets(producers: Sequence[ProducerState]) -> Mapping[int, int]:
    """Return the first offsets of the transactions that are open in a producer snapshot, by producer id."""
    begun = ((one.producer_id, one.current_txn_first_offset) for one in producers)
    return {producer_id: first for producer_id, first in begun if first is not None}


def open_before(folder: str, log_start: int) -> list[ProducerState]:
    """Return the producers whose transactions began before the first segment of a log, at ``log_start``.

    The oldest snapshot from there on lists those that are open at it. When a broker starts, it deletes the snapshot at the
    log start itself (``ProducerStateManager.truncateAndReload``). Raises UnreadableError.
    """
    found = producers_at(folder, log_start) if log_start else []
    if found is None:
        later = (producers_at(folder, offset) for offset in snapshot_offsets(folder) if offset > log_start)
        found = next((producers for producers in later if producers is not None), [])
    begun = ((one, one.current_txn_first_offset) for one in found)
    return [one for one, first in begun if first is not None and first < log_start]


def open_after_end(folder: str, end: int, offsets: Sequence[int]) -> tuple[int, Mapping[int, int]] | None:
    """Return the offset of the newest valid producer snapshot after the end of a log, and the transactions open in it.

    They are first offsets by producer id. Such a snapshot shows that the log has lost its end, and markers with it.
    ``offsets`` are those of the snapshots that existed before the log was read, ascending. Raises UnreadableError.
    """
    for offset in reversed(offsets):
        if offset <= end:
            break
        if (producers := producers_at(folder, offset)) is not None:
            return offset, first_offsets(producers)
    return None


def snapshot_offsets(folder: str) -> list[int]:
    """Return the offsets of a folder's producer snapshots, ascending; none if the folder cannot be listed."""
    with suppress(UnreadableError):
        return sorted(offset for name in names_in(folder) if (offset := producer_snapshot_offset(name)) is not None)
    return []


def producers_at(folder: str, offset: int) -> list[ProducerState] | None:
    """Return the producers of the snapshot at an offset; None without one that a broker accepts. Raises UnreadableError."""
    try:
        return read_snapshot(read_file(path_in(folder, f"{offset:020}.snapshot")))
    except VanishedError:
        return None


def are_compacted(folder: str, segments: Sequence[str]) -> bool:
    """Return whether a log cleaner has worked in a folder, or in neighbouring segments. Raises UnreadableError."""
    if checkpoint_offset(folder, CLEANER_OFFSETS) is not None:
        return True
    gaps = 0
    for path in segments:
        with suppress(VanishedError, NotASegmentError), SegmentReader(open_source(path, listed=True)) as reader:
            for window in reader.windows():
                gaps += _signs(window.batches)
                if gaps >= SEVERAL:
                    return True
    return False


def _signs(batches: BatchColumns) -> int:
    """Return how many gaps neighbouring batches have between them, SEVERAL if only a log cleaner leaves such batches."""
    gaps = 0
    for row in range(batches.count):
        first, last = batches.base_offset[row], batches.last_offset[row]
        if batches.crc_state[row] == CRC_BAD or batches.magic[row] < 2:
            continue
        gaps += row > 0 and first > batches.last_offset[row - 1] + 1
        if batches.record_count[row] <= last - first or batches.attributes[row] & DELETE_HORIZON:
            return SEVERAL
    return gaps
