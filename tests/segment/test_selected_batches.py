"""The deep reader opens only the selected batches of a window, and a selection changes no fact about a batch."""

from __future__ import annotations

from pathlib import Path

from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import transaction_events
from kseg.format.storage.source import open_source

FIXTURES = Path(__file__).parents[2] / "fixtures" / "segments"
NAME = "00000000000000000000.log"


def test_a_batch_that_is_not_selected_is_not_opened() -> None:
    """Both uncompressed and compressed batches are skipped, and their stored CRC stays valid."""
    for folder in ("4.3.0-v2-none-transactions", "2.8.2-v0v1v2-mixed"):
        with SegmentReader(open_source(str(FIXTURES / folder / NAME))) as reader:
            for window in reader.windows():
                batches = window.batches
                states = [batches.crc_state[row] for row in range(batches.count)]
                for row in range(0, batches.count, 2):
                    batches.selected[row] = 0
                opened = set()
                for chunk in DeepIterator().chunks(window):
                    opened |= {chunk.records.batch[i] for i in range(chunk.records.count)}
                assert opened
                assert all(row % 2 for row in opened)
                assert states == [batches.crc_state[row] for row in range(batches.count)]


def test_transaction_events_leave_the_selection_as_it_was() -> None:
    """A caller can read the window again, and a batch deselected before gives no event."""
    with SegmentReader(open_source(str(FIXTURES / "4.3.0-v2-none-transactions" / NAME))) as reader:
        for window in reader.windows():
            every = list(transaction_events(window, DeepIterator()))
            assert every == list(transaction_events(window, DeepIterator()))
            data_row = next(row for row, _, marker in every if marker is None)
            window.batches.selected[data_row] = 0
            assert list(transaction_events(window, DeepIterator())) == [e for e in every if e[0] != data_row]
