"""The deep reader opens only the selected batches of a window, and a selection changes no fact about a batch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import transaction_events
from kseg.format.storage.source import Source, open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support import damage

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


def _batch(offset: int, producer: int, attributes: int, key: bytes = b"k", compression: str = "none") -> bytes:
    record = PlainRecord(offset, key, bytes(6), 1)
    built = build_batch([record], compression=compression)
    codec = damage.get(built, 0, "attributes")
    return damage.alter(built, 0, attributes=attributes | codec, producer_id=producer, producer_epoch=0)


def test_events_are_the_data_and_the_markers_of_transactions() -> None:
    """Neither other control records, nor batches without a producer, nor those of the versions before transactions."""
    abort, commit, leader_change = (bytes([0, 0, 0, kind]) for kind in (0, 1, 2))
    legacy = damage.alter(build_message(PlainRecord(0, b"k", b"v", 1), magic=1), 0, attributes=0x10)
    empty = damage.alter(build_batch([], base_offset=9), 0, attributes=0x30, producer_id=4, producer_epoch=0)
    parts: list[tuple[bytes, Any]] = [
        (legacy, None), (_batch(1, 3, 0), None), (_batch(2, 0, 0x10), (2, None)), (_batch(3, -1, 0x10), None),
        (_batch(4, 0, 0x30, commit), (4, "COMMIT")), (_batch(5, 8, 0x30, abort, "gzip"), (5, "ABORT")),
        (_batch(6, 0, 0x30, b"\0\0\0"), None), (_batch(7, 0, 0x30, leader_change), None),
        (_batch(8, 0, 0x20, commit), None), (empty, None), (_batch(10, 7, 0x10, compression="gzip"), (10, None)),
    ]  # fmt: skip
    expected = [(row, *event) for row, (_, event) in enumerate(parts) if event]

    def events(given: list[bytes], **options: bool) -> list[Any]:
        data = b"".join(given)
        with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
            (window,) = reader.windows()
            found = transaction_events(window, DeepIterator(), **options)
            return [(row, offset, marker and marker.type) for row, offset, marker in found]

    assert events([data for data, _ in parts]) == expected
    assert events([data for data, _ in parts], with_data=False) == [one for one in expected if one[2]]
    assert events([parts[0][0], parts[1][0], parts[8][0]]) == []
    assert events([parts[2][0]]) == [(0, 2, None)]
