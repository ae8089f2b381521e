"""Checks of offsets, and of producer ids, epochs and sequences.

Compiled with the types of ``offset_checks.pxd``. Offsets: their order in the file, the range of the segment's indexes,
and the file's name, with the limits of Kafka's ``LogSegment``. Producers: as Kafka's ``ProducerStateManager`` checks them
on produce.
"""

from __future__ import annotations

from typing import Any

from kseg.findings import Finding, Report
from kseg.format.checks.batch_checks import CheckSettings, CheckState, batch_finding
from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, INT32_MAX, INT64_MAX, LARGE_JUMP, TRANSACTIONAL
from kseg.format.record.offset_evidence import (
    LIMIT,
    base_offset_proved_wrong,
    is_wrapper,
    leaps_by_one_bit,
    one_bit_apart,
    out_of_reach,
    span_of,
    too_far_by_one_bit,
)

#: The possible reasons of an offset gap, if only its segment is known.
UNEXPLAINED_GAP = "compaction, transaction markers or lost batches"
#: The ``note`` of ``non-monotonic-offset`` if nothing shows which offset is wrong.
MUST_INCREASE = ": offsets must increase"

#: The most gaps of a segment that are remembered; all are counted.
MAX_GAPS = 1_000

# The largest distance of an offset from the base offset of its segment.
REACH = INT32_MAX


def check_offsets(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``non-monotonic-offset`` and ``offset-gap``, compared with the batch right before.

    After a damaged range, a gap is not reported. A batch that is farther from the one before than a segment can reach is
    ``invalid-offset-range``, and shows nothing about other offsets. Only with ``deep`` wrappers have their first offset:
    then call it after the batches are decoded.
    """
    state.misplaced = set()
    state.claimed = set()
    name = -1 if settings.name_offset is None else clamped(settings.name_offset)
    deep = settings.deep
    for row in range(batches.count):
        if not batches.selected[row]:
            continue
        first = clamped(batches.base_offset[row])
        last = first if batches.magic[row] < 2 else batches.last_offset[row]
        span = last - first
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        if wrapper:
            span = span_of(batches, row, deep)
            if deep and not batches.magic[row] and _is_disproved_within(batches, row, state.last_offset):
                # The finding is ``wrapper-offset-mismatch``.
                first, last = batches.first_record_offset[row], batches.last_record_offset[row]
                span = last - first
                state.misplaced.add(batches.position[row])
            elif span >= 0:
                first = last - span if last else batches.first_record_offset[row]
        begun, previous = state.begun, state.last_offset if state.begun else name - 1
        if not begun:
            state.begun = True
            if wrapper and span >= 0:
                state.first_opened = first
        if (first != previous + 1) if begun else name >= 0:
            if batches.position[row] == state.end and base_offset_proved_wrong(batches, row, previous, deep):
                first, last = previous + 1, previous + 1 + span
                witness = "the batches around it" if begun else "the file name and the next batch"
                report(misplaced_offset_finding(batches, row, previous, last, witness, name_offset=name))
                state.misplaced.add(batches.position[row])
            elif _is_passed_over(batches, row, first, last, previous, begun, state, report):
                state.end = -1
                continue
            elif begun:
                _check_step(batches, row, first, last, span, previous, settings, state, report)
        state.last_offset = last
        if last > state.highest_offset:
            state.highest_offset = last
        # A batch that ends before it begins also explains a gap.
        state.end = batches.position[row] + batches.size[row] if last >= first or batches.magic[row] < 2 else -1


def _is_passed_over(
    batches: BatchColumns,
    row: int,
    first: int,
    last: int,
    previous: int,
    begun: bool,
    state: CheckState,
    report: Report,
) -> bool:
    """Return whether the offsets ``first`` to ``last`` of a batch show nothing about those of the log; report why.

    ``previous`` is the last offset before it, by the file name if not ``begun``.
    """
    if begun and first > previous + REACH and last >= first:
        report(offset_range_finding(batches, row, previous + REACH + 1))
        state.misplaced.add(batches.position[row])
        return True
    far = previous + LARGE_JUMP if begun else previous + 1 + LARGE_JUMP
    if first <= far or not _is_left_out(batches, row, first, previous, state, report):
        return False
    if not begun:
        state.last_offset = state.highest_offset = previous
    return True


def _check_step(
    batches: BatchColumns, row: int, first: int, last: int, span: int, previous: int, settings: CheckSettings,
    state: CheckState, report: Report,
) -> None:  # fmt: skip
    """Report a batch whose first offset is not the one after ``previous``: it decreases, or leaves a gap."""
    position, wrapper = batches.position[row], is_wrapper(batches, row)
    if first <= previous:
        report(_decrease(batches, row, last if wrapper and last <= previous else first, previous))
        return
    if not (settings.gaps or position in state.claimed) or first == state.highest_offset + 1 or position != state.end:
        return
    if not wrapper:
        report(gap_finding("offset-gap", position, previous + 1, first - 1, UNEXPLAINED_GAP))
    elif span >= 0 and previous == state.highest_offset:
        report(wrapper_gap(state, position, previous + 1, first - 1))


def _is_left_out(batches: BatchColumns, row: int, first: int, previous: int, state: CheckState, report: Report) -> bool:
    """Return whether a batch that begins far after ``previous`` shows nothing about the offsets of the log.

    The next batch, if it is before this one, is a second witness against it: that is reported. Without a next batch, an
    offset that one flipped bit explains is a claim of the header.
    """
    if row + 1 < batches.count:
        following = batches.last_offset[row + 1]
        if not previous < following < first or following > previous + REACH:
            return False
        report(_left_out_finding(batches, row, previous, following))
        state.misplaced.add(batches.position[row])
        return True
    if too_far_by_one_bit(batches.last_offset[row], previous) or first > previous + REACH:
        state.claimed.add(batches.position[row])
    return False


def _is_disproved_within(batches: BatchColumns, row: int, previous: int) -> bool:
    """Return whether one bit in the header of a v0 wrapper is wrong: the offsets in it, under its CRC, follow ``previous``.

    The wrapper must be decoded.
    """
    last = batches.last_record_offset[row]
    if batches.record_sum[row] <= 0 or last == batches.last_offset[row]:
        return False
    return previous < batches.first_record_offset[row] <= last and one_bit_apart(last, batches.last_offset[row])


def _decrease(batches: BatchColumns, row: int, first: int, previous: int) -> Finding:
    inner = is_wrapper(batches, row) and first != clamped(batches.base_offset[row])
    note = f" (of the first message in a compressed message set){MUST_INCREASE}" if inner else MUST_INCREASE
    found = batch_finding("non-monotonic-offset", batches, row, offset=first, previous=previous, note=note)
    if first >= 0:
        return found
    facts = {**found.facts, "note": ": the header claims it, but offsets are not negative"}
    return found._replace(offset=None, last_offset=None, facts=facts)


def _left_out_finding(batches: BatchColumns, row: int, previous: int, following: int) -> Finding:
    if batches.last_offset[row] > previous + REACH:
        return offset_range_finding(batches, row, previous + REACH + 1)
    claimed = batches.base_offset[row]
    facts = {"offset": claimed, "previous": previous, "note": f": the header claims it, but offset {following} follows"}
    return batch_finding("non-monotonic-offset", batches, row, **facts)._replace(offset=None, last_offset=None)


def misplaced_offset_finding(
    batches: BatchColumns,
    row: int,
    previous: int,
    last: int,
    witness: str = "the batches around it",
    *,
    proved: bool = False,
    name_offset: int = -1,
) -> Finding:
    """Return ``non-monotonic-offset`` for a batch that fits only at the offsets after ``previous``, up to ``last``.

    The finding has the offsets that fit, and the offset of the file name if the last one that is claimed is below it. A
    wrapper's header has its last offset.
    """
    stored = batches.base_offset[row]
    wrapper = is_wrapper(batches, row)
    expected, field = (last, "last offset") if wrapper else (previous + 1, "base offset")
    note = expected_offset_note(stored, expected, witness, proved=proved, field=field)
    facts = {"offset": stored, "previous": previous, "expected": expected, "note": note}
    if batches.last_offset[row] < name_offset:
        facts["name"] = name_offset
    found = batch_finding("non-monotonic-offset", batches, row, **facts)
    return found._replace(offset=previous + 1, last_offset=last)


def expected_offset_note(
    stored: int, expected: int, witness: str, *, proved: bool = False, field: str = "base offset"
) -> str:
    """Return the ``note`` for a ``field`` that should be ``expected``: that is proved, or only fits.

    It is proved under the condition that repair has, too (``BaseOffsetProof``): a batch within the reach of its segment can
    have been moved there, and only the whole partition shows that.
    """
    proved = proved or out_of_reach(stored, expected)
    fits = f"prove that its {field} is {expected}" if proved else f"fit {field} {expected}"
    return f": the header claims it, but {witness} {fits}"


def gap_finding(rule: str, position: int, first: int, last: int, why: str, **facts: Any) -> Finding:
    """Return the finding that no batch has offsets ``first`` to ``last``, before the batch at ``position``.

    If one flipped bit explains the offset of that batch, the finding says that it is a claim, and lacks ``last_offset``.
    """
    if too_far_by_one_bit(last + 1, first - 1):
        why = f"{why}; or one bit is wrong in offset {last + 1}, which the next batch's header claims"
        return Finding(rule, position, position, first, None, {"first": first, "last": last, "why": why, **facts})
    return Finding(rule, position, position, first, last, {"first": first, "last": last, "why": why, **facts})


def wrapper_gap(state: CheckState, position: int, first: int, last: int) -> Finding:
    """Return ``offset-gap`` for the offsets before the wrapper at ``position``, and remember the gap in ``state``."""
    state.wrapper_gaps += 1
    if len(state.before_wrappers) < MAX_GAPS:
        state.before_wrappers.append((position, first, last))
    return gap_finding("offset-gap", position, first, last, UNEXPLAINED_GAP)


def check_offset_range(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report batches that end after the range of the segment's indexes: ``invalid-offset-range``, if theirs can be wrong.

    Otherwise an old log cleaner merged segments (KAFKA-6264): ``segment-offset-overflow``. A broker begins another segment
    at this batch, so the later ones are compared with its offset.
    """
    for row in range(batches.count):
        if not batches.selected[row] or batches.position[row] in state.misplaced:
            continue
        if state.base < 0:
            state.base = indexed_base_offset(batches, row, settings.name_offset)
            state.last_in_range = state.base - 1
        base = state.base
        if base < 0:
            continue
        if batches.last_offset[row] > base + REACH:
            if not is_overflow(batches, row, state.last_in_range):
                report(offset_range_finding(batches, row, base + REACH + 1))
                continue
            report(overflow_finding(batches, row, base))
            state.base = clamped(batches.base_offset[row])
            state.overflows = True
        state.last_in_range = batches.last_offset[row]


def is_overflow(batches: BatchColumns, row: int, previous: int) -> bool:
    """Return whether a batch that its segment's indexes can't have continues the offsets up to ``previous``.

    If one flipped bit explains its base offset, only a batch after it shows that this is right.
    """
    first, last = clamped(batches.base_offset[row]), batches.last_offset[row]
    if not (previous < first <= previous + REACH and first <= last <= first + REACH):
        return False
    if not leaps_by_one_bit(first, previous):
        return True
    following = row + 1
    return following < batches.count and last < batches.base_offset[following] <= last + REACH


def indexed_base_offset(batches: BatchColumns, row: int, name: int | None) -> int:
    """Return the offset that index entries of a segment with this first batch are relative to.

    This is the offset in the name, unless the batch disproves it.
    """
    first = clamped(batches.base_offset[row])
    if name is None or not name <= first <= name + REACH:
        return first
    return name if batches.last_offset[row] <= name + REACH or not leaps_by_one_bit(first, name - 1) else first


def overflow_finding(batches: BatchColumns, row: int, base: int) -> Finding:
    """Return ``segment-offset-overflow`` for the first batch that a segment with this base offset can't have."""
    facts = {"base": base, "last": batches.last_offset[row], "reach": REACH}
    return batch_finding("segment-offset-overflow", batches, row, **facts)


def offset_range_finding(batches: BatchColumns, row: int, ceiling: int) -> Finding:
    """Return ``invalid-offset-range`` for a batch whose segment ends before offset ``ceiling``.

    The finding lacks offsets, because those of the batch are not reliable.
    """
    begin, last = batches.position[row], batches.last_offset[row]
    if batches.magic[row] < 2:
        facts: dict[str, Any] = {"why": f"the header claims offset {last}, but its segment ends before {ceiling}"}
    else:
        delta = last - clamped(batches.base_offset[row])
        why = f"the header claims last offset {last}, but its segment ends before {ceiling}"
        facts = {"delta": delta, "why": f"last offset delta {delta}: {why}"}
    return Finding("invalid-offset-range", begin, begin + batches.size[row], facts=facts)


def check_file_name(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report ``file-name-mismatch`` for the first batch outside the index range of a segment with this name."""
    if settings.name_offset is None or state.misnamed:
        return
    name = settings.name_offset
    # If the name fits the first batch, a batch past the range is wrong, not the name: see check_offset_range.
    last = INT64_MAX if state.base == name or state.overflows else clamped(name) + INT32_MAX
    for row in range(batches.count):
        if batches.base_offset[row] >= name and batches.last_offset[row] <= last:
            continue
        if not batches.selected[row] or batches.position[row] in state.misplaced:
            continue
        if batches.base_offset[row] < name:
            base = batches.base_offset[row]
            why = f"a batch starts at offset {base}, below it" if base >= 0 else f"a batch header claims offset {base}"
            below = batch_finding("file-name-mismatch", batches, row, name=name, last=batches.last_offset[row], why=why)
            report(below if base >= 0 else below._replace(offset=None, last_offset=None))
        else:
            claimed = batches.last_offset[row]
            why = f"a batch header claims last offset {claimed}, beyond its 32-bit range"
            beyond = batch_finding("file-name-mismatch", batches, row, name=name, last=claimed, why=why)
            report(beyond._replace(offset=None, last_offset=None))
            if batches.count == 1:  # no other batch confirms its offset
                state.misplaced.add(batches.position[row])
        state.misnamed = True
        return


def wrapper_offsets_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the first wrapper of the later part begins after the last batch of the earlier part."""
    return not 0 <= after.first_opened <= before.last_offset


def gap_before_part(before: CheckState, after: CheckState, position: int) -> Finding | None:
    """Return ``offset-gap`` for the offsets before the later part, if it begins at ``position`` with a wrapper."""
    if before.last_offset < 0 or before.last_offset != before.highest_offset:
        return None
    if after.first_opened <= before.last_offset + 1:
        return None
    return wrapper_gap(after, position, before.last_offset + 1, after.first_opened - 1)


def offset_ranges_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the offsets of the later part are in the range of the earlier part's indexes."""
    if before.overflows:
        return False
    return after.base == before.base or after.highest_offset - INT32_MAX <= before.base


def check_producers(batches: BatchColumns, settings: CheckSettings, state: CheckState, report: Report) -> None:
    """Report faults of epochs, sequences and duplicates, as ProducerStateManager checks them on produce.

    A missing batch explains a gap: after a gap in offsets, by compaction or damage, the next sequence is accepted.
    """
    for row in range(batches.count):
        if batches.magic[row] < 2 or not batches.selected[row]:
            continue
        if batches.base_offset[row] != state.next_offset:
            state.gaps += 1
        state.next_offset = batches.last_offset[row] + 1
        if batches.producer_id[row] >= 0 or batches.attributes[row] & TRANSACTIONAL:
            why = _producer_contradiction(batches, row)
            if why:
                facts = {"producer_id": batches.producer_id[row], "sequence": batches.base_sequence[row], "why": why}
                report(batch_finding("inconsistent-producer", batches, row, **facts))
            if batches.producer_id[row] >= 0:
                _check_sequence(batches, row, settings.compacted, state, report)


def _producer_contradiction(batches: BatchColumns, row: int) -> str:
    # Coordinators write base sequence 0 without an id, which is valid.
    if batches.producer_id[row] < 0:
        return "the batch is transactional, but has no producer id"
    if batches.producer_epoch[row] < 0:
        return "the producer id has no epoch"
    if batches.base_sequence[row] < 0 and not batches.attributes[row] & CONTROL:
        return "the producer id has no sequence"
    return ""


def _check_sequence(batches: BatchColumns, row: int, compacted: bool, state: CheckState, report: Report) -> None:
    producer_id = batches.producer_id[row]
    epoch = batches.producer_epoch[row]
    sequence = batches.base_sequence[row]
    control = batches.attributes[row] & CONTROL
    if sequence < 0 and not control:
        return
    known_epoch, expected, gaps, ended = -1, -1, -1, False
    known = state.producers.get(producer_id)
    if known is not None:
        known_epoch, expected, gaps, ended = known
    elif len(state.first_producers) < LIMIT:
        state.first_producers[producer_id] = (epoch, -1 if control else sequence)
    if epoch < known_epoch:
        facts = {"producer_id": producer_id, "epoch": epoch, "previous": known_epoch}
        report(batch_finding("producer-epoch-regression", batches, row, **facts))
        expected = -1  # sequences count within an epoch
    if epoch > known_epoch >= 0:
        expected = 0
    newest = max(epoch, known_epoch)
    if control:
        # In transactions v2 (KIP-890), a marker may raise the epoch. The next write then begins at 0. A gap in offsets
        # before the marker still explains a gap in sequences after it.
        state.producers.put(producer_id, (newest, expected, gaps, True))
        return
    # A group coordinator begins the offset commits of each transaction at sequence 0. Kafka does not check these
    # sequences (AppendOrigin.COORDINATOR), and a single file does not show who wrote them.
    coordinator = ended and sequence == 0
    last = increment_sequence(sequence, batches.last_offset[row] - clamped(batches.base_offset[row]))
    if sequence != expected >= 0 and gaps == state.gaps and not compacted and not coordinator:
        if epoch == known_epoch and sequence < expected and expected - sequence <= INT32_MAX // 2:
            facts = {"producer_id": producer_id, "first": sequence, "last": last}
            report(batch_finding("duplicate-sequence", batches, row, **facts))
        else:
            facts = {"producer_id": producer_id, "sequence": sequence, "expected": expected}
            report(batch_finding("sequence-gap", batches, row, **facts))
    state.producers.put(producer_id, (newest, increment_sequence(last, 1), state.gaps, False))


def producers_join(before: CheckState, after: CheckState) -> bool:
    """Return whether the first batch of each producer in the later part continues its state in the earlier part."""
    if before.producers.old or after.producers.old:
        return False  # a single run might have dropped other producers
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
