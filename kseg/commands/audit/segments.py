"""Audits of the extents of segments: gaps and overlaps between them, and what holds up time retention.

Only headers are read. Each folder is one replica of a partition: folders of the same partition are not merged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from kseg.format.record.columns import CRC_BAD
from kseg.format.record.layout import CODEC_MASK, NO_TIMESTAMP
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.storage.naming import base_offset_of, is_snapshot
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import SegmentFile, open_source, topic_partition
from kseg.schema import Row


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets, bytes and largest timestamp of a segment with batches.

    ``first_offset`` is None if only a compressed message set in a file without an offset in its name has it.
    ``timestamp`` is in epoch milliseconds, None if no batch has one; the ``pin_…`` fields are those of the last batch that
    has it.
    """

    topic: str | None
    partition: int | None
    file: str
    first_offset: int | None
    last_offset: int
    bytes: int
    timestamp: int | None
    pin_position: int | None
    pin_offset: int | None
    pin_producer: int | None

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)


def each_file(files: Sequence[SegmentFile]) -> list[SegmentFile]:
    """Return the segments without KRaft snapshots, sorted by folder and name."""
    return sorted((file for file in files if not is_snapshot(file.path)), key=lambda file: os.path.split(file.path))


def windows(file: SegmentFile) -> Iterator[Window]:
    """Yield the windows of a segment and count the bytes for the progress bar."""
    with SegmentReader(open_source(file.path, listed=file.listed)) as reader:
        done = 0
        for window in reader.windows():
            yield window
            add_progress(reader.position - done)
            done = reader.position


def columns(window: Window, *names: str) -> Iterator[tuple[int, ...]]:
    """Yield the named columns of each batch whose CRC is not wrong."""
    batches = window.batches
    lists = [memoryview(getattr(batches, name))[: batches.count].tolist() for name in ("crc_state", *names)]
    return (row[1:] for row in zip(*lists, strict=True) if row[0] != CRC_BAD)


def extent(file: SegmentFile) -> Extent | None:
    """Return the extent of a segment, None without a readable batch."""
    first: int | None = None
    last = size = 0
    pin: tuple[int, ...] | None = None
    any_batch = False
    for window in windows(file):
        for magic, attributes, base, end, length, timestamp, position, producer in columns(
            window,
            "magic",
            "attributes",
            "base_offset",
            "last_offset",
            "size",
            "max_timestamp",
            "position",
            "producer_id",
        ):
            # The first offset of a compressed message set is unknown until it is opened; the file name has a lower bound.
            begin = base_offset_of(file.path) if magic < 2 and attributes & CODEC_MASK else base
            if begin is not None:
                first = begin if first is None else min(first, begin)
            last = max(last, end) if any_batch else end
            size += length
            any_batch = True
            if timestamp != NO_TIMESTAMP and (pin is None or timestamp >= pin[0]):
                pin = timestamp, position, end, producer if magic >= 2 else None  # type: ignore[assignment]
    if not any_batch:
        return None
    return Extent(*topic_partition(file.path), file.path, first, last, size, *(pin or (None, None, None, None)))


def gaps(extents: Iterable[Extent]) -> Iterator[Row]:
    """Yield offsets between segments that no segment has (``gap``, normal after compaction) or two have (``overlap``)."""
    for _, of_folder in groupby(extents, key=lambda one: one.folder):
        for here, following in pairwise(of_folder):
            begin, end = following.first_offset, here.last_offset
            if begin is None or begin == end + 1:
                continue
            first, last = (begin, end) if begin <= end else (end + 1, begin - 1)
            yield {
                "kind": "overlap" if begin <= end else "gap",
                "topic": here.topic,
                "partition": here.partition,
                "file": here.file,
                "next_file": following.file,
                "first_offset": first,
                "last_offset": last,
            }


def retention_pins(extents: Iterable[Extent], now_ms: int | None = None) -> Iterator[Row]:
    """Yield segments that hold up time retention, with the batch that has the timestamp.

    A broker deletes segments from the oldest on and stops at the first one whose largest timestamp is too recent. A
    timestamp in the future (after ``now_ms``, epoch milliseconds), or larger than those of later segments, holds up the
    deletion of these segments, too.
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for _, of_folder in groupby(extents, key=lambda one: one.folder):
        found = [(one.timestamp, one) for one in of_folder if one.timestamp is not None]
        # The smallest timestamp after each segment: most segments hold up nothing, and need no loop over the later ones.
        smallest = [*accumulate((timestamp for timestamp, _ in reversed(found)), min)][::-1]
        for i, (timestamp, one) in enumerate(found):
            held = []
            if smallest[i] < timestamp:
                held = [later.bytes for other, later in found[i + 1 :] if other < timestamp]
            if held or timestamp > now:
                yield _pin(one, held, timestamp > now)


def _pin(one: Extent, held: list[int], future: bool) -> Row:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "file": one.file,
        "timestamp_ms": one.timestamp,
        "position": one.pin_position,
        "offset": one.pin_offset,
        "producer_id": one.pin_producer,
        "held_segments": len(held),
        "held_bytes": sum(held) if held else None,
        "future": future,
    }
