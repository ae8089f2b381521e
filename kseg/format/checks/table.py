"""The checks of batches and records, in the order in which they run.

To add a check, add a rule to ``rule_table.RULES``, its cause to ``rule_help.CAUSES``, a function, a row here, and a
damaged file in ``fixtures/findings``.
validate, dump, repair, convert and parallel runs read these tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kseg.findings import Report
from kseg.format.checks import batch_checks, offset_checks, producer_checks, record_checks
from kseg.format.checks.check_state import CheckSettings, CheckState
from kseg.format.record.columns import BatchColumns
from kseg.format.segment.records_chunk import Chunk


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
    BatchCheck(producer_checks.check_producers, producer_checks.producers_join),
)

RECORD_CHECKS = (
    RecordCheck(record_checks.check_record_offsets, in_conversion=False),
    RecordCheck(record_checks.check_max_timestamps),
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
