"""A log as a broker reads it: to the first break and no further.

Sources: ``FileLogInputStream.nextBatch`` and ``FileRecords`` of Kafka 4.3. ``kseg.log.segment`` continues after damage;
a broker never does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kseg.errors import UnreadableError
from kseg.files.storage import open_range
from kseg.findings import ignore
from kseg.format import kernel, log_format
from kseg.format.checksums import crc32c
from kseg.format.kernel import BatchColumns
from kseg.format.log_format import CODEC_MASK, LOG_OVERHEAD, SUM_LIMIT
from kseg.log.segment import WINDOW_ROWS, WINDOW_SIZE
from kseg.log.tape import Tape
from kseg.restart.files import File
from kseg.restart.legacy_wrappers import MAX_WRAPPER, base_offset
from kseg.restart.plan import RefusedError

# Larger entries are read in pieces, so that memory stays flat.
_WHOLE = WINDOW_SIZE - LOG_OVERHEAD


class BrokerReader:
    """The entries of a log from byte ``start`` to byte ``end`` of it. ``why`` says why reading ended before.

    ``corrupt`` is set where a broker meets a CorruptRecordException; without it the log ends there in silence.
    ``stop`` is the byte after the last entry. Positions in the columns are bytes of the log.
    """

    def __init__(self, log: File, start: int = 0, end: int | None = None, *, verify: bool) -> None:
        self.why: str | None = None
        self.corrupt = False
        self.stop = start
        self._log = log
        self._end = log.size if end is None else end
        self._verify = verify
        self._batches = BatchColumns(WINDOW_ROWS)

    def windows(self) -> Iterator[BatchColumns]:
        """Yield runs of entries that a broker accepts. Raises UnreadableError.

        ``intact`` is 0 for a v2 entry that is smaller than its header where no header can be read.
        """
        log = self._log
        if log.path is None or self.stop >= self._end:
            return
        with open_range(log.path, log.begin + self.stop, log.begin + self._end) as source:
            tape = Tape(source, WINDOW_SIZE, ignore)
            tape.fill(1)
            batches = self._batches
            while not self.corrupt:
                tape.start = kernel.frame(tape.data, tape.start, tape.end, tape.shift - log.begin, _WHOLE, batches)
                framed = batches.count
                batches.count = kernel.check_crcs(tape.view, batches) if self._verify else framed
                if batches.count:
                    yield self._passed(batches)
                if batches.count < framed:
                    self._break("its CRC does not hold")
                elif not framed:
                    if not self._next(tape):
                        break
                    if batches.count:
                        yield self._passed(batches)
            if tape.failed:
                raise UnreadableError(f"{log.path}: can't be read at byte {tape.position}")

    def _passed(self, batches: BatchColumns) -> BatchColumns:
        row = batches.count - 1
        self.stop = batches.position[row] + batches.size[row]
        offsets = memoryview(batches.base_offset)[: batches.count]
        if max(offsets) > SUM_LIMIT or min(offsets) < -SUM_LIMIT:
            for row, offset in enumerate(offsets):
                # The columns bound a sum that Kafka lets continue at the other end of its range.
                delta = batches.last_offset[row] - kernel.clamped(offset)
                batches.last_offset[row] = kernel.wrapped_sum(offset, delta) if batches.magic[row] >= 2 else offset
        return batches

    def _break(self, why: str) -> None:
        self.why, self.corrupt = why, True

    def _next(self, tape: Tape) -> bool:
        """Find out why the entry at the tape's start was not framed; return False where reading ends.

        An odd or a huge entry that a broker would accept is in the columns then, alone; else they are empty.
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
        # Any positive magic from 2 on is parsed as v2, a negative one as legacy.
        modern = 2 <= magic < 128
        if modern and size < log_format.V2_MIN_SIZE:
            if self._verify:
                self._break(f"a batch of {size} bytes is less than its header")
                return False
            self._read_small(tape, size)
            return True
        if not tape.fill(min(LOG_OVERHEAD + size, log_format.RECORD_BATCH_OVERHEAD)):
            return False
        batches = self._batches
        kernel.read_header(tape.data, tape.start, size, 2 if modern else int(magic > 0), batches, 0)
        batches.position[0] = tape.position - self._log.begin
        crc_begins = log_format.ATTRIBUTES_AT if modern else log_format.MAGIC_AT
        tape.start += crc_begins
        left = LOG_OVERHEAD + size - crc_begins
        crc = 0
        while left and tape.fill(1):
            count = min(left, tape.available)
            view = tape.view[tape.start : tape.start + count]
            if self._verify:
                crc = crc32c(view, crc) if modern else zlib.crc32(view, crc)
            tape.start += count
            left -= count
        if left or (self._verify and crc != batches.crc[0]):
            self._break("its CRC does not hold")
            return False
        batches.count = 1
        return True

    def _read_small(self, tape: Tape, size: int) -> None:
        """A v2 entry smaller than its header: Kafka reads the header from the bytes that follow, where there are any."""
        batches = self._batches
        position = tape.position - self._log.begin
        header = self._log.read(position, log_format.RECORD_BATCH_OVERHEAD)
        whole = len(header) == log_format.RECORD_BATCH_OVERHEAD
        kernel.read_header(header.ljust(log_format.RECORD_BATCH_OVERHEAD, b"\0"), 0, size, 2, batches, 0)
        batches.position[0] = position
        batches.intact[0] = whole
        batches.count = 1
        tape.start += LOG_OVERHEAD + size


def last_offset_of(batches: BatchColumns, row: int) -> int:
    """Return the last offset of an entry. Raises RefusedError where there is no header to read."""
    if not batches.intact[row]:
        raise RefusedError(f"the header of the batch at byte {batches.position[row]} is cut short")
    return batches.last_offset[row]


def base_offset_of(log: File, batches: BatchColumns, row: int) -> int:
    """Return the base offset of an entry; one of a compressed v0 or v1 entry is inside. Raises RefusedError."""
    if batches.magic[row] >= 2 or not batches.attributes[row] & CODEC_MASK:
        return batches.base_offset[row]
    if batches.size[row] > MAX_WRAPPER:
        raise RefusedError(f"a compressed message has {batches.size[row]} bytes, which the broker would hold in memory")
    return base_offset(log.read(batches.position[row], batches.size[row]))


def position_of(log: File, target: int, start: int) -> int | None:
    """Return the byte of the entry that a read of offset ``target`` begins at, looked for from byte ``start`` on.

    ``FileRecords.searchForOffsetFromPosition``; None where the log ends below the offset. Raises RefusedError.
    """
    reader = BrokerReader(log, start, verify=False)
    before: _Before | None = None
    for batches in reader.windows():
        for row in range(batches.count):
            base = base_offset_of(log, batches, row)
            if base == target:
                return batches.position[row]
            if base > target:
                return before.position if before and before.reaches(target) else batches.position[row]
            before = _Before(batches.position[row], batches.last_offset[row], bool(batches.intact[row]))
    if reader.corrupt:
        raise RefusedError(f"offset {target} can't be found: {reader.why}")
    return before.position if before and before.reaches(target) else None


class _Before(NamedTuple):
    """The entry before the one that is looked at."""

    position: int
    last_offset: int
    intact: bool

    def reaches(self, offset: int) -> bool:
        if not self.intact:
            raise RefusedError(f"the header of the batch at byte {self.position} is cut short")
        return self.last_offset >= offset


def last_offset(log: File, start: int) -> tuple[int | None, int]:
    """Return the last offset of the last entry from byte ``start`` on, and the byte after that entry.

    Raises RefusedError.
    """
    reader = BrokerReader(log, start, verify=False)
    found: int | None = None
    intact = True
    for batches in reader.windows():
        row = batches.count - 1
        found, intact = batches.last_offset[row], bool(batches.intact[row])
    if reader.corrupt:
        raise RefusedError(f"its end can't be found: {reader.why}")
    if not intact:
        raise RefusedError("the header of its last batch is cut short")
    return found, reader.stop
