"""The search behind a broken entry: for proof of its true length, and for the next real entry.

Base offset and length stand outside a v2 CRC. So the broken entry's CRC is carried along, and where it holds at a
place at which an entry may begin, the length is proved. For v0 and v1 no search is needed: their key and value
lengths tell where they end.

Otherwise the next real entry is wanted, and a record's value may well hold whole batches of another log (a mirror's,
a dead letter queue's). So an entry is taken at once only if its offset continues the log's and entries follow it up
to the end of the file or of what is looked at. If not, the search goes on a little, and prefers what does.

Every byte that is looked at twice is paid from the file's ``Effort``: a file full of traps takes linear time too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from kseg.format import kernel
from kseg.format.checksums import crc32c
from kseg.format.log_format import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
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
class Candidate:
    """An entry with a good CRC, that something follows or that continues the log's offsets.

    ``last_offset`` is that of the last entry chained to it; ``continues`` says whether its own offset continues the
    log's, ``whole`` whether the chain was followed to the end of the file or as far as is looked.
    """

    position: int
    offset: int
    last_offset: int
    end: int
    continues: bool
    whole: bool

    @property
    def sure(self) -> bool:
        return self.continues and self.whole


class Search:
    """Looks on from the entry at the tape's start. Positions are the file's: the buffer slides under the search.

    After ``run``: ``proved`` is the broken entry's true whole size, ``best`` the entry to go on with, ``at`` the byte
    looked up to, ``zeros`` the longest run of zeros as (first byte, byte behind), ``last_zeros`` the last one.
    """

    def __init__(
        self, tape: Tape, max_size: int, expected: int | None, effort: Effort, proof: Proof | None, *, keep: bool
    ) -> None:
        self.began = tape.position
        self.at = self.began + 1
        self.proved: int | None = None
        self.best: Candidate | None = None
        self.zeros = (0, 0)
        self.last_zeros = (0, 0)
        self.ended = False
        self._tape = tape
        self._max_size = max_size
        self._expected = expected
        self._effort = effort
        self._proof = proof
        self._keep = keep
        self._limit: int | None = None

    def run(self, until: int | None = None, *, candidates: bool = True) -> None:
        """Look on to that byte of the file, or to its end, or until it is clear how to go on."""
        tape = self._tape
        self._limit = until
        step = FIRST_STEP
        if tape.fill(heads.ZERO_RUN) or tape.available:
            self._skip_first_zeros()
        while not self._settled():
            self._let_go()
            more = tape.fill(self.at - tape.position + step)
            end = tape.shift + tape.end
            horizon = min(end - RECORD_BATCH_OVERHEAD if more else end, self.at + step)
            step = min(2 * step, STEP)
            self._look(horizon if self._limit is None else min(horizon, self._limit), candidates)
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
        return self.proved is not None or (self.best is not None and self.best.sure)

    def _let_go(self) -> None:
        """Give the buffer what is not needed any more."""
        far = self.at - self.began
        if far > PROOF_REACH:
            self._proof = None
        # Without proof, too, the beginning is kept for a while: if this is the tail of a live file, it is read again.
        if not self._keep and self._proof is None and far > LOOK_AHEAD:
            self._tape.skip_to(self.best.position if self.best else self.at)

    def _look(self, horizon: int, candidates: bool) -> None:
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
            self._judge(candidates)
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

    def _judge(self, candidates: bool) -> None:
        """A head stands at ``at``: does it end the broken entry, or is it the one to go on with?"""
        tape = self._tape
        if self._proof is not None and self._proof.holds(self.at):
            self.proved = self.at - self.began
        elif candidates and kernel.plausible(tape.data, self.at - tape.shift, tape.end, self._max_size):
            candidate = self._candidate(self.at)
            if candidate is not None:
                self._weigh(candidate)

    def _weigh(self, candidate: Candidate) -> None:
        best = self.best
        self.at = candidate.end
        if best is None or (candidate.continues and (not best.continues or candidate.offset <= best.last_offset)):
            self.best = candidate
            ahead = LOOK_AHEAD if self._effort.allows(LOOK_AHEAD, self.at) else 0
            self._limit = min(candidate.end + ahead, self._limit or candidate.end + ahead)
        elif best.continues and (self._proof is None or best.offset == self._expected):
            # Offsets go on behind it: the best one was no record's content, more damage just followed it.
            self._limit = self.at

    def _candidate(self, position: int) -> Candidate | None:
        """The entry there, if its CRC holds and there is more to say for it."""
        tape = self._tape
        at = position - tape.shift
        size = LOG_OVERHEAD + kernel.read_int32(tape.data, at + SIZE_AT)
        offset = kernel.read_int64(tape.data, at)
        continues = self._expected is None or self._expected <= offset <= self._expected + INT32_MAX
        known = continues and self._expected is not None
        if size > PROOF_REACH and not known:
            return None
        distance = position - tape.position
        if tape.lacks(distance + size) or not tape.fill(distance + size):
            return None
        # More damage may follow it right away: then its own offset must speak for it.
        if not begins(tape, distance + size, self._max_size) and not known:
            return None
        at = position - tape.shift
        if not self._effort.allows(size, position):
            return None
        if not holds(tape, at, size, tape.data[at + MAGIC_AT]):
            self._effort.spend(size)
            return None
        end, last, whole = self._chain(position + size, last_offset_of(tape.data, at))
        return Candidate(position, offset, last, end, continues, whole)

    def _chain(self, position: int, last: int) -> tuple[int, int, bool]:
        """Follow the headers from there: (where the chain ends, its last offset, whether it was not broken)."""
        tape = self._tape
        stop = position + LOOK_AHEAD
        while position < stop:
            more = tape.fill(position - tape.position + RECORD_BATCH_OVERHEAD)
            at = position - tape.shift
            if not more or not any(tape.view[at : at + RECORD_BATCH_OVERHEAD]):
                return position, last, True
            if not kernel.plausible(tape.data, at, tape.end, self._max_size):
                return position, last, False
            if kernel.read_int64(tape.data, at) <= last:
                return position, last, False
            last = last_offset_of(tape.data, at)
            position += LOG_OVERHEAD + kernel.read_int32(tape.data, at + SIZE_AT)
            if tape.lacks(position - tape.position):
                return position, last, True
        return position, last, True

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
