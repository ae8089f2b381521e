"""The offsets that a partition's log lacked before its repair, and which of them are lost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kseg.commands.repair.repair_losses import (
    LostOffsets,
    LostRange,
    ReportLine,
    SegmentRepair,
    all_lost,
    no_batch,
    reached,
)
from kseg.format.checks import compaction_evidence
from kseg.format.checks.compaction_evidence import COMPACTED_TOPICS, CompactionEvidence, orphan_within
from kseg.format.checks.offset_checks import gap_finding
from kseg.format.sidefiles.log_end import checkpointed
from kseg.format.storage.naming import LOG_STARTS, base_offset_of, is_index, is_log
from kseg.format.storage.source import local_size, topic_partition
from kseg.format.writer.output_guards import PartitionFolder


class _Gap(NamedTuple):
    """Missing offsets ``first`` to ``last`` (inclusive) at byte ``position`` of ``file``, as ``kseg validate`` has them.

    ``rule`` applies if they are lost, ``base`` is the base offset of the segment that they are in, or before. Between
    segments ``other`` is the name of the previous one, and ``zeros``: that one ends with zeros.
    """

    rule: str
    file: str
    position: int
    first: int
    last: int
    base: int
    other: str = ""
    zeros: bool = False


class PartitionGaps:
    """Collects the missing offsets of a partition segment by segment. Lost bytes do not explain them.

    ``replicas`` are the folders of the replicas that the log was made from: their log directories have its checkpoints.
    """

    def __init__(self, partition: PartitionFolder, replicas: Sequence[str] = ()) -> None:
        folders = [Path(replica) for replica in replicas] or [partition.path]
        self._evidence = CompactionEvidence(
            max((offset for folder in folders for offset in checkpointed(folder, (LOG_STARTS,))), default=0),
            compacted=topic_partition(str(folders[0] / "x"))[0] in COMPACTED_TOPICS,
            folders=[*map(str, folders)],
        )
        self._partition = partition
        logs = {name.removesuffix(".swap").removesuffix(".log") for name in partition.logs}
        self._orphans = sorted(name for name in partition.names if is_index(name) and name[:20] not in logs)
        self._gaps: list[_Gap] = []
        paths = [str(partition.path / name) for name in sorted(partition.logs) if is_log(name)]
        self._evidence.apart = cache(lambda: compaction_evidence.gaps_are_apart(paths))

    def add_segment(self, segment: SegmentRepair, base: int) -> None:
        """Add the gaps at the start of a segment and between its batches, and what it shows of compaction."""
        evidence, first = self._evidence, segment.first_offset
        late = first is not None and first > base
        evidence.thinned |= segment.thinned
        evidence.gaps += segment.gap_count + late
        if segment.keyless:
            evidence.add_keyless(base)
        if late and first is not None and segment.intact_start:
            self._gaps.append(_Gap("missing-batches", segment.source, segment.begin, base, first - 1, base))
        self._gaps += [_Gap("missing-batches", segment.source, *gap, base) for gap in segment.gaps]

    def add_start(self, first: int) -> None:
        """Add the missing offsets before ``first``, where the result begins: a file with a lower name has none of them."""
        name = min(self._partition.logs)
        base = base_offset_of(name) or 0
        if base < first:
            self._evidence.gaps += 1
            self._gaps.append(_Gap("missing-batches", str(self._partition.path / name), 0, base, first - 1, base))

    def add_emptied(self, name: str) -> None:
        """Add a segment without batches: with an empty offset index, the cleaner left it."""
        index = self._partition.path / f"{name[:20]}.index"
        if index.exists() and not local_size(str(index)):
            self._evidence.add_emptied()

    def add_between(self, other: SegmentRepair, first: int, base: int) -> None:
        """Add the missing offsets from ``first`` on between a segment and the next one, which begins at ``base``."""
        name, end = os.path.basename(other.source), other.begin + other.bytes_before
        self._gaps.append(_Gap("segment-gap", other.source, end, first, base - 1, base, name, bool(other.zeros)))

    def rows(self) -> Iterator[LostOffsets]:
        """Yield a row for each gap that is lost, and for each between segments. Call it after the last segment."""
        for gap in self._gaps:
            lost, why = self._explain(gap)
            if not (lost or gap.other):
                continue
            rule = gap.rule if lost else "offset-gap"
            other = {"other": gap.other} if gap.other else {}
            text = gap_finding(rule, gap.position, gap.first, gap.last, why, **other).message
            yield LostOffsets(gap.file, gap.position, gap.position, gap.first, gap.last, rule, text)

    def _explain(self, gap: _Gap) -> tuple[bool, str]:
        deleted = f"{gap.first:020}.log.deleted"
        if deleted in self._partition.names:
            return False, f"{deleted} is there"
        orphan = orphan_within(str(self._partition.path), self._orphans, gap.first, gap.last)
        return self._evidence.explain(gap.first, gap.last, gap.base, orphan, zeros=gap.zeros)


def report_lost_end(last: SegmentRepair, end: int, snapshots: int, indexed: int, report: ReportLine) -> None:
    """Report the offsets after the last batch that side files prove, but those of lost ranges at the end.

    ``end`` is the log end of the result, ``snapshots`` that of producer snapshots, ``indexed`` that of the indexes. A broker
    that truncates a log removes the snapshots after its end (``ProducerStateManager.truncateAndReload``).
    """
    end, proved = max(end, last.lost_end), max(snapshots, indexed)
    if proved <= end:
        return
    stop = last.begin + last.bytes_before
    begin = stop - last.zeros
    why = reached(proved) if snapshots == proved else reached(proved, "its indexes show")
    report(LostRange(last.source, begin, stop, end, proved - 1, "lost-bytes", why))
    last.lost_ranges, last.lost_to = last.lost_ranges + 1, last.bytes_before
    if last.first_lost_offset is None:
        last.first_lost_offset = end


def report_emptied(empty: SegmentRepair, base: int, end: int, ceiling: int | None, report: ReportLine) -> None:
    """Report the loss of an empty segment whose side files prove that the log reached ``end``, and add it to ``empty``.

    ``ceiling`` is the first offset of the next segment, None for the last one.
    """
    if end <= base:
        return
    why = no_batch(end)
    last = end - 1 if ceiling is None else max(end, ceiling) - 1
    lost = all_lost(Path(empty.source), (base, last), why, report)
    empty.lost_ranges, empty.lost_to, empty.lost_end = lost.lost_ranges, empty.bytes_before, lost.lost_end
    empty.first_lost_offset = lost.first_lost_offset
