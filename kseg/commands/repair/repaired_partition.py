"""Repair the segments of one partition, and copy its side files that still apply."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from kseg.commands.repair.kept_batches import UnplacedBatches, append_unplaced, unplaced_path
from kseg.commands.repair.lost_markers import EndedTransactions
from kseg.commands.repair.partition_gaps import PartitionGaps, report_emptied, report_lost_end
from kseg.commands.repair.repair_losses import (
    CorrectedBatch,
    LostRange,
    RepairResult,
    ReportLine,
    SegmentRepair,
    all_lost,
    no_batch,
)
from kseg.commands.repair.repaired_checkpoints import EpochEvidence, log_end
from kseg.commands.repair.repaired_segment import RepairPlan, repair_segment
from kseg.commands.repair.segment_places import SegmentPlace, find_places
from kseg.errors import NotASegmentError, UnreadableError, UsageError, VanishedError
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.record.columns import CRC_GOOD
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import stored_leader_epochs
from kseg.format.sidefiles.indexes import AbortedTransactions
from kseg.format.sidefiles.log_end import ALL_ZEROS, indexed_end, is_all_zeros
from kseg.format.sidefiles.registry import COPY, REBUILD, handling_of
from kseg.format.storage.atomic_write import NewFile, check_absent, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import read_file
from kseg.format.storage.naming import LEADER_EPOCHS, UNPLACED, base_offset_of, producer_snapshot_offset, snapshot_id
from kseg.format.storage.source import open_source
from kseg.format.writer import written_side_files
from kseg.format.writer.batch_runs import side_file_error
from kseg.format.writer.output_guards import (
    PartitionFolder,
    check_earlier_result,
    check_replaceable,
    copy_file,
    index_paths,
    txn_index_path,
)
from kseg.format.writer.written_side_files import write_snapshots
from kseg.text import count_of

#: The number of batches of the next segment that show whether the last leader epoch of a segment is too high.
_EPOCHS_AHEAD = 8


@dataclass(frozen=True, slots=True)
class PartitionRepair:
    """The settings that all partitions of one call share."""

    root: Path
    plan: RepairPlan
    report: ReportLine
    progress: Progress
    result: RepairResult

    def repair(self, partition: PartitionFolder, target: Path) -> None:
        plan = self.plan
        if not plan.force:
            check_absent([target])
        if plan.dry_run:
            _PartitionRun(self, partition, target, target).repair_logs()
            return
        check_replaceable([partition], [target])
        check_earlier_result(target)
        if plan.indexes_only and target.is_dir() and PartitionFolder(target).logs:
            raise UsageError(f"{target} holds segments, and would hold only indexes: build them in a new folder")
        with whole_folder(target, replace=plan.force, owned_as=partition.path) as folder:
            run = _PartitionRun(self, partition, folder, target)
            run.repair_logs()
            run.copy_side_files()
        with suppress(OSError):  # it is not empty
            target.rmdir()


class _PartitionRun:
    """The repair of one partition into ``folder``, which becomes ``target``."""

    def __init__(self, whole: PartitionRepair, partition: PartitionFolder, folder: Path, target: Path) -> None:
        self._root, self._plan, self._result = whole.root, whole.plan, whole.result
        self._report_line, self._progress = whole.report, whole.progress
        self._partition = partition
        self._path = partition.path
        self._folder = folder
        self._target = target
        self._segments: list[SegmentRepair] = []
        self._losses: list[LostRange] = []
        self._gaps = PartitionGaps(partition, self._plan.replicas)
        paths = {partition.path / name: producer_snapshot_offset(name) for name in partition.names}
        self._snapshots = {path: offset for path, offset in paths.items() if offset is not None}

    def _report(self, row: LostRange) -> None:
        self._losses.append(row)
        self._report_line(row)

    def _leave_out(self, path: Path, why: str = "") -> None:
        self._result.left_out.append(f"{path.relative_to(self._root)}{f' ({why})' if why else ''}")

    def copy_side_files(self) -> None:
        """Copy the side files that still apply, and write those that the result needs."""
        partition, indexes_only = self._partition, self._plan.indexes_only
        for name, why in partition.deleted.items():
            self._leave_out(self._path / name, why)
        logs = set(partition.logs)
        for name in partition.names:
            path = self._path / name
            if name in logs or handling_of(name).repair == REBUILD:
                continue
            if name.endswith(".swap") and f"{name[:20]}.log.swap" in logs:
                continue  # its indexes are rebuilt
            if name.endswith(UNPLACED) and not indexes_only:
                append_unplaced(path, self._folder / name)
                continue
            kept = _is_copied(name) and not indexes_only
            if kept and not (why := _error(path)):
                copy_file(path, self._folder / name)
            else:
                self._leave_out(path, why if kept else "")
        if indexes_only:
            for name in partition.names:
                if name == LEADER_EPOCHS or self._path / name in self._snapshots:
                    self._leave_out(self._path / name)
            return
        _write_epochs(partition, self._folder, self._segments)
        if LEADER_EPOCHS in partition.names and stored_leader_epochs(self._path) is None:
            self._leave_out(self._path / LEADER_EPOCHS, _error(self._path / LEADER_EPOCHS))
        self._write_snapshots()

    def _write_snapshots(self) -> None:
        """Write the producer snapshots of the kept batches. One of the source describes all batches before its offset."""
        lost = [segment.first_lost_offset for segment in self._segments if segment.first_lost_offset is not None]
        errors = {path: _error(path) for path in self._snapshots}
        whole = ((offset, path) for path, offset in self._snapshots.items() if not errors[path])
        valid = {offset: path for offset, path in whole if offset <= min(lost, default=offset)}
        written: Sequence[str] = ()
        try:
            written = write_snapshots(self._folder, log_end(self._segments), valid)
        except RefusedError as error:
            self._leave_out(self._path / "*.snapshot", f"a broker cannot read the producers: {error.why}")
        for path in self._snapshots:
            if path.name not in written:
                self._leave_out(path, errors[path])

    def repair_logs(self) -> None:
        partition, plan, segments = self._partition, self._plan, self._segments
        ended = EndedTransactions()
        txns = AbortedTransactions(ended.add)
        # Their first batches can be in deleted segments.
        with suppress(VanishedError):
            txns.add_open(read_file(str(self._path / (partition.logs[0].partition(".")[0] + ".snapshot"))))
        stored = stored_leader_epochs(self._path) or ()
        last_epoch = floor = -1
        places = _places(partition, plan)
        snapshots, indexed = self._end_of_snapshots(), -1
        if places and places[-1].order is not None and not plan.indexes_only:
            indexed = indexed_end(str(self._path / places[-1].name), -1)
            places[-1] = replace(places[-1], named_end=snapshots)
        named = {place.target for place in places if place.order is not None}
        for n, place in enumerate(places):
            source = self._path / place.name
            if place.order is None and place.target in named and not source.stat().st_size:
                self._leave_out(source, f"empty: the batches of {place.target} are in another file")
                continue
            if place.order is None and not plan.indexes_only:
                later = min((base_offset_of(each.name) or 0 for each in places[n + 1 :]), default=place.ceiling)
                self._without_batches(_apart(place, later, segments))
                continue
            if place.target != place.name.removesuffix(".swap"):
                self._report_renamed(place)
            path = self._folder / place.target
            following = next((each for each in places[n + 1 :] if each.order is not None), None)
            epochs = EpochEvidence(last_epoch, partial(_first_epochs, self._path, following), stored)
            segment = repair_segment(
                str(source), path, plan, self._report, self._progress, txns=txns, place=place, epochs=epochs
            )
            last_epoch = segment.last_epoch
            if plan.indexes_only:
                # Its place was found by its name alone.
                last_offset, place = segment.last_offset, replace(place, floor=floor)
                floor = floor if last_offset is None else last_offset
            if segment.lost_bytes and not segment.kept and not plan.dry_run:
                # No batch of it is kept, so the adjacent segments are the log.
                for written in (path, *index_paths(path), txn_index_path(path)):
                    written.unlink(missing_ok=True)
            index = txn_index_path(path)
            if index.exists() and index.name not in partition.names:
                self._result.rebuilt.append(f"{self._target.name}/{index.name}")
            segment.target = str(self._target / place.target)
            self._add_missing(place, segment)
            self._gaps.add_segment(segment, base_offset_of(place.target) or 0)
            segments.append(segment)
        for row in self._gaps.rows():
            self._report(row)
            self._result.missing.append(row)
        if segments and not plan.indexes_only:
            report_lost_end(segments[-1], log_end(segments), snapshots, indexed, self._report)
        self._result.segments += segments
        self._result.open_transactions += [(self._target.name, *entry) for entry in txns.open.items()]
        indexes = [self._path / name for name in partition.names if name.endswith(".txnindex")]
        lines = ended.uncertain(self._losses, indexes)
        self._result.uncertain_transactions += [f"{self._target.name}: {line}" for line in lines]

    def _without_batches(self, place: SegmentPlace) -> None:
        """Report a segment without its own batches: it is empty, a copy of another, or not a segment."""
        source, base = self._path / place.name, base_offset_of(place.name) or 0
        size = source.stat().st_size
        if place.copied and not place.why:
            self._leave_out(source, f"a copy of batches in {place.copied}")
        elif size and not self._is_preallocated(place, base):
            last = None if place.ceiling is None else place.ceiling - 1
            if last is None and (end := self._end_of_snapshots()) > max(base, place.floor + 1):
                last = end - 1
            missing_range, why = (place.floor + 1, last), place.why
            if self._partition.logs == [place.name] and is_all_zeros(str(source)):
                end = self._proved_end(place, base)
                missing_range, why = ((base, end - 1), no_batch(end)) if end > base else (missing_range, ALL_ZEROS)
                if why == ALL_ZEROS:
                    self._result.unknown.append(str(source))
            unplaced = 0 if place.copied else self._write_unplaced(source)
            if unplaced:
                why += f"; {count_of(unplaced, 'batch')} with a right CRC in {unplaced_path(source).name}"
            self._segments.append(replace(all_lost(source, missing_range, why, self._report), unplaced=unplaced))
        elif place.floor < base and (place.ceiling is None or base <= place.ceiling):
            # A broker has created it without writing, or preallocated it, or the cleaner has removed all its batches.
            unused = AbortedTransactions()
            empty = repair_segment(str(source), self._folder / place.target, self._plan, self._report, txns=unused)
            empty.target = str(self._target / place.target)
            proved = self._proved_end(place, base)
            if proved > base:  # otherwise the next segment reports them
                self._add_missing(replace(place, target=place.name), replace(empty, first_offset=base))
            else:
                self._gaps.add_emptied(place.name)
            report_emptied(empty, base, proved, place.ceiling, self._report)
            self._segments.append(empty)
        else:
            self._leave_out(source, "empty")

    def _write_unplaced(self, source: Path) -> int:
        """Write the valid batches of a segment without a place in the log; return their number."""
        target = unplaced_path(self._folder / source.name)
        try:
            if self._plan.dry_run:
                return UnplacedBatches(None).append_all(str(source))
            with writing(self._folder), NewFile(target) as new:
                count = UnplacedBatches(new.file).append_all(str(source))
                new.sync()
        except NotASegmentError:
            count = 0
        if not count:
            target.unlink(missing_ok=True)
        return count

    def _end_of_snapshots(self) -> int:
        """Return the highest offset of the partition's valid producer snapshots, -1 without any."""
        return max((offset for path, offset in self._snapshots.items() if not _error(path)), default=-1)

    def _proved_end(self, place: SegmentPlace, base: int) -> int:
        """Return the log end that the side files of a segment without batches prove, ``base`` for none.

        The snapshots of later segments prove nothing about this one.
        """
        end = indexed_end(str(self._path / place.name), base)
        return end if place.name != self._partition.logs[-1] else max(end, self._end_of_snapshots())

    def _is_preallocated(self, place: SegmentPlace, base: int) -> bool:
        """Return whether a broker rolled the log to this segment of zeros, and has not written to it."""
        logs = self._partition.logs
        newest = logs[0] != place.name == logs[-1]
        return newest and place.floor + 1 == base and is_all_zeros(str(self._path / place.name))

    def _report_renamed(self, place: SegmentPlace) -> None:
        source = self._path / place.name
        first, last = place.offsets
        why = f"its offsets begin at {first}: it is written as {place.target}"
        row = CorrectedBatch(str(source), 0, source.stat().st_size, first, last, "file-name-mismatch", why)
        if place.order and place.order.is_part:
            ((begin, end),) = place.order.pieces
            why = f"offset {first} does not fit the segment before it: a new one begins here, {place.target}"
            row = replace(row, position=begin, end=end, rule="segment-offset-overflow", why=why)
            self._result.split_off += 1
        else:
            self._result.renamed += 1
        self._report(row)

    def _add_missing(self, place: SegmentPlace, segment: SegmentRepair) -> None:
        """Add the offsets between the segment before and this one to the gaps, unless they are losses that were reported."""
        if segment.first_offset is None:
            return
        first = base_offset_of(place.target) or 0
        if not self._segments:
            self._gaps.add_start(first)
            return
        other = self._segments[-1]
        # Before the first batches are segments without any: the log starts with the first of these.
        end = place.floor + 1 or base_offset_of(self._segments[0].source) or 0
        # Those of an emptied file reach the next segment.
        ends_lost = other.lost_to == other.bytes_before and other.lost_ranges > 0
        if end < first and not ends_lost:
            self._gaps.add_between(other, end, first)


def _apart(place: SegmentPlace, later: int | None, before: list[SegmentRepair]) -> SegmentPlace:
    """Return the place of a segment without batches, limited by a neighbour that has none either: it has its own row.

    ``later`` is the lowest offset in the names of the files after it, ``before`` are the segments before it.
    """
    ceiling = later if place.ceiling is None or (later is not None and later < place.ceiling) else place.ceiling
    base = base_offset_of(place.name) or 0
    floor = max(place.floor, base - 1) if before and before[-1].last_offset is None else place.floor
    return replace(place, floor=floor, ceiling=ceiling)


def _places(partition: PartitionFolder, plan: RepairPlan) -> list[SegmentPlace]:
    """Return the places of a partition's segments; with ``indexes_only`` by their names alone."""
    if plan.indexes_only:
        return [SegmentPlace(name, name.removesuffix(".swap")) for name in partition.logs]
    return find_places(partition.path, partition.logs, merged=bool(plan.replicas))


def _is_copied(name: str) -> bool:
    return handling_of(name).repair == COPY or snapshot_id(name) is not None


def _error(path: Path) -> str:
    """Return the error in a side file, an empty text if it has none."""
    error = side_file_error(path)
    return f"{error.rule.name}: {error.message}" if error else ""


def _first_epochs(folder: Path, place: SegmentPlace | None) -> list[int]:
    """Return the leader epochs of the first intact v2 batches of a segment, at most _EPOCHS_AHEAD."""
    if place is None or place.order is None:
        return []
    try:
        with SegmentReader(place.order.arranged(open_source(str(folder / place.name)))) as reader:
            batches = next(reader.windows()).batches
    except (NotASegmentError, UnreadableError, StopIteration):
        return []
    found = (
        batches.partition_leader_epoch[row]
        for row in range(batches.count)
        if batches.magic[row] >= 2 and batches.crc_state[row] == CRC_GOOD
    )
    return list(islice((epoch for epoch in found if epoch >= 0), _EPOCHS_AHEAD))


def _write_epochs(partition: PartitionFolder, folder: Path, segments: list[SegmentRepair]) -> None:
    """Copy the ``leader-epoch-checkpoint``, or write one that agrees with the kept batches: empty for one without entries.

    A broker clears it when it appends v0 or v1 batches, so only the batches after the last of these have an epoch in it.
    """
    known = stored_leader_epochs(partition.path)
    begin = 1 + max((segment.last_legacy_offset for segment in segments), default=-1)
    all_runs = written_side_files.merged_runs(segment.leader_epochs for segment in segments)
    runs = [[epoch, max(first, begin), last] for epoch, first, last in all_runs if last >= begin]
    entries = written_side_files.merged(known or [], runs, log_end(segments))
    if known is not None and known == entries:
        copy_file(partition.path / LEADER_EPOCHS, folder / LEADER_EPOCHS)
    elif entries or LEADER_EPOCHS in partition.names:
        written_side_files.write(folder, entries)
