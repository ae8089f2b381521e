"""The checks of batch headers, and the settings and state of all checks of one segment between its windows.

Compiled with the types of ``batch_checks.pxd``. Batch headers: size, counts, attributes, timestamps, leader epochs and
versions, with the limits of Kafka's ``LogValidator`` and ``UnifiedLog``. A check skips batches whose CRC is wrong.
``run_checks`` says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding, Report
from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import (
    CODEC_MASK,
    DEFAULT_MAX_MESSAGE_BYTES,
    LOG_APPEND_TIME,
    V0_RESERVED,
    V1_RESERVED,
    V2_RESERVED,
)
from kseg.format.record.offset_evidence import BoundedMap
from kseg.text import count_of, duration

#: The default of brokers for message.timestamp.after.max.ms (KIP-937).
FUTURE_TOLERANCE_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The facts that a file does not contain.

    ``now`` is epoch milliseconds. ``name_offset`` is the base offset in the file's name. ``deep`` is whether batches are
    decoded, too: then their records are counted, and the header checks skip the record count. ``oldest`` is the smallest
    timestamp that is allowed, ``future_ms`` how far a timestamp may be ahead. ``gaps`` is whether to report offset gaps.
    ``stored_epochs`` returns (leader epoch, start offset) of each entry in the partition's leader-epoch-checkpoint.
    """

    now: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compacted: bool = False
    name_offset: int | None = None
    deep: bool = False
    oldest: int | None = None
    future_ms: int = FUTURE_TOLERANCE_MS
    gaps: bool = True
    stored_epochs: Callable[[], Sequence[tuple[int, int]]] = tuple


class CheckState:
    """The state of the checks of one segment, passed from window to window.

    To compare parts of a file that were checked separately, see ``run_checks.join_states``.
    """

    def __init__(self) -> None:
        self.begun = False
        self.end = 0  # the position after the last batch
        self.last_offset = -1
        self.highest_offset = -1
        # Positions of the batches in the current window whose base offset is proved wrong.
        self.misplaced: set[int] = set()
        # And of those whose base offset only their header claims: see ``offset_evidence.too_far_by_one_bit``.
        self.claimed: set[int] = set()
        self.misnamed = False
        self.first_opened = -1  # the first offset of a decoded wrapper that is the first batch
        # The number of gaps before wrappers, whose headers do not show them, and the first ones: (position, first, last).
        self.wrapper_gaps = 0
        self.before_wrappers: list[tuple[int, int, int]] = []
        self.base = -1  # the offset that the segment's index entries are relative to
        self.last_in_range = -1  # the last offset of the last batch that they can have
        self.overflows = False  # whether later offsets need another segment, whose base offset is ``base`` then
        # Counted by check_producers, because one loop is a window ahead of the other.
        self.gaps = 0
        self.next_offset = 0
        # The last leader epoch, the one before it, and whether only one batch has the last one: then also its place.
        self.leader_epoch = -1
        self.earlier_epoch = -1
        self.is_lone_epoch = False
        self.epoch_position = self.epoch_end = self.epoch_first = self.epoch_last = -1
        self.epochs_fall = False
        self.magic = -1
        self.first_magic = -1
        # The append time and leader epoch (-1 in v1) of the last batch that has an append time, and of the first.
        self.append_time = -1
        self.append_epoch = -1
        self.first_append_time = -1
        self.first_append_epoch = -1
        # Whether a decoded batch has a record without a key, and whether a wrapper lacks messages, as after compaction.
        self.keyless = False
        self.thinned = False
        # producer id -> (epoch, next sequence or -1, gaps at that time, whether a marker was last)
        self.producers = BoundedMap()
        # The first values of this part of the file, to compare with the part before it.
        self.first_leader_epoch = -1
        self.first_producers: dict[int, tuple[int, int]] = {}  # producer id -> (epoch, base sequence or -1 of a marker)


def batch_finding(rule: str, batches: BatchColumns, row: int, **facts: Any) -> Finding:
    """Return a finding about a whole batch."""
    return _finding(rule, batches, row, facts)


def _finding(rule: str, batches: BatchColumns, row: int, facts: dict[str, Any]) -> Finding:
    wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
    return Finding(
        rule,
        position=batches.position[row],
        end=batches.position[row] + batches.size[row],
        offset=None if wrapper else batches.base_offset[row],
        last_offset=batches.last_offset[row],
        facts=facts,
    )


#: The rules of leader epochs that a broker can't use. No CRC covers them, and the records are valid.
EPOCH_RULES = ("leader-epoch-regression", "negative-leader-epoch")
#: A larger step of the leader epoch is probably damage: an epoch is one election of a leader.
LARGEST_EPOCH_STEP = 1_000_000
# Seconds of the years 1995 to 2286, read as milliseconds, are January to April 1970. Microseconds are past the year 5000.
SECONDS = (800_000_000, 10_000_000_000)
MICROSECONDS = 100_000_000_000_000
NANOSECONDS = 100_000_000_000_000_000


def check_size(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``oversize-entry``: max.message.bytes limits the size of the whole batch (UnifiedLog.append)."""
    limit = settings.max_message_bytes
    for row in range(batches.count):
        if batches.size[row] > limit and batches.selected[row]:
            report(batch_finding("oversize-entry", batches, row, size=batches.size[row], limit=limit))


def check_counts(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``invalid-offset-range``, and ``record-count-mismatch`` if the header alone shows it."""
    deep = settings.deep
    for row in range(batches.count):
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        base = batches.base_offset[row]
        delta = batches.last_offset[row] - clamped(base)
        count = batches.record_count[row]
        if base < 0 and batches.position[row] in state.misplaced:
            continue
        if base < 0 or delta < 0:
            negative = f"the base offset {base} is negative" if base < 0 else "it cannot be negative"
            why = f"last offset delta {delta}: {negative}"
            report(batch_finding("invalid-offset-range", batches, row, delta=delta, why=why))
        elif not deep and (count < 0 or count > delta + 1):
            allowed = f"the last offset delta {delta} allows {count_of(delta + 1, 'record')}"
            why = "the count cannot be negative" if count < 0 else allowed
            report(batch_finding("record-count-mismatch", batches, row, count=count, why=why))


def check_attributes(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``reserved-attribute-bits`` of batches."""
    for row in range(batches.count):
        magic = batches.magic[row]
        mask = V2_RESERVED if magic >= 2 else V1_RESERVED if magic == 1 else V0_RESERVED
        bits = batches.attributes[row] & mask
        if bits and batches.selected[row]:
            report(batch_finding("reserved-attribute-bits", batches, row, bits=bits, where=""))


def check_timestamps(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``future-timestamp``, ``timestamp-unit`` and ``invalid-timestamp`` for the largest timestamp of each batch.

    The timestamp of an uncompressed v1 message is that of its record: a negative one is a ``negative-timestamp``.
    """
    future = settings.now + settings.future_ms
    seconds_begin, seconds_end = SECONDS
    for row in range(batches.count):
        timestamp = batches.max_timestamp[row]
        if seconds_end <= timestamp <= future or -1 <= timestamp < seconds_begin or not batches.selected[row]:
            continue
        if timestamp < -1 and (batches.magic[row] >= 2 or batches.attributes[row] & CODEC_MASK):
            report(batch_finding("invalid-timestamp", batches, row, timestamp=timestamp))
        elif timestamp < -1:
            place = {"index": 0, "offset": batches.base_offset[row]}
            report(batch_finding("negative-timestamp", batches, row, timestamp=timestamp, **place))
        elif unit := unit_of(timestamp):
            report(batch_finding("timestamp-unit", batches, row, timestamp=timestamp, unit=unit))
        else:
            ahead = duration(timestamp - settings.now)
            report(batch_finding("future-timestamp", batches, row, timestamp=timestamp, ahead=ahead))


def unit_of(timestamp: int) -> str:
    """Return the unit in which a timestamp seems to be written by mistake, or "" if it may be milliseconds."""
    if timestamp >= MICROSECONDS:
        return "nanoseconds" if timestamp >= NANOSECONDS else "microseconds"
    seconds_begin, seconds_end = SECONDS
    return "seconds" if seconds_begin <= timestamp < seconds_end else ""


def check_leader_epochs(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``leader-epoch-regression``, ``leader-epoch-jump`` and ``negative-leader-epoch``.

    Versions 0 and 1 lack epochs. If an epoch is lower than that of the batch before, but not than those before that batch,
    the batch before has a wrong one, unless the checkpoint has its epoch (``is_too_high``).
    """
    for row in range(batches.count):
        epoch = batches.partition_leader_epoch[row]
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        if epoch < 0:
            report(batch_finding("negative-leader-epoch", batches, row, epoch=epoch))
            continue
        if epoch == state.leader_epoch:
            state.is_lone_epoch = False
            continue
        if epoch < state.leader_epoch:
            state.epochs_fall = True
            if state.is_lone_epoch and is_too_high(
                state.leader_epoch,
                state.earlier_epoch,
                (epoch,),
                known_epochs(settings.stored_epochs(), state.epoch_first),
            ):
                report(_too_high_epoch(state, epoch))
                state.is_lone_epoch = epoch > state.earlier_epoch
            else:
                facts = {"epoch": epoch, "previous": state.leader_epoch, "why": epoch_regression(state.leader_epoch)}
                report(batch_finding("leader-epoch-regression", batches, row, **facts))
                state.earlier_epoch, state.is_lone_epoch = -1, False
        else:
            state.earlier_epoch, state.is_lone_epoch = state.leader_epoch, True
        step = epoch - max(state.leader_epoch, 0)
        if step > LARGEST_EPOCH_STEP:
            report(batch_finding("leader-epoch-jump", batches, row, epoch=epoch, step=step))
        if state.first_leader_epoch < 0:
            state.first_leader_epoch = epoch
        state.leader_epoch = epoch
        state.epoch_position, state.epoch_end = batches.position[row], batches.position[row] + batches.size[row]
        state.epoch_first, state.epoch_last = batches.base_offset[row], batches.last_offset[row]


def is_too_high(epoch: int, before: int, following: Iterable[int], known: Sequence[int]) -> bool:
    """Return whether a batch that alone has an ``epoch`` can't have it: the epochs before and after it show that.

    ``before`` is the epoch before it, -1 for none, ``following`` are the next ones. ``known`` are the epochs that the
    checkpoint has at the batch: a broker writes a new epoch there before the first batch (``LeaderEpochFileCache.assign``).
    """
    return epoch not in known and all(max(before, 0) <= each < epoch for each in following)


def known_epochs(stored: Iterable[tuple[int, int]], offset: int) -> list[int]:
    """Return the epochs of the (epoch, start offset) of a checkpoint that start at an offset or before it."""
    return [epoch for epoch, start in stored if start <= offset]


def _too_high_epoch(state: CheckState, following: int) -> Finding:
    facts = {"epoch": state.leader_epoch, "previous": state.earlier_epoch, "why": too_high_epoch(following)}
    place = state.epoch_position, state.epoch_end, state.epoch_first, state.epoch_last
    return Finding("leader-epoch-regression", *place, facts)


def epoch_regression(previous: int) -> str:
    """Return the ``why`` of ``leader-epoch-regression`` for a batch with an epoch below ``previous``."""
    return f"is below the previous epoch {previous}"


def too_high_epoch(following: int) -> str:
    """Return the ``why`` for a single batch with an epoch above ``following``, the next one."""
    return f"is above the next epoch {following}; without it, the epochs do not decrease"


def check_append_times(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``append-time-regression``: a leader sets LogAppendTime from one clock while it holds the lock of the log."""
    for row in range(batches.count):
        if not batches.attributes[row] & LOG_APPEND_TIME or not batches.magic[row] or not batches.selected[row]:
            continue
        timestamp, epoch = batches.max_timestamp[row], batches.partition_leader_epoch[row]
        if state.first_append_time < 0:
            state.first_append_time, state.first_append_epoch = timestamp, epoch
        elif timestamp < state.append_time and epoch == state.append_epoch:
            leader = "under the same leader" if batches.magic[row] >= 2 else "whose leader v1 does not name"
            facts: dict[str, Any] = {"timestamp": timestamp, "previous": state.append_time, "leader": leader}
            facts["back"] = facts["previous"] - facts["timestamp"]  # as objects: the difference can exceed 64 bits
            report(batch_finding("append-time-regression", batches, row, **facts))
        state.append_time, state.append_epoch = timestamp, epoch


def check_magic_order(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``magic-downgrade`` if a batch has a lower version than the previous one."""
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        if batches.magic[row] < state.magic:
            facts = {"magic": batches.magic[row], "previous": state.magic}
            report(batch_finding("magic-downgrade", batches, row, **facts))
        if state.first_magic < 0:
            state.first_magic = batches.magic[row]
        state.magic = batches.magic[row]


def leader_epochs_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the leader epochs of the later part follow those of the earlier part."""
    first = after.first_leader_epoch
    return first < 0 or (before.leader_epoch <= first <= LARGEST_EPOCH_STEP and not after.epochs_fall)


def append_times_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the append times of the later part are not before those of the earlier part."""
    return after.first_append_epoch != before.append_epoch or not 0 <= after.first_append_time < before.append_time


def magics_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the version of the later part is not below that of the earlier part."""
    return not 0 <= after.first_magic < before.magic
