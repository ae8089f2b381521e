"""Offsets that nothing proves are claims of a header: each is reported once, and no command counts with it."""

from __future__ import annotations

import io

import pytest

from kseg.findings import Finding
from kseg.format.checks.run_checks import ClaimedOffsets
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper


@pytest.mark.parametrize(
    ("name", "offsets", "expected"),
    [
        (0, (0, 1, 2, 3), []),
        (100, (500, 501), []),  # compaction removes what is before
        (0, (0, 1, 2 | 1 << 20), [(2, "offset-gap")]),
        (0, (1 << 28,), [(0, "offset-gap")]),
        (100, (100 + (1 << 30),), [(0, "offset-gap")]),
        (0, (1 << 40, 1, 2), [(0, "non-monotonic-offset")]),
        (0, (0, 1, 2, 10**12, 3, 4), [(3, "invalid-offset-range")]),
        (100, (1 << 40,), [(0, "file-name-mismatch")]),
        (None, (1 << 40,), []),  # nothing contradicts it
    ],
)
def test_each_claim_is_reported_once(
    name: int | None, offsets: tuple[int, ...], expected: list[tuple[int, str]]
) -> None:
    """``expected`` has the batches, counted from 0, and the rule."""
    parts = [build_batch([PlainRecord(offset, b"k", b"v", 1)]) for offset in offsets]
    data = b"".join(parts)
    found: list[Finding] = []
    claims = ClaimedOffsets("records.log" if name is None else f"{name:020}.log", found.append)
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        positions = {position for window in reader.windows() for position in claims.update(window.batches)}
    size = len(parts[0])
    assert [(one.position, one.rule) for one in found] == [(row * size, rule) for row, rule in expected]
    assert positions == {row * size for row, _ in expected}


@pytest.mark.parametrize(
    ("magic", "last"),
    [
        (0, (1 << 28) - 1),
        (1, (1 << 28) - 1),
        (2, (1 << 28) - 1),
        (-1, 1 << 28),  # the header of a wrapper has its last offset only
    ],
)
def test_a_claim_at_the_start_of_a_file_is_a_gap_up_to_it(magic: int, last: int) -> None:
    """The gap ends before the first offset that the header names, in every version."""
    records = [PlainRecord((1 << 28) + n, b"k", b"v", 1 if magic else -1) for n in range(2)]
    if magic == 2:
        data = build_batch(records)
    elif magic < 0:
        data = build_wrapper(records, magic=1, compression="gzip")
    else:
        data = build_message(records[0], magic=magic)
    found: list[Finding] = []
    claims = ClaimedOffsets(f"{0:020}.log", found.append)
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        assert [claims.update(window.batches) for window in reader.windows()] == [{0}]
    assert [(one.rule, one.facts["first"], one.facts["last"]) for one in found] == [("offset-gap", 0, last)]
