"""The events of transactions in a window: batches of data, and markers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kseg.format.record.control_records import ControlRecord
from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import Window


def transaction_events(window: Window, opener: DeepIterator) -> Iterator[tuple[int, int, ControlRecord | None]]:
    """Yield the transactional data batches and markers of a window's selected batches, in order.

    A data batch gives (row, base offset, None), a marker (row, offset, marker). Only markers are opened. An empty control
    batch gives nothing: the cleaner leaves it of a marker whose transaction was removed.
    """
    batches = window.batches
    selected = memoryview(batches.selected)[: batches.count]
    before = array("q", selected)
    for row in range(batches.count):
        if not batches.attributes[row] & CONTROL:
            selected[row] = 0
    for chunk in opener.chunks(window):
        for row in range(chunk.first, chunk.stop):
            attributes = batches.attributes[row]
            if batches.magic[row] < 2 or not attributes & TRANSACTIONAL or batches.producer_id[row] < 0:
                continue
            if not attributes & CONTROL:
                if before[row]:
                    yield row, batches.base_offset[row], None
                continue
            for i in chunk.rows(row):
                marker = chunk.control(i)
                if marker is not None and marker.type in ("ABORT", "COMMIT"):
                    yield row, chunk.records.offset[i], marker
    selected[:] = before
