"""Read a log segment in windows of batches, or one batch: frame batches, check CRCs, and continue after damage.

The reader doesn't interpret batches. It reports bytes that are not batches. ``FileLogInputStream.nextBatch`` and
``LogSegment.recover`` stop at the first fault. This reader searches the next batch. If the header after a batch proves
that only its length was wrong, the batch is read with the right length.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from kseg.errors import KsegError, NotASegmentError
from kseg.findings import Report, do_nothing, fail_on_read_error
from kseg.format.record import columns, framing, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import HEADER_SIZE_UP_TO_MAGIC, INT64_MAX, LOG_OVERHEAD, MAGIC_AT, SIZE_AT
from kseg.format.record.memory import equal_bytes
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment import batch_evidence, resync, resync_search
from kseg.format.segment.input_buffer import MAX_UNKNOWN_STREAM, Buffers, InputBuffer
from kseg.format.storage import file_type
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import Source, open_range

if TYPE_CHECKING:
    from kseg.format.segment import resync_results


#: A larger size field is treated as wrong. Kafka's default limit is 1 MiB, and few installations use more than 100 MiB.
MAX_ENTRY_SIZE = 256 * 1024 * 1024
#: A batch with a larger size field is searched for other batches before it is read: no valid one was ever observed.
DOUBTFUL_SIZE = 64 * 1024 * 1024
WINDOW_SIZE = 4 * 1024 * 1024
#: The bytes of the first read of one batch, which most batches do not exceed: a second request to a store takes as long.
LIKELY_SIZE = 4 * 1024
WINDOW_ROWS = 16 * 1024  # a window of small batches ends when it has this many rows
SMALLEST_ENTRY = layout.LOG_OVERHEAD + framing.smallest_size(0)
FEWEST_ROWS = 1024  # some checks compare a batch with its neighbours in the same window
# More damage may follow damage: framing a whole window for each damaged batch would take quadratic time.
REACH_AFTER_DAMAGE = 4 * 1024
# No producer's batch has more records than this.
LIKELY_STEP = 1_000_000
FEWEST_PLAIN = 16  # fewer uncompressed messages do not show that a log has no compressed sets


class Window:
    """A run of framed batches (rows of ``batches``) and the buffer that holds them. Valid until the next window is
    read.
    """

    __slots__ = ("batches", "data", "view")

    def __init__(self, data: bytearray, view: memoryview, batches: BatchColumns) -> None:
        self.data = data
        self.view = view
        self.batches = batches


class SegmentReader:
    """Reads one segment from start to end in constant memory.

    ``report`` receives each finding. With ``verify_crc=False`` CRCs are not computed, like in a consumer with
    check.crcs=false; the CRC of a batch found after damage is still computed.

    ``damaged`` becomes True at the first bytes that are not a complete batch with a valid CRC; preallocated zeros at
    the end of the file are not damage. Of a split (``open_split``) the batches that begin in it are read, with the same
    findings as when the whole file is read. ``buffers`` are used instead of new ones.

    A read error after the first bytes raises UnreadableError, or is a finding with ``reports_read_error``: its caller then
    says that the file is unread. It is never damage, and its bytes are not lost.
    """

    def __init__(
        self,
        source: Source,
        *,
        report: Report = do_nothing,
        verify_crc: bool = True,
        by_name: bool = True,
        buffers: Buffers | None = None,
        reports_read_error: bool = False,
    ) -> None:
        self.source = source
        self.name = source.name
        self.name_offset = base_offset_of(source.name)
        self.lost_bytes = 0
        self.damaged = False
        self._report = report
        self._verify_crc = verify_crc
        # Whether a file with a segment's name but no readable batch is a damaged segment; otherwise NotASegmentError.
        self._by_name = by_name
        self._max_size = MAX_ENTRY_SIZE - layout.LOG_OVERHEAD
        # Thousands of short ranges are read: after damage, and when a conversion reads back its output.
        room = WINDOW_SIZE if source.size is None else min(WINDOW_SIZE, max(source.size - source.start, 1024))
        buffers = buffers or Buffers()
        read_error = report if reports_read_error else fail_on_read_error(source.name)
        self._buffer = InputBuffer(source, room, read_error, buffers.data(room))
        # Bytes in memory do not grow, and can be one of a million record sets.
        fewest = FEWEST_ROWS if source.may_grow else min(FEWEST_ROWS, room // SMALLEST_ENTRY)
        self._batches = buffers.batches(max(fewest, room * WINDOW_ROWS // WINDOW_SIZE))
        self._split_end = INT64_MAX if source.split_end is None else source.split_end
        self._next_offset: int | None = None
        self._floor = self.name_offset
        self._base = self.name_offset or 0  # no batch is below it; 0 if one is, because the name is wrong
        self._found_any = False
        self._is_bare = False  # whether the last batch is an uncompressed message
        self._has_sets = False  # whether the last batch of a window was a compressed v0 or v1 set
        self._seen = 0  # how many batches were read
        self._earlier: tuple[tuple[int | None, int], ...] = ()  # see ``LogBefore``
        self._pending: resync_results.ResyncResult | None = None
        self._first_bytes = b""

    @property
    def position(self) -> int:
        """The file position up to which the segment was read."""
        return self._buffer.position

    def windows(self) -> Iterator[Window]:
        """Yield all batches in order. Framed batches with a wrong CRC are included, with ``crc_state`` CRC_BAD.

        Raises NotASegmentError if the file contains no batch at all, UnreadableError if it can't be read.
        """
        buffer = self._buffer
        batches = self._batches
        reach = len(buffer.data)
        if not buffer.fill(1):
            self.source.check_not_empty()
        # After the split's end, reading continues only to complete a pending finding.
        while buffer.available and (buffer.position < self._split_end or self._pending):
            end = min(buffer.end, buffer.start + reach)
            stop = framing.frame(buffer.data, buffer.start, end, buffer.shift, self._max_size, batches)
            framed = batches.count
            sound = framing.check_crcs(buffer.view, batches) if self._verify_crc else framed
            if sound:
                self._flush_pending()
                batches.count = sound
                if self._cut_at_split_end():
                    if batches.count:
                        yield self._emit()
                    break
                yield self._emit()
            if sound < framed:
                buffer.start = batches.at[sound]
                yield from self._resynchronise()
                reach = REACH_AFTER_DAMAGE
                continue
            buffer.start = stop
            if framed == batches.capacity:
                continue
            if end < buffer.end:
                reach = 2 * reach if framed else len(buffer.data)
                continue
            reach = len(buffer.data)
            wanted = self._bytes_to_read()
            if buffer.available and (wanted > DOUBTFUL_SIZE or buffer.ends_before(wanted)):
                self.source.remove_end()
            torn = wanted > WINDOW_SIZE and buffer.ends_before(wanted)
            if wanted > DOUBTFUL_SIZE and not torn:
                outcome = resync.check_oversized_batch(buffer, self._max_size, self._budget, self._before())
                if outcome:
                    yield from self._apply(outcome)
                    continue
            if torn or buffer.available >= wanted or not buffer.fill(wanted):
                if not buffer.available:
                    break
                yield from self._resynchronise()
        self._flush_pending()

    def skip_equal(self, other: Window) -> bool:
        """Skip the next bytes if they equal the batches of another segment's window. Call it only before ``windows``.

        The batches of ``other`` must be valid and contiguous in its buffer: neither are they framed again, nor are their
        CRCs computed again. Returns False if the bytes differ or are at another position.
        """
        batches, buffer = other.batches, self._buffer
        first, last = batches.at[0], batches.count - 1
        size = batches.at[last] + batches.size[last] - first
        if batches.position[0] != buffer.position or not buffer.fill(size):
            return False
        # The first header often shows a difference.
        for length in (min(size, layout.RECORD_BATCH_OVERHEAD), size):
            if not equal_bytes(other.data, first, buffer.data, buffer.start, length):
                return False
        self._update_offsets(batches)
        buffer.start += size
        return True

    @cached_property
    def _budget(self) -> resync_search.ScanBudget:
        return resync_search.ScanBudget()

    def _cut_at_split_end(self) -> bool:
        """Remove batches that begin after the split's end from the columns. Returns whether there were any."""
        buffer, batches = self._buffer, self._batches
        if batches.position[batches.count - 1] < self._split_end:
            return False
        while batches.count and batches.position[batches.count - 1] >= self._split_end:
            batches.count -= 1
        buffer.start = batches.at[batches.count]
        return True

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bytes_to_read(self) -> int:
        """Return how many bytes the batch at the buffer's start needs to be complete, as far as its header is read."""
        buffer = self._buffer
        if buffer.available < layout.HEADER_SIZE_UP_TO_MAGIC:
            return layout.HEADER_SIZE_UP_TO_MAGIC
        size = framing.read_int32(buffer.data, buffer.start + layout.SIZE_AT)
        magic = buffer.data[buffer.start + layout.MAGIC_AT]
        likely = framing.smallest_size(magic) <= size <= self._max_size
        return layout.LOG_OVERHEAD + size if likely else 0

    def _emit(self) -> Window:
        self._update_offsets(self._batches)
        return Window(self._buffer.data, self._buffer.view, self._batches)

    def _update_offsets(self, batches: BatchColumns) -> None:
        """Store the offsets that can follow the batches: they distinguish a damaged header from a valid one."""
        self._found_any = True
        row = batches.count - 1
        last, expected = batches.last_offset[row], self._expected()
        # In the middle of a file the name doesn't give the offset before the first batch.
        first = self._next_offset is None and self.source.start > 0
        before = batches.last_offset[row - 1] + 1 if row else None if first else expected
        # The offsets of a batch with a wrong CRC are used only if they are likely.
        if batches.crc_state[row] != columns.CRC_BAD or (expected is not None and 0 <= last - expected < LIKELY_STEP):
            self._next_offset = self._floor = last + 1
            self._base = self._base if self._base <= last else 0
            is_set = is_wrapper(batches, row)
            self._is_bare = batches.magic[row] < 2 and not is_set
            self._has_sets = self._has_sets or is_set
            self._seen += batches.count
            if before is not None and batches.base_offset[row] != before:
                # The CRC does not cover the base offset. If it is too high, the batches after it must not seem to go back.
                self._floor = min(before, last + 1)

    def _emit_one(self, size: int, magic: int, crc_state: int) -> Window:
        """Return the batch at the buffer's start as a window of one row; ``size`` is its whole size in bytes."""
        buffer, batches = self._buffer, self._batches
        if crc_state == columns.CRC_GOOD:
            # Write the size and magic that the CRC proved into the buffer: commands that copy the batch copy valid bytes.
            buffer.view[buffer.start + layout.SIZE_AT : buffer.start + layout.LOG_OVERHEAD] = (
                size - layout.LOG_OVERHEAD
            ).to_bytes(4, "big")
            buffer.data[buffer.start + layout.MAGIC_AT] = magic
        framing.read_header(buffer.data, buffer.start, size - layout.LOG_OVERHEAD, magic, batches, 0)
        batches.position[0] = buffer.position
        batches.crc_state[0] = crc_state
        batches.selected[0] = crc_state != columns.CRC_BAD
        batches.count = 1
        return self._emit()

    def _expected(self) -> int | None:
        return self._next_offset if self._next_offset is not None else self.name_offset

    def _before(self) -> batch_evidence.LogBefore:
        is_start = self._next_offset is None and self.source.start == 0
        expected = self._expected()
        following = expected if self._is_bare or is_start else None
        batches = self._batches  # of the last window: in the loop over all windows, this would take time
        has_sets = self._has_sets or any(is_wrapper(batches, row) for row in range(batches.count))
        is_plain = self._is_bare and not has_sets and self._seen >= FEWEST_PLAIN
        return batch_evidence.LogBefore(
            self._base, following, is_start, is_plain, earlier=self._earlier, expected=expected, floor=self._floor
        )

    def _resynchronise(self) -> Iterator[Window]:
        """Handle the damaged batch at the buffer's start: report findings, yield the batch if it can be read, and move
        on.
        """
        buffer = self._buffer
        if buffer.position >= self._split_end and self._pending is None:
            return  # the next split reads it
        self.source.remove_end()
        reach = MAX_UNKNOWN_STREAM if not self._found_any and self.source.size is None else None
        began = buffer.position
        if not (self._found_any or self._first_bytes):
            buffer.fill(file_type.HEAD)
            self._first_bytes = bytes(buffer.view[buffer.start : min(buffer.start + file_type.HEAD, buffer.end)])
        outcome = resync.resynchronise(buffer, self._max_size, self._budget, reach, self._before())
        if outcome.torn and buffer.failed:
            # The read error, already reported, is the reason for the missing bytes: they are unread, not lost.
            self.damaged = True
            buffer.skip_to(buffer.shift + buffer.end)
            return
        if buffer.position == began and buffer.reread_if_modified(torn=outcome.torn):
            return
        if outcome.torn and buffer.is_outgrown():
            buffer.skip_to(buffer.shift + buffer.end)
            return
        head = self._first_bytes
        # A broker loads every file with such a name as a segment: one without a readable batch is damaged.
        named = outcome.torn and self.name_offset is not None and (self._by_name or not buffer.fill(17))
        recognised = outcome.recognised or (named and not (buffer.fill(17) and file_type.describe_likely_type(head)))
        if not self._found_any and outcome.torn and began == self.source.start:
            # The first bytes of other kinds of files can also look like a torn batch.
            recognised = recognised and not file_type.describe_certain_type(head)
        if outcome.gave_up or not (self._found_any or recognised):
            raise NotASegmentError(f"{self.name}: not a Kafka log segment: {file_type.describe_file(self.name, head)}")
        if outcome.lost:
            self._earlier = (*self._earlier[-1:], (self._floor, began))
        yield from self._apply(outcome)

    def _apply(self, outcome: resync_results.ResyncResult) -> Iterator[Window]:
        preallocated = [finding.rule for finding in outcome.findings] == ["zero-tail"]
        self._flush_pending(zeros_follow=preallocated)
        if self._buffer.position >= self._split_end:
            return
        self.damaged = self.damaged or not preallocated
        if outcome.if_last:
            self._pending = outcome
        else:
            for finding in outcome.findings:
                self._report(finding)
        self.lost_bytes += outcome.lost
        if outcome.entry_size is not None:
            yield self._emit_one(outcome.entry_size, outcome.magic, outcome.crc_state)
        self._buffer.skip_to(outcome.resume)
        self._buffer.fill(1)

    def _flush_pending(self, *, zeros_follow: bool = False) -> None:
        """Report the pending finding about the last batch: the bytes after it are known now."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        for finding in (pending.if_last,) if pending.if_last and zeros_follow else pending.findings:
            self._report(finding)


def batch_at(path: str, position: int, size: int) -> columns.BatchColumns | None:
    """Return the batch that begins at byte ``position`` of a log of ``size`` bytes.

    None if no batch with a valid CRC begins there.
    """
    if not 0 <= position < size:
        return None
    batches = columns.BatchColumns(1)
    try:
        data = read_range(path, position, min(size, position + LIKELY_SIZE))
        if len(data) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        length = framing.read_int32(data, SIZE_AT)
        if not framing.smallest_size(data[MAGIC_AT]) <= length <= min(MAX_ENTRY_SIZE, size - position - LOG_OVERHEAD):
            return None
        end = position + LOG_OVERHEAD + length
        data = data[: end - position] + read_range(path, min(position + len(data), end), end)
    except (KsegError, OSError):
        return None
    framed = framing.frame(data, 0, len(data), position, MAX_ENTRY_SIZE, batches) and batches.count
    return batches if framed and framing.check_crcs(memoryview(data), batches) else None


def read_range(path: str, start: int, end: int) -> bytearray:
    """Return bytes ``start`` to ``end`` of a file, fewer if the file ends before. Raises UnreadableError and OSError."""
    data, read = bytearray(end - start), 0
    if data:
        with open_range(path, start, end) as source, memoryview(data) as view:
            while count := source.readinto(view[read:]):
                read += count
    return data[:read]
