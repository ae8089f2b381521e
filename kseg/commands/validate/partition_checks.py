"""Check the segments of a partition in their order.

The checks use only the ``SegmentFacts`` of each segment. So segments can be read by several processes, and the memory is
bounded. ``kseg.format.log_loader`` models the reaction of a broker.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from functools import cache

from kseg.commands.validate.partition_side_files import PartitionSideFiles
from kseg.commands.validate.partition_state import MAX_SPANS, Extent, Gap, MissingOffsets, PartitionState
from kseg.commands.validate.segment_facts import SegmentFacts
from kseg.commands.validate.txn_index_check import MISSING, txn_mismatch
from kseg.findings import Finding, Report
from kseg.format.checks.batch_checks import epoch_regression, is_too_high, known_epochs, too_high_epoch
from kseg.format.checks.compaction_evidence import CompactionEvidence
from kseg.format.checks.offset_checks import expected_offset_note
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import LARGE_JUMP
from kseg.format.sidefiles.checkpoints import known_leader_epochs
from kseg.format.sidefiles.indexes import ABORTED_TXN
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    base_offset_of,
    is_in_use,
    is_remote_log,
)
from kseg.format.storage.source import local_size

#: Seconds in which a running broker deletes the segments that the cleaner has merged into an earlier one.
_PATIENCE_WITH_CLEANER = 2.0


class PartitionChecks:
    """The checks of one partition folder.

    ``names`` are its files, and ``report_for`` returns the report of a file by its name. ``known`` has the partition's
    offsets in the log directory's checkpoints, by checkpoint name. ``compacted``: the topic is known to be compacted.
    ``deep``: keys may be read. ``began`` is the start of the validation in seconds since the epoch. ``missing`` has the
    missing offsets, and ``side_files`` the checks of side files, which come after those of the segments.
    """

    def __init__(
        self,
        folder: str,
        names: set[str],
        report_for: Callable[[str], Report],
        known: Mapping[str, int],
        *,
        compacted: bool,
        deep: bool = True,
        began: float = math.inf,
    ) -> None:
        self._cleaned = known.get(CLEANER_OFFSETS)
        self._compacted = compacted
        self._log_start = known.get(LOG_STARTS, 0)
        evidence = CompactionEvidence(self._log_start, self._cleaned, compacted=compacted, folders=(folder,))
        self._history = PartitionState(folder, names, report_for, compaction=evidence)
        self.missing = MissingOffsets(self._history)
        if deep:
            self._history.compaction.apart = cache(self.missing.are_apart)
        cleaned = compacted or self._cleaned is not None
        self.side_files = PartitionSideFiles(self._history, began, compacted=cleaned)
        # SegmentFacts.tail of the previous segment, if that segment is undamaged and its position is known.
        self._tail: tuple[int, int, int, int] | None = None
        # The highest first offset of a segment.
        self._highest_first = -1
        self._waited = False

    @property
    def extent(self) -> Extent | None:
        """The extent of the log after all segments were added; None without segments."""
        return Extent(self._history.bases[0], self._history.known_end) if self._history.bases else None

    def add_segment(
        self, name: str, facts: SegmentFacts | None, *, grown: bool, zeros: bool, end_of_lost: int = 0
    ) -> None:
        """Check the next segment and add it to the state.

        ``facts`` is None if the segment could not be read. ``grown``: a broker has written to it since. ``zeros``: it
        ends with zeros. ``end_of_lost`` is the offset after a lost batch at its end.
        """
        base = base_offset_of(name) or 0
        history = self._history
        report = self._history.report_for(name)
        if is_remote_log(name) and self._is_uploaded_again(name, base, facts, report):
            return
        self._check_tail(base)
        if facts is not None:
            self._check_epochs(facts, report)
        clean = facts is not None and not (facts.disorder or facts.damaged or grown)
        self._tail = facts.tail if facts and clean and facts.tail[0] >= 0 else None
        if facts is not None:
            self._check_order(name, base, facts, report)
            self.missing.add_segment(name, base, facts)
            self.side_files.check_snapshot_at_end(base)
            self._check_producers(facts, report)
            self._check_aborts(name, facts)
        history.bases.append(base)
        history.end, known = None, history.known_end
        if facts is None or facts.disorder or grown:
            history.known_end = None
        else:
            end = base if facts.last_offset is None else max(base, facts.last_offset + 1)
            end = max(end, known or 0) if self._is_out_of_order(facts) else end
            intact = not facts.damaged or facts.intact_end
            history.end, history.known_end = end if intact else None, end if intact else max(end, end_of_lost)
        history.holes |= history.end is None
        history.name = name
        history.zeros = zeros
        if facts is not None:
            history.add(facts)
            if facts.keyless:
                history.compaction.add_keyless(base)
            if facts.first_offset is not None and facts.last_offset is not None and len(history.spans) < MAX_SPANS:
                history.spans.append((facts.first_offset, facts.last_offset, name))
                self._highest_first = max(self._highest_first, facts.first_offset)
            # A rolled segment begins with the offset of its name; a cleaned one may begin later.
            if is_remote_log(name):
                self.side_files.check_remote(name)
            late = facts.first_offset is not None and facts.first_offset > base and not facts.wrapped
            history.compaction.gaps += late
            if self._is_emptied(name, facts):
                history.compaction.add_emptied()

    def _is_uploaded_again(self, name: str, base: int, facts: SegmentFacts | None, report: Report) -> bool:
        """Return whether earlier remote segments have offsets of this one, and report it.

        A new leader uploads what the last one had not finished. The metadata topic says which segment counts.
        """
        history = self._history
        end = history.bases[-1] + 1 if history.bases and history.end is None else history.end
        if end is None or base >= end:
            return False
        report(
            Finding("repeated-upload", 0, None, base, end - 1, {"first": base, "last": end - 1, "other": history.name})
        )
        last = None if facts is None or facts.disorder else facts.last_offset
        if last is not None and history.end is not None and last >= history.end:
            history.end, history.name = last + 1, name
            history.spans.append((base, last, name))
        # Sequences and transactions of producers are those of two logs.
        history.producers.forget()
        history.crowded = history.holes = True
        return True

    def _is_out_of_order(self, facts: SegmentFacts) -> bool:
        """Return whether the segment's offsets are below an earlier segment's and overlap none: a name is wrong."""
        first, last = facts.first_offset, facts.last_offset
        spans = self._history.spans
        # A partition can have 10,000 segments, which mostly begin after all earlier ones.
        if first is None or last is None or facts.wrapped or first >= self._highest_first:
            return False
        if not any(first < begin for begin, _, _ in spans):
            return False
        return not any(first <= end and begin <= last for begin, end, _ in spans)

    def _is_emptied(self, name: str, facts: SegmentFacts) -> bool:
        """Return whether the segment and its offset index are empty, as the cleaner leaves them."""
        index = self._history.path(name.removesuffix(".log") + ".index")
        if facts.first_offset is not None or facts.damaged or not local_files.exists(index):
            return False
        return not local_size(index)  # None if it was deleted meanwhile, or cannot be read

    def _is_being_merged(self, name: str) -> bool:
        """Return whether a running broker deletes the segment: the cleaner puts a merged segment in place before."""
        path = self._history.path(name)
        if not self._waited and is_in_use(os.path.dirname(local_files.absolute(self._history.folder))):
            self._waited = True
            until = time.monotonic() + _PATIENCE_WITH_CLEANER
            while local_files.exists(path) and time.monotonic() < until:
                time.sleep(0.05)
        return not local_files.exists(path)

    def _check_order(self, name: str, base: int, facts: SegmentFacts, report: Report) -> None:
        history = self._history
        end, first = history.end, facts.first_offset
        if end is None:
            return
        begin = base if first is None else min(base, first)
        if self._is_out_of_order(facts):
            assert first is not None
            other = next(name for begin, _, name in history.spans if first < begin)
            misplaced = {"first": first, "last": facts.last_offset, "other": other}
            report(Finding("segment-order", 0, None, first, facts.last_offset, misplaced))
        elif begin < end and not self._is_being_merged(name):
            overlap = {"first": begin, "last": end - 1, "other": history.name}
            last = (
                None if end - begin > LARGE_JUMP else end - 1
            )  # more than one batch's records: perhaps a wrong offset
            report(Finding("segment-overlap", 0, None, begin, last, overlap))
        elif begin > end:
            self.missing.add(Gap(name, "segment-gap", 0, end, begin - 1, history.name, history.zeros))
            history.holes = True

    def _check_epochs(self, facts: SegmentFacts, report: Report) -> None:
        """Report a first leader epoch below that of the segment before, at the last batch of that one if it is wrong."""
        runs = self._history.epochs
        if not facts.epochs or not runs or facts.epochs[0][0] >= runs[-1][0]:
            return
        epoch, offset, _ = facts.epochs[0]
        previous, first, last = runs[-1]
        if self._tail and self._tail[1:3] == (first, last) and self._is_disproved(facts):
            earlier = runs[-2][0] if len(runs) > 1 else -1
            reported = {"epoch": previous, "previous": earlier, "why": too_high_epoch(epoch)}
            place = self._tail[0], None, first, last
            self._history.report_for(self._history.name)(Finding("leader-epoch-regression", *place, reported))
            runs.pop()
            return
        reported = {"epoch": epoch, "previous": previous, "why": epoch_regression(previous)}
        report(Finding("leader-epoch-regression", offset=offset, facts=reported))

    def _is_disproved(self, facts: SegmentFacts) -> bool:
        """Return whether the last epoch so far is too high, as ``EpochEvidence.disproves`` of repair decides.

        Without entries in the checkpoint, it takes two later batches.
        """
        runs = self._history.epochs
        epoch, _, last = runs[-1]
        earlier = runs[-2][0] if len(runs) > 1 else -1
        known = known_epochs(known_leader_epochs(self._history.folder), last)
        too_high = is_too_high(epoch, earlier, (run[0] for run in facts.epochs[:2]), known)
        return too_high and (bool(known) or facts.first_offset != facts.tail[1])

    def _check_tail(self, base: int) -> None:
        """Report the last batch of the previous segment if it has a wrong base offset.

        That is so if the batch, moved down over the gap before it, would end right before this segment's base offset.
        No CRC covers the base offset, and the offsets of that gap are not missing.
        """
        history = self._history
        if self._tail is None or not history.name:
            return
        position, first, last, before = self._tail
        expected = self._history.bases[-1] if before < 0 else before + 1
        if first <= expected or expected + last - first + 1 != base:
            return
        evidence = "the batch before and the name of the next segment"
        note = expected_offset_note(first, expected, evidence)
        facts = {"offset": first, "previous": expected - 1, "expected": expected, "note": note}
        history.report_for(history.name)(Finding("non-monotonic-offset", position, None, expected, base - 1, facts))
        self.missing.explain(history.name, expected)
        history.compaction.gaps -= 1
        history.end, history.holes = base, True
        if history.spans and history.spans[-1][2] == history.name:
            history.spans[-1] = (min(history.spans[-1][0], expected), base - 1, history.name)
        if history.epochs and history.epochs[-1][2] == last:
            epoch, begin, _ = history.epochs[-1]
            history.epochs[-1] = (epoch, min(begin, expected), base - 1)

    def _is_compacted(self, facts: SegmentFacts) -> bool:
        return self._compacted or self._cleaned is not None or self._history.compaction.thinned or facts.thinned

    def _check_producers(self, facts: SegmentFacts, report: Report) -> None:
        """Compare each producer's first batch with its last in earlier segments, like ``check_producers`` in one."""
        history = self._history
        incomplete = (
            self._compacted
            or history.holes
            or history.compaction.thinned
            or facts.holes
            or facts.thinned
            or facts.damaged
        )
        for producer_id, (epoch, sequence, offset) in facts.first_batches.items():
            known = history.producers.get(producer_id)
            if known is None:
                continue
            before, last = known[:2]
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
        """Check the aborts of transactions with data in earlier segments, which the checks of a segment skip."""
        history = self._history
        # The cleaner removes the index entry together with the last data of the transaction.
        if history.holes or history.crowded or self._is_compacted(facts):
            return
        index = name.removesuffix(".log") + ".txnindex"
        report = self._history.report_for(index if local_files.exists(self._history.path(index)) else name)
        for producer_id, marker in facts.unindexed.items():
            first = history.open.get(producer_id)
            if first is not None and first >= self._log_start:
                report(txn_mismatch(0, None, producer_id, first, marker, MISSING))
        begin = self._history.bases[0] if self._history.bases else base_offset_of(name) or 0
        # The first data of a transaction can have been in what is gone.
        late = facts.first_offset != base_offset_of(name)
        incomplete = late or facts.damaged or facts.holes or facts.gaps or history.compaction.gaps
        for at, producer_id, first, last, own, ended in facts.carried:
            if own >= 0 and (incomplete or first < self._log_start):
                continue
            began = history.open.get(producer_id) if ended < 0 else None
            if began is None and own >= 0:
                began = own
            # What began before the log start can have more records in the log, or an entry that begins later.
            if first == began or first < begin or (began is not None and began < self._log_start):
                continue
            why = (
                f"the log does not have its records at offset {first}"
                if began is None
                else f"its records start at offset {began}"
            )
            report(txn_mismatch(at, at + ABORTED_TXN.size, producer_id, first, last, why))


#: For each checkpoint of a log directory, the rule for an offset after the log end, and the name of that offset.
AFTER_THE_END: Mapping[str, tuple[str, str]] = {
    RECOVERY_POINTS: ("checkpoint-behind-log", "recovery point"),
    HIGH_WATERMARKS: ("checkpoint-behind-log", "high watermark"),
    CLEANER_OFFSETS: ("checkpoint-behind-log", "cleaner offset"),
    LOG_STARTS: ("log-start-behind-end", "log start"),
}
