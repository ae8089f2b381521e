"""The records next to those that a search found, also in batches before and after theirs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from kseg.commands.dump.dump_items import Item, RecordsItem
from kseg.errors import NotASegmentError
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.framed_files import BytesSource
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.row_filter import RowFilter, by_batch
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source

#: A larger batch is not kept in memory for the records after it.
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _StoredBatch:
    """The bytes of a batch at byte ``position`` of a file, and some of its records by their index in the batch."""

    position: int
    data: bytes
    crc_state: int
    indexes: tuple[int, ...]

    def chunk(self, name: str) -> tuple[Chunk, list[int]] | None:
        """Return the batch, decoded again, and the rows of the records; None if it cannot be read alone."""
        raw = BytesSource(memoryview(self.data), self.position)
        source = Source(name, raw, self.position + len(self.data), self.position)
        with suppress(NotASegmentError):
            for window in SegmentReader(source, verify_crc=False).windows():
                window.batches.crc_state[0] = self.crc_state
                for chunk in DeepIterator().chunks(window):
                    return chunk, [i for i in self.indexes if i < chunk.records.count]
        return None


class Neighbours:
    """Adds ``before`` and ``after`` records to the found ones, chunk by chunk.

    The batches with the last records of a chunk are kept, since the next chunk reuses its memory.
    """

    def __init__(self, before: int, after: int) -> None:
        self.before = before
        self.after = after
        self._pending = 0
        #: Records since the last shown one. The first shown record of a file starts a group.
        self._skipped = 1
        self._tail: list[_StoredBatch] = []

    def items(self, path: str, chunk: Chunk, wanted: RowFilter) -> Iterator[RecordsItem]:
        """Yield the accepted records and their neighbours, which fulfil the conditions on batches, offsets and times."""
        every = replace(wanted, search=None, conditions=())
        possible = [i for _, rows in every.accepted_records(chunk) for i in rows]
        found = [i for _, rows in wanted.accepted_records(chunk) for i in rows]
        earlier, shown = self._extend(chunk, possible, found)
        starts_group = self._starts_group(earlier, shown, len(possible))
        for batch in earlier:
            if again := batch.chunk(path):
                starts = again[1][:1] if starts_group else ()
                starts_group = False
                yield RecordsItem(
                    path,
                    again[0],
                    0,
                    again[1],
                    neighbours=again[1],
                    group_starts=starts,
                    transactions=wanted.transactions,
                )
        rows = [possible[n] for n in shown]
        neighbours = set(rows).difference(found)
        group_starts = {possible[n] for last, n in pairwise(shown) if n - last > 1}.union(rows[:1] * starts_group)
        for row, kept in by_batch(chunk, rows):
            yield RecordsItem(
                path,
                chunk,
                row,
                kept,
                search=wanted.search,
                neighbours=neighbours,
                group_starts=group_starts,
                transactions=wanted.transactions,
            )

    def _starts_group(self, earlier: Sequence[_StoredBatch], shown: Sequence[int], count: int) -> bool:
        """Return whether there are records between the last shown one and the next, and count those after the last one.

        ``shown`` are indexes into the ``count`` possible records of a chunk.
        """
        if not shown:
            self._skipped += count
            return False
        between = self._skipped + shown[0] - sum(len(batch.indexes) for batch in earlier)
        self._skipped = count - 1 - shown[-1]
        return between > 0

    def _extend(
        self, chunk: Chunk, possible: Sequence[int], found: Sequence[int]
    ) -> tuple[list[_StoredBatch], list[int]]:
        """Return records of earlier chunks to show first, and the records of this chunk to show: indexes into ``possible``.

        ``found`` are among the ``possible`` rows, which are all that can be shown. All are in order.
        """
        count = len(possible)
        places = [bisect_left(possible, i) for i in found]
        shown = set(range(min(self._pending, count)))
        for n in places:
            shown.update(range(max(n - self.before, 0), min(n + self.after + 1, count)))
        earlier = _last(self._tail, self.before - places[0]) if places else []
        self._pending = max(places[-1] + self.after + 1 if places else self._pending, count) - count
        after_shown = max(shown) + 1 if shown else 0
        tail = [] if shown else self._tail
        tail = [*tail, *_stored(chunk, possible[max(after_shown, count - self.before) :])]
        self._tail = _last(tail, self.before)
        return earlier, sorted(shown)


def _stored(chunk: Chunk, rows: Sequence[int]) -> Iterator[_StoredBatch]:
    """Yield the batches of some records. Large batches, which are in several chunks, are left out."""
    batches = chunk.batches
    if chunk.resumed or chunk.unfinished:
        return
    for row, kept in by_batch(chunk, rows):
        at, size, first = batches.at[row], batches.size[row], batches.first_record[row]
        if size <= _MOST_BYTES:
            data = bytes(chunk.window.view[at : at + size])
            yield _StoredBatch(batches.position[row], data, batches.crc_state[row], tuple(i - first for i in kept))


def _last(batches: Sequence[_StoredBatch], most: int) -> list[_StoredBatch]:
    """Return the last ``most`` records of batches."""
    kept: list[_StoredBatch] = []
    for batch in reversed(batches):
        if most > 0:
            kept.append(replace(batch, indexes=batch.indexes[-most:]))
            most -= len(batch.indexes)
    return kept[::-1]


def first_found(items: Iterable[Item], most: int | None, after: int) -> Iterator[Item]:
    """Yield the items up to the found record number ``most`` (None: all), and ``after`` neighbours after it.

    A record that matches is a neighbour there, too.
    """
    found = following = 0
    for item in items:
        if most is None or not isinstance(item, RecordsItem):
            yield item
            continue
        kept: list[int] = []
        matching: list[int] = []
        for i in item.kept:
            neighbour = i in item.neighbours or found == most
            following = following + 1 if neighbour else 0
            if found == most and following > after:
                break
            if neighbour and i not in item.neighbours:
                matching.append(i)
            found += not neighbour
            kept.append(i)
        if kept:
            yield replace(item, kept=kept, neighbours={*item.neighbours, *matching} if matching else item.neighbours)
        if len(kept) < len(item.kept) or (found == most and following >= after):
            return
