"""A log as a broker reads it: to the first break and no further; what recovery makes of a segment by that.

Sources: ``FileLogInputStream.nextBatch``, ``LogSegment.recover``, ``LogSegment.readNextOffset``, ``OffsetIndex.lookup``
and ``LocalLog.splitOverflowedSegment`` of Kafka 4. ``segment`` reads on behind damage; a broker never does.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from kseg.beside.indexes import OFFSET_ENTRY, OffsetEntry
from kseg.errors import UnreadableError
from kseg.files.special import open_file
from kseg.files.storage import open_range
from kseg.findings import ignore
from kseg.format import kernel, log_format
from kseg.format.checksums import crc32c
from kseg.format.kernel import BatchColumns
from kseg.format.log_format import INT32_MAX, LOG_OVERHEAD, NO_TIMESTAMP
from kseg.log.segment import WINDOW_ROWS, WINDOW_SIZE
from kseg.log.tape import Tape
from kseg.restart.epoch_fates import Epochs

# Larger entries are read in pieces, so that memory stays flat.
_WHOLE = WINDOW_SIZE - LOG_OVERHEAD
#: Producers with open transactions that are remembered: a broker has a handful, damage could make one of every batch.
MAX_WRITING = 100_000
# AbstractIndex.warmEntries: where a look-up begins decides what it finds in an index that is out of order.
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``begin`` to ``end`` of the file ``path``, a segment in the making: positions in it count from ``begin``."""

    base_offset: int
    path: str
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.begin


class RefusedError(Exception):
    """The broker dies of it: ``why`` says what of, in one line; ``file`` is a name, None for the log being read."""

    def __init__(self, why: str, file: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.file = file


class BrokerReader:
    """The entries of a piece from byte ``start`` of it on. ``why`` says why reading ended before the piece did.

    ``corrupt`` is set where a broker meets a CorruptRecordException; without it the log ends there in silence.
    """

    def __init__(self, piece: Piece, start: int = 0, *, verify: bool) -> None:
        self.piece = piece
        self.why: str | None = None
        self.corrupt = False
        self._start = piece.begin + start
        self._verify = verify
        self._batches = BatchColumns(WINDOW_ROWS)

    def windows(self) -> Iterator[BatchColumns]:
        """Runs of entries that a broker takes, positions being bytes of the file. Raises UnreadableError."""
        with open_range(self.piece.path, self._start, self.piece.end) as source:
            tape = Tape(source, WINDOW_SIZE, ignore)
            tape.fill(1)
            batches = self._batches
            while not self.corrupt:
                tape.start = kernel.frame(tape.data, tape.start, tape.end, tape.shift, _WHOLE, batches)
                framed = batches.count
                batches.count = kernel.check_crcs(tape.view, batches) if self._verify else framed
                if batches.count:
                    yield batches
                if batches.count < framed:
                    self._break("its CRC does not hold")
                elif not framed:
                    if not self._next(tape):
                        break
                    if batches.count:
                        yield batches
            if tape.failed:
                raise UnreadableError(f"{self.piece.path}: can't be read at byte {tape.position}")

    def _break(self, why: str) -> None:
        self.why, self.corrupt = why, True

    def _next(self, tape: Tape) -> bool:
        """What keeps the entry at the tape's start from being framed; False where reading ends.

        An odd or a huge one that a broker would take stands in the columns then, alone; else they are empty.
        """
        self._batches.count = 0
        if not tape.fill(log_format.HEADER_SIZE_UP_TO_MAGIC + 1):
            self.why = "the header of an entry is cut short" if tape.available else None
            return False
        size = kernel.read_int32(tape.data, tape.start + log_format.SIZE_AT)
        magic = tape.data[tape.start + log_format.MAGIC_AT]
        if size < log_format.V0_MIN_SIZE:
            self._break(f"an entry of {size} bytes is less than any can have")
            return False
        if tape.lacks(LOG_OVERHEAD + size):
            self.why = f"an entry of {LOG_OVERHEAD + size} bytes goes past the end"
            return False
        if kernel.smallest(magic) <= size <= _WHOLE:
            return tape.fill(LOG_OVERHEAD + size)
        return self._alone(tape, size, magic)

    def _alone(self, tape: Tape, size: int, magic: int) -> bool:
        # Any positive magic from 2 on is parsed as v2, negative ones as v0.
        modern = 2 <= magic < 128
        if modern and size < log_format.V2_MIN_SIZE:
            self._break(f"a batch of {size} bytes is less than its header")
            return False
        if not tape.fill(min(LOG_OVERHEAD + size, log_format.RECORD_BATCH_OVERHEAD)):
            return False
        batches = self._batches
        legacy = 1 if magic == 1 and size >= log_format.V1_MIN_SIZE else 0
        kernel.read_header(tape.data, tape.start, size, 2 if modern else legacy, batches, 0)
        batches.position[0] = tape.position
        crc_begins = log_format.ATTRIBUTES_AT if modern else log_format.MAGIC_AT
        tape.start += crc_begins
        left = LOG_OVERHEAD + size - crc_begins
        crc = 0
        while left and tape.fill(1):
            count = min(left, tape.available)
            view = tape.view[tape.start : tape.start + count]
            crc = crc32c(view, crc) if modern else zlib.crc32(view, crc)
            tape.start += count
            left -= count
        if left or (self._verify and crc != batches.crc[0]):
            self._break("its CRC does not hold")
            return False
        batches.count = 1
        return True


@dataclass(slots=True)
class Recovered:
    """What ``LogSegment.recover`` leaves of a piece.

    ``valid_bytes`` stay, and ``next_offset`` is the log's end after them. ``why`` is why the rest goes, None where all
    is valid. ``end_of_state`` is up to where its producers are known, None where it has no v2 batch. ``disorder``: the
    indexes refuse an offset, and the broker empties the segment. ``overflow``: an offset does not fit the indexes.
    """

    valid_bytes: int = 0
    next_offset: int = 0
    why: str | None = None
    end_of_state: int | None = None
    disorder: bool = False
    overflow: int | None = None
    indexed: int = 0


@dataclass(slots=True)
class _IndexOrder:
    """What the two indexes refuse to append: an offset that is not larger than, or is below, the one before."""

    offset: int | None = None
    time: tuple[int, int] | None = None
    largest: tuple[int, int] = field(default=(NO_TIMESTAMP, -1))

    def see(self, timestamp: int, offset: int) -> None:
        if timestamp > self.largest[0]:
            self.largest = timestamp, offset

    def add(self, offset: int) -> bool:
        if self.offset is not None and offset <= self.offset:
            return False
        self.offset = offset
        return self.add_time()

    def add_time(self) -> bool:
        if self.time is None:
            self.time = self.largest if self.largest[0] > NO_TIMESTAMP else None
            return True
        if self.largest[1] < self.time[1]:
            return False
        if self.largest[0] > self.time[0]:
            self.time = self.largest
        return True


def recover(piece: Piece, interval: int, epochs: Epochs, writing: set[int]) -> Recovered:
    """Recover a piece as after an unclean stop; ``interval`` is index.interval.bytes. New epochs join ``epochs``.

    ``writing`` are the producers known to have a transaction open, kept up to date. Raises RefusedError where one of
    them writes outside it: replaying producers' states is not guarded as reading batches is.
    """
    found = Recovered(next_offset=piece.base_offset)
    reader = BrokerReader(piece, verify=True)
    order = _IndexOrder()
    for batches in reader.windows():
        for row in range(batches.count):
            last = batches.last_offset[row]
            if not 0 <= last - piece.base_offset <= INT32_MAX:
                found.overflow = last
                return found
            order.see(batches.max_timestamp[row], last)
            if found.valid_bytes - found.indexed > interval:
                if not order.add(last):
                    found.disorder = True
                    return found
                found.indexed = found.valid_bytes
            found.valid_bytes = batches.position[row] + batches.size[row] - piece.begin
            found.next_offset = last + 1
            if batches.magic[row] >= 2:
                epochs.see(batches.partition_leader_epoch[row], batches.base_offset[row])
                found.end_of_state = last + 1
                if batches.producer_id[row] >= 0:
                    _replay(batches, row, writing)
    found.why = reader.why
    found.disorder = not order.add_time()
    return found


def _replay(batches: BatchColumns, row: int, writing: set[int]) -> None:
    """As ``ProducerAppendInfo.append``, which throws InvalidTxnStateException also where a log is but read."""
    producer_id, attributes = batches.producer_id[row], batches.attributes[row]
    if attributes & log_format.CONTROL:
        if batches.record_count[row]:  # emptied by the cleaner it ends nothing
            writing.discard(producer_id)
    elif attributes & log_format.TRANSACTIONAL:
        if len(writing) < MAX_WRITING:
            writing.add(producer_id)
    elif producer_id in writing:
        raise RefusedError(
            f"producer {producer_id} has a transaction open, and writes outside it at offset {batches.base_offset[row]}"
        )


def read_end(piece: Piece, begin: int, wanted: int) -> tuple[int | None, int | None]:
    """The log's end by the batches from byte ``begin`` on, the first of which has to reach the offset ``wanted``.

    (None, …) where none does: the broker then takes the base offset for the end. (…, byte) where reading ended before
    the piece did. Raises RefusedError, UnreadableError.
    """
    if begin < 0:
        raise RefusedError(f"its index leads to byte {begin}")
    reader = BrokerReader(piece, min(begin, piece.size), verify=False)
    found: int | None = None
    stop = min(begin, piece.size)
    for batches in reader.windows():
        for row in range(batches.count):
            if found is not None or batches.last_offset[row] >= wanted:
                found = batches.last_offset[row] + 1
            stop = batches.position[row] + batches.size[row] - piece.begin
    if reader.corrupt:
        raise RefusedError(f"its end can't be found: {reader.why}")
    return found, stop if reader.why else None


def last_entry(index: str, base_offset: int) -> OffsetEntry:
    """Where a broker begins to look for a segment's end: what its offset index says of the largest offset in it.

    Zeros of a preallocated index count as entries, as they do for a broker. Raises UnreadableError.
    """
    first = OffsetEntry(base_offset, 0)
    try:
        with open_file(index, named=False) as file:
            count = os.fstat(file.fileno()).st_size // OFFSET_ENTRY.size

            def entry(slot: int) -> OffsetEntry:
                file.seek(slot * OFFSET_ENTRY.size)
                relative, position = OFFSET_ENTRY.unpack(file.read(OFFSET_ENTRY.size))
                return OffsetEntry(base_offset + relative, position)

            if not count:
                return first
            wanted = entry(count - 1).offset
            low, high = max(0, count - 1 - _WARM_ENTRIES), count - 1
            if entry(low).offset >= wanted:
                if entry(0).offset > wanted:
                    return OffsetEntry(wanted, 0)
                low, high = 0, low
            while low < high:
                middle = (low + high + 1) // 2
                offset = entry(middle).offset
                if offset == wanted:
                    low = middle
                    break
                low, high = (low, middle - 1) if offset > wanted else (middle, high)
            return OffsetEntry(wanted, entry(low).log_position)
    except OSError as error:
        raise UnreadableError(f"{index}: {error.strerror or error}") from error


def split(piece: Piece) -> list[Piece]:
    """The pieces that a broker makes of one with an offset that does not fit its indexes (KAFKA-6264).

    Raises RefusedError, UnreadableError.
    """
    pieces: list[Piece] = []
    base = piece.base_offset
    begin = end = 0
    reader = BrokerReader(piece, verify=False)
    for batches in reader.windows():
        for row in range(batches.count):
            if end == begin:
                base = batches.base_offset[row]
            if not 0 <= batches.last_offset[row] - base <= INT32_MAX:
                if end == begin:
                    raise RefusedError("it can't be split: a batch does not fit its own offset")
                pieces.append(Piece(base, piece.path, piece.begin + begin, piece.begin + end))
                base, begin = batches.base_offset[row], end
            end = batches.position[row] + batches.size[row] - piece.begin
    pieces.append(Piece(base, piece.path, piece.begin + begin, piece.begin + end))
    if reader.why or end != piece.size or len({piece.base_offset for piece in pieces}) < len(pieces):
        raise RefusedError(f"it can't be split: {reader.why or 'its offsets go back'}")
    return pieces
