"""The offsets of a batch with a wrong CRC: those of its header if the batches around it agree, or what is between them."""

from __future__ import annotations

import io

import pytest

from kseg.findings import Finding
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage

Range = tuple[int | None, int | None]


def batch(first: int, last: int, **fields: int) -> bytes:
    records = [PlainRecord(offset, b"k", b"value", 1) for offset in range(first, last + 1)]
    return damage.put(build_batch(records), 0, **fields)


def message(offset: int, **fields: int) -> bytes:
    return damage.put(build_message(PlainRecord(offset, b"k", b"value", 1), magic=1), 0, **fields)


def wrapper(first: int, last: int, **fields: int) -> bytes:
    records = [PlainRecord(offset, b"k", b"value", 1) for offset in range(first, last + 1)]
    return damage.put(build_wrapper(records, magic=1, compression="gzip"), 0, **fields)


def offsets_of(before: bytes, middle: bytes, after: bytes) -> tuple[Range, str]:
    """Return the offsets of the finding about the batch in the middle, whose last byte is wrong, and its note."""
    found: list[Finding] = []
    data = before + damage.flip(middle, len(middle) - 1) + after
    with SegmentReader(Source("s", io.BytesIO(data), len(data)), report=found.append) as reader:
        for _ in reader.windows():
            pass
    (finding,) = found
    assert (finding.rule, finding.position, finding.end) == ("crc-mismatch", len(before), len(before) + len(middle))
    return (finding.offset, finding.last_offset), finding.facts["note"]


#: The batch between offsets 1 and 4, and the offsets of the finding about it; with nothing after it; and with a wrapper.
CLAIMS: list[tuple[str, bytes, Range, Range]] = [
    ("right", batch(2, 3), (2, 3), (2, 3)),
    ("one record", batch(2, 2), (2, 2), (2, 2)),
    ("not as many records", batch(2, 3, record_count=1), (2, 3), (None, None)),
    ("it begins later", batch(3, 3), (3, 3), (None, None)),
    ("it ends where the next begins", batch(2, 4, record_count=2), (2, 3), (None, None)),
    ("it ends after the next begins", batch(3, 5), (2, 3), (None, None)),
    ("it begins too early", batch(1, 3), (2, 3), (None, None)),
    ("it is far away", batch(2, 3, base_offset=1 << 40), (2, 3), (None, None)),
    ("a negative offset", batch(2, 3, base_offset=-5), (2, 3), (None, None)),
    ("a message", message(2), (2, 2), (2, 2)),
    ("a later message", message(3), (3, 3), (None, None)),
    ("a message at the next offset", message(4), (2, 3), (None, None)),
    ("a message at the last offset", message(1), (2, 3), (None, None)),
    ("a wrapper", wrapper(2, 3), (None, 3), (None, 3)),
    ("a wrapper at the next offset", wrapper(2, 3, base_offset=4), (None, 4), (None, 4)),
    ("a wrapper at the last offset", wrapper(2, 3, base_offset=1), (2, 3), (None, None)),
    ("a wrapper far away", wrapper(2, 3, base_offset=1 << 40), (2, 3), (None, None)),
]


@pytest.mark.parametrize(("name", "middle", "between", "at_end"), CLAIMS, ids=[claim[0] for claim in CLAIMS])
def test_offsets_without_a_crc_are_confirmed_or_bounded(
    name: str, middle: bytes, between: Range, at_end: Range
) -> None:
    """A wrong CRC can mean a wrong offset: kseg names no offset as lost that only a damaged header claims."""
    before = message(0) + message(1)
    found, note = offsets_of(before, middle, message(4) if middle[16] < 2 else batch(4, 4))
    assert found == between, name
    claimed = damage.get(middle, 0, "base_offset")
    last = claimed + (damage.get(middle, 0, "last_offset_delta") if middle[16] == 2 else 0)
    assert (f"the header claims offset {last}" in note or f"claims offsets {claimed}..{last}" in note) == (
        found not in ((claimed, last), (None, last))
    )
    assert offsets_of(before, middle, b"")[0] == at_end
    assert offsets_of(before, middle, wrapper(4, 5))[0] == at_end, "a wrapper does not show its first offset"


@pytest.mark.parametrize(("zeros", "noted"), [(7, False), (8, True), (9, True), (40, True)])
def test_zeros_at_the_end_of_a_batch_are_named(zeros: int, noted: bool) -> None:
    """A page that was never written; fewer zeros can be there by chance."""
    found: list[Finding] = []
    middle = build_batch([PlainRecord(2, b"k", b"v" * 60, 1)])
    data = batch(0, 1) + damage.zero(middle, len(middle) - zeros, len(middle)) + batch(3, 4)
    with SegmentReader(Source("s", io.BytesIO(data), len(data)), report=found.append) as reader:
        assert sum(window.batches.count for window in reader.windows()) == 3
    (finding,) = found
    assert finding.rule == "crc-mismatch"
    assert (f"the last {zeros} bytes are zeros" in finding.facts["note"]) == noted
