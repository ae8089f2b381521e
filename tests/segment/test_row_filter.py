"""Every limit of a filter, at, before and after the values of batches of all versions and kinds."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import product

import pytest

from kseg.format.record.memory import Needle
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.row_filter import KeyIsOneOf, RowFilter, rows_with
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper


@dataclass(frozen=True)
class Written:
    """A batch with its rows as (offset, timestamp).

    ``early`` is whether a record can be older than the largest timestamp, by the header alone.
    """

    data: bytes
    rows: list[tuple[int, int]]
    magic: int
    early: bool = True
    first: int | None = None
    producer: int = -1
    control: bool = False


def v2(rows: list[tuple[int, int]], producer: int = -1, *, control: bool = False) -> Written:
    records = [PlainRecord(offset, b"\0\0\0\1", bytes(6), time) for offset, time in rows]
    data = build_batch(
        records, control=control, transactional=control, producer_id=producer, producer_epoch=0, base_sequence=0
    )
    return Written(data, rows, 2, first=rows[0][0], producer=producer, control=control)


def appended(rows: list[tuple[int, int]]) -> Written:
    """Return a batch with LogAppendTime: its one timestamp replaces those that its records have."""
    records = [PlainRecord(offset, b"k", b"v", 1) for offset, _ in rows]
    data = build_batch(records, timestamp_type="LogAppendTime", max_timestamp=rows[0][1])
    return Written(data, rows, 2, early=False, first=rows[0][0])


def single(magic: int, offset: int, time: int) -> Written:
    data = build_message(PlainRecord(offset, b"k", b"v", time), magic=magic)
    return Written(data, [(offset, time)], magic, early=not magic, first=offset)


def wrapper(magic: int, rows: list[tuple[int, int]]) -> Written:
    records = [PlainRecord(offset, b"k", b"v", time) for offset, time in rows]
    return Written(build_wrapper(records, magic=magic, compression="gzip"), rows, magic)


WRITTEN = [
    single(0, 3, -1),
    wrapper(0, [(4, -1), (6, -1)]),
    single(1, 7, 50),
    wrapper(1, [(9, 40), (10, 60)]),
    v2([(12, 70), (13, 55), (15, 58)]),
    appended([(16, 65), (17, 65)]),
    v2([(18, 80)], 0),
    v2([(19, 81), (20, 79)], 7),
    v2([(21, 90)], 7, control=True),
]
OFFSETS = [None, *range(2, 24)]
TIMES = [None, -1, 0, 39, 40, 41, 49, 50, 51, 55, 56, 59, 60, 61, 64, 65, 66, 70, 71, 79, 80, 81, 90, 91]
FILTERS = [
    *(RowFilter(first_offset=first, end_offset=end) for first, end in product(OFFSETS, OFFSETS)),
    *(RowFilter(since=since, until=until) for since, until in product(TIMES, TIMES)),
    *(
        RowFilter(producer_id=producer, control=control)
        for producer in (None, -1, 0, 6, 7)
        for control in (None, False, True)
    ),
    *(RowFilter(first_offset=offset, until=time, control=False) for offset, time in product(OFFSETS, TIMES)),
]


def within(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value < high)


def selected(one: Written, chosen: RowFilter) -> list[int]:
    """Return the offsets of the rows that a filter selects, by its documentation."""
    if chosen.producer_id is not None and (one.magic < 2 or one.producer != chosen.producer_id):
        return []
    if chosen.control is not None and one.control is not chosen.control:
        return []
    timed = (chosen.since, chosen.until) != (None, None)
    return [
        offset
        for offset, time in one.rows
        if within(chosen.first_offset, offset, chosen.end_offset)
        and (not timed or (time != -1 and within(chosen.since, time, chosen.until)))
    ]


def may_have_rows(one: Written, chosen: RowFilter) -> bool:
    """Return whether the header of a batch leaves it open that a row is selected: a wrapper lacks its first offset."""
    largest = max(time for _, time in one.rows)
    return (
        (chosen.first_offset is None or one.rows[-1][0] >= chosen.first_offset)
        and (chosen.end_offset is None or one.first is None or one.first < chosen.end_offset)
        and (chosen.since is None or largest >= chosen.since)
        and (chosen.until is None or one.early or largest < chosen.until)
        and (chosen.producer_id is None or (one.magic >= 2 and one.producer == chosen.producer_id))
        and (chosen.control is None or one.control is chosen.control)
    )


def test_a_filter_selects_rows_and_batches_at_its_limits() -> None:
    """The rows are exactly those within the limits; a batch is left out only if its header shows that it has none."""
    data = b"".join(one.data for one in WRITTEN)
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        (window,) = reader.windows()
        (chunk,) = DeepIterator().chunks(window)
        for chosen in FILTERS:
            accepted = [chosen.accepts_batch(window.batches, row) for row in range(window.batches.count)]
            assert accepted == [may_have_rows(one, chosen) for one in WRITTEN], chosen
            found = {row: [chunk.records.offset[i] for i in rows] for row, rows in chosen.accepted_records(chunk)}
            assert found == {row: rows for row, one in enumerate(WRITTEN) if (rows := selected(one, chosen))}, chosen


@pytest.mark.parametrize("codecs", [("none",) * 3, ("gzip",) * 3, ("none", "gzip", "none"), ("gzip", "none", "gzip")])
def test_a_key_is_found_in_each_batch(codecs: tuple[str, ...]) -> None:
    """In the first and the last record, compressed or not; a value with the same bytes, or a longer key, is another one."""
    keys: list[bytes | None] = [b"a", b"b", b"ab", None, b"", b"b"]
    batches = [
        build_batch([PlainRecord(10 * n + i, key, b"ab", 1) for i, key in enumerate(keys)], compression=codec)
        for n, codec in enumerate(codecs)
    ]
    data = b"".join(batches)
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        (window,) = reader.windows()
        (chunk,) = DeepIterator().chunks(window)
        for wanted in ([b"a"], [b"b"], [b"ab"], [None], [b""], [b"c"], [b"a", None], [b"b", b"ab", b"a"]):
            chosen = RowFilter(conditions=(KeyIsOneOf(tuple(wanted)),))
            found = [chunk.records.offset[i] for _, rows in chosen.accepted_records(chunk) for i in rows]
            assert found == [10 * n + i for n in range(3) for i, key in enumerate(keys) if key in wanted], wanted


def test_rows_with_one_of_several_needles_are_found_once() -> None:
    """In their order, also if both needles are in a record, and in compressed batches between others."""
    values = [b"left", b"right", b"neither", b"right left", b"right"]
    data = b"".join(
        build_batch([PlainRecord(10 * n + i, None, value, 1) for i, value in enumerate(values)], compression=codec)
        for n, codec in enumerate(("none", "gzip", "none"))
    )
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        (window,) = reader.windows()
        (chunk,) = DeepIterator().chunks(window)
        found = rows_with(chunk, [Needle(b"right"), Needle(b"left")])
        assert [chunk.records.offset[i] for i in found] == [10 * n + i for n in range(3) for i in (0, 1, 3, 4)]
        assert rows_with(chunk, [Needle(b"neither")]) == [2, 7, 12]


@pytest.mark.parametrize(
    ("first", "end", "accepted"),
    [(10, 20, True), (20, 30, False), (19, 30, True), (0, 10, False), (0, 11, True), (None, 10, False), (20, None, False),
     (None, None, True), (None, 11, True), (19, None, True)],
)  # fmt: skip
def test_a_segment_without_offsets_of_the_range_is_not_read(first: int | None, end: int | None, accepted: bool) -> None:
    """Ranges are half-open, and the end of the newest segment is unknown."""
    assert RowFilter(first_offset=10, end_offset=20).accepts_offsets(first, end) == accepted
    assert RowFilter().accepts_offsets(first, end)


def test_both_filters_hold() -> None:
    """The narrower limit of two counts, and no limit is no limit."""
    one = RowFilter(1, 9, 5, None, topics=frozenset("ab"), partitions=None)
    other = RowFilter(2, None, 4, 8, topics=frozenset("bc"), partitions=frozenset({1}))
    expected = RowFilter(2, 9, 5, 8, topics=frozenset("b"), partitions=frozenset({1}))
    assert one.both(other) == other.both(one) == expected
    files = {("b", 1): True, ("b", 2): False, ("a", 1): False, (None, None): False}
    assert {file: expected.accepts_file(*file) for file in files} == files
    assert [RowFilter(**limit).has_ranges for limit in ({}, {"since": 0}, {"end_offset": 0}, {"control": True})] == [
        False, True, True, False,
    ]  # fmt: skip


def test_the_offsets_of_a_wrapper_at_offset_0_are_those_of_its_messages() -> None:
    """Early versions of librdkafka sent such wrappers, and Kafka counts from 0 then: its header has no last offset."""
    data = bytes(8) + build_wrapper([PlainRecord(i, b"k", b"v", 1) for i in range(3)], magic=1, compression="gzip")[8:]
    wanted = RowFilter(first_offset=1, end_offset=3)
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        (window,) = reader.windows()
        (chunk,) = DeepIterator().chunks(window)
        assert [[chunk.records.offset[i] for i in kept] for _, kept in wanted.accepted_records(chunk)] == [[1, 2]]
        assert not wanted.accepts_batch(chunk.batches, 0), "the row of the set shows that it ends at offset 0"
