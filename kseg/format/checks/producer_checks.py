"""Checks of producer ids, epochs and sequences, as Kafka's ``ProducerStateManager`` checks them on produce.

Compiled with the types of ``producer_checks.pxd``.
"""

from __future__ import annotations

from kseg.findings import Report
from kseg.format.checks.check_state import CheckSettings, CheckState, batch_finding
from kseg.format.record.bounded_map import LIMIT
from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CONTROL, INT32_MAX, TRANSACTIONAL

# C constants when compiled.
CONTROL_BIT = CONTROL
TRANSACTIONAL_BIT = TRANSACTIONAL
MOST = LIMIT


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
        if batches.producer_id[row] >= 0 or batches.attributes[row] & TRANSACTIONAL_BIT:
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
    if batches.base_sequence[row] < 0 and not batches.attributes[row] & CONTROL_BIT:
        return "the producer id has no sequence"
    return ""


def _check_sequence(batches: BatchColumns, row: int, compacted: bool, state: CheckState, report: Report) -> None:
    producer_id = batches.producer_id[row]
    epoch = batches.producer_epoch[row]
    sequence = batches.base_sequence[row]
    control = batches.attributes[row] & CONTROL_BIT
    if sequence < 0 and not control:
        return
    known_epoch, expected, gaps, ended = -1, -1, -1, False
    known = state.producers.get(producer_id)
    if known is not None:
        known_epoch, expected, gaps, ended = known
    elif len(state.first_producers) < MOST:
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
