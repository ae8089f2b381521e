"""Find the batches of a segment whose base offsets can't be right, over the whole segment.

No CRC covers the base offset, and damage moves and copies whole batches. The batches that stay are the most that have
increasing offsets (a longest increasing subsequence), so a few wrong ones never cost many right ones. A wrong base
offset is corrected only if there is proof of the right one, see ``_Evidence``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kseg.findings import Finding
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.framing import clamped, increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, DELETE_HORIZON, INT32_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source

# Batches that are compared with each other at a time: more would take more than 100 MB.
COMPARED = 200_000
# So many offsets are not missing between two adjacent batches, one of which differs in one bit from the place it has.
FAR = 1 << 16


@dataclass(frozen=True, slots=True)
class Batch:
    """What is known of a batch: positions are bytes of the file, ``end`` exclusive, offsets inclusive.

    ``stored`` is the number in its base offset field, ``inner`` the last offset in a v0 wrapper, -1 for others.
    ``doubtful`` are those whose size field was overwritten: then the base offset in front of it may be, too.
    """

    position: int
    end: int
    low: int
    high: int
    stored: int
    crc: int
    first_time: int
    last_time: int
    producer: tuple[int, int] | None
    sequence: int
    next_sequence: int
    inner: int
    doubtful: bool = False

    def beginning_at(self, low: int) -> Batch:
        """Return the batch as it is if its first offset is ``low``."""
        high = low + self.high - self.low
        # Of a wrapper the last offset is stored.
        stored = high if self.stored == self.high else low
        return replace(self, low=low, high=high, stored=stored, inner=-1)


@dataclass(frozen=True, slots=True)
class OffsetOrder:
    """Batches whose offsets can't be right, by their position in the file.

    ``previous`` are those that have no place, with the last offset before each. ``corrected`` are those whose offset
    is proved, with what must be added to it. ``doubtful`` are those of ``previous`` that nothing contradicts, but whose
    size field, right behind the base offset, was overwritten.

    ``head`` and ``tail`` are the first and the last of the batches that stay, None where no batch does. ``size`` is the
    number of bytes in the file.
    """

    previous: dict[int, int]
    corrected: dict[int, int]
    doubtful: set[int] = field(default_factory=set)
    head: Batch | None = None
    tail: Batch | None = None
    size: int = 0


IN_ORDER = OffsetOrder({}, {})


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The batches around a segment: the last one of the segment before it, and the first one of the segment after it.

    None where a segment is missing, or where that batch does not stand at the end of its file. ``newest``: no segment
    follows. That one is never compacted, so its first batch has the offset of its name.
    """

    before: Batch | None = None
    after: Batch | None = None
    newest: bool = False

    def contradicts(self, first: Batch, name: int | None) -> bool:
        """Return whether the first batch begins after the offset that it has if no other was there before it."""
        joins = self.newest and self.before is not None and self.before.high + 1 == name
        return joins and first.position == 0 and name is not None and first.low > name


NO_NEIGHBOURS = Neighbours()


def ceiling_of(path: str) -> int | None:
    """Return the first offset that a segment of that name can't hold, None if the name doesn't say it."""
    named = base_offset_of(path)
    return None if named is None else named + INT32_MAX + 1


def find_order(
    open_segment: Callable[[], Source],
    ceiling: int | None = None,
    floor: int = -1,
    neighbours: Neighbours = NO_NEIGHBOURS,
) -> OffsetOrder:
    """Read a segment, and return which of its batches can't stay where they are with the offsets they have.

    Batches that reach ``ceiling``, where the next segment begins, or that do not lie above ``floor``, the last offset of
    the segment before, are left out, unless their offset can be corrected. Most segments are in order: then one pass over
    the headers is all. Raises KsegError as reading does.
    """
    overwritten: set[int] = set()

    def take(finding: Finding) -> None:
        facts = finding.facts
        proved = finding.rule == "invalid-size" and "proved_size" in facts
        if proved and not _one_bit_apart(facts["size"], facts["proved_size"]):
            overwritten.add(finding.position or 0)

    with SegmentReader(open_segment(), report=take) as reader:
        ends: list[Batch] = []
        ascends = _ascends(reader, ceiling, floor, ends) and not overwritten
        if ascends and not (ends and neighbours.contradicts(ends[0], reader.name_offset)):
            head, tail = (ends[0], ends[-1]) if ends else (None, None)
            return OffsetOrder({}, {}, head=head, tail=tail, size=reader.position)
    found = _Found(ceiling, floor, neighbours)
    with SegmentReader(open_segment(), report=take) as reader:
        found.name = reader.name_offset
        block: list[Batch] = []
        for batch in batches_of(reader):
            block.append(batch if batch.position not in overwritten else replace(batch, doubtful=True))
            if len(block) == COMPARED:
                # The second half is compared with what follows it, too.
                found.judge(block, COMPARED // 2)
                del block[: COMPARED // 2]
        found.size = reader.position
        found.judge(block, len(block))
    return OffsetOrder(found.previous, found.corrected, found.doubtful, found.head, found.tail, found.size)


def _ascends(reader: SegmentReader, ceiling: int | None, floor: int, ends: list[Batch]) -> bool:
    """Return whether all offsets increase, as far as headers show it; ``ends`` receives the first and last batches."""
    last_offset = max((reader.name_offset or 0) - 1, floor)
    for window in reader.windows():
        batches = window.batches
        for row in range(batches.count):
            if batches.crc_state[row] == CRC_BAD:
                continue
            if batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK:
                return False  # where it begins is not in the header
            low, high = clamped(batches.base_offset[row]), batches.last_offset[row]
            if low <= last_offset or (ceiling is not None and high >= ceiling):
                return False
            if not ends:
                ends.append(_batch(window, row, None))
            last_offset = max(last_offset, high)
        _keep_last(window, ends)
    return True


def _keep_last(window: Window, ends: list[Batch]) -> None:
    """Put the last batch of a window with a good CRC at the end of ``ends``, which holds two at most."""
    for row in range(window.batches.count - 1, -1, -1):
        if window.batches.crc_state[row] != CRC_BAD:
            ends[1:] = [_batch(window, row, None)]
            return


def batches_of(reader: SegmentReader) -> Iterator[Batch]:
    """The batches with a good CRC and offsets that do not contradict each other."""
    opener = DeepIterator()
    for window in reader.windows():
        batches = window.batches
        wrapped: dict[int, tuple[int, int]] = {}
        if any(batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK for row in range(batches.count)):
            for chunk in opener.chunks(window):
                wrapped.update(_wrapped(chunk))
        for row in range(batches.count):
            if batches.crc_state[row] != CRC_BAD and batches.last_offset[row] >= clamped(batches.base_offset[row]):
                yield _batch(window, row, wrapped.get(row))


def _wrapped(chunk: Chunk) -> Iterator[tuple[int, tuple[int, int]]]:
    """The first and the last offset in each v0 and v1 wrapper."""
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        wrapper = batches.magic[row] < 2 and batches.attributes[row] & CODEC_MASK
        # A v0 wrapper whose own offset is not that of its last message does not count as intact.
        if wrapper and batches.record_sum[row] and (batches.intact[row] or not batches.magic[row]):
            yield row, (batches.first_record_offset[row], batches.last_record_offset[row])


def _batch(window: Window, row: int, wrapped: tuple[int, int] | None) -> Batch:
    batches = window.batches
    high = batches.last_offset[row]
    low = high if batches.magic[row] < 2 else clamped(batches.base_offset[row])
    inner = -1
    if wrapped is not None:
        low = min(wrapped[0], high)
        inner = wrapped[1] if batches.magic[row] == 0 else -1
    attributes, producer = batches.attributes[row], None
    if batches.producer_id[row] >= 0 and not attributes & CONTROL and batches.base_sequence[row] >= 0:
        producer = batches.producer_id[row], batches.producer_epoch[row]
    horizon = batches.magic[row] >= 2 and attributes & DELETE_HORIZON
    sequence = batches.base_sequence[row]
    return Batch(
        position=batches.position[row],
        end=batches.position[row] + batches.size[row],
        low=low,
        high=high,
        stored=batches.base_offset[row],
        crc=batches.crc[row],
        first_time=-1 if horizon else batches.base_timestamp[row],
        last_time=batches.max_timestamp[row],
        producer=producer,
        sequence=sequence,
        next_sequence=increment_sequence(sequence, high - low + 1),
        inner=inner,
    )


@dataclass(slots=True)
class _Found:
    """What has been found of a segment, block by block; the fields of the result are those of ``OffsetOrder``.

    ``last`` is the last offset that stays, at first the one before the segment.
    """

    ceiling: int | None
    last: int
    neighbours: Neighbours
    name: int | None = None
    previous: dict[int, int] = field(default_factory=dict)
    corrected: dict[int, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    head: Batch | None = None
    tail: Batch | None = None
    size: int | None = None

    def judge(self, block: list[Batch], stop: int) -> None:
        """Decide which of the first ``stop`` batches stay. ``size`` is set if the block holds the segment's last batch."""
        limit = 1 << 63 if self.ceiling is None else self.ceiling
        late = self.head is None and block and self.neighbours.contradicts(block[0], self.name)
        if not late and _all_in_order(block, max(self.last, (self.name or 0) - 1), limit):
            self._keep(block[:stop])
            return
        moved = list(block)
        corrected = self._correct(moved, limit)
        strays = _before_name(moved, self.name or 0)
        fitting = [n for n, batch in enumerate(moved) if n not in strays and batch.high < limit]
        kept = dict(zip(fitting, _most_in_order([moved[n] for n in fitting], self.last), strict=True))
        doubtful = _doubtful(moved, [n for n in fitting if kept[n]], self.last, self.name)
        for n in range(stop):
            if moved[n].high >= limit:
                continue  # reported as such
            stays = kept.get(n, False)
            if not stays or n in doubtful:
                self.previous[block[n].position] = self.last
                if stays:
                    self.doubtful.add(block[n].position)
                continue
            if n in corrected:
                self.corrected[block[n].position] = corrected[n]
            self._keep([moved[n]])

    def _keep(self, batches: list[Batch]) -> None:
        if batches:
            self.head = self.head or batches[0]
            self.tail = batches[-1]
            self.last = batches[-1].high

    def _correct(self, moved: list[Batch], limit: int) -> dict[int, int]:
        """Correct the base offsets of a block that are proved wrong; returns what was added to each."""
        # The adjacent batches of other segments are compared with as if they were in this file.
        before = self.neighbours.before if self.head is None else None
        after = self.neighbours.after if self.size is not None else None
        evidence = _Evidence(
            moved, self.last, self.name, limit,
            before and replace(before, end=0),
            after and replace(after, position=self.size or 0), self.neighbours.newest,
        )  # fmt: skip
        corrected = {}
        for n, batch in enumerate(moved):
            proved = evidence.is_proved(n)
            if proved is not None:
                moved[n] = proved
                corrected[n] = proved.stored - batch.stored
        return corrected


def _all_in_order(block: list[Batch], last_offset: int, limit: int) -> bool:
    for batch in block:
        if batch.doubtful or batch.low <= last_offset or batch.high >= limit or batch.inner not in (-1, batch.high):
            return False
        last_offset = batch.high
    return True


def _before_name(block: list[Batch], name: int) -> set[int]:
    """Return the batches that end before the offset in the segment's name and do not join the one after them.

    Where most batches do so, the name is wrong.
    """
    strays = {n for n, batch in enumerate(block) if batch.high < name}
    if len(strays) > 1 and 2 * len(strays) > len(block):
        return set()
    for n in sorted(strays, reverse=True):
        if n + 1 < len(block) and block[n].high + 1 == block[n + 1].low and n + 1 not in strays:
            strays.discard(n)
    return strays


def _doubtful(block: list[Batch], kept: list[int], floor: int, name: int | None) -> set[int]:
    """Return the doubtful ones of the batches that are ``kept``, unless they join the one before or behind."""
    found = set()
    for at, n in enumerate(kept):
        batch = block[n]
        if not batch.doubtful:
            continue
        if at:
            begins = block[kept[at - 1]].high + 1
        elif floor >= 0:
            begins = floor + 1
        else:
            begins = -1 if batch.position or name is None else name
        follows = at + 1 < len(kept) and batch.high + 1 == block[kept[at + 1]].low
        if batch.low != begins and not follows:
            found.add(n)
    return found


class _Evidence:
    """What a block of batches, in the order of the file, proves of the base offset of one of them.

    A base offset is proved if the batches that are adjacent in the file leave it one place only, and these join the ones
    beyond them; and if either the stored one differs from it in one bit, or a producer's sequences and the timestamps go
    on through it. Against it is the possibility that the batch was moved or copied here: a hole at the offsets it names,
    or the same batch elsewhere. Timestamps alone are no evidence: producers send late.
    """

    def __init__(
        self, block: list[Batch], floor: int, name: int | None, limit: int, before: Batch | None, after: Batch | None,
        newest: bool,
    ) -> None:  # fmt: skip
        self._block = block
        self._floor = floor
        self._name = name
        self._limit = limit
        self._before = before
        self._after = after
        self._newest = newest
        self._lowest = name or 0
        self._ranges: list[tuple[int, int]] | None = None
        self._highest = -1
        self._copies: Counter[tuple[int, int]] | None = None

    def is_proved(self, n: int) -> Batch | None:
        """Return batch ``n`` with the offsets that are proved, None if the evidence is not enough or it has them."""
        batch = self._block[n]
        if batch.inner >= 0 and _one_bit_apart(batch.stored, batch.inner):
            # Offsets in a v0 wrapper are absolute.
            return replace(batch, high=batch.inner, stored=batch.inner)
        before = self._block[n - 1] if n else self._before
        after = self._block[n + 1] if n + 1 < len(self._block) else self._after
        low = self._place(n, batch, before, after)
        if low is None or low < self._lowest:
            return None
        proved = batch.beginning_at(low)
        one_bit = _one_bit_apart(batch.stored, proved.stored)
        if not one_bit and not (_sequences_fit(batch, before, after) and _times_fit(batch, before, after)):
            return None
        if one_bit and abs(low - batch.low) < FAR and _strictly_between(batch, before, after):
            return None if self._is_copied(n) else proved
        return None if self._may_be_moved(n) else proved

    def _place(self, n: int, batch: Batch, before: Batch | None, after: Batch | None) -> int | None:
        """Return the only first offset that the adjacent batches leave, None if there is none or it is the stored one."""
        if before and before.end != batch.position:
            before = None
        if after and batch.end != after.position:
            after = None
        places, joined = set(), False
        if not n and not batch.position and self._name is not None:
            places.add(self._name)
            joined = before is not None and before.high + 1 == self._name
            joined = joined or (not after and abs(self._name - batch.low) >= FAR)
        elif before:
            places.add(before.high + 1)
            joined = self._joins(n - 2)
        if after:
            places.add(after.low - 1 - (batch.high - batch.low))
            joined = joined or self._joins(n + 1)
        if len(places) != 1 or not joined or batch.low in places:
            return None
        (low,) = places
        by = low - batch.low
        last = self._block[n - 1].high if n else self._floor
        following = self._block[n + 1].low if n + 1 < len(self._block) else self._limit
        if low <= last or batch.high + by >= following:
            return None
        if not n and self._newest and before and before.high + 1 == low == self._name:
            return low
        # A hole before the last batch may be one that compaction left.
        in_order = max(last, self._lowest - 1) < batch.low and batch.high < following
        return low if not in_order or abs(by) >= FAR else None

    def _joins(self, n: int) -> bool:
        """Return whether the batches ``n`` and ``n + 1`` join, as far as both exist."""
        if n < 0 or n + 1 >= len(self._block):
            return True
        return self._block[n].high + 1 == self._block[n + 1].low

    def _is_copied(self, n: int) -> bool:
        """Return whether the batch is here twice."""
        if self._copies is None:
            self._copies = Counter((one.crc, one.stored) for one in self._block)
        return self._copies[self._block[n].crc, self._block[n].stored] > 1

    def _may_be_moved(self, n: int) -> bool:
        """Return whether the batch is here twice, or has offsets that no other has and that could well be missing."""
        if self._is_copied(n):
            return True
        if self._ranges is None:
            self._highest = self._highest_of(self._block)
            self._ranges = sorted((one.low, one.high) for one in self._block)
        batch = self._block[n]
        at = bisect_left(self._ranges, (batch.low, batch.high))
        before = self._ranges[at - 1][1] if at else self._lowest - 1
        after = self._ranges[at + 1][0] if at + 1 < len(self._ranges) else 1 << 63
        highest = self._highest
        if batch.high == highest:  # what counts are the others
            highest = self._highest_of(self._block[:n] + self._block[n + 1 :])
        return before < batch.low and batch.high < min(after, self._limit) and batch.low <= highest + 1

    def _highest_of(self, block: list[Batch]) -> int:
        kept = zip(block, _most_in_order(block, self._floor), strict=True)
        return max((one.high for one, stays in kept if stays), default=-1)


def _one_bit_apart(one: int, other: int) -> bool:
    return ((one ^ other) & ((1 << 64) - 1)).bit_count() == 1


def _sequences_fit(batch: Batch, before: Batch | None, after: Batch | None) -> bool:
    """Return whether both neighbours are of the batch's producer, and its sequence lies between theirs."""
    if batch.producer is None or before is None or after is None:
        return False
    return (
        before.producer == batch.producer == after.producer
        and before.next_sequence == batch.sequence
        and batch.next_sequence == after.sequence
    )


def _times_fit(batch: Batch, before: Batch | None, after: Batch | None) -> bool:
    """Return whether the timestamps of a batch lie between those of its neighbours."""
    if before is None or after is None:
        return False
    return before.first_time <= batch.first_time and batch.last_time <= after.last_time


def _strictly_between(batch: Batch, before: Batch | None, after: Batch | None) -> bool:
    """Return whether all timestamps of a batch are later than those before it, and earlier than those after it.

    A batch that was moved here does not fit so well: its timestamps are those of another place.
    """
    if before is None or after is None or before.last_time < 0:
        return False
    return before.last_time < batch.first_time <= batch.last_time < after.first_time


def _most_in_order(block: list[Batch], floor: int) -> list[bool]:
    """Return which batches stay: the most with increasing offsets above ``floor``, and of as many those that join.

    Batches that contradict no other stay without being compared.
    """
    kept = [batch.low > floor for batch in block]
    highest, lowest = floor, [1 << 63] * (len(block) + 1)
    for n in range(len(block) - 1, -1, -1):
        lowest[n] = min(lowest[n + 1], block[n].low) if kept[n] else lowest[n + 1]
    zone: list[int] = []
    last = floor
    for n, batch in enumerate(block):
        if not kept[n]:
            continue
        if highest < batch.low and batch.high < lowest[n + 1]:
            _find_in_zone(block, zone, kept, last, batch.low)
            zone, last = [], batch.high
        else:
            zone.append(n)
        highest = max(highest, batch.high)
    _find_in_zone(block, zone, kept, last, -1)
    return kept


def _find_in_zone(block: list[Batch], zone: list[int], kept: list[bool], last_offset: int, following: int) -> None:
    """Mark which batches of a zone stay. ``highs`` and ``best`` are the chains worth continuing, by their last offset.

    ``last_offset`` is the one before the zone, ``following`` the first one after it.
    """
    before: dict[int, int] = {}
    highs: list[int] = []
    best: list[tuple[int, int, int]] = []  # batches, of which so many join the one before, and the last one's index
    ending = {last_offset: (0, 0, -1)}
    for n in zone:
        low, high = block[n].low, block[n].high
        at = bisect_left(highs, low)
        count, joined, last = best[at - 1] if at else (0, 0, -1)
        if low - 1 in ending:
            other, links, index = ending[low - 1]
            if (other, links + 1) >= (count, joined):
                count, joined, last = other, links + 1, index
        before[n] = last
        value = (count + 1, joined, n)
        if high not in ending or value[:2] > ending[high][:2]:
            ending[high] = value
        at = bisect_left(highs, high)
        if at and best[at - 1][:2] > value[:2]:
            continue
        stop = at
        while stop < len(best) and best[stop][:2] < value[:2]:
            stop += 1
        highs[at:stop] = [high]
        best[at:stop] = [value]
    for n in zone:
        kept[n] = False
    _, _, _, n = max((count, joined + (high + 1 == following), -high, n) for high, (count, joined, n) in ending.items())
    while n >= 0:
        kept[n] = True
        n = before[n]
