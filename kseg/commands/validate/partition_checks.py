"""Check the segments of a partition in their order, and the side files of the partition against the segments.

The checks use only the ``SegmentFacts`` of each segment. So segments can be read by several processes, and the memory is
bounded. ``kseg.format.log_loader`` models the reaction of a broker.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from kseg.commands.validate.segment_facts import EpochRun, SegmentFacts
from kseg.errors import KsegError
from kseg.findings import Finding, Report
from kseg.format.log_loader.producers import stray_snapshots
from kseg.format.record.bounded_map import LIMIT, BoundedMap
from kseg.format.record.framing import increment_sequence
from kseg.format.sidefiles.checkpoints import LEADER_EPOCHS, LeaderEpoch, walk_leader_epochs
from kseg.format.sidefiles.log_dir_names import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from kseg.format.sidefiles.producer_snapshot import ENTRY, HEADER, ProducerState, walk_snapshot
from kseg.format.sidefiles.reading import positioned_entries_of
from kseg.format.sidefiles.txn_index import ABORTED_TXN
from kseg.format.storage.naming import base_offset_of, is_index, producer_snapshot_offset

MAX_EPOCHS = 100_000
MAX_SPANS = 10_000
MAX_GAPS = 1_000
#: The number of gaps between batches that indicates compaction: damage leaves one gap.
SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a partition's log. ``end`` is exclusive, and None if unknown."""

    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class _Gap:
    """Missing offsets ``first`` to ``last`` (inclusive), before byte ``position`` of the segment ``name``.

    ``rule`` applies if the offsets are lost. If the gap is between segments, ``other`` is the previous segment, and
    ``zeros`` is whether that one ends with zeros.
    """

    name: str
    rule: str
    position: int
    first: int
    last: int
    other: str = ""
    zeros: bool = False


@dataclass(slots=True)
class _PartitionState:
    """The state of a partition after the segments so far. ``end`` is exclusive, None if unknown."""

    start: int | None = None
    end: int | None = None
    name: str = ""
    zeros: bool = False
    holes: bool = False
    thinned: bool = False
    keyless: bool = False
    unopened: bool = False
    gaps: int = 0
    # (first offset, last offset, name) of the segments for which these are known.
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    producers: BoundedMap = field(default_factory=BoundedMap)
    open: dict[int, int] = field(default_factory=dict)
    # Whether there were too many producers to know the open transactions of each.
    crowded: bool = False

    def add(self, facts: SegmentFacts) -> None:
        self.holes |= facts.holes or facts.damaged
        self.thinned |= facts.thinned
        self.keyless |= facts.keyless
        self.unopened |= facts.wrapped and not facts.opened
        self.gaps += facts.gaps
        for run in facts.epochs:
            if self.epochs and self.epochs[-1][0] == run[0]:
                self.epochs[-1] = (*self.epochs[-1][:2], run[2])
            elif len(self.epochs) < MAX_EPOCHS:
                self.epochs.append(run)
        if facts.crowded:
            self.producers.forget()  # any of them may have written again
        for producer_id, last in facts.producers.items():
            self.producers.put(producer_id, last)
        self.crowded |= facts.crowded
        for producer_id in facts.ended:
            self.open.pop(producer_id, None)
        for producer_id, first in facts.open.items():
            if producer_id in self.open or len(self.open) < LIMIT:
                self.open.setdefault(producer_id, first)
            else:
                self.crowded = True


class PartitionChecks:
    """The checks of one partition folder.

    ``names`` are its files, and ``report_for`` returns the report of a file by its name. ``known`` has the partition's
    offsets in the log directory's checkpoints, by checkpoint name. ``compacted``: the topic is known to be compacted.
    ``began`` is the start of the validation in seconds since the epoch.
    """

    def __init__(
        self,
        folder: str,
        names: set[str],
        report_for: Callable[[str], Report],
        known: Mapping[str, int],
        *,
        compacted: bool,
        began: float = math.inf,
    ) -> None:
        self._folder = folder
        # Indexes that stand by themselves: those of segments that are there are not among the names.
        self._orphans = sorted(name for name in names if is_index(name))
        self._log_start = known.get(LOG_STARTS, 0)
        self._cleaned = known.get(CLEANER_OFFSETS)
        self._report_for = report_for
        self._compacted = compacted
        # When the first segment was read, as in os.stat: files written later may describe another state of the log.
        self._began = began
        self._history = _PartitionState()
        self._bases: list[int] = []
        offsets = {offset for name in names if (offset := producer_snapshot_offset(name)) is not None}
        self._snapshots = offsets
        self._checked_snapshots: set[int] = set()
        # The base offset of the first segment that has a record without a key.
        self._keyless_from: int | None = None
        self._gaps: list[_Gap] = []
        # SegmentFacts.tail of the previous segment, if that segment is undamaged and its position is known.
        self._tail: tuple[int, int, int, int] | None = None
        # First offsets of gaps between batches that another finding explains, by segment.
        self._explained_gaps: dict[str, set[int]] = {}

    @property
    def extent(self) -> Extent | None:
        """The extent of the log after all segments were added; None without segments."""
        return Extent(self._bases[0], self._history.end) if self._bases else None

    def add_segment(self, name: str, facts: SegmentFacts | None, *, grown: bool, zeros: bool) -> None:
        """Check the next segment and add it to the state.

        ``facts`` is None if the segment could not be read. ``grown``: a broker has written to it since. ``zeros``: it
        ends with zeros.
        """
        base = base_offset_of(name) or 0
        history = self._history
        report = self._report_for(name)
        self._check_tail(base)
        clean = facts is not None and not (facts.disorder or facts.damaged or grown)
        self._tail = facts.tail if facts and clean and facts.tail[0] >= 0 else None
        if facts is not None:
            self._check_order(name, base, facts, report)
            self._add_gaps(name, base, facts)
            if base in self._snapshots and history.end == base:
                self._check_snapshot(base, exact=True)
                self._checked_snapshots.add(base)
            self._check_producers(facts, report)
            self._check_aborts(name, facts)
        self._bases.append(base)
        if facts is None or facts.disorder or facts.damaged or grown:
            history.end = None
            history.holes = True
        else:
            end = base if facts.last_offset is None else max(base, facts.last_offset + 1)
            history.end = max(end, history.end or 0) if self._is_out_of_order(facts) else end
        history.name = name
        history.zeros = zeros
        if facts is not None:
            history.add(facts)
            if facts.keyless and self._keyless_from is None:
                self._keyless_from = base
            if facts.first_offset is not None and facts.last_offset is not None and len(history.spans) < MAX_SPANS:
                history.spans.append((facts.first_offset, facts.last_offset, name))
            # A rolled segment begins with the offset of its name; a cleaned one may begin later.
            late = facts.first_offset is not None and facts.first_offset > base and not facts.wrapped
            history.gaps += late or self._is_emptied(name, facts)

    def _is_out_of_order(self, facts: SegmentFacts) -> bool:
        """Return whether the segment's offsets are below an earlier segment's and overlap none: a name is wrong."""
        first, last = facts.first_offset, facts.last_offset
        spans = self._history.spans
        if first is None or last is None or facts.wrapped or not any(first < begin for begin, _, _ in spans):
            return False
        return not any(first <= end and begin <= last for begin, end, _ in spans)

    def _is_emptied(self, name: str, facts: SegmentFacts) -> bool:
        """Return whether the segment and its offset index are empty, as the cleaner leaves them."""
        index = self._path(name.removesuffix(".log") + ".index")
        return facts.first_offset is None and not facts.damaged and os.path.exists(index) and not os.path.getsize(index)

    def _check_order(self, name: str, base: int, facts: SegmentFacts, report: Report) -> None:
        history = self._history
        end, first = history.end, facts.first_offset
        if facts.epochs and history.epochs and facts.epochs[0][0] < history.epochs[-1][0]:
            epoch, offset, _ = facts.epochs[0]
            reported = {"epoch": epoch, "previous": history.epochs[-1][0]}
            report(Finding("leader-epoch-regression", offset=offset, facts=reported))
        if end is None:
            return
        begin = base if first is None else min(base, first)
        if self._is_out_of_order(facts):
            assert first is not None
            other = next(name for begin, _, name in history.spans if first < begin)
            misplaced = {"first": first, "last": facts.last_offset, "other": other}
            report(Finding("segment-order", 0, None, first, facts.last_offset, misplaced))
        elif begin < end:
            overlap = {"first": begin, "last": end - 1, "other": history.name}
            report(Finding("segment-overlap", 0, None, begin, end - 1, overlap))
        elif begin > end:
            self._add_gap(_Gap(name, "segment-gap", 0, end, begin - 1, history.name, history.zeros))
            history.holes = True

    def _check_tail(self, base: int) -> None:
        """Report the last batch of the previous segment if it has a wrong base offset.

        That is so if the batch, moved down over the gap before it, would end right before this segment's base offset.
        No CRC covers the base offset, and the offsets of that gap are not missing.
        """
        history = self._history
        if self._tail is None or not history.name:
            return
        position, first, last, before = self._tail
        expected = self._bases[-1] if before < 0 else before + 1
        if first <= expected or expected + last - first + 1 != base:
            return
        evidence = "the batch before and the name of the next segment"
        note = f": {evidence} prove that its base offset is {expected}"
        facts = {"offset": first, "previous": expected - 1, "expected": expected, "note": note}
        self._report_for(history.name)(Finding("non-monotonic-offset", position, None, first, last, facts))
        self._gaps = [gap for gap in self._gaps if (gap.name, gap.first) != (history.name, expected)]
        self._explained_gaps.setdefault(history.name, set()).add(expected)
        history.gaps -= 1
        history.end, history.holes = base, True
        if history.spans and history.spans[-1][2] == history.name:
            history.spans[-1] = (min(history.spans[-1][0], expected), base - 1, history.name)
        if history.epochs and history.epochs[-1][2] == last:
            epoch, begin, _ = history.epochs[-1]
            history.epochs[-1] = (epoch, min(begin, expected), base - 1)

    def _add_gaps(self, name: str, base: int, facts: SegmentFacts) -> None:
        """Add the gaps at the segment's start, as its name shows, and between its batches."""
        if facts.disorder:
            return
        first = facts.first_offset
        if first is not None and first > base and facts.intact_start and not facts.wrapped:
            self._add_gap(_Gap(name, "missing-batches", 0, base, first - 1))
        for position, begin, last in facts.missing:
            self._add_gap(_Gap(name, "missing-batches", position, begin, last))

    def _add_gap(self, gap: _Gap) -> None:
        if len(self._gaps) < MAX_GAPS:
            self._gaps.append(gap)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets are missing in the segments so far. The reason is only known after the last segment."""
        return bool(self._gaps)

    def check_gaps(self) -> dict[str, set[int]]:
        """Report the missing offsets. Call it after the last segment.

        Returns by segment the first offsets of the gaps between batches that another finding reports: the caller drops
        their ``offset-gap``.
        """
        lost_within = {name: set(offsets) for name, offsets in self._explained_gaps.items()}
        spans = self._history.spans
        in_order = all(one[1] < min(other[0], base_offset_of(other[2]) or 0) for one, other in pairwise(spans))
        for gap in self._gaps if in_order else filter(None, map(self._uncovered_part, self._gaps)):
            lost, why = self._explain(gap.first, gap.last, gap.name)
            if gap.zeros and gap.last >= self._log_start:
                lost, why = True, "probably lost, because the file ends with zeros"
            between = gap.rule == "segment-gap"
            if lost or between:
                facts: dict[str, Any] = {"first": gap.first, "last": gap.last, "why": why}
                if between:
                    facts["other"] = gap.other
                rule = gap.rule if lost else "offset-gap"
                place = gap.position
                self._report_for(gap.name)(Finding(rule, place, place, gap.first, gap.last, facts))
            if lost and not between:
                lost_within.setdefault(gap.name, set()).add(gap.first)
        return lost_within

    def _uncovered_part(self, gap: _Gap) -> _Gap | None:
        """Return the gap without the offsets at its ends that other segments hold, or None if it is covered."""
        first, last = gap.first, gap.last
        for begin, end, name in sorted(self._history.spans):
            if name != gap.name and begin <= first:
                first = max(first, end + 1)
        for begin, end, name in sorted(self._history.spans, reverse=True):
            if name != gap.name and begin <= last <= end:
                last = begin - 1
        return replace(gap, first=first, last=last) if first <= last else None

    def _is_compacted(self, facts: SegmentFacts) -> bool:
        return self._compacted or self._cleaned is not None or self._history.thinned or facts.thinned

    def why_missing(self, first: int, last: int, name: str) -> str:
        """Return the reason why offsets ``first`` to ``last`` (inclusive) are not in the segment ``name``."""
        return self._explain(first, last, name)[1]

    def _explain(self, first: int, last: int, name: str) -> tuple[bool, str]:
        """Return whether offsets that are missing in the segment ``name``, or before it, are lost, and the reason.

        No file of a log directory stores whether a topic is compacted. The ``cleaner-offset-checkpoint`` lists only
        compacted partitions. Only the cleaner leaves batches with fewer records than offsets, delete horizons, and many
        gaps between batches. It removes records without a key, so such a record proves that it has not cleaned there.
        """
        history, gaps, unopened = self._history, self._history.gaps, self._history.unopened
        if last < self._log_start:
            return False, f"harmless, the log starts at offset {self._log_start}"
        if self._cleaned is not None and last < self._cleaned:
            return False, f"probably compacted, because the cleaner has reached offset {self._cleaned}"
        if history.thinned:
            return False, "probably compacted, because other batches have fewer records than offsets"
        if self._cleaned is not None:
            return (
                False,
                f"lost, or compacted by another broker, because the cleaner has only reached offset {self._cleaned}",
            )
        if self._compacted:
            return False, "compacted or lost"
        if orphan := self._orphan_within(first, last):
            return True, f"lost, because {orphan} belongs to a missing segment"
        if self._keyless_from is not None and self._keyless_from < (base_offset_of(name) or 0):
            return True, "lost, because earlier records have no key, so the log was not compacted"
        if history.keyless:
            return True, "probably lost, because a compacted topic has no records without a key"
        if gaps >= SEVERAL:
            return False, f"probably compacted, because there are {gaps} gaps between batches"
        if unopened:
            return False, "compacted or lost (compressed v0 and v1 message sets were not decompressed)"
        return True, "probably lost, because nothing indicates compaction"

    def _orphan_within(self, first: int, last: int) -> str | None:
        """Return the name of an index without a segment if its segment would hold some of these offsets."""
        for name in self._orphans:
            if first <= int(name[:20]) <= last and os.path.exists(self._path(name)):
                return None if os.path.exists(self._path(f"{name[:20]}.log")) else name
        return None

    def _check_producers(self, facts: SegmentFacts, report: Report) -> None:
        """Compare each producer's first batch with its last in earlier segments, like ``check_producers`` in one."""
        history = self._history
        incomplete = (
            self._compacted or history.holes or history.thinned or facts.holes or facts.thinned or facts.damaged
        )
        for producer_id, (epoch, sequence, offset) in facts.first_batches.items():
            known = history.producers.get(producer_id)
            if known is None:
                continue
            before, last, _ = known
            if epoch < before:
                reported = {"producer_id": producer_id, "epoch": epoch, "previous": before}
                report(Finding("producer-epoch-regression", offset=offset, facts=reported))
                continue
            expected = 0 if epoch > before else increment_sequence(last, 1)
            # Coordinators, and producers whose state had expired, start again from sequence 0.
            if sequence in (expected, 0) or incomplete:
                continue
            reported = {"producer_id": producer_id, "sequence": sequence, "expected": expected}
            report(Finding("sequence-gap", offset=offset, facts=reported))

    def _check_aborts(self, name: str, facts: SegmentFacts) -> None:
        """Check the aborts of transactions with data only in earlier segments, which the checks of a segment skip."""
        history = self._history
        # The cleaner removes the index entry together with the last data of the transaction.
        if history.holes or history.crowded or self._is_compacted(facts):
            return
        index = name.removesuffix(".log") + ".txnindex"
        report = self._report_for(index if os.path.exists(self._path(index)) else name)
        for producer_id, marker in facts.unindexed.items():
            first = history.open.get(producer_id)
            if first is not None:
                reported = {
                    "producer_id": producer_id,
                    "first": first,
                    "last": marker,
                    "why": "it is missing in the index",
                }
                report(Finding("txn-index-mismatch", 0, None, first, marker, reported))
        begin = self._bases[0] if self._bases else base_offset_of(name) or 0
        for at, producer_id, first, last in facts.carried:
            began = history.open.get(producer_id)
            # Without data of the producer in the log, the transaction began before the log start.
            if first == began or (began is None and first < begin):
                continue
            why = f"it has no records at offset {first}" if began is None else f"its records start at offset {began}"
            reported = {"producer_id": producer_id, "first": first, "last": last, "why": why}
            report(Finding("txn-index-mismatch", at, at + ABORTED_TXN.size, first, last, reported))

    # -- side files, after all segments

    def check_side_file(self, name: str) -> None:
        """Check a side file that is not the index of an existing segment."""
        if name == LEADER_EPOCHS:
            self._check_epochs(name)
        elif (offset := producer_snapshot_offset(name)) is not None:
            self._check_position(offset, name)
        elif is_index(name):
            self._check_orphan(name)

    def _check_orphan(self, name: str) -> None:
        log = f"{name[:20]}.log"
        # A running broker may just have deleted or created the segment.
        if os.path.exists(self._path(name)) and not os.path.exists(self._path(log)) and self._bases:
            self._report_for(name)(Finding("orphaned-index", 0, offset=int(name[:20]), facts={"log": log}))

    def _check_position(self, offset: int, name: str) -> None:
        end = self._history.end
        if not self._bases or not os.path.exists(self._path(name)):
            return
        facts = {"offset": offset, "end": end}
        if end is not None and offset > end:
            self._report_for(name)(Finding("snapshot-behind-log", 0, offset=offset, facts=facts))
        elif offset not in self._kept_snapshots:
            self._report_for(name)(Finding("stray-snapshot", 0, offset=offset, facts=facts))
        elif offset not in self._checked_snapshots and end is not None:
            self._check_snapshot(offset, exact=offset == end)

    @cached_property
    def _kept_snapshots(self) -> set[int]:
        """The offsets of the producer snapshots that a broker keeps after loading all segments."""
        return set(self._snapshots) - set(stray_snapshots(self._snapshots, self._bases))

    def _check_snapshot(self, offset: int, *, exact: bool) -> None:
        """Compare a producer snapshot with the segments so far. ``exact``: they end at the snapshot's offset."""
        name = f"{offset:020}.snapshot"
        try:
            read = positioned_entries_of(self._path(name), walk_snapshot)
        except (KsegError, ValueError):
            return  # reported for the snapshot itself
        report = self._report_for(name)
        reported = set()
        for position, state in read:
            reported.add(state.producer_id)
            if why := self._snapshot_contradiction(state, offset, exact=exact):
                self._report_producer(report, position, state.producer_id, offset, why)
        for producer_id, first in self._history.open.items() if exact and not self._history.crowded else ():
            # A producer expires, but not with an open transaction.
            if producer_id not in reported:
                self._report_producer(
                    report,
                    HEADER.size,
                    producer_id,
                    offset,
                    f"missing, although its transaction is open since offset {first}",
                )

    def _report_producer(self, report: Report, position: int, producer_id: int, offset: int, why: str) -> None:
        reported = {"producer_id": producer_id, "why": why}
        report(Finding("snapshot-mismatch", position, position + ENTRY.size, offset, None, reported))

    def _snapshot_contradiction(self, state: ProducerState, offset: int, *, exact: bool) -> str | None:
        history = self._history
        first = state.current_txn_first_offset
        if state.last_offset >= offset or (first is not None and first >= offset):
            return (
                f"the snapshot has offset {max(state.last_offset, first or 0)}, but covers only offsets below {offset}"
            )
        if exact and first is not None and first >= self._first_offset() and state.producer_id not in history.open:
            return (
                None
                if history.holes or history.crowded
                else f"the snapshot has an open transaction from offset {first}, the log does not"
            )
        known = history.producers.get(state.producer_id)
        if known is None or known[2] >= offset or state.last_offset < 0:
            return None
        epoch, sequence, last = known
        if last > state.last_offset:
            return f"last offset: {state.last_offset} in the snapshot, {last} in the log"
        if last < state.last_offset:
            return (
                None
                if history.holes or history.thinned
                else f"last offset: {state.last_offset} in the snapshot, {last} in the log"
            )
        if state.last_sequence != sequence:
            return f"last sequence: {state.last_sequence} in the snapshot, {sequence} in the log"
        return (
            f"epoch: {state.producer_epoch} in the snapshot, {epoch} in the log"
            if state.producer_epoch < epoch
            else None
        )

    def _first_offset(self) -> int:
        return self._bases[0] if self._bases else 0

    def _check_epochs(self, name: str) -> None:
        try:
            entries = positioned_entries_of(self._path(name), walk_leader_epochs)
            if os.stat(self._path(name)).st_mtime > self._began:
                return  # a broker truncated the log, or deleted its oldest segments, while they were read
        except (KsegError, ValueError, OSError):
            return  # reported for the checkpoint itself
        report = self._report_for(name)
        end = self._history.end
        for at, entry in entries:
            if end is not None and entry.start_offset > end:
                why = f"it starts at offset {entry.start_offset}, but the log ends at {end}"
                _report_epoch(report, at, entry.epoch, entry.start_offset, why)
                return
        for run in self._history.epochs:
            contradiction = _epoch_contradiction([entry for _, entry in entries], run)
            if contradiction:
                at = next((at for at, entry in entries if entry.epoch == run[0]), 0)
                _report_epoch(report, at, run[0], run[1], contradiction)
                return

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


def _report_epoch(report: Report, at: int, epoch: int, offset: int, why: str) -> None:
    report(Finding("epoch-mismatch", at, offset=offset, facts={"epoch": epoch, "why": why}))


def _epoch_contradiction(entries: list[LeaderEpoch], run: EpochRun) -> str | None:
    """Return how the checkpoint contradicts the batches of one epoch, or None.

    Batches before the first entry are not checked: a broker removes entries below the log start, and clears the
    checkpoint when it appends v0 or v1 batches.
    """
    epoch, first, last = run
    if epoch < 0 or (entries and last < entries[0].start_offset):
        return None
    at = next((at for at, entry in enumerate(entries) if entry.epoch == epoch), None)
    if at is None:
        return f"it has batches from offset {first}, but no entry"
    if at and first < entries[at].start_offset:
        return f"it starts at offset {entries[at].start_offset}, but has batches from offset {first}"
    if at + 1 < len(entries) and last >= entries[at + 1].start_offset:
        return f"it ends before offset {entries[at + 1].start_offset}, but has batches up to offset {last}"
    return None


#: For each checkpoint of a log directory, the rule for an offset after the log end, and the name of that offset.
AFTER_THE_END: Mapping[str, tuple[str, str]] = {
    RECOVERY_POINTS: ("checkpoint-behind-log", "recovery point"),
    HIGH_WATERMARKS: ("checkpoint-behind-log", "high watermark"),
    CLEANER_OFFSETS: ("checkpoint-behind-log", "cleaner offset"),
    LOG_STARTS: ("log-start-behind-end", "log start"),
}
