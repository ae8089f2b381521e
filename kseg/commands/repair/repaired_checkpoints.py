"""The leader epochs and log starts of a repaired partition.

Leader epochs that a broker can't use are replaced by those of adjacent batches. No CRC covers them.

Without ``log-start-offset-checkpoint``, a broker starts each log at the base offset of its first segment: records that were
deleted are readable again. Sources: ``LogManager.checkpointLogStartOffsetsInDir`` and
``LeaderEpochFileCache.truncateFromStart`` of Kafka 4.3.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kseg.commands.repair.repair_losses import CorrectedBatch, RepairResult, ReportLine, SegmentRepair
from kseg.findings import Finding, fail_on_read_error
from kseg.format.checks.batch_checks import LARGEST_EPOCH_STEP, is_too_high, known_epochs
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import INT32_MAX, INT64_MIN, NO_PARTITION_LEADER_EPOCH, PARTITION_LEADER_EPOCH_AT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import VERSION, LeaderEpoch, stored_leader_epochs, walk_offset_checkpoint
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.naming import LOG_STARTS, META_PROPERTIES, base_offset_of, partition_of
from kseg.format.storage.source import open_source
from kseg.format.writer import rewritten_rows
from kseg.text import count_of

_NONE = NO_PARTITION_LEADER_EPOCH
#: The largest number of consecutive batches whose epochs wait for the next right epoch; 8 bytes each.
MAX_WAITING = 1 << 20


@dataclass(frozen=True, slots=True)
class EpochEvidence:
    """The leader epochs around a segment.

    ``before`` is the last epoch of earlier segments, -1 for none. ``following`` returns the epochs of the first batches of
    the next segment. ``stored`` are the entries of the leader-epoch-checkpoint.
    """

    before: int = _NONE
    following: Callable[[], Sequence[int]] = tuple
    stored: Sequence[LeaderEpoch] = ()

    def disproves(self, epoch: int, before: int, last_offset: int) -> bool:
        """Return whether the segment's last batch, alone with its epoch, can't have it; ``before`` is the epoch before it.

        Either all following batches have lower epochs and the checkpoint lacks this epoch (or there are two such batches
        and no checkpoint), or the checkpoint has the epoch before it at that offset, and the step is larger than elections
        can make it. A smaller step can be right if the checkpoint is an older copy, also if one bit makes the difference.
        """
        known = known_epochs(self.stored, last_offset)
        if epoch in known:
            return False
        following = self.following()
        if following and is_too_high(epoch, before, following, known):
            return bool(known) or len(following) > 1
        if following and following[0] >= epoch:
            return False
        before = before if before >= 0 or not known else known[-1]
        return known[-1:] == [before] and epoch - before > LARGEST_EPOCH_STEP

    def nearest(self, last_offset: int) -> int:
        """Return the epoch for a batch with no other before it: that of the checkpoint, or the lowest of those after it."""
        known = known_epochs(self.stored, last_offset)
        return known[-1] if known else min(self.following())


NO_EVIDENCE = EpochEvidence()


@dataclass(slots=True)
class _WrongEpoch:
    """Consecutive batches with an impossible epoch; ``written`` are their positions in the result."""

    epoch: int
    rule: str
    begin: int
    end: int
    first_offset: int
    last_offset: int
    written: array[int]


class EpochCorrector:
    """Corrects the leader epochs of one segment while its batches are written.

    An epoch is wrong if it is lower than the one before, if all later epochs are lower, if it is the last one and ``around``
    disproves it, and, with ``negative``, if it is below 0. The first one is wrong if it is lower than that of earlier
    segments, and the next one is not. It becomes the epoch before it, otherwise the next one, otherwise 0; that of the
    checkpoint if it is between both. ``around`` is the evidence of other files. With ``out`` None, epochs are only reported.
    """

    def __init__(
        self,
        out: IO[bytes] | None,
        tally: SegmentRepair,
        report: ReportLine,
        *,
        around: EpochEvidence,
        negative: bool = True,
    ) -> None:
        self._out = out
        self._tally = tally
        self._report = report
        self._negative = negative
        # The last two epochs: they distinguish one wrong epoch from later epochs that are lower.
        self._before = self._last = _NONE
        self._around = around
        self._earlier = around.before
        self._place: _WrongEpoch | None = None  # the batch that has the last epoch
        self._first: _WrongEpoch | None = None  # the first batch, while the next one decides about it
        self._wrong: list[_WrongEpoch] = []

    @property
    def last(self) -> int:
        """Return the last right epoch, from earlier segments if this one has none; -1 for none."""
        return self._last if self._last >= 0 else self._earlier

    def correct_window(self, batches: BatchColumns, row: int, stop: int, written: int) -> None:
        """Correct the batches ``row`` to ``stop`` (exclusive), which are consecutive in the result from byte ``written``."""
        shift = written - batches.position[row]
        each = row - 1
        while True:
            steady = self._last >= 0 and not self._wrong and self._before == self._last
            each = rewritten_rows.first_other_epoch(batches, each + 1, stop, self._last if steady else INT64_MIN)
            if each == stop:
                return
            epoch = batches.partition_leader_epoch[each]
            if epoch < 0 and not self._negative:
                continue
            begin = batches.position[each]
            rule = "negative-leader-epoch" if epoch < 0 else "leader-epoch-regression"
            place = _WrongEpoch(
                epoch, rule, begin, begin + batches.size[each], batches.base_offset[each], batches.last_offset[each],
                array("q", [begin + shift]),
            )  # fmt: skip
            self._next(epoch, place)

    def finish(self) -> None:
        """Correct the batches that wait for a later epoch, and the last batch if its epoch is proved wrong."""
        if self._first is not None:
            self._decide(next(iter(self._around.following()), _NONE))
        last, earlier = self._place, self._earlier_epoch
        if (
            last is not None
            and self._before < self._last
            and self._around.disproves(self._last, earlier, last.last_offset)
        ):
            self._wrong.insert(0, last)
            self._last = earlier if earlier >= 0 else self._around.nearest(last.last_offset)
        self._correct(max(self.last, 0))

    @property
    def _earlier_epoch(self) -> int:
        """The epoch before the last one."""
        return self._before if self._before >= 0 else self._earlier

    def _is_last_too_high(self, epoch: int) -> bool:
        """Return whether the last epoch can't be right before the next one, ``epoch``."""
        known = known_epochs(self._around.stored, self._place.first_offset) if self._place else ()
        return is_too_high(self._last, self._earlier_epoch, (epoch,), known)

    def _next(self, epoch: int, place: _WrongEpoch) -> None:
        if self._first is not None and epoch >= 0:
            self._decide(epoch)
        if epoch < 0 or (epoch < self._last and not self._is_last_too_high(epoch)):
            self._wait(place)
            return
        if self._last < 0 and epoch < self._earlier and not self._wrong:
            self._first = place
            return
        if epoch < self._last:
            # The last epoch is wrong: all earlier ones and this one are lower.
            if self._place is not None:
                self._wrong.insert(0, self._place)
            self._correct(self._before if self._before >= 0 else self._lower_to(epoch), epoch)
        else:
            self._correct(self._last if self._last >= 0 else self._lower_to(epoch), epoch)
            self._before = self._last
        self._last, self._place = epoch, place

    def _decide(self, following: int) -> None:
        """Decide about the first batch, whose epoch is lower than that of earlier segments, by the epoch after it."""
        first, self._first = self._first, None
        assert first is not None
        if following >= self._earlier:
            self._wrong.insert(0, first)
        else:  # the earlier segments can be wrong
            self._last, self._place = first.epoch, first

    def _wait(self, place: _WrongEpoch) -> None:
        last = self._wrong[-1] if self._wrong else None
        if (
            last is not None
            and (last.epoch, last.end) == (place.epoch, place.begin)
            and len(last.written) < MAX_WAITING
        ):
            last.end, last.last_offset = place.end, place.last_offset
            last.written.extend(place.written)
            return
        if len(self._wrong) >= MAX_WAITING >> 8 or (last is not None and len(last.written) >= MAX_WAITING):
            self._correct(max(self.last, 0))
        self._wrong.append(place)

    def _lower_to(self, epoch: int) -> int:
        """Return the epoch for the first batches, before a batch of ``epoch``: that of earlier segments, if not higher."""
        return self._earlier if 0 <= self._earlier <= epoch else epoch

    def _correct(self, lowest: int, highest: int = INT32_MAX) -> None:
        """Replace the wrong epochs: by ``lowest``, or by that of the checkpoint if it is between both."""
        for wrong in self._wrong:
            stored = known_epochs(self._around.stored, wrong.first_offset)
            epoch = stored[-1] if stored and lowest <= stored[-1] <= highest else lowest
            count = len(wrong.written)
            for written in wrong.written if self._out is not None else ():
                assert self._out is not None
                self._out.seek(written + PARTITION_LEADER_EPOCH_AT)
                self._out.write(min(epoch, INT32_MAX).to_bytes(4, "big"))
            self._tally.mended += count
            self._tally.epochs_mended += count
            what = f"leader epoch {wrong.epoch} is now {epoch}"
            what += f" in {count} batches" if count > 1 else ""
            self._report(
                CorrectedBatch(
                    self._tally.source, wrong.begin, wrong.end, wrong.first_offset, wrong.last_offset, wrong.rule, what
                )
            )
        if self._out is not None and self._wrong:
            self._out.seek(self._tally.bytes_after)
        self._wrong.clear()


_Key = tuple[str, int]


def write_log_starts(sources: Sequence[Path], target: Path, result: RepairResult) -> bool:
    """Write the log starts of the partitions in ``target``, and describe each in ``result``. Return whether there are any.

    A line is that of the checkpoint in the log directory ``sources``, of several the highest: a follower learns last which
    records were deleted. Without a readable one it is the start that the leader epochs prove. Lines of other partitions that
    ``target`` has already are kept. Raises KsegError.
    """
    checkpoints = [_read(source / LOG_STARTS) for source in sources]
    whole = all(readable for _, readable in checkpoints)
    starts: dict[_Key, int] = {}
    unproved = 0
    for folder, segments in _by_folder(result.segments).items():
        partition = partition_of(folder.name)
        if partition is None or partition.state is not None or not folder.is_dir():
            continue
        key = partition.topic, partition.partition
        end = log_end(segments)
        stored = [known[key] for known, _ in checkpoints if key in known]
        start, why = max((each for each in stored if each <= end), default=None), f"from {LOG_STARTS}"
        if start is None and stored:
            result.log_starts.append(f"{folder.name}: {max(stored)} is not kept, because the log ends at {end}")
        if start is None and not whole:
            proved = (_proved_start(source / folder.name, segments) for source in sources)
            start, why = max(filter(None, proved), default=None), "proved by the leader epochs"
        if start is None:
            unproved += not whole
        else:
            starts[key] = start
            result.log_starts.append(f"{folder.name}: {start} ({why})")
    if unproved and any((source / META_PROPERTIES).exists() for source in sources):
        result.log_starts.append(
            f"nothing proves that of {count_of(unproved, 'partition')}: records that were deleted from the first segment "
            "can become readable again"
        )
    if not starts:
        return False
    others = _read(target / LOG_STARTS)[0]
    lines = [f"{topic} {number} {offset}" for (topic, number), offset in sorted({**others, **starts}.items())]
    with whole_file(target / LOG_STARTS) as out:
        out.write("".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode())
    return True


def _read(path: Path) -> tuple[dict[_Key, int], bool]:
    """Return the offsets in the readable lines of a checkpoint, and whether the file exists without an error.

    Raises UnreadableError.
    """
    found: list[Finding] = []
    offsets: dict[_Key, int] = {}
    if not os.path.isfile(path):
        return {}, False
    with open_source(str(path)) as source:
        for _, entry in walk_offset_checkpoint(source, found.append):
            offsets[entry.topic, entry.partition] = entry.offset
    for finding in found:
        fail_on_read_error(str(path))(finding)
    return offsets, not found and path.stat().st_size > 0


def _by_folder(segments: Iterable[SegmentRepair]) -> dict[Path, list[SegmentRepair]]:
    found: dict[Path, list[SegmentRepair]] = {}
    for segment in segments:
        if segment.target:
            found.setdefault(Path(segment.target).parent, []).append(segment)
    return found


def log_end(segments: Iterable[SegmentRepair]) -> int:
    """Return the offset after the last one of the result, or the name of an empty last segment."""
    ends = (base_offset_of(one.target) if one.last_offset is None else one.last_offset + 1 for one in segments)
    return max((end for end in ends if end is not None), default=0)


def _proved_start(source: Path, segments: Iterable[SegmentRepair]) -> int | None:
    """Return a log start that the source's leader epochs prove, None without a proof.

    The first epoch starts inside a batch only if records were deleted up to there: leaders and followers begin an epoch at
    the base offset of a batch. A start at the base offset of a later batch proves nothing, because a follower that lost
    its checkpoint begins a new one there.
    """
    entries = stored_leader_epochs(source)
    if not entries:
        return None
    epoch, start = entries[0]
    for segment in segments:
        if segment.first_offset is None or not segment.first_offset < start <= (segment.last_offset or 0):
            continue
        with SegmentReader(open_source(segment.target)) as reader:
            for window in reader.windows():
                rows = window.batches
                for row in range(rows.count):
                    if rows.magic[row] >= 2 and rows.base_offset[row] < start <= rows.last_offset[row]:
                        return start if rows.partition_leader_epoch[row] == epoch else None
    return None
