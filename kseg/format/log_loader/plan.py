"""The predicted actions of a broker's start: steps for each partition, and the data that they lose.

``loss_of_range`` counts the records in bytes of a log that a broker would truncate or skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kseg.errors import NotASegmentError
from kseg.findings import Finding, do_nothing
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.log_loader import recovered_rows
from kseg.format.record import columns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import INT64_MAX
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.storage.source import open_range

#: The action that loses the producers of a log, but no bytes.
FORGET = "forget-producers"
#: The actions that rename a folder to -stray: its topic id is missing or damaged, or the metadata does not place it on
#: the broker, or the part of the metadata that can be read.
MARK_STRAY, MARK_DAMAGED_ID = "mark-stray", "mark-damaged-id"
MARK_UNPLACED, MARK_FORGOTTEN = "mark-unplaced", "mark-forgotten"
#: The action that leaves a folder as it is, and its partition offline.
REJECT_ID = "reject-topic-id"
STRAYS = frozenset({MARK_STRAY, MARK_DAMAGED_ID, MARK_UNPLACED, MARK_FORGOTTEN, REJECT_ID})
#: The action of a broker that does not find the metadata log: it knows no topics.
LOSE_METADATA = "lose-metadata"
#: The states of a log without a batch, which a broker does not see: it had records, or nothing shows whether it had.
EMPTIED, WITH_ZEROS = "start-emptied", "start-with-zeros"
#: The action of a broker that cannot apply its metadata: it runs, and leaves partitions without a leader.
LEAVE_UNSERVED = "leave-unserved"
#: The action of a broker whose log cleaner ends.
STOP_CLEANER = "stop-cleaner"
#: The reason of a step for a folder that a broker rejects in a log directory.
NOT_A_PARTITION = "it is not a partition folder"
#: Every action of a step, with its meaning.
ACTIONS: Mapping[str, str] = {
    "nothing": "load the partition unchanged",
    "recover-segment": "read the segment, check CRCs, rebuild its indexes",
    "rebuild-indexes": "read the segment, check CRCs, rebuild its indexes, only because of an index",
    "empty-time-index": "create an empty time index: look-ups by time return the end of the segment",
    "truncate-segment": "truncate the log at that byte",
    "split-segment": "split the segment so that offsets fit the indexes",
    "delete-segment": "delete the log and its indexes",
    "create-segment": "create an empty segment",
    "hide-records": "use a log end that is too low: consumers cannot read the records after it",
    "keep-tail": "append after bytes that are not a batch: readers fail there, or read mixed data",
    "pass-over": "ignore it: it cannot be read, is not a file, or is a link without a target",
    "delete-file": "delete a side file",
    "rename-swap": "give a .swap file its final name",
    "delete-snapshot": "delete a producer snapshot",
    "write-snapshot": "write a producer snapshot",
    FORGET: "start without the producers of the log: no sequences, and open transactions count as ended",
    "write-epochs": "write leader-epoch-checkpoint again",
    "write-directory-id": "write a new directory.id to meta.properties",
    EMPTIED: "start with an empty log, although it had records: they are lost before the start",
    WITH_ZEROS: "take the zeros for an empty log: nothing shows whether batches were ever written",
    MARK_STRAY: "rename the folder to -stray, because it has no topic id",
    MARK_DAMAGED_ID: "rename the folder to -stray, because the id in partition.metadata is almost that of its topic",
    MARK_UNPLACED: "rename the folder to -stray, because the metadata log does not place it on this broker",
    MARK_FORGOTTEN: "rename the folder to -stray, because the metadata log has lost the records that place it here",
    REJECT_ID: "leave the partition offline, because partition.metadata has the id of another topic; others can wait for a "
    "new leader, too",
    LOSE_METADATA: "start without topics and rename all partition folders to -stray, if the metadata log is not elsewhere",
    "delete-folder": "delete the folder and its files",
    STOP_CLEANER: "end the log cleaner: compacted topics only grow",
    LEAVE_UNSERVED: "start, but serve few or no partitions, also of other log directories",
    "offline": "take the log directory offline; the broker stops if it was the last one",
    "refuse": "stop the broker at its start",
}


class Stray(NamedTuple):
    """Why the metadata does not place a folder on a broker, and the action that follows, one of STRAYS."""

    action: str
    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Lost data: ``bytes`` of the log without zeros of a preallocated tail, and ``records`` that can still be read.

    ``first_offset`` and ``last_offset`` are those of valid batches in it, None if it has none.
    """

    bytes: int = 0
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def __add__(self, other: Lost) -> Lost:
        firsts = [lost.first_offset for lost in (self, other) if lost.first_offset is not None]
        lasts = [lost.last_offset for lost in (self, other) if lost.last_offset is not None]
        return Lost(
            self.bytes + other.bytes,
            self.records + other.records,
            min(firsts, default=None),
            max(lasts, default=None),
        )


NOTHING_LOST = Lost()
FAILURES = ("offline", LEAVE_UNSERVED, "refuse")


@dataclass(frozen=True, slots=True)
class Step:
    """One action. ``file`` is a name in the folder, ``why`` the reason in one line.

    ``position`` is the byte from which on the log is truncated. ``offset`` is the log's end offset, or the offset in a
    name, after the step.
    """

    action: str
    file: str | None = None
    why: str = ""
    position: int | None = None
    offset: int | None = None
    lost: Lost = NOTHING_LOST


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The state of a partition's folder after the start. Offsets are None if they don't exist.

    ``segments`` are (base offset, bytes), ``snapshots`` the offsets of producer snapshots, ``epochs`` (epoch, start
    offset). ``files`` are (name, bytes) of logs and their indexes, and the names of all other files with 0. All are as
    the broker has them after it has loaded the log. ``has_segments`` is whether the folder has a segment before that.
    """

    folder: str
    topic: str | None
    partition: int | None
    steps: tuple[Step, ...]
    log_start: int | None = None
    log_end: int | None = None
    segments: tuple[tuple[int, int], ...] = ()
    snapshots: tuple[int, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    has_segments: bool = True

    @property
    def lost(self) -> Lost:
        """The data that all steps lose."""
        return sum((step.lost for step in self.steps), NOTHING_LOST)

    @property
    def fails(self) -> bool:
        """Whether the broker can't load the partition."""
        return _fails(self.steps)


@dataclass(frozen=True, slots=True)
class LogDirPlan:
    """The steps for a log dir itself. ``clean`` is whether its last shutdown counts as clean."""

    topic: ClassVar[None] = None
    partition: ClassVar[None] = None
    lost: ClassVar[Lost] = NOTHING_LOST

    folder: str
    clean: bool
    steps: tuple[Step, ...]
    partitions: int

    @property
    def fails(self) -> bool:
        """Whether the broker can't use the log dir."""
        return _fails(self.steps)


def _fails(steps: tuple[Step, ...]) -> bool:
    return any(step.action in FAILURES for step in steps)


def loss_of_range(path: str, begin: int, end: int, log_start: int = 0) -> Lost:
    """Return the readable records in bytes ``begin`` to ``end`` of a log, also after damage.

    Those below ``log_start`` were deleted before. Raises UnreadableError.
    """
    zeros = 0

    def report(finding: Finding) -> None:
        nonlocal zeros
        if finding.rule == "zero-tail":
            zeros += int(finding.facts["bytes"])

    records = 0
    first: int | None = None
    last: int | None = None
    with SegmentReader(open_range(path, begin, end), report=report) as reader:
        offsets, opener = ClaimedOffsets(path, do_nothing), DeepIterator()
        try:
            for window in reader.windows():
                claimed = offsets.update(window.batches)
                counted, lowest, highest = -1, 0, 0
                if not claimed:
                    counted, lowest, highest = recovered_rows.count_records(window.batches)
                if counted < 0 or lowest < log_start:
                    counted, lowest, highest = _count_slowly(window, opener, claimed, log_start)
                records += counted
                if lowest != INT64_MAX:
                    first = lowest if first is None else min(first, lowest)
                    last = highest if last is None else max(last, highest)
        except NotASegmentError:
            zeros = end - begin if _all_zeros(path, begin, end) else 0
    return Lost(end - begin - zeros, records, first, last)


def _count_slowly(window: Window, opener: DeepIterator, claimed: set[int], log_start: int) -> tuple[int, int, int]:
    """Count like ``count_records``, and decompress message sets of v0 and v1, whose headers lack the number of messages.

    The offsets of the batches at the positions ``claimed`` are not used.
    """
    batches = window.batches
    for row in range(batches.count):
        batches.selected[row] = batches.crc_state[row] == columns.CRC_GOOD and is_wrapper(batches, row)
    records, first, last = 0, INT64_MAX, -1
    for chunk in opener.chunks(window):
        for row in range(chunk.first, 0 if chunk.resumed else chunk.stop):
            if batches.crc_state[row] != columns.CRC_GOOD:
                continue
            counted, lowest = _records(batches, row)
            if batches.position[row] not in claimed:
                highest = batches.last_offset[row]
                if highest < log_start:
                    continue
                counted, lowest = min(counted, highest - log_start + 1), max(lowest, log_start)
                first, last = min(first, lowest), max(last, highest)
            records += counted
    return records, first, last


def _records(batches: columns.BatchColumns, row: int) -> tuple[int, int]:
    """Return the number of records of a batch that can be read, and its first offset."""
    if batches.magic[row] >= 2:
        return max(0, batches.record_count[row]), batches.base_offset[row]
    if not is_wrapper(batches, row):
        return 1, batches.base_offset[row]
    readable = batches.record_sum[row]
    return readable, clamped(batches.first_record_offset[row]) if readable else batches.last_offset[row]


def _all_zeros(path: str, begin: int, end: int) -> bool:
    buffer = memoryview(bytearray(1 << 16))
    with open_range(path, begin, end) as source:
        while count := source.readinto(buffer):
            if any(buffer[:count]):
                return False
    return True
