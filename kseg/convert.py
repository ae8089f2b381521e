"""``kseg convert`` as a library: segments and partition folders from one record version to another.

    plan = Plan.of("v0-to-v2", compression="zstd")
    result = convert("old/00000000000000000000.log", "new/00000000000000000000.log", plan)

The source is only read, twice: to convert it, and to compare what was written with it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kseg.chunk import Chunk
from kseg.conversion import Conversion
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import RULES, Finding, Severity, Verdict
from kseg.indexes import INDEX_INTERVAL_BYTES, IndexBuilder
from kseg.log_format import INT32_MAX
from kseg.read_back import ReadBackError, compare
from kseg.records_builder import codec_id
from kseg.runs import sound_chunks
from kseg.safe_output import Staged, refuse_existing, sync_folder, whole_folder, writing
from kseg.segment import SegmentReader
from kseg.storage import STDIN, base_offset_of, open_source
from kseg.transcode import Transcoder

#: The conversions there are: versions taken and version written.
DIRECTIONS = {
    **{f"v{a}-to-v{b}": (frozenset({a}), b) for a in range(3) for b in range(3) if a != b},
    "any-to-v2": (frozenset({0, 1}), 2),
}

#: The largest size to pack batches to, far above what max.message.bytes is ever set to.
MAX_REBATCH = 64 * 1024 * 1024

#: Told of what is wrong with a source: its path and a finding.
Report = Callable[[str, Finding], None]

# What stays true of a partition when its entries change their version upwards, since it speaks of offsets only. On
# the way down producers, transactions and epochs are lost, and these would contradict the log.
_KEPT = re.compile(r"partition\.metadata")
_KEPT_UPWARDS = re.compile(r"partition\.metadata|leader-epoch-checkpoint|\d{20}\.(snapshot|txnindex)")
_REBUILT = re.compile(r"\d{20}\.(log|index|timeindex)")


class DamagedError(KsegError):
    """The source is damaged, and ``skip_damaged`` was not asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. ``codec`` None keeps each entry's, ``rebatch`` (bytes before compression) None keeps their bounds."""

    direction: str
    codec: int | None = None
    rebatch: int | None = None
    skip_damaged: bool = False
    force: bool = False
    index_interval: int = INDEX_INTERVAL_BYTES

    @classmethod
    def of(
        cls,
        direction: str,
        *,
        compression: str = "keep",
        rebatch: int | None = None,
        lossy: bool = False,
        skip_damaged: bool = False,
        force: bool = False,
    ) -> Plan:
        """A plan from the command line's words. Raises UsageError for those that contradict each other."""
        if direction not in DIRECTIONS:
            raise UsageError(f"there is no conversion {direction!r}: {', '.join(DIRECTIONS)}")
        sources, target = DIRECTIONS[direction]
        if target < max(sources) and not lossy:
            raise UsageError(f"{direction} loses what v{target} can't hold: --lossy allows it, and lists the losses")
        if compression == "zstd" and target < 2:
            raise UsageError(f"v{target} has no zstd (KIP-110)")
        if rebatch is not None and target < 2:
            raise UsageError("--rebatch makes v2 batches")
        if rebatch is not None and rebatch > MAX_REBATCH:
            raise UsageError(f"--rebatch takes at most {MAX_REBATCH} bytes: a batch is built in memory, and read whole")
        codec = None if compression == "keep" else codec_id(compression)
        return cls(direction, codec, rebatch, skip_damaged, force)

    @property
    def sources(self) -> frozenset[int]:
        """The versions that are converted; the target's own is copied."""
        return DIRECTIONS[self.direction][0]

    @property
    def target(self) -> int:
        return DIRECTIONS[self.direction][1]

    @property
    def downwards(self) -> bool:
        return self.target < max(self.sources)


@dataclass(frozen=True, slots=True)
class Result:
    """What was written. ``left_out`` are the names of files of a partition folder that are not in its copy."""

    segments: tuple[Conversion, ...]
    left_out: tuple[str, ...] = ()


def _silence(path: str, finding: Finding) -> None:
    """A report that keeps nothing."""


def convert(source: str, target: str, plan: Plan, report: Report = _silence) -> Result:
    """Convert a segment (a path or a URL) or a partition folder, with its indexes built anew.

    ``target`` appears whole or not at all. Raises DamagedError, WrongVersionError, ReadBackError, UsageError,
    UnreadableError and NotASegmentError; then there is no target.
    """
    if source == STDIN:
        raise UsageError("convert reads its source twice: it can't be standard input")
    goal = Path(os.path.abspath(target))
    refuse_overlap(source, goal)
    if os.path.isdir(source):
        return _convert_folder(Path(source), goal, plan, report)
    return Result((convert_segment(source, goal, plan, report),))


_OF_A_PARTITION = re.compile(r"\d{20}|leader-epoch-checkpoint|partition\.metadata")


def refuse_overlap(source: str, target: Path) -> None:
    """Raises UsageError where writing ``target`` could touch the source or what is none of a partition's files."""
    if target.name == "-" or target.name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
        raise UsageError(f"{target}: no name for a segment; DST is a .log file or a folder")
    if target.is_dir():
        foreign = sorted(entry.name for entry in os.scandir(target) if not _OF_A_PARTITION.match(entry.name))
        if foreign:
            raise UsageError(f"{target} holds {foreign[0]}, which is no file of a partition: it would be lost")
    if not os.path.exists(source):
        return
    first, second = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    if first == second or (second.exists() and os.path.samefile(first, second)):
        raise UsageError(f"{target} is the source itself")
    if first.is_dir() and second.is_relative_to(first):
        raise UsageError(f"{target} lies in the source: inputs are never changed")
    if first.is_relative_to(second):
        raise UsageError(f"{target} holds the source")


def _convert_folder(source: Path, target: Path, plan: Plan, report: Report) -> Result:
    try:
        names = sorted(entry.name for entry in os.scandir(source))
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from error
    logs = [name for name in names if re.fullmatch(r"\d{20}\.log", name)]
    if not logs:
        raise UnreadableError(f"{source}: no segment in it (a .log named by 20 digits); give one partition's folder")
    unfinished = [name for name in names if name.endswith(".swap")]
    if unfinished:
        raise UnreadableError(f"{source}: {unfinished[0]} waits to replace segments: let a broker finish that first")
    if not plan.force:
        refuse_existing([target])
    kept = _KEPT if plan.downwards else _KEPT_UPWARDS
    with whole_folder(target, replace=plan.force) as folder:
        segments = []
        for name in logs:
            conversion = convert_segment(str(source / name), folder / name, plan, report)
            conversion.target = str(target / name)
            segments.append(conversion)
        for name in filter(kept.fullmatch, names):
            copy_file(source / name, folder / name)
    left_out = [name for name in names if not kept.fullmatch(name) and not _REBUILT.fullmatch(name)]
    return Result(tuple(segments), tuple(left_out))


def copy_file(source: Path, target: Path) -> None:
    staged = Staged(target)
    try:
        with writing(target), open(source, "rb") as original:
            shutil.copyfileobj(original, staged.file)
            staged.sync(os.stat(source).st_mtime_ns)
            staged.publish(replace=False)
    except BaseException:
        staged.discard()
        raise


def convert_segment(source: str, target: Path, plan: Plan, report: Report = _silence) -> Conversion:
    """Convert one segment and build its indexes beside the target. Raises as ``convert`` does."""
    targets = [target, *index_paths(target)]
    if not plan.force:
        refuse_existing(targets)
    with ExitStack() as stack:
        log, offsets, times = (stage(stack, path) for path in targets)
        tally = Conversion(source, str(target))
        with writing(target):
            damage = _Damage(source, plan.skip_damaged, report)
            _write_log(log, tally, damage, plan)
            # Retention goes by the log's modification time where there are no timestamps, and the cleaner keeps it.
            modified = os.stat(source).st_mtime_ns if os.path.exists(source) else None
            log.sync(modified)
            _read_back(log.path, offsets, times, tally, plan)
            offsets.sync(modified)
            times.sync(modified)
            if plan.force:
                # A broker builds an index that is missing; one that belongs to another log it would believe.
                for path in targets[1:]:
                    path.unlink(missing_ok=True)
            for staged in (log, offsets, times):
                staged.publish(replace=plan.force)
            sync_folder(target.parent)
    return tally


def stage(stack: ExitStack, path: Path) -> Staged:
    staged = Staged(path)
    stack.callback(staged.discard)
    return staged


def index_paths(log: Path) -> tuple[Path, Path]:
    """Where the offset and the time index of a log stand."""
    stem = log.name.removesuffix(".log")
    return log.with_name(stem + ".index"), log.with_name(stem + ".timeindex")


class _Damage:
    """Passes findings on and remembers whether the conversion can go on."""

    def __init__(self, source: str, allowed: bool, report: Report) -> None:
        self._source = source
        self._allowed = allowed
        self._report = report
        self._stop: KsegError | None = None

    def __call__(self, finding: Finding) -> None:
        rule = RULES[finding.rule]
        self._report(self._source, finding)
        if rule.severity < Severity.ERROR or self._stop:
            return
        message = Verdict(self._source, rule.severity, finding).message
        if rule.severity is Severity.FATAL:
            self._stop = UnreadableError(f"{self._source}: {message}")
        elif not self._allowed:
            where = f"{self._source}: {rule.name} at byte {finding.position}: {message}"
            self._stop = DamagedError(f"{where} (--skip-damaged leaves out what is damaged)")

    def check(self) -> None:
        """Raise what was met, if it forbids to go on."""
        if self._stop:
            raise self._stop


def _write_log(log: Staged, tally: Conversion, damage: _Damage, plan: Plan) -> None:
    def write(data: memoryview) -> None:
        log.file.write(data)
        tally.bytes_after += len(data)
        if tally.bytes_after > INT32_MAX:
            raise KsegError(f"{tally.target}: it would pass 2 GiB, and positions in a segment are 32-bit")

    with SegmentReader(open_source(tally.source), report=damage) as reader:
        transcoder = Transcoder(plan.sources, plan.target, plan.codec, plan.rebatch, write, tally)
        for chunk in sound_chunks(reader, damage):
            damage.check()
            transcoder.take(chunk)
        damage.check()
        transcoder.finish()
        tally.bytes_before = reader.position
        tally.lost_bytes += reader.lost_bytes


def _read_back(path: Path, offsets: Staged, times: Staged, tally: Conversion, plan: Plan) -> None:
    """Compare the log at ``path`` with its source, and build its indexes from what is read."""

    def wrong(finding: Finding) -> None:
        rule = RULES[finding.rule]
        if rule.severity >= Severity.ERROR:
            message = Verdict(tally.target, rule.severity, finding).message
            raise ReadBackError(f"{tally.target}: read back, {rule.name} at byte {finding.position}: {message}")

    def unreadable(finding: Finding) -> None:
        if RULES[finding.rule].severity is Severity.FATAL:
            raise UnreadableError(f"{tally.source}: {finding.facts['why']}")

    with (
        SegmentReader(open_source(tally.source), report=unreadable) as source,
        SegmentReader(open_source(path), report=wrong) as result,
    ):
        indexed = _indexing(sound_chunks(result, wrong), offsets, times, tally, plan.index_interval)
        compare(sound_chunks(source, unreadable), indexed, plan.target, tally.records)
        if result.position != tally.bytes_after:
            raise ReadBackError(f"{tally.target}: {result.position} bytes could be read back of {tally.bytes_after}")


def _indexing(
    chunks: Iterator[Chunk], offsets: Staged, times: Staged, tally: Conversion, interval: int
) -> Iterator[Chunk]:
    builder = None
    base_offset = base_offset_of(tally.target)
    if base_offset is None:
        base_offset = base_offset_of(tally.source)
    for chunk in chunks:
        batches = chunk.batches
        if builder is None:
            if base_offset is None:
                base_offset = chunk.records.offset[0] if chunk.records.count else batches.base_offset[chunk.first]
            builder = IndexBuilder(base_offset, offsets.file, times.file, interval)
        positions, last_offsets, timestamps = batches.position, batches.last_offset, batches.max_timestamp
        for row in range(chunk.first, chunk.stop):
            builder.add(positions[row], last_offsets[row], timestamps[row])
        yield chunk
    if builder is not None:
        builder.finish()
