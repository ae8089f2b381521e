"""The offsets that a log from several replicas lacks, and which of them are lost.

An offset without a record is lost if a replica had a batch there and lost it. A replica without a batch there proves
nothing: an earlier repair has left a gap, or the cleaner has removed its record, and the content of the lost batch is
unknown. It can have had a tombstone or a marker of a transaction that the cleaner has removed from the other replica, too.
Which older records do not count then is decided in ``deleted_records``.

Damaged batches of a replica that another replica has: they are no losses, also if records in them were removed.

A replica that lacks records inside a batch proves nothing about the same offsets of another one: it can have been compacted.
But if the damaged bytes begin as its batch, or are equal to it, both are the same batch: the base offset, and the stored CRC
or all bytes that the CRC covers. Other bytes can be of other batches that the cleaner has removed, so none may be left over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kseg.commands.repair.damaged_replicas import (
    DamagedReplica,
    LeftOutBatches,
    OffsetRanges,
    ReplicaBatch,
    last_overlap,
)
from kseg.commands.repair.repair_losses import LostOffsets, LostRange
from kseg.findings import joined_ranges
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    INT64_MAX,
    LEGACY_CRC_AT,
    MAGIC_AT,
    PARTITION_LEADER_EPOCH_AT,
    SIZE_AT,
)
from kseg.format.storage.naming import base_offset_of
from kseg.format.writer.output_guards import PartitionFolder
from kseg.text import count_of


@dataclass(slots=True)
class RecordGaps:
    """The ranges of a log (both offsets inclusive) in which not each offset has a record, in order; ``end`` is its end.

    ``deletions`` has the compacted replicas that prove which records of others are deleted ones, each with the offset up to
    which it does, exclusive.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    deletions: list[tuple[DamagedReplica, int]] = field(default_factory=list)

    def add(self, first: int, last: int) -> None:
        """Add a range, unless it is empty. Adjacent ranges become one."""
        if first > last:
            return
        if self.ranges and self.ranges[-1][1] + 1 >= first:
            self.ranges[-1] = self.ranges[-1][0], last
        else:
            self.ranges.append((first, last))


def lost_ranges(replicas: Sequence[DamagedReplica], missing: RecordGaps) -> list[LostRange]:
    """Return a row for each missing range of offsets that a replica lost. The first replica has the log's history."""
    leader = replicas[0]
    # After the end of the first one, replicas of an earlier leader epoch had another history.
    same = [replica for replica in replicas if replica is leader or replica.epochs.latest == leader.epochs.latest]
    after_end = [loss for replica in same for loss in replica.losses]
    after_end += [loss for replica in replicas for loss in replica.left_out]
    beyond = max((loss.last_offset for loss in after_end if loss.last_offset is not None), default=-1)
    ranges = [*missing.ranges, *([(missing.end, beyond)] if beyond >= missing.end else [])]
    losses = _LossesByOffset(replicas, missing)
    found = [row for first, last in ranges for row in losses.between(first, last)]
    found += _unknown_end(replicas, same, found)
    return [*found, *_lost_epoch(replicas, found, missing.end)]


def _unknown_end(
    replicas: Sequence[DamagedReplica], own: Sequence[DamagedReplica], others: Sequence[LostRange]
) -> list[LostRange]:
    """Return the lost bytes after the last batch of one of ``own`` whose offsets nothing shows, if there are any.

    Replicas have the same batches, so these bytes are lost unless the other replicas have as many after that batch, and from
    the offset in the name of their segment on. A replica that ends there proves nothing: it has copied less. ``others`` are
    the other losses.
    """
    named = {(row.file, row.position) for row in others}
    for replica in own:
        rows = [row for row in replica.end_of_unknown_offsets() if (row.file, row.position) not in named]
        copied = _bytes_from(replicas, max(replica.end, base_offset_of(rows[0].file) or 0)) if rows else 0
        if sum(row.end - row.position for row in rows) > copied:
            why = f"; the other replicas have only {count_of(copied, 'byte')} of batches there" if copied else ""
            return [replace(rows[-1], why=rows[-1].why + why)]
    return []


def _bytes_from(replicas: Sequence[DamagedReplica], offset: int) -> int:
    """Return the size of the batches from an offset on that at least one replica has."""
    ordered = merge(*(replica.batches() for replica in replicas), key=lambda batch: batch.base_offset)
    groups = groupby(ordered, key=lambda batch: batch.base_offset)
    return sum(next(group).size for first, group in groups if first >= offset)


def _lost_epoch(replicas: Sequence[DamagedReplica], others: Sequence[LostRange], end: int) -> Iterator[LostRange]:
    """Yield a row if only the checkpoint of the first replica has its latest leader epoch, and shows that its log was cut.

    ``others`` are the other losses, ``end`` is that of the result. An epoch that begins at the log's end, or right after
    lost offsets, can be one without records. Otherwise the log reached that offset, but whether the epoch had records,
    nobody knows. Nor is the epoch certain: a broker that is killed right after a truncation leaves the entries of the old
    history (``truncateFromEndAsyncFlush``).
    """
    leader = replicas[0]
    logs = PartitionFolder(Path(leader.path), finish=True).logs
    epoch, start = leader.epochs.entries[-1] if leader.epochs.entries else (-1, 0)
    ends = [loss.last_offset + 1 for loss in others if loss.last_offset is not None]
    reached = max(leader.end, *(base_offset_of(name) or 0 for name in logs), *ends)
    if start <= reached or any(epoch in replica.starts for replica in replicas):
        return
    newest = Path(leader.path) / logs[-1]
    size = newest.stat().st_size
    why = (
        f"by the leader-epoch-checkpoint of {leader.path}, leader epoch {epoch} began at offset {start}, but no replica has "
        "a batch of it: its records are lost, if it had any, and batches of earlier leader epochs do not count from there on"
    )
    yield LostRange(str(newest), size, size, end, None, "missing-batches", why)


class KnownOffsets:
    """The offsets of some losses."""

    def __init__(self, losses: Iterable[LostRange]) -> None:
        self._ranges = joined_ranges(
            (one.offset, one.last_offset) for one in losses if one.offset is not None and one.last_offset is not None
        )

    def __contains__(self, row: LostRange) -> bool:
        """Return whether losses have all offsets of a row."""
        if row.offset is None or row.last_offset is None:
            return False
        at = bisect_right(self._ranges, (row.offset, INT64_MAX)) - 1
        return at >= 0 and row.last_offset <= self._ranges[at][1]


class _Part(NamedTuple):
    """The losses of the n-th replica that can have had the offsets ``low`` to ``high``."""

    low: int
    high: int
    n: int
    losses: list[LostRange]

    def within(self, first: int, last: int) -> _Part:
        """Return the part of it in a range of offsets."""
        return self._replace(low=max(first, self.low), high=min(last, self.high))

    def order(self) -> tuple[int, ...]:
        """Return the order of parts. Of those with one first offset, the losses of known offsets are first."""
        return self.low, self.losses[0].last_offset is None, self.high, self.n


class _LossesByOffset:
    """The losses of replicas by their offsets. The missing offsets of the result are looked up in order."""

    def __init__(self, replicas: Sequence[DamagedReplica], missing: RecordGaps) -> None:
        self._replicas = replicas
        self._deletions = missing.deletions
        self._lost: dict[str, OffsetRanges] = {}
        self._named: set[LostRange] = set()
        parts: dict[tuple[object, ...], _Part] = {}
        for n, replica in enumerate(replicas):
            lost = []
            for loss in (*replica.losses, *replica.left_out):
                low, last = replica.lost_offsets(loss)
                high = INT64_MAX if last is None else last
                if replica.is_other_history(loss):
                    continue
                lost += [(low, high)] if low <= high else []
                if not isinstance(loss, LostOffsets):  # the repair of the result names these: they need no batches
                    parts.setdefault((low, high, n, type(loss)), _Part(low, high, n, [])).losses.append(loss)
            self._lost[replica.path] = joined_ranges(lost)
        self._waiting = sorted(parts.values(), key=lambda part: part.low, reverse=True)
        self._active: list[_Part] = []

    def between(self, first: int, last: int) -> Iterator[LostRange]:
        """Yield a row for each loss in a missing range: for adjacent ones, those of the first replica that lost some.

        Each offset is in one row. A loss that begins at the same offset as another one gets a row without offsets.
        """
        while self._waiting and self._waiting[-1].low <= last:
            self._active.append(self._waiting.pop())
        self._active = [one for one in self._active if one.high >= first]
        parts = sorted((one.within(first, last) for one in self._active), key=_Part.order)
        at = 0
        while at < len(parts):
            begin, end, *_ = parts[at]
            joined = []
            while at < len(parts) and parts[at].low <= end + 1:
                joined.append(parts[at])
                end = max(end, parts[at].high)
                at += 1
            n = min(part.n for part in joined)
            others = (loss for part in joined if part.n != n for loss in part.losses)
            also = "".join(f"; {why}" for why in dict.fromkeys(o.why for o in others if isinstance(o, LeftOutBatches)))
            own = [[*group] for _, group in groupby((one for one in joined if one.n == n), key=lambda part: part.low)]
            lows = [begin, *(group[0].low for group in own[1:]), end + 1]
            for group, low, following in zip(own, lows, lows[1:], strict=False):
                loss = group[0].losses[0]
                why = loss.why + also + self._lacking(low, following - 1)
                yield replace(loss, offset=low, last_offset=following - 1, why=why)
                self._named.add(loss)
                for part in group:
                    yield from self._unnamed(part.losses)

    def _unnamed(self, losses: list[LostRange]) -> Iterator[LostRange]:
        """Yield a row without offsets for those of the losses that have no row yet, if they had known offsets."""
        for loss in losses:
            if loss.last_offset is not None and loss not in self._named:
                yield replace(loss, offset=None, last_offset=None)
        self._named.update(losses)
        del losses[1:]

    def _lacks(self, replica: DamagedReplica, first: int, last: int) -> bool:
        """Return whether a replica has offsets before and after these, and lost none of them: it had no such batch."""
        return replica.start <= first and last < replica.end and last_overlap(self._lost[replica.path], first, last) < 0

    def _lacking(self, first: int, last: int) -> str:
        """Return the evidence of the replicas that lack records at lost offsets, but lost no batch there."""
        for cleaned, end in self._deletions:
            if self._lacks(cleaned, first, last):
                return (
                    f"; may be lost: {cleaned.path} was compacted and lacks records there, too. Before offset {end}, "
                    "records that it lacks are not in the result: others can be deleted ones"
                )
        others = [replica for replica in self._replicas if self._lacks(replica, first, last)]
        if not others:
            return ""
        compacted = next((replica for replica in others if replica.cleaned > first), None)
        shown = "was compacted" if compacted else "nothing proves compaction there"
        return (
            f"; may be lost: {(compacted or others[0]).path} lacks records there, too, and {shown}. If a deletion or the "
            "marker of a transaction was there, older records are valid again"
        )


def drop_found_losses(replicas: Sequence[DamagedReplica]) -> None:
    """Move the losses of replicas whose batches are proved to be in another replica to ``found``."""
    for replica in replicas:
        for other in replicas:
            if other is not replica and replica.losses:
                found = {one.loss: None for one in _compared(replica, other) if one.is_found}
                replica.losses = [loss for loss in replica.losses if loss not in found]
                replica.found += found


def share_lost_batches(replicas: Sequence[DamagedReplica]) -> None:
    """Add the damaged batches of replicas that others have, with the same leader epoch, to the batches that both had."""
    for replica in replicas:
        for other in replicas:
            if other is not replica and replica.losses:
                end = max((one.shared for one in _compared(replica, other)), default=0)
                for one, path in ((replica, other.path), (other, replica.path)):
                    one.shared[path] = max(one.shared.get(path, 0), end)


def _compared(replica: DamagedReplica, other: DamagedReplica) -> list[_Comparison]:
    """Compare the losses of a replica with the batches of another one."""
    found = [_Comparison(replica, loss) for loss in replica.losses if not isinstance(loss, LostOffsets)]
    waiting = sorted(found, key=lambda one: one.low, reverse=True)
    active: list[_Comparison] = []
    for batch in other.batches() if waiting else ():
        while waiting and waiting[-1].low <= batch.last_offset:
            active.append(waiting.pop())
        for one in active:
            one.compare(batch)
        active = [one for one in active if not one.is_done]
        if not waiting and not active:
            break
    return found


class _Comparison:
    """Compares lost bytes of a replica with the batches of another one at their offsets, in order."""

    def __init__(self, replica: DamagedReplica, loss: LostRange) -> None:
        self.loss = loss
        low, self._high = replica.lost_offsets(loss)
        self._at = loss.position
        self._offset = int.from_bytes(_read(Path(loss.file), self._at, SIZE_AT))
        self.low = max(low, self._offset)  # no batch before it counts
        self.is_found = self.is_done = False
        self.shared = 0  # the offset after the last of the batches that are equal, also in their leader epochs

    def compare(self, batch: ReplicaBatch) -> None:
        """Compare the next batch: all bytes, or all offsets, of the loss must be those of equal batches."""
        offset = batch.last_offset if batch.wrapper else batch.base_offset
        if self._at == self.loss.position and offset < self._offset:
            return  # it is before the lost bytes, whose offsets need not be known
        lost = _read(Path(self.loss.file), self._at, min(batch.size, self.loss.end - self._at))
        is_same = _is_same(lost, _read(batch.path, batch.position, batch.size))
        if is_same and batch.epoch >= 0 and int.from_bytes(lost[PARTITION_LEADER_EPOCH_AT:MAGIC_AT]) == batch.epoch:
            self.shared = batch.last_offset + 1
        self._at += batch.size
        has_all_offsets = self._high is not None and self._high <= batch.last_offset
        self.is_found = is_same and (self._at == self.loss.end or has_all_offsets)
        self.is_done = self.is_found or not is_same or self._at > self.loss.end


def _is_same(lost: bytes, valid: bytes) -> bool:
    """Return whether damaged bytes, of which the last ones can be missing, are those of a valid batch."""
    crc, covered = (CRC_AT, ATTRIBUTES_AT) if valid[MAGIC_AT] >= 2 else (LEGACY_CRC_AT, MAGIC_AT)
    has_crc = lost[crc : crc + 4] == valid[crc : crc + 4]
    return lost[:SIZE_AT] == valid[:SIZE_AT] and (has_crc or lost[covered:] == valid[covered:])


def _read(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)
