"""``kseg convert`` as a library: convert segments, partition folders and log directories between record versions.

    plan = ConversionPlan.of("v0-to-v2", compression="zstd")
    result = convert("old/00000000000000000000.log", "new/00000000000000000000.log", plan)

The source is only read. The output is read back and compared with the source. The transaction indexes of the new segments
are built from their batches, as a broker does when it recovers a log: after a clean shutdown a broker trusts these files,
and without an entry consumers that read committed get aborted records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kseg.commands.convert import conversion_plan
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.convert_ranges import Pair, convert_segments
from kseg.commands.convert.converted_segment import Report
from kseg.commands.convert.transcode import Conversion, WrongVersionError
from kseg.errors import NotASegmentError, UnreadableError, UsageError
from kseg.findings import Finding, do_nothing
from kseg.format.log_loader import loaded_files
from kseg.format.sidefiles import checkpoints, index_walks, log_end, registry
from kseg.format.sidefiles.indexes import MAX_OPEN, AbortedTransactions, AbortedTxn
from kseg.format.storage import remote_outputs
from kseg.format.storage.atomic_write import check_absent, whole_files, whole_folder
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import check_regular, read_file
from kseg.format.storage.naming import (
    LEADER_EPOCHS,
    base_offset_of,
    is_url,
    producer_snapshot_offset,
    without_file_scheme,
)
from kseg.format.storage.source import STDIN, local_size, open_source
from kseg.format.writer import written_side_files
from kseg.format.writer.batch_runs import side_file_error
from kseg.format.writer.output_guards import (
    DamagedError,
    PartitionFolder,
    check_earlier_result,
    check_replaceable,
    copy_file,
    each_partition,
    index_paths,
    target_path,
    txn_index_path,
)
from kseg.format.writer.output_rule import check_dst, check_dst_url
from kseg.format.writer.written_side_files import aborted_transactions, write_snapshots, write_txn_index, written_events


def write_txn_indexes(pairs: Sequence[Pair], segments: Sequence[Conversion]) -> None:
    """Write the transaction index of each converted segment in which a transaction was aborted.

    ``pairs`` are the sources and the written logs of a partition, or of one segment, in the order of their offsets.
    The written logs are read again: transactions can begin in another segment, which another process has converted.
    Raises KsegError.
    """
    if not any(segment.transactional for segment in segments):
        return
    own = txn_index_path(Path(pairs[0][0]))
    begin = segments[0].first_offset or 0
    txns = _open_before(own, begin, pairs[0][1])
    for (_, log), segment in zip(pairs, segments, strict=True):
        if segment.transactional:
            entries = aborted_transactions(log, txns)
            if segment is segments[0]:
                entries = _with_stable_offsets(entries, own, begin)
            write_txn_index(txn_index_path(log), entries)


def _open_before(index: Path, begin: int, log: Path) -> AbortedTransactions:
    """Return the transactions that were open before ``begin``, the first offset of the log, as its side files have them.

    ``index`` is the source's transaction index. The producer snapshot is next to it. Both can be missing.
    """
    txns = AbortedTransactions()
    snapshot = index.with_suffix(".snapshot")
    if snapshot.is_file():
        txns.add_open(read_file(str(snapshot)))
    begun: dict[int, AbortedTxn] = {}
    for txn in _stored(index):
        if 0 <= txn.first_offset < begin <= txn.last_offset and len(begun) < MAX_OPEN:
            begun.setdefault(txn.producer_id, txn)
    for txn in _confirmed(begun, log) if begun else ():
        if txn.producer_id not in txns.open:
            txns.begin(txn.producer_id, txn.first_offset)
    return txns


def _stored(index: Path) -> Iterator[AbortedTxn]:
    """Yield the entries of the source's index, right or wrong; none if it does not exist."""
    if index.is_file():
        with open_source(str(index)) as source:
            for _, txn in index_walks.walk_txn_index(source, 0):
                yield txn


def _confirmed(begun: dict[int, AbortedTxn], log: Path) -> Iterator[AbortedTxn]:
    """Yield the entries whose marker the log has. ``begun`` has one that began before the log by producer."""
    for batches, events in written_events(log):
        for row, at, marker in events:
            # Only the first marker of a producer can end a transaction that began earlier.
            txn = begun.pop(batches.producer_id[row], None) if marker else None
            if txn and marker and marker.type == "ABORT" and txn.last_offset == at:
                yield txn


def _with_stable_offsets(entries: Iterator[AbortedTxn], index: Path, begin: int) -> Iterator[AbortedTxn]:
    """Yield the entries with the last stable offsets of the source's index that are before ``begin``.

    A transaction that is open throughout a segment is not in it. A broker ends its search for aborted transactions at an
    entry with a last stable offset after the fetched records (``TransactionIndex.collectAbortedTxns``).
    """
    stored = _stored(index)
    known = next(stored, None)
    for txn in entries:
        while known and known.last_offset < txn.last_offset:
            known = next(stored, None)
        if known and known[:3] == txn[:3] and 0 <= known.last_stable_offset < begin:
            txn = txn._replace(last_stable_offset=min(txn.last_stable_offset, known.last_stable_offset))
        yield txn


# Errors of the source: to convert it again fails in the same way.
EXCUSED = (DamagedError, WrongVersionError, UnreadableError, NotASegmentError)

#: Converts the segments of one folder; results have their order.
ConvertSegments = Callable[[Sequence[Pair]], Iterable[Conversion]]


@dataclass(slots=True)
class ConvertResult:
    """The result of a conversion.

    ``left_out`` are the files of a folder that were not copied, ``ends`` the empty segments that keep a log end.
    ``unkept_end`` are the log ends of a segment's result and of its source if the result ends before. ``failed`` has one
    line per partition of a log directory that could not be converted; these have no files in the target.
    """

    segments: list[Conversion] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    unkept_end: tuple[int, int] | None = None


def convert(
    source: str,
    target: str,
    plan: ConversionPlan,
    report: Report = do_nothing,
    progress: Progress = do_nothing,
    jobs: int = 1,
) -> ConvertResult:
    """Convert a segment (a path or a URL), a partition folder or a log directory, and build its indexes again.

    ``target``, a path or a URL, is created atomically; in a log directory, each partition folder is. ``jobs`` is the
    largest number of processes; output and findings are the same for any number. Raises DamagedError, WrongVersionError,
    ReadBackError, UsageError, UnreadableError and NotASegmentError; then no target is created.
    """
    return convert_by(lambda pairs: convert_segments(pairs, plan, report, progress, jobs), source, target, plan, report)


def convert_by(work: ConvertSegments, source: str, target: str, plan: ConversionPlan, report: Report) -> ConvertResult:
    """Convert like ``convert``, with ``work`` for the segments of a folder, which raises the same errors."""
    if plan.another_cluster and conversion_plan.is_of_its_cluster(source):
        raise UsageError(f"{source} has ids of its cluster, which no other cluster can have")
    if source == STDIN:
        raise UsageError("convert cannot read standard input: give a file or a folder")
    target = without_file_scheme(target)
    if is_url(target):
        check_dst_url(target)
        with remote_outputs.staged_result(target) as staged:
            result = convert_by(work, source, str(staged), plan, report)
            for segment in result.segments:
                segment.target = segment.target.replace(str(staged), target, 1)
        return result
    goal = target_path(target)
    check_regular(source)
    check_dst(source, goal, target, force=plan.force)
    if not os.path.isdir(source):
        if base_offset_of(source) is None:
            registry.check_not_side_file(source)
        return _convert_alone(work, source, goal, plan)
    folder = PartitionFolder(Path(source))
    result = ConvertResult()
    run = _ConvertRun(folder.path, plan, work, result, report)
    if not folder.logs:
        result.failed, others = each_partition(folder, goal, run.convert_partition, force=plan.force)
        result.left_out += others
        return result
    run.convert_partition(folder, goal)
    return result


def _convert_alone(work: ConvertSegments, source: str, target: Path, plan: ConversionPlan) -> ConvertResult:
    """Convert one segment and build its transaction index."""
    # A broker builds a missing index, but would trust the index of another log.
    indexes = (*index_paths(target), txn_index_path(target))
    if not plan.force:
        check_absent([target, *indexes])
    with whole_files(target, replace=plan.force, obsolete=indexes, owned_as=Path(source)) as folder:
        pairs = [(source, folder / target.name)]
        result = ConvertResult(list(work(pairs)))
        if plan.downwards:
            result.unkept_end = _unkept_end(str(folder / target.name), result.segments)
        else:
            write_txn_indexes(pairs, result.segments)
    for segment in result.segments:
        segment.target = str(target)
    own = txn_index_path(Path(source))
    left_out = (*((own,) if plan.downwards else ()), own.with_suffix(".snapshot"))
    result.left_out += [path.name for path in left_out if path.is_file()]
    return result


@dataclass(frozen=True, slots=True)
class _ConvertRun:
    """The settings that all partitions of one call share."""

    root: Path
    plan: ConversionPlan
    work: ConvertSegments
    result: ConvertResult
    report: Report

    def convert_partition(self, partition: PartitionFolder, target: Path) -> None:
        plan, result, logs = self.plan, self.result, partition.logs
        if plan.another_cluster:
            if conversion_plan.is_of_its_cluster(str(partition.path)):
                result.left_out.append(partition.path.name)
                return
            logs = plan.another_cluster.served(partition.path, logs)
        if not plan.force:
            check_absent([target])
        check_replaceable([partition], [target])
        check_earlier_result(target)
        handling = {name: _handling(name, plan) for name in partition.names}
        kept = [name for name, what in handling.items() if what == registry.COPY]
        with whole_folder(target, replace=plan.force, owned_as=partition.path) as folder:
            pairs = [(str(partition.path / name), folder / name) for name in logs]
            segments = list(self.work(pairs))
            self._check_order(segments)
            rebuilt = (
                (name, producer_snapshot_offset(name)) for name, what in handling.items() if what == registry.REBUILD
            )
            begin = 0 if logs == partition.logs else base_offset_of(logs[0]) or 0
            snapshots = [name for name, offset in rebuilt if offset is not None and offset >= begin]
            damaged = {name for name in (*kept, *snapshots) if self._is_damaged(partition, name)}
            for name in kept:
                if name not in damaged:
                    copy_file(partition.path / name, folder / name)
            if plan.downwards:
                end = _unkept_end(str(folder / max(logs)), segments)
                if end is not None:
                    (folder / f"{end[1]:020}.log").touch()
                    result.ends.append(str(target / f"{end[1]:020}.log"))
            else:
                _write_epochs(partition, folder, segments, plan)
                write_txn_indexes(pairs, segments)
                paths = [partition.path / name for name in snapshots if name not in damaged]
                damaged |= {*snapshots} - {*self._write_snapshots(folder, paths, segments)}
        for segment, name in zip(segments, logs, strict=True):
            segment.target = str(target / name)
        result.segments += segments
        written = (registry.COPY, registry.REBUILD)
        done = {name for name, what in handling.items() if what in written} - damaged | set(logs)
        left_out = [name for name in partition.names if name not in done]
        result.left_out += [str((partition.path / name).relative_to(self.root)) for name in left_out]

    def _write_snapshots(self, folder: Path, paths: Sequence[Path], segments: Sequence[Conversion]) -> Sequence[str]:
        """Write the producer snapshots of the converted batches; return their names.

        Snapshots of the source after its first loss describe batches that the result lacks.
        """
        cluster = self.plan.another_cluster
        had_producers = paths or cluster or 2 in self.plan.sources or any(segment.copied for segment in segments)
        if not had_producers or (cluster and not cluster.keep_producers):
            return ()
        bases = [base_offset_of(segment.source) or 0 for segment in segments]
        ends = [segment.last_offset + 1 for segment in segments if segment.last_offset is not None]
        losses = (base for base, segment in zip(bases, segments, strict=True) if segment.skipped or segment.lost_bytes)
        valid = {producer_snapshot_offset(path.name) or 0: path for path in paths}
        first = next(losses, max(valid, default=0))
        valid = {offset: path for offset, path in valid.items() if offset <= first}
        try:
            return write_snapshots(folder, max(bases + ends), valid)
        except loaded_files.RefusedError as error:
            raise DamagedError(f"{folder}: a broker cannot read the producers: {error.why}") from error

    def _is_damaged(self, partition: PartitionFolder, name: str) -> bool:
        """Report the error in a side file, if it has one. Raises DamagedError, unless damage is to be skipped."""
        error = side_file_error(partition.path / name)
        if error is None:
            return False
        if not self.plan.skip_damaged:
            hint = "--skip-damaged skips damaged batches"
            raise DamagedError(f"{partition.path / name}: {error.rule.name}: {error.message} ({hint})")
        self.report(error.file, error.finding)
        return True

    def _check_order(self, segments: Sequence[Conversion]) -> None:
        """Report segments whose offsets do not follow those of the segment before, as ``kseg validate`` does.

        Raises DamagedError, unless damage is to be skipped.
        """
        end, before = -1, ""
        for segment in segments:
            base = base_offset_of(segment.source) or 0
            begin = base if segment.first_offset is None else min(base, segment.first_offset)
            if begin < end:
                facts = {"first": begin, "last": end - 1, "other": os.path.basename(before)}
                finding = Finding("segment-overlap", 0, None, begin, end - 1, facts)
                if not self.plan.skip_damaged:
                    hint = "`kseg repair` writes segments in the order of their offsets"
                    raise DamagedError(f"{segment.source}: segment-overlap: {finding.message} ({hint})")
                self.report(segment.source, finding)
            if segment.last_offset is not None:
                end, before = max(end, segment.last_offset + 1), segment.source


def _handling(name: str, plan: ConversionPlan) -> str:
    """Return the handling of a file of a partition. Another cluster gives its topics other ids."""
    what, cluster = registry.handling_of(name)[plan.downwards], plan.another_cluster
    of_producers = producer_snapshot_offset(name) is not None or name.endswith(".txnindex")
    if cluster and (what == registry.COPY or (of_producers and not cluster.keep_producers)):
        return registry.LEAVE_OUT
    return what


def _unkept_end(path: str, segments: Sequence[Conversion]) -> tuple[int, int] | None:
    """Return the log ends of the result, whose last segment is ``path``, and of the source; None if it does not end before.

    In older versions each batch has a record, its last one at its end: control batches, and those that the cleaner has
    emptied, are left out. A broker would give their offsets again.
    """
    end = max((segment.last_offset + 1 for segment in segments if segment.last_offset is not None), default=0)
    written = log_end.last_valid_batch(path, local_size(path) or 0).offset
    return None if written >= end else (written, end)


def _write_epochs(
    partition: PartitionFolder, folder: Path, segments: Sequence[Conversion], plan: ConversionPlan
) -> None:
    """Make the leader epochs of all segments ascend, and write a checkpoint that agrees with them."""
    if plan.another_cluster:
        first = base_offset_of(segments[0].source) or 0
        written_side_files.write(folder, [checkpoints.LeaderEpoch(conversion_plan.LEADER_EPOCH, first)])
        return
    epoch = 0
    for segment, name in zip(segments, partition.logs, strict=True):
        # Converted batches after batches with an epoch, as in a downgraded log, need an epoch that is not lower.
        end = segment.bytes_after if segment.epochless_bytes is None else segment.epochless_bytes
        if epoch and end:
            written_side_files.set_epoch(folder / name, end, epoch)
            if segment.leader_epochs and segment.leader_epochs[0][0] < epoch:
                segment.leader_epochs[0][0] = epoch
        epoch = max([epoch, *(run[0] for run in segment.leader_epochs)])
    if LEADER_EPOCHS in partition.names and all(segment.copied == segment.entries_after for segment in segments):
        copy_file(partition.path / LEADER_EPOCHS, folder / LEADER_EPOCHS)
        return
    runs = written_side_files.merged_runs(segment.leader_epochs for segment in segments)
    known = checkpoints.stored_leader_epochs(partition.path) or []
    if entries := written_side_files.merged(known, runs, None):
        written_side_files.write(folder, entries)
