"""Checks of batch headers: size, counts, attributes, timestamps, leader epochs and versions.

Compiled with the types of ``batch_checks.pxd``. A check skips batches whose CRC is wrong. The limits are those of Kafka's
``LogValidator`` and ``UnifiedLog``. To add a check, see ``table``.
"""

from __future__ import annotations

from kseg.findings import Report
from kseg.format.checks.check_state import CheckSettings, CheckState, batch_finding
from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped
from kseg.format.record.layout import LOG_APPEND_TIME, V0_RESERVED, V1_RESERVED, V2_RESERVED
from kseg.text import count_of

#: A larger step of the leader epoch is probably damage: an epoch is one election of a leader.
LARGEST_EPOCH_STEP = 1_000_000
# Seconds of the years 1995 to 2286, read as milliseconds, are January to April 1970. Microseconds are past the year 5000.
SECONDS = (800_000_000, 10_000_000_000)
MICROSECONDS = 100_000_000_000_000
NANOSECONDS = 100_000_000_000_000_000

# C constants when compiled.
APPEND_TIME = LOG_APPEND_TIME
EPOCH_STEP = LARGEST_EPOCH_STEP
RESERVED_V0 = V0_RESERVED
RESERVED_V1 = V1_RESERVED
RESERVED_V2 = V2_RESERVED


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
        if base < 0:
            report(
                batch_finding(
                    "invalid-offset-range",
                    batches,
                    row,
                    delta=delta,
                    why=f"the base offset {base} is negative",
                )
            )
        elif delta < 0:
            report(batch_finding("invalid-offset-range", batches, row, delta=delta, why="it cannot be negative"))
        elif deep:
            continue
        elif count < 0:
            report(
                batch_finding("record-count-mismatch", batches, row, count=count, why="the count cannot be negative")
            )
        elif count > delta + 1:
            why = f"the last offset delta {delta} allows {count_of(delta + 1, 'record')}"
            report(batch_finding("record-count-mismatch", batches, row, count=count, why=why))


def check_attributes(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``reserved-attribute-bits`` of batches."""
    for row in range(batches.count):
        magic = batches.magic[row]
        mask = RESERVED_V2 if magic >= 2 else RESERVED_V1 if magic == 1 else RESERVED_V0
        bits = batches.attributes[row] & mask
        if bits and batches.selected[row]:
            report(batch_finding("reserved-attribute-bits", batches, row, bits=bits, where=""))


def check_timestamps(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``future-timestamp``, ``timestamp-unit`` and ``invalid-timestamp`` for the largest timestamp of each batch."""
    future = settings.now + settings.future_ms
    seconds_begin, seconds_end = SECONDS
    for row in range(batches.count):
        timestamp = batches.max_timestamp[row]
        if seconds_end <= timestamp <= future or -1 <= timestamp < seconds_begin or not batches.selected[row]:
            continue
        if timestamp < -1:
            report(batch_finding("invalid-timestamp", batches, row, timestamp=timestamp))
        elif unit := unit_of(timestamp):
            report(batch_finding("timestamp-unit", batches, row, timestamp=timestamp, unit=unit))
        else:
            ahead = _duration(timestamp - settings.now)
            report(batch_finding("future-timestamp", batches, row, timestamp=timestamp, ahead=ahead))


def unit_of(timestamp: int) -> str:
    """Return the unit in which a timestamp seems to be written by mistake, or "" if it may be milliseconds."""
    if timestamp >= MICROSECONDS:
        return "nanoseconds" if timestamp >= NANOSECONDS else "microseconds"
    seconds_begin, seconds_end = SECONDS
    return "seconds" if seconds_begin <= timestamp < seconds_end else ""


def _duration(milliseconds: int) -> str:
    hours = milliseconds // 3_600_000
    if not hours:
        return count_of(milliseconds // 1000, "second")
    return count_of(hours, "hour") if hours < 72 else count_of(hours // 24, "day")


def check_leader_epochs(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``leader-epoch-regression``, ``leader-epoch-jump`` and ``negative-leader-epoch``.

    Versions 0 and 1 lack epochs.
    """
    for row in range(batches.count):
        epoch = batches.partition_leader_epoch[row]
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        if epoch < 0:
            report(batch_finding("negative-leader-epoch", batches, row, epoch=epoch))
            continue
        if epoch < state.leader_epoch:
            facts = {"epoch": epoch, "previous": state.leader_epoch}
            report(batch_finding("leader-epoch-regression", batches, row, **facts))
        elif epoch > EPOCH_STEP and epoch - max(state.leader_epoch, 0) > EPOCH_STEP:
            report(
                batch_finding("leader-epoch-jump", batches, row, epoch=epoch, step=epoch - max(state.leader_epoch, 0))
            )
        if state.first_leader_epoch < 0:
            state.first_leader_epoch = epoch
        state.leader_epoch = epoch


def check_append_times(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``append-time-regression``: a leader sets LogAppendTime from one clock while it holds the lock of the log."""
    for row in range(batches.count):
        if not batches.attributes[row] & APPEND_TIME or not batches.magic[row] or not batches.selected[row]:
            continue
        timestamp, epoch = batches.max_timestamp[row], batches.partition_leader_epoch[row]
        if state.first_append_time < 0:
            state.first_append_time, state.first_append_epoch = timestamp, epoch
        elif timestamp < state.append_time and epoch == state.append_epoch:
            facts = {"timestamp": timestamp, "previous": state.append_time, "back": state.append_time - timestamp}
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
    return first < 0 or (before.leader_epoch <= first <= LARGEST_EPOCH_STEP)


def append_times_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the append times of the later part are not before those of the earlier part."""
    return after.first_append_epoch != before.append_epoch or not 0 <= after.first_append_time < before.append_time


def magics_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the version of the later part is not below that of the earlier part."""
    return not 0 <= after.first_magic < before.magic
