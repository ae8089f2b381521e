"""The search after a broken entry: for proof of its true length, and for the next batch of the log.

Base offset and length are outside a v2 CRC. So the broken entry's CRC is carried along, and where it holds at a
place at which an entry may begin, the length is proved. For v0 and v1 no search is needed: their key and value
lengths give the end.

Otherwise the search looks for chains: batches with a good CRC, one right after the other. A batch with a good CRC is
one of the log, with one exception: the value of a record may hold whole batches of another log (of a mirror, of a dead
letter queue), and the broken entry may be the batch around them. Such a chain is followed by the rest of that batch,
which is no header. So a chain is taken at once if a header, zeros or the end of the file follow it. If not, the next
chain decides: batches inside a value have offsets that do not go before those of the log.

Every byte that is checked without result is paid from the file's ``Effort``: a file full of traps takes linear time too.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass

from kseg.format import kernel
from kseg.format.checksums import crc32c
from kseg.format.log_format import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.log import heads
from kseg.log.tape import Tape

# The broken entry is kept at hand this far, to be read once its length is proved. An entry found behind damage that
# claims to be larger must continue the offsets.
PROOF_REACH = 16 * 1024 * 1024
# How far to look past a doubtful entry: max.message.bytes as brokers default to it.
LOOK_AHEAD = 1024 * 1024
# How many batches of a chain its offsets are compared by.
COMPARED = 16
FIRST_STEP = 4 * 1024
STEP = 256 * 1024


class Effort:
    """What may be looked at in vain in a file: a constant, and some times what has been read of it."""

    ALLOWANCE = 64 * 1024 * 1024
    FACTOR = 4

    def __init__(self) -> None:
        self._spent = 0

    def allows(self, size: int, position: int) -> bool:
        """Whether that many bytes may be looked at, having come to that byte of the file."""
        return self._spent + size <= self.ALLOWANCE + self.FACTOR * position

    def spend(self, size: int) -> None:
        """Count bytes that were looked at in vain."""
        self._spent += size


class Proof:
    """The CRC of the v2 batch at the tape's start, carried along to every place where the batch may end."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.began = tape.position
        self._stored = kernel.read_uint32(tape.data, tape.start + CRC_AT)
        self._crc = 0
        self.done = self.began + ATTRIBUTES_AT

    def holds(self, end: int) -> bool:
        """Whether the CRC holds if the batch ends at that byte of the file; ends must not go back."""
        if end < self.began + RECORD_BATCH_OVERHEAD or end < self.done:
            return False
        shift = self._tape.shift
        self._crc = crc32c(self._tape.view[self.done - shift : end - shift], self._crc)
        self.done = end
        return self._crc == self._stored


@dataclass(frozen=True, slots=True)
class Chain:
    """Batches with a good CRC, one right after the other, up to byte ``end`` of the file.

    ``batches`` are (position, first offset, last offset); of a compressed v0 or v1 message both are its last.
    ``closed``: a header, zeros or the end of the file follow, or the chain is as long as is looked.
    """

    batches: tuple[tuple[int, int, int], ...]
    end: int
    closed: bool

    @property
    def position(self) -> int:
        return self.batches[0][0]

    @property
    def offset(self) -> int:
        return self.batches[0][1]

    def begins_batch(self, position: int) -> bool:
        """Return whether a batch of the chain begins at that byte, or the chain ends there."""
        return position == self.end or any(batch[0] == position for batch in self.batches)

    def continues(self, floor: int | None) -> bool:
        """Return whether most batches have offsets from ``floor`` on, and no more than a segment holds."""
        if floor is None:
            return True
        within = sum(floor <= first <= floor + INT32_MAX for _, first, _ in self.batches)
        return 2 * within >= len(self.batches)

    def leads_to(self, later: Chain, floor: int | None) -> bool:
        """Return whether its last batch has offsets from ``floor`` on, and less than those of a chain after it."""
        _, first, last = self.batches[-1]
        return (floor is None or floor <= first) and last < later.offset

    def goes_before(self, later: Chain) -> bool:
        """Return whether most of its batches have smaller offsets than those of a chain after it."""
        firsts = sorted(first for _, first, _ in later.batches[:COMPARED])
        pairs = sum(len(firsts) - bisect_right(firsts, last) for _, _, last in self.batches)
        return 2 * pairs >= len(self.batches) * len(firsts)


class Search:
    """Looks on from the entry at the tape's start. Positions are the file's: the buffer slides under the search.

    ``floor`` is the least offset that the log may continue with, None if unknown, ``least`` the same if the broken entry
    is there once more. With ``around``, a byte of the file, only a chain is wanted that begins before it and reaches it,
    or what ``_reaches`` takes for that. After ``run``: ``proved`` is the broken entry's true whole size, ``best`` the
    chain to continue with, ``at`` the byte looked up to, ``zeros`` the longest run of zeros as (first byte, byte after
    it), ``last_zeros`` the last one.
    """

    def __init__(
        self,
        tape: Tape,
        max_size: int,
        floor: int | None,
        least: int | None,
        effort: Effort,
        proof: Proof | None,
        *,
        keep: bool,
        around: int | None = None,
    ) -> None:
        self.began = tape.position
        self.at = self.began + 1
        self.proved: int | None = None
        self.best: Chain | None = None
        self.zeros = (0, 0)
        self.last_zeros = (0, 0)
        self.ended = False
        self._tape = tape
        self._max_size = max_size
        self._floor = floor
        self._least = least
        self._effort = effort
        self._proof = proof
        self._keep = keep
        self._around = around
        self._decided = False
        self._limit: int | None = None
        self._until: int | None = None

    def run(self, until: int | None = None) -> None:
        """Search up to that byte of the file, or to its end, or until it is clear how to continue."""
        tape = self._tape
        self._limit = self._until = until
        step = FIRST_STEP
        if tape.fill(heads.ZERO_RUN) or tape.available:
            self._skip_first_zeros()
        while not self._settled():
            self._let_go()
            more = tape.fill(self.at - tape.position + step)
            end = tape.shift + tape.end
            horizon = min(end - RECORD_BATCH_OVERHEAD if more else end, self.at + step)
            step = min(2 * step, STEP)
            self._look(horizon if self._limit is None else min(horizon, self._limit))
            if self._limit is not None and self.at >= self._limit:
                break
            if not more and self.at >= end:
                self.ended = True
                if not self._settled():
                    self._prove_near_end(end)
                break
        if self.best:
            self._effort.spend(max(0, self.at - self.best.end))

    def _settled(self) -> bool:
        return self.proved is not None or self._decided

    def _let_go(self) -> None:
        """Give the buffer what is not needed any more."""
        far = self.at - self.began
        if far > PROOF_REACH:
            self._proof = None
        # Without proof, too, the beginning is kept for a while: if this is the tail of a live file, it is read again.
        if not self._keep and self._proof is None and far > LOOK_AHEAD:
            self._tape.skip_to(self.best.position if self.best else self.at)

    def _look(self, horizon: int) -> None:
        tape = self._tape
        zeros = self._next_zeros(horizon)
        while self.at < horizon:
            if self.at >= zeros:
                self._pass_zeros(zeros)
                if self.proved is not None:
                    return
                zeros = self._next_zeros(horizon)
                continue
            stop, shift = min(horizon, zeros + 1), tape.shift
            head = heads.next_head(tape.data, self.at - shift, stop - shift, tape.end, self._max_size) + shift
            if head >= stop:
                self.at = stop
                continue
            self.at = head
            self._judge()
            if self._settled() or (self._limit is not None and self.at >= self._limit):
                return
            self.at = max(self.at, head + 1)

    def _next_zeros(self, horizon: int) -> int:
        tape = self._tape
        end = min(tape.end, horizon - tape.shift + heads.ZERO_RUN)
        return heads.next_zeros(tape.data, self.at - tape.shift, end) + tape.shift

    def _skip_first_zeros(self) -> None:
        """A broken place that begins with zeros: its first byte counts, too."""
        tape = self._tape
        if heads.next_zeros(tape.data, tape.start, min(tape.end, tape.start + heads.ZERO_RUN)) == tape.start:
            self.at = self.began
        elif tape.available < heads.ZERO_RUN and not any(tape.view[tape.start : tape.end]):
            self.zeros = self.last_zeros = (self.began, self.began + tape.available)

    def _pass_zeros(self, begin: int) -> None:
        """Go to the end of a run of zeros, but for those that the next entry may begin with."""
        tape = self._tape
        end = begin + heads.zero_run(tape.data, begin - tape.shift, tape.end)
        if begin == self.last_zeros[1] - heads.ZEROS_IN_HEAD:
            begin = self.last_zeros[0]
        elif self._proof is not None:
            # A batch ends with zeros of its own: the last record's count of headers.
            for place in range(begin, min(begin + heads.ZERO_RUN, end) + 1):
                if self._proof.holds(place):
                    self.proved = place - self.began
                    return
        self.last_zeros = (begin, end)
        if end - begin > self.zeros[1] - self.zeros[0]:
            self.zeros = self.last_zeros
        self.at = max(end - heads.ZEROS_IN_HEAD, self.at + 1)

    def _judge(self) -> None:
        """Check the header at ``at``: does it end the broken entry, or is it one to continue with?"""
        tape = self._tape
        if self._proof is not None and self._proof.holds(self.at):
            self.proved = self.at - self.began
        elif kernel.plausible(tape.data, self.at - tape.shift, tape.end, self._max_size):
            chain = self._chain(self.at)
            if chain is not None:
                self.at = chain.end
                self._weigh(chain)

    def _weigh(self, chain: Chain) -> None:
        """Decide between the best chain so far and the one after it."""
        best = self.best
        if self._around is not None:
            # A chain that ends before is not what is wanted: it may lie within a value.
            if best is None and chain.position < self._around and self._reaches(chain, self._around):
                self.best = chain
                self._decided = chain.closed or self._proof is None
            return
        if best is not None:
            if not chain.continues(self._floor) and best.continues(self._floor):
                return  # of the two, the later one is odd
            odd = chain.continues(self._floor) and not best.continues(self._floor)
            outweighed = chain.closed or len(chain.batches) >= len(best.batches)
            if best.leads_to(chain, self._least) or (not odd and (best.goes_before(chain) or not outweighed)):
                self._decided = True
                return
        self.best = chain
        if chain.closed or not self._effort.allows(LOOK_AHEAD, chain.end):
            self._decided = True
        else:
            self._limit = min(chain.end + LOOK_AHEAD, self._until or chain.end + LOOK_AHEAD)

    def _reaches(self, chain: Chain, place: int) -> bool:
        """Return whether a chain ends at or behind that byte.

        Zeros on both sides of it prove no end: then a chain is enough whose offsets follow soon.
        """
        tape = self._tape
        if chain.end >= place:
            return True
        at = place - tape.shift
        zeros = tape.view[max(chain.end - tape.shift, at - heads.ZERO_RUN) : min(at + heads.ZERO_RUN, tape.end)]
        if any(zeros) or not chain.closed or self._floor is None:
            return False
        return 0 <= chain.offset - self._floor < chain.end - self.began

    def _chain(self, position: int) -> Chain | None:
        """Return the chain that begins at that byte, None if no batch with a good CRC does."""
        tape = self._tape
        batches: list[tuple[int, int, int]] = []
        stop = position + LOOK_AHEAD
        while not batches or position < stop:
            size = self._good_batch(position, first=not batches)
            if not size:
                break
            at = position - tape.shift
            batches.append((position, kernel.read_int64(tape.data, at), last_offset_of(tape.data, at)))
            position += size
        if not batches:
            return None
        closed = position >= stop or bool(begins(tape, position - tape.position, self._max_size))
        return Chain(tuple(batches), position, closed)

    def _good_batch(self, position: int, *, first: bool) -> int:
        """Return the size in bytes of the batch at that byte, 0 if there is none or its CRC is wrong."""
        tape = self._tape
        distance = position - tape.position
        if not tape.fill(distance + HEADER_SIZE_UP_TO_MAGIC):
            return 0
        at = position - tape.shift
        magic, size = tape.data[at + MAGIC_AT], kernel.read_int32(tape.data, at + SIZE_AT)
        if not kernel.smallest(magic) <= size <= self._max_size:
            return 0
        size += LOG_OVERHEAD
        if size > PROOF_REACH and not (first and self._floor == kernel.read_int64(tape.data, at)):
            return 0
        if tape.lacks(distance + size) or not self._effort.allows(size, position) or not tape.fill(distance + size):
            return 0
        if holds(tape, position - tape.shift, size, magic):
            return size
        self._effort.spend(size)
        return 0

    def _prove_near_end(self, end: int) -> None:
        """The broken entry may be the last: behind it are the end of the file or a torn header."""
        if self._proof is None:
            return
        for place in range(max(self._proof.done, end - RECORD_BATCH_OVERHEAD), end + 1):
            if self._proof.holds(place):
                self.proved = place - self.began
                return


def holds(tape: Tape, at: int, size: int, magic: int) -> bool:
    """Whether the CRC of the ``size`` bytes at buffer byte ``at`` holds when they are read as that version."""
    if size - LOG_OVERHEAD < kernel.smallest(magic):
        return False
    stored = kernel.read_uint32(tape.data, at + (CRC_AT if magic >= 2 else LEGACY_CRC_AT))
    return kernel.entry_crc(tape.view, at, at + size, magic) == stored


def holds_as(tape: Tape, size: int, magic: int) -> bool:
    """Whether the CRC of the entry at the tape's start holds once its magic byte is put right.

    That byte is outside the CRC of v2, inside those of v0 and v1.
    """
    at = tape.start
    if magic == 2:
        return holds(tape, at, size, magic)
    if size - LOG_OVERHEAD < kernel.smallest(magic):
        return False
    crc = zlib.crc32(tape.view[at + MAGIC_AT + 1 : at + size], zlib.crc32(bytes([magic])))
    return crc == kernel.read_uint32(tape.data, at + LEGACY_CRC_AT)


# What may begin at a place, as ``begins`` tells.
NOTHING = 0
LIKELY = 1
SURELY = 2


def begins(tape: Tape, distance: int, max_size: int) -> int:
    """Whether an entry, the end of the file, or a run of zeros begins that many bytes behind the tape's start.

    LIKELY is an entry that is broken in its size or its magic, or torn: two broken ones may stand in a row.
    """
    tape.fill(distance + RECORD_BATCH_OVERHEAD)
    at = tape.start + distance
    rest = tape.end - at
    if rest <= MAGIC_AT:
        return SURELY if rest >= 0 else NOTHING
    if not any(tape.view[at : min(at + RECORD_BATCH_OVERHEAD, tape.end)]):
        return SURELY
    magic = tape.data[at + MAGIC_AT]
    size = kernel.read_int32(tape.data, at + SIZE_AT)
    if kernel.plausible(tape.data, at, tape.end, max_size):
        return LIKELY if tape.lacks(distance + LOG_OVERHEAD + size) else SURELY
    framed = kernel.smallest(2) <= size <= max_size
    if magic < 2:
        size = heads.implied_size(tape.data, at, tape.end, magic)
        return LIKELY if 0 < size <= LOOK_AHEAD and legacy_crc_holds(tape, distance, size) else NOTHING
    if rest < RECORD_BATCH_OVERHEAD:
        return LIKELY if framed and magic == 2 else NOTHING  # torn inside its header
    return LIKELY if (framed or magic == 2) and heads.likely_header(tape.data, at, tape.end) else NOTHING


def last_offset_of(data: bytearray, at: int) -> int:
    offset = kernel.read_int64(data, at)
    if data[at + MAGIC_AT] < 2:
        return offset
    return kernel.clamped(offset) + kernel.read_int32(data, at + LAST_OFFSET_DELTA_AT)


def is_wrapper(data: bytearray, at: int) -> bool:
    """Whether a compressed v0 or v1 message stands there: its offset is the last one in it."""
    return data[at + MAGIC_AT] < 2 and bool(data[at + LEGACY_ATTRIBUTES_AT] & CODEC_MASK)


def legacy_crc_holds(tape: Tape, distance: int, size: int) -> bool:
    """Whether a sound v0 or v1 entry of ``size`` bytes in all stands that many bytes behind the tape's start."""
    if not tape.fill(distance + size):
        return False
    at = tape.start + distance
    return zlib.crc32(tape.view[at + MAGIC_AT : at + size]) == kernel.read_uint32(tape.data, at + LEGACY_CRC_AT)
