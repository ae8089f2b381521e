"""Stream a log segment: frame its entries, check their CRCs, and go on behind damage.

The reader knows nothing of what entries mean; it yields windows of framed entries and reports what is not an entry.
``FileLogInputStream.nextBatch`` and ``LogSegment.recover`` stop at the first break. This doesn't: it looks for the
next real entry, and where the next header proves that only a length was wrong, it reads on with the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from kseg.errors import NotASegmentError
from kseg.findings import Report, ignore_finding
from kseg.format.record import framing, layout
from kseg.format.record.framing import BatchColumns
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.input_buffer import MAX_UNKNOWN_STREAM, InputBuffer
from kseg.format.storage.file_type import HEAD, describe_certain_type, describe_file, describe_likely_type
from kseg.format.storage.source import Source, base_offset_of

if TYPE_CHECKING:
    from kseg.format.segment.resync import Resync
    from kseg.format.segment.resync_search import ScanBudget

#: Entries larger than this are taken for a size that lies. Kafka's default limit is 1 MiB, and few raise it past 100.
MAX_ENTRY_SIZE = 256 * 1024 * 1024
#: An entry that claims more than this is looked into before it is read: no honest one was ever seen.
DOUBTFUL_SIZE = 64 * 1024 * 1024
WINDOW_SIZE = 4 * 1024 * 1024
WINDOW_ROWS = 16 * 1024  # a window of entries that are smaller ends when there are no more rows for them
SMALLEST_ENTRY = layout.LOG_OVERHEAD + framing.smallest(0)
FEWEST_ROWS = 1024  # entries are judged by their neighbours, as far as these are in the same window
# Behind damage there may be more: framing a whole window for each bad entry would take quadratic time.
REACH_AFTER_DAMAGE = 4 * 1024
# No producer's batch has more records than this.
LIKELY_STEP = 1_000_000


class Window:
    """A run of framed entries, rows of ``batches``, and the buffer they lie in. Valid until the next is asked for."""

    __slots__ = ("batches", "data", "view")

    def __init__(self, data: bytearray, view: memoryview, batches: BatchColumns) -> None:
        self.data = data
        self.view = view
        self.batches = batches


class SegmentReader:
    """Reads one segment front to back in constant memory.

    ``report`` is called with what is wrong as it is met. With ``verify_crc=False`` CRCs are not computed, as a
    consumer with check.crcs=false does; entries found behind damage are still verified.

    ``damaged`` is set once something is met that is not a whole entry with a good CRC, preallocated zeros at the end of
    the file excepted. Of a split (``open_split``) the entries that begin in it are read, and what is said of them is
    what is said when the whole file is read.
    """

    def __init__(
        self,
        source: Source,
        *,
        report: Report = ignore_finding,
        verify_crc: bool = True,
        max_entry_size: int = MAX_ENTRY_SIZE,
        by_name: bool = True,
    ) -> None:
        self.source = source
        self.name = source.name
        self.name_offset = base_offset_of(source.name)
        self.lost_bytes = 0
        self.damaged = False
        self._report = report
        self._verify_crc = verify_crc
        # Whether a segment's name makes a file without a readable entry a damaged segment, or it is none (NotASegmentError).
        self._by_name = by_name
        self._max_size = max_entry_size - layout.LOG_OVERHEAD
        # Short ranges are read by the thousand: behind damage, and where a conversion reads back what it wrote.
        room = WINDOW_SIZE if source.size is None else min(WINDOW_SIZE, max(source.size - source.start, 1024))
        self._buffer = InputBuffer(source, room, report)
        # What is in memory does not grow, and may be one of a million record sets.
        fewest = FEWEST_ROWS if source.may_grow else min(FEWEST_ROWS, room // SMALLEST_ENTRY)
        self._batches = BatchColumns(max(fewest, room * WINDOW_ROWS // WINDOW_SIZE))
        self._split_end = INT64_MAX if source.split_end is None else source.split_end
        self._next_offset: int | None = None
        self._floor = self.name_offset
        self._found_any = False
        self._held: Resync | None = None
        self._head = b""

    @property
    def position(self) -> int:
        """The byte of the file that reading has come to."""
        return self._buffer.position

    def windows(self) -> Iterator[Window]:
        """Every entry in order. Entries with a bad CRC, where the framing holds, come too, marked CRC_BAD.

        Raises NotASegmentError when the file holds no entry at all.
        """
        buffer = self._buffer
        batches = self._batches
        reach = len(buffer.data)
        buffer.fill(1)
        # Behind a split's end only a finding is read to its end that waits for what follows.
        while buffer.available and (buffer.position < self._split_end or self._held):
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
                from kseg.format.segment.resync import check_oversized_batch

                outcome = check_oversized_batch(buffer, self._max_size, self._expected(), self._effort)
                if outcome:
                    yield from self._apply(outcome)
                    continue
            if torn or buffer.available >= wanted or not buffer.fill(wanted):
                if not buffer.available:
                    break
                yield from self._resynchronise()
        self._flush_pending()

    @cached_property
    def _effort(self) -> ScanBudget:
        from kseg.format.segment.resync_search import ScanBudget  # what damage needs is loaded where damage is

        return ScanBudget()

    def _cut_at_split_end(self) -> bool:
        """Take entries that begin behind the split's end out of the columns; True where there are any."""
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
        """Bytes that the entry at the tape's start needs to be whole, as far as its header is there."""
        buffer = self._buffer
        if buffer.available < layout.HEADER_SIZE_UP_TO_MAGIC:
            return layout.HEADER_SIZE_UP_TO_MAGIC
        size = framing.read_int32(buffer.data, buffer.start + layout.SIZE_AT)
        magic = buffer.data[buffer.start + layout.MAGIC_AT]
        likely = framing.smallest(magic) <= size <= self._max_size
        return layout.LOG_OVERHEAD + size if likely else 0

    def _emit(self) -> Window:
        batches = self._batches
        self._found_any = True
        row = batches.count - 1
        last, expected = batches.last_offset[row], self._expected()
        # Where reading begins in the middle of a file, the name does not tell what comes before the first entry.
        first = self._next_offset is None and self.source.start > 0
        before = batches.last_offset[row - 1] + 1 if row else None if first else expected
        # The header of an entry with a bad CRC is believed as far as it is likely.
        if batches.crc_state[row] != framing.CRC_BAD or (expected is not None and 0 <= last - expected < LIKELY_STEP):
            self._next_offset = self._floor = last + 1
            if before is not None and batches.base_offset[row] != before:
                # The base offset is outside the CRC: one that is too high must not make all that follow look low.
                self._floor = min(before, last + 1)
        return Window(self._buffer.data, self._buffer.view, batches)

    def _emit_one(self, size: int, magic: int, crc_state: int) -> Window:
        """The entry at the tape's start, as a window of one row; ``size`` is the whole entry's."""
        buffer, batches = self._buffer, self._batches
        if crc_state == framing.CRC_GOOD:
            # What the CRC proved goes into this copy of the entry, so that whoever copies it on copies it right.
            buffer.view[buffer.start + layout.SIZE_AT : buffer.start + layout.LOG_OVERHEAD] = (
                size - layout.LOG_OVERHEAD
            ).to_bytes(4, "big")
            buffer.data[buffer.start + layout.MAGIC_AT] = magic
        framing.read_header(buffer.data, buffer.start, size - layout.LOG_OVERHEAD, magic, batches, 0)
        batches.position[0] = buffer.position
        batches.crc_state[0] = crc_state
        batches.selected[0] = crc_state != framing.CRC_BAD
        batches.count = 1
        return self._emit()

    def _expected(self) -> int | None:
        return self._next_offset if self._next_offset is not None else self.name_offset

    def _resynchronise(self) -> Iterator[Window]:
        """The entry at the tape's start does not hold: say what is wrong, yield what can be had, move on."""
        from kseg.format.segment.resync import resynchronise

        buffer = self._buffer
        if buffer.position >= self._split_end and self._held is None:
            return  # the next split's
        self.source.remove_end()
        reach = MAX_UNKNOWN_STREAM if not self._found_any and self.source.size is None else None
        began = buffer.position
        if not (self._found_any or self._head):
            buffer.fill(HEAD)
            self._head = bytes(buffer.view[buffer.start : min(buffer.start + HEAD, buffer.end)])
        outcome = resynchronise(buffer, self._max_size, self._expected(), self._floor, self._effort, reach)
        if outcome.torn and buffer.failed:
            # The read error has been told, and is why the file ends here.
            self.damaged = True
            self.lost_bytes += buffer.shift + buffer.end - began
            buffer.skip_to(buffer.shift + buffer.end)
            return
        if buffer.position == began and buffer.reread_if_modified(torn=outcome.torn):
            return
        if outcome.torn and buffer.is_outgrown():
            buffer.skip_to(buffer.shift + buffer.end)
            return
        # A broker takes every file of that name for a segment: one without a readable batch is damaged.
        named = outcome.torn and self.name_offset is not None and (self._by_name or not buffer.fill(17))
        recognised = outcome.recognised or (named and not (buffer.fill(17) and describe_likely_type(self._head)))
        if not self._found_any and outcome.torn and began == self.source.start:
            # Of other files, too, the beginning may look like that of a torn entry.
            recognised = recognised and not describe_certain_type(self._head)
        if outcome.gave_up or not (self._found_any or recognised):
            raise NotASegmentError(f"{self.name}: no Kafka log segment: {describe_file(self.name, self._head)}")
        yield from self._apply(outcome)

    def _apply(self, outcome: Resync) -> Iterator[Window]:
        preallocated = [finding.rule for finding in outcome.findings] == ["zero-tail"]
        self._flush_pending(zeros_follow=preallocated)
        if self._buffer.position >= self._split_end:
            return
        self.damaged = self.damaged or not preallocated
        if outcome.if_last:
            self._held = outcome
        else:
            for finding in outcome.findings:
                self._report(finding)
        self.lost_bytes += outcome.lost
        if outcome.entry_size is not None:
            yield self._emit_one(outcome.entry_size, outcome.magic, outcome.crc_state)
        self._buffer.skip_to(outcome.resume)
        self._buffer.fill(1)

    def _flush_pending(self, *, zeros_follow: bool = False) -> None:
        """Report what waited for what comes behind it."""
        held, self._held = self._held, None
        if held is None:
            return
        for finding in (held.if_last,) if held.if_last and zeros_follow else held.findings:
            self._report(finding)
