"""Write rows of one partition, in the order of their offsets, as sealed segments."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import lt
from pathlib import Path
from typing import IO

from kseg.errors import KsegError, UsageError
from kseg.findings import Finding
from kseg.format.compress.codecs import compress
from kseg.format.record import encoder
from kseg.format.record.layout import CONTROL, FIRST_LEADER_EPOCH, INT32_MAX, LOG_APPEND_TIME, RECORD_BATCH_OVERHEAD
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.naming import is_topic_name
from kseg.format.storage.source import open_source
from kseg.format.writer.output_guards import index_paths
from kseg.format.writer.records_builder import OutputBuffer, codec_id
from kseg.format.writer.written_side_files import EpochRun, append_run
from kseg.spark.jobs.arrow_columns import Rows


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """Complete segments of a partition, in a folder of their own: offsets ``first`` to ``last``, both inclusive.

    ``epochs`` are the runs of leader epochs. ``has_producers``: a batch has a producer id.
    """

    folder: Path
    name: str
    first: int
    last: int
    epochs: Sequence[EpochRun]
    has_producers: bool


class SegmentRun:
    """Writes rows in batches, and begins a new segment if the next batch doesn't fit. Sizes are in bytes."""

    def __init__(
        self, folder: Path, place: tuple[str | None, int | None], compression: str, segment_bytes: int, batch_bytes: int
    ) -> None:
        _check_place(*place)
        self.place = place
        self.name = "{}-{}".format(*place)
        self.last = -1
        self._folder = folder
        folder.mkdir(parents=True)
        self._codec = codec_id(compression)
        self._segment_bytes = segment_bytes
        self._batch_bytes = batch_bytes
        self._buffer = OutputBuffer()
        self._log: IO[bytes] | None = None
        self._base = self._position = 0
        self._first: int | None = None
        self._epochs: list[EpochRun] = []
        self._has_producers = False

    def append(self, rows: Rows) -> None:
        """Write rows. A batch ends at the end of the rows that Spark passes at a time. Raises UsageError."""
        self._check_order(rows.offsets)
        first, count = 0, len(rows.offsets)
        cuts = [*rows.facts.cuts, count] if rows.facts else [count]
        limit = INT32_MAX if rows.facts and rows.facts.placed else self._batch_bytes
        for cut in cuts:
            while first < cut:
                before = rows.ends[first - 1] if first else 0
                stop = max(bisect_right(rows.ends, before + limit, first, cut), first + 1)
                stop = bisect_right(rows.offsets, rows.offsets[first] + INT32_MAX, first, stop)
                size = rows.ends[stop - 1] - before + (stop - first) * encoder.ROOM_PER_RECORD
                self._write(self._batch(rows, first, stop, size), rows.offsets[first], rows.offsets[stop - 1])
                first = stop

    def _check_order(self, offsets: Sequence[int]) -> None:
        if offsets[0] <= self.last or not all(map(lt, offsets, offsets[1:])):
            before = [self.last, *offsets]
            last, offset = next(pair for pair in pairwise(before) if pair[1] <= pair[0])
            raise UsageError(f"{self.name}: offset {offset} after {last}: offsets must increase")
        self.last = offsets[-1]

    def _batch(self, rows: Rows, first: int, stop: int, size: int) -> memoryview:
        out, records, facts = self._buffer.reserve(RECORD_BATCH_OVERHEAD + size), rows.records, rows.facts
        base, stamp = rows.offsets[first], records.timestamp[first]
        attributes, producer, epoch = 0, (-1, -1, -1), FIRST_LEADER_EPOCH
        if facts:
            attributes, epoch = facts.attributes[first], facts.leader_epoch[first]
            producer = (facts.producer_id[first], facts.producer_epoch[first], facts.sequence[first])
            self._has_producers |= producer[0] >= 0
        codec = 0 if attributes & CONTROL else self._codec  # a broker writes markers without compression
        end = encoder.encode_records(rows.data, records, first, stop, base, stamp, out, RECORD_BATCH_OVERHEAD)
        view = self._buffer.view[:end]
        if codec:
            view = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + compress(codec, view[RECORD_BATCH_OVERHEAD:]))
        newest = stamp if attributes & LOG_APPEND_TIME else encoder.largest_timestamp(records, first, stop)
        encoder.finish_batch(
            view,
            0,
            len(view),
            base,
            rows.offsets[stop - 1],
            stop - first,
            codec | attributes,
            stamp,
            newest,
            *producer,
            epoch,
        )
        append_run(self._epochs, [epoch, base, rows.offsets[stop - 1]])
        return view

    def _write(self, batch: memoryview, first: int, last: int) -> None:
        if self._position + len(batch) > self._segment_bytes or last - self._base > INT32_MAX:
            self._seal()
        if self._log is None:
            self._base, self._position = first, 0
            self._first = first if self._first is None else self._first
            self._log = (self._folder / f"{first:020}.log").open("xb")
        self._log.write(batch)
        self._position += len(batch)

    def _seal(self) -> None:
        if self._log is not None:
            _seal(self._log)
            self._log = None

    def finish(self) -> WrittenRun:
        """Complete the last segment: all rows are written."""
        self._seal()
        assert self._first is not None
        return WrittenRun(self._folder, self.name, self._first, self.last, self._epochs, self._has_producers)

    def close(self) -> None:
        """Close the open files, whether the run is complete or not."""
        if self._log is not None:
            self._log.close()


def _check_place(topic: str | None, partition: int | None) -> None:
    if topic is None or not is_topic_name(topic):
        raise UsageError(f"{topic!r} is not a valid topic name")
    if partition is None or partition < 0:
        raise UsageError(f"{topic}: {partition} is not a valid partition number")


def _seal(log: IO[bytes]) -> None:
    """Sync a segment to disk, and write its indexes, which are built from a read of the segment."""
    log.flush()
    os.fsync(log.fileno())
    log.close()
    path = Path(log.name)

    def wrong(finding: Finding) -> None:
        if finding.is_error:
            raise KsegError(f"{path}: after reading back: {finding.rule}: {finding.message}")

    offsets, times = index_paths(path)
    with (
        SegmentReader(open_source(path), report=wrong) as reader,
        offsets.open("xb") as first,
        times.open("xb") as second,
    ):
        builder = IndexBuilder(int(path.stem), first, second)
        for window in reader.windows():
            builder.add(window.batches, 0, window.batches.count)
        builder.finish()
        for index in (first, second):
            index.flush()
            os.fsync(index.fileno())
