"""The settings of the checks of one segment, and their state between its windows.

Compiled with the types of ``check_state.pxd``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding
from kseg.format.record.bounded_map import BoundedMap
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, DEFAULT_MAX_MESSAGE_BYTES

#: The default of brokers for message.timestamp.after.max.ms (KIP-937).
FUTURE_TOLERANCE_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The facts that a file does not contain.

    ``now`` is epoch milliseconds. ``name_offset`` is the base offset in the file's name. ``deep`` is whether batches are
    decoded, too: then their records are counted, and the header checks skip the record count. ``oldest`` is the smallest
    timestamp that is allowed, ``future_ms`` how far a timestamp may be ahead. ``gaps`` is whether to report offset gaps.
    """

    now: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compacted: bool = False
    name_offset: int | None = None
    deep: bool = False
    oldest: int | None = None
    future_ms: int = FUTURE_TOLERANCE_MS
    gaps: bool = True


class CheckState:
    """The state of the checks of one segment, passed from window to window.

    To compare parts of a file that were checked separately, see ``table.join_states``.
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
        # The last offset of the decoded batches so far, and the first offset of a wrapper that is the first batch.
        self.last_opened = -1
        self.first_opened = -1
        # The highest offset and the end position of the decoded batches so far.
        self.highest_opened = -1
        self.opened_end = -1
        # The number of gaps before wrappers, whose headers do not show them, and the first ones: (position, first, last).
        self.wrapper_gaps = 0
        self.before_wrappers: list[tuple[int, int, int]] = []
        self.base = -1  # the offset that the segment's index entries are relative to
        # Counted by check_producers, because one loop is a window ahead of the other.
        self.gaps = 0
        self.next_offset = 0
        self.leader_epoch = -1
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
