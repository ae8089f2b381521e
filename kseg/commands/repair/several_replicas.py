"""One partition from several damaged replicas: ``kseg repair REPLICA REPLICA... DST``.

Each replica is repaired by itself first, into a scratch folder: the batches there have proven offsets. The replica with the
highest leader epoch, and among these with the highest log end, has the history that Kafka continues. Batches of another
replica count up to the offset to which it would truncate under that one. At each offset the result has the batch of the
first replica that has one; another batch there must have the same records. Otherwise the replicas diverge, and nothing is
written unless one of them is preferred.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, ClassVar, TypeVar

from kseg.commands.repair.damaged_replicas import (
    DamagedReplica,
    ReplicaBatch,
    end_other_histories,
    repaired_replica,
    settle_epochs,
)
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import LostRange, OffsetGap, RepairResult, ReportLine
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import UsageError
from kseg.findings import do_nothing
from kseg.format.record.layout import INT32_MAX, PARTITION_LEADER_EPOCH_AT
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.atomic_write import scratch_folder
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import PARTITION_METADATA, base_offset_of, is_url, partition_of
from kseg.format.storage.segment_files import check_exists
from kseg.format.storage.source import is_metadata_log, open_range
from kseg.format.writer.output_guards import PartitionFolder, copy_file, target_path
from kseg.format.writer.output_rule import check_dst
from kseg.format.writer.written_side_files import write

#: Its records before the newest snapshot are deleted on each controller by itself, so copies have no common log.
ONE_COPY = "a metadata log is not made from several copies: `kseg diff` names the newest that a controller can load"


@dataclass(slots=True)
class TakenRange:
    """Offsets of the result that were taken from one replica, ``file``; ``also_in`` have the same batches."""

    kind: ClassVar[str] = "taken"

    file: str
    offset: int
    last_offset: int
    batches: int
    bytes: int
    also_in: tuple[str, ...]


_Row = TypeVar("_Row", bound=LostRange)


@dataclass(slots=True)
class MergeResult:
    """The result of a repair from several replicas.

    ``repaired`` is the report of DST. ``taken`` are the ranges of its batches, in offset order. ``truncated`` has, by
    replica, the offset from which on its batches belong to another history and are not used.
    """

    repaired: RepairResult
    taken: list[TakenRange]
    truncated: dict[str, int]


def repair_replicas(
    sources: Sequence[str],
    target: str | None,
    plan: RepairPlan,
    report: ReportLine = do_nothing,
    progress: Progress = do_nothing,
    prefer: str | None = None,
) -> MergeResult:
    """Write one partition folder with the valid batches of several replicas, which are partition folders.

    ``target`` is created atomically; it may be None for a dry run. ``report`` is called with each range that no replica has,
    ``progress`` with the source bytes read. ``prefer`` is the replica whose batches count where replicas diverge. The
    repaired replicas need room next to ``target``, or in the folder for temporary files in a dry run.

    Raises UsageError if the replicas are not of one partition, or if they diverge, and the errors of ``repair``.
    """
    check_settings(sources, target, plan, prefer)
    _check(sources)
    goal = target_path(sources[0] if target is None else target)
    name = Path(os.path.abspath(sources[0])).name
    with scratch_folder(goal if target is not None else _temporary(name)) as scratch:
        replicas = [repaired_replica(path, scratch / str(n) / name, plan, progress) for n, path in enumerate(sources)]
        settle_epochs(replicas)
        replicas.sort(
            key=lambda one: (one.path == prefer, one.epochs.latest, one.epochs.log_end, -len(one.losses)), reverse=True
        )
        truncated = end_other_histories(replicas)
        log = _MergedLog(scratch / "merged" / name)
        with closing(log):
            taken, holes = _merge(replicas, log, prefer)
        _copy_side_files(replicas, log.folder)
        if replicas[0].epochs.entries:
            write(log.folder, replicas[0].epochs.entries)
        known = _lost(replicas, holes)

        def in_result(row: _Row) -> _Row:
            return replace(row, file=row.file.replace(str(log.folder), str(goal)))

        def report_other(row: LostRange) -> None:
            if not any(isinstance(row, OffsetGap) and _overlap(row, loss) for loss in known):
                report(in_result(row))

        for loss in known:
            report(loss)
        done = repair(str(log.folder), None if plan.dry_run else str(goal), plan, report_other)
    done.rebuilt.clear()  # replicas have these indexes, and those of the result are built from its batches
    done.missing = [in_result(row) for row in done.missing if not any(_overlap(row, loss) for loss in known)]
    for segment in done.segments:
        segment.source = segment.source.replace(str(log.folder), str(goal))
    for loss in known:
        at = base_offset_of(loss.file) or 0 if loss.offset is None else loss.offset
        before = (one for one in reversed(done.segments) if (one.first_offset or 0) <= at)
        segment = next(before, done.segments[0])
        segment.lost_ranges += 1
        segment.lost_bytes += loss.end - loss.position
    return MergeResult(done, taken, truncated)


def _temporary(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name


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


class _MergedLog:
    """Writes batches as segments that begin where those of their replicas begin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._out: IO[bytes] | None = None
        self._end = 0
        self._run: tuple[Path, int, int] | None = None
        self._modified = 0

    def append(self, batch: ReplicaBatch, epoch: int | None) -> None:
        """Add the next batch, with another leader epoch if one is given."""
        size = 0 if self._out is None else self._out.tell() + (self._run[2] - self._run[1] if self._run else 0)
        if self._out is None or not batch.position or size + batch.size > INT32_MAX:
            self.close()
            named = base_offset_of(batch.path.name)
            base = named if named is not None and not batch.position and named >= self._end else batch.base_offset
            self._out = (self.folder / f"{base:020}.log").open("xb")
        if self._run and self._run[0] == batch.path and self._run[2] == batch.position:
            self._run = (*self._run[:2], batch.position + batch.size)
        else:
            self._flush()
            self._run = batch.path, batch.position, batch.position + batch.size
        if epoch is not None:
            self._flush()
            self._out.seek(PARTITION_LEADER_EPOCH_AT - batch.size, os.SEEK_END)
            self._out.write(epoch.to_bytes(4, "big", signed=True))
            self._out.seek(0, os.SEEK_END)
        self._end = batch.last_offset + 1

    def _flush(self) -> None:
        if self._run is None or self._out is None:
            return
        path, start, end = self._run
        with path.open("rb") as source:
            source.seek(start)
            while start < end:
                data = source.read(min(1 << 20, end - start))
                self._out.write(data)
                start += len(data)
        self._modified = max(self._modified, path.stat().st_mtime_ns)
        self._run = None

    def close(self) -> None:
        """End the current segment. Retention uses the time of its file if its batches have none."""
        if self._out is not None:
            self._flush()
            self._out.close()
            os.utime(self._out.name, ns=(self._modified, self._modified))
            self._out, self._modified = None, 0


#: Offsets, both inclusive, between two batches of the result or after its last one.
_Hole = tuple[int, int]


def _merge(
    replicas: Sequence[DamagedReplica], log: _MergedLog, prefer: str | None
) -> tuple[list[TakenRange], list[_Hole]]:
    """Write the batches in the order of their offsets. Raises UsageError if replicas diverge, unless one is preferred."""
    cursors = [iter(replica.batches()) for replica in replicas]
    heads = [next(cursor, None) for cursor in cursors]
    taken: list[TakenRange] = []
    holes: list[_Hole] = []
    done = min((replica.start for replica in replicas), default=0)
    while known := [head for head in heads if head is not None]:
        lowest = min(known, key=lambda head: head.base_offset)
        chosen = next(n for n, head in enumerate(heads) if head and head.base_offset <= lowest.last_offset)
        batch = heads[chosen]
        assert batch is not None
        also = []
        for n, replica in enumerate(replicas):
            head = heads[n]
            while head is not None and head.base_offset <= batch.last_offset:
                if n != chosen and prefer is None and not (head.is_same(batch) or _agree(head, batch)):
                    raise _diverged(replicas[chosen], batch, replica, head)
                also += [replica.path] if n != chosen and head.is_same(batch) else []
                heads[n] = head = next(cursors[n], None)
        if batch.base_offset > done:
            holes.append((done, batch.base_offset - 1))
        log.append(batch, replicas[chosen].epoch_of.get((batch.path, batch.position)))
        _count(taken, replicas[chosen].path, batch, tuple(also), apart=batch.base_offset > done)
        done = batch.last_offset + 1
    # What another replica lost after the end of the first one was not in the history of that one.
    beyond = max((loss.last_offset for loss in replicas[0].losses if loss.last_offset is not None), default=-1)
    return taken, [*holes, *([(done, beyond)] if beyond >= done else [])]


def _count(taken: list[TakenRange], path: str, batch: ReplicaBatch, also: tuple[str, ...], *, apart: bool) -> None:
    """Add a batch to the last range, or to a new one if another replica has it or offsets are missing before it."""
    if not taken or apart or (taken[-1].file, taken[-1].also_in) != (path, also):
        taken.append(TakenRange(path, batch.base_offset, batch.last_offset, 0, 0, also))
    last = taken[-1]
    last.last_offset = batch.last_offset
    last.batches += 1
    last.bytes += batch.size


def _agree(left: ReplicaBatch, right: ReplicaBatch) -> bool:
    """Return whether all records of one batch are in the other: each replica removes old records by itself."""
    if (left.base_offset, left.last_offset) != (right.base_offset, right.last_offset):
        return False
    one, other = _records(left), _records(right)
    return one.items() <= other.items() or other.items() <= one.items()


def _records(batch: ReplicaBatch) -> dict[int, object]:
    """Return the content of the records of a batch by offset."""
    found: dict[int, object] = {}
    for chunk in chunks_of(open_range(str(batch.path), batch.position, batch.position + batch.size)):
        for i in range(chunk.records.count):
            record = chunk.record(i, None)
            found[record.offset] = record.timestamp, record.key, record.value, record.headers
    return found


def _diverged(first: DamagedReplica, batch: ReplicaBatch, second: DamagedReplica, other: ReplicaBatch) -> UsageError:
    offset = max(batch.base_offset, other.base_offset)
    return UsageError(
        f"{first.path} and {second.path} have different records at offset {offset}, and no leader epoch decides which one "
        "counts: look at both with `kseg diff`, then name the SRC that counts with --prefer"
    )


# --- missing offsets ---


def _lost(replicas: Sequence[DamagedReplica], holes: Sequence[_Hole]) -> list[LostRange]:
    """Return the ranges that no replica has, and of which none shows that they have no batch."""
    found: list[LostRange] = []
    for first, last in holes:
        if any(replica.can_lack(first, last) for replica in replicas):
            continue
        losses = [loss for replica in replicas for loss in replica.loses(first, last)]
        if losses:
            found.append(replace(losses[0], offset=first, last_offset=last))
    # Bytes at the end of the first replica whose offsets nothing shows, and after which no replica has a batch.
    leader = replicas[0]
    unknown = (loss for loss in leader.losses if loss.last_offset is None and leader.offsets_of(loss.file)[1] is None)
    if leader.end >= max(replica.end for replica in replicas) and not found:
        found += [*unknown][-1:]
    return found


def _overlap(row: LostRange, loss: LostRange) -> bool:
    if None in (row.offset, row.last_offset, loss.offset, loss.last_offset):
        return False
    return (row.offset or 0) <= (loss.last_offset or 0) and (loss.offset or 0) <= (row.last_offset or 0)


def _copy_side_files(replicas: Sequence[DamagedReplica], folder: Path) -> None:
    """Copy the topic's id, and the producers of the first replica. The other files are built from the batches."""
    for replica in replicas:
        for path in sorted(replica.folder.iterdir()):
            snapshot = path.suffix == ".snapshot" and replica is replicas[0]
            if snapshot or (path.name == PARTITION_METADATA and not (folder / path.name).exists()):
                copy_file(path, folder / path.name)
