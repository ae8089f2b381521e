"""Search after a damaged batch: for a proof of its true length, and for the next batch of the log.

The CRC of v2 does not cover base offset and size. So the CRC of the damaged batch is computed up to each position where
a batch may begin; where it is valid, the length is proved. v0 and v1 need no search: the key and value lengths give the
end.

Otherwise the search looks for chains: batches with a valid CRC, one directly after the other. A batch with a valid CRC
belongs to the log, with one exception: the value of a record can contain whole batches of another log (of a mirror, of
a dead letter queue), and the damaged batch can be the one that contains them. Such a chain is followed by the remaining
bytes of that batch, which are not a header. So a chain is accepted at once if a header, zeros or the end of the file
follows it. If not, the next chain decides: batches inside a value have offsets that do not precede those of the log.

Every byte that is checked without result is charged to the file's ``ScanBudget``, so that a file full of false starts
also takes linear time.
"""

from __future__ import annotations

from kseg.engine import imported
from kseg.format.record import framing
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import batch_evidence
from kseg.format.segment.batch_evidence import (
    LOOK_AHEAD,
    BatchChain,
    LogBefore,
    how_likely_batch_begins,
    is_bare_message,
    is_valid_batch,
    last_offset_of,
)
from kseg.format.segment.input_buffer import InputBuffer

# At most this many bytes of the damaged batch stay in the buffer, to be read when its length is proved. A larger batch
# found after damage must continue the offsets.
PROOF_REACH = 16 * 1024 * 1024
FIRST_STEP = 4 * 1024
STEP = 256 * 1024


class ScanBudget:
    """The number of bytes that may be checked without result in a file: a constant, plus FACTOR times the bytes read so
    far.
    """

    ALLOWANCE = 64 * 1024 * 1024
    FACTOR = 4

    def __init__(self) -> None:
        self._spent = 0

    def allows(self, size: int, position: int) -> bool:
        """Return whether ``size`` more bytes may be checked at that file position."""
        return self._spent + size <= self.ALLOWANCE + self.FACTOR * position

    def spend(self, size: int) -> None:
        """Count bytes that were checked without result."""
        self._spent += size


class RunningCrc:
    """The CRC of the v2 batch at the buffer's start, extended to each position where the batch may end."""

    def __init__(self, buffer: InputBuffer) -> None:
        self._buffer = buffer
        self.began = buffer.position
        self._stored = framing.read_uint32(buffer.data, buffer.start + CRC_AT)
        self._crc = 0
        self.done = self.began + ATTRIBUTES_AT

    def holds(self, end: int) -> bool:
        """Return whether the CRC is valid if the batch ends at that file position. Positions must not decrease."""
        if end < self.began + RECORD_BATCH_OVERHEAD or end < self.done:
            return False
        shift = self._buffer.shift
        self._crc = crc32c(self._buffer.view[self.done - shift : end - shift], self._crc)
        self.done = end
        return self._crc == self._stored


class ResyncScan:
    """Searches from the damaged batch at the buffer's start. Positions are file positions: the buffer moves during the
    search.

    ``floor`` is the lowest offset that can continue the log, None if unknown; that of ``before`` is the same if the damaged
    batch occurs again. ``declared_end`` is the position at which the damaged batch ends by its own header, None if the
    header can't be right: a chain that ends after it is not in a value of that batch. With ``around``, a file position,
    only a chain is searched that begins before and reaches it (see ``_reaches``). After ``run``: ``proved`` is the true
    whole size of the damaged batch, ``best`` the chain to continue with, ``at`` the position up to which the file was
    searched, ``zeros`` the longest run of zeros as (first byte, byte after it), ``last_zeros`` the last run, ``inner``
    the number of messages that were skipped because they can be of a compressed message set (see ``inner_messages``).
    """

    def __init__(
        self,
        buffer: InputBuffer,
        max_size: int,
        floor: int | None,
        budget: ScanBudget,
        proof: RunningCrc | None,
        before: LogBefore,
        *,
        keep: bool,
        around: int | None = None,
        declared_end: int | None = None,
    ) -> None:
        self.began = buffer.position
        self.at = self.began + 1
        self.proved: int | None = None
        self.best: BatchChain | None = None
        self.zeros = (0, 0)
        self.last_zeros = (0, 0)
        self.inner = 0
        self.ended = False
        self._buffer = buffer
        self._max_size = max_size
        self._floor = floor
        self._least = before.floor
        self._budget = budget
        self._proof = proof
        self._keep = keep
        self._around = around
        self._declared_end = declared_end
        self._before = before
        self._skipped: BatchChain | None = None
        self._decided = False
        self._limit: int | None = None
        self._until: int | None = None

    def run(self, until: int | None = None) -> None:
        """Search up to file position ``until``, the end of the file, or the point where the result is certain."""
        buffer = self._buffer
        self._limit = self._until = until
        step = FIRST_STEP
        if buffer.fill(batch_evidence.ZERO_RUN) or buffer.available:
            self._skip_first_zeros()
        while not self._is_settled():
            self._discard_candidates()
            self._pass_hole()
            more = buffer.fill(self.at - buffer.position + step)
            end = buffer.shift + buffer.end
            horizon = min(end - RECORD_BATCH_OVERHEAD if more else end, self.at + step)
            step = min(2 * step, STEP)
            self._scan_window(horizon if self._limit is None else min(horizon, self._limit))
            if self._limit is not None and self.at >= self._limit:
                break
            if not more and self.at >= end:
                self.ended = True
                if not self._is_settled():
                    self._prove_near_end(end)
                break
        if self.best:
            self._budget.spend(max(0, self.at - self.best.end))

    @property
    def first_chain(self) -> BatchChain | None:
        """The chain to continue with if ``best`` shows that the damaged batch does not end at ``around``."""
        if self._skipped and self.best and self._skipped.leads_to(self.best, self._least):
            return self._skipped
        return self.best

    def _is_settled(self) -> bool:
        return self.proved is not None or self._decided

    def _discard_candidates(self) -> None:
        """Release the bytes of the buffer that are not needed any more."""
        far = self.at - self.began
        if far > PROOF_REACH:
            self._proof = None
        # The start is also kept for a while without ``_proof``: the tail of a live file is read again.
        if not self._keep and self._proof is None and far > LOOK_AHEAD:
            self._buffer.skip_to(self.best.position if self.best else self.at)

    def _pass_hole(self) -> None:
        """Go on at the next bytes on the disk if all buffered bytes are zeros of a run, and a hole follows them."""
        buffer, end = self._buffer, self._buffer.shift + self._buffer.end
        if self.last_zeros[1] != end or not buffer.position == self.at >= end - batch_evidence.ZEROS_IN_HEAD:
            return
        passed = buffer.skip_hole(self._limit)
        self.at += passed
        self._add_zeros(self.last_zeros[0], end + passed)

    def _scan_window(self, horizon: int) -> None:
        buffer = self._buffer
        zeros = self._next_zeros(horizon)
        while self.at < horizon:
            if self.at >= zeros:
                self._skip_zeros(zeros)
                if self.proved is not None:
                    return
                zeros = self._next_zeros(horizon)
                continue
            stop, shift = min(horizon, zeros + 1), buffer.shift
            head = (
                batch_evidence.find_header(buffer.data, self.at - shift, stop - shift, buffer.end, self._max_size)
                + shift
            )
            if head >= stop:
                self.at = stop
                continue
            self.at = head
            self._add_candidate()
            if self._is_settled() or (self._limit is not None and self.at >= self._limit):
                return
            self.at = max(self.at, head + 1)

    def _next_zeros(self, horizon: int) -> int:
        buffer = self._buffer
        end = min(buffer.end, horizon - buffer.shift + batch_evidence.ZERO_RUN)
        return batch_evidence.find_zeros(buffer.data, self.at - buffer.shift, end) + buffer.shift

    def _skip_first_zeros(self) -> None:
        """Handle zeros at the start of the damaged place: the run includes the first byte."""
        buffer = self._buffer
        if (
            batch_evidence.find_zeros(
                buffer.data, buffer.start, min(buffer.end, buffer.start + batch_evidence.ZERO_RUN)
            )
            == buffer.start
        ):
            self.at = self.began
        elif buffer.available < batch_evidence.ZERO_RUN and not any(buffer.view[buffer.start : buffer.end]):
            self.zeros = self.last_zeros = (self.began, self.began + buffer.available)

    def _skip_zeros(self, begin: int) -> None:
        """Move to the end of a run of zeros, except for those that the next batch may begin with."""
        buffer = self._buffer
        end = begin + batch_evidence.zero_run_end(buffer.data, begin - buffer.shift, buffer.end)
        if begin == self.last_zeros[1] - batch_evidence.ZEROS_IN_HEAD:
            begin = self.last_zeros[0]
        elif self._proof is not None:
            # A batch can itself end with a zero: the header count of the last record.
            for end_position in range(begin, min(begin + batch_evidence.ZERO_RUN, end) + 1):
                if self._proof.holds(end_position):
                    self.proved = end_position - self.began
                    return
        self._add_zeros(begin, end)
        self.at = max(end - batch_evidence.ZEROS_IN_HEAD, self.at + 1)

    def _add_zeros(self, begin: int, end: int) -> None:
        """Set the last run of zeros, and the longest."""
        self.last_zeros = (begin, end)
        if end - begin > self.zeros[1] - self.zeros[0]:
            self.zeros = self.last_zeros

    def _add_candidate(self) -> None:
        """Check the header at ``at``: whether it ends the damaged batch, or begins a chain to continue with."""
        buffer = self._buffer
        if self._proof is not None and self._proof.holds(self.at):
            self.proved = self.at - self.began
        elif framing.plausible(buffer.data, self.at - buffer.shift, buffer.end, self._max_size):
            chain = self._chain(self.at)
            if chain is not None:
                self.at = chain.end
                chain = self._without_inner(chain)
            if chain is not None:
                self._rank(chain)

    def _without_inner(self, chain: BatchChain) -> BatchChain | None:
        """Return a chain without messages at its begin that can be of a compressed set, None if it has no others."""
        if not chain.bare:
            return chain
        # Imported here: it needs the libraries of the codecs.
        first_own = imported("kseg.format.segment.inner_messages:first_own")
        inner: int = first_own(self._buffer, chain, chain.position - self.began, self._before, self._budget)
        self.inner += inner
        if inner and chain.offset < (self._before.following or 0):
            self._before = LogBefore(self._before.base, earlier=self._before.earlier)  # a set is in the lost bytes
        if inner == len(chain.batches):
            return None
        return BatchChain(chain.batches[inner:], chain.end, chain.closed, chain.bare - inner) if inner else chain

    def _rank(self, chain: BatchChain) -> None:
        """Choose between the best chain so far and a later one."""
        best = self.best
        if self._around is not None:
            # A chain that ends before is not accepted: it may be inside a value.
            if best is None and chain.position < self._around:
                if self._reaches(chain, self._around):
                    self.best = chain
                    self._decided = chain.closed or self._proof is None
                else:
                    self._skipped = self._skipped or chain
            return
        if best is not None:
            if not chain.continues(self._floor) and best.continues(self._floor):
                return  # only the later one does not fit the offsets
            only_best_misfits = chain.continues(self._floor) and not best.continues(self._floor)
            begin, end, data = best.end - self._buffer.shift, chain.position - self._buffer.shift, self._buffer.data
            floors = [least for least, began in self._before.earlier if best.follows_soon(least, began)]
            soon = bool(floors) or best.follows_soon(self._least, self.began)
            soon = soon and not batch_evidence.is_rest_of_batch(data, begin, end)
            outweighed = (chain.closed and not soon) or len(chain.batches) >= len(best.batches)
            if (
                (self._declared_end is not None and best.end > self._declared_end)
                or any(best.leads_to(chain, floor) for floor in (self._least, *floors))
                or (not only_best_misfits and (best.precedes(chain) or not outweighed))
            ):
                self._decided = True
                return
        self.best = chain
        if chain.closed or not self._budget.allows(LOOK_AHEAD, chain.end):
            self._decided = True
        else:
            self._limit = min(chain.end + LOOK_AHEAD, self._until or chain.end + LOOK_AHEAD)

    def _reaches(self, chain: BatchChain, end_position: int) -> bool:
        """Return whether a chain ends at that position or after it.

        Zeros on both sides of the position prove no end. In that case a chain is accepted whose offsets follow soon.
        """
        buffer = self._buffer
        if chain.end >= end_position:
            return True
        at = end_position - buffer.shift
        zeros = buffer.view[
            max(chain.end - buffer.shift, at - batch_evidence.ZERO_RUN) : min(at + batch_evidence.ZERO_RUN, buffer.end)
        ]
        if any(zeros) or not chain.closed or self._floor is None:
            return False
        return 0 <= chain.offset - self._floor < chain.end - self.began

    def _chain(self, position: int) -> BatchChain | None:
        """Return the chain that begins at that position, None if no batch with a valid CRC begins there."""
        buffer = self._buffer
        batches: list[tuple[int, int, int]] = []
        bare, stop = 0, position + LOOK_AHEAD
        while not batches or position < stop:
            size = self._good_batch(position, first=not batches)
            if not size:
                break
            at = position - buffer.shift
            if bare == len(batches) and is_bare_message(buffer.data, at):
                bare += 1
            batches.append((position, framing.read_int64(buffer.data, at), last_offset_of(buffer.data, at)))
            position += size
        if not batches:
            return None
        closed = position >= stop or bool(how_likely_batch_begins(buffer, position - buffer.position, self._max_size))
        return BatchChain(tuple(batches), position, closed, bare)

    def _good_batch(self, position: int, *, first: bool) -> int:
        """Return the size in bytes of the batch at that position, 0 if there is none or its CRC is wrong."""
        buffer = self._buffer
        distance = position - buffer.position
        if not buffer.fill(distance + HEADER_SIZE_UP_TO_MAGIC):
            return 0
        at = position - buffer.shift
        magic, size = buffer.data[at + MAGIC_AT], framing.read_int32(buffer.data, at + SIZE_AT)
        if not framing.smallest_size(magic) <= size <= self._max_size:
            return 0
        size += LOG_OVERHEAD
        if size > PROOF_REACH and not (first and self._floor == framing.read_int64(buffer.data, at)):
            return 0
        if (
            buffer.ends_before(distance + size)
            or not self._budget.allows(size, position)
            or not buffer.fill(distance + size)
        ):
            return 0
        if is_valid_batch(buffer, position - buffer.shift, size, magic):
            return size
        self._budget.spend(size)
        return 0

    def _prove_near_end(self, end: int) -> None:
        """Check the end of the file: if the damaged batch is the last one, the end or a torn header follows it."""
        if self._proof is None:
            return
        for end_position in range(max(self._proof.done, end - RECORD_BATCH_OVERHEAD), end + 1):
            if self._proof.holds(end_position):
                self.proved = end_position - self.began
                return
