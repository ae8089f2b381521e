"""A cursor over one replica of a partition: its batches in all segments, and the records of opened batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from kseg.errors import UnreadableError
from kseg.findings import Finding, Report, do_nothing
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.log_loader.loaded_files import LeaderEpochCache
from kseg.format.record import columns, framing
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.layout import LOG_OVERHEAD
from kseg.format.record.offset_evidence import is_wrapper
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window
from kseg.format.sidefiles.checkpoints import LeaderEpoch, walk_leader_epochs
from kseg.format.storage import local_files
from kseg.format.storage.file_access import Progress
from kseg.format.storage.local_files import skip_special
from kseg.format.storage.naming import LEADER_EPOCHS, base_offset_of, is_snapshot
from kseg.format.storage.segment_files import SegmentFile, as_decoded, is_folder, segments_in
from kseg.format.storage.source import open_source
from kseg.format.writer.batch_runs import payload_of


def read_checkpoint(path: str, report: Report) -> list[LeaderEpoch]:
    """Return the entries of a ``leader-epoch-checkpoint``; none if the file does not exist."""
    if not local_files.is_file(path):
        return []
    with open_source(path, listed=True) as source:
        return [entry for _, entry in walk_leader_epochs(source, report)]


# Batches opened at once: few if replicas differ in single places, many if they differ everywhere.
MAX_AHEAD = 1024


def files_of(path: str) -> list[SegmentFile]:
    """Return the segments of a partition folder in offset order, or the one segment at ``path``.

    Raises UnreadableError, and UsageError for a folder at a URL.
    """
    local_files.check_no_url_folder(path)
    if not is_folder(path):
        return [SegmentFile(as_decoded(path))]
    found = [
        file
        for file in segments_in(str(Path(path)), skip_special(path, sorted(local_files.names_in(path))))
        if not is_snapshot(file.path)
    ]
    if not found:
        raise UnreadableError(f"{path}: no segment found: give a partition folder or a segment")
    return found


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """The extent of a replica after it was read: numbers of segments, batches and damaged places, and its offsets."""

    path: str
    segments: int
    batch_count: int
    first_offset: int | None
    last_offset: int | None
    end_offset: int
    damage: int
    lineage: LeaderEpochCache


class Replica:
    """A cursor over the batches of a replica. Batches with a wrong CRC, and those out of order, are skipped.

    After ``more`` returned True, ``row`` of ``batches`` is the current batch. ``open`` opens it: its records are then
    rows ``i`` to ``end`` of ``records``, their bytes in ``data``. ``report`` is called with (file, finding).
    ``damage`` counts places that cannot be read. ``torn`` is set if such a place lies directly before the current batch,
    ``broken`` if not all of its records can be read. If ``other`` is set, equal segments share its windows: advance
    ``other`` first.
    """

    def __init__(self, path: str, report: Callable[[str, Finding], None]) -> None:
        self.path = path
        self.files = files_of(path)
        self.file = self.files[0].path
        self.batches = BatchColumns(1)
        self.row = 0
        # The number of rows of the window: a shared window has other batches once ``other`` has advanced.
        self.stop = 0
        self.window: Window | None = None
        self.other: Replica | None = None
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        # The offset after the last record that could be read, None before the first one.
        self.unread_from: int | None = None
        self.batch_count = 0
        self.damage = 0
        self.torn = False
        self.broken = False
        self.finished = False
        self.opened = False
        self.i = 0
        self.end = 0
        self.records = RecordColumns(1)
        self.data: Any = b""
        self.chunk: Chunk | None = None
        self._active = False
        self._reader: SegmentReader | None = None
        # Of the current window, the positions of batches that are out of order.
        self._disordered: set[int] = set()
        self._report = report
        self.progress: Progress = do_nothing
        self._windows = self._all_windows()
        self._opener = _Opener(lambda finding: report(self.file, finding))
        self._from_batches = LeaderEpochCache()
        checkpoint = os.path.join(path, LEADER_EPOCHS)
        self._checkpoint = read_checkpoint(checkpoint, partial(report, checkpoint)) if is_folder(path) else []

    def close(self) -> None:
        """Close the segment that is being read. The generator and this object refer to each other: nothing else would."""
        self._windows.close()

    def more(self) -> bool:
        """Advance to a readable batch; return False at the end of the last segment."""
        while True:
            while self.row < self.stop:
                if self._disordered and self.batches.position[self.row] in self._disordered:
                    self.torn = True
                elif self.batches.crc_state[self.row] != columns.CRC_BAD:
                    return True
                self.row += 1
            window = next(self._windows, None)
            if window is None:
                self.finished = True
                return False
            self.window, self.batches, self.row, self.stop = window, window.batches, 0, window.batches.count
            self._collect_epochs()

    @property
    def is_message_set(self) -> bool:
        """Whether the current batch is a compressed message set of v0 or v1."""
        return is_wrapper(self.batches, self.row)

    @property
    def low(self) -> int:
        """The smallest possible first offset of the current batch. A compressed message set must be opened to know more.

        The first set is opened, and one after a damaged place: offsets before its first record are not in the log.
        """
        if not self.is_message_set:
            return self.batches.base_offset[self.row]
        if (self.torn or self.last_offset is None) and self.window is not None:
            chunk, row = self._opener.batch(self.window, self.row)
            if chunk.batches.record_total[row]:
                return chunk.records.offset[chunk.batches.first_record[row]]
        known = (base_offset_of(self.file) or 0) if self.last_offset is None else self.last_offset + 1
        return min(known, self.high)

    @property
    def high(self) -> int:
        """The last offset of the current batch."""
        return self.batches.last_offset[self.row]

    @property
    def offset(self) -> int:
        """The offset of the current record."""
        return self.records.offset[self.i]

    @property
    def end_offset(self) -> int:
        """The offset of the next record. If the newest segment is empty, its file name has it."""
        end = 0 if self.last_offset is None else self.last_offset + 1
        return max(end, base_offset_of(self.files[-1].path) or 0)

    @property
    def lineage(self) -> LeaderEpochCache:
        """The leader epochs of the checkpoint next to the log or, without one, of the batches read so far."""
        return LeaderEpochCache(self._checkpoint or self._from_batches.entries, self.end_offset)

    def summary(self) -> ReplicaSummary:
        """Return the extent of the replica, once it was read to its end."""
        return ReplicaSummary(
            self.path, len(self.files), self.batch_count, self.first_offset, self.last_offset, self.end_offset,
            self.damage, self.lineage,
        )  # fmt: skip

    def starts_after(self, offset: int) -> bool:
        """Whether the log begins after ``offset``, by its first file name or, without one, by its first batch."""
        begin = base_offset_of(self.files[0].path)
        if begin is None and self.last_offset is None:
            begin = self.low if self.first_offset is None and not self.finished else self.first_offset
        return begin is not None and offset < begin

    def advance(self, count: int = 1) -> None:
        """Skip ``count`` batches, beginning with the current one."""
        if self.first_offset is None:
            self.first_offset = self.low
        high = self.batches.last_offset[self.row + count - 1]
        if not self.broken:
            self.unread_from = max(high + 1, self.unread_from or 0)
        elif self.end:
            self.unread_from = self.records.offset[self.end - 1] + 1
        self.last_offset = high if self.last_offset is None else max(high, self.last_offset)
        self.batch_count += count
        self.row += count
        self.torn, self.broken = self.broken, False
        self.opened = False

    def open(self) -> None:
        """Open the current batch. Records that cannot be read are reported and counted as damage."""
        assert self.window is not None
        chunk, row = self._opener.batch(self.window, self.row)
        self.chunk, self.records, self.data = chunk, chunk.records, payload_of(chunk, row)
        self.opened = True
        self.i = self.end = 0
        if chunk.batches.record_total[row]:
            self.i = chunk.batches.first_record[row]
            self.end = self.i + chunk.batches.record_total[row]
            if self.first_offset is None:
                self.first_offset = self.records.offset[self.i]
        if not chunk.batches.intact[row]:
            self.damage += 1
            self.broken = True

    def next_part(self) -> bool:
        """Continue with the next part of an opened batch that is too large for one; False at the batch's end."""
        chunk = self._opener.next_part()
        if chunk is None:
            return False
        row = chunk.first
        self.chunk, self.records, self.data = chunk, chunk.records, payload_of(chunk, row)
        self.i = chunk.batches.first_record[row]
        self.end = self.i + chunk.batches.record_total[row]
        return True

    @property
    def opened_batches(self) -> BatchColumns:
        """The batches that ``records`` belong to."""
        return self._opener.batches

    def _all_windows(self) -> Generator[Window, None, None]:
        for file in self.files:
            self.file, self._active = file.path, file.active
            with SegmentReader(open_source(file.path, listed=file.listed), report=self._record_finding) as reader:
                done = 0
                offsets = ClaimedOffsets(file.path, self._record_disorder)
                self._reader = reader
                for window in chain(self._equal_windows(reader), reader.windows()):
                    self._disordered = offsets.update(window.batches)
                    yield window
                    self.progress(reader.position - done)
                    done = reader.position
                self.progress(reader.position - done)

    def _equal_windows(self, reader: SegmentReader) -> Iterator[Window]:
        """Yield the windows of ``other`` as long as this segment has the same bytes, which are then checked once.

        Damaged bytes are not shared: both replicas report them. Nor are those of a segment with another name, which can
        prove an offset wrong.
        """
        other = self.other
        while other is not None and other.window is not None and not (other.row or other.finished):
            model = other._reader
            if model is None or model.damaged or model.name_offset != reader.name_offset:
                return
            if not reader.skip_equal(other.window):
                return
            yield other.window

    def _record_finding(self, finding: Finding) -> None:
        self._report(self.file, finding)
        # A torn tail in the active segment is not damage: a broker may be writing there.
        live = self._active and finding.rule == "truncated-tail"
        if finding.is_error and not live:
            self.damage += 1
            self.torn = True

    def _record_disorder(self, finding: Finding) -> None:
        """Count a batch whose offsets, which no CRC covers, are not proved or contradict the batches around it."""
        self._report(self.file, finding)
        self.damage += 1

    def _collect_epochs(self) -> None:
        """Collect leader epochs as a broker does at recovery: only epochs larger than the latest."""
        batches = self.batches
        known = self._from_batches.entries
        latest = known[-1].epoch if known else -1
        if batches.partition_leader_epoch[0] == latest == batches.partition_leader_epoch[batches.count - 1]:
            return
        for row in range(batches.count):
            damaged = batches.crc_state[row] == columns.CRC_BAD or batches.position[row] in self._disordered
            if not damaged and batches.base_offset[row] >= 0:
                self._from_batches.assign(batches.partition_leader_epoch[row], batches.base_offset[row])


class _Opener:
    """Opens batches of windows. As long as they are requested in sequence, each time twice as many."""

    def __init__(self, report: Report) -> None:
        self.batches = BatchColumns(1)
        self._iterator = DeepIterator(report)
        self._window: Window | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._chunk: Chunk | None = None
        self._first = 0
        self._stop = 0

    def batch(self, window: Window, row: int) -> tuple[Chunk, int]:
        """Return the chunk that holds batch ``row`` of the window, and its row in that chunk."""
        if window is not self._window or not self._first <= row < self._stop:
            in_sequence = row == 0 if window is not self._window else row == self._stop
            ahead = 2 * (self._stop - self._first) if in_sequence else 1
            self._open(window, row, min(max(ahead, 1), MAX_AHEAD, window.batches.count - row))
        while self._chunk is None or self._chunk.stop <= row - self._first:
            self._chunk = next(self._chunks)
        return self._chunk, row - self._first

    def next_part(self) -> Chunk | None:
        """Return the next part of the batch that was opened last, None if there is none."""
        if self._chunk is None or not self._chunk.unfinished:
            return None
        self._chunk = next(self._chunks)
        return self._chunk

    def _open(self, window: Window, first: int, count: int) -> None:
        """Copy the headers of ``count`` batches into separate columns and start opening them."""
        old, batches = window.batches, BatchColumns(count)
        for n in range(count):
            row = first + n
            framing.read_header(window.data, old.at[row], old.size[row] - LOG_OVERHEAD, old.magic[row], batches, n)
            batches.position[n] = old.position[row]
            batches.crc_state[n] = old.crc_state[row]
            batches.selected[n] = old.selected[row]
        batches.count = count
        self.batches = batches
        self._window, self._first, self._stop = window, first, first + count
        self._chunk, self._chunks = None, self._iterator.chunks(Window(window.data, window.view, batches))
