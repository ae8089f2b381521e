"""Which records of a replica are deleted ones, as the log cleaner of another replica shows.

The cleaner removes a record if a later record of its key, a deletion or an ABORT marker makes it invalid. It removes that
deletion or marker only after the records before it (KIP-534). So a replica that has a record has what deleted it, too, or
has lost that, or ends before it. The records of all replicas are a valid log, unless what deleted some of them is in none.

Such a deletion was at an offset that the result lacks. If a compacted replica lacks that offset without a loss, older
records that it lacks, too, are deleted ones, unless their replica was complete up to there. Nobody knows this of records
after a loss of the compacted replica, or without a sign of compaction: these stay, and a row says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kseg.commands.repair.batch_versions import is_cleaned_version
from kseg.commands.repair.damaged_replicas import DamagedReplica, OffsetRanges, ReplicaBatch, last_overlap
from kseg.commands.repair.repair_losses import LostOffsets, UncertainRecords
from kseg.commands.repair.replica_losses import RecordGaps
from kseg.findings import joined_ranges
from kseg.format.record.layout import INT64_MAX


class DeletionProof(NamedTuple):
    """Records of the replica ``other`` from ``start`` to ``stop``, exclusive, are deleted if ``cleaned`` lacks them.

    Both replicas are numbers.
    """

    other: int
    cleaned: int
    start: int
    stop: int

    def holds_for(self, batch: ReplicaBatch, version: ReplicaBatch | None) -> bool:
        """Return whether records of a batch are deleted ones. ``version`` is the next batch of the compacted replica."""
        if batch.base_offset < self.start or batch.last_offset >= self.stop:
            return False
        if version is None or version.base_offset > batch.last_offset:
            return True
        return is_cleaned_version(version, batch)


def deletion_proofs(replicas: Sequence[DamagedReplica], missing: RecordGaps) -> list[DeletionProof]:
    """Return what compacted replicas prove about the others, if the result lacks the offsets ``missing``.

    A replica was compacted up to ``cleaned``, unless it has records without a key. If its history ends before that, the
    cleaner can have seen records that are not in this log. It proves nothing after its first loss: a deletion that it lacks
    can be that of a record that it lost.
    """
    proofs = []
    for n, cleaned in enumerate(replicas):
        lost = _lost_by(cleaned)
        gaps = _without(missing.ranges, lost, cleaned.start, cleaned.cleaned)
        if not gaps or cleaned.cleaned > cleaned.end:
            continue
        stop = lost[0][0] if lost else cleaned.end
        ends = [(m, min(stop, _incomplete_to(other, gaps))) for m, other in enumerate(replicas) if m != n]
        own = [DeletionProof(m, n, cleaned.start, end) for m, end in ends if end > cleaned.start]
        proofs += own if own and not cleaned.has_records_without_key() else []
    return proofs


def uncertain_records(
    replicas: Sequence[DamagedReplica], missing: RecordGaps, taken: Sequence[tuple[int, int, tuple[str, ...]]]
) -> list[UncertainRecords]:
    """Return rows about batches of the result that may be deleted ones.

    ``taken`` are the ranges of the result: first and last offset, and the paths of the replicas that have its batches, of
    which the first is that of the range.
    """
    by_path = {replica.path: replica for replica in replicas}
    ends: dict[tuple[str, str], int] = {}
    for witness in replicas:
        lost = _lost_by(witness)
        gaps = _without(missing.ranges, lost, witness.start, witness.end)
        for other in replicas if gaps and not witness.has_records_without_key() else ():
            ends[other.path, witness.path] = _incomplete_to(other, gaps)
    found: dict[str, list[tuple[int, int, str]]] = {}
    for first, last, paths in taken:
        others = [path for path in by_path if path not in paths]
        end, witness_path = max(
            ((min(ends.get((path, other), 0) for path in paths), other) for other in others), default=(0, "")
        )
        if first < end:
            why = (
                f"may be deleted ones: no replica has offset {end - 1}, and {witness_path} lost nothing there. If a "
                "deletion or the marker of a transaction was there, these records are valid again"
            )
            found.setdefault(paths[0], []).append((first, min(last, end - 1), why))
    rows = [row for path, ranges in found.items() for row in _rows(by_path[path], ranges)]
    return sorted(rows, key=lambda row: row.offset or 0)


def _rows(replica: DamagedReplica, ranges: Sequence[tuple[int, int, str]]) -> Iterator[UncertainRecords]:
    """Yield a row per file with batches of a replica at the offsets of each range. The ranges are in order."""
    batches = replica.batches()
    batch = next(batches, None)
    for first, last, why in ranges:
        run: list[ReplicaBatch] = []
        while batch is not None and batch.base_offset <= last:
            if run and run[0].path != batch.path:
                yield UncertainRecords(*replica.place_of(run[0], run[-1]), "offset-gap", why)
                run = []
            run = [*run[:1], batch] if batch.last_offset >= first else run
            batch = next(batches, None)
        if run:
            yield UncertainRecords(*replica.place_of(run[0], run[-1]), "offset-gap", why)


def _lost_by(replica: DamagedReplica) -> OffsetRanges:
    """Return the offsets that the losses of a replica can have had, also those of batches that another replica has."""
    losses = [
        loss for loss in (*replica.losses, *replica.found, *replica.left_out) if not isinstance(loss, LostOffsets)
    ]
    offsets = (replica.lost_offsets(loss) for loss in losses if not replica.is_other_history(loss))
    ranges = ((low, INT64_MAX if high is None else high) for low, high in offsets)
    return joined_ranges((low, high) for low, high in ranges if low <= high)


def _without(ranges: OffsetRanges, lost: OffsetRanges, start: int, stop: int) -> OffsetRanges:
    """Return the parts of ranges from ``start`` to ``stop`` (exclusive) that are not lost."""
    found: list[tuple[int, int]] = []
    at = 0
    for first, last in ranges:
        low, high = max(first, start), min(last, stop - 1)
        while at < len(lost) and lost[at][1] < low:
            at += 1
        n = at
        while n < len(lost) and lost[n][0] <= high:
            found += [(low, lost[n][0] - 1)] if low < lost[n][0] else []
            low, n = lost[n][1] + 1, n + 1
        found += [(low, high)] if low <= high else []
    return found


def _incomplete_to(replica: DamagedReplica, gaps: OffsetRanges) -> int:
    """Return the offset after the last one of the gaps that a replica lost, or that is after its end; 0 without one."""
    if gaps and gaps[-1][1] >= replica.end:
        return gaps[-1][1] + 1
    before = [row for row in replica.losses if isinstance(row, LostOffsets) and row.rule != "offset-gap"]
    rows = [(row.offset or 0, row.last_offset or 0) for row in (*replica.missing, *before)]
    return max((last_overlap(gaps, low, high) + 1 for low, high in (*_lost_by(replica), *rows)), default=0)
