"""``kseg repair`` as a library: a copy of a segment or a partition folder that holds what is sound in it, with indexes.

    result = repair("damaged/00000000000000000000.log", "good/00000000000000000000.log", Plan(), print)

The source is only read. The result is validated before it gets its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kseg.convert import copy_file, refuse_overlap
from kseg.deep_iteration import DeepIterator
from kseg.errors import KsegError, NotASegmentError, UnreadableError, UsageError
from kseg.findings import Policy, Severity
from kseg.indexes import INDEX_INTERVAL_BYTES, IndexBuilder
from kseg.log_format import INT32_MAX
from kseg.losses import Lost, Salvaged, Tell
from kseg.read_back import ReadBackError
from kseg.rewrite import DamagedError, index_paths, stage
from kseg.safe_output import Staged, refuse_existing, sync_folder, whole_folder, writing
from kseg.salvage import Salvage
from kseg.segment import SegmentReader
from kseg.storage import STDIN, SegmentFile, base_offset_of, open_source
from kseg.txn_index import Transactions, has_markers
from kseg.validate import Settings, limits_of, new_tally, run_checks

# They speak of offsets and producers, and stay true of the log as far as it is the same.
_KEPT = re.compile(r"partition\.metadata|leader-epoch-checkpoint")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_LOG = re.compile(r"\d{20}\.log")
_REBUILT = re.compile(r"\d{20}\.(index|timeindex|txnindex)")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. ``policy`` weighs findings: what it calls an error costs an entry its place."""

    indexes_only: bool = False
    dry_run: bool = False
    force: bool = False
    policy: Policy = field(default_factory=Policy)
    index_interval: int = INDEX_INTERVAL_BYTES


@dataclass(slots=True)
class Result:
    """What was done. ``left_out`` are names of a folder's files that are not in its copy; ``open_transactions`` is by
    producer id the first offset of those whose end is not in the log, None where no one looked.
    """

    segments: list[Salvaged]
    left_out: list[str] = field(default_factory=list)
    open_transactions: dict[int, int] | None = None

    @property
    def lost(self) -> bool:
        return any(segment.lost_ranges for segment in self.segments)


def _silence(what: Lost) -> None:
    """Tells nobody."""


def repair(source: str, target: str | None, plan: Plan, tell: Tell = _silence) -> Result:
    """Copy what is sound of a segment (a path or a URL) or of a partition folder, and build the indexes anew.

    ``target`` appears whole or not at all; it may be None for a dry run. ``tell`` hears of each lost and each mended
    stretch. Raises UsageError, UnreadableError, NotASegmentError, ReadBackError and other KsegError; then there is no
    target. With ``indexes_only`` raises DamagedError for a log that has to be repaired itself.
    """
    if source == STDIN:
        raise UsageError("repair needs a source with a name: it can't be standard input")
    if target is None and not plan.dry_run:
        raise UsageError("say where to write: SRC DST; a source is never changed in place")
    folder = os.path.isdir(source)
    goal = Path(os.path.abspath(source if target is None else target))
    if target is not None:
        refuse_overlap(source, goal)
    if folder:
        return _repair_folder(Path(source), goal, plan, tell)
    segment = _repair_file(source, goal, plan, tell, None, None)
    return Result([segment], [] if plan.dry_run else _beside(source))


def _beside(source: str) -> list[str]:
    """Side files of a lone segment that only its whole partition could tell how to write."""
    stem, folder = os.path.basename(source).removesuffix(".log"), os.path.dirname(source)
    names = (stem + suffix for suffix in (".txnindex", ".snapshot"))
    return [name for name in names if os.path.exists(os.path.join(folder, name))]


def _repair_file(
    source: str, target: Path, plan: Plan, tell: Tell, txns: Transactions | None, ceiling: int | None
) -> Salvaged:
    """One segment. Raises as ``repair`` does."""
    tally = Salvaged(source, str(target))
    if plan.dry_run:
        if not plan.indexes_only:
            _salvage(None, tally, plan, tell, ceiling)
        else:
            _refuse_damaged(tally, plan)
        return tally
    indexes = index_paths(target)
    transactions = indexes[0].with_suffix(".txnindex")
    targets = [*(() if plan.indexes_only else (target,)), *indexes, *((transactions,) if txns is not None else ())]
    if not plan.force:
        refuse_existing(targets)
    with ExitStack() as stack, writing(target):
        staged = {path: stage(stack, path) for path in targets}
        modified = os.stat(source).st_mtime_ns if os.path.exists(source) else None
        if plan.indexes_only:
            _refuse_damaged(tally, plan)
            log = source
        else:
            _salvage(staged[target], tally, plan, tell, ceiling)
            staged[target].sync(modified)
            log = str(staged[target].path)
            _read_back(log, tally, plan)
        _build_indexes(log, tally, [staged[path] for path in indexes], staged.get(transactions), txns, plan)
        if transactions in staged and not staged[transactions].file.tell():
            # The broker creates it with its first entry.
            staged.pop(transactions).discard()
        for path in staged:
            if path != target:
                staged[path].sync(modified)
        if plan.force:
            for path in (*indexes, transactions):
                path.unlink(missing_ok=True)
        for path in staged:
            staged[path].publish(replace=plan.force)
        sync_folder(target.parent)
    return tally


def _salvage(log: Staged | None, tally: Salvaged, plan: Plan, tell: Tell, ceiling: int | None) -> None:
    settings = Settings(policy=plan.policy)
    limits = limits_of(tally.source, settings)
    if ceiling is None:
        named = _named_offset(tally)
        ceiling = None if named is None else named + INT32_MAX + 1
    salvage = Salvage(None if log is None else log.file, tally, limits, plan.policy, ceiling, tell)
    with open_source(tally.source) as source:
        salvage.run(source)
    if tally.misfits > tally.kept:
        raise KsegError(
            f"{tally.source}: the offsets of {tally.misfits} entries, against {tally.kept}, do not fit a segment of that "
            "name: give DST the right one"
        )


def _read_back(path: str, tally: Salvaged, plan: Plan) -> None:
    """Validate what was written. Raises ReadBackError for any error, and where the counts differ."""
    settings = Settings(policy=plan.policy)
    # By its final name: what a file's name says is checked, too.
    checks = new_tally(SegmentFile(tally.target), settings)
    with open_source(path) as source:
        source.name = tally.target
        if tally.bytes_after:
            run_checks(source, settings, checks)
    found = checks.summary
    for verdict in checks.result().verdicts:
        if verdict.severity >= Severity.ERROR:
            where = f"{verdict.rule.name} at byte {verdict.finding.position}"
            raise ReadBackError(f"{tally.target}: read back, {where}: {verdict.message}")
    if (found.batches, found.records, found.bytes) != (tally.kept, tally.records, tally.bytes_after):
        raise ReadBackError(
            f"{tally.target}: read back, {found.batches} entries, {found.records} records, {found.bytes} bytes of "
            f"{tally.kept}, {tally.records}, {tally.bytes_after}"
        )


def _refuse_damaged(tally: Salvaged, plan: Plan) -> None:
    """Raise DamagedError unless indexes can be built over the source as it is."""

    def refuse(what: Lost) -> None:
        where = f"{what.rule} at byte {what.position}: {what.why}"
        raise DamagedError(f"{tally.source}: {where} (indexes need a sound log: repair without --indexes-only)")

    look = Salvaged(tally.source, tally.target)
    _salvage(None, look, plan, refuse, None)
    tally.kept, tally.records, tally.first_offset = look.kept, look.records, look.first_offset
    tally.last_offset, tally.bytes_before, tally.bytes_after = look.last_offset, look.bytes_before, look.bytes_after


def _build_indexes(
    log: str, tally: Salvaged, indexes: list[Staged], aborted: Staged | None, txns: Transactions | None, plan: Plan
) -> None:
    base_offset = _named_offset(tally)
    if base_offset is None:
        base_offset = tally.first_offset
    if base_offset is None:
        return
    builder = IndexBuilder(base_offset, indexes[0].file, indexes[1].file, plan.index_interval)
    opener = DeepIterator()
    # Its CRCs have just been checked.
    with SegmentReader(open_source(log), verify_crc=False) as reader, _fitting(tally):
        for window in reader.windows():
            batches = window.batches
            builder.add(batches, 0, batches.count)
            if txns is not None and aborted is not None and has_markers(batches):
                for chunk in opener.chunks(window):
                    for txn in txns.take(chunk):
                        aborted.file.write(txn.pack())
        builder.finish()


@contextmanager
def _fitting(tally: Salvaged) -> Iterator[None]:
    try:
        yield
    except KsegError as error:
        offsets = f"offsets {tally.first_offset} to {tally.last_offset} have no place in a segment of that name"
        raise KsegError(f"{tally.target}: {offsets}: {error}") from error


def _named_offset(tally: Salvaged) -> int | None:
    for name in (tally.target, tally.source):
        base_offset = base_offset_of(name)
        if base_offset is not None:
            return base_offset
    return None


# --- folders ---


def _repair_folder(source: Path, target: Path, plan: Plan, tell: Tell) -> Result:
    try:
        names = sorted(entry.name for entry in os.scandir(source))
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from error
    logs = [name for name in names if _LOG.fullmatch(name)]
    if not logs:
        raise UnreadableError(f"{source}: no segment in it (a .log named by 20 digits); give one partition's folder")
    unfinished = [name for name in names if name.endswith(".swap")]
    if unfinished:
        raise UnreadableError(f"{source}: {unfinished[0]} waits to replace segments: let a broker finish that first")
    result = Result([])
    if plan.dry_run:
        _repair_logs(source, target, target, logs, plan, tell, result)
        return result
    if not plan.force:
        refuse_existing([target])
    with whole_folder(target, replace=plan.force) as folder:
        _repair_logs(source, folder, target, logs, plan, tell, result)
        others = [name for name in names if not _LOG.fullmatch(name) and not _REBUILT.fullmatch(name)]
        for name in others:
            if _still_true(name, result) and not plan.indexes_only:
                copy_file(source / name, folder / name)
            else:
                result.left_out.append(name)
    return result


def _repair_logs(
    source: Path, folder: Path, target: Path, logs: list[str], plan: Plan, tell: Tell, result: Result
) -> None:
    txns = Transactions()
    _seed(txns, source / (logs[0].removesuffix(".log") + ".snapshot"))
    for name, following in zip(logs, [*logs[1:], None], strict=True):
        ceiling = None if following is None else base_offset_of(following)
        try:
            segment = _repair_file(str(source / name), folder / name, plan, tell, txns, ceiling)
        except NotASegmentError as error:
            if plan.indexes_only:
                raise
            segment = _all_lost(source / name, folder / name, str(error), ceiling, tell)
        segment.target = str(target / name)
        result.segments.append(segment)
    if not plan.dry_run:
        result.open_transactions = txns.open


def _seed(txns: Transactions, snapshot: Path) -> None:
    """What was open where the folder begins: the batches that began it may be gone with older segments."""
    try:
        txns.seed(snapshot.read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableError(f"{snapshot}: {error.strerror or error}") from error


def _all_lost(source: Path, target: Path, why: str, ceiling: int | None, tell: Tell) -> Salvaged:
    """A segment without a single entry: the folder goes on without it."""
    base_offset = base_offset_of(source.name)
    size = source.stat().st_size
    last = None if ceiling is None else ceiling - 1
    tell(Lost(str(source), 0, size, base_offset, last, "lost-bytes", why))
    return Salvaged(
        str(source), str(target), bytes_before=size, lost_bytes=size, lost_ranges=1, first_lost_offset=base_offset
    )


def _still_true(name: str, result: Result) -> bool:
    """Whether a side file can go along. A producer snapshot tells of all before its offset, lost batches too."""
    snapshot = _SNAPSHOT.fullmatch(name)
    if not snapshot:
        return _KEPT.fullmatch(name) is not None
    lost = [segment.first_lost_offset for segment in result.segments if segment.lost_ranges]
    return all(offset is not None and int(snapshot[1]) <= offset for offset in lost)
