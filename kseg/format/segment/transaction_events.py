"""The events of transactions in a window: batches of data, and markers.

Compiled with the types of ``transaction_events.pxd``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, TypeAlias

from kseg.format.record import control_records
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader, Window

#: A data batch: (row, base offset, None); a marker: (row, offset, marker).
Event: TypeAlias = "tuple[int, int, control_records.ControlRecord | None]"


def transaction_events(window: Window, opener: DeepIterator, *, with_data: bool = True) -> Iterator[Event]:
    """Yield the transactional data batches and markers of a window's selected batches, in order. Only markers are opened.

    Without ``with_data`` only the markers are yielded.
    """
    batches = window.batches
    if not has_transactions(batches):
        return
    selected = memoryview(batches.selected)[: batches.count]
    before = array("q", selected)
    keep_control_batches(batches)
    for chunk in opener.chunks(window):
        yield from chunk_events(chunk, before if with_data else selected)
    selected[:] = before


def log_events(reader: SegmentReader) -> Iterator[tuple[BatchColumns, Iterator[Event]]]:
    """Yield the batches of each window of a log with their events. Use the events before the next window."""
    opener = DeepIterator()
    for window in reader.windows():
        yield window.batches, transaction_events(window, opener)


def has_transactions(batches: BatchColumns) -> bool:
    """Return whether a batch belongs to a transaction."""
    members = 0
    for row in range(batches.count):
        members |= batches.magic[row] >= 2 and batches.attributes[row] & TRANSACTIONAL
    return members != 0


def keep_control_batches(batches: BatchColumns) -> int:
    """Deselect the other batches, and return their number."""
    others = 0
    for row in range(batches.count):
        if not batches.attributes[row] & CONTROL:
            batches.selected[row] = 0
            others += 1
    return others


def drop_control_batches(batches: BatchColumns) -> None:
    """Deselect the control batches."""
    for row in range(batches.count):
        if batches.magic[row] >= 2 and batches.attributes[row] & CONTROL:
            batches.selected[row] = 0


def chunk_events(chunk: Chunk, selected: Any) -> list[Event]:
    """Return the events of a chunk. ``selected`` is 0 for each batch of the window that does not count.

    An empty control batch gives nothing: the cleaner leaves it of a marker whose transaction was removed.
    """
    batches = chunk.batches
    records = chunk.records
    decode = control_records.decode
    found: list[Event] = []
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
            found.append((row, batches.base_offset[row], None))
            continue
        payload = chunk.payload(row)
        for i in range(batches.first_record[row], batches.first_record[row] + batches.record_total[row]):
            key, value = records.key_size[i], records.value_size[i]
            try:
                marker = decode(
                    bytes(payload[records.key_at[i] : records.key_at[i] + key]) if key >= 0 else None,
                    bytes(payload[records.value_at[i] : records.value_at[i] + value]) if value >= 0 else None,
                )
            except control_records.MalformedControlRecord:
                continue
            if marker.type in ("ABORT", "COMMIT"):
                found.append((row, records.offset[i], marker))
    return found
