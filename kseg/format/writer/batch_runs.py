"""The batches of a segment for a conversion: decoded, checked, in runs of the same kind, and compared with the output."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kseg.errors import KsegError, LimitError, NotASegmentError
from kseg.findings import SERVED, Finding, Report, Verdict, do_nothing, fail_on_read_error
from kseg.format.checks.batch_checks import EPOCH_RULES, CheckState
from kseg.format.checks.offset_checks import (
    MUST_INCREASE,
    indexed_base_offset,
    is_overflow,
    misplaced_offset_finding,
    offset_range_finding,
    overflow_finding,
)
from kseg.format.checks.run_checks import BATCH_CHECKS, RECORD_CHECKS, check_settings, new_collector
from kseg.format.record import encoder, equality
from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns
from kseg.format.record.framing import batch_crc
from kseg.format.record.layout import CRC_AT, INT32_MAX, INT64_MAX, LAST_OFFSET_DELTA_AT, SIZE_AT
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import registry
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_source
from kseg.format.writer import rewritten_rows
from kseg.format.writer.offset_order import IN_ORDER, MisplacedBatch, OffsetOrder
from kseg.results import Settings

InspectWindow = Callable[[BatchColumns], None]


def validated_chunks(
    reader: SegmentReader,
    report: Report,
    look: InspectWindow = do_nothing,
    opened: Callable[[Chunk], None] = do_nothing,
    *,
    opener: DeepIterator | None = None,
    order: OffsetOrder = IN_ORDER,
) -> Iterator[Chunk]:
    """Yield the decoded batches of a segment; damaged batches and those out of order are marked as not intact.

    ``look`` is called with each window and ``opened`` with each chunk before their order is checked; both can mark batches.
    ``order`` is the result of ``find_order`` for the segment: a base or last offset that is proved wrong is corrected in the
    window and its columns. Without it, each batch that goes back is out of order. ``opener`` is reused if many short ranges
    are read.
    """
    opener = opener or DeepIterator(report)
    last_offset = -1
    faults: list[tuple[str, int, int, int]] = []
    for window in _by_order(reader.windows(), report, look, order):
        for chunk in opener.chunks(window):
            batches = chunk.batches
            opened(chunk)
            if not chunk.resumed:
                last_offset = rewritten_rows.check_offsets_in_batch(
                    batches, chunk.records, chunk.first, chunk.stop, last_offset, faults
                )
            for fault in faults:
                report(_order_finding(batches, *fault))
            faults.clear()
            yield chunk


def _by_order(windows: Iterator[Window], report: Report, look: InspectWindow, order: OffsetOrder) -> Iterator[Window]:
    """Yield the windows with proved base offsets corrected, and with batches without a place marked as not intact."""
    for window in windows:
        batches = window.batches
        for row in range(batches.count if order.shortened else 0):
            if (last := order.shortened.get(batches.position[row])) is not None:
                _shorten(window, row, last, report)
        for row in range(batches.count if order.corrected else 0):
            corrected = order.corrected.get(batches.position[row])
            if corrected is not None and batches.crc_state[row] != CRC_BAD:
                ended = batches.position[row] == order.ended
                witness = "the batch before it and a side file" if ended else "the batches around it"
                if not batches.position[row]:
                    witness = "the names and batches around it"  # the file may have a single batch
                previous = corrected.first - 1
                report(misplaced_offset_finding(batches, row, previous, corrected.last, witness, proved=True))
                _correct(window, row, batches.base_offset[row] + corrected.by, corrected.last)
        look(batches)
        for row in range(batches.count if order.misplaced else 0):
            misplaced = order.misplaced.get(batches.position[row])
            if misplaced is not None and batches.crc_state[row] != CRC_BAD and batches.intact[row]:
                report(_misplaced_finding(batches, row, misplaced))
                batches.intact[row] = 0
        yield window


def mark_out_of_range(batches: BatchColumns, ceiling: int, report: Report) -> int:
    """Mark batches that reach ``ceiling`` as not intact; return their number."""
    if ceiling > INT64_MAX:
        return 0
    found = 0
    row = rewritten_rows.first_reaching(batches, 0, ceiling)
    while row < batches.count:
        if batches.crc_state[row] != CRC_BAD:
            batches.intact[row] = 0
            found += 1
            report(offset_range_finding(batches, row, ceiling))
        row = rewritten_rows.first_reaching(batches, row + 1, ceiling)
    return found


class OffsetRangeFilter:
    """Marks batches with offsets that the indexes of a segment can't have; ``name`` is the offset in its name.

    If these offsets are right, it marks none and reports that the segment has to be split.
    """

    def __init__(self, name: int | None, report: Report) -> None:
        self._name = name
        self._report = report
        self._base = -1
        self._last = -1

    def __call__(self, batches: BatchColumns) -> None:
        for row in range(batches.count):
            if self._base >= 0:
                break
            if batches.crc_state[row] != CRC_BAD:
                self._base = indexed_base_offset(batches, row, self._name)
                self._last = self._base - 1
        if self._base < 0:
            return
        ceiling = self._base + INT32_MAX + 1
        beyond = rewritten_rows.first_reaching(batches, 0, ceiling)
        while beyond < batches.count and batches.crc_state[beyond] == CRC_BAD:
            beyond = rewritten_rows.first_reaching(batches, beyond + 1, ceiling)
        before = (row for row in range(beyond - 1, -1, -1) if batches.crc_state[row] != CRC_BAD)
        self._last = next((batches.last_offset[row] for row in before), self._last)
        if beyond < batches.count and is_overflow(batches, beyond, self._last):
            self._report(overflow_finding(batches, beyond, self._base))
        else:
            mark_out_of_range(batches, ceiling, self._report)


def _correct(window: Window, row: int, offset: int, last: int) -> None:
    """Change the offset in the header of a batch, and in its columns its last offset, too."""
    batches, at = window.batches, window.batches.at[row]
    window.view[at : at + SIZE_AT] = offset.to_bytes(SIZE_AT, "big", signed=True)
    batches.last_offset[row] = last
    batches.base_offset[row] = offset


def _shorten(window: Window, row: int, last: int, report: Report) -> None:
    """Change the last offset of a batch, its CRC and its columns to those of its last record, and report it."""
    batches, at = window.batches, window.batches.at[row]
    facts = {"last": batches.last_offset[row], "record": last, "following": last + 1}
    position = batches.position[row]
    report(
        Finding("last-offset-mismatch", position, position + batches.size[row], batches.base_offset[row], last, facts)
    )
    delta = last - batches.base_offset[row]
    window.view[at + LAST_OFFSET_DELTA_AT : at + LAST_OFFSET_DELTA_AT + 4] = delta.to_bytes(4, "big")
    batches.crc[row] = batch_crc(window.view, at, at + batches.size[row], batches.magic[row])
    window.view[at + CRC_AT : at + CRC_AT + 4] = batches.crc[row].to_bytes(4, "big")
    batches.last_offset[row] = last


def _misplaced_finding(batches: BatchColumns, row: int, misplaced: MisplacedBatch) -> Finding:
    offset, previous, following = batches.base_offset[row], misplaced.previous, misplaced.following
    note = _MISPLACED[misplaced.fault].format(following=following)
    if misplaced.copy:
        note = ": the same batch is elsewhere in the log"
    elif misplaced.guess is not None:
        note += f"; its base offset is probably {misplaced.guess} (a guess)"
    facts = {"offset": offset, "previous": previous, "note": note}
    position = batches.position[row]
    return Finding("non-monotonic-offset", position, position + batches.size[row], offset, facts=facts)


# The ``note`` for each fault of a ``MisplacedBatch``.
_MISPLACED = {
    "behind": MUST_INCREASE,
    "ahead": ": the header claims it, but offset {following} follows",
    "foreign": ": the offsets around it continue without it, so it is probably of another log",
    "stray": ": it is below the offset in the file name, and no batch continues it",
    "doubtful": ": its size field was overwritten, and no batch next to it confirms its base offset",
    "zeroed": ": zeros before it can reach into its base offset, and no batch continues it",
    "undecided": ": nothing next to it confirms its base offset, and one flipped bit explains it",
    "unconfirmed": ": nothing next to it confirms its base offset",
}


# The rule of each fault of ``check_offsets_in_batch``, and its facts.
_ORDER: dict[str, tuple[str, Callable[[int, int], dict[str, Any]]]] = {
    "behind": (
        "non-monotonic-offset",
        lambda offset, previous: {"offset": offset, "previous": previous, "note": MUST_INCREASE},
    ),
    "span": (
        "invalid-offset-range",
        lambda offset, delta: {"delta": delta, "why": f"last offset delta {delta}: expected 0 to {INT32_MAX}"},
    ),
    "record": ("record-offset-mismatch", lambda offset, index: {"index": index, "offset": offset}),
}


def _order_finding(batches: BatchColumns, fault: str, row: int, offset: int, detail: int) -> Finding:
    rule, facts = _ORDER[fault]
    position, reported = batches.position[row], facts(offset, detail)
    if fault == "record":
        first, last = batches.base_offset[row], batches.last_offset[row]
        within = f"the batch's offsets {first}..{last}" if batches.magic[row] >= 2 else f"the offsets up to {last}"
        reported["why"] = f"is not above the previous offset, or not within {within}"
    return Finding(rule, position=position, end=position + batches.size[row], offset=offset,
                   facts=reported)  # fmt: skip


def payload_of(chunk: Chunk, row: int) -> Any:
    """Return the bytes or bytearray that the record columns of batch ``row`` point into, because its slices are fast."""
    view = chunk.payload(row)
    whole = view.obj
    return whole if isinstance(whole, (bytes, bytearray)) and len(whole) == len(view) else view


class BatchRun(NamedTuple):
    """The batches ``row`` to ``stop`` of one kind and version with the records ``i`` to ``end``; ends are exclusive."""

    chunk: Chunk
    kind: int
    row: int
    stop: int
    i: int
    end: int

    @property
    def magic(self) -> int:
        return self.chunk.batches.magic[self.row]

    @property
    def room(self) -> int:
        """Return the largest number of bytes of the records in any version."""
        size = len(self.chunk.payload(self.row)) if self.kind == rewritten_rows.PACKED else self.stored_size
        return size + (self.end - self.i + 1) * encoder.ROOM_PER_RECORD

    @property
    def stored_size(self) -> int:
        return self._behind - self.chunk.batches.at[self.row]

    @property
    def stored(self) -> memoryview:
        """Return the bytes of the batches, which are consecutive in a window."""
        return self.chunk.window.view[self.chunk.batches.at[self.row] : self._behind]

    @property
    def _behind(self) -> int:
        return self.chunk.batches.at[self.stop - 1] + self.chunk.batches.size[self.stop - 1]


def runs_of(chunk: Chunk, target: int, *, copies: bool) -> Iterator[BatchRun]:
    """Yield the batches of the chunk in runs of one kind; see ``rewritten_rows.classify``."""
    batches = chunk.batches
    row = chunk.first
    while row < chunk.stop:
        kind, stop = rewritten_rows.classify_run(batches, row, chunk.stop, target, copies)
        # A batch that was not decoded has no records, and these columns are not set.
        i = end = 0
        if kind not in (rewritten_rows.SKIP, rewritten_rows.LEFT_OUT):
            i = batches.first_record[row]
            end = batches.first_record[stop - 1] + batches.record_total[stop - 1]
        yield BatchRun(chunk, kind, row, stop, i, end)
        row = stop


_BATCH_CHECKS = tuple(check for check in BATCH_CHECKS if check.in_conversion)
_RECORD_CHECKS = tuple(check for check in RECORD_CHECKS if check.in_conversion)
#: Errors in the header of a batch with valid records: the error is reported, and the batch is converted.
_KEPT = SERVED | {*EPOCH_RULES, "max-timestamp-mismatch"}


class SourceChecks:
    """Reports the errors of a segment to ``report`` while it is converted. ``name`` is its path.

    ``history`` is the state of the checks, which connects the ranges of a segment.
    """

    def __init__(self, name: str, report: Report) -> None:
        self.history = CheckState()
        self._limits = check_settings(name, Settings())
        self._report = report
        self._dropped: set[int] = set()

    def checked(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks, with faulty batches marked as not intact."""
        for chunk in chunks:
            batches = chunk.batches
            if not chunk.first and not chunk.resumed:
                self._dropped.clear()
                for check in _BATCH_CHECKS:
                    check.run(batches, self._limits, self.history, self._record_finding)
            for record_check in _RECORD_CHECKS:
                record_check.run(chunk, self._limits, self._record_finding)
            for row in range(chunk.first, chunk.stop if self._dropped else chunk.first):
                if batches.position[row] in self._dropped:
                    batches.intact[row] = 0
            yield chunk

    def _record_finding(self, finding: Finding) -> None:
        if not finding.is_error:
            return
        if finding.rule not in _KEPT:
            self._dropped.add(finding.position or 0)
        self._report(finding)


def side_file_error(path: Path) -> Verdict | None:
    """Return the first error that ``kseg validate`` finds in a side file, None if there is none. Raises UnreadableError."""
    file = SegmentFile(str(path))
    collector = new_collector(file, Settings())
    fail = fail_on_read_error(file.path)

    def report(finding: Finding) -> None:
        fail(finding)
        collector(finding)

    known = registry.recognise(file.path)
    with suppress(NotASegmentError, LimitError):
        if known:
            with open_source(file.path) as source:
                for _ in known.side.walk(source, known.base_offset, report):
                    pass
    return next((verdict for verdict in collector.verdicts if verdict.is_error), None)


class ReadBackError(KsegError):
    """The output differs from its source, and is deleted."""


class _Records:
    """The valid records of a segment, run by run: ``records`` from ``at`` to ``end`` of the current run remain."""

    def __init__(self, chunks: Iterator[Chunk], target: int) -> None:
        self._runs = self._all_runs(chunks, target)
        self.data: Any = b""
        self.records = RecordColumns(1)
        self.batches = BatchColumns(1)
        self.at = 0
        self.end = 0

    def more(self) -> bool:
        """Read until at least one record remains; return False at the end."""
        return self.at < self.end or next(self._runs, False)

    def close(self) -> None:
        """Close the generator of chunks, since an unfinished one and this object refer to each other."""
        self._runs.close()

    def _all_runs(self, chunks: Iterator[Chunk], target: int) -> Generator[bool, None, None]:
        for chunk in chunks:
            self.records, self.batches = chunk.records, chunk.batches
            for run in runs_of(chunk, target, copies=False):
                if run.kind in (rewritten_rows.PLAIN, rewritten_rows.PACKED) and run.end > run.i:
                    self.data = payload_of(chunk, run.row)
                    self.at, self.end = run.i, run.end
                    yield True


def compare(source: Iterator[Chunk], result: Iterator[Chunk], target: int, expected: int) -> None:
    """Raise ReadBackError unless ``result`` has the ``expected`` records of ``source``.

    Compares offset, timestamp and its type, key, value and headers, as far as version ``target`` can contain them.
    """
    with closing(_Records(source, target)) as left, closing(_Records(result, target)) as right:
        _compare(left, right, target, expected)


def _compare(left: _Records, right: _Records, target: int, expected: int) -> None:
    done = 0
    while right.more():
        if not left.more():
            raise ReadBackError(f"the result has more than the {done:,} records of the source")
        count = min(left.end - left.at, right.end - right.at)
        same = equality.count_same(
            left.data, left.records, left.batches, left.at,
            right.data, right.records, right.batches, right.at, count, target,
        )  # fmt: skip
        if same < count:
            offset = left.records.offset[left.at + same]
            raise ReadBackError(f"after reading back, the record at offset {offset} differs from the source")
        left.at += count
        right.at += count
        done += count
    if done != expected:
        raise ReadBackError(f"could only read back {done:,} of {expected:,} records")
    if left.more():
        raise ReadBackError(f"the source has more than the {done} records of the result")
