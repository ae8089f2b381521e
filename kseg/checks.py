"""Checks within one segment, each a loop over columns that reports what it finds and goes on.

A check sees only what framing let through with a good CRC: most interesting faults sit behind a valid one. The
limits are Kafka's (LogValidator, ProducerStateManager, LogSegment.recover). State that outlives a window is in
``History``. To add one: a row in ``findings.RULES``, a function here in its table, a damaged fixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg import control_records
from kseg.deep_iteration import Chunk
from kseg.findings import Finding, Report
from kseg.kernel import CRC_BAD, BatchColumns, RecordColumns, clamped
from kseg.log_format import CODEC_MASK, CONTROL, DEFAULT_MAX_MESSAGE_BYTES, INT32_MAX, LOG_APPEND_TIME
from kseg.log_format import TRANSACTIONAL, V0_RESERVED, V1_RESERVED, V2_RESERVED
from kseg.records import increment_sequence

#: message.timestamp.after.max.ms, as brokers default to it (KIP-937).
FUTURE_TOLERANCE_MS = 60 * 60 * 1000
# Seconds since 1995 to 2286 read as milliseconds are January to April 1970; microseconds lie past the year 5000.
SECONDS = (800_000_000, 10_000_000_000)
MICROSECONDS = 100_000_000_000_000
NANOSECONDS = 100_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What the file itself can't say. ``now`` is epoch milliseconds, ``name_offset`` the file name's offset."""

    now: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compacted: bool = False
    name_offset: int | None = None


class History:
    """What checks remember of the entries before: one for each segment, handed from window to window."""

    def __init__(self) -> None:
        self.end = 0  # the byte behind the last entry seen
        self.last_offset: int | None = None
        self.highest_offset = -1
        # As check_producers counts them: one loop runs ahead of the other by a window.
        self.gaps = 0
        self.next_offset = 0
        self.leader_epoch = -1
        self.magic = -1
        # producer id -> (epoch, next sequence or -1, gaps at that time, whether a marker came last)
        self.producers: dict[int, tuple[int, int, int, bool]] = {}


class Checker:
    """Runs every check of the tables over windows and chunks of one segment."""

    def __init__(self, limits: Limits, report: Report) -> None:
        self.limits = limits
        self.report = report
        self.history = History()

    def check_batches(self, batches: BatchColumns) -> None:
        """The batch checks, over the sound rows of a window."""
        for check in BATCH_CHECKS:
            check(batches, self.limits, self.history, self.report)

    def check_records(self, chunk: Chunk) -> None:
        """The record checks, over a chunk of opened entries."""
        for check in RECORD_CHECKS:
            check(chunk.records, chunk.batches, self.limits, self.report)
        for chunk_check in CHUNK_CHECKS:
            chunk_check(chunk, self.report)


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


def record_finding(rule: str, records: RecordColumns, i: int, batches: BatchColumns, **facts: Any) -> Finding:
    """A finding about one record; ``index`` counts from its entry's first."""
    row = records.batch[i]
    first = i
    while first and records.batch[first - 1] == row:
        first -= 1
    offset = records.offset[i]
    return Finding(
        rule,
        position=batches.position[row],
        end=batches.position[row] + batches.size[row],
        offset=offset,
        last_offset=offset,
        facts={"index": i - first, "offset": offset, **facts},
    )


def check_offsets(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``non-monotonic-offset`` and ``offset-gap``, against the entry right before; a break explains a gap."""
    for row in range(batches.count):
        if batches.crc_state[row] == CRC_BAD:
            continue
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        first = batches.last_offset[row] if wrapper else batches.base_offset[row]
        previous = history.last_offset
        if previous is not None and first <= previous:
            report(batch_finding("non-monotonic-offset", batches, row, offset=first, previous=previous))
        elif previous is not None and not wrapper and first > previous + 1 and first != history.highest_offset + 1:
            if batches.position[row] == history.end:
                gap = {"first": previous + 1, "last": first - 1}
                report(
                    Finding("offset-gap", position=batches.position[row], end=batches.position[row],
                            offset=previous + 1, last_offset=first - 1, facts=gap)
                )  # fmt: skip
        history.last_offset = batches.last_offset[row]
        if batches.last_offset[row] > history.highest_offset:
            history.highest_offset = batches.last_offset[row]
        history.end = batches.position[row] + batches.size[row]


def check_file_name(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``file-name-mismatch``: offsets that the indexes of a segment of that name can't hold."""
    if limits.name_offset is None:
        return
    name = limits.name_offset
    for row in range(batches.count):
        if batches.crc_state[row] == CRC_BAD:
            continue
        if batches.base_offset[row] < name:
            why = f"an entry begins before it at {batches.base_offset[row]}"
            report(batch_finding("file-name-mismatch", batches, row, name=name, why=why))
        elif batches.last_offset[row] > name + INT32_MAX:
            why = f"an entry ends past its 32-bit range at {batches.last_offset[row]}"
            report(batch_finding("file-name-mismatch", batches, row, name=name, why=why))


def check_size(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``oversize-entry``: max.message.bytes counts the whole entry (UnifiedLog.append)."""
    for row in range(batches.count):
        if batches.size[row] > limits.max_message_bytes and batches.crc_state[row] != CRC_BAD:
            size = batches.size[row]
            report(batch_finding("oversize-entry", batches, row, size=size, limit=limits.max_message_bytes))


def check_counts(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``invalid-offset-range`` and a ``record-count-mismatch`` that the header alone shows."""
    for row in range(batches.count):
        if batches.magic[row] < 2 or batches.crc_state[row] == CRC_BAD:
            continue
        base = batches.base_offset[row]
        delta = batches.last_offset[row] - clamped(base)
        count = batches.record_count[row]
        if base < 0:
            report(batch_finding("invalid-offset-range", batches, row, delta=delta, why="the base offset is negative"))
        elif delta < 0:
            report(batch_finding("invalid-offset-range", batches, row, delta=delta, why="it can't be negative"))
        elif count < 0:
            report(batch_finding("record-count-mismatch", batches, row, count=count, why="it can't be negative"))
        elif count > delta + 1:
            why = f"its last offset delta of {delta} has room for {delta + 1}"
            report(batch_finding("record-count-mismatch", batches, row, count=count, why=why))


def check_attributes(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``reserved-attribute-bits`` of entries."""
    for row in range(batches.count):
        magic = batches.magic[row]
        mask = V2_RESERVED if magic >= 2 else V1_RESERVED if magic == 1 else V0_RESERVED
        bits = batches.attributes[row] & mask
        if bits and batches.crc_state[row] != CRC_BAD:
            report(batch_finding("reserved-attribute-bits", batches, row, bits=bits, where=""))


def check_timestamps(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``future-timestamp``, ``timestamp-unit``, ``invalid-timestamp``, by the entry's largest timestamp."""
    future = limits.now + FUTURE_TOLERANCE_MS
    for row in range(batches.count):
        timestamp = batches.max_timestamp[row]
        if batches.crc_state[row] == CRC_BAD or SECONDS[1] <= timestamp <= future or -1 <= timestamp < SECONDS[0]:
            continue
        if timestamp < -1:
            report(batch_finding("invalid-timestamp", batches, row, timestamp=timestamp))
        elif timestamp < SECONDS[1]:
            report(batch_finding("timestamp-unit", batches, row, timestamp=timestamp, unit="seconds"))
        elif timestamp >= MICROSECONDS:
            unit = "nanoseconds" if timestamp >= NANOSECONDS else "microseconds"
            report(batch_finding("timestamp-unit", batches, row, timestamp=timestamp, unit=unit))
        else:
            ahead = _duration(timestamp - limits.now)
            report(batch_finding("future-timestamp", batches, row, timestamp=timestamp, ahead=ahead))


def _duration(milliseconds: int) -> str:
    hours = milliseconds // 3_600_000
    return f"{hours} h" if hours < 72 else f"{hours // 24} days"


def check_leader_epochs(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``leader-epoch-regression``; -1, as of entries written before epochs, says nothing."""
    for row in range(batches.count):
        epoch = batches.partition_leader_epoch[row]
        if batches.magic[row] < 2 or epoch < 0 or batches.crc_state[row] == CRC_BAD:
            continue
        if epoch < history.leader_epoch:
            facts = {"epoch": epoch, "previous": history.leader_epoch}
            report(batch_finding("leader-epoch-regression", batches, row, **facts))
        history.leader_epoch = epoch


def check_magic_order(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """``magic-downgrade``, where the version goes back."""
    for row in range(batches.count):
        if batches.crc_state[row] == CRC_BAD:
            continue
        if batches.magic[row] < history.magic:
            facts = {"magic": batches.magic[row], "previous": history.magic}
            report(batch_finding("magic-downgrade", batches, row, **facts))
        history.magic = batches.magic[row]


def check_producers(batches: BatchColumns, limits: Limits, history: History, report: Report) -> None:
    """Idempotence as ProducerStateManager checks it on produce: epochs, sequences, duplicates.

    An entry that is missing explains a gap: after a hole in offsets, be it by compaction or by damage, the next
    sequence is taken as it is.
    """
    for row in range(batches.count):
        if batches.magic[row] < 2 or batches.crc_state[row] == CRC_BAD:
            continue
        if batches.base_offset[row] != history.next_offset:
            history.gaps += 1
        history.next_offset = batches.last_offset[row] + 1
        producer_id = batches.producer_id[row]
        sequence = batches.base_sequence[row]
        control = batches.attributes[row] & CONTROL
        why = _producer_contradiction(producer_id, batches.producer_epoch[row], sequence, batches.attributes[row])
        if why:
            facts = {"producer_id": producer_id, "sequence": sequence, "why": why}
            report(batch_finding("inconsistent-producer", batches, row, **facts))
        if producer_id < 0 or (sequence < 0 and not control):
            continue
        epoch = batches.producer_epoch[row]
        known_epoch, expected, gaps, ended = history.producers.get(producer_id, (-1, -1, -1, False))
        # A group coordinator writes each transaction's offset commits from 0: its sequences are not checked by Kafka
        # either (AppendOrigin.COORDINATOR), and a lone file does not tell whose they are.
        coordinator = ended and sequence == 0
        sure = gaps == history.gaps and not limits.compacted and not coordinator
        if epoch < known_epoch:
            facts = {"producer_id": producer_id, "epoch": epoch, "previous": known_epoch}
            report(batch_finding("producer-epoch-regression", batches, row, **facts))
        if control:
            # Under transactions v2 (KIP-890) a marker may raise the epoch: the next write then begins at 0.
            following = 0 if epoch > known_epoch >= 0 else expected
            history.producers[producer_id] = (max(epoch, known_epoch), following, history.gaps, True)
            continue
        last = increment_sequence(sequence, int(batches.last_offset[row] - clamped(batches.base_offset[row])))
        if epoch > known_epoch >= 0:
            expected = 0
        if sure and expected >= 0 and sequence != expected:
            behind = (expected - sequence) & INT32_MAX
            if epoch == known_epoch and behind < INT32_MAX // 2 and sequence < expected:
                facts = {"producer_id": producer_id, "first": sequence, "last": last}
                report(batch_finding("duplicate-sequence", batches, row, **facts))
            else:
                facts = {"producer_id": producer_id, "sequence": sequence, "expected": expected}
                report(batch_finding("sequence-gap", batches, row, **facts))
        following = increment_sequence(last, 1)
        history.producers[producer_id] = (max(epoch, known_epoch), following, history.gaps, False)


def _producer_contradiction(producer_id: int, epoch: int, sequence: int, attributes: int) -> str:
    if producer_id >= 0:
        if epoch < 0:
            return "an id without an epoch"
        if sequence < 0 and not attributes & CONTROL:
            return "an id without a sequence"
    # Coordinators write base sequence 0 without an id: no contradiction.
    elif attributes & TRANSACTIONAL:
        return "transactional without an id"
    return ""


def check_record_offsets(records: RecordColumns, batches: BatchColumns, limits: Limits, report: Report) -> None:
    """``record-offset-mismatch`` inside an entry; ``last-offset-mismatch`` where its last record ends early."""
    for i in range(records.count):
        row = records.batch[i]
        offset = records.offset[i]
        begins = i == 0 or records.batch[i - 1] != row
        if not begins and offset <= records.offset[i - 1]:
            why = f"does not follow {records.offset[i - 1]}"
            report(record_finding("record-offset-mismatch", records, i, batches, why=why))
        elif batches.magic[row] >= 2:
            if offset > batches.last_offset[row]:
                why = f"is past its batch's last, {batches.last_offset[row]}"
                report(record_finding("record-offset-mismatch", records, i, batches, why=why))
            elif offset < clamped(batches.base_offset[row]):
                why = f"is before its batch's first, {batches.base_offset[row]}"
                report(record_finding("record-offset-mismatch", records, i, batches, why=why))
            elif offset == batches.last_offset[row] or (i + 1 < records.count and records.batch[i + 1] == row):
                continue
            elif batches.intact[row]:
                facts = {"record": offset, "last": batches.last_offset[row]}
                report(batch_finding("last-offset-mismatch", batches, row, **facts))


def check_max_timestamps(records: RecordColumns, batches: BatchColumns, limits: Limits, report: Report) -> None:
    """``max-timestamp-mismatch`` of CreateTime entries: with LogAppendTime the header's is every record's."""
    largest = -1
    for i in range(records.count):
        row = records.batch[i]
        if i == 0 or records.batch[i - 1] != row or records.timestamp[i] > largest:
            largest = records.timestamp[i]
        if i + 1 < records.count and records.batch[i + 1] == row:
            continue
        if largest == batches.max_timestamp[row] or not batches.magic[row] or not batches.intact[row]:
            continue
        if not batches.attributes[row] & LOG_APPEND_TIME:
            facts = {"stored": batches.max_timestamp[row], "actual": largest}
            report(batch_finding("max-timestamp-mismatch", batches, row, **facts))


def check_keys(records: RecordColumns, batches: BatchColumns, limits: Limits, report: Report) -> None:
    """``null-key`` in a compacted topic."""
    if not limits.compacted:
        return
    for i in range(records.count):
        if records.key_size[i] < 0:
            report(record_finding("null-key", records, i, batches))


def check_record_attributes(records: RecordColumns, batches: BatchColumns, limits: Limits, report: Report) -> None:
    """``reserved-attribute-bits`` of v2 records, which use none."""
    for i in range(records.count):
        if records.attributes[i] and batches.magic[records.batch[i]] >= 2:
            facts = {"bits": records.attributes[i], "where": " on a record"}
            report(record_finding("reserved-attribute-bits", records, i, batches, **facts))


def check_control_records(chunk: Chunk, report: Report) -> None:
    """``malformed-control-record``: each control record decodes, and a transaction marker stands alone."""
    records, batches = chunk.records, chunk.batches
    for i in range(records.count):
        row = records.batch[i]
        if batches.magic[row] < 2 or not batches.attributes[row] & CONTROL:
            continue
        try:
            marker = control_records.decode(chunk.key(i), chunk.value(i))
        except control_records.MalformedControlRecord as error:
            report(record_finding("malformed-control-record", records, i, batches, why=str(error)))
            continue
        if marker.type in ("ABORT", "COMMIT"):
            if not batches.attributes[row] & TRANSACTIONAL:
                why = f"a {marker.type} marker in a batch that is not transactional"
                report(record_finding("malformed-control-record", records, i, batches, why=why))
            elif batches.record_count[row] != 1:
                why = f"a {marker.type} marker in a batch of {batches.record_count[row]} records"
                report(record_finding("malformed-control-record", records, i, batches, why=why))


def check_header_keys(chunk: Chunk, report: Report) -> None:
    """``invalid-header-key``: header keys are UTF-8 (KIP-82)."""
    records = chunk.records
    for i in range(records.count):
        if records.header_count[i]:
            for header in chunk.headers(i):
                if any("\udc80" <= character <= "\udcff" for character in header.key):
                    report(record_finding("invalid-header-key", records, i, chunk.batches))
                    break


BATCH_CHECKS = (
    check_offsets,
    check_file_name,
    check_size,
    check_counts,
    check_attributes,
    check_timestamps,
    check_leader_epochs,
    check_magic_order,
    check_producers,
)

RECORD_CHECKS = (
    check_record_offsets,
    check_max_timestamps,
    check_keys,
    check_record_attributes,
)

# These look at bytes, so they walk only the records that have what they check.
CHUNK_CHECKS = (check_control_records, check_header_keys)
