"""The events of transactions in a window: batches of data, and markers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from kseg.format.record.control_records import ControlRecord
from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import Window
from kseg.format.segment.records_chunk import Chunk

#: A data batch: (row, base offset, None); a marker: (row, offset, marker).
Event = tuple[int, int, ControlRecord | None]


def transaction_events(window: Window, opener: DeepIterator) -> Iterator[Event]:
    """Yield the transactional data batches and markers of a window's selected batches, in order. Only markers are opened."""
    batches = window.batches
    if not any(batches.attributes[row] & TRANSACTIONAL and batches.magic[row] >= 2 for row in range(batches.count)):
        return
    selected = memoryview(batches.selected)[: batches.count]
    before = array("q", selected)
    for row in range(batches.count):
        if not batches.attributes[row] & CONTROL:
            selected[row] = 0
    for chunk in opener.chunks(window):
        yield from chunk_events(chunk, before)
    selected[:] = before


def chunk_events(chunk: Chunk, selected: Sequence[int]) -> Iterator[Event]:
    """Yield the events of a chunk. ``selected`` is 0 for each batch of the window that does not count.

    An empty control batch gives nothing: the cleaner leaves it of a marker whose transaction was removed.
    """
    batches = chunk.batches
    for row in range(chunk.first, chunk.stop):
        attributes = batches.attributes[row]
        if (
            batches.magic[row] < 2
            or not attributes & TRANSACTIONAL
            or batches.producer_id[row] < 0
            or not selected[row]
        ):
            continue
        if not attributes & CONTROL:
            yield row, batches.base_offset[row], None
            continue
        for i in chunk.rows(row):
            marker = chunk.control(i)
            if marker is not None and marker.type in ("ABORT", "COMMIT"):
                yield row, chunk.records.offset[i], marker
