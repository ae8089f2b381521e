"""The tables of the checks of batches and records, and their run over one segment, window by window or at once.

To add a check, add a rule to ``rule_table.RULES``, its cause to ``rule_causes.toml``, a function, a row in BATCH_CHECKS
or RECORD_CHECKS, and a damaged file in ``fixtures/findings``. validate, dump, repair, convert and parallel runs read
these tables. Coordinators, controllers and brokers must be able to load the records of internal topics: the last of
these checks.

``boundary_findings`` joins two neighbouring ranges of a segment that were checked separately.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kseg.engine import lazy
from kseg.errors import KsegError
from kseg.findings import Finding, Policy, Report, Severity, do_nothing
from kseg.format.checks import batch_checks, offset_checks, record_checks
from kseg.format.checks.batch_checks import FUTURE_TOLERANCE_MS, CheckSettings, CheckState
from kseg.format.checks.offset_checks import check_offsets, gap_before_part
from kseg.format.checks.record_checks import update_compaction_evidence
from kseg.format.record import columns, framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import DEFAULT_MAX_MESSAGE_BYTES, RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.segment import outline
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.input_buffer import borrowed
from kseg.format.segment.records_chunk import Chunk, record_finding
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles import checkpoints, registry
from kseg.format.storage import local_files
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import CLEAN_SHUTDOWN, base_offset_of, is_snapshot, is_url
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Source, is_metadata_log, open_range
from kseg.results import FindingCollector, Settings

if TYPE_CHECKING:
    from kseg.format.checks.record_set_checks import RecordSetChecks
from kseg.format.checks.offset_checks import UNEXPLAINED_GAP, check_file_name, gap_finding

if TYPE_CHECKING:
    from kseg.format.internal_topics import decode as decode
else:
    decode = lazy("kseg.format.internal_topics.decode")  # an import runs it, as it is compiled


def _stateless(before: CheckState, after: CheckState) -> bool:
    return True


class BatchCheck(NamedTuple):
    """One check of batch headers.

    ``run`` checks the next window of batches and reports its findings. It skips a batch that is not selected. A check
    that compares a batch with earlier ones keeps its state in ``CheckState``. Then ``join`` returns whether the states
    of two neighbouring parts of a file, each checked from the start, are those of one run over both. If not, one process
    checks the file again. ``in_repair`` and ``in_conversion`` are whether these commands run the check on their source:
    both check the order of offsets themselves, and repair corrects leader epochs.
    """

    run: Callable[[BatchColumns, CheckSettings, CheckState, Report], None]
    join: Callable[[CheckState, CheckState], bool] = _stateless
    in_repair: bool = True
    in_conversion: bool = True


class RecordCheck(NamedTuple):
    """One check of the records in decoded batches. ``in_conversion`` is whether convert runs it on its source."""

    run: Callable[[Chunk, CheckSettings, Report], None]
    in_conversion: bool = True


BATCH_CHECKS = (
    BatchCheck(offset_checks.check_offsets, offset_checks.wrapper_offsets_join, in_conversion=False),
    BatchCheck(offset_checks.check_offset_range, offset_checks.offset_ranges_join, in_conversion=False),
    BatchCheck(offset_checks.check_file_name, in_conversion=False),
    BatchCheck(batch_checks.check_size),
    BatchCheck(batch_checks.check_counts),
    BatchCheck(batch_checks.check_attributes),
    BatchCheck(batch_checks.check_timestamps),
    BatchCheck(batch_checks.check_leader_epochs, batch_checks.leader_epochs_join, in_repair=False),
    BatchCheck(batch_checks.check_append_times, batch_checks.append_times_join),
    BatchCheck(batch_checks.check_magic_order, batch_checks.magics_join, in_conversion=False),
    BatchCheck(offset_checks.check_producers, offset_checks.producers_join),
)

RECORD_CHECKS = (
    RecordCheck(record_checks.check_record_offsets, in_conversion=False),
    RecordCheck(record_checks.check_max_timestamps),
    RecordCheck(record_checks.check_negative_timestamps, in_conversion=False),
    RecordCheck(record_checks.check_oldest_timestamps, in_conversion=False),
    RecordCheck(record_checks.check_keys, in_conversion=False),
    RecordCheck(record_checks.check_record_attributes),
    RecordCheck(record_checks.check_control_records),
    RecordCheck(record_checks.check_header_keys),
)


def join_states(before: CheckState, after: CheckState) -> bool:
    """Return whether two neighbouring parts of a file, each checked from the start, have the findings of one run.

    If so, the producers of ``before`` are added to ``after``: the next part can continue them. This excludes offsets: the
    caller runs ``check_offsets`` over the first batch of the later part.
    """
    if not all(check.join(before, after) for check in BATCH_CHECKS):
        return False
    after.producers.young = {**before.producers.young, **after.producers.young}
    return True


def check_internal_records(topic: str, chunk: Chunk, report: Report) -> None:
    """Report ``internal-record`` for each record that Kafka 4.3 cannot load, also if a newer version wrote it."""
    for row in range(chunk.first, chunk.stop):
        rows = chunk.rows(row)
        decoder = decode.records_decoder(topic, chunk, row) if rows else None
        i = rows.start
        while decoder and (i := decoder.first_fault(chunk.records, i, rows.stop)) < rows.stop:
            why = decoder.decode(chunk.records, i).fault
            report(record_finding("internal-record", chunk, i, topic=topic, why=why))
            i += 1


#: Called with each chunk of decoded batches after their checks.
AfterChunk = Callable[[Chunk], None]


#: Called with each window of batches after its checks, and with the state of the checks.
AfterWindow = Callable[[Window, CheckState], None]


def side_file_of(path: str) -> registry.Recognised | None:
    """Return how a side file is read, by its name; None for other files."""
    if base_offset_of(path) is not None:
        return None  # a segment, which does not need the decoders of side files
    return registry.recognise(path)


def new_collector(file: SegmentFile, settings: Settings) -> FindingCollector:
    """Return an empty collector with the policy for the file."""
    side = file.framing is None and side_file_of(file.path) is not None
    return FindingCollector(
        file.path, policy_for(file, settings), settings.max_per_rule, side=side, framing=file.framing
    )


class SegmentChecks:
    """The checks of the segment or record set ``name``, and their state (``history``).

    ``topic`` is the internal topic whose records it contains, or None for other topics and if records are not decoded.
    ``record_set`` has the checks of record sets.
    """

    def __init__(
        self,
        name: str,
        limits: CheckSettings,
        report: Report,
        topic: str | None = None,
        record_set: RecordSetChecks | None = None,
    ) -> None:
        self.history = CheckState()
        self._limits = limits
        self._report = report
        self._topic = topic
        self._record_set = record_set
        self._ends = decode.SnapshotEnds() if limits.deep and is_snapshot(name) else None

    def check_batches(self, window: Window) -> None:
        """Check the headers of the next window of batches, after their records: wrappers begin where these do."""
        for check in BATCH_CHECKS:
            check.run(window.batches, self._limits, self.history, self._report)
        if self._record_set:
            self._record_set.check_batches(window.batches)

    def check_records(self, chunk: Chunk) -> None:
        """Check the next decoded batches of the window."""
        for check in RECORD_CHECKS:
            check.run(chunk, self._limits, self._report)
        update_compaction_evidence(chunk, self.history)
        if self._record_set:
            self._record_set.check_records(chunk, self._report)
        if self._topic:
            check_internal_records(self._topic, chunk, self._report)
        if self._ends:
            self._ends.append(chunk)

    def finish(self, position: int) -> None:
        """Check the end of the file, which was read up to byte ``position``."""
        if self._record_set:
            self._record_set.finish(self._report)
        if self._ends:
            self._ends.check(position, self._report)


class CheckEnd(NamedTuple):
    """The state of the checks at the end of a source. ``damaged`` is that of ``SegmentReader``.

    ``outline`` is that of the batches, if the settings ask for it.
    """

    history: CheckState
    damaged: bool
    outline: outline.Outline | None = None


def run_checks(
    source: Source,
    settings: Settings,
    tally: FindingCollector,
    progress: Progress = do_nothing,
    watch: AfterChunk = do_nothing,
    after_window: AfterWindow | None = None,
    report: Report | None = None,
    topic: str | None = None,
    record_set: RecordSetChecks | None = None,
) -> CheckEnd:
    """Run every check over one source and report to ``report``, by default to ``tally``.

    ``watch`` is called with each chunk, ``after_window`` with each window. ``topic`` and ``record_set`` are those of
    ``SegmentChecks``. Raises KsegError if the source cannot be read.
    """
    report = report or tally
    checks = SegmentChecks(source.name, check_settings(source.name, settings), report, topic, record_set)
    summary = tally.summary
    summary.unchecked = int(not settings.verify_crc)
    summary.shallow = int(not settings.deep)
    counter = outline.OutlineCounter() if settings.outline else None
    with borrowed() as buffers:
        reader = SegmentReader(
            source, report=report, verify_crc=settings.verify_crc, buffers=buffers, reports_read_error=True
        )
        opener = DeepIterator(report, buffers=buffers)
        done = source.start
        for window in reader.windows():
            summary.batches += window.batches.count
            for chunk in opener.chunks(window) if settings.deep else ():
                summary.records += chunk.records.count
                checks.check_records(chunk)
                watch(chunk)
            checks.check_batches(window)
            if after_window:
                after_window(window, checks.history)
            if counter:
                counter.update(window.batches, checks.history.misplaced | checks.history.claimed)
            progress(reader.position - done)
            done = reader.position
    checks.finish(reader.position)
    progress(reader.position - done)
    summary.bytes = reader.position - source.start
    summary.lost_bytes = reader.lost_bytes
    return CheckEnd(checks.history, reader.damaged, counter.outline() if counter else None)


def check_settings(name: str, settings: Settings) -> CheckSettings:
    """Return the settings of the checks for a file with this name."""
    now = time.time_ns() // 1_000_000
    before, after = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    return CheckSettings(
        now=now,
        oldest=None if before is None else now - before,
        future_ms=FUTURE_TOLERANCE_MS if after is None else after,
        max_message_bytes=settings.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES,
        compacted=settings.compacted,
        name_offset=base_offset_of(name),
        deep=settings.deep,
        stored_epochs=partial(_stored_epochs, name),
    )


def _stored_epochs(name: str) -> Sequence[tuple[int, int]]:
    """Return the entries of the leader-epoch-checkpoint next to the segment ``name``."""
    if base_offset_of(name) is None or is_url(name):
        return ()
    return checkpoints.known_leader_epochs(os.path.dirname(name))


def is_cleanly_shut_down(path: str) -> bool:
    """Return whether a segment is in a log directory whose broker has trimmed the active segments and their indexes.

    A metadata log is opened before the broker deletes the mark of that, and recovered at each start
    (``KafkaRaftLog.createLog``): the mark says nothing about it.
    """
    folder = os.path.dirname(local_files.absolute(path))
    if is_url(path) or is_metadata_log(folder):
        return False
    return local_files.is_file(os.path.join(os.path.dirname(folder), CLEAN_SHUTDOWN))


def policy_for(file: SegmentFile, settings: Settings) -> Policy:
    """Return the severities for the file: those of the settings, then defaults for its kind."""
    defaults: dict[str, Severity] = {}
    if settings.max_message_bytes is not None:
        defaults["oversize-entry"] = Severity.ERROR
    if settings.timestamp_after_max_ms is not None:
        defaults["future-timestamp"] = Severity.ERROR
    if file.active:
        # A broker may be writing to the end of the file now.
        defaults["truncated-tail"] = Severity.WARNING
        if is_cleanly_shut_down(file.path):
            # A clean shutdown removes preallocated space, and the start after it fails at zeros.
            defaults["zero-tail"] = Severity.WARNING
    elif file.listed and base_offset_of(file.path) is not None:
        # Rolling truncates preallocated space (LogSegment.onBecomeInactiveSegment). Here batches were lost, or the copy of
        # the file is incomplete.
        defaults["zero-tail"] = Severity.ERROR
    if file.framing:
        # A producer does not know the offsets; librdkafka writes 0 in each message of old versions.
        defaults["non-monotonic-offset"] = Severity.WARNING
        # A producer does not know the leader epoch: the broker writes it into the batch.
        defaults["negative-leader-epoch"] = Severity.IGNORE
    return settings.policy.with_defaults(defaults)


#: The rules of two batches in disorder. The batches around them decide which one is misplaced, also those after the end of
#: a range: a range with this finding can't be joined.
DISORDER = frozenset({"non-monotonic-offset", "invalid-offset-range", "wrapper-offset-mismatch"})


def boundary_findings(
    path: str, start: int, before: CheckState, after: CheckState, limits: CheckSettings
) -> list[Finding] | None:
    """Return the findings between two ranges, such as a gap; the later one begins at byte ``start``.

    ``before`` and ``after`` are the states at the ends of the ranges. Returns None if the ranges together do not have the
    findings of one run over both. Otherwise ``after`` has the producers of both.
    """
    first = columns.BatchColumns(1)
    header = bytearray(RECORD_BATCH_OVERHEAD)
    try:
        with open_range(path, start, start + RECORD_BATCH_OVERHEAD) as source:
            if source.readinto(memoryview(header)) < RECORD_BATCH_OVERHEAD:
                return None
    except KsegError:
        return None
    framing.read_header(header, 0, framing.read_int32(header, SIZE_AT), header[16], first, 0)
    first.position[0] = start
    first.count = 1
    if not join_states(before, after):
        return None
    found: list[Finding] = []
    gap = gap_before_part(before, after, start)
    check_offsets(first, limits, before, found.append)
    if any(finding.rule in DISORDER for finding in found):
        return None
    return [*found, gap] if gap else found


class ClaimedOffsets:
    """Finds the batches of the segment ``name`` whose offsets are only claims of their headers, and reports each of them.

    No CRC covers the base offset. Commands that count or compare offsets have the bounds of ``kseg validate``: the batches
    around a batch, and the file name.
    """

    def __init__(self, name: str, report: Report) -> None:
        self._settings = CheckSettings(now=0, name_offset=base_offset_of(name), gaps=False)
        self._state = CheckState()
        self._report = report

    def update(self, batches: BatchColumns) -> set[int]:
        """Return the positions of the window's batches whose offsets are not proved or contradict those before them."""
        found: list[Finding] = []
        state, name = self._state, self._settings.name_offset
        check_offsets(batches, self._settings, state, found.append)
        if not (found or state.claimed):
            return state.misplaced
        check_file_name(batches, self._settings, state, found.append)
        doubtful = state.misplaced | state.claimed
        for finding in found:
            if finding.rule != "file-name-mismatch" or finding.position in doubtful:
                self._report(finding)
        reported = {finding.position for finding in found if finding.position is not None}
        for row in range(batches.count):
            if batches.position[row] in state.claimed - reported and name is not None:
                first = batches.last_offset[row] if batches.magic[row] < 2 else batches.base_offset[row]
                self._report(gap_finding("offset-gap", batches.position[row], name, first - 1, UNEXPLAINED_GAP))
        return doubtful | reported
