"""Join batches that were torn: they begin at the end of one extent of a file, and end at the start of another.

The rule, by which 120 of 120 batches in cut files of a broker were joined and none wrongly: the rest of the batch ends where
a run begins, starts at the start of a block, and the run continues the batch's offsets. Then the CRC decides. It covers none
of the first bytes of a batch: these are where a run ends, and are those that the offsets of both runs leave.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from kseg.commands.carve.batch_rests import MOST_TORN, START, BatchRest, find_rests, open_starts
from kseg.commands.carve.image_scan import MOST_BATCH, Head, Image
from kseg.commands.carve.runs import CarvedRun, Piece
from kseg.format.record import framing
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)


class TornBatches:
    """Joins the torn batches of one image: ``joined`` are runs of one batch in two pieces.

    ``left`` are the other headers, and ``left_rests`` the rests that no header begins.
    """

    def __init__(self, image: Image, block: int) -> None:
        self.joined: list[CarvedRun] = []
        self.tries = 0
        self._image = image
        self._block = block
        self._rests = find_rests(image, block)
        self._runs = list(image.runs)
        self._continued: set[CarvedRun] = set()
        self.left = list(self._heads())
        # A joined batch is a run itself: with small extents, another torn batch can end where it begins.
        while self._join_all():
            self._runs = sorted((*image.runs, *self.joined), key=lambda run: run.position)
        begun = {piece.position for run in self.joined for piece in run.pieces}
        self.left = [head for head in self.left if head.position not in begun]
        self.left_rests = [self._head_of(rest) for rest in self._rests if rest.position not in begun]

    def _join_all(self) -> bool:
        """Join batches to the present runs; return whether any was joined."""
        before = len(self.joined)
        self._begins = [run.position for run in self._runs]
        self._by_rest: dict[int, list[int]] = {}
        for number, begin in enumerate(self._begins):
            self._by_rest.setdefault(begin % self._block, []).append(number)
        self.left = [head for head in self.left if not self._join(head)]
        if self._rests:
            starts = open_starts(self._image, self._runs, set(self._begins), self._block)
            self._rests = [rest for rest in self._rests if not self._join_rest(rest, starts)]
        return len(self.joined) > before

    def _heads(self) -> Iterator[Head]:
        """Yield the headers found, and those that the end of a block cuts, after a run."""
        yield from self._image.heads
        begins = {run.position for run in self._runs}
        for run in self._runs:
            data = (
                self._image.read(run.end, rest)
                if SIZE_AT <= (rest := -run.end % self._block) < RECORD_BATCH_OVERHEAD
                else b""
            )
            if len(data) < SIZE_AT or run.end in begins or not self._is_free(run.end):
                continue
            first = framing.read_int64(data, 0)
            if not run.last < first < 1 << 48:
                continue
            if rest < LOG_OVERHEAD:
                yield Head(run.end, 0, first, -1)
                continue
            size = framing.read_int32(data, SIZE_AT)
            least = framing.smallest_size(data[MAGIC_AT] if rest >= HEADER_SIZE_UP_TO_MAGIC else 0)
            if least <= size <= MOST_BATCH:
                yield Head(run.end, size + LOG_OVERHEAD, first, -1)

    def _is_free(self, position: int) -> bool:
        """Return whether no header was noted at a position."""
        heads = self._image.heads
        at = bisect_left(heads, position, key=lambda head: head.position)
        return at == len(heads) or heads[at].position != position

    def _join(self, head: Head) -> bool:
        """Join a header with the rest of its batch; return whether a CRC proves it."""
        if not head.size or head.size > MOST_TORN:
            return False
        # The next block can be another file's.
        last = -1 if 0 < -head.position % self._block < LAST_OFFSET_DELTA_AT + 4 else head.last
        for number in self._by_rest.get((head.position + head.size) % self._block, ()):
            run = self._runs[number]
            follows = run.first > head.first if last < 0 else run.first == last + 1
            if follows and run not in self._continued and (joined := self._joined(head, number)):
                self.joined.append(joined)
                self._continued.add(run)
                return True
        return False

    def _join_rest(self, rest: BatchRest, starts: Mapping[tuple[int, int], int]) -> bool:
        """Join a rest with its first bytes; return whether they are where another run ends with the offset before.

        The batch after it has its offset, too. ``starts`` are those of ``open_starts``.
        """
        after = self._run_at(rest.end)
        first = rest.first_before(after) if after else None
        at = None if first is None else starts.get((rest.lost, first))
        if after is None or first is None or at is None or rest.lost >= LOG_OVERHEAD:
            return False
        start = self._image.read(at, rest.lost)
        if start != START.pack(first, rest.size - LOG_OVERHEAD)[: rest.lost]:
            return False
        run = self._run_of(start + rest.header, after, Piece(after.image, at, rest.lost), rest.size)
        if run is not None:
            self.joined.append(run)
            self._continued.add(after)
        return run is not None

    def _run_at(self, position: int) -> CarvedRun | None:
        """Return the run that begins at a position."""
        at = bisect_left(self._begins, position)
        return self._runs[at] if at < len(self._begins) and self._begins[at] == position else None

    def _head_of(self, rest: BatchRest) -> Head:
        """Return the place of a rest, with the offset with which it leads to the run after it, 0 without one."""
        after = self._run_at(rest.end)
        first = rest.first_before(after) if after else None
        return Head(rest.position, rest.size, first or 0, -1)

    def _joined(self, head: Head, number: int) -> CarvedRun | None:
        """Return the batch of which a header is the start, and whose rest ends where a run begins, if its CRC is valid."""
        run, size = self._runs[number], head.size
        # Neither part may be in a run: they have valid batches already.
        after = bisect_right(self._begins, head.position)
        stop = self._begins[after] if after < len(self._begins) else self._image.size
        floor = self._runs[number - 1].pieces[0].end if number else 0
        least = max(1, size - (run.position - floor))
        most = min(size - 1, stop - head.position)
        begin = max(run.position - size, 0)
        front = self._image.read(head.position, max(0, most))
        back = bytes(size - (run.position - begin)) + self._image.read(begin, run.position - begin)
        if len(front) < most or len(back) < size:  # a read error
            return None
        done = crc = 0
        for kept in range(least + -(head.position + least) % self._block, most + 1, self._block):
            self.tries += 1
            header = front[: min(kept, RECORD_BATCH_OVERHEAD)] + back[kept:RECORD_BATCH_OVERHEAD]
            if header[MAGIC_AT] != 2 or not framing.plausible(header, 0, len(header), MOST_BATCH):
                continue
            if kept < RECORD_BATCH_OVERHEAD:
                whole = (
                    crc32c(back[kept:], crc32c((front[:kept])[ATTRIBUTES_AT:]))
                    if kept > ATTRIBUTES_AT
                    else crc32c(back[ATTRIBUTES_AT:])
                )
            else:
                crc = crc32c(front[done or ATTRIBUTES_AT : kept], crc)
                done = kept
                whole = crc32c(memoryview(back)[kept:], crc)
            if whole == framing.read_uint32(header, CRC_AT):
                return self._run_of(header, run, Piece(run.image, head.position, kept), size)
        return None

    def _run_of(self, header: bytes, after: CarvedRun, front: Piece, size: int) -> CarvedRun | None:
        columns = BatchColumns(1)
        framing.read_header(header, 0, size - LOG_OVERHEAD, header[MAGIC_AT], columns, 0)
        if columns.last_offset[0] + 1 != after.first:
            return None
        rest = size - front.size
        run = CarvedRun([front, Piece(after.image, after.position - rest, rest)], columns.base_offset[0], joined=1)
        run.append(columns, 0)
        return run
