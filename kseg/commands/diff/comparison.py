"""``kseg diff`` as a library: two replicas of a partition, merged by offset in constant memory.

Segments are compared in blocks of bytes as far as they are equal, and these bytes are checked once for both. Then batches
with equal headers and bytes are not opened. For all others the records decide. Equal records in different batches are the
same content, if their producers, sequences and transactions are equal. Different records at one offset are divergence.
Records that only one replica has are classified by their place in the other: before its start, after its end, in a damaged
place, or in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from kseg.commands.diff.differences import SAME_CONTENT, Comparison, Difference, DifferencePlace, ReadableRange
from kseg.commands.diff.replica import Replica, ReplicaSummary
from kseg.findings import do_nothing
from kseg.format.compress.codecs import codec_name
from kseg.format.log_loader.loaded_files import truncation_offset
from kseg.format.record import equality, memory
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CODEC_MASK, LOG_APPEND_TIME
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import base_offset_of


def compare(
    a: Replica, b: Replica, result: Comparison, *, shallow: bool = False, progress: Progress = do_nothing
) -> Iterator[Difference]:
    """Yield the differences of two whole replicas in offset order; with ``shallow`` by headers and CRCs only.

    ``result`` is complete after the last one. Both replicas are closed. Raises KsegError if one cannot be read.
    """
    a.progress = b.progress = progress
    b.other = a
    merge = _Merge(a, b, result, shallow=shallow)
    with closing(a), closing(b):
        while a.more() & b.more():
            merge.find_unread()
            if merge.skip_same_batches() or merge.skip_one_only() or merge.skip_empty_batches():
                pass
            elif shallow:
                merge.skip_unopened()
            else:
                yield from merge.compare_records_of_group()
            yield from merge.complete()
        while a.more() | b.more():
            merge.find_unread()
            merge.skip_tail()
            yield from merge.complete()
        merge.find_unread()
    merge.flush()
    result.damage = a.damage + b.damage
    yield from merge.complete()


def truncations(a: ReplicaSummary, b: ReplicaSummary) -> dict[str, int | None]:
    """Return the offset to which each replica would truncate under the other, None if leader epochs do not decide it."""
    return {"a": truncation_offset(a.lineage, b.lineage), "b": truncation_offset(b.lineage, a.lineage)}


class _Merge:
    """The state of a comparison: two cursors, and the difference that may still be extended."""

    def __init__(self, a: Replica, b: Replica, result: Comparison, *, shallow: bool) -> None:
        self._shallow = shallow
        self.a = a
        self.b = b
        self.result = result
        self._complete: list[Difference] = []
        self._pending: Difference | None = None
        self._last = 0
        self._count = 0

    def find_unread(self) -> None:
        """Find the offsets before the current batches that neither replica can read. No difference extends over them."""
        if self.result.union.update(self.a, self.b):
            self.flush()

    def skip_same_batches(self) -> bool:
        """Skip batches that are equal except for their leader epochs; return False if there are none."""
        a, b = self.a, self.b
        shared = a.batches is b.batches and a.row == b.row
        if shared:
            count = a.stop - a.row
        else:
            count = equality.count_same_headers(a.batches, a.row, b.batches, b.row, True)
        if count and not self._shallow and not shared:
            count = self._same_bytes(count)
        if count:
            self.flush()
            self._update_last_common(a.batches.last_offset[a.row + count - 1])
        else:
            count = equality.count_same_headers(a.batches, a.row, b.batches, b.row, False)
            if not count or a.batches.partition_leader_epoch[a.row] == b.batches.partition_leader_epoch[b.row]:
                return False
            count = self._other_epochs(count)
        a.advance(count)
        b.advance(count)
        return True

    def _same_bytes(self, count: int) -> int:
        """Return how many of ``count`` batches are equal byte for byte; in a window they are contiguous.

        Equal CRCs alone would be wrong for one batch in four billion.
        """
        a, b = self.a, self.b
        assert a.window is not None
        assert b.window is not None
        left, right = a.batches.at[a.row], b.batches.at[b.row]
        last = a.row + count - 1
        size = a.batches.at[last] + a.batches.size[last] - left
        if memory.equal_bytes(a.window.data, left, b.window.data, right, size):
            return count
        return 0 if count == 1 else self._same_bytes(count // 2)

    def _other_epochs(self, count: int) -> int:
        """Return the number of batches in sequence that differ by the same pair of leader epochs and by nothing else."""
        a, b = self.a, self.b
        left, right = a.batches.partition_leader_epoch, b.batches.partition_leader_epoch
        pair = left[a.row], right[b.row]
        run = 1
        while run < count and (left[a.row + run], right[b.row + run]) == pair:
            run += 1
        last = a.batches.last_offset[a.row + run - 1]
        self._difference("leader-epoch", a.low, last, run, detail=f"{pair[0]} and {pair[1]}")
        self._update_last_common(last)
        return run

    def skip_one_only(self) -> bool:
        """Skip a batch that ends before the other replica's current batch begins; return False if the two overlap."""
        a, b = self.a, self.b
        if a.high < b.low:
            self._skip_batch(a, b)
        elif b.high < a.low:
            self._skip_batch(b, a)
        else:
            return False
        return True

    def skip_tail(self) -> None:
        """Skip a batch after the other replica has ended."""
        a, b = self.a, self.b
        self._skip_batch(*((b, a) if a.finished else (a, b)))

    def _skip_batch(self, here: Replica, there: Replica) -> None:
        row = here.row
        if here.is_message_set:
            self._skip_message_set(here, there)
            return
        empty = here.batches.magic[row] >= 2 and not here.batches.record_count[row]
        records = 1 if here.batches.magic[row] < 2 else here.batches.record_count[row]
        if empty and there.first_offset is not None and not there.finished:
            # Compaction keeps an empty batch with the producer's last sequence: no record is missing.
            self._difference("batching", here.low, here.high, 1, detail="an empty batch")
        else:
            self._only(here, there, here.low, here.high, records)
        here.advance()

    def _skip_message_set(self, here: Replica, there: Replica) -> None:
        """Skip a compressed message set. Its header lacks its first offset and the number of its messages.

        Without opening it, all offsets after the batch before it count.
        """
        if self._shallow:
            self._only(here, there, here.low, here.high, here.high - here.low + 1)
            here.advance()
            return
        here.open()
        while True:
            if here.i < here.end:
                self._records_only(here, there, None)
            if not here.next_part():
                break
        here.advance()

    def _only(self, here: Replica, there: Replica, first: int, last: int, count: int) -> None:
        begin = base_offset_of(there.files[0].path)
        if (there.torn or there.broken) and (begin is None or last >= begin):
            kind = "damaged"
        elif there.starts_after(last):
            kind = "starts-later"
        else:
            kind = "ends-earlier" if there.finished and not there.opened else "missing"
        self._difference(kind, first, last, count, lacking="b" if here is self.a else "a")

    def skip_empty_batches(self) -> bool:
        """Skip two batches without records whose producers differ; return False if the current ones are others.

        The log cleaner keeps such a batch only for its producer: brokers load the next sequence from it.
        """
        a, b = self.a, self.b
        records = a.batches.record_count[a.row] or b.batches.record_count[b.row]
        if records or (a.low, a.high) != (b.low, b.high):
            return False
        found = self._producer_fields()
        if found:
            self._difference("content", a.low, a.high, 0, detail=", ".join(found))
            a.advance()
            b.advance()
        return bool(found)

    def _producer_fields(self) -> list[str]:
        """Return the names of the producer's fields in which the current batches differ."""
        a, b = self.a, self.b
        return equality.different_producer_fields(a.batches, a.row, b.batches, b.row)

    def skip_unopened(self) -> None:
        """Skip two different batches that overlap, and all batches that overlap with them, without opening them."""
        a, b = self.a, self.b
        first, last = min(a.low, b.low), max(a.high, b.high)
        self._difference("unopened", first, last, 1, detail=_how_they_differ(a.batches, a.row, b.batches, b.row))
        for replica in (a, b):
            while replica.more() and replica.low <= last:
                replica.advance()

    def compare_records_of_group(self) -> Iterator[Difference]:
        """Compare the records of overlapping batches until both replicas are between batches again.

        Yields the differences that are complete: a group can be as long as the log.
        """
        a, b = self.a, self.b
        low = min(a.low, b.low)
        how = _how_they_differ(a.batches, a.row, b.batches, b.row)
        before = dict(self.result.counts)
        first_of_a, first_of_b = a.batch_count, b.batch_count
        places = _place(a), _place(b)
        a.open()
        b.open()
        while a.opened or b.opened:
            for replica in (a, b):
                if replica.opened and replica.i == replica.end and not replica.next_part():
                    replica.advance()
            if a.opened and b.opened:
                self._compare_records()
            elif a.opened:
                self._catch_up(a, b)
            elif b.opened:
                self._catch_up(b, a)
            yield from self.complete()
        if before == self.result.counts:
            high = max(a.last_offset or 0, b.last_offset or 0)
            of_a, of_b = a.batch_count - first_of_a, b.batch_count - first_of_b
            detail = how if of_a == of_b == 1 else "different offsets"
            self._difference("batching", low, high, of_a, detail=detail, places=places)
            self._update_last_common(high)

    def _catch_up(self, here: Replica, there: Replica) -> None:
        """Open the next batch of ``there`` if it overlaps the records of ``here``; else skip those records."""
        if there.more() and there.low <= here.records.offset[here.end - 1]:
            there.open()
        else:
            self._records_only(here, there, None)

    def _compare_records(self) -> None:
        a, b = self.a, self.b
        if a.offset < b.offset:
            self._records_only(a, b, b.offset)
        elif b.offset < a.offset:
            self._records_only(b, a, a.offset)
        else:
            count = min(a.end - a.i, b.end - b.i)
            magic = min(a.batches.magic[a.row], b.batches.magic[b.row])
            sides = (a.data, a.records, a.opened_batches, a.i, b.data, b.records, b.opened_batches, b.i, count, magic)
            others = self._producer_fields()
            equal = 0 if others else equality.count_same(*sides)
            if equal:
                self._common_records(a.records.offset[a.i + equal - 1])
            else:
                other = _count_same_offsets(a, b, count) if others else equality.count_different(*sides)
                last = a.records.offset[a.i + other - 1]
                detail = ", ".join(_record_fields(a, b, magic) + others)
                self._difference("content", a.offset, last, other, detail=detail)
            a.i += equal or other
            b.i += equal or other

    def _records_only(self, here: Replica, there: Replica, end: int | None) -> None:
        """Skip the records before offset ``end``, or all of the batch if it is None."""
        first = here.i
        offsets = here.records.offset
        i = here.end
        if end is not None:
            i = first + 1
            while i < here.end and offsets[i] < end:
                i += 1
        self._only(here, there, offsets[first], offsets[i - 1], i - first)
        here.i = i

    def _common_records(self, offset: int) -> None:
        """Record that records up to ``offset`` are equal. A run of different batches with equal records continues."""
        if self._pending is not None and self._pending.kind not in SAME_CONTENT:
            self.flush()
        self._update_last_common(offset)

    def _update_last_common(self, offset: int) -> None:
        if "content" not in self.result.counts:
            self.result.last_common_offset = offset

    def _difference(
        self,
        kind: str,
        first: int,
        last: int,
        count: int,
        *,
        lacking: str | None = None,
        detail: str = "",
        places: tuple[DifferencePlace | None, DifferencePlace | None] | None = None,
    ) -> None:
        """Record a difference, or extend the previous one if it continues."""
        result, pending = self.result, self._pending
        result.counts[kind] = result.counts.get(kind, 0) + count
        if lacking is not None:
            result.lacking[kind, lacking] += count
        equal = pending is not None and (pending.kind, pending.lacking) == (kind, lacking)
        if pending is not None and equal and (kind == "content" or pending.detail == detail):
            self._last = last
            self._count += count
            return
        self.flush()
        here = places or (
            None if lacking == "a" else _place(self.a),
            None if lacking == "b" else _place(self.b),
        )
        result.stretches[kind] = result.stretches.get(kind, 0) + 1
        self._pending = Difference(kind, first, last, lacking, count, *here, detail)
        self._last, self._count = last, count
        if kind == "content" and result.first_difference is None:
            result.first_difference = self._pending

    def complete(self) -> Iterable[Difference]:
        """Return the differences that are complete since the last call."""
        found, self._complete = self._complete, []
        return found

    def flush(self) -> None:
        """Complete the pending difference."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        complete = replace(pending, last_offset=self._last, count=self._count)
        place = complete.b if complete.lacking == "a" else complete.a
        if complete.kind == "damaged" and place is not None:
            found = ReadableRange(complete.first_offset, self._last, self._count, place.file, place.position)
            self.result.union.add_readable("b" if complete.lacking == "a" else "a", found)
        self._complete.append(complete)


def _place(replica: Replica) -> DifferencePlace | None:
    """Return the place of the current batch, None at the end of the replica."""
    if replica.row >= replica.stop:
        return None
    batches, row = replica.batches, replica.row
    epoch = batches.partition_leader_epoch[row] if batches.magic[row] >= 2 else None
    return DifferencePlace(replica.file, batches.position[row], epoch)


def _how_they_differ(left: BatchColumns, i: int, right: BatchColumns, j: int) -> str:
    """Describe the header fields in which two batches differ."""
    if (left.base_offset[i], left.last_offset[i]) != (right.base_offset[j], right.last_offset[j]):
        return "different offsets"
    found = []
    if left.magic[i] != right.magic[j]:
        found.append(f"v{left.magic[i]} and v{right.magic[j]}")
    codecs = left.attributes[i] & CODEC_MASK, right.attributes[j] & CODEC_MASK
    if codecs[0] != codecs[1]:
        found.append(" and ".join(map(codec_name, codecs)))
    found += [name for name in _HEADER if getattr(left, name)[i] != getattr(right, name)[j]]
    found += equality.different_producer_fields(left, i, right, j)
    return ", ".join(found) or "different bytes"


_HEADER = ("record_count", "base_timestamp", "max_timestamp", "partition_leader_epoch")


def _count_same_offsets(a: Replica, b: Replica, count: int) -> int:
    """Return how many of the next ``count`` records, at least one, have the same offsets in both replicas."""
    left, right = a.records.offset, b.records.offset
    n = 1
    while n < count and left[a.i + n] == right[b.i + n]:
        n += 1
    return n


def _record_fields(a: Replica, b: Replica, magic: int) -> list[str]:
    """Return the names of the fields in which the current records differ, of those that version ``magic`` has."""
    found = [name for name in ("key", "value") if _part(a, name) != _part(b, name)]
    left, right = a.records, b.records
    if magic and left.timestamp[a.i] != right.timestamp[b.i]:
        found.append("timestamp")
    if magic and (a.batches.attributes[a.row] ^ b.batches.attributes[b.row]) & LOG_APPEND_TIME:
        found.append("timestamp_type")
    if magic >= 2 and not equality.same_headers(a.data, left, a.i, b.data, right, b.i):
        found.append("headers")
    return found


def _part(replica: Replica, name: str) -> bytes | None:
    size = getattr(replica.records, f"{name}_size")[replica.i]
    at = getattr(replica.records, f"{name}_at")[replica.i]
    return None if size < 0 else bytes(replica.data[at : at + size])
