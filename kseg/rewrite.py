"""One segment rewritten: converted chunk by chunk, and each chunk read back from the file and compared.

The source is read once: what was written is compared with the records while they are at hand. Where batches are packed
anew one may hold records of many chunks, and then the source is read a second time instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from kseg.chunk import Chunk
from kseg.conversion import Conversion
from kseg.conversion_plan import Plan
from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, Finding, Severity, Verdict
from kseg.indexes import IndexBuilder
from kseg.kernel import BatchColumns
from kseg.log_format import INT32_MAX
from kseg.read_back import ReadBackError, compare
from kseg.runs import sound_chunks
from kseg.safe_output import Staged, refuse_existing, sync_folder, writing
from kseg.segment import SegmentReader
from kseg.storage import base_offset_of, open_range, open_source
from kseg.transcode import Transcoder

#: Told of what is wrong with a source: its path and a finding.
Report = Callable[[str, Finding], None]
#: Told of so many more bytes of a source that are done with.
Progress = Callable[[int], None]


class DamagedError(KsegError):
    """The source is damaged, and ``skip_damaged`` was not asked for."""


def convert_segment(source: str, target: Path, plan: Plan, report: Report, progress: Progress) -> Conversion:
    """Convert one segment and build its indexes beside the target. Raises as ``convert`` does."""
    targets = [target, *index_paths(target)]
    if not plan.force:
        refuse_existing(targets)
    with ExitStack() as stack:
        log, offsets, times = (stage(stack, path) for path in targets)
        tally = Conversion(source, str(target))
        with writing(target):
            _rewrite(
                log, _Proof(log, offsets, times, tally, plan), tally, _Damage(source, plan, report), plan, progress
            )
            # Retention goes by the log's modification time where there are no timestamps, and the cleaner keeps it.
            modified = os.stat(source).st_mtime_ns if os.path.exists(source) else None
            for staged in (log, offsets, times):
                staged.sync(modified)
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

    def __init__(self, source: str, plan: Plan, report: Report) -> None:
        self._source = source
        self._allowed = plan.skip_damaged
        self._report = report
        self._stop: KsegError | None = None

    def __call__(self, finding: Finding) -> None:
        rule = RULES[finding.rule]
        if self._stop:
            return
        message = Verdict(self._source, rule.severity, finding).message
        if rule.severity is Severity.FATAL:
            self._stop = UnreadableError(f"{self._source}: {message}")
        elif rule.severity >= Severity.ERROR and not self._allowed:
            where = f"{self._source}: {rule.name} at byte {finding.position}: {message}"
            self._stop = DamagedError(f"{where} (--skip-damaged leaves out what is damaged)")
        else:
            self._report(self._source, finding)

    def check(self) -> None:
        """Raise what was met, if it forbids to go on."""
        if self._stop:
            raise self._stop


def _rewrite(log: Staged, proof: _Proof, tally: Conversion, damage: _Damage, plan: Plan, progress: Progress) -> None:
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
            if plan.rebatch is None:
                proof.compare(iter([chunk]))
            progress(reader.position - tally.bytes_before)
            tally.bytes_before = reader.position
        damage.check()
        transcoder.finish()
        tally.bytes_before = reader.position
        tally.lost_bytes += reader.lost_bytes
    if plan.rebatch is not None:
        with SegmentReader(open_source(tally.source), report=_unreadable(tally.source)) as again:
            proof.compare(sound_chunks(again, _unreadable(tally.source)))
    proof.finish()


def _unreadable(source: str) -> Callable[[Finding], None]:
    def report(finding: Finding) -> None:
        if RULES[finding.rule].severity is Severity.FATAL:
            raise UnreadableError(f"{source}: {finding.facts['why']}")

    return report


class _Proof:
    """Reads back what has been written to ``log``, compares it with its source, and builds the indexes from it."""

    def __init__(self, log: Staged, offsets: Staged, times: Staged, tally: Conversion, plan: Plan) -> None:
        self._log = log
        self._indexes = offsets.file, times.file
        self._tally = tally
        self._plan = plan
        self._builder: IndexBuilder | None = None
        self._start = 0
        self._position = 0
        self._records = 0

    def compare(self, source: Iterator[Chunk]) -> None:
        """What was written since the last call are the records of ``source``. Raises ReadBackError."""
        self._log.file.flush()
        tally = self._tally
        written = open_range(str(self._log.path), self._position, tally.bytes_after)
        with SegmentReader(written, report=self._wrong) as result:
            chunks = self._indexed(sound_chunks(result, self._wrong))
            compare(source, chunks, self._plan.target, tally.records - self._records)
            if result.position != tally.bytes_after:
                raise ReadBackError(f"{tally.target}: read back to byte {result.position} of {tally.bytes_after}")
        self._position, self._records = tally.bytes_after, tally.records

    def finish(self) -> None:
        """The ends of the indexes."""
        if self._builder is not None:
            self._builder.finish()

    def _wrong(self, finding: Finding) -> None:
        rule = RULES[finding.rule]
        if rule.severity >= Severity.ERROR:
            message = Verdict(self._tally.target, rule.severity, finding).message
            where = f"{self._tally.target}: read back, {rule.name} at byte {finding.position}"
            raise ReadBackError(f"{where}: {message}")

    def _indexed(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            if self._builder is None:
                self._start = self._base_offset(chunk)
                self._builder = IndexBuilder(self._start, *self._indexes, self._plan.index_interval)
            self._refuse_overflow(chunk.batches, chunk.first, chunk.stop - 1)
            self._builder.add(chunk.batches, chunk.first, chunk.stop)
            yield chunk

    def _refuse_overflow(self, batches: BatchColumns, *rows: int) -> None:
        """Raise KsegError where an offset is not within 32 bits of the segment's first: a broker would split it."""
        for row in rows:
            if not 0 <= batches.last_offset[row] - self._start <= INT32_MAX:
                where = f"{self._tally.target}: offset {batches.last_offset[row]}"
                raise KsegError(
                    f"{where} has no place in a segment that begins at {self._start}: it would have to be split"
                )

    def _base_offset(self, chunk: Chunk) -> int:
        for name in (self._tally.target, self._tally.source):
            named = base_offset_of(name)
            if named is not None:
                return named
        return chunk.records.offset[0] if chunk.records.count else chunk.batches.base_offset[chunk.first]
