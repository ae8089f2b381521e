"""The transactional entries of a window: data as it stands, markers opened, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.format.record.columns import CRC_BAD
from kseg.format.record.control_records import ControlRecord
from kseg.format.record.layout import CONTROL, TRANSACTIONAL
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.reader import Window


def transaction_events(window: Window, opener: DeepIterator) -> Iterator[tuple[int, int, ControlRecord | None]]:
    """(row, offset, None) of each batch of data, (row, offset, marker) of each marker, in order, where the CRC holds.

    Only markers are opened: for that others are marked as if their CRC were bad, so this is the last look at a window.
    An empty control batch, which is what the cleaner left of a marker whose transaction is gone, tells nothing.
    """
    batches = window.batches
    sound = [batches.crc_state[row] != CRC_BAD for row in range(batches.count)]
    for row in range(batches.count):
        if not batches.attributes[row] & CONTROL:
            batches.crc_state[row] = CRC_BAD
    for chunk in opener.chunks(window):
        for row in range(chunk.first, chunk.stop):
            attributes = batches.attributes[row]
            if batches.magic[row] < 2 or not attributes & TRANSACTIONAL or batches.producer_id[row] < 0:
                continue
            if not attributes & CONTROL:
                if sound[row]:
                    yield row, batches.base_offset[row], None
                continue
            for i in chunk.rows(row):
                marker = chunk.control(i)
                if marker is not None and marker.type in ("ABORT", "COMMIT"):
                    yield row, chunk.records.offset[i], marker
