"""Checks within one segment, each a loop over columns that reports what it finds and goes on.

A check sees only what framing let through with a good CRC: most interesting faults sit behind a valid one. The
limits are Kafka's (LogValidator, ProducerStateManager, LogSegment.recover). State that outlives a window is in
``CheckState``. To add one: a row in ``findings.RULES``, a function here in its table, a damaged fixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding, Report
from kseg.format.record.bounded_map import LIMIT, BoundedMap
from kseg.format.record.framing import BatchColumns, clamped, increment_sequence
from kseg.format.record.layout import (
    CODEC_MASK,
    CONTROL,
    DEFAULT_MAX_MESSAGE_BYTES,
    INT32_MAX,
    INT64_MAX,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    V0_RESERVED,
    V1_RESERVED,
    V2_RESERVED,
)
from kseg.format.record.offset_evidence import base_offset_proved_wrong

#: message.timestamp.after.max.ms, as brokers default to it (KIP-937).
FUTURE_TOLERANCE_MS = 60 * 60 * 1000
# Seconds since 1995 to 2286 read as milliseconds are January to April 1970; microseconds lie past the year 5000.
SECONDS = (800_000_000, 10_000_000_000)
MICROSECONDS = 100_000_000_000_000
NANOSECONDS = 100_000_000_000_000_000

#: What a segment by itself can say of an offset gap.
UNEXPLAINED_GAP = "compaction, markers, or loss"

# C globals when compiled (see the .pxd).
CODEC = CODEC_MASK
CONTROL_BIT = CONTROL
TRANSACTIONAL_BIT = TRANSACTIONAL
APPEND_TIME = LOG_APPEND_TIME
RESERVED_V0 = V0_RESERVED
RESERVED_V1 = V1_RESERVED
RESERVED_V2 = V2_RESERVED
REACH = INT32_MAX
MOST = LIMIT


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What the file itself can't say. ``now`` is epoch milliseconds, ``name_offset`` the file name's offset.

    ``deep`` is whether entries are opened, too: then their records are counted, and the header's count is not judged.
    """

    now: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compacted: bool = False
    name_offset: int | None = None
    deep: bool = False


class CheckState:
    """What checks remember of the entries before: one for each segment, handed from window to window."""

    def __init__(self) -> None:
        self.begun = False
        self.end = 0  # the byte behind the last entry seen
        self.last_offset = -1
        self.highest_offset = -1
        # Positions, in the window at hand, of entries whose base offset is known to be wrong.
        self.misplaced: set[int] = set()
        self.misnamed = False
        # Of opened entries, the last offset so far, and the first of a wrapper that came first.
        self.last_opened = -1
        self.first_opened = -1
        self.base = -1  # what the offsets of the segment's indexes count from
        # As check_producers counts them: one loop runs ahead of the other by a window.
        self.gaps = 0
        self.next_offset = 0
        self.leader_epoch = -1
        self.magic = -1
        # The append time of the last batch that has one, its leader epoch (-1 of v1), and the same of the first.
        self.append_time = -1
        self.append_epoch = -1
        self.first_append_time = -1
        self.first_append_epoch = -1
        # Whether an opened entry has a record without a key, and whether a wrapper lacks messages, as by compaction.
        self.keyless = False
        self.thinned = False
        # producer id -> (epoch, next sequence or -1, gaps at that time, whether a marker came last)
        self.producers = BoundedMap()
        # What came first, for whoever read the part of the file before: see `follows`, which is asked of all producers.
        self.first_leader_epoch = -1
        self.first_producers: dict[int, tuple[int, int]] = {}  # producer id -> (epoch, base sequence, -1 of a marker)


def states_join(before: CheckState, after: CheckState) -> bool:
    """Whether the checks of two neighbouring parts of a file, each begun afresh, say what one run over both would.

    Offsets aside: the first entry of the later part is to be run through check_offsets by itself.
    """
    if 0 <= after.first_leader_epoch < before.leader_epoch:
        return False
    if 0 <= after.first_opened <= before.last_opened:
        return False
    if after.first_append_epoch == before.append_epoch and 0 <= after.first_append_time < before.append_time:
        return False
    if after.base != before.base and after.highest_offset - INT32_MAX > before.base:
        return False
    if before.producers.old or after.producers.old:
        return False  # what one run would have forgotten is not known
    added = 0
    for producer_id, (epoch, sequence) in after.first_producers.items():
        known = before.producers.get(producer_id)
        if known is None:
            added += 1
            continue
        known_epoch, expected, gaps, _ = known
        if epoch != known_epoch or gaps != before.gaps or (sequence >= 0 and sequence != expected):
            return False
    return len(before.producers.young) + added <= LIMIT


def batch_finding(rule: str, batches: BatchColumns, row: int, **facts: Any) -> Finding:
    """A finding about a whole entry."""
    wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
    return Finding(
        rule,
        position=batches.position[row],
        end=batches.position[row] + batches.size[row],
        offset=None if wrapper else batches.base_offset[row],
        last_offset=batches.last_offset[row],
        facts=facts,
    )


def check_offsets(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``non-monotonic-offset`` and ``offset-gap``, against the entry right before; a break explains a gap."""
    history.misplaced = set()
    name = -1 if limits.name_offset is None else clamped(limits.name_offset)
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC
        last = batches.last_offset[row]
        first = last if batches.magic[row] < 2 else clamped(batches.base_offset[row])
        previous = history.last_offset
        if not history.begun:
            history.begun = True
            if (
                name >= 0
                and batches.position[row] == 0
                and base_offset_proved_wrong(batches, row, batches, row + 1, name - 1)
            ):
                report(misplaced_offset_finding(batches, row, name - 1, "the file's name and the next entry"))
                history.misplaced.add(batches.position[row])
                last += name - first
        elif first != previous + 1:
            if base_offset_proved_wrong(batches, row, batches, row + 1, previous):
                report(misplaced_offset_finding(batches, row, previous))
                history.misplaced.add(batches.position[row])
                last += previous + 1 - first
            elif first <= previous:
                report(batch_finding("non-monotonic-offset", batches, row, offset=first, previous=previous, note=""))
            elif not wrapper and first != history.highest_offset + 1 and batches.position[row] == history.end:
                report(_gap(batches.position[row], previous + 1, first - 1))
        history.last_offset = last
        if last > history.highest_offset:
            history.highest_offset = last
        # An entry that ends before it begins is a break, too.
        history.end = batches.position[row] + batches.size[row] if last >= first or batches.magic[row] < 2 else -1


def misplaced_offset_finding(
    batches: BatchColumns, row: int, previous: int, witness: str = "the entries around it"
) -> Finding:
    """``non-monotonic-offset`` of an entry whose base offset its neighbours prove to be ``expected``."""
    note = f"; {witness} leave it the place from {previous + 1} on, so its base offset is wrong"
    facts = {"offset": batches.base_offset[row], "previous": previous, "expected": previous + 1, "note": note}
    return batch_finding("non-monotonic-offset", batches, row, **facts)


def _gap(position: int, first: int, last: int) -> Finding:
    facts = {"first": first, "last": last, "why": UNEXPLAINED_GAP}
    return Finding("offset-gap", position=position, end=position, offset=first, last_offset=last, facts=facts)


def check_offset_range(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``invalid-offset-range`` of entries that end behind what the segment's indexes can hold."""
    base = history.base
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        if base < 0 and batches.position[row] in history.misplaced:
            continue
        if base < 0:
            base = history.base = indexed_base_offset(batches, row, limits.name_offset)
        if base < 0 or batches.last_offset[row] <= base + REACH:
            continue
        if batches.position[row] not in history.misplaced:
            report(offset_range_finding(batches, row, base + REACH + 1))


def indexed_base_offset(batches: BatchColumns, row: int, name: int | None) -> int:
    """What offsets count from in a segment that begins with that entry: its name, unless that can't be right."""
    first = clamped(batches.base_offset[row])
    return name if name is not None and name <= first and batches.last_offset[row] - name <= INT32_MAX else first


def offset_range_finding(batches: BatchColumns, row: int, ceiling: int) -> Finding:
    """``invalid-offset-range`` of an entry whose segment ends before offset ``ceiling``: its offsets are no witness."""
    begin, last = batches.position[row], batches.last_offset[row]
    delta = last - clamped(batches.base_offset[row]) if batches.magic[row] >= 2 else 0
    facts = {"delta": delta, "why": f"it ends at offset {last}, and its segment before {ceiling}"}
    return Finding("invalid-offset-range", begin, begin + batches.size[row], facts=facts)


def check_file_name(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``file-name-mismatch``: the first entry whose offsets the indexes of a segment of that name can't hold."""
    if limits.name_offset is None or history.misnamed:
        return
    name = limits.name_offset
    # Past the range of a name that fits the first entry it is the entry that is wrong: see check_reach.
    last = INT64_MAX if history.base == name else name + INT32_MAX
    for row in range(batches.count):
        if batches.base_offset[row] >= name and batches.last_offset[row] <= last:
            continue
        if not batches.selected[row] or batches.position[row] in history.misplaced:
            continue
        if batches.base_offset[row] < name:
            why = f"an entry begins before it at {batches.base_offset[row]}"
        else:
            why = f"an entry ends past its 32-bit range at {batches.last_offset[row]}"
        report(batch_finding("file-name-mismatch", batches, row, name=name, why=why))
        history.misnamed = True
        return


def check_size(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``oversize-entry``: max.message.bytes counts the whole entry (UnifiedLog.append)."""
    limit = limits.max_message_bytes
    for row in range(batches.count):
        if batches.size[row] > limit and batches.selected[row]:
            report(batch_finding("oversize-entry", batches, row, size=batches.size[row], limit=limit))


def check_counts(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``invalid-offset-range``, and a ``record-count-mismatch`` that the header alone shows."""
    deep = limits.deep
    for row in range(batches.count):
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        base = batches.base_offset[row]
        delta = batches.last_offset[row] - clamped(base)
        count = batches.record_count[row]
        if base < 0 and batches.position[row] in history.misplaced:
            continue
        if base < 0:
            report(
                batch_finding(
                    "invalid-offset-range",
                    batches,
                    row,
                    delta=delta,
                    why=f"the base offset is {base}, which is negative",
                )
            )
        elif delta < 0:
            report(batch_finding("invalid-offset-range", batches, row, delta=delta, why="it can't be negative"))
        elif deep:
            continue
        elif count < 0:
            report(batch_finding("record-count-mismatch", batches, row, count=count, why="it can't be negative"))
        elif count > delta + 1:
            why = f"its last offset delta of {delta} has room for {delta + 1}"
            report(batch_finding("record-count-mismatch", batches, row, count=count, why=why))


def check_attributes(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``reserved-attribute-bits`` of entries."""
    for row in range(batches.count):
        magic = batches.magic[row]
        mask = RESERVED_V2 if magic >= 2 else RESERVED_V1 if magic == 1 else RESERVED_V0
        bits = batches.attributes[row] & mask
        if bits and batches.selected[row]:
            report(batch_finding("reserved-attribute-bits", batches, row, bits=bits, where=""))


def check_timestamps(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``future-timestamp``, ``timestamp-unit``, ``invalid-timestamp``, by the entry's largest timestamp."""
    future = limits.now + FUTURE_TOLERANCE_MS
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
            ahead = _duration(timestamp - limits.now)
            report(batch_finding("future-timestamp", batches, row, timestamp=timestamp, ahead=ahead))


def unit_of(timestamp: int) -> str:
    """The unit that a timestamp seems to have been written in by mistake; empty where it may be milliseconds."""
    if timestamp >= MICROSECONDS:
        return "nanoseconds" if timestamp >= NANOSECONDS else "microseconds"
    seconds_begin, seconds_end = SECONDS
    return "seconds" if seconds_begin <= timestamp < seconds_end else ""


def _duration(milliseconds: int) -> str:
    hours = milliseconds // 3_600_000
    return f"{hours} h" if hours < 72 else f"{hours // 24} days"


def check_leader_epochs(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``leader-epoch-regression`` and ``negative-leader-epoch``; v0 and v1 have no epoch."""
    for row in range(batches.count):
        epoch = batches.partition_leader_epoch[row]
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        if epoch < 0:
            report(batch_finding("negative-leader-epoch", batches, row, epoch=epoch))
            continue
        if epoch < history.leader_epoch:
            facts = {"epoch": epoch, "previous": history.leader_epoch}
            report(batch_finding("leader-epoch-regression", batches, row, **facts))
        if history.first_leader_epoch < 0:
            history.first_leader_epoch = epoch
        history.leader_epoch = epoch


def check_append_times(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``append-time-regression``: one leader sets LogAppendTime by one clock, while it holds the log's lock."""
    for row in range(batches.count):
        if not batches.attributes[row] & APPEND_TIME or not batches.magic[row] or not batches.selected[row]:
            continue
        timestamp, epoch = batches.max_timestamp[row], batches.partition_leader_epoch[row]
        if history.first_append_time < 0:
            history.first_append_time, history.first_append_epoch = timestamp, epoch
        elif timestamp < history.append_time and epoch == history.append_epoch:
            facts = {"timestamp": timestamp, "previous": history.append_time, "back": history.append_time - timestamp}
            report(batch_finding("append-time-regression", batches, row, **facts))
        history.append_time, history.append_epoch = timestamp, epoch


def check_magic_order(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """``magic-downgrade``, where the version goes back."""
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        if batches.magic[row] < history.magic:
            facts = {"magic": batches.magic[row], "previous": history.magic}
            report(batch_finding("magic-downgrade", batches, row, **facts))
        history.magic = batches.magic[row]


def check_producers(batches: BatchColumns, limits: CheckSettings, history: CheckState, report: Report) -> None:
    """Idempotence as ProducerStateManager checks it on produce: epochs, sequences, duplicates.

    An entry that is missing explains a gap: after a hole in offsets, be it by compaction or by damage, the next
    sequence is taken as it is.
    """
    for row in range(batches.count):
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        if batches.base_offset[row] != history.next_offset:
            history.gaps += 1
        history.next_offset = batches.last_offset[row] + 1
        if batches.producer_id[row] >= 0 or batches.attributes[row] & TRANSACTIONAL_BIT:
            why = _producer_contradiction(batches, row)
            if why:
                facts = {"producer_id": batches.producer_id[row], "sequence": batches.base_sequence[row], "why": why}
                report(batch_finding("inconsistent-producer", batches, row, **facts))
            if batches.producer_id[row] >= 0:
                _check_sequence(batches, row, limits.compacted, history, report)


def _producer_contradiction(batches: BatchColumns, row: int) -> str:
    # Coordinators write base sequence 0 without an id: no contradiction.
    if batches.producer_id[row] < 0:
        return "transactional without an id"
    if batches.producer_epoch[row] < 0:
        return "an id without an epoch"
    if batches.base_sequence[row] < 0 and not batches.attributes[row] & CONTROL_BIT:
        return "an id without a sequence"
    return ""


def _check_sequence(batches: BatchColumns, row: int, compacted: bool, history: CheckState, report: Report) -> None:
    producer_id = batches.producer_id[row]
    epoch = batches.producer_epoch[row]
    sequence = batches.base_sequence[row]
    control = batches.attributes[row] & CONTROL_BIT
    if sequence < 0 and not control:
        return
    known_epoch, expected, gaps, ended = -1, -1, -1, False
    known = history.producers.get(producer_id)
    if known is not None:
        known_epoch, expected, gaps, ended = known
    elif len(history.first_producers) < MOST:
        history.first_producers[producer_id] = (epoch, -1 if control else sequence)
    if epoch < known_epoch:
        facts = {"producer_id": producer_id, "epoch": epoch, "previous": known_epoch}
        report(batch_finding("producer-epoch-regression", batches, row, **facts))
        expected = -1  # sequences count within an epoch
    if epoch > known_epoch >= 0:
        expected = 0
    newest = max(epoch, known_epoch)
    if control:
        # Under transactions v2 (KIP-890) a marker may raise the epoch: the next write then begins at 0. A hole before
        # the marker still explains a gap behind it.
        history.producers.put(producer_id, (newest, expected, gaps, True))
        return
    # A group coordinator writes each transaction's offset commits from 0: its sequences are not checked by Kafka
    # either (AppendOrigin.COORDINATOR), and a lone file does not tell whose they are.
    coordinator = ended and sequence == 0
    last = increment_sequence(sequence, batches.last_offset[row] - clamped(batches.base_offset[row]))
    if sequence != expected >= 0 and gaps == history.gaps and not compacted and not coordinator:
        if epoch == known_epoch and sequence < expected and expected - sequence <= INT32_MAX // 2:
            facts = {"producer_id": producer_id, "first": sequence, "last": last}
            report(batch_finding("duplicate-sequence", batches, row, **facts))
        else:
            facts = {"producer_id": producer_id, "sequence": sequence, "expected": expected}
            report(batch_finding("sequence-gap", batches, row, **facts))
    history.producers.put(producer_id, (newest, increment_sequence(last, 1), history.gaps, False))


BATCH_CHECKS = (
    check_offsets,
    check_offset_range,
    check_file_name,
    check_size,
    check_counts,
    check_attributes,
    check_timestamps,
    check_leader_epochs,
    check_append_times,
    check_magic_order,
    check_producers,
)
