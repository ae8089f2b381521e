"""Predict what a broker would do with a partition's folder if it started now, without writing.

The passes are those of ``LogLoader.load`` and ``UnifiedLog`` of Kafka 4.3, in their order. They run over a model of the
folder: its names, its segments with their indexes, its snapshots and leader epochs.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kseg.findings import do_nothing
from kseg.format.log_loader.loaded_files import (
    LeaderEpochCache,
    OfflineError,
    RefusedError,
    check_kraft_snapshot,
    check_topic_id,
    read_epochs,
)
from kseg.format.log_loader.loading_log import LoadingLog
from kseg.format.log_loader.log_segment import (
    INDEX_BYTES,
    SEGMENT_FILES,
    Limits,
    LogSegment,
    OffsetOverflow,
    complete_swaps,
    delete,
    delete_unfinished,
)
from kseg.format.log_loader.partition_files import (
    Files,
    InvalidOffsetError,
    check_txn_index,
    file_name,
    offset_of,
)
from kseg.format.log_loader.plan import (
    MARK_STRAY,
    NOTHING_LOST,
    PartitionPlan,
    Step,
    Stray,
)
from kseg.format.log_loader.producers import Producers
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.checkpoints import MAX_TEXT
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.sidefiles.producer_snapshot import ProducerState
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    INDEX_SUFFIXES,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    base_offset_of,
    partition_of,
    snapshot_id,
)

_Result = TypeVar("_Result")

_DISORDER = "its offsets decrease, and an index rejects them"


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """The inputs of a broker for a partition: whether the last shutdown was clean (None: as the log directory says), and
    the entries of its checkpoints.

    ``index_interval`` and ``index_bytes`` are the topic's index.interval.bytes and segment.index.bytes. ``stray`` is why the
    metadata does not place the folder on the broker, None if it does or nothing is known.
    """

    clean: bool | None = None
    recovery_point: int = 0
    log_start: int = 0
    index_interval: int = INDEX_INTERVAL_BYTES
    index_bytes: int = INDEX_BYTES
    stray: Stray | None = None


#: Called with the offset of a producer snapshot that a broker would write, and its producers.
ReportSnapshot = Callable[[int, Sequence[ProducerState]], object]


def plan_partition(
    folder: str, start: BrokerStart, report_snapshot: ReportSnapshot = do_nothing, *, adopted: bool = False
) -> PartitionPlan:
    """Return the plan for one partition's folder. Raises UnreadableError if one of its files can't be read.

    ``adopted``: it is as that of a topic in use, whatever the suffix of its name, and gets a topic id before the start.
    """
    partition = partition_of(os.path.basename(os.path.abspath(folder)))
    topic, number, state = partition or (None, None, None)
    if topic == CLUSTER_METADATA:
        # KafkaMetadataLog: its log is recovered from the first byte on at every start.
        start = replace(start, clean=False, recovery_point=0, log_start=0)
    deleted = state == "-delete" and not adopted
    loading = _Loading(folder, start, deleted=deleted)
    try:
        loading.load()
        if topic == CLUSTER_METADATA:
            loading.check_kraft_snapshot()
        elif not adopted:
            loading.check_topic_id(may_be_stray=state is None)
    except RefusedError as error:
        loading.log.add_step(error.action, error.file or loading.log.at_work, error.why)
    else:
        if deleted:
            return PartitionPlan(folder, topic, number, (Step("delete-folder", why="its topic was deleted"),))
        loading.report_snapshots(report_snapshot)
    return loading.plan(topic, number)


class _Loading:
    """One run of ``LogLoader.load``."""

    def __init__(self, folder: str, start: BrokerStart, *, deleted: bool) -> None:
        self._path = folder
        self._start = start
        self._deleted = deleted
        self._limits = Limits(start.index_interval, start.index_bytes)
        self.log = LoadingLog(Files(folder), start.log_start)
        for name, what in sorted(self.log.files.not_files.items()):
            if base_offset_of(name) is not None:
                self.log.add_step("pass-over", name, f"it is {what}")
        self._found = frozenset(self.log.files)
        self._recovered: set[int] = set()
        self._epochs = LeaderEpochCache()
        self._log_start = self._log_end = 0
        self._loaded = False

    def plan(self, topic: str | None, partition: int | None) -> PartitionPlan:
        return PartitionPlan(
            self._path,
            topic,
            partition,
            tuple(self.log.steps) or (Step("nothing"),),
            self._log_start if self._loaded else None,
            self._log_end if self._loaded else None,
            tuple((base, segment.size) for base, segment in self.log.segments.items()),
            tuple(sorted(offset_of(name) for name in self.log.files if name.endswith(".snapshot")))
            if self._loaded
            else (),
            tuple(self._epochs.entries),
            tuple(
                (name, file.size if name.endswith(SEGMENT_FILES) else 0)
                for name, file in sorted(self.log.files.items())
            ),
            any(base_offset_of(name) is not None for name in self._found),
        )

    def load(self) -> None:
        stored = self._read_epochs()
        self._producers = Producers(self.log.files)
        delete_unfinished(self.log.files, self.log.add_step)
        complete_swaps(self.log.files, self._limits, self.log.add_step)
        self._split_as_needed(self._load_segments)
        emptied = False
        next_offset = 0
        if not self._deleted:
            emptied, next_offset = self._split_as_needed(self._recover_log)
            last = self.log.last()
            self.log.at_work = last.name
            last.resize_indexes()
        elif not self.log.segments:
            self.log.segments[0] = LogSegment(self.log.files, 0, self._limits)
        self._log_end = next_offset
        self._log_start = max(self._start.log_start, next(iter(self.log.segments)))
        self._epochs.truncate_from_end(self._start.log_start, next_offset)
        if self._epochs.changed or emptied:
            self.log.add_step(
                "write-epochs", LEADER_EPOCHS, f"{stored} entries, {len(self._epochs.entries)} after loading"
            )
        self._producers.remove_strays(self.log.segments)
        if self._start.clean and not self._producers.snapshots:
            self.log.add_forgotten_producers(self._log_start, next_offset)
        self.log.rebuild(self._producers, self._log_start, next_offset, clean=bool(self._start.clean))
        self.log.find_first_unstable(self._producers.first_unstable, self._log_start, next_offset)
        self.log.add_snapshot_steps(self._found, self._log_start, next_offset)
        self._loaded = True

    def report_snapshots(self, report: ReportSnapshot) -> None:
        for name, file in self.log.files.items():
            if file.producers is not None:
                report(offset_of(name), file.producers)

    # --- the folder ---

    def _read_epochs(self) -> int:
        """Read the checkpoint. Returns the number of its entries."""
        file = self.log.files.get(LEADER_EPOCHS)
        stored = read_epochs(file.read(0, MAX_TEXT + 1)) if file else []
        self.log.files.open(LEADER_EPOCHS)
        self._epochs = LeaderEpochCache(stored)
        return len(stored)

    def check_kraft_snapshot(self) -> None:
        check_kraft_snapshot(self._path, filter(snapshot_id, self.log.files), self._log_start)

    def check_topic_id(self, *, may_be_stray: bool) -> None:
        """Check the topic id: a log without one counts as a stray of a topic that was never written to (KAFKA-16234)."""
        file = self.log.files.get(PARTITION_METADATA)
        if file is not None:
            check_topic_id(file.read(0, MAX_TEXT + 1))
            if may_be_stray and self._start.stray:
                self._mark_stray(*self._start.stray)
        elif may_be_stray:
            self._mark_stray(MARK_STRAY, f"{PARTITION_METADATA} does not exist")

    def _mark_stray(self, action: str, why: str) -> None:
        lost = sum((self.log.lost(segment.log, 0) for segment in self.log.segments.values()), NOTHING_LOST)
        self._loaded = False  # the broker does not load a stray log
        self.log.add_step(action, why=why, lost=lost)

    # --- segments ---

    def _split_as_needed(self, work: Callable[[], _Result]) -> _Result:
        """Model ``retryOnOffsetOverflow``."""
        while True:
            try:
                return work()
            except OffsetOverflow as overflow:
                self._split(overflow.segment, overflow.offset)

    def _split(self, segment: LogSegment, offset: int) -> None:
        self.log.at_work = segment.name
        if not segment.has_overflow():
            why = f"a header claims offset {offset}, which does not fit its indexes, and it cannot be split"
            raise RefusedError(why, segment.name)
        made = segment.split(self.log.files)
        bases = [piece.base_offset for piece in made]
        if len(set(bases)) < len(bases):
            raise OfflineError("it cannot be split: two parts have the same name", segment.name)
        parts = ", ".join(file_name(base) for base in bases)
        why = f"a header claims an offset that does not fit its indexes: split into {parts}"
        self.log.add_step("split-segment", segment.name, why)
        known = self.log.segments.get(segment.base_offset) is segment
        self.log.segments.update((piece.base_offset, piece) for piece in made)
        if known:
            if segment.base_offset != min(bases):
                self.log.segments.pop(segment.base_offset, None)
            segment.rename(".deleted")
        for piece in made:
            piece.rename("")
        self.log.segments = dict(sorted(self.log.segments.items()))
        if known and segment.base_offset not in bases:
            self._producers.mark_deleted([segment.base_offset])

    def _load_segments(self) -> None:
        for segment in self.log.segments.values():
            segment.close()
        self.log.segments = {}
        for name in sorted(self.log.files):
            if name.endswith(INDEX_SUFFIXES):
                if not self.log.files.exists(file_name(offset_of(name))):
                    delete(self.log.files, name, "its log does not exist", self.log.add_step)
            elif name.endswith(".log"):
                self._load_segment(name, offset_of(name))

    def _load_segment(self, name: str, base: int) -> None:
        self.log.at_work = name
        self.log.files.check_indexes(base)
        timeless = file_name(base, ".timeindex") not in self.log.files
        segment = LogSegment(self.log.files, base, self._limits)
        why = self._rebuild_reason(segment, timeless=timeless)
        if why is not None:
            try:
                self._recover(segment, "rebuild-indexes", why)
            except InvalidOffsetError as error:
                raise RefusedError(_DISORDER) from error
        in_order = base > next(reversed(self.log.segments), base - 1)
        self.log.segments[base] = segment
        if not in_order:
            self.log.segments = dict(sorted(self.log.segments.items()))

    def _rebuild_reason(self, segment: LogSegment, *, timeless: bool) -> str | None:
        """Return why a segment's indexes are rebuilt even after a clean shutdown (``LogSegment.sanityCheck``), or None."""
        base = segment.base_offset
        if file_name(base, ".index") not in self.log.files:
            return "its offset index does not exist"
        if timeless:
            segment.time_index.empty()
            self.log.add_step("empty-time-index", file_name(base, ".timeindex"), "there is none")
        file = self.log.files.get(file_name(base, ".txnindex"))
        return check_txn_index(file, base) if file else None

    def _recover(self, segment: LogSegment, action: str, why: str) -> int:
        """Model ``recoverSegment``. Returns the number of bytes that are truncated."""
        self.log.at_work = segment.name
        producers = Producers(self.log.files)
        self.log.rebuild(producers, self._start.log_start, segment.base_offset, clean=False)
        self.log.at_work = segment.name
        if segment.base_offset not in self._recovered:
            self.log.add_step(action, segment.name, why)
            self._recovered.add(segment.base_offset)
        before = segment.size
        cut, broken = segment.recover(producers, self._epochs)
        producers.take_snapshot()
        self._add_truncation(segment, before, broken or "")
        return cut

    def _add_truncation(self, segment: LogSegment, before: int, why: str) -> None:
        if before > segment.size:
            self.log.add_step(
                "truncate-segment", segment.name, why, position=segment.size, offset=segment.end,
                lost=self.log.lost_after(segment.log, segment.size, before),
            )  # fmt: skip

    def _recover_log(self) -> tuple[bool, int]:
        """Model ``recoverLog``. Returns whether the log was replaced by an empty one, and its end offset."""
        if not self._start.clean:
            self._recover_unflushed()
        emptied = False
        end: int | None = None
        if self.log.segments:
            last = self.log.last()
            self.log.at_work = last.name
            end = last.next_offset()
            if end >= self._start.log_start:
                self._add_tail_loss(last, end)
            else:
                self._delete_segments(list(self.log.segments), f"the log end {end} is below the log start")
                self._epochs.entries = []
                self._producers.truncate_fully(self._start.log_start)
                emptied, end = True, None
        if not self.log.segments:
            self._create_segment(emptied=emptied)
        return emptied, self.log.last().next_offset() if end is None else end

    def _recover_unflushed(self) -> None:
        point = self._start.recovery_point
        # LogSegments.values(point, Long.MAX_VALUE): its end is exclusive, and no range begins there.
        bases = [base for base in self.log.segments if max(base, point) < INT64_MAX]
        first = max(bisect_right(bases, point) - 1, 0)
        for at, base in enumerate(bases[first:], first):
            segment = self.log.segments[base]
            try:
                cut = self._recover(segment, "recover-segment", f"it may not be flushed: the recovery point is {point}")
            except InvalidOffsetError:
                before, segment.end = segment.size, base
                cut = segment.truncate()
                self._add_truncation(segment, before, _DISORDER)
            if cut:
                segment.next_offset()  # for a line in the broker's log
                self._delete_segments(bases[at + 1 :], f"{segment.name} was truncated")
                return
            if at > first + 1:
                self.log.segments[bases[at - 2]].forget()

    def _delete_segments(self, bases: list[int], why: str) -> None:
        for base in bases:
            segment = self.log.segments.pop(base)
            self.log.add_step("delete-segment", segment.name, why, lost=self.log.lost(segment.log, 0))
            segment.rename(".deleted")
        self._producers.mark_deleted(bases)

    def _create_segment(self, *, emptied: bool) -> None:
        base = self._start.log_start
        name = file_name(base)
        self.log.add_step("create-segment", name, "no segment remains" if emptied else "no segment exists")
        self.log.segments[base] = LogSegment(self.log.files, base, self._limits)

    def _add_tail_loss(self, segment: LogSegment, end: int) -> None:
        """Add the bytes after the log's end that stay unread: a broker checks no bytes after a clean shutdown."""
        if segment.base_offset in self._recovered or segment.size == segment.stop:
            return
        position = segment.stop
        why = "a batch before them goes beyond the end" if position else "its index is wrong"
        lost = self.log.lost(segment.log, position)
        if lost.records:
            self.log.add_step("hide-records", segment.name, why, position=position, offset=end, lost=lost)
        else:
            why = f"{segment.size - position} bytes are not a batch, and nothing is checked after a clean shutdown"
            self.log.add_step("keep-tail", segment.name, why, position=position, offset=end, lost=lost)
