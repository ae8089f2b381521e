"""One partition from several damaged replicas: ``kseg repair REPLICA REPLICA... DST``.

Each replica is repaired by itself first, into a scratch folder: the batches there have proven offsets. The replica with the
highest leader epoch, and among these with the highest log end, has the history that Kafka continues. Batches of another
replica count up to the offset to which it would truncate under that one. At each offset the result has the batch of a
replica that has one; other batches there must have the same records, except those that the log cleaner removed. Otherwise
the replicas diverge, and nothing is written unless one of them is preferred. ``deleted_records`` finds those to leave out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kseg.commands.repair.batch_versions import agree, first_batch, ranges_without
from kseg.commands.repair.damaged_replicas import (
    DamagedReplica,
    ReplicaBatch,
    end_other_histories,
    repaired_replica,
    settle_epochs,
)
from kseg.commands.repair.deleted_records import DeletionProof, deletion_proofs, uncertain_records
from kseg.commands.repair.merged_log import MergedLog, copies_missing_in, with_copies, write_copies
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import LostOffsets, LostRange, OffsetGap, RepairResult, ReportLine, TakenRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.repair.replica_losses import (
    KnownOffsets,
    RecordGaps,
    drop_found_losses,
    lost_ranges,
    share_lost_batches,
)
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import do_nothing
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.atomic_write import scratch_folder, without_sync
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import PARTITION_METADATA, base_offset_of, is_url, partition_of
from kseg.format.storage.segment_files import check_exists
from kseg.format.storage.source import is_metadata_log
from kseg.format.writer.output_guards import PartitionFolder, copy_file, target_path
from kseg.format.writer.output_rule import check_dst
from kseg.format.writer.written_side_files import write
from kseg.text import count_of, inclusive_range

#: Its records before the newest snapshot are deleted on each controller by itself, so copies have no common log.
ONE_COPY = "a metadata log is not made from several copies: `kseg diff` names the newest that a controller can load"


_Row = TypeVar("_Row", bound=LostRange)


def repair_replicas(
    sources: Sequence[str],
    target: str | None,
    plan: RepairPlan,
    report: ReportLine = do_nothing,
    progress: Progress = do_nothing,
    prefer: str | None = None,
) -> RepairResult:
    """Write one partition folder with the valid batches of several replicas, which are partition folders.

    ``target`` is created atomically; it may be None for a dry run. ``report`` is called with each range that no replica has,
    ``progress`` with the source bytes read. ``prefer`` is the replica whose batches count where replicas diverge. The
    repaired replicas need room next to ``target``, or in the folder for temporary files in a dry run.

    Raises UsageError if the replicas are not of one partition, or if they diverge, KsegError if none has a valid batch, and
    the errors of ``repair``.
    """
    check_settings(sources, target, plan, prefer)
    _check(sources)
    goal = target_path(sources[0] if target is None else target)
    name = Path(os.path.abspath(sources[0])).name
    with scratch_folder(goal if target is not None else Path(tempfile.gettempdir()) / name) as scratch:
        replicas, unread = _repaired(sources, scratch, name, plan, progress, prefer)
        settle_epochs(replicas)
        replicas.sort(key=lambda one: (one.path == prefer, one.epochs.order, -len(one.losses)), reverse=True)
        share_lost_batches(replicas)
        truncated = end_other_histories(replicas)
        drop_found_losses(replicas)
        folder = scratch / "merged" / name
        taken, missing, deleted = _write_merged(replicas, folder, prefer)
        if not taken and truncated:
            raise KsegError(
                f"no replica has a valid batch of the history of leader epoch {replicas[0].epochs.latest}, which "
                f"{replicas[0].path} had: --prefer takes the batches of another replica"
            )
        if not taken and any(replica.losses for replica in replicas):
            raise KsegError("no replica has a valid batch: `kseg repair` of a single one lists what is in it")
        if not taken:  # no batch was ever in it
            empty = repair(replicas[0].path, target, plan, report)
            empty.unread += unread
            empty.truncated += truncated.items()
            return empty
        _copy_side_files(replicas, folder)
        if replicas[0].epochs.entries:
            write(folder, replicas[0].epochs.entries)
        unplaced = copies_missing_in(folder, replicas)
        write_copies(unplaced, folder)
        known = with_copies(lost_ranges(replicas, missing), unplaced, replicas)

        known_offsets = KnownOffsets(known)

        def in_result(row: _Row) -> _Row:
            return replace(row, file=row.file.replace(str(folder), str(goal)))

        def report_other(row: LostRange) -> None:
            if not (isinstance(row, (OffsetGap, LostOffsets)) and row in known_offsets):
                report(in_result(row))

        ranges = [(one.offset, one.last_offset, (one.file, *one.also_in)) for one in taken]
        uncertain = uncertain_records(replicas, missing, ranges)
        for row in (*known, *uncertain):
            report(row)
        of_replicas = replace(plan, replicas=tuple(replica.path for replica in replicas))
        done = repair(str(folder), None if plan.dry_run else str(goal), of_replicas, report_other)
    done.left_out += [line for replica in replicas for line in replica.unreadable]
    done.left_out += deleted
    done.unread += unread
    done.uncertain = uncertain
    done.rebuilt.clear()  # replicas have these indexes, and those of the result are built from its batches
    done.missing = [in_result(row) for row in done.missing if row not in known_offsets]
    for segment in done.segments:
        segment.source = segment.source.replace(str(folder), str(goal))
    firsts = [segment.first_offset or 0 for segment in done.segments]
    counted: set[tuple[str, int]] = set()
    for loss in known:
        at = base_offset_of(loss.file) or 0 if loss.offset is None else loss.offset
        segment = done.segments[max(bisect_right(firsts, at) - 1, 0)]
        segment.lost_ranges += 1
        # Several rows can be about the same bytes. Those of the result are what is left of them.
        size = 0 if (loss.file, loss.position) in counted else loss.end - loss.position
        counted.add((loss.file, loss.position))
        segment.lost_bytes += size
        segment.bytes_before += size
        segment.unplaced += loss.unplaced
    done.taken, done.truncated = taken, [*truncated.items()]
    return done


def _repaired(
    sources: Sequence[str], scratch: Path, name: str, plan: RepairPlan, progress: Progress, prefer: str | None
) -> tuple[list[DamagedReplica], list[str]]:
    """Repair each replica by itself, and return a line for each that cannot be read: the others are used without it.

    Raises UnreadableError if none can be read, or not the preferred one.
    """
    replicas: list[DamagedReplica] = []
    unread: list[str] = []
    for n, path in enumerate(sources):
        try:
            with without_sync():
                replicas.append(repaired_replica(path, scratch / str(n) / name, plan, progress))
        except UnreadableError as error:
            if path == prefer or (not replicas and n == len(sources) - 1):
                raise
            unread.append(f"{path} is not used, and what only it has is missing: it cannot be read: {error}")
    return replicas, unread


def check_settings(sources: Sequence[str], target: str | None, plan: RepairPlan, prefer: str | None) -> None:
    """Raise UsageError for settings and paths that a repair of several replicas, or log directories, cannot have."""
    if prefer is not None and prefer not in sources:
        raise UsageError(f"--prefer {prefer}: expected one of the sources: {', '.join(sources)}")
    if plan.indexes_only or plan.salvage_records:
        raise UsageError("several replicas are repaired as a whole: without --indexes-only and --salvage-records")
    if target is not None and is_url(target):
        raise UsageError(f"{target}: DST of several replicas is a local folder")
    for path in sources:
        check_exists(path)
        if target is not None:
            check_dst(path, target_path(target), target, force=plan.force)
    if len({os.path.realpath(path) for path in sources}) < len(sources):
        raise UsageError("a replica is given twice")


def _check(sources: Sequence[str]) -> None:
    """Raise UsageError unless the sources are replicas of one partition."""
    ids: dict[str, object] = {}
    for path in sources:
        if is_url(path) or not os.path.isdir(path) or not PartitionFolder(Path(path), finish=True).logs:
            raise UsageError(f"{path}: expected the local folder of a partition's replica")
        if is_metadata_log(path):
            raise UsageError(f"{path}: {ONE_COPY}")
        if known := topic_id_of(path):
            ids[path] = known
    names: dict[str, object] = {}
    for path in sources:
        named = partition_of(Path(os.path.abspath(path)).name)
        names[path] = f"{named.topic}-{named.partition}{named.state or ''}" if named else None
    for what, values in (("partition", names), ("topic id", ids)):
        if len({*values.values()}) > 1:
            each = ", ".join(f"{path} ({value})" for path, value in values.items())
            raise UsageError(f"expected replicas of one partition, but not all have the same {what}: {each}")


# --- the merge ---


def _write_merged(
    replicas: Sequence[DamagedReplica], folder: Path, prefer: str | None
) -> tuple[list[TakenRange], RecordGaps, list[str]]:
    """Write the merged log, and again without the batches that are proved to be deleted, until no other ones are.

    Returns its ranges, the offsets that it lacks, and a line per replica with deleted batches. Raises UsageError.
    """
    kept = [replica.left_out for replica in replicas]
    proofs: dict[tuple[int, int], DeletionProof] = {}
    while True:
        for replica, left_out in zip(replicas, kept, strict=True):
            replica.left_out = [*left_out]
        merge = _Merge(replicas, prefer, [*proofs.values()])
        merge.write(folder)
        found = {(proof.other, proof.cleaned): proof for proof in deletion_proofs(replicas, merge.missing)}
        # A deleted batch can have had the deletion of others, which only its replica had.
        found = {key: proof for key, proof in found.items() if key not in proofs or proof.stop > proofs[key].stop}
        if not found:
            merge.missing.deletions = [(replicas[proof.cleaned], proof.stop) for proof in proofs.values()]
            return merge.taken, merge.missing, merge.deleted
        proofs |= found
        shutil.rmtree(folder)


class _Merge:
    """One log of the batches of several replicas, in the order of their offsets.

    ``taken`` are its ranges, ``missing`` the offsets that it lacks, ``proofs`` exclude deleted batches.
    """

    def __init__(self, replicas: Sequence[DamagedReplica], prefer: str | None, proofs: Sequence[DeletionProof]) -> None:
        self.taken: list[TakenRange] = []
        self.missing = RecordGaps()
        self._deleted: dict[int, dict[int, int]] = {}
        self._replicas = replicas
        self._prefer = prefer
        self._proofs = proofs
        self._cursors = [iter(replica.batches()) for replica in replicas]
        self._heads = [next(cursor, None) for cursor in self._cursors]

    @property
    def deleted(self) -> list[str]:
        """A line per replica with deleted batches."""
        return [
            f"{count_of(len(lasts), 'batch')} of {self._replicas[n].path} with deleted records "
            f"({inclusive_range('offset', min(lasts), max(lasts.values()))})"
            for n, lasts in self._deleted.items()
        ]

    def write(self, folder: Path) -> None:
        """Write the log. Raises UsageError if replicas diverge, unless one is preferred."""
        done = min((replica.start for replica in self._replicas), default=0)
        with closing(MergedLog(folder)) as log:
            while any(self._heads):
                if self._skip_deleted():
                    continue
                chosen, batch = first_batch(self._heads)
                if self._skip_conflict(chosen, batch):
                    continue
                replica = self._replicas[chosen]
                also = self._skip_versions(chosen, batch)
                self.missing.add(done, batch.base_offset - 1)
                if not batch.has_all_offsets:
                    self.missing.add(batch.base_offset, batch.last_offset)
                log.append(batch, replica.epoch_of.get((batch.path, batch.position)))
                _count(self.taken, replica.path, batch, also, apart=batch.base_offset > done)
                done = batch.last_offset + 1
        self.missing.end = done

    def _next(self, n: int) -> ReplicaBatch | None:
        """Return the batch after the next one of a replica, which is the next one then."""
        self._heads[n] = head = next(self._cursors[n], None)
        return head

    def _skip_deleted(self) -> bool:
        """Leave out the versions of the next batch that have deleted records; return whether none is left.

        They are compared with each other before one is left out: what only a version has that is left out is not deleted.
        """
        end = min(head.last_offset for head in self._heads if head is not None)
        found = set()
        for proof in self._proofs:
            head = self._heads[proof.other]
            if head and head.base_offset <= end and proof.holds_for(head, self._heads[proof.cleaned]):
                found.add(proof.other)
                self._deleted.setdefault(proof.other, {})[head.base_offset] = head.last_offset
        for n in found:
            self._next(n)
        return bool(found) and not any(head and head.base_offset <= end for head in self._heads)

    def _skip_conflict(self, chosen: int, batch: ReplicaBatch) -> bool:
        """Leave out a batch if the preferred replica has other records at its offsets; return whether that is so."""
        preferred = self._heads[0] if self._replicas[0].path == self._prefer else None
        if not (chosen and preferred and preferred.base_offset <= batch.last_offset) or agree(batch, preferred):
            return False
        _leave_out(self._replicas[chosen], batch, preferred, f"{self._prefer} is preferred, and has{_OTHER_RECORDS}")
        self._next(chosen)
        return True

    def _skip_versions(self, chosen: int, batch: ReplicaBatch) -> tuple[str, ...]:
        """Pass the batches at the offsets of a batch of the result; return the replicas that have the same one.

        Raises UsageError if one of them has other records, unless ``chosen`` is preferred.
        """
        also = []
        for n, replica in enumerate(self._replicas):
            head = self._heads[n]
            while head is not None and head.base_offset <= batch.last_offset:
                if n != chosen and not head.is_same(batch):
                    why = f"the batch of {self._replicas[chosen].path} is in the result, and lacks these records"
                    if not agree(head, batch):
                        if self._replicas[chosen].path != self._prefer:
                            raise _diverged(self._replicas[chosen], batch, replica, head)
                        why = f"{self._prefer} is preferred, and has{_OTHER_RECORDS}"
                    _leave_out(replica, head, batch, why)
                also += [replica.path] if n != chosen and head.is_same(batch) else []
                head = self._next(n)
        return tuple(also)


_OTHER_RECORDS = " other records at some offsets of the batch: it is left out as a whole"


def _leave_out(replica: DamagedReplica, batch: ReplicaBatch, instead: ReplicaBatch, why: str) -> None:
    """Add the records of a batch at offsets where ``instead``, which is in the result, has none, as a loss."""
    for first, last in ranges_without(batch, instead):
        replica.leave_out([batch._replace(base_offset=first, last_offset=last)], why)


def _count(taken: list[TakenRange], path: str, batch: ReplicaBatch, also: tuple[str, ...], *, apart: bool) -> None:
    """Add a batch to the last range, or to a new one if another replica has it or offsets are missing before it."""
    if not taken or apart or (taken[-1].file, taken[-1].also_in) != (path, also):
        taken.append(TakenRange(path, batch.base_offset, batch.last_offset, 0, 0, also))
    last = taken[-1]
    last.last_offset = batch.last_offset
    last.batches += 1
    last.bytes += batch.size


def _diverged(first: DamagedReplica, batch: ReplicaBatch, second: DamagedReplica, other: ReplicaBatch) -> UsageError:
    offset = max(batch.base_offset, other.base_offset)
    return UsageError(
        f"{first.path} and {second.path} have different records at offset {offset}, and no leader epoch decides which one "
        "counts: look at both with `kseg diff`, then name the SRC that counts with --prefer"
    )


def _copy_side_files(replicas: Sequence[DamagedReplica], folder: Path) -> None:
    """Copy the topic's id, and the producers of the first replica. The other files are built from the batches."""
    for replica in replicas:
        for path in sorted(replica.folder.iterdir()):
            snapshot = path.suffix == ".snapshot" and replica is replicas[0]
            if snapshot or (path.name == PARTITION_METADATA and not (folder / path.name).exists()):
                copy_file(path, folder / path.name)
