"""Join batches that were torn: they begin at the end of one extent of a file, and end at the start of another.

The rule, by which 120 of 120 batches in cut files of a broker were joined and none wrongly: the rest of the batch ends where
a run of later offsets begins, and starts at the start of a block. Then the CRC decides. It covers none of the first bytes of
a batch: these are where a run ends, and are those that the offsets of both runs leave, without a gap.

Find the block at which the start of a batch and the rest of it have the batch's CRC together.

A CRC is linear: the checksum that is needed before a block follows from the one that is needed after it. So one pass over
both parts tries each block between them, where a CRC for each would take the square of the size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache

from kseg.commands.carve.batch_rests import MOST_TORN, START, BatchRest, find_rests, open_starts
from kseg.commands.carve.image_scan import MOST_BATCH, Head, Image
from kseg.commands.carve.runs import CarvedRun, Piece
from kseg.format.record import framing, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import ATTRIBUTES_AT
from kseg.format.segment.resync_search import ScanBudget

_BITS = 32


def matching_cut(front: bytes, back: bytes, cuts: range, expected: int) -> int | None:
    """Return the cut at which ``front[:cut] + back[cut:]`` has the CRC of a v2 batch, None if there is none.

    ``cuts`` are sizes after the header, ascending by the size of a block. ``back`` is as large as the batch.
    """
    found: list[int] = []
    checksum, done = 0, ATTRIBUTES_AT
    for cut in cuts:
        checksum, done = crc32c(memoryview(front)[done:cut], checksum), cut
        found.append(checksum)
    block, rest = cuts.step, memoryview(back)[cuts.start :]
    tables = _tables(block)
    at = len(rest) + -len(rest) % block
    needed = crc32c(bytes(at - len(rest)), expected)
    while at:
        at -= block
        part = bytes(rest[at : at + block])
        after = needed ^ crc32c(part + bytes(block - len(part)))
        needed = 0
        for table in tables:
            needed, after = needed ^ table[after & 255], after >> 8
        if at < len(found) * block and found[at // block] == needed:
            return cuts.start + at
    return None


@cache
def _tables(block: int) -> Sequence[Sequence[int]]:
    """Return the checksums before a block of zeros by those after it, for each byte of these."""
    zeros = bytes(block)
    none = crc32c(zeros)
    # Each row: a checksum after the block, the one before it. Gauss's method makes the first ones single bits.
    rows = [(crc32c(zeros, 1 << bit) ^ none, 1 << bit) for bit in range(_BITS)]
    for bit in range(_BITS):
        pivot = next(n for n in range(bit, _BITS) if rows[n][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        after, before = rows[bit]
        rows = [
            (row[0] ^ after, row[1] ^ before) if n != bit and row[0] >> bit & 1 else row for n, row in enumerate(rows)
        ]
    tables = []
    for low in range(0, _BITS, 8):
        table = [0]
        for _, before in rows[low : low + 8]:
            table += [before ^ other for other in table]
        tables.append(table)
    return tables


# The runs that are tried for one header: by its size, few of the other runs begin where it can end.
_MOST_RUNS = 256
# The joints that may be tried at runs after a gap of offsets. Of so many, one CRC in 1,000 images is right by chance.
_MOST_TRIES = 1 << 22


class TornBatches:
    """Joins the torn batches of one image: ``joined`` are runs of one batch in two pieces.

    ``left`` are the other headers, and ``left_rests`` the rests that no header begins.
    """

    def __init__(self, image: Image, block: int) -> None:
        self.joined: list[CarvedRun] = []
        self._tries = 0
        self._budget = ScanBudget()
        self._image = image
        self._block = block
        self._rests = find_rests(image, block)
        self._runs = list(image.runs)
        self._continued: set[CarvedRun] = set()
        self.left = list(self._heads())
        # A joined batch is a run itself: with small extents, another torn batch can end where it begins.
        fresh = set(self._runs)
        while fresh := self._join_all(fresh):
            self._runs = sorted((*image.runs, *self.joined), key=lambda run: run.position)
        begun = {piece.position for run in self.joined for piece in run.pieces}
        self.left = [head for head in self.left if head.position not in begun]
        self.left_rests = [self._head_of(rest) for rest in self._rests if rest.position not in begun]

    def _join_all(self, fresh: Container[CarvedRun]) -> set[CarvedRun]:
        """Join batches to the present runs; return those that were joined. Headers were tried at all runs but ``fresh``."""
        before = len(self.joined)
        self._begins = [run.position for run in self._runs]
        self._by_rest: dict[int, list[int]] = {}
        for number, run in enumerate(self._runs):
            if run in fresh:
                self._by_rest.setdefault(run.position % self._block, []).append(number)
        for numbers in self._by_rest.values():
            numbers.sort(key=lambda number: self._runs[number].first)
        for is_next in (True, False):  # a batch can fit several rests: the one that its offset leads to
            self.left = [head for head in self.left if not self._join(head, is_next=is_next)]
        if self._rests:
            starts = open_starts(self._image, self._runs, set(self._begins), self._block)
            self._rests = [rest for rest in self._rests if not self._join_rest(rest, starts)]
        return set(self.joined[before:])

    def _heads(self) -> Iterator[Head]:
        """Yield the headers found, and those that show a batch only because they are directly after a run.

        The end of a block cuts these. Or the length of a message's value is damaged, or in another extent after a long key.
        """
        yield from self._image.heads
        begins = {run.position for run in self._runs}
        for run in self._runs:
            rest = -run.end % self._block
            if rest < layout.SIZE_AT or run.end in begins or not self._is_free(run.end):
                continue
            data = self._image.read(run.end, min(rest, layout.RECORD_BATCH_OVERHEAD))
            rest = len(data)
            if rest < layout.SIZE_AT or not run.last < (first := framing.read_int64(data, 0)) < 1 << 48:
                continue
            if rest < layout.LOG_OVERHEAD:
                yield Head(run.end, 0, first, -1)
                continue
            size = framing.read_int32(data, layout.SIZE_AT)
            least = framing.smallest_size(data[layout.MAGIC_AT] if rest >= layout.HEADER_SIZE_UP_TO_MAGIC else 0)
            if least <= size <= MOST_BATCH and (rest < layout.RECORD_BATCH_OVERHEAD or _is_message(data)):
                yield Head(run.end, size + layout.LOG_OVERHEAD, first, -1)

    def _is_free(self, position: int) -> bool:
        """Return whether no header was noted at a position."""
        heads = self._image.heads
        at = bisect_left(heads, position, key=lambda head: head.position)
        return at == len(heads) or heads[at].position != position

    def _join(self, head: Head, *, is_next: bool) -> bool:
        """Join a header with the rest of its batch before a run with the next offset, or else with a later one.

        Return whether it was joined.
        """
        if not head.size or head.size > MOST_TORN:
            return False
        # The next block can be another file's.
        is_cut = 0 < -head.position % self._block < layout.LAST_OFFSET_DELTA_AT + 4
        last = head.first if is_cut else max(head.first, head.last)
        numbers = self._by_rest.get((head.position + head.size) % self._block, [])
        # The cleaner leaves gaps of offsets, and a compressed set of v0 or v1 has only its last one: the nearest run first.
        start = bisect_right(numbers, last, key=lambda number: self._runs[number].first)
        for number in numbers[start : start + _MOST_RUNS]:
            run = self._runs[number]
            if (run.first == last + 1) is not is_next or run in self._continued:
                continue
            if joined := self._joined(head, number, is_next=is_next):
                self.joined.append(joined)
                self._continued.add(run)
                return True
        return False

    def _may_try(self, size: int, tries: int) -> bool:
        """Return whether a run without the next offset may be tried: the work is a multiple of the image's size."""
        self._tries += tries
        if self._tries > _MOST_TRIES or not self._budget.allows(size, self._image.size):
            return False
        self._budget.spend(size)
        return True

    def _join_rest(self, rest: BatchRest, starts: Mapping[tuple[int, int], int]) -> bool:
        """Join a rest with its first bytes; return whether they are where another run ends with the offset before.

        The batch after it has its offset, too. ``starts`` are those of ``open_starts``.
        """
        after = self._run_at(rest.end)
        first = rest.first_before(after) if after else None
        at = None if first is None else starts.get((rest.lost, first))
        if after is None or first is None or at is None or rest.lost >= layout.LOG_OVERHEAD:
            return False
        start = self._image.read(at, rest.lost)
        if start != START.pack(first, rest.size - layout.LOG_OVERHEAD)[: rest.lost]:
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

    def _joined(self, head: Head, number: int, *, is_next: bool) -> CarvedRun | None:
        """Return the batch of which a header is the start, and whose rest ends where a run begins, if its CRC is valid.

        ``is_next``: the run has the next offset. The others are tried up to a limit.
        """
        run, size = self._runs[number], head.size
        # Neither part may be in a run: they have valid batches already. But the last batch of a run that does not lead to
        # the next one can be of another file with an equal batch, such as the marker of the same transaction.
        after = bisect_right(self._begins, head.position)
        stop = self._begins[after] if after < len(self._begins) else self._image.size
        floor = 0
        if number:
            before = self._runs[number - 1]
            floor = before.pieces[0].end
            if is_next and floor == run.position and before.last >= run.first and not before.joined:
                floor = before.position + before.starts[-1]
        least = max(1, size - (run.position - floor))
        most = min(size - 1, stop - head.position)
        cuts = range(least + -(head.position + least) % self._block, most + 1, self._block)
        if not cuts or not (is_next or self._may_try(size, len(cuts))):
            return None
        begin = max(run.position - size, 0)
        front = self._image.read(head.position, most)
        back = bytes(size - (run.position - begin)) + self._image.read(begin, run.position - begin)
        if len(front) < most or len(back) < size:  # a read error
            return None
        if cuts[0] < layout.RECORD_BATCH_OVERHEAD:
            whole = front[: cuts[0]] + back[cuts[0] :]
            if self._is_header(whole) and crc32c(whole[layout.ATTRIBUTES_AT :]) == framing.read_uint32(
                whole, layout.CRC_AT
            ):
                return self._run_of(whole, run, Piece(run.image, head.position, cuts[0]), size)
            cuts = cuts[1:]
        if not cuts or not self._is_header(front):
            return None
        kept = matching_cut(front, back, cuts, framing.read_uint32(front, layout.CRC_AT))
        return None if kept is None else self._run_of(front, run, Piece(run.image, head.position, kept), size)

    @staticmethod
    def _is_header(data: bytes) -> bool:
        """Return whether bytes begin with a header of v2."""
        return data[layout.MAGIC_AT] == 2 and framing.plausible(data, 0, len(data), MOST_BATCH)

    def _run_of(self, header: bytes, after: CarvedRun, front: Piece, size: int) -> CarvedRun | None:
        """Return a batch of two pieces as a run, None if its offsets do not lead to the run after it.

        Where its first bytes lack the size, only the next offset proves its own: no CRC covers it. A control batch is the
        same in each partition of its transaction, so only the next offset shows which one it is of.
        """
        columns = BatchColumns(1)
        framing.read_header(header, 0, size - layout.LOG_OVERHEAD, header[layout.MAGIC_AT], columns, 0)
        following = columns.last_offset[0] + 1
        is_certain = front.size >= layout.LOG_OVERHEAD and not columns.attributes[0] & layout.CONTROL
        if after.first < following if is_certain else after.first != following:
            return None
        rest = size - front.size
        run = CarvedRun([front, Piece(after.image, after.position - rest, rest)], columns.base_offset[0], joined=1)
        run.append(columns, 0)
        return run


def _is_message(data: bytes) -> bool:
    """Return whether a message of v0 or v1 begins with these bytes, as far as the length of its key shows."""
    magic = data[layout.MAGIC_AT]
    return magic < 2 and framing.plausible(data, 0, layout.V1_KEY_AT + 4 if magic else layout.V0_KEY_AT + 8, MOST_BATCH)
