"""Convert one segment chunk by chunk; each chunk is read back from the file and compared.

The source is read once: the output is compared with the records while they are in memory. With ``rebatch`` a batch can
contain records of many chunks, so the source is read a second time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.transcode import Conversion, Transcoder
from kseg.errors import KsegError, UnreadableError
from kseg.findings import RULES, SERVED, Finding, Severity, do_nothing
from kseg.format.checks.batch_checks import EPOCH_RULES, CheckState
from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment import record_faults
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import has_transactions
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.atomic_write import NewFile, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source, open_range, open_source
from kseg.format.writer import rewritten_rows
from kseg.format.writer.batch_runs import OffsetRangeFilter, ReadBackError, SourceChecks, compare, validated_chunks
from kseg.format.writer.offset_order import IN_ORDER, OffsetOrder, ceiling_of, find_order
from kseg.format.writer.output_guards import DamagedError, index_paths
from kseg.format.writer.written_side_files import append_runs

#: Called with the path of a source and a finding.
Report = Callable[[str, Finding], None]
#: A log and its two indexes before they are published.
Files = tuple[NewFile, NewFile, NewFile]
#: Fills the files from a source. Raises the errors of ``convert``.
FillFiles = Callable[[str, Path, Files, ConversionPlan, Report, Progress], Conversion]


def rewrite(
    source: str, target: Path, files: Files, plan: ConversionPlan, report: Report, progress: Progress
) -> Conversion:
    """Convert the segment from its start to its end into the files."""
    log, offsets, times = files
    tally = Conversion(source, str(target))
    proof = ReadBackCheck(log.path, (offsets.file, times.file), tally, plan)
    # Without ``skip_damaged``, a batch that is out of order ends the conversion.
    order = find_order(lambda: open_source(source), ceiling_of(source)) if plan.skip_damaged else IN_ORDER
    transcribe(open_source(source), log.file, proof, tally, plan, report, progress, order)
    if proof.first_offset is not None:
        tally.first_offset, tally.last_offset = proof.first_offset, proof.last_offset
    proof.finish()
    return tally


def convert_segment(
    source: str, target: Path, plan: ConversionPlan, report: Report, progress: Progress, fill: FillFiles = rewrite
) -> Conversion:
    """Convert one segment into new, synced files: ``target`` and its indexes. Raises the errors of ``convert``."""
    with ExitStack() as stack, writing(target):
        log, offsets, times = (stack.enter_context(NewFile(path)) for path in (target, *index_paths(target)))
        tally = fill(source, target, (log, offsets, times), plan, report, progress)
        # Retention uses the modification time of a log without timestamps, and the cleaner keeps it.
        modified = os.stat(source).st_mtime_ns if os.path.exists(source) else None
        for new in (log, offsets, times):
            new.sync(modified)
    return tally


def _parts(first: Chunk, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the remaining parts of a large batch, which was copied with its first part."""
    yield first
    for chunk in chunks:
        yield chunk
        if not chunk.unfinished:
            return


def transcribe(
    source: Source, log: IO[bytes], proof: ReadBackCheck, tally: Conversion, plan: ConversionPlan, report: Report,
    progress: Progress, order: OffsetOrder = IN_ORDER,
) -> CheckState | None:  # fmt: skip
    """Write the batches of a source to ``log`` in the target's version, and have each chunk compared.

    ``order`` is the result of ``find_order`` for the whole segment. Returns the state of its checks, or
    None if the source is damaged (``SegmentReader.damaged``).
    """
    damage = _DamagePolicy(tally.source, plan, report)

    def write(data: memoryview) -> None:
        log.write(data)
        tally.bytes_after += len(data)
        check_size(tally)

    with SegmentReader(source, report=damage) as reader:
        plan = plan.of_segment(tally.source)
        transcoder = Transcoder(plan, write, tally)
        done = source.start
        checks = SourceChecks(source.name, damage)
        reach = _filter(source.name, damage, plan)
        chunks = checks.checked(validated_chunks(reader, damage, reach, order=order))
        if plan.another_cluster is not None:
            chunks = plan.another_cluster.without_deleted(chunks, tally.count_loss)
        for chunk in chunks:
            damage.check()
            proof.expect(chunk)
            written = tally.records
            transcoder.convert_chunk(chunk)
            if plan.rebatch is None:
                log.flush()
                whole = chunk.unfinished and tally.records - written > chunk.records.count
                proof.compare(_parts(chunk, chunks) if whole else iter([chunk]))
            progress(reader.position - done)
            done = reader.position
        progress(reader.position - done)
        damage.check()
        transcoder.finish()
        tally.bytes_before = reader.position - source.start
        tally.lost_bytes += reader.lost_bytes
    if plan.rebatch is not None:
        log.flush()
        unreadable = _unreadable(tally.source)
        with SegmentReader(open_source(tally.source), report=unreadable) as again:
            reach = _filter(tally.source, unreadable, plan)
            chunks = validated_chunks(again, unreadable, reach, order=order)
            chunks = SourceChecks(tally.source, unreadable).checked(chunks)
            if plan.another_cluster is not None:
                chunks = plan.another_cluster.without_deleted(chunks, do_nothing)
            proof.compare(chunks)
    return None if reader.damaged else checks.history


def _filter(source: str, report: Callable[[Finding], None], plan: ConversionPlan) -> Callable[[BatchColumns], None]:
    """Return what marks batches that no result can have, and deselects those that another cluster must not have."""
    in_range = OffsetRangeFilter(base_offset_of(source), report)

    def mark(batches: BatchColumns) -> None:
        in_range(batches)
        if plan.another_cluster is not None:
            plan.another_cluster.leave_out(batches)

    return mark


def check_size(tally: Conversion) -> None:
    """Raise KsegError if the target is too large for index positions."""
    if tally.bytes_after > INT32_MAX:
        raise KsegError(f"{tally.target}: the result would exceed 2 GiB, the limit of a segment")


class _DamagePolicy:
    """Reports findings, and keeps the first one that ends the conversion."""

    def __init__(self, source: str, plan: ConversionPlan, report: Report) -> None:
        self._source = source
        self._allowed = plan.skip_damaged
        # Only a repair knows which epoch is right. A wrong one in the result would stop its replication.
        self._keeps_epochs = not plan.downwards and plan.another_cluster is None
        self._report = report
        self._stop: KsegError | None = None

    def __call__(self, finding: Finding) -> None:
        if self._stop:
            return
        rule = RULES[finding.rule]
        message = finding.message
        if rule.severity is Severity.FATAL:
            self._stop = UnreadableError(f"{self._source}: {message}")
        elif (
            (rule.name == "claimed-codec" and not _is_converted(finding))
            or (self._keeps_epochs and rule.name in EPOCH_RULES)
            or rule.name == "segment-offset-overflow"
        ):
            self._stop = DamagedError(f"{self._source}: byte {finding.position}: {message}: run `kseg repair` first")
        elif finding.is_error and not self._allowed and not _is_converted(finding):
            where = f"{self._source}: {rule.name} at byte {finding.position}: {message}"
            self._stop = DamagedError(f"{where} (--skip-damaged skips damaged batches)")
        else:
            self._report(self._source, finding)

    def check(self) -> None:
        """Raise DamagedError if a finding ends the conversion."""
        if self._stop:
            raise self._stop


def _is_converted(finding: Finding) -> bool:
    """Return whether a batch with this error is converted: a v0 or v1 message is written without its claimed codec."""
    if finding.rule in SERVED:
        return True
    return finding.rule == "claimed-codec" and finding.facts["what"] == record_faults.CLAIMED_VALUE


def _unreadable(source: str) -> Callable[[Finding], None]:
    def report(finding: Finding) -> None:
        if RULES[finding.rule].severity is Severity.FATAL:
            raise UnreadableError(f"{source}: {finding.facts['why']}")

    return report


class ReadBackCheck:
    """Reads the written log at ``path`` back, and builds the two ``indexes`` from it.

    ``first_offset`` and ``last_offset`` are those of the source's batches.
    """

    def __init__(
        self, path: Path, indexes: tuple[IO[bytes], IO[bytes]], tally: Conversion, plan: ConversionPlan
    ) -> None:
        self.first_offset: int | None = None
        self.last_offset = -1
        self._path = path
        self._indexes = indexes
        self._tally = tally
        self._plan = plan
        self._opener = DeepIterator(self._wrong)
        self._builder: IndexBuilder | None = None
        self._start = 0
        self._position = 0
        self._records = 0

    def expect(self, chunk: Chunk) -> None:
        """Record the first and the last offset of a chunk of the source."""
        batches = chunk.batches
        rows = range(chunk.first, chunk.stop)
        sound = (row for row in rows if batches.intact[row] and batches.crc_state[row] != CRC_BAD)
        if self.first_offset is None and (first := next(sound, None)) is not None:
            self.first_offset = rewritten_rows.first_offset(batches, first)
        backwards = (row for row in reversed(rows) if batches.intact[row] and batches.crc_state[row] != CRC_BAD)
        if (last := next(backwards, None)) is not None:
            self.last_offset = batches.last_offset[last]

    def compare(self, source: Iterator[Chunk]) -> None:
        """Check that the output since the last call has the records of ``source``. Raises ReadBackError."""
        expected = self._tally.records - self._records
        with self._reader() as result:
            written = self._indexed(validated_chunks(result, self._wrong, opener=self._opener))
            compare(source, written, self._plan.target, expected)
            self._whole(result)

    def read_framing(self) -> None:
        """Check that the output since the last call, which was compared elsewhere, is complete. Raises ReadBackError."""
        with self._reader() as result:
            for window in result.windows():
                # The first record's offset is needed only for files without a base offset in their name; v2 headers have it.
                self._add(window.batches, 0, window.batches.count, window.batches.base_offset[0])
            self._whole(result)

    def finish(self) -> None:
        """Write the last entries of the indexes."""
        if self._builder is not None:
            self._builder.finish()

    def _reader(self) -> SegmentReader:
        return SegmentReader(open_range(str(self._path), self._position, self._tally.bytes_after), report=self._wrong)

    def _whole(self, result: SegmentReader) -> None:
        tally = self._tally
        if result.position != tally.bytes_after:
            raise ReadBackError(
                f"{tally.target}: could only read back {result.position:,} of {tally.bytes_after:,} bytes"
            )
        self._position, self._records = tally.bytes_after, tally.records

    def _wrong(self, finding: Finding) -> None:
        if finding.is_error:
            where = f"{self._tally.target}: after reading back: {finding.rule} at byte {finding.position}"
            raise ReadBackError(f"{where}: {finding.message}")

    def _indexed(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            batches, records = chunk.batches, chunk.records
            first_offset = records.offset[0] if records.count else batches.base_offset[chunk.first]
            if not chunk.resumed:
                self._add(batches, chunk.first, chunk.stop, first_offset)
            yield chunk

    def _add(self, batches: BatchColumns, first: int, stop: int, first_offset: int) -> None:
        """Index the batches ``first`` to ``stop``, whose first record has ``first_offset``."""
        if self._builder is None:
            self._start = self._named_offset(first_offset)
            self._builder = IndexBuilder(self._start, *self._indexes, self._plan.index_interval)
        append_runs(self._tally.leader_epochs, batches, first, stop)
        self._tally.transactional = self._tally.transactional or has_transactions(batches)
        for offset in (batches.last_offset[first], batches.last_offset[stop - 1]):
            if not 0 <= offset - self._start <= INT32_MAX:
                # LogSegmentOffsetOverflowException, even if no index entry had that offset.
                where = f"{self._tally.target}: offset {offset} does not fit a segment that starts at {self._start}"
                raise KsegError(f"{where}: the segment would have to be split")
        self._builder.add(batches, first, stop)

    def _named_offset(self, otherwise: int) -> int:
        for name in (self._tally.target, self._tally.source):
            named = base_offset_of(name)
            if named is not None:
                return named
        return otherwise
